"""Parameters that run away: directions in which a likelihood without a prior rises for ever."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from probml.device.rows import Known
from probml.engines.findings import Code, Finding, quoted
from probml.evidence import density
from probml.plan.plan import Plan

# curvature at the end, in units of that at the start, of a direction in which parameters run away
VANISHED = 1e-6
# roundings of the height that going as far again may cost, where there is no maximum on the way
ENDLESS = 16
# curvature at the start, in units of its coordinates', of a direction that the rows do not tell at
# all
BLIND = 1e-8


def runaway(plan: Plan, known: Known, first: np.ndarray, last: np.ndarray, moved: np.ndarray,
            fall: Callable[[np.ndarray], float]) -> tuple[Finding, ...]:
    """What runs away: directions whose curvature has vanished on the way, and in which going as far
    again costs nothing.

    Newton's next step would not tell: where curvatures are many digits apart, it is rounding.

    Args:
        first, last: the Hessians at the start and the end, (d, d). moved: the way from the start,
            (d,). fall: a way on from the end, (d,) → what the objective loses there, in roundings.
    """
    if not all(np.isfinite(array).all() for array in (first, last, moved)):
        return ()
    unit = 1 / np.sqrt(np.maximum(np.abs(np.diagonal(first)), np.finfo(first.dtype).tiny))
    begun = first * unit[:, None] * unit
    value, axes = np.linalg.eigh(begun)
    told = value > BLIND * max(value.max(), 0.0)
    if not told.any():
        return ()
    base = axes[:, told] / np.sqrt(value[told])
    left, where = np.linalg.eigh(base.T @ (last * unit[:, None] * unit) @ base)
    gone = (base @ where)[:, left <= (VANISHED if first.dtype == np.float64 else 1e-4)]
    along = gone.T @ begun @ (moved / unit)  # coordinates of the way there, whose curvature was 1
    way = gone @ along
    # less than a standard deviation at the start: it did not move, and would not as far again
    if np.linalg.norm(along) < 1 or not fall(unit * way) <= ENDLESS:
        return ()
    owners, loads = density.owners(plan, known), np.abs(way)
    named = list(dict.fromkeys(owners[i].partition("[")[0] for i in np.argsort(-loads)
                               if loads[i] > 0.1 * loads.max()))
    # positive numbers that only grow tend to a limit: see identifiability.endless
    grow = all(plan.structure.sites[name].domain.log_scale for name in named)
    return () if grow else (diverging(named),)


def infinite(params: Mapping[str, Any]) -> tuple[Finding, ...]:
    """What a closed form has sent to infinity at one step, as the logit of a share that is 1."""
    names = [name for name, value in params.items() if np.isinf(np.asarray(value, float)).any()]
    return (diverging(names),) if names else ()


def diverging(names: Sequence[str]) -> Finding:
    """That the likelihood has no maximum in some parameters."""
    return Finding.of(Code.SEPARATION, names[0] if len(names) == 1 else "", names=quoted(names))
