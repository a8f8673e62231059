"""Many fits of one model to data sets of one shape: what simulation-based calibration asks of an
engine."""

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset import dataset
from probml.dataset.checks import digits
from probml.device import load
from probml.device.rows import Known, Rows
from probml.engines.engine import Engine, Many, Outcome, Problem, Status, planned
from probml.engines.progress import Progress, in_threads
from probml.errors import DataError, ModelError, Refusal, present
from probml.evidence.passes import log_evidence
from probml.fits import fitting
from probml.fits.double import precise
from probml.numerics.compile_effort import ONCE
from probml.numerics.compiling import jit
from probml.plan.plan import Plan
from probml.posteriors.relabelling import Exchange, exchanges
from probml.structure.trace import trace

GIVE_UP = 5  # failures before any success after which it is no use


class Drawn(NamedTuple):
    """Draws of one data set's posterior."""

    values: dict[str, np.ndarray]  # site outside rows → (draws, ...)
    likelihood: np.ndarray  # (draws,) log p(data | parameters)
    true_likelihood: float  # the same at the parameters that made the data
    chain: bool  # each depends on the one before


def exchangeable(data: dataset.Data, plan: Plan, params: Mapping[str, np.ndarray]) -> list[
    Exchange
]:
    """See relabelling.exchanges; `params` is a point of positive density."""
    if plan.complete:
        return []
    rows, known = load.load(data, plan)
    return exchanges(plan, params, known, rows)


def all_of(
    engine: Engine, sets: Sequence[dataset.Data], plan: Plan, truth: Mapping[str, np.ndarray],
    seed: int, draws: int, progress: bool
) -> tuple[dict[int, Drawn], dict[int, str]]:
    """Fit every data set: number → draws of its posterior, or why there are none.

    Some engines find all in one program (`Engine.many`); else fits run one after another, on a CPU
    two at a time.

    Args:
        truth: site outside rows → (sets, ...), the values that made the data; some may be missing.

    Raises:
        Refusal: the engine finds no posterior, or none of the first few data sets.
    """
    at = [{name: value[i] for name, value in truth.items()} for i in range(len(sets))]
    problems = [Problem(data, plan, *load.load(data, plan), seed=seed) for data in sets]
    together = engine.many(problems, draws)
    if together is not None:
        return _of_many(engine, problems, together, at, draws)
    double, host = jax.config.jax_enable_x64, jax.default_backend() == "cpu"
    judged, failures, workers = {}, {}, min(2, os.cpu_count() or 1) if host else 1

    def refit_one(i: int):
        try:
            with jax.enable_x64(double):  # this thread's, as the one's that asks
                judged[i] = _fitted(engine, replace(problems[i], seed=seed + i), at[i], draws)
        except (ModelError, DataError) as error:
            failures[i] = str(error)
            if not judged and len(failures) >= GIVE_UP:
                raise
        bar.update(len(judged) + len(failures), float("nan"))

    with Progress("check", len(sets), progress) as bar:
        refit_one(0)  # compiles what the others use
        in_threads(bar, refit_one, range(1, len(sets)), workers)
    return judged, dict(sorted(failures.items()))


def _of_many(engine: Engine, problems: Sequence[Problem], found: Many, truth: Sequence[Mapping],
             draws: int) -> tuple[dict[int, Drawn], dict[int, str]]:
    """Of posteriors that were found together; those that are missing once more in double."""

    def with_likelihoods(problems: Any, values: Mapping[int, Mapping]) -> dict[int, Drawn]:
        return {i: _with_log_likelihoods(problems[i].plan, each, truth[i], problems[i].rows,
                                         problems[i].known,
                                         found.chain) for i, each in values.items()}

    judged = with_likelihoods(problems, found.values)
    left = [i for i in range(len(problems)) if i not in judged]
    if left and not jax.config.jax_enable_x64:
        with jax.enable_x64(True):
            again = [_anew(engine, problems[i]) for i in left]
            again = [replace(problem, plan=again[0].plan) for problem in again]
            values = present(engine.many(again, draws)).values
            judged |= with_likelihoods(dict(zip(left, again, strict=True)),
                                       {left[j]: each for j, each in values.items()})
    if not judged:
        raise Refusal(f"{type(engine).__name__}: {found.why}, for every simulated data set")
    return judged, {i: found.why for i in range(len(problems)) if i not in judged}


class _Ran(NamedTuple):
    plan: Plan
    rows: Any
    known: Known
    outcome: Outcome


def _anew(engine: Engine, problem: Problem) -> Problem:
    """The same in the precision of now: nothing is kept of traces and arrays in another."""
    data = problem.data
    data = data._replace(structure=trace(data.model, data.shapes))
    plan = planned(data, engine)
    rows, known = load.load(data, plan)
    return replace(problem, data=data, plan=plan, rows=rows, known=known)


def _fitted(engine: Engine, problem: Problem, truth: Mapping, draws: int) -> Drawn:
    """Draws of one posterior; of a fit that fails in float32, of the one in double."""
    double = jax.config.jax_enable_x64

    def attempt() -> _Ran:
        at = problem if jax.config.jax_enable_x64 == double else _anew(engine, problem)
        outcome = engine.run(fitting.reduced(engine, at))
        return _Ran(at.plan, at.rows, at.known, fitting.check_precision(at.plan, outcome, at.known,
                                                                            at.rows))

    ran, note = precise(attempt, lambda ran: ran.outcome, engine.capabilities.uses_prior,
                        digits.find_precision_loss(problem.data))
    with jax.enable_x64(double or note is not None):
        values, chain = _values(engine, ran, problem.seed, draws)
        return _with_log_likelihoods(ran.plan, values, truth, ran.rows, ran.known, chain)


def _values(engine: Engine, ran: _Ran, seed: int, draws: int) -> tuple[dict[str, np.ndarray], bool]:
    """Draws of one posterior, and whether they are a chain."""
    plan, rows, known, outcome = ran
    if outcome.status is Status.COLLAPSED:
        raise Refusal(f"{type(engine).__name__}: {outcome.status.headline}")
    found = fitting.posterior(plan, outcome, known, rows)
    if found.stats:
        flat = {name: np.asarray(value) for name, value in present(found.chains).items()}
        return {name: value.reshape(-1, *value.shape[2:]) for name, value in flat.items()}, True
    if plan.free and not found.varies:
        raise Refusal(f"{type(engine).__name__} gives a point estimate, and check needs a "
                      f"posterior: choose another engine with engine=; explain(data) lists them")
    return jax.device_get(found.draw(plan, known, draws, seed)), False


def _with_log_likelihoods(plan: Plan, values: Mapping, truth: Mapping, rows: Rows, known: Known,
                          chain: bool) -> Drawn:
    """Draws with the log-likelihood of each, and of the true parameters where all are known."""
    own = {name: values[name] for name in plan.free}
    true = np.nan
    if all(name in truth for name in plan.free):
        own = {name: np.concatenate([value, np.asarray(truth[name], value.dtype)[None]])
               for name, value in own.items()}
        true = 0.0
    logs = (np.asarray(_likelihoods(plan, {n: jnp.asarray(v) for n, v in own.items()}, known, rows))
            if own else np.zeros(0))
    if np.isnan(true) or not own:
        return Drawn(dict(values), logs if own else np.zeros(len(next(iter(values.values())))),
                     np.nan, chain)
    return Drawn(dict(values), logs[:-1], float(logs[-1]), chain)


@functools.partial(jit, static_argnums=0, seldom=ONCE)
def _likelihoods(plan: Plan, draws: Mapping, known: Known, rows: Rows) -> jax.Array:
    return jax.lax.map(lambda params: log_evidence(plan, params, known, rows), draws)
