"""float32 is the default, and it must not be why a fit fails: what fails in it is done again in double."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import numpy as np

from probml.engines.run import Outcome, Status
from probml.language import Refusal

Found = TypeVar("Found")
FAILED = {  # how a run in float32 ends whose digits may have run out, in words
    Status.COLLAPSED: "collapsed",
    Status.FELL: "fell, which it must not",
    Status.STALLED: "stopped where the gradient is not zero",
}


def precise(
    attempt: Callable[[], Found], outcome_of: Callable[[Found], Outcome], held: bool = True, lost: str | None = None
) -> tuple[Found, str | None]:
    """What an attempt found; of one that failed in float32, what it finds in double, as arrays of double on the host.

    Args:
        attempt: reads the precision anew: nothing in it may hold arrays or traces that were made before.
        outcome_of: the outcome in what was found.
        held: a prior holds every component, so that one that collapses is a matter of digits even if others do not.
        lost: why float32 need not be tried, in words: it has too few digits for the data.

    Returns:
        what was found, and a note of why it is in double.

    Raises:
        Refusal: of the attempt in double, or in float32 if that is not the reason.
    """
    if jax.config.jax_enable_x64:
        return attempt(), None
    if lost is not None:
        with jax.enable_x64(True):
            return jax.device_get(attempt()), f"in double, since in float32 {lost}"
    try:
        found = attempt()
        why = FAILED.get(outcome_of(found).status)
        lost = outcome_of(found).lost
        why = f"lost {lost} of its restarts, which collapsed" if why is None and lost and held else why
    except Refusal:  # asked at the data, not at the plan: a matter of digits
        found, why = None, "was refused"
    if why is None:
        return found, None
    with jax.enable_x64(True):
        again = jax.device_get(attempt())
    if found is not None and outcome_of(again).status in FAILED and not _higher(outcome_of(again), outcome_of(found)):
        return found, None
    return again, f"in double, since in float32 it {why}"


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """Of several, one that failed, or else the one that lost most restarts."""
    return max(outcomes, key=lambda outcome: (outcome.status in FAILED, outcome.lost))


def _higher(one: Outcome, other: Outcome) -> bool:
    ends = [outcome.history[-1] if len(outcome.history) else -np.inf for outcome in (one, other)]
    return bool(np.nan_to_num(ends[0], nan=-np.inf) >= np.nan_to_num(ends[1], nan=-np.inf))
