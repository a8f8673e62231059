"""What all distributions along time have in common: a length, stated or told by the data."""

import numpyro.distributions as dist

from probml.language.language import check_steps, resolve_steps


class Chain(dist.Distribution):
    """A distribution over sequences, time its first event axis. A subclass begins with `_last`."""

    declared: int | None
    steps: int

    def _last(self, steps: int | None) -> None:
        """Take the length that is stated, or that the surroundings tell."""
        self.declared = steps
        kind = type(self).__name__
        self.steps = resolve_steps(check_steps(steps, kind), kind)
