"""The program of a run of a function: records of its sites (log densities, arguments, computed
values) as results, the values of its latent sites as inputs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from probml.jaxpr import levels
from probml.jaxpr.opened.shortened import shortened
from probml.jaxpr.program import evaluate, jaxpr_of

Owner = tuple[str, Any]  # a site, and the kind of a record of it
Records = Callable[[str, Mapping[str, Any]], Sequence[tuple[str, Any]]]


def record_program(run: Callable[..., tuple[Mapping[str, Any], Sequence[Any]]], records: Records,
                   *inputs: object) -> tuple[Any, tuple[Owner, ...]]:
    """The program of a run, inputs → one result for each record, then further results; and the
    owner of each record. What the function computes (numpyro.deterministic) is a record "computed".

    Args:
        run: inputs → the messages by name, and the further results.
        records: the name and the message of a sample site → (kind, value) of each of its records.
    """
    owners: list[Owner] = []

    def records_of(name: str, site: Mapping[str, Any]) -> Sequence[tuple[str, Any]]:
        if site["type"] == "deterministic":
            return [("computed", jnp.asarray(site["value"]))]
        return records(name, site) if site["type"] == "sample" else ()

    def every(*own: object) -> list[jax.Array]:
        trace, more = run(*own)
        found = [(name, *record) for name, site in trace.items()
                 for record in records_of(name, site)]
        owners[:] = [(name, kind) for name, kind, _ in found]
        return [*(value for *_, value in found), *more]

    return jaxpr_of(shortened(every))(*inputs), tuple(owners)


def evaluate_results(closed: object, outputs: Sequence[int],
                     give: Callable[[int], Any]) -> list[jax.Array]:
    """Some results of a program, where `give` has the value of an input by its place."""
    part, takes = levels.restrict(closed, outputs)
    return evaluate(part, *(jnp.asarray(give(i), aval.dtype)
                            for i, aval in zip(takes, part.in_avals, strict=True)))


def latent_values(trace: Mapping[str, Any]) -> dict[str, jax.Array]:
    """The latent sites of a trace, and their values."""
    return {name: jnp.asarray(site["value"]) for name, site in trace.items()
            if site["type"] == "sample" and not site["is_observed"]
            and not isinstance(site["fn"], dist.Unit)}
