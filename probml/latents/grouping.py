"""Unseen numbers of a row → groups that are integrated out together, each with its kind."""

from collections.abc import Iterable, Sequence

from probml.errors import Refusal
from probml.latents.gaussian import Gaussian
from probml.latents.latent import Group
from probml.structure.structure import Structure

KINDS = (Gaussian(),)


def groups(structure: Structure, latents: Sequence[str], seen: Iterable[str],
           others: Iterable[str]) -> tuple[Group, ...]:
    """The groups of a plan.

    Args:
        latents: continuous sites inside rows of which some cells are unseen and matter, parents
            first.
        seen: sites whose density is part of the likelihood of a row.
        others: discrete sites that are unseen, losses, and what is asked and computed.

    Raises:
        Refusal: a group is of no kind that can be integrated out.
    """
    if not latents:
        return ()
    mine, sites = set(latents), structure.sites
    near = {name: {p for p in structure.named[name].parents if p in mine}
            for name in dict.fromkeys((*latents, *seen, *others))}
    parts: list[set[str]] = []
    for name, above in near.items():
        linked = above | ({name} & mine)
        joined = [part for part in parts if part & linked]
        parts = [part for part in parts if not part & linked]
        if linked:
            parts.append(linked.union(*joined))
    out, beside = [], set(others)
    for part in sorted(parts, key=lambda part: min(map(latents.index, part))):
        names = tuple(name for name in latents if name in part)
        below = [name for name, above in near.items() if above & part]
        whole = tuple(name for name in sites if name in part or name in below)
        blocking = next((name for name in below if name in beside), None)
        out.append(_claimed(structure, names, whole, blocking))
    return tuple(out)


def _claimed(structure: Structure, names: tuple[str, ...], sites: tuple[str, ...],
             blocking: str | None) -> Group:
    """The group with the first kind that claims it."""
    reasons = []
    for kind in KINDS:
        group = Group(kind, names, sites)
        why = kind.claims(structure, group)
        if why is None and blocking is None:
            return group
        reasons.append(why)
    first = structure.sites[names[0]]
    child = next((name for name in sites if names[0] in structure.sites[name].parents), blocking)
    why = next(filter(None, reasons), None)
    if why is None:
        kind = structure.named[blocking].kind
        why = f"'{blocking}' ({kind}) looks at it, for which the integral has no closed form"
    raise Refusal(
        f"model '{structure.model.name}': site '{first.name}' ({first.kind}) is inside rows(), "
        f"continuous and unseen, and '{child}' depends on it. Numbers are integrated out where "
        f"they are normal, and enter the locations of Normal or MultivariateNormal sites "
        f"affinely; here {why}. Give '{first.name}' in the data, write it as a Categorical over "
        f"a grid of values, or integrate it by hand inside the function"
    )
