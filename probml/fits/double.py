"""A fit that fails in float32, the default, for want of precision is repeated in float64."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import numpy as np

from probml.engines.engine import Outcome, Status
from probml.engines.findings import Code, Finding
from probml.engines.optimization.search import final_objective
from probml.errors import Refusal

Result = TypeVar("Result")
MIN_GAIN_IN_ULPS = 64  # of the objective over half a run; less may be rounding
IMPRECISE_STATUSES = {  # of a run in float32 that may lack precision → the reason, in words
    Status.COLLAPSED: "collapsed",
    Status.FELL: "had an iteration in which the objective decreased",
    Status.STALLED: "stopped where the gradient is not zero",
}


def retry_in_float64(
    attempt: Callable[[], Result], outcome_of: Callable[[Result], Outcome], prior: bool = True,
    reason: str | None = None
) -> tuple[Result, Finding | None]:
    """What an attempt found; of one that failed in float32, what it finds in double, as arrays of
    double on the host.

    Args:
        attempt: reads the precision anew: nothing in it may hold arrays or traces that were made
            before.
        outcome_of: the outcome in what was found.
        prior: a prior holds every component, so that one that collapses is a matter of digits even
            if others do not.
        reason: why float32 need not be tried, in words: it has too few digits for the data.

    Returns:
        what was found, and a finding that says why it is in double.

    Raises:
        Refusal: of the attempt in double, or in float32 if that is not the reason.
    """
    if jax.config.jax_enable_x64:
        return attempt(), None
    if reason is not None:
        with jax.enable_x64(True):
            return _to_host(attempt(), outcome_of), Finding.of(Code.IN_DOUBLE, reason=reason)
    try:
        result = attempt()
        why = _why_imprecise(outcome_of(result), prior)
    except Refusal:  # of the data, not of the plan, which was asked before
        result, why = None, "could not be computed or tested"
    if result is not None and why is None:
        return result, None
    with jax.enable_x64(True):
        in_double = _to_host(attempt(), outcome_of)
    if result is not None and outcome_of(in_double).status in IMPRECISE_STATUSES and not (
            final_objective(outcome_of(in_double)) >= final_objective(outcome_of(result))):
        return result, None
    return in_double, Finding.of(Code.IN_DOUBLE, reason=f"the fit {why}")


def _to_host(result: Result, outcome_of: Callable[[Result], Outcome]) -> Result:
    """The result as NumPy arrays; its parameters in their own order, since a pytree sorts them."""
    on_host = jax.device_get(result)
    params = outcome_of(on_host).params
    ordered = {name: params[name] for name in outcome_of(result).params}
    if isinstance(params, dict):  # made by device_get, so that it may be changed
        params.clear()
        params.update(ordered)
    return on_host


def _why_imprecise(outcome: Outcome, prior: bool) -> str | None:
    """Why a run in float32 may lack precision, in words; None: it does not."""
    status, state = outcome.status, outcome.state
    reasons = (
        (status in IMPRECISE_STATUSES, IMPRECISE_STATUSES.get(status)),
        (prior and state.collapsed_restarts,
         f"lost {state.collapsed_restarts} of its random starts, because a scale went to 0 or the "
         f"objective was not finite"),
        (state.imprecise_squares,
         "has a component whose standard deviation is small compared with its distance from 0 or "
         "from other components, so that sums of squares lose precision"),
        (state.imprecise_smoothing,
         "has a chain whose initial variance is large compared with the observation noise, so that "
         "smoothed variances lose precision"),
        (state.stopped_by_rounding,
         "ended where the objective is nearly flat in some direction, so that further gains are "
         "smaller than rounding errors"),
        (status is Status.MAX_ITERATIONS and _is_flat(outcome.history),
         "reached the iteration limit with gains smaller than rounding errors"),
    )
    return next((reason for applies, reason in reasons if applies), None)


def _is_flat(history: np.ndarray) -> bool:
    """Whether the objective rose by no more than rounding in float32 over the second half of a
    run."""
    values = np.asarray(history, float)
    if len(values) < 4:
        return False
    gain = values[-1] - values[len(values) // 2]
    return bool(np.abs(gain) <= MIN_GAIN_IN_ULPS * np.finfo(np.float32).eps * (1 + abs(values[-1])))


def least_precise(outcomes: Sequence[Outcome]) -> Outcome:
    """The first outcome, of several, with a sign of imprecision in float32; else the first."""
    return next((outcome for outcome in outcomes if _why_imprecise(outcome, True)), outcomes[0])
