"""Runs of a function of which nobody outside hears, and what one that is heard leaves out."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.primitives import Messenger

from probml.interface.functions.loops import summed_out
from probml.interface.functions.marginal_weights import Leaning
from probml.interface.functions.survey import prepared


class _Alone(Messenger):
    """A run that nobody outside hears of: sites at `values`, others at a value of their shape."""

    def __init__(self, values: Mapping[str, Any], given: Mapping[str, Any],
                 leaning: Leaning | None):
        super().__init__()
        self.values, self.given, self.leaning = values, given, leaning

    def process_message(self, msg: dict) -> None:
        prepared(msg)
        if msg["type"] == "control_flow":
            msg["kwargs"]["substitute_stack"] += [
                ("condition", self.given),
                ("substitute", lambda s: None if s["is_observed"] else self.values.get(s["name"])),
            ]
            if msg["kwargs"]["rng_key"] is None:
                msg["kwargs"]["rng_key"] = jax.random.key(0)
            summed_out(msg, self.leaning)
        if msg["type"] != "sample" or msg["is_observed"]:
            return
        fn, name = msg["fn"], msg["name"]
        if name in self.given:
            msg |= {"value": self.given[name], "is_observed": True}
        elif name in self.values:
            msg["value"] = self.values[name]
        elif msg["value"] is None:
            dtype = int if fn.support.is_discrete else float
            msg["value"] = jnp.zeros(fn.shape(), jnp.result_type(dtype))


class Keep(Messenger):
    """Keeps the values of continuous sites, as those outside have given them; a site whose
    distribution looks at what is summed out is handed on as a number of its support alone."""

    def __init__(self, free: Iterable[str], mixed: Iterable[str]):
        super().__init__()
        self.free, self.mixed, self.values = set(free), set(mixed), {}

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "sample" and msg["name"] in self.mixed:
            fn = msg["fn"]
            msg["fn"] = dist.ImproperUniform(fn.support, fn.batch_shape, fn.event_shape)

    def postprocess_message(self, msg: dict) -> None:
        if msg["type"] == "sample" and msg["name"] in self.free:
            self.values[msg["name"]] = msg["value"]


def trace_isolated(call: Callable[[], Any], given: Mapping[str, Any], values: Mapping[str, Any],
                   leaning: Leaning | None = None) -> dict:
    """The sites of a run that no handler outside records.

    Args:
        given: values of sites that are data; values: of others.
    """
    with handlers.block(), handlers.trace() as trace, _Alone(values, given, leaning):
        call()
    return trace
