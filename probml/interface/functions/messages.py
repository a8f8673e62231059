"""Handlers that record the messages of a function, or fill in values; and runs of a function that
are hidden from handlers outside, in whole or in part."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import handlers, primitives
from numpyro.primitives import Messenger

from probml.families import registry
from probml.interface.functions.discrete_scans import sum_out_scan
from probml.interface.functions.given.values import GivenArray
from probml.interface.functions.marginal_weights import StateWeights
from probml.interface.functions.scan_starts import settle_start
from probml.interface.functions.states import zeros_of
from probml.numerics.process.inline_calls import evaluated
from probml.structure.recorder import log_weight_of
from probml.typing import ArrayLike, PyTree, SiteValues


def prepare(msg: dict) -> None:
    """Make a message uniform for all readings: a plate in full with concrete indices, since engines
    take the density of all data; a factor under a mask a factor; sample_shape= axes of the
    distribution; a scan that starts at None one that starts at arrays; a transformed distribution
    the family that it equals."""
    if msg["type"] == "control_flow":
        settle_start(msg)
    if msg["type"] == "plate":
        size = msg["args"][0]
        msg["args"] = (size, None)
        with evaluated():
            msg["value"] = jnp.arange(size)
    fn: dist.Distribution = msg.get("fn")
    if msg["type"] == "sample" and msg["kwargs"].get("sample_shape") and not msg["is_observed"]:
        msg["fn"] = fn.expand((*msg["kwargs"]["sample_shape"], *fn.batch_shape))
        msg["kwargs"] = {**msg["kwargs"], "sample_shape": ()}
    if (weight := log_weight_of(fn)) is not None:
        msg["fn"] = weight
    elif msg["type"] == "sample":
        msg["fn"] = registry.plain(msg["fn"])


def is_fixed(msg: dict, outer: Messenger) -> bool:
    """Whether the function observes a number or an array of NumPy's that is not made of its
    arguments, or handlers.condition, in or around it, gives the site such a value: it is part of
    the model, no data, but where it has one value per row.

    Args:
        outer: the handler that asks; of what stands outside it nothing is known.
    """
    stack = primitives._PYRO_STACK
    given = (handler.condition_fn(msg) if handler.data is None else handler.data.get(msg["name"])
             for handler in stack[stack.index(outer) + 1 :]
             if isinstance(handler, handlers.condition))
    value = next((value for value in given if value is not None), None)
    if value is None:  # JAX's arrays may be parts of arguments, as in a loop's step
        return msg["is_observed"] and not isinstance(msg["value"], jax.Array | GivenArray)
    return not is_argument(value)


def is_argument(value: object) -> bool:
    """Whether a value is an argument of the function, or made of some."""
    return isinstance(value, jax.core.Tracer | GivenArray)


class Record(Messenger):
    """Keeps the messages of a run by name, as handlers outside have changed them.

    Args:
        improper: sites whose distribution is replaced, for handlers outside, by a flat one on its
            support.
    """

    def __init__(self, improper: Collection[str] = ()):
        super().__init__()
        self.improper, self.messages, self.loops = set(improper), dict[str, dict](), list[dict]()

    def of(self, kind: str) -> list[dict]:
        """The messages of a type."""
        return [msg for msg in self.messages.values() if msg["type"] == kind]

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "control_flow":
            self.loops.append(msg)
        if "name" in msg:
            self.messages[msg["name"]] = msg
        if msg["type"] == "sample" and msg["name"] in self.improper:
            fn = msg["fn"]
            msg["fn"] = dist.ImproperUniform(fn.support, fn.batch_shape, fn.event_shape)


class Fill(Messenger):
    """Gives every latent site a value, in scans too.

    Args:
        given: values of sites that are data; values: of other sites.
        weights: of the states of discrete sites of scans.
        sums: whether these are summed out.
        blank: a distribution → the value of a site that has none otherwise.
    """

    inside = True  # whether values reach the sites of scans

    def __init__(self, given: SiteValues, values: Mapping[str, ArrayLike] = {},
                 weights: StateWeights | None = None, sums: bool = True,
                 blank: Callable[[dist.Distribution], ArrayLike] = zeros_of):
        super().__init__()
        self.given, self.values, self.weights = given, values, weights
        self.sums, self.blank = sums, blank

    def process_message(self, msg: dict) -> None:
        prepare(msg)
        if msg["type"] == "prng_key":
            msg["value"] = jax.random.key(0)
        if msg["type"] == "control_flow":
            if self.inside:
                msg["kwargs"]["substitute_stack"] += [("condition", self.given), (
                    "substitute",
                    lambda s: None if s["is_observed"] else self.values.get(s["name"]))]
            if msg["kwargs"]["rng_key"] is None:
                msg["kwargs"]["rng_key"] = jax.random.key(0)
            if self.sums:
                sum_out_scan(msg, self.weights)
        if msg["type"] != "sample" or msg["is_observed"]:
            return
        name = msg["name"]
        if name in self.given:
            msg |= {"value": self.given[name], "is_observed": True}
        elif name in self.values:
            msg["value"] = self.values[name]
        elif msg["value"] is None:
            msg["value"] = self.blank(msg["fn"])


def trace_isolated(call: Callable[[], object], given: SiteValues,
                   values: Mapping[str, ArrayLike] = {}, weights: StateWeights | None = None,
                   **options: Any) -> dict:
    """The sites of a run that no handler outside records.

    Args:
        given: values of sites that are data; values: of others. options: of Fill.
    """
    with handlers.block(), handlers.trace() as trace, Fill(given, values, weights, **options):
        call()
    return trace


def run_in_part(call: Callable[[], object], hidden: Collection[str], free: Iterable[str],
                fixed: SiteValues, given: SiteValues,
                improper: Collection[str] = ()) -> tuple[PyTree, dict[str, ArrayLike]]:
    """Run a function, the sites `hidden` hidden from handlers outside: what it returns, and the
    values that these handlers have given the sites `free`.

    Args:
        fixed: values of sites that are gone; given: of sites that are data. improper: see Record.
    """
    record = Record(improper)
    with (handlers.block(hide_fn=lambda msg: msg.get("name") in hidden), record,
          handlers.condition(data=dict(given)), handlers.substitute(data=dict(fixed))):
        result = call()
    return result, {name: record.messages[name]["value"] for name in free}
