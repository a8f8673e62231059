"""Model.fit: reads the data, runs the engine, or those of the selection order Exact → EM → Laplace
→ MAP → NUTS where none is named, and repeats in float64 where float32 lacks precision."""

import contextlib
import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from probml import errors
from probml.dataset import dataset, tables
from probml.dataset.checks import digits
from probml.dataset.sources import parts
from probml.device.few import (
    Moments,
    condense_by_cells,
    moments,
    moments_on_host,
    rows_with_moments,
)
from probml.device.load import load
from probml.device.rows import Known, Resident, Rows, Summary
from probml.engines import EM, VB, Exact
from probml.engines.engine import (
    NOT_LOADED,
    Engine,
    Outcome,
    Problem,
    Status,
    checked,
    planned,
    refusal,
)
from probml.engines.findings import ZERO_AT_ZERO, Code, Finding
from probml.engines.ladder import advised, choose
from probml.engines.laplace import about_optimum
from probml.engines.progress import Progress
from probml.engines.start.prior import given_start
from probml.errors import DataError, Refusal
from probml.evidence.e_step import global_posterior
from probml.factors.digits import has_cancellation, has_diffuse_start
from probml.fits.cluster import Cluster
from probml.fits.double import least_precise, retry_in_float64
from probml.fits.latent_findings import (
    find_doubtful_statements,
    find_few_groups,
    find_single_row_groups,
    find_singular_designs,
    reject_rough_integral,
    with_boundary_findings,
)
from probml.fits.memory import refuse_vast_matrices
from probml.fits.merging import RetainedStatistics, open_journal
from probml.fits.places import (
    Devices,
    FittedRows,
    Place,
    SingleDevice,
    is_client,
    is_frame,
    retain_rows,
    summarised,
)
from probml.language.language import Bound
from probml.numerics.compiling import ONCE, jit
from probml.numerics.optimum import hides_differences
from probml.numerics.outside.checkpoint import Checkpoint
from probml.numerics.outside.meshes import mesh_of
from probml.numerics.process.threads import one_thread
from probml.numerics.transfer import placed_all
from probml.plan.plan import Plan
from probml.plan.random_effects import sparsely_crossed
from probml.plan.sufficient_statistics import (
    by_members,
    by_moments,
    cell_shapes,
    is_affine_in_rows,
    number_of_coefficients,
    numbers,
    squared,
)
from probml.posteriors.posterior import Point, Posterior
from probml.posteriors.random_effects import effects_posterior
from probml.structure.trace import trace
from probml.typing import SiteValues

MIN_ROWS_FOR_MOMENTS = 1000  # from which rows are replaced by a few: it costs another program
MIN_ROWS_FOR_SQUARES = 100  # from which XᵀX replaces passes
MIN_REDUCTION = 4  # rows per representative row, from which representatives replace the rows


class DataSummary(NamedTuple):
    """What a Fit retains of data from a source: the shapes of the inputs, the pattern of observed
    cells, the labels."""

    shapes: dict[str, tuple]
    pattern: Mapping[str, str]
    labels: dict[str, tuple]


class InferenceResult(NamedTuple):
    """The result of a fit: all fields of a Fit except its model."""

    data: dataset.Data | DataSummary
    engine: Engine
    outcome: Outcome
    given: dict[str, ArrayLike]
    posterior: Posterior  # of the sites outside rows
    kept: RetainedStatistics | None
    double: bool  # whether float32 lacked precision
    pattern: Mapping[str, str]  # of the data as the engine took them
    fitted_rows: FittedRows | None = None
    weighted: bool = False  # whether rows had weights other than 1
    columns: Mapping[str, tuple] | None = None  # of a source: see Profile


def infer(model: Bound, data: object, engine: Engine | None, weights: object, seed: int,
          start: SiteValues | None, checkpoint: Checkpoint | None = None,
          where: object = None, seconds: float | None = None) -> InferenceResult:
    """See Model.fit."""
    engine = None if engine is None else checked(engine)
    if engine is not None and seconds is not None:
        raise errors.ModelError(f"fit({type(engine).__name__}(...), seconds={seconds!r}): seconds= "
                                f"limits the sampling time of a fit without a named engine. Omit "
                                f"seconds=, or use the engine NUTS(seconds={seconds!r})")
    title = type(engine).__name__ if engine else f"fit of '{model.name}'"
    with Progress(title, None, False) as bar:
        obs, run, note = _inferred(model, data, engine, weights, seed, start, bar, checkpoint,
                                   place_of(where, data), seconds)
    retained = obs if obs.survey is None else DataSummary(obs.shapes, obs.pattern, obs.labels)
    return run._replace(data=retained, outcome=run.outcome.noting(note), double=note is not None,
                        weighted=obs.is_weighted,
                        columns=None if obs.survey is None else obs.survey.profile.columns)


def _inferred(model: Bound, data: object, engine: Engine | None, weights: object, seed: int,
              start: SiteValues | None, bar: Progress, checkpoint: Checkpoint | None, place: Place,
              seconds: float | None) -> tuple[dataset.Data, InferenceResult, Finding | None]:
    """The data as read, the run of an engine, and the finding that it was in float64 and why."""
    if model.is_joint and weights is not None:
        raise Refusal(f"model '{model.name}' has no plate of independent rows, but weights= gives "
                      f"one weight per row. {errors.MARK_ROWS}, or omit weights= and put the "
                      f"sites to be weighted inside numpyro.handlers.scale")
    with Progress("first look", None, False) as look_bar, parts.reporting_progress(look_bar.passed):
        obs = place.open_data(model, data, weights)
    bar.about, weight = obs.extent, obs.weights
    _refuse_unobserved(obs)
    if engine is not None:
        if (why := refusal(engine, obs)) is not None:
            raise advised(why, obs)
        engine = _with_requested_batches(engine, obs)
    named, ladder = engine, choose(obs, seconds)[0] if engine is None else (engine,)
    plan = planned(ladder[0].prepare_data(obs), named)
    # deterministics and effects are recomputed
    start = {name: value for name, value in (start or {}).items()
             if name not in (*obs.structure.derived, *plan.effects)}
    given_start(plan, start)  # refused before anything is shipped or compiled
    caps = ladder[0].capabilities
    double = jax.config.jax_enable_x64

    def attempt() -> InferenceResult:
        same = jax.config.jax_enable_x64 == double
        return _run(obs if same else obs._replace(structure=trace(model, obs.shapes)), ladder,
                    weight, seed, start, place, named is not None)

    with contextlib.ExitStack() as stack:
        if checkpoint is not None:
            bar.journal = stack.enter_context(
                open_journal(checkpoint, model, obs, named, weight, seed, start))
        imprecise = None if double else (digits.find_precision_loss(obs)
                                         or _why_float64(ladder[0], plan, obs))
        try:
            run, note = retry_in_float64(attempt, lambda result: result.outcome, caps.uses_prior,
                                         imprecise)
        except Refusal as why:
            raise advised(why, obs, type(ladder[0]).__name__) from None
    return obs, run, note


def _refuse_unobserved(obs: dataset.Data) -> None:
    """Refuse data in which no site of rows is observed; a loss may depend on inputs alone."""
    model, values = obs.model, obs.table.values
    if obs.table.columns or obs.structure.losses and (obs.table.inputs or model.is_joint):
        return
    site = next(iter(values), None)
    if site is None:
        raise errors.DataError(f"model '{model.name}': the values of all sites are missing in the "
                               "data, so nothing can be estimated. Check how the data were read, "
                               "and pass values of a site inside rows()")
    advice = tables.outside(site, obs.structure.sites[site].plates,
                            next(iter(np.shape(values[site])), None))
    raise errors.DataError(f"model '{model.name}': the data contain no site inside rows(). "
                           f"{advice}")


def _why_float64(engine: Engine, plan: Plan, obs: dataset.Data) -> str | None:
    """Why rows in memory are fitted in float64, in words; None: they are not. They are where the
    likelihood depends on second moments alone, or there are crossed effects of many levels: the
    objective is then nearly flat in some directions, rounding hides its optimum, and float64 costs
    no more work."""
    if not engine.capabilities.uses_all_rows or obs.survey is not None:
        return None
    if sparsely_crossed(plan):
        return "with crossed effects of many groups the objective is nearly flat at its optimum"
    return ("the likelihood is computed from sums of squares of the data alone, in which digits "
            "are lost to rounding") if plan.free and by_moments(plan) else None


def _with_requested_batches(engine: Engine, obs: dataset.Data) -> Engine:
    """The engine with batches of the size that the function's plate requests by subsample_size;
    unchanged where the engine cannot use batches of these data."""
    batch = obs.model.batch
    if batch is None or batch >= obs.table.rows or not engine.capabilities.batches:
        return engine
    settings: Any = engine
    in_batches = replace(settings, batch_rows=batch)
    return in_batches if refusal(in_batches, obs) is None else engine


def _run(obs: dataset.Data, ladder: tuple, weight: np.ndarray | None, seed: int,
         start: SiteValues, place: Place, asked: bool, mode_is_atypical: bool = False,
         posterior_points: Mapping | None = None) -> InferenceResult:
    """The result of the first engine that does not refuse, without `data`; in float32 a refusal of
    the first is raised, since it is then run in float64.

    Args:
        asked: the engine was named. mode_is_atypical, posterior_points: see Problem.
    """
    first, caps = ladder[0], ladder[0].capabilities
    data = first.prepare_data(obs)
    plan = planned(data, first)
    refuse_vast_matrices(plan)
    problem = Problem(data, plan, NOT_LOADED, NOT_LOADED, weight, seed, start, asked=asked,
                      mode_is_atypical=mode_is_atypical, posterior_points=posterior_points)
    with place.shipped(problem, first.copies(problem), _is_reducible(first, plan),
                       caps.batch, caps.uses_all_rows, caps.held_out_fraction,
                       first.runs(problem)) as (rows, known):
        problem = replace(problem, rows=rows, known=known)
        second_moments = _second_moments(first, problem)
        problem = reduce_rows_by_member(first, reduce_rows(first, problem, second_moments))
        rows = problem.rows
        for engine in ladder:
            later = ladder[ladder.index(engine) :]
            try:
                if engine is not first and engine.prepare_data(obs) is not data:
                    return _run(obs, later, weight, seed, start, place, asked, mode_is_atypical,
                                posterior_points)
                with one_thread(plan.largest_matrix):
                    outcome = (engine if plan.free else Exact()).run(problem)
                outcome = check_precision(plan, outcome, known, rows)
                if not asked and engine.capabilities.finds == "point":
                    outcome = about_optimum(problem, outcome)
                run_later = functools.partial(_run_later_engines, obs, later, weight, seed, place)
                if run := run_later(outcome):
                    return run
                if (plan.latents or plan.groupings) and not plan.sampled:
                    outcome = with_boundary_findings(plan, outcome, known, rows,
                                                     engine.capabilities.uses_prior)
                    if not asked and (run := run_later(reject_rough_integral(problem, outcome))):
                        return run
                if plan.groupings:
                    outcome = _with_effects(plan, outcome, known, rows)
                    outcome = outcome.noting(
                        find_single_row_groups(plan, data, outcome.posterior, weight is not None),
                        *find_singular_designs(plan, outcome.posterior, outcome.params, known,
                                               rows),
                        *(find_few_groups(plan) if outcome.posterior.partly else ()))
                outcome = outcome.noting(*find_doubtful_statements(plan, data, problem.in_parts))
                _refuse_undefined(problem, outcome)
                # an optimisation by batches or an optax optimiser compares no log densities
                compares = not (problem.in_parts or engine.capabilities.batch
                                or engine.capabilities.batches)
                if (compares and any(finding.warns for finding in outcome.findings)
                        and hides_differences(outcome.history[-1:].sum())):
                    outcome = outcome.with_state(stopped_by_rounding=True)
                break
            except Refusal:
                if engine is ladder[-1] or not jax.config.jax_enable_x64:
                    raise
        return InferenceResult(
            NOT_LOADED, engine, outcome, jax.device_get(known.given),
            posterior(plan, outcome, known, rows),
            _sufficient_statistics(engine, problem, second_moments, outcome), False, data.pattern,
            retain_rows(engine, first, obs, weight))


def _run_later_engines(obs: dataset.Data, ladder: tuple, weight: np.ndarray | None, seed: int,
                       place: Place, previous: Outcome) -> InferenceResult | None:
    """The run of the next engines in the selection order, where the answer of the first did not
    pass its test; None: it did, or they find none, and that answer is returned."""
    if previous.state.rejection is None:
        return None
    first, *later = ladder
    try:
        if not later:
            raise Refusal(f"{type(first).__name__}() failed, and no other engine can fit the "
                          f"model: {previous.state.rejection}")
        run = _run(obs, tuple(later), weight, seed, {}, place, False,
                   not is_affine_in_rows(obs.plan()), previous.state.posterior_points)
    except errors.ModelError:
        if not previous.params:
            raise
        return None
    reason = previous.state.rejection.problem
    if any(("reason", reason) in finding.numbers for finding in run.outcome.findings):
        return run  # the engine between failed at the same mode
    return run._replace(outcome=run.outcome.noting(Finding.of(
        Code.PREVIOUS_ENGINE, engine=type(first).__name__, reason=reason)))


def _refuse_undefined(problem: Problem, outcome: Outcome) -> None:
    """Raises Refusal if an estimate or a posterior mean is not a number (NaN)."""
    if outcome.status in (Status.COLLAPSED, Status.DIVERGED):
        return
    undefined = next((name for name, value in outcome.params.items()
                      if np.isnan(np.asarray(value, float)).any()), None)
    if undefined is not None:
        raise Refusal(f"{problem}: the value of '{undefined}' is not a number (NaN) at the "
                      f"estimate ({outcome.status.headline}). A possible cause is a weight, an "
                      "input or a data value that is too large or too small for double precision. "
                      "Another is a standard deviation that went to 0. Rescale the data, or give "
                      f"standard deviations a prior {ZERO_AT_ZERO}")


def _with_effects(plan: Plan, outcome: Outcome, known: Known, rows: Rows) -> Outcome:
    """An outcome with the effects of groups: at a point, with their posterior given it; of draws,
    which include them, unchanged."""
    if set(plan.effects) <= set(outcome.params):
        return outcome
    effects = effects_posterior(plan, {name: outcome.params[name] for name in plan.free}, known,
                                rows)
    params = {**outcome.params, **effects.moments.mean}
    if outcome.posterior.varies:
        return outcome._replace(params=params)
    return outcome._replace(params=params, posterior=effects)


def check_precision(plan: Plan, outcome: Outcome, known: Known, rows: Rows | Summary) -> Outcome:
    """The outcome, with flags for the ways in which float32 may have lacked precision."""
    if jax.config.jax_enable_x64 or not plan.free or outcome.status is Status.COLLAPSED:
        return outcome
    params = {name: outcome.params[name] for name in plan.free}
    sites = plan.structure.sites
    if known.centre or any(sites[name].traits.terms for name in plan.pooled):
        outcome = outcome.with_state(imprecise_squares=bool(_has_cancellation(plan, params, known)))
    if any(map(plan.timed, plan.latents)):
        outcome = outcome.with_state(
            imprecise_smoothing=bool(_has_diffuse_start(plan, params, known, rows)))
    return outcome


def _sufficient_statistics(engine: Engine, problem: Problem, second_moments: Moments | None,
                           outcome: Outcome) -> RetainedStatistics | None:
    """The statistics that a fit retains so that further rows can be added: sufficient statistics of
    an additive plan, or second moments, or running statistics of incremental steps."""
    rows, known, measured = problem.rows, problem.known, problem.data.measured
    if isinstance(rows, Summary) and not rows.squares:
        return RetainedStatistics.of(engine, rows, known, measured=measured)
    if outcome.state.statistics is not None:
        summary = Summary(outcome.state.statistics, np.zeros(()), np.asarray(rows.weight))
        return RetainedStatistics.of(engine, summary, known, running=True)
    names = by_moments(problem.plan)
    if not (engine.capabilities.uses_all_rows and names and problem.plan.free):
        return None
    if second_moments is None:
        columns = problem.data.table.columns
        second_moments = moments_on_host([columns[name].values for name in names], problem.weights)
    return RetainedStatistics.of(engine, second_moments, known, measured=measured)


def _second_moments(engine: Engine, problem: Problem) -> Moments | None:
    """The second moments of rows, where a few rows with the same ones can replace all; None where
    passes go over all rows."""
    names, plan = by_moments(problem.plan), problem.plan
    sums_rows = engine.capabilities.uses_all_rows and not isinstance(problem.rows, Summary)
    pays = sums_rows and names and plan.free and (problem.in_parts or (problem.size or 0) >= max(
        MIN_ROWS_FOR_MOMENTS, 2 * MIN_REDUCTION * numbers(plan, names)))
    return moments(problem.rows, names) if pays else None


def reduce_rows(engine: Engine, problem: Problem, second_moments: Moments | None = None) -> Problem:
    """The problem with its rows replaced by their sufficient statistics, or by a few rows of the
    same second moments, where the engine needs no more.

    Args:
        second_moments: of the rows, where they are known.
    """
    second_moments = _second_moments(engine, problem) if second_moments is None else second_moments
    if second_moments is not None:
        return replace(problem, rows=rows_with_moments(second_moments, cell_shapes(problem.plan)))
    if isinstance(problem.rows, Summary) or not (_is_reducible(engine, problem.plan)
                                                 or _is_worth_squaring(engine, problem)):
        return problem
    return replace(problem, rows=summarised(problem.plan, problem.known, problem.rows))


def reduce_rows_by_member(engine: Engine, problem: Problem) -> Problem:
    """The problem with the rows of each group replaced by a few with the same second moments, where
    the likelihood depends on these alone and the engine needs only sums over rows."""
    second_moments, rows = by_members(problem.plan), problem.rows
    if (second_moments is None or not engine.capabilities.uses_all_rows or problem.in_parts
        or not isinstance(rows, Resident)
        or problem.data.survey is not None or (problem.size or 0) < MIN_ROWS_FOR_MOMENTS):
        return problem
    condensed = condense_by_cells(problem.data, second_moments, problem.weights, MIN_REDUCTION)
    return problem if condensed is None else replace(problem, rows=load(
        condensed[0], problem.plan, condensed[1])[0])


def _is_reducible(engine: Engine, plan: Plan) -> bool:
    return plan.additive and bool(plan.free) and engine.capabilities.statistics


def _is_worth_squaring(engine: Engine, problem: Problem) -> bool:
    """Whether there are so many rows, and more than columns, that computing XᵀX pays: two passes in
    place of one for each gradient."""
    names = squared(problem.plan) if engine.capabilities.squares else ()
    min_rows = max([MIN_ROWS_FOR_SQUARES, *(2 + number_of_coefficients(problem.plan, name)
                                            for name in names)])
    return bool(names) and (problem.in_parts or (problem.size or 0) >= min_rows)


def posterior(plan: Plan, outcome: Outcome, known: Known, rows: Rows | Summary) -> Posterior:
    """The posterior of an outcome; of a point, that of the discrete sites outside rows given it."""
    if not plan.globals or outcome.posterior.varies:
        return outcome.posterior
    return Point(_global_posterior(
        plan, placed_all(dict(outcome.params)), known, rows
    ))


def infer_sizes(models: Mapping[int, Bound], data: object, site: str, engine: EM | VB,
                weights: object, seed: int, where: object = None) -> dict[int, InferenceResult]:
    """Fits of one model with several numbers of states of a latent site, all restarts of all sizes
    in one program: see interface.sizes.grid."""
    sizes, double = sorted(models), jax.config.jax_enable_x64
    place = place_of(where, data)
    obs = place.open_data(models[sizes[-1]], data, weights)
    weight = obs.weights
    engine.refuse(Problem(obs, obs.plan()))

    def attempt() -> tuple[list[Outcome], Known]:
        is_same = jax.config.jax_enable_x64 == double
        current = obs if is_same else obs._replace(structure=trace(obs.model, obs.shapes))
        plan = current.plan()
        runs = len(sizes) * engine.starts(current, plan, {}, len(sizes))
        problem = Problem(current, plan, NOT_LOADED, NOT_LOADED, weight, seed)
        specs = [trace(models[size], current.shapes) for size in sizes]
        with place.shipped(problem, engine.runs_per_program(problem, runs), False, None,
                           engine.capabilities.uses_all_rows,
                           runs=runs) as (rows, known):
            with one_thread(problem.plan.largest_matrix):
                results = engine.grid(replace(problem, rows=rows, known=known), site, sizes, specs)
            return [check_precision(plan, outcome, known, rows) for outcome in results], known

    (results, known), note = retry_in_float64(attempt, lambda results: least_precise(results[0]),
                                              engine.capabilities.uses_prior,
                                              None if double else digits.find_precision_loss(obs))
    by_size = {}
    for size, outcome in zip(sizes, results, strict=True):
        outcome = engine.narrowed(obs.plan(), trace(models[size], obs.shapes), outcome)
        sized_obs = obs._replace(model=models[size], structure=trace(models[size], obs.shapes))
        by_size[size] = InferenceResult(obs, engine, outcome.noting(note),
                                        jax.device_get(known.given),
                                        outcome.posterior, None, note is not None, obs.pattern,
                                        retain_rows(engine, engine, sized_obs, weight),
                                        obs.is_weighted)
    return by_size


_global_posterior = jit(global_posterior, static_argnums=0, seldom=ONCE)
_has_cancellation = jit(has_cancellation, static_argnums=0, seldom=ONCE)
_has_diffuse_start = jit(has_diffuse_start, static_argnums=0, seldom=ONCE)


def place_of(where: object, data: object) -> Place:
    """The place of the rows of a fit.

    Args:
        where: None, a list of devices, a Mesh (see meshes.mesh_of), or a dask.distributed.Client.

    Raises:
        ModelError: something else. DataError: a Dask DataFrame without a client.
    """
    if is_client(where):
        return Cluster(where)
    if is_frame(data):
        raise DataError("the data are a Dask DataFrame, so fit needs the client of its cluster. "
                        "Pass it, fit(frame, ..., where=client) with client = "
                        "dask.distributed.Client(...)")
    if where is None:
        return SingleDevice()
    mesh = mesh_of(where)
    is_default = mesh.size == 1 and mesh.devices.flat[0] == jax.devices()[0]
    return SingleDevice() if is_default else Devices(mesh)
