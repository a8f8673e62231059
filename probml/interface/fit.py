"""A fitted model, of any engine: summaries, queries about rows, posteriors, simulation, saving."""

import functools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from probml.dataset.frames import aligned, check_order, shortest
from probml.dataset.measures import with_measures
from probml.dataset.tables import read_weights
from probml.device import load
from probml.device.rows import Known, Rows
from probml.engines.engine import Status
from probml.errors import ModelError, Refusal, listed
from probml.evidence.e_step import log_evidence
from probml.factors.naturals import argument_table, log_prior
from probml.fits import further, saving, standard_errors
from probml.fits.places import FittedRows
from probml.fits.standard_errors import StandardErrors
from probml.interface.answer_table import answer_questions
from probml.interface.argument_checks import checked_verbs
from probml.interface.functions.read_function import read_function
from probml.interface.other_libraries import OF_FITS, missing_attribute
from probml.interface.questions import Questions
from probml.interface.record import StaticPart
from probml.interface.showing.subject import Subject, of_fit
from probml.interface.tables.table_answers import answers_in_tables
from probml.language.given import as_mapping
from probml.numerics.compiling import ASKED, jit
from probml.numerics.precision import in_its_own
from probml.numerics.process.libraries import LateModule, pd
from probml.numerics.transfer import placed_all
from probml.plan import decide
from probml.plan.plan import Plan
from probml.typing import SiteValues

if TYPE_CHECKING:
    from probml.assessment import reports
    from probml.interface.showing import page
else:
    reports, page = map(LateModule, ("probml.assessment.reports", "probml.interface.showing.page"))


@in_its_own
@checked_verbs
@dataclass(frozen=True, eq=False)
class Fit(Questions):
    """A model and what was inferred; immutable, a pytree.

    Attributes:
        model: the Model.
        point: the value of every free parameter, name → array: the posterior mean for Exact, NUTS,
            SVI and VB, for Laplace whose importance weights pass, and for EM where no engine was
            named and the posterior about its optimum passes the same test; else the maximum.
        params: `point`, and what the model computes outside rows (numpyro.deterministic,
            reparametrised sites): its value at the point for EM and MAP; where there is a posterior
            (Laplace too) its mean over the draws, of a closed form or a normal over 1000; likewise
            the steps of a loop that are integrated out, and what is computed from them.
        history: the objective (log posterior, or log likelihood with prior=False), its start
            included; for NUTS the optimisation before it, then the log density of each iteration,
            the mean of all chains; for SVI the evidence lower bound.
        held_out: of MAP(held_out=...), the mean log evidence of a held-out row, at every entry of
            history; else None.
        converged: whether the engine converged.
        iterations: the number of iterations.
        status: how the engine ended, and its findings, in a line.
        warnings: findings that need action, a tuple, each with `code`, `parameter`, `entry`,
            `numbers`, `problem`, `consequence` and `remedies`; docs/how_to/warnings.md has a
            section for each code. findings: these, and those for information.
        log_evidence: log p(data): exact for Exact; an estimate by importance weights for Laplace,
            where these pass their test and no prior is flat; else None.
        evidence_error: the standard error of such an estimate; None: log_evidence is exact, or
            there is none.
        bound: a lower bound of it, where the engine maximises one, as VB does; else None.

    Examples:
        >>> import numpyro.distributions as dist
        >>> from numpyro import sample
        >>> import probml
        >>> @probml.model
        ... def lengths():
        ...     mean = sample("mean", dist.Normal(0.0, 10.0))
        ...     sd = sample("sd", dist.HalfNormal(5.0))
        ...     with probml.rows():
        ...         sample("x", dist.Normal(mean, sd))
        >>> data = {"x": [1.2, 0.7, 2.1, 1.6, 0.9, 1.4, 1.1, 1.9]}
        >>> fit = lengths().fit(data, probml.MAP())
        >>> {name: round(float(value), 2) for name, value in fit.params.items()}
        {'mean': 1.36, 'sd': 0.45}
        >>> fit.converged
        True
        >>> fit.summary().shape[0]
        2
        >>> round(float(fit.log_prob({"x": [1.0]})[0]), 1)
        -0.4
    """

    def __getattr__(self, name: str) -> Any:
        raise missing_attribute(self, name, OF_FITS)

    def summary(self, data: object = None, *, weights: object = None):
        """A pandas table with a row for each element of a parameter: its estimate, or its posterior
        mean and sd; for draws also the 5% and 95% quantiles; for chains the effective sample sizes
        and R-hat (R-hat is missing with one chain; Vehtari et al. 2021); for weighted draws their
        effective sample size (`ess`) and Pareto's k of the weights (`k_hat`; Vehtari et al. 2024).
        Elements are named by columns, groups and labels: w[smoke]. For the `fit_` of an estimator
        of probml.models the table is in the units of the user's columns, whatever those of
        `params`.

        Of a point (EM, MAP) `sd` is a standard error: the square root of the diagonal of the
        inverse of the observed information, with all latent variables summed or integrated out, by
        the delta method. It is not the standard deviation of a posterior: for that take Laplace()
        or NUTS(). `summary().attrs["warnings"]` has the warnings of the fit, and one where the
        posterior is far from this point. In a mixed model, errors of fixed effects and of random
        effects are computed given the standard deviations of the random effects, as in lme4. Where
        there is no standard error it is NaN, and a column `note` says why: an estimate at a
        boundary, a direction that is not identified, a fit that ended before its maximum, more than
        1,024 parameters, a fit without its rows.

        Args:
            data: the rows that were fitted; by default those that a fit of a point retains. A fit
                from a file or a pickle, one by merge() or update(), of a source, or of more than 4
                million numbers retains none. With `data` there is no limit of time, else about ten
                seconds. weights: theirs.

        Raises:
            DataError: bad rows, by name.

        Cost: of a point, once, a Hessian of all rows (regressions), or four gradients a parameter.
        """
        if data is None and weights is not None:
            raise ModelError("summary(weights=...): these are the weights of the rows of data=, "
                             "which is missing. Pass summary(data, weights=...), or omit weights=")
        return self._table(self._standard_errors if data is None
                           else self._standard_errors_from(data, weights))

    def _table(self, errors: StandardErrors | None):
        """The summary with these standard errors; None: without, which costs nothing."""
        return reports.summary(self, errors)

    def _covariance(self, names: Sequence[str], data: object = None, weights: object = None):
        """The joint covariance of the flattened, concatenated parameters, in the units of the
        user's columns; NaN where it is not known. `data`, `weights`: the rows, where the fit holds
        none."""
        return reports.covariance(self, names, functools.partial(
            self._standard_errors_of_rows, data, weights))

    def _with_errors(self, names: Sequence[str], data: object = None,
                     weights: object = None) -> "Fit":
        """The fit with the standard errors of some parameters stored; arguments as of
        _covariance."""
        errors = reports.standard_errors(self, names, functools.partial(
            self._standard_errors_of_rows, data, weights))
        result = replace(self, errors={**self.errors, **errors})
        if "_standard_errors" in vars(self):  # computed once
            vars(result)["_standard_errors"] = self._standard_errors
        return result

    def _standard_errors_of_rows(self, data: object, weights: object) -> StandardErrors | None:
        has_rows = data is None or self.fitted_rows is not None
        return self._standard_errors if has_rows else self._standard_errors_from(data, weights)

    @functools.cached_property
    def _standard_errors(self) -> StandardErrors | None:
        """The standard errors of a point, from the rows that it retains."""
        return self._compute_standard_errors(self.fitted_rows)

    @answers_in_tables()
    def _standard_errors_from(self, data: object, weights: object) -> StandardErrors | None:
        check_order(data, weights)
        with jax.enable_x64(True):
            rows = self._read(data)
        rows = rows._replace(table=replace(rows.table,
                                           values={**self.given, **rows.table.values}))
        first: Any = self.fitted_rows.first if self.fitted_rows is not None else None
        return self._compute_standard_errors(
            FittedRows(rows, read_weights(weights, rows.table.rows), first), True)

    @functools.cached_property
    def _standard_errors_by_direction(self) -> StandardErrors | None:
        """The standard errors with derivatives along directions, also of a fit that has stored
        standard errors."""
        errors = self._standard_errors
        if errors is None or errors.derivatives:
            return errors
        return self._compute_standard_errors(self.fitted_rows, recompute=True)

    def _compute_standard_errors(self, rows: FittedRows | None, unlimited: bool = False,
                                 recompute: bool = False) -> StandardErrors | None:
        """None where there is nothing to compute: of a posterior, of parameters that were given.

        Args:
            unlimited: however long it takes. recompute: also where the fit stores standard errors.
        """
        if (self.belief.exact or self.belief.varies and not self.belief.partly
            or self.outcome is Status.KNOWN or self.learnt is not None):
            return None
        if not recompute and self.errors.keys() >= self.params.keys():
            return StandardErrors({}, {})
        engine = self.made_by
        if engine is None:
            return StandardErrors.missing(
                f"the file of the fit does not store the engine '{self.engine}'. Fit again")
        if engine.capabilities.finds != "point":
            return None
        if self.outcome is Status.DIVERGED:
            return StandardErrors.missing("the objective has no maximum (see fit.warnings)")
        if rows is None:
            return StandardErrors.missing("this fit does not store its data. Call "
                                          "fit.summary(data)")
        try:
            return standard_errors.standard_errors(
                rows._replace(first=rows.first or engine), engine, self.point, self.units,
                self.belief.table is None, unlimited)
        except Refusal as why:  # more memory in float64 than there is
            return StandardErrors.missing(str(why))

    def to_arviz(self, data: object = None, prior: int | None = None):
        """The posterior for ArviZ: an InferenceData for ArviZ 0.2x, a DataTree for 1.x. Its groups
        are posterior, sample_stats, log_likelihood of each row, posterior_predictive and
        observed_data, with the names of plates and the labels of states as dimensions and
        coordinates. For a function without rows() (one joint density), log_likelihood is that of
        each observed element, and there is no posterior_predictive. For the `fit_` of an estimator
        of probml.models all values are in the units of the user's columns, as in `summary`; only
        `lp` is the log density that was sampled. Row weights, which ArviZ does not have, are left
        out, with a warning.

        Args:
            data: the rows; by default those that were fitted.
            prior: so many draws of the prior as well, the groups prior and prior_predictive.

        Raises:
            Refusal: the engine found a point, not a posterior; a prior that cannot be drawn from.
            ModelError: no ArviZ; a fit that does not hold its rows, and none given.

        Cost: an evidence and a simulation of all rows a draw; memory of chains × draws × rows
            numbers.
        """
        return reports.to_arviz(self, data, prior)

    @answers_in_tables()
    def log_joint(self, data: object) -> float:
        """log p(data, params) = log p(params) + Σ log p(row | params), discrete latent variables
        summed out, those outside rows over all rows together. One number.

        Raises:
            ModelError: a fit of `at(params)` that lacks a parameter. DataError: bad rows, by name.

        Cost: one pass.
        """
        parsed = self._read(data)
        parsed = with_measures(parsed._replace(table=replace(
            parsed.table, values={**self.given, **parsed.table.values}))).trimmed()
        plan = parsed.plan()
        missing = next((name for name in plan.free if name not in self.point), None)
        if missing is not None:
            raise ModelError(
                f"log_joint: a value of every parameter of model '{self.model.name}' is needed, "
                f"but at(params) was called only with {listed(self.point)}. Add '{missing}' to "
                "params"
            )
        rows, known = load.load(parsed, plan, params=self.point)
        return float(_log_joint(plan, placed_all(dict(self.point)), known, rows))

    def do(self, values: SiteValues) -> "Fit":
        """The fit after an intervention: the named sites are set in every row and no longer depend
        on their parents (Pearl 2009, graph surgery), so that they carry no information about their
        causes.

        Args:
            values: site inside rows() → its state as a label, or its value, the same in every row.

        Raises:
            ModelError: a site is unknown or lies outside rows(); a label or value that it cannot
                have. Refusal: the model has no rows.
        """
        self.structure.need_rows("do(values)")
        codes = {}
        for name, value in as_mapping(values, "do(values)", "{'smoke': 1}").items():
            labels = self.names.get(name)
            if labels is not None and not any(value is x or np.ndim(value) == 0 and value == x
                                              for x in labels):
                raise ModelError(f"do({{'{name}': {value!r}}}): expected one of the labels of "
                                 f"'{name}', {listed(labels)}")
            codes[name] = (value if labels is None
                           else labels.index(value) + self._lowest_value(name))
        model: Any = self.model
        return replace(self, model=model._acted(codes, self.shapes),
                       learnt=self.learnt or self.model, kept=None, fitted_rows=None)

    def table(self, site: str):
        """The conditional probability table of a discrete site as a pandas table: parents in rows,
        states in columns; of a MarkovChain its transition, the state before in rows too. At the
        point `params`.

        Raises:
            ModelError: no such site; probabilities that depend on inputs or on continuous sites, or
                have several cells.
        """
        target = self._site(site, discrete=True)
        if target.states is None or target.family is None:
            raise ModelError(f"table('{site}'): '{site}' is a {target.kind}, which has no "
                             f"conditional probability table. Use predict_proba(data, '{site}')")
        sites, parents = self.structure.sites, [p for p in target.parents
                                                if self.structure.sites[p].discrete]
        pattern = {name: "seen" for name in (site, *parents) if sites[name].rows}
        plan = decide.make(self.structure, pattern, tuple(self.given))
        if site not in (*plan.pooled, *plan.globals) or math.prod(target.cells) > 1:
            raise ModelError(f"table('{site}'): '{site}' " + (
                "has several values in each row" if math.prod(target.cells) > 1 else
                "depends on inputs or continuous sites, not only on discrete sites")
                + f", so it has no single table. Use predict_proba(data, '{site}')")
        arguments = argument_table(plan, placed_all(dict(self.point)), self._known(), site)
        p = arguments["transition"] if target.chain else target.family.probabilities(arguments)
        columns = pd.Index(self.labels(site), name=site)
        values = shortest(p).reshape(-1, target.states)
        levels = {parent: self.labels(parent) for parent in plan.discrete_parents(site)}
        levels |= {f"{site} before": self.labels(site)} if target.chain else {}
        if not levels:
            return pd.DataFrame(values, columns=columns)
        index = pd.MultiIndex.from_product(levels.values(), names=list(levels))
        return pd.DataFrame(values, index=index if len(levels) > 1 else index.get_level_values(0),
                            columns=columns)

    def answer(self, data: object, ask: Sequence[str] = ("predict", "log_prob"),
               site: str | None = None, to: str | os.PathLike | None = None) -> Any:
        """The answers to several questions about every row, such as predictions and imputations, as
        a pandas table or written to a file. A source (see Model.fit) is read in batches, so that
        only one batch is in memory.

        Args:
            ask: of "predict", "predict_proba", "log_prob", "impute", "decode"; a column each, of
                `predict_proba` one a state, of `impute` and `decode` one a site.
            site: what `predict` and `predict_proba` are about; by default as there.
            to: a file that ends in .parquet, .arrow, .feather or .csv; it is there when it is
                whole, and an older one stays until then. Needs pyarrow.

        Returns:
            the table; with `to` the path.

        Raises:
            ModelError: an unknown question, a file of another kind, no such folder.
            DataError: bad rows, named by part and row.
        """
        return answer_questions(self, data, ask, site,
                                lambda rows: self._site_to_predict(self._read(rows)), to)

    # Merging, updating, saving

    def merge(self, other: "Fit") -> "Fit":
        """The Fit to the rows of both fits together. Their sufficient statistics are added; no row
        is read again.

        The result equals that of one fit to all rows, where nothing inside rows is latent; missing
        cells may be left out. Row weights count.

        Raises:
            Refusal: something is summed out or enters row by row, so that statistics depend on the
                parameters.
            ModelError: another model, engine, labels or given values.

        Cost: that of a fit to one row.
        """
        merged = type(self).of(self.model, further.merged(self, other), self.columns)
        return replace(merged, units=self.units)

    def update(self, data: object, *, weights: object = None) -> "Fit":
        """The Fit to these further rows (or a source of them) together with the rows already
        fitted: their sufficient statistics are added.

        Where something is latent, rows update a fit that is `running`, or one by
        EM(batch_rows=...) or VB(batch_rows=...), by a step of stepwise EM (Cappé & Moulines 2009)
        or of stochastic variational inference (Hoffman et al. 2013): their expected sufficient
        statistics have the weight (their share of all rows so far)^0.6, the earlier ones the rest.
        A source is a step for each of its partitions. `history` continues with the objective of
        all rows so far, which each partition estimates before its step.

        Raises: as merge, and as Model.fit for bad data. Cost: one pass over the new rows.
        """
        data = read_function(self.model, aligned(data, self.columns)).data
        updated = type(self).of(self.model, further.updated(self, data, weights), self.columns)
        return replace(updated, units=self.units)

    def running(self, data: object, *, weights: object = None) -> "Fit":
        """The same Fit, prepared for `update` with further rows although the model has latent
        variables: it stores the expected sufficient statistics of the fitted rows.

        Args:
            data: these rows, or a source of them; `weights` as they were fitted.

        Raises:
            Refusal: another engine than EM and VB; a site without sufficient statistics.
            DataError: bad rows, by name.

        Cost: one pass.
        """
        data = read_function(self.model, aligned(data, self.columns)).data
        return replace(self, kept=further.running(self, data, weights))

    def save(self, path: str | os.PathLike) -> None:
        """Write one file (arrays and JSON, no pickle), atomically: a failure leaves an older file
        whole. `probml.load` reads it; the rows that were fitted are not in it.

        Raises:
            ModelError: no such folder; a fit after do(); labels that are neither text nor numbers.
        """
        saving.save(self, path)

    # Reports and representations

    def report(self, path: str | os.PathLike, data: object = None, y: object = None,
               name: str | None = None) -> Path:
        """Write one HTML file about the model and the data: the columns, pictures of this kind of
        model, estimates, posterior predictive checks, warnings with remedies, and, folded, the
        model and its graph, the inference, versions, seed and references. The file needs no
        network, can be read by keyboard and by a screen reader, and can be printed.

        Args:
            data: the rows that were fitted, to be described; a fit with draws retains them. Of the
                `fit_` of an estimator of probml.models rows as its `fit` takes them, and the page
                is that of the estimator.
            y: the target, of the `fit_` of an estimator.
            name: of the table, for the title; by default `data.attrs["name"]`, if there is one.

        Returns:
            The path.

        Raises:
            ModelError: no such folder. DataError: bad rows, by name.
        """
        return page.write(self._subject(data, y, name), path)

    def _subject(self, data: object, y: object, name: str | None) -> Subject:
        """The subject of its report: of the fit of an estimator that of the estimator."""
        estimator = vars(self).get("_estimator", lambda: None)()
        if estimator is not None and not isinstance(data, Mapping):
            return estimator._subject(data, y, name)
        if y is not None:
            raise ModelError("report(y=...): y= is only for the report of an estimator. Add the "
                             "target to the data as a column, and call report(path, data)")
        return of_fit(self, data, name)

    def __repr__(self) -> str:
        return page.fit_text(self)

    def _repr_html_(self) -> str:
        # standard errors of a point cost
        return page.summarize(self, errors=self.belief.varies)._repr_html_()


@jit(static_argnums=0, seldom=ASKED)
def _log_joint(plan: Plan, params: Mapping[str, jax.Array], known_: Known, rows: Rows):
    return log_evidence(plan, params, known_, rows) + log_prior(plan, params, known_)


def _unflatten(shell: StaticPart, arrays: tuple) -> Fit:
    point, belief = arrays
    fit: Any = shell.fit
    return replace(fit, point=point, belief=belief)


def as_pytree(kind: type) -> type:
    """Register a class of fits as a pytree, so that JAX's transformations see its arrays."""
    jax.tree_util.register_pytree_node(
        kind, lambda fit: ((fit.point, fit.belief), fit._static_part), _unflatten)
    return kind


as_pytree(Fit)
