"""Both generations of ArviZ, each where it is installed: groups of xarray, and leave-one-out held to
a closed form."""

import sys
from dataclasses import replace

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample
from scipy import stats

import probml
from probml.assessment import either_arviz
from probml.posteriors.units import Unit, of_rows

OLD = pytest.param("arviz", id="0.2x")
NEW = pytest.param("arviz_stats", id="1.x")


@pytest.fixture(params=[OLD, NEW])
def generation(request, monkeypatch):
    """The one that is asked for, and no other."""
    pytest.importorskip(request.param)
    if request.param != "arviz":
        monkeypatch.setitem(sys.modules, "arviz", None)
    elif either_arviz._legacy_arviz() is None:
        pytest.skip("arviz is of another generation")
    return request.param


@probml.model
def level():
    mean = sample("mean", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("y", dist.Normal(mean, 1.0))


Y = np.array([1.2, -0.3, 0.8, 2.1, 0.4, 1.0])


def test_leave_one_out_is_that_of_the_closed_form(generation):
    """p(y_i | the others) of a normal mean under a normal prior is normal."""
    precision = 1 / 100 + len(Y) - 1
    expected = [stats.norm((Y.sum() - y) / precision, np.sqrt(1 + 1 / precision)).logpdf(y)
                for y in Y]
    mean = np.random.default_rng(0).normal(Y.sum() / (precision + 1), (precision + 1) ** -0.5,
                                           (2, 2000))
    found = either_arviz.leave_one_out({"mean": mean}, stats.norm(mean[..., None], 1).logpdf(Y))
    np.testing.assert_allclose(found.terms, expected, atol=0.02)
    np.testing.assert_allclose(found.elpd, found.terms.sum(), rtol=1e-6)
    assert found.k.shape == Y.shape and (found.k < found.good).all() and 0 < found.p < 2


def test_groups_are_read_by_name_in_either(generation):
    fit = level().fit({"y": Y}, probml.Exact())
    out = fit.to_arviz({"y": Y}, prior=20)
    assert out.posterior["mean"].dims == ("chain", "draw")
    assert out.log_likelihood["y"].shape == (1, 1000, 6) and out.prior["mean"].shape == (1, 20)
    np.testing.assert_allclose(out.observed_data["y"], Y)
    assert type(out).__name__ == ("InferenceData" if generation == "arviz" else "DataTree")


def test_what_was_centred_and_scaled_is_told_in_the_users_units(generation):
    """A fit of (y − 5) / 2, told as of y: each draw's density of a row is that of y."""
    units = {"mean": Unit(2.0, 5.0)} | of_rows(y=(5.0, 2.0))
    fit = replace(level().fit({"y": Y}, probml.Exact()), units=units)
    out = fit.to_arviz({"y": Y}, prior=300)
    mean = out.posterior["mean"].values[0]
    assert abs(mean.mean() - (2 * fit.params["mean"] + 5)) < 0.1
    np.testing.assert_allclose(out.observed_data["y"], 2 * Y + 5, rtol=1e-6)
    np.testing.assert_allclose(out.log_likelihood["y"].values[0],
                               stats.norm(mean[:, None], 2.0).logpdf(2 * Y + 5), rtol=1e-5)
    again = out.posterior_predictive["y"].values[0] - mean[:, None]
    assert abs(again.std() - 2) < 0.1 and abs(again.mean()) < 0.1
    assert abs(out.prior["mean"].values.std() - 20) < 3


def test_fits_are_compared_by_leave_one_out_with_either(generation):
    found = probml.compare({"level": level().fit({"y": Y}, probml.Exact())}, {"y": Y})
    assert np.isfinite(found.loc["level", ["elpd_loo", "se", "p_loo"]]).all()
    assert found.loc["level", "bad_k"] == 0
