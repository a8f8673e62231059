"""Queries of a fit for new rows: plan the query for the observed cells, load the rows, take the
fit's posterior of the parameters, and run one compiled call.

Many rows are asked about block by block from the user's arrays: no copy of all rows is made, and
one program serves any number of rows. Or in equal parts, one thread each: this uses cores that XLA
leaves idle, as in scans along chains, whose steps are too small to be parallelised.
"""

import contextlib
import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset import dataset
from probml.device import layout, load
from probml.device.blocks import Blocks, needs_blocks
from probml.device.rows import Known, Rows
from probml.errors import Refusal, counted
from probml.numerics.process.threads import cores, map_in_threads
from probml.numerics.transfer import placed_all
from probml.plan.plan import Plan
from probml.queries import joint_states, queries, small
from probml.queries.fitted import Fitted
from probml.queries.queries import Belief
from probml.structure.trace import check_chains
from probml.typing import PyTree

# table entries per row up to which one program serves a network for every pattern of missing cells
WORK = 2**25
# rows to which a query is padded, where that costs less than compiling for another number
MIN_PADDED_ROWS = 64
MAX_PADDED_ENTRIES = 2**17  # table entries of all padded rows at most
GROUPS = 1024  # maximum number of parameter draws of a simulation, shared among its rows
# Draws of parameters over which answers without closed form are averaged. Rows whose log density
# has a standard error above MAX_LOG_ERROR then are averaged over MANY_DRAWS, ROWS_AT_ONCE a call.
DRAWS, MANY_DRAWS = 256, 8192
MAX_LOG_ERROR, ROWS_AT_ONCE, MAX_ROWS = 0.02, 2**9, 2**14
MAX_DRAWN_NUMBERS = 2**26  # draws × parameters in memory: half a gigabyte in double
MAX_WORK_OF_DRAWS = 2**32  # draws × rows × steps × effort of a row: some ten seconds
WORST_LOG_ERROR = 0.2  # standard error of a log density beyond which a warning says so

PARTED = 2**20  # numbers in all rows from which they are split: some milliseconds per part
MIN_PART_ROWS = 32  # minimum rows of a part: a scan over fewer costs as much
# plan → (rows of a part, query) pairs whose programs are compiled already
_MET: WeakKeyDictionary[Plan, set[Any]] = WeakKeyDictionary()


class Question(NamedTuple):
    """The arguments of a compiled query, and the map from its output to the user's rows."""

    plan: Plan
    belief: Belief
    known: Known
    rows: Rows
    averaged: bool  # belief.params are posterior draws, to be averaged over
    to_user_rows: Callable  # (array, site) → the user's rows and steps

    def at_point(self, fit: Fitted) -> "Question":
        """The query at the point estimate, for results that cannot be averaged over draws."""
        return self._replace(belief=_belief_of_fit(fit, self.plan, self.known, True)[0],
                             averaged=False) if self.averaged else self


def prepare(fit: Fitted, data: dataset.Data, targets: Sequence[str | tuple[str, ...]],
            plug_in: bool, hidden: tuple[str, ...] = (), min_rows: int | None = None) -> Question:
    """Plan a query of the sites `targets` (a tuple: their joint distribution) and load its rows.

    Args:
        min_rows: minimum number of rows after padding; None: chosen so that one program serves
            queries of any size.
        hidden: continuous sites whose posterior is queried as latent variables.

    Raises:
        Refusal: a continuous cell with children is missing, or a table would exceed the budget.
    """
    return load_query(fit, *plan_query(fit, data, targets, hidden), plug_in, min_rows)


def query_in_parts(fit: Fitted, data: dataset.Data, targets: Sequence[str | tuple[str, ...]],
                   plug_in: bool,
                   about: tuple, ask: Callable[[Question], PyTree]) -> tuple[Plan, PyTree]:
    """The plan of a query, and the result of ask(question): arrays with the user's rows as leading
    axis, in any pytree. Many rows are split into parts that are computed in parallel threads.

    Args:
        about: hashable key that identifies `ask`.

    Raises: as `prepare`.
    """
    posed, plan = plan_query(fit, data, targets)
    return plan, _side_by_side(fit, posed, plan, plug_in, about, ask)


def _side_by_side(fit: Fitted, data: dataset.Data, plan: Plan, plug_in: bool, about: tuple,
                  ask: Callable[[Question], PyTree], draws: int = DRAWS) -> PyTree:
    """The results of `ask`, pytrees of arrays with a leading axis of rows, of parts of the rows
    that run in parallel threads, concatenated.

    Args:
        about: hashable key of the query. Its first run is sequential, so that its programs are
            compiled only once.
    """
    parts = _in_parts(data, plan)
    if len(parts) == 1:
        return ask(load_query(fit, data, plan, plug_in, None, draws))
    compiled, key = _MET.setdefault(plan, set()), (parts[0].table.rows, about, plug_in, draws)
    found = map_in_threads(lambda part: ask(load_query(fit, part, plan, plug_in,
                                                       parts[0].table.rows, draws)),
                           parts, serial=key not in compiled)
    compiled.add(key)
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *found)


def plan_query(fit: Fitted, data: dataset.Data, targets: Sequence[str | tuple[str, ...]],
               hidden: tuple[str, ...] = ()) -> tuple[dataset.Data, Plan]:
    """The data as the query needs them (values of the fit added), and its plan."""
    data = data._replace(table=replace(data.table, values={**fit.given, **data.table.values}))
    if data.steps and len(data.structure.chains) > len(data.structure.markov):
        check_chains(data.structure, {**data.table.values, **fit.point}, data.steps)
    joints = tuple(target for target in targets if isinstance(target, tuple))
    singles: tuple = tuple(dict.fromkeys(name for target in targets
                                  for name in (target if target in joints else (target,))))
    return _planned(data, singles, joints, hidden)


def load_query(fit: Fitted, data: dataset.Data, plan: Plan, plug_in: bool,
               min_rows: int | None = None, draws: int = DRAWS) -> Question:
    order = layout.order(data, plan)
    averaging = not plug_in and fit.belief.varies
    rows, known = load.load(data, plan, keep=order, params=fit.point,
                            least=min_rows or _least(plan, data.steps, draws if averaging else 1),
                            roomy=True)
    belief, averaged = _belief_of_fit(fit, plan, known, plug_in, draws)
    return Question(plan, belief, known, rows, averaged,
                    functools.partial(in_user_order, data, order))


def _least(plan: Plan, steps: int | None, draws: int) -> int:
    """Minimum number of rows after padding, a power of two: one program then serves all smaller
    queries."""
    entries = max(plan.work, plan.width, 1) * load.padded_steps(steps) * draws
    return 1 << min(MIN_PADDED_ROWS, max(MAX_PADDED_ENTRIES // entries, 1)).bit_length() - 1


def in_user_order(data: dataset.Data, order: np.ndarray | None, array: np.ndarray,
                  site: str | tuple[str, ...] | None = None) -> np.ndarray:
    """Results in the order of the user's rows, without padding rows; of a site along time also
    without padding steps."""
    result = load.unload(array, data.table.rows, order)
    target = (data.structure.named[site[0] if isinstance(site, tuple) else site] if site is not None
              else None)
    if target is None or target.time is None:
        return result
    axis = 1 if isinstance(site, tuple) else 1 + target.time
    return result[(slice(None),) * axis + (slice(data.steps),)]


def _planned(data: dataset.Data, targets: tuple[str, ...], joints: tuple,
             hidden: tuple[str, ...]) -> tuple[dataset.Data, Plan]:
    """The data and the plan of a query. Few rows of a network use one program for every pattern
    of missing cells and every target."""
    network = data.structure.network
    if network and data.small():
        # where a plan without any observed cell exceeds the budget: one plan per pattern
        with contextlib.suppress(Refusal):
            loosened = data.loosened(network)
            plan = loosened.plan(tuple(dict.fromkeys((*network, *targets))), merge_globals=True,
                                 joints=joints, hidden=hidden)
            if plan.work <= WORK:
                return loosened, plan
    data = data.loosened({name for joint in joints for name in joint})
    if data.table.rows <= MIN_PADDED_ROWS:  # one program for few rows, whichever cells are missing
        data = data.torn_open((*targets, *hidden))
    return data, data.plan(targets, merge_globals=True, joints=joints, hidden=hidden)


def _belief_of_fit(fit: Fitted, plan: Plan, known: Known, plug_in: bool,
                   draws: int = DRAWS) -> tuple[Belief, bool]:
    """The parameters that queries condition on, and whether these are stacked posterior draws to
    average over."""
    if not fit.belief.varies and fit.belief.table is None:
        # does not use the fit's plan: a fit with given parameters has none if a numpyro.factor
        # depends on a count
        return Belief(dict(fit.point), None, {}), False
    params = placed_all(dict(fit.point))
    if plug_in:
        table = fit.belief.table
        if table is not None:
            mode = jnp.unravel_index(jnp.argmax(table), table.shape)
            table = jnp.full_like(table, -jnp.inf).at[mode].set(0.0)
        return Belief(params, table, {}), False
    return fit.belief.averaged(params, fit._plan, plan, fit._known(), draws)


def joint_draws(fit: Fitted, data: dataset.Data, key: jax.Array, seed: int, plug_in: bool):
    """Joint draws of the latent variables of each row. Row i uses parameter draw i mod GROUPS,
    from the posterior of the fit (not conditioned on the new rows).

    Returns:
        the plan; the function `back`; the belief, whose parameters have a leading axis of draws;
        name → joint states, and log p(row), both in the layout that `back` takes.
    """
    question = prepare(fit, data, (), plug_in).at_point(fit)
    plan, n = question.plan, data.table.rows
    if plug_in or not fit.belief.varies:
        belief, log, states = question.belief, None, {}
        if plan.variables or plan.latents:
            log, states = joint_states.draw(plan, belief, question.known, question.rows, key)
        return (plan, question.to_user_rows,
                belief._replace(params={k: v[None] for k, v in belief.params.items()}), states, log)
    groups = min(n, GROUPS)
    params, table = fit._draws(groups, seed), question.belief.table
    if fit.belief.tables is not None:
        codes = {name: params.pop(name) for name in plan.globals}
        table = jnp.log(jnp.stack(
            [_one_hot(plan, {name: code[i] for name, code in codes.items()}) for i in range(groups)]
        ))
    belief, log, states = Belief({name: params[name] for name in fit.point}, table, {}), None, {}
    if plan.variables or plan.latents:
        order = layout.order(data, plan)
        draw_of_row = (np.arange(n) if order is None else order) % groups
        sorted_rows = np.argsort(draw_of_row, kind="stable")
        counts = np.bincount(draw_of_row, minlength=groups)
        starts, max_count = np.concatenate([[0], np.cumsum(counts)[:-1]]), counts.max()
        index = sorted_rows[np.minimum(starts[:, None] + np.arange(max_count),
                                       (starts + counts - 1)[:, None])]
        row_log, joint = joint_states.draw_each(plan, belief, question.known, question.rows,
                                        jnp.asarray(index), key)
        valid = np.arange(max_count) < counts[:, None]
        size = question.rows.chunks * question.rows.size

        def scattered(array: np.ndarray):
            array = np.asarray(array)
            result = np.zeros((size, *array.shape[2:]), array.dtype)
            result[index[valid]] = array[valid]
            return result[None]

        log, states = scattered(row_log), {name: scattered(value) for name, value in joint.items()}
    return plan, question.to_user_rows, belief, states, log


def _one_hot(plan: Plan, codes: dict) -> np.ndarray:
    """Table over the discrete sites outside rows (axes in the plan's order): 1 at their joint
    state, else 0."""
    table = np.zeros([plan.variables[name].states for name in plan.globals])
    state = [int(np.flatnonzero(
        (plan.variables[n].values.reshape(table.shape[i], -1) == np.ravel(codes[n])).all(1)
    )[0])
             for i, n in enumerate(plan.globals)]  # fmt: skip
    table[tuple(state)] = 1.0
    return table


def answer(
    fit: Fitted, data: dataset.Data, ask: Sequence[tuple[str, str | tuple[str, ...]]],
    plug_in: bool, view: str = queries.ALL
) -> tuple[np.ndarray, dict]:
    """log p(row), (n,), and the results of the queries `ask`, pairs (question, site); warns where
    a row is impossible. Where an average over draws is inaccurate, it is repeated with more.

    Args:
        view: which steps the distribution at a step conditions on: "all", "filtered" (up to and
            including it) or "predicted" (those before it).
    """
    data = data if ask else data.trimmed()
    logs, answers, errors = answer_by_draws(fit, data, ask, plug_in, view)
    inaccurate = np.flatnonzero(errors > MAX_LOG_ERROR)[:MAX_ROWS]
    if len(inaccurate) and (draws := _affordable_draws(fit, data, ask, len(inaccurate))) > DRAWS:
        results = logs, answers, errors = jax.tree.map(np.array, (logs, answers, errors))
        for start in range(0, len(inaccurate), ROWS_AT_ONCE):
            rows = inaccurate[start : start + ROWS_AT_ONCE]
            better = answer_by_draws(fit, data.taken(rows), ask, plug_in, view, draws)
            for old, new in zip(*map(jax.tree.leaves, (results, better)), strict=True):
                old[rows] = new
    if (errors > WORST_LOG_ERROR).any():
        warnings.warn(
            f"model '{fit.model.name}': answers for {(errors > WORST_LOG_ERROR).sum()} of "
            f"{counted(len(errors), 'row')} are inaccurate averages over draws of the posterior. "
            "These rows are far from the data of the fit, or are strong evidence about the "
            "parameters, so that a few draws dominate the average. Their log densities have "
            f"standard errors of up to {errors.max():.2g}. Check the rows where log_prob is "
            "lowest; plug_in=True answers at the point estimates",
            RuntimeWarning, stacklevel=4)
    if ask:
        warn(fit, logs)
    return logs, answers


def _affordable_draws(fit: Fitted, data: dataset.Data,
                      ask: Sequence[tuple[str, str | tuple[str, ...]]], rows: int) -> int:
    """How many draws so many of the rows are averaged over: MANY_DRAWS, less where memory or time
    would not suffice."""
    _, plan = plan_query(fit, data, [site for _, site in ask])
    work = rows * (data.steps or 1) * plan.effort
    return min(MANY_DRAWS, MAX_DRAWN_NUMBERS // max(sum(map(np.size, fit.point.values())), 1),
               MAX_WORK_OF_DRAWS // max(work, 1))


def answer_by_draws(
    fit: Fitted, data: dataset.Data, ask: Sequence[tuple[str, str | tuple[str, ...]]],
    plug_in: bool, view: str = queries.ALL, draws: int = DRAWS
) -> tuple[np.ndarray, dict, np.ndarray]:
    """As `answer`, all rows by the same draws, so many at most, and without warnings; and the
    standard errors of log p(row), (n,)."""
    posed, plan = plan_query(fit, data, [site for _, site in ask])
    network = data.structure.network
    latents = [v for group in plan.latents if plan.timed(group) for v in plan.group_scope(group)]
    if view != queries.ALL and latents:
        raise Refusal(f"given='{view}' is not supported for model '{fit.model.name}', because "
                      f"its time steps depend on '{latents[0]}', which is latent and has one value "
                      f"per row. Give '{latents[0]}' in the data, or use given='all'")
    # query every site of a network, so that one program serves them all
    all_asks = [("probability", name) for name in plan.targets if name in network] if ask else []
    requests = tuple(dict.fromkeys((*all_asks, *ask)))
    blocks = Blocks(posed, plan, None, measured=False) if needs_blocks(posed) and layout.order(
        posed, plan) is None else None
    if blocks is not None and not blocks.fits_few_blocks:
        belief, averaged = _belief_of_fit(fit, plan, blocks.known, plug_in, draws)
        logs, results = _in_blocks(blocks, requests, averaged, belief, view)
        return logs, {k: results[k] for k in ask}, results.get(queries.ERROR, np.zeros(len(logs)))

    def answer_question(question: Question) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
        belief, known, rows, back = (question.belief, question.known, question.rows,
                                     question.to_user_rows)
        if view == queries.ALL and not question.averaged:
            answers = small.answer(plan, ask, belief, known, rows, data.table.rows)
            if answers is not None:
                logs = back(answers[0][None])
                return (logs, [back(answers[1][k][None], k[1]) for k in ask],
                        np.zeros(len(logs)))
        logs, results = queries.answer(plan, requests, question.averaged, belief, known, rows, view)
        return (back(logs), [back(results[k], k[1]) for k in ask],
                back(results.get(queries.ERROR, np.zeros(np.shape(logs)))))

    logs, answers, errors = _side_by_side(fit, posed, plan, plug_in, (requests, view),
                                          answer_question, draws)
    return logs, dict(zip(ask, answers, strict=True)), errors


def warn(fit: Fitted, log: np.ndarray) -> None:
    """Warn which rows have log p(row) = −∞: their results are not probabilities."""
    rows = np.flatnonzero(np.isneginf(log))
    if len(rows):
        listing = ", ".join(map(str, rows[:8])) + ", …" * (len(rows) > 8)
        warnings.warn(
            f"model '{fit.model.name}': {len(rows)} of {counted(len(log), 'row')} have probability "
            f"0 under the fitted model (log_prob −∞): rows {listing}. Their probabilities are "
            "returned as 0, and their predicted states as the first state. Check these rows, or "
            "the parts of the model that give a probability of 0",
            RuntimeWarning,
            stacklevel=5,
        )


def _in_blocks(blocks: Blocks, ask: tuple, averaged: bool, belief: Belief,
           view: str) -> tuple[np.ndarray, dict]:
    """As queries.answer, in the order of the table and without padding: (n,) and (n, ...).

    Cost: memory of the results and of a few blocks.
    """
    rows, start = blocks.data.table.rows, 0
    outputs: list[np.ndarray] = []
    for results in blocks.results(lambda block: queries.answer(
            blocks.plan, ask, averaged, belief, blocks.known, block, view)):
        leaves, treedef = jax.tree.flatten(results)
        leaves = [leaf.reshape(-1, *leaf.shape[2:]) for leaf in map(np.asarray, leaves)]
        if not outputs:
            outputs.extend(np.empty((rows, *leaf.shape[1:]), leaf.dtype) for leaf in leaves)
        end = min(start + len(leaves[0]), rows)
        for output, leaf in zip(outputs, leaves, strict=True):
            output[start:end] = leaf[: end - start]
        start = end
    return jax.tree.unflatten(treedef, outputs)


def _in_parts(data: dataset.Data, plan: Plan) -> list[dataset.Data]:
    """The rows in parts of equal size (the last may be smaller), one part where splitting does not
    pay. Nothing is copied."""
    rows = data.table.rows
    count = min(cores(), rows // MIN_PART_ROWS)
    numbers = rows * (data.steps or 1) * plan.effort
    if count < 2 or numbers < PARTED or jax.default_backend() != "cpu":
        return [data]
    size = -(-rows // count)
    return [data.taken(slice(start, min(start + size, rows))) for start in range(0, rows, size)]
