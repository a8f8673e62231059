"""Observed values that a function computes: from its parameters, as in obs=y - shift, where the density
depends on them, as NumPyro's does; from all rows, as in obs=y / y.mean(), where no row has a density of
its own."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers, plate, sample
from numpyro.infer.util import log_density

import probml

R = np.random.default_rng(0)
N = 12
X, G = R.normal(size=N), np.repeat(np.arange(3), 4)
Y, C = 1 + 0.5 * X + 0.6 * R.normal(size=N), R.poisson(3, N)
CASES = {}


def case(params, hidden=None, **data):
    """`hidden`: a discrete latent site, its shape and number of states."""
    def keep(function):
        CASES[function.__name__] = function, data, params, hidden
        return function
    return keep


def line():
    return (sample("a", dist.Normal(0, 3)), sample("b", dist.Normal(0, 3)),
            sample("s", dist.HalfNormal(2)))


@case({"a": 0.3, "b": 0.7, "s": 0.8}, x=X, y=Y)
def residuals(x, y):
    a, b, s = line()
    with plate("n", len(y)):
        sample("e", dist.Normal(0, s), obs=y - a - b * x)


@case({"a": 0.3, "b": 0.7, "s": 0.8}, x=X, y=Y)
def residuals_without_a_plate(x, y):
    a, b, s = line()
    sample("e", dist.Normal(0, s), obs=y - a - b * x)


@case({"t": 0.7, "s": 0.8, "u": np.array([0.1, 0.5, -0.2])}, g=G, y=Y)
def residuals_of_groups(g, y):
    t, s = sample("t", dist.HalfNormal(1)), sample("s", dist.HalfNormal(1))
    with plate("groups", 3):
        u = sample("u", dist.Normal(0, t))
    with plate("n", len(y)):
        sample("e", dist.Normal(0, s), obs=y - u[g])


@case({"p": 0.3, "s": 0.7}, ("z", (5,), 2), y=Y[:5])
def residuals_of_states(y):
    p, s = sample("p", dist.Beta(2, 2)), sample("s", dist.HalfNormal(1))
    with plate("n", len(y)):
        z = sample("z", dist.Bernoulli(p))
        sample("e", dist.Normal(0, s), obs=y - 2.0 * z)


@case({"s": 0.7}, ("z", (), 2), y=Y)
def residuals_of_one_state(y):
    z, s = sample("z", dist.Bernoulli(0.4)), sample("s", dist.HalfNormal(1))
    with plate("n", len(y)):
        sample("e", dist.Normal(0, s), obs=y - 2.0 * z)


@case({"power": 0.5, "m": 0.2, "s": 0.7}, y=Y)
def box_cox(y):
    power = sample("power", dist.Uniform(0.1, 2))
    m, s, y = sample("m", dist.Normal(0, 1)), sample("s", dist.HalfNormal(1)), jnp.abs(y)
    with plate("n", len(y)):
        sample("e", dist.Normal(m, s), obs=(y**power - 1) / power)
        numpyro.factor("jacobian", (power - 1) * jnp.log(y))


@case({"a": 0.3, "s": 0.7}, x=X, y=Y)
def one_of_two(x, y):
    a, s = sample("a", dist.Normal(0, 1)), sample("s", dist.HalfNormal(1))
    with plate("n", len(y)):
        sample("x", dist.Normal(a, 1), obs=x)
        sample("e", dist.Normal(0, s), obs=y - a)


@case({"b": np.array([0.2, 0.4]), "s": 0.7}, x=X, y=Y)
def vectors(x, y):
    b = sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    s = sample("s", dist.HalfNormal(1))
    with plate("n", len(y)):
        sample("e", dist.Normal(0, s).expand([2]).to_event(1), obs=jnp.stack([x, y], -1) - b)


@case({"rate": 3.0}, ("k", (4,), 3), c=C[:4])
def counts(c):
    rate = sample("rate", dist.Gamma(2, 1))
    with plate("n", len(c)):
        k = sample("k", dist.Binomial(2, 0.3))
        sample("e", dist.Poisson(rate), obs=c + k)


@case({"a": 0.3, "s": 0.7}, y=Y)
def conditioned(y):
    a, s = sample("a", dist.Normal(0, 1)), sample("s", dist.HalfNormal(1))

    def errors():
        with plate("n", len(y)):
            sample("e", dist.Normal(0, s))

    handlers.condition(errors, {"e": y - a})()


@pytest.mark.parametrize("name", CASES)
def test_the_density_is_that_of_numpyro(name):
    function, data, params, hidden = CASES[name]
    arrays = {key: jnp.asarray(value) for key, value in data.items()}
    if hidden is None:
        want = log_density(function, (), arrays, params)[0]
    else:
        site, shape, k = hidden
        want = jax.nn.logsumexp(jnp.stack([
            log_density(function, (), arrays, {**params, site: jnp.array(z).reshape(shape)})[0]
            for z in itertools.product(range(k), repeat=int(np.prod(shape)))]))
    np.testing.assert_allclose(probml.model(function)().log_density(data, params), want, rtol=1e-9)


def test_residuals_that_are_observed_have_the_posterior_of_the_regression():
    def regression(x, y):
        a, b, s = line()
        with plate("n", len(y)):
            sample("y", dist.Normal(a + b * x, s), obs=y)

    fits = [probml.model(function)().fit({"x": X, "y": Y}, probml.MAP())
            for function in (residuals, regression)]
    for name in ("a", "b", "s"):
        np.testing.assert_allclose(fits[0].params[name], fits[1].params[name], rtol=1e-4)


@pytest.mark.parametrize(("values", "own"), [
    (lambda y: jnp.log(jnp.abs(y)), True), (lambda y: 2 * y - 1, True), (lambda y: y.round(), True),
    (lambda y: (y - y.mean()) / y.std(), False), (lambda y: y - jnp.roll(y, 1), False),
    (lambda y: jnp.argsort(jnp.argsort(y)) / 10, False), (lambda y: y - jnp.arange(len(y)), False),
    (lambda y: y / len(y), False), (lambda y: y[::-1], False)],
    ids=["log", "line", "round", "standardised", "differences", "ranks", "numbers", "shares", "reversed"])
def test_a_row_has_a_density_of_its_own_where_its_values_are_computed_from_it_alone(values, own):
    def computed(x, y):
        a, b, s = line()
        with plate("n", len(y)):
            sample("e", dist.Normal(a + b * x, s), obs=values(y))

    fit = probml.model(computed)().fit({"x": X, "y": Y}, probml.MAP())
    if own:
        np.testing.assert_allclose(fit.log_prob({"x": X[3:5], "y": Y[3:5]}),
                                   fit.log_prob({"x": X, "y": Y})[3:5])
    else:
        with pytest.raises(probml.ModelError, match="no plate of independent rows"):
            fit.log_prob({"x": X, "y": Y})


def test_what_is_computed_from_parameters_is_no_observed_value():
    pytest.importorskip("arviz")
    found = probml.model(one_of_two)().fit({"x": X, "y": Y}, probml.Laplace()).to_arviz()
    assert set(found.observed_data) == {"x"}
    assert set(found.log_likelihood) == {"x", "e"}


@pytest.mark.parametrize("fill", [jnp.nan_to_num, lambda y: jnp.where(jnp.isnan(y), 9.0, y),
                                  lambda y: y])
def test_missing_cells_that_the_function_masks_are_left_out(fill):
    def masked(x, y):
        a, b, s = line()
        with plate("n", len(y)), handlers.mask(mask=~jnp.isnan(y)):
            sample("y", dist.Normal(a + b * x, s), obs=fill(y))

    def plain(x, y):
        a, b, s = line()
        with plate("n", len(y)):
            sample("y", dist.Normal(a + b * x, s), obs=y)

    holes = np.where(np.arange(N) % 5 == 3, np.nan, Y)
    fits = [probml.model(function)().fit({"x": X, "y": holes}, probml.MAP())
            for function in (masked, plain)]
    for name in ("a", "b", "s"):
        np.testing.assert_allclose(fits[0].params[name], fits[1].params[name], rtol=1e-4)
