"""Cells whose squares double does not hold: a fit that fails of them says so, by name."""

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml


@probml.model
def normal():
    mean = sample("mean", dist.Normal(0.0, 5.0))
    with probml.rows():
        sample("x", dist.Normal(mean, 1.0))


def parts():
    yield {"x": np.array([1.0, 2.0])}
    yield {"x": np.array([1.0, -1e300])}


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("data", [{"x": [1.0, 2.0, np.nan, -1e300]}, parts])
def test_cells_that_no_engine_can_square_are_refused_by_name(data):
    with pytest.raises(probml.DataError, match=r"'x' has cells as large as .*unit"):
        normal().fit(data, probml.Exact())
