"""Scale parameters of latents and effects, and of data about latents: at a scale of 0 the density
stays finite, so that an optimisation may end there.

A parameter need not be a standard deviation: of a variance, a precision, a concentration the power
of it to which standard deviations are proportional is found by doubling it.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.errors import ModelError
from probml.families.domains import Correlations
from probml.jaxpr.memo import memo
from probml.numerics.compiling import ONCE, jit
from probml.plan import decide, hierarchy
from probml.plan.hierarchy import powers
from probml.plan.plan import Plan
from probml.structure.densities import example

UNKNOWN = (NotImplementedError, AttributeError, ModelError)  # of distributions without a variance
MIN_SCALE_POWER = 0.25  # power below which a parameter is no scale


class ScaleParameter(NamedTuple):
    """A scale parameter, or a power of one.

    Attributes:
        power: to which a standard deviation goes with it: 1, of a precision −½.
        plain: it is positive; False: it has no bounds, and its exponential is meant.
    """

    name: str
    power: float
    plain: bool

    def logarithm(self, value: np.ndarray) -> np.ndarray:
        """The logarithm of the scale at values of the parameter, up to a constant."""
        with np.errstate(divide="ignore"):
            return self.power * (np.log(value) if self.plain else np.asarray(value))

    def value(self, logarithm: np.ndarray) -> np.ndarray:
        """The inverse of `logarithm`."""
        found = np.asarray(logarithm) / self.power
        return np.exp(found) if self.plain else found


@memo(512)
def scale_parameters(plan: Plan) -> tuple[ScaleParameter, ...]:
    """The scale parameters of latents and of effects of groups."""
    sites, found = plan.structure.sites, {}
    for name in (name for name in plan.continuous_latents if name not in plan.pattern):
        for argument, uses in sites[name].uses.items():
            found |= {p: name for p in uses if argument not in sites[name].locations}
    products: dict[str, float] = {}
    if plan.groupings:
        whole = decide.make(plan.structure, plan.pattern, plan.given)
        for tie in (tie for tie in hierarchy.degenerate_modes(whole) if tie.name in plan.effects):
            if tie.kind == "product":
                products |= {p: powers(whole)[tie.name, p] for p in tie.others}
            else:
                found |= dict.fromkeys(tie.others, tie.name)
    return _scale_parameters(plan, found, products)


@memo(512)
def noise_scales(plan: Plan) -> tuple[ScaleParameter, ...]:
    """The scale parameters of data about latents."""
    sites, found = plan.structure.sites, {}
    below = [name for group in plan.latents for name in group.sites if name not in group.names]
    for name in (name for name in below if sites[name].family is not None):
        for argument in sites[name].traits.scatter:
            found |= dict.fromkeys(sites[name].uses.get(argument, ()), name)
    own = {width.name for width in scale_parameters(plan)}
    return _scale_parameters(plan, {p: name for p, name in found.items() if p not in own}, {})


def correlations(plan: Plan) -> tuple[str, ...]:
    """The free correlation matrices, or their Cholesky factors."""
    return tuple(name for name in plan.free
                 if isinstance(plan.structure.sites[name].domain, Correlations))


def _scale_parameters(plan: Plan, found: dict[str, str],
                      products: dict[str, float]) -> tuple[ScaleParameter, ...]:
    """The free parameters among these that are positive, or unbounded and logarithms of scales.

    Args:
        found: parameter → the site whose scale it enters. products: parameter → power, of
            parameters that multiply effects.
    """
    sites = plan.structure.sites
    free = [p for p in {**found, **products} if p in plan.free
            and (sites[p].domain.from_zero or sites[p].domain.unbounded)]
    pairs = tuple((found[p], p) for p in free if p not in products)
    told = dict(zip(pairs, np.asarray(_doubled(plan, pairs)) if pairs else (), strict=True))
    out = []
    for p in free:
        power, plain = float(products[p] if p in products else told[found[p], p]), bool(
            sites[p].domain.from_zero)
        if np.isfinite(power) and abs(power) >= MIN_SCALE_POWER:
            out.append(ScaleParameter(p, power, plain))
        elif plain:
            out.append(ScaleParameter(p, 1.0, plain))
    return tuple(out)


@jit(static_argnums=(0, 1), seldom=ONCE)
def _doubled(plan: Plan, pairs: tuple[tuple[str, str], ...]) -> jax.Array:
    """For each (site, parameter): by how many doublings the site's standard deviations grow where
    the parameter, or its exponential, is doubled; no number where that is not known."""
    structure, out = plan.structure, []

    def log(name: str, env: Mapping[str, jax.Array]):
        return 0.5 * jnp.log2(structure.distribution(name, env).variance)

    for name, parameter in pairs:
        env = {key: jnp.asarray(value) for key, value in example(structure, name).items()}
        plain = structure.sites[parameter].domain.from_zero
        try:
            more = 2 * env[parameter] if plain else env[parameter] + jnp.log(2.0)
            gain = jnp.mean(log(name, {**env, parameter: more}) - log(name, env))
        except (KeyError, *UNKNOWN):
            gain = jnp.full((), jnp.nan)
        out.append(gain.astype(jnp.result_type(float)))
    return jnp.stack(out)
