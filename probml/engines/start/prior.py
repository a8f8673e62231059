"""The prior's point and draws of the prior, from which engines start.

A start by closed forms, which does not depend on the units of the data.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml.device.rows import Known, Rows
from probml.engines.start.draws import Noise, Source, draw
from probml.errors import ModelError, Refusal, quoted
from probml.evidence.density import to_free
from probml.evidence.e_step import expect
from probml.factors.naturals import log_prior
from probml.families import domains
from probml.jaxpr.levels import Level
from probml.language.given import as_numbers
from probml.numerics.compiling import ONCE, jit
from probml.plan.plan import Plan
from probml.structure.densities import ahead
from probml.structure.site import Site
from probml.structure.trace import check_covariances
from probml.updates.updates import maximise


@jit(static_argnames=("plan", "prior"), seldom=ONCE)
def closed_start(plan: Plan, prior: bool, params: Mapping[str, jax.Array], known: Known,
                 rows: Rows):
    """Parameters, those with a closed form replaced by their maximum given the others."""
    better = maximise(plan, expect(plan, params, known, rows), params, known, rows, prior,
                      only_forms=True)
    sound = jnp.all(jnp.stack([jnp.all(jnp.isfinite(v)) for v in better.values()]))
    return {name: jnp.where(sound, better[name], params[name]) for name in params}


# the largest ratio of the start of a scale and the standard deviation of the data
MAX_SCALE_RATIO = 30.0
# errors of a prior that has a density and no sampler
UNDRAWABLE = (NotImplementedError, AttributeError, ImportError, KeyError, TypeError, ValueError)


def given_start(plan: Plan, start: Mapping) -> dict[str, jax.Array]:
    """A user's partial start, after checks of names, shapes, finiteness and supports."""
    sites, out = plan.structure.sites, {}
    for name, value in start.items():
        if name not in plan.free:
            raise ModelError(f"fit(start=...): '{name}' is not an estimated parameter. Expected "
                             f"names among {list(plan.free)}")
        value = as_numbers(value, f"fit(start=...): '{name}'")
        if value.shape != sites[name].shape:
            raise ModelError(f"fit(start=...): the value of '{name}' has shape {value.shape}, "
                             f"expected {sites[name].shape}")
        if not np.isfinite(value).all():
            raise ModelError(f"fit(start=...): the value of '{name}' contains NaN or infinity, "
                             f"expected finite numbers")
        if not sites[name].domain.holds(value):
            raise ModelError(f"fit(start=...): the value of '{name}' is {value.tolist()}, which is "
                             f"outside the support of '{name}' ({sites[name].domain.name})")
        out[name] = value.astype(jnp.result_type(float))
    return out


def refuse_missing_prior(plan: Plan, engine: str, prior: bool) -> None:
    """Raises Refusal for prior=False if a prior depends on a latent discrete site: nothing else
    informs its states."""
    name = next((name for name in plan.mixed if name in plan.free), None)
    if name is not None and not prior:
        raise Refusal(
            f"{engine}(prior=False) cannot fit model '{plan.structure.model.name}': the prior of "
            f"'{name}' depends on the latent discrete site '{plan.scope(name)[0]}', and without "
            f"the prior of '{name}' the data do not identify '{plan.scope(name)[0]}'. Omit "
            f"prior=False"
        )


def prior_point(plan: Plan, known: Known) -> dict[str, jax.Array]:
    """Each parameter at its prior mean given its parents; at the middle of its support if that is
    infinite or unknown; a scale within a factor MAX_SCALE_RATIO of the standard deviation of the
    data that it scales."""
    env, out, deviations = dict(known.given), {}, _data_deviations(plan, known)
    for variable in plan.globals:
        site = plan.structure.sites[variable]
        env[variable] = jnp.zeros(site.shape, jnp.result_type(int))
    for name in plan.structure.parameters:
        if name in env:
            continue
        site = plan.structure.sites[name]
        distribution = plan.structure.distribution(name, _with_later_steps(plan, name, env))
        middle = jnp.broadcast_to(domains.of(distribution.support).middle(site.shape),
                                  site.shape)
        try:
            mean = jnp.broadcast_to(distribution.mean, site.shape)
        except (NotImplementedError, AttributeError):
            mean = middle
        if site.domain.log_scale:
            untypical = jnp.broadcast_to(_has_untypical_mean(distribution),
                                         site.shape) | ~jnp.isfinite(mean)
            mean = jnp.where(untypical, _median(distribution, middle, site), mean)
            for low, high in deviations.get(name, ()):
                mean = jnp.where(low > 0, jnp.clip(mean, low / MAX_SCALE_RATIO,
                                                   high * MAX_SCALE_RATIO), mean)
        out[name] = env[name] = jnp.where(jnp.isfinite(mean), mean,
                                          middle).astype(jnp.result_type(float))
    return out


compiled_prior_point = jit(prior_point, static_argnums=0, seldom=ONCE)


def _data_deviations(plan: Plan, known: Known) -> dict[str, list[tuple[jax.Array, jax.Array]]]:
    """Parameters that are scales of observed sites → the least and the largest standard deviation
    of the data of each; both are that of its own element if the parameter has one for each."""
    out: dict[str, list[tuple[jax.Array, jax.Array]]] = {}
    for name, spread in known.sd.items():
        site = plan.structure.sites[name]
        for argument in site.traits.scatter:
            for parameter, use in site.uses.get(argument, {}).items():
                # itself, since a function of it, such as a precision, has other units
                if use.level <= Level.MOVED and not use.coordinate:
                    own = plan.structure.sites[parameter].shape[-spread.ndim :] == spread.shape
                    ends = (spread, spread) if own else (jnp.min(spread), jnp.max(spread))
                    out.setdefault(parameter, []).append(ends)
    return out


def raise_impossible_start(plan: Plan, params: Mapping, known: Known, engine: str,
                           value: float) -> None:
    """Raises ModelError: the log density at the start is `value`, not finite, with the reason: a
    covariance, the prior of a site, or the likelihood."""
    check_covariances(plan.structure, jax.device_get({**known.given, **params}))
    logs = {site: float(_site_prior(plan, site, params, known)) for site in plan.free}
    bad = next((site for site, log in logs.items() if not np.isfinite(log)), None)
    where = (
        f"the log prior density of '{bad}' is {logs[bad]} at {np.asarray(params[bad]).tolist()} (a "
        f"distribution with scale 0 has no density; write a constant into the model instead)"
        if bad is not None
        else f"the log prior density is finite, but the log-likelihood of {quoted(plan.observed)} "
             f"is not"
    )
    raise ModelError(
        f"{engine} cannot fit model '{plan.structure.model.name}': the log density is {value} at "
        f"the initial values: {where}. Give initial values with positive density, fit(..., "
        f"start={{...}}), or check the data for values that are impossible under the model"
    )


@jit(static_argnums=(0, 1), seldom=ONCE)
def _site_prior(plan: Plan, site: str, params: Mapping, known: Known) -> jax.Array:
    return log_prior(plan, params, known, names=(site,))


def prior_noise(plan: Plan, count: int, seed: int) -> Noise:
    """The random numbers for so many draws of the prior."""
    shapes = [site.shape for name, site in plan.structure.sites.items() if name in plan.free
              or name in plan.globals]
    return Noise.of(shapes, count, seed)


def points_near_zero(drawn: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """As many points, uniform within 2 of 0 in unbounded coordinates, as in Stan: for priors so
    wide that neither their draws nor their point make the data possible."""
    random = np.random.default_rng(seed)
    return {name: random.uniform(-2.0, 2.0, np.shape(value)).astype(np.asarray(value).dtype)
            for name, value in sorted(drawn.items())}


def drawn_prior(plan: Plan, known: Known, count: int, seed: int) -> dict[str, np.ndarray] | None:
    """`count` draws of the prior in unbounded coordinates, on the host; None if it cannot be drawn
    from."""
    try:
        return jax.device_get(_prior_draws(plan, known, prior_noise(plan, count, seed)))
    except UNDRAWABLE:
        return None


@jit(static_argnums=0, seldom=ONCE)
def _prior_draws(plan: Plan, known: Known, noise: Noise) -> dict[str, jax.Array]:
    return jax.vmap(lambda noise: to_free(plan, prior_draw(plan, known, noise), known))(noise)


def prior_draw(plan: Plan, known: Known, noise: Noise) -> dict[str, jax.Array]:
    """An approximate draw (draws.py) of the free parameters from the prior."""
    # with discrete sites on which parameters depend
    env, states = dict(known.given), [name for name in plan.globals if plan.mixed]
    # parents first
    names = [name for name in plan.structure.sites if name in states or name in plan.free]
    source = Source(noise)
    for name in names:
        site = plan.structure.sites[name]
        prior = plan.structure.distribution(name, _with_later_steps(plan, name, env))
        count = site.shape[: len(site.shape) - len(prior.batch_shape) - len(prior.event_shape)]
        env[name] = jnp.broadcast_to(draw(prior, source, count), site.shape) - site.low
    return {name: env[name] for name in plan.free}


def _with_later_steps(plan: Plan, name: str, env: Mapping) -> Mapping:
    """Values, with later steps of a loop on which a site depends, and which have no value yet, at
    the middle of their support."""
    sites = plan.structure.sites
    later = {p: sites[p] for p in ahead(plan.structure, name) if p not in env}
    return {**env, **{p: jnp.broadcast_to(site.domain.middle(site.shape), site.shape)
                      for p, site in later.items() if not site.discrete}}


def _has_untypical_mean(distribution: dist.Distribution):
    """Whether the mean is dominated by the tail, as of LogNormal(0, 10)."""
    try:
        return ~(distribution.variance <= 100 * distribution.mean**2)
    except (NotImplementedError, AttributeError):
        return False


def _median(distribution: dist.Distribution, middle: jax.Array, site: Site):
    try:
        median = jnp.broadcast_to(distribution.icdf(jnp.full(distribution.batch_shape, 0.5)),
                                  site.shape)
    # NumPyro's Gamma.icdf needs another package
    except (NotImplementedError, AttributeError, ImportError):
        return middle
    return jnp.where(jnp.isfinite(median) & (median > 0), median, middle)
