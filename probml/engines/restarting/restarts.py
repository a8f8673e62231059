"""Random restarts: all runs until they converge; the best one.

Convergence of the parameters: the best run continues until they, too, have converged, since
along a ridge an iteration gains next to nothing long before.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.engine import Outcome, Status
from probml.engines.findings import Code, Finding
from probml.engines.progress import Loop, Progress, StepResult, iterate
from probml.engines.restarting.squarem import BLOCK, State, initial_state, run_em_block
from probml.engines.restarting.vectors import unpack
from probml.engines.start.race import Race, has_ended, is_alive, restarts_finding
from probml.engines.start.start import Start
from probml.plan.plan import Plan
from probml.structure.structure import Structure
from probml.typing import PyTree

GAIN_SHARE = 1e-3  # of the tolerance; a run that gains less ends in any case
MAX_CALLS = 8  # of the device, with BLOCK evaluations each
MORE_EVALUATIONS = 1.0  # at most, for each that the run has taken: no fit takes twice as long


def relative_tolerance(tolerance: float) -> float:
    """The relative distance of parameters from their limit below which they count as converged: in
    a direction with full information it costs `tolerance` in log-likelihood per row."""
    return float(np.sqrt(2 * tolerance))


def converge_parameters(engine: Any, plan: Plan, state: State, history: np.ndarray,
                        best: int, init: Start, rows: Rows, known: Known, closed: bool,
                        parameter_tolerance: float) -> tuple[State, np.ndarray, bool]:
    """The states and objectives of all restarts, where `best` has continued until the distance of
    its parameters to their limit, as SQUAREM predicts it, is below `parameter_tolerance`. Also
    whether rounding ended it before, as it may in float32.

    It stops after as many evaluations as the run took before: a probability that hardly any row
    informs may creep for ever, as in networks. The program is that of the restarts: nothing is
    compiled.

    Args:
        engine: EM, whose settings are used.
    """
    def is_moving(state: State) -> bool:
        return float(state.distance[best]) > parameter_tolerance

    if int(state.status[best]) != Status.CONVERGED or not is_moving(state):
        return state, history, False
    static = (engine.prior, engine.hard, engine.accelerate, closed)
    gain = GAIN_SHARE * engine.tolerance * rows.weight
    spent, blocks = int(state.count[best]), [history]
    max_evals = min(engine.max_iterations + 1, spent + max(int(MORE_EVALUATIONS * spent), BLOCK))
    is_best = np.arange(len(state.status)) == best
    statuses, start = np.asarray(state.status), init._replace(drawn=None)
    runs = state._replace(status=np.where(is_best, Status.RUNNING,
                                          Status.STOPPED).astype(statuses.dtype),
                          stalled=np.zeros_like(np.asarray(state.stalled)))
    for _ in range(MAX_CALLS):
        limit = min(int(runs.count[best]) + BLOCK, max_evals)
        runs, values, _ = run_em_block(plan, static, runs, start, known, rows, limit, gain)
        blocks.append(values)
        if int(runs.status[best]) != Status.RUNNING or limit == max_evals or not is_moving(runs):
            break
    if int(runs.status[best]) not in (Status.RUNNING, Status.CONVERGED):
        return state, history, True  # rounding made it fall: the state before had converged
    by_rounding = int(runs.status[best]) == Status.CONVERGED and is_moving(runs)
    return runs._replace(status=statuses), np.concatenate(blocks, 1), by_rounding


TIE = 0.01  # of the difference within which two optima count as one: the first of them is taken
# A spurious maximum: starts that reach it, at most; starts that reach the usual one, at least; its
# scale relative to the usual one's; log density within which two optima are one.
MAX_SPURIOUS_STARTS, MIN_USUAL_STARTS, SPURIOUS_SCALE, EQUAL = 2, 6, 0.2, 0.01

# (state, data of each restart, evaluations in all) → (state, values (restarts, block), whether all
# have ended)
Advance = Callable[[PyTree, PyTree, int], tuple[PyTree, PyTree, bool]]


def run_restarts(engine: Any, plan: Plan, init: Start, rows: Rows, known: Known,
                 closed: bool, race: Race | None = None) -> tuple[State, np.ndarray]:
    """The final state of every restart of EM, and the values of its objective.

    Args:
        engine: EM, whose settings are used.
    """
    static = (engine.prior, engine.hard, engine.accelerate, closed)
    gain = engine.tolerance * rows.weight
    start = initial_state(plan, init.params, init.expected is not None, init.drawn)
    return run_to_convergence(
        "EM", rows, start, init._replace(drawn=None),
        lambda state, own, limit: run_em_block(plan, static, state, own, known, rows, limit, gain),
        BLOCK, engine.max_iterations, race, engine.progress)


def run_to_convergence(title: str, rows: Rows, state: PyTree, data: PyTree, advance: Advance,
                       block: int, limit: int, race: Race | None,
                       progress: bool) -> tuple[PyTree, np.ndarray]:
    """The final state of every restart, and the values of its objective, (restarts, evaluations).

    A device call advances all that still run.

    Args:
        state: a named tuple with `value`, `count` and `status`, whose leaves begin with an axis of
            restarts. data: further data of each restart, with such leaves.
        advance: see `Advance`. block: evaluations of a call.
        limit: iterations at most, of which there is one less than evaluations.
    """
    loop, max_evaluations = Loop(state, "history"), limit + 1
    history = loop.lists["history"]

    def turn(done: int) -> StepResult:
        """One call; `done` counts M-steps, of which there is one less than evaluations."""
        racing, early = race if race is not None and race.on else None, not history
        # if rows are read in parts each evaluation is long
        count = racing.first if racing and early else block if racing or rows.in_memory else 1
        most = min((0 if early else done + 1) + count, max_evaluations)
        loop.state, values, ended = advance(loop.state, data, most)
        history.append(np.asarray(values, float))
        ended = bool(ended) or most >= max_evaluations
        if racing and not ended:
            loop.state = loop.state._replace(status=racing.stop_hopeless(
                np.asarray(loop.state.status), np.asarray(loop.state.value), history[-1], early))
        best = float(np.asarray(loop.state.value).max())
        ended = ended or not (np.asarray(loop.state.status) == Status.RUNNING).any()
        return StepResult(most - 1 - done, best, Status.CONVERGED if ended else Status.RUNNING)

    with Progress(title, limit, progress) as bar:
        iterate(bar, max_evaluations, turn, held=loop)
    return jax.tree.map(np.asarray, loop.state), np.concatenate(history, 1)


def _has_ended(runs: PyTree) -> np.ndarray:
    """Which restarts were neither stopped early nor collapsed, (restarts,)."""
    return has_ended(np.asarray(runs.status), np.asarray(runs.value))


def stopped_is_highest(runs: PyTree) -> bool:
    """Whether a restart that was stopped early is higher than all that were not: those ahead of it
    have collapsed."""
    stopped, value = np.asarray(runs.status) == Status.STOPPED, np.asarray(runs.value)
    return bool(stopped.any()
                and value[stopped].max() > value[_has_ended(runs)].max(initial=-np.inf))


def first_states(structure: Structure, outcome: Outcome) -> Outcome:
    """An outcome of a model with more states, in the shapes of a model with fewer: those of the
    first states."""
    slices = {name: tuple(slice(n) for n in structure.sites[name].shape) for name in outcome.params}
    return outcome._replace(params={name: value[slices[name]]
                                    for name, value in outcome.params.items()})


def index_of_best(runs: PyTree, slack: float = 0.0) -> int:
    """The index of the best restart. close: difference within which two optima count as one."""
    value = np.asarray(runs.value)
    reached = np.where(_has_ended(runs), value, -np.inf)
    # rounding must not choose the order of the states
    tie = TIE * slack + 64 * np.finfo(value.dtype).eps * np.abs(reached.max())
    return int(np.argmax(reached >= reached.max() - (tie if np.isfinite(tie) else 0.0)))


def outcome_of_best(runs: PyTree, values: np.ndarray, slack: float, best: int) -> Outcome:
    """The outcome of the restart `best`, without its parameters, and a finding about the others.

    Args:
        values: of the objective of `best`. slack: difference within which two optima count as one.
    """
    status, value = np.asarray(runs.status), np.asarray(runs.value)
    alive, ended = is_alive(status, value), has_ended(status, value)
    final = Status(int(status[best])) if ended[best] else Status.COLLAPSED
    collapsed = int((~alive).sum())
    return Outcome(
        {}, values[np.isfinite(values)],
        Status.MAX_ITERATIONS if final is Status.RUNNING else final,
        max(int(np.asarray(runs.count)[best]) - 1, 0),
        (restarts_finding(status, value, best, slack),) if ended.any() and len(value) > 1
        else (),
        # a few collapsed restarts of many are no sign of too little precision
    ).with_state(collapsed_restarts=collapsed if alive.any() and 2 * collapsed > len(value) else 0)


def find_spurious_maximum(plan: Plan, state: State, best: int, slack: float) -> tuple[Finding, ...]:
    """A finding if hardly any start reached the best optimum, and it has a far smaller scale than
    the optimum that most reach: a few rows that agree by chance make such a maximum, which is high
    and has little mass (McLachlan & Peel 2000, "Finite Mixture Models", section 3.10)."""
    value, ended = np.asarray(state.value), _has_ended(state)
    indices = np.flatnonzero(ended)
    count = (np.abs(value[indices][:, None] - value[indices]) <= max(slack, EQUAL)).sum(1)
    scales = [name for name in plan.free if plan.structure.sites[name].domain.log_scale]
    if not (ended[best] and scales and len(indices) and count.max() >= MIN_USUAL_STARTS):
        return ()
    if count[np.flatnonzero(indices == best)[0]] > MAX_SPURIOUS_STARTS:
        return ()
    usual = int(indices[np.argmax(count)])
    point, usual_point = (unpack(plan, state.params[i]) for i in (best, usual))
    ratios = {name: np.min(point[name]) / max(np.min(usual_point[name]), np.finfo(float).tiny)
              for name in scales}
    name = min(ratios, key=lambda name: ratios[name])
    if not ratios[name] < SPURIOUS_SCALE:
        return ()
    return (Finding.of(Code.SPURIOUS_MAXIMUM, name, factor=1 / ratios[name], starts=count.max(),
                       lower=value[best] - value[usual]),)
