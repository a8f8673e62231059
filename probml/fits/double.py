"""float32 is the default, and it must not be why a fit fails: what fails in it is done again in
double."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import numpy as np

from probml.engines.engine import Outcome, Status
from probml.engines.findings import Code, Finding
from probml.errors import Refusal

Found = TypeVar("Found")
FLAT = 64  # units of rounding, of the objective, that half a run's gain is at least if it is one
FAILED = {  # how a run in float32 ends whose digits may have run out, in words
    Status.COLLAPSED: "collapsed",
    Status.FELL: "fell, which it must not",
    Status.STALLED: "stopped where the gradient is not zero",
}


def precise(
    attempt: Callable[[], Found], outcome_of: Callable[[Found], Outcome], held: bool = True,
    lost: str | None = None
) -> tuple[Found, Finding | None]:
    """What an attempt found; of one that failed in float32, what it finds in double, as arrays of
    double on the host.

    Args:
        attempt: reads the precision anew: nothing in it may hold arrays or traces that were made
            before.
        outcome_of: the outcome in what was found.
        held: a prior holds every component, so that one that collapses is a matter of digits even
            if others do not.
        lost: why float32 need not be tried, in words: it has too few digits for the data.

    Returns:
        what was found, and a finding that says why it is in double.

    Raises:
        Refusal: of the attempt in double, or in float32 if that is not the reason.
    """
    if jax.config.jax_enable_x64:
        return attempt(), None
    if lost is not None:
        with jax.enable_x64(True):
            return _host(attempt(), outcome_of), Finding.of(Code.IN_DOUBLE, reason=lost)
    try:
        found = attempt()
        why = _why(outcome_of(found), held)
    except Refusal:  # asked at the data, not at the plan: a matter of digits
        found, why = None, "was refused"
    if found is not None and why is None:
        return found, None
    with jax.enable_x64(True):
        again = _host(attempt(), outcome_of)
    if found is not None and outcome_of(again).status in FAILED and not _higher(outcome_of(again),
                                                                                outcome_of(found)):
        return found, None
    return again, Finding.of(Code.IN_DOUBLE, reason=f"the fit {why}")


def _host(found: Found, outcome_of: Callable[[Found], Outcome]) -> Found:
    """What was found, as NumPy's arrays; its parameters in their own order, and not in that of the
    alphabet, which a pytree has."""
    out = jax.device_get(found)
    params = outcome_of(out).params
    own = {name: params[name] for name in outcome_of(found).params}
    if isinstance(params, dict):  # a new one
        params.clear()
        params.update(own)
    return out


def _why(outcome: Outcome, held: bool) -> str | None:
    """What speaks against a run in float32."""
    if outcome.status in FAILED:
        return FAILED[outcome.status]
    if outcome.state.collapsed_restarts and held:
        return f"lost {outcome.state.collapsed_restarts} of its restarts, which collapsed"
    if outcome.state.imprecise_squares:
        return ("has a component whose standard deviation is small compared with its distance from "
                "0 or from other components, so that squares lose precision")
    if outcome.state.imprecise_smoothing:
        return ("has a chain whose initial variance is large compared with the observation noise, "
                "so that smoothed variances lose precision")
    if outcome.state.stopped_by_rounding:
        return "ended on a ridge of the objective, along which gains are smaller than rounding"
    if outcome.status is Status.MAX_ITERATIONS and _is_flat(outcome.history):
        return "reached the iteration limit with gains smaller than rounding"
    return None


def _is_flat(history: np.ndarray) -> bool:
    """Whether the objective rose by no more than rounding in float32 over the second half of a
    run."""
    found = np.asarray(history, float)
    if len(found) < 4:
        return False
    gain = found[-1] - found[len(found) // 2]
    return bool(np.abs(gain) <= FLAT * np.finfo(np.float32).eps * (1 + abs(found[-1])))


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """Of several, the one that speaks most against float32."""

    def doubt(outcome: Outcome) -> tuple:
        state = outcome.state
        return (outcome.status in FAILED, state.imprecise_squares, state.imprecise_smoothing,
                state.collapsed_restarts, outcome.status is Status.MAX_ITERATIONS)

    return max(outcomes, key=doubt)


def _higher(one: Outcome, other: Outcome) -> bool:
    ends = [outcome.history[-1] if len(outcome.history) else -np.inf for outcome in (one, other)]
    return bool(np.nan_to_num(ends[0], nan=-np.inf) >= np.nan_to_num(ends[1], nan=-np.inf))
