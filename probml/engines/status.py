"""How runs end, as numbers that files keep, and in words."""

import enum


class Status(enum.IntEnum):
    """How a run ended; `message` says it in words."""

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
    def message(self) -> str:
        return {
            Status.RUNNING: "still running",
            Status.CONVERGED: "converged: the objective gained less than the tolerance",
            Status.MAX_ITERATIONS: "stopped at the iteration limit before it converged: raise "
            "max_iterations or steps, or the tolerance",
            Status.FELL: "stopped: the objective fell, which it must not; the best point is kept, "
            "please report the model",
            Status.COLLAPSED: "collapsed: a component's scale went to zero or the objective was "
            "not finite",
            Status.STALLED: "stopped: no ascent was found, but the gradient is not zero; the "
            "objective may be unbounded, badly scaled, or "
            "have a kink there",
            Status.EXACT: "exact",
            Status.RUNAWAY: "stopped: there is no maximum, parameters run away",
            Status.EARLY: "stopped early, as asked: the held-out rows had gained nothing for a "
            "while; their best point is kept",
            Status.WANDERED: "stopped at the step limit: the objective no longer rises, but the "
            "steps still wander about; more of "
            "them gain nothing: lower the learning rate, let it decay "
            "(optax.cosine_decay_schedule), or take MAP() without an optimizer",
            Status.LIMIT: "stopped: there is no maximum, a parameter tends to its limit",
            Status.SLOW: "stopped before it converged: a step gains less than the tolerance, but "
            "steps shrink so slowly that much is left",
            Status.LEFT: "left: other starts were far ahead",
            Status.MOVED: "moved by further rows, one step of EM for each part of them: more of "
            "them, or the same again, may move it on",
            Status.SAMPLED: "sampled",
            Status.DOUBTFUL: "sampled, but not to be trusted yet",
            Status.APPROXIMATED: "approximated by a distribution that need not be the posterior",
            Status.WEIGHTED: "posterior by Laplace's approximation",
            Status.KNOWN: "parameters were given, nothing was fitted",
        }[self]
