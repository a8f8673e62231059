"""Fits of mclust, poLCA and scikit-learn on real data: their log-likelihoods are reached or beaten,
never tuned to.

The same settings everywhere: 20 restarts, maximum likelihood, tolerance 1e-10. A mixture's
likelihood has many maxima (with full covariances it has no bound), so a higher one than the
reference's is no proof of a better model.
"""

import json
import warnings

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample

import probml
from probml.models import gaussian_mixture

ENGINE = probml.EM(restarts=20, tolerance=1e-10, max_iterations=5000, prior=False)
SHORT = 1e-2  # nats a maximum may fall short of the reference: both stop at a tolerance
MCLUST = {"VVV": "full", "EEE": "tied", "VVI": "diagonal", "VII": "spherical",
          "EEI": "tied diagonal", "EII": "tied spherical"}
SLOW = pytest.mark.slow


def reference(folder, name):
    fit = json.loads((folder / "fits" / f"{name}.json").read_text())
    return fit, pd.read_csv(folder / fit["dataset"])


def reached(model, data, loglik):
    """The log-likelihood of the best of 20 restarts is the reference's or better."""
    fit = model.fit(data, ENGINE, seed=0)
    found = fit.log_prob(data).sum()
    np.testing.assert_allclose(found, fit.history[-1], rtol=1e-9)
    assert found >= loglik - SHORT, f"{found} < {loglik}"
    return fit


def pairs(quick, models, components):
    """(model, G) pairs, all but the quick ones marked slow."""
    return [pytest.param(m, g, marks=() if (m, g) in quick else SLOW) for m in models
            for g in components]


FAITHFUL = {("VVV", 2), ("EEE", 3), ("VVI", 3), ("VII", 3), ("EEI", 2)}


@pytest.mark.parametrize("shape, components", pairs(FAITHFUL, MCLUST, range(1, 5)))
def test_mclust_on_old_faithful_is_reached(shared_data, shape, components):
    fit, table = reference(shared_data, "mclust_faithful")
    loglik = next(row["loglik"] for row in fit["table"]
                  if (row["model"], row["G"]) == (shape, components))
    reached(gaussian_mixture(components, 2, MCLUST[shape]),
            {"x": table[fit["columns"]].to_numpy(float)}, loglik)


# VVV with four components: its best restarts come near a singular covariance, where the likelihood
# has no bound
IRIS = [p for p in pairs({("VVV", 3), ("VII", 3)}, MCLUST, range(1, 5)) if p.values != ("VVV", 4)]


@pytest.mark.parametrize("shape, components", IRIS)
def test_mclust_on_iris_is_reached(shared_data, shape, components):
    fit, table = reference(shared_data, "mclust_iris")
    loglik = next(row["loglik"] for row in fit["table"]
                  if (row["model"], row["G"]) == (shape, components))
    reached(gaussian_mixture(components, 4, MCLUST[shape]),
            {"x": table[fit["columns"]].to_numpy(float)}, loglik)


SKLEARN = [pytest.param(c, k, marks=() if (c, k) == ("full", 3) else SLOW)
           for c in ("full", "tied", "diag", "spherical") for k in (2, 3)]


@pytest.mark.parametrize("covariance, components", SKLEARN)
def test_the_best_of_50_starts_of_scikit_learn_on_iris_is_reached(shared_data, covariance,
                                                                  components):
    datasets = pytest.importorskip("sklearn.datasets")
    fit = json.loads((shared_data / "fits" / "gmm_sklearn_iris.json").read_text())
    loglik = next(row["loglik"] for row in fit["fits"]
                  if (row["covariance"], row["K"]) == (covariance, components))
    model = gaussian_mixture(components, 4, {"diag": "diagonal"}.get(covariance, covariance))
    reached(model, {"x": datasets.load_iris().data}, loglik)


@pytest.mark.parametrize(
    "covariance", ["full", *(pytest.param(c, marks=SLOW) for c in ("tied", "diag", "spherical"))]
)
def test_em_goes_the_way_of_scikit_learn_from_the_same_start(covariance):
    mixture = pytest.importorskip("sklearn.mixture")
    x = np.asarray(pytest.importorskip("sklearn.datasets").load_iris().data)
    shapes = {"full": (3, 4, 4), "tied": (4, 4), "diag": (3, 4), "spherical": (3,)}
    precision = np.broadcast_to(np.eye(4) if len(shapes[covariance]) > 1 and covariance != "diag"
                                else 1.0, shapes[covariance])
    start = {"weights": np.full(3, 1 / 3), "mean": x[[0, 60, 120]], "precision": precision}
    model = gaussian_mixture(3, 4, {"diag": "diagonal"}.get(covariance, covariance))
    for iterations in (1, 10, 50):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # both say that they stopped at the limit
            peer = mixture.GaussianMixture(
                3, covariance_type=covariance, max_iter=iterations, tol=0, reg_covar=0,
                means_init=start["mean"], weights_init=start["weights"], precisions_init=precision,
            ).fit(x)  # fmt: skip
            engine = probml.EM(max_iterations=iterations, tolerance=0.0, prior=False,
                               accelerate=False)
            fit = model.fit({"x": x}, engine, start=start)
        np.testing.assert_allclose(fit.log_prob({"x": x}).sum(), 150 * peer.score(x), rtol=1e-6)
        np.testing.assert_allclose(fit.params["mean"], peer.means_, rtol=1e-4)


@pytest.mark.slow
def test_the_default_prior_finds_two_eruptions_in_old_faithful(shared_data):
    fit, table = reference(shared_data, "mclust_faithful")
    x, bic = table[fit["columns"]].to_numpy(float), {}
    for k in range(1, 6):
        found = gaussian_mixture(k, 2).fit({"x": x}, probml.EM(restarts=10), seed=0)
        bic[k] = 2 * found.log_prob({"x": x}).sum() - (6 * k - 1) * np.log(len(x))
        covariance = np.linalg.inv(found.params["precision"])
        # no component on a few rows: eruptions are given to 0.017 minutes
        assert np.linalg.eigvalsh(covariance).min() > 0.02**2
    assert max(bic, key=bic.get) == 2
    best = next(row["bic_mclust"] for row in fit["table"] if (row["model"], row["G"]) == ("VVV", 2))
    np.testing.assert_allclose(bic[2], best, atol=1.0)  # the prior costs little


# Latent classes, as a user writes them


@probml.model
def latent_classes(k: int, items: tuple, states: int = 2):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("classes", k):
        answers = {item: sample(f"p_{item}", dist.Dirichlet(jnp.ones(states))) for item in items}
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        for item in items:
            sample(item, dist.Categorical(answers[item][z]))


@probml.model
def voting_blocs(k: int, votes: tuple):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("blocs", k):
        yes = {vote: sample(f"yes_{vote}", dist.Beta(1.0, 1.0)) for vote in votes}
    with probml.rows():
        bloc = sample("bloc", dist.Categorical(weights))
        for vote in votes:
            sample(vote, dist.Bernoulli(yes[vote][bloc]))


QUICK = {("carcinoma", 3), ("values", 2)}
LATENT = [("carcinoma", 1), ("carcinoma", 2), ("carcinoma", 3), ("carcinoma", 4), ("values", 1),
          ("values", 2), ("values", 3)]


@pytest.mark.parametrize("name, k", [pytest.param(*pair, marks=() if pair in QUICK else SLOW)
                                     for pair in LATENT])
def test_polca_is_reached(shared_data, name, k):
    fit, table = reference(shared_data, f"lca_polca_{name}")
    table = table.astype("category")  # coded 1, 2: labels
    found = reached(latent_classes(k, tuple(table)), table, fit[f"K{k}"]["loglik"])
    assert found.labels(table.columns[0]) == (1, 2)


@pytest.mark.parametrize("k", [2, pytest.param(3, marks=SLOW), pytest.param(4, marks=SLOW)])
def test_polca_is_reached_on_votes_with_unseen_cells(shared_data, k):
    fit, table = reference(shared_data, "lca_housevotes84_missing")
    votes = table.drop(columns="Class").astype("category")
    assert votes.isna().to_numpy().sum() == 392
    found = reached(voting_blocs(k, tuple(votes)), votes, fit[f"K{k}"]["loglik"])
    if k == 2:  # the parties
        bloc, party = found.predict(votes, "bloc"), (table["Class"] == "democrat").to_numpy()
        assert max(np.mean(bloc == party), np.mean(bloc != party)) > 0.85
