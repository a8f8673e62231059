"""Empirical Bayes: settings of a model at the maximum of its exact log evidence, then the exact
posterior there (type-II maximum likelihood).

    η̂ = argmax over η of log p(data | η) = log ∫ p(data | θ, η) p(θ | η) dθ,   p(θ | data, η̂)

The evidence is Exact's, for any model that Exact treats; the settings are those that were bound,
lifted to values of one program (settings.py). A positive setting is searched in its logarithm, a
probability in its logit, any other on the line. Evidences have several maxima and flat tails, so
the search looks first, along each setting, along all of them together and at random places, and
climbs from the best (numerics/box.py). Gradients are central differences: the evidence is exact to
some 1e−13 of its terms, in double whatever JAX's precision, and one program does all.

Sources: Good (1965), "The estimation of probabilities", type-II maximum likelihood; MacKay (1992),
"Bayesian interpolation"; Minka (2000), "Estimating a Dirichlet distribution".
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.engines.conjugate.settings import Axis, Evidence
from probml.engines.engine import Capabilities, Engine, Outcome, Problem, Status, check_settings
from probml.engines.exact import Exact
from probml.engines.findings import Code, Finding
from probml.errors import Refusal, quoted
from probml.language import given
from probml.language.language import Bound
from probml.numerics.box import Top, search
from probml.plan import decide
from probml.plan.plan import Plan
from probml.structure.lifted import lifted, numbers, site_of
from probml.structure.trace import trace

FLAT = 1e-3  # nats that tell nothing


@dataclass(frozen=True)
class EmpiricalBayes(Engine):
    """Settings of a model chosen by the exact log evidence, and the exact posterior at them.

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
            raise Refusal(f"EmpiricalBayes of {problem}: every parameter is given, so that there "
                          f"is nothing to integrate out. Leave one out of the data; or make the "
                          f"setting a site, and fit it by MAP(prior=False)")
        _refuse_inexact(problem)
        _lifted(problem.plan, self.names)

    def run(self, problem: Problem) -> Outcome:
        """The settings of the highest evidence, then Exact's outcome under them."""
        plan, rows, known, seed = problem.plan, problem.rows, problem.known, problem.seed
        model = plan.structure.model
        bound = numbers(model, self.names, "EmpiricalBayes")
        with jax.enable_x64(True):
            known_there, rows_there = _doubled((known, rows))
            evidence = Evidence(_lifted(_again(plan, model), self.names), known_there, rows_there,
                                bound)
            axes = evidence.axes(self.choose)
            low, high = np.array([(axis.low, axis.high) for axis in axes]).T
            found = search(functools.partial(evidence.at, axes), low, high, self.restarts,
                           self.looks, self.max_iterations, np.random.default_rng(seed))
        if found is None:
            raise Refusal("EmpiricalBayes: nowhere in the range of "
                          f"{quoted(self.names)} is there a log evidence that bears "
                          "its digits: narrow the range, choose={name: (lowest, highest)}")
        chosen = evidence.values(axes, found.point)
        # scalars stay numbers: a model is known by the kinds of its settings
        settings = {name: float(value) if value.ndim == 0 else value
                    for name, value in chosen.items()}
        better = type(model)(model.generative,
                             model.generative(**{**model.bound, **settings}).settings,
                             model.interventions)
        # by the program of all values: what is static of the better model is the same
        here = known._replace(given={**known.given, **{
            site_of(name): jnp.asarray(value, jnp.result_type(float))
            for name, value in chosen.items()
        }})
        outcome = Exact().run(replace(problem, plan=_lifted(plan, self.names), known=here))
        note = Finding.of(Code.CHOSEN, settings=_format_settings(settings), found=found.value,
                            first=found.first, bound=_format_settings(model.bound, self.names))
        status = outcome.status if found.arrived else Status.STALLED
        return outcome.with_state(model=better)._replace(
            status=status, iterations=len(found.history) - 1, history=found.history,
            findings=(note, *_edges(axes, found), *outcome.findings))


def _refuse_inexact(problem: Problem) -> None:
    try:
        Exact().refuse(problem)
    except Refusal as refusal:
        raise Refusal(f"EmpiricalBayes chooses by the exact log evidence, which this model has not "
                      f"with these data: {refusal}") from refusal


def _again(plan: Plan, model: Bound) -> Plan:
    """The plan for a model that differs in numbers only, or in another precision."""
    shapes = {name: (shape, kind) for name, shape, kind in plan.structure.specs}
    return decide.make(trace(model, shapes), dict(plan.pattern), plan.given)


def _lifted(plan: Plan, names: tuple[str, ...]) -> Plan:
    """The plan in which settings are given sites."""
    structure = lifted(plan.structure, names, "EmpiricalBayes")
    return decide.make(structure, dict(plan.pattern), (*plan.given, *map(site_of, names)))


def _doubled(tree: object) -> Any:
    def double(leaf: jax.Array):
        leaf = np.asarray(leaf)
        return jnp.asarray(leaf.astype(float) if leaf.dtype.kind == "f" else leaf)

    return jax.tree.map(double, tree)


def _format_settings(settings: Mapping[str, Any], names: tuple[str, ...] | None = None) -> str:
    def format_value(value: np.ndarray) -> str:
        value = np.asarray(value)
        if value.size > 6:
            return f"{value.size} numbers"
        return np.array2string(value, precision=4, separator=", ") if value.ndim else f"{value:.6g}"

    return ", ".join(f"{name} = {format_value(settings[name])}" for name in names or settings)


def _edges(axes: list[Axis], top: Top) -> list[Finding]:
    """Settings whose evidence is equally high at an end of their range."""
    out = []
    for axis, u, ends in zip(axes, top.point, top.ends, strict=True):
        name = f"'{axis.setting}'" + (str(list(axis.place)) if axis.place else "")
        for end, edge, word in ((ends[0], axis.low, "above"), (ends[1], axis.high, "below")):
            if end >= top.value - FLAT:
                problem = (f"is at the end of its range, {axis.value(edge):.3g}" if u == edge else
                           f"is bounded from {word} only: the evidence is equally high at "
                           f"{axis.value(edge):.3g}, the end of its range")
                out.append(Finding.of(Code.RANGE_END, setting=name, problem=problem))
    return out
