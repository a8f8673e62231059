"""What a user holds after fitting: one type for every engine; questions about rows, posteriors, simulation, saving."""

import functools
import inspect
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml.assessment import decisions, reports
from probml.assessment.reliability import Calibration, judge
from probml.dataset import dataset, read, tables
from probml.dataset.codes import REFUSE, bounds
from probml.device import load
from probml.device.rows import Known
from probml.engines import EM
from probml.engines.engine import Status
from probml.engines.start.prior import inside
from probml.errors import ModelError, Refusal
from probml.evidence.passes import log_evidence
from probml.factors.prior import log_prior
from probml.families.finite import Shifted
from probml.fits import fitting, saving
from probml.fits.merging import Kept
from probml.language.language import Bound, whole_steps
from probml.language.settings import freeze, thaw
from probml.numerics.compiling import jit
from probml.numerics.precision import in_its_own
from probml.plan import decide
from probml.plan import plan as planning
from probml.plan.blocks import blocks
from probml.posteriors.conjugate import Marginals, Posterior
from probml.posteriors.drawn import Draws, Normal
from probml.posteriors.predictive import draw_params
from probml.queries import asking, members, queries
from probml.queries.simulation import input_rows, simulate_rows
from probml.structure import deterministics
from probml.structure.structure import Structure
from probml.structure.trace import trace


@in_its_own
@dataclass(frozen=True, eq=False)
class Fit:
    """A model and what was inferred; immutable, a pytree.

    Attributes:
        model: the Model.
        point: the value of every free parameter, name → array: the posterior mean for Exact, NUTS and SVI, the maximum for EM, MAP
            and Laplace.
        params: `point`, and what the model computes outside rows (numpyro.deterministic, reparametrised sites): its value at the point
            for EM and MAP; where there is a posterior (Laplace too) its mean over the draws, of a closed form or a normal over 1000.
        history: the objective (log posterior, or log likelihood with prior=False), its start included; for NUTS the climb to where it
            began, then the log density of each iteration, the mean of all chains; for SVI the evidence lower bound.
        held_out: of MAP(held_out=...), the mean log evidence of a row not learnt from, at every entry of history; else None.
        converged, iterations, status: how the engine ended; `status` is a sentence.
        log_evidence: log p(data), exact for Exact, else None.
    """

    model: Bound
    point: dict[str, Any]
    shapes: dict[str, tuple] = field(repr=False)
    engine: str = "known"
    history: Any = None
    outcome: Status = Status.KNOWN
    iterations: int = 0
    log_evidence: float | None = None
    notes: tuple[str, ...] = ()
    names: dict[str, tuple] = field(default_factory=dict, repr=False)
    given: dict[str, Any] = field(default_factory=dict, repr=False)
    pattern: tuple = field(default=(), repr=False)
    closed: Posterior | None = field(default=None, repr=False)
    states: Any = field(default=None, repr=False)  # log posterior of the discrete sites outside rows, an axis each
    learnt: Bound | None = field(default=None, repr=False)  # the model that was fitted, where do() has changed it since
    kept: Kept | None = field(default=None, repr=False)  # the statistics of complete data, which merge() adds
    drawn: Draws | Normal | None = field(default=None, repr=False)  # a posterior that is no closed form
    data: dataset.Data | None = field(default=None, repr=False)  # what was seen, where there are draws to judge it by
    held_out: Any = field(default=None, repr=False)
    double: bool = field(default=False, repr=False)  # found in double, since float32 has too few digits for it, and asked in double

    @classmethod
    def of(cls, model: Bound, found: fitting.Found) -> "Fit":
        """The Fit of an engine's outcome; warns where it did not converge, raises where everything collapsed."""
        seen, engine, outcome = found.seen, found.engine, found.outcome
        if outcome.status is Status.COLLAPSED:
            raise Refusal(
                f"{type(engine).__name__} of model '{model.name}' {outcome.status.message}. A component sits on a "
                "single point, a column is constant or "
                "collinear with others, or the data are impossible: use a prior that vanishes at zero scale "
                "(LogNormal, InverseGamma, InverseWishart) with "
                "prior=True, fewer components, or more restarts"
            )
        if outcome.status in (Status.MAX_ITERATIONS, Status.FELL, Status.STALLED, Status.WANDERED):
            warnings.warn(f"{type(engine).__name__} of model '{model.name}' {outcome.status.message}", RuntimeWarning, stacklevel=3)
        if outcome.status in (Status.DOUBTFUL, Status.RUNAWAY):
            text = "; ".join((outcome.status.message, *outcome.notes))
            warnings.warn(f"{type(engine).__name__} of model '{model.name}': {text}", RuntimeWarning, stacklevel=3)
        return cls(
            model,
            {name: _fixed(value) for name, value in outcome.params.items()},
            seen.shapes,
            repr(engine),
            _fixed(outcome.history),
            outcome.status,
            outcome.iterations,
            outcome.log_evidence,
            outcome.notes,
            seen.labels,
            found.given,
            tuple(sorted(seen.pattern.items())),
            outcome.posterior,
            found.states,
            None,
            found.kept,
            outcome.belief,
            seen if outcome.belief is not None and isinstance(seen, dataset.Data) else None,
            None if outcome.held_out is None else _fixed(outcome.held_out),
            found.double,
        )

    # What was found

    @functools.cached_property
    def params(self) -> dict[str, Any]:
        return {**self.point, **deterministics.point(self)}

    @property
    def converged(self) -> bool:
        return self.outcome in (Status.CONVERGED, Status.EXACT, Status.KNOWN, Status.SAMPLED, Status.APPROXIMATED, Status.EARLY)

    @property
    def status(self) -> str:
        return self.outcome.message + "".join(f"; {note}" for note in self.notes)

    @property
    def structure(self) -> Structure:
        return trace(self.model, self.shapes)

    def labels(self, site: str) -> tuple:
        """The labels of a discrete site's states, in code order; 0 … states−1 where the data had none. Of an input that is an index,
        those of the entries that it picks from."""
        if site in self.model.inputs:
            return self._index_labels(site)
        self._site(site, discrete=True)
        return self.names.get(site, tuple(range(self.structure.sites[site].finite)))

    def _index_labels(self, name: str) -> tuple:
        if name in self.names:
            return self.names[name]
        index = self.structure.indexed.get(name) if self.shapes else None
        if index is None or index.high is None or index.low is None:
            indexed = [found.name for found in self.structure.indexed.values()] if self.shapes else []
            raise ModelError(f"labels('{name}'): it is no index of known range; those of model '{self.model.name}' are {indexed}")
        return tuple(range(index.low, index.high + 1))

    @property
    def _plan(self) -> planning.Plan:
        structure = self.structure if self.learnt is None else trace(self.learnt, self.shapes)
        return decide.make(structure, dict(self.pattern), tuple(self.given))

    @property
    def _marginals(self) -> Marginals:
        return Marginals(self._plan, self._known(), blocks(self._plan, True), self.closed)

    def _known(self) -> Known:
        return Known({n: jnp.asarray(v) for n, v in self.given.items()}, {}, {})

    def posterior(self, site: str) -> dist.Distribution:
        """The marginal posterior of a parameter, or of a discrete site outside rows, as a NumPyro distribution.

        Raises:
            Refusal: the engine found a point, not a posterior in closed form.
            ModelError: the site is unknown or lies inside rows().
        """
        found = self._site(site)
        if found.kind == deterministics.KIND:
            outside = f"fit.params['{site}']" if self._at_point else f"fit.draws(n)['{site}']"
            instead = f"fit.predict(data, '{site}')" if found.rows else outside
            raise Refusal(f"'{site}' is computed from other sites (deterministic): no posterior of it in closed form; take {instead}")
        if found.rows:
            raise ModelError(f"site '{site}' lies inside rows(): ask predict_proba(data, '{site}'), a posterior for every row")
        if found.discrete and self.states is not None:
            plan = self._plan
            if site not in plan.variables:
                raise Refusal(f"'{site}' ({found.kind}): nothing seen depends on it, and its values have no end that could be listed")
            axis = plan.globals.index(site)
            joint = jnp.exp(self.states).sum(tuple(i for i in range(self.states.ndim) if i != axis))
            cells = jax.nn.one_hot(plan.variables[site].values, found.finite)  # (joint states, *cells, states)
            probs = jnp.tensordot(joint, cells, 1)
            probs = probs / probs.sum(-1, keepdims=True)
            return Shifted(probs, found.low) if found.low else dist.Categorical(probs=probs)
        if self.closed is not None and site in self.closed.mean:
            return self._marginals.distribution(site)
        found = self.drawn.distribution(self._plan, self._known(), site) if self.drawn is not None and site in self.point else None
        if found is None:
            instead = f"fit.draws(n)['{site}']" if self.drawn is not None else f"fit.params['{site}']"
            raise Refusal(f"'{site}': {self.engine} has no posterior of it in closed form; fit with probml.Exact(), or take {instead}")
        return found

    def draws(self, n: int, seed: int = 0) -> dict[str, np.ndarray]:
        """Joint draws from the posterior of the parameters, name → (n, ...), and what the model computes from each outside rows.

        Raises:
            Refusal: the engine found a point.
        """
        if self._at_point:
            raise Refusal(f"{self.engine} found a point, not a posterior: fit with probml.Exact() or probml.NUTS(), or take fit.params")
        if n < 1:
            raise ModelError(f"draws(n={n}): expected at least 1")
        draws, sites = self._draws(n, seed), self.structure.sites
        found = {name: sites[name].valued(np.asarray(value)) for name, value in draws.items()}
        return found | {name: np.asarray(value) for name, value in deterministics.drawn(self, draws).items()}

    @functools.cached_property
    def _shell(self) -> "_Shell":
        return _Shell(self)

    @property
    def _at_point(self) -> bool:
        """Nothing is known but a point."""
        return self.closed is None and self.drawn is None and self.states is None

    def _draws(self, n: int, seed: int) -> dict[str, jax.Array]:
        """Of the sites outside rows alone, discrete ones as codes."""
        if self.drawn is not None:
            return self.drawn.draw(self._plan, self._known(), n, seed)
        return draw_params(self._plan, n, self.closed, self.states, self._known(), jax.random.key(seed))

    def summary(self):
        """A pandas table: a row per parameter element; its value, or of a posterior mean and sd; of draws the 5% and 95% quantiles,
        the effective numbers of draws and R-hat (which is missing where there is one chain)."""
        return reports.summary(self)

    def to_arviz(self, data: Any = None):
        """An arviz InferenceData: posterior, sample_stats, log_likelihood of each row, posterior_predictive, observed_data, with the
        names of plates and the labels of states as dimensions and coordinates.

        Args:
            data: the rows; by default those that were fitted.

        Raises:
            Refusal: the engine found a point, not a posterior.
        """
        return reports.to_arviz(self, data)

    # Questions about rows

    def _site(self, name: str, discrete: bool = False):
        sites = self.structure.named
        if name in dict(self.model.interventions):
            raise ModelError(f"site '{name}' is set by do() in every row: there is nothing to ask of it")
        if name not in sites:
            raise ModelError(f"model '{self.model.name}' has no site '{name}'; its sites are {list(sites)}")
        if discrete and sites[name].finite is None:
            raise ModelError(
                f"site '{name}' ({sites[name].kind}) has no finite list of states: use impute(data) or simulate(..., given=data)"
            )
        return sites[name]

    def _read(self, data: Any, rows: int | None = None, steps: int | None = None, unknown: str = REFUSE) -> dataset.Data:
        return read.read(self.model, data, self.names, rows, self.shapes, steps, unknown)

    def log_prob(self, data: Any, plug_in: bool = False, unknown: str = REFUSE) -> np.ndarray:
        """log p(row | what was fitted), each row on its own, unseen cells summed out; shape (n,), nats.

        Args:
            plug_in: at the point `params`; by default averaged over the posterior, where the engine has one.
            unknown: what becomes of a row whose label of an index input the fit does not know: "refuse" it, or take it for a "new"
                member of the plate, whose effect is drawn from its prior given each draw of the other parameters; with a point it is
                the prior's mean.
        """
        held = self._read(data, unknown=unknown)
        held.structure.need_likelihood("log_prob")
        return members.answer(self, held, plug_in, lambda fit, held: asking.answer(fit, held, (), plug_in)[0])

    def score(self, data: Any, plug_in: bool = False, unknown: str = REFUSE) -> float:
        """The mean of log_prob."""
        return float(self.log_prob(data, plug_in, unknown).mean())

    def predict_proba(
        self,
        data: Any,
        site: str | Sequence[str] | None = None,
        plug_in: bool = False,
        given: str = queries.ALL,
        unknown: str = REFUSE,
    ) -> Any:
        """p(site = state | row) for every row and state, shape (n, *cells, states); a seen cell is one-hot.

        Args:
            site: by default the one discrete site that is not seen; several names give a dict.
            given: what of the row an answer about a step of a chain looks at: "all" of it (smoothing), "filtered" (the steps up to
                that step) or "predicted" (the steps before it).
            unknown: as in log_prob.
        """
        held = self._read(data, unknown=unknown)
        wanted = [site or self._unseen(held)] if site is None or isinstance(site, str) else list(site)
        for name in wanted:
            lossy = [child for child in self.structure.children.get(name, ()) if child in self.structure.losses]
            if any(set(self.structure.sites[child].parents) & set(self.structure.parameters) for child in lossy):
                self.structure.need_likelihood(f"predict_proba of '{name}'")
        site = wanted if site is not None and not isinstance(site, str) else wanted[0]
        return members.answer(self, held, plug_in, lambda fit, held: fit._probabilities(held, site, plug_in, given))

    def _probabilities(self, held: dataset.Data, site: str | Sequence[str] | None, plug_in: bool, given: str) -> Any:
        if site is not None and not isinstance(site, str):
            for name in site:
                self._inside(name)
            out = asking.answer(self, held, [("probability", name) for name in site], plug_in, self._view(given))[1]
            return {name: out["probability", name] for name in site}
        name = self._inside(site or self._unseen(held))
        return asking.answer(self, held, [("probability", name)], plug_in, self._view(given))[1]["probability", name]

    def _view(self, given: str) -> str:
        views = (queries.ALL, queries.FILTERED, queries.PREDICTED)
        if given not in views:
            raise ModelError(f"given={given!r}: expected one of {list(views)}")
        if given != queries.ALL and not self.structure.chains:
            raise ModelError(f"given={given!r}: model '{self.model.name}' has no MarkovChain along which time would run")
        return given

    def pairs(self, data: Any, site: str | None = None, plug_in: bool = False) -> np.ndarray:
        """p(z_t = i, z_{t+1} = j | row) of a MarkovChain z, (n, steps − 1, k, k): the smoothed pair marginals.

        Raises:
            ModelError: the site is no chain. Cost: memory of steps · K² numbers a row, K the joint states of all chains.
        """
        found = self.structure.chains
        name = site or (found[0] if len(found) == 1 else None)
        if name not in found:
            raise ModelError(f"pairs(site={site!r}): expected a MarkovChain; model '{self.model.name}' has {list(found)}")
        held = self._read(data).loosened([name])
        return asking.answer(self, held, [("pairs", name)], plug_in)[1]["pairs", name][:, 1:]

    def forecast(self, data: Any, steps: int = 1, plug_in: bool = False, **inputs: Any) -> dict[str, np.ndarray]:
        """The steps that follow each row: site along time → the most probable states, or means, (n, steps, ...), given the row.

        For their distribution pad the data with NaN: predict_proba for probabilities, simulate(given=...) for joint draws.

        Args:
            steps: h, how many. They follow the last step that was given, seen or not; in a list of sequences, the end of each.
            **inputs: inputs with an axis of time, at those steps: (n, steps, ...).

        Raises:
            ModelError: no chain, chains of a stated length, steps below 1.
        """
        whole_steps(steps, "forecast")
        held = self._read(data)
        structure = held.structure
        unknown = [name for name in inputs if name not in structure.timed]
        if unknown:
            timed = list(structure.timed)
            raise ModelError(f"forecast: '{unknown[0]}' is no input with an axis of time; model '{self.model.name}' has {timed}")
        if not structure.chains or structure.declared:
            raise ModelError(
                f"forecast(steps={steps}) of model '{self.model.name}': expected chains without a stated length; "
                f"it has the chains {list(structure.chains)}, steps={structure.declared}"
            )
        last = np.full(held.table.rows, held.steps) if held.given is None else held.given
        longer = held.extended(last, steps, self._read, inputs)
        filled = self._imputed(longer, plug_in)
        at = last[:, None] + np.arange(steps)
        out = {}
        for site in (s for s in structure.named.values() if s.time is not None and s.name in filled):
            value = np.moveaxis(filled[site.name], 1 + site.time, 1)
            out[site.name] = np.moveaxis(value[np.arange(len(at))[:, None], at], 1, 1 + site.time)
        return out

    def joint(self, data: Any, sites: Sequence[str], plug_in: bool = False) -> np.ndarray:
        """p(sites = states | row) of a few discrete scalar sites together: (n, *states of the sites, in their order).

        Raises:
            ModelError: a site is unknown, lies outside rows(), has no finite list of states, or has several cells.
        """
        sites = (sites,) if isinstance(sites, str) else tuple(sites)
        if not sites or len(set(sites)) < len(sites):
            raise ModelError(f"joint(sites={list(sites)}): expected one or more sites, each once")
        for name in sites:
            if math.prod(self.structure.sites[self._inside(name)].cells) > 1:
                raise ModelError(f"joint(sites={sites}): '{name}' has several cells in a row; ask predict_proba for each cell's own")
        if len({self.structure.sites[name].time for name in sites}) > 1:
            raise ModelError(f"joint(sites={sites}): some of them run along time, others belong to the row; ask of one kind at once")
        return asking.answer(self, self._read(data), [("joint", sites)], plug_in)[1]["joint", sites]

    def _inside(self, name: str) -> str:
        if not self._site(name, discrete=True).rows:
            raise ModelError(f"site '{name}' lies outside rows(): ask posterior('{name}')")
        return name

    def _unseen(self, held: dataset.Data, continuous: bool = False) -> str:
        sites = [s for s in self.structure.sites.values() if s.rows and held.pattern.get(s.name) != "seen" and not s.factor]
        candidates = [s.name for s in sites if s.states] or [s.name for s in sites if continuous or s.finite]
        wholly = [name for name in candidates if name not in held.pattern]
        if not candidates and sites and not continuous:
            found = sites[0]
            raise ModelError(
                f"no unseen site of model '{self.model.name}' has a finite list of values: '{found.name}' ({found.kind}) has none; ask "
                f"predict(data, '{found.name}'), with interval=, or name a seen site, site="
            )
        if len(wholly or candidates) != 1:
            raise ModelError(f"which site? {len(candidates)} sites are unseen: {candidates}; pass site=")
        return (wholly or candidates)[0]

    def predict(
        self,
        data: Any,
        site: str | None = None,
        plug_in: bool = False,
        given: str = queries.ALL,
        interval: float | None = None,
        unknown: str = REFUSE,
    ) -> Any:
        """The most probable state of a discrete site (as a label), or the mean of a continuous one, or of what the model computes in
        rows (numpyro.deterministic), for every row: (n, *cells).

        Args:
            given: as in predict_proba; "predicted" is the forecast of each step from those before it.
            interval: a probability, such as 0.9: answer with an Interval (value, lower, upper), the bounds of which leave half of the
                rest on either side of a new value of a continuous site or a count, its parameters unknown as they are.
            unknown: as in log_prob.

        Raises:
            ModelError: the site is unknown or not said; an interval of a site with states (ask predict_proba).
        """
        held = self._read(data, unknown=unknown)
        name = site or self._unseen(held, continuous=True)
        return members.answer(self, held, plug_in, lambda fit, held: fit._predicted(held, name, plug_in, given, interval))

    def _predicted(self, held: dataset.Data, name: str, plug_in: bool, given: str, interval: float | None) -> Any:
        if interval is not None:
            return reports.interval(self, held, name, interval, plug_in, given)
        found = self._site(name)
        if found.kind == deterministics.KIND:
            self._view(given)
            return self._computed(held, [name], plug_in, given)[name]
        if found.states is not None:
            return tables.to_labels(self._probabilities(held, name, plug_in, given).argmax(-1), self.names.get(name))
        if not self.structure.has_mean(name):
            return reports.median(self, held, name, plug_in, given)
        mean = asking.answer(self, held, [("mean", name)], plug_in, self._view(given))[1]["mean", name]
        return mean if np.isfinite(mean).all() else reports.median(self, held, name, plug_in, given)

    def decide(
        self, data: Any, site: str | None = None, loss: Any = None, reject: float | None = None, plug_in: bool = False
    ) -> np.ndarray:
        """The action of least expected loss for every row, (n, *cells): see probml.decide. Where the site's states have labels, or the
        loss names its actions, the answer bears names, and None where no action is taken; else numbers, and −1."""
        held = self._read(data)
        name = self._inside(site or self._unseen(held))
        return decisions.decide(self.predict_proba(data, name, plug_in), loss, reject, self.names.get(name))

    def calibration(
        self, data: Any, site: str | None = None, plug_in: bool = False, bins: int = 10, strategy: str = "uniform"
    ) -> Calibration:
        """How far p(site | all else of the row) keeps its promise on rows that show `site`: see probml.calibration."""
        return judge(self, data, site, plug_in, bins, strategy)

    def decode(self, data: Any, sites: Sequence[str] | None = None, plug_in: bool = False) -> dict[str, np.ndarray]:
        """The jointly most probable values of all unseen discrete cells, or of `sites` with all else summed out; seen cells stay."""
        held = self._read(data)
        every = [s.name for s in self.structure.sites.values() if s.rows and s.finite and held.pattern.get(s.name) != "seen"]
        wanted = tuple(sites) if sites is not None else tuple(every)
        for name in wanted:
            self._inside(name)
        if sites is not None and isinstance(sites, str):
            raise ModelError(f"decode(sites={sites!r}): pass a list, ['{sites}']")
        question = asking.prepare(self, held, wanted, plug_in).at_point(self)
        plan, back = question.plan, question.back
        if sites is not None:
            self._one_path(plan, wanted)
        variables = tuple(v for v in plan.variables if v in wanted or sites is None and self.structure.sites[v].rows)
        leaves = tuple(
            name
            for name in wanted
            if name not in variables
            and held.pattern.get(name) != "seen"
            and all(parent in variables for parent in self.structure.sites[name].parents if parent in plan.variables)
        )
        log, states = queries.decode(plan, variables, leaves, question.belief, question.known, question.rows)
        asking.warn(self, back(log))
        out = {}
        for name in wanted:
            if name in variables:
                codes = plan.cells(name, back(states[name], name))
            elif name in leaves:
                codes = back(states[name], name)
                column = held.table.columns.get(name)
                codes = codes if column is None else np.where(column.seen, column.values, codes)
            elif held.pattern.get(name) == "seen":
                codes = held.table.columns[name].values
            else:
                codes = asking.answer(self, held, [("probability", name)], True)[1]["probability", name].argmax(-1)
            out[name] = tables.to_labels(codes, self.names.get(name))
        return out

    def _one_path(self, plan: planning.Plan, wanted: tuple[str, ...]) -> None:
        """Refuse a maximum along time over some of what is hidden there, the rest summed out: it has no recursion."""
        inner = [name for name in wanted if name in (*plan.chains, *plan.step_order)]
        needed = (*plan.chains, *plan.along) if inner and plan.chains else ()
        lacking = [name for name in needed if name not in wanted and plan.pattern.get(name) != "seen"]
        if lacking:
            raise Refusal(
                f"decode(sites={list(wanted)}): the most probable path of '{inner[0]}' with '{lacking[0]}' summed out has no recursion "
                f"along time; decode them together, sites={[*wanted, *lacking]}, or ask predict_proba for each step's own"
            )

    def impute(self, data: Any, plug_in: bool = False, unknown: str = REFUSE) -> dict[str, np.ndarray]:
        """Every site inside rows(), seen cells as they are, unseen ones filled: discrete by the most probable state, continuous
        by the conditional mean given the row's seen cells; and what the model computes there, as predict has it. `unknown` as in
        log_prob."""
        return members.answer(self, self._read(data, unknown=unknown), plug_in, lambda fit, held: fit._imputed(held, plug_in))

    def _imputed(self, held: dataset.Data, plug_in: bool) -> dict[str, np.ndarray]:
        out, ask, medians = {}, [], []
        for site in self.structure.sites.values():
            if site.rows and held.pattern.get(site.name) != "seen" and not hasattr(site.family, "ancillary") and not site.factor:
                if not site.states and not self.structure.has_mean(site.name):
                    medians.append(site.name)
                    continue
                ask.append(("probability" if site.states else "mean", site.name))
        answers = asking.answer(self, held, ask, plug_in)[1] if ask else {}
        endless = [name for (question, name), answer in answers.items() if question == "mean" and not np.isfinite(answer).all()]
        medians += [name for name in endless if not self.structure.sites[name].event]
        answers = {asked: answer for asked, answer in answers.items() if asked[1] not in medians}
        answers |= {("median", name): reports.median(self, held, name, plug_in, queries.ALL) for name in medians}
        for site in self.structure.sites.values():
            if not site.rows:
                continue
            column = held.table.columns.get(site.name)
            filled = next((v for (_, name), v in answers.items() if name == site.name), None)
            if filled is not None and site.states:
                filled = filled.argmax(-1)
            if column is not None and column.likelihood is None:
                filled = column.values if column.seen is None or filled is None else np.where(column.seen, column.values, filled)
            if filled is not None:
                out[site.name] = tables.to_labels(filled, self.names.get(site.name))
        return out | self._computed(held, [s.name for s in self.structure.deterministics.values() if s.rows], plug_in)

    def _computed(self, held: dataset.Data, names: Sequence[str], plug_in: bool, given: str = queries.ALL) -> dict[str, np.ndarray]:
        """The means of deterministics inside rows, over what is hidden and discrete in a row and over the posterior; where one takes
        something else that is unseen, over simulated rows."""
        out = {}
        for name in names:
            if not self._site(name).rows:
                raise ModelError(f"'{name}' is computed outside rows(), the same for every row: take fit.params['{name}']")
            if any(not self._settled(held, parent) for parent in self.structure.deterministics[name].parents):
                out[name] = reports.simulated_mean(self, held, name, plug_in)
        rest = [("mean", name) for name in names if name not in out]
        found = asking.answer(self, held, rest, plug_in, given)[1] if rest else {}
        return {name: out[name] if name in out else found["mean", name] for name in names}

    def _settled(self, held: dataset.Data, name: str) -> bool:
        """Whether a site lies outside rows, is seen in every row, or has states that can be summed out."""
        site = self.structure.sites[name]
        return not site.rows or site.states is not None or held.pattern.get(name) == "seen"

    def log_joint(self, data: Any) -> float:
        """log p(data, params), unseen discrete sites summed out, those outside rows over all rows together."""
        held = self._read(data)
        held = held._replace(table=replace(held.table, values={**self.given, **held.table.values})).trimmed()
        plan = held.plan()
        missing = next((name for name in plan.free if name not in self.point), None)
        if missing is not None:
            raise ModelError(
                f"log p(data, params) of model '{self.model.name}' is that of all parameters, and '{missing}' is not among those of "
                f"at(params), {list(self.point)}: questions about rows need no more, this one does"
            )
        rows, known = load.load(held, plan, params=self.point)
        return float(_log_joint(plan, {n: jnp.asarray(v) for n, v in self.point.items()}, known, rows))

    def do(self, values: Mapping[str, Any]) -> "Fit":
        """What was learnt, after an intervention: the named sites are set in every row and no longer depend on their parents
        (Pearl 2009, graph surgery), so that nothing is learnt from them about what causes them.

        Args:
            values: site inside rows() → its state as a label, or its value, the same in every row.

        Raises:
            ModelError: a site is unknown or lies outside rows(); a label or value that it cannot have.
        """
        codes = {}
        for name, value in values.items():
            labels = self.names.get(name)
            if labels is not None and value not in labels:
                raise ModelError(f"do({{'{name}': {value!r}}}): expected one of its labels, {list(labels)}")
            codes[name] = value if labels is None else labels.index(value) + self._low(name)
        return replace(self, model=self.model.do(codes), learnt=self.learnt or self.model, kept=None)

    def table(self, site: str):
        """The conditional probability table of a discrete site as a pandas table: parents in rows, states in columns; of a
        MarkovChain its transition, the state before in rows too."""
        import pandas as pd

        from probml.factors.naturals import argument_table

        found = self._site(site, discrete=True)
        if found.states is None or found.family is None:
            raise ModelError(f"site '{site}' ({found.kind}) has no table here: ask predict_proba(data, '{site}')")
        sites, parents = self.structure.sites, [p for p in found.parents if self.structure.sites[p].discrete]
        pattern = {name: "seen" for name in (site, *parents) if sites[name].rows}
        plan = decide.make(self.structure, pattern, tuple(self.given))
        if site not in (*plan.pooled, *plan.globals) or math.prod(found.cells) > 1:
            raise ModelError(f"site '{site}' has no table: its probabilities depend on inputs, on continuous sites, or have several cells")
        arguments = argument_table(plan, {n: jnp.asarray(v) for n, v in self.point.items()}, self._known(), site)
        p = arguments["transition"] if found.chain else found.family.probabilities(arguments)
        columns = pd.Index(self.labels(site), name=site)
        values = np.asarray(p).reshape(-1, found.states)
        above = {parent: self.labels(parent) for parent in plan.discrete_parents(site)}
        above |= {f"{site} before": self.labels(site)} if found.chain else {}
        if not above:
            return pd.DataFrame(values, columns=columns)
        index = pd.MultiIndex.from_product(above.values(), names=list(above))
        return pd.DataFrame(values, index=index if len(above) > 1 else index.get_level_values(0), columns=columns)

    def simulate(
        self,
        rows: int | None = None,
        seed: int = 0,
        given: Any = None,
        plug_in: bool = False,
        steps: int | None = None,
        unknown: str = REFUSE,
        **inputs: Any,
    ) -> dict[str, np.ndarray]:
        """New rows from what was fitted, name → (rows, ...), each row with its own draw of the parameters where there is a posterior.

        Args:
            rows: how many; by default as many as `given` or the inputs have.
            given: data; its seen cells stay, its unseen cells are drawn jointly given them.
            steps: the length of chains, where neither the model nor the data tell it.
            unknown: as in log_prob; rows of one new member have its effect in common where they have the draw of the parameters so.
        """
        steps = whole_steps(steps, "simulate")
        if given is None:
            _, rows = input_rows(self.model, inputs, rows)
            held = self._read(dict(inputs), rows, steps, unknown)
        else:
            held = self._read(given, unknown=unknown)
        key = jax.random.key(seed)
        return members.answer(self, held, plug_in, lambda fit, held: fit._simulated(held, key, seed, plug_in))

    def _simulated(self, held: dataset.Data, key, seed: int, plug_in: bool) -> dict[str, np.ndarray]:
        """Whole rows from what is seen of them. Each has a draw of the parameters of its own, the first again after asking.GROUPS."""
        held.structure.need_likelihood("simulate")
        plan, back, belief, states, log = asking.drawn(self, held, key, seed, plug_in)
        n, sites = held.table.rows, self.structure.sites
        if plan.variables:
            asking.warn(self, back(log))
        fixed = {name: plan.cells(name, back(states[name], name)) for name in plan.variables}
        values = {name: fixed[name] for name in fixed if sites[name].rows}
        named = held.structure.named
        if any(site.rows and site.name not in fixed for site in named.values()):
            params = {k: v[np.arange(n) % len(v)] for k, v in belief.params.items()}
            columns = {name: (c.values, c.seen) for name, c in held.table.columns.items() if name not in fixed and c.likelihood is None}
            given, last = self._known().given, jax.random.fold_in(key, 1)
            values = simulate_rows(self.structure, params, given, fixed, columns, held.table.inputs, last, n, held.steps)
        values = {name: tables.to_labels(np.asarray(values[name]), self.names.get(name)) for name in named if name in values}
        for name, value in self.model.interventions:
            done, labels = np.asarray(thaw(value)), self.names.get(name)
            done = np.broadcast_to(done, (n, *done.shape))
            values[name] = done if labels is None else tables.to_labels(done - self._low(name), labels)
        return values

    def _low(self, name: str) -> int:
        """The least value of a site that do() may have set."""
        found = trace(self.model.plain, self.shapes).sites.get(name)
        return 0 if found is None else found.low

    # Keeping

    def merge(self, other: "Fit") -> "Fit":
        """The Fit of both parts of the data together, by adding their sufficient statistics; no row is read again.

        Where nothing is unseen inside rows but cells that drop out, parts and chunks equal one batch. Row weights count.

        Raises:
            Refusal: something is summed out or enters row by row, so that statistics depend on the parameters.
            ModelError: another model, engine, labels or given values.

        Cost: that of a fit to one row.
        """
        return type(self).of(self.model, fitting.merged(self, other))

    def update(self, data: Any, *, weights: Any = None) -> "Fit":
        """The Fit of further rows together with those already fitted: merge with their statistics, without fitting them alone.

        Raises: as merge, and as Model.fit for bad data. Cost: one pass over the new rows.
        """
        return type(self).of(self.model, fitting.updated(self, data, weights))

    def save(self, path: str | os.PathLike) -> None:
        """Write one file (arrays and JSON, no pickle), atomically: a failure leaves an older file whole."""
        saving.save(self, path)


def _fixed(value: Any) -> np.ndarray:
    """A copy on the host that nobody can write to."""
    out = np.array(value)
    out.flags.writeable = False
    return out


def grid(models: Mapping[int, Bound], data: Any, site: str, engine: EM, *, weights: Any = None, seed: int = 0) -> dict[int, Fit]:
    """Fit one model with several numbers of states of a hidden site, all restarts of all sizes in one program.

    A smaller model is the largest one whose states beyond its size are impossible, which holds where their weights then vanish:
    under maximum likelihood, or a Dirichlet prior of concentration 1.

    Args:
        models: states of `site` → the model with so many; parameters lead with the axis of the states, or do not have it.

    Returns:
        states → Fit, the best of the engine's restarts each.

    Raises: as Model.fit, of the largest model.
    Cost: every iteration is one of the largest model for each restart of each size.
    """
    found = fitting.infer_sizes(models, data, site, engine, weights, seed)
    return {size: Fit.of(models[size], of) for size, of in found.items()}


def known(model: Bound, params: Mapping[str, Any], labels: Mapping[str, tuple]) -> Fit:
    """See Model.at."""
    names = {k: tuple(v) for k, v in labels.items()}
    for name, given in names.items():
        twice = next((label for i, label in enumerate(given) if label in given[:i]), None)
        if twice is not None:
            raise ModelError(f"at(labels): '{name}' has the label {twice!r} twice in {list(given)}; each state or entry has one of its own")
    point = {name: np.asarray(value, float) for name, value in params.items()}
    if model.inputs:
        return _Deferred(model, point, {}, names=names)
    return _told(trace(model, {}), Fit(model, point, {}, names=names))


def _told(structure: Structure, fit: Fit) -> Fit:
    """A Fit at given parameters, held against the structure."""
    point = {name: value for name, value in fit.point.items() if name not in structure.derived}  # computed anew: see Fit.params
    names = {**structure.labels, **fit.names}
    _check_params(structure, point)
    _check_labels(structure, names)
    structure.check_chains(point)
    return Fit(fit.model, point, fit.shapes, names=names, learnt=fit.learnt)


@dataclass(frozen=True, eq=False)
class _Deferred(Fit):
    """A Fit at known parameters of a model with inputs: the data of each question tell their shapes, and so which Fit answers it."""

    @property
    def params(self) -> dict[str, Any]:
        return self.point

    @property
    def structure(self) -> Structure:
        """As far as it can be told without data."""
        return trace(self.model)

    def _read(self, data: Any, rows: int | None = None, steps: int | None = None, unknown: str = REFUSE) -> dataset.Data:
        return read.read(self.model, data, self.names, rows, None, steps, unknown)

    def _of(self, held: dataset.Data) -> Fit:
        return _told(held.structure, replace(self, shapes=held.shapes))


def _resolved(verb: str):
    """The verb of a Fit for one whose shapes the question's data tell."""
    method = getattr(Fit, verb)
    signature = inspect.signature(method)

    @functools.wraps(method)
    def ask(self, *args: Any, **kwargs: Any):
        bound = signature.bind(self, *args, **kwargs).arguments
        data, unknown = bound.get("data", bound.get("given")), bound.get("unknown", REFUSE)
        if verb == "simulate" and data is None:
            inputs = bound.get("inputs", {})
            held = self._read(inputs, input_rows(self.model, inputs, bound.get("rows"))[1], bound.get("steps"), unknown)
        else:
            held = self._read(data, unknown=unknown)
        return getattr(self._of(held), verb)(*args, **kwargs)

    return ask


OF_ROWS = ("log_prob", "predict_proba", "pairs", "forecast", "joint", "predict", "decide", "calibration", "decode", "impute")
for _verb in (*OF_ROWS, "log_joint", "simulate"):
    setattr(_Deferred, _verb, _resolved(_verb))


def _check_params(structure: Structure, params: Mapping[str, np.ndarray]) -> None:
    missing = next((name for name in structure.reaching if name not in params), None)
    if missing is not None:
        raise ModelError(f"at(params) lacks '{missing}'; the parameters are {list(structure.parameters)}")
    for name in (name for name in structure.parameters if name in params):
        if params[name].shape != structure.sites[name].shape:
            raise ModelError(f"at(params): '{name}' has shape {params[name].shape}, expected {structure.sites[name].shape}")
        if structure.sites[name].domain == "simplex":
            _check_rows(name, params[name])
        if not np.isfinite(params[name]).all() or not inside(structure.sites[name], params[name]):
            domain = structure.sites[name].domain.replace("_", " ")
            raise ModelError(f"at(params): '{name}' lies outside its support ({domain}) or is not finite: got {params[name].tolist()}")
    for name in params:
        if name not in structure.parameters:
            raise ModelError(f"at(params) names '{name}', which is not a parameter; the parameters are {list(structure.parameters)}")


def _check_rows(name: str, table: np.ndarray) -> None:
    """Refuse the first row of a table that is no distribution."""
    wrong = ~((table >= 0).all(-1) & (np.abs(table.sum(-1) - 1) <= 1e-4))
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ModelError(
            f"at(params): '{name}' has a row{f' {list(where)}' * bool(where)} that is no distribution: {table[where].tolist()} sums to "
            f"{table[where].sum():.6g}; expected probabilities >= 0 that sum to 1"
        )


def _check_labels(structure: Structure, labels: Mapping[str, tuple]) -> None:
    for name, given in labels.items():
        if name in structure.indexed:
            index = structure.indexed[name]
            low, high = bounds([index])
            if len(set(given)) < len(given) or high is not None and len(given) > high - low + 1:
                raise ModelError(
                    f"at(labels): '{name}' indexes {index.words} of {index.length} entries; expected different labels, at most one an "
                    f"entry, got {list(given)}"
                )
            continue
        site = structure.sites.get(name)
        if site is None or not site.states:
            finite = [s.name for s in structure.sites.values() if s.states] + list(structure.indexed)
            raise ModelError(f"at(labels): '{name}' is no site with a finite list of states, nor an index; those are {finite}")
        if len(given) != site.states or len(set(given)) < len(given):
            raise ModelError(f"at(labels): '{name}' has {site.states} states; expected as many different labels, got {list(given)}")


@functools.partial(jit, static_argnums=0)
def _log_joint(plan, params, known_, rows):
    return log_evidence(plan, params, known_, rows) + log_prior(plan, params, known_)


class _Shell:
    """A Fit without its arrays, as the static part of a pytree: equal to another of the same values.

    What was seen (`data`) and its statistics (`kept`) stay behind: they belong to the Fit that an engine made, not to what a
    transformation makes of its arrays.
    """

    def __init__(self, fit: Fit):
        self.fit = replace(fit, point={}, closed=None, states=None, drawn=None, kept=None, data=None)
        static = {f.name: getattr(self.fit, f.name) for f in fields(fit)}
        self.key = freeze(static | {"class": type(fit).__name__})

    def __eq__(self, other):
        return isinstance(other, _Shell) and self.key == other.key

    def __hash__(self):
        return hash(self.key)

    def __repr__(self):
        return f"{self.fit.model!r} by {self.fit.engine}"


def _flatten(fit: Fit):
    return (fit.point, fit.closed, fit.states, fit.drawn), fit._shell


def _unflatten(shell: _Shell, arrays) -> Fit:
    point, closed, states, drawn = arrays
    return replace(shell.fit, point=point, closed=closed, states=states, drawn=drawn)


jax.tree_util.register_pytree_node(Fit, _flatten, _unflatten)
jax.tree_util.register_pytree_node(_Deferred, _flatten, _unflatten)
