"""Switches: comparisons of a row with the state of a discrete site, `year < tau`, where they are
all that a program has of the state.

A change point has a state a year, but a row's arguments take two values: those before it and those
after. So a row's log density is evaluated for every setting of the switches (2 to the power of
their number) and looked up for every state; what is left for each row and state is a comparison. A
program that uses the state itself (`tau * slope`, `table[tau]`) has no switches.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from probml.jaxpr.analysis import values_of
from probml.jaxpr.levels import Dependence
from probml.jaxpr.program import Program, flatten

# the key under which a site's environment holds its program with the switches set
SETTING: Any = object()
MOST = 4  # switches: 16 settings
GAIN = 2  # how many times fewer the settings must be than the states


class Order(NamedTuple):
    """A switch that compares a number of the row's with one of the state's: with the rows in order,
    it is on for the first or the last."""

    row: int  # its place in the program
    state: int
    first: bool  # on for the rows of small numbers
    side: str  # of a state's number among the rows' where they are equal, as searchsorted has it


# row, comparison, state
SIDES = {"lt": (True, "left"), "le": (True, "right"), "gt": (False, "right"), "ge": (False, "left")}
TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


class Switches:
    """The switches of a site's program.

    Attributes:
        parents: the discrete parents that are seen through the switches alone.
        looks: of each switch those, and others, that it compares.
        order: of the one switch that there is.
    """

    def __init__(self, read: "_Read", parents: Sequence[str], places: Sequence[int]):
        self._read, self._places, self.parents = read, tuple(places), tuple(parents)
        self.looks = tuple(tuple(p for p in read.parents if p in read.needs[place])
                           for place in places)
        alone = len(places) == 1 and self.looks[0] == tuple(read.parents) == self.parents
        self.order: Order | None = read.order(places[0]) if alone else None

    def setting(self, env: Mapping[str, jax.Array], which: int) -> jax.Array:
        """Whether a switch is on, for one row and one state of the parents it looks at."""
        return self.at(self._places[which], env)

    def at(self, place: int, env: Mapping[str, jax.Array]) -> jax.Array:
        """A number of the order's, for one row or one state."""
        return self._read.values([place], env, {})[0].reshape(())

    def outputs(self, env: Mapping[str, jax.Array], on: Iterable[jax.Array]) -> list[jax.Array]:
        """What the program gives where the switches are on or off, whatever the states of
        `parents`."""
        shapes = (self._read.avals[place].shape for place in self._places)
        held = {place: jnp.broadcast_to(value, shape)
                for place, value, shape in zip(self._places, on, shapes, strict=True)}
        return self._read.values(self._read.program.results, env, held)


class _Read:
    """A site's program in flat form: which line makes each place, and the inputs it depends on.

    Args:
        takes: the names of its inputs. parents, shared: see find.
    """

    def __init__(self, closed: ClosedJaxpr, takes: Sequence[str], parents: Iterable[str],
                 shared: Iterable[str]):
        self.program: Program = flatten(closed)
        self.parents, self.moving = tuple(parents), frozenset(shared)
        self.inputs = dict(zip(takes, self.program.inputs, strict=True))
        self.made, self.avals = self.program.makers(), self.program.avals
        self.needs = values_of(self.program, Dependence(), [frozenset([name]) for name in takes])

    def values(self, wanted: Sequence[int], env: Mapping[str, jax.Array],
               held: Mapping[int, jax.Array]) -> list[jax.Array]:
        """The values of places for inputs, where those of others are held."""
        own = {place: jnp.asarray(env[name], self.avals[place].dtype)
               for name, place in self.inputs.items() if name in env}
        return list(map(jnp.asarray, self.program.at(wanted, own | dict(held))))

    def cut(self, places: Iterable[int], parent: str) -> list[int]:
        """The comparisons nearest to places through which all that depends on a parent goes; none
        where something goes past them."""
        found, seen, stack = [], set[int](), list(places)
        while stack:
            place = stack.pop()
            if place in seen or parent not in self.needs[place]:
                continue
            seen.add(place)
            if place not in self.made:
                return []
            aval = self.avals[place]
            if aval.dtype == bool and aval.size == 1 and not self.needs[place] & self.moving:
                found.append(place)
            else:
                stack += self.made[place].operands
        return found

    def order(self, place: int) -> Order | None:
        """The two sides of a comparison, if one is the row's and the other the state's alone."""
        eqn, operands, _ = self.made[place]
        name, states = eqn.primitive.name, frozenset(self.parents)
        if name not in SIDES:
            return None
        left, right = operands
        if not self.needs[left] & states and self.needs[right] <= states:
            return Order(left, right, *SIDES[name])
        if not self.needs[right] & states and self.needs[left] <= states:
            return Order(right, left, *SIDES[TURNED[name]])
        return None


def find(closed: ClosedJaxpr, takes: Sequence[str], parents: Mapping[str, int],
         shared: Iterable[str]) -> Switches | None:
    """The switches of a program, or None where there are none, or too many of them to gain
    anything.

    Args:
        takes: the names of its inputs.
        parents: discrete inputs whose states are enumerated → how many states.
        shared: inputs that all rows share (parameters): a comparison with these is no switch, its
            value is not known beforehand.
    """
    read = _Read(closed, takes, parents, shared)
    cuts = {parent: read.cut(read.program.results, parent) for parent in parents}
    through = [parent for parent, places in cuts.items() if places]
    found = dict.fromkeys(place for parent in through for place in cuts[parent])
    # what follows from other switches is none: an index from a comparison, below 0 or not
    for place in list(found):
        below = [read.cut(read.made[place].operands, parent) for parent in through
                 if parent in read.needs[place]]
        if all(places and all(other != place and other in found for other in places)
               for places in below):
            del found[place]
    many = int(np.prod([parents[p] for p in through], dtype=float)) if through else 0
    if not found or len(found) > MOST or GAIN * 2 ** len(found) > many:
        return None
    return Switches(read, through, list(found))
