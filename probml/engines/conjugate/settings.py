"""The exact log evidence as a function of settings of the model, and what each setting may be.

The settings are sites of a lifted plan (structure/lifted.py), so that one program serves all their
values. Whether one must be positive, or within (0, 1), is asked of NumPyro's constraints on the
arguments that it enters.
"""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.conjugate.closed_form import closed_form, is_consistent
from probml.engines.start.prior import compiled_prior_point
from probml.errors import ModelError, Refusal
from probml.numerics.compile_effort import ONCE
from probml.numerics.compiling import jit
from probml.plan.blocks import all_blocks
from probml.plan.plan import Plan
from probml.structure.lifted import site_of
from probml.updates.least_squares import rooted

FAR = np.log(1e9)  # how far from the value bound a setting is looked for, as a factor
SURE = 20.0  # logits of a probability up to which it is looked for


class Axis(NamedTuple):
    """One number that is chosen: how it is searched, and how far."""

    setting: str
    place: tuple[int, ...]
    kind: str  # "log", "logit" or "line"
    begin: float  # the value bound; the coordinate is 0 there
    low: float  # of the coordinate
    high: float

    def value(self, u: float) -> float:
        """The setting's number at a coordinate."""
        if self.kind == "log":
            return float(self.begin * np.exp(u))
        if self.kind == "logit":
            return float(1 / (1 + np.exp(-u - np.log(self.begin / (1 - self.begin)))))
        return float(self.begin + max(abs(self.begin), 1.0) * np.sinh(u))

    def coordinate(self, value: float) -> float:
        """The inverse of `value`."""
        if self.kind == "log":
            return float(np.log(value / self.begin))
        if self.kind == "logit":
            return float(np.log(value / (1 - value)) - np.log(self.begin / (1 - self.begin)))
        return float(np.arcsinh((value - self.begin) / max(abs(self.begin), 1.0)))


class Evidence:
    """log p(data | settings), at several settings in one call."""

    def __init__(self, plan: Plan, known: Known, rows: Rows, bound: Mapping[str, np.ndarray]):
        self.plan, self.known, self.rows, self.bound = plan, known, rows, bound
        self.roots = False
        value, mismatch = self._log_evidences([bound])[0]
        every = all_blocks(plan, True)
        if not is_consistent(value, mismatch) and any(rooted(plan, block) for block in every):
            self.roots = True

    def _log_evidences(self, points: list[Mapping[str, np.ndarray]]) -> list[tuple[float, float]]:
        """(log evidence, mismatch) at each point; in batches of one size, so that one program is
        compiled."""
        size, out = 2 * sum(value.size for value in self.bound.values()) + 1, []
        for i in range(0, len(points), size):
            part = points[i : i + size]
            part = [*part, *[part[-1]] * (size - len(part))]
            stacked = {site_of(name): jnp.stack([jnp.asarray(point[name]) for point in part])
                       for name in self.bound}
            found = _evidences(self.plan, self.roots, stacked, self.known, self.rows)
            out += list(zip(*map(np.asarray, found), strict=True))
        return out[: len(points)]

    def values(self, axes: list[Axis], point: np.ndarray) -> dict[str, np.ndarray]:
        """The settings at a point of the search."""
        out = {name: value.copy() for name, value in self.bound.items()}
        for axis, u in zip(axes, point, strict=True):
            out[axis.setting][axis.place] = axis.value(u)
        return out

    def at(self, axes: list[Axis], points: np.ndarray) -> np.ndarray:
        """log p(data | settings) at points (m, axes); −∞ where there is none, or where its closed
        form has lost its digits."""
        found = self._log_evidences([self.values(axes, point) for point in points])
        return np.array([value if np.isfinite(value) and is_consistent(value, mismatch) else -np.inf
                         for value, mismatch in found])

    def axes(self, choose: object) -> list[Axis]:
        """What each number may be.

        Raises:
            ModelError, Refusal: see EmpiricalBayes.
        """
        places = [(name, place) for name, value in self.bound.items()
                  for place in np.ndindex(value.shape)]
        probes = [_replace_element(self.bound, name, place, move) for name, place in places
                  for move in (_nudge, _opposite, _beyond)]
        allowed = np.asarray(_allowed(self.plan, self.known, {
            site_of(name): jnp.stack([jnp.asarray(probe[name]) for probe in (self.bound, *probes)])
            for name in self.bound
        }))
        # what is not allowed at the values bound says nothing of a setting
        held = (allowed[1:] | ~allowed[0]).all(1).reshape(-1, 3)
        ranges = choose if isinstance(choose, Mapping) else {}
        return [self._axis(name, place, bool(free[0]), bool(free[1]), bool(free[2]),
                           ranges.get(name))
                for (name, place), free in zip(places, held, strict=True)]

    def _axis(self, name: str, place: tuple, near: bool, negative: bool, large: bool,
              bounds: tuple[float, float] | None) -> Axis:
        begin, where = float(self.bound[name][place]), f"EmpiricalBayes: setting '{name}'"
        if not near:
            raise Refusal(f"{where}: its entries are tied, as probabilities that sum to 1 or a "
                          f"covariance are, and cannot be chosen one by one. Write the model with "
                          f"free numbers, such as their logits")
        kind = "line" if negative else "log" if large or not 0 < begin < 1 else "logit"
        if kind == "log" and not begin > 0:
            raise Refusal(f"{where} is {begin:g}, and must be above 0: bind it to such a number, "
                          f"from which the search begins")
        if bounds is None:
            return Axis(name, place, kind, begin, *((-SURE, SURE) if kind == "logit"
                                                    else (-FAR, FAR)))
        low, high = map(float, bounds)
        if not low <= begin <= high or low == high or (kind != "line" and not low > 0) or (
            kind == "logit" and not high < 1
        ):
            inside = {"log": " above 0", "logit": " between 0 and 1", "line": ""}[kind]
            raise ModelError(f"EmpiricalBayes(choose={{'{name}': {bounds}}}): expected (lowest, "
                             f"highest){inside} with {begin:g}, which is bound, among them")
        axis = Axis(name, place, kind, begin, 0.0, 0.0)
        return axis._replace(low=axis.coordinate(low), high=axis.coordinate(high))


def _nudge(value: float) -> float:
    return value * 1.001 if value else 1e-3


def _opposite(value: float) -> float:
    return -value if value else -1.0


def _beyond(value: float) -> float:
    return 1.0 + abs(value)


def _replace_element(bound: Mapping[str, np.ndarray], name: str, place: tuple,
                     move: Callable) -> dict[str, np.ndarray]:
    """A copy of the settings with one element replaced by `move` of it."""
    out = {key: value.copy() for key, value in bound.items()}
    out[name][place] = move(out[name][place])
    return out


@functools.partial(jit, static_argnums=(0, 1), seldom=ONCE)
def _evidences(plan: Plan, roots: bool, points: dict[str, jax.Array], known: Known, rows: Rows):
    """(log evidence, mismatch of its closed form) at stacked settings, one after the other."""

    def at(point: Mapping[str, jax.Array]):
        there = known._replace(given={**known.given, **point})
        return closed_form(plan, there, rows, roots)[1:]

    return jax.lax.map(at, points)


def _allowed(plan: Plan, known: Known, points: dict[str, jax.Array]) -> jax.Array:
    """Whether every argument that takes a setting keeps NumPyro's constraint, (points,
    arguments)."""
    first = {name: value[0] for name, value in points.items()}
    params = compiled_prior_point(plan, known._replace(given={**known.given, **first}))
    return _satisfied_constraints(plan, {**known.given, **params}, points)


@functools.partial(jit, static_argnums=0, seldom=ONCE)
def _satisfied_constraints(plan: Plan, held: dict[str, jax.Array],
                           points: dict[str, jax.Array]) -> jax.Array:
    """Whether each constraint of the distributions' arguments holds, at each point."""
    structure = plan.structure

    def at(point: Mapping[str, jax.Array]):
        kept = []
        for name in structure.sites:
            program, takes = structure.programs[name]
            if not any(each in point for each in takes):
                continue
            # what a row holds is not known here: any value stands for it
            env = {key: jnp.reshape({**held, **point}[key], aval.shape) if key in {**held, **point}
                   else jnp.zeros(aval.shape, aval.dtype)
                   for key, aval in zip(takes, program.in_avals, strict=True)}
            distribution = structure.distribution(name, env)
            for argument, constraint in distribution.arg_constraints.items():
                if argument in vars(distribution) and not constraint.is_discrete:
                    kept.append(jnp.all(constraint(getattr(distribution, argument))))
        return jnp.stack(kept) if kept else jnp.ones(1, bool)

    return jax.lax.map(at, points)
