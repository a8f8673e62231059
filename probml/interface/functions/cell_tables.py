"""The log densities of a run as tables over the states of its discrete sites, and which cells their
elements look at: what elimination/cellwise/by_cells.py sums.

Steps of a Python loop are alike: the same equations, of other sites and other numbers
(jaxpr/repeats). Their tables are made by one program for all, and sites that stand in the same
place of alike steps, z_0, z_1, …, are cells of one variable, so that they are summed out together:
those that look at each other in turn by the forward algorithm.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.elimination.cellwise.along import Move
from probml.elimination.cellwise.by_cells import NONE, Part
from probml.errors import ModelError
from probml.interface.functions.states import States
from probml.jaxpr import levels
from probml.jaxpr.cells import SEVERAL, cells
from probml.jaxpr.program import evaluate
from probml.jaxpr.repeats.equivalent_results import EquivalentResults, equivalent_results

LEAST = 4  # sites that must be alike to be worked on together


class Table(NamedTuple):
    """Logs over states.

    Attributes:
        log: (*states, members, elements of one).
        looks: for each member the sites whose states these are, in their order.
        where: for each member and site the cell at which each element looks.
    """

    log: jax.Array
    looks: tuple[tuple[str, ...], ...]
    where: tuple[tuple[np.ndarray, ...], ...]


class Variables(NamedTuple):
    """Which sites are cells of one variable.

    Attributes:
        of: site → (variable, the number of its first cell there).
        sizes: variable → (cells, states).
    """

    of: Mapping[str, tuple[str, int]]
    sizes: Mapping[str, tuple[int, int]]

    @property
    def joined(self) -> dict[str, list[str]]:
        """Variable → its sites, of those that have several."""
        out: dict[str, list[str]] = {}
        for site, (variable, _) in self.of.items():
            out.setdefault(variable, []).append(site)
        return {variable: sites for variable, sites in out.items() if len(sites) > 1}


def tables(closed: object, owners: Sequence[str], looks: Mapping[str, tuple[str, ...]],
           hidden: Mapping[str, States], values: Mapping[str, Any]) -> list[Table]:
    """The log densities of the sites `owners`, over the states of the hidden ones.

    Args:
        closed: the program of these logs, each flat; its inputs are the hidden sites and then
            `values`, each by name in order.
        looks: owner → the hidden sites at which it looks.

    Raises:
        ModelError: an element looks at several cells of a site.
    """
    inputs, out, alone = [*sorted(hidden), *sorted(values)], [], list(range(len(owners)))
    found = equivalent_results(closed, range(len(hidden))) if len(hidden) >= LEAST else []
    for steps in found:
        if len(set(steps.tracked)) >= LEAST:
            out.append(_together(closed, steps, inputs, owners, hidden, values))
            alone = [i for i in alone if i not in steps.outputs]
    groups: dict[tuple[str, ...], list[int]] = {}
    for i in alone:
        groups.setdefault(looks[owners[i]], []).append(i)
    for own, at in groups.items():
        out += _log_density_tables(closed, at, own, inputs, owners, hidden, values)
    return out


def _together(closed: Any, steps: EquivalentResults, inputs: Sequence[str], owners: Sequence[str],
              hidden: Mapping[str, States], values: Mapping[str, Any]) -> Table:
    """Alike log densities, by one program."""
    looks = tuple(tuple(inputs[i] for i in own) for own in steps.tracked)
    where = []
    for output, own in zip(steps.outputs, steps.tracked, strict=True):
        if any(hidden[inputs[i]].cells > 1 for i in own):
            program, takes = levels.restrict(closed, [output])
            names = {k: inputs[i] for k, i in enumerate(takes) if i in own}
            found = _checked(cells(program, names)[0], owners[output], hidden)
        else:
            found = {}
        size = closed.out_avals[output].shape
        where.append(tuple(found.get(inputs[i], np.full(size, NONE if found else 0)) for i in own))
    ordered = [None if name in hidden else jnp.asarray(values[name], aval.dtype)
               for name, aval in zip(inputs, closed.in_avals, strict=True)]
    logs = _mapped(lambda *states: steps(ordered, states), len(looks[0]))
    return Table(logs(*(hidden[name].everywhere() for name in looks[0])), looks, tuple(where))


def _log_density_tables(closed: object, at: Sequence[int], looks: tuple[str, ...],
                        inputs: Sequence[str],
                        owners: Sequence[str], hidden: Mapping[str, States],
                        values: Mapping[str, Any]) -> list[Table]:
    """The log densities of sites that depend on the same hidden ones."""
    program, takes = levels.restrict(closed, at)
    taken = [inputs[i] for i in takes]
    found = cells(program, {i: name for i, name in enumerate(taken) if name in looks})
    for i, own in zip(at, found, strict=True):
        _checked(own, owners[i], hidden)

    def logs(*states: jax.Array):
        env = {**values, **dict(zip(looks, states, strict=True))}
        return evaluate(program, *(jnp.asarray(env[name], aval.dtype)
                                   for name, aval in zip(taken, program.in_avals, strict=True)))

    over = _mapped(logs, len(looks))(*(hidden[name].everywhere() for name in looks))
    return [Table(jnp.expand_dims(log, -2), (looks,), (tuple(
        own.get(name, np.full(log.shape[-1], NONE)) for name in looks),))
        for log, own in zip(over, found, strict=True)]


def _mapped(logs: object, count: int) -> Any:
    """Over the states of each operand, the first one's axis in front."""
    for i in reversed(range(count)):
        logs = jax.vmap(logs, in_axes=tuple(0 if j == i else None for j in range(count)))
    return logs


def _checked(own: Mapping[str, np.ndarray], owner: str,
             hidden: Mapping[str, States]) -> Mapping[str, np.ndarray]:
    several = next((name for name, where in own.items() if (where == SEVERAL).any()), None)
    if several is not None:
        raise ModelError(
            f"site '{owner}' depends on several cells of '{several}' at once; '{several}' is "
            f"discrete and latent with {hidden[several].cells} cells, so it cannot be summed out "
            f"cell by cell. Give '{several}' in the data, or let each member of a plate depend on "
            f"its own cell only"
        )
    return own


def separate_variables(hidden: Mapping[str, States]) -> Variables:
    """Each hidden site as a variable of its own."""
    return Variables({name: (name, 0) for name in hidden},
                     {name: (states.cells, states.count) for name, states in hidden.items()})


def joined(found: Sequence[Table], hidden: Mapping[str, States]) -> Variables:
    """Sites that stand in the same place of alike log densities, have as many states, and names
    that are the same but for numbers, as cells of one variable."""
    leader = {name: name for name in hidden}

    def of(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for table in found:
        for place in zip(*table.looks, strict=True):
            kinds: dict[tuple, str] = {}
            for name in place:
                stem = re.sub(r"\d+", "", name)
                first = kinds.setdefault((stem, *hidden[name][1:]), name)
                one, other = sorted((of(first), of(name)))
                leader[other] = one
    sizes: dict[str, tuple[int, int]] = {}
    places = {}
    for name, states in hidden.items():
        before = sizes.get(of(name), (0, states.count))[0]
        places[name] = of(name), before
        sizes[of(name)] = before + states.cells, states.count
    return Variables(places, sizes)


def laid_out(found: Sequence[Table], variables: Variables) -> tuple[list[Part], list[Move]] | None:
    """Tables as factors over variables; None where one looks at three cells of a variable, or at
    two and something else."""
    parts, moves = [], []
    for table in found:
        members: dict[tuple[str, ...], list[int]] = {}
        for m, own in enumerate(table.looks):
            members.setdefault(tuple(variables.of[name][0] for name in own), []).append(m)
        for own, at in members.items():
            twice = len(set(own)) < len(own)
            if twice and len(own) > 2:
                return None
            every = len(at) == len(table.looks)
            log = table.log if every else jnp.take(table.log, np.array(at), -2)
            log = log.reshape(*log.shape[:-2], math.prod(log.shape[-2:]))
            where = [np.concatenate([_numbered(table.where[m][place],
                                               variables.of[table.looks[m][place]][1])
                                     for m in at]) for place in range(len(own))]
            if not twice:
                parts.append(Part(log, dict(zip(own, where, strict=True))))
                continue
            both = (where[0] != NONE) & (where[1] != NONE)
            if both.any():
                moves.append(Move(own[0], log[..., np.flatnonzero(both)], where[0][both],
                                  where[1][both]))
            if not both.all():  # of elements that look at one of the two, or at none
                lone = np.flatnonzero(~both)
                first = where[0][lone] != NONE
                for side, pick in ((0, np.flatnonzero(first)), (1, np.flatnonzero(~first))):
                    if len(pick):
                        rest = log[..., lone[pick]]
                        rest = rest[:, 0] if side == 0 else rest[0]
                        parts.append(Part(rest, {own[0]: where[side][lone[pick]]}))
    return parts, moves


def _numbered(where: np.ndarray, first: int) -> np.ndarray:
    return np.where(where == NONE, NONE, where + first)
