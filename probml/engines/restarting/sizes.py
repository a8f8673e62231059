"""What was found of a number of states in the model of more of them, without the others."""

from probml.engines.engine import Outcome
from probml.structure.structure import Structure


def narrowed(structure: Structure, outcome: Outcome) -> Outcome:
    """The point in the shapes of a smaller model, of `structure`: the first states."""
    parts = {name: tuple(slice(n) for n in structure.sites[name].shape) for name in outcome.params}
    return outcome._replace(params={name: value[parts[name]]
                                    for name, value in outcome.params.items()})
