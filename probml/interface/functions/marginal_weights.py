"""The posterior of discrete sites that a joint density sums out: log weights λ of every state of
every cell, with respect to which the gradient at 0 is the marginal.

    p(z_c = k | data) = ∂ log p(data; λ) / ∂ λ_ck at λ = 0, where every λ_ck adds λ_ck [z_c = k] to
    the log density
"""

from collections.abc import Collection, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml.dataset.dataset import Data
from probml.elimination.factor import MAX, SUM, Semiring
from probml.errors import Refusal, counted, listed
from probml.families.finite import Shifted
from probml.interface.functions.states import States
from probml.language.language import Bound
from probml.numerics.compiling import jit
from probml.numerics.transfer import placed_all
from probml.queries.fitted import Fitted
from probml.queries.step_posteriors import point_or_draws


class StateWeights:
    """Log weights of the states of discrete sites in a run of a function.

    Args:
        weights: site → (*cells, states); 0 for a site that is not there.
        best: sites that are maximised, all others summed out before.

    Attributes:
        summed: the sites that the run has summed out, by name.
        together: the sites that were summed out as cells of one variable, and whether along a
            chain.
    """

    def __init__(self, weights: Mapping[str, jax.Array], best: Collection[str] = ()):
        self.weights, self.best, self.summed = weights, tuple(best), dict[str, States]()
        self.together: list[tuple[tuple[str, ...], bool]] = []

    def semiring(self, names: Collection[str]) -> Semiring:
        """How the states of the discrete sites of a scan are reduced, at once.

        Raises:
            Refusal: some of them are maximised and others not.
        """
        others = [name for name in names if name not in self.best]
        if others and len(others) < len(names):
            raise Refusal(f"decode(sites=[{listed(self.best)}]): '{others[0]}' is in the same "
                          "scan, and sites in a scan can only be decoded jointly. Omit sites=, or "
                          f"use predict_proba(data, '{others[0]}')")
        return SUM if others else MAX

    def of(self, states: States, *steps: int) -> jax.Array:
        """The log weights of the states of a site, of a scan along its steps."""
        states = states._replace(shape=(*steps, *states.shape))
        self.summed[states.name] = states
        return self.weights.get(states.name, jnp.zeros((*states.shape, states.count)))


def find_summed_sites(data: Data) -> StateWeights:
    """The sites that a run of the function sums out; nothing is compiled."""
    values = {site.name: jnp.zeros(site.shape, int if site.discrete else float)
              for site in data.structure.sites.values() if not site.factor}
    weights = StateWeights({})
    model = data.structure.model
    jax.eval_shape(lambda inputs, values: model.generative.log_joint(
        model.bound, inputs, values, weights), data.inputs_of_one_row, values)
    return weights


def describe_summed_sites(data: Data) -> str:
    """One sentence for each set of sites that are identical steps and are summed out together."""
    lines = []
    for sites, in_chain in find_summed_sites(data).together:
        names = listed(sites) if len(sites) < 4 else f"'{sites[0]}' … '{sites[-1]}'"
        how = "along their chain, by the forward algorithm" if in_chain else "element by element"
        lines.append(f". The {counted(len(sites), 'site')} {names} form identical steps and are "
                     f"summed out {how}")
    return "".join(lines)


def compute_probabilities(fit: Fitted, data: Data, summed: Mapping[str, States],
                          name: str) -> np.ndarray:
    """p(site = state | data), (*cells, states), of a scan along its steps, averaged over the
    posterior of all else.

    Args:
        summed: the sites that the function sums out.

    Cost: for every draw one evidence and its gradient, in one program for all sites.
    """
    other = next((site.name for site in fit.structure.sites.values() if site.discrete
                  and not site.rows), None)
    if other is not None:
        raise Refusal(f"model '{fit.model.name}': '{other}' is discrete and latent. It cannot be "
                      "summed out together with the other discrete sites, because the model has no "
                      f"plate of rows. Give '{other}' in the data, or use another engine, such as "
                      "{engines}", ("NUTS",))
    marginals = _marginals(fit.model, placed_all(data.inputs_of_one_row),
                           placed_all(point_or_draws(fit)), _zero_weights(summed))
    return np.asarray(marginals[name])


def _zero_weights(summed: Mapping[str, States]) -> dict[str, jax.Array]:
    return {site: jnp.zeros((*states.shape, states.count)) for site, states in summed.items()}


def decode_summed_sites(fit: Fitted, data: Data, summed: Mapping[str, States],
                        sites: Collection[str]) -> dict[str, np.ndarray]:
    """The jointly most probable values of `sites` at the point, all others summed out: site →
    (*cells), of a scan along its steps; of equally probable ones the lowest.

    The gradient of a maximum with respect to λ is 1 at the values where it is attained.

    Cost: one evidence and its gradient.
    """
    point = {name: jnp.asarray(value) for name, value in fit.point.items()}
    one_hot = _slopes(fit.model, tuple(sites), placed_all(data.inputs_of_one_row),
                             placed_all(point), _zero_weights(summed))
    return {site: np.asarray(one_hot[site]).argmax(-1) + summed[site].low for site in sites}


def posterior_of_summed_site(fit: Fitted, name: str) -> dist.Distribution | None:
    """The distribution of a site that is summed out, given the data that were fitted; None: it is
    no such site."""
    if fit.data is None or name not in (summed := find_summed_sites(fit.data).summed):
        return None
    probs = jnp.asarray(compute_probabilities(fit, fit.data, summed, name))
    return Shifted(probs, summed[name].low) if summed[name].low else dist.Categorical(probs=probs)


@jit(static_argnums=0)
def _marginals(model: Bound, inputs: Mapping, values: Mapping, zeros: Mapping):
    if not values:
        return _slopes(model, (), inputs, {}, zeros)
    return jax.tree.map(lambda grads: grads.mean(0), jax.lax.map(
        lambda value: _slopes(model, (), inputs, value, zeros), values))


@jit(static_argnums=(0, 1))
def _slopes(model: Bound, best: tuple[str, ...], inputs: Mapping, values: Mapping,
            zeros: Mapping) -> dict[str, jax.Array]:
    """∂ log joint / ∂ λ at λ = 0, the sites `best` maximised."""
    return jax.grad(lambda weights: model.generative.log_joint(
        model.bound, inputs, values, StateWeights(weights, best)))(dict(zeros))
