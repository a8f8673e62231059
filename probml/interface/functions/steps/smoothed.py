"""Steps that are integrated out, given what is seen: their moments, draws of them, and what a
function computes from them."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
from numpyro.distributions.distribution import validation_enabled

from probml.interface.functions.messages import trace_isolated
from probml.interface.functions.steps.chains import moments, path
from probml.interface.functions.steps.linear import linear_of
from probml.interface.functions.steps.names import Joined
from probml.interface.functions.steps.programs import program_of
from probml.interface.functions.steps.scans import scans_integrated


class Smoothed(NamedTuple):
    """Steps given what is seen.

    Attributes:
        moments: → name of all steps → (means, standard deviations).
        path: key → a draw, name of all steps → values.
        computed: such values → what the function computes, by name.
    """

    moments: Callable[[], dict[str, tuple[jax.Array, jax.Array]]]
    path: Callable[[jax.Array], dict[str, jax.Array]]
    computed: Callable[[Mapping[str, Any]], dict[str, jax.Array]]

    def means_computed(self, keys: jax.Array) -> dict[str, jax.Array]:
        """What is computed from steps, name → its mean: over draws of the steps, one a key, and
        these mirrored at their means, so that it is exact of what is affine in them."""
        middle = {name: mean for name, (mean, _) in self.moments().items()}

        def pair(key: jax.Array) -> dict[str, jax.Array]:
            one = self.path(key)
            other = {name: 2 * middle[name] - own for name, own in one.items()}
            return jax.tree.map(lambda a, b: (a + b) / 2, self.computed(one), self.computed(other))

        return {name: own.mean(0) for name, own in jax.lax.map(pair, keys).items()}


def smoothed(call: Callable[[], Any], steps: Joined, seen: Mapping[str, Any],
             values: Mapping[str, Any]) -> Smoothed:
    """Steps of loops, or of scans, that are integrated out.

    Args:
        seen: values of sites that are data; values: of the other sites.
    """
    return (_of_scans if steps.scans else _of_loops)(call, steps, seen, values)


def _of_loops(call: Callable[[], Any], steps: Joined, seen: Mapping[str, Any],
              values: Mapping[str, Any]) -> Smoothed:
    with validation_enabled(False):
        linear = linear_of(call, steps, seen)

    def computed(found: Mapping[str, Any]) -> dict[str, jax.Array]:
        with validation_enabled(False):
            return program_of(call, steps, seen).computed(steps, {**values, **found})

    return Smoothed(lambda: moments(linear, steps, values),
                    lambda key: path(linear, steps, values, key), computed)


def _of_scans(call: Callable[[], Any], steps: Joined, seen: Mapping[str, Any],
              values: Mapping[str, Any]) -> Smoothed:
    met = list[Any]()
    with validation_enabled(False):
        trace_isolated(lambda: met.extend(scans_integrated(call, steps.scans, seen)[1]), seen,
                       values)

    def drawn(key: jax.Array) -> dict[str, jax.Array]:
        keys = jax.random.split(key, len(met))
        return {name: own for scan, key in zip(met, keys, strict=True)
                for name, own in scan.path(key).items()}

    def computed(found: Mapping[str, Any]) -> dict[str, jax.Array]:
        with validation_enabled(False):
            trace = trace_isolated(call, seen, {**values, **found})
        return {name: site["value"] for name, site in trace.items()
                if site["type"] == "deterministic"}

    return Smoothed(lambda: {name: own for scan in met for name, own in scan.moments().items()},
                    drawn, computed)
