"""Whether a scale has collapsed, or is lost to rounding."""

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset.checks.digits import measured
from probml.dataset.dataset import Data
from probml.device.rows import Known, Rows, Summary
from probml.errors import present
from probml.factors.linear_chains import map_discrete_states, varying
from probml.factors.naturals import argument_table, environment, over_states
from probml.factors.rowwise import row_environment
from probml.jaxpr.levels import Level
from probml.latents import linear_chain
from probml.latents.latent import Group
from probml.plan.plan import Plan
from probml.structure.site import Site

# rounding of a component's mean square, or location, in units of its variance, or scale, that is
# too much
LOST = 2e-4


def has_collapsed_scale(plan: Plan, params: Mapping, known: Known,
                        rows: Rows | Summary) -> jax.Array:
    """Whether some component's scale is zero within rounding, relative to its column.

    The squares of pooled sites lose half the digits. Row-wise sites take the difference first, and
    are judged at the first row.
    """
    eps, collapsed = jnp.finfo(jnp.result_type(float)).eps, jnp.zeros((), bool)
    for name in known.sd:
        site = plan.structure.sites[name]
        if not any(site.uses.get(a) for a in site.traits.scatter):
            continue
        if name in plan.rowwise:
            assert isinstance(rows, Rows)
            first = jax.tree.map(lambda leaf: leaf[:1], rows.first._replace(steps=None))
            varying = jax.tree.map(lambda leaf: leaf[0], row_environment(plan, known, first, name))
            arguments = over_states(plan, functools.partial(plan.structure.cells, name),
                                    {**environment(plan, params, known), **varying},
                                    plan.discrete_parents(name))
            floor = 256 * eps
        else:
            arguments, floor = argument_table(plan, params, known, name), jnp.sqrt(eps)
        # a constant column has no spread of its own
        magnitude = jnp.maximum(jnp.abs(known.centre.get(name, 0.0)), 1.0)
        collapsed |= ~jnp.all(present(site.traits.smallest)(arguments) > floor
                              * jnp.where(known.sd[name] > 0, known.sd[name], magnitude))
    return collapsed


def has_cancellation(plan: Plan, params: Mapping, known: Known) -> jax.Array:
    """Whether the variance of some component is lost to rounding, since it is far from the centre
    of its column for its width, or has large terms that cancel.

    Of pooled sites: the square of a component's distance is taken off the mean square, and what is
    left is its variance.
    """
    eps, lossy = jnp.finfo(jnp.result_type(float)).eps, jnp.zeros((), bool)
    for name in plan.pooled:
        family = plan.structure.sites[name].traits
        if family.terms:
            arguments = argument_table(plan, params, known, name)
            lossy |= jnp.any(eps * jnp.stack([jnp.max(arguments[a]) for a in family.terms]) > LOST)
        if name not in known.centre or family.mean_of != ("loc",) or not family.scatter:
            continue
        arguments = argument_table(plan, params, known, name)
        gap, scale = arguments["loc"] - known.centre[name], present(family.smallest)(arguments)
        lossy |= jnp.any(
            (eps * gap**2 > LOST * scale**2) | (eps * jnp.abs(arguments["loc"]) > LOST * scale)
        )
    return lossy


def is_imprecise(data: Data, params: Mapping[str, np.ndarray]) -> bool:
    """Whether, at parameters that were given, the variance of some component is lost to rounding in
    the rows that are asked about; from numbers on the host, nothing is compiled. Arguments that are
    parameters, or powers of them, are examined.

    Args:
        params: of those that rows depend on.
    """
    eps = np.finfo(np.float32).eps
    for name, column in data.table.columns.items():
        site = data.structure.sites[name]
        for argument in site.traits.terms:
            constant = data.structure.constant(name, argument)
            sizes = [constant] if constant is not None else [
                value for value, steps in _parameters(site, argument, params) if not steps]
            if any(eps * np.max(size, initial=0.0) > LOST for size in sizes):
                return True
        family = site.family  # None: a density of NumPyro's own, of which nothing is known
        if (site.discrete or family is None or family.mean_of != ("loc",)
            or family.scaling is False):
            continue
        locations = [value for value, steps in _parameters(site, "loc", params) if not steps]
        scales = [_narrowest(argument, value, steps) for argument in family.scatter
                  for value, steps in _parameters(site, argument, params)]
        if not locations or not scales:
            continue
        centre = measured(column.values, column.observed)[0]
        gap = max(float(np.max(np.abs(place - centre) if place.shape[-centre.ndim:] == centre.shape
                               else np.abs(place) + np.max(np.abs(centre), initial=0.0),
                               initial=0.0)) for place in locations)
        if gap > float(LOST / eps) ** 0.5 * min(scales):  # a square would overflow
            return True
    return False


def _parameters(site: Site, argument: str,
                params: Mapping[str, np.ndarray]) -> list[tuple[np.ndarray, tuple]]:
    """The given parameters that an argument is, moved at most by rows, each with the steps from its
    coordinate to the argument; none where it is the argument itself."""
    return [(np.asarray(params[p], float), use.coordinate)
            for p, use in site.uses.get(argument, {}).items()
            if p in params and use.level <= Level.MOVED]


def _narrowest(argument: str, value: np.ndarray, steps: tuple[tuple[str, float], ...]) -> float:
    """The least standard deviation in a parameter; ∞ where it is not known."""
    for step, power in steps:
        if step != "power":
            return np.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            value = value**power
    if argument == "scale":
        sds = value
    elif argument == "scale_tril":
        sds = np.abs(np.diagonal(value, axis1=-2, axis2=-1))
    elif argument in ("covariance_matrix", "precision_matrix"):
        spectrum = np.maximum(np.linalg.eigvalsh(value), 0.0)
        with np.errstate(divide="ignore"):
            sds = np.sqrt(spectrum if argument == "covariance_matrix" else 1 / spectrum)
    else:
        return np.inf
    return float(np.min(sds, initial=np.inf))


def has_diffuse_start(plan: Plan, params: Mapping, known: Known, rows: Rows) -> jax.Array:
    """Whether the prior of the first states of a chain is so diffuse, for the noise in which they
    are observed, that smoothed variances are lost to rounding; judged at the first row.

    Of states of more numbers than a step shows: what one step leaves open stays as wide as the
    prior has it, until later ones tell, and what they leave is a difference.
    """
    eps, diffuse = jnp.finfo(jnp.result_type(float)).eps, jnp.zeros((), bool)
    structure = plan.structure
    for group in (group for group in plan.latents if plan.timed(group)):
        names = (*group.names, *linear_chain.emission_sites(group))
        args = {name: leaf[0] for name, leaf in varying(plan, known, rows.first.along,
                                                        names).items()}

        def share(env: Mapping[str, jax.Array], group: Group = group,
                  args: Mapping[str, jax.Array] = args):
            cov = linear_chain.first(structure, group, {**env, **args}).covariance
            emission = linear_chain.sight(structure, group, {**env, **args})
            if not 0 < len(emission.variance) < len(cov):
                return jnp.zeros(())
            return jnp.max(((emission.slope @ cov) * emission.slope).sum(-1) / emission.variance)

        diffuse |= jnp.any(eps * map_discrete_states(plan, params, known, group, share) > LOST)
    return diffuse
