"""The conditional posterior of random effects given parameters at one point, by the method by which
the density integrates them out.

If it is normal, u = mean + R (L⁻ᵀ z), with the parts of the root from the elimination of the
effects (integration.py of factors/random_effects), so that draws and covariances need no pass over
the rows. With a quadrature each effect has its nodes and their probabilities (quadrature_nodes.py).
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike

from probml.device.rows import Known, Rows
from probml.errors import ModelError, counted, listed, present
from probml.evidence import density
from probml.evidence.random_effects import condition_on_rows, conditional_means
from probml.factors.random_effects import information, integration
from probml.factors.random_effects.information import EffectVector, Prior
from probml.factors.random_effects.integration import Conditional
from probml.factors.random_effects.quadrature_nodes import AtNodes, Nodes
from probml.numerics.compiling import ASKED, ONCE, jit
from probml.numerics.transfer import placed, placed_all, random_key
from probml.plan import decide
from probml.plan.plan import Plan
from probml.posteriors.posterior import Posterior, part, register
from probml.typing import Json, SiteValues


class Conditioned(NamedTuple):
    """The distribution of effects given the rows and parameters at one point."""

    prior: Prior
    moments: Conditional


def conditional(plan: Plan, params: Mapping, known: Known, rows: Rows) -> Conditioned:
    return Conditioned(information.compute_prior(plan, params, known),
                       condition_on_rows(plan, params, known, rows.total))


def draw(cond: Conditioned, plan: Plan, key: jax.Array) -> dict[str, jax.Array]:
    """A joint draw of the effects, name → its shape."""
    return _effects_at(plan, cond, integration.draw_deviation(cond.moments, key))


@jit(static_argnums=0)
def draw_about_linear_means(plan: Plan, centre: jax.Array, values: Mapping, known: Known,
                            rows: Rows, key: jax.Array) -> dict[str, jax.Array]:
    """A draw of the effects with each draw of the parameters, to the first order about a centre:
    conditional means are linear in the parameters, deviations from them those at the centre.

    With many rows either the members have many rows each, whose effects hardly depend on the
    parameters of their prior, or there are many members, which determine these parameters.

    Args:
        centre: unbounded coordinates of the parameters, (d,). values: parameters, (draws, ...).

    Cost: a conditional distribution and d + 1 steps to its mean, whatever the number of draws.
    """
    def means(u: jax.Array) -> dict[str, jax.Array]:
        return conditional_means(plan, density.from_unbounded(plan, u, known)[0], known,
                                 rows.total, cond.moments.mode)

    cond = conditional(plan, density.from_unbounded(plan, centre, known)[0], known, rows)
    slopes, u = jax.jacfwd(means)(centre), jax.vmap(
        lambda params: density.to_unbounded(plan, params, known))(dict(values))
    drawn = _draws(plan, cond, key, len(u), False)
    return {name: value + jnp.tensordot(u - centre, slopes[name], (1, -1))
            for name, value in drawn.items()}


def _effects_at(plan: Plan, cond: Conditioned, noise: EffectVector) -> dict[str, jax.Array]:
    return information.effects_at(plan, cond.prior,
                                  jax.tree.map(jnp.add, cond.moments.centre, noise))


@jit(seldom=ASKED)
def _multivariate_normal(mean: jax.Array, root: ArrayLike) -> dist.Distribution:
    return dist.MultivariateNormal(mean, scale_tril=root, validate_args=False)


class _Effects(NamedTuple):
    names: tuple[str, ...]
    point: dict[str, ArrayLike]
    moments: integration.Moments
    at: Conditioned


@register
class Effects(_Effects, Posterior):
    """Parameters at one point, and the effects of groups given them and the rows.

    Args:
        names: of the effects. point: the parameters. moments: means and covariances of the effects.
        at: their conditional distribution.
    """

    varies = True

    @property
    def partly(self) -> tuple[str, ...]:
        return self.names

    def _plan(self, plan: Plan) -> Plan:
        """The plan in which the effects are integrated out."""
        return decide.make(plan.structure, plan.pattern, plan.given, effects=self.names)

    def draw(self, plan: Plan, known: Known, n: int, seed: int):
        return self._all(_draws(self._plan(plan), self.at, random_key(seed), n, False), n)

    def averaging_draws(self, plan: Plan, known: Known, n: int):
        """Antithetic pairs about the mean, so that averages of affine functions are exact; with a
        quadrature n even quantiles of each effect, in random order."""
        plan, key = self._plan(plan), random_key(0)
        if self.at.moments.nodes is not None:
            return self._all(_quantiles(plan, self.at, key, n), n), None
        n_pairs = max(n // 2, 1)
        return self._all(_draws(plan, self.at, key, n_pairs, True), 2 * n_pairs), None

    def _all(self, drawn: Mapping, n: int) -> dict[str, jax.Array]:
        return {name: placed(np.broadcast_to(np.asarray(value), (n, *np.shape(value))))
                for name, value in self.point.items()} | dict(drawn)

    def marginal(self, plan: Plan, known: Known, name: str):
        """The posterior of an effect: a normal distribution, multivariate for several effects of a
        group, or the distribution at the nodes of a quadrature; None for a parameter. NumPyro's
        validation and its factorisation would compile forty programs."""
        if name not in self.names:
            return None
        plan, moments = self._plan(plan), jax.device_get(self.moments)
        mean = placed(moments.mean[name])
        nodes = self.at.moments.nodes
        if nodes is not None:
            prior, nodes = jax.device_get((self.at.prior, nodes))
            loc, scale = prior.loc.first[:, 0], prior.first[:, 0, 0]
            return AtNodes(np.reshape(loc + scale * nodes.loc, mean.shape),
                           np.reshape(scale * nodes.scale, mean.shape),
                           nodes.logs.reshape(*mean.shape, -1), validate_args=False)
        covariance = integration.member_covariances(plan, moments, name)
        if mean.ndim == 2 and covariance.shape[:2] == mean.shape:
            # so that a singular fit, with a standard deviation of 0, has a Cholesky factor
            finfo = jnp.finfo(covariance.dtype)
            size = np.diagonal(covariance, axis1=1, axis2=2).max(-1)[:, None, None]
            jitter = 64 * finfo.eps * size + finfo.tiny
            identity = np.eye(mean.shape[1], dtype=covariance.dtype)
            return _multivariate_normal(mean, np.linalg.cholesky(covariance + jitter * identity))
        return dist.Normal(mean, placed(integration.standard_deviations(plan, moments, name)),
                           validate_args=False)

    def root(self, plan: Plan, known: Known, names: Collection[str]):
        """Only of coefficients that are integrated out too, which have no groups."""
        return integration.joint_covariance_root(self._plan(plan), self.moments, names)

    def saved(self):
        leaves = jax.tree.leaves(self[1:])
        arrays = {f"effects/{i}": leaf for i, leaf in enumerate(leaves)}
        return {"posterior": "Effects", "effects": list(self.names),
                "others": len(self.at.prior.rest),
                "nodes": self.at.moments.nodes is not None}, arrays

    @classmethod
    def restored(cls, meta: Json, arrays: SiteValues, plan: Plan):
        arrays, names = part(arrays, "effects/"), tuple(meta.get("effects", ()))
        sites, zeros = plan.structure.sites, EffectVector(0.0, 0.0)
        nodes = Nodes(0.0, 0.0, 0.0) if meta.get("nodes") else None
        prior = Prior(zeros, 0.0, (0.0,) * min(int(meta.get("others", 0)), len(arrays)))
        template = cls(names, {name: 0.0 for name in plan.free if name not in names},
                       integration.Moments(dict.fromkeys(names, 0.0), 0.0, 0.0, 0.0),
                       Conditioned(prior, Conditional(0.0, zeros, 0.0, 0.0, 0.0, nodes)))
        treedef = jax.tree.structure(template[1:])
        count = treedef.num_leaves
        if set(arrays) != set(map(str, range(count))) or not set(names) <= set(plan.free):
            raise ModelError("the file was saved by another model. It has the group effects "
                             f"{listed(names)} in {counted(len(arrays), 'array')}. This model has "
                             f"the parameters {listed(plan.free)} and needs "
                             f"{counted(count, 'array')}. Pass the model that was fitted, "
                             "load(path, model)")
        effects = cls(names, *jax.tree.unflatten(treedef, [arrays[str(i)] for i in range(count)]))
        for name, value in {**effects.point, **effects.moments.mean}.items():
            if np.shape(value) != sites[name].shape:
                raise ModelError(f"the group effects '{name}' in the file have another shape than "
                                 f"{sites[name].shape}, the shape in the model. Pass the model "
                                 "that was fitted, load(path, model)")
        return effects


def effects_posterior(plan: Plan, params: Mapping, known: Known, rows: Rows) -> Effects:
    """The conditional posterior of the effects of a plan, given the point `params`."""
    cond, moments = jax.device_get(_effects_posterior(plan, placed_all(dict(params)), known, rows))
    return Effects(plan.effects, dict(params), moments, cond)


@jit(static_argnums=0, seldom=ONCE)
def _effects_posterior(plan: Plan, params: Mapping, known: Known, rows: Rows):
    cond = conditional(plan, params, known, rows)
    return cond, integration.moments(plan, cond.prior, cond.moments)


@jit(static_argnums=(0, 3), seldom=ASKED)
def _quantiles(plan: Plan, cond: Conditioned, key: jax.Array, n: int) -> dict[str, jax.Array]:
    members = present(cond.moments.nodes).loc.shape  # of a quadrature
    quantiles = jnp.broadcast_to((jnp.arange(n)[:, None] + 0.5) / n, (n, *members))
    quantiles = jax.random.permutation(key, quantiles, independent=True)
    noise = jax.vmap(lambda q: integration.from_quantiles(cond.moments, q))(quantiles)
    return jax.vmap(lambda noise: _effects_at(plan, cond, noise))(noise)


@jit(static_argnums=(0, 3, 4), seldom=ASKED)
def _draws(plan: Plan, cond: Conditioned, key: jax.Array, n: int, pairs: bool):
    def draw_effects(key: jax.Array):
        noise = integration.draw_deviation(cond.moments, key)
        steps = [noise, jax.tree.map(jnp.negative, noise)] if pairs else [noise]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves),
                            *(_effects_at(plan, cond, step) for step in steps))

    draws = jax.vmap(draw_effects)(jax.random.split(key, n))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), draws)
