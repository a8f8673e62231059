"""A start is never an answer, nor is a saddle; what is said of a climb that did not end helps."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
from numpyro import factor, plate, sample
from scipy.special import betaln

import probml
from coded import codes
from probml.families.log_linear import log_beta


@probml.model
def batting(player):
    m = sample("m", dist.Beta(1.0, 1.0))
    with plate("players", 18):
        phi = sample("phi", dist.Beta(20 * m, 20 * (1 - m)))
    with probml.rows():
        sample("hits", dist.Binomial(45, phi[player]))


# Efron & Morris (1975)
HITS = np.array([18, 17, 16, 15, 14, 14, 13, 12, 11, 11, 10, 10, 10, 10, 10, 9, 8, 7])


def test_a_climb_leaves_a_start_whose_curvature_is_negative():
    fit = batting().fit({"player": np.arange(18), "hits": HITS}, probml.MAP())
    assert fit.converged and fit.history[-1] == pytest.approx(-13.5019, abs=1e-3)


def test_log_beta_has_right_derivatives_where_its_arguments_are_equal():
    a, b = np.array([0.3, 8.0, 3.0, 500.0, 17.0]), np.array([0.3, 8.0, 17.0, 2.0, 1e4])
    np.testing.assert_allclose(jax.jit(log_beta)(a, b), betaln(a, b), atol=1e-11)
    second = jax.jit(jax.grad(jax.grad(lambda m: log_beta(20 * m, 20 * (1 - m)))))(0.5)
    step = 1e-4
    numeric = (betaln(20 * (0.5 + step), 20 * (0.5 - step)) - betaln(10, 10)) * 2 / step**2
    assert float(second) == pytest.approx(numeric, rel=1e-4)


def test_a_start_without_density_is_left_for_a_draw_of_the_prior():
    @probml.model
    def tanks():
        n = sample("n", dist.Pareto(1.0, 1.0))
        with probml.rows():
            sample("serial", dist.Uniform(0.0, n))

    with pytest.warns(probml.ConvergenceWarning):  # the maximum is a kink: the largest number seen
        fit = tanks().fit({"serial": np.array([19.0, 40.0, 42.0, 60.0])}, probml.MAP())
    assert fit.params["n"] == pytest.approx(60.0, rel=1e-3)


def test_data_that_no_parameter_can_make_are_named():
    @probml.model
    def below():
        a = sample("a", dist.Normal(0.0, 1.0))
        with probml.rows():
            y = sample("y", dist.Normal(a, 1.0))
            factor("never", jnp.where(y < 2, -jnp.inf, 0.0))

    with pytest.raises(probml.ModelError, match="MAP cannot fit model 'below': the log "
                       "density is -inf at the initial values"):
        below().fit({"y": np.array([0.2, 0.7])}, probml.MAP())


@pytest.mark.parametrize("mean", [lambda a, x: a**2 * x, lambda a, x: jnp.cos(a * x)])
def test_a_stationary_start_is_left(mean):
    """The prior mean 0 is where the gradient is zero by symmetry, and no maximum."""

    @probml.model
    def bent(x):
        a = sample("a", dist.Normal(0.0, 1.0))
        with probml.rows():
            sample("y", dist.Normal(mean(a, x), 0.3))

    x = np.linspace(0.1, 2.0, 30)
    fit = bent().fit({"x": x, "y": np.asarray(mean(1.4, x))}, probml.MAP())
    assert fit.converged and abs(fit.params["a"]) == pytest.approx(1.4, abs=0.1)


@probml.model
def groups(group, k: int = 2, n: int = 6):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("components", k):
        mean = sample("mean", dist.Normal(0.0, 5.0))
    with plate("groups", n):
        c = sample("c", dist.Categorical(weights))
    with probml.rows():
        sample("y", dist.Normal(mean[c[group]], 1.0))


@pytest.mark.parametrize("engine", [None, probml.MAP()])
def test_states_outside_rows_are_told_apart(engine):
    """A mixture of whole groups: at equal means the gradient is zero, and that is a saddle."""
    random = np.random.default_rng(0)
    group, own = np.repeat(np.arange(6), 10), np.array([-2.0, 3.0])[[0, 1, 0, 0, 1, 1]]
    fit = groups().fit({"group": group, "y": own[group] + random.normal(size=60)}, engine)
    np.testing.assert_allclose(np.sort(fit.params["mean"]), [-2.0, 3.0], atol=0.5)


@pytest.mark.parametrize("engine", [probml.EM(), probml.MAP()])
def test_states_that_start_alike_do_not_stay_so(engine):
    """Within rows: a start given at equal means is a saddle too."""

    @probml.model
    def two():
        weights = sample("weights", dist.Dirichlet(jnp.ones(2)))
        with plate("components", 2):
            mean = sample("mean", dist.Normal(0.0, 5.0))
        with probml.rows():
            z = sample("z", dist.Categorical(weights))
            sample("y", dist.Normal(mean[z], 1.0))

    y = np.concatenate([np.linspace(-3, -1, 20), np.linspace(2, 4, 20)])
    fit = two().fit({"y": y}, engine, start={"mean": [0.5, 0.5], "weights": [0.5, 0.5]})
    assert np.ptp(fit.params["mean"]) > 4


def test_advice_to_take_more_steps_is_given_only_where_they_would_gain():
    @probml.model
    def middle():
        m = sample("m", dist.Normal(0.0, 100.0))
        with probml.rows():
            sample("y", dist.Laplace(m, 1.0))

    y = {"y": np.linspace(-3.0, 4.0, 60)}
    with pytest.warns(probml.ConvergenceWarning, match="fluctuate"):
        fit = middle().fit(y, probml.MAP(optimizer=optax.adam(1.0), batch_rows=6, steps=4000))
    assert "raise" not in fit.status and "steps-too-large" in codes(fit)
    with pytest.warns(probml.ConvergenceWarning, match="raise max_iterations"):
        middle().fit(y, probml.MAP(optimizer=optax.sgd(1e-6), steps=500))


@jax.custom_vjp
def decayed(rate, t):
    """As solvers of differential equations are: differentiable backwards alone."""
    return jnp.exp(-rate * t)


decayed.defvjp(lambda rate, t: (jnp.exp(-rate * t), (rate, t)),
               lambda kept, g: (jnp.sum(-kept[1] * jnp.exp(-kept[0] * kept[1]) * g),
                                jnp.zeros_like(kept[1])))


@probml.model
def decay(t, by=None):
    rate = sample("rate", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal((by or (lambda rate, t: jnp.exp(-rate * t)))(rate, t), 0.1))


@pytest.mark.parametrize("engine", [None, probml.Laplace()])
def test_functions_that_know_their_derivative_backwards_alone_are_climbed(engine):
    t = np.linspace(0.1, 3.0, 9)
    data = {"t": t, "y": np.exp(-0.7 * t) + 0.05 * np.sin(9 * t)}
    fit, plain = decay(by=decayed).fit(data, engine), decay().fit(data, engine)
    assert fit.converged == plain.converged
    assert fit.params["rate"] == pytest.approx(plain.params["rate"], rel=1e-5)
