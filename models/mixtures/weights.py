"""Priors of mixture weights: even, sparse, or sticks."""

from collections.abc import Callable
from numbers import Integral

import jax.numpy as jnp
import numpyro.distributions as dist

import probml
from probml.errors import listed

# the word → concentration, states → the prior
_PRIORS: dict[str, Callable[..., dist.Distribution]] = {
    "even": lambda a, k: dist.Dirichlet(jnp.full(k, a)),
    "sparse": lambda a, k: dist.Dirichlet(jnp.full(k, a) / k),
    "sticks": lambda a, k: probml.dirichlet_process(a, k),
}
WEIGHTS = tuple(_PRIORS)


def weights_prior(weights: str, concentration, k: int, model: str,
                  setting: str = "weights") -> dist.Distribution:
    """The prior of k weights by a word.

    | word | prior |
    |---|---|
    | "even" | Dirichlet(a, …, a) |
    | "sparse" | Dirichlet(a/k, …, a/k): a pseudo-rows for all states together, however many there
      are, so that those without rows cost nothing (Ishwaran & Zarepour 2002) |
    | "sticks" | the Dirichlet process of concentration a, cut at k (Blei & Jordan 2006) |

    Raises:
        ModelError: another word; no number of components.
    """
    if weights not in _PRIORS:
        raise probml.ModelError(f"{model}({setting}={weights!r}): expected one of "
                                f"{listed(WEIGHTS)}")
    if not (isinstance(k, Integral) and k >= 1):
        raise probml.ModelError(f"{model}(k={k!r}): expected an integer of at least 1")
    return _PRIORS[weights](concentration, k)
