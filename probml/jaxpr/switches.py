"""Switches: comparisons of a row with the state of a discrete site, such as `year < tau`, through
which alone a program depends on the state.

A change point has one state for each year, but the arguments of a row take only two values: before
and after it. So the log density of a row is evaluated for every combination of switch values (2 to
the power of the number of switches) and looked up for every state. A program that uses the state
itself (`tau * slope`, `table[tau]`) has no switches.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from probml.jaxpr.analysis import values_of
from probml.jaxpr.levels import Dependence
from probml.jaxpr.primitives import MIRRORED
from probml.jaxpr.program import Program, flatten

# the key of a site's environment that holds its program with the switches fixed
SETTING: Any = object()
MAX_SWITCHES = 4  # switches: 16 settings
GAIN = 2  # the least ratio of the number of states to the number of settings


class Order(NamedTuple):
    """A switch that compares a number of the row with a number of the state: with the rows sorted
    by this number it is on for the first rows, or for the last."""

    row: int  # place of the number of the row in the program
    state: int
    first: bool  # on for the rows with small numbers
    side: str  # of ties, as in searchsorted


# row, comparison, state
SIDES = {"lt": (True, "left"), "le": (True, "right"), "gt": (False, "right"), "ge": (False, "left")}


class Switches:
    """The switches of the program of a site.

    Attributes:
        parents: the discrete parents on which it depends through the switches alone.
        compared: for each switch the discrete parents that it compares.
        order: of the switch, if there is a single one that compares two numbers.
    """

    def __init__(self, reader: "_Read", parents: Sequence[str], places: Sequence[int]):
        self._read, self._places, self.parents = reader, tuple(places), tuple(parents)
        self.compared = tuple(tuple(p for p in reader.parents if p in reader.needs[place])
                              for place in places)
        is_single = len(places) == 1 and self.compared[0] == tuple(reader.parents) == self.parents
        self.order: Order | None = reader.order(places[0]) if is_single else None

    def setting(self, env: Mapping[str, jax.Array], which: int) -> jax.Array:
        """Whether a switch is on, for one row and one state of the parents that it compares."""
        return self.at(self._places[which], env)

    def at(self, place: int, env: Mapping[str, jax.Array]) -> jax.Array:
        """The value at a place of `order`, for one row or one state."""
        return self._read.values([place], env, {})[0].reshape(())

    def outputs(self, env: Mapping[str, jax.Array], states: Iterable[jax.Array]) -> list[jax.Array]:
        """The outputs of the program for given values of the switches; they do not depend on the
        states of `parents` otherwise."""
        shapes = (self._read.avals[place].shape for place in self._places)
        fixed = {place: jnp.broadcast_to(value, shape)
                 for place, value, shape in zip(self._places, states, shapes, strict=True)}
        return self._read.values(self._read.program.results, env, fixed)


class _Read:
    """The program of a site in flat form: the line that computes each place, and its inputs.

    Args:
        takes: the names of its inputs. parents, shared: see find.
    """

    def __init__(self, closed: ClosedJaxpr, names: Sequence[str], parents: Iterable[str],
                 shared: Iterable[str]):
        self.program: Program = flatten(closed)
        self.parents, self.moving = tuple(parents), frozenset(shared)
        self.inputs = dict(zip(names, self.program.inputs, strict=True))
        self.made, self.avals = self.program.makers(), self.program.avals
        self.needs = values_of(self.program, Dependence(), [frozenset([name]) for name in names])

    def values(self, wanted: Sequence[int], env: Mapping[str, jax.Array],
               fixed: Mapping[int, jax.Array]) -> list[jax.Array]:
        """The values of places, given inputs and the values of other places."""
        given = {place: jnp.asarray(env[name], self.avals[place].dtype)
                 for name, place in self.inputs.items() if name in env}
        return list(map(jnp.asarray, self.program.at(wanted, given | dict(fixed))))

    def cut(self, places: Iterable[int], parent: str) -> list[int]:
        """The last comparisons on the paths from a parent to the places; empty if a path has no
        comparison."""
        comparisons, visited, stack = [], set[int](), list(places)
        while stack:
            place = stack.pop()
            if place in visited or parent not in self.needs[place]:
                continue
            visited.add(place)
            if place not in self.made:
                return []
            aval = self.avals[place]
            if aval.dtype == bool and aval.size == 1 and not self.needs[place] & self.moving:
                comparisons.append(place)
            else:
                stack += self.made[place].operands
        return comparisons

    def order(self, place: int) -> Order | None:
        """The two sides of a comparison, if one depends on the row and the other on the state."""
        eqn, operands, _ = self.made[place]
        name, states = eqn.primitive.name, frozenset(self.parents)
        if name not in SIDES:
            return None
        left, right = operands
        if not self.needs[left] & states and self.needs[right] <= states:
            return Order(left, right, *SIDES[name])
        if not self.needs[right] & states and self.needs[left] <= states:
            return Order(right, left, *SIDES[MIRRORED[name]])
        return None


def find(closed: ClosedJaxpr, names: Sequence[str], parents: Mapping[str, int],
         shared: Iterable[str]) -> Switches | None:
    """The switches of a program; None if it has none, or too many to be of use.

    Args:
        names: the names of its inputs.
        parents: discrete inputs whose states are enumerated → the number of states.
        shared: inputs that all rows share (parameters). A comparison with these is no switch,
            because its value changes while parameters are estimated.
    """
    reader = _Read(closed, names, parents, shared)
    cuts = {parent: reader.cut(reader.program.results, parent) for parent in parents}
    via_switch = [parent for parent, places in cuts.items() if places]
    switches = dict.fromkeys(place for parent in via_switch for place in cuts[parent])
    # a comparison that follows from other switches is none, such as the test of a negative index
    for place in list(switches):
        upstream = [reader.cut(reader.made[place].operands, parent) for parent in via_switch
                    if parent in reader.needs[place]]
        if all(places and all(other != place and other in switches for other in places)
               for places in upstream):
            del switches[place]
    n_states = int(np.prod([parents[p] for p in via_switch], dtype=float)) if via_switch else 0
    if not switches or len(switches) > MAX_SWITCHES or GAIN * 2 ** len(switches) > n_states:
        return None
    return Switches(reader, via_switch, list(switches))
