"""Modes of a posterior density: what was measured at one, and which others are far from it."""

from typing import NamedTuple

import jax
import numpy as np

from probml.engines.findings import Code, Finding
from probml.evidence import density
from probml.numerics.curvature import Frame, Starts
from probml.plan.plan import Plan

# log density by which another mode may be lower, and its least distance in standard deviations
MAX_LOWER, MIN_DISTANCE = 5.0, 5.0


class Optima(NamedTuple):
    """Results of optimisations from several points."""

    u: jax.Array  # (k, d)
    value: jax.Array  # (k,)
    converged: jax.Array  # (k,)


class Mode(NamedTuple):
    """A mode of the density of unbounded coordinates, or a point near one, with what a sampler, a
    guide or a normal approximation needs.

    Attributes:
        frame: coordinates in which the negative Hessian is the identity. hessian: (d, d), negative.
        value: the log density. converged: the gradient is zero there.
        history: values of the optimisation. starts: points about the mode.
        optima: results of all optimisations, if there were several.
    """

    frame: Frame
    hessian: jax.Array
    value: jax.Array
    converged: jax.Array
    history: jax.Array
    starts: Starts
    optima: Optima | None = None


def distinct_optima(mode: Mode) -> list[int]:
    """Indices of other optima that are modes, far from this one and from one another, the highest
    first."""
    if mode.optima is None or mode.frame.centre.size == 0:
        return []
    optima, frame = jax.device_get((mode.optima, mode.frame))
    z = frame.inverse(np.concatenate([frame.centre[None], optima.u]))
    chosen = [0]
    for i in np.argsort(-np.asarray(optima.value)):
        distance = min(np.linalg.norm(z[i + 1] - z[j]) for j in chosen)
        if optima.converged[i] and np.isfinite(optima.value[i]) and distance > MIN_DISTANCE:
            chosen.append(i + 1)
    return [i - 1 for i in chosen[1:]]


def other_high_modes(mode: Mode) -> list[np.ndarray]:
    """Unbounded coordinates of other modes that are not much lower than the highest."""
    optima, indices = jax.device_get(mode.optima), distinct_optima(mode)
    if optima is None or not indices:
        return []
    min_value = max(float(optima.value[indices[0]]), float(mode.value)) - MAX_LOWER
    return [optima.u[i] for i in indices if float(optima.value[i]) > min_value]


def several_modes_finding(plan: Plan, mode: Mode) -> tuple[Finding, ...]:
    """A finding if there is another mode that is not much lower."""
    modes = other_high_modes(mode)
    if not modes:
        return ()
    optima, frame = jax.device_get((mode.optima, mode.frame))
    best = distinct_optima(mode)[0]
    lower = optima.value[optima.converged].max() - optima.value[best]
    distance = np.linalg.norm(frame.inverse(optima.u[best]))
    shift = np.abs(optima.u[best] - frame.centre)
    largest, names = int(np.argmax(shift / frame.diagonal().root)), density.coordinate_names(plan)
    where = (f"'{names[largest]}' is {optima.u[best][largest]:.3g} at that mode and "
             f"{frame.centre[largest]:.3g} at the approximated mode"
             if plan.structure.sites[names[largest].partition("[")[0]].domain.unbounded
             else f"'{names[largest]}' differs most between the two modes")
    return (Finding.of(Code.SEVERAL_MODES, names[largest], lower=max(lower, 0.0), away=distance,
                       where=where),)
