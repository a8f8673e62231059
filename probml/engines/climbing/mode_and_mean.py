"""How far a mode is from what is typical: the mean of each unbounded coordinate beside it, in
standard deviations.

The noise of a few rows beside its coefficients is the plain case: its mode leaves out what the
coefficients take (n in the place of n − p). So is any density that falls faster on one side. With g
the log density of the coordinates, v its mode and (R Rᵀ)⁻¹ = −∇²g(v), the mean is one step of
Newton's from v to where the slope, averaged over a normal of that width, is zero,

    E[u] ≈ v + R Rᵀ Σ_k {∇g(v + a R_k) + ∇g(v − a R_k) − 2 ∇g(v)} / (2 a²),   a = √3,

the first term of the expansion in third derivatives (Tierney & Kadane 1986) taken over the width
that matters. Further steps go too far: of a noise beside p coefficients of n rows one step finds
the shift within a fifth, down to n = 2 p. Of a positive number the coordinate is its logarithm.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known
from probml.engines.climbing.coordinates import flat, unflat
from probml.engines.climbing.refinement import framed
from probml.engines.climbing.top import Top, standing
from probml.engines.engine import Outcome, Problem, Status
from probml.evidence import density
from probml.factors.prior import log_prior
from probml.numerics.compiling import jit
from probml.numerics.curvature import Evaluate
from probml.numerics.tiers import ONCE
from probml.numerics.transfer import placed_all
from probml.plan.plan import Plan

FEW = 32  # coordinates, and rows times coordinates, up to which an end is looked at
WORK = 2**14
EACH = 16  # rows for each coordinate, beyond which a mode by steps is near its mean: of a noise
# beside p coefficients of n rows the mean is p / √(2 n) deviations away, p those of a component
CALM = 0.5  # standard deviations that a first look may find, where no second one is taken
FAR = 0.6  # standard deviations between the mode and the mean, that are worth a word
WILD = 4.0  # beyond which a step says no more than that it is none
ARMS = np.sqrt(3.0), 1.0  # a; the second where the density is too bent for the first
OUT, PEAK = 5.0, 1.0  # widths along which a normal falls by 12.5 nats, Cauchy's by 2.6; a peak less
NAMED = 3  # parameters


class Typical(NamedTuple):
    """What is typical beside a mode.

    Attributes:
        u: (d,) the means of the coordinates, about. away: (d,) these less the mode, in standard
            deviations.
        peak: the coordinate along which the mode is a peak beside which there is more, so that the
            others tell nothing; −1: it is none.
    """

    u: np.ndarray
    away: np.ndarray
    peak: int = -1


def typical(top: Top) -> Typical | None:
    """The means of unbounded coordinates beside the mode of the parameters; None where the density
    has no curvature to go by.

    Args:
        top: that mode in the density of the coordinates, as `of_coordinates` has it.

    Cost: some 20 d gradients.
    """
    found = framed(top.evaluate, top.u)
    if not (found.told and np.isfinite(found.promise)):
        return None
    mean, root = np.asarray(found.u, float), np.asarray(found.root, float)
    widths = np.sqrt((root**2).sum(1))
    falls = _falls(top, mean, root)
    if falls.min() < PEAK:
        return Typical(mean, 0.0 * mean, int(np.abs(root[:, falls.argmin()]).argmax()))
    for arm in ARMS:
        step = root.T @ _averaged(top.evaluate(mean)[1], _arms(top, mean, root.T, arm)[1], arm)
        if np.isfinite(step).all() and np.abs(step).max() <= WILD:
            there = mean + root @ step
            return Typical(there, (there - top.u) / widths)
    return None


def calm(top: Top) -> bool:
    """Whether a first look finds the means next to the mode, by the same step taken from the end
    itself: as of a density that many rows tell. Arguments as of `typical`.

    Cost: 2 d gradients, and d + 1 where nobody looked at the end before.
    """
    if top.whiten is None:
        return False
    heights, slopes = _arms(top, top.u, top.whiten, ARMS[0])
    falls = top.height - heights  # of a normal 1.5
    step = top.whiten @ _averaged(top.slope, slopes, ARMS[0])
    with np.errstate(invalid="ignore", over="ignore"):
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


def _arms(top: Top, at: np.ndarray, ways: np.ndarray,
          arm: float) -> tuple[np.ndarray, np.ndarray]:
    """Heights (2 k,) and slopes (2 k, d) so far to either side along each way (k, d)."""
    found = [top.evaluate(at + side * arm * way) for way in ways for side in (1, -1)]
    return np.array([height for height, _ in found]), np.array([slope for _, slope in found])


def _averaged(slope: np.ndarray, slopes: np.ndarray, arm: float) -> np.ndarray:
    """Uphill, averaged over a normal, from the slope of the negative at its middle, (d,), and
    there."""
    with np.errstate(invalid="ignore", over="ignore"):
        return -slope - (slopes.sum(0) - len(slopes) * slope) / (2.0 * arm**2)


def _falls(top: Top, mode: np.ndarray, root: np.ndarray) -> np.ndarray:
    """How far the density falls along each width, on the side where it falls less."""
    ends = _arms(top, mode, root.T, OUT)[0].reshape(-1, 2)
    return top.height_at(mode) - np.where(np.isfinite(ends), ends, -np.inf).max(1)


def beside(problem: Problem, outcome: Outcome, top: Callable[[], Top]) -> Outcome:
    """An outcome, with a word where numbers of its point are far from what is typical of them. Of
    the default alone: who asks for a mode is given one.

    Args:
        top: the end of the climb, once it is wanted.
    """
    plan, known = problem.plan, problem.known
    size = density.size(plan, known)
    sites = (plan.structure.sites[name] for name in (*plan.rowwise, *plan.free))
    if (problem.asked or outcome.status is not Status.CONVERGED or outcome.notes or plan.carried
        or problem.in_parts or not 0 < size <= FEW or problem.size * size > WORK
        or any(site.entry.kinked for site in sites)):
        return outcome
    end = of_coordinates(top(), lambda u: _volume(plan, u, known))
    if calm(end):
        return outcome
    found = typical(end)
    if found is not None and found.peak >= 0:
        return outcome._replace(notes=(*outcome.notes, (
            f"a mode on a narrow peak: along '{density.owners(plan, known)[found.peak]}' the "
            f"density falls far less than its curvature there tells, so that most of what is "
            f"typical lies elsewhere. Compare with NUTS()")))
    if found is None or (np.abs(found.away) <= FAR).all():
        return outcome
    return outcome._replace(notes=(*outcome.notes, _words(plan, known, outcome.params, found)))


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
    return found._replace(notes=(*outcome.notes, *found.notes))


def _words(plan: Plan, known: Known, params: Mapping, found: Typical) -> str:
    there = jax.device_get(unflat(plan, jnp.asarray(found.u, jnp.result_type(float)), known))
    worst: dict[str, float] = {}
    for owner, away in zip(density.owners(plan, known), np.abs(found.away), strict=True):
        name = owner.partition("[")[0]
        worst[name] = max(worst.get(name, 0.0), float(away))
    names = [name for name in sorted(worst, key=lambda name: -worst[name]) if worst[name] > FAR]
    told = [f"'{name}'{_numbers(params[name], there[name])}" for name in names[:NAMED]]
    rest = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    which = (f"the mean of {told[0]} is" if len(names) == 1 else
             f"the means of {', '.join(told)}{rest} are up to")
    return (f"a mode that is not what is typical, as of a noise that few rows tell beside its "
            f"coefficients: {which} {worst[names[0]]:.1f} standard deviations away. For means and "
            f"widths compare with NUTS()")


def _numbers(mode: np.ndarray, mean: np.ndarray) -> str:
    mode, mean = np.asarray(mode, float), np.asarray(mean, float)
    return f" ({float(mode):.3g} here, there about {float(mean):.3g})" if mode.size == 1 else ""


def _volume(plan: Plan, u: np.ndarray, known: Known) -> tuple[float, np.ndarray]:
    value, slope = _volumes(plan, jnp.asarray(u), known)
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
