"""Marginals, means, draws and density of a conjugate posterior: independent blocks, the Gaussian
ones conditional on the scales they share.

Which scale the Gaussian blocks of a conjugate posterior are conditional on.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from probml.device.rows import Known
from probml.errors import present
from probml.families.form import Prior, backward, forward
from probml.families.likelihoods.student_t import ManyDegrees, ManyDegreesOfVectors
from probml.numerics.bundles import Bundle
from probml.plan.blocks import Block, all_blocks, pack, unpack
from probml.plan.plan import Plan
from probml.updates.least_squares import covariance_root, lower


class Conjugate(NamedTuple):
    """A conjugate posterior: natural parameters of each block, evaluated at `params` (reference
    values of scales, means of locations).

    The scale of a Gaussian block's prior, like that of the likelihood, may be proportional to a
    scale parameter, so that the posterior covariance is the prior's times a fixed ratio
    (normal–inverse-gamma, normal–inverse-Wishart).
    """

    natural: tuple[dict[str, jax.Array], ...]
    params: dict[str, jax.Array]
    mean: dict[str, jax.Array]


def coupling(plan: Plan, block: Block) -> tuple[str | tuple[str, ...] | None, ...]:
    """The free parameters in the scales of the sites whose location contains a Gaussian block, and
    of its own prior; each distinct set once."""
    sites, scales_found = plan.structure.sites, list[str | tuple[str, ...] | None]()
    for site in sites.values():
        if not site.traits.scatter:
            continue
        if site.name in block.names or any(name in site.uses.get("loc", {})
                                           for name in block.names):
            site_scales = tuple(p for a in site.traits.scatter for p in site.uses.get(a, {})
                                if p in plan.free)
            scales_found.append(site_scales[0] if len(site_scales) == 1 else site_scales or None)
    return tuple(dict.fromkeys(scales_found))


def coupled(plan: Plan, block: Block) -> str | None:
    """The scale parameter that a Gaussian block's posterior is conditional on: that of all its
    sites and of its prior; None if there is none, or not one for all."""
    scales = coupling(plan, block) if block.form is not None and block.form.joint else ()
    matrix_normal = block.stacked and any(plan.structure.sites[name].traits.event
                                          for name in block.names)
    return scales[0] if len(scales) == 1 and isinstance(scales[0], str) and not matrix_normal \
        else None


def prior_spread(plan: Plan, known: Known, params: Mapping, name: str) -> jax.Array:
    """The prior's scale (Normal) or covariance (MultivariateNormal) of a location at given scale
    parameters."""
    distribution = plan.structure.distribution(name, {**params, **known.given})
    site = plan.structure.sites[name]
    if site.traits.event == 0:
        return jnp.broadcast_to(distribution.scale, site.shape)
    return jnp.broadcast_to(distribution.covariance_matrix,
                            (*site.lattice, site.event[0], site.event[0]))


def equilibrated(precision: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A precision matrix scaled to a diagonal of 1, and the scales, so that the units of the
    coefficients do not matter."""
    scale = jnp.diagonal(precision, axis1=-2, axis2=-1) ** -0.5
    return precision * scale[..., :, None] * scale[..., None, :], scale


class Marginals:
    """The distributions of a conjugate posterior.

    Args:
        fitted: the plan of the fit, if `plan` is that of a query.
    """

    def __init__(self, plan: Plan, known: Known, posterior: Conjugate, fitted: Plan | None = None):
        self.plan, self.known, self.posterior = plan, known, posterior
        self.blocks = all_blocks(fitted or plan, True)
        self.natural = dict(zip((block.names for block in self.blocks), posterior.natural,
                                strict=True))
        self.of = {name: block for block in self.blocks for name in block.names}

    def scale_of(self, name: str) -> str | None:
        """The scale parameter that a location's posterior is conditional on."""
        return coupled(self.plan, self.of[name])

    def covariance(self, block: Block) -> jax.Array:
        """A Gaussian block's conditional variance (event 0) or covariance (event 1) at the
        reference scales."""
        if "root" in self.natural[block.names]:
            root = covariance_root(self.natural[block.names]["root"])
            return root @ root.T
        precision = self.natural[block.names]["precision"]
        if block.event == 0:
            return 1.0 / precision
        scaled, scale = equilibrated(precision)
        inverse = jnp.linalg.inv(scaled)
        return 0.5 * (inverse + jnp.swapaxes(inverse, -1, -2)) * scale[..., :, None] * scale[
            ..., None, :
        ]

    def root(self, block: Block) -> jax.Array:
        """The Cholesky factor of a Gaussian block's covariance (event 1) at the reference
        scales."""
        if "root" in self.natural[block.names]:
            return lower(covariance_root(self.natural[block.names]["root"]))
        return jnp.linalg.cholesky(self.covariance(block))

    def slices(self, block: Block) -> dict[str, slice]:
        """The elements of each parameter in the vector of a stacked block."""
        sizes = [math.prod(self.plan.structure.sites[name].shape) for name in block.names]
        ends = itertools.pairwise([0, *itertools.accumulate(sizes)])
        return {name: slice(*span) for name, span in zip(block.names, ends, strict=True)}

    def location(self, name: str) -> tuple[jax.Array, jax.Array]:
        """Mean and conditional variance (or covariance over the last axis) of a location at the
        reference scales."""
        block, site = self.of[name], self.plan.structure.sites[name]
        loc, covariance = self.natural[block.names]["loc"], self.covariance(block)
        if block.stacked:
            part = self.slices(block)[name]
            loc, covariance = loc[part], covariance[part, part]
            if len(site.shape) != 1:
                return loc.reshape(site.shape), jnp.diagonal(covariance).reshape(site.shape)
        return loc, covariance

    def aligned(self, scale: str, name: str) -> tuple[jax.Array, jax.Array]:
        """Degrees of freedom, and the factor on variances, of the Student t distribution in which a
        scale is integrated out, for the elements of a location."""

        def variance(params: Mapping[str, jax.Array]):
            spread = prior_spread(self.plan, self.known, params, name)
            return spread**2 if self.plan.structure.sites[name].traits.event == 0 else spread

        return self.student(scale, variance)

    def student(self, scale: str, spread: Callable) -> tuple[jax.Array, jax.Array]:
        """Degrees of freedom, and the factor from variances at the reference scales to squared
        scales of the Student t distribution.

        Args:
            spread: parameters → variances (or covariances), each proportional to one element of the
                scale block's c.
        """
        block, natural = self.of[scale], self.natural[(scale,)]

        def move(values: jax.Array):
            c = block.closed_form.spherical(values, natural)
            variances = spread({**self.posterior.params, scale: backward(c, block.steps)})
            return block.closed_form.sizes(variances)

        df, t_factor = block.closed_form.student(natural, self.prior(scale),
                                                 forward(self.posterior.params[scale], block.steps))
        reference = move(jnp.ones_like(df))
        return move(df) / reference, move(t_factor) / reference

    def prior(self, name: str) -> Prior:
        """The conjugate prior of a parameter."""
        return present(self.plan.structure.sites[name].entry.prior)

    def distribution(self, name: str) -> dist.Distribution:
        """The marginal posterior of a parameter, as a NumPyro distribution."""
        block = self.of[name]
        if not block.closed_form.joint:
            return self.prior(name).posterior(self.natural[block.names], block.event)
        loc, covariance = self.location(name)
        matrix = covariance.ndim > loc.ndim
        scale = self.scale_of(name)
        tril = None
        # the product of the root with itself would lose half the digits
        if matrix and "root" in self.natural[block.names]:
            tril = lower(
                covariance_root(self.natural[block.names]["root"])[self.slices(block)[name]]
            )
        if scale is None and tril is not None:
            return dist.MultivariateNormal(loc, scale_tril=tril)
        if scale is None:
            return dist.MultivariateNormal(loc, covariance) if matrix else dist.Normal(
                loc, jnp.sqrt(covariance)
            )
        df, t_factor = self.aligned(scale, name)
        # elements with several scales
        if matrix and block.stacked and math.prod(self.plan.structure.sites[scale].shape) > 1:
            covariance, matrix = jnp.diagonal(covariance), False
        if not matrix:
            return ManyDegrees(df, loc, jnp.sqrt(covariance * t_factor))
        if self.of[scale].closed_form.event == 0:  # one scale for the whole vector
            df, t_factor = df.reshape(-1)[0], t_factor.reshape(-1)[0]
        if tril is not None:
            return ManyDegreesOfVectors(df, loc, tril * jnp.sqrt(t_factor))
        return ManyDegreesOfVectors(df, loc,
                                    jnp.linalg.cholesky(covariance * t_factor[..., None, None]))

    def root_columns(self, block: Block) -> jax.Array:
        """Columns of a root of a Gaussian block's covariance at the reference scales, (k, *shape of
        the block)."""
        loc = self.natural[block.names]["loc"]
        if block.event == 0:
            return jnp.diag(jnp.sqrt(self.covariance(block)).reshape(-1)).reshape(-1, *loc.shape)
        root = self.root(block)  # vectors along the last axis are independent
        roots = root.reshape(-1, *root.shape[-2:])
        blocks = jnp.eye(len(roots), dtype=loc.dtype)
        return jnp.einsum("ab,bij->ajbi", blocks, roots).reshape(-1, *loc.shape)

    def ways(self, block: Block) -> dict[str, jax.Array]:
        """Columns of a root of the covariance with the scale of the block integrated out: name →
        (k, *shape)."""
        ways, sites, by_name = self.root_columns(block), self.plan.structure.sites, {}
        parts = self.slices(block) if block.stacked else {block.names[0]: Ellipsis}
        for name, part in parts.items():
            column = ways[..., part].reshape(len(ways), *sites[name].shape)
            variance = self.distribution(name).variance.reshape(sites[name].shape)
            by_name[name] = column * jnp.sqrt(variance / jnp.sum(column**2, 0))
        return by_name

    def _widened(self, block: Block, params: Mapping) -> jax.Array:
        """Standard deviations at other scales, relative to those at the reference scales, for every
        element of a block of Normals.

        Elements of different scales are independent given these, so that a covariance is scaled by
        rows and columns.
        """
        ratios = [prior_spread(self.plan, self.known, params, name)
                  / prior_spread(self.plan, self.known, self.posterior.params, name)
                  for name in block.names]
        return jnp.concatenate([r.reshape(-1) for r in ratios]) if block.stacked else ratios[0]

    def _scaled_covariance(self, block: Block, params: Mapping) -> jax.Array:
        """The covariance of a block of multivariate normals at other scales."""
        target, base = (prior_spread(self.plan, self.known, p, block.names[0])
                        for p in (params, self.posterior.params))
        ratio = jnp.trace(self.covariance(block), axis1=-2, axis2=-1) / jnp.trace(base, axis1=-2,
                                                                                  axis2=-1)
        return target * ratio[..., None, None]

    def bundled(self) -> list[tuple[Bundle, dist.Distribution, Prior]]:
        """The posteriors of all blocks but the Gaussian ones, joined by kind and event shape, and
        their kind of prior."""
        sites, groups = self.plan.structure.sites, {}
        for block in self.blocks:
            if not block.closed_form.joint:
                shape = sites[block.names[0]].shape
                event = shape[len(shape) - block.event :]
                prior = sites[block.names[0]].entry.prior
                groups.setdefault((prior, block.event, event), []).append(block.names[0])
        bundles = []
        for (prior, rank, event), names in groups.items():
            bundle = Bundle(tuple(names), tuple(sites[name].shape for name in names), event)
            leaves = self.natural[(names[0],)]
            natural = {leaf: bundle.join({name: self.natural[(name,)][leaf] for name in names})
                       for leaf in leaves}
            bundles.append((bundle, prior.posterior(natural, rank), prior))
        return bundles

    def means(self) -> dict[str, jax.Array]:
        """The posterior mean of every parameter."""
        values = {}
        for bundle, posterior, _ in self.bundled():
            values |= bundle.part(posterior.mean, jax.lax.split)
        for block in (block for block in self.blocks if block.closed_form.joint):
            values |= {name: self.location(name)[0].reshape(self.plan.structure.sites[name].shape)
                       for name in block.names}
        return values

    def finite_means(self, values: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """The posterior means, or other values where these are not finite."""
        return {name: jnp.where(jnp.isfinite(mean), mean, values[name])
                for name, mean in self.means().items()}

    def draw(self, key: jax.Array) -> dict[str, jax.Array]:
        """One joint draw."""
        return self.drawn(
            lambda i, posterior: posterior.sample(jax.random.fold_in(key, len(self.blocks) + i)),
            lambda i, shape, dtype: jax.random.normal(jax.random.fold_in(key, i), shape, dtype))

    def drawn(self, sample: Callable[[int, dist.Distribution], jax.Array],
              normal: Callable[[int, tuple[int, ...], jnp.dtype], jax.Array]
              ) -> dict[str, jax.Array]:
        """One joint draw: scales and tables first, then the locations given the scales.

        Args:
            sample: (i, a distribution) → a draw of it. normal: (i, shape, dtype) → standard normal
                numbers; i counts each.
        """
        values = dict(self.posterior.params)
        for i, (bundle, posterior, _) in enumerate(self.bundled()):
            values |= bundle.part(sample(i, posterior), jax.lax.split)
        drawn = dict(values)
        for i, block in enumerate(self.blocks):
            if block.closed_form.joint:
                loc = self.natural[block.names]["loc"]
                values |= self.placed(block, normal(i, loc.shape, loc.dtype), drawn)
        return values

    def placed(self, block: Block, noise: jax.Array, scales: Mapping) -> dict[str, jax.Array]:
        """A Gaussian block's parameters given the scales: their mean plus a root of their
        covariance times `noise`, of the block's shape."""
        loc, covariance, ratio = self.natural[block.names]["loc"], self.covariance(block), None
        if self.scale_of(block.names[0]) is not None:
            if self.plan.structure.sites[block.names[0]].traits.event:
                covariance = self._scaled_covariance(block, scales)
            else:
                ratio = self._widened(block, scales)
        if block.event == 0:
            step = jnp.sqrt(covariance) * noise
        else:
            root = (self.root(block) if "root" in self.natural[block.names]
                    else jnp.linalg.cholesky(covariance))
            step = (root @ noise[..., None])[..., 0]
        return unpack(self.posterior.params, block, loc + (step if ratio is None else ratio * step))

    def log_density(self, params: Mapping[str, jax.Array]) -> jax.Array:
        """log p(params | data) of the closed form."""
        total = jnp.zeros(())
        for bundle, posterior, prior in self.bundled():
            total += prior.log_density(posterior, bundle.join(params), False).sum()
        for block in (block for block in self.blocks if block.closed_form.joint):
            name, loc, ratio = block.names[0], self.natural[block.names]["loc"], 1.0
            value = pack(params, block)
            if self.scale_of(name) is not None:
                if self.plan.structure.sites[name].traits.event:
                    covariance = self._scaled_covariance(block, params)
                    total += dist.MultivariateNormal(loc, covariance).log_prob(value).sum()
                    continue
                ratio = self._widened(block, params)
            deviation = (value - loc) / ratio
            if "root" in self.natural[block.names]:
                root = self.natural[block.names]["root"]
                logs = jnp.log(jnp.diagonal(root)) - jnp.log(ratio) - 0.5 * (root @ deviation) ** 2
                total += jnp.sum(logs - 0.5 * math.log(2 * math.pi))
                continue
            precision = self.natural[block.names]["precision"]
            if block.event == 0:
                total += jnp.sum(0.5 * jnp.log(precision) - jnp.log(ratio) - 0.5 * precision
                                 * deviation**2 - 0.5 * math.log(2 * math.pi))
                continue
            # by the precision: near a flat direction (collinear columns) its inverse has lost the
            # digits of other directions
            scaled, scale = equilibrated(precision)
            root = jnp.log(jnp.diagonal(jnp.linalg.cholesky(scaled), axis1=-2, axis2=-1)) - jnp.log(
                scale * ratio
            )
            square = deviation * (precision @ deviation[..., None])[..., 0]
            total += jnp.sum(root - 0.5 * square - 0.5 * math.log(2 * math.pi))
        return total
