"""Away from saddles: where states ended alike an ascent may have ended, though there is a way."""

from collections.abc import Callable, Mapping

import numpy as np

from probml.engines.engine import Outcome, Problem, Status
from probml.engines.start.start import shaken


def off_saddle(problem: Problem, outcome: Outcome, again: Callable[[Mapping], Outcome],
               gain: float = 0.0) -> Outcome:
    """What was found; where states came to share their values, what is found from a little apart if
    that is higher: then the end was a saddle.

    Args:
        again: parameters to begin with → what is found from there.
        gain: nats by which it must be higher.
    """
    if outcome.status is not Status.CONVERGED:
        return outcome
    apart = shaken(problem.plan, outcome.params, problem.seed)
    if apart is None:
        return outcome
    other = again(apart)
    ends = [np.nan_to_num(each.history[-1], nan=-np.inf) if len(each.history) else -np.inf
            for each in (outcome, other)]
    higher = other.status is not Status.COLLAPSED and ends[1] > ends[0] + gain
    return other if higher else outcome
