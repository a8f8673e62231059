"""MAP's climbs of the log posterior: L-BFGS, and Newton's steps where a Hessian is a good buy."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows, Summary
from probml.engines.climbing import identifiability
from probml.engines.climbing.coordinates import flat, from_coordinates, to_coordinates, unflat
from probml.engines.climbing.framed import ascend, framed, passes
from probml.engines.climbing.refinement import refined
from probml.engines.climbing.runaway import runaway
from probml.engines.climbing.top import Top
from probml.engines.engine import Outcome, Problem, Status
from probml.engines.progress import Held, Progress, Turn, iterate
from probml.evidence import density
from probml.evidence.density import climbed, value_gradient_hessian
from probml.numerics.ascent import arrived, damped_newton, lbfgs, level, nothing
from probml.numerics.compiling import jit
from probml.numerics.curvature import scaled, units
from probml.numerics.outside.checkpoint import Grown
from probml.numerics.process.threads import one_thread
from probml.numerics.tiers import ONCE
from probml.numerics.transfer import placed_all
from probml.plan.blocks import NEWTON
from probml.plan.plan import Plan

BLOCK = 50  # iterations a device call
SAMPLE = 2**14  # rows whose curvature stands for that of many more
ROUGH = 1e-6  # how near the maximum of a sample, relative to its height, is near enough
CHUNK = 2**11  # of these at once
# of a tolerance: a frame from a sample may be off by so much where a gradient tells what is left
SURE = 0.5
# a tolerance that is met where L-BFGS stops; a smaller one asks for a gradient of zero
ASKED = 1e-12
WORK = 2**22  # rows times coordinates up to which the curvature at an end is taken by differences
LOOKED = 2**24  # rows times squared coordinates up to which it is, where no prior holds these
LOST = 1e-3  # nats that a climb in float32 may miss, of which double finds more
TAKEN = 0.1  # of what a step of Newton's promises, what may be left after it where it leads to 0


class Ascent(NamedTuple):
    """How the density is climbed, as MAP has it, for engines that have no such settings."""

    prior: bool
    progress: bool = False
    steps: int | None = None
    tolerance: float = 1e-14


def curved(plan: Plan, known: Known) -> bool:
    """Whether Newton's steps pay: a `smooth` density has few coefficients."""
    return smooth(plan) and density.size(plan, known) <= NEWTON


def smooth(plan: Plan) -> bool:
    """Whether rows are passed over whose density is smooth in all coefficients, nothing summed
    out, and can be differentiated twice."""
    if (not plan.rowwise or plan.variables or plan.torn or plan.groupings
        or plan.structure.chains or plan.structure.one_way):
        return False
    kinds = [plan.structure.sites[name] for name in (*plan.rowwise, *plan.free)]
    return all(not s.entry.kinked and not s.factor for s in kinds)


def by_lbfgs(engine: Ascent, problem: Problem, params: Mapping,
             judged: bool | None = None) -> Outcome:
    """By L-BFGS; where it ends is `judged` whatever the units, or is to be compared alone. None:
    judged where the user set no limit."""
    judged = engine.steps is None if judged is None else judged
    plan, known, rows = problem.plan, problem.known, problem.rows

    def block(u, count):
        u, value, count, trail, flat, _ = _climb(plan, engine.prior, u, known, rows,
                                                 np.asarray(count), engine.tolerance)
        return u, value, count, trail, bool(flat)

    u, history, status = climb_in_blocks(engine, block, to_coordinates(plan, params, known))
    adrift, top = False, _top(engine, problem, u) if _few(problem) else None
    if judged and _judged(problem, history, top):
        end, heights, promise = refined(top)
        adrift = top.u.dtype == np.float32 and heights[-1] - heights[0] > LOST
        if len(heights) > 1 and promise <= nothing(np.asarray(heights[-1], top.u.dtype)):
            top, u, status = end, _apart(u, end.u), Status.CONVERGED
            history = np.append(history, np.maximum(heights[1:], history[-1]))
    if status is Status.STALLED and top is not None and _settled(top):
        status = Status.CONVERGED
    return Outcome(from_coordinates(plan, u, known), history, status, len(history) - 1,
                   adrift=adrift, top=top)


def _few(problem: Problem, work: int = 0) -> bool:
    """Whether the end of a climb without second derivatives is looked at at all: of few
    coordinates, or rows that are no more than `work` with those twice."""
    size = density.size(problem.plan, problem.known)
    return not problem.in_parts and (0 < size <= identifiability.FEW
                                     or 0 < size**2 * (problem.size or work) < work)


def _judged(problem: Problem, history: np.ndarray, top: Top | None) -> bool:
    """Whether the end of a climb is looked at whatever the units: of few coordinates and rows, of a
    smooth density."""
    if top is None or not (isinstance(problem.rows, Summary)
                           or (problem.size or 0) * top.u.size <= WORK):
        return False
    sites = (problem.plan.structure.sites[name] for name in (*problem.plan.rowwise,
                                                             *problem.plan.free))
    return bool(np.isfinite(history[-1])) and not any(site.entry.kinked for site in sites)


def _settled(top: Top) -> bool:
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
    step = inverse @ top.slope
    promise = 0.5 * np.vdot(top.slope, step)
    after = top.evaluate((top.u - step).astype(top.u.dtype))[1]
    left = 0.5 * abs(after @ inverse @ after)
    enough = float(nothing(np.asarray(top.height, top.u.dtype)))
    return bool(0 <= promise <= enough and left <= TAKEN * promise)


def _top(engine: Ascent, problem: Problem, u: Any) -> Top:
    """The end of a climb by L-BFGS, which goes on from elsewhere by the same program."""
    def climb(at: np.ndarray, steps: int) -> tuple[np.ndarray, float, np.ndarray]:
        end, value, *_, slope = _climb(problem.plan, engine.prior, _apart(u, at), problem.known,
                                       problem.rows, np.asarray(steps), engine.tolerance)
        return _vector(end), float(value), _vector(slope)

    return Top(climb, _vector(u))


def _vector(u: Mapping) -> np.ndarray:
    """Coordinates by name as one vector (d,), in the order of the names."""
    return np.concatenate([np.ravel(u[name]) for name in sorted(u)])


def _apart(like: Mapping, vector: np.ndarray) -> dict[str, np.ndarray]:
    """The same by name again, of the shapes of others."""
    names = sorted(like)
    parts = np.split(vector, np.cumsum([np.size(like[name]) for name in names])[:-1])
    return {name: part.reshape(np.shape(like[name])) for name, part in zip(names, parts,
                                                                           strict=True)}


def by_newton(engine: Ascent, problem: Problem, params: Mapping) -> Outcome:
    """By Newton's steps; of many rows, on a sample of them, whose curvature tells the coordinates
    in which all are climbed."""
    u = flat(problem.plan, params, problem.known)
    with one_thread(u.size):
        return _by_newton(engine, problem, u)


def _by_newton(engine: Ascent, problem: Problem, u: jax.Array) -> Outcome:
    plan, known, rows, n = problem.plan, problem.known, problem.rows, problem.size
    many, ends = n > 4 * SAMPLE and not isinstance(rows, Summary), {}
    near, scale, tolerance = rows, 1.0, engine.tolerance
    if many:
        # rows that are read in parts have padding between them
        places = n if rows.held else int(rows.chunks) * rows.size
        near = some_rows(rows, np.linspace(0, places - 1, SAMPLE).astype(int).reshape(-1, CHUNK))
        scale, tolerance = n / (SAMPLE if rows.held else near.weight), ROUGH

    def block(u, count):
        u, value, count, trail, flat, ends["last"], first, _ = _stiff(
            plan, engine.prior, u, known, near, scale, np.asarray(count), tolerance
        )
        ends.setdefault("first", first)
        return u, value, count, trail, bool(flat)

    top, history, status = climb_in_blocks(engine, block, u, ends)
    if many:
        centre, root, sound = _frame(u, top, ends["last"])
        enough = SURE * engine.tolerance if sound else 0.0
        rounding, root = float(jnp.finfo(u.dtype).eps), np.asarray(root, float)
        both = framed(passes(plan, engine.prior, known, rows), np.asarray(centre, float), root)

        def block(z, count):
            return ascend(both, z, count, engine.tolerance, enough, rounding)

        z, history, status = climb_in_blocks(engine, block, np.zeros(u.size))
        top = np.asarray(centre + root @ z, u.dtype)

    def climb(u: np.ndarray, steps: int) -> tuple[np.ndarray, float, np.ndarray]:
        found = _stiff(plan, engine.prior, u, known, near, scale, np.asarray(steps), tolerance)
        return np.asarray(found[0]), float(found[1]), np.asarray(found[-1])

    end = Top(climb, np.asarray(top), np.asarray(ends["last"]), many)

    def fall(way: np.ndarray) -> float:
        lost = end.height - end.height_at(end.u + way.astype(end.u.dtype))
        return lost / (1 + abs(end.height)) / np.finfo(end.u.dtype).eps

    found = runaway(plan, known, np.asarray(ends["first"]), end.hessian,
                    end.u - np.asarray(u), fall) if unheld(plan, engine.prior) else ()
    return Outcome(unflat(plan, top, known), history, Status.RUNAWAY if found else status,
                   len(history) - 1, found, top=end)


def unheld(plan: Plan, prior: bool) -> bool:
    """Whether some parameter has no prior that holds it."""
    return not prior or any(plan.structure.sites[name].entry.improper for name in plan.free)


def height(plan: Plan, prior: bool, params: Mapping, known: Known, rows: Rows) -> float:
    """What L-BFGS climbs at a point, by the program of the climb, which takes no step here."""
    u = to_coordinates(plan, placed_all(dict(params)), known)
    return float(_climb(plan, prior, u, known, rows, np.asarray(0), ASKED)[1])


def told(engine: Ascent, problem: Problem, outcome: Outcome) -> Outcome:
    """The end of a climb, with a finding where it is one of many maxima, or there is none.

    Cost: four gradients a coordinate and some ten climbs of few steps, where no prior holds the
        parameters.
    """
    plan, known = problem.plan, problem.known
    if (outcome.status not in (Status.CONVERGED, Status.STALLED, Status.SLOW)
        or not np.isfinite(outcome.history[-1]) or not unheld(plan, engine.prior)
        or outcome.top is None and not _few(problem, LOOKED)):
        return outcome
    top = _top_of(engine, problem, outcome)
    found, gone = ((), None) if top.sampled else identifiability.farther(plan, known, top, BLOCK)
    if gone is None:
        found, gone = identifiability.level(plan, known, top, BLOCK)
    if gone is None and not top.sampled:
        more, gone = identifiability.endless(plan, known, top)
        found = (*found, *more)
    return outcome.noting(*found)._replace(
        top=top, status=gone or outcome.status,
        adrift=outcome.adrift or bool(found) and top.u.dtype == np.float32)


def _top_of(engine: Ascent, problem: Problem, outcome: Outcome) -> Top:
    """The end of a climb, of whatever kind it was."""
    return outcome.top or _top(engine, problem, to_coordinates(
        problem.plan, placed_all(dict(outcome.params)), problem.known))


def climb_in_blocks(engine: Ascent, block: Callable, u: Any,
            beside: dict[str, Any] | None = None) -> tuple[Any, np.ndarray, Status]:
    """A climb in blocks of iterations: where it ended, its values and how.

    Args:
        beside: arrays that `block` keeps.
    """
    limit, history = engine.steps or 1000, []

    def turn(done: int) -> Turn:
        nonlocal u
        size = min(BLOCK, limit - done)
        u, value, count, trail, flat = block(u, size)
        history.append(np.asarray(trail)[: int(count) + 1])
        status = Status.RUNNING
        if not np.isfinite(value):
            status = Status.COLLAPSED
        elif int(count) < size:
            status = Status.CONVERGED if flat else Status.STALLED
        elif done + size >= limit and flat:
            status = Status.CONVERGED
        return Turn(int(count), float(value), status)

    def read() -> dict[str, Any]:
        return {"u": jax.tree.leaves(u), "history": list(history), "beside": dict(beside or {})}

    def write(held: dict[str, Any]) -> None:
        nonlocal u
        u = jax.tree.unflatten(jax.tree.structure(u), held["u"])
        history.extend(held["history"])
        if beside is not None:
            beside.update(held["beside"])

    with Progress("MAP", limit, engine.progress) as bar:
        status = iterate(bar, limit, turn, held=Held(
            read, write, {"history": Grown((None,))}))
    return u, np.concatenate([history[0], *(h[1:] for h in history[1:])]), status


@functools.partial(jit, static_argnames=("plan", "prior"))
def _climb(plan: Plan, prior: bool, u, known: Known, rows: Rows, steps, tolerance):
    def loss(u):
        return jax.tree.map(jnp.negative, climbed(plan, prior, u, known, rows))

    point, value, count, trail, gradient = lbfgs(loss, u, steps, tolerance, trail=BLOCK,
                                                 slopes=True)
    return (point, -value, count, -trail, level(value, gradient) | (tolerance >= ASKED), gradient)


@functools.partial(jit, static_argnames=("plan", "prior"), seldom=ONCE)
def _stiff(plan: Plan, prior: bool, u: jax.Array, known: Known, rows: Rows, scale, steps,
           tolerance):
    """Newton's steps; also the Hessians at the end and at the start."""

    def evaluate(u):
        return jax.tree.map(jnp.negative, value_gradient_hessian(
            plan, density.without_volume(plan, known), u, known, rows, prior, mode=True,
            scale=scale))

    point, value, count, trail, gradient, hessian, first = damped_newton(evaluate, u, steps,
                                                                         tolerance, trail=BLOCK)
    _, there = arrived(value, gradient, hessian)
    return (point, -value, count, -trail, level(value, gradient) | there, hessian, first,
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
