"""Rotations of factor loadings beside R's factanal, and choosing the number of factors."""

import numpy as np
import pandas as pd
import pytest

from probml import models
from probml.models.latent_factors.rotation import rotate

# R's ability.cov (Bartholomew 1987): the covariances of six tests of 112 people
COVARIANCE = np.array([
    [24.641, 5.991, 33.520, 6.023, 20.755, 29.701], [5.991, 6.700, 18.137, 1.782, 4.936, 7.204],
    [33.520, 18.137, 149.831, 19.424, 31.430, 50.753],
    [6.023, 1.782, 19.424, 12.711, 4.757, 9.075], [20.755, 4.936, 31.430, 4.757, 52.604, 66.762],
    [29.701, 7.204, 50.753, 9.075, 66.762, 135.292]])
NAMES = ["general", "picture", "blocks", "maze", "reading", "vocab"]


@pytest.fixture(scope="module")
def ability():
    """112 rows that have these covariances."""
    rows = np.random.default_rng(0).normal(size=(112, 6))
    rows -= rows.mean(0)
    whitened = rows @ np.linalg.inv(np.linalg.cholesky(rows.T @ rows / 112)).T
    return pd.DataFrame(whitened @ np.linalg.cholesky(COVARIANCE).T, columns=NAMES)


def test_varimax_gives_the_loadings_of_factanal(ability):
    found = models.FactorAnalysis(2, prior=False, rotation="varimax").fit(ability)
    loadings = found.loadings_ / np.sqrt(np.diag(COVARIANCE))[:, None]
    # R: factanal(factors = 2, covmat = ability.cov), as its help page prints it
    np.testing.assert_allclose(loadings, [[0.499, 0.543], [0.156, 0.622], [0.206, 0.860],
                                          [0.109, 0.468], [0.956, 0.182], [0.785, 0.225]],
                               atol=4e-3)
    np.testing.assert_allclose(1 - found.communalities_, [0.455, 0.589, 0.218, 0.769, 0.052, 0.334],
                               atol=6e-4)
    table = found.summary().tables[0]
    assert list(table.values.index) == NAMES and np.isfinite(table.errors.to_numpy()).all()
    np.testing.assert_allclose(found.inverse_transform(found.transform(ability)),
                               models.FactorAnalysis(2, prior=False).fit(ability).inverse_transform(
        models.FactorAnalysis(2, prior=False).fit(ability).transform(ability)), rtol=1e-4,
        atol=1e-3)


def test_oblimin_keeps_the_covariance_and_is_simpler(ability):
    plain = models.FactorAnalysis(2).fit(ability)
    found = models.FactorAnalysis(2, rotation="oblimin").fit(ability)
    np.testing.assert_allclose(np.diag(found.factor_correlation_), 1.0)
    assert 0.3 < found.factor_correlation_[0, 1] < 0.7
    implied = (found.loadings_ @ found.factor_correlation_ @ found.loadings_.T
               + np.diag(found.noise_variance_))
    np.testing.assert_allclose(implied, plain.get_covariance(), rtol=1e-4, atol=1e-3)
    assert "Correlations of the factors" in found.summary(errors=False).keys()


@pytest.mark.parametrize("rotation", ["varimax", "oblimin"])
def test_a_simple_structure_is_found_again(rotation):
    simple = np.kron(np.eye(3), np.array([[0.9], [0.8], [0.7]]))
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    by, correlation = rotate(simple @ turn, rotation)
    order = np.abs(simple @ turn @ by).argmax(1)[::3]
    np.testing.assert_allclose((simple @ turn @ by)[:, order], simple, atol=1e-5)
    np.testing.assert_allclose(correlation, np.eye(3), atol=1e-5)


def test_the_number_of_factors_is_chosen_by_the_bic():
    random = np.random.default_rng(3)
    loadings = np.kron(np.eye(2), np.array([[0.9], [0.8], [0.8], [0.7]]))
    rows = random.normal(size=(300, 2)) @ loadings.T + 0.5 * random.normal(size=(300, 8))
    found = models.FactorAnalysis(range(1, 4)).fit(rows)
    assert found.n_components_ == 2 and list(found.table_["n_components"]) == [1, 2, 3]
    assert found.loadings_.shape == (8, 2) and found.n_components == range(1, 4)
    assert found.bic_ == pytest.approx(found.bic(rows), rel=1e-6)
    assert "Comparison of numbers of factors" in found.summary(errors=False).keys()
