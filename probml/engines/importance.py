"""A posterior by importance sampling: draws of Student t distributions at the modes of its density,
weighted by that density, and the test of whether they represent it.

The test is the same for every model. If the density has its mass elsewhere (a random walk and its
step size, effects and their standard deviation, a narrow peak on a hill), the weights have no
variance: Pareto's k of their tail is above 0.7 (Vehtari, Simpson, Gelman, Yao & Gabry 2024). If k
is small, the weighted draws have the posterior's means, standard deviations and evidence. If it is
not, the proposal is moved to the weighted mean and covariance, and all draws so far are weighted by
the mixture of their proposals (Cornuet, Marin, Mira & Robert 2012; Paananen, Piironen, Bürkner &
Vehtari 2021). Tails that no draw reaches, as of a Cauchy distribution, are evaluated along each
coordinate.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.device.rows import Known, Rows, Summary
from probml.engines.start.race import systematic_sample
from probml.errors import present
from probml.evidence import density
from probml.evidence.random_effects import member_evidences
from probml.numerics.compiling import ONCE, jit
from probml.numerics.curvature import FLAT_CURVATURE, whitened
from probml.plan.plan import Plan
from probml.posteriors.pareto import k_hat, k_limit, k_of_variance, smoothed
from probml.posteriors.posterior import Normal
from probml.typing import PyTree

DEGREES = 4.0  # of freedom of the Student t; half as many as coordinates, if those are more
MAX_ROUNDS = 3  # of moving the proposal
MIN_EFFECTIVE = 200  # effective sample size
MAX_SD_ERROR = 0.08  # relative standard error of the standard deviation of a parameter
# Pareto's k up to which errors of S weighted draws fall as 1/√S, beyond it as S^(k − 1); effective
# sample size at this slower rate
SQUARE_ROOT_K, MIN_EFFECTIVE_BY_K = 0.5, 100
MAX_NORMAL_RANGE = 1e-2  # of differences of log densities, within which a density is normal
MAX_MEAN_ERROR = 0.3  # standard deviations, if there are too few draws for Pareto's k
# draws that are compared first; they are all if their error is so many times smaller
FIRST_DRAWS, CLEAR = 32, 1.5
# Densities of a device call at least, and at most; numbers that are used at once; densities of rows
# that are computed at once, if more than MIN_BATCH points: such arrays fit in a processor's cache.
MIN_BATCH, MAX_BATCH, BATCH_NUMBERS, CACHED_NUMBERS = 128, 1024, 2**18, 2**15
# standard deviations at which tails are evaluated; the least fall of the log density in between;
# coordinates that are examined
TAIL, MIN_TAIL_FALL, MAX_DIRECTIONS = (10.0, 20.0), 2.2, 50
FAR_TAIL = (100.0, 1000.0)  # standard deviations between which a power law goes on
# fall of the log density one standard deviation away, below which the curvature is not the width
MIN_FALL, MAX_DOUBLINGS = 0.25, 24
# optimisations to which densities with effects of groups amount: each searches their mode
EFFECT_LOOPS = 32
MAX_WORK = 2**25  # numbers of the data that the densities of a round of draws use together
PADDED_WORK = 2**29  # numbers that are used in less time than a program takes to compile

Densities = Callable[[np.ndarray], np.ndarray]  # points (n, d) → log densities (n,)
Values = Callable[[np.ndarray], np.ndarray]  # points (n, d) → parameters (n, p)


class Component(NamedTuple):
    """A proposal: one of the distributions that draws are made from."""

    centre: np.ndarray  # (d,)
    root: np.ndarray  # (d, d) of its covariance, but for the factor of a Student t
    degrees: float  # of freedom; ∞: normal
    mass: float = 1.0  # of the posterior about it, relative to that about others

    def draw(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Antithetic draws (count, d): in pairs on either side of the centre."""
        n_pairs = (count + 1) // 2
        z = random.standard_normal((n_pairs, len(self.centre)))
        if np.isfinite(self.degrees):
            z *= np.sqrt(self.degrees / random.chisquare(self.degrees, n_pairs))[:, None]
        return self.centre + np.concatenate([z, -z])[:count] @ self.root.T

    def log_density(self, points: np.ndarray) -> np.ndarray:
        """The normalised log density (n,) at points (n, d)."""
        d = len(self.centre)
        square = (np.linalg.solve(self.root, (points - self.centre).T) ** 2).sum(0)
        log_det = np.linalg.slogdet(self.root)[1]
        if not np.isfinite(self.degrees):
            return -0.5 * square - 0.5 * d * np.log(2 * np.pi) - log_det
        v = self.degrees
        constant = math.lgamma((v + d) / 2) - math.lgamma(v / 2) - 0.5 * d * np.log(v * np.pi)
        return constant - log_det - 0.5 * (v + d) * np.log1p(square / v)


class Weighted(NamedTuple):
    """Draws with weights.

    Attributes:
        points, weights: (S, d) and (S,), smoothed, of sum 1.
        k: Pareto's k of the weights; −∞ if they are equal.
        log_evidence, error: log of the integral of the density, and its standard error.
        normal: the density is so near the normal distribution at its mode that this is the answer.
        variance_k: the largest Pareto's k of the squared deviations of a parameter.
        unreliable_entry: index of the parameter whose standard deviation is least reliable; −1:
            none is unreliable.
    """

    points: np.ndarray
    weights: np.ndarray
    k: float
    log_evidence: float
    error: float
    normal: bool = False
    variance_k: float = 0.0
    unreliable_entry: int = -1

    @property
    def effective(self) -> float:
        """The effective sample size."""
        return 1.0 / float(np.sum(self.weights**2))

    @property
    def effective_by_k(self) -> float:
        """The effective sample size if the weights have no variance: errors fall more slowly."""
        return self.effective / float(_error_factor(self.k, len(self.weights))) ** 2

    @property
    def reliable(self) -> bool:
        """Whether the weighted draws represent the posterior."""
        return (self.k <= k_limit(len(self.weights)) and self.effective >= MIN_EFFECTIVE
                and self.effective_by_k >= MIN_EFFECTIVE_BY_K and self.unreliable_entry < 0)

    @property
    def mean(self) -> np.ndarray:
        return self.weights @ self.points

    def resampled(self, count: int, seed: int) -> np.ndarray:
        """Points (count, d) drawn by their weights: systematic resampling, in random order."""
        random = np.random.default_rng([seed, 18])
        return self.points[random.permutation(systematic_sample(self.weights, count, random)[0])]


def proposal(centre: np.ndarray, root: np.ndarray) -> Component:
    """The Student t distribution about a mode; `root` (d, d) is a root of its inverse Hessian."""
    return Component(np.asarray(centre, float), np.asarray(root, float),
                     max(DEGREES, len(centre) / 2))


def sample_adaptively(densities: Densities, modes: Sequence[Component], count: int, seed: int = 0,
                      values: Values = np.asarray) -> Weighted:
    """Weighted draws of a posterior; proposals are moved until the weights pass, and so do those of
    every parameter's variance.

    Args:
        modes: the first proposals, one for each mode. count: draws of each round. values: points
            (n, d) → parameters in their own coordinates (n, p).

    Cost: `count` densities a round, at most 1 + MAX_ROUNDS.
    """
    random = np.random.default_rng([seed, 17])
    components: list[Component] = []
    sizes: list[int] = []
    points, logp, params = np.zeros((0, len(modes[0].centre))), np.zeros(0), []
    pairs = np.zeros(0, int)
    proposals, best = list(modes), None
    for _ in range(1 + MAX_ROUNDS):
        counts = _draw_counts(proposals, count)
        draws = np.concatenate([c.draw(n, random) for c, n in zip(proposals, counts, strict=True)])
        pairs = np.concatenate([pairs, *(len(points) + sum(counts[:i]) + _pairs(n)
                                         for i, n in enumerate(counts))])
        components, sizes = components + proposals, sizes + counts
        points = np.concatenate([points, draws])
        logp = np.concatenate([logp, densities(draws)])
        params.append(values(draws))
        log_parts = np.stack([np.log(n / len(points)) + c.log_density(points)
                              for c, n in zip(components, sizes, strict=True)])
        mixture = np.logaddexp.reduce(log_parts, axis=0)
        sample = _with_variance_check(_weigh(points, logp - mixture, pairs), np.concatenate(params))
        if len(modes) == 1 and len(components) == 1:
            difference = logp - modes[0]._replace(degrees=np.inf).log_density(points)
            sample = sample._replace(normal=bool(np.ptp(difference) < MAX_NORMAL_RANGE))
        if best is None or sample.k < best.k or sample.reliable or sample.unreliable_entry < 0:
            best = sample
        if sample.reliable or sample.effective < 2:
            break
        shares = sample.weights * np.exp(log_parts[-len(proposals):] - np.logaddexp.reduce(
            log_parts[-len(proposals):], axis=0))
        # where only squared deviations are not determined, more draws far out determine them
        widen = sample.unreliable_entry >= 0 and sample.k <= k_limit(len(points))
        degrees = 0.5 if widen else 1.0
        proposals = [_refit_component(old._replace(degrees=degrees * old.degrees), points, share)
                     for old, share in zip(proposals, shares, strict=True)]
    return present(best)


def sample_with_tail_check(densities: Densities, modes: Sequence[Component], count: int, seed: int,
                           values: Values) -> tuple[Weighted, int, bool, Component]:
    """Weighted draws, the coordinate with a heavy tail and whether that goes on (`heavy_tail`), and
    the first proposal. If they do not pass, once more with proposals as wide as the density.

    Args:
        modes, count, seed, values: of `sample_adaptively`.
    """
    def test(modes: Sequence[Component]) -> tuple[Weighted, int, bool, Component]:
        return (sample_adaptively(densities, modes, count, seed, values),
                *heavy_tail(densities, [Normal(mode.centre, np.zeros(len(mode.centre)), mode.root)
                                        for mode in modes], seed), modes[0])

    result = test(modes)
    if result[0].reliable and result[1] < 0:
        return result
    wider = [_with_own_widths(densities, mode) for mode in modes]
    return result if all(new is old for new, old in zip(wider, modes, strict=True)) else test(wider)


def _with_own_widths(densities: Densities, mode: Component) -> Component:
    """The proposal with conditional standard deviations at which the log density falls by about ½,
    as that of a normal distribution does; itself if the curvature says so of all. At a kink, as of
    a Laplace prior at 0, the curvature is that of the kink, and says nothing about the width.

    Cost: two densities a coordinate, and two for each doubling of a width.
    """
    sds = np.sqrt((mode.root**2).sum(1))
    scaled = np.linalg.pinv(mode.root / sds[:, None])
    precision = (scaled.T @ scaled) / sds[:, None] / sds
    step = 1 / np.sqrt(np.diagonal(precision))
    active, diagonal = np.arange(len(step)), np.diagonal(precision).copy()
    peak = densities(mode.centre[None])[0]
    for doubling in range(MAX_DOUBLINGS):
        offsets = np.eye(len(step))[active] * step[active, None]
        log_values = densities(np.concatenate([mode.centre + offsets, mode.centre - offsets]))
        with np.errstate(invalid="ignore"):
            fall = peak - log_values.reshape(2, -1).mean(0)
        fall = np.where(np.isfinite(fall), fall, np.inf)
        if doubling:
            diagonal[active] = 2 * fall.clip(0, 1) / step[active]**2
        active = active[fall < (0.5 if doubling else MIN_FALL)]
        if not active.size:
            break
        step[active] *= 2
    if active.size or (diagonal == np.diagonal(precision)).all():
        return mode  # flat, or the curvature is right
    np.fill_diagonal(precision, diagonal)
    root = whitened(precision, FLAT_CURVATURE)
    return mode if root is None else mode._replace(root=root.T)


def max_mean_error(weights: np.ndarray) -> float:
    """An upper bound on the error of a mean in standard deviations, √χ², from weights (S,) of sum 1
    of draws: the ratios of two densities.

    |E_p z − E_q z| ≤ sd_q(z) √(S Σ w² − 1), by Cauchy and Schwarz. Pareto's k shows how heavy the
    tail of the ratios is, not how far it reaches: for the logarithm of a standard deviation it is
    0.4 to 0.9 for 50 rows and for 5,000, when all ratios are within a few hundredths of 1.
    """
    return math.sqrt(max(len(weights) * float(np.sum(weights**2)) - 1.0, 0.0))


def nearly_normal(densities: Densities, mode: Component, count: int, seed: int = 0) -> Weighted:
    """A few weighted draws of the normal distribution at a mode, where each costs a pass over many
    rows: enough to compare the densities (max_mean_error), not their tails. The first of them are
    all where they agree CLEAR times as well as is needed.

    Args:
        count: draws at most, made in batches of a power of two.
    """
    normal, random = mode._replace(degrees=np.inf), np.random.default_rng([seed, 17])
    size = min(FIRST_DRAWS, 1 << (count.bit_length() - 1))
    points, logs, pairs = np.zeros((0, len(mode.centre))), np.zeros(0), np.zeros(0, int)
    while True:
        draws = normal.draw(size, random)
        logs = np.append(logs, densities(draws) - normal.log_density(draws))
        pairs = np.append(pairs, len(points) + _pairs(size))
        points = np.concatenate([points, draws])
        sample = _weigh(points, logs, pairs)._replace(normal=True)
        if (len(points) + size > count
                or CLEAR * max_mean_error(sample.weights) <= MAX_MEAN_ERROR):
            return sample


def _draw_counts(components: Sequence[Component], count: int) -> list[int]:
    """How many of `count` draws each component makes: a third of them equally, a third by its mass,
    a third by the largest share that it has in the variance of a coordinate."""
    mass, centres = (np.array(array) for array in zip(*((c.mass, c.centre) for c in components),
                                                      strict=True))
    mass = mass / mass.sum()
    squares = (centres - mass @ centres) ** 2 + [(c.root**2).sum(1) for c in components]
    spread = mass[:, None] * squares
    max_share = (spread / spread.sum(0)).max(1)
    edges = np.cumsum(1 / len(mass) + mass + max_share / max_share.sum()) * count / 3
    return np.diff(np.ceil(edges - 1e-6), prepend=0).astype(int).tolist()


def _pairs(count: int) -> np.ndarray:
    """The place of the first draw of its pair, for each of so many draws of a component."""
    return np.arange(count) % ((count + 1) // 2)


def _weigh(points: np.ndarray, log_weights: np.ndarray, pairs: np.ndarray) -> Weighted:
    """Points with smoothed weights, given the logarithms of the weights.

    Args:
        pairs: the place (n,) of the first draw of its pair, for each draw. The weights of a pair
            may be equal, so that only pairs are independent.
    """
    log_weights = np.where(np.isfinite(log_weights), log_weights, -np.inf)
    if not np.isfinite(log_weights).any():
        uniform = np.full(len(points), 1 / len(points))
        return Weighted(points, uniform, np.inf, -np.inf, np.inf)
    weights, max_log = smoothed(log_weights), log_weights.max()
    log_mean = float(max_log + np.log(np.mean(np.exp(log_weights - max_log))))
    excess = np.bincount(pairs, weights) - np.bincount(pairs) / len(points)
    k = k_hat(log_weights)
    error = float(np.linalg.norm(excess) * _error_factor(k, len(points)))
    return Weighted(points, weights, k, log_mean, error)


def _with_variance_check(sample: Weighted, values: np.ndarray) -> Weighted:
    """With the parameter whose standard deviation the weighted draws determine least, if its
    standard error or Pareto's k of (x − mean)², by which that error falls, is too large."""
    positive = sample.weights > 0  # far out in the tail a parameter may be infinite, with weight 0
    w, values = sample.weights[positive], values[positive]
    with np.errstate(all="ignore"):
        squares = (values - w @ values) ** 2
        variance = w @ squares
        error = np.sqrt(w**2 @ (squares - variance) ** 2) / (2 * variance)
    k = k_of_variance(values, w)
    error *= _error_factor(k, len(sample.weights))
    is_poor = (k > k_limit(len(sample.weights))) | (error > MAX_SD_ERROR)
    worst = int(np.argmax(np.where(is_poor, k, -np.inf))) if is_poor.any() else -1
    return sample._replace(variance_k=float(k.max(initial=-np.inf)), unreliable_entry=worst)


def _error_factor(k: np.ndarray | float, count: int) -> ArrayLike:
    """The factor by which errors of so many draws are larger than with weights of finite variance.
    """
    return count ** np.maximum(k - SQUARE_ROOT_K, 0.0)


def _refit_component(old: Component, points: np.ndarray, weights: np.ndarray) -> Component:
    """The component with the mean and covariance of weighted points, shrunk towards its former
    covariance where the effective sample size is small."""
    total = weights.sum()
    if not total > 0:
        return old
    weights = weights / total
    mean = weights @ points
    deviations = (points - mean) * np.sqrt(weights)[:, None]
    effective, d = 1 / np.sum(weights**2), len(mean)
    old_cov = old.root @ old.root.T
    covariance = (effective * (deviations.T @ deviations) + d * old_cov) / (effective + d)
    sds = np.sqrt(np.diagonal(covariance))
    try:
        return old._replace(centre=mean, root=sds[:, None] * np.linalg.cholesky(
            covariance / sds[:, None] / sds))
    except np.linalg.LinAlgError:
        return old._replace(centre=mean)


def heavy_tail(densities: Densities, normals: Sequence[Normal], seed: int = 0) -> tuple[int, bool]:
    """The coordinate along which the density falls least in the tail, if it falls as slowly as a
    power law, −1 otherwise; and whether it goes on so farther out. Along each coordinate, from the
    centre of the normal distribution that is widest along it, the others are at their conditional
    means in this distribution, and then at its centre.

    Cost: eight densities a coordinate, of at most MAX_DIRECTIONS.
    """
    parts = [tuple(np.asarray(part, float) for part in normal) for normal in normals]
    size = len(parts[0][0])
    axes = np.random.default_rng([seed, 19]).permutation(size)[:MAX_DIRECTIONS]
    widths = np.stack([np.sqrt(scale**2 + (factor**2).sum(1)) for _, scale, factor in parts])
    widest = [parts[i] for i in widths.argmax(0)[axes]]
    is_own = np.arange(size) == axes[:, None]
    spread = np.stack([factor[i] @ factor.T + is_own[n] * scale**2
                       for n, (i, (_, scale, factor)) in enumerate(zip(axes, widest, strict=True))])
    width = widths.max(0)[axes, None]
    offsets = np.concatenate([spread / width, width * is_own])
    offsets = np.concatenate([offsets, -offsets])
    centre = np.tile(np.stack([centre for centre, _, _ in widest]), (4, 1))

    def falls(offsets: np.ndarray, centre: np.ndarray, between: tuple[float, float]) -> np.ndarray:
        values = densities(np.concatenate([centre + step * offsets for step in between]))
        near, far = values.reshape(2, -1)
        with np.errstate(invalid="ignore"):
            return np.where(np.isfinite(far), near - far, np.inf)

    drops = falls(offsets, centre, TAIL)
    least = int(np.argmin(drops))
    if not drops[least] < MIN_TAIL_FALL:
        return -1, False
    fall = falls(offsets[least : least + 1], centre[least], FAR_TAIL)[0]
    return int(axes[least % len(axes)]), bool(fall < MIN_TAIL_FALL
                                              * np.log2(FAR_TAIL[1] / FAR_TAIL[0]))


def numbers(known: Known, rows: Rows | Summary) -> int:
    """The numbers of the data that a density uses."""
    return sum(np.size(leaf) for leaf in jax.tree.leaves((rows, known)))


def work(plan: Plan, known: Known, rows: Rows | Summary) -> int:
    """The same, times the number of combinations of hidden states."""
    return numbers(known, rows) * max(plan.work, 1)


def with_member_levels(plan: Plan, known: Known, rows: Rows | Summary,
                       u: np.ndarray) -> tuple[Known, float]:
    """What rows share, such that log densities are those of the members of a grouping less what
    they are at a point u (d,), and their sum there: of very many rows rounding hides differences of
    the log densities, but not those of each member. Unchanged where effects are not integrated out
    by nodes."""
    if not plan.groupings or plan.groupings[0].nodes <= 1 or isinstance(rows, Summary):
        return known, 0.0
    levels = _member_evidences(plan, u.astype(jnp.result_type(float)), known, rows)
    return known._replace(reference=levels), float(np.asarray(levels, float).sum())


@jit(static_argnums=0)
def _member_evidences(plan: Plan, u: jax.Array, known: Known, rows: Rows) -> jax.Array:
    return member_evidences(plan, density.from_unbounded(plan, u, known)[0], known, rows.total)


def densities_of(plan: Plan, known: Known, rows: Rows | Summary) -> Densities:
    """The log posterior density of unbounded coordinates at many points, in batches by one compiled
    program, in which the products of rows and points are matrix products."""
    per_point = max(rows.size * (plan.table_entries + plan.width), 1)
    # a power of two: a program with a remainder is two
    max_batch = max(1, min(MAX_BATCH, max(MIN_BATCH, CACHED_NUMBERS // max(rows.size, 1)),
                     BATCH_NUMBERS // per_point))
    batch_size = 1 if rows.joint else 1 << (max_batch.bit_length() - 1)
    has_effects = plan.groupings and plan.groupings[0].nodes
    program, loops = (_grouped_densities, EFFECT_LOOPS) if has_effects else (_densities, 1)
    # one program for many and for few points, where padding costs less than compiling
    padded = batch_size > 1 and loops * MIN_BATCH * work(plan, known, rows) <= PADDED_WORK

    def densities(points: np.ndarray) -> np.ndarray:
        size = max(batch_size, MIN_BATCH if padded else min(
            MIN_BATCH, 1 << max(len(points) - 1, 0).bit_length()))
        return np.asarray(in_batches(
            lambda points, _: program(plan, points, known, rows, batch_size),
            points.astype(jnp.result_type(float)), size), float)

    return densities


def in_batches(program: Callable, points: PyTree, size: int) -> PyTree:
    """The results of a program for many points, arrays that begin with an axis of these, on the
    host. Its calls take `size` points, the last one filled up by the last point: one program,
    between whose calls Ctrl-C works.

    Args:
        program: (some of the points, their numbers) → results, with the same first axis.
    """
    count, parts = len(jax.tree.leaves(points)[0]), []
    for low in range(0, count, size):
        at = np.arange(low, low + size).clip(max=count - 1)
        found = jax.device_get(program(jax.tree.map(lambda leaf, at=at: leaf[at], points), at))
        parts.append(jax.tree.map(lambda leaf, low=low: leaf[: count - low], found))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def _log_densities(plan: Plan, points: jax.Array, known: Known, rows: Rows | Summary,
                   batch_size: int) -> jax.Array:
    value = density.for_loop(density.log_posterior_value(plan, known, rows), rows, points[0])
    return jax.lax.map(value, points, batch_size=batch_size)


_densities, _grouped_densities = (
    jit(_log_densities, static_argnums=(0, 4), seldom=ONCE, on_host=True, loops=loops)
    for loops in (1, EFFECT_LOOPS))
