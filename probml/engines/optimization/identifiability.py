"""Maxima that are no point: directions in which a likelihood without a prior is level, so that an
optimum is one of many as high, or rises for ever, so that there is none (separation)."""

import enum
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from probml.device.rows import Known
from probml.engines.engine import Status
from probml.engines.findings import Code, Finding
from probml.engines.optimization.objective import flat, unflat
from probml.engines.start.prior import compiled_prior_point
from probml.errors import present, quoted
from probml.evidence import density
from probml.numerics.compile_effort import ONCE
from probml.numerics.compiling import jit
from probml.numerics.curvature import scaled, units
from probml.numerics.optimum import Optimum
from probml.numerics.transfer import placed, placed_all
from probml.plan.plan import Plan
from probml.plan.spreads import noises, spreads

# curvature from which a direction is looked at whether it is level
SUSPECT = {np.dtype(np.float64): 1e-4, np.dtype(np.float32): 3e-2}
# coordinates up to which a climb without second derivatives is looked at: four gradients each
FEW = 32
# curvature of a logarithm or a logit that matters to nothing, as of a spread at 0
IDLE = 1e-4
AWAY = 3.0  # such widths that are gone along it, and the share of them that must be left
LEFT = 0.3
LEVEL = 1e-3, 64  # nats, and roundings of the height, that are no difference
HARDLY = 0.02  # nats that are hardly a fall where a width should cost half of one
FARTHEST = 1e3  # of 1 and the number itself, that a width is at the most
# doublings of AWAY widths within which a ridge that the data tell is to fall, other coordinates
# standing still, from the nearest that is looked at; and the share of a fall that is there half
# the way, if it is a parabola's
NEAREST, REACH, PARABOLA = -4, 22, (0.15, 0.4)
ONE_SIDED = 5  # doublings by which one side falls later than the other, where it has no maximum
FARTHER = 4.0  # times the way from the start, from which a climb is taken up again
MAINLY = 0.1  # share of a direction from which a parameter is named
LONGER = 12  # times AWAY that a logarithm may have gone too far
NEARER = 0.25 ** np.arange(6)  # shares of a way
MOSTLY = 0.7  # of what a step back loses, that one on may lose, by rounding, of what grows so


# findings, and how it ended if there is no maximum
Found = tuple[tuple[Finding, ...], Status | None]


def along_the_flattest(plan: Plan, known: Known, top: Optimum, steps: int) -> Found:
    """What is found at a climb's end along the direction that curves least: nothing, that it is one
    of many maxima, or that there is none.

    Args:
        steps: of a climb that is taken up again elsewhere.
    """
    end, hessian = top.point, top.hessian
    kept = np.flatnonzero(~_inert_logarithms(plan, known, top))
    some = hessian[np.ix_(kept, kept)]
    if not kept.size or not np.isfinite(some).all():
        return (), None
    unit = units(some)
    curvature, axes = np.linalg.eigh(scaled(some, unit))
    limit = SUSPECT[np.dtype(end.dtype)]
    level = np.abs(curvature) <= limit
    ways, within = np.zeros((len(end), len(kept))), np.ones(len(end))
    ways[kept], within[kept] = unit[:, None] * axes, unit
    same, told = _symmetries(plan, known, top, ways, level, limit)
    share = np.linalg.norm(ways[:, level] @ same, axis=1)
    symmetry = () if not same.size else (
        Finding.of(Code.SYMMETRY, names=quoted(_named(plan, known, top, share))),)
    if not told.size:
        return symmetry, None
    bent, turned = np.linalg.eigh(told.T @ (curvature[level, None] * told))
    way = AWAY * ways[:, level] @ told @ turned[:, np.argmin(np.abs(bent))]
    found = along(top, lambda times: end + times * way, within, steps)
    if found is Along.MAXIMUM:
        return symmetry, None
    if found is Along.ENDLESS:
        return (separation(_named(plan, known, top, way)),), Status.RUNAWAY
    named = direction(way, np.abs(np.diagonal(hessian)), density.owners(plan, known))
    return (Finding.of(Code.NOT_IDENTIFIED, direction=f"the direction {named}"), *symmetry), None


def _symmetries(plan: Plan, known: Known, top: Optimum, ways: np.ndarray, level: np.ndarray,
                limit: float) -> tuple[np.ndarray, np.ndarray]:
    """Combinations of level directions, (level, some) and (level, others), that leave alone what
    the model declares to be identified (`model.identifies`), and that do not.

    Args:
        ways: (d, directions), of width 1 each. level: which of them may be level, of curvatures up
            to `limit`: so their shares in others are below its root.
    """
    count = int(level.sum())
    if plan.structure.model.identified_by is None or not count:
        return np.zeros((count, 0)), np.eye(count)
    moved = np.asarray(_moved(plan, known, placed(top.point),
                              placed(ways.T.astype(top.point.dtype))), float)
    squares, mix = np.linalg.eigh(moved[level] @ moved[level].T)
    told = squares > limit * (moved**2).sum(1).max()
    return mix[:, ~told], mix[:, told]


def _moved_along(plan: Plan, known: Known, point: jax.Array, ways: jax.Array) -> jax.Array:
    """How fast what the model declares to be identified moves along directions, (directions,
    quantities)."""
    def identified(u: jax.Array) -> jax.Array:
        quantities = present(plan.structure.model.identified_by)(
            {**known.given, **unflat(plan, u, known)})
        return ravel_pytree(quantities)[0]

    return jax.vmap(lambda way: jax.jvp(identified, (point,), (way,))[1])(ways)


_moved = jit(_moved_along, seldom=ONCE, static_argnums=0)


def along_the_way(plan: Plan, known: Known, top: Optimum, steps: int) -> Found:
    """As `along_the_flattest`, on the way from the start to the end, of parameters without bounds:
    where going as far again is hardly a fall, there may be no maximum, as of classes that several
    columns separate together, all of whose curvatures have vanished."""
    end, begun = top.point, jax.device_get(compiled_prior_point(plan, known))
    at = jax.device_get(unflat(plan, placed(end), known))
    moved = [name for name in plan.free if plan.structure.sites[name].domain.unbounded
             or plan.structure.sites[name].domain.ordered]
    gone, powers = {name: at[name] - begun[name] for name in moved}, _powers(plan)
    for name in powers.keys() & gone.keys():  # a spread on its way to 0 stays where it is
        gone[name] = np.where(gone[name] * powers[name] < 0, 0.0, gone[name])

    def place(times: float) -> np.ndarray:
        point = {name: at[name] + times * gone[name] for name in moved}
        return np.asarray(flat(plan, placed_all({**at, **point}), known), end.dtype)

    share = np.finfo(end.dtype).eps ** (1 / 3)
    ways = [np.asarray(place(side * share) - end, float) for side in (1, -1)]
    slopes = [top.evaluate((end + way).astype(end.dtype))[1] for way in ways]
    curvature = float((slopes[0] - slopes[1]) @ (ways[0] - ways[1])) / (2 * share) ** 2
    if not (curvature <= 1.0 and np.linalg.norm(ways[0]) > share):
        return (), None
    far = min(max(FARTHER, AWAY / np.sqrt(max(curvature, 1e-12))), FARTHEST)
    while far > 1.0 and not np.isfinite(top.value_at(place(far))):
        far /= 4.0
    found = along(top, lambda times: place(far * times), np.ones(len(end)), steps)
    if found is not Along.ENDLESS:
        return (), None
    return (separation(_named(plan, known, top, ways[0])),), Status.RUNAWAY


class Along(enum.Enum):
    """What lies along a direction from the end of a climb."""

    MAXIMUM = 0  # it is one
    LEVEL = 1  # others as high
    ENDLESS = 2  # others as high on one side, however far


def along(top: Optimum, place: Callable[[float], np.ndarray], unit: np.ndarray,
          steps: int) -> Along:
    """What lies along a direction that seems level.

    A direction without curvature may still lead down, further out, or round a bend; so the climb is
    taken up again from some way along it: where that ends as high and not back here, it is level.
    Not so what falls as a parabola, only further out: the ridge of a level and a slope beside a
    calendar year. What falls on one side long before the other has no maximum on that one.

    Args:
        place: so many times along it, on either side → (d,). unit: (d,) of the coordinates, by
            which two ends are compared.
    """
    end, value = top.point, top.value
    rounding = LEVEL[1] * np.finfo(end.dtype).eps * (1 + abs(value))

    def elsewhere(times: float) -> bool:
        begun = place(times).astype(end.dtype)
        other, height = top.maximize_from(begun, steps)
        way = (begun - end) / unit
        gone = float(((np.asarray(other) - end) / unit) @ way) / float(way @ way)
        return bool(value - height <= LEVEL[0] + rounding and gone >= LEFT)

    def falls(times: float) -> float:
        found = value - top.value_at(place(times).astype(end.dtype))
        return np.inf if np.isnan(found) else found

    if not (elsewhere(1.0) or elsewhere(-1.0)):
        return Along.MAXIMUM
    least = 4 * (HARDLY + rounding)
    ends = [next((k for k in range(NEAREST, REACH) if falls(side * 2.0**k) > least), REACH)
            for side in (1, -1)]
    if abs(ends[0] - ends[1]) > ONE_SIDED:
        return Along.ENDLESS
    side, k = (1, ends[0]) if ends[0] < ends[1] else (-1, ends[1])
    near, far = falls(side * 2.0 ** (k - 1)), falls(side * 2.0**k)
    parabola = k < REACH and PARABOLA[0] * far < near < PARABOLA[1] * far
    return Along.MAXIMUM if parabola and not elsewhere(2.0**k) else Along.LEVEL


def _inert_logarithms(plan: Plan, known: Known, top: Optimum) -> np.ndarray:
    """Which coordinates are logarithms or logits on which the objective does not depend, (d,), as
    of a standard deviation of 0: by second derivatives or, since these may be rounding, by values
    one step away."""
    idle = of_domains(plan, known, "logarithmic")
    curvature = np.abs(np.diagonal(top.hessian))
    rounding = np.finfo(top.point.dtype).eps * (1 + abs(top.value))
    for i in np.flatnonzero(idle):
        step = np.eye(top.point.size)[i]
        sides = [top.value_at((top.point + side * step).astype(top.point.dtype))
                 for side in (1, -1)]
        bent = abs(sum(sides) - 2 * top.value)
        idle[i] = curvature[i] < IDLE or bent < IDLE + 4 * rounding
    return idle


def _named(plan: Plan, known: Known, top: Optimum, way: np.ndarray) -> list[str]:
    """The parameters whose coordinates have a share in a direction, (d,), the largest first."""
    own, owners = np.diagonal(top.hessian), density.owners(plan, known)
    loads = np.abs(way) * np.sqrt(np.where(own > 0, own, 1.0))
    return list(dict.fromkeys(owners[i].partition("[")[0] for i in np.argsort(-loads)
                              if loads[i] > MAINLY * loads.max()))


def _powers(plan: Plan) -> dict[str, float]:
    """Parameters that say how wide something lies, with the power of them that a standard deviation
    goes with. One that goes to a width of 0, a precision by growing, is at an edge, which is told
    elsewhere (edges.py, fits/boundary.py)."""
    return {width.name: width.power for width in (*spreads(plan), *noises(plan))}


class Rise(enum.Enum):
    """How the objective goes on along one coordinate from an optimum."""

    NONE = 0  # it falls on both sides; or ends at a boundary, which is reported elsewhere
    FLAT = 1  # it does not depend on the coordinate
    DIVERGES = 2  # it rises for ever on one side
    GROWS = 3  # it rises for ever as a positive number grows


@dataclass(frozen=True)
class Profiles:
    """The objective along single coordinates from an optimum."""

    top: Optimum
    rounding: float  # of the objective

    def fall(self, i: int, place: float) -> float:
        """How much lower the objective is with the i-th coordinate at a place; nearer, where it is
        no number there."""
        end = self.top.point
        for share in NEARER:
            moved = end.copy()
            moved[i] += share * (place - end[i])
            found = self.top.value - self.top.value_at(moved)
            if not np.isnan(found):
                return found
        return np.inf

    def is_flat(self, i: int, place: float) -> bool:
        return self.fall(i, place) <= HARDLY

    def levels_off(self, i: int) -> bool:
        """Whether the objective falls on the way back, the more the farther, and not on the way on.
        """
        end = self.top.point[i]
        on = max(self.rounding, *(self.fall(i, end + times * AWAY) for times in (1, 2)))
        falls = [self.fall(i, end - times * AWAY) for times in range(1, LONGER)]
        return any(along_the_way > nearer and on < MOSTLY * nearer
                   for nearer, along_the_way in itertools.pairwise(falls))

    def falls_within(self, i: int, way: float, farthest: float) -> bool:
        """Whether the objective falls some way along a side, though not at its first step: a kink,
        as of weights of very different sizes, is steep on one side and slow on the other."""
        return any(HARDLY < self.fall(i, self.top.point[i] + way * 4.0**k) < np.inf
                   for k in range(1, 1 + int(np.log(farthest / abs(way)) / np.log(4.0))))

    def width(self, i: int, logarithmic: bool) -> tuple[float, float]:
        """A standard deviation of the i-th coordinate by its curvature, and how far to look."""
        end, curvature = self.top.point[i], self.top.hessian[i, i]
        farthest = FARTHEST * (1 + abs(float(end)))
        width = min(curvature**-0.5, farthest) if 0 < curvature < np.inf else farthest
        # what is so narrow has a curvature that is rounding
        narrowest = np.sqrt(np.finfo(self.top.point.dtype).eps) * (1 + abs(end))
        width = farthest if width < narrowest else width
        return min(width, AWAY) if logarithmic else width, farthest


def _rise(profiles: Profiles, i: int, logarithmic: bool, positive: bool, power: float,
          diverges: bool) -> Rise:
    """How the objective goes on along the i-th coordinate.

    Args:
        power: of the parameter with which a standard deviation goes, 0 where none does: one that
            goes to 0 is at a boundary.
        diverges: another coordinate of the same parameter does, so that no more is computed.
    """
    end = profiles.top.point[i]
    width, farthest = profiles.width(i, logarithmic)
    above, below = (profiles.is_flat(i, end + side * width) for side in (1, -1))
    if above and below and logarithmic:
        return _rise_of_logarithm(profiles, i, positive and power >= 0)
    if above and below:
        up, down = (profiles.falls_within(i, side * width, farthest) for side in (1, -1))
        if up == down:
            return Rise.FLAT
        return Rise.NONE if power * (down - up) < 0 else Rise.DIVERGES
    if above and positive:
        return Rise.NONE if power < 0 else Rise.GROWS
    side = 1 if above else -1
    if logarithmic or not (above or below) or power * side < 0:
        return Rise.NONE
    if diverges or not profiles.falls_within(i, side * width, farthest):
        return Rise.DIVERGES
    return Rise.NONE


def _rise_of_logarithm(profiles: Profiles, i: int, may_grow: bool) -> Rise:
    """How the objective goes on along a logarithm or logit that is flat on both sides."""
    if all(profiles.is_flat(i, place) for place in (-AWAY, 0.0, AWAY)):
        return Rise.FLAT
    return Rise.GROWS if may_grow and profiles.levels_off(i) else Rise.NONE


def along_coordinates(plan: Plan, known: Known, top: Optimum) -> Found:
    """Findings on coordinates along which the objective does not fall by half a nat within one
    standard deviation: parameters whose likelihood rises for ever, as the logarithm of a rate of
    counts that are all 0; positive numbers that grow so, as the degrees of freedom of tails that
    are a normal's; parameters without information, as the transitions of a chain of one step.

    Cost: two heights a coordinate, three more for each logarithm that matters to nothing, some ten
        for each that is level on one side.
    """
    owners = density.owners(plan, known)
    rounding = LEVEL[1] * np.finfo(top.point.dtype).eps * (1 + abs(top.value))
    logarithmic, positive = (of_domains(plan, known, fact) for fact in ("logarithmic", "log_scale"))
    if not np.isfinite(top.value) or rounding > HARDLY:
        return (), None
    profiles, powers = Profiles(top, rounding), _powers(plan)
    found: dict[Rise, list[str]] = {rise: [] for rise in Rise}
    for i, owner in enumerate(owners):
        name = owner.partition("[")[0]
        rise = _rise(profiles, i, logarithmic[i], positive[i], powers.get(name, 0.0),
                     name in found[Rise.DIVERGES])
        found[rise].append(owner if rise is Rise.GROWS else name)
    out = [Finding.of(Code.LIMIT, name) for name in found[Rise.GROWS]]
    if found[Rise.DIVERGES]:
        out.append(separation(list(dict.fromkeys(found[Rise.DIVERGES]))))
    if found[Rise.FLAT]:
        out.append(Finding.of(Code.NO_INFORMATION,
                              names=quoted(list(dict.fromkeys(found[Rise.FLAT])))))
    limit = Status.LIMIT if found[Rise.GROWS] else None
    return tuple(out), Status.RUNAWAY if found[Rise.DIVERGES] else limit


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
    return by_coordinate(plan, known, lambda name: getattr(sites[name].domain, fact))


def by_coordinate(plan: Plan, known: Known, of: Callable[[str], Any]) -> np.ndarray:
    """What `of` says of the name of each coordinate's parameter, (d,)."""
    specs = sorted(density.shapes(plan, known).items())
    return np.concatenate([np.zeros(0, bool), *(np.full(spec.size, of(name))
                                                for name, spec in specs)])


# Separation.

# curvature at the end, in units of that at the start, of a direction in which parameters run away
VANISHED = 1e-6
# roundings of the height that going as far again may cost, where there is no maximum on the way
ENDLESS = 16
# curvature at the start, in units of its coordinates', of a direction that the rows do not tell at
# all
BLIND = 1e-8


def find_separation(plan: Plan, known: Known, first: np.ndarray, last: np.ndarray,
                    moved: np.ndarray, fall: Callable[[np.ndarray], float]) -> tuple[Finding, ...]:
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
    return () if grow else (separation(named),)


def find_infinite(params: Mapping[str, jax.Array]) -> tuple[Finding, ...]:
    """What a closed form has sent to infinity at one step, as the logit of a share that is 1."""
    names = [name for name, value in params.items() if np.isinf(np.asarray(value, float)).any()]
    return (separation(names),) if names else ()


def separation(names: Sequence[str]) -> Finding:
    """That the likelihood has no maximum in some parameters."""
    return Finding.of(Code.SEPARATION, names[0] if len(names) == 1 else "", names=quoted(names))
