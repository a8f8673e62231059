"""How runs end, as numbers that files keep, and in words."""

import enum

from probml.engines.findings import Code


class Status(enum.IntEnum):
    """How a run ended."""

    RUNNING = 0
    CONVERGED = 1
    MAX_ITERATIONS = 2
    FELL = 3
    COLLAPSED = 4
    EXACT = 5
    KNOWN = 6
    STALLED = 7
    SAMPLED = 8
    DOUBTFUL = 9
    APPROXIMATED = 10
    RUNAWAY = 11
    EARLY = 12
    WANDERED = 13
    LEFT = 14
    MOVED = 15
    SLOW = 16
    LIMIT = 17
    WEIGHTED = 18

    @property
    def headline(self) -> str:
        """How it ended, in a few words."""
        return HEADLINES.get(self, "Not converged")

    @property
    def code(self) -> Code | None:
        """The finding that this ending is by itself; None: none, or what was found says more."""
        return ENDINGS.get(self)


HEADLINES = {
    Status.RUNNING: "Still running",
    Status.CONVERGED: "Converged",
    Status.COLLAPSED: "Collapsed: a scale went to 0, or the objective was not finite",
    Status.EXACT: "Exact posterior",
    Status.KNOWN: "Parameters were given, nothing was fitted",
    Status.SAMPLED: "Sampled",
    Status.DOUBTFUL: "Sampled, but not to be relied on yet",
    Status.APPROXIMATED: "Approximate posterior",
    Status.EARLY: "Stopped early, as asked: the held-out rows had gained nothing for a while; the "
    "best point is returned",
    Status.LEFT: "Stopped: other starts were far ahead",
    Status.MOVED: "Updated with further rows, one step of EM for each batch of them",
    Status.WEIGHTED: "Posterior by Laplace's approximation",
}
ENDINGS = {
    Status.MAX_ITERATIONS: Code.MAX_ITERATIONS,
    Status.FELL: Code.OBJECTIVE_FELL,
    Status.STALLED: Code.NO_ASCENT,
    Status.WANDERED: Code.STEPS_TOO_LARGE,
}
