"""Switches: comparisons of a row with the state of a discrete site, `year < tau`, where they are
all that a program has of the state.

A change point has a state a year, but a row's arguments take two values: those before it and those
after. So a row's log density is evaluated for every setting of the switches (2 to the power of
their number) and looked up for every state; what is left for each row and state is a comparison. A
program that uses the state itself (`tau * slope`, `table[tau]`) has no switches.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from probml.jaxpr.program import called

# the key under which a site's environment holds its program with the switches set
SETTING = object()
INLINED = ("jit", "pjit", "closed_call")  # calls that are nothing but their equations
MOST = 4  # switches: 16 settings
SMALL = 64  # entries of a constant that is compared by value
GAIN = 2  # how many times fewer the settings must be than the states


@dataclass(eq=False)
class Step:
    """One equation of a program, with where its operands come from."""

    eqn: Any
    operands: tuple["Node", ...]

    def __call__(self, program: core.Jaxpr, values: Sequence[jax.Array]) -> list[jax.Array]:
        variables = {var: v for var, v in zip(self.eqn.invars, values, strict=True)
                     if not isinstance(var, core.Literal)}
        alone = program.replace(constvars=[], invars=list(variables), outvars=self.eqn.outvars,
                                eqns=[self.eqn])
        return core.jaxpr_as_fun(core.ClosedJaxpr(alone, ()))(*variables.values())


@dataclass(eq=False)
class Node:
    """One array of a program: an input, a constant, or a result of a step."""

    aval: Any
    input: str | None = None
    constant: Any = None
    step: Step | None = None
    place: int = 0
    needs: frozenset[str] = frozenset()  # the inputs on which it depends
    number: int = 0  # the same of two arrays that are surely equal


class Order(NamedTuple):
    """A switch that compares a number of the row's with one of the state's: with the rows in order,
    it is on for the first or the last."""

    row: Node
    state: Node
    first: bool  # on for the rows of small numbers
    side: str  # of a state's number among the rows' where they are equal, as searchsorted has it


# row, comparison, state
SIDES = {"lt": (True, "left"), "le": (True, "right"), "gt": (False, "right"), "ge": (False, "left")}
TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


@dataclass(frozen=True, eq=False)
class Switches:
    """The switches of a site's program.

    `parents` are the discrete parents that are seen through the switches alone; `looks[j]` those,
    and others, that switch j compares.
    """

    parents: tuple[str, ...]
    looks: tuple[tuple[str, ...], ...]
    order: Order | None  # of the one switch that there is
    _program: core.Jaxpr
    _switches: tuple[tuple[Node, ...], ...]  # equal ones together
    _outputs: tuple[Node, ...]

    def setting(self, env: Mapping[str, jax.Array], which: int) -> jax.Array:
        """Whether a switch is on, for one row and one state of the parents it looks at."""
        node = self._switches[which][0]
        return self._run([node], env, {})[0].reshape(())

    def at(self, node: Node, env: Mapping[str, jax.Array]) -> jax.Array:
        """A number of the order's, for one row or one state."""
        return self._run([node], env, {})[0].reshape(())

    def outputs(self, env: Mapping[str, jax.Array], on: Iterable[jax.Array]) -> list[jax.Array]:
        """What the program gives where the switches are on or off, whatever the states of
        `parents`."""
        pairs = ((node, value) for nodes, value in zip(self._switches, on, strict=True)
                 for node in nodes)
        held = {id(node): jnp.broadcast_to(value, node.aval.shape) for node, value in pairs}
        return self._run(self._outputs, env, held)

    def _run(self, wanted: Sequence[Node], env: Mapping[str, jax.Array],
             held: Mapping[int, jax.Array]) -> list[jax.Array]:
        values, results, stack = dict(held), {}, list(reversed(wanted))
        while stack:  # depth first, without Python's limit of depth
            node = stack[-1]
            if id(node) in values:
                stack.pop()
            elif node.step is None:
                values[id(node)] = node.constant if node.input is None else jnp.asarray(
                    env[node.input], node.aval.dtype
                )
            elif id(node.step) in results:
                values[id(node)] = results[id(node.step)][node.place]
            elif missing := [operand for operand in node.step.operands
                             if id(operand) not in values]:
                stack += missing
            else:
                results[id(node.step)] = node.step(
                    self._program, [values[id(operand)] for operand in node.step.operands]
                )
        return [values[id(node)] for node in wanted]


def find(closed: core.ClosedJaxpr, takes: Sequence[str], parents: Mapping[str, int],
         shared: Iterable[str]) -> Switches | None:
    """The switches of a program, or None where there are none, or too many of them to gain
    anything.

    Args:
        takes: the names of its inputs.
        parents: discrete inputs whose states are enumerated → how many states.
        shared: inputs that all rows share (parameters): a comparison with these is no switch, its
            value is not known beforehand.
    """
    outputs = _nodes(closed, takes)
    moving = frozenset(shared)
    through, found = [], []
    for parent in parents:
        nodes = _cut(outputs, parent, moving)
        if nodes:
            through.append(parent)
            found += nodes
    groups: dict[int, dict[int, Node]] = {}
    for node in found:
        groups.setdefault(node.number, {})[id(node)] = node
    # what follows from other switches is none: an index from a comparison, below 0 or not
    for number, same in list(groups.items()):
        node = next(iter(same.values()))
        assert node.step is not None, "a switch is a comparison's result"
        below = [_cut(node.step.operands, parent, moving) for parent in through
                 if parent in node.needs]
        if all(nodes and all(other.number != number and other.number in groups for other in nodes)
               for nodes in below):
            del groups[number]
    many = int(np.prod([parents[p] for p in through], dtype=float)) if through else 0
    if not groups or len(groups) > MOST or GAIN * 2 ** len(groups) > many:
        return None
    switches = tuple(tuple(group.values()) for group in groups.values())
    looks = tuple(tuple(p for p in parents if p in group[0].needs) for group in switches)
    order = (_order(switches[0][0], parents) if len(switches) == 1
             and looks[0] == tuple(parents) == tuple(through) else None)
    return Switches(tuple(through), looks, order, closed.jaxpr, switches, tuple(outputs))


def _order(node: Node, states: Iterable[str]) -> Order | None:
    """The two sides of a comparison, if one is the row's and the other the state's alone."""
    assert node.step is not None, "a comparison is a result"
    name, states = node.step.eqn.primitive.name, frozenset(states)
    if name not in SIDES:
        return None
    left, right = node.step.operands
    if not left.needs & states and right.needs <= states:
        return Order(left, right, *SIDES[name])
    if not right.needs & states and left.needs <= states:
        return Order(right, left, *SIDES[TURNED[name]])
    return None


def _nodes(closed: core.ClosedJaxpr, takes: Sequence[str]) -> list[Node]:
    """The outputs of a program as nodes."""
    numbers: dict[tuple, int] = {}

    def number(*key: Any) -> int:
        try:
            return numbers.setdefault(key, len(numbers))
        except TypeError:  # a parameter that cannot be compared: like nothing else
            return numbers.setdefault(("alone", len(numbers)), len(numbers))

    def constant(aval: Any, value: Any) -> Node:
        array = np.asarray(value)
        same = array.tobytes() if array.size <= SMALL else id(value)
        return Node(aval, constant=value, number=number(array.dtype.str, array.shape, same))

    def walk(body: core.ClosedJaxpr, operands: list[Node]) -> list[Node]:
        constants = (constant(var.aval, value)
                     for var, value in zip(body.jaxpr.constvars, body.consts, strict=True))
        nodes = dict(zip(body.jaxpr.constvars, constants, strict=True)) | dict(
            zip(body.jaxpr.invars, operands, strict=True)
        )

        def read(atom: Any) -> Node:
            return constant(atom.aval, atom.val) if isinstance(atom, core.Literal) else nodes[atom]

        for eqn in body.jaxpr.eqns:
            own = [read(atom) for atom in eqn.invars]
            inside, taken = called(eqn) if eqn.primitive.name in INLINED else (None, ())
            if inside is not None:
                nodes.update(zip(eqn.outvars, walk(inside, [own[i] for i in taken]), strict=True))
                continue
            step, needs = Step(eqn, tuple(own)), frozenset().union(*(node.needs for node in own))
            same = number(eqn.primitive.name, tuple(sorted(eqn.params.items())),
                          *(node.number for node in own))
            for i, var in enumerate(eqn.outvars):
                nodes[var] = Node(var.aval, step=step, place=i, needs=needs,
                                  number=number("result", same, i))
        return [read(atom) for atom in body.jaxpr.outvars]

    inputs = zip(takes, closed.in_avals, strict=True)
    return walk(closed, [Node(aval, input=name, needs=frozenset([name]),
                              number=number("input", name)) for name, aval in inputs])


def _cut(outputs: Iterable[Node], parent: str, moving: frozenset[str]) -> list[Node]:
    """The comparisons nearest to the outputs through which all that depends on a parent goes; none
    where something goes past them."""
    found, seen, stack = [], set(), list(outputs)
    while stack:
        node = stack.pop()
        if id(node) in seen or parent not in node.needs:
            continue
        seen.add(id(node))
        if node.step is None:
            return []
        if node.aval.dtype == bool and node.aval.size == 1 and not node.needs & moving:
            found.append(node)
        else:
            stack += node.step.operands
    return found
