"""The inverse-gamma form: objectives in a variance; conjugate priors InverseGamma (variance), Gamma
and Exponential (precision, rate)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import digamma, gammaln, xlogy

from probml.families import domains
from probml.families import form as links
from probml.families.form import Form, Natural, Prior, Steps
from probml.families.likelihood import Entry
from probml.families.log_linear import inexact, log_gamma, log_less_digamma


def two_point_factors(gap: jax.Array):
    """exp(gap ± t) with cosh t = exp(gap), (2, ...): two factors whose logarithms have the mean gap
    and whose inverses have the mean 1."""
    capped = jnp.minimum(gap, 20.0)
    t = jnp.where(gap > 20.0, gap + jnp.log(2.0),
                  jnp.log1p(jnp.expm1(capped) + jnp.sqrt(jnp.expm1(2 * capped))))
    return jnp.exp(jnp.stack([gap + t, gap - t]))


class InverseGamma(Form):
    """Q(c) = −A log c − B/c + constant, elementwise in a variance-like quantity c > 0, such as
    1/rate.

    With s(c) = c Q'(c) = −A + B/c, the gradients at c and far above it give both: there only −A is
    left. At the mode c = B/A neither suffers cancellation, which is why the engines read twice.
    """

    name = "inverse_gamma"
    domain = domains.POSITIVE
    keys = ("A", "B")
    scaled = scale = True

    def allows(self, steps: Steps):
        return all(step in ("power", "exp") for step, _ in steps)

    def readable(self, value: jax.Array):
        """A rate or a variance of 0 is no place to read from."""
        return value > 0

    def points(self, c: jax.Array, event: int):
        """c, and c times a power of two; a rate of 0 is read at the largest c whose square is a
        number."""
        double = c.dtype == jnp.float64
        c = jnp.minimum(c, 1e140 if double else 1e15)
        return jnp.stack([c, c * 2.0 ** (20 if double else 8)])

    def read(self, points: jax.Array, gradients: jax.Array, event: int):
        """A and B; what rounding may have made of an A of nothing is 0 (no counts at all), and B is
        no less than it can hide."""
        c, k = points[0], points[1] / points[0]
        at_c, at_far = points * gradients
        eps = jnp.finfo(c.dtype).eps
        a = (at_c - k * at_far) / (k - 1)
        a = jnp.where(jnp.abs(a) <= 32 * eps * jnp.abs(at_c) / k, 0.0, a)
        return {"A": a,
                "B": jnp.maximum(c * (at_c - at_far) * k / (k - 1), eps * jnp.maximum(a, 0.0) * c)}

    def value(self, natural: Natural, c: jax.Array, event: int):
        """Q(c) up to a constant."""
        return self.value_from(natural, c, (), event)

    def value_from(self, natural: Natural, parameter: jax.Array, steps: Steps, event: int):
        """Q at the c to which steps map a parameter, by log c and in units of c itself: the
        curvature of B/c has c³, which float32 does not hold from c = 10¹³ on nor below 10⁻¹³."""
        log = links.logarithm(parameter, steps)
        unit, log_const = jax.lax.stop_gradient((links.forward(parameter, steps), log))
        return -jnp.sum(natural["A"] * log + natural["B"] / unit * jnp.exp(log_const - log))

    def mode(self, natural: Natural, fallback: jax.Array, event: int):
        """B/A; infinite where A vanishes (no counts: a rate of 0), the present value where nothing
        was seen."""
        a, b = natural["A"], natural["B"]
        has_counts = (a > 0) | (a != a)  # a broken reading is NaN and must show
        return jnp.where(has_counts, b / jnp.where(has_counts, a, 1.0),
                         jnp.where((a == 0) & (b > 0), jnp.inf, fallback))

    def onward(self, natural: Natural, c: jax.Array, event: int):
        """Where to read next: at the mode, or where A went lost beside B/c, as far above c as would
        just have shown it."""
        _, far_c = self.points(c, event)
        lost = (natural["A"] == 0) & (natural["B"] > 0)
        return jnp.where(lost, far_c / (32 * jnp.finfo(c.dtype).eps), self.mode(natural, c, event))

    def copied_posterior(self, natural: Natural, prior: Prior,
                         move: Callable[[jax.Array], jax.Array]):
        """Arguments of a likelihood's predictive for c ~ InverseGamma(shape, scale).

        Args:
            move: values of the parameter's c → those of the argument's c, the same up to constant
                factors.
        """
        shape = prior.shape(natural)
        return {"shape": move(shape) / move(jnp.ones_like(shape)), "scale": move(natural["B"])}

    def expectation(self, natural: Natural, prior: Prior):
        """E[log c] and E[1/c] of InverseGamma(a, B)."""
        shape = prior.shape(natural)
        return {"log": jnp.log(natural["B"]) - digamma(shape), "inverse": shape / natural["B"]}

    def nodes(self, natural: Natural, prior: Prior):
        """Two c, as far above exp E log c as below: cosh of that is E[1/c] exp E log c ≥ 1."""
        gap = log_less_digamma(prior.shape(natural))
        return self.middle(natural, prior) * two_point_factors(gap)

    def middle(self, natural: Natural, prior: Prior):
        """1 / E[1/c]."""
        return natural["B"] / prior.shape(natural)

    def student(self, natural: Natural, prior: Prior, present: jax.Array):
        shape = prior.shape(natural)
        return 2 * shape, natural["B"] / (shape * present)

    def integrated(self, natural: Natural, slope: jax.Array):
        return {"A": natural["A"] + slope, "B": natural["B"]}


INVERSE_GAMMA = InverseGamma()


class InverseGammaPrior(Prior):
    """InverseGamma(a, b) on c: log density −(a+1) log c − b/c."""

    form = INVERSE_GAMMA

    def shape(self, natural: Natural):
        """The shape a of the posterior, c ~ InverseGamma(a, B)."""
        return natural["A"] - 1.0

    def posterior(self, natural: Natural, event: int):
        return dist.InverseGamma(self.shape(natural), natural["B"])


class GammaPrior(Prior):
    """Gamma(a, b) on a precision or rate t = 1/c: log density (a−1) log t − b t. The mode is the
    one in t; where a is below 1 the density has no maximum and is maximised in log t."""

    form = INVERSE_GAMMA
    steps = (("power", -1.0),)
    coordinate = "log coordinate"

    def __init__(self, *concentrations: str):
        self.concentrations = concentrations

    def shape(self, natural: Natural):
        """The shape a of the posterior, c ~ InverseGamma(a, B)."""
        return natural["A"] + 1.0

    def posterior(self, natural: Natural, event: int):
        return dist.Gamma(self.shape(natural), natural["B"])

    def log_density(self, distribution: dist.Distribution, value: jax.Array, mode: bool):
        """The log density; with `mode`, in the coordinate in which it is maximised."""
        a, rate = jnp.asarray(getattr(distribution, "concentration", 1.0)), distribution.rate
        shift = jnp.where(a < 1, 0.0, 1.0) if mode else 1.0
        log = xlogy(a - shift, value) - rate * value + a * jnp.log(rate) - gammaln(a)
        return jnp.where(value >= 0, log, -jnp.inf)


def of_variances(distribution: dist.Distribution, value: jax.Array):
    """log p of an InverseGamma, to the last digits at large concentrations."""
    positive = jnp.where(value > 0, value, 1.0)
    a, rate = inexact(distribution.concentration, distribution.rate)
    log = log_gamma(a, rate / positive, jnp.log(rate) - jnp.log(positive)) - jnp.log(positive)
    return jnp.where(value > 0, log, -jnp.inf)


ENTRIES = (Entry((dist.InverseGamma,), prior=InverseGammaPrior(), log_prob=of_variances),)
