"""The queries of a fit about rows: log densities, predictions, imputation, simulation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpyro.distributions as dist

from probml.assessment import decisions
from probml.assessment.reliability import Calibration, compute_calibration
from probml.dataset import tables
from probml.dataset.coding.indices import REFUSE
from probml.dataset.sources.parts import as_given, by_parts
from probml.errors import ModelError, counted, listed, shortly
from probml.interface.argument_checks import checked_verbs
from probml.interface.functions import filled_cells, replay
from probml.interface.functions.read_function import read_function
from probml.interface.serving import Serving
from probml.interface.tables.table_answers import (
    answers_in_tables,
    as_columns_of,
    flatten_for,
    gather_by_table,
)
from probml.language.language import check_seed
from probml.numerics.precision import in_its_own
from probml.numerics.transfer import random_key
from probml.queries import asking, joint_states, members, queries
from probml.queries.conditionals import conditional
from probml.queries.simulation import input_rows
from probml.queries.weighting import weighted
from probml.typing import PyTree


@in_its_own
@checked_verbs
@dataclass(frozen=True, eq=False)
class Questions(Serving):
    """The methods of Fit that take rows."""

    @by_parts
    @answers_in_tables()
    def log_prob(self, data: object, plug_in: bool = False, unknown: str = REFUSE) -> np.ndarray:
        """The log predictive density of each row, missing cells summed out; shape (n,).

        Args:
            plug_in: at the point `params`; by default averaged over the posterior, where the engine
                has one.
            unknown: how to treat a row of a group that was not in the fitted data, a new label of
                an index: "refuse" it, or take it for a "new" member of the plate, whose effect is
                drawn from its prior given each draw of the other parameters; with a point it is
                the prior's mean.

        Of rows with factors (numpyro.factor): the log density of the sites plus the factors, not
        normalised.

        Of a posterior: log ∫ p(row | θ) p(θ | data) dθ, in closed form where it has one, else the
        log of the mean over draws.

        Raises:
            DataError: bad rows, by name. Refusal: missing cells that can be neither summed nor
                integrated out; a factor that is a loss, such as the hinge of a support vector
                machine, and no likelihood.

        Cost: one pass; averaged over draws one for each of them.
        """
        rows = self._read_rows("log_prob", data, unknown)
        weighted.check_likelihood(self, rows)
        return members.answer(self, rows, plug_in,
                              lambda fit, rows: asking.answer(fit, rows, (), plug_in)[0])

    def score(self, data: object, plug_in: bool = False, unknown: str = REFUSE) -> float:
        """The mean of log_prob over rows: arguments, errors and cost as there."""
        return float(self.log_prob(data, plug_in, unknown).mean())

    @by_parts
    @answers_in_tables(of_site=True)
    def predict_proba(
        self,
        data: object,
        site: str | Sequence[str] | None = None,
        plug_in: bool = False,
        given: str = queries.ALL,
        unknown: str = REFUSE,
    ) -> PyTree:
        """p(site = state | row) for every row and state, shape (n, *cells, states); observed cells
        are one-hot.

        Args:
            site: by default the one discrete site that is not observed; several names give a dict.
            given: the cells of the row on which the answer about a step of a chain conditions:
                "all" (smoothing), "filtered" (the steps up to that step) or "predicted" (the steps
                before it).
            unknown: as in log_prob.

        Of a function without rows, one joint density: of a site that is summed out in plates or
        steps, (*cells, states).

        Raises:
            ModelError: no such site, no states, several latent sites and none named. Refusal: as
                log_prob.

        Cost: as log_prob; the probabilities are the gradient of its evidence.
        Source: Darwiche (2003), "A differential approach to inference in Bayesian networks".
        """
        rows = self._read(data, unknown=unknown)
        if self.model.is_joint:
            return self._summed_probabilities(rows, site)
        return members.answer(self, rows, plug_in,
                              lambda fit, rows: fit._probabilities(rows, site, plug_in, given))

    @by_parts
    @answers_in_tables()
    def joint(self, data: object, sites: Sequence[str], plug_in: bool = False) -> np.ndarray:
        """p(sites = states | row) of a few discrete scalar sites together: (n, *states of the
        sites, in their order).

        Raises:
            ModelError: a site is unknown, lies outside rows(), has no finite list of states, or has
                several cells.

        Cost: memory of n times the product of the states.
        """
        self.structure.need_rows("joint")
        sites = (sites,) if isinstance(sites, str) else tuple(sites or ())
        if not sites or len(set(sites)) < len(sites):
            raise ModelError(f"joint(sites={shortly(list(sites))}): expected one or more different "
                             "sites, such as sites=['a', 'b']")
        for name in sites:
            if math.prod(self.structure.sites[self._checked_row_site(name)].cells) > 1:
                raise ModelError(f"joint(sites=[{listed(sites)}]): every site must have one value "
                                 f"per row, but '{name}' has several. Leave out '{name}', and ask "
                                 "for the probabilities of each of its values by "
                                 f"predict_proba(data, '{name}')")
        if len({self.structure.sites[name].time for name in sites}) > 1:
            raise ModelError(f"joint(sites=[{listed(sites)}]): some of these sites have time "
                             "steps, and others have one value per row. Pass only sites of one of "
                             "the two kinds")
        return asking.answer(self, self._read(data), [("joint", sites)], plug_in)[1]["joint", sites]

    @by_parts
    @answers_in_tables(of_site=True)
    def predict(
        self,
        data: object,
        site: str | None = None,
        plug_in: bool = False,
        given: str = queries.ALL,
        interval: float | None = None,
        unknown: str = REFUSE,
    ) -> np.ndarray | None:
        """The most probable state of a discrete site (as a label), or the mean of a continuous one,
        or of what the model computes in rows (numpyro.deterministic), for every row: (n, *cells).
        Where a continuous site is observed itself, the answer is the mean of a new value of it.
        Where factors (numpyro.factor) depend on the site, the answer includes them, normalised over
        the site's values.

        Args:
            given: as in predict_proba; "predicted" is the forecast of each step from those before
                it.
            interval: a probability, such as 0.9: answer with an Interval (value, lower, upper), the
                equal-tailed predictive interval of a new value of a continuous site or a count,
                which includes the uncertainty of the parameters: given the other cells of the row,
                for an observed cell those of other sites alone. The bounds are quantiles of some
                thousand draws of each row, the same at every call, also where the posterior is
                exact; their error is about a tenth of a standard deviation.
            unknown: as in log_prob.

        Raises:
            ModelError: the site is unknown or not said; an interval of a site with states (ask
                predict_proba).

        Cost: as log_prob; with an interval some thousand draws of each row.
        """
        rows = self._read_rows("predict", data, unknown)
        name = site or self._site_to_predict(rows, continuous=True)
        return members.answer(self, rows, plug_in, lambda fit, rows: fit._predicted(
            rows, name, plug_in, given, interval
        ))

    @answers_in_tables(of_site=True)
    def decide(self, data: object, site: str | None = None, loss: object = None,
               reject: float | None = None, plug_in: bool = False) -> np.ndarray:
        """The action of least expected loss for every row, (n, *cells): see probml.decide. Where
        the site's states have labels, or the loss names its actions, the answer has these names,
        and None where no action is taken; else numbers, and −1.

        Args:
            site: as in predict_proba.
            loss, reject: as in probml.decide.
            plug_in: as in log_prob.
        """
        rows = self._read_rows("decide", data)
        name = self._checked_row_site(site or self._site_to_predict(rows))
        probabilities = members.answer(self, rows, plug_in, lambda fit, rows: fit._probabilities(
            rows, name, plug_in, "all"))
        return decisions.decide(probabilities, loss, reject,
                                self.names.get(name))

    def calibration(
        self, data: object, site: str | None = None, plug_in: bool = False, bins: int = 10,
        strategy: str = "uniform"
    ) -> Calibration:
        """The calibration of p(site | all other cells of the row) on rows in which `site` is
        observed: see probml.calibration, whose arguments these are."""
        return compute_calibration(self, data, site, plug_in, bins, strategy)

    @by_parts
    @answers_in_tables()
    def decode(self, data: object, sites: Sequence[str] | None = None,
               plug_in: bool = False) -> dict[str, np.ndarray]:
        """The jointly most probable values of all missing discrete cells, or of `sites` with all
        others summed out; observed cells stay. After the end of a shorter sequence its last state
        is repeated.

        The values maximise p(missing | observed, params); of `sites`, with the rest summed out.

        Returns:
            site → (n, *cells), labels where it has some.

        Raises:
            ModelError: `sites` names no discrete site in rows; there is none with a finite list of
                values. Refusal: a maximum along time over some of the latent sites there, which has
                no recursion.

        Cost: one pass; along a chain O(steps · K²) a row (Viterbi 1967).

        Of a function without rows, one joint density: of the sites that are summed out in plates or
        steps, (*cells), at the point `params`.
        """
        rows = self._read(data)
        sites = (sites,) if isinstance(sites, str) else sites
        if self.model.is_joint:
            return self._decode_joint_density(rows, sites)
        # the best path of a longer sequence need not begin with that of the one that was given
        rows = rows._replace(lengths=rows.list_lengths)
        finite = [s.name for s in self.structure.sites.values() if s.rows and s.finite]
        if not finite and sites is None:
            raise ModelError(f"decode: model '{self.model.name}' has no discrete site inside "
                             f"rows() with a finite list of values. Use predict or impute for "
                             f"numbers and counts")
        missing = [name for name in finite if rows.pattern.get(name) != "seen"]
        targets = tuple(sites) if sites is not None else tuple(missing)
        for name in targets:
            self._checked_row_site(name)

        def best(question: asking.Question) -> tuple[np.ndarray, dict[str, np.ndarray]]:
            question = question.at_point(self)
            if sites is not None:
                self._refuse_partial_path(question.plan, targets)
            parts = self._variables_to_maximise(rows, question.plan, targets, sites is None)
            logs, states = joint_states.decode(question.plan, *parts, question.belief,
                                               question.known, question.rows)
            return question.to_user_rows(logs), {name: question.to_user_rows(value, name)
                                                 for name, value in states.items()}

        plan, (logs, states) = asking.query_in_parts(self, rows, targets, plug_in,
                                                     ("decode", sites is None),
                                                     best)
        variables, leaves = self._variables_to_maximise(rows, plan, targets, sites is None)
        asking.warn(self, logs)
        decoded = {}
        for name in targets:
            table = self._weighted_values(rows, name, True, queries.ALL)
            if table is not None:
                codes = rows.with_observed_codes(
                    name, table.probabilities(self.structure.sites[name]).argmax(-1))
            elif name in variables and name in plan.variables:
                codes = rows.with_observed_codes(name, plan.cells(name, states[name]))
            elif name in (*variables, *leaves):
                codes = rows.with_observed_codes(name, states[name])
            elif rows.pattern.get(name) == "seen":
                codes = rows.table.columns[name].values
            else:
                codes = asking.answer(self, rows, [("probability", name)],
                                      True)[1]["probability", name].argmax(-1)
            decoded[name] = tables.to_labels(codes, self.names.get(name))
        return decoded

    @as_given
    @by_parts
    @answers_in_tables()
    def impute(self, data: object, plug_in: bool = False,
               unknown: str = REFUSE) -> dict[str, np.ndarray]:
        """Every site inside rows(), observed cells as they are, missing ones filled: discrete by
        the most probable state, continuous by the conditional mean given the row's observed cells;
        and what the model computes there, as by predict.

        Args:
            plug_in, unknown: as in log_prob.

        Returns:
            name → (n, *cells); of a table a table of its kind, with its index.

        Raises and cost: as predict, of all sites at once. Each cell is filled by itself: for cells
        that go together draw them, simulate(given=data).

        Of a function without rows, one joint density: of the fitted data, all observed sites.
        """
        if self.model.is_joint:
            return filled_cells.impute_joint(self, self._read(data), plug_in)
        rows = self._read_rows("impute", data, unknown)
        return members.answer(self, rows, plug_in, lambda fit, rows: fit._imputed(rows, plug_in))

    @answers_in_tables()
    def conditional(self, data: object, site: str, plug_in: bool = False) -> dist.Distribution:
        """The conditional distribution of a missing continuous site given its row, as a NumPyro
        distribution of batch shape (n,); along time (n, steps), the marginal of each step. Normal
        for a scalar, MultivariateNormal of the flattened cells for more: exact where the
        conditional is normal (`explain` says in closed form), else with its mean and covariance,
        for two numbers by quadrature about the mode (without a variance, of very heavy tails, the
        mean may be off by a hundredth of itself: `impute` is exact where no child of the site is
        observed). For a single number that is integrated by quadrature, the density interpolated
        between the nodes (mean, variance, log_prob, cdf, icdf, sample). A mixture of these
        (MixtureSameFamily) where a discrete site is missing as well, or the engine has draws of the
        parameters.

        Raises:
            ModelError: the site is discrete, observed in every row, or lies outside rows().
            Refusal: it has no integral.
        """
        self._site(site)
        rows = self._read_rows("conditional", data)
        return conditional(self, rows, site, plug_in)

    def simulate(
        self,
        rows: int | None = None,
        seed: int = 0,
        given: object = None,
        plug_in: bool = False,
        steps: int | None = None,
        unknown: str = REFUSE,
        **inputs: object,
    ) -> dict[str, np.ndarray]:
        """New rows from the posterior predictive distribution, name → (rows, ...), each row with
        its own draw of the parameters; of a point, at the point.

        Args:
            rows: how many; by default as many as `given` or the inputs have.
            given: data and their inputs; observed cells stay, missing ones are drawn jointly given
                them.
            steps: the length of chains, where neither the model nor the data give it.
            unknown: as in log_prob; rows of one new member share its effect where they share the
                draw of the parameters.

        Of a function without rows, one joint density: a replicate of all observed and computed
        sites, at one draw of the parameters; `inputs` are its arguments, by default as they were
        fitted; with `given`, the fitted data, their missing cells alone are drawn. Values that
        handlers.condition gives stay, as in NumPyro's Predictive.

        Raises:
            ModelError: rows said twice, inputs that are missing. Refusal: factors whose weights of
                rows are too uneven; an improper prior.

        Cost: one program; with `given` a pass that draws the variables that were summed out
        backwards, in reverse order of elimination.
        """
        seed = check_seed(seed, "simulate")
        if self.model.is_joint:
            if rows is not None or steps is not None or given is not None and inputs:
                self.structure.need_rows("simulate(rows=, steps=, given= with inputs)")
            if given is not None:
                return filled_cells.complete_joint(self, self._read(given), seed, plug_in)
            return replay.simulate_joint(self, inputs, seed, plug_in)
        flattened = flatten_for(self, given)
        if flattened is not None:
            fit, flat, places = flattened
            answers = fit.simulate(rows, seed, flat, plug_in, steps, unknown, **inputs)
            return gather_by_table(fit, answers, places)
        if given is None:
            values = {name: value for name, value in read_function(self.model, inputs).data.items()
                      if name in self.model.inputs or name in inputs}  # not what the function fixes
            _, rows = input_rows(self.model, values, rows)
            parsed = self._read(dict(inputs), rows, steps, unknown)
        else:
            parsed = self._read(given, unknown=unknown)
            both = (f"{next(iter(inputs))}=..." if inputs
                    else f"rows={rows}" if rows not in (None, parsed.table.rows)
                    else f"steps={steps}" if steps not in (None, parsed.steps) else "")
            if both:
                raise ModelError(
                    f"simulate({both}, given=...): the rows, steps and inputs are those of given=, "
                    f"{counted(parsed.table.rows, 'row')}, each drawn once. Omit {both}. To draw a "
                    "row several times, repeat it in given="
                )
        key = random_key(seed)
        drawn = members.answer(self, parsed, plug_in,
                               lambda fit, parsed: fit._simulated(parsed, key, seed, plug_in))
        return as_columns_of(given, self, drawn)
