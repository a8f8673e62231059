"""Maxima that are no point: directions in which a likelihood without a prior is level, so that the
end of a climb is one of many as high."""

from collections.abc import Callable, Sequence

import numpy as np

from probml.device.rows import Known
from probml.evidence import density
from probml.plan.plan import Plan

# coordinates up to which a climb without second derivatives is looked at: four gradients each
FEW = 32
# curvature, every coordinate in units of its own width, of a direction that may be level
NULL = {np.dtype(np.float64): 1e-5, np.dtype(np.float32): 3e-3}
# curvature of a logarithm or a logit that matters to nothing, as of a spread at 0
IDLE = 1e-4
AWAY = 3.0  # such widths that are gone along it, and the share of them that must be left
LEFT = 0.3
LEVEL = 1e-3, 64  # nats, and roundings of the height, that are no difference


def level(plan: Plan, known: Known, end: np.ndarray, hessian: np.ndarray, value: float,
          again: Callable[[np.ndarray], tuple[np.ndarray, float]]) -> tuple[str, ...]:
    """What is to be said of a climb's end: nothing, or along which direction it might as well have
    ended elsewhere.

    A direction without curvature may still lead down, further out, or round a bend; so the climb is
    taken up again from some way along it: where that ends as high and not back here, it is level.

    Args:
        end: (d,) unbounded coordinates. hessian: (d, d) of what is minimised. value: its height.
        again: coordinates → the end of the climb from there, and its height.
    """
    if not np.isfinite(hessian).all():
        return ()
    diagonal = np.abs(np.diagonal(hessian))
    kept = np.flatnonzero(~(_logarithmic(plan, known) & (diagonal < IDLE)))
    if not kept.size:
        return ()
    unit = np.where(diagonal[kept] > 0, 1 / np.sqrt(np.where(diagonal[kept] > 0, diagonal[kept],
                                                             1.0)), 1.0)
    curvature, axes = np.linalg.eigh(hessian[np.ix_(kept, kept)] * unit[:, None] * unit)
    low = int(np.argmin(np.abs(curvature)))
    if abs(curvature[low]) > NULL[np.dtype(end.dtype)]:
        return ()
    way = np.zeros(len(end))
    way[kept] = unit * axes[:, low]
    other, height = again((end + AWAY * way).astype(end.dtype))
    nats, roundings = LEVEL
    same = value - height <= nats + roundings * np.finfo(end.dtype).eps * (1 + abs(value))
    gone = float((np.asarray(other) - end)[kept] / unit @ axes[:, low])
    if not (same and abs(gone) >= LEFT * AWAY):
        return ()
    named = direction(way, diagonal, density.owners(plan, known))
    return (f"one of many maxima, all as high: the data do not tell the direction {named} (a "
            f"column that is constant, or the sum of others?). Give it a prior that does, with "
            f"prior=True, or drop a column",)


def differences(gradient: Callable[[np.ndarray], np.ndarray], u: np.ndarray) -> np.ndarray:
    """Second derivatives (d, d) by central differences of a gradient: once rough, once by a share
    of the width that this told.

    Cost: 4 d gradients.
    """
    eps = np.finfo(u.dtype).eps
    rough = eps ** (1 / 3) * (1 + np.abs(u))
    share, width = 1e-3 if u.dtype == np.float64 else 0.1, rough
    for _ in range(2):
        ends = [[gradient((u + side * h).astype(u.dtype)) for side in (1, -1)]
                for h in np.diag(width)]
        with np.errstate(invalid="ignore"):  # where the density ends nothing is known
            found = np.array([(up - down) / (2 * h)
                              for (up, down), h in zip(ends, width, strict=True)], float)
        found = 0.5 * (found + found.T)
        told = np.diagonal(found) > 0
        width = np.where(told, share / np.sqrt(np.where(told, np.diagonal(found), 1.0)), rough)
        width = np.maximum(width, 1e-3 * rough)
    return found


def direction(loads: np.ndarray, diagonal: np.ndarray, owners: Sequence[str]) -> str:
    """A direction of unbounded coordinates in words: "+1 b -1 a".

    Args:
        loads: (d,). diagonal: (d,) curvatures of the coordinates, by which loads are compared.
        owners: their names.
    """
    shares = np.abs(loads) * np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    return " ".join(f"{loads[i] / np.abs(loads).max():+.2g} {owners[i]}"
                    for i in np.argsort(-shares)[:4] if shares[i] > 0.05 * shares.max())


def _logarithmic(plan: Plan, known: Known) -> np.ndarray:
    """Which coordinates are logarithms or logits, (d,)."""
    sites = plan.structure.sites
    return np.concatenate([np.full(spec.size, sites[name].domain.logarithmic)
                           for name, spec in sorted(density.shapes(plan, known).items())])
