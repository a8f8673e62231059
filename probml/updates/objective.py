"""The objective of an M-step: expected log factors and log priors, as functions of some blocks."""

from collections.abc import Callable, Collection, Mapping

import jax
import jax.numpy as jnp

from probml.device.rows import Chunk, Known, Rows, Summary
from probml.evidence.e_step import total_with_responsibilities
from probml.evidence.surrogates import Expected, Settings, row_surrogate, surrogate
from probml.factors.affine_predictors import weighted_hessian
from probml.factors.naturals import log_prior, outside
from probml.jaxpr.opened.backward import gradient, value_and_gradient
from probml.plan.plan import Plan
from probml.plan.strands import columns
from probml.typing import PyTree


class Objective:
    """Q(params) = ⟨q, log factors⟩ + log prior, as a function of some blocks' quantities c, with
    its derivatives.

    Pooled sites contribute functions of their sufficient statistics; row-wise sites a pass over the
    chunks, made only where such a site depends on a block.

    Args:
        mode: with prior densities in the coordinates of the maximisation; False: of the parameters.
        settings: draws of parameters, over which Q is averaged; None: Q is at `params`.
    """

    def __init__(self, plan: Plan, expected: Expected, params: Mapping, known: Known,
                 rows: Rows | Summary, prior: bool, mode: bool = True,
                 settings: Settings | None = None):
        self.mode, self.settings = mode, settings
        self.priors = outside(plan) if prior else ()
        self.plan, self.expected, self.params, self.known, self.rows, self.prior = (
            plan, expected, dict(params), known, rows, prior
        )
        self.passes = not isinstance(rows, Summary)  # else all sites are in `expected`

    def _over(self, function: Callable) -> PyTree:
        assert not isinstance(self.rows, Summary)
        return total_with_responsibilities(self.plan, self.expected, self.rows, function)

    def _averaged(self, function: Callable, changed: Mapping) -> jax.Array:
        """function(parameters), with some of them changed; its mean over the settings, if any."""
        if self.settings is None:
            return function({**self.params, **changed})
        return self.settings.mean(lambda setting: function({**self.params, **setting, **changed}))

    def _pooled(self, unpack: Callable, c: object, priors: tuple[str, ...] | None = None,
                origin: Mapping[str, jax.Array] | None = None,
                moving: Collection[str] | None = None):
        priors = self.priors if priors is None else priors

        def at(params: Mapping[str, jax.Array]):
            value = surrogate(self.plan, self.expected, params, self.known, origin, moving)
            return value + log_prior(self.plan, params, self.known, self.mode,
                                     priors) if priors else value

        return self._averaged(at, unpack(c))

    def _moving(self, names: set[str]) -> tuple[str, ...]:
        """The priors that depend on the parameters `names`: the others have no gradient."""
        sites = self.plan.structure.sites
        return tuple(n for n in self.priors if n in names or names.intersection(sites[n].parents))

    def gradients(self, unpack: Callable, points: list[jax.Array], rowwise: bool, names: set[str]):
        """∇Q(unpack(c)) at several points c, stacked on a leading axis; of sites with a minorant,
        the gradient of the minorant, which has a closed-form maximum.

        Args:
            names: the parameters that `unpack` returns.
        """
        priors = self._moving(names)
        total = jax.vmap(gradient(lambda c: self._pooled(unpack, c, priors, None, names)))(points)
        if rowwise and self.passes:

            def chunk(rows: Chunk, responsibilities: Mapping[str, jax.Array]):
                part = gradient(lambda c: self._averaged(lambda params: row_surrogate(
                    self.plan, responsibilities, params, self.known, rows, self.params, self.params
                ), unpack(c)))
                return jax.vmap(part)(points)

            total = jax.tree.map(jnp.add, total, self._over(chunk))
        return total

    def value_and_gradient(self, unpack: Callable, c: jax.Array, rowwise: bool, names: set[str],
                           origin: Mapping[str, jax.Array]):
        """The gain of Q(unpack(c)) over the point with natural parameters `origin`, up to a
        constant, and its gradient.

        An optimisation of Q itself would end, in float32, where a step gains less than its
        rounding.

        Args:
            names: the parameters that `unpack` returns.
        """
        priors = self._moving(names)
        value, slope = value_and_gradient(
            lambda c: self._pooled(unpack, c, priors, origin, names)
        )(c)
        if rowwise and self.passes:

            def chunk(rows: Chunk, responsibilities: Mapping[str, jax.Array]):
                return value_and_gradient(lambda c: row_surrogate(
                    self.plan, responsibilities, {**self.params, **unpack(c)}, self.known, rows,
                    self.params
                ))(c)

            more = self._over(chunk)
            value, slope = value + more[0], jax.tree.map(jnp.add, slope, more[1])
        return value, slope

    def hessian(self, unpack: Callable, c: jax.Array, names: tuple[str, ...]):
        """The Hessian of Q(unpack(c)) at a vector c, of blocks on which rows depend.

        Args:
            names: the parameters that `unpack` returns, in their order in c.
        """
        plan, sites = self.plan, self.plan.structure.sites
        seeing = [site for site in plan.rowwise
                  if any(name in uses for uses in sites[site].uses.values() for name in names)]
        read = {site: columns(plan, site, names) for site in seeing}
        entering = {site: found for site, found in read.items() if found}
        apart = len(entering) == len(read) and not (plan.latents or plan.groupings)

        def chunk(rows: Chunk, responsibilities: Mapping[str, jax.Array]):
            if apart:
                return sum(weighted_hessian(
                    plan, site, found, lambda c: {**self.params, **unpack(c)}, c, self.known, rows,
                    responsibilities[site]) for site, found in entering.items())
            return jax.hessian(lambda c: row_surrogate(
                self.plan, responsibilities, {**self.params, **unpack(c)}, self.known, rows,
                self.params
            ))(c)

        pooled = jax.hessian(lambda c: self._pooled(unpack, c))(c)
        return pooled + self._over(chunk) if self.passes else pooled
