"""The base of distributions along time: their length, stated or taken from the data."""

import numpyro.distributions as dist

from probml.errors import ModelError
from probml.language.language import check_steps, resolve_steps


def outside_rows(where: str, kind: str) -> ModelError:
    """The error of a chain that is not inside rows(), or is inside another plate too."""
    return ModelError(f"{where}: a {kind} must be inside rows() and inside no other plate. Write "
                      f"it below `with probml.rows():`, where each row is one sequence. Write the "
                      f"sites that depend on it there too, such as dist.Normal(mean[z], "
                      f"scale).to_event(1). Instead of a plate of chains, write a site for each")


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
