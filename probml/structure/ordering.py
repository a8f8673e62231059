"""Sites and inputs whose labels are ordered. Text labels have no order, so that the user must give
one."""

import itertools

import numpy as np

from probml.jaxpr.cells import find_amounts
from probml.structure.structure import Structure

MAX_CONFIGURATIONS = 1000  # of parents that are looked at
MIXTURES = ("MixtureSameFamily", "MixtureGeneral")  # usually of categories, which have no order


def why_ordered(structure: Structure, name: str, labels: int, entries: int | None = None
                ) -> str | None:
    """Returns why the labels of a site, or of an index input, are ordered; None if every numbering
    of them gives the same model. With two labels of two entries a code is an indicator of the
    second; with one label of two it is unknown of which.

    Args:
        labels: their number. entries: of states, or of groups; None: as many as labels.
    """
    site, entries = structure.sites.get(name), entries or labels
    if (site is not None and site.states is not None and not site.traits.nominal
        and site.kind not in MIXTURES):
        return f"the values of {site.kind} have an order"
    if site is not None and site.states is not None and site.traits.indicator and labels < entries:
        return f"the probability of {site.traits.name} is that of the second"
    if labels < entries and _has_uneven_probabilities(structure, name):
        return "the probabilities of its states are fixed and differ"
    if labels == entries < 3:
        return None
    for other in structure.sites:
        program, input_names = structure.programs[other]
        if name in input_names and find_amounts(program, [entries if key == name else None
                                                          for key in input_names]):
            return f"the site '{other}' computes with their codes, 0 … {entries - 1}, as numbers"
    return None


def _has_uneven_probabilities(structure: Structure, name: str) -> bool:
    """Whether a site of categories has probabilities that depend on no parameter and no input, and
    that differ between its states."""
    site = structure.sites.get(name)
    if site is None or site.states is None or not site.traits.nominal:
        return False
    input_names = structure.programs[name][1]
    parents = [structure.sites[key] for key in input_names if key in structure.sites]
    sizes = [parent.states for parent in parents if parent.states is not None]
    if len(sizes) < len(input_names):
        return False
    combinations = itertools.product(*map(range, sizes))
    for states in itertools.islice(combinations, MAX_CONFIGURATIONS):
        arguments = structure.arguments(name, {parent.name: np.full(parent.shape, state) for
                                               parent, state in zip(parents, states, strict=True)})
        if any(np.ptp(np.asarray(value), -1).any() for value in arguments.values()
               if np.shape(value)[-1:] == (site.states,)):
            return True
    return False
