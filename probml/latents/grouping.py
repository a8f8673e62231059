"""Latent numbers of a row in groups that are integrated out together, each with its kind.

Numbers of a row that have no integral: a label, for engines that give them coordinates of their
own (engines/sampling/latents.py) and for `explain`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from probml.errors import Refusal
from probml.latents.conjugate import Conjugate
from probml.latents.cubature import Cubature
from probml.latents.gaussian import Gaussian
from probml.latents.hidden_cells import HiddenCells
from probml.latents.laplace import Laplace
from probml.latents.latent import Group, Kind
from probml.latents.linear_chain import LinearChain
from probml.latents.quadrature import Quadrature
from probml.latents.simplex import Simplex
from probml.structure.site import Site
from probml.structure.structure import Structure


class Sampled:
    """A group that nothing integrates out, and why. A plan with one is read, and never run."""

    pools = exact = averages = False
    breadth, finer, tolerance = 1, None, 0.0

    def __init__(self, why: str):
        self.reason = why

    @property
    def description(self) -> str:
        return f"sampled by probml.NUTS() only: {self.reason}"

    def why_not(self, structure: Structure, group: Group) -> str | None:
        return None

    def _none(self, *_: object) -> None:
        raise NotImplementedError(self.description)

    message = conditional = row_posterior = draw = expected = _none


# the first kind without a reason against it integrates a group out: those in closed form, then
# those for any density, of one number of a row, two, or several
GENERAL: tuple[Kind, ...] = (Quadrature(), Cubature(), Laplace())
KINDS: list[Kind] = [Gaussian(), LinearChain(), Conjugate(), Simplex(), *GENERAL]


def register(kind: Kind) -> None:
    """Add a kind of latents from outside: asked before the general ones, for models traced after
    it. A kind that is equal to one already there takes its place."""
    if kind in KINDS:
        KINDS.remove(kind)
    KINDS.insert(len(KINDS) - len(GENERAL), kind)


def groups(structure: Structure, latents: Sequence[str], observed: Iterable[str],
           others: Iterable[str], targets: Iterable[str], lenient: bool,
           cellwise: Sequence[str] = ()) -> tuple[Group, ...]:
    """The groups of a plan.

    Args:
        latents: continuous sites inside rows with missing cells that matter, parents first.
        observed: sites whose density is part of the likelihood of a row.
        others: discrete sites that are summed out, and the factors of a fit: none may depend on a
            latent.
        targets: discrete and deterministic sites whose average over latents is wanted.
        lenient: a group of no kind is `Sampled`, for a plan that is only described.
        cellwise: discrete sites that are summed out cell by cell.

    Raises:
        Refusal: a group is of no kind that can be integrated out.
    """
    latent_names = (*latents, *cellwise)
    members, sites = set(latent_names), structure.sites
    blocking, targets = set(others), set(targets)
    parents_of = {name: {p for p in structure.named[name].parents if p in members}
                  for name in dict.fromkeys((*latent_names, *observed, *blocking, *targets))}
    parts: list[set[str]] = []
    for name, parents in parents_of.items():
        linked = parents | ({name} & members)
        merged = [part for part in parts if part & linked]
        parts = [part for part in parts if not part & linked]
        if linked:
            parts.append(linked.union(*merged))
    out = []
    for part in sorted(parts, key=lambda part: min(map(latent_names.index, part))):
        names = tuple(name for name in latents if name in part)
        hidden = tuple(name for name in cellwise if name in part)
        children = [name for name, parents in parents_of.items() if parents & part]
        related = tuple(name for name in sites if name in part
                        or name in children and name not in targets)
        block = next((name for name in children if name in blocking), None)
        curved = next((name for name in children
                       if name in targets and not _affine(structure, name, names)), None)
        out.append(_claimed(structure, Group(None, names, related, hidden), block, curved, lenient))
    return tuple(out)


def _affine(structure: Structure, name: str, names: tuple[str, ...]) -> bool:
    """Whether a deterministic site is affine in latents."""
    return name in structure.deterministics and all(
        use.is_affine for latent, use in structure.row_uses(name)["value"].items()
        if latent in names)


def _claimed(structure: Structure, draft: Group, blocking: str | None, curved: str | None,
             lenient: bool) -> Group:
    """The group with the first kind that can integrate it out.

    Args:
        blocking: one of `others` that depends on its latents.
        curved: one of `asked` that is not affine in them.
    """
    reasons: dict[type, str] = {}
    names, sites = draft.names, draft.sites
    for kind in (KINDS if names else (HiddenCells(),)):
        group = replace(draft, kind=kind)
        if draft.cellwise and names and kind not in GENERAL:
            continue  # theirs is no integral over cells
        why = kind.why_not(structure, group)
        if why is None and (name := blocking or (curved if kind.pools else None)) is not None:
            why = (f"'{name}' ({structure.named[name].kind}), which depends on '{draft.name}', is "
                   + ("latent or a factor" if blocking else f"not linear in '{draft.name}'"))
        if why is None:
            return group
        reasons[type(kind)] = why
    first = structure.sites[draft.name]
    why = next(reversed(reasons.values()))  # of the most general method
    why = reasons.get(LinearChain, why) if first.time is not None else why
    if lenient:
        return replace(draft, kind=Sampled(why))
    child = next((name for name in sites if draft.name in structure.sites[name].parents),
                 blocking or curved)
    raise Refusal(
        f"model '{structure.model.name}': site '{first.name}' ({first.kind}) is inside rows(), "
        f"continuous and latent, and '{child}' depends on it, so '{first.name}' must be integrated "
        f"out. This is not possible: {why}. {_advice(first)}", ("NUTS",))


def _advice(site: Site) -> str:
    """When a number can be integrated out, and how one without an integral can be written."""
    name = site.name
    if site.time is None:
        return (f"Integration needs one of three conditions. (1) '{name}' is normal and enters the "
                "means of normal sites linearly. (2) Its prior is conjugate to the sites that "
                "depend on it, so that its posterior has a closed form. (3) The densities of all "
                f"these sites are differentiable. Give '{name}' in the data, or write it as a "
                "Categorical over a grid of values")
    return (f"Integration is possible if the sites that depend on '{name}' are normal, with means "
            f"that are linear in '{name}'. Give '{name}' in the data, or write it as a MarkovChain "
            f"over a grid of values. {advise_cumulative_sum(name)}")


def advise_cumulative_sum(name: str) -> str:
    """How a chain inside rows can be written as a parameter."""
    return (f"For a single sequence, make each step a row. Build '{name}' outside rows() as a "
            f"cumulative sum, path = jnp.cumsum(sample('innovation', dist.Normal(0, 1)"
            f".expand([steps]).to_event(1))). Use path[step] inside rows(), with the step number "
            f"(from 0) as an input")
