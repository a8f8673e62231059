"""Maxima that are no point: directions in which a likelihood without a prior is level, so that the
end of a climb is one of many as high."""

from collections.abc import Callable, Sequence

import numpy as np

from probml.device.rows import Known
from probml.engines.climbing.top import NULL, Top
from probml.evidence import density
from probml.numerics.curvature import scaled, units
from probml.plan.plan import Plan
from probml.plan.spreads import spreads

# coordinates up to which a climb without second derivatives is looked at: four gradients each
FEW = 32
# curvature of a logarithm or a logit that matters to nothing, as of a spread at 0
IDLE = 1e-4
AWAY = 3.0  # such widths that are gone along it, and the share of them that must be left
LEFT = 0.3
LEVEL = 1e-3, 64  # nats, and roundings of the height, that are no difference
HARDLY = 0.02  # nats that are hardly a fall where a width should cost half of one
FARTHEST = 1e3  # of 1 and the number itself, that a width is at the most
# widths, other coordinates standing still, within which a ridge that the data tell is to fall; and
# the share of a fall that is there half the way, if it is a parabola's
RIDGE, PARABOLA = 1e7, (0.15, 0.4)
STEPS = 0.1, 0.5, 2.0  # of unbounded coordinates, to find what goes in steps
MOSTLY = 0.7  # of what a step back loses, that one on may lose, by rounding, of what grows so


def level(plan: Plan, known: Known, top: Top, steps: int) -> tuple[str, ...]:
    """What is to be said of a climb's end: nothing, or along which direction it might as well have
    ended elsewhere.

    A direction without curvature may still lead down, further out, or round a bend; so the climb is
    taken up again from some way along it, by so many steps: where that ends as high and not back
    here, it is level. Not so what falls as a parabola, only further out: the ridge of a level and a
    slope beside a calendar year.
    """
    end, hessian = top.u, top.hessian
    if not np.isfinite(hessian).all():
        return ()
    diagonal = np.abs(np.diagonal(hessian))
    kept = np.flatnonzero(~(of_domains(plan, known, "logarithmic") & (diagonal < IDLE)))
    if not kept.size:
        return ()
    some = hessian[np.ix_(kept, kept)]
    unit = units(some)
    curvature, axes = np.linalg.eigh(scaled(some, unit))
    low = int(np.argmin(np.abs(curvature)))
    if abs(curvature[low]) > NULL[np.dtype(end.dtype)]:
        return ()
    way = np.zeros(len(end))
    way[kept] = unit * axes[:, low]
    nats, roundings = LEVEL
    value = top.height
    rounding = roundings * np.finfo(end.dtype).eps * (1 + abs(value))

    def elsewhere(away: float) -> bool:
        other, height = top.again((end + away * way).astype(end.dtype), steps)
        gone = float((np.asarray(other) - end)[kept] / unit @ axes[:, low])
        return bool(value - height <= nats + rounding and abs(gone) >= LEFT * away)

    def fall(away: float) -> float:
        return value - top.height_at((end + away * way).astype(end.dtype))

    if not elsewhere(AWAY):
        return ()
    farther = _parabola(fall, HARDLY + rounding)
    if farther is not None and not elsewhere(farther):
        return ()
    named = direction(way, diagonal, density.owners(plan, known))
    return (f"one of many maxima, all as high: the data do not tell the direction {named} (a "
            f"column that is constant, or the sum of others?). Give it a prior that does, with "
            f"prior=True, or drop a column",)


def _parabola(fall: Callable[[float], float], least: float) -> float | None:
    """How far out a direction that is nearly level falls as a parabola does, four times as much at
    twice the distance, on either side; None where it does not."""
    for side in (-1.0, 1.0):
        away = AWAY
        while away < RIDGE and not fall(side * away) > 4 * least:
            away *= 2
        near, far = fall(side * away / 2), fall(side * away)
        if not (np.isfinite(far) and PARABOLA[0] * far < near < PARABOLA[1] * far):
            return None
    return away


def endless(plan: Plan, known: Known, top: Top) -> tuple[tuple[str, ...], bool]:
    """What is to be said of coordinates along which the objective does not fall as its curvature
    has it, by half a nat within one width: of numbers whose likelihood rises for ever, as the
    logarithm of a rate of counts that are all 0; of positive numbers that grow so, as the degrees
    of freedom of tails that are a normal's; of parameters that are told nowhere, as the moves of a
    chain of one step. A spread that has gone to 0 so, or a probability at an edge, is one that is
    there.

    Returns:
        the words, and whether there is no maximum but at infinity.

    Cost: two heights a coordinate, three more for each logarithm that matters to nothing, some ten
        for each that is level on one side.
    """
    owners, end, here = density.owners(plan, known), top.u, top.height
    rounding = LEVEL[1] * np.finfo(end.dtype).eps * (1 + abs(here))
    logarithmic, positive = (of_domains(plan, known, fact) for fact in ("logarithmic", "log_scale"))
    powers = {width.name: width.power for width in spreads(plan) if not width.plain}
    untold, large, gone = [], [], []
    if not np.isfinite(here) or rounding > HARDLY:
        return (), False

    def fall(i: int, place: float) -> float:
        moved = end.copy()
        moved[i] = place
        found = here - top.height_at(moved)
        return found if np.isfinite(found) else np.inf

    def level(i: int, place: float) -> bool:
        return fall(i, place) <= HARDLY

    def grown(i: int) -> bool:
        farther, nearer, on = (fall(i, end[i] + side * AWAY) for side in (-2, -1, 1))
        return farther > nearer > rounding and on < MOSTLY * nearer

    def ends(i: int, way: float, farthest: float) -> bool:
        # a kink, as of weights that are many digits apart: steep on one side, and slow on the other
        return any(HARDLY < fall(i, end[i] + way * 4.0**k) < np.inf
                   for k in range(1, 1 + int(np.log(farthest / abs(way)) / np.log(4.0))))

    for i, curvature in enumerate(np.diagonal(top.hessian)):
        farthest = FARTHEST * (1 + abs(float(end[i])))
        width = min(curvature**-0.5, farthest) if 0 < curvature < np.inf else farthest
        width = min(width, AWAY) if logarithmic[i] else width
        if width < np.sqrt(np.finfo(end.dtype).eps) * (1 + abs(end[i])):
            continue  # what is so narrow has a curvature that is rounding
        above, below = (level(i, end[i] + side * width) for side in (1, -1))
        name = owners[i].partition("[")[0]
        if above and below:
            if not logarithmic[i] or all(level(i, place) for place in (-AWAY, 0.0, AWAY)):
                untold += [name] * (name not in untold)
            elif positive[i] and grown(i):
                large.append(owners[i])
        elif above and positive[i]:
            large.append(owners[i])
        elif (above or below) and not logarithmic[i]:
            # the logarithm of a spread on its way to 0 is at an edge, and told as one (edges.py)
            narrow = name in powers and below == (powers[name] > 0)
            if not narrow and name not in gone and not ends(i, width if above else -width,
                                                            farthest):
                gone.append(name)
    out = [f"there is no maximum: the larger '{name}' the higher the likelihood, to which it "
           f"hardly matters by now: its value says that it is large, and no more. Give it a prior "
           f"that holds it, with prior=True, or leave it out" for name in large]
    if gone:
        out.append(f"{', '.join(map(repr, gone))} diverge: the likelihood rises the further they "
                   f"go, ever less (as of counts that are all 0, or of classes that are "
                   f"separated). Give them a prior that holds them, with prior=True")
    if untold:
        out.append(f"one of many maxima, all as high: the data tell nothing of "
                   f"{', '.join(map(repr, untold))}. Give a prior that does, with prior=True, or "
                   f"leave out what nothing seen depends on")
    return tuple(out), bool(gone)


def stepped(top: Top) -> list[int]:
    """Coordinates in which the objective goes up and down in steps, and has no slope, as what is
    only compared, where(i < s, early, late): no climb moves them.

    Cost: a gradient; six more for each coordinate without a slope.
    """
    end, (here, slope) = top.u, top.here
    found = []
    for i in np.flatnonzero(np.asarray(slope) == 0.0):
        ways = [side * away * np.eye(end.size)[i] for side in (1, -1) for away in STEPS]
        there = [top.evaluate((end + way).astype(end.dtype)) for way in ways]
        if all(bent[i] == 0.0 for _, bent in there) and any(
            abs(height - here) > HARDLY for height, _ in there if np.isfinite(height)
        ):
            found.append(int(i))
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


def of_domains(plan: Plan, known: Known, fact: str) -> np.ndarray:
    """A fact of the domain of each coordinate's parameter, (d,): whether it is `logarithmic`, a
    logarithm or a logit; of `log_scale`, the logarithm of a positive number."""
    sites = plan.structure.sites
    return np.concatenate([np.full(spec.size, getattr(sites[name].domain, fact))
                           for name, spec in sorted(density.shapes(plan, known).items())])
