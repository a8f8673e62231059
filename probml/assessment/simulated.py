"""The data sets of simulation-based calibration, drawn from the prior and the model with the
pattern of observed cells of the user's data; and the fits to them."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset import dataset, read, tables
from probml.dataset.measures import with_measures
from probml.device import load
from probml.device.rows import Known, Rows
from probml.engines.engine import Engine, Problem, Status
from probml.engines.progress import Progress, in_threads
from probml.errors import DataError, ModelError, Refusal, counted, listed, present
from probml.evidence.e_step import log_evidence
from probml.fits import fitting
from probml.language.language import Bound
from probml.numerics.compiling import ONCE, jit
from probml.numerics.process.threads import in_same_precision
from probml.numerics.transfer import random_key
from probml.plan.plan import Plan
from probml.queries.simulation import simulate_draws
from probml.structure.structure import Structure
from probml.structure.trace import structure_of
from probml.typing import DataLike

MAX_FIRST_FAILURES = 5  # before the first success, after which the check is given up


class Drawn(NamedTuple):
    """Draws of one data set's posterior."""

    values: dict[str, np.ndarray]  # site outside rows → (draws, ...)
    likelihood: np.ndarray  # (draws,) log p(data | parameters)
    true_likelihood: float  # log p(data | true parameters)
    chain: bool  # autocorrelated, as of MCMC


def fit_all(
    engine: Engine, sets: Sequence[dataset.Data], plan: Plan, truth: Mapping[str, np.ndarray],
    seed: int, draws: int, progress: bool
) -> tuple[dict[int, Drawn], dict[int, str]]:
    """Fit every data set: number → draws of its posterior, and number → why there are none.

    Fits run one after another, on a CPU two at a time.

    Args:
        truth: site outside rows → (sets, ...), the true values; some sites may be absent.

    Raises:
        Refusal: the engine finds no posterior, or none of the first few data sets.
    """
    truths = [{name: value[i] for name, value in truth.items()} for i in range(len(sets))]
    problems = [Problem(data, plan, *load.load(data, plan), seed=seed) for data in sets]
    workers = min(2, os.cpu_count() or 1) if jax.default_backend() == "cpu" else 1
    fits, failures = {}, {}

    @in_same_precision
    def refit_one(i: int):
        try:
            # the seed itself has made the data
            fits[i] = _fitted(engine, replace(problems[i], seed=seed + 1 + i), truths[i], draws)
        except (ModelError, DataError) as error:
            failures[i] = str(error)
            if not fits and len(failures) >= MAX_FIRST_FAILURES:
                raise
        bar.advance(1)

    with Progress("check", len(sets), progress) as bar:
        refit_one(0)  # compiles what the others use
        in_threads(bar, refit_one, range(1, len(sets)), workers)
    return fits, dict(sorted(failures.items()))


def no_posterior(engine: Engine) -> Refusal:
    return Refusal(f"check: {type(engine).__name__} gives a point estimate, but check needs an "
                   f"engine that gives a posterior. Use check(..., engine=probml.NUTS()); "
                   f"model.explain(data) lists the other engines")


def _fitted(engine: Engine, problem: Problem, truth: Mapping, draws: int) -> Drawn:
    """Draws of one posterior."""
    plan, known = problem.plan, problem.known
    outcome = engine.run(fitting.reduce_rows(engine, problem))
    if outcome.status is Status.COLLAPSED:
        raise Refusal(f"{type(engine).__name__}: {outcome.status.headline}")
    post = fitting.posterior(plan, outcome, known, problem.rows)
    if plan.free and not post.varies:
        raise no_posterior(engine)
    values = {name: np.asarray(value).reshape(-1, *np.shape(value)[2:])
              for name, value in present(post.chains).items()} if post.stats else jax.device_get(
                  post.draw(plan, known, draws, problem.seed))
    return _with_log_likelihoods(problem, values, truth, bool(post.stats))


def _with_log_likelihoods(problem: Problem, values: Mapping, truth: Mapping,
                          chain: bool) -> Drawn:
    """Draws with the log-likelihood of each, and of the true parameters where all are known."""
    plan, count = problem.plan, len(next(iter(values.values())))
    if not plan.free:
        return Drawn(dict(values), np.zeros(count), np.nan, chain)
    complete = all(name in truth for name in plan.free)
    draws = {name: np.concatenate([values[name], np.asarray(truth[name], values[name].dtype)[None]])
             if complete else values[name] for name in plan.free}
    logs = np.asarray(_likelihoods(plan, {n: jnp.asarray(v) for n, v in draws.items()},
                                   problem.known, problem.rows))
    return Drawn(dict(values), logs[:count], float(logs[-1]) if complete else np.nan, chain)


@jit(static_argnums=0, seldom=ONCE, draws=1)
def _likelihoods(plan: Plan, draws: Mapping, known: Known, rows: Rows) -> jax.Array:
    return jax.lax.map(lambda params: log_evidence(plan, params, known, rows), draws)


MAX_SIMULATED_NUMBERS = 2**28  # in memory at once


# Simulated data


def template(model: Bound, data: DataLike, rows: int | None,
             steps: int | None) -> tuple[dataset.Data, bool]:
    """Data with the pattern of observed cells of the simulated rows, and whether their values are
    the user's data or placeholders."""
    if isinstance(data, int | np.integer) and not isinstance(data, bool) and data >= 1:
        if rows is not None:
            raise ModelError(f"check({data}, rows={rows}): the number of rows is given twice. Omit "
                             f"one of the two arguments")
        data, rows = None, int(data)
    names = getattr(data, "column_names", data if data is not None else ())
    try:
        known = set(names)
    except TypeError:
        raise ModelError(f"check({data!r:.60}): expected data (a mapping or table), or the number "
                         f"of rows to simulate, rows=100") from None
    if rows is None and not known:
        raise ModelError(f"check: the number of rows to simulate is unknown. Pass data, "
                         f"model.check(data), or, if model '{model.name}' has no inputs, pass the "
                         f"number, model.check(rows=100)")
    parsed = with_measures(read.read(model, data, rows=rows, steps=steps))
    soft_name = next((name for name, column in parsed.table.columns.items()
                      if column.likelihood is not None), None)
    if soft_name is not None:
        raise Refusal(f"check: '{soft_name}' is given as label probabilities (one column for each "
                      f"state), which check cannot simulate. Give one state in each row, or drop "
                      f"'{soft_name}' from the data")
    if parsed.table.columns:
        return parsed.trimmed(), True
    sites, columns = parsed.structure.sites, {}
    for site in sites.values():
        latent = site.states is not None and any(sites[child].rows
                                                 for child in parsed.structure.children[site.name])
        if site.rows and not latent and not site.factor:
            shape = (parsed.table.rows, *site.along(parsed.steps))
            columns[site.name] = tables.Column(np.zeros(shape,
                                                        np.int32 if site.discrete else float), None)
    return parsed._replace(table=replace(parsed.table, columns=columns)), False


def simulated(data: dataset.Data, plan: Plan, simulations: int, seed: int, simulator: Bound | None
              ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """True values of the sites outside rows, and the observed columns: name → (simulations, ...).

    Raises:
        Refusal: a prior or a site that cannot be drawn from, or whose draws are not finite.
            ModelError: another model's sites differ.
    """
    structure = data.structure if simulator is None else _simulator_structure(data, plan, simulator)
    given = {name: value for name, value in data.table.values.items() if name in structure.sites}
    sites = structure.sites
    outside = tuple(s for s in (*plan.free, *plan.globals) if s in sites
                    and sites[s].shape == data.structure.sites[s].shape)
    observed = tuple(data.table.columns)
    drawn = from_prior(structure, data, (*outside, *observed), given, simulations, seed, "check")
    for name, value in drawn.items():
        invalid = ~np.isfinite(value) | ((value < 0) if sites[name].discrete else False)
        if invalid.any():
            count = int(invalid.reshape(simulations, -1).any(1).sum())
            raise Refusal(
                f"check: in {count} of {simulations} simulations the simulated values of '{name}' "
                f"({sites[name].kind}) are infinite or overflow. Use narrower priors of "
                f"{listed(list(sites[name].parents) or [name])}"
            )
    return {name: drawn[name] for name in outside}, {name: drawn[name] for name in observed}


def from_prior(structure: Structure, data: dataset.Data, names: tuple[str, ...], given: Mapping,
               count: int, seed: int, verb: str) -> dict[str, np.ndarray]:
    """`count` data sets with the inputs of these rows, each with its own draw from the prior: site
    → (count, ...).

    Args:
        given: values of sites outside rows that are not drawn.

    Raises:
        Refusal: a loss, a prior that weighs by a factor or is improper: none can be drawn from;
            more numbers than MOST.
    """
    structure.need_likelihood(verb)
    sites, n = structure.sites, data.table.rows
    flat = next((s.name for s in sites.values() if s.entry.improper and s.name not in given
                 and not s.rows), None)
    if structure.prior_factors or flat is not None:
        what = (f"the factor '{structure.prior_factors[0]}' modifies the prior. Write this prior "
                "as numpyro.sample statements" if structure.prior_factors
                else f"the prior of '{flat}' is improper. Use a prior that integrates to 1, such "
                f"as sample('{flat}', dist.Normal(0, 10)), or give its value in the data, "
                f"'{flat}': ...")
        raise Refusal(f"{verb}: model '{structure.model.name}' cannot be simulated, because {what}")
    size = count * n * sum(math.prod(structure.named[name].along(data.steps)) for name in names
                           if structure.named[name].rows)
    if size > MAX_SIMULATED_NUMBERS:
        raise Refusal(f"{verb}: {count} simulated data sets of {counted(n, 'row')} have "
                      f"{size:,.0f} numbers, more than the limit of {MAX_SIMULATED_NUMBERS:,.0f}. "
                      "Pass fewer rows, or a smaller "
                      f"{'simulations' if verb == 'check' else 'prior'}=")
    drawn = simulate_draws(structure, names, {}, given, data.table.inputs, random_key(seed), n,
                           count, data.steps)
    return {name: np.asarray(value) for name, value in drawn.items()}


def _simulator_structure(data: dataset.Data, plan: Plan, simulator: Bound) -> Structure:
    """The structure of the other model that simulates the rows.

    Raises:
        ModelError: it lacks an observed site, or shares no parameter.
    """
    inputs = {name: (a.shape[1:], a.dtype.kind) for name, a in data.table.inputs.items()}
    missing = next((name for name in simulator.inputs if name not in inputs), None)
    if missing is not None:
        raise ModelError(f"check(simulator={simulator!r}): the simulator has the input "
                         f"'{missing}', which the data do not contain; the data contain the inputs "
                         f"{listed(inputs)}. Add '{missing}' to the data")
    structure, sites = (structure_of(simulator, {name: inputs[name] for name in simulator.inputs}),
                        data.structure.sites)
    for name in data.table.columns:
        other = structure.sites.get(name)
        if other is None or not other.rows or other.along(data.steps) != sites[name].along(
            data.steps
        ):
            got = "no such site" if other is None else f"the shape {other.along(data.steps)}"
            raise ModelError(f"check(simulator={simulator!r}): the checked model has site '{name}' "
                             f"with shape {sites[name].along(data.steps)} in each row, but the "
                             f"simulator has {got}. Give the simulator this site with this shape")
    shared = [n for n in (*plan.free, *plan.globals) if n in structure.sites
              and structure.sites[n].shape == sites[n].shape]
    if not shared:
        raise ModelError(f"check(simulator={simulator!r}): the simulator has no parameter with the "
                         "name and the shape of a parameter of the checked model. So there is no "
                         "true value to compare with. Give the simulator at least one of the "
                         f"parameters {listed([*plan.free, *plan.globals])}, with the same shape")
    return structure


def fill_template(data: dataset.Data, values: Mapping[str, np.ndarray]) -> dataset.Data:
    """The template with simulated values in its observed cells."""
    columns = {
        name: replace(column, values=values[name].astype(column.values.dtype, copy=False))
        for name, column in data.table.columns.items()
    }
    return data._replace(table=replace(data.table, columns=columns))
