"""Whether a normal, or independent blocks, in the place of a posterior is to be relied on: the
density itself is asked, at draws of them."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows, Summary
from probml.engines.engine import Problem
from probml.engines.findings import Code, Finding
from probml.engines.importance import densities_of, heavy_tail
from probml.engines.start.draws import Noise, Source, draw
from probml.evidence import density
from probml.evidence.passes import log_evidence
from probml.factors.prior import log_prior
from probml.numerics.compile_effort import ONCE
from probml.numerics.compiling import jit
from probml.plan.blocks import blocks
from probml.plan.plan import Plan
from probml.posteriors.closed import Closed
from probml.posteriors.conjugate import Marginals
from probml.posteriors.drawn import Normal
from probml.posteriors.pareto import BAD, k_hat

# of ratios of densities of which a few draws tell no k for certain: √χ² beyond which they are said
# to differ, if k is bad, or the mean of some number should be so many standard deviations away, or
# its width so many times as large or as small
UNEVEN, WIDER = 0.5, 1.25
EACH, FEWEST, MOST = 40, 200, 400  # draws a coordinate, and of all
WIDEST = 20_000  # coordinates
OUT = (30.0, 1000.0)  # standard deviations at which a density under a flat prior is asked
SURE = 4.0  # standard errors beyond which a bound is said to rise
FEW, RISE = 20, 1.0  # steps of which a mean is one, and nats that a bound may rise unsaid
STREAM = 12  # of numbers, that no start has
ROUNDED = 0.1  # nats of rounding beyond which ratios tell of nothing else


def doubts(problem: Problem, normal: Normal, most: float = MOST) -> tuple[Finding, ...]:
    """Whether a normal is far from the posterior, by the ratios of their densities at draws of it,
    and by the density far out, where no draw comes.

    Args:
        most: draws that are worth their time; nothing is said of fewer than FEWEST.

    Cost: 40 evidences a coordinate, between 200 and 400, and eight of each of 50 coordinates.
    """
    count = _draws_worth(problem, len(normal.loc), most)
    if not count:
        return ()
    densities = densities_of(problem.plan, problem.known, problem.rows)
    points, logs = _drawn(normal, count, problem.seed)
    found = _far(densities(points), logs, points, "this normal distribution")
    worst, power = heavy_tail(densities, normal, problem.seed)
    if worst >= 0 and (power or found is None):
        owners = density.owners(problem.plan, problem.known)
        name = owners[worst] if worst < len(owners) else problem.plan.carried[0]
        return tuple(filter(None, (
            found, Finding.of(Code.HEAVY_TAIL if power else Code.WIDER, name))))
    return () if found is None else (found,)


def doubts_of_blocks(problem: Problem, closed: Closed, most: float = MOST) -> Finding | None:
    """The same of independent blocks q(θ), in the parameters' own coordinates; None: they are not
    far, also where there is but one block and nothing latent. Most often they are too narrow, as
    where parameters are correlated.

    Cost: 40 evidences a number, between 200 and 400.
    """
    plan = problem.plan
    shapes = [plan.structure.sites[name].shape for name in plan.free]
    count = _draws_worth(problem, sum(map(math.prod, shapes)), most)
    if not count:
        return None
    found, logs, points = (np.asarray(part) for part in _of_blocks(
        plan, closed, problem.known, problem.rows, Noise.of(shapes, count, problem.seed, STREAM)))
    return _far(found, logs, points, "these independent blocks")


def _draws_worth(problem: Problem, d: int, most: float) -> int:
    """How many draws of d numbers are looked at; 0: none."""
    count = int(min(max(EACH * d, FEWEST), MOST, most))
    some = 0 < d <= WIDEST and count >= FEWEST and not problem.in_parts and problem.rows is not None
    return count if some else 0


def _far(found: np.ndarray, logs: np.ndarray, points: np.ndarray, what: str) -> Finding | None:
    """Whether a density is far from an approximation, by Pareto's k of the ratios of both.

    Args:
        found, logs: (S,) the logarithms of the density and of the approximation, but for constants,
            at draws of it, `points` (S, d).
    """
    kept = np.isfinite(found) & np.isfinite(logs)
    rounding = 4 * np.finfo(points.dtype).eps * np.abs(found[kept]).max(initial=0.0)
    if kept.sum() < FEWEST // 2 or rounding > ROUNDED:
        return None
    ratios = np.where(kept, found.astype(float) - logs, -np.inf)
    k, moved = k_hat(ratios), _bound_mean_error(ratios)
    if moved <= UNEVEN or k <= BAD and not _differs(ratios, points):
        return None
    return Finding.of(Code.GUIDE_FAR, what=what, k=k, worth=(
        f"; reweighted, its draws are worth {1 / (1 + moved**2):.0%} of their number"))


def _differs(ratios: np.ndarray, points: np.ndarray) -> bool:
    """Whether ratios of densities at draws (S, d) say that the mean of a number lies elsewhere, or
    that it is wider or narrower than its draws."""
    kept = np.isfinite(ratios)
    weights, points = np.exp(ratios[kept] - ratios[kept].max()), points[kept].astype(float)
    weights /= weights.sum()
    mean, own = weights @ points, np.maximum(points.std(0), np.finfo(float).tiny)
    away = np.abs(mean - points.mean(0)) / own
    ratio = np.sqrt(weights @ (points - mean) ** 2) / own
    return bool((away > UNEVEN).any() or (ratio > WIDER).any() or (ratio < 1 / WIDER).any())


def _bound_mean_error(ratios: np.ndarray) -> float:
    """Standard deviations by which a mean can be off at the most, √χ², of logarithms of ratios of
    densities at draws.

    |E_p z − E_q z| ≤ sd_q(z) √(Σ w² S / (Σ w)² − 1), by Cauchy and Schwarz. k tells how thick the
    tail of the ratios is and not how far it reaches: of a normal's logarithm of a spread it is 0.4
    to 0.9 for 50 rows and for 5,000, when all ratios are within a few hundredths of 1.
    """
    weights = np.exp(np.nan_to_num(ratios - np.max(ratios, where=np.isfinite(ratios),
                                                   initial=-np.inf), nan=-np.inf))
    return float(np.sqrt(max(np.mean(weights**2) / np.mean(weights) ** 2 - 1.0, 0.0)))


def rising(history: np.ndarray) -> tuple[Finding, ...]:
    """Whether noisy bounds still rise: those of the last fifth of the steps, compared with the
    fifth before.

    Args:
        history: (steps,) the bound of each.
    """
    fifth = len(history) // 5
    if fifth < FEW or not np.isfinite(history[-2 * fifth:]).all():
        return ()
    last, before = history[-fifth:], history[-2 * fifth:-fifth]
    gain = last.mean() - before.mean()
    if gain <= max(RISE, SURE * np.sqrt((last.var() + before.var()) / fifth)):
        return ()
    return (Finding.of(Code.GUIDE_NOT_CONVERGED, problem=(
        f"its bound rose by {gain:.2g} from the last but one fifth of the steps to the last")),)


def improper(problem: Problem, known: Known, normal: Normal) -> Finding | None:
    """That a posterior has no integral along a parameter of a flat prior: far out from the normal
    it must fall faster than one over the distance, which it does not where classes are separated.
    None: it falls.

    Args:
        known: of the coordinates of the normal.
    """
    plan = problem.plan
    flat = {name for name in plan.free if plan.structure.sites[name].entry.improper}
    if not flat or problem.in_parts:
        return None
    owners = density.owners(plan, known)
    at = [i for i, owner in enumerate(owners) if owner.partition("[")[0] in flat]
    loc, scale, factor = (np.asarray(part, float) for part in normal)
    deviation = np.sqrt(scale**2 + (factor**2).sum(1))[: len(owners)]
    ways = np.zeros((len(at), len(loc)))
    ways[np.arange(len(at)), at] = deviation[at]
    together = np.zeros(len(loc))
    together[at] = loc[at]  # what runs away has run some way already
    ways = np.concatenate([ways, -ways, together[None]])[:MOST // 2]
    points = loc + np.concatenate([step * ways for step in OUT])
    near, far = np.split(densities_of(plan, known, problem.rows)(points), 2)
    least = np.log(OUT[1] / OUT[0])  # where it falls as one over the distance
    slow = np.isfinite(near) & np.isfinite(far) & (near - far < least) & (ways != 0).any(1)
    if not slow.any():
        return None
    worst = int(np.flatnonzero(slow)[0])
    name = owners[at[worst % len(at)]] if worst < 2 * len(at) else ", ".join(sorted(flat))
    return Finding.of(Code.IMPROPER, name, fall=near[worst] - far[worst], near=OUT[0], far=OUT[1])


def _drawn(normal: Normal, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws u of a normal, (count, d), and −½ (u − μ)ᵀ Σ⁻¹ (u − μ) of each."""
    random = np.random.default_rng([seed, 7])
    loc, scale, factor = (np.asarray(part, float) for part in normal)
    own = random.standard_normal((count, len(loc)))
    shared = random.standard_normal((count, factor.shape[1]))
    away = own * scale + shared @ factor.T
    if not scale.any():  # a root of the covariance alone
        square = (shared**2).sum(1)
    else:  # Woodbury's identity
        wide, own_unit = factor / scale[:, None], away / scale
        inner = np.eye(factor.shape[1]) + wide.T @ wide
        told = own_unit @ wide
        square = (own_unit**2).sum(1) - (told * np.linalg.solve(inner, told.T).T).sum(1)
    return (loc + away).astype(np.asarray(normal.loc).dtype), -0.5 * square


@functools.partial(jit, static_argnums=0, seldom=ONCE)
def _of_blocks(plan: Plan, closed: Closed, known: Known, rows: Rows | Summary,
               noise: Noise) -> tuple[jax.Array, jax.Array, jax.Array]:
    """log p(data, θ) and log q(θ) at draws θ ~ q, one after another, and the draws, (count, d).

    Of numbers made on the host, as starts are: the exact draws took longer to compile than all
    else of the look, and the ratios are judged far more coarsely than the others are off."""
    marginals = Marginals(plan, known, blocks(plan, True), closed)

    def evaluate_draw(noise):
        source = Source(noise)
        params = marginals.drawn(lambda _, posterior: draw(posterior, source, ()),
                                 lambda _, shape, dtype: source.normal(shape).astype(dtype))
        return (log_evidence(plan, params, known, rows) + log_prior(plan, params, known),
                marginals.log_density(params),
                jnp.concatenate([params[name].reshape(-1) for name in plan.free]))

    return jax.lax.map(evaluate_draw, noise)
