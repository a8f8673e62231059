"""Every site with finitely many values is discrete: unseen it is summed out, in rows and outside
them, and answers bear its values."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from numpyro.infer import util
from scipy.special import logsumexp

import probml
from cases import nan
from plain_numpyro import log_density

Y = np.array([1.4, 3.9, 0.2, 5.1, 2.6])
X = np.array([-1.0, 0.3, 1.2, -0.4, 2.0])
COUNTS = np.array([3, 1, 0, 6, 2])


@probml.model
def dice():
    step = sample("step", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        z = sample("z", dist.DiscreteUniform(1, 6))
        sample("y", dist.Normal(z * step, 1.0))


@probml.model
def ordered(x):
    step = sample("step", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        z = sample("z", dist.OrderedLogistic(step * x, jnp.array([-1.0, 1.0])))
        sample("y", dist.Normal(1.0 * z, 1.0))


@probml.model
def thinned():
    step = sample("step", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Binomial(6, logits=step))
        sample("y", dist.Poisson(0.5 + z))


@probml.model
def spread():
    step = sample("step", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        z = sample("z", dist.BetaBinomial(step, 2.0, 4))
        sample("y", dist.Normal(1.0 * z, 1.0))


@probml.model
def inflated():
    step = sample("step", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        z = sample("z", dist.ZeroInflatedDistribution(dist.Binomial(4, 0.6), gate=0.2))
        sample("y", dist.Normal(step * z, 1.0))


HIDDEN = {  # model, data, values of z
    "DiscreteUniform": (dice(), {"y": Y}, range(1, 7)),
    "OrderedLogistic": (ordered(), {"x": X, "y": Y}, range(3)),
    "Binomial": (thinned(), {"y": COUNTS}, range(7)),
    "BetaBinomial": (spread(), {"y": Y}, range(5)),
    "a Binomial with more zeros": (inflated(), {"y": Y}, range(5)),
}
AT = {"step": jnp.asarray(0.8)}
PRIOR = float(dist.LogNormal(0.0, 1.0).log_prob(0.8))


def brute(model, data, values):
    """log p(z, row | step) by NumPyro, (rows, values)."""
    inputs = {name: jnp.asarray(data[name]) for name in model.inputs}
    sites = {name: jnp.asarray(array) for name, array in data.items() if name not in inputs}

    @jax.jit
    def joint(z):
        trace = util.log_density(lambda: model(rows=len(Y), **inputs), (), {},
                                 {**AT, **sites, "z": z})[1]
        return trace["z"]["fn"].log_prob(z) + trace["y"]["fn"].log_prob(sites["y"])

    return np.stack([joint(np.full(len(Y), value)) for value in values], 1)


@pytest.mark.parametrize("case", HIDDEN)
def test_a_hidden_site_of_finite_support_is_summed_out_as_by_brute_force(case):
    model, data, values = HIDDEN[case]
    log = brute(model, data, values)
    np.testing.assert_allclose(model.log_density(data, AT), logsumexp(log, 1).sum() + PRIOR,
                               rtol=2e-5)
    fit, p = model.at(AT), np.exp(log - logsumexp(log, 1, keepdims=True))
    np.testing.assert_allclose(fit.predict_proba(data, "z"), p, atol=2e-5)
    assert fit.labels("z") == tuple(values)
    np.testing.assert_array_equal(fit.decode(data)["z"], np.asarray(values)[p.argmax(1)])
    seen = np.array([values[1], nan, values[2], nan, nan])
    partly = log[0, 1] + log[2, 2] + logsumexp(log[[1, 3, 4]], 1).sum() + PRIOR
    np.testing.assert_allclose(model.log_density({**data, "z": seen}, AT), partly, rtol=2e-5)
    if "Binomial" in case:  # counts are answered by a mean
        np.testing.assert_allclose(fit.predict(data, "z"), p @ np.asarray(values), rtol=1e-4)
    else:
        np.testing.assert_array_equal(fit.predict(data, "z"), np.asarray(values)[p.argmax(1)])


def test_em_map_and_brute_force_agree_on_a_hidden_die():
    found = [dice().fit({"y": Y}, engine) for engine in (probml.EM(), probml.MAP())]
    np.testing.assert_allclose(found[0].params["step"], found[1].params["step"], rtol=1e-3)
    at = {"step": jnp.asarray(found[0].params["step"])}
    here = dice().log_density({"y": Y}, at)
    assert all(dice().log_density({"y": Y}, {"step": at["step"] * c}) <= here + 1e-5
               for c in (0.97, 1.03))


def test_values_that_begin_at_one_are_data_and_answers_as_they_are():
    model, z = dice(), np.array([1, 6, 2, 3, 6])
    want = log_density(lambda: model(rows=5), (), {},
                       {**AT, "y": jnp.asarray(Y), "z": jnp.asarray(z)})
    np.testing.assert_allclose(model.log_density({"y": Y, "z": z}, AT), want, rtol=1e-5)
    fit = model.at(AT)
    drawn = fit.simulate(rows=400, seed=1)
    assert drawn["z"].min() == 1 and drawn["z"].max() == 6
    away = drawn["y"] - 0.8 * drawn["z"]
    # the function was given the values, and not the codes
    assert abs(away.mean()) < 0.2 and abs(away.std() - 1) < 0.15
    given = fit.simulate(given={"z": z})
    np.testing.assert_array_equal(given["z"], z)
    for done in (fit.do({"z": 6}).simulate(rows=400), model.do({"z": 6}).at(AT).simulate(rows=400)):
        assert (done["z"] == 6).all() and abs(done["y"].mean() - 4.8) < 0.2
    with pytest.raises(probml.DataError, match="'z'.*7.*row 2"):
        model.fit({"y": Y, "z": [1, 2, 7, 3, 4]})
    with pytest.raises(probml.ModelError, match="from 1 to 6"):
        model.do({"z": 0})


@probml.model
def change(t):
    with plate("era", 2):
        rate = sample("rate", dist.Gamma(2.0, 1.0))
    tau = sample("tau", dist.DiscreteUniform(3, 8))
    with probml.rows():
        sample("c", dist.Poisson(jnp.where(t < tau, rate[0], rate[1])))


def test_a_change_point_outside_rows_has_its_years_in_every_answer():
    data = {"t": np.arange(10.0), "c": np.array([1, 0, 2, 1, 1, 6, 7, 5, 9, 6])}
    at, model = {"rate": jnp.array([1.0, 6.0])}, change()

    @jax.jit
    def joint(tau):
        return util.log_density(lambda: model(t=jnp.asarray(data["t"])), (), {},
                           {**at, "tau": tau, "c": jnp.asarray(data["c"])})[0]

    logs = np.array([joint(tau) for tau in range(3, 9)])
    np.testing.assert_allclose(model.log_density(data, at), logsumexp(logs), rtol=1e-5)
    np.testing.assert_allclose(model.log_density({**data, "tau": 5}, at), logs[2], rtol=1e-5)
    fit = model.fit(data)
    assert fit.labels("tau") == (3, 4, 5, 6, 7, 8)
    posterior, draws = fit.posterior("tau"), fit.draws(200)["tau"]
    assert abs(draws.mean() - posterior.mean) < 0.2 and draws.min() >= 3 and abs(
        float(posterior.mean) - 5
    ) < 0.5
    np.testing.assert_allclose(posterior.log_prob(5), np.log(posterior.probs[2]), rtol=1e-5)


def test_a_total_of_each_member_bounds_its_count():
    trials = np.array([10, 5, 3])

    @probml.model
    def counts():
        p = sample("p", dist.Beta(1.0, 1.0))
        with plate("g", 3):
            sample("c", dist.Binomial(trials, p))
        with probml.rows():
            sample("y", dist.Bernoulli(p))
            with plate("h", 3):
                sample("d", dist.Binomial(trials[:, None], p))

    data = {"y": np.array([1, 0]), "d": np.array([[4, 1, 3], [9, 0, 2]]), "c": np.array([3, 2, 1])}
    at, placed = {"p": jnp.asarray(0.3)}, {**data, "d": data["d"].T}
    want = log_density(lambda: counts()(rows=2), (), {},
                       {**at, **{k: jnp.asarray(v) for k, v in placed.items()}})
    np.testing.assert_allclose(counts().log_density(data, at), want, rtol=1e-5)
    # what is unseen sums to one
    without = want - dist.Binomial(trials, 0.3).log_prob(data["c"]).sum()
    np.testing.assert_allclose(counts().log_density({k: data[k] for k in ("y", "d")}, at), without,
                               rtol=1e-5)
    with pytest.raises(probml.DataError, match="'d'.*4.*row 1"):
        counts().fit({**data, "d": np.array([[4, 1, 3], [9, 0, 4]])})


def test_a_total_that_is_no_constant_is_refused_in_words():
    @probml.model
    def binomials(n):
        p = sample("p", dist.Beta(1.0, 1.0))
        with probml.rows():
            z = sample("z", dist.Binomial(n, p))
            sample("y", dist.Normal(1.0 * z, 1.0))

    with pytest.raises(probml.ModelError, match="'z' .Binomial.*total_count.*input"):
        binomials().fit({"n": np.array([3, 4, 5]), "y": Y[:3]})


def test_each_cell_has_its_own_bounds():
    @probml.model
    def uneven():
        step = sample("step", dist.LogNormal(0.0, 1.0))
        with probml.rows(), plate("g", 2):
            z = sample("z", dist.DiscreteUniform(1, np.array([[2], [4]])))
            sample("y", dist.Normal(z * step, 1.0))

    y = np.array([[0.4, 2.1], [1.5, 0.3]])
    want = PRIOR
    for j, last in enumerate((2, 4)):
        values = 0.8 * np.arange(1, last + 1)
        want += logsumexp(
            -0.5 * (y[:, j, None] - values) ** 2 - 0.5 * np.log(2 * np.pi) - np.log(last), 1
        ).sum()
    np.testing.assert_allclose(uneven().log_density({"y": y}, AT), want, rtol=1e-5)
    with pytest.raises(probml.DataError, match="'z'.*got 3 in row 1, cell 0"):
        uneven().fit({"y": y, "z": [[1, 3], [3, 1]]})


def test_counts_outside_rows_may_have_a_total_each():
    @probml.model
    def votes():
        p = sample("p", dist.Dirichlet(jnp.ones(2)))
        with plate("g", 3):
            sample("c", dist.Multinomial(np.array([10, 5, 3]), p))
        with probml.rows():
            sample("y", dist.Categorical(p))

    data, at = ({"y": np.array([0, 1]), "c": np.array([[4, 6], [2, 3], [3, 0]])},
                {"p": jnp.array([0.3, 0.7])})
    want = log_density(lambda: votes()(rows=2), (), {},
                       {**at, **{name: jnp.asarray(value) for name, value in data.items()}})
    np.testing.assert_allclose(votes().log_density(data, at), want, rtol=1e-5)
