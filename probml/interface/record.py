"""What was found, as data: the fields of a fit, what follows from them alone, and the answers that
several questions share."""

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml.assessment import reports
from probml.dataset import dataset, read, tables
from probml.dataset.codes import REFUSE
from probml.device.rows import Known
from probml.engines.engine import Status
from probml.errors import ModelError, Refusal
from probml.families.finite import Shifted
from probml.fits import fitting
from probml.fits.merging import Kept
from probml.functions.meeting import meet
from probml.language.language import Bound
from probml.language.settings import freeze, thaw
from probml.numerics.precision import in_its_own
from probml.plan import decide
from probml.plan import plan as planning
from probml.plan.blocks import blocks
from probml.posteriors.conjugate import Marginals
from probml.posteriors.coupling import Posterior
from probml.posteriors.drawn import Draws, Normal
from probml.posteriors.predictive import draw_params
from probml.queries import asking, queries
from probml.queries.simulation import simulate_draws, simulate_rows
from probml.structure import deterministics
from probml.structure.structure import Structure
from probml.structure.trace import trace


@in_its_own
@dataclass(frozen=True, eq=False)
class Record:
    """What an engine found, beside its model; immutable. See Fit for the attributes."""

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
    # log posterior of the discrete sites outside rows, an axis each
    states: Any = field(default=None, repr=False)
    # the model that was fitted, where do() has changed it since
    learnt: Bound | None = field(default=None, repr=False)
    # the statistics of complete data, which merge() adds
    kept: Kept | None = field(default=None, repr=False)
    # a posterior that is no closed form
    drawn: Draws | Normal | None = field(default=None, repr=False)
    # what was seen, where there are draws to judge it by
    data: dataset.Data | None = field(default=None, repr=False)
    held_out: Any = field(default=None, repr=False)
    # found in double, since float32 has too few digits for it, and asked in double
    double: bool = field(default=False, repr=False)

    @classmethod
    def of(cls, model: Bound, found: fitting.Found) -> "Record":
        """The record of an engine's outcome; warns where it did not converge, raises where
        everything collapsed."""
        seen, engine, outcome = found.seen, found.engine, found.outcome
        if outcome.status is Status.COLLAPSED:
            raise Refusal(
                f"{type(engine).__name__} of model '{model.name}' {outcome.status.message}. A "
                f"component sits on a "
                "single point, a column is constant or "
                "collinear with others, or the data are impossible: use a prior that vanishes at "
                "zero scale "
                "(LogNormal, InverseGamma, InverseWishart) with "
                "prior=True, fewer components, or more restarts"
            )
        if outcome.status in (Status.MAX_ITERATIONS, Status.FELL, Status.STALLED, Status.WANDERED):
            warnings.warn(f"{type(engine).__name__} of model '{model.name}' "
                          f"{outcome.status.message}", RuntimeWarning, stacklevel=3)
        if outcome.status in (Status.DOUBTFUL, Status.RUNAWAY):
            text = "; ".join((outcome.status.message, *outcome.notes))
            warnings.warn(f"{type(engine).__name__} of model '{model.name}': {text}",
                          RuntimeWarning, stacklevel=3)
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

    @functools.cached_property
    def params(self) -> dict[str, Any]:
        return {**self.point, **deterministics.point(self)}

    @property
    def converged(self) -> bool:
        return self.outcome in (Status.CONVERGED, Status.EXACT, Status.KNOWN, Status.SAMPLED,
                                Status.APPROXIMATED, Status.EARLY)

    @property
    def status(self) -> str:
        return self.outcome.message + "".join(f"; {note}" for note in self.notes)

    @property
    def structure(self) -> Structure:
        return trace(self.model, self.shapes)

    def labels(self, site: str) -> tuple:
        """The labels of a discrete site's states, in code order; 0 … states−1 where the data had
        none. Of an input that is an index, those of the entries that it picks from."""
        if site in self.model.inputs:
            return self._index_labels(site)
        self._site(site, discrete=True)
        return self.names.get(site, tuple(range(self.structure.sites[site].finite)))

    def _index_labels(self, name: str) -> tuple:
        if name in self.names:
            return self.names[name]
        index = self.structure.indexed.get(name) if self.shapes else None
        if index is None or index.high is None or index.low is None:
            indexed = ([found.name for found in self.structure.indexed.values()]
                       if self.shapes else [])
            raise ModelError(f"labels('{name}'): it is no index of known range; those of model "
                             f"'{self.model.name}' are {indexed}")
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
        """The marginal posterior of a parameter, or of a discrete site outside rows, as a NumPyro
        distribution.

        Raises:
            Refusal: the engine found a point, not a posterior in closed form.
            ModelError: the site is unknown or lies inside rows().
        """
        found = self._site(site)
        if found.kind == deterministics.KIND:
            outside = f"fit.params['{site}']" if self._at_point else f"fit.draws(n)['{site}']"
            instead = f"fit.predict(data, '{site}')" if found.rows else outside
            raise Refusal(f"'{site}' is computed from other sites (deterministic): no posterior of "
                          f"it in closed form; take {instead}")
        if found.rows:
            raise ModelError(f"site '{site}' lies inside rows(): ask predict_proba(data, "
                             f"'{site}'), a posterior for every row")
        if found.discrete and self.states is not None:
            plan = self._plan
            if site not in plan.variables:
                raise Refusal(f"'{site}' ({found.kind}): nothing seen depends on it, and its "
                              f"values have no end that could be listed")
            axis = plan.globals.index(site)
            joint = jnp.exp(self.states).sum(tuple(i for i in range(self.states.ndim) if i != axis))
            # (joint states, *cells, states)
            cells = jax.nn.one_hot(plan.variables[site].values, found.finite)
            probs = jnp.tensordot(joint, cells, 1)
            probs = probs / probs.sum(-1, keepdims=True)
            return Shifted(probs, found.low) if found.low else dist.Categorical(probs=probs)
        if self.closed is not None and site in self.closed.mean:
            return self._marginals.distribution(site)
        found = (self.drawn.distribution(self._plan, self._known(), site) if self.drawn is not None
                 and site in self.point else None)
        if found is None:
            instead = (f"fit.draws(n)['{site}']" if self.drawn is not None
                       else f"fit.params['{site}']")
            raise Refusal(f"'{site}': {self.engine} has no posterior of it in closed form; fit "
                          f"with probml.Exact(), or take {instead}")
        return found

    def draws(self, n: int, seed: int = 0) -> dict[str, np.ndarray]:
        """Joint draws from the posterior of the parameters, name → (n, ...), and what the model
        computes from each outside rows.

        Raises:
            Refusal: the engine found a point.
        """
        if self._at_point:
            raise Refusal(f"{self.engine} found a point, not a posterior: fit with probml.Exact() "
                          f"or probml.NUTS(), or take fit.params")
        if n < 1:
            raise ModelError(f"draws(n={n}): expected at least 1")
        draws, sites = self._draws(n, seed), self.structure.sites
        found = {name: sites[name].valued(np.asarray(value)) for name, value in draws.items()}
        found |= {name: np.asarray(value)
                  for name, value in deterministics.drawn(self, draws).items()}
        return found | self._drawn_in_rows(draws, n)

    def _drawn_in_rows(self, draws: Mapping[str, jax.Array], n: int) -> dict[str, np.ndarray]:
        """What a function that names no rows computes in those that were found in it, for the data
        that were fitted: (n, rows, ...)."""
        sites = self.structure.sites
        names = tuple(site.name for site in self.structure.deterministics.values() if site.rows
                      and not any(sites[parent].rows for parent in site.parents))
        if not (names and self.model.generative.found and self.data is not None):
            return {}
        table = self.data.table
        found = simulate_draws(self.structure, names, draws, self._known().given, table.inputs,
                               jax.random.key(0), table.rows, n, self.data.steps)
        return {name: np.asarray(value) for name, value in found.items()}

    @functools.cached_property
    def _shell(self) -> "Shell":
        return Shell(self)

    @property
    def _at_point(self) -> bool:
        """Nothing is known but a point."""
        return self.closed is None and self.drawn is None and self.states is None

    def _draws(self, n: int, seed: int) -> dict[str, jax.Array]:
        """Of the sites outside rows alone, discrete ones as codes."""
        if self.drawn is not None:
            return self.drawn.draw(self._plan, self._known(), n, seed)
        return draw_params(self._plan, n, self.closed, self.states, self._known(),
                           jax.random.key(seed))

    def _site(self, name: str, discrete: bool = False):
        sites = self.structure.named
        if name in dict(self.model.interventions):
            raise ModelError(f"site '{name}' is set by do() in every row: there is nothing to "
                             f"ask of it")
        if name not in sites:
            raise ModelError(f"model '{self.model.name}' has no site '{name}'; its sites are "
                             f"{list(sites)}")
        if discrete and sites[name].finite is None:
            raise ModelError(
                f"site '{name}' ({sites[name].kind}) has no finite list of states: use "
                f"impute(data) or simulate(..., given=data)"
            )
        return sites[name]

    def _read(self, data: Any, rows: int | None = None, steps: int | None = None,
              unknown: str = REFUSE) -> dataset.Data:
        return read.read(self.model, meet(self.model, data).data, self.names, rows, self.shapes,
                         steps, unknown)

    def _probabilities(self, held: dataset.Data, site: str | Sequence[str] | None, plug_in: bool,
                       given: str) -> Any:
        if site is not None and not isinstance(site, str):
            for name in site:
                self._inside(name)
            out = asking.answer(self, held, [("probability", name) for name in site], plug_in,
                                self._view(given))[1]
            return {name: out["probability", name] for name in site}
        name = self._inside(site or self._unseen(held))
        return asking.answer(self, held, [("probability", name)], plug_in,
                             self._view(given))[1]["probability", name]

    def _view(self, given: str) -> str:
        views = (queries.ALL, queries.FILTERED, queries.PREDICTED)
        if given not in views:
            raise ModelError(f"given={given!r}: expected one of {list(views)}")
        if given != queries.ALL and not self.structure.chains:
            raise ModelError(f"given={given!r}: model '{self.model.name}' has no MarkovChain along "
                             f"which time would run")
        return given

    def _inside(self, name: str) -> str:
        if not self._site(name, discrete=True).rows:
            raise ModelError(f"site '{name}' lies outside rows(): ask posterior('{name}')")
        return name

    def _unseen(self, held: dataset.Data, continuous: bool = False) -> str:
        sites = [s for s in self.structure.sites.values() if s.rows
                 and held.pattern.get(s.name) != "seen" and not s.factor]
        candidates = [s.name for s in sites if s.states] or [s.name for s in sites if continuous
                                                             or s.finite]
        wholly = [name for name in candidates if name not in held.pattern]
        if not candidates and sites and not continuous:
            found = sites[0]
            raise ModelError(
                f"no unseen site of model '{self.model.name}' has a finite list of values: "
                f"'{found.name}' ({found.kind}) has none; ask "
                f"predict(data, '{found.name}'), with interval=, or name a seen site, site="
            )
        if len(wholly or candidates) != 1:
            raise ModelError(f"which site? {len(candidates)} sites are unseen: {candidates}; "
                             f"pass site=")
        return (wholly or candidates)[0]

    def _predicted(self, held: dataset.Data, name: str, plug_in: bool, given: str,
                   interval: float | None) -> Any:
        if interval is not None:
            return reports.interval(self, held, name, interval, plug_in, given)
        found = self._site(name)
        if found.kind == deterministics.KIND:
            self._view(given)
            return self._computed(held, [name], plug_in, given)[name]
        if found.states is not None:
            return tables.to_labels(self._probabilities(held, name, plug_in, given).argmax(-1),
                                    self.names.get(name))
        if not self.structure.has_mean(name):
            return reports.median(self, held, name, plug_in, given)
        mean = asking.answer(self, held, [("mean", name)], plug_in, self._view(given))[1]["mean",
                                                                                          name]
        return mean if np.isfinite(mean).all() else reports.median(self, held, name, plug_in, given)

    def _one_path(self, plan: planning.Plan, wanted: tuple[str, ...]) -> None:
        """Refuse a maximum along time over some of what is hidden there, the rest summed out: it
        has no recursion."""
        inner = [name for name in wanted if name in (*plan.chains, *plan.step_order)]
        needed = (*plan.chains, *plan.along) if inner and plan.chains else ()
        lacking = [name for name in needed if name not in wanted
                   and plan.pattern.get(name) != "seen"]
        if lacking:
            raise Refusal(
                f"decode(sites={list(wanted)}): the most probable path of '{inner[0]}' with "
                f"'{lacking[0]}' summed out has no recursion "
                f"along time; decode them together, sites={[*wanted, *lacking]}, or ask "
                f"predict_proba for each step's own"
            )

    def _imputed(self, held: dataset.Data, plug_in: bool) -> dict[str, np.ndarray]:
        out, ask, medians = {}, [], []
        for site in self.structure.sites.values():
            if (site.rows and held.pattern.get(site.name) != "seen"
                and not hasattr(site.family, "ancillary") and not site.factor):
                if not site.states and not self.structure.has_mean(site.name):
                    medians.append(site.name)
                    continue
                ask.append(("probability" if site.states else "mean", site.name))
        answers = asking.answer(self, held, ask, plug_in)[1] if ask else {}
        endless = [name for (question, name), answer in answers.items() if question == "mean"
                   and not np.isfinite(answer).all()]
        medians += [name for name in endless if not self.structure.sites[name].event]
        answers = {asked: answer for asked, answer in answers.items() if asked[1] not in medians}
        answers |= {("median", name): reports.median(self, held, name, plug_in, queries.ALL)
                    for name in medians}
        for site in self.structure.sites.values():
            if not site.rows:
                continue
            column = held.table.columns.get(site.name)
            filled = next((v for (_, name), v in answers.items() if name == site.name), None)
            if filled is not None and site.states:
                filled = filled.argmax(-1)
            if column is not None and column.likelihood is None:
                filled = column.values if column.seen is None or filled is None else np.where(
                    column.seen, column.values, filled
                )
            if filled is not None:
                out[site.name] = tables.to_labels(filled, self.names.get(site.name))
        return out | self._computed(
            held, [s.name for s in self.structure.deterministics.values() if s.rows], plug_in
        )

    def _computed(self, held: dataset.Data, names: Sequence[str], plug_in: bool,
                  given: str = queries.ALL) -> dict[str, np.ndarray]:
        """The means of deterministics inside rows, over what is hidden and discrete in a row and
        over the posterior; where one takes something else that is unseen, over simulated rows."""
        out = {}
        for name in names:
            if not self._site(name).rows:
                raise ModelError(f"'{name}' is computed outside rows(), the same for every row: "
                                 f"take fit.params['{name}']")
            if any(not self._settled(held, parent)
                   for parent in self.structure.deterministics[name].parents):
                out[name] = reports.simulated_mean(self, held, name, plug_in)
        rest = [("mean", name) for name in names if name not in out]
        found = asking.answer(self, held, rest, plug_in, given)[1] if rest else {}
        return {name: out[name] if name in out else found["mean", name] for name in names}

    def _settled(self, held: dataset.Data, name: str) -> bool:
        """Whether a site lies outside rows, is seen in every row, or has states that can be summed
        out."""
        site = self.structure.sites[name]
        return not site.rows or site.states is not None or held.pattern.get(name) == "seen"

    def _simulated(self, held: dataset.Data, key, seed: int, plug_in: bool) -> dict[str,
                                                                                    np.ndarray]:
        """Whole rows from what is seen of them. Each has a draw of the parameters of its own, the
        first again after asking.GROUPS."""
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
            columns = {name: (c.values, c.seen) for name, c in held.table.columns.items()
                       if name not in fixed and c.likelihood is None}
            given, last = self._known().given, jax.random.fold_in(key, 1)
            values = simulate_rows(self.structure, params, given, fixed, columns, held.table.inputs,
                                   last, n, held.steps)
        values = {name: tables.to_labels(np.asarray(values[name]), self.names.get(name))
                  for name in named if name in values}
        for name, value in self.model.interventions:
            done, labels = np.asarray(thaw(value)), self.names.get(name)
            done = np.broadcast_to(done, (n, *done.shape))
            values[name] = done if labels is None else tables.to_labels(done - self._low(name),
                                                                        labels)
        return values

    def _low(self, name: str) -> int:
        """The least value of a site that do() may have set."""
        found = trace(self.model.plain, self.shapes).sites.get(name)
        return 0 if found is None else found.low


def _fixed(value: Any) -> np.ndarray:
    """A copy on the host that nobody can write to."""
    out = np.array(value)
    out.flags.writeable = False
    return out


class Shell:
    """A Fit without its arrays, as the static part of a pytree: equal to another of the same
    values.

    What was seen (`data`) and its statistics (`kept`) stay behind: they belong to the Fit that an
    engine made, not to what a transformation makes of its arrays.
    """

    def __init__(self, fit: Record):
        self.fit = replace(fit, point={}, closed=None, states=None, drawn=None, kept=None,
                           data=None)
        static = {f.name: getattr(self.fit, f.name) for f in fields(fit)}
        self.key = freeze(static | {"class": type(fit).__name__})

    def __eq__(self, other):
        return isinstance(other, Shell) and self.key == other.key

    def __hash__(self):
        return hash(self.key)

    def __repr__(self):
        return f"{self.fit.model!r} by {self.fit.engine}"
