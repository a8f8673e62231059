"""Regressions and one-level models as users paste them, from the Stan User's Guide, NumPyro's
examples and textbooks."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from numpyro import deterministic, factor, plate, sample

import probml
from user_truth import Case


@probml.model
def simplex_regression(x):
    w = sample("w", dist.Dirichlet(jnp.full(3, 1.5)))
    sigma = sample("sigma", dist.HalfNormal(1.0))
    with probml.rows():
        sample("y", dist.Normal(x @ w, sigma))


def blends(rng):
    x = rng.normal(size=(50, 3))
    return {"x": x, "y": x @ [0.2, 0.5, 0.3] + 0.3 * rng.normal(size=50)}


@probml.model
def dirichlet_regression(x):
    b = sample("b", dist.Normal(0, 1).expand([3, 2]).to_event(2))
    with probml.rows():
        sample("shares", dist.Dirichlet(jnp.exp(b[:, 0] + x[..., None] * b[:, 1])))


def compositions(rng):
    x = rng.normal(size=40)
    concentration = np.exp(np.array([1.0, 0.5, 1.5]) + x[:, None] * np.array([0.5, 0.0, -0.5]))
    return {"x": x, "shares": np.stack([rng.dirichlet(c) for c in concentration])}


@probml.model
def seemingly_unrelated(x):
    beta = sample("beta", dist.Normal(0, 3).expand([2, 2]).to_event(2))
    spread = sample("spread", dist.HalfNormal(2.0).expand([2]).to_event(1))
    corr = sample("corr", dist.LKJCholesky(2, 2.0))
    with probml.rows():
        sample("y", dist.MultivariateNormal(x @ beta, scale_tril=spread[:, None] * corr))


def outcomes(rng):
    x = np.stack([np.ones(60), rng.normal(size=60)], 1)
    return {"x": x, "y": x @ [[1.0, -1.0], [0.5, 2.0]]
            + rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], 60)}


@probml.model
def measurement_error(w):
    mu, spread = sample("mu", dist.Normal(0, 2)), sample("spread", dist.HalfNormal(2))
    a, b, sigma = (sample("a", dist.Normal(0, 2)), sample("b", dist.Normal(0, 2)),
                   sample("sigma", dist.HalfNormal(1)))
    with probml.rows():
        x = sample("x", dist.Normal(mu, spread))
        sample("measured", dist.Normal(x, w))
        sample("y", dist.Normal(a + b * x, sigma))


def measured(rng):
    x = rng.normal(1, 1, 50)
    w = rng.uniform(0.2, 0.5, 50)
    return {"w": w, "x": x, "measured": x + w * rng.normal(size=50),
            "y": 1 - x + 0.3 * rng.normal(size=50)}


@probml.model
def lasso_by_factor(x):
    b = sample("b", dist.ImproperUniform(dist.constraints.real_vector, (), (3,)))
    factor("l1", -4.0 * jnp.abs(b).sum())
    with probml.rows():
        sample("y", dist.Normal(x @ b, 1.0))


@probml.model
def ridge_by_factor(x):
    b = sample("b", dist.ImproperUniform(dist.constraints.real_vector, (), (3,)))
    factor("l2", -2.0 * jnp.square(b).sum())
    with probml.rows():
        sample("y", dist.Normal(x @ b, 1.0))


@probml.model
def multinomial_logistic(x):
    b = sample("b", dist.Normal(0, 2).expand([2, 3]).to_event(2))
    with probml.rows():
        sample("choice", dist.Categorical(
            logits=jnp.concatenate([jnp.zeros((*x.shape[:-1], 1)), x @ b.T], -1)
        ))


@probml.model
def heteroscedastic(x):
    b = sample("b", dist.Normal(0, 3).expand([2]).to_event(1))
    c = sample("c", dist.Normal(0, 1).expand([2]).to_event(1))
    with probml.rows():
        mean = deterministic("mean", b[0] + b[1] * x)
        sample("y", dist.Normal(mean, jnp.exp(c[0] + c[1] * x)))


def widening(rng):
    x = rng.normal(size=80)
    return {"x": x, "y": 1 + x + np.exp(-0.5 + 0.4 * x) * rng.normal(size=80)}


@probml.model
def michaelis_menten(s):
    vmax, km = sample("vmax", dist.LogNormal(5, 1)), sample("km", dist.LogNormal(-2, 1))
    sigma = sample("sigma", dist.HalfNormal(20))
    with probml.rows():
        sample("rate", dist.Normal(vmax * s / (km + s), sigma))


def puromycin(rng):  # Bates & Watts 1988
    s = [0.02, 0.02, 0.06, 0.06, 0.11, 0.11, 0.22, 0.22, 0.56, 0.56, 1.1, 1.1]
    return {"s": s, "rate": [76.0, 47, 97, 107, 123, 139, 159, 152, 191, 201, 207, 200]}


@probml.model
def strange_names(x):
    a = sample("β 0", dist.Normal(0, 1))
    b = sample("lambda", dist.Normal(0, 1))
    c = sample("a.b/c[0]", dist.HalfNormal(1))
    with probml.rows():
        sample("y (log)", dist.Normal(a + b * x, c))


def named(rng):
    x = rng.normal(size=40)
    return {"x": x, "y (log)": 0.5 + 0.5 * x + 0.4 * rng.normal(size=40)}


@probml.model
def logistic(x):
    a, b = sample("a", dist.Normal(0, 2)), sample("b", dist.Normal(0, 2))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=a + b * x))


def switches(rng):
    x = rng.integers(-4, 6, 50) / 2.0 + 0.25
    return {"x": x, "y": rng.random(50) < 1 / (1 + np.exp(-x))}


def frame_with_nulls(rng):
    data = switches(rng)
    y = pd.array(data["y"].astype(object), dtype="boolean")
    y[3] = pd.NA
    return pd.DataFrame({"x": data["x"], "y": y})


@probml.model
def probit(x):
    a, b = sample("a", dist.Normal(0, 2)), sample("b", dist.Normal(0, 2))
    with probml.rows():
        sample("y", dist.Bernoulli(probs=jax.scipy.stats.norm.cdf(a + b * x)))


@probml.model
def far_away():
    mu = sample("mu", dist.Normal(0.0, 1e7))
    sigma = sample("sigma", dist.HalfCauchy(5.0))
    with probml.rows():
        sample("y", dist.Normal(mu, sigma))


@probml.model
def by_year(year):
    a, b = sample("a", dist.Normal(0, 1e4)), sample("b", dist.Normal(0, 100))
    sigma = sample("sigma", dist.HalfNormal(10))
    with probml.rows():
        sample("y", dist.Normal(a + b * year, sigma))


def years(rng):
    year = np.arange(1980, 2020)
    return {"year": year, "y": 0.5 * (year - 2000) + rng.normal(size=40)}


@probml.model
def year_poisson(year):
    a, b = sample("a", dist.Normal(0, 100)), sample("b", dist.Normal(0, 1))
    with probml.rows():
        sample("y", dist.Poisson(jnp.exp(a + b * year)))


@probml.model
def quantile_regression(x):
    a, b, scale = (sample("a", dist.Normal(0, 3)), sample("b", dist.Normal(0, 3)),
                   sample("scale", dist.HalfNormal(1)))
    with probml.rows():
        sample("y", dist.AsymmetricLaplaceQuantile(a + b * x, scale, 0.75))


@probml.model
def beta_binomial(total):
    mean, spread = sample("mean", dist.Beta(2, 2)), sample("spread", dist.Gamma(2.0, 0.1))
    with probml.rows():
        sample("hits", dist.BetaBinomial(mean * spread, (1 - mean) * spread, total))


def hits(rng):
    total = rng.integers(5, 30, 40)
    return {"total": total, "hits": rng.binomial(total, rng.beta(3, 7, 40))}


@probml.model
def von_mises(x):
    mu, b = sample("mu", dist.VonMises(0.0, 0.5)), sample("b", dist.Normal(0, 1))
    kappa = sample("kappa", dist.Gamma(2.0, 0.5))
    with probml.rows():
        sample("angle", dist.VonMises(mu + 2 * jnp.arctan(b * x), kappa))


def angles(rng):
    x = rng.normal(size=60)
    return {"x": x, "angle": (0.5 + 2 * np.arctan(0.5 * x) + rng.vonmises(0, 6, 60) + np.pi)
            % (2 * np.pi) - np.pi}


@probml.model
def joint_outcomes(x):
    """Two likelihoods of different kinds that share a coefficient."""
    b = sample("b", dist.Normal(0, 1))
    a = sample("a", dist.Normal(0, 1).expand([2]).to_event(1))
    sigma = sample("sigma", dist.InverseGamma(3.0, 2.0))
    with probml.rows():
        sample("count", dist.Poisson(jnp.exp(a[0] + b * x)))
        sample("size", dist.Normal(a[1] + b * x, sigma))


def joined(rng):
    x = rng.normal(size=50)
    return {"x": x, "count": rng.poisson(np.exp(1 + 0.6 * x)),
            "size": 0.6 * x + 0.5 * rng.normal(size=50)}


@probml.model
def normal_inverse_gamma():
    variance = sample("variance", dist.InverseGamma(3.0, 2.0))
    mu = sample("mu", dist.Normal(1.0, jnp.sqrt(variance / 0.5)))
    with probml.rows():
        sample("y", dist.Normal(mu, jnp.sqrt(variance)))


@probml.model
def anova(group):
    with plate("groups", 3):
        mean = sample("mean", dist.Normal(0, 5))
        sigma = sample("sigma", dist.Exponential(1.0))
    with probml.rows():
        sample("y", dist.Normal(mean[group], sigma[group]))


def groups(rng):
    group = np.repeat(np.arange(3), 15)
    return {"group": group, "y": np.array([0.0, 1.0, 3.0])[group] + np.array([0.5, 1.0, 1.5])[group]
            * rng.normal(size=45)}


@probml.model
def splines(x):
    """Radial basis functions with a fixed penalty; the curve is a deterministic site."""
    w = sample("w", dist.Normal(0, 1).expand([5]).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(1))
    with probml.rows():
        curve = deterministic("curve",
                              jnp.exp(-jnp.square(x[..., None] - jnp.linspace(-2, 2, 5))) @ w)
        sample("y", dist.Normal(curve, sigma))


@probml.model
def curve_by_position(grid, position):
    """A Gaussian process whose covariance is of inputs outside rows; rows look at it by their
    position."""
    grid = jnp.asarray(grid)
    length, height = sample("length", dist.InverseGamma(5.0, 5.0)), sample("height",
                                                                           dist.HalfNormal(1.0))
    cov = height**2 * jnp.exp(-0.5 * jnp.square((grid[:, None] - grid) / length)) + 1e-6 * jnp.eye(
        len(grid)
    )
    z = sample("z", dist.Normal(0, 1).expand([len(grid)]).to_event(1))
    f = deterministic("f", jnp.linalg.cholesky(cov) @ z)
    with probml.rows():
        sample("y", dist.Normal(f[position], 0.3))


@probml.model
def curve_as_a_row(x):
    length, height = sample("length", dist.InverseGamma(5.0, 5.0)), sample("height",
                                                                           dist.HalfNormal(1.0))
    noise = sample("noise", dist.HalfNormal(0.5))
    with probml.rows():
        square = jnp.square(x[..., :, None] - x[..., None, :])
        cov = height**2 * jnp.exp(-0.5 * square / length**2) + (noise**2 + 1e-6) * jnp.eye(
            x.shape[-1]
        )
        sample("y", dist.MultivariateNormal(jnp.zeros(x.shape[-1]), covariance_matrix=cov))


def one_curve(rng):
    x = np.linspace(-2, 2, 20)
    return {"x": x[None], "y": (np.sin(2 * x) + 0.3 * rng.normal(size=20))[None]}


@probml.model
def dict_of_coefficients(age, income, city):
    terms = {"age": age, "income": income}
    mean = sum(sample(f"b_{name}", dist.Normal(0, 1)) * term for name, term in terms.items())
    with plate("cities", 3):
        effect = sample("effect", dist.Normal(0, 2))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    with probml.rows():
        sample("spend", dist.Normal(mean + effect[city], sigma))


def frame(rng):
    city = rng.integers(0, 3, 50).astype(float)  # whole numbers held as floats
    age, income = rng.normal(size=50), rng.normal(size=50)
    return pd.DataFrame({"age": age, "income": income, "city": city,
                         "spend": age - income + city + 0.3 * rng.normal(size=50)})


def numbers(sd=1.0, mean=0.0, n=50):
    return lambda rng: {"y": mean + sd * rng.normal(size=n)}


def line(rng):
    x = rng.normal(size=50)
    return {"x": x, "y": 1 + x + 0.5 * rng.normal(size=50)}


def three_columns(rng):
    x = rng.normal(size=(50, 3))
    return {"x": x, "y": x @ [1.0, 0.0, -0.5] + rng.normal(size=50)}


def choices(rng):
    x = rng.normal(size=(60, 3))
    logits = np.concatenate([np.zeros((60, 1)), x @ [[1.0, -1], [0, 0.5], [0.3, 0.3]]], 1)
    return {"x": x, "choice": (logits + rng.gumbel(size=logits.shape)).argmax(1)}


def on_a_grid(rng):
    position = rng.integers(0, 8, 40)
    return {"position": position,
            "y": np.sin(np.linspace(-2, 2, 8))[position] + 0.3 * rng.normal(size=40)}


def integer_city(data):
    return {**{name: data[name].to_numpy() for name in data},
            "city": data["city"].to_numpy().astype(int)}


@probml.model
def folded():
    a, s = sample("a", dist.Normal(0, 1)), sample("s", dist.Gamma(3.0, 2.0))
    with probml.rows():
        sample("y", dist.FoldedDistribution(dist.Normal(a, s)))


@probml.model
def squared_slope(x):
    a, s = sample("a", dist.Normal(0, 2)), sample("s", dist.InverseGamma(3.0, 2.0))
    with probml.rows():
        sample("y", dist.Normal(jnp.square(a) * x, s))


KINK = "MAP stops at a kink of some parameters and leaves the others where they are"

CASES = [
    Case(simplex_regression(), blends, quick=True),
    Case(dirichlet_regression(), compositions),
    Case(seemingly_unrelated(), outcomes),
    Case(measurement_error(), measured),
    Case(lasso_by_factor(), three_columns, wrong=KINK),
    Case(ridge_by_factor(), three_columns),
    Case(multinomial_logistic(), choices),
    Case(heteroscedastic(), widening),
    Case(michaelis_menten(), puromycin),
    Case(strange_names(), named, quick=True),
    Case(logistic(), switches),
    Case(logistic(), frame_with_nulls, plain=lambda d: {
        "x": d["x"], "y": d["y"].to_numpy(float, na_value=np.nan)
    }, name="logistic_nulls"),
    Case(
        logistic(),
        lambda rng: {name: value.astype(object) for name, value in switches(rng).items()},
        plain=lambda d: {"x": d["x"].astype(float), "y": d["y"].astype(int)},
        name="logistic_of_objects",
    ),
    Case(probit(), switches),
    Case(far_away(), numbers(mean=1e6)),
    Case(by_year(), years),
    Case(year_poisson(), lambda rng: {
        "year": np.arange(1980, 2020), "y": rng.poisson(np.exp(1 + 0.03 * np.arange(40)))
    }, width=1e-3),
    Case(quantile_regression(), line, wrong=KINK),
    Case(beta_binomial(), hits),
    Case(von_mises(), angles),
    Case(joint_outcomes(), joined),
    Case(normal_inverse_gamma(), numbers(n=20, mean=2.0), truth="posterior", quick=True),
    Case(anova(), groups),
    Case(splines(), line),
    Case(curve_by_position(grid=tuple(np.linspace(-2, 2, 8).tolist())), on_a_grid,
         truth="posterior", engine=probml.NUTS(target_accept=0.9)),
    Case(curve_as_a_row(), one_curve),
    Case(dict_of_coefficients(), frame, plain=integer_city),
    Case(folded(), lambda rng: {"y": np.abs(rng.normal(2, 1, 30))}),
    Case(squared_slope(), line),
]
