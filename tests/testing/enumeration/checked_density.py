"""Whether the log density that an engine evaluates is that of the model function by NumPyro; and the
reference density of a function without rows, by NumPyro alone."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer import util

from enumeration.density_check import (
    STATES,
    DensityCheck,
    check_density,
    incomparable,
)
from enumeration.joint_states import joint_states, values_of
from enumeration.separable_integral import SeparableIntegral, Unknown
from probml.dataset.read import read
from probml.engines.engine import checked, refusal
from probml.engines.ladder import advised, choose
from probml.errors import DataError
from probml.interface.functions.read_function import read_function
from probml.language.language import Bound
from probml.typing import DataLike, SiteValues


def checked_density(model: Bound, data: DataLike, engine: object = None,
                    seed: int = 0) -> DensityCheck:
    """Whether the log density that `model.fit(data, engine)` would evaluate is that of the function
    itself by NumPyro, log p(parameters, rows), at three random points, on some of the rows. Latent
    variables are summed, or integrated, out by brute force (Refusal: there are too many)."""
    engine = None if engine is None else checked(engine, "check_density")
    with jax.enable_x64(True):
        met = read_function(model, data)
        held = read(met.model, met.data).trimmed()
        if not held.table.columns and not held.structure.losses:
            raise DataError(f"model '{model.name}': every value of the data is missing, so their "
                            f"density is undefined")
        if engine is not None and (why := refusal(engine, held)) is not None:
            raise advised(why, held)
        asked = engine is not None
        engine = engine or choose(held)[0][0]
        try:
            plain = _reference_log_density(model, met.model, data) if met.model.is_joint else None
        except Unknown as why:
            raise incomparable(model.name, why) from None
        return check_density(held, engine, asked, seed, plain)


def _reference_log_density(model: Bound, reading: Bound, data: SiteValues) -> Callable:
    """Parameters → the log density of the function as it was written, by NumPyro: latent discrete
    sites summed over all their joint values, latent continuous sites integrated out."""
    own = model.generative.arguments
    arguments = {**model.bound, **{name: jnp.asarray(value) if np.ndim(value) else value
                                   for name, value in data.items() if name in own}}
    given = {name: np.asarray(value) for name, value in data.items() if name not in own}
    values = [np.asarray(value) for value in (*given.values(), *arguments.values())]
    if any(np.isnan(value).any() for value in values if value.dtype.kind == "f"):
        raise Unknown("the data have missing values, and the model has no plate of independent "
                      "rows")
    function = handlers.condition(model.generative.function, given)
    apart = reading.generative.steps.split_steps

    made: list[Callable] = []

    def at(params: SiteValues) -> float:
        fixed = {name: jnp.asarray(value) for name, value in apart(params).items()}
        if not made:
            made.append(_density(function, arguments, fixed))
        return made[0](fixed)

    return at


def _density(function: Callable, arguments: SiteValues,
             example: Mapping[str, jax.Array]) -> Callable[[Mapping], float]:
    """Values of the sites in `example` → log density, all others summed or integrated out."""
    traced = handlers.trace(handlers.seed(handlers.substitute(function, dict(example)), 1))
    sites = {name: site for name, site in traced.get_trace(**arguments).items()
             if site["type"] == "sample" and not site["is_observed"] and name not in example}
    counts = {name: site for name, site in sites.items() if site["fn"].support.is_discrete}
    rest = {name: biject_to(site["fn"].support) for name, site in sites.items()
            if name not in counts}
    joint = _joint(counts)

    def log(u: jax.Array, fixed: Mapping, states: Mapping[str, jax.Array]) -> jax.Array:
        values, start, volume = {}, 0, 0.0
        for name, to in rest.items():
            shape = to.inverse_shape(np.shape(sites[name]["value"]))
            size = math.prod(shape)
            free = u[start : start + size].reshape(shape)
            values[name] = to(free)
            volume += jnp.sum(to.log_abs_det_jacobian(free, values[name]))
            start += size
        return util.log_density(function, (), arguments,
                                {**fixed, **values, **states})[0] + volume

    def summed(u: jax.Array, fixed: Mapping) -> jax.Array:
        return jax.nn.logsumexp(jax.vmap(lambda states: log(u, fixed, states))(joint))

    if not rest:
        whole = jax.jit(summed)
        return lambda fixed: float(whole(jnp.zeros(0), fixed))
    first = np.concatenate([np.ravel(to.inv(sites[name]["value"])) for name, to in rest.items()])
    integral = SeparableIntegral(summed)
    return lambda fixed: integral.log(first, fixed)


def _joint(sites: Mapping[str, Any]) -> dict[str, jax.Array]:
    """All joint values of discrete sites, name → (joint values, *shape)."""
    values = {name: values_of(site["fn"]) for name, site in sites.items()}
    endless = next((name for name, own in values.items() if not len(own)), None)
    if endless is not None:
        raise Unknown(f"'{endless}' has no finite list of values")
    states, count = joint_states({name: (len(own), *np.shape(sites[name]["value"]))
                                  for name, own in values.items()}, STATES)
    return {"": jnp.zeros(count)} | {name: jnp.asarray(own[states[name]])
                                     for name, own in values.items()}
