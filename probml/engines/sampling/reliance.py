"""Whether a normal, or independent blocks, in the place of a posterior is to be relied on: the
density itself is asked, at draws of them."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows, Summary
from probml.engines.engine import Problem
from probml.engines.findings import Code, Finding
from probml.engines.importance import densities_of
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

SLIGHT = 0.2  # standard deviations by which means may be off and nothing is said of them
# of independent blocks, of whose ratios a few draws tell no k for certain: √χ² beyond which it is
# said, if k is bad, or some number should be so many times as wide
UNEVEN, WIDER = 0.5, 1.25
EACH, FEWEST, MOST = 40, 200, 400  # draws a coordinate, and of all
WIDEST = 20_000  # coordinates
OUT = (30.0, 1000.0)  # standard deviations at which a density under a flat prior is asked
WAYS = 100  # coordinates along which the tails are looked at
# standard deviations from the centre; the nats that the density falls at least up to the first, or
# from there to the second, if its tails are not heavy: −log of what lies beyond, a power's growth
FAR, SHALLOW, SLOW = (5.0, 10.0), 6.0, 4.0
# of a guide: standard errors beyond which a difference is one, the slope of the bound in its mean,
# and the logarithm of a width, that are worth a word
SURE, SHORT, NARROW = 4.0, 0.5, 0.5
FEW, RISE = 20, 1.0  # steps of which a mean is one, and nats that a bound may rise unsaid
STREAM = 12  # of numbers, that no start has
ROUNDED = 0.1  # nats of rounding beyond which ratios tell of nothing else


def doubts(problem: Problem, normal: Normal, most: float = MOST,
           best: str = "") -> tuple[Finding, ...]:
    """Whether a normal is far from the posterior, by Pareto's k
    (posteriors/pareto.py) of the ratios of their densities and by the density far out, or from the
    normal that it was to become.

    Args:
        most: draws that are worth their time; nothing is said of fewer than FEWEST.
        best: what of it was to be the best of its kind, by the bound: its "mean", its "width" too,
            or "" where it was made otherwise.

    Cost: 40 evidences a coordinate, between 200 and 400, and four of each of 100 coordinates.
    """
    d = len(normal.loc)
    count = int(min(max(EACH * d, FEWEST), MOST, most))
    if not 0 < d <= WIDEST or count < FEWEST or problem.in_parts or problem.rows is None:
        return ()
    points, square, unit = _drawn(normal, count, problem.seed)
    ways, at = _ways(normal, problem.seed)
    loc = np.asarray(normal.loc, float)
    far = np.concatenate([loc[None], *(loc + side * step * ways for step in FAR
                                       for side in (1, -1))]).astype(points.dtype)
    found = densities_of(problem.plan, problem.known, problem.rows)(np.concatenate([points, far]))
    found, far = found[:count], found[count:]
    if not np.isfinite(found).any():
        return ()
    if 4 * np.finfo(points.dtype).eps * np.abs(found[np.isfinite(found)]).max() > ROUNDED:
        return ()
    owners = density.owners(problem.plan, problem.known)
    names = [owners[i] if i < len(owners) else "a number of a row" for i in range(d)]
    findings = unarrived(found, unit, names, best) if best else ()
    k = k_hat(found + 0.5 * square)
    if k > BAD and _bound_mean_error(found + 0.5 * square) > SLIGHT:
        return (*findings, Finding.of(Code.GUIDE_FAR, what="this normal distribution", k=k,
                                      worth=f", above {BAD}"))
    return (*findings, *tails(far, [names[i] for i in at]))


def doubts_of_blocks(problem: Problem, closed: Closed, most: float = MOST) -> Finding | None:
    """Whether independent blocks q(θ) are far from the posterior (None: they are not, also where
    there is but one block and nothing latent), by Pareto's k of the ratios of
    their densities in the parameters' own coordinates. Most often they are too narrow, as where
    parameters hang together.

    Args:
        most: draws that are worth their time; nothing is said of fewer than FEWEST.

    Cost: 40 evidences a number, between 200 and 400.
    """
    plan = problem.plan
    d = sum(int(np.prod(plan.structure.sites[name].shape)) for name in plan.free)
    count = int(min(max(EACH * d, FEWEST), MOST, most))
    if not 0 < d <= WIDEST or count < FEWEST or problem.in_parts or problem.rows is None:
        return None
    noise = Noise.of([plan.structure.sites[name].shape for name in plan.free], count, problem.seed,
                    STREAM)
    found, logs, points = (np.asarray(part, float) for part in _of_blocks(
        plan, closed, problem.known, problem.rows, noise))
    kept = np.isfinite(found) & np.isfinite(logs)
    if kept.sum() < FEWEST // 2:
        return None
    eps = np.finfo(np.asarray(next(iter(closed.mean.values()))).dtype).eps
    if 4 * eps * np.abs(found[kept]).max() > ROUNDED:
        return None
    ratios = np.where(kept, found - logs, -np.inf)
    k, moved = k_hat(ratios), _bound_mean_error(ratios)
    wider = _wider(ratios, points)
    if moved <= UNEVEN or (k <= BAD and wider <= WIDER):
        return None
    return Finding.of(Code.GUIDE_FAR, what="these independent blocks", k=k, worth=(
        f"; reweighted, its draws are worth {1 / (1 + moved**2):.0%} of their number"))


def _wider(ratios: np.ndarray, points: np.ndarray) -> float:
    """How many times as wide as its draws (S, d) the number is of which their ratios of densities
    say so most."""
    kept = np.isfinite(ratios)
    weights, points = np.exp(ratios[kept] - ratios[kept].max()), points[kept]
    weights /= weights.sum()
    spread = weights @ (points - weights @ points) ** 2
    own = points.var(0)
    return float(np.sqrt(np.max(np.where(own > 0, spread / np.where(own > 0, own, 1.0), 1.0))))


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


def tails(far: np.ndarray, names: Sequence[str]) -> tuple[Finding, ...]:
    """Whether the density hardly falls far out from a normal: draws of the
    normal do not come there, so that no ratio tells of it.

    Args:
        far: log densities at the centre, then FAR[0] standard deviations from it to one side in
            each way and to the other, then FAR[1]. names: of the ways.
    """
    falls = np.nan_to_num(far[0] - far[1:], nan=np.inf, posinf=np.inf).reshape(2, -1)
    with np.errstate(invalid="ignore"):
        heavy = (falls[0] < SHALLOW) & (falls[1] - falls[0] < SLOW)
    if not np.isfinite(far[0]) or not heavy.any():
        return ()
    worst = int(np.argmin(np.where(heavy, falls[0], np.inf)))
    low, high = FAR
    return (Finding.of(Code.TAILS, names[worst % len(names)], low=low, high=high,
                       first=falls[0, worst], second=falls[1, worst], normal_first=low**2 / 2,
                       normal_second=high**2 / 2),)


def unarrived(logs: np.ndarray, unit: np.ndarray, names: Sequence[str],
              best: str) -> tuple[Finding, ...]:
    """Whether a guide is not where its bound is highest: there the log density
    has on average no slope, E ∂ log p = 0, and the curvature that its own width calls for,
    E ∂² log p = −1 in units of it (Opper & Archambeau 2009, eq. 4 and 5).

    Both are coefficients of log p on z and (z² − 1) / 2 (Stein's lemma), by least squares.

    Args:
        logs: (S,) at draws. unit: (S, d) these draws, standard normal. names: of coordinates.
        best: "mean", or "width" for both.
    """
    kept = np.isfinite(logs)
    design = np.concatenate([np.ones((len(unit), 1)), unit, (unit**2 - 1) / 2], 1)[kept]
    spare = len(design) - design.shape[1]
    if spare < design.shape[1]:  # too few draws for so many coordinates
        return ()
    root, inner = np.linalg.qr(design)
    found = np.linalg.solve(inner, root.T @ logs[kept])
    left = logs[kept] - design @ found
    inverse = np.linalg.inv(inner)
    error = np.sqrt((inverse**2).sum(1) * (left**2).sum() / spare)
    slope, bend = np.split(found[1:], 2)
    doubt, wide = np.split(error[1:], 2)
    off = np.where(np.abs(slope) > SURE * doubt, np.abs(slope), 0.0)
    ratio = np.where((np.abs(bend + 1) > SURE * wide) & (best == "width"), -bend, 1.0)
    ratio = 1 / np.sqrt(np.clip(ratio, 0.01, 100.0))  # the best width, in units of the guide's
    j, i = int(np.argmax(np.abs(np.log(ratio)))), int(np.argmax(off))
    said = []
    if off[i] > SHORT:
        said.append(f"its bound still rises by {off[i]:.2g} for each standard deviation by which "
                    f"the mean of '{names[i]}' moves")
    if np.abs(np.log(ratio[j])) > NARROW:
        said.append(f"the standard deviation of '{names[j]}' should be about {ratio[j]:.2g} times "
                    f"as large")
    return (Finding.of(Code.GUIDE_NOT_CONVERGED, problem=", and ".join(said)),) if said else ()


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


def _ways(normal: Normal, seed: int) -> tuple[np.ndarray, list[int]]:
    """One standard deviation of a coordinate and what the normal then expects of the others, (ways,
    d), and which coordinates: all, or some by chance."""
    loc, scale, factor = (np.asarray(part, float) for part in normal)
    at = np.random.default_rng([seed, 11]).permutation(len(loc))[:WAYS]
    spread = factor[at] @ factor.T
    spread[np.arange(len(at)), at] += scale[at] ** 2
    own = np.sqrt(spread[np.arange(len(at)), at])[:, None]
    return spread / np.where(own > 0, own, 1.0), [int(i) for i in at]


def _drawn(normal: Normal, count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws u of a normal, (count, d), (u − μ)ᵀ Σ⁻¹ (u − μ) of each, and the same draws in units of
    the normal: of its factor where that is all, else of each coordinate."""
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
    wholly = not scale.any() and factor.shape[0] == factor.shape[1]
    deviation = np.sqrt(scale**2 + (factor**2).sum(1))
    unit = shared if wholly else away / np.where(deviation > 0, deviation, 1.0)
    return (loc + away).astype(np.asarray(normal.loc).dtype), square, unit


@functools.partial(jit, static_argnums=0, seldom=ONCE)
def _of_blocks(plan: Plan, closed: Closed, known: Known, rows: Rows | Summary,
               noise: Noise) -> tuple[jax.Array, jax.Array, jax.Array]:
    """log p(data, θ) and log q(θ) at draws θ ~ q, one after another, and the draws, (count, d).

    Of numbers made on the host, as starts are: the exact draws took longer to compile than all
    else of the look, and the ratios are judged far more coarsely than the others are off."""
    marginals = Marginals(plan, known, blocks(plan, True), closed)

    def evaluate_draw(noise: Noise):
        source = Source(noise)
        params = marginals.drawn(lambda _, posterior: draw(posterior, source, ()),
                                 lambda _, shape, dtype: source.normal(shape).astype(dtype))
        return (log_evidence(plan, params, known, rows) + log_prior(plan, params, known),
                marginals.log_density(params),
                jnp.concatenate([params[name].reshape(-1) for name in plan.free]))

    return jax.lax.map(evaluate_draw, noise)
