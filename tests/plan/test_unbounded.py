"""Correlations that no mode has are sampled, and those that rows or their prior hold are not."""

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml

Y = np.random.default_rng(0).normal(size=(12, 3))


@probml.model
def normals(concentration: float = 1.0):
    root = sample("root", dist.LKJCholesky(3, concentration))
    mean = sample("mean", dist.Normal(0.0, 5.0).expand([3]).to_event(1))
    with probml.rows():
        sample("y", dist.MultivariateNormal(mean, scale_tril=root))


def function(y):
    correlation = sample("correlation", dist.LKJ(3, 1.0))
    mean = sample("mean", dist.Normal(0.0, 5.0).expand([3]).to_event(1))
    with plate("n", len(y)):
        sample("y", dist.MultivariateNormal(mean, correlation), obs=y)


def chosen(model, data):
    told = model.explain(data)
    return {row["engine"]: row[""] for row in told.engines}, next(
        row["engine"] for row in told.engines if row[""].startswith("chosen"))


def test_correlations_of_fewer_rows_than_columns_and_means_are_sampled():
    why, engine = chosen(normals(), {"y": Y[:3]})
    assert engine == "NUTS"
    assert "'root', correlations of 3 numbers each, is told by 9 numbers in all" in why["MAP"]
    assert chosen(normals(), {"y": Y[:4]})[1] == "MAP"  # they span all
    assert chosen(normals(9.0), {"y": Y[:3]})[1] == "MAP"  # the prior vanishes faster


@pytest.mark.parametrize(("rows", "want"), [(3, "NUTS"), (4, "MAP")])
def test_so_are_those_of_a_function_that_is_one_density(rows, want):
    assert chosen(probml.model(function)(), {"y": Y[:rows]})[1] == want


def test_correlations_of_what_multiplies_effects_have_a_mode():
    @probml.model
    def lines(x):
        root = sample("root", dist.LKJCholesky(3, 1.0))
        z = sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with probml.rows():
            sample("y", dist.Normal(x @ (root @ z), 1.0))

    why, _ = chosen(lines(), {"x": Y[:3], "y": Y[:3, 0]})
    assert "rises without bound" not in why["MAP"]
