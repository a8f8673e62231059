"""Identifiability: directions in which the likelihood, without a prior, is flat, so that an optimum
is one of many equal ones, or rises for ever, so that there is no maximum (separation)."""

import enum
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from probml.device.rows import Known
from probml.engines.engine import Status
from probml.engines.findings import Code, Finding
from probml.engines.start.prior import compiled_prior_point
from probml.errors import listed, present
from probml.evidence import density
from probml.numerics.compiling import ONCE, jit
from probml.numerics.curvature import scaled, units
from probml.numerics.optimum import Optimum
from probml.numerics.transfer import placed, placed_all
from probml.plan.hierarchy import noise_scales, scale_parameters
from probml.plan.plan import Plan
from probml.posteriors.posterior import constrained, unconstrained

# Curvatures here are eigenvalues of the negative Hessian with each coordinate in its own unit; a
# direction with less curvature than this may be flat.
SUSPECT_CURVATURE = {np.dtype(np.float64): 1e-4, np.dtype(np.float32): 3e-2}
# coordinates up to which an optimum without second derivatives is examined: four gradients each
MAX_DIFFERENCED_COORDINATES = 32
# curvature of a logarithm or logit on which the objective does not depend, such as that of a
# standard deviation of 0
INERT_CURVATURE = 1e-4
SURE_WIDTH = 0.1  # standard deviation of a logarithm or logit that is certainly identified
# Standard deviations by which a point is moved along a direction that may be flat, and the share of
# that distance at which an optimisation from there must end for the direction to be flat.
PROBE_WIDTHS, MIN_KEPT_SHARE = 3.0, 0.3
EQUAL_HEIGHT, EQUAL_ROUNDINGS = 1e-3, 64  # log density, or units of rounding: equal values
MIN_FALL = 0.02  # of log density, where moving by one standard deviation should cost a half
MAX_WIDTH = 1e3  # largest standard deviation of a coordinate, relative to 1 + |x|
# A ridge that the data determine falls within MAX_DOUBLINGS doublings of the first distance that is
# tried, PROBE_WIDTHS · 2^MIN_DOUBLINGS, with other coordinates fixed; if it is a parabola, this
# share of the fall is reached at half the distance. At 1 / eps standard deviations coordinates
# are rounded by a standard deviation, and rounding alone makes the objective fall as a parabola:
# no fall is looked for beyond MAX_ROUNDED_SHARE of that distance.
MIN_DOUBLINGS, MAX_DOUBLINGS, PARABOLIC_SHARE = -4, 22, (0.15, 0.4)
MAX_ROUNDED_SHARE = 0.02
ONE_SIDED_DOUBLINGS = 5  # by which one side falls later than the other where it has no maximum
MAX_EXTRAPOLATION = 4.0  # of the distance from the start, from where an optimisation is repeated
MIN_NAMED_SHARE = 0.1  # of a direction's largest entry, from which its parameter is named
MAX_BACKTRACKS = 12  # multiples of PROBE_WIDTHS by which a logarithm may have gone too far
SHORTER_MOVES = 0.25 ** np.arange(6)  # factors on a move that ends where the objective is NaN
MAX_RATIO_OF_FALLS = 0.7  # of a step on to a step back, where the objective grows to a limit


# findings, and the status of the fit if there is no maximum
Found = tuple[tuple[Finding, ...], Status | None]


def check_flattest_direction(plan: Plan, known: Known, optimum: Optimum, steps: int) -> Found:
    """Findings on the direction with the least curvature at an optimum: none, that the optimum is
    one of many equal ones, or that there is no maximum.

    Args:
        steps: of an optimisation that is repeated from another point.
    """
    end, hessian = optimum.point, optimum.hessian
    active = np.flatnonzero(~_inert_logarithms(plan, optimum))
    block = hessian[np.ix_(active, active)]
    if not active.size or not np.isfinite(block).all():
        return (), None
    unit = units(block)
    curvature, axes = np.linalg.eigh(scaled(block, unit))
    limit = SUSPECT_CURVATURE[np.dtype(end.dtype)]
    suspect = np.abs(curvature) <= limit
    directions, widths = np.zeros((len(end), len(active))), np.ones(len(end))
    directions[active], widths[active] = unit[:, None] * axes, unit
    symmetric, others = _split_symmetries(plan, known, optimum, directions, suspect, limit)
    loads = np.linalg.norm(directions[:, suspect] @ symmetric, axis=1)
    symmetry = () if not symmetric.size else (
        Finding.of(Code.SYMMETRY, names=listed(_main_parameters(plan, optimum, loads))),)
    if not others.size:
        return symmetry, None
    reduced, rotation = np.linalg.eigh(others.T @ (curvature[suspect, None] * others))
    flattest = PROBE_WIDTHS * directions[:, suspect] @ others @ rotation[
        :, np.argmin(np.abs(reduced))]
    shape = classify_direction(optimum, lambda times: end + times * flattest, widths, steps)
    if shape is Shape.MAXIMUM:
        return symmetry, None
    if shape is Shape.UNBOUNDED:
        return (separation_finding(_main_parameters(plan, optimum, flattest)),), Status.DIVERGED
    description = describe_direction(flattest, np.abs(np.diagonal(hessian)),
                                     density.coordinate_names(plan))
    return (Finding.of(Code.NOT_IDENTIFIED, direction=description), *symmetry), None


def _split_symmetries(plan: Plan, known: Known, optimum: Optimum, directions: np.ndarray,
                      suspect: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray]:
    """Combinations of flat directions, (suspect, some) and (suspect, others): those along which
    what the model declares to be identified (`model.identifies`) is constant, and the others.

    Args:
        directions: (d, directions), each one standard deviation long. suspect: (directions,) those
            that may be flat, with curvatures up to `limit`: their components along others are below
            its root.
    """
    count = int(suspect.sum())
    if plan.structure.model.identified_by is None or not count:
        return np.zeros((count, 0)), np.eye(count)
    derivatives = np.asarray(_identified_derivatives(
        plan, known, placed(optimum.point), placed(directions.T.astype(optimum.point.dtype))),
                             float)
    squares, combinations = np.linalg.eigh(derivatives[suspect] @ derivatives[suspect].T)
    identified = squares > limit * (derivatives**2).sum(1).max()
    return combinations[:, ~identified], combinations[:, identified]


@jit(seldom=ONCE, static_argnums=0)
def _identified_derivatives(plan: Plan, known: Known, point: jax.Array,
                            directions: jax.Array) -> jax.Array:
    """Directional derivatives of what the model declares to be identified, (directions,
    quantities)."""
    def identified(u: jax.Array) -> jax.Array:
        quantities = present(plan.structure.model.identified_by)(
            {**known.given, **density.from_unbounded(plan, u, known)[0]})
        return ravel_pytree(quantities)[0]

    return jax.vmap(lambda direction: jax.jvp(identified, (point,), (direction,))[1])(directions)


def check_direction_from_start(plan: Plan, known: Known, optimum: Optimum, steps: int) -> Found:
    """As `check_flattest_direction`, for the direction from the start to the optimum, of parameters
    without bounds: where going as far again costs little, there may be no maximum, as for classes
    that several columns separate together, all of whose curvatures have vanished."""
    end, start = optimum.point, jax.device_get(compiled_prior_point(plan, known))
    params = jax.device_get(constrained(plan, known, placed(end)))
    names = [name for name in plan.free if plan.structure.sites[name].domain.unbounded
             or plan.structure.sites[name].domain.ordered]
    if not names:
        return (), None
    moves, powers = {name: params[name] - start[name] for name in names}, _scale_powers(plan)
    for name in powers.keys() & moves.keys():  # a scale that goes to 0 is not moved
        moves[name] = np.where(moves[name] * powers[name] < 0, 0.0, moves[name])

    def place(times: float) -> np.ndarray:
        point = {name: params[name] + times * moves[name] for name in names}
        return np.asarray(unconstrained(plan, placed_all({**params, **point}), known), end.dtype)

    step = np.finfo(end.dtype).eps ** (1 / 3)
    offsets = [np.asarray(place(side * step) - end, float) for side in (1, -1)]
    gradients = [optimum.evaluate((end + offset).astype(end.dtype))[1] for offset in offsets]
    curvature = float((gradients[0] - gradients[1]) @ (offsets[0] - offsets[1])) / (2 * step) ** 2
    if not (curvature <= 1.0 and np.linalg.norm(offsets[0]) > step):
        return (), None
    far = min(max(MAX_EXTRAPOLATION, PROBE_WIDTHS / np.sqrt(max(curvature, 1e-12))), MAX_WIDTH)
    while far > 1.0 and not np.isfinite(optimum.value_at(place(far))):
        far /= 4.0
    shape = classify_direction(optimum, lambda times: place(far * times), np.ones(len(end)), steps)
    if shape is not Shape.UNBOUNDED:
        return (), None
    return (separation_finding(_main_parameters(plan, optimum, offsets[0])),), Status.DIVERGED


class Shape(enum.Enum):
    """The objective along a direction through an optimum."""

    MAXIMUM = 0  # the optimum is the only maximum
    FLAT = 1  # other points are as high
    UNBOUNDED = 2  # other points are as high on one side, however far away


def classify_direction(optimum: Optimum, path: Callable[[float], np.ndarray], unit: np.ndarray,
                       steps: int) -> Shape:
    """The shape of the objective along a direction that seems flat.

    A direction without curvature may still lead down farther out, or round a bend; so the
    optimisation is repeated from some way along it: if it ends as high and does not come back, the
    direction is flat. It is not flat if the objective falls as a parabola, only farther out, as the
    ridge of a level and a slope for a calendar year. If it falls on one side long before the other,
    there is no maximum on the other.

    Args:
        path: multiple of the direction, of either sign → the point (d,) there. unit: (d,) of the
            coordinates, in which distances between points are measured.
    """
    end, value = optimum.point, optimum.value
    rounding = EQUAL_ROUNDINGS * np.finfo(end.dtype).eps * (1 + abs(value))

    def ends_elsewhere(times: float) -> bool:
        start = path(times).astype(end.dtype)
        other, other_value = optimum.maximize_from(start, steps)
        offset = (start - end) / unit
        kept_share = float(((np.asarray(other) - end) / unit) @ offset) / float(offset @ offset)
        return bool(value - other_value <= EQUAL_HEIGHT + rounding and kept_share >= MIN_KEPT_SHARE)

    def fall_at(times: float) -> float:
        fall = value - optimum.value_at(path(times).astype(end.dtype))
        return np.inf if np.isnan(fall) else fall

    if not (ends_elsewhere(1.0) or ends_elsewhere(-1.0)):
        return Shape.MAXIMUM
    floor = 4 * (MIN_FALL + rounding)
    farthest = MAX_ROUNDED_SHARE / np.finfo(end.dtype).eps
    limit = min(MAX_DOUBLINGS, int(np.log2(farthest / PROBE_WIDTHS)))
    doublings = [next((k for k in range(MIN_DOUBLINGS, limit) if fall_at(side * 2.0**k) > floor),
                      limit) for side in (1, -1)]
    if abs(doublings[0] - doublings[1]) > ONE_SIDED_DOUBLINGS:
        return Shape.UNBOUNDED
    side, k = (1, doublings[0]) if doublings[0] < doublings[1] else (-1, doublings[1])
    near, far = fall_at(side * 2.0 ** (k - 1)), fall_at(side * 2.0**k)
    low, high = PARABOLIC_SHARE
    parabola = k < limit and low * far < near < high * far
    return Shape.MAXIMUM if parabola and not ends_elsewhere(2.0**k) else Shape.FLAT


def _inert_logarithms(plan: Plan, optimum: Optimum) -> np.ndarray:
    """Which coordinates are logarithms or logits on which the objective does not depend, (d,), as
    of a standard deviation of 0: by second derivatives or, since these may be rounding, by values
    one step away."""
    inert = domain_flags(plan, "logarithmic") & ~_sure_logarithms(plan, optimum)
    curvature = np.abs(np.diagonal(optimum.hessian))
    rounding = np.finfo(optimum.point.dtype).eps * (1 + abs(optimum.value))
    for i in np.flatnonzero(inert):
        step = np.eye(optimum.point.size)[i]
        sides = [optimum.value_at((optimum.point + side * step).astype(optimum.point.dtype))
                 for side in (1, -1)]
        second_difference = abs(sum(sides) - 2 * optimum.value)
        inert[i] = (curvature[i] < INERT_CURVATURE
                    or second_difference < INERT_CURVATURE + 4 * rounding)
    return inert


def _sure_logarithms(plan: Plan, optimum: Optimum) -> np.ndarray:
    """Which coordinates are logarithms or logits that a reliable Hessian determines to a tenth,
    (d,): their parameters have a maximum, and no value need be computed to see it. Reliable is one
    that is exact or has predicted gradients; none is computed for this."""
    computed = optimum.known_hessian is not None or "estimated_hessian" in vars(optimum)
    if not computed or optimum.whitening is None:
        return np.zeros(optimum.point.size, bool)
    widths = np.linalg.norm(optimum.whitening, axis=0)
    return domain_flags(plan, "logarithmic") & (widths <= SURE_WIDTH)


def _in_own_units(direction: np.ndarray, curvatures: np.ndarray) -> np.ndarray:
    """Absolute entries of a direction, (d,), in standard deviations of their coordinates."""
    return np.abs(direction) * np.sqrt(np.where(curvatures > 0, curvatures, 1.0))


def _main_parameters(plan: Plan, optimum: Optimum, direction: np.ndarray) -> list[str]:
    """The parameters that make up most of a direction, (d,), the largest first."""
    return _largest(density.coordinate_names(plan), _in_own_units(direction,
                                                               np.diagonal(optimum.hessian)))


def _largest(owners: Sequence[str], loads: np.ndarray) -> list[str]:
    """The parameters with the largest loads (d,), of coordinates with these names."""
    return list(dict.fromkeys(owners[i].partition("[")[0] for i in np.argsort(-loads)
                              if loads[i] > MIN_NAMED_SHARE * loads.max()))


def _scale_powers(plan: Plan) -> dict[str, float]:
    """Scale parameter → the power of it to which the standard deviation is proportional: 1, of a
    precision −1/2. A standard deviation that goes to 0 is a boundary, reported by boundary.py and
    fits/latent_findings.py."""
    return {width.name: width.power for width in (*scale_parameters(plan), *noise_scales(plan))}


class Rise(enum.Enum):
    """How the objective goes on along one coordinate from an optimum."""

    NONE = 0  # it falls on both sides; or ends at a boundary, which is reported elsewhere
    FLAT = 1  # it does not depend on the coordinate
    DIVERGES = 2  # it rises for ever on one side
    GROWS = 3  # it rises for ever as a positive number grows


@dataclass(frozen=True)
class Profiles:
    """The objective along single coordinates through an optimum, with the rounding of its values.
    """

    top: Optimum
    rounding: float

    def fall(self, i: int, value: float) -> float:
        """How much lower the objective is with the i-th coordinate at `value`; nearer, if it is NaN
        there."""
        end = self.top.point
        for share in SHORTER_MOVES:
            point = end.copy()
            point[i] += share * (value - end[i])
            fall = self.top.value - self.top.value_at(point)
            if not np.isnan(fall):
                return fall
        return np.inf

    def is_flat(self, i: int, value: float) -> bool:
        return self.fall(i, value) <= MIN_FALL

    def levels_off(self, i: int) -> bool:
        """Whether the objective falls as the coordinate decreases, increasingly so, and does not
        fall as it increases."""
        end = self.top.point[i]
        ahead = max(self.rounding, *(self.fall(i, end + times * PROBE_WIDTHS) for times in (1, 2)))
        behind = [self.fall(i, end - times * PROBE_WIDTHS) for times in range(1, MAX_BACKTRACKS)]
        return any(farther > nearer and ahead < MAX_RATIO_OF_FALLS * nearer
                   for nearer, farther in itertools.pairwise(behind))

    def falls_within(self, i: int, step: float, farthest: float) -> bool:
        """Whether the objective falls on one side, though not at the first step: a kink, as of
        weights of very different sizes, is steep on one side and slow on the other."""
        return any(MIN_FALL < self.fall(i, self.top.point[i] + step * 4.0**k) < np.inf
                   for k in range(1, 1 + int(np.log(farthest / abs(step)) / np.log(4.0))))

    def width(self, i: int, logarithmic: bool) -> tuple[float, float]:
        """The standard deviation of the i-th coordinate by its curvature, and its upper bound."""
        end, curvature = self.top.point[i], self.top.hessian[i, i]
        farthest = MAX_WIDTH * (1 + abs(float(end)))
        width = min(curvature**-0.5, farthest) if 0 < curvature < np.inf else farthest
        # the curvature of such a narrow coordinate is rounding
        narrowest = np.sqrt(np.finfo(self.top.point.dtype).eps) * (1 + abs(end))
        width = farthest if width < narrowest else width
        return min(width, PROBE_WIDTHS) if logarithmic else width, farthest


def _rise(profiles: Profiles, i: int, logarithmic: bool, positive: bool, power: float,
          diverges: bool) -> Rise:
    """How the objective goes on along the i-th coordinate.

    Args:
        power: see `_scale_powers`, 0 for what is no scale: a standard deviation that goes to 0 is
            at a boundary.
        diverges: another coordinate of the same parameter does, so that no more is computed.
    """
    end = profiles.top.point[i]
    width, farthest = profiles.width(i, logarithmic)
    flat_above, flat_below = (profiles.is_flat(i, end + side * width) for side in (1, -1))
    if flat_above and flat_below and logarithmic:
        if all(profiles.is_flat(i, value) for value in (-PROBE_WIDTHS, 0.0, PROBE_WIDTHS)):
            return Rise.FLAT
        return Rise.GROWS if positive and power >= 0 and profiles.levels_off(i) else Rise.NONE
    if flat_above and flat_below:
        up, down = (profiles.falls_within(i, side * width, farthest) for side in (1, -1))
        if up == down:
            return Rise.FLAT
        return Rise.NONE if power * (down - up) < 0 else Rise.DIVERGES
    if flat_above and positive:
        return Rise.NONE if power < 0 else Rise.GROWS
    side = 1 if flat_above else -1
    if logarithmic or not (flat_above or flat_below) or power * side < 0:
        return Rise.NONE
    if diverges or not profiles.falls_within(i, side * width, farthest):
        return Rise.DIVERGES
    return Rise.NONE


def check_coordinates(plan: Plan, optimum: Optimum) -> Found:
    """Findings on coordinates along which the objective does not fall by half a nat within one
    standard deviation: parameters whose likelihood rises for ever, as the logarithm of a rate of
    counts that are all 0; positive numbers that grow so, as the degrees of freedom where the tails
    are normal; parameters without information, as the transitions of a chain of one step.

    Cost: two values a coordinate, none for a logarithm that is known to a tenth, three more for
        each inert logarithm, some ten for each that is flat on one side.
    """
    owners = density.coordinate_names(plan)
    rounding = EQUAL_ROUNDINGS * np.finfo(optimum.point.dtype).eps * (1 + abs(optimum.value))
    logarithmic, positive = (domain_flags(plan, flag) for flag in ("logarithmic",
                                                                          "log_scale"))
    if not np.isfinite(optimum.value) or rounding > MIN_FALL:
        return (), None
    profiles, powers = Profiles(optimum, rounding), _scale_powers(plan)
    by_rise: dict[Rise, list[str]] = {rise: [] for rise in Rise}
    sure = _sure_logarithms(plan, optimum)
    for i, owner in enumerate(owners):
        if sure[i]:
            continue
        name = owner.partition("[")[0]
        rise = _rise(profiles, i, logarithmic[i], positive[i], powers.get(name, 0.0),
                     name in by_rise[Rise.DIVERGES])
        by_rise[rise].append(owner if rise is Rise.GROWS else name)
    findings = [Finding.of(Code.LIMIT, name) for name in by_rise[Rise.GROWS]]
    if by_rise[Rise.DIVERGES]:
        findings.append(separation_finding(list(dict.fromkeys(by_rise[Rise.DIVERGES]))))
    if by_rise[Rise.FLAT]:
        findings.append(Finding.of(Code.NO_INFORMATION,
                                   names=listed(list(dict.fromkeys(by_rise[Rise.FLAT])))))
    limit = Status.LIMIT if by_rise[Rise.GROWS] else None
    return tuple(findings), Status.DIVERGED if by_rise[Rise.DIVERGES] else limit


def describe_direction(loads: np.ndarray, diagonal: np.ndarray, owners: Sequence[str]) -> str:
    """A direction of unbounded coordinates: "'b' and 'a' change in the proportion +1 : -1".

    Args:
        loads: (d,). diagonal: (d,) curvatures of the coordinates, by which loads are compared.
        owners: names of the coordinates.
    """
    shares = _in_own_units(loads, diagonal)
    main = [i for i in np.argsort(-shares)[:4] if shares[i] > 0.05 * shares.max()]
    changes = " : ".join(f"{loads[i] / np.abs(loads).max():+.2g}" for i in main)
    names = listed((owners[i] for i in main), " and ")
    return f"{names} change in the proportion {changes}" if len(main) > 1 else f"{names} changes"


def domain_flags(plan: Plan, flag: str) -> np.ndarray:
    """A flag of the domain of each coordinate's parameter, (d,) bool: "logarithmic", a logarithm or
    a logit; "log_scale", the logarithm of a positive number."""
    sites = plan.structure.sites
    return repeat_per_coordinate(plan, lambda name: getattr(sites[name].domain, flag))


def repeat_per_coordinate(plan: Plan, function: Callable[[str], ArrayLike]) -> np.ndarray:
    """A function of the name of a parameter, repeated for each of its unbounded coordinates, (d,).
    """
    shapes = sorted(density.unbounded_shapes(plan).items())
    return np.concatenate([np.zeros(0, bool), *(np.full(math.prod(shape), function(name))
                                                for name, shape in shapes)])


# Separation.

# curvature at the end, relative to that at the start, of a direction in which parameters diverge
VANISHED_CURVATURE = 1e-6
# units of rounding that going as far again may cost where there is no maximum on the way
MAX_FALL_ROUNDINGS = 16
# curvature at the start, in the coordinates' own units, of a direction without any information
NO_CURVATURE = 1e-8


def find_separation(plan: Plan, hess0: np.ndarray, hess1: np.ndarray, shift: np.ndarray,
                    fall: Callable[[np.ndarray], float]) -> tuple[Finding, ...]:
    """A finding where parameters diverge: along directions whose curvature has vanished since the
    start, and in which going as far again costs nothing.

    The next Newton step would not show it: where curvatures differ by many orders of magnitude, it
    is rounding.

    Args:
        hess0, hess1: the Hessians at the start and the end, (d, d). shift: from start to end, (d,).
        fall: a further move from the end, (d,) → the loss of the objective, in units of rounding.
    """
    if not all(np.isfinite(array).all() for array in (hess0, hess1, shift)):
        return ()
    unit = 1 / np.sqrt(np.maximum(np.abs(np.diagonal(hess0)), np.finfo(hess0.dtype).tiny))
    scaled_start = hess0 * unit[:, None] * unit
    curvature, axes = np.linalg.eigh(scaled_start)
    informed = curvature > NO_CURVATURE * max(curvature.max(), 0.0)
    if not informed.any():
        return ()
    base = axes[:, informed] / np.sqrt(curvature[informed])  # curvature 1 at the start
    ratios, rotation = np.linalg.eigh(base.T @ (hess1 * unit[:, None] * unit) @ base)
    vanished = (base @ rotation)[:, ratios <= (VANISHED_CURVATURE if hess0.dtype == np.float64
                                               else 1e-4)]
    along = vanished.T @ scaled_start @ (shift / unit)
    direction = vanished @ along
    # moved by less than a standard deviation at the start: it does not diverge
    if np.linalg.norm(along) < 1 or not fall(unit * direction) <= MAX_FALL_ROUNDINGS:
        return ()
    names = _largest(density.coordinate_names(plan), np.abs(direction))
    # positive numbers that grow tend to a limit, see check_coordinates
    is_growth = all(plan.structure.sites[name].domain.log_scale for name in names)
    return () if is_growth else (separation_finding(names),)


def separation_finding(names: Sequence[str]) -> Finding:
    """The finding that the likelihood has no maximum in some parameters."""
    return Finding.of(Code.SEPARATION, names[0] if len(names) == 1 else "", names=listed(names))
