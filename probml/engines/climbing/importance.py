"""Whether a posterior is about the normal at its mode: draws of a Student t there, weighed by the
posterior's density (importance sampling), with Pareto's k of the weights.

One measure for every shape of model. A density that has its mass elsewhere (a random walk beside
its own step, effects beside their spread, a narrow peak on a hill) has weights without a variance,
k > 0.7 (Vehtari, Simpson, Gelman, Yao & Gabry 2024); where k is small, the weighted draws have the
posterior's means, which tell how far from them a mode is. Draws come in pairs, one on either side
of the mode, so that what is symmetric is not moved. Tails that no draw reaches, of a power such as
Cauchy's, are looked at along each coordinate.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known
from probml.engines.climbing.coordinates import flat
from probml.engines.climbing.refinement import framed
from probml.engines.climbing.top import Top, standing
from probml.engines.engine import Outcome, Problem, Status
from probml.evidence import density
from probml.factors.prior import log_prior
from probml.numerics.compiling import jit
from probml.numerics.curvature import Evaluate
from probml.numerics.tiers import ONCE
from probml.numerics.transfer import placed, placed_all
from probml.plan.plan import Plan
from probml.plan.straight import straight
from probml.posteriors.drawn import constrained
from probml.posteriors.pareto import k_hat, k_limit, smoothed

DRAWS = (400, 1600)  # the second where k of the first leaves open which side of its limit it is on
OPEN = (0.4, 1.2)
DEGREES = 7.0  # of freedom; half as many as coordinates, if those are more
MOST = 512  # coordinates whose curvature is taken here
WORK = 2**26  # numbers of the data that all evaluations together may meet
SAMPLED = 2**14  # numbers of the data up to which thousands of gradients are affordable
EACH = 16  # rows for each coordinate, beyond which a mode by steps is near its mean: of a noise
# beside p coefficients of n rows the mean is p / √(2 n) deviations away, p those of a component
CALM, ARM = 0.5, np.sqrt(3.0)  # standard deviations that a first look may find; widths it looks at
FAR = 0.6  # standard deviations between the mode and the mean, that are worth a word
# widths at which tails are looked at; nats by which a density with a variance falls in between
OUT, HEAVY, WAYS = (10.0, 20.0), 2.2, 50
BEYOND = (100.0, 1000.0)  # widths between which that of a power goes on
NAMED = 3  # parameters
ROUNDED = 0.1  # nats of rounding beyond which weights tell nothing


class Measured(NamedTuple):
    """A posterior, measured at weighted draws about its mode.

    Attributes:
        k: Pareto's k of the weights; ∞ where the mode has no curvature to draw by.
        away: (d,) means of the coordinates less the end of the climb, in standard deviations.
        heavy: the coordinate with the heaviest tail that is none of a normal's; −1: there is none.
        power: that tail is a power's, however far out.
        draws, weights: (S, d), (S,) the weights smoothed, of sum 1.
    """

    k: float
    away: np.ndarray
    heavy: int
    power: bool
    draws: np.ndarray
    weights: np.ndarray

    @property
    def normal(self) -> bool:
        """Whether the weighted draws stand for the posterior."""
        return self.k <= k_limit(len(self.weights)) and self.heavy < 0


def measured(top: Top, seed: int = 0) -> Measured:
    """The posterior about the end of a climb.

    Args:
        top: that end in the density of the unbounded coordinates, as `of_coordinates` has it.

    Cost: 4 d gradients and more for the mode and its curvature; 400 densities, or 2,000, and 8 d.
    """
    found = framed(top.evaluate, top.u)
    d = len(top.u)
    if not (found.told and np.isfinite(found.promise)):
        return Measured(np.inf, np.zeros(d), -1, False, np.zeros((0, d)), np.zeros(0))
    mode, root = np.asarray(found.u, float), np.asarray(found.root, float)
    random = np.random.default_rng([seed, 17])
    for count in DRAWS:
        k, draws, weights = _weighted(top, mode, root, count, random)
        if not OPEN[0] < k < OPEN[1]:
            break
    mean = weights @ draws
    deviation = np.sqrt(weights @ (draws - mean) ** 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        away = np.nan_to_num((mean - top.u) / deviation, posinf=np.inf, neginf=-np.inf)
    return Measured(k, away, *_heavy(top, mode, root, random), draws, weights)


def _weighted(top: Top, mode: np.ndarray, root: np.ndarray, count: int,
              random: np.random.Generator) -> tuple[float, np.ndarray, np.ndarray]:
    """Pareto's k of the weights of so many draws, the draws and the weights."""
    d = len(mode)
    degrees = max(DEGREES, d / 2)
    z = random.standard_normal((count // 2, d)) * np.sqrt(
        degrees / random.chisquare(degrees, count // 2))[:, None]
    z = np.concatenate([z, -z])
    draws = mode + z @ root.T
    heights = np.array([top.height_at(u.astype(top.u.dtype)) for u in draws])
    logs = heights + 0.5 * (degrees + d) * np.log1p((z**2).sum(1) / degrees)
    logs = np.where(np.isfinite(logs), logs, -np.inf)
    if not np.isfinite(logs).any():
        return np.inf, draws, np.full(len(z), 1 / len(z))
    return k_hat(logs), draws, smoothed(logs)


def _heavy(top: Top, mode: np.ndarray, root: np.ndarray,
           random: np.random.Generator) -> tuple[int, bool]:
    """The coordinate along which the density falls least far out, if that is as a power does, and
    whether it goes on so: with the others where a normal has them given it, or at the mode."""
    at = random.permutation(len(mode))[:WAYS]
    spread = root[at] @ root.T
    width = np.sqrt(np.take_along_axis(spread, at[:, None], 1))
    ways = np.concatenate([spread / width, width * np.eye(len(mode))[at]])
    ways = np.concatenate([ways, -ways])

    def falls(ways: np.ndarray, between: tuple[float, float]) -> np.ndarray:
        near, far = (np.array([top.height_at((mode + step * way).astype(top.u.dtype))
                               for way in ways]) for step in between)
        with np.errstate(invalid="ignore"):
            return np.where(np.isfinite(far), near - far, np.inf)

    found = falls(ways, OUT)
    least = int(np.argmin(found))
    if not found[least] < HEAVY:
        return -1, False
    on = falls(ways[least : least + 1], BEYOND)[0]
    return int(at[least % len(at)]), bool(on < HEAVY * np.log2(BEYOND[1] / BEYOND[0]))


def calm(top: Top) -> bool:
    """Whether a first look finds the means next to the mode, as of a density that many rows tell:
    one step of Newton's to where the slope is zero on average of ±√3 widths, the first term of the
    expansion in third derivatives (Tierney & Kadane 1986). Arguments as of `measured`.

    Cost: 2 d gradients, and d + 1 where nobody looked at the end before.
    """
    if top.whiten is None:
        return False
    found = [top.evaluate(top.u + side * ARM * way) for way in top.whiten for side in (1, -1)]
    falls = top.height - np.array([height for height, _ in found])  # of a normal 1.5
    slopes = np.array([slope for _, slope in found])
    with np.errstate(invalid="ignore", over="ignore"):
        uphill = -top.slope - (slopes.sum(0) - len(slopes) * top.slope) / (2.0 * ARM**2)
        step = top.whiten @ uphill
        away = top.whiten.T @ step / np.sqrt((top.whiten**2).sum(0))
    return bool(np.isfinite(away).all() and np.abs(away).max() <= CALM
                and falls.min() > 0.5 and falls.max() < 4.5)


def of_coordinates(top: Top, volume: Evaluate) -> Top:
    """The same end in the density of the unbounded coordinates.

    Args:
        top: the end of a climb of the parameters' own density.
        volume: (d,) → what turns that into the density of the coordinates, and the gradient of its
            negative. It passes over no rows, and its second derivatives are differences.
    """
    def both(u: np.ndarray) -> tuple[float, np.ndarray]:
        u = u.astype(top.u.dtype)
        (height, slope), (more, turn) = top.evaluate(u), volume(u)
        return height + more, np.asarray(slope, float) + turn

    if top.looked is None:
        return Top.of(both, top.u)
    steps, here = np.finfo(top.u.dtype).eps ** (1 / 3) * (1 + np.abs(top.u)), volume(top.u)[1]
    bent = np.array([(volume((top.u + way).astype(top.u.dtype))[1] - here) / way.sum()
                     for way in np.diag(steps)], float)
    return Top.of(both, top.u, top.looked + 0.5 * (bent + bent.T))


def beside(problem: Problem, outcome: Outcome, top: Callable[[], Top]) -> Outcome:
    """An outcome, with what its posterior's measure says of it: that the mode is far from the mean,
    or that it is no answer, for which the ladder's next engine is to be asked (Outcome.onward). Of
    the default alone: who asks for a mode is given one.

    Args:
        top: the end of the climb, once it is wanted.
    """
    plan, known = problem.plan, problem.known
    size = density.size(plan, known)
    sites = [plan.structure.sites[name] for name in (*plan.rowwise, *plan.free)]
    if (problem.asked or outcome.status is not Status.CONVERGED or plan.carried or not size
        or problem.in_parts or any(site.entry.kinked for site in sites)
        or outcome.notes and (plan.groupings or plan.latents)):
        return outcome
    dense, many = straight(plan), problem.size > EACH * size
    numbers = sum(np.size(leaf) for leaf in jax.tree.leaves((problem.rows, known)))
    work = numbers * (size if dense else 1) + size
    if size > MOST or (8 * size + DRAWS[0]) * work > WORK:
        return outcome if many else _said(outcome, (
            f"its posterior was not measured: {size} parameters beside {numbers} numbers would "
            f"take longer than the fit. A mode of so many need not be near the posterior mean"))
    end = of_coordinates(top(), lambda u: _volume(plan, u, known))
    rounding = 4 * np.finfo(end.u.dtype).eps * abs(end.height)
    # where no prior has a parameter of its own, many rows make a posterior normal
    alone = not any(set(plan.structure.sites[name].parents) & set(plan.free) for name in plan.free)
    if not rounding <= ROUNDED or many and (dense or alone) and calm(end):
        return outcome
    found = measured(end, problem.seed)
    if found.normal:
        far = (np.abs(found.away) > FAR).any()
        return _said(outcome, _means(plan, known, outcome.params, found)) if far else outcome
    why = _unlike(density.owners(plan, known), found)
    held = getattr(getattr(plan.structure.model, "generative", None), "params", {})
    # where all priors are flat the maximum of the likelihood is asked for; nothing else need exist
    flat_prior = all(plan.structure.sites[name].entry.improper for name in plan.free)
    sampled = work <= SAMPLED and held.keys().isdisjoint(plan.free) and not flat_prior
    return _said(outcome, f"{why}. Compare with NUTS()")._replace(
        onward=why if sampled else "")


def beside_steps(problem: Problem, outcome: Outcome) -> Outcome:
    """`beside` of a point that no climb of the density found, as of EM: what its notes say of
    starts is no doubt of it."""
    plan, known = problem.plan, problem.known
    if problem.size is None or problem.size > EACH * density.size(plan, known):
        return outcome

    def top() -> Top:
        u = np.asarray(flat(plan, placed_all(dict(outcome.params)), known))
        return standing(plan, True, u, known, problem.rows)

    found = beside(problem, outcome._replace(notes=()), top)
    return found._replace(notes=(*outcome.notes, *found.notes), onward="")


def _said(outcome: Outcome, note: str) -> Outcome:
    return outcome._replace(notes=(*outcome.notes, note))


def _unlike(owners: list[str], found: Measured) -> str:
    if found.heavy >= 0 and not found.power:
        return (f"the posterior of '{owners[found.heavy]}' is far wider than the normal "
                f"distribution at its mode, as with further modes beside it")
    if found.heavy >= 0:
        return (f"the posterior of '{owners[found.heavy]}' has a heavy tail, as a Cauchy "
                f"distribution has: its mean and standard deviation need not exist. Ask for its "
                f"median and quantiles, or give it a prior with lighter tails")
    if not len(found.weights):
        return ("the posterior has no width at its mode: the curvature there is not positive in "
                "every direction, so that the mode says little of it")
    return (f"the posterior is far from the normal distribution at its mode (Pareto k-hat "
            f"{found.k:.1f} of importance weights, above {k_limit(len(found.weights)):.1f}): the "
            f"joint mode may be far from the posterior means")


def _means(plan: Plan, known: Known, params: Mapping, found: Measured) -> str:
    """That the mode is far from the mean, with the means of single numbers as far as they exist."""
    draws = jax.device_get(constrained(plan, known, jnp.asarray(found.draws,
                                                                jnp.result_type(float))))
    worst: dict[str, float] = {}
    for owner, away in zip(density.owners(plan, known), np.abs(found.away), strict=True):
        name = owner.partition("[")[0]
        worst[name] = max(worst.get(name, 0.0), float(away))
    names = [name for name in sorted(worst, key=lambda name: -worst[name]) if worst[name] > FAR]

    def numbers(name: str) -> str:
        value = np.asarray(draws[name], float)
        if value.size != len(found.weights):
            return ""
        there = value.reshape(-1)
        with np.errstate(divide="ignore"):
            k = k_hat(np.log(found.weights) + np.log(np.abs(there - float(params[name]))))
        if k > k_limit(len(there)):  # of this number there may be no mean
            return ""
        return f" ({float(params[name]):.3g} here, there about {found.weights @ there:.3g})"

    told = [f"'{name}'{numbers(name)}" for name in names[:NAMED]]
    rest = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    which = (f"the mean of {told[0]} is" if len(names) == 1 else
             f"the means of {', '.join(told)}{rest} are up to")
    return (f"the mode is not the posterior mean: {which} {worst[names[0]]:.1f} standard "
            f"deviations away (importance weights, Pareto k-hat {max(found.k, 0.0):.1f}). For "
            f"means and intervals use NUTS()")


def _volume(plan: Plan, u: np.ndarray, known: Known) -> tuple[float, np.ndarray]:
    value, slope = _volumes(plan, placed(u), known)
    return float(value), -np.asarray(slope)


def _volumes(plan: Plan, u: jax.Array, known: Known):
    """What makes the density that is climbed that of the coordinates: log |∂ parameters / ∂ u|, and
    of priors that are maximised in others (a Gamma of shape below 1) what is in them already."""
    def total(u):
        params, volume = density.unflat(plan, u, known)
        more = log_prior(plan, params, known) - log_prior(plan, params, known, mode=True)
        return jnp.asarray(volume + more, u.dtype)

    return jax.value_and_grad(total)(u)


_volumes = jit(_volumes, static_argnums=0, seldom=ONCE)
