"""Where posterior engines begin: a mode, or a point near one, and the curvature of the density
there."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.device.rows import Known, Rows
from probml.engines.em import EM
from probml.engines.engine import Problem, Status
from probml.engines.map import MAP
from probml.engines.optimization.identifiability import (
    describe_direction,
    domain_flags,
    repeat_per_coordinate,
)
from probml.engines.optimization.maximization import newton_pays
from probml.engines.optimization.search import index_of_highest
from probml.engines.start.labelling import hidden_variables
from probml.engines.start.modes import Mode, Optima
from probml.engines.start.prior import (
    compiled_prior_point,
    drawn_prior,
    given_start,
    points_near_zero,
    raise_impossible_start,
)
from probml.engines.start.start import first_points
from probml.errors import Refusal
from probml.evidence import centring, density, row_coordinates
from probml.numerics import curvature
from probml.numerics.compiling import ONCE, jit
from probml.numerics.curvature import Frame, Starts
from probml.numerics.newton import Newton, saddle_free_step
from probml.numerics.optimum import LBFGS, Result, maximize
from probml.numerics.process.inline_calls import traced_once
from probml.numerics.refinement import refine_with_hessians
from probml.numerics.transfer import placed, placed_all
from probml.plan import hierarchy
from probml.plan.blocks import all_blocks, climbed_on_rows
from probml.plan.plan import Plan
from probml.posteriors.posterior import constrained, unconstrained
from probml.typing import SiteValues

MAX_STEPS = 300  # of an optimisation
# of one over coordinates of rows too: the tolerance; starts, from the prior's point and points
# about it, and the standard deviation of these
ROWS_TOLERANCE, STARTS, START_DEVIATION = 1e-9, 4, 0.5
# the logarithm by which a scale may fall in an optimisation that did not converge: beyond, it is on
# its way to 0
MAX_LOG_FALL = 10.0
# further optimisations from draws of the prior, and the log density by which one must be higher
PRIOR_STARTS, MIN_GAIN = 3, 0.1
# of a call of the program that optimises and evaluates: two calls measure most curvatures
POINTS = 16
EM_RESTARTS = 4
MAX_LOG_UNIT = 2.0  # the largest unit of coordinates that are logarithms or logits
AWAY = 1e-2  # standard deviations from the mode within which an optimisation has converged
# standard deviations by which the mode may move without a new measurement of the curvature;
# measurements; steps with one measurement
MAX_MOVE, MAX_ROUNDS, REFINING_STEPS = 1e-4, 3, 20
MAX_NUMBERS_AT_ONCE = 2**12  # of the data, up to which all points are evaluated at once
MAX_WORK = 2**24  # rows times coordinates up to which a flat direction is measured again
# curvature, in the coordinates' own units, that counts as none if a prior is flat
FLAT = 1e-9


def hyperparameters(plan: Plan) -> tuple[str, ...]:
    """Free parameters of the priors of other free ones: their joint density may have no maximum."""
    return tuple(name for name in plan.free
                 if any(c in plan.free for c in plan.structure.children[name]))


def find_rough_mode(problem: Problem) -> dict[str, jax.Array]:
    """A first point: the mode by EM if discrete variables are latent, else the prior means, those
    with a closed form replaced by their maximum."""
    plan = problem.plan
    ties = hierarchy.degenerate_modes(plan, problem.size)
    if problem.mode_is_atypical or ties:
        # no closed form and no EM: they end where effects have a standard deviation of 0
        point = {**compiled_prior_point(plan, problem.known), **given_start(plan, problem.start)}
        if problem.mode_is_atypical:
            return point
        at_prior = {name for tie in ties
                 for name in (tie.name,
                              *(tie.tied_with if tie.kind in ("spread", "product") else ()))}
        (init,) = first_points(problem, True, closed=False)
        return {name: placed(point[name]) if name in at_prior else value
                for name, value in init.items()}
    # with continuous latents or effects alone the mode of their scales may be 0
    if not plan.complete and (hidden_variables(plan)
                              or plan.cellwise and not plan.continuous_latents
                              or not (plan.latents or plan.groupings)):
        outcome = (MAP().maximize_posterior(replace(problem, asked=False))
                   if climbed_on_rows(plan, True)
                   else EM(restarts=EM_RESTARTS, max_iterations=200, tolerance=1e-6).run(problem))
        if outcome.status is not Status.COLLAPSED:
            return placed_all(dict(outcome.params))
    # Newton's method, which follows, makes the same step
    return first_points(problem, True, closed=not newton_pays(plan))[0]


def other_starts(plan: Plan, known: Known, seed: int, start: SiteValues) -> np.ndarray | None:
    """Unbounded coordinates of other points to start from, (k, d), as EM has restarts, if nothing
    discrete is latent and the prior can be drawn from. The second is the mirror image of the first
    about the prior's point, in parameters without bounds: modes that differ by a sign are both
    found. Where closed forms lead to a mode, further optimisations only serve to find others, as of
    Student's t: none beyond the number of coordinates whose curvature costs nothing."""
    sites = [plan.structure.sites[name] for name in plan.free]
    closed_forms = all(block.form for block in all_blocks(plan, True))
    if not plan.complete or plan.globals or start or any(site.entry.improper for site in sites) or (
            closed_forms and density.unbounded_size(plan) > curvature.MAX_DENSE_COORDINATES):
        return None
    drawn = drawn_prior(plan, known, PRIOR_STARTS * (1 + closed_forms), seed)
    if drawn is None:
        return None
    drawn, point = np.array(drawn), jax.device_get(compiled_prior_point(plan, known))
    for name, part in density.coordinate_slices(plan).items():
        if plan.structure.sites[name].domain.unbounded and name not in known.centring:
            drawn[1, part] = 2 * np.ravel(point[name]) - drawn[0, part]
    return drawn


def size(plan: Plan, rows: Rows) -> int:
    """The number of unbounded coordinates of parameters, and of rows that a sampler moves."""
    return density.unbounded_size(plan) + (row_coordinates.size(plan, rows) if plan.sampled else 0)


def coordinates(plan: Plan, params: Mapping, known: Known, rows: Rows) -> jax.Array:
    """Unbounded coordinates of parameters, and 0 for those of rows that a sampler moves, (d,)."""
    u = unconstrained(plan, placed_all(dict(params)), known)
    return placed(np.pad(u, (0, size(plan, rows) - u.size))) if plan.sampled else u


@jit(static_argnums=(0, 1), seldom=3 * ONCE, steps=True)
def _optima(plan: Plan, newton: bool, points: jax.Array, count: ArrayLike, moving: jax.Array,
            steps: ArrayLike, tolerance: ArrayLike, known: Known, rows: Rows) -> Result:
    """The ends of optimisations of the log density of unbounded coordinates from points (k, d); of
    0 steps its values and gradients there. Negative Hessians by Newton's method alone.

    Args:
        count: of points that are asked; the others are filled up. moving: (d,), 0 of coordinates
            that stay, 1 of the others. steps: MAX_STEPS at most.
    """
    log_density = density.log_posterior(plan, known, rows)

    def evaluate(u: jax.Array):
        if newton:
            return density.value_gradient_hessian(
                plan, lambda u: density.from_unbounded(plan, u, known), u, known, rows)
        value, gradient = log_density(u)
        return value, moving * gradient

    objective = density.for_loop(evaluate, rows, points[0])
    method = (Newton(steps, 1e-16, history=MAX_STEPS, step=saddle_free_step) if newton
              else LBFGS(steps, tolerance, MAX_STEPS))

    optimum = traced_once(lambda u: maximize(objective, u, method))
    if newton and evaluated_at_once(plan, rows):
        return jax.vmap(optimum)(points)
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                         jax.eval_shape(optimum, points[0]))
    return jax.lax.map(lambda at: jax.lax.cond(at[1] < count, optimum, lambda _: blank, at[0]),
                       (points, jnp.arange(len(points))))


class Ascent(NamedTuple):
    """The log density of unbounded coordinates, and its optimisation, by one program.

    Attributes:
        newton: by Newton's method, else by L-BFGS.
    """

    plan: Plan
    known: Known
    rows: Rows
    newton: bool = False
    tolerance: float = 1e-12

    def run(self, points: np.ndarray, steps: int, moving: np.ndarray | None = None) -> Result:
        """The ends of optimisations from points (n, d), on the host; Args as of `_optima`."""
        parts, moving = [], np.ones(points.shape[1], points.dtype) if moving is None else moving
        for low in range(0, len(points), POINTS):
            batch = points[low : low + POINTS]
            padded = np.concatenate([batch, np.repeat(batch[:1], POINTS - len(batch), 0)])
            found = jax.device_get(_optima(self.plan, self.newton, padded, len(batch), moving,
                                           steps,
                                           self.tolerance, self.known, self.rows))
            parts.append(jax.tree.map(lambda leaf, batch=batch: leaf[: len(batch)], found))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def evaluate(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values (n,) and gradients (n, d) at points (n, d)."""
        found = self.run(points, 0)
        return found.value, found.gradient


def evaluated_at_once(plan: Plan, rows: Rows) -> bool:
    """Whether Newton's method serves, with so few rows that it is run from all starts at once,
    which NumPy can do without compilation."""
    return newton_pays(plan) and (
        sum(leaf.size for leaf in jax.tree.leaves(rows)) <= MAX_NUMBERS_AT_ONCE)


def find_mode_and_curvature(
    plan: Plan,
    fixed: tuple[str, ...],
    u: np.ndarray,
    known: Known,
    rows: Rows,
    normals: np.ndarray,
    others: np.ndarray | None = None,
    steps: int = MAX_STEPS,
) -> Mode:
    """The mode over the coordinates of all parameters but those `fixed`, from a point u, (d,), and
    the curvature there; the point itself if there is no mode near. The density is that of the
    unbounded coordinates.

    Args:
        normals: standard normal numbers (k, d) for the starts of k chains.
        others: further points to start from, (m, d); the highest mode is taken.
        steps: of the optimisation, MAX_STEPS at most; 0: the point itself is measured.
    """
    u, count = np.asarray(u), density.unbounded_size(plan)
    uncorrelated, widest = np.zeros(u.size, bool), np.full(u.size, np.inf)
    uncorrelated[:count] = repeat_per_coordinate(plan, fixed.__contains__)
    widest[:count] = np.where(domain_flags(plan, "logarithmic"), MAX_LOG_UNIT, np.inf)
    newton = not (fixed or known.centring or plan.sampled) and newton_pays(plan)
    ascent = Ascent(plan, known, rows, newton, ROWS_TOLERANCE if plan.sampled else 1e-12)
    if uncorrelated.all():
        frame, hessian, starts = curvature.measure(ascent.evaluate, u, normals, uncorrelated,
                                                   widest)
        return Mode(frame, hessian, np.zeros((), u.dtype), np.ones((), bool),
                    np.zeros(1, u.dtype), starts)
    points = u[None]
    if others is not None:
        points = np.concatenate([points, np.where(uncorrelated, u, others)]).astype(u.dtype)
    found = ascent.run(points, steps, (~uncorrelated).astype(u.dtype))
    with np.errstate(invalid="ignore", over="ignore"):
        norms = np.sqrt((found.gradient**2).sum(1))
        converged = np.isfinite(found.value) & (
            norms <= np.finfo(u.dtype).eps ** (1 / 3) * (1 + np.abs(found.value)))
        scales = np.abs(found.point - points)[:, :count][:, domain_flags(plan, "log_scale")]
        is_plausible = np.isfinite(found.value) & (converged
                                                   | (scales.max(1, initial=0.0) < MAX_LOG_FALL))
    modes = np.where(is_plausible[:, None], found.point, points)
    best = 0 if others is None else index_of_highest(found.value, converged, MIN_GAIN)
    known_hessian = -(found.hessian if is_plausible[best]
                      else found.first)[best] if newton else None
    frame, hessian, starts = curvature.measure(ascent.evaluate, modes[best], normals, uncorrelated,
                                               widest, known_hessian)
    # from the mode, in standard deviations
    distance = np.linalg.norm(frame.pull(found.gradient[best]))
    return Mode(frame, hessian, found.value[best], converged[best] | (distance < AWAY),
                found.history[best], starts,
                None if others is None else Optima(modes, found.value, converged))


def measure_mode(plan: Plan, fixed: tuple[str, ...], u: jax.Array, known: Known, rows: Rows,
                 normals: np.ndarray, others: np.ndarray | None = None,
                 steps: int = MAX_STEPS) -> Mode:
    """As `find_mode_and_curvature`. If the density is 0 there, as for rates
    exp(a + b · year) or t ** shape under a wide prior, from the prior's point, then from near 0."""
    for at_prior in (False, True):
        if at_prior:
            u = coordinates(plan, compiled_prior_point(plan, known), known, rows)
        peak = find_mode_and_curvature(plan, fixed, u, known, rows, normals, others, steps)
        if _is_possible(peak):
            return peak
    if others is not None:
        return find_mode_and_curvature(plan, fixed, u, known, rows, normals,
                                       points_near_zero(others, 0), steps)
    template = points_near_zero(np.empty((PRIOR_STARTS, u.size), u.dtype), 0)
    # a few steps at least: where the density is not 0 it may be exp(-1e32)
    modes = [find_mode_and_curvature(plan, fixed, u, known, rows, normals, None,
                                     max(steps, REFINING_STEPS)) for u in template]
    return max(filter(_is_possible, modes), key=lambda mode: float(mode.value), default=peak)


def _is_possible(mode: Mode) -> bool:
    """Whether the density is more than 0 at the point and at some start of a chain."""
    return bool(np.isfinite(mode.value)) and bool(
        np.isfinite(np.asarray(mode.starts.value)).any())


def refine_mode(plan: Plan, mode: Mode, known: Known, rows: Rows, normals: np.ndarray,
                others: np.ndarray | None) -> tuple[Mode, float]:
    """A mode, refined by L-BFGS that the measured curvature preconditions, and measured again if it
    moved far.

    Args:
        normals: as in `find_mode_and_curvature`, of the same shape.

    Returns:
        the mode, and its remaining distance from the maximum, in standard deviations.
    """
    dist = np.inf
    for i in range(MAX_ROUNDS):
        if mode.frame.root.ndim == 1 or not (
                np.asarray(mode.frame.curvature).min() > curvature.FLAT_CURVATURE):
            return mode, dist
        centre, value, dist, move = _to_mode(plan, mode.frame, known, rows)
        dist = float(dist)
        mode = mode._replace(frame=mode.frame._replace(centre=centre), value=value,
                             converged=np.asarray(mode.converged) | (dist < AWAY))
        if float(move) <= MAX_MOVE or i == MAX_ROUNDS - 1:
            break
        fresh = measure_mode(plan, (), centre, known, rows, normals, others, 0)
        mode = mode._replace(frame=fresh.frame, hessian=fresh.hessian, starts=fresh.starts)
    return mode, dist


@jit(static_argnums=0, steps=True)
def _to_mode(plan: Plan, frame: Frame, known: Known, rows: Rows):
    """The maximum by preconditioned L-BFGS: the point, its value, the norms of the remaining
    gradient and of the move."""
    start = jnp.zeros_like(frame.centre)
    fun = density.for_loop(frame.transform(density.log_posterior(plan, known, rows)), rows, start)
    result = maximize(fun, start,
                      LBFGS(REFINING_STEPS, 1e-16, preconditioned=True, slopes=True))
    distance, move = (jnp.sqrt(jnp.sum(z**2)) for z in (result.gradient, result.point))
    return frame.point(result.point), result.value, distance, move


def refine_flat_directions(problem: Problem, mode: Mode, dist: float,
                           normals: np.ndarray) -> Mode:
    """The measurement at a mode or, if a direction is nearly flat there or its optimisation did not
    converge, a new one at the refined mode, in coordinates whitened by the measurement before
    (numerics/refinement.py). Where standard deviations differ by many orders of magnitude, as for a
    level and a slope of an input about 20,000, one measurement does not determine the Hessian.

    Args:
        dist: the distance from the mode, in standard deviations. normals: standard normal numbers
            (k, d) for points about the mode.

    Cost: 4 d gradients, 2 d for each further round, k.
    """
    plan, known, rows = problem.plan, problem.known, problem.rows
    frame, lowest = mode.frame, np.asarray(mode.frame.curvature).min(initial=np.inf)
    is_sharp = lowest > curvature.FLAT_CURVATURE and np.isfinite(dist) and bool(mode.converged)
    runs_away = lowest < -curvature.FLAT_CURVATURE and hyperparameters(plan)
    if (is_sharp or runs_away or plan.sampled or frame.root.ndim == 1 or problem.in_parts
        or problem.size * frame.centre.size > MAX_WORK):
        return mode
    dtype, ascent = np.asarray(frame.centre).dtype, Ascent(
        plan, known, rows, not known.centring and newton_pays(plan))

    def evaluate(u: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = ascent.evaluate(u.astype(dtype)[None])
        return float(value[0]), -gradient[0]

    refined = refine_with_hessians(evaluate, np.asarray(frame.centre))
    if not refined.reliable or not np.isfinite(refined.predicted_gain):
        return mode
    root = _symmetric_root(refined.root)
    pts = (refined.u + normals @ root.T).astype(dtype)
    values, grads = zip(*map(evaluate, pts), strict=True)
    inverse = np.linalg.inv(root)
    hessian = jnp.asarray((inverse.T @ inverse).astype(dtype))
    new_frame = Frame(refined.u.astype(dtype), root.astype(dtype), np.ones(len(root), dtype),
                      root.astype(dtype))
    return mode._replace(
        frame=jax.tree.map(jnp.asarray, new_frame), hessian=hessian,
        value=jnp.asarray(refined.heights[-1], dtype), converged=jnp.ones((), bool),
        history=jnp.concatenate([jnp.asarray(mode.history),
                               jnp.asarray(refined.heights[1:], mode.history.dtype)]),
        starts=Starts(jnp.asarray(pts), jnp.asarray(values, dtype), -jnp.asarray(np.stack(grads))))


def _symmetric_root(root: np.ndarray) -> np.ndarray:
    """The root (d, d) of the same covariance that is symmetric with each coordinate in its own
    unit, so that each column belongs to a coordinate."""
    sds = np.sqrt((root**2).sum(1))
    left_vectors, size, _ = np.linalg.svd(root / sds[:, None])
    return sds[:, None] * ((left_vectors * size) @ left_vectors.T)


def measure_balanced_mode(
    plan: Plan, u: jax.Array, known: Known, rows: Rows, normals: np.ndarray,
    others: np.ndarray | None, steps: int
) -> tuple[Known, Mode]:
    """For a hierarchical model, coordinates in which scales and effects are nearly independent
    (centring.py), and the mode in these.

    With effects standardised by their prior the density has a mode, whatever their scale; one
    program finds it, and measures it again in the coordinates that the curvature there calls for.

    Args:
        known: with `centring` 0 for all effects. others: further points in these coordinates.
    """
    peak = measure_mode(plan, (), u, known, rows, normals, others, steps)
    centre, hessian = jax.device_get((peak.frame.centre, peak.hessian))
    if hessian.size == 0:  # too many coordinates for a Hessian: effects remain standardised
        return known, peak
    parts, shapes = density.coordinate_slices(plan), density.unbounded_shapes(plan)
    mode = constrained(plan, known, centre)
    own = {name: centre[part].reshape(shapes[name]) for name, part in parts.items()
           if name in known.centring}
    chosen = centring.choose_centring(plan, mode, known, own,
                                      {name: hessian[parts[name], parts[name]] for name in own})
    known = known._replace(centring=chosen)
    return known, measure_mode(plan, (), coordinates(plan, mode, known, rows), known, rows, normals,
                               others, 0)._replace(history=peak.history)


def find_start_mode(problem: Problem, engine: str, normals: np.ndarray, centred: bool = True,
                    fixed: tuple[str, ...] = (), steps: int = MAX_STEPS
                    ) -> tuple[Known, Mode, np.ndarray | None]:
    """The mode near which an engine begins; what rows share, with its coordinates; and the other
    points from which it was searched. With latent variables of rows that a sampler moves, it is the
    joint mode of these, standardised by their priors if possible, and the parameters.

    Args:
        engine: its name. centred: coordinates in which scales and effects of hierarchical models
            are nearly independent. normals, steps: see `find_mode_and_curvature`; without steps
            there are no other points. fixed: see there, where there are no such effects.

    Raises: as `check_density`.
    """
    plan, rows, known = problem.plan, problem.rows, problem.known
    params = find_rough_mode(problem)
    if centred:
        known = known._replace(centring=centring.non_centred(plan))
    others, start = None, coordinates(plan, params, known, rows)
    if plan.sampled:
        noise = np.random.default_rng([problem.seed, 3]).standard_normal((STARTS, start.size))[1:]
        others = np.asarray(start) + (START_DEVIATION * noise).astype(start.dtype)
    elif steps:
        others = other_starts(plan, known, problem.seed, problem.start)
    if known.centring and not plan.sampled:
        known, mode = measure_balanced_mode(plan, start, known, rows, normals, others, steps)
    else:
        mode = measure_mode(plan, fixed, start, known, rows, normals, others, steps)
    check_density(plan, mode, params, known, engine)
    return known, mode, others


def check_density(plan: Plan, mode: Mode, params: Mapping, known: Known, engine: str) -> None:
    """Checks that the density is finite at the start, and not flat in a direction under a flat
    prior.

    Raises:
        ModelError: which site's prior, or that the data, are impossible at the first point.
        Refusal: the posterior is improper, with the direction.
    """
    name = plan.structure.model.name
    values = np.asarray(mode.starts.value)
    if not np.isfinite(values).any():
        raise_impossible_start(plan, params, known, engine, values[0])
    if not np.isfinite(np.asarray(mode.starts.gradient)).all(1).any():
        raise Refusal(
            f"{engine} cannot fit model '{name}': at all initial values the log density is finite, "
            "but its derivative is NaN or infinite. A usual cause is a derivative of log(x), "
            "sqrt(x) or x**k at a value x = 0 of the data. An example is the lower bound of a "
            "censored time. Change this value a little, such as to 1e-6, or give other initial "
            "values, fit(..., start={...})"
        )
    flat = [site for site in plan.free if plan.structure.sites[site].entry.improper]
    if not flat or mode.frame.axes.size == 0:
        return
    # a negative curvature is not flat
    flattest = int(np.argmin(np.abs(np.asarray(mode.frame.curvature))))
    limit = FLAT if np.asarray(mode.frame.curvature).dtype == np.float64 else 1e-5
    if abs(float(mode.frame.curvature[flattest])) < limit:
        text = describe_direction(np.asarray(mode.frame.axes)[:, flattest],
                          np.abs(np.diagonal(np.asarray(mode.hessian))),
                          density.coordinate_names(plan))
        raise Refusal(
            f"{engine} cannot fit model '{name}': the posterior is improper (the integral of its "
            f"density is infinite). The prior of '{flat[0]}' is flat (ImproperUniform), and the "
            f"likelihood does not change if {text}. A possible cause is a column that is constant "
            f"or the sum of other columns. Give '{flat[0]}' a proper prior, such as "
            f"sample(\"{flat[0]}\", dist.Normal(0, 10)), or drop a column"
        )
