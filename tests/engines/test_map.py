"""MAP: the log posterior climbed by L-BFGS or an optax optimiser, in each parameter's own
coordinate."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
from numpyro import factor, plate, sample
from scipy import optimize, special, stats

import cases
import probml
from cases import fitted, mixture, nan
from coded import codes
from probml.numerics.optimum import Optimum


def close(got, expected, tolerance=1e-6):
    """L-BFGS stops where the objective has no digits left: half of sixteen, less a condition
    number."""
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


# The coordinate of the maximum


def test_map_has_no_jacobian_of_a_transform():
    x = np.array([0.5, -1.0, 2.0, 0.3])
    total = ((x - 1.0) ** 2).sum()
    fit = noise("variance").fit({"x": x}, probml.MAP())
    # mode in the variance: (b + S/2) / (a + 1 + n/2)
    close(fit.params["variance"], (1.5 + total / 2) / (2.0 + 1.0 + 2.0))
    fit = noise("precision").fit({"x": x}, probml.MAP())
    # mode in the precision, not one over the former
    close(fit.params["precision"], (2.0 - 1.0 + 2.0) / (1.5 + total / 2))


@probml.model
def noise(scale_is: str):
    if scale_is == "variance":
        scale = jnp.sqrt(sample("variance", dist.InverseGamma(2.0, 1.5)))
    else:
        scale = sample("precision", dist.Gamma(2.0, 1.5)) ** -0.5
    with probml.rows():
        sample("x", dist.Normal(1.0, scale))


def test_a_concentration_below_one_is_maximised_in_the_softmax_or_logit_coordinate():
    fit = cases.dice(a=(0.5, 0.5, 0.25)).fit({"face": [0, 0, 0, 1]}, probml.MAP())
    close(fit.params["theta"], np.array([3.5, 1.5, 0.25]) / 5.25, 1e-5)
    close(cases.coin(a=0.5, b=0.5).fit({"toss": [1, 1, 1]}, probml.MAP()).params["heads"],
          3.5 / 4.0, 1e-5)


def test_em_and_map_agree_where_a_count_is_zero():
    model, data = cases.dice(a=(2.0, 3.0, 4.0)), {"face": [0, 0, 1, 0]}
    close(model.fit(data, probml.MAP()).params["theta"],
          model.fit(data, probml.EM()).params["theta"], 1e-5)
    ml = fitted(model, data, probml.MAP(prior=False))
    # the maximum lies at infinity of the softmax
    np.testing.assert_allclose(ml.params["theta"], [0.75, 0.25, 0.0], atol=1e-4)


# The objective


def test_the_history_of_lbfgs_rises_from_the_start_to_the_log_posterior_of_the_end():
    model, data, start, _ = mixture("mixed")
    fit = model.fit(data, probml.MAP(), start=start)
    assert (np.diff(fit.history) >= 0).all() and fit.converged
    close(fit.history[0], cases.log_posterior("mixed", start)[0], 1e-11)
    close(fit.history[-1], cases.log_posterior("mixed", fit.params)[0], 1e-11)


def test_missing_cells_and_a_discrete_site_outside_rows_are_summed_out():
    toss = np.array([1, 1, nan, 1, 0, 1, 0])
    fit = which_coin().fit({"toss": toss}, probml.MAP(), start={"p": np.array([0.5, 0.6])})
    p = fit.params["p"]
    mass = np.array([0.7, 0.3]) * p**4 * (1 - p) ** 2
    q = mass / mass.sum()
    close(p, (2 + 4 * q) / (3 + 6 * q), 1e-5)
    close(fit.history[-1], np.log(mass.sum()) + np.asarray(dist.Beta(3.0, 2.0).log_prob(p)).sum(),
          1e-9)


@probml.model
def which_coin():
    kind = sample("kind", dist.Categorical(jnp.array([0.7, 0.3])))
    with plate("coin", 2):
        p = sample("p", dist.Beta(3.0, 2.0))
    with probml.rows():
        sample("toss", dist.Bernoulli(p[kind]))


def test_weights_are_repetitions():
    weighted = cases.coin(a=2.0, b=3.0).fit({"toss": [1, 0]}, probml.MAP(), weights=[3.0, 1.0])
    close(weighted.params["heads"], 4 / 7)


def test_map_says_when_it_stopped_early():
    model, data, start, _ = mixture("mixed")
    with pytest.warns(probml.ConvergenceWarning, match="iteration limit"):
        fit = model.fit(data, probml.MAP(steps=2), start=start)
    assert not fit.converged and fit.iterations == 2 and len(fit.history) == 3


# Discriminative models


@probml.model
def logistic(d: int, x):
    beta = sample("beta", dist.Normal(0.0, 1.0).expand([d]).to_event(1))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=x @ beta))


@functools.lru_cache
def votes():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(200, 2))
    y = (rng.random(200) < special.expit(x @ [1.0, -2.0])).astype(int)
    return {"x": x, "y": y}


@functools.lru_cache
def penalised():
    x, y = votes()["x"], votes()["y"]
    loss = lambda b: 0.5 * b @ b + np.logaddexp(0, -(2 * y - 1) * (x @ b)).sum()  # noqa: E731
    return optimize.minimize(loss, np.zeros(2), method="BFGS", options={"gtol": 1e-9}).x


@pytest.mark.filterwarnings("ignore:Desired error not necessarily achieved")
def test_map_of_logistic_regression_equals_scipy():
    fit = logistic(d=2).fit(votes(), probml.MAP())
    assert fit.converged
    close(fit.params["beta"], penalised(), 1e-5)
    close(fit.predict_proba({"x": votes()["x"]}, "y")[:, 1],
          special.expit(votes()["x"] @ penalised()), 1e-5)
    assert (np.diff(fit.history) >= -1e-9).all()


@pytest.mark.filterwarnings("ignore:Desired error not necessarily achieved")
def test_mini_batches_of_an_optax_optimiser_find_the_same():
    engine = probml.MAP(optimizer=optax.adam(optax.exponential_decay(0.1, 300, 0.5)), steps=2000,
                        batch_rows=50)
    fit = fitted(logistic(d=2), votes(), engine, seed=1)
    # the noise of batches, a small fraction of the posterior sd 0.2
    np.testing.assert_allclose(fit.params["beta"], penalised(), atol=0.05)
    again = fitted(logistic(d=2), votes(), engine, seed=1)
    np.testing.assert_array_equal(fit.params["beta"], again.params["beta"])


@pytest.mark.filterwarnings("ignore:Desired error not necessarily achieved")
def test_an_optax_optimiser_on_all_rows_finds_the_same():
    fit = fitted(logistic(d=2), votes(), probml.MAP(optimizer=optax.adam(0.05), steps=1500))
    close(fit.params["beta"], penalised(), 1e-4)


@probml.model
def counts(x):
    b = sample("b", dist.Normal(0.0, 2.0))
    slope = sample("slope", dist.Normal(0.0, 2.0))
    with probml.rows():
        sample("n", dist.Poisson(jnp.exp(b + slope * x)))


def test_map_of_a_poisson_regression_equals_scipy():
    rng = np.random.default_rng(4)
    x = rng.normal(size=60)
    n = rng.poisson(np.exp(0.5 + 0.8 * x))
    fit = counts().fit({"x": x, "n": n}, probml.MAP())
    loss = lambda b: b @ b / 8 - stats.poisson(np.exp(b[0] + b[1] * x)).logpmf(n).sum()  # noqa: E731
    found = optimize.minimize(loss, np.zeros(2), method="Nelder-Mead",
                              options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 5000}).x
    close([fit.params["b"], fit.params["slope"]], found, 1e-5)


# Newton's steps


def big(n=80_000, d=4):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(n, d)) * np.array([1.0, 1e3, 1e-2, 1.0]) + np.array([0.0, 1e4, 0.0, -3.0])
    slopes = np.array([1.0, 1e-3, 50.0, 0.0])
    return {"x": x, "y": (rng.random(n) < special.expit((x - x.mean(0)) @ slopes)).astype(int)}


@probml.model
def flat_logistic(x):
    beta = sample("beta", dist.ImproperUniform(dist.constraints.real, (), (x.shape[-1],)))
    bias = sample("bias", dist.ImproperUniform(dist.constraints.real, (), ()))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=x @ beta + bias))


def score(data, params):
    """The gradient of the log likelihood in standard errors of each coefficient: units do not
    matter."""
    design = np.column_stack([data["x"] - data["x"].mean(0), np.ones(len(data["y"]))])
    p = special.expit(data["x"] @ params["beta"] + params["bias"])
    information = (design * (p * (1 - p))[:, None]).T @ design
    return (design.T @ (data["y"] - p)) / np.sqrt(np.diag(information))


@pytest.mark.parametrize("rows", [500, 80_000])
def test_units_and_offsets_of_columns_do_not_matter_to_newton(rows):
    data = {name: value[:rows] for name, value in big().items()}
    fit = flat_logistic().fit(data, probml.MAP())
    assert fit.converged and fit.iterations < 30
    assert np.abs(score(data, fit.params)).max() < 1e-4


def test_separated_classes_without_a_prior_are_said_to_diverge():
    x = np.linspace(-1, 1, 40)[:, None]
    data = {"x": x, "y": (x[:, 0] > 0.1).astype(int)}
    with pytest.warns(probml.ConvergenceWarning, match=r"'beta'.*\[separation\]"):
        fit = flat_logistic().fit(data, probml.MAP())
    assert not fit.converged
    assert logistic(d=1).fit(data).converged  # a prior holds them


def test_what_diverges_is_not_climbed_again_from_a_draw_of_the_prior():
    # the start is where symmetry keeps the bias: from elsewhere the rounded gradient is zero at once
    x = np.array([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0])[:, None]
    with pytest.warns(probml.ConvergenceWarning, match=r"'beta'.*\[separation\]"):
        fit = logistic(d=1).fit({"x": x, "y": (x[:, 0] > 0).astype(int)}, probml.MAP(prior=False))
    assert not fit.converged and abs(fit.params["beta"][0]) < 1000


def test_counts_of_zero_in_a_group_are_said_to_diverge_in_few_digits_too():
    @probml.model
    def counts(x):
        level = sample("level", dist.Normal(0.0, 10.0))
        slope = sample("slope", dist.Normal(0.0, 10.0))
        with probml.rows():
            sample("y", dist.Poisson(jnp.exp(level + slope * x)))

    data = {"x": np.repeat([0.0, 1.0], 10), "y": np.repeat([0, 3], 10)}
    for double in (False, True):
        with jax.enable_x64(double):
            with pytest.warns(probml.ConvergenceWarning, match=r"'level', 'slope'.*\[separation\]"):
                assert not counts().fit(data, probml.MAP(prior=False)).converged
            some = {**data, "y": np.where(np.arange(20) == 0, 1, data["y"])}
            found = counts().fit(some, probml.MAP(prior=False))
            assert found.converged
            np.testing.assert_allclose(found.params["level"], np.log(0.1), atol=1e-4)


def test_weights_count_in_the_sample_of_many_rows_as_they_do_in_all():
    data = big()
    weights = np.where(np.arange(len(data["y"])) % 2, 3.0, 0.0)
    half = {name: value[1::2] for name, value in data.items()}
    ours, theirs = (flat_logistic().fit(data, probml.MAP(), weights=weights),
                    flat_logistic().fit(half, probml.MAP()))
    np.testing.assert_allclose(ours.params["beta"], theirs.params["beta"], rtol=1e-5, atol=1e-8)


# Training


def test_held_out_rows_stop_the_training_and_their_best_point_is_kept(tmp_path):
    rng = np.random.default_rng(6)
    x = rng.normal(size=(60, 40))
    data = {"x": x, "y": (x[:, 0] + rng.normal(size=60) > 0).astype(int)}
    engine = probml.MAP(optimizer=optax.adam(0.05), steps=20_000, batch_rows=10, prior=False,
                        held_out=0.3, patience=3)
    fit = flat_logistic().fit(data, engine, seed=2)
    assert fit.converged and "early" in fit.status and fit.iterations < 20_000
    assert len(fit.held_out) == len(fit.history)
    assert (len(fit.history) == int(np.argmax(fit.held_out)) + 1 + engine.patience
            and fit.history[-1] > fit.history[0])
    fit.save(tmp_path / "fit")
    np.testing.assert_array_equal(probml.load(tmp_path / "fit", flat_logistic()).held_out,
                                  fit.held_out)


def test_the_rows_held_out_are_not_learnt_from():
    x = np.concatenate([np.full(50, 1.0), np.full(50, -1.0)])[:, None]
    engine = probml.MAP(optimizer=optax.sgd(0.0), steps=1, held_out=0.5)
    fit = fitted(logistic(d=1), {"x": x, "y": np.repeat([1, 0], 50)}, engine,
                 start={"beta": np.zeros(1)})
    np.testing.assert_allclose(fit.held_out, np.log(0.5))  # at weights of 0
    np.testing.assert_allclose(fit.history, 50 * np.log(0.5) - 0.5 * np.log(2 * np.pi))


def test_an_epoch_passes_every_row_once():
    rows = np.arange(12)
    x = np.eye(12)[rows]
    engine = probml.MAP(optimizer=optax.sgd(1.0), steps=4, batch_rows=3, prior=False)
    fit = fitted(logistic(d=12), {"x": x, "y": np.ones(12, int)}, engine,
                 start={"beta": np.zeros(12)})
    np.testing.assert_allclose(fit.params["beta"], 2.0, rtol=1e-6)  # one step of (n/batch) · ½ each


@pytest.mark.parametrize(
    "settings",
    [{"held_out": 0.1}, {"held_out": 1.0, "optimizer": optax.sgd(1.0)},
     {"patience": 2, "optimizer": optax.sgd(1.0)}, {"batch_rows": 5}],
)
def test_settings_of_training_that_make_no_sense_are_refused(settings):
    with pytest.raises(probml.ModelError, match=next(iter(settings))):
        probml.MAP(**settings)


@probml.model
def network(x, hidden=6):
    first = sample("first", dist.Normal(0.0, 3.0).expand([x.shape[-1], hidden]).to_event(2))
    shift = sample("shift", dist.Normal(0.0, 3.0).expand([hidden]).to_event(1))
    second = sample("second", dist.Normal(0.0, 3.0).expand([hidden]).to_event(1))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=jnp.tanh(x @ first + shift) @ second))


@pytest.mark.slow
@pytest.mark.parametrize("engine",
                         [probml.MAP(), probml.MAP(optimizer=optax.adam(0.05), steps=400)])
def test_hidden_units_that_are_alike_are_told_apart(engine):
    x = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]] * 10)
    data = {"x": x, "y": (x[:, 0] != x[:, 1]).astype(int)}
    fit = fitted(network(), data, engine, seed=0)
    assert (fit.predict({"x": x}) == data["y"]).all()


def test_a_valley_that_is_steep_on_one_side_is_a_maximum():
    """Weights seven digits apart: a bias that hardly any row pulls back still has its place."""
    @probml.model
    def hinge(x):
        bias = sample("bias", dist.ImproperUniform(dist.constraints.real, (), ()))
        with probml.rows():
            factor("loss", -jnp.square(jnp.maximum(0.0, 1 - x * bias)))

    x, weights = np.repeat([-1.0, 1.0], 25), np.repeat([1e3, 1e-4], 25)
    fit = hinge().fit({"x": x}, probml.MAP(), weights=weights)
    assert fit.converged and "separation" not in codes(fit)
    assert fit.params["bias"] == pytest.approx(-1.0, abs=1e-6)


def test_no_value_is_computed_about_a_scale_that_the_hessian_determines(monkeypatch):
    asked = []
    monkeypatch.setattr(Optimum, "value_at",
                        lambda self, u: asked.append(u) or self.evaluate(u)[0])

    @probml.model
    def tails():
        scale = sample("scale", dist.HalfNormal(10.0))
        with probml.rows():
            sample("x", dist.StudentT(4.0, 0.0, scale))

    x = np.random.default_rng(0).standard_t(4, size=400)
    for rows, few in ((x, False), (x[:3], True)):
        fit = tails().fit({"x": rows}, probml.MAP(prior=False))
        assert fit.converged and bool(asked) == few
