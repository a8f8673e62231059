"""The distributions that a recipe may name: their arguments, where these lie, and a prior for
each."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

DEGREES = 5.0
TOTAL = 3
CUTS = (-1.0, 0.7)  # of an ordered choice: three states; as one array of NumPy JAX keeps its type
PEAKS = 2  # of a number's density that is a mixture in itself


class Kind(NamedTuple):
    """A distribution of a recipe.

    Args:
        make: arguments by name → the NumPyro distribution.
        arguments: name → where it lies, a key of PRIORS.
        adds: the argument on which inputs, effects and latents are added, or None.
        finite: its states are few: it may be unseen and have children.
        width: a value is a vector of `size` numbers in itself.
        whole: it is seen whole, in every row.
        lies: where an unseen number of it lies, "real", "positive" or "unit", if others may look at
            it; None: they may not.
        takes: the argument in which an unseen number takes part, and how: UNIT, one between 0 and 1
            is the argument itself; FACTOR, a positive one a factor of it; SPREAD, to the power with
            which a variance or a precision enters a scale.
        counted: a state is a count among a total: its answer is a mean.
        cells: how many states it has, where that is not the recipe's to say.
    """

    make: Callable[..., dist.Distribution]
    arguments: Mapping[str, str]
    adds: str | None = None
    finite: bool = False
    width: bool = False
    whole: bool = False
    lies: str | None = None
    takes: tuple[str, str] | None = None
    counted: bool = False
    cells: int | None = None


LOC = {"loc": "real", "scale": "positive"}
UNIT, FACTOR, SPREAD = "unit", "factor", "spread"  # how an unseen number takes part

KINDS: dict[str, Kind] = {
    "bernoulli": Kind(lambda probs: dist.Bernoulli(probs), {"probs": "unit"}, finite=True,
                      takes=("probs", UNIT), cells=2),
    "categorical": Kind(lambda probs: dist.Categorical(probs), {"probs": "simplex"}, finite=True),
    "binomial": Kind(lambda probs: dist.Binomial(TOTAL, probs), {"probs": "unit"}, finite=True,
                     takes=("probs", UNIT), counted=True, cells=TOTAL + 1),
    "logistic": Kind(lambda logits: dist.Bernoulli(logits=logits), {"logits": "real"}, "logits",
                     finite=True, cells=2),
    "normal": Kind(lambda loc, scale: dist.Normal(loc, scale), LOC, "loc", lies="real",
                   takes=("scale", SPREAD)),
    "student": Kind(lambda loc, scale: dist.StudentT(DEGREES, loc, scale), LOC, "loc",
                    lies="real"),
    "lognormal": Kind(lambda loc, scale: dist.LogNormal(loc, scale), LOC, "loc", lies="positive"),
    "gamma": Kind(lambda concentration, rate: dist.Gamma(concentration, rate),
                  {"concentration": "positive", "rate": "positive"}, lies="positive",
                  takes=("rate", FACTOR)),
    "beta": Kind(lambda one, other: dist.Beta(1.0 + one, 1.0 + other),
                 {"one": "positive", "other": "positive"}, lies="unit"),
    "exponential": Kind(lambda rate: dist.Exponential(rate), {"rate": "positive"},
                        lies="positive", takes=("rate", FACTOR)),
    "poisson": Kind(lambda rate: dist.Poisson(rate), {"rate": "positive"},
                    takes=("rate", FACTOR)),
    "counts": Kind(lambda log_rate: dist.Poisson(jnp.exp(log_rate)), {"log_rate": "real"},
                   "log_rate"),
    "geometric": Kind(lambda probs: dist.Geometric(probs), {"probs": "unit"},
                      takes=("probs", UNIT)),
    "multivariate": Kind(lambda loc, scale: dist.MultivariateNormal(
        loc, scale_tril=scale[..., None, None] * LOWER[: loc.shape[-1], : loc.shape[-1]]),
        {"loc": "real", "scale": "one positive"}, "loc", width=True),
    # families without a kernel of their own: row by row, by NumPyro's density
    "negative": Kind(lambda mean, concentration: dist.NegativeBinomial2(mean, concentration),
                     {"mean": "positive", "concentration": "positive"}),
    "inflated": Kind(lambda gate, rate: dist.ZeroInflatedPoisson(gate, rate=rate),
                     {"gate": "unit", "rate": "positive"}),
    "weibull": Kind(lambda scale, concentration: dist.Weibull(scale, 1.0 + concentration),
                    {"scale": "positive", "concentration": "positive"}),
    "gumbel": Kind(lambda loc, scale: dist.Gumbel(loc, scale), LOC, "loc", lies="real"),
    "laplace": Kind(lambda loc, scale: dist.Laplace(loc, scale), LOC, "loc"),
    "halfnormal": Kind(lambda scale: dist.HalfNormal(scale), {"scale": "positive"}),
    "inverse": Kind(lambda concentration, rate: dist.InverseGamma(2.0 + concentration, rate),
                    {"concentration": "positive", "rate": "positive"}, lies="positive"),
    "truncated": Kind(lambda loc, scale: dist.TruncatedNormal(loc, scale, low=-1.0), LOC, "loc"),
    "peaks": Kind(lambda probs, loc: dist.MixtureSameFamily(
        dist.Categorical(probs), dist.Normal(loc[..., None] + 2.0 * jnp.arange(PEAKS), 0.7)),
        {"probs": "peaks", "loc": "real"}, "loc"),
    "angle": Kind(lambda loc, concentration: dist.VonMises(loc, concentration),
                  {"loc": "real", "concentration": "positive"}, whole=True),
    "ordered": Kind(lambda predictor: dist.OrderedLogistic(predictor, jnp.array(CUTS)),
                    {"predictor": "real"}, "predictor", finite=True, cells=len(CUTS) + 1),
    "softmax": Kind(lambda logits, lean: dist.Categorical(
        logits=logits + lean[..., None] * jnp.arange(logits.shape[-1])),
        {"logits": "logits", "lean": "real"}, "lean", finite=True),
    "betabinomial": Kind(lambda one, other: dist.BetaBinomial(one, other, TOTAL),
                         {"one": "positive", "other": "positive"}, finite=True, counted=True,
                         cells=TOTAL + 1),
    "shares": Kind(lambda concentration: dist.Dirichlet(concentration),
                   {"concentration": "positive"}, width=True, whole=True),
    "bags": Kind(lambda concentration: dist.DirichletMultinomial(concentration, TOTAL),
                 {"concentration": "positive"}, width=True, whole=True),
    "cut": Kind(lambda loc, scale: dist.TruncatedNormal(loc, scale, low=-1.0, high=1.5), LOC,
                "loc"),
    "rates": Kind(lambda probs, rate: dist.MixtureSameFamily(
        dist.Categorical(probs), dist.Poisson(rate[..., None] * (1.0 + 3.0 * jnp.arange(PEAKS)))),
        {"probs": "peaks", "rate": "positive"}),
    "zeros": Kind(lambda gate, mean, concentration: dist.ZeroInflatedNegativeBinomial2(
        mean, concentration, gate=gate),
        {"gate": "unit", "mean": "positive", "concentration": "positive"}),
    "words": Kind(lambda probs: dist.Multinomial(TOTAL, probs), {"probs": "shares"}, width=True,
                  whole=True),
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
PRIORS["peaks"] = PRIORS["shares"] = PRIORS["simplex"]
PRIORS["logits"] = PRIORS["real"]
TABLES = ("simplex", "peaks", "shares")  # the last axis of which sums to 1


def last(where: str, states: int, size: int) -> int:
    """How long the last axis of an argument is that is a vector in itself; 0: it is none."""
    return {"simplex": states, "logits": states, "peaks": PEAKS, "shares": size}.get(where, 0)


def constant(where: str, shape: tuple[int, ...], states: int, rng: np.random.Generator) -> Any:
    """Numbers for an argument that is known, kept from the edges of where it lies; of `states`
    where it is a vector in itself."""
    if where in TABLES:
        return 0.05 / states + 0.95 * rng.dirichlet(np.ones(states), shape)
    if where == "logits":
        return rng.normal(0.0, 1.5, (*shape, states))
    if where == "unit":
        return rng.uniform(0.1, 0.9, shape)
    if where == "real":
        return rng.normal(0.0, 1.5, shape)
    return rng.uniform(0.4, 2.0, shape)


def prior(where: str, name: str, states: int) -> dist.Distribution:
    """The prior of an argument; of its states, where it is a table of these."""
    if where in TABLES:
        return dist.Dirichlet(jnp.full(states, 1.5))
    found = PRIORS[where]
    return found.get(name, next(iter(found.values())))()
