"""One number as the location of a vector stands for all its elements, wherever the vector is."""

import functools
import warnings

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml

R = np.random.default_rng(7)
C = jnp.array([[1.0, 0.5, 0.2], [0.5, 1.5, 0.3], [0.2, 0.3, 0.8]])
NEAR = np.array([[0.0, 1, 0], [1, 0, 1], [0, 1, 0]])
Y = R.multivariate_normal([1, 1, 1], C, 24)
HOLES = np.where(R.random(Y.shape) < 0.2, np.nan, Y)
G, X = np.arange(24) % 3, R.normal(size=(24, 3))
ONE, COUNT = Y[:, 0] + 0.5 * G, R.poisson(2.0, 24)

VECTORS = {
    "covariance": lambda loc, s: dist.MultivariateNormal(loc, covariance_matrix=s**2 * C),
    "root": lambda loc, s: dist.MultivariateNormal(loc, scale_tril=s * jnp.linalg.cholesky(C)),
    "precision": lambda loc, s: dist.MultivariateNormal(
        loc, precision_matrix=jnp.linalg.inv(C) / s**2),
    "Student's t": lambda loc, s: dist.MultivariateStudentT(5.0, loc, s * jnp.linalg.cholesky(C)),
    "map": lambda loc, s: dist.CAR(loc, 0.3, 1 / s**2, NEAR),
}


def observed(make):
    m, s = sample("m", dist.Normal(0.0, 3.0)), sample("s", dist.HalfNormal(2.0))
    with probml.rows():
        sample("y", make(m, s))


def effect(make, g):
    u = sample("u", make(0.5, sample("s", dist.HalfNormal(2.0))))
    with probml.rows():
        sample("y", dist.Normal(u[g], 1.0))


def effect_of_counts(make, g):
    u = sample("u", make(0.0, sample("s", dist.HalfNormal(2.0))))
    with probml.rows():
        sample("y", dist.Poisson(jnp.exp(u[g])))


def effects(make, g):
    m, s = sample("m", dist.Normal(0.0, 1.0)), sample("s", dist.HalfNormal(2.0))
    with plate("g", 3):
        u = sample("u", make(m, s))
    with probml.rows():
        sample("y", dist.Normal(u[g], 1.0).to_event(1))


def coefficients(make, x):
    b = sample("b", make(sample("m", dist.Normal(0.0, 1.0)), 1.0))
    with probml.rows():
        sample("y", dist.Normal(x @ b, 1.0))


def latent(make):
    m = sample("m", dist.Normal(0.0, 3.0))
    with probml.rows():
        sample("y", dist.Normal(sample("z", make(m, 1.0)), 0.5).to_event(1))


ROLES = {"observed": (observed, {"y": Y}), "missing": (observed, {"y": HOLES}),
         "effect": (effect, {"g": G, "y": ONE}), "counts": (effect_of_counts, {"g": G, "y": COUNT}),
         "effects": (effects, {"g": G, "y": Y}), "coefficients": (coefficients, {"x": X, "y": ONE}),
         "latent": (latent, {"y": Y})}


def answered(role, make):
    """Numbers, or in words why there are none."""
    function, data = ROLES[role]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fit = probml.model(functools.partial(function, make))().fit(data, probml.MAP())
            return {**fit.params, "each": fit.log_prob(data)}
        except probml.ModelError as error:
            return str(error)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("kind", [kind if kind == "covariance" else pytest.param(
    kind, marks=pytest.mark.slow) for kind in VECTORS])
def test_a_number_is_a_location_of_all_elements(kind, role):
    make = VECTORS[kind]
    short = answered(role, make)
    whole = answered(role, lambda loc, s: make(jnp.broadcast_to(loc, (3,)), s))
    assert isinstance(short, str) == isinstance(whole, str), f"{short}\n{whole}"
    if isinstance(short, str):
        assert short == whole
        return
    for name, value in whole.items():
        np.testing.assert_allclose(short[name], value, rtol=1e-3, atol=1e-3, err_msg=name)
