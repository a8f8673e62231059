"""Many fits of one model to data sets of one shape: what simulation-based calibration asks of an
engine."""

import functools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset import dataset, digits
from probml.device import load
from probml.device.rows import Known
from probml.engines import nuts
from probml.engines.double import precise
from probml.engines.engine import Outcome, Progress, Status
from probml.engines.exact import Exact, closed_form, sound
from probml.engines.nuts import NUTS
from probml.engines.start import begin
from probml.engines.start.prior import prior_point
from probml.errors import DataError, ModelError, Refusal
from probml.evidence import density
from probml.evidence.passes import log_evidence, summarise
from probml.fits import fitting
from probml.numerics.compiling import jit
from probml.numerics.transfer import random_key
from probml.plan import decide
from probml.plan.plan import Plan
from probml.posteriors.closed import draw_params
from probml.posteriors.drawn import Draws
from probml.posteriors.relabelling import Exchange, exchanges
from probml.structure.trace import trace

AT_ONCE = 2**26  # numbers that the fits in one program may touch together
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
    engine: Any, sets: Sequence[dataset.Data], plan: Plan, truth: Mapping[str, np.ndarray],
    seed: int, draws: int, progress: bool
) -> tuple[dict[int, Drawn], dict[int, str]]:
    """Fit every data set: number → draws of its posterior, or why there are none.

    Exact's are one program, and so are NUTS' where lanes are cheap, on a GPU. On a CPU fits run one
    after another, two at a time: in one program all chains wait for the longest path of each
    iteration (on a mixture: 30 times the gradients, each no cheaper).

    Args:
        truth: site outside rows → (sets, ...), the values that made the data; some may be missing.

    Raises:
        Refusal: the engine finds no posterior, or none of the first few data sets.
    """
    loaded = [load.load(data, plan) for data in sets]
    at = [{name: value[i] for name, value in truth.items()} for i in range(len(sets))]
    double = jax.config.jax_enable_x64
    if isinstance(engine, Exact) and plan.free:
        judged = _all_exact(plan, dict(enumerate(loaded)), at, seed, draws)
        left = [i for i in range(len(sets)) if i not in judged]
        if left and not double:
            with jax.enable_x64(True):
                again = {i: _anew(sets[i], plan) for i in left}
                its = again[left[0]][1]
                judged |= _all_exact(its, {i: found[2:] for i, found in again.items()}, at, seed,
                                     draws)
        if not judged:
            raise Refusal("Exact: its closed form differs between two points for every simulated "
                          "data set. Try NUTS()")
        return judged, {i: "the closed form differs between two points" for i in range(len(sets))
                        if i not in judged}
    host = jax.default_backend() == "cpu"
    if isinstance(engine, NUTS) and not host:
        found = side_by_side(engine, sets, plan, loaded, seed)
        return {i: _judged(plan, values, at[i], *loaded[i], True)
                for i, values in found.items()}, {}
    judged, failures, workers = {}, {}, min(2, os.cpu_count() or 1) if host else 1

    def one(i):
        try:
            with jax.enable_x64(double):  # this thread's, as the one's that asks
                judged[i] = _fitted(engine, sets[i], plan, loaded[i], at[i], seed + i, draws)
        except (ModelError, DataError) as error:
            failures[i] = str(error)
            if not judged and len(failures) >= GIVE_UP:
                raise
        bar.update(len(judged) + len(failures), float("nan"))

    with Progress("check", len(sets), progress) as bar:
        one(0)  # compiles what the others use
        with ThreadPoolExecutor(workers) as pool:
            tasks = [pool.submit(one, i) for i in range(1, len(sets))]
            try:
                for task in tasks:
                    task.result()
            except BaseException:  # Ctrl-C as well: those under way end
                for task in tasks:
                    task.cancel()
                raise
    return judged, dict(sorted(failures.items()))


class _Ran(NamedTuple):
    plan: Plan
    rows: Any
    known: Known
    outcome: Outcome


def _anew(data: dataset.Data, plan: Plan) -> tuple[dataset.Data, Plan, Any, Known]:
    """Data and plan in the precision of now: nothing is kept of traces and arrays in another."""
    data = data._replace(structure=trace(data.model, data.shapes))
    plan = decide.make(data.structure, plan.pattern, plan.given)
    return data, plan, *load.load(data, plan)


def _fitted(engine: Any, data: dataset.Data, plan: Plan, loaded: tuple, truth: Mapping, seed: int,
            draws: int) -> Drawn:
    """Draws of one posterior; of a fit that fails in float32, of the one in double."""
    double = jax.config.jax_enable_x64

    def attempt() -> _Ran:
        at, its, rows, known = ((data, plan, *loaded) if jax.config.jax_enable_x64 == double
                                else _anew(data, plan))
        outcome = engine.run(at, its, fitting.reduced(engine, its, known, rows), known, None, seed,
                             {})
        return _Ran(its, rows, known, fitting.judged(its, outcome, known))

    ran, note = precise(attempt, lambda ran: ran.outcome, getattr(engine, "prior", True),
                        digits.lost(data))
    with jax.enable_x64(double or note is not None):
        values, chain = _values(engine, ran, seed, draws)
        return _judged(ran.plan, values, truth, ran.rows, ran.known, chain)


def _values(engine: Any, ran: _Ran, seed: int, draws: int) -> tuple[dict[str, np.ndarray], bool]:
    """Draws of one posterior, and whether they are a chain."""
    plan, rows, known, outcome = ran
    if outcome.status is Status.COLLAPSED:
        raise Refusal(f"{type(engine).__name__}: {outcome.status.message}")
    belief = outcome.belief
    if belief is not None:
        if getattr(belief, "stats", None):
            flat = {name: np.asarray(value) for name, value in belief.values.items()}
            return {name: value.reshape(-1, *value.shape[2:]) for name, value in flat.items()}, True
        return jax.device_get(belief.draw(plan, known, draws, seed)), False
    states = fitting.states(plan, outcome, known, rows)
    if plan.free and outcome.posterior is None:
        raise Refusal(f"{type(engine).__name__} finds a point, not a posterior to be checked: try "
                      f"probml.NUTS() or probml.Exact()")
    return jax.device_get(draw_params(plan, draws, outcome.posterior, states, known,
                                      random_key(seed))), False


def _judged(plan: Plan, values: Mapping, truth: Mapping, rows, known: Known, chain: bool) -> Drawn:
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


@functools.partial(jit, static_argnums=0)
def _likelihoods(plan: Plan, draws: Mapping, known: Known, rows) -> jax.Array:
    return jax.lax.map(lambda params: log_evidence(plan, params, known, rows), draws)


# All data sets in one program


def _kinds(loaded: Sequence) -> list[tuple[list[int], Any]]:
    """Data sets whose arrays have the same shapes (they may differ where vectors are seen in part),
    stacked."""
    kinds: dict[Any, list[int]] = {}
    for i, pair in enumerate(loaded):
        leaves, treedef = jax.tree.flatten(pair)
        kinds.setdefault((treedef, tuple((leaf.shape, leaf.dtype) for leaf in leaves)),
                         []).append(i)
    return [(each, jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)),
                                *(loaded[i] for i in each))) for each in kinds.values()]


def _all_exact(plan: Plan, loaded: Mapping[int, tuple], truth: Sequence[Mapping], seed: int,
               draws: int) -> dict[int, Drawn]:
    """By number, the data sets whose closed form is sound."""
    numbers = list(loaded)
    found = {numbers[j]: values
             for j, values in _exact(plan, list(loaded.values()), seed, draws).items()}
    return {i: _judged(plan, values, truth[i], *loaded[i], False) for i, values in found.items()}


def _exact(plan: Plan, loaded: list, seed: int, draws: int) -> dict[int, dict[str, np.ndarray]]:
    out = {}
    for members, (rows, known) in _kinds(loaded):
        size = sum(leaf.size for leaf in jax.tree.leaves(loaded[members[0]])) * max(plan.width, 1)
        batch = max(1, min(len(members), AT_ONCE // max(size, 1)))
        keys = jax.random.split(random_key(seed + 1), len(loaded))[jnp.asarray(members)]
        values, evidence, mismatch = jax.device_get(_solved(plan, draws, batch, known, rows, keys))
        for j, i in enumerate(members):
            if sound(evidence[j], mismatch[j]):
                out[i] = {name: value[j] for name, value in values.items()}
    return out


@functools.partial(jit, static_argnums=(0, 1, 2))
def _solved(plan: Plan, draws: int, batch: int, known: Known, rows, keys):
    def one(part):
        known, rows, key = part
        if plan.additive:
            rows = summarise(plan, prior_point(plan, known), known, rows)
        posterior, evidence, mismatch = closed_form(plan, known, rows)
        return draw_params.__wrapped__(plan, draws, posterior, None, known, key), evidence, mismatch

    return jax.lax.map(one, (known, rows, keys), batch_size=batch)


def side_by_side(engine: NUTS, sets: Sequence[dataset.Data], plan: Plan, loaded: list,
                 seed: int) -> dict[int, dict[str, np.ndarray]]:
    """One chain a data set, all of them advanced together: number → the draws of its parameters,
    (draws, ...)."""
    out = {}
    settings = nuts.Settings(engine.warmup, engine.target_accept, engine.max_tree_depth)
    for members, (rows, known) in _kinds(loaded):
        points = [begin.rough(sets[i], plan, *loaded[i], None, seed + i, {}) for i in members]
        params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *points)
        keys = jax.random.split(random_key(seed), len(loaded))[jnp.asarray(members)]
        frames, states = _begun(plan, settings, params, known, rows, keys)
        trails, done, total = [], 0, engine.warmup + engine.draws
        while done < total:
            count = min(nuts.HELD, total - done)
            states, trail = _advanced(plan, settings, frames, states, known, rows, count)
            trails.append(np.asarray(trail["z"])[:, :count])
            done += count
        z = np.concatenate(trails, 1)[:, engine.warmup :]
        values = jax.device_get(_placed(plan, frames, known, z))
        for j, i in enumerate(members):
            single = Draws({name: value[j][None] for name, value in values.items()}, None, {})
            single = nuts.with_states(plan, single, loaded[i][1], loaded[i][0], seed + i)
            out[i] = {name: np.asarray(value)[0] for name, value in single.values.items()}
    return out


@functools.partial(jit, static_argnums=(0, 1))
def _begun(plan: Plan, settings: nuts.Settings, params, known, rows, keys):
    def one(params, known, rows, key):
        spread, first = jax.random.split(key)
        size = density.size(plan, known)
        begun = begin.climb_and_measure(plan, begin.hyper(plan), params, known, rows,
                                        jax.random.normal(spread, (1, size)))
        states = nuts.begin_chains(plan, settings, begun.frame, begun.starts, first[None], known,
                                   rows)
        return begun.frame, jax.tree.map(lambda leaf: leaf[0], states)

    return jax.vmap(one)(params, known, rows, keys)


@functools.partial(jit, static_argnums=(0, 1))
def _advanced(plan: Plan, settings: nuts.Settings, frames, states, known, rows, count):
    return jax.vmap(lambda f, s, k, r: nuts.advance(plan, settings, f, s, k, r, count))(
        frames, states, known, rows
    )


@functools.partial(jit, static_argnums=0)
def _placed(plan: Plan, frames, known, z):
    return jax.vmap(lambda f, k, z: jax.vmap(lambda z: density.unflat(plan, f.point(z), k)[0])(z))(
        frames, known, z
    )
