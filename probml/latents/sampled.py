"""Numbers of a row that have no integral: a label, for engines that give them coordinates of their
own (engines/sampling/carrying.py) and for `explain`."""

from typing import Any

from probml.latents.latent import Group
from probml.structure.structure import Structure


class Sampled:
    """A group that nothing integrates out, and why. A plan with one is read, and never run."""

    pools = exact = averages = False
    breadth, finer, tolerance = 1, None, 0.0

    def __init__(self, why: str):
        self.why = why

    @property
    def description(self) -> str:
        return f"to be sampled, probml.NUTS(): {self.why}"

    def claims(self, structure: Structure, group: Group) -> str | None:
        return None

    def _none(self, *_: object) -> Any:
        raise NotImplementedError(self.description)

    message = conditional = row_posterior = draw = expected = _none
