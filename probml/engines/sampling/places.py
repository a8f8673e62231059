"""Where chains start: about a mode, at other modes with a share of the posterior mass, and at draws
of the prior if no mode was found. Chains that start at one place agree whatever other modes there
are; so some start elsewhere."""

from collections.abc import Callable

import jax
import numpy as np

from probml.device.rows import Known
from probml.engines.engine import Problem
from probml.engines.start import begin
from probml.engines.start.prior import drawn_prior
from probml.evidence import density
from probml.numerics.curvature import Starts

MAX_LOWER = 7.0  # log mass by which another mode may be lower: 0.1%

# coordinates (d,) → the density and its curvature about them
Measure = Callable[[np.ndarray], begin.Mode]


def starts(problem: Problem, known: Known, begun: begin.Mode, chains: int,
           measure: Measure) -> Starts:
    """The starts of chains: at least half about the first point, the others about other modes and
    the points that the engine before found in the posterior, or about draws of the prior if the
    first point is no mode."""
    elsewhere = other_modes(begun, measure) + _given_points(problem, known, begun)
    if not (elsewhere or bool(begun.converged)):
        elsewhere = _prior_places(problem, known, begun.frame.centre.size)
    out = Starts(*(np.array(part[:chains]) for part in begun.starts))
    for chain, u in zip(range(chains - 1, 0, -1), elsewhere[: chains // 2], strict=False):
        there = jax.device_get(measure(u).starts)
        for part, found in zip(out, there, strict=True):
            part[chain] = found[chain]
    return out


def other_modes(begun: begin.Mode, measure: Measure) -> list[np.ndarray]:
    """Other optima with a share of the posterior mass, (d,) each, the largest first."""
    if begun.optima is None or not bool(begun.converged):
        return []
    found = [(_log_mass(jax.device_get(measure(u))), u)
             for u in (np.asarray(begun.optima.u[i]) for i in begin.distinct_optima(begun))]
    most = max([_log_mass(begun), *(mass for mass, _ in found)])
    return [u for mass, u in sorted(found, key=lambda each: -each[0]) if mass > most - MAX_LOWER]


def _given_points(problem: Problem, known: Known, begun: begin.Mode) -> list[np.ndarray]:
    """Unbounded coordinates, (d,), of the points that the engine before found in the posterior."""
    seen = problem.posterior_points
    if not seen or problem.plan.carried or not set(problem.plan.free) <= set(seen):
        return []
    points = [density.flat(problem.plan, {name: seen[name][i] for name in problem.plan.free}, known)
              for i in range(len(next(iter(seen.values()))))]
    return [np.asarray(u) for u in points if u.size == begun.frame.centre.size
            and np.isfinite(u).all()]


def _log_mass(begun: begin.Mode) -> float:
    """The log mass of the normal distribution at a mode: its log density and log volume."""
    root = np.asarray(begun.frame.root, float)
    volume = np.log(np.abs(root)).sum() if root.ndim == 1 else np.linalg.slogdet(root)[1]
    return float(begun.value) + float(volume)


def _prior_places(problem: Problem, known: Known, size: int) -> list[np.ndarray]:
    """Draws of the prior, (size,) in unbounded coordinates, with standard normal numbers for
    coordinates of rows; none if the user gave a start, or a prior cannot be drawn from."""
    plan = problem.plan
    if problem.start or any(plan.structure.sites[name].entry.improper for name in plan.free):
        return []
    drawn = drawn_prior(plan, known, begin.PRIOR_STARTS, problem.seed)
    if drawn is None:
        return []
    own = [np.reshape(drawn[name], (begin.PRIOR_STARTS, -1)) for name in sorted(drawn)]
    rest = np.random.default_rng([problem.seed, 13]).standard_normal(
        (begin.PRIOR_STARTS, size - sum(part.shape[1] for part in own)))
    return list(np.concatenate([*own, rest], 1).astype(own[0].dtype))
