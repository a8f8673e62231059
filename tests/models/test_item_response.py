"""Item response and mixtures of factor analysers, functions whose latents are integrated out: held
to ltm's fits of the LSAT, and to the joint normal."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

import probml
from cases import fitted
from probml.models import item_response, mixture_of_factor_analysers

nan = np.nan


def lsat(shared_data, file):
    table = np.genfromtxt(shared_data / "classic" / file, delimiter=",", skip_header=1,
                          missing_values=("NA", ""), filling_values=nan)
    return table[:, -5:]


@pytest.mark.parametrize("file, reference", [
    ("lsat.csv", "irt_lsat.json"), ("lsat_missing.csv", "irt_lsat_missing.json"),
])
@pytest.mark.parametrize("kind, name", [
    pytest.param("1pl", "rasch_free_sd", marks=pytest.mark.slow), ("2pl", "two_pl"),
])
def test_the_lsat_has_the_fits_of_ltm(shared_data, file, reference, kind, name):
    y = lsat(shared_data, file)
    want = json.loads((shared_data / "fits" / reference).read_text())["fits"][name]
    fit = fitted(item_response(items=5, kind=kind), {"y": y}, probml.MAP(prior=False))
    np.testing.assert_allclose(fit.history[-1], want["loglik"], atol=1e-5)
    for site, key in (("easiness", "intercept"), ("discrimination", "discrimination"),
                      ("difficulty", "difficulty")):
        got = np.broadcast_to(fit.params[site], 5)
        np.testing.assert_allclose(got, list(want[key].values()), rtol=2e-3, atol=2e-3)
    if kind == "2pl" and file == "lsat.csv":
        some = np.array([pattern["responses"] for pattern in want["patterns"]], float)
        found = fit.conditional({"y": some}, "ability")
        np.testing.assert_allclose(found.mean, [p["eap"] for p in want["patterns"]], atol=1e-3)
        np.testing.assert_allclose(found.variance, [p["evar"] for p in want["patterns"]],
                                   atol=1e-3)


def test_abilities_are_expected_a_posteriori_also_with_answers_unseen():
    fit = item_response(items=3).at({"discrimination": np.array([1.0, 0.5, 2.0]),
                                     "easiness": np.array([0.3, -1.0, 0.0])})
    y = np.array([[1.0, 1.0, 0.0], [nan, 1.0, nan], [nan, nan, nan]])
    grid = np.linspace(-9, 9, 2001)
    chance = expit(grid[:, None] * [1.0, 0.5, 2.0] + [0.3, -1.0, 0.0])
    for row, got in zip(y, fit.impute({"y": y})["ability"], strict=True):
        each = np.where(np.isnan(row), 1.0, np.where(row == 1, chance, 1 - chance)).prod(1)
        weight = each * stats.norm.pdf(grid)
        np.testing.assert_allclose(got, weight @ grid / weight.sum(), atol=1e-6)


def test_another_kind_of_item_response_is_refused_by_name():
    with pytest.raises(probml.ModelError, match=r"item_response\(kind='3pl'\)"):
        item_response(items=3, kind="3pl").explain({"y": np.zeros((2, 3))})


def test_a_mixture_of_factor_analysers_finds_its_planes_with_cells_unseen():
    random = np.random.default_rng(1)
    c, z = np.repeat([0, 1], 120), random.normal(size=(240, 1))
    loadings = np.array([[[2.0], [1.0], [0.0], [0.5]], [[0.0], [-1.0], [2.0], [1.0]]])
    mean = np.array([[0.0, 0.0, 0.0, 0.0], [6.0, -6.0, 3.0, 0.0]])
    x = mean[c] + (loadings[c] @ z[..., None])[..., 0] + 0.4 * random.normal(size=(240, 4))
    x[random.random(x.shape) < 0.1] = nan
    model = mixture_of_factor_analysers(components=2, k=1, d=4, scale=0.5)
    fit = fitted(model, {"x": x}, probml.EM(restarts=4))
    order = np.argsort(np.asarray(fit.params["mean"])[:, 0])
    for found, want in zip(np.asarray(fit.params["loadings"])[order], loadings, strict=True):
        cosine = (found * want).sum() / np.linalg.norm(found) / np.linalg.norm(want)
        assert abs(cosine) > 0.99
    truth = model.at({"weights": np.full(2, 0.5), "loadings": loadings, "mean": mean,
                      "sigma": np.full(4, 0.4)})
    assert fit.score({"x": x}, plug_in=True) > truth.score({"x": x})
    share = fit.predict_proba({"x": x}, "c")
    assert (share.argmax(1) == order[c]).mean() > 0.98
    p = {name: np.asarray(value) for name, value in fit.params.items()}
    row = x[:1]
    seen = ~np.isnan(row[0])
    logs = [np.log(p["weights"][k]) + stats.multivariate_normal(
        p["mean"][k][seen], (p["loadings"][k] @ p["loadings"][k].T
                             + np.diag(p["sigma"] ** 2))[np.ix_(seen, seen)]).logpdf(row[0][seen])
            for k in range(2)]
    np.testing.assert_allclose(fit.log_prob({"x": row}, plug_in=True), np.logaddexp(*logs),
                               atol=1e-8)
    assert jnp.ndim(fit.conditional({"x": row}, "z").mean) == 2
