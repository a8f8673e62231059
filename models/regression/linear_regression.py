"""Linear regression: y | x ~ N(φ(x) β + b, σ²), exact under conjugate priors.

With the noise known (noise=0.5), both priors in the units of y:

    β ~ N(0, s² I),   b ~ N(0, c²)
    β | data ~ N(m, S),   S = (XᵀX/σ² + I/s²)⁻¹,   m = S Xᵀy/σ²
    y* | x* ~ N(x*ᵀm, σ² + x*ᵀS x*)

With the noise unknown (the default), normal–inverse-gamma, priors in units of the noise:

    σ² ~ InverseGamma(a₀, b₀),   β | σ² ~ N(0, s²σ² I),   b | σ² ~ N(0, c²σ²)
    σ² | data ~ InverseGamma(a₀ + n/2, b₀ + Q/2),   Q = min over β of |y − Xβ|² + |β|²/s²
    β | data, y* | x*:  Student t with 2a₀ + n degrees of freedom

The posterior, the predictive and log p(y | x) are those of probml.Exact(); no formula of this page
stands in the function. Other priors and engines are a setting: a Laplace prior and MAP is the
lasso, a normal one and MAP is ridge.

Sources: Murphy (2012), "Machine Learning: a Probabilistic Perspective", section 7.6; MacKay (1992),
"Bayesian interpolation"; Tipping (2001), "Sparse Bayesian learning and the relevance vector
machine"; Hoerl & Kennard (1970) for ridge; Tibshirani (1996) for the lasso.
"""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import deterministic, sample

import probml
from probml.errors import listed
from probml.models.summaries.former_names import INTERCEPT
from probml.models.summaries.regressions import regression_tables

PRIORS = {"normal": dist.Normal, "laplace": dist.Laplace}
SITES = ("shared", "each")  # of a weight_scale: one for all weights, or one for each


@probml.model
def linear_regression(
    x,
    outputs: int | None = None,
    basis=None,
    weight_scale=10.0,
    bias_scale=1000.0,
    noise=None,
    shape=0.5,
    rate=0.005,
    prior="normal",
):
    """Linear regression, or with a basis any curve: y ~ N(φ(x) β + b, σ²). Input `x` (n, d), site
    `y` in every row.

    Sites: `beta` (p,), p the columns of φ(x), by default d; `intercept` (); with the noise unknown
    `variance` (), σ². With outputs=m every output has its own weights and noise: `beta` (p, m),
    `intercept` (m,), `variance` (m,), and `y` is (n, m); a missing output is exact.

    A missing cell of x is refused: nothing says how x is distributed. In a function whose x is a
    site, it is.

    Args:
        outputs: None for one number a row, or m numbers.
        basis: φ, a function of x (n, d) → (n, p) in jax.numpy; None is x itself. See `polynomial`.
        weight_scale: s, prior standard deviation of a weight; in units of y per unit of φ where the
            noise is known, else in units of the noise. One number, (p,) or (p, m). "shared" or
            "each" makes it a site, `weight_scale` () or like beta, ~ HalfCauchy(1), in units of the
            noise: to be given in the data together with `variance` (then all is exact), or to be
                sampled.
        bias_scale: c, prior standard deviation of b, in the same units; 0 leaves the bias out.
        noise: σ, standard deviation of y given x, in its units; None: unknown.
        shape, rate: a₀ and b₀ of the noise's prior; they say as much as 2a₀ rows with a mean
            squared residual of b₀/a₀.
        prior: of the weights, "normal", or "laplace" of that scale: not conjugate, for samplers.
            For its mode see `lasso`.

    Raises:
        ModelError: weight_scale is a text other than "shared" and "each"; an unknown prior.
    """
    if prior not in PRIORS:
        raise probml.ModelError(f"linear_regression(prior={prior!r}): expected one of "
                                f"{listed(PRIORS)}")
    columns = x if basis is None else basis(x)
    event = () if outputs is None else (outputs,)
    size = (columns.shape[-1], *event)
    unit = 1.0
    if noise is None:
        variance = sample("variance", _vector(dist.InverseGamma(shape, rate), event))
        noise = unit = jnp.sqrt(variance)
    if isinstance(weight_scale, str):
        if weight_scale not in SITES:
            raise probml.ModelError(f"linear_regression(weight_scale={weight_scale!r}): expected "
                                    f"numbers, 'shared' or 'each'")
        weight_scale = sample("weight_scale",
                              _vector(dist.HalfCauchy(1.0), size if weight_scale == "each" else ()))
    else:
        weight_scale = _spread(weight_scale, size)
    beta = sample("beta",
                  PRIORS[prior](0.0, weight_scale * unit * jnp.ones(size)).to_event(len(size)))
    loc = columns @ beta
    if not (isinstance(bias_scale, float | int) and bias_scale == 0):
        loc += sample("intercept", _vector(dist.Normal(0.0, bias_scale * unit), event))
    with probml.rows():
        sample("y", dist.Normal(loc, noise).to_event(len(event)))


linear_regression.summarized(regression_tables)
linear_regression.renames(INTERCEPT)


@probml.model
def heteroscedastic_regression(x, weight_scale=10.0, bias_scale=1000.0, spread_scale=1.0,
                               level_scale=10.0):
    """A regression whose noise varies with x as well: y ~ N(x β + b, σ(x)²), log σ(x) = x γ + c.

    Nothing here is conjugate: MAP() finds the mode, NUTS() and Laplace() a posterior. Centre and
    scale the columns.

    Sites: `beta` (d,), `intercept` (), `gamma` (d,), `level` (), c; input `x` (n, d); in every row
    `y`.

    Args:
        weight_scale, bias_scale: prior standard deviations of β and b, in units of y.
        spread_scale: prior standard deviation of γ: 1 lets a step of 1 in x change the noise
            e-fold.
        level_scale: prior standard deviation of c, the log of the noise at x = 0.
    """
    d = x.shape[-1]
    beta = sample("beta", dist.Normal(0.0, weight_scale).expand([d]).to_event(1))
    bias = sample("intercept", dist.Normal(0.0, bias_scale))
    gamma = sample("gamma", dist.Normal(0.0, spread_scale).expand([d]).to_event(1))
    level = sample("level", dist.Normal(0.0, level_scale))
    with probml.rows():
        sample("y", dist.Normal(x @ beta + bias, jnp.exp(x @ gamma + level)))


heteroscedastic_regression.renames(INTERCEPT)


@probml.model
def ridge(x, penalty=1.0, bias_scale=1e6, noise=1.0):
    """Ridge regression: MAP (or the mean of Exact) minimises |y − xβ − b|² + penalty · |β|² (Hoerl
    & Kennard 1970).

    β ~ N(0, σ²/penalty), so that the minimum does not depend on the noise σ, which sets the width
    of the posterior.

    Sites: `beta` (d,), `intercept` (); input `x` (n, d); in every row `y`. The intercept is as good
    as free.
    """
    beta = sample("beta", dist.Normal(0.0, noise / penalty**0.5).expand([x.shape[-1]]).to_event(1))
    bias = sample("intercept", dist.Normal(0.0, bias_scale))
    with probml.rows():
        sample("y", dist.Normal(x @ beta + bias, noise))


ridge.summarized(regression_tables)
ridge.renames(INTERCEPT)


@probml.model
def lasso(x, penalty=1.0, bias_scale=1e6, noise=1.0):
    """The lasso: MAP minimises ½|y − xβ − b|² + penalty · Σ|β_j|, penalty = n · scikit-learn's
    alpha (Tibshirani 1996).

    β = left · right, column by column, with two normals for each weight: −log of their density,
    penalty · (left² + right²)/2, is least for a given β where it is penalty · |β|, so that their
    mode is the mode under β ~ Laplace(σ²/penalty), without its kink at 0, and weights that are 0
    come out as 0 (Hoff 2017, "Lasso, fractional norm and structured sparsity estimation using a
    Hadamard product parametrization"). Away from the mode the two priors differ: for a posterior
    take linear_regression(prior="laplace").

    Sites: `left` and `right` (d,), `intercept` (); computed: `beta` (d,); input `x` (n, d); in
        every row `y`. The intercept is as good as free.
    """
    prior = dist.Normal(0.0, noise / penalty**0.5).expand([x.shape[-1]]).to_event(1)
    beta = deterministic("beta", sample("left", prior) * sample("right", prior))
    bias = sample("intercept", dist.Normal(0.0, bias_scale))
    with probml.rows():
        sample("y", dist.Normal(x @ beta + bias, noise))


lasso.summarized(regression_tables)
lasso.renames(INTERCEPT)


class polynomial:  # a function with a setting, as functools.partial, but equal by value
    """φ(x) = (x, x², …, x^degree), column by column: a basis for linear_regression. Centre and
    scale x for high degrees."""

    def __init__(self, degree: int):
        if not isinstance(degree, int) or degree < 1:
            raise probml.ModelError(f"polynomial(degree={degree!r}): expected an integer of at "
                                    f"least 1")
        self.degree = degree

    def __call__(self, x):
        xp = jnp if not isinstance(x, np.ndarray) else np
        return xp.concatenate([x**i for i in range(1, self.degree + 1)], -1)

    def __eq__(self, other):
        return isinstance(other, polynomial) and other.degree == self.degree

    def __hash__(self):
        return hash((polynomial, self.degree))

    def __repr__(self):
        return f"polynomial({self.degree})"


def _vector(distribution, size):
    return distribution.expand(size).to_event(len(size)) if size else distribution


def _spread(scale, size):
    """Prior scales of the weights; (p,) is for every output."""
    scale = jnp.asarray(scale, float)
    return scale[:, None] if scale.ndim == 1 and len(size) == 2 else scale
