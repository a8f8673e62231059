"""Where chains begin: about a mode, at other modes that hold a share of the posterior, and at draws
of the prior where no mode was found. Chains that begin apart and end together have found all that
any of them saw; chains that begin at one place agree whatever else there is."""

from collections.abc import Callable
from dataclasses import replace

import jax
import numpy as np

from probml.device.rows import Known
from probml.engines.engine import Problem
from probml.engines.start import begin
from probml.engines.start.prior import UNDRAWABLE, prior_draws, prior_noise
from probml.evidence import density
from probml.numerics.curvature import MAX_DENSE_COORDINATES, Starts

LOWER = 7.0  # nats below the largest mass at which a mode's is left out: 0.1%

# a vector of coordinates → the density and its curvature about it
Measure = Callable[[np.ndarray], begin.Begin]


def starts(problem: Problem, known: Known, begun: begin.Begin, chains: int,
           measure: Measure) -> Starts:
    """Where each chain begins: half of them or more about the place that was found first, the
    others about other modes and where an engine before found the posterior, or about draws of the
    prior if it is no mode."""
    elsewhere = other_modes(begun, measure) + _seen(problem, known, begun)
    if not (elsewhere or bool(begun.climbed)):
        elsewhere = _prior_places(problem, known, begun.frame.centre.size)
    out = Starts(*(np.array(part[:chains]) for part in begun.starts))
    for chain, u in zip(range(chains - 1, 0, -1), elsewhere[: chains // 2], strict=False):
        there = jax.device_get(measure(u).starts)
        for part, found in zip(out, there, strict=True):
            part[chain] = found[chain]
    return out


def with_optima(problem: Problem, known: Known, begun: begin.Begin,
                measure: Callable[[np.ndarray, int], begin.Begin]) -> begin.Begin:
    """The mode that updates in closed form led to, and the optima reached from draws of the prior:
    a likelihood such as Student's t has several modes, of which those updates find one.

    Nothing is added where variables are latent (EM has had restarts), where effects are not
    centred, or where so many coordinates make their curvature expensive."""
    if (not problem.plan.complete or known.centring or not bool(begun.climbed)
            or begun.frame.centre.size > MAX_DENSE_COORDINATES):
        return begun
    found = [jax.device_get(measure(u, begin.STEPS)) for seed in (problem.seed, problem.seed + 1)
             for u in _prior_places(replace(problem, seed=seed), known, begun.frame.centre.size)]
    return begun._replace(ends=begin.Ends(*(np.stack(part) for part in zip(
        *((end.frame.centre, end.value, end.climbed) for end in found), strict=True)))
    ) if found else begun


def other_modes(begun: begin.Begin, measure: Measure) -> list[np.ndarray]:
    """Where other climbs ended that hold a share of the posterior, (d,) each, the largest first."""
    if begun.ends is None or not bool(begun.climbed):
        return []
    found = [(_log_mass(jax.device_get(measure(u))), u)
             for u in (np.asarray(begun.ends.u[i]) for i in begin.distinct_ends(begun))]
    most = max([_log_mass(begun), *(mass for mass, _ in found)])
    return [u for mass, u in sorted(found, key=lambda each: -each[0]) if mass > most - LOWER]


def _seen(problem: Problem, known: Known, begun: begin.Begin) -> list[np.ndarray]:
    """The unbounded coordinates, (d,), of where an engine before found the posterior."""
    seen = problem.seen
    if not seen or problem.plan.carried or not set(problem.plan.free) <= set(seen):
        return []
    points = [density.flat(problem.plan, {name: seen[name][i] for name in problem.plan.free}, known)
              for i in range(len(next(iter(seen.values()))))]
    return [np.asarray(u) for u in points if u.size == begun.frame.centre.size
            and np.isfinite(u).all()]


def _log_mass(begun: begin.Begin) -> float:
    """Of the normal at a mode: its height and the volume of its frame."""
    root = np.asarray(begun.frame.root, float)
    volume = np.log(np.abs(root)).sum() if root.ndim == 1 else np.linalg.slogdet(root)[1]
    return float(begun.value) + float(volume)


def _prior_places(problem: Problem, known: Known, size: int) -> list[np.ndarray]:
    """Draws of the prior, (size,) in unbounded coordinates, rows' own standard normal; none where
    the user said where to begin, or where a prior cannot be drawn from."""
    plan = problem.plan
    if problem.start or any(plan.structure.sites[name].entry.improper for name in plan.free):
        return []
    try:
        drawn = jax.device_get(prior_draws(plan, known,
                                           prior_noise(plan, begin.DRAWN, problem.seed)))
    except UNDRAWABLE:
        return []
    own = [np.reshape(drawn[name], (begin.DRAWN, -1)) for name in sorted(drawn)]
    rest = np.random.default_rng([problem.seed, 13]).standard_normal(
        (begin.DRAWN, size - sum(part.shape[1] for part in own)))
    return list(np.concatenate([*own, rest], 1).astype(own[0].dtype))
