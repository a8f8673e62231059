"""The best end climbed on until its parameters, too, have come to rest: along a ridge an iteration
gains next to nothing long before they do."""

import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.engine import Status
from probml.engines.restarting.squarem import BLOCK, Settings, State, advance
from probml.engines.start.start import Start
from probml.plan.plan import Plan

STRICT = 1e-3  # share of the tolerance at which this ascent ends in any case
CALLS = 8  # of the device, BLOCK evaluations each, at the most
AGAIN = 1.0  # and so many evaluations for each that the climb itself took: no fit is twice as long


def parameter_tolerance(tolerance: float) -> float:
    """The relative distance of parameters from their limit below which they count as converged: in
    a fully informed direction it costs `tolerance` in log-likelihood per row."""
    return float(np.sqrt(2 * tolerance))


def converge_parameters(settings: Settings, plan: Plan, state: State, trail: np.ndarray,
                        best: int, first: Start, rows: Rows, known: Known, closed: bool,
                        close: float) -> tuple[State, np.ndarray, bool]:
    """The states and trails of all restarts, where `best` has gone on until its parameters
    converged: the distance to their limit, which SQUAREM predicts from how slowly its steps shrink,
    is below `close`. Also whether rounding ended it before, as it may in float32.

    What is not at rest after as many evaluations as the climb took is left there: a probability of
    which rows tell next to nothing may creep for ever (in networks it does). The program is that of
    the restarts: nothing is compiled.
    """
    if int(state.status[best]) != Status.CONVERGED or not float(state.left[best]) > close:
        return state, trail, False
    static = (settings.prior, settings.hard, settings.accelerate, closed)
    gain = STRICT * settings.tolerance * rows.weight
    begun, parts = int(state.count[best]), [trail]
    ceiling = min(settings.max_iterations + 1, begun + max(int(AGAIN * begun), BLOCK))
    on = np.arange(len(state.status)) == best
    others, start = np.asarray(state.status), first._replace(drawn=None)
    now = state._replace(status=np.where(on, Status.RUNNING, Status.LEFT).astype(others.dtype),
                         calm=np.zeros_like(np.asarray(state.calm)))
    for _ in range(CALLS):
        limit = min(int(now.count[best]) + BLOCK, ceiling)
        now, more, _ = advance(plan, static, now, start, known, rows, limit, gain)
        parts.append(more)
        ended = int(now.status[best]) != Status.RUNNING or limit == ceiling
        if ended or not float(now.left[best]) > close:
            break
    if int(now.status[best]) not in (Status.RUNNING, Status.CONVERGED):
        return state, trail, True  # rounding made it fall: what was found before was an end
    hidden = int(now.status[best]) == Status.CONVERGED and float(now.left[best]) > close
    return now._replace(status=others), np.concatenate(parts, 1), hidden
