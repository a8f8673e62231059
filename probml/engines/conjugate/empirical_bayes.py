"""Empirical Bayes: settings of a model at the maximum of its exact log evidence, then the exact
posterior there (type-II maximum likelihood).

    η̂ = argmax over η of log p(data | η) = log ∫ p(data | θ, η) p(θ | η) dθ,   p(θ | data, η̂)

The evidence is Exact's, for any model that Exact treats; the settings are those that were bound,
lifted to values of one program. A positive setting is searched in its logarithm, a
probability in its logit, any other on the line. Evidences have several maxima and flat tails, so
the search looks first, along each setting, along all of them together and at random places, and
climbs from the best (numerics/box.py). Gradients are central differences: the evidence is exact to
some 1e−13 of its terms, in double whatever JAX's precision, and one program does all.

Sources: Good (1965), "The estimation of probabilities", type-II maximum likelihood; MacKay (1992),
"Bayesian interpolation"; Minka (2000), "Estimating a Dirichlet distribution".

The settings are sites of a lifted plan (structure/lifted.py), so that one program serves all their
values. Whether one must be positive, or within (0, 1), is asked of NumPyro's constraints on the
arguments that it enters.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from scipy.special import expit, logit

from probml.device.rows import Known, Rows
from probml.engines.engine import Capabilities, Engine, Outcome, Problem, Status, check_settings
from probml.engines.exact import Exact, closed_form, is_consistent
from probml.engines.findings import Code, Finding
from probml.engines.importance import in_batches
from probml.engines.start.prior import compiled_prior_point
from probml.errors import ModelError, Refusal, counted, listed
from probml.language import given
from probml.language.language import Bound
from probml.numerics.box import Top, search
from probml.numerics.compiling import ONCE, jit
from probml.plan import decide
from probml.plan.blocks import all_blocks
from probml.plan.plan import Plan
from probml.structure.lifted import lifted, numbers, site_of
from probml.structure.trace import trace
from probml.typing import PyTree
from probml.updates.least_squares import rooted

# a number near another, of the other sign, and above 1: where these are allowed shows how a setting
# is searched
PROBES: tuple[Callable[[float], float], ...] = (
    lambda value: value * 1.001 if value else 1e-3, lambda value: -value if value else -1.0,
    lambda value: 1.0 + abs(value))
MAX_LOG_FACTOR = np.log(1e9)  # how far from the value bound a setting is looked for, as a factor
SURE = 20.0  # logits of a probability up to which it is looked for
# kind of axis → the value at coordinate u, where the value bound has the coordinate 0; the inverse
COORDINATES: dict[str, tuple[Callable[[float, float], float], Callable[[float, float], float]]] = {
    "log": (lambda u, begin: begin * np.exp(u), lambda value, begin: np.log(value / begin)),
    "logit": (lambda u, begin: expit(u + logit(begin)),
              lambda value, begin: logit(value) - logit(begin)),
    "line": (lambda u, begin: begin + max(abs(begin), 1.0) * np.sinh(u),
             lambda value, begin: np.arcsinh((value - begin) / max(abs(begin), 1.0))),
}


class Axis(NamedTuple):
    """One number that is chosen: how it is searched, and how far."""

    setting: str
    entry: tuple[int, ...]
    kind: str  # a key of COORDINATES
    bound_value: float  # the value bound; the coordinate is 0 there
    low: float  # of the coordinate
    high: float

    def value(self, u: float) -> float:
        """The setting's number at a coordinate."""
        return float(COORDINATES[self.kind][0](u, self.bound_value))

    def coordinate(self, value: float) -> float:
        """The inverse of `value`."""
        return float(COORDINATES[self.kind][1](value, self.bound_value))


class Evidence:
    """log p(data | settings), at several settings in one call."""

    def __init__(self, plan: Plan, known: Known, rows: Rows, bound: Mapping[str, np.ndarray]):
        self.plan, self.known, self.rows, self.bound = plan, known, rows, bound
        self.roots = False
        value, mismatch = self._log_evidences([bound])[0]
        self.roots = not is_consistent(value, mismatch) and any(
            rooted(plan, block) for block in all_blocks(plan, True))

    def _log_evidences(self, points: list[Mapping[str, np.ndarray]]) -> list[tuple[float, float]]:
        """(log evidence, mismatch) at each point; in batches of one size, so that one program is
        compiled."""
        size = 2 * sum(value.size for value in self.bound.values()) + 1
        stacked = {site_of(name): np.stack([point[name] for point in points])
                   for name in self.bound}
        results = in_batches(lambda batch, _: _evidences(self.plan, self.roots, batch, self.known,
                                                         self.rows), stacked, size)
        return list(zip(*results, strict=True))

    def values(self, axes: list[Axis], point: np.ndarray) -> dict[str, np.ndarray]:
        """The settings at a point of the search."""
        settings = {name: value.copy() for name, value in self.bound.items()}
        for axis, u in zip(axes, point, strict=True):
            settings[axis.setting][axis.entry] = axis.value(u)
        return settings

    def at(self, axes: list[Axis], points: np.ndarray) -> np.ndarray:
        """log p(data | settings) at points (m, axes); −∞ where there is none, or where its closed
        form has lost its digits."""
        evidences = self._log_evidences([self.values(axes, point) for point in points])
        return np.array([value if np.isfinite(value) and is_consistent(value, mismatch) else -np.inf
                         for value, mismatch in evidences])

    def axes(self, choose: object) -> list[Axis]:
        """What each number may be.

        Raises:
            ModelError, Refusal: see EmpiricalBayes.
        """
        entries = [(name, index) for name, value in self.bound.items()
                   for index in np.ndindex(value.shape)]
        probes = [_replace_element(self.bound, name, index, move) for name, index in entries
                  for move in PROBES]
        allowed = np.asarray(_allowed(self.plan, self.known, {
            site_of(name): jnp.stack([jnp.asarray(probe[name]) for probe in (self.bound, *probes)])
            for name in self.bound
        }))
        # what is not allowed at the values bound says nothing of a setting
        is_allowed = (allowed[1:] | ~allowed[0]).all(1).reshape(-1, 3)
        ranges = choose if isinstance(choose, Mapping) else {}
        return [self._axis(name, index, bool(flags[0]), bool(flags[1]), bool(flags[2]),
                           ranges.get(name))
                for (name, index), flags in zip(entries, is_allowed, strict=True)]

    def _axis(self, name: str, index: tuple, can_change: bool, negative: bool, large: bool,
              bounds: tuple[float, float] | None) -> Axis:
        bound_value, where = float(self.bound[name][index]), f"EmpiricalBayes: setting '{name}'"
        if not can_change:
            raise Refusal(f"{where}: its values cannot be changed one by one, because they are "
                          f"constrained together, like probabilities that sum to 1 or a covariance "
                          f"matrix. Let the model take unconstrained numbers as '{name}' instead, "
                          f"such as the logits of the probabilities")
        kind = "line" if negative else "log" if large or not 0 < bound_value < 1 else "logit"
        if kind == "log" and not bound_value > 0:
            raise Refusal(f"{where} is {bound_value:g}, but the search starts at this value and "
                          f"needs a number above 0. Call the model with one, such as "
                          f"{self.plan.structure.model.name}({name}=1.0)")
        if bounds is None:
            return Axis(name, index, kind, bound_value, *((-SURE, SURE) if kind == "logit"
                                                          else (-MAX_LOG_FACTOR, MAX_LOG_FACTOR)))
        low, high = map(float, bounds)
        if not low <= bound_value <= high or low == high or (kind != "line" and not low > 0) or (
            kind == "logit" and not high < 1
        ):
            domain = {"log": " above 0", "logit": " between 0 and 1", "line": ""}[kind]
            raise ModelError(f"EmpiricalBayes(choose={{'{name}': {bounds}}}): expected bounds "
                             f"(lowest, highest){domain} that include the value of '{name}' in the "
                             f"model, {bound_value:g}. Give other bounds, or call the model with "
                             f"another value of '{name}'")
        axis = Axis(name, index, kind, bound_value, 0.0, 0.0)
        return axis._replace(low=axis.coordinate(low), high=axis.coordinate(high))


def _replace_element(bound: Mapping[str, np.ndarray], name: str, index: tuple,
                     move: Callable) -> dict[str, np.ndarray]:
    """A copy of the settings with one element replaced by `move` of it."""
    replaced = {key: value.copy() for key, value in bound.items()}
    replaced[name][index] = move(replaced[name][index])
    return replaced


@jit(static_argnums=(0, 1), seldom=ONCE)
def _evidences(plan: Plan, roots: bool, points: dict[str, jax.Array], known: Known, rows: Rows):
    """(log evidence, mismatch of its closed form) at stacked settings, one after the other."""
    return jax.lax.map(lambda point: closed_form(
        plan, known._replace(given={**known.given, **point}), rows, roots)[1:], points)


def _allowed(plan: Plan, known: Known, points: dict[str, jax.Array]) -> jax.Array:
    """Whether every argument that takes a setting keeps NumPyro's constraint, (points,
    arguments)."""
    first = {name: value[0] for name, value in points.items()}
    params = compiled_prior_point(plan, known._replace(given={**known.given, **first}))
    return _satisfied_constraints(plan, {**known.given, **params}, points)


@jit(static_argnums=0, seldom=ONCE)
def _satisfied_constraints(plan: Plan, base: dict[str, jax.Array],
                           points: dict[str, jax.Array]) -> jax.Array:
    """Whether each constraint of the distributions' arguments holds, at each point."""
    structure = plan.structure

    def at(point: Mapping[str, jax.Array]):
        satisfied = []
        for name in structure.sites:
            program, inputs = structure.programs[name]
            if not any(input_name in point for input_name in inputs):
                continue
            # what a row holds is not known here: any value stands for it
            env = {key: jnp.reshape({**base, **point}[key], aval.shape) if key in {**base, **point}
                   else jnp.zeros(aval.shape, aval.dtype)
                   for key, aval in zip(inputs, program.in_avals, strict=True)}
            distribution = structure.distribution(name, env)
            for argument, constraint in distribution.arg_constraints.items():
                if argument in vars(distribution) and not constraint.is_discrete:
                    satisfied.append(jnp.all(constraint(getattr(distribution, argument))))
        return jnp.stack(satisfied) if satisfied else jnp.ones(1, bool)

    return jax.lax.map(at, points)


FLAT = 1e-3  # nats that tell nothing


@dataclass(frozen=True)
class EmpiricalBayes(Engine):
    """Empirical Bayes: settings of a model that maximise the exact log evidence, and the exact
    posterior given these settings.

    The Fit's model is bound to what was chosen, and `status` says it: fit.model.bound["scale"].

    Args:
        choose: names of settings that are bound to numbers or arrays of numbers, each entry of
            which is chosen by itself; or name → (lowest, highest), in the setting's own units.
            Without a range they may lie up to a factor of 1e9 from the bound value, where the
            search begins.
        restarts: optimisations, from the best points that were evaluated; the bound value is one.
        looks: random points that are evaluated, in addition to those along each setting.
        max_iterations: of each optimisation.

    Raises:
        ModelError: a name that is no setting, bounds without the value bound. Refusal: a setting
            that is no number, or that the function needs as one of Python's (a size); a model that
            Exact refuses; an array whose entries are tied, such as probabilities that sum to 1.

    Cost: an evidence, one or three passes over the rows, for each of some 20 (settings + 1) looks,
        and 2 settings + 1 for each iteration. Meant for tens of settings, not for hundreds.

    Examples:
        >>> import numpyro.distributions as dist
        >>> from numpyro import sample
        >>> import probml
        >>> @probml.model
        ... def weights(scale: float):
        ...     mean = sample("mean", dist.Normal(0.0, scale))
        ...     with probml.rows():
        ...         sample("x", dist.Normal(mean, 1.0))
        >>> fit = weights(scale=1.0).fit({"x": [4.0, 5.0, 6.0]}, probml.EmpiricalBayes("scale"))
        >>> round(float(fit.model.bound["scale"]), 1)     # sqrt(25 - 1/3)
        5.0
    """

    choose: tuple[str, ...] | Mapping[str, tuple[float, float]]
    restarts: int = 4
    looks: int = 32
    max_iterations: int = 200

    def __post_init__(self):
        check_settings(self, ("restarts", "max_iterations"), ("looks",))
        if isinstance(self.choose, str):
            object.__setattr__(self, "choose", (self.choose,))
        names = given.as_names(self.choose, "EmpiricalBayes(choose)", "settings", "('scale',)")
        if not isinstance(self.choose, Mapping):
            object.__setattr__(self, "choose", names)

    def __hash__(self) -> int:
        return hash((type(self), self.names, self.restarts, self.looks, self.max_iterations))

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(statistics=True)

    @property
    def names(self) -> tuple[str, ...]:
        """The settings to choose."""
        return tuple(self.choose)

    def refuse(self, problem: Problem) -> None:
        """Raise ModelError or Refusal, naming the setting or the site, and the reason."""
        if not problem.plan.free:
            raise Refusal(f"EmpiricalBayes cannot fit {problem}: the data contain values of all "
                          "parameters, and EmpiricalBayes needs one to integrate over. Drop one "
                          f"from the data. Or use sample statements for {listed(self.names)} in "
                          "the model, and fit with probml.MAP(prior=False)")
        try:
            Exact().refuse(problem)
        except Refusal as refusal:
            raise Refusal("EmpiricalBayes maximises the exact log evidence (log probability of "
                          "the data), which cannot be computed for this model with these data: "
                          f"{refusal}. To estimate {listed(self.names)} nevertheless, write a "
                          "sample statement with a prior for each, and fit with another engine"
                          ) from refusal
        _lift(problem.plan, self.names)

    def run(self, problem: Problem) -> Outcome:
        """The settings of the highest evidence, then Exact's outcome under them."""
        plan, rows, known, seed = problem.plan, problem.rows, problem.known, problem.seed
        model = plan.structure.model
        bound = numbers(model, self.names, "EmpiricalBayes")
        with jax.enable_x64(True):
            known_double, rows_double = _to_double((known, rows))
            evidence = Evidence(_lift(_replan(plan, model), self.names), known_double, rows_double,
                                bound)
            axes = evidence.axes(self.choose)
            low, high = np.array([(axis.low, axis.high) for axis in axes]).T
            top = search(functools.partial(evidence.at, axes), low, high, self.restarts,
                         self.looks, self.max_iterations, np.random.default_rng(seed))
        if top is None:
            raise Refusal("EmpiricalBayes: the log evidence (log probability of the data) could "
                          f"not be computed accurately at any tried value of {listed(self.names)}. "
                          "Call the model with plausible values of these arguments, and give "
                          f"bounds around them, EmpiricalBayes({{'{self.names[0]}': (lowest, "
                          "highest)})")
        chosen = evidence.values(axes, top.point)
        # scalars stay numbers: a model is known by the kinds of its settings
        settings = {name: float(value) if value.ndim == 0 else value
                    for name, value in chosen.items()}
        chosen_model = type(model)(model.generative,
                                   model.generative(**{**model.bound, **settings}).settings,
                                   model.interventions)
        # by the program of all values: what is static of the better model is the same
        known_chosen = known._replace(given={**known.given, **{
            site_of(name): jnp.asarray(value, jnp.result_type(float))
            for name, value in chosen.items()
        }})
        outcome = Exact().run(replace(problem, plan=_lift(plan, self.names), known=known_chosen))
        note = Finding.of(Code.CHOSEN, settings=_format_settings(settings), found=top.value,
                            first=top.first, bound=_format_settings(model.bound, self.names))
        status = outcome.status if top.converged else Status.STALLED
        return outcome.with_state(model=chosen_model)._replace(
            status=status, iterations=len(top.history) - 1, history=top.history,
            findings=(note, *_edges(axes, top), *outcome.findings))


def _replan(plan: Plan, model: Bound) -> Plan:
    """The plan for a model that differs in numbers only, or in another precision."""
    shapes = {name: (shape, kind) for name, shape, kind in plan.structure.specs}
    return decide.make(trace(model, shapes), dict(plan.pattern), plan.given)


def _lift(plan: Plan, names: tuple[str, ...]) -> Plan:
    """The plan in which settings are given sites."""
    structure = lifted(plan.structure, names, "EmpiricalBayes")
    return decide.make(structure, dict(plan.pattern), (*plan.given, *map(site_of, names)))


def _to_double(tree: object) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.asarray(
        leaf, float if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else None), tree)


def _format_settings(settings: Mapping[str, float | np.ndarray],
                     names: tuple[str, ...] | None = None) -> str:
    def format_value(value: ArrayLike) -> str:
        value = np.asarray(value)
        if value.size > 6:
            return counted(value.size, "number")
        return np.array2string(value, precision=4, separator=", ") if value.ndim else f"{value:.6g}"

    return ", ".join(f"{name} = {format_value(settings[name])}" for name in names or settings)


def _edges(axes: list[Axis], top: Top) -> list[Finding]:
    """Settings whose evidence is equally high at an end of their range."""
    findings = []
    for axis, u, logs in zip(axes, top.point, top.edge_values, strict=True):
        name = f"'{axis.setting}'" + (str(list(axis.entry)) if axis.entry else "")
        for log, edge, word in ((logs[0], axis.low, "smaller"), (logs[1], axis.high, "larger")):
            if log >= top.value - FLAT:
                problem = (f"is at the end of the range that was searched, "
                           f"{axis.value(edge):.3g}" if u == edge else
                           f"may be even {word}: the log evidence is equally high at "
                           f"{axis.value(edge):.3g}, the end of the range that was searched")
                findings.append(Finding.of(Code.RANGE_END, setting=name, problem=problem))
    return findings
