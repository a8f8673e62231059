"""Numbers along time, integrated out by Kalman's filter: held to the joint normal distribution."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy import stats

import probml

nan = np.nan
T, ROWS = 5, 6


@probml.model
def web(u, v):
    """Two chains, one of which pushes the other, a number of the row and one along time, and a
    state: seen in two columns and in a vector."""
    weights = sample("weights", dist.Dirichlet(jnp.ones(2)))
    turn = sample("turn", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
    push = sample("push", dist.LogNormal(0.0, 1.0))
    drift = sample("drift", dist.LogNormal(0.0, 1.0))
    beta = sample("beta", dist.Normal(0.0, 1.0))
    noise = sample("noise", dist.LogNormal(0.0, 1.0))
    with plate("state", 2):
        load = sample("load", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with probml.rows():
        c = sample("c", dist.Categorical(weights))
        b = sample("b", dist.Normal(v, 1.5))
        r = sample("r", probml.GaussianChain(jnp.ones(1), 2 * jnp.eye(1), 0.9 * jnp.eye(1),
                                             drift * jnp.eye(1)))
        offset = beta * u[..., None] + jnp.stack([r[..., 0], jnp.zeros_like(r[..., 0])], -1)
        # the second number is the first one, a step before: without noise
        still = push * jnp.diag(jnp.array([1.0, 0.0]))
        moves = jnp.stack([turn[0], jnp.array([1.0, 0.0])])
        z = sample("z", probml.GaussianChain(jnp.zeros(2), jnp.eye(2), moves, still,
                                             offset=offset))
        w = sample("w", dist.Normal(0.5 * z[..., 1] + u, 0.7).to_event(1))
        mean = (load[c][..., None, :] * z).sum(-1) + b[..., None]
        sample("x", dist.Normal(mean, noise).to_event(1))
        pair = jnp.stack([w, 2 * w - r[..., 0]], -1)
        sample("y", dist.MultivariateNormal(pair, jnp.array([[1.0, 0.3], [0.3, 0.5]])).to_event(1))


RNG = np.random.default_rng(0)
WEB = {"weights": np.array([0.4, 0.6]), "turn": np.array([[0.5, 0.3], [0.1, 0.2]]),
       "push": np.array(0.8), "drift": np.array(0.4), "beta": np.array(0.7),
       "noise": np.array(0.6), "load": np.array([[1.0, 0.5], [-0.6, 0.2]])}
# places of (b, then r, z, w, x, y of every step) in the joint vector
WIDE = 7
PLACES = {"b": lambda t: [0], "r": lambda t: [1 + WIDE * t],
          "z": lambda t: [2 + WIDE * t, 3 + WIDE * t], "w": lambda t: [4 + WIDE * t],
          "x": lambda t: [5 + WIDE * t], "y": lambda t: [6 + WIDE * t, 7 + WIDE * t]}


def joint(p, u, v, c):
    """Mean and covariance of everything normal of a row in state c."""
    n = 1 + WIDE * T
    step, own, base = np.zeros((n, n)), np.zeros((n, n)), np.zeros(n)
    base[0], own[0, 0] = v, 1.5**2
    for t in range(T):
        at = {name: place(t) for name, place in PLACES.items()}
        (r,), z, (w,), (x,), y = at["r"], at["z"], at["w"], at["x"], at["y"]
        if t == 0:
            base[r], own[r, r], own[np.ix_(z, z)] = 1.0, 2.0, np.eye(2)
        else:
            step[r, PLACES["r"](t - 1)], own[r, r] = 0.9, p["drift"]
            before = PLACES["z"](t - 1)
            step[z[0], before], step[z[1], before[0]] = p["turn"][0], 1.0
            step[z[0], r] = 1.0
            base[z], own[z[0], z[0]] = p["beta"] * u[t], p["push"]
        step[w, z[1]], base[w], own[w, w] = 0.5, u[t], 0.49
        step[x, z], step[x, 0], own[x, x] = p["load"][c], 1.0, p["noise"] ** 2
        step[y[0], w], step[y[1], w], step[y[1], r] = 1.0, 2.0, -1.0
        own[np.ix_(y, y)] = [[1.0, 0.3], [0.3, 0.5]]
    total = np.linalg.inv(np.eye(n) - step)
    return total @ base, total @ own @ total.T


def told(seen, mean, cov):
    """log p of what is seen of the joint vector, and mean and covariance of all of it given that."""
    s = ~np.isnan(seen)
    if not s.any():
        return 0.0, mean, cov
    part = cov[np.ix_(s, s)]
    gain = np.linalg.solve(part, cov[s]).T
    log = stats.multivariate_normal(mean[s], part, allow_singular=False).logpdf(seen[s])
    return log, mean + gain @ (seen[s] - mean[s]), cov - gain @ cov[s]


def some_web(shown, holes=0.3):
    """Rows drawn from the joint normal, `shown` of its sites seen but for a share of cells."""
    random = np.random.default_rng(1)
    u, v = random.normal(size=(ROWS, T)), random.normal(size=ROWS)
    seen = np.full((ROWS, 1 + WIDE * T), nan)
    for i in range(ROWS):
        mean, cov = joint(WEB, u[i], v[i], i % 2)
        seen[i] = mean + np.linalg.cholesky(cov + 1e-12 * np.eye(len(cov))) @ random.normal(
            size=len(mean))
    kept = np.zeros(seen.shape, bool)
    for name in shown:
        for t in range(T):
            kept[:, PLACES[name](t)] = random.random((ROWS, len(PLACES[name](t)))) >= holes
    seen[~kept] = nan
    seen[0] = nan
    data = {"u": u, "v": v, "c": np.where(random.random(ROWS) < 0.4, np.arange(ROWS) % 2, nan)}
    for name in shown:
        columns = np.stack([seen[:, PLACES[name](t)] for t in range(T)], 1)
        data[name] = columns[:, 0, 0] if name == "b" else (
            columns if name in "yz" else columns[..., 0] if name != "r" else columns)
    return data, seen


CASES = {"only x": ("x",), "x and y": ("x", "y"), "holes in w": ("w", "x", "y"),
         "holes in b and r": ("b", "r", "x")}


@pytest.fixture(scope="module")
def fit():
    return web().at(WEB)


def shares(data, seen):
    """log p(row), p(c | row), and mean and covariance of the joint vector in each state."""
    found = [[told(row, *joint(WEB, u, v, k)) for k in range(2)]
             for row, u, v in zip(seen, data["u"], data["v"], strict=True)]
    logs = np.array([[np.log(WEB["weights"][k]) + found[i][k][0]
                      if np.isnan(c) or c == k else -np.inf for k in range(2)]
                     for i, c in enumerate(data["c"])])
    total = np.logaddexp.reduce(logs, 1)
    return total, np.exp(logs - total[:, None]), found


@pytest.mark.parametrize("case", CASES)
def test_any_holes_of_numbers_along_time_are_the_joint_normal(case, fit):
    data, seen = some_web(CASES[case])
    total, share, found = shares(data, seen)
    np.testing.assert_allclose(fit.log_prob(data), total, atol=1e-9)
    np.testing.assert_allclose(fit.predict_proba(data, "c"), share, atol=1e-9)
    filled = fit.impute(data)
    for i in range(ROWS):
        mean = share[i] @ np.array([found[i][k][1] for k in range(2)])
        for name, place in PLACES.items():
            got = np.asarray(filled[name][i])
            want = np.array([mean[place(t)] for t in range(T)])
            np.testing.assert_allclose(got, want[0, 0] if name == "b" else want.reshape(got.shape),
                                       atol=1e-9, err_msg=name)


def test_a_conditional_along_time_is_that_of_each_step(fit):
    data, seen = some_web(("x", "y"))
    data["c"] = np.zeros(ROWS)
    found = fit.conditional(data, "z")
    assert found.batch_shape == (ROWS, T) and found.event_shape == (2,)
    other = fit.conditional({**data, "c": np.full(ROWS, nan)}, "z")
    assert isinstance(other, dist.MixtureSameFamily) and other.batch_shape == (ROWS, T)
    for i in range(ROWS):
        _, mean, cov = told(seen[i], *joint(WEB, data["u"][i], data["v"][i], 0))
        for t in range(T):
            at = PLACES["z"](t)
            np.testing.assert_allclose(found.mean[i, t], mean[at], atol=1e-9)
            np.testing.assert_allclose(found.covariance_matrix[i, t], cov[np.ix_(at, at)],
                                       atol=1e-9)
    alone = fit.conditional(data, "b")
    _, mean, cov = told(seen[2], *joint(WEB, data["u"][2], data["v"][2], 0))
    np.testing.assert_allclose([alone.mean[2], alone.variance[2]], [mean[0], cov[0, 0]], atol=1e-9)


def test_filtered_and_predicted_look_no_further(fit):
    data, seen = some_web(("x", "y"))
    data["c"] = np.zeros(ROWS)
    for view, more in (("filtered", 1), ("predicted", 0)):
        got = np.asarray(fit.predict(data, "z", given=view))
        for i in range(ROWS):
            for t in range(T):
                known = seen[i].copy()
                known[1 + WIDE * (t + more) :] = nan
                mean = told(known, *joint(WEB, data["u"][i], data["v"][i], 0))[1]
                np.testing.assert_allclose(got[i, t], mean[PLACES["z"](t)], atol=1e-9)


def test_paths_given_a_row_have_its_conditional_moments(fit):
    data, seen = some_web(("x", "y"))
    n, i = 4000, 3
    many = {name: np.repeat(value[i : i + 1], n, 0) for name, value in data.items()}
    many["c"] = np.zeros(n)
    drawn = fit.simulate(seed=2, given=many)
    got = np.concatenate([drawn["r"][:, :, 0], drawn["z"][:, :, 1], drawn["w"],
                          drawn["b"][:, None]], 1)
    _, mean, cov = told(seen[i], *joint(WEB, data["u"][i], data["v"][i], 0))
    at = [*(PLACES["r"](t)[0] for t in range(T)), *(PLACES["z"](t)[1] for t in range(T)),
          *(PLACES["w"](t)[0] for t in range(T)), 0]
    cov = cov[np.ix_(at, at)]
    np.testing.assert_allclose(got.mean(0), mean[at], atol=5 * np.sqrt(np.diag(cov).max() / n))
    np.testing.assert_allclose(np.cov(got.T), cov, atol=0.12 * np.diag(cov).max())


def test_a_chain_of_which_nothing_is_seen_is_filled_by_its_own_means():
    def lone():
        with probml.rows():
            sample("y", dist.Normal(0.0, 1.0))
            sample("z", probml.GaussianChain(jnp.ones(1), jnp.eye(1), 0.5 * jnp.eye(1), jnp.eye(1), steps=3))

    found = probml.model(lone)().at({}).impute({"y": np.array([0.0, 2.0])})["z"]
    np.testing.assert_allclose(found, np.tile([[1.0], [0.5], [0.25]], (2, 1, 1)), rtol=1e-12)
