"""Stick-breaking weights and parts of series refuse numbers that they cannot have, before anything is compiled."""

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml
from probml import models


@pytest.mark.parametrize("first, rest, words", [
    (-1.0, [1.0, 1.0], "concentration1=-1.0"), ([1.0, np.nan], 1.0, "concentration1"),
    ([1.0, 1.0], [0.0, 1.0], "concentration0"), (np.inf, 1.0, "concentration1=inf"),
    (np.array([1j]), 1.0, "concentration1"), ("text", 1.0, "concentration1='text'"),
])  # fmt: skip
def test_concentrations_are_numbers_above_0(first, rest, words):
    with pytest.raises(probml.ModelError, match=f"{words}.*expected an array of finite numbers above 0"):
        probml.StickBreaking(first, rest)


def test_concentrations_of_different_lengths_are_refused_by_their_shapes():
    with pytest.raises(probml.ModelError, match=r"the shape \(2,\) and concentration0 has the shape \(3,\)"):
        probml.StickBreaking(np.ones(2), np.ones(3))
    assert probml.StickBreaking(1.0, np.ones(3)).event_shape == (4,)
    with pytest.raises(probml.ModelError, match="a single number, or 2 numbers"):
        probml.dirichlet_process(np.ones(3), 3)


@pytest.mark.parametrize("part, said, words", [
    (models.cycle_part, {"shortest": 3, "longest": 9, "scale": {}}, r"cycle_part\(scale=\{\}\)"),
    (models.cycle_part, {"shortest": "a", "longest": 9}, r"cycle_part\('a', 9\)"),
    (models.cycle_part, {"shortest": 3, "longest": np.inf}, r"cycle_part\(3, inf\)"),
    (models.trend_part, {"centre": np.inf}, r"trend_part\(centre=inf\): expected a finite number"),
    (models.trend_part, {"first": 1.0}, r"trend_part\(first=1.0\): expected 2 finite numbers"),
    (models.level_part, {"scale": -1.0}, r"level_part\(scale=-1.0\)"),
    (models.level_part, {"name": None}, r"level_part\(name=None\)"),
    (models.seasonal_part, {"period": 3, "first": np.nan}, r"seasonal_part\(first=nan\)"),
    (models.autoregressive_part, {"order": 1, "scale": [1.0, 2.0]}, r"autoregressive_part\(scale=\[1.0, 2.0\]\)"),
])  # fmt: skip
def test_parts_of_series_refuse_what_they_cannot_take(part, said, words):
    def series():
        path = part(**said)
        with probml.rows():
            sample("y", dist.Normal(path(), 1.0).to_event(1))

    with pytest.raises(probml.ModelError, match=words):
        probml.model(series)().simulate(2, steps=4)
