"""One search for a higher optimum: proposals say from where else to maximise, one rule says what is
higher, and a fit records which proposal won."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from probml.engines.engine import Outcome, Status
from probml.engines.findings import Code, Finding

ROUNDING = 1e-7  # of the objective's size, which no gain is told from

Maximize = Callable[[Mapping], Outcome]  # parameters to begin with → where it ends


class Proposal(NamedTuple):
    """Points from which a higher optimum may be reached.

    Attributes:
        name: the points, as the record of a fit calls them. points: an optimum → the points; none
            where the proposal does not apply to it. maximize: from each of them.
        rounds: how often it may be made again from what it found.
    """

    name: str
    points: Callable[[Outcome], Iterable[Mapping]]
    maximize: Maximize
    rounds: int = 1


def height(outcome: Outcome) -> float:
    """The objective at an optimum; −∞ where there is none."""
    if outcome.status is Status.COLLAPSED or not len(outcome.history):
        return -np.inf
    return float(np.nan_to_num(outcome.history[-1], nan=-np.inf))


def higher(one: Outcome, other: Outcome, slack: float = 0.0) -> bool:
    """Whether one optimum is higher than another: by more than `slack`, and than rounding."""
    low = height(other)
    return height(one) > low + max(slack, ROUNDING * (1 + abs(low)) if np.isfinite(low) else 0.0)


def improve(outcome: Outcome, proposals: Iterable[Proposal], slack: float = 0.0) -> Outcome:
    """The highest optimum that is reached from one and from what is proposed, one proposal after
    another.

    Args:
        slack: of the objective, by which an optimum must be higher to be taken.
    """
    for proposal in proposals:
        for _ in range(proposal.rounds):
            best = max(map(proposal.maximize, proposal.points(outcome)), key=height, default=None)
            if best is None or not higher(best, outcome, slack):
                break
            low = height(outcome)
            gain = height(best) - low if np.isfinite(low) else np.inf
            outcome = best.noting(Finding.of(Code.IMPROVED, where=proposal.name, gain=gain))
    return outcome
