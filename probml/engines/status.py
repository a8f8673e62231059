"""The status of a fit, as numbers that saved fits contain, and in words."""

import enum

from probml.engines.findings import Code


class Status(enum.IntEnum):
    """How a fit ended; where it did not converge, a finding says why."""

    RUNNING = 0
    CONVERGED = 1
    MAX_ITERATIONS = 2
    FELL = 3  # the objective decreased
    COLLAPSED = 4  # a scale went to 0, or the objective is not finite
    EXACT = 5  # the exact posterior
    KNOWN = 6  # parameters were given
    STALLED = 7  # no step increases the objective, but its gradient is not 0
    SAMPLED = 8
    DOUBTFUL = 9  # sampled, with a diagnostic that failed
    APPROXIMATED = 10  # an approximate posterior
    RUNAWAY = 11  # there is no maximum: parameters diverge
    EARLY = 12  # early stopping by held-out rows
    WANDERED = 13  # the objective of an optax optimiser no longer rises, but fluctuates
    LEFT = 14  # a restart that was stopped because others were far ahead
    MOVED = 15  # updated with further rows
    SLOW = 16  # steps gain less than the tolerance far from the maximum
    LIMIT = 17  # there is no maximum: a positive number grows, to a limiting model
    WEIGHTED = 18  # Laplace's approximation with importance weights

    @property
    def headline(self) -> str:
        """The status in a few words."""
        return HEADLINES.get(self, "Not converged")

    @property
    def code(self) -> Code | None:
        """The code of the finding that this status is by itself; None: none, or findings of the fit
        say more."""
        return CODES.get(self)


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
CODES = {
    Status.MAX_ITERATIONS: Code.MAX_ITERATIONS,
    Status.FELL: Code.OBJECTIVE_FELL,
    Status.STALLED: Code.NO_ASCENT,
    Status.WANDERED: Code.STEPS_TOO_LARGE,
}
