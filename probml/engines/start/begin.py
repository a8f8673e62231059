"""Where posterior engines begin: a mode, or a point near one, and the curvature of the density
there."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

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
from probml.engines.optimization.objective import unflat
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
from probml.errors import Refusal, present
from probml.evidence import centring, density
from probml.numerics import curvature
from probml.numerics.compiling import ONCE, jit
from probml.numerics.curvature import Frame, Starts
from probml.numerics.newton import Newton, saddle_free_step
from probml.numerics.optimum import LBFGS, maximize
from probml.numerics.refinement import refine_with_hessians
from probml.numerics.transfer import placed, placed_all
from probml.plan import hierarchy
from probml.plan.blocks import all_blocks, climbed_on_rows
from probml.plan.plan import Plan
from probml.typing import SiteValues

MAX_STEPS = 300  # of an optimisation
# the logarithm by which a scale may fall in an optimisation that did not converge: beyond, it is on
# its way to 0
MAX_LOG_FALL = 10.0
# further optimisations from draws of the prior, and the log density by which one must be higher
PRIOR_STARTS, MIN_GAIN = 3, 0.1
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
    tied = hierarchy.degenerate_modes(plan, problem.size)
    if problem.mode_is_atypical or tied:
        # no closed form and no EM: they end where effects have a standard deviation of 0
        point = {**compiled_prior_point(plan, problem.known), **given_start(plan, problem.start)}
        if problem.mode_is_atypical:
            return point
        at_prior = {name for tie in tied
                 for name in (tie.name, *(tie.others if tie.kind in ("spread", "product") else ()))}
        (first,) = first_points(problem, True, closed=False)
        return {name: placed(point[name]) if name in at_prior else value
                for name, value in first.items()}
    # with continuous latents or effects alone the mode of their scales may be 0
    if not plan.complete and (hidden_variables(plan)
                              or plan.cellwise and not plan.continuous_latents
                              or not (plan.latents or plan.groupings)):
        found = (MAP().maximize_posterior(replace(problem, asked=False))
                 if climbed_on_rows(plan, True)
                 else EM(restarts=EM_RESTARTS, max_iterations=200, tolerance=1e-6).run(problem))
        if found.status is not Status.COLLAPSED:
            return placed_all(dict(found.params))
    # Newton's method, which follows, makes the same step
    return first_points(problem, True, closed=not newton_pays(plan))[0]


def other_starts(plan: Plan, known: Known, seed: int,
              start: SiteValues) -> dict[str, np.ndarray] | None:
    """Unbounded coordinates of other points to start from, as EM has restarts, if nothing discrete
    is latent and the prior can be drawn from. The second is the mirror image of the first about the
    prior's point, in parameters without bounds: modes that differ by a sign are both found. Where
    closed forms lead to a mode, further optimisations only serve to find others, as of Student's t:
    none beyond the number of coordinates whose curvature costs nothing."""
    sites = [plan.structure.sites[name] for name in plan.free]
    closed_forms = all(block.form for block in all_blocks(plan, True))
    if not plan.complete or plan.globals or start or any(site.entry.improper for site in sites) or (
            closed_forms and density.unbounded_size(plan) > curvature.MAX_DENSE_COORDINATES):
        return None
    drawn = drawn_prior(plan, known, PRIOR_STARTS * (1 + closed_forms), seed)
    if drawn is None:
        return None
    point = jax.device_get(compiled_prior_point(plan, known))
    for name in drawn:
        if plan.structure.sites[name].domain.unbounded and name not in known.centring:
            drawn[name] = np.array(drawn[name])
            drawn[name][1] = 2 * point[name] - drawn[name][0]
    return drawn


def _mode_finder(plan: Plan, free: Mapping, still: Mapping, known: Known, rows: Rows,
                 steps: jax.Array) -> Callable:
    """A function of the free coordinates that returns a mode near them, the log density there,
    whether the gradient is zero, the values of the optimisation, the gradient and, by Newton's
    method, the negative Hessian; the same coordinates if no mode is near.

    Args:
        free: such coordinates. still: those of the other parameters. steps: MAX_STEPS at most.
    """
    newton = not still and not known.centring and newton_pays(plan)

    def both(u: jax.Array):
        return density.value_and_gradient(
            plan, lambda u: density.from_unbounded_by_name(plan, {**u, **still},
                                                           known), u, known, rows)

    def evaluate(v: jax.Array):
        return density.value_gradient_hessian(
            plan, lambda v: density.from_unbounded(plan, v, known), v, known, rows)

    objective = (density.for_loop(evaluate, rows, ravel_pytree(free)[0]) if newton
                 else density.for_loop(both, rows, free))

    def find_mode(free: jax.Array):
        if newton:  # as MAP
            start, unravel = ravel_pytree(free)
            found = maximize(objective, start, Newton(steps, 1e-16, history=MAX_STEPS,
                                                            step=saddle_free_step))
            top, slope = unravel(found.point), unravel(found.gradient)
        else:
            found = maximize(objective, free, LBFGS(steps, 1e-12, MAX_STEPS))
            top, slope = found.point, found.gradient
        highest = found.value
        norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(slope)))
        converged = jnp.isfinite(highest) & (
            norm <= jnp.finfo(highest.dtype).eps ** (1 / 3) * (1 + jnp.abs(highest))
        )
        far = [jnp.max(jnp.abs(top[name] - free[name]), initial=0.0) for name in free
               if plan.structure.sites[name].domain.log_scale]
        good = jnp.isfinite(highest) & (converged | (
            jnp.max(jnp.stack([*far, jnp.zeros(())])) < MAX_LOG_FALL))
        hessian = -jnp.where(good, found.hessian, found.first) if newton else None
        return (jax.tree.map(lambda a, b: jnp.where(good, a, b), top, free), highest, converged,
                found.history, slope, hessian)

    return find_mode


def evaluated_at_once(plan: Plan, rows: Rows) -> bool:
    """Whether Newton's method serves, with so few rows that it is run from all starts at once,
    which NumPy can do without compilation."""
    return newton_pays(plan) and (
        sum(leaf.size for leaf in jax.tree.leaves(rows)) <= MAX_NUMBERS_AT_ONCE)


def find_mode_and_curvature(
    plan: Plan,
    held: tuple[str, ...],
    params: Mapping,
    known: Known,
    rows: Rows,
    spread: jax.Array,
    others: Mapping | None = None,
    steps: jax.Array = MAX_STEPS,
) -> Mode:
    """The mode over all parameters but those `held`, from a point, and the curvature there; the
    point itself if there is no mode near.

    The density is that of the unbounded coordinates. Pure JAX: to be jitted or vmapped.

    Args:
        spread: standard normal numbers (k, d) for the starts of k chains.
        others: unbounded coordinates of further points to start from, with a leading axis; the
            highest mode is taken.
        steps: of the optimisation, MAX_STEPS at most; 0: the point itself is measured.
    """
    free = density.unbounded_by_name(plan, params, known)
    still = {name: free.pop(name) for name in held}
    mapped = jax.vmap if evaluated_at_once(plan, rows) else curvature.one_by_one
    converged, history, value, slope = jnp.ones((), bool), jnp.zeros(1), jnp.zeros(()), {}
    optima = hessian = None
    if free:
        find_mode = _mode_finder(plan, free, still, known, rows, steps)
    if free and others is None:
        free, value, converged, history, slope, hessian = find_mode(free)
    elif free:
        every = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), free,
                             {name: present(others)[name] for name in free})
        tops = mapped(find_mode)(every)
        optima = Optima(jax.vmap(lambda top: ravel_pytree({**top, **still})[0])(tops[0]),
                        *tops[1:3])
        best = index_of_highest(tops[1], tops[2], MIN_GAIN)
        free, value, converged, history, slope, hessian = jax.tree.map(lambda leaf: leaf[best],
                                                                       tops)
    whole = {**free, **still}
    u = ravel_pytree(whole)[0]
    uncorrelated = repeat_per_coordinate(plan, held.__contains__)
    frame, hessian, chains = curvature.measure(
        density.for_loop(density.log_posterior(plan, known, rows), rows, u), u,
        spread.astype(u.dtype), uncorrelated, widest_units(plan).astype(u.dtype), mapped, hessian)
    blank = jax.tree.map(jnp.zeros_like, whole)
    # from the mode, in standard deviations
    left = jnp.sqrt(jnp.sum(frame.pull(ravel_pytree({**blank, **slope})[0]) ** 2))
    return Mode(frame, hessian, value, converged | (left < AWAY), history, chains, optima)


def widest_units(plan: Plan) -> np.ndarray:
    """The largest unit that each coordinate may have, (d,)."""
    return np.where(domain_flags(plan, "logarithmic"), MAX_LOG_UNIT, np.inf)


_measured = jit(find_mode_and_curvature, static_argnums=(0, 1), seldom=3 * ONCE, steps=True)


def measure_mode(plan: Plan, held: tuple[str, ...], params: Mapping, known: Known, rows: Rows,
             spread: np.ndarray, others: Mapping | None = None, steps: int = MAX_STEPS) -> Mode:
    """As `find_mode_and_curvature`, compiled. If the density is 0 there, as for rates
    exp(a + b · year) or t ** shape under a wide prior, from the prior's point, then from near 0."""
    begun = _measured(plan, held, params, known, rows, spread, others, steps)
    if _is_possible(begun):
        return begun
    middle = compiled_prior_point(plan, known)
    point = {name: middle[name] for name in params}
    begun = _measured(plan, held, point, known, rows, spread, others, steps)
    if _is_possible(begun):
        return begun
    if others is not None:
        return _measured(plan, held, point, known, rows, spread, points_near_zero(others, 0), steps)
    near = {"u": np.empty((PRIOR_STARTS, *begun.frame.centre.shape), begun.frame.centre.dtype)}
    # a few steps at least: where the density is not 0 it may be exp(-1e32)
    found = [_measured(plan, held, unflat(plan, placed(u), known), known, rows, spread, None,
                       max(steps, REFINING_STEPS)) for u in points_near_zero(near, 0)["u"]]
    return max(filter(_is_possible, found), key=lambda mode: float(mode.value), default=begun)


def _is_possible(begun: Mode) -> bool:
    """Whether the density is more than 0 at the point and at some start of a chain."""
    return bool(np.isfinite(begun.value)) and bool(
        np.isfinite(np.asarray(begun.starts.value)).any())


def refine_mode(plan: Plan, begun: Mode, known: Known, rows: Rows, spread: np.ndarray,
                others: Mapping | None) -> tuple[Mode, float]:
    """A mode, refined by L-BFGS that the measured curvature preconditions, and measured again if it
    moved far.

    Args:
        spread: as in `find_mode_and_curvature`, of the same shape.

    Returns:
        the mode, and its remaining distance from the maximum, in standard deviations.
    """
    left = np.inf
    for turn in range(MAX_ROUNDS):
        if begun.frame.root.ndim == 1 or not (
                np.asarray(begun.frame.curvature).min() > curvature.FLAT_CURVATURE):
            return begun, left
        top, value, left, way = _to_mode(plan, begun.frame, known, rows)
        left = float(left)
        begun = begun._replace(frame=begun.frame._replace(centre=top), value=value,
                               converged=np.asarray(begun.converged) | (left < AWAY))
        if float(way) <= MAX_MOVE or turn == MAX_ROUNDS - 1:
            break
        again = measure_mode(plan, (), unflat(plan, top, known), known, rows,
                         spread, others, 0)
        begun = begun._replace(frame=again.frame, hessian=again.hessian, starts=again.starts)
    return begun, left


@jit(static_argnums=0, steps=True)
def _to_mode(plan: Plan, frame: Frame, known: Known, rows: Rows):
    """The maximum by preconditioned L-BFGS: the point, its value, the norms of the remaining
    gradient and of the move."""
    start = jnp.zeros_like(frame.centre)
    both = density.for_loop(frame.transform(density.log_posterior(plan, known, rows)), rows, start)
    found = maximize(both, start,
                     LBFGS(REFINING_STEPS, 1e-16, preconditioned=True, slopes=True))
    left, way = (jnp.sqrt(jnp.sum(z**2)) for z in (found.gradient, found.point))
    return frame.point(found.point), found.value, left, way


def refine_flat_directions(problem: Problem, begun: Mode, left: float,
                           spread: np.ndarray) -> Mode:
    """The measurement at a mode or, if a direction is nearly flat there or its optimisation did not
    converge, a new one at the refined mode, in coordinates whitened by the measurement before
    (numerics/refinement.py). Where standard deviations differ by many orders of magnitude, as for a
    level and a slope of an input about 20,000, one measurement does not determine the Hessian.

    Args:
        left: the distance from the mode, in standard deviations. spread: standard normal numbers
            (k, d) for points about the mode.

    Cost: 4 d gradients, 2 d for each further round, k.
    """
    plan, known, rows = problem.plan, problem.known, problem.rows
    frame, low = begun.frame, np.asarray(begun.frame.curvature).min(initial=np.inf)
    sound = low > curvature.FLAT_CURVATURE and np.isfinite(left) and bool(begun.converged)
    runs_away = low < -curvature.FLAT_CURVATURE and hyperparameters(plan)
    if (sound or runs_away or plan.carried or frame.root.ndim == 1 or problem.in_parts
        or problem.size * frame.centre.size > MAX_WORK):
        return begun
    kind = np.asarray(frame.centre).dtype

    def evaluate(u: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _log_posterior(plan, jnp.asarray(u.astype(kind)), known, rows)
        return float(value), -np.asarray(gradient)

    found = refine_with_hessians(evaluate, np.asarray(frame.centre))
    if not found.reliable or not np.isfinite(found.predicted_gain):
        return begun
    root = _symmetric_root(found.root)
    at = (found.u + spread @ root.T).astype(kind)
    values, slopes = zip(*map(evaluate, at), strict=True)
    inverse = np.linalg.inv(root)
    hessian = jnp.asarray((inverse.T @ inverse).astype(kind))
    new = Frame(found.u.astype(kind), root.astype(kind), np.ones(len(root), kind),
                root.astype(kind))
    return begun._replace(
        frame=jax.tree.map(jnp.asarray, new), hessian=hessian,
        value=jnp.asarray(found.heights[-1], kind), converged=jnp.ones((), bool),
        history=jnp.concatenate([jnp.asarray(begun.history),
                               jnp.asarray(found.heights[1:], begun.history.dtype)]),
        starts=Starts(jnp.asarray(at), jnp.asarray(values, kind), -jnp.asarray(np.stack(slopes))))


def _symmetric_root(root: np.ndarray) -> np.ndarray:
    """The root (d, d) of the same covariance that is symmetric with each coordinate in its own
    unit, so that each column belongs to a coordinate."""
    unit = np.sqrt((root**2).sum(1))
    left, size, _ = np.linalg.svd(root / unit[:, None])
    return unit[:, None] * ((left * size) @ left.T)


@jit(static_argnums=0, seldom=ONCE)
def _log_posterior(plan: Plan, u: jax.Array, known: Known, rows: Rows):
    return density.log_posterior(plan, known, rows)(u)


def measure_balanced_mode(
    plan: Plan, params: Mapping, known: Known, rows: Rows, spread: np.ndarray,
    others: Mapping | None, steps: int
) -> tuple[Known, Mode]:
    """For a hierarchical model, coordinates in which scales and effects are nearly independent
    (centring.py), and the mode in these.

    With effects standardised by their prior the density has a mode, whatever their scale; one
    program finds it, and measures it again in the coordinates that the curvature there calls for.

    Args:
        known: with `centring` 0 for all effects. others: further points in these coordinates.
    """
    begun = measure_mode(plan, (), params, known, rows, spread, others, steps)
    centre, found = jax.device_get((begun.frame.centre, begun.hessian))
    if found.size == 0:  # too many coordinates for a Hessian: effects remain standardised
        return known, begun
    parts, shapes = density.coordinate_slices(plan), density.unbounded_shapes(plan)
    mode = unflat(plan, centre, known)
    u = {name: centre[part].reshape(shapes[name]) for name, part in parts.items()
         if name in known.centring}
    chosen = centring.choose_centring(plan, mode, known, u,
                                      {name: found[parts[name], parts[name]] for name in u})
    known = known._replace(centring=chosen)
    return known, measure_mode(plan, (), mode, known, rows, spread, others,
                           0)._replace(history=begun.history)


def find_start_mode(problem: Problem, engine: str, spread: np.ndarray, centred: bool = True,
                    held: tuple[str, ...] = (), steps: int = MAX_STEPS
                    ) -> tuple[Known, Mode, dict[str, np.ndarray] | None]:
    """The mode near which an engine begins; what rows share, with its coordinates; and the other
    points from which it was searched.

    Args:
        engine: its name. centred: coordinates in which scales and effects of hierarchical models
            are nearly independent. spread, steps: see `find_mode_and_curvature`; without steps
            there are no other points. held: see there, where there are no such effects.

    Raises: as `check_density`.
    """
    plan, rows, known = problem.plan, problem.rows, problem.known
    params = find_rough_mode(problem)
    if centred:
        known = known._replace(centring=centring.non_centred(plan))
    others = other_starts(plan, known, problem.seed, problem.start) if steps else None
    if known.centring:
        known, begun = measure_balanced_mode(plan, params, known, rows, spread, others, steps)
    else:
        begun = measure_mode(plan, held, params, known, rows, spread, others, steps)
    check_density(plan, begun, params, known, engine)
    return known, begun, others


def check_density(plan: Plan, begun: Mode, params: Mapping, known: Known, engine: str) -> None:
    """Checks that the density is finite at the start, and not flat in a direction under a flat
    prior.

    Raises:
        ModelError: which site's prior, or that the data, are impossible at the first point.
        Refusal: the posterior is improper, with the direction.
    """
    name = plan.structure.model.name
    values = np.asarray(begun.starts.value)
    if not np.isfinite(values).any():
        raise_impossible_start(plan, params, known, engine, values[0])
    if not np.isfinite(np.asarray(begun.starts.gradient)).all(1).any():
        raise Refusal(
            f"{engine} cannot fit model '{name}': at all initial values the log density is finite, "
            "but its derivative is NaN or infinite. A usual cause is a derivative of log(x), "
            "sqrt(x) or x**k at a value x = 0 of the data. An example is the lower bound of a "
            "censored time. Change this value a little, such as to 1e-6, or give other initial "
            "values, fit(..., start={...})"
        )
    flat = [site for site in plan.free if plan.structure.sites[site].entry.improper]
    if not flat or begun.frame.axes.size == 0:
        return
    # a negative curvature is not flat
    low = int(np.argmin(np.abs(np.asarray(begun.frame.curvature))))
    limit = FLAT if np.asarray(begun.frame.curvature).dtype == np.float64 else 1e-5
    if abs(float(begun.frame.curvature[low])) < limit:
        named = describe_direction(np.asarray(begun.frame.axes)[:, low],
                          np.abs(np.diagonal(np.asarray(begun.hessian))),
                          density.coordinate_names(plan))
        raise Refusal(
            f"{engine} cannot fit model '{name}': the posterior is improper (the integral of its "
            f"density is infinite). The prior of '{flat[0]}' is flat (ImproperUniform), and the "
            f"likelihood does not change if {named}. A possible cause is a column that is constant "
            f"or the sum of other columns. Give '{flat[0]}' a proper prior, such as "
            f"sample(\"{flat[0]}\", dist.Normal(0, 10)), or drop a column"
        )
