"""A call of numpyro's scan, and scans whose carry starts at None (NumPyro's idiom for a chain whose
first step has a distribution of its own) or at one number for all members of a plate: the same scan
from a carry of arrays that keep their shapes.

Where the carry that a body returns has another form (tree and shapes) than the one it took, as
None → x, the first steps are told apart by their number: the distribution of each site is that of
the body at the start in the first step, and that of the body at its carry in the others,

    fn_t = fn(init) if t = 0 else fn(c_{t−1}).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.contrib.control_flow.scan import PytreeTrace
from numpyro.primitives import Messenger

from probml.errors import ModelError
from probml.interface.functions.states import zeros_of
from probml.structure.recorder import peel
from probml.typing import PyTree, SiteValues

MOST_CHANGES = 4  # steps after which the form of the carry must be the same
PLACEHOLDER = 0.5  # for a number that is not there yet: its logarithm and its root are finite


class ScanCall(NamedTuple):
    """The arguments of numpyro's scan."""

    body: Callable
    init: PyTree
    xs: PyTree
    length: int
    reverse: bool

    @classmethod
    def of(cls, msg: dict) -> "ScanCall | None":
        """The call of a message; None: it is no scan."""
        if msg["type"] != "control_flow" or len(msg["args"]) != 5:  # cond has four
            return None
        body, init, xs, length, reverse = msg["args"]
        return cls(body, init, xs, len(jax.tree.leaves(xs)[0]) if length is None else length,
                   reverse)

    @property
    def first_x(self) -> PyTree:
        """The inputs of the first step."""
        return jax.tree.map(lambda leaf: leaf[0], self.xs)

    def result(self, carry: object, outputs: object) -> tuple:
        """The value of the message where the scan is not run."""
        return (self.length, None, carry), (PytreeTrace({}), outputs)


def settle_start(msg: dict) -> None:
    """Make a scan whose carry changes its form in the first steps one whose carry keeps it; any
    other message is left as it is."""
    call = ScanCall.of(msg)
    if call is None or msg["value"] is not None or all(
            map(np.ndim, jax.tree.leaves(call.init, is_leaf=_is_none))):
        return
    body, init = call.body, call.init
    *start_forms, final_form = _forms_of_carry(body, init, call.first_x)
    if not start_forms:
        return
    number = np.arange(call.length)[:: -1 if call.reverse else 1]

    def step(carry: PyTree, x: PyTree) -> tuple[PyTree, PyTree]:
        number, inputs = x
        runs = [_HiddenRun(body, _restrict_to_form(start, carry) if i else init, inputs)
                for i, start in enumerate(start_forms)]
        chooser = _ChooseByStep(runs, number)
        with chooser:
            returned = body(carry, inputs)
        for i, run in enumerate(runs):
            returned = _where_present(number == i, run.returned(chooser.values), returned)
        return returned

    msg["args"] = (step, jax.tree.map(_placeholder, final_form), (number, call.xs), call.length,
                   call.reverse)


def _is_none(leaf: object) -> bool:
    return leaf is None


def _placeholder(like: jax.ShapeDtypeStruct) -> jax.Array:
    value = PLACEHOLDER if jnp.issubdtype(like.dtype, jnp.floating) else 0
    return jnp.full(like.shape, value, like.dtype)


def _restrict_to_form(form: object, carry: object) -> PyTree:
    """A carry as far as a form has it."""
    return jax.tree.map(lambda had, now: had if had is None else now, form, carry, is_leaf=_is_none)


def _where_present(mask: object, chosen: object, default: object) -> PyTree:
    """A tree of `chosen`, as far as it is there, where `mask` holds, else of `default`."""
    return jax.tree.map(lambda had, now: now if had is None else jnp.where(mask, had, now),
                        chosen, default, is_leaf=_is_none)


def _forms_of_carry(body: Callable, init: object, first: object) -> list[PyTree]:
    """The shapes of the carry that each step takes, up to the first step that returns the form it
    took; another dtype is no other form.

    Raises:
        ModelError: the form does not settle.
    """
    forms = [jax.eval_shape(lambda: jax.tree.map(jnp.asarray, init))]
    while len(forms) <= MOST_CHANGES:
        form = jax.eval_shape(lambda *args: _HiddenRun(body, *args).returned({})[0], forms[-1],
                              first)
        if _form(form) == _form(forms[-1]):
            return forms
        forms.append(form)
    raise ModelError("the carry of a scan (what is passed from step to step) that starts at "
                     f"{init!r} still changes its shape or type after {MOST_CHANGES} steps. Return "
                     "a carry of the same shape and type in every step")


def _form(tree: object) -> tuple:
    leaves, treedef = jax.tree.flatten(tree)
    return treedef, [leaf.shape for leaf in leaves]


class _HiddenRun:
    """A body run at some carry, hidden from handlers outside."""

    def __init__(self, body: Callable, carry: object, x: object):
        self.body, self.carry, self.x = body, carry, x

    def _of(self, values: SiteValues) -> tuple[PyTree, dict]:
        """The carry and the output, and the sites: those without a value at zeros."""
        def value(site: dict) -> jax.Array | None:
            if site["type"] != "sample" or site["is_observed"]:
                return None
            return values.get(site["name"], zeros_of(site["fn"]))

        with (handlers.block(), handlers.seed(rng_seed=0), handlers.trace() as trace,
              handlers.substitute(substitute_fn=value)):
            return self.body(self.carry, self.x), trace

    def returned(self, values: SiteValues) -> tuple[PyTree, PyTree]:
        """The carry and the output where the sites have these values."""
        return self._of(values)[0]

    def distribution(self, name: str, values: SiteValues) -> dist.Distribution:
        """The distribution of a site, given the values of the sites before it.

        Raises:
            ModelError: the site is in the later steps alone.
        """
        trace = self._of(values)[1]
        if name in trace:
            return trace[name]["fn"]
        raise ModelError(f"site '{name}' is in the later steps of a scan but not in the first "
                         "step, where init is None. Sample the same sites in every step")


class _ChooseByStep(Messenger):
    """Gives each site its distribution in the step of this number."""

    def __init__(self, runs: list[_HiddenRun], number: object):
        super().__init__()
        self.runs, self.number, self.values = (runs, number, dict[str, PyTree]())

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "sample" and not isinstance(msg["fn"], dist.Unit):
            for i, run in enumerate(self.runs):
                fn = run.distribution(msg["name"], self.values)
                msg["fn"] = _choose_distribution(msg["name"], self.number == i, fn, msg["fn"])

    def postprocess_message(self, msg: dict) -> None:
        if msg["type"] == "sample":
            self.values[msg["name"]] = msg["value"]


def _choose_distribution(name: str, condition: object, one: dist.Distribution,
                         other: dist.Distribution) -> dist.Distribution:
    """One distribution or another of the same kind.

    Raises:
        ModelError: they are of different kinds.
    """
    shape = np.broadcast_shapes(one.batch_shape, other.batch_shape)
    if isinstance(one, dist.MaskedDistribution) and isinstance(other, dist.MaskedDistribution):
        mask = jnp.where(condition, one._mask, other._mask)
        return _choose_distribution(name, condition, one.base_dist, other.base_dist).mask(mask)
    (first, copies), (later, _) = map(peel, (one, other))
    if {type(first), type(later)} <= {dist.CategoricalProbs, dist.CategoricalLogits}:
        first, later = (dist.CategoricalLogits(own.logits) if type(first) is not type(later)
                        else own for own in (first, later))
    (leaves, _), (others, own) = map(jax.tree.flatten, (first, later))
    if type(first) is not type(later) or len(leaves) != len(others) or (
            one.event_shape != other.event_shape):
        raise ModelError(
            f"site '{name}' in a scan with init=None is {type(first).__name__} in the first step "
            f"and {type(later).__name__} in the others. Use the same distribution in every step "
            "(its arguments may differ). Or write the site of the first step outside the scan, and "
            "start the scan from its value"
        )
    joined = jax.tree.unflatten(own, [jnp.where(condition, *pair)
                                      for pair in zip(leaves, others, strict=True)])
    joined._batch_shape = np.broadcast_shapes(first.batch_shape, later.batch_shape)
    joined = joined.expand(shape + one.event_shape[:copies])
    return joined.to_event(copies) if copies else joined
