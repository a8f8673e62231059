"""The prior's point and draws of the prior, from which engines start; and a start by closed forms,
which does not depend on the units of the data.

Draws are approximate, from random numbers made on the host. JAX's generator and its exact draws are
slow to compile: a Gamma is a loop of rejections; a Dirichlet together with a Wishart took 3 s,
longer than the rest of a first fit of a mixture. A start needs neither. Standard random numbers
come from NumPy as data, and a Gamma is approximated by Wilson & Hilferty (1931),

    Gamma(a) = U^(1/a) Gamma(a + 1),   Gamma(a) ~ a (1 − 1/(9a) + z/(3√a))³,  z standard normal,

with an error of less than a hundredth of its standard deviation for a ≥ 1; distributions that are
made of Gammas follow. Distributions not named here are drawn by NumPyro.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints

from probml.device.rows import Known, Rows
from probml.errors import ModelError, Refusal, listed, name_in_function, shortly
from probml.evidence.density import to_unbounded
from probml.evidence.e_step import expect
from probml.factors.naturals import log_prior
from probml.families import domains
from probml.jaxpr.levels import Level
from probml.language.given import as_numbers
from probml.numerics.compiling import ONCE, jit
from probml.numerics.transfer import random_key
from probml.plan.plan import Plan
from probml.structure.densities import ahead
from probml.structure.recorder import peel
from probml.structure.site import Site
from probml.structure.trace import check_covariances
from probml.updates.updates import maximise

Shape = tuple[int, ...]
MAX_NUMBERS = 4  # of a kind that a draw uses for each of its elements


class Noise(NamedTuple):
    """Standard random numbers, one draw a row."""

    normal: np.ndarray  # (count, m)
    uniform: np.ndarray  # (count, m), in (0, 1)
    keys: jax.Array  # (count,), for distributions that are drawn by NumPyro

    @classmethod
    def of(cls, shapes: Iterable[Shape], count: int, seed: int, stream: int = 8) -> "Noise":
        """Enough numbers for values of these shapes; streams of a seed are independent."""
        random = np.random.default_rng([seed, stream])
        size, dtype = MAX_NUMBERS * sum(map(math.prod, shapes)), jnp.result_type(float)
        uniform = np.clip(random.random((count, size)), 1e-12, 1 - 1e-7)
        seeds = random.integers(2**31, size=count)
        return cls(random.standard_normal((count, size)).astype(dtype), uniform.astype(dtype),
                   np.stack([np.asarray(jax.random.key_data(random_key(s))) for s in seeds]))


class Source:
    """The random numbers of one draw, each of which is used once."""

    def __init__(self, noise: Noise):
        self.noise, self.used = noise, {"normal": 0, "uniform": 0, "keys": 0}

    def _next(self, kind: str, shape: Shape) -> jax.Array:
        start = self.used[kind]
        self.used[kind] = start + math.prod(shape)
        return getattr(self.noise, kind)[start : self.used[kind]].reshape(shape)

    def normal(self, shape: Shape) -> jax.Array:
        """Standard normal numbers."""
        return self._next("normal", shape)

    def uniform(self, shape: Shape) -> jax.Array:
        """Numbers uniform in (0, 1)."""
        return self._next("uniform", shape)

    def key(self) -> jax.Array:
        """A random key."""
        self.used["keys"] += 1
        return jax.random.fold_in(jax.random.wrap_key_data(self.noise.keys), self.used["keys"])

    def gamma(self, a: jax.Array, shape: Shape) -> jax.Array:
        """Approximate draws of Gamma(a, 1); a broadcasts to the shape."""
        raised = jnp.broadcast_to(a, shape) + 1
        cube = jnp.maximum(1 - 1 / (9 * raised) + self.normal(shape) / (3 * jnp.sqrt(raised)), 1e-3)
        return raised * cube**3 * self.uniform(shape) ** (1 / (raised - 1))


def draw(prior: dist.Distribution, source: Source, sample_shape: Shape) -> jax.Array:
    """A draw of a prior, (*sample_shape, *batch, *event)."""
    sampler = next((SAMPLERS[kind] for kind in type(prior).__mro__ if kind in SAMPLERS), None)
    if sampler is None:
        return prior.sample(source.key(), sample_shape)
    return sampler(prior, source, (*sample_shape, *prior.batch_shape))


def _beta(prior: dist.Distribution, source: Source, shape: Shape):
    gamma1 = source.gamma(prior.concentration1, shape)
    return gamma1 / (gamma1 + source.gamma(prior.concentration0, shape))


def _dirichlet(prior: dist.Distribution, source: Source, shape: Shape):
    parts = source.gamma(prior.concentration, (*shape, *prior.event_shape))
    return parts / parts.sum(-1, keepdims=True)


def _student(prior: dist.Distribution, source: Source, shape: Shape):
    mixing = jnp.sqrt(prior.df / (2 * source.gamma(prior.df / 2, shape)))
    return prior.loc + prior.scale * mixing * source.normal(shape)


def _bartlett(prior: dist.Distribution, source: Source, shape: Shape):
    """The Cholesky factor of a Wishart of unit scale (Bartlett 1933)."""
    d = prior.event_shape[-1]
    freedom = prior.concentration[..., None] - jnp.arange(d)
    diagonal = jnp.sqrt(2 * source.gamma(freedom / 2, (*shape, d)))
    return jnp.tril(source.normal((*shape, d, d)), -1) + diagonal[..., None] * jnp.eye(d)


def _wishart(prior: dist.Distribution, source: Source, shape: Shape):
    root = prior.scale_tril @ _bartlett(prior, source, shape)
    return root @ jnp.swapaxes(root, -1, -2)


def _inverse_wishart(prior: dist.Distribution, source: Source, shape: Shape):
    factor = _bartlett(prior, source, shape)
    identity = jnp.broadcast_to(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
    inverse = jax.scipy.linalg.solve_triangular(factor, identity, lower=True)
    root = prior.scale_tril @ jnp.swapaxes(inverse, -1, -2)
    return root @ jnp.swapaxes(root, -1, -2)


def _multivariate(prior: dist.Distribution, source: Source, shape: Shape):
    z = source.normal((*shape, *prior.event_shape))
    return prior.loc + (prior.scale_tril @ z[..., None])[..., 0]


SAMPLERS: Mapping[type, Callable] = {
    dist.Gamma: lambda p, s, shape: s.gamma(p.concentration, shape) / p.rate,
    dist.Chi2: lambda p, s, shape: s.gamma(p.concentration, shape) / p.rate,
    dist.InverseGamma: lambda p, s, shape: p.rate / s.gamma(p.concentration, shape),
    dist.Beta: _beta,
    dist.Dirichlet: _dirichlet,
    dist.Wishart: _wishart,
    dist.InverseWishart: _inverse_wishart,
    dist.Normal: lambda p, s, shape: p.loc + p.scale * s.normal(shape),
    dist.HalfNormal: lambda p, s, shape: p.scale * jnp.abs(s.normal(shape)),
    dist.LogNormal: lambda p, s, shape: jnp.exp(p.loc + p.scale * s.normal(shape)),
    dist.StudentT: _student,
    dist.MultivariateNormal: _multivariate,
    dist.Exponential: lambda p, s, shape: -jnp.log(s.uniform(shape)) / p.rate,
    dist.HalfCauchy: lambda p, s, shape: p.scale * jnp.tan(0.5 * jnp.pi * s.uniform(shape)),
    dist.Cauchy: lambda p, s, shape: p.loc + p.scale * jnp.tan(jnp.pi * (s.uniform(shape) - 0.5)),
    dist.Uniform: lambda p, s, shape: p.low + (p.high - p.low) * s.uniform(shape),
}


@jit(static_argnames=("plan", "prior"), seldom=ONCE)
def closed_start(plan: Plan, prior: bool, params: Mapping[str, jax.Array], known: Known,
                 rows: Rows):
    """Parameters, those with a closed form replaced by their maximum given the others."""
    maximised = maximise(plan, expect(plan, params, known, rows), params, known, rows, prior,
                         only_forms=True)
    is_finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(v)) for v in maximised.values()]))
    return {name: jnp.where(is_finite, maximised[name], params[name]) for name in params}


# the largest ratio of the start of a scale and the standard deviation of the data
MAX_SCALE_RATIO = 30.0
# errors of a prior that has a density and no sampler
UNDRAWABLE = (NotImplementedError, AttributeError, ImportError, KeyError, TypeError, ValueError)


def given_start(plan: Plan, start: Mapping) -> dict[str, jax.Array]:
    """A user's partial start, after checks of names, shapes, finiteness and supports."""
    sites, values = plan.structure.sites, {}
    for name, value in start.items():
        if name not in plan.free:
            raise ModelError(f"fit(start=...): '{name}' is not an estimated parameter. Use names "
                             f"among {listed(plan.free)}")
        value = as_numbers(value, f"fit(start=...): '{name}'")
        if value.shape != sites[name].shape:
            raise ModelError(f"fit(start=...): the value of '{name}' has shape {value.shape}, "
                             f"expected {sites[name].shape}. Give a value of this shape")
        if not np.isfinite(value).all():
            raise ModelError(f"fit(start=...): the value of '{name}' contains NaN or infinity, "
                             f"expected finite numbers")
        if not sites[name].domain.holds(value):
            raise ModelError(f"fit(start=...): the value of '{name}' must be "
                             f"{sites[name].domain.description}, got {shortly(value.tolist())}. "
                             f"Give a possible value of '{name}'")
        values[name] = value.astype(jnp.result_type(float))
    return values


def refuse_missing_prior(plan: Plan, engine: str, prior: bool) -> None:
    """Raises Refusal for prior=False if a prior depends on a latent discrete site: nothing else
    informs its states."""
    name = next((name for name in plan.mixed if name in plan.free), None)
    if name is not None and not prior:
        raise Refusal(
            f"{engine}(prior=False) cannot fit model '{plan.structure.model.name}': without the "
            f"prior of '{name}' the data do not determine the latent discrete site "
            f"'{plan.scope(name)[0]}', on which this prior depends. Omit prior=False"
        )


def prior_point(plan: Plan, known: Known) -> dict[str, jax.Array]:
    """Each parameter at its prior mean given its parents; at the middle of its support if that is
    infinite or unknown; a scale within a factor MAX_SCALE_RATIO of the standard deviation of the
    data that it scales."""
    env, point, deviations = dict(known.given), {}, _data_deviations(plan, known)
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
        point[name] = env[name] = jnp.where(jnp.isfinite(mean), mean,
                                            middle).astype(jnp.result_type(float))
    return point


compiled_prior_point = jit(prior_point, static_argnums=0, seldom=ONCE)


def _data_deviations(plan: Plan, known: Known) -> dict[str, list[tuple[jax.Array, jax.Array]]]:
    """Parameters that are scales of observed sites → the least and the largest standard deviation
    of the data of each; both are that of its own element if the parameter has one for each."""
    deviations: dict[str, list[tuple[jax.Array, jax.Array]]] = {}
    for name, sd in known.sd.items():
        site = plan.structure.sites[name]
        for argument in site.traits.scatter:
            for parameter, use in site.uses.get(argument, {}).items():
                # itself, since a function of it, such as a precision, has other units
                if use.level <= Level.MOVED and not use.coordinate:
                    elementwise = plan.structure.sites[parameter].shape[-sd.ndim :] == sd.shape
                    sd_range = (sd, sd) if elementwise else (jnp.min(sd), jnp.max(sd))
                    deviations.setdefault(parameter, []).append(sd_range)
    return deviations


def raise_impossible_start(plan: Plan, params: Mapping, known: Known, engine: str,
                           value: float) -> None:
    """Raises ModelError: the log density at the start is `value`, not finite, with the reason: a
    covariance, the prior of a site, or the likelihood."""
    check_covariances(plan.structure, jax.device_get({**known.given, **params}))
    log_priors = {site: float(_site_prior(plan, site, params, known)) for site in plan.free}
    bad = next((site for site, log in log_priors.items() if not np.isfinite(log)), None)
    invalid = "" if bad is None else _invalid_argument(
        plan.structure.distribution(bad, {**known.given, **params}))
    if bad is not None and invalid and not plan.structure.sites[bad].parents:
        raise ModelError(f"model '{plan.structure.model.name}': the prior of '{bad}' has "
                         f"{invalid}. Correct it. For a constant write the number instead of a "
                         "site")
    width = "a distribution with scale 0 has no density; write a constant into the model instead"
    reason = (
        f"the log prior density of '{bad}' is {log_priors[bad]} at "
        f"{shortly(np.asarray(params[bad]).tolist())} ({invalid or width})"
        if bad is not None
        else f"the log prior density is finite, but the log-likelihood of "
              f"{listed(name_in_function(name, plan.structure.sites) for name in plan.observed)} "
              f"is not"
    )
    raise ModelError(
        f"{engine} cannot fit model '{plan.structure.model.name}': the log density is {value} at "
        f"the initial values: {reason}. Give initial values with positive density, fit(..., "
        f"start={{...}}), or check the data for values that are impossible under the model"
    )


def _invalid_argument(fn: dist.Distribution) -> str:
    """The first argument of a distribution that it does not allow, in words; "": there is none."""
    for name, constraint in peel(fn)[0].arg_constraints.items():
        value = getattr(peel(fn)[0], name, None)
        if value is not None and not constraints.is_dependent(constraint) and not bool(
                jnp.all(constraint(jnp.asarray(value)))):
            values = np.ravel(np.asarray(value))
            return (f"the argument {name} = {shortly(values[0] if values.size == 1 else values)}, "
                    f"which must be {domains.of(constraint).description}")
    return ""


@jit(static_argnums=(0, 1), seldom=ONCE)
def _site_prior(plan: Plan, site: str, params: Mapping, known: Known) -> jax.Array:
    return log_prior(plan, params, known, names=(site,))


def prior_noise(plan: Plan, count: int, seed: int) -> Noise:
    """The random numbers for so many draws of the prior."""
    shapes = [site.shape for name, site in plan.structure.sites.items() if name in plan.free
              or name in plan.globals]
    return Noise.of(shapes, count, seed)


def points_near_zero(drawn: np.ndarray, seed: int) -> np.ndarray:
    """As many points, uniform within 2 of 0 in unbounded coordinates, as in Stan: for priors so
    wide that neither their draws nor their point make the data possible."""
    return np.random.default_rng(seed).uniform(-2.0, 2.0, drawn.shape).astype(drawn.dtype)


def drawn_prior(plan: Plan, known: Known, count: int, seed: int) -> np.ndarray | None:
    """Draws of the prior in unbounded coordinates, (count, d), on the host; None if it cannot be
    drawn from."""
    try:
        return jax.device_get(_prior_draws(plan, known, prior_noise(plan, count, seed)))
    except UNDRAWABLE:
        return None


@jit(static_argnums=0, seldom=ONCE)
def _prior_draws(plan: Plan, known: Known, noise: Noise) -> jax.Array:
    return jax.vmap(lambda noise: to_unbounded(plan, prior_draw(plan, known, noise), known))(noise)


def prior_draw(plan: Plan, known: Known, noise: Noise) -> dict[str, jax.Array]:
    """An approximate draw of the free parameters from the prior."""
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
