"""Where the order of labels means something: text has none, so that one must be given."""

from probml.jaxpr.codes import find_amounts
from probml.structure.structure import Structure

MIXED = ("MixtureSameFamily", "MixtureGeneral")  # of categories, as a rule, which have no order


def why_ordered(structure: Structure, name: str, labels: int) -> str | None:
    """Why the order of so many labels of a site, or of an input that is an index, means something;
    None: any numbering tells the same.

    Of two labels a number is as good as an indicator of the second.
    """
    site = structure.sites.get(name)
    if (site is not None and site.states is not None and not site.traits.nominal
        and site.kind not in MIXED):
        return f"the values of {site.kind} have an order"
    if labels < 3:
        return None
    for other in structure.sites:
        program, takes = structure.programs[other]
        if name in takes and find_amounts(program, [labels if taken == name else None
                                                    for taken in takes]):
            return f"'{other}' uses its codes, 0 … {labels - 1}, as numbers"
    return None
