"""The posterior of the steps of scans that a joint density integrates out, at the point or averaged
over the posterior of all else."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike

from probml.interface.functions.marginal_weights import inputs_of, point_or_draws
from probml.interface.functions.readings import JointReading
from probml.language.language import Bound
from probml.numerics.compiling import jit
from probml.numerics.transfer import placed_all, random_key
from probml.queries.fitted import Fitted
from probml.typing import SiteValues

DRAW_PAIRS = 32  # draws of steps at one point, over which what is computed from them is averaged


def draw_steps(fit: Fitted, draws: SiteValues, n: int, seed: int) -> dict[str, np.ndarray]:
    """Steps of scans, and what the function computes from them, each drawn given one of the draws
    of the parameters: name → (n, ...)."""
    inputs = _inputs(fit)
    if inputs is None:
        return {}
    at = placed_all({name: draws[name] for name in fit.point})
    keys = jax.random.split(random_key(seed), n)
    return {name: np.asarray(value)
            for name, value in _paths(fit.model, placed_all(inputs), at, keys).items()}


def draw_steps_by_chain(fit: Fitted, draws: SiteValues) -> dict[str, np.ndarray]:
    """The same of draws chain by chain, (chains, draws, ...) each."""
    lead = np.shape(next(iter(draws.values())))[:2]
    flat = {name: np.reshape(value, (-1, *np.shape(value)[2:])) for name, value in draws.items()}
    return {name: value.reshape(*lead, *value.shape[1:])
            for name, value in draw_steps(fit, flat, lead[0] * lead[1], 0).items()}


def steps_at(fit: Fitted, values: SiteValues, seed: int,
             plug_in: bool) -> dict[str, np.ndarray]:
    """Steps that are integrated out at one value of the parameters: a draw, or their means."""
    inputs = _inputs(fit)
    if inputs is None:
        return {}
    one = {name: np.asarray(values[name])[None] for name in fit.point}
    if plug_in:
        found = {title: mean for title, (mean, _) in _moments(
            fit.model, placed_all(inputs), placed_all(one)).items()}
    else:
        found = draw_steps(fit, one, 1, seed)
    return {name: found[name][0] for name in fit.model.generative.integrated}


def names_of_loops(fit: Fitted) -> tuple[str, ...]:
    """The names of the joint sites of loops, whose steps tables show one by one."""
    reading = fit.model.generative
    return tuple(reading.steps.groups) if isinstance(reading, JointReading) else ()


def compute_step_means(fit: Fitted) -> dict[str, np.ndarray]:
    """The mean of every step, and of what is computed from steps, of a posterior over its draws."""
    inputs = _inputs(fit)
    if inputs is None:
        return {}
    found = {name: np.asarray(mean.mean(0)) for name, (mean, _) in _at(fit, inputs).items()}
    computed = {}
    if not {*fit.model.generative.derived} <= {*fit.structure.derived}:
        values = point_or_draws(fit)
        lead = len(next(iter(values.values())))
        keys = jax.random.split(random_key(0), (lead, DRAW_PAIRS if lead == 1 else 1))
        computed = {name: np.asarray(value.mean(0)) for name, value in _computed(
            fit.model, placed_all(inputs), placed_all(values), keys).items()}
    return computed | found


def posterior_of_step(fit: Fitted, name: str) -> dist.Distribution | None:
    """The distribution of each step of a scan; None where no such scan is integrated out."""
    inputs = _inputs(fit)
    if inputs is None or name not in fit.model.generative.integrated:
        return None
    mean, spread = _at(fit, inputs)[name]
    if len(mean) == 1:
        return dist.Normal(mean[0], spread[0])
    mixed = dist.Normal(jnp.moveaxis(mean, 0, -1), jnp.moveaxis(spread, 0, -1))
    return dist.MixtureSameFamily(dist.Categorical(jnp.full(len(mean), 1 / len(mean))), mixed)


def _inputs(fit: Fitted) -> dict[str, ArrayLike] | None:
    """The data by the names of the reading's inputs; None where no scan is integrated out."""
    reading = fit.model.generative
    if fit.data is None or not (isinstance(reading, JointReading) and reading.integrated):
        return None
    return inputs_of(fit.data)


def _at(fit: Fitted, inputs: SiteValues) -> dict[str, tuple[jax.Array, jax.Array]]:
    """Means and standard deviations of all steps, (draws, steps, ...)."""
    return _moments(fit.model, placed_all(dict(inputs)), placed_all(point_or_draws(fit)))


@jit(static_argnums=0, draws=2)
def _moments(model: Bound, inputs: Mapping, values: Mapping):
    return jax.lax.map(lambda own: model.generative.smoothed(model.bound, inputs, own).moments(),
                       values)


@jit(static_argnums=0, draws=2)
def _computed(model: Bound, inputs: Mapping, values: Mapping, keys: jax.Array):
    return jax.lax.map(lambda own: model.generative.smoothed(
        model.bound, inputs, own[0]).means_computed(own[1]), (values, keys))


@jit(static_argnums=0, draws=2)
def _paths(model: Bound, inputs: Mapping, values: Mapping, keys: jax.Array):
    return jax.lax.map(lambda own: model.generative.smoothed(
        model.bound, inputs, own[0]).path(own[1]), (values, keys))
