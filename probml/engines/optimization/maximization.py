"""The methods that maximise the objective: Newton's where a Hessian is cheap, L-BFGS, and L-BFGS
preconditioned by blocks of the Hessian or by the Hessian of a sample of the rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows, Summary
from probml.engines.engine import Outcome, Problem, State, Status
from probml.engines.optimization.identifiability import (
    MAX_DIFFERENCED_COORDINATES,
    domain_flags,
    find_separation,
)
from probml.engines.progress import Loop, Progress, StepResult, iterate
from probml.engines.restarting import squarem
from probml.errors import present
from probml.evidence import density
from probml.evidence.density import value_gradient_hessian
from probml.evidence.e_step import log_evidence
from probml.factors.affine_predictors import curvatures
from probml.factors.naturals import log_prior
from probml.jaxpr.backward import value_and_gradient
from probml.numerics.compiling import ONCE, jit
from probml.numerics.curvature import scaled, second_order, units, whitened
from probml.numerics.newton import Newton, saddle_free_step
from probml.numerics.optimum import LBFGS, Optimum, maximize, negligible, newton_converged
from probml.numerics.process.threads import map_in_threads
from probml.numerics.refinement import HostBFGS, maximize_whitened, refine
from probml.plan.blocks import NEWTON
from probml.plan.plan import Plan, lacks_prior
from probml.plan.sufficient_statistics import blocks_of_hessian
from probml.posteriors.posterior import constrained, unconstrained
from probml.typing import PyTree

BLOCK = 50  # iterations of a device call
SAMPLE_ROWS = 2**14  # whose Hessian stands for that of many more rows
SAMPLE_TOLERANCE = 1e-6  # of the maximum of the sample's objective, relative to its value
SAMPLE_CHUNK = 2**11  # rows of the sample that are evaluated at once
# share of the tolerance that may remain to be gained, as predicted by the sample's Hessian
REMAINING_SHARE = 0.5
# a tolerance that is met wherever L-BFGS stops; a smaller one asks for a gradient of zero
MIN_TOLERANCE = 1e-12
MAX_REFINED_WORK = 2**22  # rows times coordinates up to which an optimum is refined by differences
# rows of a factorised matrix up to which values come with their gradient, by the same program: the
# gradient needs the inverse, which takes four times as long as the factor
MAX_MATRIX_WITH_GRADIENT = 512
# coordinates up to which BFGS is preconditioned by differences of gradients, where one is dear
MAX_WHITENED_COORDINATES = 12
MAX_FLOAT32_LOSS = 1e-3  # of log density, which an optimisation in float32 may miss
MAX_REMAINING_GAIN = 0.1  # after a Newton step at a maximum, relative to the predicted gain


class OptimizerSettings(NamedTuple):
    """Settings of MAP without an optax optimiser, for engines that do not have them."""

    prior: bool
    progress: bool = False
    steps: int | None = None
    tolerance: float = 1e-14


def newton_pays(plan: Plan) -> bool:
    """Whether Newton's method pays: the density is smooth, of few coefficients."""
    return is_smooth(plan) and density.unbounded_size(plan) <= NEWTON


def is_smooth(plan: Plan) -> bool:
    """Whether some rows are evaluated one by one, with a density that is smooth in all
    coefficients, has nothing summed out, and can be differentiated twice."""
    if (not plan.rowwise or plan.variables or plan.partially_observed or plan.groupings
        or plan.structure.chains or plan.structure.one_way):
        return False
    sites = [plan.structure.sites[name] for name in (*plan.rowwise, *plan.free)]
    return all(not site.entry.kinked and not site.factor for site in sites)


def maximize_by_lbfgs(engine: OptimizerSettings, problem: Problem, params: Mapping,
                      refined: bool | None = None) -> Outcome:
    """The optimum by L-BFGS.

    Args:
        refined: improve it by Newton steps, which do not depend on the units; False: it is only
            compared with others. None: if the user set no limit on the iterations.
    """
    refined = engine.steps is None if refined is None else refined
    plan, known, rows = problem.plan, problem.known, problem.rows

    def block(u: np.ndarray, count: int):
        u, value, count, values, end, _ = _lbfgs(plan, engine.prior, u, known, rows,
                                                 np.asarray(count), engine.tolerance)
        return np.asarray(u), value, count, values, bool(end)

    is_costly = plan.largest_matrix > MAX_MATRIX_WITH_GRADIENT and (
        not problem.in_parts and density.unbounded_size(plan) <= MAX_WHITENED_COORDINATES)

    def whitened_block(u: np.ndarray, count: int):
        result = maximize_whitened(lbfgs_optimum(engine, problem, u), count, engine.tolerance,
                                   domain_flags(plan, "logarithmic"))
        return result.point, result.value, result.iterations, result.history, result.flat

    u, history, status = run_in_blocks(engine, whitened_block if is_costly else block,
                                       np.asarray(unconstrained(plan, params, known)))
    rounded, optimum = False, lbfgs_optimum(engine, problem,
                                            u) if is_small_problem(problem) else None
    if optimum is not None and refined and _is_worth_refining(problem, history, optimum):
        end, values, gain = refine(optimum)
        rounded = optimum.point.dtype == np.float32 and values[-1] - values[0] > MAX_FLOAT32_LOSS
        if len(values) > 1 and gain <= negligible(np.asarray(values[-1], optimum.point.dtype)):
            optimum, u, status = end, end.point, Status.CONVERGED
            history = np.append(history, np.maximum(values[1:], history[-1]))
    if status is Status.STALLED and optimum is not None and _is_maximum(optimum):
        status = Status.CONVERGED
    return Outcome(constrained(plan, known, u), history, status, len(history) - 1,
                   state=State(stopped_by_rounding=rounded, optimum=optimum))


def is_small_problem(problem: Problem, work: int = 0) -> bool:
    """Whether an optimum without second derivatives is examined by differences of gradients: of
    few coordinates, or with rows times squared coordinates below `work`."""
    size = density.unbounded_size(problem.plan)
    return not problem.in_parts and (0 < size <= MAX_DIFFERENCED_COORDINATES
                                     or 0 < size**2 * (problem.size or work) < work)


def _is_worth_refining(problem: Problem, history: np.ndarray, optimum: Optimum) -> bool:
    """Whether an optimum is refined by Newton steps: few coordinates and rows, a smooth density."""
    if not (isinstance(problem.rows, Summary)
            or (problem.size or 0) * optimum.point.size <= MAX_REFINED_WORK):
        return False
    sites = (problem.plan.structure.sites[name] for name in (*problem.plan.rowwise,
                                                             *problem.plan.free))
    return bool(np.isfinite(history[-1])) and not any(site.entry.kinked for site in sites)


def _is_maximum(optimum: Optimum) -> bool:
    """Whether an optimisation that stalled with a gradient that is not zero is at a maximum all the
    same, in coordinates of very unequal scales: the Newton step predicts a negligible gain, with a
    Hessian that predicts gradients nearby (`estimate_hessian`), or it removes the gradient. At
    a kink it does neither.

    Cost: four gradients a coordinate, of MAX_DIFFERENCED_COORDINATES at most.
    """
    tolerance = float(negligible(np.asarray(optimum.value, optimum.point.dtype)))
    if optimum.known_hessian is None and optimum.predicted_gain <= tolerance:
        return True
    hessian = optimum.hessian
    if not np.isfinite(hessian).all():
        return False
    unit = units(hessian)
    inverse = unit[:, None] * np.linalg.pinv(scaled(hessian, unit)) * unit
    step = inverse @ optimum.gradient
    gain = 0.5 * np.vdot(optimum.gradient, step)
    gradient = optimum.evaluate((optimum.point - step).astype(optimum.point.dtype))[1]
    remaining = 0.5 * abs(gradient @ inverse @ gradient)
    return bool(0 <= gain <= tolerance and remaining <= MAX_REMAINING_GAIN * gain)


def lbfgs_optimum(engine: OptimizerSettings, problem: Problem, u: np.ndarray) -> Optimum:
    """The end of an optimisation by L-BFGS, which can be repeated from elsewhere by the same
    program."""
    plan, known, rows = problem.plan, problem.known, problem.rows

    def run_lbfgs(start: np.ndarray, steps: int) -> tuple[np.ndarray, float, np.ndarray]:
        end, value, *_, gradient = _lbfgs(plan, engine.prior, start, known, rows, np.asarray(steps),
                                          engine.tolerance)
        return np.asarray(end), float(value), np.asarray(gradient)

    def value_alone(vector: np.ndarray) -> float:
        return float(objective_value(plan, engine.prior, vector, known, rows))

    return Optimum(run_lbfgs, u,
                   valued=value_alone if plan.largest_matrix > MAX_MATRIX_WITH_GRADIENT else None)


def maximize_by_newton(engine: OptimizerSettings, problem: Problem, params: Mapping) -> Outcome:
    """The optimum by Newton's method; of many rows, that of a sample of them, whose Hessian then
    preconditions BFGS on all rows.

    From the maximum of a sample of m rows that of all n is some √(d/m) standard deviations of the
    sample away, and a step leaves a share of the gain that is about the squared relative error of
    the sample's Hessian: three passes over all rows are enough.
    """
    plan, known, rows, n = problem.plan, problem.known, problem.rows, problem.size
    u = unconstrained(plan, params, known)
    is_sampled = n > 4 * SAMPLE_ROWS and not isinstance(rows, Summary)
    sample, scale, tolerance = rows, 1.0, engine.tolerance
    if is_sampled:
        # rows that are read in parts have padding between them
        n_places = n if rows.in_memory else int(rows.chunks) * rows.size
        sample = take_rows(rows, np.linspace(0, n_places - 1, SAMPLE_ROWS).astype(int).reshape(
            -1, SAMPLE_CHUNK))
        scale, tolerance = n / (SAMPLE_ROWS if rows.in_memory else sample.weight), SAMPLE_TOLERANCE

    def block(state, count: jax.Array):
        u, hess0, _ = state
        u, value, count, values, flat, hess1, hess_in, _ = _newton(
            plan, engine.prior, u, known, sample, scale, np.asarray(count), tolerance
        )
        return (u, hess_in if hess0 is unset else hess0, hess1), value, count, values, bool(flat)

    unset = np.full((u.size, u.size), np.nan, u.dtype)
    (point, hess0, hess1), history, status = run_in_blocks(engine, block, (u, unset, unset))
    if is_sampled:
        # coordinates z, centre + root z, in which the sample's negative Hessian is the identity
        centre, unit = np.asarray(point, float), whitened(np.asarray(hess1, float), 0.0)
        is_finite = unit is not None and bool(np.isfinite(centre).all())
        centre, root = (centre, present(unit).T) if is_finite else (np.asarray(u, float),
                                                                    np.eye(u.size))
        remaining = REMAINING_SHARE * engine.tolerance if is_finite else 0.0
        rounding = float(jnp.finfo(u.dtype).eps)
        objective_of_all = host_objective(plan, engine.prior, known, rows)

        def whitened_objective(z: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = objective_of_all(centre + root @ z)
            return value, root.T @ gradient

        def bfgs_block(z: np.ndarray, count: int):
            result = maximize(whitened_objective, z, HostBFGS(count, engine.tolerance, remaining,
                                                              rounding))
            return result.point, result.value, result.iterations, result.history, result.flat

        z, history, status = run_in_blocks(engine, bfgs_block, np.zeros(u.size))
        point = np.asarray(centre + root @ z, u.dtype)

    def run_newton(u: np.ndarray, steps: int) -> tuple[np.ndarray, float, np.ndarray]:
        result = _newton(plan, engine.prior, u, known, sample, scale, np.asarray(steps), tolerance)
        return np.asarray(result[0]), float(result[1]), np.asarray(result[-1])

    end = Optimum(run_newton, np.asarray(point), np.asarray(hess1), is_sampled)

    def fall(step: np.ndarray) -> float:
        loss = end.value - end.value_at(end.point + step.astype(end.point.dtype))
        return loss / (1 + abs(end.value)) / np.finfo(end.point.dtype).eps

    findings = find_separation(plan, np.asarray(hess0), end.hessian, end.point - np.asarray(u),
                               fall) if lacks_prior(plan, engine.prior) else ()
    return Outcome(constrained(plan, known, point), history, Status.DIVERGED if findings
                   else status,
                   len(history) - 1, findings, state=State(optimum=end))


def run_in_blocks(engine: OptimizerSettings, block: Callable,
                  state: PyTree) -> tuple[PyTree, np.ndarray, Status]:
    """An optimisation in blocks of iterations: its last state, the values of its iterations, and
    its status.

    Args:
        block: (state, iterations at most) → (state, value, iterations, values of the iterations,
            whether the gradient is zero).
    """
    limit, loop = engine.steps or 1000, Loop(state, "history")
    history = loop.lists["history"]

    def turn(done: int) -> StepResult:
        size = min(BLOCK, limit - done)
        loop.state, value, count, values, flat = block(loop.state, size)
        history.append(np.asarray(values)[: int(count) + 1])
        status = Status.RUNNING
        if not np.isfinite(value):
            status = Status.COLLAPSED
        elif int(count) < size:
            status = Status.CONVERGED if flat else Status.STALLED
        elif done + size >= limit and flat:
            status = Status.CONVERGED
        return StepResult(int(count), float(value), status)

    with Progress("MAP", limit, engine.progress) as bar:
        status = iterate(bar, limit, turn, held=loop)
    return loop.state, np.concatenate([history[0], *(h[1:] for h in history[1:])]), status


@jit(static_argnames=("plan", "prior"))
def _lbfgs(plan: Plan, prior: bool, u: jax.Array, known: Known, rows: Rows, steps: jax.Array,
           tolerance: jax.Array):
    """L-BFGS from u: the point, its value, iterations, their values, whether it is flat, and the
    gradient of the negative objective."""
    evaluate = density.for_loop(lambda u: density.value_and_gradient(
        plan, density.without_volume(plan, known), u, known, rows, prior, mode=True), rows, u)
    result = maximize(evaluate, u, LBFGS(steps, tolerance, BLOCK, slopes=True))
    return (result.point, result.value, result.iterations, result.history,
            result.flat | (tolerance >= MIN_TOLERANCE), -result.gradient)


@jit(static_argnames=("plan", "prior"), seldom=ONCE)
def _newton(plan: Plan, prior: bool, u: jax.Array, known: Known, rows: Rows, scale: jax.Array,
            steps: jax.Array, tolerance: jax.Array):
    """Newton's method from u: as `_lbfgs`, with the negative Hessians at the end and at the start
    before the gradient."""
    evaluate = density.for_loop(lambda u: value_gradient_hessian(
        plan, density.without_volume(plan, known), u, known, rows, prior, mode=True, scale=scale),
        rows, u)
    result = maximize(evaluate, u, Newton(steps, tolerance, history=BLOCK, step=saddle_free_step))
    gradient, hessian = -result.gradient, -result.hessian
    return (result.point, result.value, result.iterations, result.history,
            result.flat | newton_converged(result.value, gradient, hessian), hessian, -result.first,
            gradient)


@jit
def take_rows(rows: Rows, index: jax.Array) -> Rows:
    """Some rows, (chunks, rows) their indices, in chunks of their own."""
    return rows.taken(index)


# Block-preconditioned L-BFGS. A block is the coefficients of one element of an argument, such as
# those of one class in softmax regression. With 650 coefficients (ten classes of digits) 1,200
# evaluations become 120; a block costs some ten evaluations, a full Hessian a hundred.

BLOCK_AGE = 25  # iterations after which the blocks of the Hessian are computed again
# evaluations, about, that the blocks may cost for each coefficient; fewer rows are used otherwise
BLOCK_EVALUATIONS = 64
# work of these programs relative to an optimisation's, for XLA (numerics/compiling.py): the
# coefficients of several elements are used, and for the roots their pairs
LBFGS_WORK, ROOT_WORK = 4, 32


def has_coefficient_blocks(problem: Problem) -> bool:
    """Whether the rows are held and the Hessian has blocks for L-BFGS to be preconditioned by."""
    rows, plan = problem.rows, problem.plan
    in_memory = not isinstance(rows, Summary) and rows.in_memory
    return in_memory and is_smooth(plan) and not problem.known.centring and (
        blocks_of_hessian(plan) is not None)


def maximize_by_block_lbfgs(engine: OptimizerSettings, problem: Problem,
                            params: Mapping) -> Outcome:
    """The optimum by L-BFGS, preconditioned by blocks of the Hessian."""
    plan, known, rows = problem.plan, problem.known, problem.rows
    indices = np.array(present(blocks_of_hessian(plan)).coefficients)
    sample, scale = _rows_for_blocks(rows, problem.size, indices.shape[1])

    def block(u: jax.Array, count: int) -> tuple[PyTree, ...]:
        done, history = 0, []
        while True:
            size = min(BLOCK_AGE, count - done)
            roots = _roots_of_blocks(plan, engine.prior, u, indices, known, sample, scale)
            u, value, iterations, values, is_flat = _lbfgs_in_blocks(
                plan, engine.prior, u, roots, indices, known, rows, np.asarray(size),
                engine.tolerance)
            history.append(np.asarray(values)[bool(history) : int(iterations) + 1])
            done += int(iterations)
            if int(iterations) < size or done == count or not np.isfinite(value):
                return u, value, done, np.concatenate(history), bool(is_flat)

    point, history, status = run_in_blocks(engine, block, unconstrained(plan, params, known))
    return Outcome(constrained(plan, known, point), history, status, len(history) - 1)


def _rows_for_blocks(rows: Rows, n: int, width: int) -> tuple[Rows, np.ndarray]:
    """Rows from which blocks of the Hessian are computed, and how many rows each represents.

    Args:
        n: number of rows. width: coefficients of a block.
    """
    count = max(BLOCK_EVALUATIONS * n // width, 8 * width)
    if count >= n / 2:
        return rows, np.ones(())
    chunks = max(count // SAMPLE_CHUNK, 1)
    index = np.linspace(0, n - 1, chunks * min(SAMPLE_CHUNK, count)).astype(int).reshape(chunks, -1)
    return take_rows(rows, index), np.asarray(n / index.size)


@jit(static_argnames=("plan", "prior"), loops=ROOT_WORK)
def _roots_of_blocks(plan: Plan, prior: bool, u: jax.Array, indices: jax.Array, known: Known,
                     rows: Rows, scale: jax.Array) -> jax.Array:
    """Roots of the inverses of the blocks of the negative Hessian at u, (m, q, q); the identity
    where a block has none.

    Args:
        indices: (m, q) coordinates of each block.
    """
    def point(u: jax.Array):
        return density.from_unbounded(plan, u, known)[0]

    blocks = scale * rows.total(lambda chunk: curvatures(plan, point, u, indices, known, chunk))
    if prior:
        prior_hessian = -second_order(lambda u: log_prior(plan, point(u), known, True))(u)[2]
        blocks = blocks + prior_hessian[indices[:, :, None], indices[:, None, :]]
    unit = jnp.sqrt(jnp.maximum(jnp.diagonal(blocks, axis1=1, axis2=2),
                                jnp.finfo(blocks.dtype).tiny))
    eye = jnp.eye(blocks.shape[1], dtype=blocks.dtype)
    scaled = blocks / unit[:, :, None] / unit[:, None, :] + jnp.sqrt(jnp.finfo(u.dtype).eps) * eye
    factor = jnp.linalg.cholesky(scaled)
    root = jax.scipy.linalg.solve_triangular(factor, jnp.broadcast_to(eye, factor.shape),
                                             lower=True)
    root = jnp.swapaxes(root, 1, 2) / unit[:, :, None]
    return jnp.where(jnp.isfinite(root).all((1, 2), keepdims=True), root, eye)


@jit(static_argnames=("plan", "prior"), loops=LBFGS_WORK)
def _lbfgs_in_blocks(plan: Plan, prior: bool, u: jax.Array, roots: jax.Array, indices: jax.Array,
                     known: Known, rows: Rows, steps: jax.Array, tolerance: jax.Array):
    """L-BFGS from u in coordinates in which the blocks are the identity; results as of `_lbfgs`."""
    inverse = jnp.argsort(indices.reshape(-1))

    def at(z: jax.Array):
        return u + (roots @ z.reshape(*indices.shape, 1)).reshape(-1)[inverse]

    def both(z: jax.Array):
        return density.value_and_gradient(
            plan, lambda z: (density.from_unbounded(plan, at(z), known)[0],
                             0.0), z, known, rows, prior,
            mode=True)

    start = jnp.zeros_like(u)
    result = maximize(density.for_loop(both, rows, start), start,
                      LBFGS(steps, tolerance, BLOCK, preconditioned=True))
    return at(result.point), result.value, result.iterations, result.history, result.flat


def host_objective(plan: Plan, prior: bool, known: Known,
                   rows: Rows) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """u → the log posterior, or the log-likelihood, and its gradient, in double: a pass over the
    rows, whose parts (squarem.split_rows) are evaluated in threads."""
    parts: Sequence[Rows] = squarem.split_rows(plan, rows) or [rows]
    dtype = jnp.result_type(float)
    compiled = False

    def both(u: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal compiled
        point = u.astype(dtype)
        results = map_in_threads(
            lambda part: jax.device_get(_log_likelihood(plan, point, known, part)), parts,
            not compiled)
        compiled = True
        if prior:
            results.append(jax.device_get(_log_prior(plan, point, known)))
        return (float(sum(np.float64(value) for value, _ in results)),
                np.asarray(np.sum([gradient for _, gradient in results], 0, dtype=np.float64)))

    return both


@jit(static_argnames=("plan",))
def _log_likelihood(plan: Plan, u: jax.Array, known: Known,
                    rows: Rows) -> tuple[jax.Array, jax.Array]:
    return density.value_and_gradient(plan, density.without_volume(plan, known), u, known, rows,
                                      False, mode=True)


@jit(static_argnames=("plan",), seldom=ONCE)
def _log_prior(plan: Plan, u: jax.Array, known: Known) -> tuple[jax.Array, jax.Array]:
    return value_and_gradient(
        lambda u: log_prior(plan, density.from_unbounded(plan, u, known)[0], known, True))(u)


@jit(static_argnames=("plan", "prior"), seldom=ONCE)
def objective_value(plan: Plan, prior: bool, u: jax.Array, known: Known,
                    rows: Rows | Summary) -> jax.Array:
    """The objective of MAP at unbounded coordinates, (d,)."""
    params = density.from_unbounded(plan, u, known)[0]
    value = log_evidence(plan, params, known, rows)
    return value + log_prior(plan, params, known, True) if prior else value
