"""NaN in what one density of everything observes: a leaf's factor is left out, which is its
integral; a cell on which later ones depend is a latent number; what else looks at it is refused by
name."""

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import factor, handlers, plate, sample
from numpyro.contrib.control_flow import scan
from scipy import stats
from scipy.special import logsumexp

import probml
from probml.errors import DataError
from probml.interface.functions.read_function import read_function

RNG = np.random.default_rng(5)
SIGMA = np.ones(6)
Y = np.array([1.0, np.nan, -0.5, 2.0, np.nan, 0.3])
PARTS = RNG.normal(size=(6, 2))
PARTS[2, 1] = PARTS[4, 0] = np.nan


def schools(sigma, y=None):
    mu, tau = sample("mu", dist.Normal(0, 5)), sample("tau", dist.HalfCauchy(5))
    with plate("J", len(sigma)):
        theta = sample("theta", dist.Normal(mu, tau))
        sample("obs", dist.Normal(theta, sigma), obs=y)


POINT = {"mu": 0.5, "tau": 1.3, "theta": np.linspace(-1, 1, 6)}


@pytest.mark.filterwarnings("ignore:MAP")  # the joint mode of a hierarchy
def test_a_school_that_is_unseen_drops_out_of_the_density():
    seen = ~np.isnan(Y)
    want = (stats.norm(0, 5).logpdf(0.5) + stats.halfcauchy(0, 5).logpdf(1.3)
            + stats.norm(0.5, 1.3).logpdf(POINT["theta"]).sum()
            + stats.norm(POINT["theta"], 1.0).logpdf(Y)[seen].sum())
    model = probml.model(schools)()
    np.testing.assert_allclose(model.log_density({"sigma": SIGMA, "y": Y}, POINT), want)
    np.testing.assert_allclose(model.log_density({"sigma": SIGMA, "obs": Y}, POINT), want)
    assert "missing values are left out" in read_function(model, {"sigma": SIGMA, "y": Y}).reason
    fit = model.fit({"sigma": SIGMA, "y": Y}, probml.MAP(), start={"tau": 2.0})
    assert all(np.isfinite(value).all() for value in fit.params.values())


def vectors(x):
    mu = sample("mu", dist.Normal(0, 1).expand([2]).to_event(1))
    with plate("n", len(x)):
        t = sample("t", dist.Normal(0, 1))
        sample("x", dist.Normal(mu + t[:, None], 1.0).to_event(1), obs=x)


def test_coordinates_of_independent_vectors_drop_out_one_by_one():
    t, mu = RNG.normal(size=6), np.array([0.2, -0.4])
    want = np.nansum(stats.norm(mu + t[:, None], 1.0).logpdf(PARTS))
    want += stats.norm().logpdf(np.r_[t, mu]).sum()
    got = probml.model(vectors)().log_density({"x": PARTS}, {"mu": mu, "t": t})
    np.testing.assert_allclose(got, want)


def words(words, documents):
    theta = sample("theta", dist.Dirichlet(jnp.ones((2, 2))).to_event(1))
    phi = sample("phi", dist.Dirichlet(jnp.ones((2, 3))).to_event(1))
    a = sample("a", dist.Normal(0, 1).expand([2]).to_event(1))
    with plate("document", 2):
        b = sample("b", dist.Normal(0, 1))
    with plate("word", len(words)):
        z = sample("z", dist.Categorical(theta[documents]))
        sample("w", dist.Categorical(phi[z]), obs=words)
        sample("v", dist.Normal(a[z] + b[documents], 1.0), obs=VALUES)


VALUES = RNG.normal(size=8)
WORDS, DOCUMENTS = np.array([0, 1, np.nan, 2, 1, np.nan, 0, 2]), np.array([0, 0, 0, 1, 1, 1, 1, 0])


def test_an_unseen_word_is_summed_over_with_its_topic():
    p = {"theta": RNG.dirichlet(np.ones(2), 2), "phi": RNG.dirichlet(np.ones(3), 2),
         "a": np.array([0.5, -0.5]), "b": np.array([0.1, 0.2])}
    want = stats.norm().logpdf(np.r_[p["a"], p["b"]]).sum() + 2 * np.log(2.0)
    for w, d, v in zip(WORDS, DOCUMENTS, VALUES, strict=True):
        word = np.ones(2) if np.isnan(w) else p["phi"][:, int(w)]
        want += np.log((p["theta"][d] * word * stats.norm(p["a"] + p["b"][d], 1).pdf(v)).sum())
    got = probml.model(words)().log_density({"words": WORDS, "documents": DOCUMENTS}, p)
    np.testing.assert_allclose(got, want)


def hidden_chain(y):
    row = sample("row", dist.Dirichlet(jnp.ones((2, 2))).to_event(1))

    def step(z, y_t):
        z = sample("z", dist.Categorical(row[z]))
        sample("y", dist.Normal(2.0 * z, 1.0), obs=y_t)
        return z, None

    scan(step, 0, y)


def local_level(y):
    q = sample("q", dist.LogNormal(0, 1))

    def step(level, v):
        level = sample("level", dist.Normal(level, q))
        sample("y", dist.Normal(level, 1.0), obs=v)
        return level, None

    scan(step, 0.0, y)


def autoregression(y):
    a = sample("a", dist.Normal(0, 1))

    def step(before, v):
        v = sample("y", dist.Normal(a * before, 1.0), obs=v)
        return v, None

    scan(step, 0.0, y)


def test_a_step_of_a_chain_that_is_unseen_is_summed_over():
    row = np.array([[0.8, 0.2], [0.3, 0.7]])
    total = []
    for path in itertools.product((0, 1), repeat=6):
        log = 0.0
        for before, z, v in zip((0, *path), path, Y, strict=False):
            log += np.log(row[before, z]) + (0 if np.isnan(v) else stats.norm.logpdf(v, 2 * z, 1))
        total.append(log)
    got = probml.model(hidden_chain)().log_density({"y": Y}, {"row": row})
    np.testing.assert_allclose(got, logsumexp(total), atol=1e-10)


def test_a_step_of_a_level_that_is_unseen_drops_out():
    level = RNG.normal(size=6)
    want = stats.norm(np.r_[0, level[:-1]], 0.7).logpdf(level).sum() + stats.lognorm(1).logpdf(0.7)
    want += np.nansum(stats.norm(level, 1).logpdf(Y))
    got = probml.model(local_level)().log_density({"y": Y}, {"q": 0.7, "level": level})
    np.testing.assert_allclose(got, want)


def standardised(y):
    m = sample("m", dist.Normal(0, 1))
    z = sample("z", dist.Normal(m + y.mean(), 1.0))
    sample("y", dist.Normal(z, 1.0), obs=y)


def whole_vectors(x):
    m = sample("m", dist.Normal(0, 1).expand([2]).to_event(1))
    with plate("n", len(x)):
        t = sample("t", dist.Normal(0, 1))
        sample("x", dist.MultivariateNormal(m + t[:, None], jnp.eye(2)), obs=x)


def masked_by_hand(y):
    m = sample("m", dist.Normal(0, 1))
    with plate("n", len(y)):
        t = sample("t", dist.Normal(m, 1))
        with handlers.mask(mask=~jnp.isnan(y)):
            sample("y", dist.Normal(t, 1), obs=jnp.nan_to_num(y))


def test_what_looks_at_an_unseen_cell_is_refused_by_name():
    for function, site in ((standardised, "z"), (neighbours, "y"), (used_before, "z")):
        with pytest.raises(DataError, match=f"site '{site}' depends on the missing values of 'y'"):
            probml.model(function)().fit({"y": Y}, probml.MAP())
    counts = np.where(np.isnan(Y), np.nan, [1, 0, 2, 3, 0, 1])
    with pytest.raises(DataError, match="site 'y' depends on the missing values of 'y'"):
        probml.model(counts_by_the_last)().fit({"y": counts}, probml.MAP())


def neighbours(y):  # no joint density: each given both of its neighbours
    m = sample("m", dist.Normal(0, 1))
    sample("y", dist.Normal(m + 0.2 * (jnp.roll(y, 1) + jnp.roll(y, -1)), 1.0).to_event(1), obs=y)


def used_before(y):
    m = sample("m", dist.Normal(0, 1))
    z = sample("z", dist.Normal(m * y, 1.0).to_event(1))
    sample("y", dist.Normal(z, 1.0).to_event(1), obs=y)


def counts_by_the_last(y):
    m = sample("m", dist.Normal(0, 1))
    sample("y", dist.Poisson(jnp.exp(m + 0.1 * y[:-1])).to_event(1), obs=y[1:])


# each y given earlier ones: precision matrix of all, from which the missing follow in closed form


def second_order_scan(y):
    def step(last, now):
        first, second = last
        now = sample("y", dist.Normal(0.5 * second - 0.3 * first, 1.0), obs=now)
        return (second, now), None

    scan(step, (0.0, 0.0), y)


def second_order_shifted(y):
    sample("y0", dist.Normal(0.0, 1.0), obs=y[0])
    sample("y1", dist.Normal(0.5 * y[0], 1.0), obs=y[1])
    with plate("t", len(y) - 2):
        sample("y", dist.Normal(0.5 * y[1:-1] - 0.3 * y[:-2], 1.0), obs=y[2:])


def second_order_loop(y):
    for t in range(6):
        before = [y[t - k] if t >= k else 0.0 for k in (1, 2)]
        sample(f"y{t}", dist.Normal(0.5 * before[0] - 0.3 * before[1], 1.0), obs=y[t])


def whole_series(y):
    sample("y", dist.MultivariateNormal(jnp.zeros(6), precision_matrix=jnp.asarray(PRECISION)),
           obs=y)


STEPS = np.eye(6) - 0.5 * np.eye(6, k=-1) + 0.3 * np.eye(6, k=-2)
PRECISION = STEPS.T @ STEPS
HOLES = np.isnan(Y)


@pytest.mark.parametrize("function", [second_order_scan, second_order_shifted, second_order_loop,
                                      whole_series])
def test_what_later_values_depend_on_is_a_latent_number(function):
    own = PRECISION[np.ix_(HOLES, HOLES)]
    mean = -np.linalg.solve(own, PRECISION[np.ix_(HOLES, ~HOLES)] @ Y[~HOLES])
    sd = np.sqrt(np.diag(np.linalg.inv(own)))
    model = probml.model(function)()
    at = np.where(HOLES, 0.3, Y)
    np.testing.assert_allclose(
        model.log_density({"y": Y}, {"y (missing)": np.full(2, 0.3)}),
        stats.multivariate_normal(np.zeros(6), np.linalg.inv(PRECISION)).logpdf(at), rtol=1e-6)
    fit = model.fit({"y": Y})
    np.testing.assert_allclose(fit.params["y (missing)"], mean, atol=0.02)
    np.testing.assert_allclose(fit.draws(1000)["y (missing)"].std(0), sd, rtol=0.1)
    filled = fit.impute({"y": Y})
    cells = np.concatenate([np.atleast_1d(filled[name]) for name in sorted(filled)])
    expected = np.where(HOLES, np.nan, Y)
    expected[HOLES] = mean
    if function is second_order_shifted:  # y, y0, y1
        cells = np.r_[cells[-2:], cells[:-2]]
    np.testing.assert_allclose(cells, expected, atol=0.15)
    logs = fit.to_arviz().log_likelihood  # a vector counts whole
    assert sum(int((logs[name] == 0).all(("chain", "draw")).sum()) for name in logs) == (
        1 if function is whole_series else 2)


def test_what_is_left_out_is_filled_in_by_its_mean_or_its_most_frequent_value():
    fit = probml.model(schools)().fit({"sigma": SIGMA, "y": Y}, probml.NUTS(500, 500, 2))
    filled = fit.impute({"sigma": SIGMA, "y": Y})["obs"]
    np.testing.assert_array_equal(filled[~HOLES], Y[~HOLES])
    np.testing.assert_allclose(filled[HOLES], fit.draws(1000)["theta"].mean(0)[HOLES], atol=0.2)

    def coin(y):
        p = sample("p", dist.Beta(1, 1))
        with plate("n", len(y)):
            sample("y", dist.Bernoulli(p), obs=y)
            z = sample("z", dist.Normal(0, 1))
            numpyro.factor("seen", -z.sum() ** 2)

    y = np.array([1, 1, np.nan, 1, 1, np.nan])
    fit = probml.model(coin)().fit({"y": y}, probml.NUTS(500, 500, 2))
    np.testing.assert_array_equal(fit.impute({"y": y})["y"], np.ones(6))
    with pytest.raises(DataError, match="the fit does not describe these data"):
        fit.impute({"y": y[:5]})


def test_vectors_that_are_unseen_drop_out_whole():
    x, t, m = PARTS.copy(), RNG.normal(size=6), np.array([0.2, 0.1])
    x[2] = x[4] = np.nan
    want = np.nansum(stats.norm(m + t[:, None], 1.0).logpdf(x)) + stats.norm().logpdf(
        np.r_[m, t]).sum()
    got = probml.model(whole_vectors)().log_density({"x": x}, {"m": m, "t": t})
    np.testing.assert_allclose(got, want)


def test_a_mask_by_hand_stays_what_it_is():
    t = RNG.normal(size=6)
    want = stats.norm().logpdf(0.3) + stats.norm(0.3, 1).logpdf(t).sum()
    want += np.nansum(stats.norm(t, 1).logpdf(Y))
    got = probml.model(masked_by_hand)().log_density({"y": Y}, {"m": 0.3, "t": t})
    np.testing.assert_allclose(got, want)


def zeros_for_the_last(y):
    s, before = sample("s", dist.HalfNormal(1.0)), jnp.nan_to_num(y[:-1])
    with handlers.mask(mask=~jnp.isnan(y[1:])):
        sample("y", dist.Normal(0.5 * before, s), obs=jnp.nan_to_num(y[1:]))


def zeros_where_missing(y):
    s, before = sample("s", dist.HalfNormal(1.0)), jnp.where(jnp.isnan(y[:-1]), 0.0, y[:-1])
    sample("y", dist.Normal(0.5 * before, s), obs=y[1:])


@pytest.mark.parametrize("function", [zeros_for_the_last, zeros_where_missing])
def test_a_function_that_asks_which_values_are_missing_is_fitted_as_it_is_written(function):
    want = stats.halfnorm().logpdf(0.7) + np.nansum(
        stats.norm(0.5 * np.nan_to_num(Y[:-1]), 0.7).logpdf(Y[1:]))
    got = probml.model(function)().log_density({"y": Y}, {"s": 0.7})
    np.testing.assert_allclose(got, want, rtol=1e-6)


def cut_at_both_ends(y):
    s = sample("s", dist.HalfNormal(1.0))
    with handlers.mask(mask=(y > -1) & (y < 1)):
        sample("y", dist.Normal(0.0, s), obs=y)
    factor("cut", (jnp.abs(y) == 1).sum() * jnp.log(2 * dist.Normal(0.0, s).cdf(-1.0)))


def test_cells_that_a_comparison_masks_are_left_out():
    """NaN > −1 is false: before, the missing value was a latent number with a flat prior."""
    y = np.array([-1.0, 0.3, np.nan, 1.0, -0.4])
    want = stats.halfnorm().logpdf(0.7) + stats.norm(0, 0.7).logpdf([0.3, -0.4]).sum() + (
        2 * np.log(2 * stats.norm(0, 0.7).cdf(-1)))
    model = probml.model(cut_at_both_ends)()
    np.testing.assert_allclose(model.log_density({"y": y}, {"s": 0.7}), want, rtol=1e-6)
    assert not model.fit({"y": y}).warnings
