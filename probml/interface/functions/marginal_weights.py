"""Discrete sites that one density of everything sums out, answered for: log weights λ of every
state of every cell, whose gradient at 0 is the marginal.

    p(z_c = k | what is seen) = ∂ log p(what is seen; λ) / ∂ λ_ck at λ = 0, where every λ_ck adds
    λ_ck [z_c = k] to the log density
"""

import functools
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml.elimination.semiring import MAX, SUM, Semiring
from probml.errors import Refusal, quoted
from probml.families.finite import Shifted
from probml.language.language import Bound
from probml.numerics.compiling import jit
from probml.numerics.transfer import placed_all
from probml.queries.fitted import Fitted
from probml.structure.structure import Structure

DRAWS = 256  # of the parameters, over which the answer is averaged


class Leaned(NamedTuple):
    """A site that is summed out: the shape of its cells (of a scan behind its steps), the least of
    its values, and how many there are."""

    shape: tuple[int, ...]
    low: int
    count: int  # type: ignore[assignment] # not the tuple's method


class StateWeights:
    """The weights that a run of the function is given, the sites that have asked for some, and
    those that were summed out as cells of one variable, and whether along a chain.

    Args:
        weights: site → (*cells, states); one that is not there weighs nothing.
        best: sites that are maximised, all others summed out before.
    """

    def __init__(self, weights: Mapping[str, jax.Array], best: Collection[str] = ()):
        self.weights, self.best, self.met = weights, tuple(best), dict[str, Leaned]()
        self.together: list[tuple[tuple[str, ...], bool]] = []

    def semiring(self, names: Collection[str]) -> Semiring:
        """How the states of the discrete sites of a scan are reduced, at once.

        Raises:
            Refusal: some of them are maximised and others not.
        """
        others = [name for name in names if name not in self.best]
        if others and len(others) < len(names):
            raise Refusal(f"decode(sites={list(self.best)}): '{others[0]}' is in the same scan, "
                          f"whose sites are maximised jointly: omit sites=, or use predict_proba "
                          f"for each")
        return SUM if others else MAX

    def of(self, name: str, shape: tuple[int, ...], low: int, count: int) -> jax.Array:
        self.met[name] = Leaned(shape, low, count)
        return self.weights.get(name, jnp.zeros((*shape, count)))


def find_summed_sites(structure: Structure, inputs: Mapping[str, Any]) -> StateWeights:
    """The sites that a run of the function sums out; nothing is compiled."""
    values = {site.name: jnp.zeros(site.shape, int if site.discrete else float)
              for site in structure.sites.values() if not site.factor}
    leaning = StateWeights({})
    jax.eval_shape(lambda inputs, values: _log_joint(structure.model, inputs, values, leaning),
                   inputs, values)
    return leaning


def describe_summed_sites(structure: Structure, inputs: Mapping[str, Any]) -> str:
    """One sentence for each set of sites that are identical steps and are summed out together."""
    out = []
    for sites, along in find_summed_sites(structure, inputs).together:
        names = quoted(sites) if len(sites) < 4 else f"'{sites[0]}' … '{sites[-1]}'"
        how = "along their chain, by the forward algorithm" if along else "cell by cell"
        out.append(f". The {len(sites)} sites {names} form identical steps and are summed out "
                   f"{how}")
    return "".join(out)


def compute_probabilities(fit: Fitted, inputs: Mapping[str, Any], met: Mapping[str, Leaned],
                          name: str) -> np.ndarray:
    """p(site = state | what is seen), (*cells, states), of a scan behind its steps, averaged over
    the posterior of all else.

    Args:
        inputs: of the reading, name → value. met: the sites that the function sums out.

    Cost: for every draw one evidence and its gradient, in one program for all sites.
    """
    other = next((site.name for site in fit.structure.sites.values() if site.discrete
                  and not site.rows), None)
    if other is not None:
        raise Refusal(f"model '{fit.model.name}': '{other}' is discrete and latent, and other "
                      f"sites are already summed out cell by cell: give '{other}' in the data")
    zeros = {site: jnp.zeros((*found.shape, found.count)) for site, found in met.items()}
    every = _marginals(fit.model, placed_all(dict(inputs)), placed_all(point_or_draws(fit)), zeros)
    return np.asarray(every[name])


def decode_summed_sites(fit: Fitted, inputs: Mapping[str, Any], met: Mapping[str, Leaned],
                        sites: Collection[str]) -> dict[str, np.ndarray]:
    """The jointly most probable values of `sites` at the point, all others summed out: site →
    (*cells), of a scan behind its steps; of equally probable ones the lowest.

    The gradient of a maximum with respect to λ is 1 at the values where it is attained.

    Cost: one evidence and its gradient.
    """
    zeros = {site: jnp.zeros((*found.shape, found.count)) for site, found in met.items()}
    at = {name: jnp.asarray(value) for name, value in fit.point.items()}
    hot = _most_probable(fit.model, tuple(sites), placed_all(dict(inputs)), placed_all(at), zeros)
    return {site: np.asarray(hot[site]).argmax(-1) + met[site].low for site in sites}


def posterior_of_summed_site(fit: Fitted, name: str) -> dist.Distribution | None:
    """The same given the data that were fitted, as a distribution of the site's values."""
    if fit.data is None:
        return None
    inputs = {key: value[0] for key, value in fit.data.table.inputs.items()}
    met = find_summed_sites(fit.structure, inputs).met
    if name not in met:
        return None
    probs = jnp.asarray(compute_probabilities(fit, inputs, met, name))
    return Shifted(probs, met[name].low) if met[name].low else dist.Categorical(probs=probs)


def point_or_draws(fit: Fitted) -> dict[str, Any]:
    """Draws of the parameters, (draws, ...); the point alone, where nothing more is known."""
    if fit.belief.varies:
        draws = fit._draws(DRAWS, 0)
        return {name: draws[name] for name in fit.point}
    return {name: jnp.asarray(value)[None] for name, value in fit.point.items()}


def _log_joint(model: Bound, inputs: Mapping, values: Mapping, leaning: StateWeights) -> jax.Array:
    return model.generative.log_joint(model.bound, inputs, values, leaning)


@functools.partial(jit, static_argnums=0)
def _marginals(model: Bound, inputs: Mapping, values: Mapping, zeros: Mapping):
    def marginals_at(values: Any):
        return jax.grad(lambda lean: _log_joint(model, inputs, values,
                                                StateWeights(lean)))(dict(zeros))

    if not values:
        return marginals_at({})
    return jax.tree.map(lambda each: each.mean(0), jax.lax.map(marginals_at, values))


@functools.partial(jit, static_argnums=(0, 1))
def _most_probable(model: Bound, sites: tuple[str, ...], inputs: Mapping, values: Mapping,
                   zeros: Mapping) -> Mapping:
    return jax.grad(lambda lean: _log_joint(model, inputs, values,
                                            StateWeights(lean, sites)))(dict(zeros))
