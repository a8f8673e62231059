"""The posterior of steps that are integrated out: their moments, draws of them, and what a function
computes from them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax

from probml.interface.functions.messages import trace_isolated
from probml.interface.functions.steps.gaussian_loops import integrate_loops
from probml.interface.functions.steps.gaussian_scans import integrate_scans
from probml.interface.functions.steps.loop_sites import LoopSites
from probml.interface.functions.steps.programs import program_of
from probml.interface.functions.steps.state_space import Chain
from probml.numerics.process.making import unchecked
from probml.typing import PyTree, SiteValues


def integrate_steps(call: Callable[[], object], steps: LoopSites,
                    given: SiteValues) -> tuple[PyTree, list[Chain]]:
    """Run a function, its loops, or its scans, integrated out: see these."""
    if steps.scans:
        return integrate_scans(call, steps.scans, given)
    return integrate_loops(call, steps, given)


class SmoothedSteps(NamedTuple):
    """Steps given what is observed.

    Attributes:
        chains: of which they are steps.
        compute: values of steps, by the names of all → what the function computes, by name.
    """

    chains: Sequence[Chain]
    compute: Callable[[SiteValues], dict[str, jax.Array]]

    def moments(self) -> dict[str, tuple[jax.Array, jax.Array]]:
        """Name of all steps → (means, standard deviations)."""
        return {name: moment for chain in self.chains for name, moment in chain.moments().items()}

    def path(self, key: jax.Array) -> dict[str, jax.Array]:
        """A draw of all steps, and what is computed from it."""
        steps = self._steps(key)
        return steps | self.compute(steps)

    def _steps(self, key: jax.Array) -> dict[str, jax.Array]:
        keys = jax.random.split(key, len(self.chains)) if len(self.chains) > 1 else [key]
        return {name: path for chain, key in zip(self.chains, keys, strict=True)
                for name, path in chain.path(key).items()}

    def means_computed(self, keys: jax.Array) -> dict[str, jax.Array]:
        """What is computed from steps, name → its mean: over draws of the steps, one a key, and
        these mirrored at their means, so that it is exact of what is affine in them."""
        means = {name: mean for name, (mean, _) in self.moments().items()}

        def pair(key: jax.Array) -> dict[str, jax.Array]:
            path = self._steps(key)
            mirror = {name: 2 * means[name] - value for name, value in path.items()}
            return jax.tree.map(lambda a, b: (a + b) / 2, self.compute(path), self.compute(mirror))

        return {name: value.mean(0) for name, value in jax.lax.map(pair, keys).items()}


def smooth_steps(call: Callable[[], object], steps: LoopSites, given: SiteValues,
                 values: SiteValues) -> SmoothedSteps:
    """Steps of loops, or of scans, that are integrated out.

    Args:
        given: values of sites that are data; values: of the other sites.
    """
    chains = list[Chain]()
    with unchecked():
        trace_isolated(lambda: chains.extend(integrate_steps(call, steps, given)[1]), given, values)

    def compute(step_values: SiteValues) -> dict[str, jax.Array]:
        with unchecked():
            if not steps.scans:
                return program_of(call, steps, given).computed({**values, **step_values})
            trace = trace_isolated(call, given, {**values, **step_values})
        return {name: site["value"] for name, site in trace.items()
                if site["type"] == "deterministic"}

    return SmoothedSteps(chains, compute)
