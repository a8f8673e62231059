"""Parameters that are several vectors, one of which a location looks at: their normal equations are
those of all coefficients as one vector."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml
from probml.dataset.read import read
from probml.device.load import load
from probml.evidence.e_step import expect
from probml.models import factor_analysis, mixture_of_experts, mixture_of_factor_analysers
from probml.plan.blocks import blocks, unpack
from probml.updates import updates
from probml.updates.updates import Objective

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(50, 2))
DATA = {"x": X, "y": np.where(X[:, 0] > 0, X @ [1.0, 2.0], 3.0) + RANDOM.normal(size=50)}


@probml.model
def lines(x, look):
    shares = sample("shares", dist.Dirichlet(jnp.ones(3)))
    w = sample("w", dist.Normal(0.0, 3.0).expand([3, 2]).to_event(2))
    with probml.rows():
        z = sample("z", dist.Categorical(shares))
        loc = {"own": (x * w[z]).sum(-1),
               "and the first": (x * (w[z] + 0.5 * w[0])).sum(-1),
               "by the data": jnp.where(x[:, 0] > 0, x @ w[0], x @ w[1]) + 0.0 * z}[look]
        sample("y", dist.Normal(loc, 1.0))


def block_of(plan, name):
    return next(b for stage in blocks(plan, True) for b in stage if name in b.names)


@pytest.mark.parametrize(("model", "name", "count"), [
    (mixture_of_experts(k=4), "weights", 4), (lines(look="own"), "w", 3),
    (lines(look="and the first"), "w", 0), (lines(look="by the data"), "w", 0)])
def test_vectors_are_apart_where_every_location_looks_at_one(model, name, count):
    assert len(block_of(read(model, DATA).plan(), name).vectors) == count


@pytest.mark.parametrize(("model", "count"), [
    (factor_analysis(k=2, d=3), 3), (mixture_of_factor_analysers(components=2, k=1, d=3), 6)])
def test_loadings_of_a_column_and_its_mean_are_a_vector(model, count):
    plan = read(model, {"x": RANDOM.normal(size=(9, 3))}).plan()
    block = block_of(plan, "loadings")
    assert set(block.names) == {"loadings", "mean"}
    assert len(block.vectors) == count
    places = np.array(block.vectors)
    c = np.arange(places.size)  # which entry of which parameter stands where
    parts = unpack({name: np.zeros(plan.structure.sites[name].shape) for name in block.names},
                   block, c)
    for at, mean, loadings in zip(places, np.asarray(parts["mean"]).reshape(-1),
                                  np.asarray(parts["loadings"]).reshape(count, -1), strict=True):
        assert set(at) == {mean, *loadings}


def test_normal_equations_of_vectors_apart_are_those_of_all_coefficients():
    held = read(lines(look="own"), DATA).trimmed()
    plan = held.plan()
    rows, known = load(held, plan)
    params = {"shares": np.array([0.2, 0.3, 0.5]), "w": RANDOM.normal(size=(3, 2))}
    block, found = block_of(plan, "w"), []

    for each in (block, dataclasses.replace(block, vectors=())):
        def once(params, known, rows, each=each):
            expected = expect(plan, params, known, rows)
            objective = Objective(plan, expected, params, known, rows, True)
            return updates.natural_parameters(objective, [each])[0]

        found.append(jax.jit(once)(params, known, rows))
    apart, whole = found
    assert np.abs(np.asarray(whole["precision"])).max() > 1
    for key in whole:
        np.testing.assert_allclose(apart[key], whole[key], rtol=1e-10, atol=1e-10)
