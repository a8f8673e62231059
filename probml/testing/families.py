"""The distributions that a recipe may name: their arguments, where these lie, and a prior for
each."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

DEGREES = 5.0
TOTAL = 3


class Kind(NamedTuple):
    """A distribution of a recipe.

    Args:
        make: arguments by name → the NumPyro distribution.
        arguments: name → where it lies, a key of PRIORS.
        adds: the argument on which inputs, effects and latents are added, or None.
        finite: its states are few: it may be unseen and have children.
        width: a value is a vector of `size` numbers in itself.
    """

    make: Callable[..., dist.Distribution]
    arguments: Mapping[str, str]
    adds: str | None = None
    finite: bool = False
    width: bool = False


KINDS: dict[str, Kind] = {
    "bernoulli": Kind(lambda probs: dist.Bernoulli(probs), {"probs": "unit"}, finite=True),
    "categorical": Kind(lambda probs: dist.Categorical(probs), {"probs": "simplex"}, finite=True),
    "binomial": Kind(lambda probs: dist.Binomial(TOTAL, probs), {"probs": "unit"}, finite=True),
    "logistic": Kind(lambda logits: dist.Bernoulli(logits=logits), {"logits": "real"}, "logits",
                     finite=True),
    "normal": Kind(lambda loc, scale: dist.Normal(loc, scale),
                   {"loc": "real", "scale": "positive"}, "loc"),
    "student": Kind(lambda loc, scale: dist.StudentT(DEGREES, loc, scale),
                    {"loc": "real", "scale": "positive"}, "loc"),
    "lognormal": Kind(lambda loc, scale: dist.LogNormal(loc, scale),
                      {"loc": "real", "scale": "positive"}, "loc"),
    "gamma": Kind(lambda concentration, rate: dist.Gamma(concentration, rate),
                  {"concentration": "positive", "rate": "positive"}),
    "beta": Kind(lambda one, other: dist.Beta(1.0 + one, 1.0 + other),
                 {"one": "positive", "other": "positive"}),
    "exponential": Kind(lambda rate: dist.Exponential(rate), {"rate": "positive"}),
    "poisson": Kind(lambda rate: dist.Poisson(rate), {"rate": "positive"}),
    "counts": Kind(lambda log_rate: dist.Poisson(jnp.exp(log_rate)), {"log_rate": "real"},
                   "log_rate"),
    "geometric": Kind(lambda probs: dist.Geometric(probs), {"probs": "unit"}),
    "multivariate": Kind(lambda loc, scale: dist.MultivariateNormal(
        loc, scale_tril=scale[..., None, None] * LOWER[: loc.shape[-1], : loc.shape[-1]]),
        {"loc": "real", "scale": "one positive"}, "loc", width=True),
}
LOWER = np.array([[1.0, 0.0, 0.0], [0.5, 0.8, 0.0], [-0.3, 0.2, 1.1]])

# where an argument lies → its priors by name, made where they are used: a distribution holds
# numbers of the precision under which it was made; the first is conjugate where one is
PRIORS: dict[str, dict[str, Callable[[], dist.Distribution]]] = {
    "real": {"normal": lambda: dist.Normal(0.0, 2.0),
             "student": lambda: dist.StudentT(4.0, 0.0, 2.0)},
    "positive": {"gamma": lambda: dist.Gamma(3.0, 2.0),
                 "lognormal": lambda: dist.LogNormal(0.0, 0.5),
                 "halfnormal": lambda: dist.HalfNormal(2.0)},
    "unit": {"beta": lambda: dist.Beta(2.0, 3.0)},
    "simplex": {"dirichlet": lambda: dist.Dirichlet(np.ones(2))},  # of the states there are
}
PRIORS["one positive"] = PRIORS["positive"]


def constant(where: str, shape: tuple[int, ...], states: int, rng: np.random.Generator) -> Any:
    """Numbers for an argument that is known, kept from the edges of where it lies."""
    if where == "simplex":
        return 0.05 / states + 0.95 * rng.dirichlet(np.ones(states), shape)
    if where == "unit":
        return rng.uniform(0.1, 0.9, shape)
    if where == "real":
        return rng.normal(0.0, 1.5, shape)
    return rng.uniform(0.4, 2.0, shape)


def prior(where: str, name: str, states: int) -> dist.Distribution:
    """The prior of an argument; of its states, where it is a table of these."""
    if where == "simplex":
        return dist.Dirichlet(jnp.full(states, 1.5))
    found = PRIORS[where]
    return found.get(name, next(iter(found.values())))()
