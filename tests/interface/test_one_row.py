"""A request of one row does no more than it needs."""

import numpy as np
import pytest

from probml import models
from probml.interface.functions import read_function as reading
from probml.numerics import transfer


def test_a_function_that_calls_rows_in_a_helper_is_traced_once(monkeypatch):
    x = np.random.default_rng(0).normal(size=(40, 3))
    estimator = models.FactorAnalysis(1).fit(x)
    expected = estimator.transform(x[:1])

    def survey(*args):
        raise AssertionError("the function was traced again")

    monkeypatch.setattr(reading, "survey_run", survey)
    np.testing.assert_allclose(estimator.transform(x[:1]), expected)


@pytest.mark.parametrize("rows", [1, 5, 64, 70])
def test_few_rows_are_answered_as_many_are(rows):
    random = np.random.default_rng(1)
    x = random.normal(size=(1500, 2)) + 3 * (np.arange(1500) % 2)[:, None]
    estimator = models.GaussianMixture(2).fit(x)
    every = estimator.predict_proba(x)  # more than stay on the host
    np.testing.assert_allclose(estimator.predict_proba(x[:rows]), every[:rows], atol=2e-5)


def test_few_rows_are_not_placed_one_by_one(monkeypatch):
    x = np.random.default_rng(2).normal(size=(40, 2))
    fit = models.GaussianMixture(1).fit(x)
    expected = fit.score_samples(x[:1])

    def placed(*args):
        raise AssertionError("an array was placed by itself")

    monkeypatch.setattr(transfer.jax, "device_put", placed)
    np.testing.assert_allclose(fit.score_samples(x[:1]), expected)
