"""Many fits of one model to data sets of one shape: what simulation-based calibration asks of an
engine."""

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset import dataset
from probml.device import load
from probml.device.rows import Known
from probml.engines.engine import Engine, Problem, Status
from probml.engines.progress import Progress, in_threads
from probml.errors import DataError, ModelError, Refusal
from probml.evidence.passes import log_evidence
from probml.fits import fitting
from probml.numerics.compile_effort import ONCE
from probml.numerics.compiling import jit
from probml.numerics.precision import in_same_precision
from probml.plan.plan import Plan

GIVE_UP = 5  # failures before any success after which it is no use


class Drawn(NamedTuple):
    """Draws of one data set's posterior."""

    values: dict[str, np.ndarray]  # site outside rows → (draws, ...)
    likelihood: np.ndarray  # (draws,) log p(data | parameters)
    true_likelihood: float  # the same at the parameters that made the data
    chain: bool  # each depends on the one before


def all_of(
    engine: Engine, sets: Sequence[dataset.Data], plan: Plan, truth: Mapping[str, np.ndarray],
    seed: int, draws: int, progress: bool
) -> tuple[dict[int, Drawn], dict[int, str]]:
    """Fit every data set: number → draws of its posterior, or why there are none.

    Fits run one after another, on a CPU two at a time.

    Args:
        truth: site outside rows → (sets, ...), the values that made the data; some may be missing.

    Raises:
        Refusal: the engine finds no posterior, or none of the first few data sets.
    """
    at = [{name: value[i] for name, value in truth.items()} for i in range(len(sets))]
    problems = [Problem(data, plan, *load.load(data, plan), seed=seed) for data in sets]
    workers = min(2, os.cpu_count() or 1) if jax.default_backend() == "cpu" else 1
    judged, failures = {}, {}

    @in_same_precision
    def refit_one(i):
        try:
            judged[i] = _fitted(engine, replace(problems[i], seed=seed + i), at[i], draws)
        except (ModelError, DataError) as error:
            failures[i] = str(error)
            if not judged and len(failures) >= GIVE_UP:
                raise
        bar.advance(1, float("nan"))

    with Progress("check", len(sets), progress) as bar:
        refit_one(0)  # compiles what the others use
        in_threads(bar, refit_one, range(1, len(sets)), workers)
    return judged, dict(sorted(failures.items()))


def _fitted(engine: Engine, problem: Problem, truth: Mapping, draws: int) -> Drawn:
    """Draws of one posterior."""
    plan, known = problem.plan, problem.known
    outcome = engine.run(fitting.reduced(engine, problem))
    if outcome.status is Status.COLLAPSED:
        raise Refusal(f"{type(engine).__name__}: {outcome.status.headline}")
    found = fitting.posterior(plan, outcome, known, problem.rows)
    if plan.free and not found.varies:
        raise Refusal(f"{type(engine).__name__} gives a point estimate, and check needs a "
                      f"posterior: choose another engine with engine=; explain(data) lists them")
    values = {name: np.asarray(value).reshape(-1, *np.shape(value)[2:])
              for name, value in found.chains.items()} if found.stats else jax.device_get(
                  found.draw(plan, known, draws, problem.seed))
    return _with_log_likelihoods(problem, values, truth, bool(found.stats))


def _with_log_likelihoods(problem: Problem, values: Mapping, truth: Mapping,
                          chain: bool) -> Drawn:
    """Draws with the log-likelihood of each, and of the true parameters where all are known."""
    plan, rows, known = problem.plan, problem.rows, problem.known
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
def _likelihoods(plan: Plan, draws: Mapping, known: Known, rows) -> jax.Array:
    return jax.lax.map(lambda params: log_evidence(plan, params, known, rows), draws)
