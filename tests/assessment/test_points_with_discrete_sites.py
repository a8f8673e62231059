"""A point estimate beside a discrete site outside rows, which has a posterior: what needs draws of all
parameters is refused in words, what needs the point alone is answered."""

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml


@probml.model
def strains():
    s, m = sample("s", dist.Bernoulli(0.3)), sample("m", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal(2.0 * s + m, 1.0))


@pytest.mark.parametrize("engine", (probml.MAP(), probml.EM(restarts=1)))
def test_draws_of_a_point_are_refused(engine):
    data = {"y": np.array([0.1, 2.0, 0.7])}
    fit = strains().fit(data, engine)
    with pytest.raises(probml.Refusal, match="gives a point estimate of 'm', which has no draws"):
        fit.to_arviz(data)
    table = probml.compare({"one": fit}, data)
    assert np.isnan(table.loc["one", "elpd_loo"]) and "point estimate of 'm'" in str(table.attrs["missing"])
    at = float(fit.params["m"])
    logs = [np.log(p) - 0.5 * ((data["y"] - 2 * s - at) ** 2 + np.log(2 * np.pi)).sum()
            for s, p in enumerate((0.7, 0.3))]
    np.testing.assert_allclose(table.loc["one", "loglik"], np.logaddexp(*logs), rtol=1e-5)
