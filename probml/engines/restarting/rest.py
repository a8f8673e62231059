"""Convergence of the parameters: the best run continues until they, too, have converged, since
along a ridge an iteration gains next to nothing long before."""

import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.engine import Status
from probml.engines.restarting.squarem import BLOCK, Settings, State, advance
from probml.engines.start.start import Start
from probml.plan.plan import Plan

GAIN_SHARE = 1e-3  # of the tolerance; a run that gains less ends in any case
MAX_CALLS = 8  # of the device, with BLOCK evaluations each
MORE_EVALUATIONS = 1.0  # at most, for each that the run has taken: no fit takes twice as long


def relative_tolerance(tolerance: float) -> float:
    """The relative distance of parameters from their limit below which they count as converged: in
    a direction with full information it costs `tolerance` in log-likelihood per row."""
    return float(np.sqrt(2 * tolerance))


def converge_parameters(settings: Settings, plan: Plan, state: State, history: np.ndarray,
                        best: int, first: Start, rows: Rows, known: Known, closed: bool,
                        parameter_tolerance: float) -> tuple[State, np.ndarray, bool]:
    """The states and objectives of all restarts, where `best` has continued until the distance of
    its parameters to their limit, as SQUAREM predicts it, is below `parameter_tolerance`. Also
    whether rounding ended it before, as it may in float32.

    It stops after as many evaluations as the run took before: a probability that hardly any row
    informs may creep for ever, as in networks. The program is that of the restarts: nothing is
    compiled.
    """
    def is_moving(state: State) -> bool:
        return float(state.distance[best]) > parameter_tolerance

    if int(state.status[best]) != Status.CONVERGED or not is_moving(state):
        return state, history, False
    static = (settings.prior, settings.hard, settings.accelerate, closed)
    gain = GAIN_SHARE * settings.tolerance * rows.weight
    begun, parts = int(state.count[best]), [history]
    ceiling = min(settings.max_iterations + 1, begun + max(int(MORE_EVALUATIONS * begun), BLOCK))
    is_best = np.arange(len(state.status)) == best
    others, start = np.asarray(state.status), first._replace(drawn=None)
    now = state._replace(status=np.where(is_best, Status.RUNNING, Status.LEFT).astype(others.dtype),
                         stalled=np.zeros_like(np.asarray(state.stalled)))
    for _ in range(MAX_CALLS):
        limit = min(int(now.count[best]) + BLOCK, ceiling)
        now, more, _ = advance(plan, static, now, start, known, rows, limit, gain)
        parts.append(more)
        if int(now.status[best]) != Status.RUNNING or limit == ceiling or not is_moving(now):
            break
    if int(now.status[best]) not in (Status.RUNNING, Status.CONVERGED):
        return state, history, True  # rounding made it fall: the state before had converged
    hidden = int(now.status[best]) == Status.CONVERGED and is_moving(now)
    return now._replace(status=others), np.concatenate(parts, 1), hidden
