"""Whether an approximation of the posterior, a normal distribution or independent blocks, is
reliable: it is compared with the density itself, at its draws."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows, Summary
from probml.engines.engine import Problem
from probml.engines.findings import Code, Finding
from probml.engines.importance import densities_of, heavy_tail, max_mean_error
from probml.engines.start.prior import Noise, Source, draw
from probml.errors import Refusal
from probml.evidence import density
from probml.evidence.e_step import log_evidence
from probml.factors.naturals import log_prior
from probml.numerics.compiling import ONCE, jit
from probml.numerics.optimum import hides_differences
from probml.plan.plan import Plan
from probml.posteriors.closed import Closed
from probml.posteriors.conjugate import Marginals
from probml.posteriors.pareto import BAD, k_hat
from probml.posteriors.posterior import Normal

# An approximation is far from the posterior if the bound on the error of a mean (√χ², in standard
# deviations) is above MAX_ERROR and Pareto's k is bad, a reweighted mean is so far away, or a
# standard deviation differs by the factor MAX_RATIO.
MAX_ERROR, MAX_RATIO = 0.5, 1.25
DRAWS_PER_COORDINATE, MIN_DRAWS, MAX_DRAWS = 40, 200, 400
MAX_COORDINATES = 20_000
FAR_OUT = (30.0, 1000.0)  # standard deviations at which a density under a flat prior is evaluated
MAX_STANDARD_ERRORS = 4.0  # by which a noisy bound may rise
MIN_STEPS, MAX_RISE = 20, 1.0  # of a mean of bounds; the rise of a bound that is not reported
STREAM = 12  # of random numbers, different from those of starts


def check_normal_approximation(problem: Problem, normal: Normal,
                               max_draws: float = MAX_DRAWS) -> tuple[Finding, ...]:
    """Findings on a normal distribution that is far from the posterior, by the ratios of their
    densities at its draws, and by the density in the tails, which no draw reaches.

    Args:
        max_draws: draws that are worth their time; fewer than MIN_DRAWS give no finding.

    Cost: 40 evidences a coordinate, between 200 and 400, and eight for each of 50 coordinates.
    """
    count = _draws_worth(problem, len(normal.loc), max_draws)
    if not count:
        return ()
    densities = densities_of(problem.plan, problem.known, problem.rows)
    points, log_q = _draws_and_logs(normal, count, problem.seed)
    finding = _far_finding(densities(points), log_q, points,
                           "the normal distribution that approximates it")
    worst, power_law = heavy_tail(densities, [normal], problem.seed)
    if worst >= 0 and (power_law or finding is None):
        owners = density.coordinate_names(problem.plan)
        name = owners[worst] if worst < len(owners) else problem.plan.sampled[0]
        return tuple(filter(None, (
            finding, Finding.of(Code.HEAVY_TAIL if power_law else Code.WIDER, name))))
    return () if finding is None else (finding,)


def check_block_approximation(problem: Problem, closed: Closed,
                              max_draws: float = MAX_DRAWS) -> Finding | None:
    """The finding that independent blocks q(θ), in the parameters' own coordinates, are far from
    the posterior; None: they are not. Usually they are too narrow, as for correlated parameters.

    Cost: 40 evidences a number, between 200 and 400.
    """
    plan = problem.plan
    shapes = [plan.structure.sites[name].shape for name in plan.free]
    count = _draws_worth(problem, sum(map(math.prod, shapes)), max_draws)
    if not count:
        return None
    log_p, log_q, points = (np.asarray(part) for part in _densities_of_blocks(
        plan, closed, problem.known, problem.rows, Noise.of(shapes, count, problem.seed, STREAM)))
    return _far_finding(log_p, log_q, points,
                        "the variational approximation, which has independent blocks "
                                     "of parameters")


def _draws_worth(problem: Problem, d: int, max_draws: float) -> int:
    """The number of draws of d coordinates at which densities are compared; 0: none."""
    count = int(min(max(DRAWS_PER_COORDINATE * d, MIN_DRAWS), MAX_DRAWS, max_draws))
    is_compared = (0 < d <= MAX_COORDINATES and count >= MIN_DRAWS and not problem.in_parts
                   and problem.rows is not None)
    return count if is_compared else 0


def _far_finding(log_p: np.ndarray, log_q: np.ndarray, points: np.ndarray,
                 what: str) -> Finding | None:
    """A finding if an approximation is far from a density, by Pareto's k of their ratios.

    Args:
        log_p, log_q: (S,) log densities of the posterior and of the approximation, up to constants,
            at draws of the latter, `points` (S, d).
    """
    finite = np.isfinite(log_p) & np.isfinite(log_q)
    if finite.sum() < MIN_DRAWS // 2 or hides_differences(np.abs(log_p[finite]).max(initial=0.0)):
        return None
    ratios = np.full(len(log_p), -np.inf)
    ratios[finite] = log_p[finite].astype(float) - log_q[finite]
    weights = np.exp(ratios - ratios.max())
    weights /= weights.sum()
    k, error = k_hat(ratios), max_mean_error(weights)
    if error <= MAX_ERROR or k <= BAD and not _moves_moments(weights[finite], points[finite]):
        return None
    return Finding.of(Code.GUIDE_FAR, what=what, k=k, worth=(
        f"; the effective sample size of importance-weighted draws is {1 / (1 + error**2):.0%} of "
        f"their number"))


def _moves_moments(weights: np.ndarray, points: np.ndarray) -> bool:
    """Whether weights of sum 1 change a mean or a standard deviation of draws (S, d) by much."""
    points = points.astype(float)
    mean, sds = weights @ points, np.maximum(points.std(0), np.finfo(float).tiny)
    shift = np.abs(mean - points.mean(0)) / sds
    ratio = np.sqrt(weights @ (points - mean) ** 2) / sds
    return bool((shift > MAX_ERROR).any() or (ratio > MAX_RATIO).any()
                or (ratio < 1 / MAX_RATIO).any())


def rising_finding(history: np.ndarray) -> tuple[Finding, ...]:
    """A finding if noisy bounds still rise: in the last fifth of the steps, compared with the fifth
    before.

    Args:
        history: (steps,) the bound of each.
    """
    fifth = len(history) // 5
    if fifth < MIN_STEPS or not np.isfinite(history[-2 * fifth:]).all():
        return ()
    last, before = history[-fifth:], history[-2 * fifth:-fifth]
    gain = last.mean() - before.mean()
    if gain <= max(MAX_RISE, MAX_STANDARD_ERRORS * np.sqrt((last.var() + before.var()) / fifth)):
        return ()
    return (Finding.of(Code.GUIDE_NOT_CONVERGED, problem=(
        f"the bound (ELBO) still rose by {gain:.2g} from the fourth to the last fifth of the "
        f"steps")),)


def improper_refusal(engine: str, problem: Problem, why: Finding) -> Refusal:
    """The refusal of an engine to fit an improper posterior, which `improper` found."""
    return Refusal(f"{engine} cannot fit {problem}: {why.problem}. Use a proper prior (one that "
                   f"integrates to 1), such as dist.Normal(0, 10)")


def improper(problem: Problem, known: Known, normal: Normal) -> Finding | None:
    """A finding if a posterior is improper along a parameter with a flat prior: far out it must
    fall faster than one over the distance, which it does not if classes are separated.

    Args:
        known: of the coordinates of the normal.
    """
    plan = problem.plan
    flat = {name for name in plan.free if plan.structure.sites[name].entry.improper}
    if not flat or problem.in_parts:
        return None
    owners = density.coordinate_names(plan)
    axes = [i for i, owner in enumerate(owners) if owner.partition("[")[0] in flat]
    loc, scale, factor = (np.asarray(part, float) for part in normal)
    deviation = np.sqrt(scale**2 + (factor**2).sum(1))[: len(owners)]
    directions = np.zeros((len(axes), len(loc)))
    directions[np.arange(len(axes)), axes] = deviation[axes]
    jointly = np.zeros(len(loc))
    jointly[axes] = loc[axes]  # diverging parameters have gone some way already
    directions = np.concatenate([directions, -directions, jointly[None]])[:MAX_DRAWS // 2]
    points = loc + np.concatenate([step * directions for step in FAR_OUT])
    near, far = np.split(densities_of(plan, known, problem.rows)(points), 2)
    min_fall = np.log(FAR_OUT[1] / FAR_OUT[0])  # of one over the distance
    slow = np.isfinite(near) & np.isfinite(far) & (near - far < min_fall) & (directions != 0).any(1)
    if not slow.any():
        return None
    worst = int(np.flatnonzero(slow)[0])
    name = owners[axes[worst % len(axes)]] if worst < 2 * len(axes) else ", ".join(sorted(flat))
    return Finding.of(Code.IMPROPER, name, fall=near[worst] - far[worst], near=FAR_OUT[0],
                      far=FAR_OUT[1])


def _draws_and_logs(normal: Normal, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws u of a normal, (count, d), and −½ (u − μ)ᵀ Σ⁻¹ (u − μ) of each."""
    random = np.random.default_rng([seed, 7])
    loc, scale, factor = (np.asarray(part, float) for part in normal)
    independent = random.standard_normal((count, len(loc)))
    shared = random.standard_normal((count, factor.shape[1]))
    deviations = independent * scale + shared @ factor.T
    if not scale.any():  # a root of the covariance alone
        square = (shared**2).sum(1)
    else:  # Woodbury's identity
        loadings, scaled = factor / scale[:, None], deviations / scale
        inner = np.eye(factor.shape[1]) + loadings.T @ loadings
        projected = scaled @ loadings
        square = (scaled**2).sum(1) - (projected * np.linalg.solve(inner, projected.T).T).sum(1)
    return (loc + deviations).astype(np.asarray(normal.loc).dtype), -0.5 * square


@jit(static_argnums=0, seldom=ONCE)
def _densities_of_blocks(plan: Plan, closed: Closed, known: Known, rows: Rows | Summary,
               noise: Noise) -> tuple[jax.Array, jax.Array, jax.Array]:
    """log p(data, θ) and log q(θ) at draws θ ~ q, one after another, and the draws, (count, d).

    Draws are approximate, from numbers made on the host, as starts are: exact draws took longer to
    compile than all else here, and their error does not matter for these ratios."""
    marginals = Marginals(plan, known, closed)

    def evaluate_draw(noise: Noise):
        source = Source(noise)
        params = marginals.drawn(lambda _, posterior: draw(posterior, source, ()),
                                 lambda _, shape, dtype: source.normal(shape).astype(dtype))
        return (log_evidence(plan, params, known, rows) + log_prior(plan, params, known),
                marginals.log_density(params),
                jnp.concatenate([params[name].reshape(-1) for name in plan.free]))

    return jax.lax.map(evaluate_draw, noise)
