"""Functions as they are written for NumPyro, obs= and plates of their own in them: their densities
are NumPyro's, or what brute force sums."""

import functools
import itertools
import pickle

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from jax.example_libraries import stax
from numpyro import handlers, plate, sample
from numpyro.contrib.control_flow import cond, scan
from numpyro.infer.reparam import LocScaleReparam
from scipy import stats
from scipy.special import logsumexp

import probml
from plain_numpyro import drawn, log_density
from probml.dataset.read import read
from probml.device.load import load
from probml.evidence import density
from probml.interface.functions.read_function import read_function

RNG = np.random.default_rng(0)
N = 12
X, Y = RNG.normal(size=(N, 3)), RNG.normal(size=N)
G, C, B = RNG.integers(4, size=N), RNG.poisson(3, size=N), RNG.integers(2, size=N)
G[:4] = range(4)


def schools(J, sigma, y=None):
    mu, tau = sample("mu", dist.Normal(0, 5)), sample("tau", dist.HalfCauchy(5))
    with plate("J", J):
        theta = sample("theta", dist.Normal(mu, tau))
        sample("obs", dist.Normal(theta, sigma), obs=y)


def no_plate(y):
    mu = sample("mu", dist.Normal(0, 1))
    sample("obs", dist.Normal(mu, 1.0), obs=y)


def regression(x, y=None):
    beta = sample("beta", dist.Normal(jnp.zeros(x.shape[1]), 1))
    s = sample("s", dist.HalfNormal(1))
    mean = numpyro.deterministic("mean", x @ beta)
    with plate("data", len(x)):
        sample("y", dist.Normal(mean, s), obs=y)


def gaussian_process(x, y):
    v, noise = sample("v", dist.LogNormal(0.0, 1.0)), sample("noise", dist.LogNormal(0.0, 1.0))
    k = v * jnp.exp(-0.5 * (x[:, None] - x[None]) ** 2) + (noise + 1e-6) * jnp.eye(x.shape[0])
    sample("Y", dist.MultivariateNormal(jnp.zeros(x.shape[0]), covariance_matrix=k), obs=y)


def admissions(dept, male, applications, admit=None):
    mu = sample("mu", dist.Normal(0, jnp.array([4.0, 1.0])))
    tril = jnp.diag(jnp.ones(2)) @ sample("L", dist.LKJCholesky(2, concentration=2))
    z = sample("z", dist.Normal(jnp.zeros((len(np.unique(dept)), 2)), 1))
    v = (tril @ z.T).T
    logits = mu[0] + v[dept, 0] + (mu[1] + v[dept, 1]) * male
    with plate("data", len(dept)):
        sample("admit", dist.Binomial(applications, logits=logits), obs=admit)


def local_level(y):
    q, r = sample("q", dist.LogNormal(0, 1)), sample("r", dist.LogNormal(0, 1))

    def step(level, v):
        level = sample("level", dist.Normal(level, q))
        sample("y", dist.Normal(level, r), obs=v)
        return level, None

    scan(step, 0.0, y)


def masked(y):
    m = sample("m", dist.Normal(0, 1))
    with plate("d", len(y)), handlers.mask(mask=y > 0):
        sample("o", dist.Normal(m, 1.0), obs=y)


def scaled(y):
    m = sample("m", dist.Normal(0, 1))
    with handlers.scale(scale=2.0):
        sample("o", dist.Normal(m, 1.0), obs=y)


def softly_bound(y, g):
    m = sample("m", dist.Normal(0, 1).expand([4]))
    numpyro.factor("soft", -0.5 * jnp.sum(m) ** 2)
    sample("y", dist.Normal(m[g], 1.0), obs=y)


def twice_observed(y):
    m = sample("m", dist.Normal(0, 1))
    sample("earlier", dist.Normal(m, 1.0), obs=0.3)
    with plate("n", len(y)):
        sample("y", dist.Normal(m, 1.0), obs=y)


def branching(y):
    m = sample("m", dist.Normal(0, 1))
    if y.mean() > 100:
        m = m + 1
    sample("y", dist.Normal(m, 1.0), obs=y)


def transformed(y):
    m = sample("m", dist.Normal(0, 1))
    with plate("n", len(y)):
        sample("exp_y", dist.Normal(m, 1.0), obs=jnp.exp(y))


def counting_rows(y):
    m = sample("m", dist.Normal(0, 1 / np.sqrt(len(y))))
    with plate("n", len(y)):
        sample("y", dist.Normal(m, 1.0), obs=y)


def standardised(x, y):
    z = (x - x.mean()) / x.std()
    m = sample("m", dist.Normal(0, 1))
    with plate("n", len(y)):
        sample("y", dist.Normal(m * z, 1.0), obs=y)


def looped(y):
    a, x = sample("a", dist.Normal(0, 1)), 0.0
    for t in range(len(y)):
        x = sample(f"x{t}", dist.Normal(a * x, 1.0))
        sample(f"y{t}", dist.Normal(x, 1.0), obs=y[t])


def volatility(returns):
    step = sample("step", dist.Exponential(50.0))
    s = sample("s", dist.GaussianRandomWalk(scale=step, num_steps=len(returns)))
    sample("r", dist.StudentT(5.0, 0.0, jnp.exp(s)), obs=returns)


CASES = [
    (schools, {"J": N, "sigma": np.ones(N), "y": Y}, "'theta'"),
    (no_plate, {"y": Y}, None),
    (regression, {"x": X, "y": Y}, None),
    (gaussian_process, {"x": X[:, 0], "y": Y}, "no plate in common"),
    (admissions, {"dept": G, "male": B, "applications": C + 5, "admit": C}, None),
    (local_level, {"y": Y}, "scan"),
    (masked, {"y": Y}, None),
    (scaled, {"y": Y}, "scale"),
    (softly_bound, {"y": Y, "g": G}, None),
    (twice_observed, {"y": Y}, None),
    (branching, {"y": Y}, "branching"),
    (transformed, {"y": Y}, None),
    (counting_rows, {"y": Y}, "number of rows"),
    (standardised, {"x": X[:, 0], "y": Y}, "other rows"),
    (looped, {"y": Y[:4]}, "no plate in common"),
    (volatility, {"returns": Y}, "'s'"),
]


@pytest.mark.parametrize(("function", "arguments", "why"), CASES, ids=[c[0].__name__ for c in CASES])
def test_the_density_is_numpyros_and_it_is_said_why_there_are_no_rows(function, arguments, why):
    params = drawn(function, **arguments)
    data = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    settings = {name: value for name, value in arguments.items() if name not in data}
    model = probml.model(function)(**settings)
    want = log_density(function, (), arguments, params)
    np.testing.assert_allclose(model.log_density(data, params), want, rtol=1e-9, atol=1e-9)
    read, _, said, _ = read_function(model, data)
    assert read.is_joint == (why is not None)
    assert why is None or why in said, said
    assert why is not None or "rows" in said


# Rows that are found


def mixture(k, data=None, n=None):
    n = len(data) if n is None else n
    w = sample("w", dist.Dirichlet(jnp.ones(k)))
    with plate("components", k):
        m = sample("m", dist.Normal(0, 10))
    with plate("data", n):
        z = sample("z", dist.Categorical(w))
        sample("obs", dist.Normal(m[z], 1.0), obs=data)


@probml.model
def mixture_of_rows(k):
    w = sample("w", dist.Dirichlet(jnp.ones(k)))
    with plate("components", k):
        m = sample("m", dist.Normal(0, 10))
    with probml.rows():
        z = sample("z", dist.Categorical(w))
        sample("obs", dist.Normal(m[z], 1.0))


def test_rows_that_are_found_give_bit_for_bit_what_rows_gives():
    x = np.concatenate([RNG.normal(-3, 1, 10), RNG.normal(3, 1, 14)])
    found = probml.model(mixture)(k=2).fit({"data": x}, probml.EM(restarts=2))
    want = mixture_of_rows(k=2).fit({"obs": x}, probml.EM(restarts=2))
    for name, value in want.params.items():
        np.testing.assert_array_equal(found.params[name], value)
    np.testing.assert_array_equal(found.predict_proba({"data": x}, "z"),
                                  want.predict_proba({"obs": x}, "z"))
    np.testing.assert_array_equal(found.log_prob({"obs": x[:3]}), want.log_prob({"obs": x[:3]}))
    holes = np.where(np.arange(24) < 2, np.nan, x)
    np.testing.assert_array_equal(found.log_prob({"data": holes}), want.log_prob({"obs": holes}))


def test_a_least_and_a_greatest_value_of_a_column_are_facts_of_the_data():
    def raters(positions, votes):
        raters, classes = int(np.max(positions)) + 1, int(np.max(votes)) + 1
        items, per = votes.shape
        with plate("rater", raters, dim=-2), plate("class", classes):
            beta = sample("beta", dist.Dirichlet(jnp.ones(classes)))
        pi = sample("pi", dist.Dirichlet(jnp.ones(classes)))
        with plate("item", items, dim=-2):
            c = sample("c", dist.Categorical(pi))
            with plate("position", per):
                sample("y", dist.Categorical(beta[positions, c]), obs=votes)

    positions, votes = np.array([0, 0, 1]), RNG.integers(2, size=(7, 3))
    votes[0, 0] = 1
    p = {"beta": RNG.dirichlet(np.ones(2), (2, 2)), "pi": np.array([0.2, 0.8])}
    want = 0.0
    for row in votes:
        each = [p["pi"][c] * np.prod([p["beta"][r, c, v] for r, v in zip(positions, row,
                                                                         strict=True)])
                for c in range(2)]
        want += np.log(sum(each))
    model = probml.model(raters)()
    np.testing.assert_allclose(model.log_density({"positions": positions, "votes": votes}, p), want,
                               atol=1e-9)


def test_what_is_computed_in_rows_is_among_the_draws_and_new_rows_are_simulated():
    fit = probml.model(regression)().fit({"x": X, "y": Y}, probml.Laplace())
    draws = fit.draws(5)
    np.testing.assert_allclose(draws["mean"], draws["beta"] @ X.T, atol=1e-6)
    assert fit.simulate(x=np.zeros((7, 3)))["y"].shape == (7,)
    assert fit.predict({"x": X}, "y").shape == (N,)


def test_a_site_without_obs_is_observed_by_its_name():
    def own_plate(x):
        b = sample("b", dist.Normal(0.0, 1.0))
        with plate("data", len(x)):
            sample("y", dist.Normal(b * x, 1.0))

    def rows_forgotten(x):
        b = sample("b", dist.Normal(0.0, 1.0))
        sample("y", dist.Normal(b * x, 1.0))

    x = X[:, 0]
    want = stats.norm(0.5 * x, 1).logpdf(Y).sum() + stats.norm().logpdf(0.5)
    for function in (own_plate, rows_forgotten):
        got = probml.model(function)().log_density({"x": x, "y": Y}, {"b": 0.5})
        np.testing.assert_allclose(got, want, atol=1e-9)


# Scans


def test_a_scan_over_states_is_the_sum_over_all_paths():
    def hidden_markov(y, k):
        with plate("state", k):
            row = sample("row", dist.Dirichlet(jnp.ones(k)))
            m = sample("m", dist.Normal(0, 5))

        def step(z, y_t):
            z = sample("z", dist.Categorical(row[z]))
            sample("y", dist.Normal(m[z], 1.0), obs=y_t)
            return z, None

        scan(step, 0, y)

    y = RNG.normal(size=5)
    p = {"row": np.array([[0.8, 0.2], [0.3, 0.7]]), "m": np.array([-1.0, 1.0])}
    logs = []
    for path in itertools.product((0, 1), repeat=5):
        before = (0, *path[:-1])
        logs.append(np.log(p["row"][before, path]).sum()
                    + stats.norm(p["m"][list(path)], 1).logpdf(y).sum())
    want = logsumexp(logs) + stats.norm(0, 5).logpdf(p["m"]).sum()
    model = probml.model(hidden_markov)(k=2)
    np.testing.assert_allclose(model.log_density({"y": y}, p), want, atol=1e-9)


def test_a_scan_whose_steps_look_further_back_is_the_sum_over_all_paths():
    def second_order(y):
        m = sample("m", dist.Normal(0, 5))

        def step(carry, y_t):
            one, two = carry
            z = sample("z", dist.Bernoulli(0.2 + 0.3 * one + 0.2 * two))
            sample("y", dist.Normal(m * z, 1.0), obs=y_t)
            return (z, one), None

        scan(step, (0, 0), y)

    y, logs = Y[:5], []
    for path in itertools.product((0, 1), repeat=5):
        z = np.array((0, 0, *path))
        up = 0.2 + 0.3 * z[1:-1] + 0.2 * z[:-2]
        logs.append(np.log(np.where(z[2:], up, 1 - up)).sum()
                    + stats.norm(1.5 * z[2:], 1).logpdf(y).sum())
    want = logsumexp(logs) + stats.norm(0, 5).logpdf(1.5)
    got = probml.model(second_order)().log_density({"y": y}, {"m": 1.5})
    np.testing.assert_allclose(got, want, atol=1e-9)


def test_what_a_scan_over_states_returns_is_no_number():
    def looks_back(y):
        m = sample("m", dist.Normal(0, 5))

        def step(z, y_t):
            z = sample("z", dist.Bernoulli(0.2 + 0.3 * z))
            sample("y", dist.Normal(m * z, 1.0), obs=y_t)
            return z, z

        _, zs = scan(step, 0, y)
        sample("total", dist.Normal(jnp.sum(zs), 1.0), obs=1.0)

    refuses(lambda: probml.model(looks_back)().log_density({"y": Y}, {"m": 0.0}), "'z'", "scan")


# Handlers, names, pickles


def test_what_a_reparametrisation_makes_deterministic_is_among_the_draws():
    def effects(group, groups, y=None, **settings):
        tau = sample("tau", dist.HalfNormal(settings.get("scale", 2.0)))
        with plate("group", groups):
            a = sample("a", dist.Normal(0.0, tau))
        with plate("data", len(group)):
            sample("y", dist.Normal(a[group], 1.0), obs=y)

    centred = handlers.reparam(effects, config={"a": LocScaleReparam(0.0)})
    model = probml.model(centred)(groups=4, scale=3.0)
    fit = model.fit({"group": G, "y": Y}, probml.Laplace())
    draws = fit.draws(6)
    np.testing.assert_allclose(draws["a"], draws["tau"][:, None] * draws["a_decentered"], rtol=1e-5)


def test_a_value_may_be_given_by_the_name_of_its_site():
    model, params = probml.model(schools)(J=3), {"mu": 1.0, "tau": 2.0, "theta": np.arange(3.0)}
    sigma, y = np.ones(3), np.array([1.0, 2.0, 0.5])
    want = model.log_density({"sigma": sigma, "y": y}, params)
    np.testing.assert_allclose(model.log_density({"sigma": sigma, "obs": y}, params), want)


def test_a_plate_with_a_subsample_is_the_whole_plate():
    def logistic(x, y):
        w = sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
        with plate("data", len(x), subsample_size=4) as index:
            sample("y", dist.Bernoulli(logits=x[index] @ w), obs=y[index])

    w = np.array([1.0, -1.0, 0.5])
    logits = X @ w
    want = (B * logits - np.log1p(np.exp(logits))).sum() + stats.norm().logpdf(w).sum()
    got = probml.model(logistic)().log_density({"x": X, "y": B}, {"w": w})
    np.testing.assert_allclose(got, want, atol=1e-9)
    assert "All elements of the plate 'data' are used" in read_function(probml.model(logistic)(), {"x": X, "y": B}).reason


def test_a_model_that_was_read_is_pickled_and_equal():
    for data in ({"sigma": np.ones(3), "y": Y[:3]},):
        read = read_function(probml.model(schools)(J=3), data).model
        assert pickle.loads(pickle.dumps(read)) == read
    read = read_function(probml.model(mixture)(k=2), {"data": Y}).model
    assert pickle.loads(pickle.dumps(read)) == read
    assert read == read_function(probml.model(mixture)(k=2), {"data": Y[:5]}).model


def test_a_density_of_other_numbers_of_the_same_shape_is_the_same_model():
    model = probml.model(schools)(J=3)
    one = read_function(model, {"sigma": np.ones(3), "y": Y[:3]}).model
    assert one == read_function(model, {"sigma": np.full(3, 2.0), "y": Y[3:6]}).model
    assert one != read_function(probml.model(schools)(J=4), {"sigma": np.ones(4), "y": Y[:4]}).model


def test_a_density_is_simulated_once_more():
    fit = probml.model(schools)(J=3).at({"mu": 1.0, "tau": 2.0, "theta": np.arange(3.0)})
    drawn = probml.model(schools)(J=3).simulate(sigma=np.ones(3))
    assert set(drawn) == {"mu", "tau", "theta", "obs"} and drawn["obs"].shape == (3,)
    assert fit.point["theta"].shape == (3,)


# Refusals


def refuses(call, *words):
    with pytest.raises((probml.ModelError, probml.DataError)) as error:
        call()
    for word in words:
        assert word in str(error.value), str(error.value)


SIGMA = np.ones(3)


@pytest.mark.parametrize(("data", "words"), [
    ({"sigma": SIGMA, "y": SIGMA, "obs": SIGMA}, ("'obs'", "twice", "'y'")),
    ({"sigma": SIGMA}, ("missing", "'y'")),
    ({"sigma": SIGMA, "z": SIGMA}, ("'z'", "sigma", "obs")),
    ({"y": SIGMA}, ("have no 'sigma'",)),
    ({"sigma": SIGMA, "y": SIGMA, "J": 3}, ("'J'", "setting")),
    ({"sigma": np.array([1.0, np.nan, 2.0]), "y": SIGMA},
     ("'sigma'", "index 1", "'obs' depends", "rows()")),
    ({"sigma": SIGMA, "y": np.ones(4)}, ("'y'", "(4,)", "'J'")),
])
def test_data_that_do_not_fit_are_refused_by_name(data, words):
    refuses(lambda: probml.model(schools)(J=3).log_density(
        data, {"mu": 1.0, "tau": 2.0, "theta": np.arange(3.0)}
    ), *words)


def counts(y, k=2):
    rate = sample("rate", dist.Gamma(2.0, 1.0).expand([k]))
    numpyro.factor("soft", -rate.sum())
    with plate("n", len(y)), handlers.mask(mask=np.arange(len(y)) < 3):
        sample("hidden", dist.Poisson(rate[0]), obs=y)
    sample("y", dist.Poisson(rate[0]), obs=y[:3])


@pytest.mark.parametrize(("y", "words"), [
    (np.array([1, -1, 2, 3]), ("'y' is -1 at index 1", "handlers.mask")),
    (np.array([1, 0.5, 2, 3]), ("integers", "0.5")),
    (np.array(["a", "b", "a", "c"]), ("'y' is text", "are numbers")),
])
def test_values_that_a_site_cannot_have_are_refused_by_name(y, words):
    refuses(lambda: probml.model(counts)().log_density({"y": y}, {"rate": np.ones(2)}), *words)


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_values_under_a_mask_may_be_anything_and_sample_shape_is_an_axis(strength):
    def padded(y):
        m = sample("m", dist.Normal(0, 1), sample_shape=(3,))
        if strength:
            numpyro.factor("soft", -m.sum())
        with handlers.mask(mask=y >= 0):
            sample("y", dist.Poisson(jnp.exp(m[0])), obs=y)

    y, m = np.array([2, 0, -1]), np.array([0.1, 0.2, 0.3])
    want = (stats.norm().logpdf(m).sum() - strength * m.sum()
            + stats.poisson(np.exp(0.1)).logpmf(y[:2]).sum())
    got = probml.model(padded)().log_density({"y": y}, {"m": m})
    np.testing.assert_allclose(got, want, atol=1e-9)


def test_questions_about_rows_say_what_to_write():
    model = probml.model(scaled)()
    fit = model.fit({"y": Y}, probml.Laplace())
    for ask in (lambda: fit.merge(fit), lambda: fit.log_prob({"y": Y}),
                lambda: model.fit({"y": Y}, weights=np.ones(N)), lambda: fit.simulate(rows=3)):
        refuses(ask, "rows()")
    assert fit.simulate(y=Y)["o"].shape == ()
    np.testing.assert_allclose(fit.params["m"], 2 * Y.sum() / (1 + 2 * N), rtol=1e-4)


# What the tables of others' models found


def test_a_function_goes_on_with_what_was_observed():
    """A loop over time that hands on the value of its own site."""
    def walk(y):
        a, before = sample("a", dist.Normal(0, 1)), y[0]
        for t in range(1, len(y)):
            before = sample(f"y{t}", dist.Normal(a * before, 1.0), obs=y[t])

    y = Y[:5]
    want = stats.norm(0.5 * y[:-1], 1).logpdf(y[1:]).sum() + stats.norm().logpdf(0.5)
    np.testing.assert_allclose(probml.model(walk)().log_density({"y": y}, {"a": 0.5}), want,
                               atol=1e-9)


def test_a_handler_that_decorates_and_a_partial_function_are_models():
    @handlers.reparam(config={"a": LocScaleReparam(0.0)})
    def decorated(group, y, scale=1.0):
        with plate("group", 4):
            a = sample("a", dist.Normal(0.0, scale))
        with plate("n", len(y)):
            sample("y", dist.Normal(a[group], 1.0), obs=y)

    a = np.arange(4.0)
    want = stats.norm(2 * a[G], 1).logpdf(Y).sum() + stats.norm().logpdf(a).sum()
    data = {"group": G, "y": Y}
    for model in (probml.model(decorated)(scale=2.0),
                  probml.model(functools.partial(decorated, scale=2.0))()):
        np.testing.assert_allclose(model.log_density(data, {"a_decentered": a}), want, atol=1e-9)


# Discrete sites in plates, cell by cell


def raters_in_long_form(item, rater, y, items, raters):
    pi = sample("pi", dist.Dirichlet(jnp.ones(2)))
    theta = sample("theta", dist.Dirichlet(jnp.ones(2)).expand([raters, 2]).to_event(2))
    with plate("items", items):
        z = sample("z", dist.Categorical(pi))
        hard = sample("hard", dist.Bernoulli(jnp.where(z == 1, 0.3, 0.6)))
    with plate("ratings", len(y)):
        guess = sample("guess", dist.Bernoulli(0.2 + 0.2 * hard[item]))
        p = jnp.where(guess[:, None] == 1, 0.5, theta[rater, z[item]])
        sample("y", dist.Categorical(p), obs=y)


def test_cells_that_are_read_through_an_index_cost_states_times_cells():
    """Items of different numbers of ratings: three discrete sites, 40 and 100 cells."""
    items, raters, n = 40, 3, 100
    item, rater, y = RNG.integers(items, size=n), RNG.integers(raters, size=n), RNG.integers(
        2, size=n)
    p = {"pi": np.array([0.3, 0.7]), "theta": RNG.dirichlet(np.ones(2), (raters, 2))}
    want = 0.0
    for i in range(items):
        each = 0.0
        for z, hard in itertools.product((0, 1), (0, 1)):
            h = (0.6, 0.3)[z]
            one = p["pi"][z] * (h if hard else 1 - h)
            for j in np.flatnonzero(item == i):
                g = 0.2 + 0.2 * hard
                one *= g * 0.5 + (1 - g) * p["theta"][rater[j], z, y[j]]
            each += one
        want += np.log(each)
    model = probml.model(raters_in_long_form)(items=items, raters=raters)
    got = model.log_density({"item": item, "rater": rater, "y": y}, p)
    np.testing.assert_allclose(got, want, atol=1e-9)


def test_cells_that_look_at_each_other_are_refused_by_name():
    def blocks(graph, k=2):
        p = sample("p", dist.Beta(1, 1).expand([k, k]).to_event(2))
        with plate("nodes", len(graph)):
            z = sample("z", dist.Categorical(jnp.ones(k) / k))
        sample("graph", dist.Bernoulli(p[z[:, None], z]), obs=graph)

    graph = RNG.integers(2, size=(20, 20))
    refuses(lambda: probml.model(blocks)().log_density({"graph": graph}, {"p": np.full((2, 2), .4)}),
            "'graph'", "'z' is discrete and latent", "depends on several of them")


# Numbers that are no sites, branches


def test_a_param_is_found_with_the_others_and_begins_where_it_says():
    def shifted(y):
        loc = numpyro.param("loc", 0.3)
        scale = numpyro.param("scale", 1.5, constraint=dist.constraints.positive)
        with plate("n", len(y)):
            sample("y", dist.Normal(loc, scale), obs=y)

    model = probml.model(shifted)()
    fit = model.fit({"y": Y}, probml.MAP())
    np.testing.assert_allclose([fit.params["loc"], fit.params["scale"]], [Y.mean(), Y.std()],
                               atol=1e-4)
    read = read_function(model, {"y": Y})
    assert not read.model.is_joint and read.initial_values == {"loc": 0.3, "scale": 1.5}
    assert fit.simulate(4)["y"].shape == (4,)


def test_the_weights_of_a_network_are_one_vector():
    def network(x, y):
        f = numpyro.module("net", stax.serial(stax.Dense(2), stax.Tanh, stax.Dense(1)),
                           (x.shape[-1],))
        with plate("n", len(y)):
            sample("y", dist.Normal(f(x)[:, 0], 0.1), obs=y)

    x = np.linspace(-1, 1, 9)[:, None]
    y = np.tanh(2 * x[:, 0])
    fit = probml.model(network)().fit({"x": x, "y": y}, probml.MAP())
    assert fit.params["net$params"].shape == (7,)
    np.testing.assert_allclose(fit.predict({"x": x}, "y"), y, atol=0.2)


def test_a_branch_of_numpyros_cond_has_its_density():
    def branch(y):
        a = sample("a", dist.Normal(0, 1))
        x = cond(a > 0, lambda _: sample("x", dist.Normal(20.0)),
                 lambda _: sample("x", dist.Normal(0.0)), None)
        sample("y", dist.Normal(x, 1.0), obs=y)

    for a in (0.5, -0.5):
        params = {"a": jnp.asarray(a), "x": jnp.asarray(3.0)}
        want = log_density(branch, (), {"y": Y}, params)
        np.testing.assert_allclose(probml.model(branch)().log_density({"y": Y}, params), want,
                                   atol=1e-9)


def test_a_site_of_cond_is_a_parameter_and_has_draws():
    def branch(y):
        m = sample("m", dist.Normal(0, 1))
        s = cond(m > 0, lambda _: sample("s", dist.Normal(1.0, 2.0)),
                 lambda _: sample("s", dist.Normal(1.0, 2.0)), None)
        sample("y", dist.Normal(m + s, 1.0), obs=y)

    fit = probml.model(branch)().fit({"y": Y}, probml.Laplace())
    covariance = np.linalg.inv(np.diag([1.0, 0.25]) + len(Y))
    drawn = fit.draws(4000, seed=0)
    np.testing.assert_allclose(np.cov(drawn["m"], drawn["s"]), covariance, atol=0.12)
    np.testing.assert_allclose([drawn["m"].mean(), drawn["s"].mean()],
                               covariance @ (np.array([0.0, 0.25]) + Y.sum()), atol=0.1)
    assert np.isfinite(fit.simulate(seed=0)["y"])


def test_a_bound_that_is_computed_from_data_has_its_posterior():
    def shifted(y):
        shift = sample("shift", dist.Uniform(0, jnp.min(y)))
        with plate("n", len(y)):
            sample("y", dist.Exponential(1.0), obs=y - shift)

    y = 0.3 + np.abs(Y)
    fit = probml.model(shifted)().fit({"y": y})
    n, top = len(y), y.min()  # the density is exp(n shift) up to the smallest
    want = top / (1 - np.exp(-n * top)) - 1 / n
    np.testing.assert_allclose(fit.draws(4000, seed=0)["shift"].mean(), want, atol=0.15 / n)


def test_a_number_of_rows_that_is_a_setting_is_theirs():
    def counted(y, n):
        m = sample("m", dist.Normal(0, 1))
        with plate("n", n):
            sample("y", dist.Normal(m, 1.0), obs=y)

    read = read_function(probml.model(counted)(n=N), {"y": Y}).model
    assert not read.is_joint
    fit = probml.model(counted)(n=N).fit({"y": Y})
    assert fit.log_prob({"y": Y[:3]}).shape == (3,)


# Keeping


def test_a_fit_of_a_model_that_was_read_is_saved_and_loaded(tmp_path):
    data = {"y": Y}
    for function in (scaled, no_plate):
        model = probml.model(function)()
        fit = model.fit(data, probml.MAP())
        fit.save(tmp_path / "fit")
        refuses(lambda model=model: probml.load(tmp_path / "fit", model), "model.read(data)")
        back = probml.load(tmp_path / "fit", model.read(data))
        for name, value in fit.params.items():
            np.testing.assert_array_equal(back.params[name], value)
        np.testing.assert_allclose(back.log_joint(data), fit.log_joint(data))


def subsampled(x, y):
    w = sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
    with plate("data", len(x), subsample_size=4) as index:
        sample("y", dist.Bernoulli(logits=x[index] @ w), obs=y[index])


def test_batches_of_a_subsampled_plate_are_the_whole_on_average():
    met = read_function(probml.model(subsampled)(), {"x": X, "y": B})
    data = read(met.model, met.data)
    plan = data.plan()
    rows_, known = load(data, plan)
    u = np.array([0.3, -0.2, 0.5])
    whole, slope = density.log_posterior(plan, known, rows_)(u)
    parts = [density.log_posterior(plan, known, rows_.taken(jnp.array([i, i, i, i])), N / 4)(u)
             for i in range(N)]
    np.testing.assert_allclose(np.mean([value for value, _ in parts]), whole, rtol=1e-12)
    np.testing.assert_allclose(np.mean([gradient for _, gradient in parts], 0), slope, atol=1e-12)


def test_svi_and_an_optimiser_take_the_batches_that_a_function_asks_for():
    model = probml.model(subsampled)()
    fit = model.fit({"x": X, "y": B}, probml.SVI(steps=50))
    assert fit.by.batch_rows == 4 and "batches of 4" in read_function(model, {"x": X, "y": B}).reason
    assert probml.MAP(optax.adam(0.1)).capabilities.batches
    assert not probml.MAP().capabilities.batches
    assert not probml.SVI(batch_rows=6).capabilities.batches
