"""The base of distributions along time: their length, stated or taken from the data."""

import numpyro.distributions as dist

from probml.language.language import check_steps, resolve_steps


class Chain(dist.Distribution):
    """A distribution over sequences, time its first event axis. The constructor of a subclass
    calls `_set_length` first."""

    declared: int | None
    steps: int

    def _set_length(self, steps: int | None) -> None:
        """Set the length: the stated one, else that of the data or of `simulate`."""
        self.declared = steps
        kind = type(self).__name__
        self.steps = resolve_steps(check_steps(steps, kind), kind)
