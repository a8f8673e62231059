"""Discrete sites that one density of everything sums out, answered for: log weights λ of every
state of every cell, whose gradient at 0 is the marginal.

    p(z_c = k | what is seen) = ∂ log p(what is seen; λ) / ∂ λ_ck at λ = 0, where every λ_ck adds
    λ_ck [z_c = k] to the log density
"""

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml.errors import Refusal
from probml.families.finite import Shifted
from probml.language.language import Bound
from probml.numerics.compiling import jit
from probml.numerics.transfer import placed_all

if TYPE_CHECKING:
    from probml.interface.fit import Fit

DRAWS = 256  # of the parameters, over which the answer is averaged


class Leaned(NamedTuple):
    """A site that is summed out: the shape of its cells (of a scan behind its steps), the least of
    its values, and how many there are."""

    shape: tuple[int, ...]
    low: int
    count: int


class Leaning:
    """The weights that a run of the function is given, and the sites that have asked for some.

    Args:
        weights: site → (*cells, states); one that is not there weighs nothing.
    """

    def __init__(self, weights: Mapping[str, jax.Array]):
        self.weights, self.met = weights, dict[str, Leaned]()

    def of(self, name: str, shape: tuple[int, ...], low: int, count: int) -> jax.Array:
        self.met[name] = Leaned(shape, low, count)
        return self.weights.get(name, jnp.zeros((*shape, count)))


def met_by(fit: "Fit", inputs: Mapping[str, Any]) -> dict[str, Leaned]:
    """The sites that the function sums out; nothing is compiled."""
    values, leaning = _values(fit), Leaning({})
    jax.eval_shape(lambda inputs, values: _log(fit.model, inputs, values, leaning), inputs,
                   {name: value[0] for name, value in values.items()})
    return leaning.met


def probabilities(fit: "Fit", inputs: Mapping[str, Any], name: str) -> np.ndarray | None:
    """p(site = state | what is seen), (*cells, states), of a scan behind its steps, averaged over
    the posterior of all else; None where the function sums no such site out.

    Args:
        inputs: of the reading, name → value.

    Cost: for every draw one evidence and its gradient, in one program for all sites.
    """
    met = met_by(fit, inputs)
    if name not in met:
        return None
    zeros = {site: jnp.zeros((*found.shape, found.count)) for site, found in met.items()}
    every = _marginals(fit.model, placed_all(dict(inputs)), placed_all(_values(fit)), zeros)
    return np.asarray(every[name])


def posterior(fit: "Fit", name: str) -> dist.Distribution | None:
    """The same given the data that were fitted, as a distribution of the site's values."""
    if fit.data is None:
        return None
    inputs = {key: value[0] for key, value in fit.data.table.inputs.items()}
    found = met_by(fit, inputs).get(name)
    if found is None:
        return None
    probs = jnp.asarray(probabilities(fit, inputs, name))
    return Shifted(probs, found.low) if found.low else dist.Categorical(probs=probs)


def _values(fit: "Fit") -> dict[str, Any]:
    """Site → (draws, ...): the point alone, where nothing more is known."""
    other = next((site.name for site in fit.structure.sites.values() if site.discrete
                  and not site.rows), None)
    if other is not None:
        raise Refusal(f"model '{fit.model.name}': '{other}' is discrete and unseen beside what is "
                      f"summed out cell by cell: give '{other}' in the data")
    if fit.belief.varies:
        draws = fit._draws(DRAWS, 0)
        return {name: draws[name] for name in fit.point}
    return {name: jnp.asarray(value)[None] for name, value in fit.point.items()}


def _log(model: Bound, inputs: Mapping, values: Mapping, leaning: Leaning) -> jax.Array:
    return model.generative.log_joint(model.bound, inputs, values, leaning)


@functools.partial(jit, static_argnums=0)
def _marginals(model: Bound, inputs: Mapping, values: Mapping, zeros: Mapping):
    def one(values):
        return jax.grad(lambda lean: _log(model, inputs, values, Leaning(lean)))(dict(zeros))

    return jax.tree.map(lambda each: each.mean(0), jax.lax.map(one, values))
