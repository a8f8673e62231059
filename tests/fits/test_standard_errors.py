"""Standard errors of points: closed forms of regressions, second differences of a mixture's log
likelihood, Laplace's widths; and words where there are none."""

import pickle

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import deterministic, plate, sample
from scipy import stats

import probml

RANDOM = np.random.default_rng(0)
N = 120
X = RANDOM.normal(size=(N, 2))
WIDE = np.c_[X, np.ones(N)]
LINE = X @ [0.6, -1.0] + 0.3
FLAT = dist.ImproperUniform(dist.constraints.real, (), ())
MOST_LIKELY = probml.MAP(prior=False)


@probml.model
def regression(x, kind):
    beta = sample("beta", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    eta = x @ beta + sample("bias", dist.Normal(0.0, 2.0))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=eta) if kind == "logistic" else dist.Poisson(jnp.exp(eta)))


LOGISTIC, POISSON = regression(kind="logistic"), regression(kind="poisson")
CLASSES = (RANDOM.random(N) < 1 / (1 + np.exp(-LINE))).astype(int)
COUNTS = RANDOM.poisson(np.exp(LINE))
REGRESSIONS = {  # the model, what is seen, and the weight of a row, each by its linear predictor
    "logistic": (LOGISTIC, CLASSES, lambda eta: np.exp(eta) / (1 + np.exp(eta)) ** 2),
    "poisson": (POISSON, COUNTS, np.exp),
}


def told(fit, *data, **named):
    return fit.summary(*data, **named)["sd"].to_dict()


def of_planes(fit, weight, prior=0.0):
    """Closed forms: (Xᵀ W X + the prior's precision)⁻¹."""
    eta = WIDE @ np.r_[fit.point["beta"], fit.point["bias"]].astype(float)
    inverse = np.linalg.inv(WIDE.T * weight(eta) @ WIDE + prior * np.eye(3))
    return dict(zip(("beta[0]", "beta[1]", "bias"), np.sqrt(np.diag(inverse)), strict=True))


@pytest.mark.parametrize("name", REGRESSIONS)
def test_regressions_have_the_standard_errors_of_their_closed_form(name):
    model, y, weight = REGRESSIONS[name]
    fit = model.fit({"x": X, "y": y}, MOST_LIKELY)
    assert told(fit) == pytest.approx(of_planes(fit, weight), rel=1e-4)
    assert "not posterior standard deviations" in fit.summary().attrs["sd"]
    twice = np.where(np.arange(N) < 40, 2.0, 0.5)
    weighed = model.fit({"x": X, "y": y}, MOST_LIKELY, weights=twice)
    assert told(weighed) == pytest.approx(of_planes(weighed, lambda eta: twice * weight(eta)),
                                          rel=1e-4)


def test_a_noise_has_one_too_and_what_is_computed():
    @probml.model
    def line(x):
        beta = sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        noise = sample("noise", dist.HalfNormal(1.0))
        deterministic("ratio", beta[0] / beta[1])
        with probml.rows():
            sample("y", dist.Normal(x @ beta, noise))

    y = X @ [1.0, 2.0] + 0.5 * RANDOM.normal(size=N)
    fit = line().fit({"x": X, "y": y}, MOST_LIKELY)
    found, noise, beta = told(fit), float(fit.point["noise"]), fit.point["beta"].astype(float)
    covariance = noise**2 * np.linalg.inv(X.T @ X)
    slope = np.array([1 / beta[1], -beta[0] / beta[1] ** 2])
    want = dict(zip(("beta[0]", "beta[1]"), np.sqrt(np.diag(covariance)), strict=True))
    want |= {"noise": noise / np.sqrt(2 * N), "ratio": np.sqrt(slope @ covariance @ slope)}
    assert found == pytest.approx(want, rel=1e-4)


def test_of_a_prior_they_are_laplaces_widths():
    data = {"x": X, "y": CLASSES}
    mode, normal = LOGISTIC.fit(data, probml.MAP()), LOGISTIC.fit(data, probml.Laplace())
    assert told(mode) == pytest.approx(told(normal), rel=0.1)  # by draws
    assert told(mode) == pytest.approx(of_planes(mode, REGRESSIONS["logistic"][2], 0.25), rel=1e-4)


def test_a_mixture_has_its_observed_information():
    @probml.model
    def mixture():
        share = sample("share", dist.Beta(2.0, 2.0))
        at = sample("at", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
        wide = sample("wide", dist.LogNormal(0.0, 1.0).expand([2]).to_event(1))
        with probml.rows():
            z = sample("z", dist.Bernoulli(share))
            sample("x", dist.Normal(at[z], wide[z]))

    x = np.r_[RANDOM.normal(-2, 1, 60), RANDOM.normal(2, 0.7, 90)]
    fit = mixture().fit({"x": x}, probml.EM(prior=False))
    point = np.r_[fit.point["share"], fit.point["at"], fit.point["wide"]].astype(float)

    def log(t):
        parts = (np.log([[1 - t[0]], [t[0]]])
                 + stats.norm.logpdf(x, np.reshape(t[1:3], (2, 1)), np.reshape(t[3:], (2, 1))))
        return np.logaddexp(*parts).sum()

    steps = 1e-4 * np.eye(5)
    bends = np.array([[log(point + a + b) - log(point + a - b) - log(point - a + b)
                       + log(point - a - b) for a in steps] for b in steps]) / 4e-8
    assert list(told(fit).values()) == pytest.approx(np.sqrt(np.diag(np.linalg.inv(-bends))),
                                                     rel=1e-3)


def test_coefficients_beside_effects_that_are_integrated_out_have_those_of_least_squares():
    group = np.arange(N) % 8

    @probml.model
    def mixed(x, group):
        mean, slope = sample("mean", FLAT), sample("slope", FLAT)
        wide, noise = sample("wide", dist.HalfNormal(5.0)), sample("noise", dist.HalfNormal(5.0))
        with plate("groups", 8):
            effect = sample("effect", dist.Normal(0.0, wide))
        with probml.rows():
            sample("y", dist.Normal(mean + effect[group] + slope * x, noise))

    y = 1.0 + X[:, 0] + RANDOM.normal(size=8)[group] + 0.5 * RANDOM.normal(size=N)
    fit = mixed().fit({"x": X[:, 0], "group": group, "y": y}, MOST_LIKELY)
    inside = np.eye(8)[group]
    covariance = (float(fit.point["wide"]) ** 2 * inside @ inside.T
                  + float(fit.point["noise"]) ** 2 * np.eye(N))
    design = np.c_[np.ones(N), X[:, 0]]
    want = np.sqrt(np.diag(np.linalg.inv(design.T @ np.linalg.solve(covariance, design))))
    found = told(fit)
    assert [found["mean"], found["slope"]] == pytest.approx(want, rel=1e-3)
    assert found["effect[0]"] > 0 and found["wide"] > 0


def test_what_lies_at_an_end_has_none_and_the_rest_has():
    @probml.model
    def classes():
        p = sample("p", dist.Dirichlet(jnp.ones(4)))
        with probml.rows():
            sample("y", dist.Categorical(p))

    y = np.repeat([0, 1, 3], [10, 20, 30])
    table = classes().fit({"y": y}, probml.EM(prior=False)).summary()
    p = np.array([10, 20, 30]) / 60
    assert table["sd"].iloc[[0, 1, 3]].to_numpy() == pytest.approx(np.sqrt(p * (1 - p) / 60), rel=1e-4)
    assert np.isnan(table["sd"].iloc[2]) and "at the boundary of its possible values" in table["note"].iloc[2]
    assert table["note"].iloc[0] == ""


def test_what_the_data_do_not_tell_has_none_and_the_rest_has():
    @probml.model
    def sums(x):
        a, b, c = sample("a", FLAT), sample("b", FLAT), sample("c", FLAT)
        with probml.rows():
            sample("y", dist.Normal(a + b + c * x, 1.0))

    x = X[:, 0] - X[:, 0].mean()
    table = sums().fit({"x": x, "y": LINE}, probml.MAP()).summary()
    assert table["sd"].isna().to_dict() == {"a": True, "b": True, "c": False}
    assert "not identified" in table.loc["a", "note"]
    assert table.loc["c", "sd"] == pytest.approx((x @ x) ** -0.5, rel=1e-4)


def test_of_a_kink_there_is_no_curvature():
    @probml.model
    def median():
        at = sample("at", dist.Normal(0.0, 9.0))
        with probml.rows():
            sample("y", dist.Laplace(at, 1.0))

    table = median().fit({"y": LINE}, probml.MAP()).summary()
    assert np.isnan(table.loc["at", "sd"]) and "'y' (Laplace) is not differentiable everywhere" in table.loc["at", "note"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_fit_that_ended_on_the_way_has_none():
    table = POISSON.fit({"x": X, "y": COUNTS}, probml.MAP(steps=1)).summary()
    assert table["sd"].isna().all() and "from the maximum" in table["note"].iloc[0]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_of_too_many_parameters_none_is_taken():
    @probml.model
    def many():
        at = sample("at", dist.Normal(0.0, 1.0).expand([1025]).to_event(1))
        with probml.rows():
            sample("y", dist.Logistic(at.sum(), 1.0))

    table = many().fit({"y": X[:, 0]}, probml.MAP(steps=1)).summary()
    assert table["sd"].isna().all() and "1,025 parameters" in table["note"].iloc[0]


def test_nothing_is_taken_before_it_is_asked_and_rows_are_in_no_file(tmp_path):
    data = {"x": X, "y": CLASSES}
    fit = LOGISTIC.fit(data, MOST_LIKELY)
    repr(fit), fit._repr_html_()
    assert "_standard_errors" not in fit.__dict__ and fit.fitted_rows is not None
    fit.save(tmp_path / "fit")
    fitted_rows, copied = probml.load(tmp_path / "fit", LOGISTIC), pickle.loads(pickle.dumps(fit))
    for other in (fitted_rows, copied):
        table = other.summary()
        assert table["sd"].isna().all() and "summary(data)" in table["note"].iloc[0]
        assert told(other, data) == pytest.approx(told(fit))
    assert told(pickle.loads(pickle.dumps(fit))) == told(fit)  # once asked, they travel
    others = fitted_rows.summary({"x": X, "y": 1 - CLASSES})
    assert others["sd"].isna().all() and "from the maximum" in others["note"].iloc[0]
    with pytest.raises(probml.DataError, match="'x'"):
        fitted_rows.summary({"y": CLASSES})


def test_rows_that_were_changed_in_place_since_are_not_taken():
    x = X.copy()
    fit = LOGISTIC.fit({"x": x, "y": CLASSES}, MOST_LIKELY)
    x *= -1.0
    table = fit.summary()
    assert table["sd"].isna().all() and "changed in place" in table["note"].iloc[0]
    assert told(fit, {"x": X, "y": CLASSES})["bias"] > 0


def test_what_was_given_or_has_a_posterior_has_none_of_these():
    @probml.model
    def known():
        at = sample("at", FLAT)
        with probml.rows():
            sample("y", dist.Normal(at, 1.0))

    assert list(known().at({"at": 1.0}).summary().columns) == ["value"]
    normal = LOGISTIC.fit({"x": X, "y": CLASSES}, probml.Laplace()).summary()
    assert "mean" in normal and "note" not in normal
