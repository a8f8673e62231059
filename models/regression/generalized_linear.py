"""Generalized linear models: a distribution of y whose mean is a known function of x β + b.

    y | x ~ family(mean μ),   g(μ) = x β + b + offset,   β_j ~ N(0, s_j²)

| family | y | canonical link g | variance of y |
|---|---|---|---|
| bernoulli | 0 or 1 | logit | μ(1 − μ) |
| categorical | a state | logit (softmax) | |
| binomial | successes of `trials` | logit | trials · μ(1 − μ), μ the rate |
| poisson | a count | log | μ |
| negative binomial | a count | log | μ + μ²/`concentration` |
| gamma | above 0 | log (1/μ is the canonical one) | μ²/`concentration` |
| normal | a number | identity | σ² |

Logistic and softmax regression, = maximum entropy with features x (Berger, Della Pietra & Della
Pietra 1996), are the first two. A prior sd s is the ridge penalty |β|²/(2s²), C = s² of
scikit-learn. `MAP()` takes Newton's steps, `Laplace()` and `NUTS()` a posterior.

Sources: Nelder & Wedderburn (1972), "Generalized linear models"; McCullagh & Nelder (1989); Cox
    (1958) for logistic regression.
"""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import sample
from numpyro.distributions import constraints

import probml
from probml.models.summaries.regressions import regression_tables

LINKS = {
    "identity": lambda eta: eta,
    "log": jnp.exp,
    "logit": jax.nn.sigmoid,
    "probit": jax.scipy.stats.norm.cdf,
    "cloglog": lambda eta: -jnp.expm1(-jnp.exp(eta)),
    "inverse": lambda eta: 1 / eta,
}
"""Link → its inverse, η → μ."""
FAMILIES = {
    "bernoulli": "logit",
    "binomial": "logit",
    "poisson": "log",
    "negative binomial": "log",
    "gamma": "log",
    "normal": "identity",
}
"""Family → the link it has where none is said."""


@probml.model
def logistic_regression(x, weight_scale=1.0, bias_scale=10.0):
    """Two classes: y ~ Bernoulli(logits = x β + b). Input `x` (n, d), site `y` in every row; sites
    `beta` (d,), `bias` ().

    Args:
        weight_scale: s, prior standard deviation of a weight in logits per unit of x, one number or
            (d,); None: flat. "each" makes it a site `weight_scale` (d,), to be given in the data:
            models that differ in it alone compile once.
        bias_scale: that of b; None: flat, 0: no bias.
    """
    logits = linear_predictor(x, (), weight_scale, bias_scale)
    with probml.rows():
        sample("y", dist.Bernoulli(logits=logits))


logistic_regression.summarized(regression_tables)


@probml.model
def softmax_regression(x, states, weight_scale=1.0, bias_scale=10.0):
    """Several classes: y ~ Categorical(logits = x β + b), `beta` (d, states), `bias` (states,);
    else as logistic_regression.

    All states have weights, so that none is special; a prior decides what the data cannot, a number
    common to all states.
    """
    logits = linear_predictor(x, (states,), weight_scale, bias_scale)
    with probml.rows():
        sample("y", dist.Categorical(logits=logits))


softmax_regression.summarized(regression_tables)


@probml.model
def generalized_linear(
    x, offset, trials, family="poisson", link=None, weight_scale=None, bias_scale=None, noise=None,
    concentration=None, noise_scale=None, concentration_scale=100.0
):
    """y of any family of this page. Inputs `x` (n, d), `offset` (n,), `trials` (n,), site `y` in
    every row; sites `beta` (d,), `bias` ().

    What is the same in all rows is bound: generalized_linear(family="poisson", offset=0.0,
    trials=1).

    Args:
        offset: added to x β + b, such as the log of an exposure.
        trials: of the binomial; else nothing depends on it.
        family, link: as in the tables of this page; link None is the family's own. Softmax has a
            function by itself.
        weight_scale, bias_scale: as in logistic_regression, in units of the link; of a normal whose
            noise is unknown weight_scale is in units of the noise.
        noise: σ of the normal; None: a site `variance` ~ InverseGamma(0.5, 0.005), or by
            noise_scale.
        concentration: of gamma and negative binomial; None: a site `concentration`, exponential
            with the mean concentration_scale.
        noise_scale: a number: σ is a site `noise`, exponential with this mean, and weight_scale is
            in units of y.

    Raises:
        ModelError: an unknown family or link.
    """
    unit = 1.0
    if family == "normal" and noise is None:
        if noise_scale is None:
            noise = unit = jnp.sqrt(sample("variance", dist.InverseGamma(0.5, 0.005)))
        else:
            noise = sample("noise", dist.Exponential(1 / noise_scale))
    eta = linear_predictor(x, (), weight_scale, bias_scale, unit) + offset
    seen = family_of(eta, trials, family, link, noise, concentration, concentration_scale)
    with probml.rows():
        sample("y", seen)


generalized_linear.summarized(regression_tables)


def family_of(eta, trials, family, link=None, noise=None, concentration=None,
              concentration_scale=100.0):
    """The distribution of y, of a family whose mean is the link's inverse of eta; arguments as of
    generalized_linear, outside rows().

    Raises:
        ModelError: an unknown family or link.
    """
    if family not in FAMILIES:
        raise probml.ModelError(f"family={family!r}: expected one of {list(FAMILIES)}")
    link = FAMILIES[family] if link is None else link
    if link not in LINKS:
        raise probml.ModelError(f"link={link!r}: expected one of {list(LINKS)}")
    mean = LINKS[link](eta)
    if family in ("gamma", "negative binomial") and concentration is None:
        concentration = sample("concentration", dist.Gamma(1.0, 1 / concentration_scale))
    if family in ("bernoulli", "binomial") and link == "logit":
        return (dist.Bernoulli(logits=eta) if family == "bernoulli"
                else dist.Binomial(trials, logits=eta))
    makers = {
        "bernoulli": lambda: dist.Bernoulli(mean),
        "binomial": lambda: dist.Binomial(trials, mean),
        "poisson": lambda: dist.Poisson(mean),
        "negative binomial": lambda: dist.NegativeBinomial2(mean, concentration),
        "gamma": lambda: dist.Gamma(concentration, concentration / mean),
        "normal": lambda: dist.Normal(mean, noise),
    }  # fmt: skip
    return makers[family]()


def linear_predictor(x, event: tuple[int, ...], weight_scale, bias_scale, unit=1.0):
    """x β + b with their priors as sites `beta` (d, *event) and `bias` event; see
    logistic_regression. `unit`: in which weight_scale is. x None: b alone."""
    if x is None:
        return sample("bias", _prior(bias_scale, event))
    d = x.shape[-1]
    if isinstance(weight_scale, str):
        if weight_scale != "each":
            raise probml.ModelError(f"weight_scale={weight_scale!r}: expected numbers, None for "
                                    f"flat weights, or 'each'")
        weight_scale = sample("weight_scale", dist.HalfCauchy(1.0).expand([d]).to_event(1))
    weight_scale = None if weight_scale is None else weight_scale * unit
    beta = sample("beta", _prior(weight_scale, (d, *event)))
    if isinstance(bias_scale, float | int) and bias_scale == 0:
        return x @ beta
    return x @ beta + sample("bias", _prior(bias_scale, event))


def _prior(scale, shape: tuple[int, ...]):
    if scale is None:
        return dist.ImproperUniform(constraints.real, (), shape) if shape else dist.ImproperUniform(
            constraints.real, (), ()
        )
    spread = jnp.reshape(jnp.asarray(scale, float),
                         (-1, *(1,) * (len(shape) - 1))) if jnp.ndim(scale) else scale
    return (dist.Normal(0.0, spread * jnp.ones(shape)).to_event(len(shape))
            if shape else dist.Normal(0.0, scale))
