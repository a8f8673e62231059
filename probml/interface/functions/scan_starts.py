"""numpyro's scan whose carry starts at None, NumPyro's idiom for a chain whose first step has a
distribution of its own, or at one number for all members of a plate: the same scan from a carry of
arrays that keep their shapes.

Where what a body hands on is not of the form that it took, as None → x, the steps before it settles
are told apart by their number: each site's distribution is that of the body at the start in the
first step, and that of the body at what was handed on in the others,

    fn_t = fn(init) if t = 0 else fn(c_{t−1}).
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.primitives import Messenger

from probml.errors import ModelError
from probml.interface.functions.states import zeros_of
from probml.structure.recorder import peel

MOST_CHANGES = 4  # steps after which the tree that a body hands on must be the same
PLACEHOLDER = 0.5  # for a number that is not there yet: its logarithm and its root are finite


def settle_start(msg: dict) -> None:
    """A control-flow message whose carry has another form at first, as None → one whose carry keeps
    its form; any other is left as it is."""
    if len(msg["args"]) != 5 or msg["value"] is not None:  # cond, or done already
        return
    body, init, xs, length, reverse = msg["args"]
    if all(np.ndim(leaf) for leaf in _leaves(init)):
        return
    *starts, last = _forms_of_carry(body, init, jax.tree.map(lambda leaf: leaf[0], xs))
    if not starts:
        return
    length = len(jax.tree.leaves(xs)[0]) if length is None else length
    number = np.arange(length)[:: -1 if reverse else 1]

    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        number, own = x
        runs = [_HiddenRun(body, _restrict_to_form(start, carry) if i else init, own)
                for i, start in enumerate(starts)]
        chosen = _ChooseByStep(runs, number)
        with chosen:
            handed = body(carry, own)
        for i, run in enumerate(runs):
            handed = _where_present(number == i, run.handed(chosen.values), handed)
        return handed

    msg["args"] = (step, jax.tree.map(_placeholder, last), (number, xs), length, reverse)


def _is_none(leaf: object) -> bool:
    return leaf is None


def _leaves(tree: object) -> list:
    return jax.tree.leaves(tree, is_leaf=_is_none)


def _placeholder(like: jax.ShapeDtypeStruct) -> jax.Array:
    value = PLACEHOLDER if jnp.issubdtype(like.dtype, jnp.floating) else 0
    return jnp.full(like.shape, value, like.dtype)


def _restrict_to_form(form: object, carry: object) -> Any:
    """What is handed on, as far as a form has it."""
    return jax.tree.map(lambda had, now: had if had is None else now, form, carry, is_leaf=_is_none)


def _where_present(which: object, some: object, every: object) -> Any:
    """A tree with `some`, as far as it is there, in the place of `every` where `which` holds."""
    return jax.tree.map(lambda had, now: now if had is None else jnp.where(which, had, now),
                        some, every, is_leaf=_is_none)


def _forms_of_carry(body: Callable, init: object, first: object) -> list[Any]:
    """What each step takes, shapes, up to the first that takes what it hands on; that a number
    becomes another kind of number is no other form.

    Raises:
        ModelError: that is never so.
    """
    found = [jax.eval_shape(lambda: jax.tree.map(jnp.asarray, init))]
    while len(found) <= MOST_CHANGES:
        after = jax.eval_shape(lambda *own: _HiddenRun(body, *own).handed({})[0], found[-1], first)
        if _form(after) == _form(found[-1]):
            return found
        found.append(after)
    raise ModelError(f"a scan starts at {init!r}, and its carry still changes its shape or type "
                     f"after {MOST_CHANGES} steps: let the body return a carry of the same shape "
                     f"and type in every step")


def _form(tree: object) -> tuple:
    leaves, own = jax.tree.flatten(tree)
    return own, [leaf.shape for leaf in leaves]


class _HiddenRun:
    """A body at some start, of which nobody outside hears."""

    def __init__(self, body: Callable, carry: object, x: object):
        self.body, self.carry, self.x = body, carry, x

    def _of(self, values: Mapping[str, Any]) -> tuple[Any, dict]:
        """What it hands on and returns, and its sites: those without a value at zeros."""
        def value(site: dict) -> jax.Array | None:
            if site["type"] != "sample" or site["is_observed"]:
                return None
            return values.get(site["name"], zeros_of(site["fn"]))

        with (handlers.block(), handlers.seed(rng_seed=0), handlers.trace() as trace,
              handlers.substitute(substitute_fn=value)):
            return self.body(self.carry, self.x), trace

    def handed(self, values: Mapping[str, Any]) -> tuple[Any, Any]:
        """What it hands on and returns where its sites have these values."""
        return self._of(values)[0]

    def distribution(self, name: str, values: Mapping[str, Any]) -> dist.Distribution:
        """That of a site, given the values of those before it.

        Raises:
            ModelError: it is in the later steps alone.
        """
        trace = self._of(values)[1]
        if name in trace:
            return trace[name]["fn"]
        raise ModelError(f"site '{name}' is in the later steps of a scan but not in the first, "
                         f"which starts at None: let every step have the same sites")


class _ChooseByStep(Messenger):
    """Gives each site the distribution that it has in a step of this number."""

    def __init__(self, runs: list[_HiddenRun], number: Any):
        super().__init__()
        self.runs, self.number, self.values = runs, number, dict[str, Any]()

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "sample" and not isinstance(msg["fn"], dist.Unit):
            for i, run in enumerate(self.runs):
                own = run.distribution(msg["name"], self.values)
                msg["fn"] = _choose_distribution(msg["name"], self.number == i, own, msg["fn"])

    def postprocess_message(self, msg: dict) -> None:
        if msg["type"] == "sample":
            self.values[msg["name"]] = msg["value"]


def _choose_distribution(name: str, which: object, one: dist.Distribution,
                         other: dist.Distribution) -> dist.Distribution:
    """One distribution or another of the same kind.

    Raises:
        ModelError: they are of different kinds.
    """
    shape = np.broadcast_shapes(one.batch_shape, other.batch_shape)
    if isinstance(one, dist.MaskedDistribution) and isinstance(other, dist.MaskedDistribution):
        mask = jnp.where(which, one._mask, other._mask)
        return _choose_distribution(name, which, one.base_dist, other.base_dist).mask(mask)
    (first, copies), (later, _) = map(peel, (one, other))
    if {type(first), type(later)} <= {dist.CategoricalProbs, dist.CategoricalLogits}:
        first, later = (dist.CategoricalLogits(own.logits) if type(first) is not type(later)
                        else own for own in (first, later))
    (leaves, kind), (others, own) = map(jax.tree.flatten, (first, later))
    if type(first) is not type(later) or len(leaves) != len(others) or (
            one.event_shape != other.event_shape):
        raise ModelError(
            f"site '{name}' in a scan that starts at None is {type(first).__name__} in the first "
            f"step and {type(later).__name__} in the others, expected the same distribution with "
            f"arguments that may differ: write the site of the first step outside the scan, and "
            f"start the scan from its value"
        )
    made = jax.tree.unflatten(own, [jnp.where(which, *pair)
                                    for pair in zip(leaves, others, strict=True)])
    made._batch_shape = np.broadcast_shapes(first.batch_shape, later.batch_shape)
    made = made.expand(shape + one.event_shape[:copies])
    return made.to_event(copies) if copies else made
