"""A number has one standard error, in the user's units: every estimator with coefficients, by hand,
after a change of units of its columns, and in whatever shows it. A row of CASES or EFFECTS is a
line."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import deterministic, plate, sample
from scipy import stats

pytest.importorskip("sklearn")
import probml  # noqa: E402
from probml.models import (  # noqa: E402
    BayesianLinearRegression,
    GeneralizedLinearModel,
    LogisticRegression,
    MixedModel,
    RobustRegression,
    StructuralTimeSeries,
)

RANDOM = np.random.default_rng(1)
N = 90
Z = RANDOM.normal(size=(N, 2))
ETA = 0.4 + Z @ [0.5, -0.3]
G, H = np.arange(N) % 9, (np.arange(N) // 9) % 5  # members of two groupings
OF_G, OF_H = 0.7 * RANDOM.normal(size=9)[G], 0.5 * RANDOM.normal(size=5)[H]
TRIALS = np.full(N, 7)
Y = {
    "normal": ETA + RANDOM.normal(size=N),
    "bernoulli": (RANDOM.random(N) < 1 / (1 + np.exp(-ETA))).astype(int),
    "binomial": RANDOM.binomial(7, 1 / (1 + np.exp(-ETA))),
    "poisson": RANDOM.poisson(np.exp(ETA)),
    "negative binomial": RANDOM.negative_binomial(2, 2 / (2 + np.exp(ETA + 1))),
    "gamma": RANDOM.gamma(2, np.exp(ETA) / 2),
}
GROUPED = {
    "normal": Y["normal"] + OF_G + OF_H,
    "bernoulli": (RANDOM.random(N) < 1 / (1 + np.exp(-ETA - 2 * OF_G))).astype(int),
    "poisson": RANDOM.poisson(np.exp(ETA + OF_G)),
}
MOVES = {  # column = centre + unit · Z
    "plain": ([0.0, 0.0], [1.0, 1.0]), "far": ([1e4, -1e4], [1.0, 1.0]),
    "large": ([0.0, 0.0], [1e6, 1e6]), "small": ([0.0, 0.0], [1e-6, 1e-6]),
    "both": ([1e7, 3e-6], [1e3, 1e-6]),
}


def glm(family, penalty=0.0, engine=None, link=None):
    def fitted(X):
        more = {"trials": TRIALS} if family == "binomial" else {}
        return GeneralizedLinearModel(family, link=link, penalty=penalty, engine=engine).fit(
            X, Y[family], **more)

    return fitted


def mixed(groupings, family="normal", **settings):
    def fitted(X):
        table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], **{
            name: {"g": G, "h": H}[name] for name in groupings}})
        return MixedModel(effects={name: ["1"] for name in groupings}, family=family,
                          **settings).fit(table, GROUPED[family])

    return fitted


def series(X):
    walk = 0.3 * np.cumsum(Y["normal"]) + Y["gamma"]
    return StructuralTimeSeries("level").fit(walk[:, None], exog=X)


# The inverse of the information of (b, β), by hand, in the plain units

PLAIN = np.c_[np.ones(N), Z]


def of_rows(weight, spread=1.0):
    return spread * np.linalg.inv(PLAIN.T * weight @ PLAIN)


def planes(estimator):
    eta = PLAIN @ np.r_[estimator.intercept_, np.ravel(estimator.coef_)]
    return eta, 1 / (1 + np.exp(-eta))


def least_squares(estimator):
    left = Y["normal"] - planes(estimator)[0]
    return of_rows(np.ones(N), left @ left / (N - 3))


def fisher(family):
    def inverse(estimator):
        eta, p = planes(estimator)
        mean = np.exp(eta)
        if family == "gamma":
            return of_rows(np.ones(N), np.sum((Y["gamma"] / mean - 1) ** 2) / (N - 3))
        if family == "negative binomial":
            return of_rows(mean / (1 + mean / estimator.concentration_))
        return of_rows({"poisson": mean, "bernoulli": p * (1 - p), "binomial": 7 * p * (1 - p)}[
            family])

    return inverse


def inverse_information(log, point, step):
    """Of a log density at its maximum, by second differences."""
    steps = step * np.eye(len(point))
    bends = [[log(point + a + b) - log(point + a - b) - log(point - a + b) + log(point - a - b)
              for a in steps] for b in steps]
    return np.linalg.inv(-np.array(bends) / (4 * step**2))


def probit(estimator):
    eta, _ = planes(estimator)
    p = stats.norm.cdf(eta)
    return of_rows(stats.norm.pdf(eta) ** 2 / (p * (1 - p)))


def student(estimator):
    """From second differences of the likelihood in (b, β, log variance)."""
    def log(t):
        return stats.t.logpdf(Y["normal"], 4.0, PLAIN @ t[:3], np.exp(t[3] / 2)).sum()

    return inverse_information(log, np.r_[estimator.intercept_, estimator.coef_, 2 * np.log(estimator.scale_)],
                               1e-4)[:3, :3]


def generalised(estimator):
    """Generalised least squares, at the spreads that were found."""
    covariance = estimator.noise_**2 * np.eye(N)
    for name, spread in estimator.spreads_.items():
        members = {"g": G, "h": H}[name]
        covariance += spread.iloc[0] ** 2 * (members[:, None] == members)
    return np.linalg.inv(PLAIN.T @ np.linalg.solve(covariance, PLAIN))


def given_scales(estimator):
    """The posterior of weights about means, and of the level."""
    out = np.zeros((3, 3))
    out[0, 0] = 1 / estimator.alpha_ / N
    about = np.eye(3)
    out[1:, 1:] = estimator.sigma_
    about[0, 1:] = -Z.mean(0)
    return about @ out @ about.T


class Case(NamedTuple):
    fitted: object
    by_hand: object = None  # estimator → the covariance of (b, β) in plain units
    close: float = 1e-5  # to that
    invariant: float = 1e-6
    quick: bool = False


LAPLACE = probml.Laplace()  # the posterior's mean and sd, not those of its mode
CASES = {
    "normal": Case(glm("normal"), least_squares, quick=True),
    "normal MAP": Case(glm("normal", engine=probml.MAP()), least_squares),
    "normal EM": Case(glm("normal", engine=probml.EM()), least_squares),
    "normal Laplace": Case(glm("normal", engine=LAPLACE), least_squares, 0.1),
    **{family: Case(glm(family), fisher(family), quick=family == "poisson")
       for family in Y if family != "normal"},
    **{f"{family} MAP": Case(glm(family, engine=probml.MAP()), fisher(family))
       for family in Y if family != "normal"},
    "bernoulli Laplace": Case(glm("bernoulli", engine=LAPLACE), fisher("bernoulli"), 0.1),
    "binomial Laplace": Case(glm("binomial", engine=LAPLACE), fisher("binomial"), 0.1),
    "poisson Laplace": Case(glm("poisson", engine=LAPLACE), fisher("poisson"), 0.1, quick=True),
    "gamma Laplace": Case(glm("gamma", engine=LAPLACE), fisher("gamma"), 0.3),
    "negative binomial Laplace": Case(glm("negative binomial", engine=LAPLACE),
                                      fisher("negative binomial"), 0.3),
    "probit": Case(glm("bernoulli", link="probit"), probit),
    "logistic": Case(lambda X: LogisticRegression(C=np.inf).fit(X, Y["bernoulli"]),
                     fisher("bernoulli"), 1e-4),
    "logistic MAP": Case(lambda X: LogisticRegression(C=np.inf, engine=probml.MAP()).fit(
        X, Y["bernoulli"]), fisher("bernoulli"), 1e-4),
    "logistic Laplace": Case(lambda X: LogisticRegression(C=np.inf, engine=LAPLACE).fit(
        X, Y["bernoulli"]), fisher("bernoulli"), 0.1),
    "robust": Case(lambda X: RobustRegression().fit(X, Y["normal"]), student, 1e-4),
    "robust Laplace": Case(lambda X: RobustRegression(engine=LAPLACE).fit(X, Y["normal"]), student,
                           0.15),
    "Bayesian": Case(lambda X: BayesianLinearRegression(1e9).fit(X, Y["normal"]), given_scales,
                     quick=True),
    "mixed REML": Case(mixed("g"), generalised),
    "mixed ML": Case(mixed("g", reml=False), generalised),
    "mixed two REML": Case(mixed("gh"), generalised),
    "mixed two ML": Case(mixed("gh", reml=False), generalised),
    "mixed Laplace": Case(mixed("g", engine=LAPLACE), generalised, 0.3),
    "mixed bernoulli": Case(mixed("g", "bernoulli")),
    "mixed Poisson": Case(mixed("gh", "poisson"), invariant=1e-5),
    "series": Case(series),
}


def shown(estimator):
    """(estimates, standard errors) of (b, β), as the summary has them."""
    summary = estimator.fit_.summary()
    named = [e for e in summary.index if e.startswith("intercept")] + [
        e for e in summary.index if e.startswith("beta")]
    return (summary.loc[named, "value" if "value" in summary else "mean"].to_numpy(float),
            summary.loc[named, "sd"].to_numpy(float))


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[] if case.quick else pytest.mark.slow) for name, case in CASES.items()])
def test_a_coefficient_has_one_standard_error_in_all_units(double, name):
    case, base = CASES[name], None
    for move in ("plain", "far", "both") if case.quick else MOVES:
        centre, unit = map(np.asarray, MOVES[move])
        estimator = case.fitted(centre + unit * Z)
        value, sd = shown(estimator)
        assert np.isfinite(sd).all() and (sd > 0).all(), move
        if hasattr(estimator, "standard_errors_"):
            np.testing.assert_allclose(estimator.standard_errors_, sd, rtol=1e-9, err_msg=move)
            table = estimator.table()
            np.testing.assert_allclose(table["sd" if "sd" in table else "standard error"], sd, rtol=1e-9,
                                       err_msg=move)
            np.testing.assert_allclose(np.sqrt(np.diag(estimator.covariance_)), sd, rtol=1e-9)
        first = len(sd) - 2  # whether there is an intercept
        if base is None:
            base = value, sd, estimator.fit_._covariance(("intercept", "beta")[1 - first :]) if not hasattr(
                estimator, "covariance_") else estimator.covariance_
            np.testing.assert_allclose(np.sqrt(np.diag(base[2])), sd, rtol=1e-6)
            if case.by_hand:
                np.testing.assert_allclose(base[2], case.by_hand(estimator), rtol=case.close,
                                           atol=case.close * base[2].max())
        back = np.diag(np.r_[np.ones(first), 1 / unit])
        if first:
            back[0, 1:] = -centre / unit
        np.testing.assert_allclose(value, back @ base[0], rtol=10 * case.invariant, err_msg=move)
        np.testing.assert_allclose(sd, np.sqrt(np.diag(back @ base[2] @ back.T)),
                                   rtol=case.invariant, err_msg=move)


def test_a_report_and_files_show_it_too(tmp_path):
    estimator = mixed("g")(Z + 1e4)
    of_b = np.r_[1.0, -1e4, -1e4]
    want = np.sqrt(np.r_[of_b @ generalised(estimator) @ of_b, np.diag(generalised(estimator))[1:]])
    np.testing.assert_allclose(shown(estimator)[1], want, rtol=1e-3)
    np.testing.assert_allclose(estimator.standard_errors_, want, rtol=1e-3)
    estimator.save(tmp_path / "estimator")
    estimator.fit_.save(tmp_path / "fit")
    for again in (probml.load(tmp_path / "estimator").fit_, probml.load(tmp_path / "fit")):
        summary = again.summary()
        np.testing.assert_allclose(summary.loc[["intercept", "beta[a]", "beta[b]"], "sd"],
                                   estimator.standard_errors_, rtol=1e-6)
        np.testing.assert_allclose(summary.loc[[f"g[{i}]" for i in range(9)], "sd"],
                                   estimator.effect_errors_["g"]["1"], rtol=1e-6)
    page = estimator.report(tmp_path / "page.html").read_text()
    assert f"{estimator.standard_errors_[0]:.4g}" in page


@pytest.mark.parametrize("engine", [None, probml.MAP(), pytest.param(LAPLACE, marks=pytest.mark.slow)],
                         ids=["default", "MAP", "Laplace"])
@pytest.mark.parametrize("kind", ["normal", "bernoulli", "logistic", pytest.param(
    "robust", marks=pytest.mark.slow), pytest.param("gamma", marks=pytest.mark.slow)])
def test_no_engine_puts_a_prior_on_coefficients_without_a_penalty(kind, engine):
    """In small units, where a prior of one unit would say everything."""
    estimator = {"logistic": LogisticRegression(C=np.inf, engine=engine),
                 "robust": RobustRegression(engine=engine)}.get(
                kind, GeneralizedLinearModel(kind, engine=engine) if kind in Y else None)
    y = Y[{"logistic": "bernoulli", "robust": "normal"}.get(kind, kind)]
    found = estimator.fit(1e-3 * Z, y).fit_.summary()
    default = {"logistic": LogisticRegression(C=np.inf), "robust": RobustRegression()}.get(
        kind, GeneralizedLinearModel(kind) if kind in Y else None).fit(Z, y)
    found = 1e-3 * found.loc[["beta[0]", "beta[1]"], ["value" if "value" in found else "mean", "sd"]].astype(float)
    value, sd = found.to_numpy().T
    # a posterior mean is not at the maximum, but a small part of the sd away
    close = 0.2 * sd if engine == LAPLACE else 0.02 * np.abs(value)
    assert (np.abs(value - np.ravel(default.coef_)) < close).all()


def test_a_normal_family_has_a_density_at_the_noise_that_was_found():
    estimator = GeneralizedLinearModel().fit(Z, 10 * Y["normal"])
    want = stats.norm(estimator.predict(Z), estimator.dispersion_**0.5).logpdf(10 * Y["normal"])
    np.testing.assert_allclose(estimator.log_prob(Z, 10 * Y["normal"]), want, rtol=1e-4, atol=1e-4)


def test_coefficients_of_several_classes_have_those_of_their_differences():
    y = np.minimum(Y["poisson"], 2)
    estimator = LogisticRegression(C=np.inf).fit(Z + 5.0, y)
    design = np.c_[np.ones(N), Z + 5.0]
    logits = design @ np.c_[estimator.intercept_, estimator.coef_].T
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    information = sum(np.kron(np.diag(q) - np.outer(q, q), np.outer(x, x)) for q, x in zip(
        p, design, strict=True))
    want = np.sqrt(np.diag(np.linalg.pinv(information, rcond=1e-10, hermitian=True))).reshape(3, 3)
    summary = estimator.fit_.summary()
    for k in range(3):
        found = summary.loc[[f"intercept[{k}]", f"beta[0, {k}]", f"beta[1, {k}]"]]
        np.testing.assert_allclose(found["sd"].astype(float), want[k], rtol=1e-3)
        np.testing.assert_allclose(found["value"].astype(float),
                                   [estimator.intercept_[k], *estimator.coef_[k]], rtol=1e-3, atol=1e-4)


# Effects of groups, in functions of one's own

FLAT = dist.ImproperUniform(dist.constraints.real, (), ())
GROUP_COVARIATE = np.linspace(-1.0, 1.0, 9)


def _noise():
    return sample("s", dist.HalfNormal(5.0))


def about_zero(g, x):
    mu, b = sample("mu", dist.Normal(0, 100)), sample("b", dist.Normal(0, 10))
    tau, s = sample("tau", dist.HalfNormal(5.0)), _noise()
    with plate("J", 9):
        a = sample("a", dist.Normal(0, tau))
    with probml.rows():
        sample("y", dist.Normal(mu + a[g] + b * x, s))


def about_their_mean(g, x):
    mu, b = sample("mu", dist.Normal(0, 100)), sample("b", FLAT)
    tau, s = sample("tau", dist.HalfNormal(5.0)), _noise()
    with plate("J", 9):
        a = sample("a", dist.Normal(mu + b * GROUP_COVARIATE, tau))
    with probml.rows():
        sample("y", dist.Normal(a[g], s))


def in_logarithms(g, x):
    mu, width = sample("mu", dist.StudentT(3.0, 0, 50)), sample("width", dist.Normal(0, 2))
    noise = sample("noise", dist.Normal(0, 2))
    with plate("J", 9):
        a = sample("a", dist.Normal(0, jnp.exp(width)))
    with probml.rows():
        sample("y", dist.Normal(mu + a[g], jnp.exp(noise)))


def standardised(g, x):
    mu, tau, s = sample("mu", dist.Normal(0, 100)), sample("tau", dist.HalfNormal(5.0)), _noise()
    with plate("J", 9):
        a = sample("a", dist.Normal(0, 1))
    deterministic("theta", mu + tau * a)
    with probml.rows():
        sample("y", dist.Normal(mu + tau * a[g], s))


def slopes(g, x):
    mu, b = sample("mu", FLAT), sample("b", FLAT)
    one, two, s = sample("one", dist.HalfNormal(5.0)), sample("two", dist.HalfNormal(5.0)), _noise()
    with plate("J", 9):
        a, c = sample("a", dist.Normal(0, one)), sample("c", dist.Normal(0, two))
    with probml.rows():
        sample("y", dist.Normal(mu + a[g] + (b + c[g]) * x, s))


def counts(g, x):
    mu, b = sample("mu", dist.Normal(0, 10)), sample("b", dist.Normal(0, 10))
    tau = sample("tau", dist.HalfNormal(5.0))
    with plate("J", 9):
        a = sample("a", dist.Normal(mu, tau))
    with probml.rows():
        sample("y", dist.Poisson(jnp.exp(a[g] + b * x)))


# function → (the names of coefficients and effects, the rows, how close)
EFFECTS = {
    about_zero: (("mu", "b", "a"), GROUPED["normal"], 1e-4),
    about_their_mean: (("mu", "b", "a"), GROUPED["normal"], 1e-4),
    in_logarithms: (("mu", "a"), GROUPED["normal"], 1e-4),
    standardised: (("mu", "a"), GROUPED["normal"], 1e-4),
    slopes: (("mu", "b", "a", "c"), GROUPED["normal"] + (OF_G - OF_H) * Z[:, 0], 1e-3),
    counts: (("mu", "b", "a"), GROUPED["poisson"], 0.06),  # coefficients as of glmer's Hessian
}


@pytest.mark.parametrize("function", [
    pytest.param(function, marks=[] if function is about_zero else pytest.mark.slow, id=function.__name__)
    for function in EFFECTS])
def test_effects_have_the_inverse_of_the_joint_information(double, function):
    names, y, close = EFFECTS[function]
    model, data = probml.model(function)(), {"g": G, "x": Z[:, 0], "y": y}
    data = {name: value for name, value in data.items() if name in (*model.inputs, "y")}
    fit = model.fit(data, probml.MAP())
    point = {name: np.asarray(value, float) for name, value in fit.point.items()}
    flat, back = jax.flatten_util.ravel_pytree([point[name] for name in names])
    covariance = inverse_information(lambda u: model.log_density(data, {
        **point, **dict(zip(names, back(u), strict=True))}), np.asarray(flat), 1e-3)
    summary = fit.summary()
    found = np.concatenate([np.atleast_1d(summary["sd"][[
        entry for entry in summary.index if entry.split("[")[0] == name]]) for name in names])
    np.testing.assert_allclose(found, np.sqrt(np.diag(covariance)), rtol=close)
    if function is standardised:  # computed from both, over draws of the effects
        about = np.c_[np.ones(9), float(point["tau"]) * np.eye(9)]
        want = np.sqrt(np.diag(about @ covariance @ about.T))
        np.testing.assert_allclose(summary["sd"][[f"theta[{i}]" for i in range(9)]], want, rtol=0.1)


@pytest.mark.slow
def test_a_loading_is_no_coefficient_and_keeps_what_ties_it_to_the_spread(double):
    @probml.model
    def loaded(g):
        one, two = sample("one", FLAT), sample("two", FLAT)
        loading = sample("loading", FLAT)
        tau, s = sample("tau", dist.HalfNormal(5.0)), _noise()
        with plate("J", 9):
            a = sample("a", dist.Normal(0, tau))
        with probml.rows():
            sample("x", dist.Normal(one + a[g], s))
            sample("y", dist.Normal(two + loading * a[g], s))

    x, y = GROUPED["normal"], 2 * OF_G + RANDOM.normal(size=N)
    fit = loaded().fit({"g": G, "x": x, "y": y}, probml.MAP(prior=False))
    alike = G[:, None] == G

    def log(t):
        one, two, loading, tau, s = t
        covariance = np.kron(np.outer([1, loading], [1, loading]) * tau**2, alike)
        covariance += s**2 * np.eye(2 * N)
        left = np.r_[x - one, y - two]
        return -0.5 * (left @ np.linalg.solve(covariance, left)
                       + np.linalg.slogdet(covariance)[1])

    names = ["one", "two", "loading", "tau", "s"]
    want = inverse_information(log, np.array([float(fit.point[name]) for name in names]), 1e-3)
    np.testing.assert_allclose(fit.summary()["sd"][names].astype(float), np.sqrt(np.diag(want)),
                               rtol=5e-3)
