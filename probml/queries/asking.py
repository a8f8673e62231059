"""From a question to its answer: the plan for what was seen, the rows, what the fit believes, one
compiled call."""

import contextlib
import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset import dataset
from probml.device import layout, load
from probml.device.blocks import Blocks, many
from probml.device.rows import Known, Rows
from probml.errors import Refusal
from probml.numerics.transfer import placed_all
from probml.plan.plan import Plan
from probml.queries import blockwise, drawing, queries, small
from probml.queries.fitted import Fitted
from probml.queries.parts import Belief
from probml.structure.possible import check_chains

# entries of all tables a row up to which a network is asked without regard to what is seen
WORK = 2**25
# rows to which a question is padded, where that costs less than compiling for another number
LEAST = 64
SMALL = 2**17  # entries of all tables for that many rows
GROUPS = 1024  # draws of the parameters among which the rows of a simulation share
DRAWS = 256  # parameter draws over which a predictive without closed form is averaged


class Question(NamedTuple):
    """All that a compiled question takes, and the way back to the user's rows."""

    plan: Plan
    belief: Belief
    known: Known
    rows: Rows
    averaged: bool  # the belief's parameters are draws, to be averaged over
    back: Callable  # (array, site) → the user's rows and steps

    def at_point(self, fit: Fitted) -> "Question":
        """The same about one parameter value, for what cannot be averaged."""
        return self._replace(belief=_belief_of_fit(fit, self.plan, self.known, True)[0],
                             averaged=False) if self.averaged else self


def prepare(fit: Fitted, data: dataset.Data, targets: Sequence[str | tuple[str, ...]],
            plug_in: bool, hidden: tuple[str, ...] = (), least: int | None = None) -> Question:
    """Plan a question about sites, or about some together, and load its rows.

    Args:
        least: to how many rows it is padded at the least; None: as suits programs for any number.
        hidden: continuous sites that are asked for as latents.

    Raises:
        Refusal: a continuous cell that others depend on is unseen, or a table would be above the
            budget.
    """
    return _loaded(fit, *_posed(fit, data, targets, hidden), plug_in, least)


def asked(fit: Fitted, data: dataset.Data, targets: Sequence[str | tuple[str, ...]], plug_in: bool,
          about: tuple, ask: Callable[[Question], Any]) -> tuple[Plan, Any]:
    """The plan of a question, and ask(question) → arrays of the user's rows, in any pytree; of many
    rows part by part, side by side.

    Args:
        about: what tells `ask` from others, hashable.

    Raises: as `prepare`.
    """
    posed, plan = _posed(fit, data, targets)
    return plan, _side_by_side(fit, posed, plan, plug_in, about, ask)


def _side_by_side(fit: Fitted, data: dataset.Data, plan: Plan, plug_in: bool, about: tuple,
                  ask: Callable[[Question], Any]) -> Any:
    some = blockwise.cut(data, plan)
    least = some[0].table.rows if len(some) > 1 else None
    return blockwise.side_by_side(lambda part: ask(_loaded(fit, part, plan, plug_in, least)), some,
                                  plan, (about, plug_in))


def _posed(fit: Fitted, data: dataset.Data, targets: Sequence[str | tuple[str, ...]],
           hidden: tuple[str, ...] = ()) -> tuple[dataset.Data, Plan]:
    """A question, planned, and the data as it takes them."""
    data = data._replace(table=replace(data.table, values={**fit.given, **data.table.values}))
    if data.steps and len(data.structure.chains) > len(data.structure.markov):
        check_chains(data.structure, {**data.table.values, **fit.point}, data.steps)
    joints = tuple(target for target in targets if isinstance(target, tuple))
    singles: tuple = tuple(dict.fromkeys(name for target in targets
                                  for name in (target if target in joints else (target,))))
    return _planned(data, singles, joints, hidden)


def _loaded(fit: Fitted, data: dataset.Data, plan: Plan, plug_in: bool,
            least: int | None = None) -> Question:
    order = layout.order(data, plan)
    averaging = not plug_in and fit.belief.varies
    rows, known = load.load(data, plan, keep=order, params=fit.point,
                            least=least or _least(plan, data.steps, DRAWS if averaging else 1),
                            roomy=True)
    belief, averaged = _belief_of_fit(fit, plan, known, plug_in)
    return Question(plan, belief, known, rows, averaged, functools.partial(back, data, order))


def _least(plan: Plan, steps: int | None, draws: int) -> int:
    """To how many rows a question is padded: a power of two, so that one program serves them
    all."""
    entries = max(plan.work, plan.width, 1) * load.room(steps) * draws
    return 1 << min(LEAST, max(SMALL // entries, 1)).bit_length() - 1


def back(data: dataset.Data, order: np.ndarray | None, array: np.ndarray,
         site: str | tuple[str, ...] | None = None) -> np.ndarray:
    """Answers in the user's rows, without padding; about a site along time, in its steps."""
    out = load.unload(array, data.table.rows, order)
    found = (data.structure.named[site[0] if isinstance(site, tuple) else site] if site is not None
             else None)
    if found is None or found.time is None:
        return out
    axis = 1 if isinstance(site, tuple) else 1 + found.time
    return out[(slice(None),) * axis + (slice(data.steps),)]


def _planned(data: dataset.Data, targets: tuple[str, ...], joints: tuple,
             hidden: tuple[str, ...]) -> tuple[dataset.Data, Plan]:
    """The plan of a question. Few rows of a network are asked through one program, whatever is seen
    and whatever is asked."""
    network = data.structure.network
    if network and data.small():
        # too wide where nothing is known to be seen: each pattern by itself then
        with contextlib.suppress(Refusal):
            loose = data.loosened(network)
            plan = loose.plan(tuple(dict.fromkeys((*network, *targets))), merge_globals=True,
                              joints=joints, hidden=hidden)
            if plan.work <= WORK:
                return loose, plan
    data = data.loosened({name for joint in joints for name in joint})
    if data.table.rows <= LEAST:  # few rows are asked through one program, whatever cells are empty
        data = data.torn_open((*targets, *hidden))
    return data, data.plan(targets, merge_globals=True, joints=joints, hidden=hidden)


def _belief_of_fit(fit: Fitted, plan: Plan, known: Known, plug_in: bool) -> tuple[Belief, bool]:
    """The parameters on which queries condition, and whether they are a stack of draws to average
    over."""
    if not fit.belief.varies and fit.belief.table is None:
        # without the plan of a fit: parameters that are given have none where factors weigh a count
        return Belief(dict(fit.point), None, {}), False
    params = placed_all(dict(fit.point))
    if plug_in:
        table = fit.belief.table
        if table is not None:
            best = jnp.unravel_index(jnp.argmax(table), table.shape)
            table = jnp.full_like(table, -jnp.inf).at[best].set(0.0)
        return Belief(params, table, {}), False
    *found, several = fit.belief.averaged(params, fit._plan, plan, fit._known(), DRAWS)
    return Belief(*found), several


def drawn(fit: Fitted, data: dataset.Data, key: jax.Array, seed: int, plug_in: bool):
    """Joint draws of what is hidden and discrete in rows, each row with its own draw of the
    parameters (row i with the i-th, and again from the first after GROUPS), which are drawn given
    what was fitted, not given the new rows.

    Returns:
        plan, way back, belief with parameters led by the axis of draws, name → joint states and log
        p(row) as `back` takes them.
    """
    question = prepare(fit, data, (), plug_in).at_point(fit)
    plan, n = question.plan, data.table.rows
    if plug_in or not fit.belief.varies:
        belief, log, states = question.belief, None, {}
        if plan.variables or plan.latents:
            log, states = drawing.draw(plan, belief, question.known, question.rows, key)
        return (plan, question.back,
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
        owner = (np.arange(n) if order is None else order) % groups
        places = np.argsort(owner, kind="stable")
        counts = np.bincount(owner, minlength=groups)
        begins, most = np.concatenate([[0], np.cumsum(counts)[:-1]]), counts.max()
        index = places[np.minimum(begins[:, None] + np.arange(most),
                                  (begins + counts - 1)[:, None])]
        found, drew = drawing.draw_each(plan, belief, question.known, question.rows,
                                        jnp.asarray(index), key)
        real = np.arange(most) < counts[:, None]
        size = question.rows.chunks * question.rows.size

        def scattered(array: np.ndarray):
            array = np.asarray(array)
            out = np.zeros((size, *array.shape[2:]), array.dtype)
            out[index[real]] = array[real]
            return out[None]

        log, states = scattered(found), {name: scattered(value) for name, value in drew.items()}
    return plan, question.back, belief, states, log


def _one_hot(plan: Plan, codes: dict) -> np.ndarray:
    """1 at the joint state of the discrete sites outside rows, in the plan's order."""
    out = np.zeros([plan.variables[name].states for name in plan.globals])
    at = [int(np.flatnonzero(
        (plan.variables[n].values.reshape(out.shape[i], -1) == np.ravel(codes[n])).all(1)
    )[0])
          for i, n in enumerate(plan.globals)]  # fmt: skip
    out[tuple(at)] = 1.0
    return out


def answer(
    fit: Fitted, data: dataset.Data, ask: Sequence[tuple[str, str | tuple[str, ...]]],
    plug_in: bool, view: str = queries.ALL
) -> tuple[np.ndarray, dict]:
    """log p(row), (n,), and the answers to pairs (question, site); warns where a row is impossible.

    Args:
        view: what an answer about a step looks at: "all" of the row, "filtered" (the steps up to
            it) or "predicted" (those before it).
    """
    data = data if ask else data.trimmed()
    posed, plan = _posed(fit, data, [site for _, site in ask])
    network = data.structure.network
    beside = [v for group in plan.latents if plan.timed(group) for v in plan.reach(group)]
    if view != queries.ALL and beside:
        raise Refusal(f"given='{view}' of model '{fit.model.name}': its latent states along time "
                      f"depend on '{beside[0]}', which is latent and has one value per row: give "
                      f"'{beside[0]}' in the data, or use given='all'")
    # the same program for every site
    every = [("probability", name) for name in plan.targets if name in network] if ask else []
    wanted = tuple(dict.fromkeys((*every, *ask)))
    blocks = Blocks(posed, plan, None, measured=False) if many(posed) and layout.order(
        posed, plan) is None else None
    if blocks is not None and not blocks.fits_few_blocks:
        belief, averaged = _belief_of_fit(fit, plan, blocks.known, plug_in)
        log, out = blockwise.answer(blocks, wanted, averaged, belief, view)
        if ask:
            warn(fit, log)
        return log, {k: out[k] for k in ask}

    def answer_question(question: Question) -> tuple[np.ndarray, list[np.ndarray]]:
        belief, known, rows, back = (question.belief, question.known, question.rows,
                                     question.back)
        if view == queries.ALL and not question.averaged:
            found = small.answer(plan, ask, belief, known, rows, data.table.rows)
            if found is not None:
                return back(found[0][None]), [back(found[1][k][None], k[1]) for k in ask]
        log, out = queries.answer(plan, wanted, question.averaged, belief, known, rows, view)
        return back(log), [back(out[k], k[1]) for k in ask]

    log, found = _side_by_side(fit, posed, plan, plug_in, (wanted, view), answer_question)
    if ask:
        warn(fit, log)
    return log, dict(zip(ask, found, strict=True))


def warn(fit: Fitted, log: np.ndarray) -> None:
    """Say which rows are impossible: their answers are no probabilities."""
    rows = np.flatnonzero(np.isneginf(log))
    if len(rows):
        shown = ", ".join(map(str, rows[:8])) + ", …" * (len(rows) > 8)
        warnings.warn(
            f"model '{fit.model.name}': {len(rows)} of {len(log)} rows are impossible under the "
            f"fitted model (log_prob −∞), so their probabilities are 0 and their states are set to "
            f"the first: rows {shown}",
            RuntimeWarning,
            stacklevel=5,
        )
