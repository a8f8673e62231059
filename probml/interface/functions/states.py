"""Discrete sites that nobody sees, as a function is run with them: their states, and the log
densities of a run."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml.errors import ModelError
from probml.families import finite
from probml.families.domains import log_prob_of_codes, of_values
from probml.structure.recorder import peel
from probml.typing import Message


class States(NamedTuple):
    """The states of a discrete site: so many whole numbers from `low` on, in each of its cells."""

    name: str
    shape: tuple[int, ...]
    low: int
    count: int  # type: ignore[assignment] # not the tuple's method

    @property
    def cells(self) -> int:
        return math.prod(self.shape)

    def everywhere(self) -> jax.Array:
        """The site with all cells in one state, for each state: (count, *shape)."""
        states = self.low + np.arange(self.count).reshape(-1, *(1,) * len(self.shape))
        return jnp.asarray(np.broadcast_to(states, (self.count, *self.shape)))


def single(fn: dist.Distribution) -> tuple[dist.Distribution, int]:
    """The distribution of what are values by themselves, and how many event axes are independent
    copies of it."""
    base, copies = peel(fn)
    shape = fn.batch_shape + fn.event_shape[:copies]
    return base if base.batch_shape == shape else base.expand(shape), copies


def zeros_of(fn: dist.Distribution, fill: object = 0) -> jax.Array:
    """Zeros of the shape and kind of a distribution's values, in the place of whole ones `fill`.
    """
    support = of_values(fn)
    discrete = support is not None and bool(support.is_discrete)
    return jnp.full(fn.shape(), fill if discrete else 0,
                    jnp.result_type(int if discrete else float))


def states_of(name: str, fn: dist.Distribution, where: str = "") -> States:
    """The states of a site's distribution.

    Raises:
        ModelError: they have no finite list that is known before parameters are.
    """
    fn, _ = single(fn)
    logits, bounds = getattr(fn, "logits", None), finite.integer_range(fn)
    if type(fn).__name__.startswith("Categorical") and logits is not None:
        span = 0, logits.shape[-1]
    elif bounds is None or fn.event_shape or any(isinstance(e, jax.core.Tracer) for e in bounds):
        span = None
    else:
        span = finite.listed(np.asarray(bounds[0]), np.asarray(bounds[1]))
    if span is None:
        raise ModelError(f"site '{name}' ({type(fn).__name__}){where} is discrete and not in the "
                         "data (latent), and has infinitely many values, which cannot be summed "
                         f"over. Give '{name}' in the data, or replace it by a Categorical with "
                         "finitely many values")
    return States(name, tuple(fn.batch_shape), *span)


def is_hidden(site: Message) -> bool:
    """Whether a traced site is discrete, unseen and no factor."""
    return (site["type"] == "sample" and not site["is_observed"]
            and not isinstance(site["fn"], dist.Unit) and bool(site["fn"].support.is_discrete))


def log_of_events(site: Message) -> jax.Array:
    """The log density of a sample site, event by event."""
    (log,), (_, copies) = logs_of({"": site}).values(), single(site["fn"])
    return log.sum(tuple(range(-copies, 0)))


def logs_of(trace: Mapping[str, Mapping], excluded: Iterable[str] = ()) -> dict[str, jax.Array]:
    """The log density of every sample site of a trace, element by element, also of events of
    independent ones; scales in it."""
    logs = {}
    for name, site in trace.items():
        if site["type"] != "sample" or name in excluded:
            continue
        (fn, copies), value, scale = single(site["fn"]), site["value"], site["scale"]
        if isinstance(fn, dist.Unit):
            log = fn.log_factor
        elif is_hidden(site) and (ends := finite.integer_range(fn)) is not None:
            first, last = ends
            clipped = jnp.clip(value, first, last)
            log = jnp.where(value == clipped, fn.log_prob(clipped), -jnp.inf)
        else:
            log = log_prob_of_codes(fn, value)
        logs[name] = jnp.asarray(log if scale is None else log * jnp.expand_dims(
            scale, tuple(range(-copies, 0))))
    return logs
