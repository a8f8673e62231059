"""The methods by which the objective is maximised: Newton's where a Hessian is a good buy, L-BFGS,
and L-BFGS preconditioned by blocks of the curvature or by that of a sample of the rows."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows, Summary
from probml.engines.engine import Outcome, Problem, State, Status
from probml.engines.optimization import identifiability
from probml.engines.optimization.identifiability import find_separation
from probml.engines.optimization.objective import flat, from_coordinates, to_coordinates, unflat
from probml.engines.progress import Loop, Progress, Turn, iterate
from probml.engines.restarting import slices
from probml.evidence import density
from probml.evidence.density import log_posterior_and_gradient, value_gradient_hessian
from probml.factors.affine_predictors import curvatures
from probml.factors.prior import log_prior
from probml.jaxpr.opened.backward import value_and_gradient
from probml.numerics.compile_effort import ONCE
from probml.numerics.compiling import jit
from probml.numerics.curvature import scaled, second_order, units
from probml.numerics.optimum import (
    LBFGS,
    Newton,
    Optimum,
    maximize,
    negligible,
    newton_converged,
)
from probml.numerics.outside.checkpoint import Grown
from probml.numerics.refinement import HostBFGS, refine
from probml.numerics.transfer import placed_all
from probml.plan.blocks import NEWTON
from probml.plan.plan import Plan
from probml.plan.strands import strands

BLOCK = 50  # iterations a device call
SAMPLE = 2**14  # rows whose curvature stands for that of many more
ROUGH = 1e-6  # how near the maximum of a sample, relative to its height, is near enough
CHUNK = 2**11  # of these at once
# of a tolerance: a frame from a sample may be off by so much where a gradient tells what is left
SURE = 0.5
# a tolerance that is met where L-BFGS stops; a smaller one asks for a gradient of zero
ASKED = 1e-12
WORK = 2**22  # rows times coordinates up to which the curvature at an end is taken by differences
LOST = 1e-3  # nats that a climb in float32 may miss, of which double finds more
TAKEN = 0.1  # of what a step of Newton's promises, what may be left after it where it leads to 0


class OptimizerSettings(NamedTuple):
    """How the density is climbed, as MAP has it, for engines that have no such settings."""

    prior: bool
    progress: bool = False
    steps: int | None = None
    tolerance: float = 1e-14


def newton_pays(plan: Plan, known: Known) -> bool:
    """Whether Newton's steps pay: a `smooth` density has few coefficients."""
    return is_smooth(plan) and density.size(plan, known) <= NEWTON


def is_smooth(plan: Plan) -> bool:
    """Whether rows are passed over whose density is smooth in all coefficients, nothing summed
    out, and can be differentiated twice."""
    if (not plan.rowwise or plan.variables or plan.partially_observed or plan.groupings
        or plan.structure.chains or plan.structure.one_way):
        return False
    kinds = [plan.structure.sites[name] for name in (*plan.rowwise, *plan.free)]
    return all(not s.entry.kinked and not s.factor for s in kinds)


def by_lbfgs(engine: OptimizerSettings, problem: Problem, params: Mapping,
             judged: bool | None = None) -> Outcome:
    """By L-BFGS; where it ends is `judged` whatever the units, or is to be compared alone. None:
    judged where the user set no limit."""
    judged = engine.steps is None if judged is None else judged
    plan, known, rows = problem.plan, problem.known, problem.rows

    def block(u, count):
        u, value, count, trail, flat, _ = _lbfgs(plan, engine.prior, u, known, rows,
                                                 np.asarray(count), engine.tolerance)
        return u, value, count, trail, bool(flat)

    u, history, status = in_blocks(engine, block, to_coordinates(plan, params, known))
    adrift, top = False, optimum_of(engine, problem, u) if is_small(problem) else None
    if judged and _is_refined(problem, history, top):
        end, heights, promise = refine(top)
        adrift = top.point.dtype == np.float32 and heights[-1] - heights[0] > LOST
        if len(heights) > 1 and promise <= negligible(np.asarray(heights[-1], top.point.dtype)):
            top, u, status = end, _by_name(u, end.point), Status.CONVERGED
            history = np.append(history, np.maximum(heights[1:], history[-1]))
    if status is Status.STALLED and top is not None and _is_maximum(top):
        status = Status.CONVERGED
    return Outcome(from_coordinates(plan, u, known), history, status, len(history) - 1,
                   state=State(adrift=adrift, optimum=top))


def is_small(problem: Problem, work: int = 0) -> bool:
    """Whether the end of a climb without second derivatives is looked at at all: of few
    coordinates, or rows that are no more than `work` with those twice."""
    size = density.size(problem.plan, problem.known)
    return not problem.in_parts and (0 < size <= identifiability.FEW
                                     or 0 < size**2 * (problem.size or work) < work)


def _is_refined(problem: Problem, history: np.ndarray, top: Optimum | None) -> bool:
    """Whether the end of a climb is looked at whatever the units: of few coordinates and rows, of a
    smooth density."""
    if top is None or not (isinstance(problem.rows, Summary)
                           or (problem.size or 0) * top.point.size <= WORK):
        return False
    sites = (problem.plan.structure.sites[name] for name in (*problem.plan.rowwise,
                                                             *problem.plan.free))
    return bool(np.isfinite(history[-1])) and not any(site.entry.kinked for site in sites)


def _is_maximum(top: Optimum) -> bool:
    """Whether a climb that found no ascent, though the gradient is not zero, stands at a maximum
    all the same, in coordinates of very unequal widths: Newton's step promises nothing any more and
    takes the gradient with it, which it does not at a kink.

    Cost: four gradients a coordinate, of `identifiability.FEW` at the most.
    """
    hessian = top.hessian
    if not np.isfinite(hessian).all():
        return False
    unit = units(hessian)
    inverse = unit[:, None] * np.linalg.pinv(scaled(hessian, unit)) * unit
    step = inverse @ top.gradient
    promise = 0.5 * np.vdot(top.gradient, step)
    after = top.evaluate((top.point - step).astype(top.point.dtype))[1]
    left = 0.5 * abs(after @ inverse @ after)
    enough = float(negligible(np.asarray(top.value, top.point.dtype)))
    return bool(0 <= promise <= enough and left <= TAKEN * promise)


def optimum_of(engine: OptimizerSettings, problem: Problem, u: Any) -> Optimum:
    """The end of a climb by L-BFGS, which goes on from elsewhere by the same program."""
    def run_lbfgs(at: np.ndarray, steps: int) -> tuple[np.ndarray, float, np.ndarray]:
        end, value, *_, slope = _lbfgs(problem.plan, engine.prior, _by_name(u, at), problem.known,
                                       problem.rows, np.asarray(steps), engine.tolerance)
        return _vector(end), float(value), _vector(slope)

    return Optimum(run_lbfgs, _vector(u))


def _vector(u: Mapping) -> np.ndarray:
    """Coordinates by name as one vector (d,), in the order of the names."""
    return np.concatenate([np.ravel(u[name]) for name in sorted(u)])


def _by_name(like: Mapping, vector: np.ndarray) -> dict[str, np.ndarray]:
    """The same by name again, of the shapes of others."""
    names = sorted(like)
    parts = np.split(vector, np.cumsum([np.size(like[name]) for name in names])[:-1])
    return {name: part.reshape(np.shape(like[name])) for name, part in zip(names, parts,
                                                                           strict=True)}


def by_newton(engine: OptimizerSettings, problem: Problem, params: Mapping) -> Outcome:
    """By Newton's steps; of many rows, on a sample of them, whose curvature tells the coordinates
    in which all are climbed."""
    plan, known, rows, n = problem.plan, problem.known, problem.rows, problem.size
    u, many = flat(plan, params, known), n > 4 * SAMPLE and not isinstance(rows, Summary)
    near, scale, tolerance = rows, 1.0, engine.tolerance
    if many:
        # rows that are read in parts have padding between them
        places = n if rows.held else int(rows.chunks) * rows.size
        near = some_rows(rows, np.linspace(0, places - 1, SAMPLE).astype(int).reshape(-1, CHUNK))
        scale, tolerance = n / (SAMPLE if rows.held else near.weight), ROUGH

    def block(state, count):
        u, first, _ = state
        u, value, count, trail, flat, last, begun, _ = _newton(
            plan, engine.prior, u, known, near, scale, np.asarray(count), tolerance
        )
        return (u, begun if first is unknown else first, last), value, count, trail, bool(flat)

    unknown = np.full((u.size, u.size), np.nan, u.dtype)
    (top, first, last), history, status = in_blocks(engine, block, (u, unknown, unknown))
    if many:
        centre, root, sound = _frame(u, top, last)
        enough = SURE * engine.tolerance if sound else 0.0
        rounding, root = float(jnp.finfo(u.dtype).eps), np.asarray(root, float)
        both = in_frame(passes(plan, engine.prior, known, rows), np.asarray(centre, float), root)

        def block(z, count):
            found = maximize(both, z, HostBFGS(count, engine.tolerance, enough, rounding))
            return found.point, found.value, found.iterations, found.history, found.flat

        z, history, status = in_blocks(engine, block, np.zeros(u.size))
        top = np.asarray(centre + root @ z, u.dtype)

    def run_newton(u: np.ndarray, steps: int) -> tuple[np.ndarray, float, np.ndarray]:
        found = _newton(plan, engine.prior, u, known, near, scale, np.asarray(steps), tolerance)
        return np.asarray(found[0]), float(found[1]), np.asarray(found[-1])

    end = Optimum(run_newton, np.asarray(top), np.asarray(last), many)

    def fall(way: np.ndarray) -> float:
        lost = end.value - end.value_at(end.point + way.astype(end.point.dtype))
        return lost / (1 + abs(end.value)) / np.finfo(end.point.dtype).eps

    found = find_separation(plan, known, np.asarray(first), end.hessian,
                    end.point - np.asarray(u), fall) if lacks_prior(plan, engine.prior) else ()
    return Outcome(unflat(plan, top, known), history, Status.RUNAWAY if found else status,
                   len(history) - 1, found, state=State(optimum=end))


def lacks_prior(plan: Plan, prior: bool) -> bool:
    """Whether some parameter has no prior that holds it."""
    return not prior or any(plan.structure.sites[name].entry.improper for name in plan.free)


def height_of(plan: Plan, prior: bool, params: Mapping, known: Known, rows: Rows) -> float:
    """What L-BFGS climbs at a point, by the program of the climb, which takes no step here."""
    u = to_coordinates(plan, placed_all(dict(params)), known)
    return float(_lbfgs(plan, prior, u, known, rows, np.asarray(0), ASKED)[1])


def in_blocks(engine: OptimizerSettings, block: Callable,
              state: Any) -> tuple[Any, np.ndarray, Status]:
    """A climb in blocks of iterations: where it ended, its values and how.

    Args:
        block: (state, iterations) → the state, the value there, iterations made, the values on the
            way, and whether the gradient is zero.
    """
    limit, loop = engine.steps or 1000, Loop(state, history=Grown((None,)))
    history = loop.lists["history"]

    def turn(done: int) -> Turn:
        size = min(BLOCK, limit - done)
        loop.state, value, count, trail, flat = block(loop.state, size)
        history.append(np.asarray(trail)[: int(count) + 1])
        status = Status.RUNNING
        if not np.isfinite(value):
            status = Status.COLLAPSED
        elif int(count) < size:
            status = Status.CONVERGED if flat else Status.STALLED
        elif done + size >= limit and flat:
            status = Status.CONVERGED
        return Turn(int(count), float(value), status)

    with Progress("MAP", limit, engine.progress) as bar:
        status = iterate(bar, limit, turn, held=loop)
    return loop.state, np.concatenate([history[0], *(h[1:] for h in history[1:])]), status


@functools.partial(jit, static_argnames=("plan", "prior"))
def _lbfgs(plan: Plan, prior: bool, u, known: Known, rows: Rows, steps, tolerance):
    found = maximize(lambda u: log_posterior_and_gradient(plan, prior, u, known, rows), u,
                     LBFGS(steps, tolerance, BLOCK, slopes=True))
    return (found.point, found.value, found.iterations, found.history,
            found.flat | (tolerance >= ASKED), jax.tree.map(jnp.negative, found.gradient))


@functools.partial(jit, static_argnames=("plan", "prior"), seldom=ONCE)
def _newton(plan: Plan, prior: bool, u: jax.Array, known: Known, rows: Rows, scale, steps,
           tolerance):
    """Newton's steps; also the Hessians at the end and at the start."""

    def evaluate(u):
        return value_gradient_hessian(plan, density.without_volume(plan, known), u, known, rows,
                                      prior, mode=True, scale=scale)

    found = maximize(evaluate, u, Newton(steps, tolerance, history=BLOCK))
    gradient, hessian = -found.gradient, -found.hessian
    return (found.point, found.value, found.iterations, found.history,
            found.flat | newton_converged(found.value, gradient, hessian), hessian, -found.first,
            gradient)


@jit
def some_rows(rows: Rows, index: jax.Array) -> Rows:
    """Some rows, in chunks of their own."""
    return rows.taken(index)


@jit
def _frame(start: jax.Array, top: jax.Array, hessian: jax.Array):
    """Coordinates about the mode of a sample in which its curvature is 1, and whether it has one;
    where not, those of the start."""
    factor = jnp.linalg.cholesky(hessian)
    root = jax.scipy.linalg.solve_triangular(factor, jnp.eye(len(top), dtype=top.dtype),
                                             lower=True).T
    sound = jnp.all(jnp.isfinite(root)) & jnp.all(jnp.isfinite(top))
    return (jnp.where(sound, top, start),
            jnp.where(sound, root, jnp.eye(len(top), dtype=top.dtype)), sound)


# Blocks: the numbers of an argument that have coefficients of their own, as a softmax's. Of 650
# coefficients of ten classes of digits, 1,200 evaluations become 120; a block a number costs some
# ten evaluations, all of the Hessian a hundred.

AGAIN = 25  # iterations after which the curvature is taken anew
# of all rows, those that tell it: evaluations that it may cost, about, for each coefficient
WORTH = 64
# times the work of an ascent that a number of a row makes, for XLA (numerics/compile_effort.py):
# each meets the coefficients of several numbers, and of the roots their pairs
CLIMBED, ROOTED = 4, 32


def has_blocks(problem: Problem) -> bool:
    """Whether this climb is one for the problem: its rows are held."""
    rows, plan = problem.rows, problem.plan
    held = not isinstance(rows, Summary) and rows.held
    return held and is_smooth(plan) and not problem.known.centring and bool(strands(plan))


def by_blocks(engine: OptimizerSettings, problem: Problem, params: Mapping) -> Outcome:
    """By L-BFGS in such coordinates."""
    plan, known, rows = problem.plan, problem.known, problem.rows
    number = np.concatenate([np.array(own) for _, own in strands(plan)])
    places = np.argsort(number, kind="stable").reshape(number.max() + 1, -1)
    near, scale = _rows_of_curvature(rows, problem.size, places.shape[1])

    def block(u: jax.Array, count: int) -> tuple[Any, ...]:
        done, trails = 0, []
        while True:
            size = min(AGAIN, count - done)
            roots = _roots(plan, engine.prior, u, places, known, near, scale)
            u, value, some, trail, end = _lbfgs_of_blocks(
                plan, engine.prior, u, roots, places, known, rows, np.asarray(size),
                engine.tolerance)
            trails.append(np.asarray(trail)[bool(trails) : int(some) + 1])
            done += int(some)
            if int(some) < size or done == count or not np.isfinite(value):
                return u, value, done, np.concatenate(trails), bool(end)

    top, history, status = in_blocks(engine, block, flat(plan, params, known))
    return Outcome(unflat(plan, top, known), history, status, len(history) - 1)


def _rows_of_curvature(rows: Rows, n: int, width: int) -> tuple[Rows, np.ndarray]:
    """Rows that tell the curvature, and for how many each stands."""
    count = max(WORTH * n // width, 8 * width)
    if count >= n / 2:
        return rows, np.ones(())
    chunks = max(count // CHUNK, 1)
    index = np.linspace(0, n - 1, chunks * min(CHUNK, count)).astype(int).reshape(chunks, -1)
    return some_rows(rows, index), np.asarray(n / index.size)


@functools.partial(jit, static_argnames=("plan", "prior"), loops=ROOTED)
def _roots(plan: Plan, prior: bool, u: jax.Array, places: jax.Array, known: Known, rows: Rows,
           scale: jax.Array) -> jax.Array:
    """Of each number's block of the curvature at u, the root of its inverse, (m, q, q); a unit
    where it has none."""
    def point(u):
        return density.unflat(plan, u, known)[0]

    found = scale * rows.total(lambda chunk: curvatures(plan, point, u, places, known, chunk))
    if prior:
        held = -second_order(lambda u: log_prior(plan, point(u), known, True))(u)[2]
        found = found + held[places[:, :, None], places[:, None, :]]
    unit = jnp.sqrt(jnp.maximum(jnp.diagonal(found, axis1=1, axis2=2),
                                jnp.finfo(found.dtype).tiny))
    eye = jnp.eye(found.shape[1], dtype=found.dtype)
    scaled = found / unit[:, :, None] / unit[:, None, :] + jnp.sqrt(jnp.finfo(u.dtype).eps) * eye
    factor = jnp.linalg.cholesky(scaled)
    root = jax.scipy.linalg.solve_triangular(factor, jnp.broadcast_to(eye, factor.shape),
                                             lower=True)
    root = jnp.swapaxes(root, 1, 2) / unit[:, :, None]
    return jnp.where(jnp.isfinite(root).all((1, 2), keepdims=True), root, eye)


@functools.partial(jit, static_argnames=("plan", "prior"), loops=CLIMBED)
def _lbfgs_of_blocks(plan: Plan, prior: bool, u: jax.Array, roots: jax.Array, places: jax.Array,
                     known: Known, rows: Rows, steps: jax.Array, tolerance: jax.Array):
    back = jnp.argsort(places.reshape(-1))

    def at(z):
        return u + (roots @ z.reshape(*places.shape, 1)).reshape(-1)[back]

    def both(z):
        return density.value_and_gradient(
            plan, lambda z: (density.unflat(plan, at(z), known)[0], 0.0), z, known, rows, prior,
            mode=True)

    found = maximize(both, jnp.zeros_like(u),
                     LBFGS(steps, tolerance, BLOCK, preconditioned=True))
    return at(found.point), found.value, found.iterations, found.history, found.flat


# Very many rows. From the top of a sample of m rows the top of all n is some √(d/m) standard
# deviations of the sample away, and a step leaves a share of what there is to gain that is about
# the square of what the sample's curvature is off: three passes are enough.

# times what the next step is foretold to gain, from what the last ones did, that must be less than
# nothing for a step to be taken without a look at where it leads
SAFE = 4.0
SHORTER = 0.3  # of a step that did not rise enough

Both = Callable[[np.ndarray], tuple[float, np.ndarray]]


def passes(plan: Plan, prior: bool, known: Known, rows: Rows) -> Both:
    """u → the log posterior, or the likelihood, and its gradient, in double, by a pass over the
    rows in parts (slices.shares)."""
    parts, kind = slices.shares(plan, rows) or [rows], jnp.result_type(float)
    compiled = False

    def both(u: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal compiled
        at = u.astype(kind)
        found = slices.map_in_threads(lambda part: jax.device_get(_of_rows(plan, at, known, part)),
                                      parts,
                                      not compiled)
        compiled = True
        if prior:
            found.append(jax.device_get(_of_prior(plan, at, known)))
        return (float(sum(np.float64(value) for value, _ in found)),
                np.sum([slope for _, slope in found], 0, dtype=np.float64))

    return both


def in_frame(both: Both, centre: np.ndarray, root: np.ndarray) -> Both:
    """The same in coordinates z, u = centre + root z."""

    def at(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = both(centre + root @ z)
        return value, root.T @ slope

    return at


@functools.partial(jit, static_argnames=("plan",))
def _of_rows(plan: Plan, u: jax.Array, known: Known, rows: Rows) -> tuple[jax.Array, jax.Array]:
    return density.value_and_gradient(plan, density.without_volume(plan, known), u, known, rows,
                                      False, mode=True)


@functools.partial(jit, static_argnames=("plan",), seldom=ONCE)
def _of_prior(plan: Plan, u: jax.Array, known: Known) -> tuple[jax.Array, jax.Array]:
    return value_and_gradient(
        lambda u: log_prior(plan, density.unflat(plan, u, known)[0], known, True))(u)
