"""Whether a normal in the place of a posterior is to be relied on: the density itself is asked, at
draws of the normal."""

import functools

import jax
import numpy as np

from probml.device.rows import Known, Rows, Summary
from probml.engines.engine import Problem
from probml.errors import Refusal
from probml.evidence import density
from probml.numerics.compiling import jit
from probml.plan.plan import Plan
from probml.posteriors.drawn import Normal
from probml.posteriors.pareto import k_hat

BAD = 0.7  # k above which a normal does not stand for the posterior
EACH, FEWEST, MOST = 40, 200, 400  # draws a coordinate, and of all
WIDEST = 20_000  # coordinates
OUT = (30.0, 1000.0)  # standard deviations at which a density under a flat prior is asked
ROUNDED = 0.1  # nats of rounding beyond which ratios tell of nothing else


def doubts(problem: Problem, normal: Normal, most: float = MOST) -> tuple[str, ...]:
    """What is to be said of a normal: nothing, or that it is far from the posterior, by Pareto's k
    (posteriors/pareto.py) of the ratios of their densities.

    Args:
        most: draws that are worth their time; nothing is said of fewer than FEWEST.

    Cost: 40 evidences a coordinate, between 200 and 400.
    """
    d = len(normal.loc)
    count = int(min(max(EACH * d, FEWEST), MOST, most))
    if not 0 < d <= WIDEST or count < FEWEST or problem.in_parts or problem.rows is None:
        return ()
    points, square = _drawn(normal, count, problem.seed)
    found = np.asarray(_densities(problem.plan, points, problem.known, problem.rows))
    if not np.isfinite(found).any():
        return ()
    if 4 * np.finfo(found.dtype).eps * np.abs(found[np.isfinite(found)]).max() > ROUNDED:
        return ()
    k = k_hat(found + 0.5 * square)
    if k <= BAD:
        return ()
    return (f"not to be relied on: the posterior has more in its tails than this normal (PSIS "
            f"k-hat {k:.1f}, above {BAD}): means and intervals may be wrong. Compare with NUTS()",)


def check_proper(problem: Problem, normal: Normal, engine: str) -> None:
    """Refuse a posterior that has no integral along a parameter of a flat prior: far out from the
    normal it must fall faster than one over the distance.

    Raises:
        Refusal: it does not, as where classes are separated.
    """
    plan, known = problem.plan, problem.known
    flat = {name for name in plan.free if plan.structure.sites[name].entry.improper}
    if not flat or problem.in_parts:
        return
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
    found = np.asarray(_densities(plan, points.astype(np.asarray(normal.loc).dtype), known,
                                  problem.rows), float)
    near, far = np.split(found, 2)
    least = np.log(OUT[1] / OUT[0])  # where it falls as one over the distance
    slow = np.isfinite(near) & np.isfinite(far) & (near - far < least) & (ways != 0).any(1)
    if slow.any():
        worst = int(np.flatnonzero(slow)[0])
        name = owners[at[worst % len(at)]] if worst < 2 * len(at) else ", ".join(sorted(flat))
        raise Refusal(
            f"{engine} cannot fit {problem}: its posterior is improper: along '{name}', whose "
            f"prior is flat (ImproperUniform), the density falls by "
            f"{near[worst] - far[worst]:.2g} nats from {OUT[0]:g} to {OUT[1]:g} standard "
            f"deviations away, as where it rises for ever (classes that are separated). Give it a "
            f"proper prior, such as dist.Normal(0, 10)"
        )


def _drawn(normal: Normal, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws u of a normal, (count, d), and (u − μ)ᵀ Σ⁻¹ (u − μ) of each."""
    random = np.random.default_rng([seed, 7])
    loc, scale, factor = (np.asarray(part, float) for part in normal)
    own = random.standard_normal((count, len(loc)))
    shared = random.standard_normal((count, factor.shape[1]))
    away = own * scale + shared @ factor.T
    if not scale.any():  # a root of the covariance alone
        square = (shared**2).sum(1)
    else:  # Woodbury's identity
        wide, unit = factor / scale[:, None], away / scale
        inner = np.eye(factor.shape[1]) + wide.T @ wide
        told = unit @ wide
        square = (unit**2).sum(1) - (told * np.linalg.solve(inner, told.T).T).sum(1)
    return (loc + away).astype(np.asarray(normal.loc).dtype), square


@functools.partial(jit, static_argnums=0)
def _densities(plan: Plan, points: jax.Array, known: Known, rows: Rows | Summary) -> jax.Array:
    """The log posterior density of unbounded coordinates, up to a constant, one after another."""
    both = density.posterior(plan, known, rows)
    return jax.lax.map(lambda u: both(u)[0], points)
