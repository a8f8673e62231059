"""Survival regression: times until an event, some of which are known only to be later than a time,
or between two.

    log T = x β + b + scale · ε

| distribution of T | ε | scale |
|---|---|---|
| weibull | the logarithm of an Exponential(1) variable | estimated; Weibull's shape is 1/scale |
| exponential | the same | 1 |
| lognormal | Normal(0, 1) | estimated |
| loglogistic | Logistic(0, 1) | estimated |

exp(β_j) is the factor by which a unit of x_j prolongs every quantile of T: an accelerated failure
time model, in the parameters of R's survreg.

Source: Kalbfleisch & Prentice (2002), "The statistical analysis of failure time data", chapter 3;
Therneau (2024), R package survival.
"""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import log_ndtr
from numpyro import sample
from numpyro.distributions import constraints

import probml
from probml.errors import listed
from probml.models.regression.generalized_linear import linear_predictor
from probml.models.summaries.former_names import INTERCEPT
from probml.models.summaries.regressions import regression_tables

EXACT, RIGHT, LEFT, INTERVAL = range(4)
ERRORS = {  # ε → (log density, log P(ε > w), log P(ε ≤ w), its quantile)
    "extreme": (lambda w: w - jnp.exp(w), lambda w: -jnp.exp(w),
                lambda w: jnp.log(-jnp.expm1(-jnp.exp(w))), lambda q: jnp.log(-jnp.log1p(-q))),
    "normal": (dist.Normal().log_prob, lambda w: log_ndtr(-w), log_ndtr,
               jax.scipy.special.ndtri),
    "logistic": (dist.Logistic().log_prob, lambda w: jax.nn.log_sigmoid(-w), jax.nn.log_sigmoid,
                 lambda q: jnp.log(q) - jnp.log1p(-q)),
}
DISTRIBUTIONS = {"weibull": "extreme", "exponential": "extreme", "lognormal": "normal",
                 "loglogistic": "logistic"}
"""Distribution of T → that of ε."""


class CensoredLogTime(dist.Distribution):
    """The logarithm of a time, or what is known of it.

    Args:
        errors: a key of ERRORS. loc, scale: of the logarithm.
        kind: 0: the value is the logarithm itself; 1: it is above the value; 2: below `upper`; 3:
            between both.
        upper: of the logarithm.
    """

    support = constraints.real
    pytree_data_fields = ("loc", "scale", "kind", "upper")
    pytree_aux_fields = ("errors",)

    def __init__(self, errors, loc, scale, kind, upper, *, validate_args=None):
        self.errors = errors
        shape = jnp.broadcast_shapes(*map(jnp.shape, (loc, scale, kind, upper)))
        self.loc, self.scale, self.kind, self.upper = (
            jnp.broadcast_to(value, shape) for value in (loc, scale, kind, upper))
        super().__init__(shape, validate_args=validate_args)

    def log_prob(self, value):
        log_pdf, log_sf, log_cdf, _ = ERRORS[self.errors]
        low, high = (value - self.loc) / self.scale, (self.upper - self.loc) / self.scale
        # in branches that are not taken a value at which all derivatives are finite
        is_interval = self.kind == INTERVAL
        z_low, z_high = jnp.where(is_interval, low, 0.0), jnp.where(is_interval, high, 1.0)
        gap = jnp.minimum(log_sf(z_high) - log_sf(z_low), -1e-30)
        between = log_sf(z_low) + jnp.log(-jnp.expm1(gap))
        return jnp.select(
            [self.kind == EXACT, self.kind == RIGHT, self.kind == LEFT],
            [log_pdf(low) - jnp.log(self.scale), log_sf(low),
             log_cdf(jnp.where(self.kind == LEFT, high, 0.0))], between)

    def sample(self, key, sample_shape=()):
        shape = (*sample_shape, *self.batch_shape)
        share = jax.random.uniform(key, shape, minval=1e-7, maxval=1 - 1e-7)
        return self.loc + self.scale * ERRORS[self.errors][3](share)


@probml.model
def survival_regression(x, kind, upper, distribution="weibull", weight_scale=None, bias_scale=None,
                        noise_scale=1.0):
    """Times until an event. Inputs `x` (n, d), `kind` (n,) and `upper` (n,), the logarithm of the
    later time, of CensoredLogTime; site `y` in every row, the logarithm of the time, or of the
    earlier one; sites `beta` (d,), `intercept` (), and `scale`, but of the exponential.

    Args:
        distribution: "weibull", "exponential", "lognormal" or "loglogistic".
        weight_scale, bias_scale: prior standard deviations, as in logistic_regression.
        noise_scale: mean of the exponential prior of `scale`.

    Raises:
        ModelError: an unknown distribution.
    """
    if distribution not in DISTRIBUTIONS:
        raise probml.ModelError(f"distribution={distribution!r}: expected one of "
                                f"{listed(DISTRIBUTIONS)}")
    eta = linear_predictor(x, (), weight_scale, bias_scale)
    scale = (1.0 if distribution == "exponential"
             else sample("scale", dist.Exponential(1 / noise_scale)))
    with probml.rows():
        sample("y", CensoredLogTime(DISTRIBUTIONS[distribution], eta, scale, kind, upper))


survival_regression.summarized(regression_tables)
survival_regression.renames(INTERCEPT)
