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
| student_t | a number, with outliers | identity | σ² df / (df − 2) |
| beta | a share between 0 and 1 | logit | μ(1 − μ) / (1 + `concentration`) |
| zero_inflated_poisson | a count, or a 0 of another kind | log | (1 − π)(μ + π μ²) |
| zero_inflated_negative_binomial | the same | log | (1 − π)μ(1 + μ(π + 1/`concentration`)) |
| hurdle_poisson | 0, or a count from 1 on | log | of a Poisson above 0, with probability 1 − π |

μ of the last three is that of the Poisson or negative binomial before zeros are added or replaced;
π is `zero_probability`, the same in every row; zero-inflated counts have the mean (1 − π)μ.

Logistic and softmax regression, = maximum entropy with features x (Berger, Della Pietra & Della
Pietra 1996), are the first two. A prior sd s is the ridge penalty |β|²/(2s²), C = s² of
scikit-learn. `MAP()` takes Newton's steps, `Laplace()` and `NUTS()` a posterior.

Sources: Nelder & Wedderburn (1972), "Generalized linear models"; McCullagh & Nelder (1989); Cox
    (1958) for logistic regression; Lambert (1992), "Zero-inflated Poisson regression"; Mullahy
    (1986), "Specification and testing of some modified count data models"; Ferrari & Cribari-Neto
    (2004), "Beta regression for modelling rates and proportions".

Robust regression: y | x ~ Student t(df, x β + b, σ), whose tails let outliers be.

EM takes t noise as normal noise whose precision differs from row to row; what is seen of a row says
how much it weighs,

    w_i = (df + 1) / (df + ((y_i − x_i β − b)/σ)²)

and the next β, b, σ² are those of least squares with these weights. Any function with a
dist.StudentT site inside rows() is treated so, mixtures of them and missing cells too.

Sources: Dempster, Laird & Rubin (1980), "Iteratively reweighted least squares for linear regression
when errors are normal/independent"; Lange, Little & Taylor (1989), "Robust statistical modeling
using the t distribution".
"""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import sample
from numpyro.distributions import constraints

import probml
from probml.errors import listed
from probml.models.summaries.former_names import INTERCEPT, REGRESSION
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
    "student_t": "identity",
    "beta": "logit",
    "zero_inflated_poisson": "log",
    "zero_inflated_negative_binomial": "log",
    "hurdle_poisson": "log",
}
"""Family → its default link."""
ALIASES = {
    "gaussian": "normal", "Gamma": "gamma", "negative_binomial": "negative binomial",
    "hurdle": "hurdle_poisson",
}
"""The name of a family elsewhere, as in R → its name here."""
CONCENTRATED = ("gamma", "negative binomial", "beta", "zero_inflated_negative_binomial")
REAL = ("normal", "student_t")  # y is any number, with a level and a unit of its own
ZEROS = ("zero_inflated_poisson", "zero_inflated_negative_binomial", "hurdle_poisson")


class HurdlePoisson(dist.Distribution):
    """A count: 0 with a probability, else a Poisson variable given that it is above 0.

    Args:
        zero_probability: of 0. rate: of the Poisson variable.
    """

    arg_constraints = {"zero_probability": constraints.unit_interval, "rate": constraints.positive}
    support = constraints.nonnegative_integer
    pytree_data_fields = ("zero_probability", "rate")

    def __init__(self, zero_probability, rate, *, validate_args=None):
        shape = jnp.broadcast_shapes(jnp.shape(zero_probability), jnp.shape(rate))
        self.zero_probability = jnp.broadcast_to(zero_probability, shape)
        self.rate = jnp.broadcast_to(rate, shape)
        super().__init__(shape, validate_args=validate_args)

    def log_prob(self, value):
        count = jnp.maximum(value, 1)
        above = (jnp.log1p(-self.zero_probability) + dist.Poisson(self.rate).log_prob(count)
                 - jnp.log(-jnp.expm1(-self.rate)))
        return jnp.where(value == 0, jnp.log(self.zero_probability), above)

    def sample(self, key, sample_shape=()):
        zero_key, time_key, rest_key = jax.random.split(key, 3)
        shape = (*sample_shape, *self.batch_shape)
        # the first event of the process before time 1, then a Poisson variable of the time left
        share = jax.random.uniform(time_key, shape) * -jnp.expm1(-self.rate)
        count = 1 + jax.random.poisson(rest_key, self.rate + jnp.log1p(-share), shape)
        return jnp.where(jax.random.uniform(zero_key, shape) < self.zero_probability, 0, count)

    @property
    def mean(self):
        return (1 - self.zero_probability) * self.rate / -jnp.expm1(-self.rate)

    @property
    def variance(self):
        square = (1 - self.zero_probability) * (self.rate + self.rate**2) / -jnp.expm1(-self.rate)
        return square - self.mean**2


@probml.model
def logistic_regression(x, weight_scale=1.0, bias_scale=10.0):
    """Two classes: y ~ Bernoulli(logits = x β + b). Input `x` (n, d), site `y` in every row; sites
    `beta` (d,), `intercept` ().

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
logistic_regression.renames(INTERCEPT)


@probml.model
def softmax_regression(x, states, weight_scale=1.0, bias_scale=10.0):
    """Several classes: y ~ Categorical(logits = x β + b), `beta` (d, states), `intercept`
    (states,); else as logistic_regression.

    All states have weights, so that none is special; a prior decides what the data cannot, a number
    common to all states.
    """
    logits = linear_predictor(x, (states,), weight_scale, bias_scale)
    with probml.rows():
        sample("y", dist.Categorical(logits=logits))


softmax_regression.summarized(regression_tables)
softmax_regression.renames(INTERCEPT)
softmax_regression.identifies(lambda parameters: {  # differences between classes
    name: parameters[name] - jnp.mean(parameters[name], -1, keepdims=True)
    for name in ("intercept", "beta") if name in parameters})


@probml.model
def generalized_linear(
    x, offset, trials, family="poisson", link=None, weight_scale=None, bias_scale=None, noise=None,
    concentration=None, noise_scale=None, concentration_scale=100.0
):
    """y of any family of this page. Inputs `x` (n, d), `offset` (n,), `trials` (n,), site `y` in
    every row; sites `beta` (d,), `intercept` ().

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
        concentration: of gamma, negative binomial and beta; None: a site `concentration`,
            exponential with the mean concentration_scale.
        noise_scale: a number: σ is a site `sigma`, exponential with this mean, and weight_scale is
            in units of y. That of student_t is always such a site, its mean 1 where none is given;
            df is a site `df` ~ Gamma(2, 0.1), and π a uniform site `zero_probability`.

    Raises:
        ModelError: an unknown family or link.
    """
    unit = 1.0
    if family in REAL and noise is None:
        if noise_scale is None and family == "normal":
            noise = unit = jnp.sqrt(sample("variance", dist.InverseGamma(0.5, 0.005)))
        else:
            noise = sample("sigma", dist.Exponential(1 / (noise_scale or 1.0)))
    eta = linear_predictor(x, (), weight_scale, bias_scale, unit) + offset
    y_dist = family_of(eta, trials, family, link, noise, concentration, concentration_scale)
    with probml.rows():
        sample("y", y_dist)


generalized_linear.summarized(regression_tables)
generalized_linear.renames(REGRESSION)


def family_of(eta, trials, family, link=None, noise=None, concentration=None,
              concentration_scale=100.0):
    """The distribution of y, of a family whose mean is the link's inverse of eta; arguments as of
    generalized_linear, outside rows().

    Raises:
        ModelError: an unknown family or link.
    """
    if family not in FAMILIES:
        raise probml.ModelError(f"family={family!r}: expected one of {listed(FAMILIES)}")
    link = FAMILIES[family] if link is None else link
    if link not in LINKS:
        raise probml.ModelError(f"link={link!r}: expected one of {listed(LINKS)}")
    mean = LINKS[link](eta)
    if family in CONCENTRATED and concentration is None:
        concentration = sample("concentration", dist.Gamma(1.0, 1 / concentration_scale))
    zero = sample("zero_probability", dist.Beta(1.0, 1.0)) if family in ZEROS else None
    df = sample("df", dist.Gamma(2.0, 0.1)) if family == "student_t" else None
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
        "student_t": lambda: dist.StudentT(df, mean, noise),
        "beta": lambda: dist.Beta(mean * concentration, (1 - mean) * concentration),
        "zero_inflated_poisson": lambda: dist.ZeroInflatedPoisson(zero, mean),
        "zero_inflated_negative_binomial": lambda: dist.ZeroInflatedDistribution(
            dist.NegativeBinomial2(mean, concentration), gate=zero),
        "hurdle_poisson": lambda: HurdlePoisson(zero, mean),
    }  # fmt: skip
    return makers[family]()


def linear_predictor(x, event: tuple[int, ...], weight_scale, bias_scale, unit=1.0):
    """x β + b with their priors as sites `beta` (d, *event) and `intercept` event; see
    logistic_regression. `unit`: in which weight_scale is. x None: b alone."""
    if x is None:
        return sample("intercept", _prior(bias_scale, event))
    d = x.shape[-1]
    if isinstance(weight_scale, str):
        if weight_scale != "each":
            raise probml.ModelError(f"weight_scale={weight_scale!r}: expected prior standard "
                                    f"deviations, None for flat priors, or 'each'")
        weight_scale = sample("weight_scale", dist.HalfCauchy(1.0).expand([d]).to_event(1))
    weight_scale = None if weight_scale is None else weight_scale * unit
    beta = sample("beta", _prior(weight_scale, (d, *event)))
    if isinstance(bias_scale, float | int) and bias_scale == 0:
        return x @ beta
    return x @ beta + sample("intercept", _prior(bias_scale, event))


def _prior(scale, shape: tuple[int, ...]):
    if scale is None:
        return dist.ImproperUniform(constraints.real, (), shape) if shape else dist.ImproperUniform(
            constraints.real, (), ()
        )
    sds = jnp.reshape(jnp.asarray(scale, float),
                      (-1, *(1,) * (len(shape) - 1))) if jnp.ndim(scale) else scale
    return (dist.Normal(0.0, sds * jnp.ones(shape)).to_event(len(shape))
            if shape else dist.Normal(0.0, scale))


@probml.model
def robust_regression(x, df=4.0, weight_scale=10.0, bias_scale=1000.0, shape=0.5, rate=0.005):
    """Linear regression with Student's t noise. Input `x` (n, d), site `y`; sites `beta` (d,),
    `intercept` (), `variance` (), σ², and `df` if unknown.

    Args:
        df: degrees of freedom; None: a site ~ Gamma(2, 0.1) (Juárez & Steel 2010).
        weight_scale, bias_scale: prior standard deviations in units of y, as in
            logistic_regression.
        shape, rate: of the InverseGamma prior of σ².
    """
    loc = linear_predictor(x, (), weight_scale, bias_scale)
    variance = sample("variance", dist.InverseGamma(shape, rate))
    if df is None:
        df = sample("df", dist.Gamma(2.0, 0.1))
    with probml.rows():
        sample("y", dist.StudentT(df, loc, jnp.sqrt(variance)))


robust_regression.summarized(regression_tables)
robust_regression.renames(INTERCEPT)
