"""The language: settings that freeze, models that hash and pickle, the plain function inside
NumPyro's handlers."""

import multiprocessing
import pickle

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers, plate, sample

import cases
import probml


@probml.model
def settings(tables, graph, names=("a", "b"), scale: float = 1.0):
    """Every kind of setting reaches the function as it was given."""
    assert isinstance(tables, dict) and isinstance(tables["p"], np.ndarray)
    assert isinstance(graph, nx.DiGraph) and list(graph.edges) == [("a", "b")]
    assert isinstance(names, tuple | list)
    with probml.rows():
        sample("x", dist.Normal(float(tables["p"].sum()), scale))


def bound(**more):
    return settings({"p": np.arange(3.0)}, nx.DiGraph([("a", "b")]), **more)


@probml.model
def vector(d: int):
    mean = sample("mean", dist.Normal(0.0, 1.0).expand([d]).to_event(1))
    with probml.rows():
        sample("x", dist.Normal(mean, 1.0).to_event(1))


@probml.model
def regression(d: int, x):
    beta = sample("beta", dist.Normal(0.0, 1.0).expand([d]).to_event(1))
    with probml.rows():
        sample("y", dist.Normal(x @ beta, 1.0))


# Settings


def test_equal_settings_make_equal_models_that_hash_alike():
    assert bound() == bound() and hash(bound()) == hash(bound())
    assert bound(scale=2.0) != bound() and bound(names=("a",)) != bound()
    assert vector(2) == vector(d=2) != vector(3)
    other = settings({"p": np.arange(4.0)}, nx.DiGraph([("a", "b")]))
    assert other != bound()


def test_settings_thaw_to_what_was_given():
    assert bound().simulate(3)["x"].shape == (3,)


def test_a_setting_changed_after_binding_changes_nothing():
    table = np.arange(3.0)
    model = settings({"p": table}, nx.DiGraph([("a", "b")]))
    before = hash(model)
    table[:] = 7.0
    assert hash(model) == before and model == bound()


def test_a_function_gets_a_mapping_in_the_order_in_which_it_was_given():
    graph, table = nx.DiGraph([("a", "b")]), np.arange(3.0)
    one, other = settings({"q": 1, "p": table}, graph), settings({"p": table, "q": 1}, graph)
    assert list(one.bound["tables"]) == ["q", "p"] and list(other.bound["tables"]) == ["p", "q"]
    assert one == settings({"q": 1, "p": np.arange(3.0)}, graph)
    # a function may count on the order, so that a program of one is none of the other
    assert one != other


def test_arrays_are_settings_by_value_and_dtype():
    graph = nx.DiGraph([("a", "b")])
    assert settings({"p": np.array([0.0, 1.0, 2.0])}, graph) == bound()
    assert settings({"p": np.arange(3)}, graph) != bound()


def test_a_setting_that_cannot_be_frozen_is_refused_by_name():
    with pytest.raises(probml.ModelError, match="'scale'.*bytearray"):
        bound(scale=bytearray(3))


def test_unknown_settings_and_star_arguments_are_refused():
    with pytest.raises(probml.ModelError, match="k"):
        vector(k=3)
    with pytest.raises(probml.ModelError, match=r"\*args"):

        @probml.model
        def loose(*args):
            pass


def test_a_default_is_a_setting_and_the_unbound_are_inputs():
    assert cases.coin().inputs == () and cases.coin().settings == cases.coin(a=1.0, b=1.0).settings
    assert regression(d=2).inputs == ("x",) and regression().inputs == ("d", "x")


# Pickling


def _digest(blob):
    model = pickle.loads(blob)
    return model == bound() and hash(model) == hash(bound()), repr(model)


def test_a_model_survives_pickling_into_another_process():
    model = pickle.loads(pickle.dumps(bound()))
    assert model == bound() and hash(model) == hash(bound())
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        equal, text = pool.apply(_digest, (pickle.dumps(bound()),))
    assert equal and text == repr(bound())


def test_a_model_of_a_closure_says_why_it_cannot_be_pickled():
    @probml.model
    def inner():
        with probml.rows():
            sample("x", dist.Normal(0.0, 1.0))

    with pytest.raises(probml.ModelError, match="'inner'.*top level"):
        pickle.dumps(inner())


# The plain function


def test_a_model_inside_handlers_is_the_plain_function():
    with handlers.seed(rng_seed=0), handlers.trace() as trace:
        vector(2)(rows=5)
    assert [name for name, site in trace.items() if site["type"] == "sample"] == ["mean", "x"]
    assert trace["x"]["value"].shape == (5, 2) and trace["x"]["fn"].event_shape == (2,)
    conditioned = handlers.condition(vector(2), data={"mean": jnp.ones(2)})
    with handlers.seed(rng_seed=0), handlers.trace() as trace:
        conditioned(rows=3)
    assert trace["mean"]["is_observed"]


def test_numpyro_samples_from_it():
    kernel = numpyro.infer.NUTS(handlers.condition(vector(2), data={"x": jnp.ones((4, 2))}))
    mcmc = numpyro.infer.MCMC(kernel, num_warmup=50, num_samples=50, progress_bar=False)
    mcmc.run(jax.random.key(0), rows=4)
    assert mcmc.get_samples()["mean"].shape == (50, 2)


def test_rows_default_to_the_leading_axis_of_the_inputs():
    with handlers.seed(rng_seed=0), handlers.trace() as trace:
        regression(d=2)(x=jnp.ones((7, 2)))
    assert trace["y"]["value"].shape == (7,)


def test_without_rows_and_inputs_it_raises():
    with pytest.raises(probml.ModelError, match="number of rows"), handlers.seed(rng_seed=0):
        vector(2)()
    with pytest.raises(probml.ModelError, match="number of rows"):
        vector(2).simulate()
    with pytest.raises(probml.ModelError, match="rows"):
        probml.rows()


def test_missing_and_unknown_inputs_are_named():
    with pytest.raises(probml.ModelError, match="'x'"), handlers.seed(rng_seed=0):
        regression(d=2)(rows=3)
    with pytest.raises(probml.ModelError, match="'w'"), handlers.seed(rng_seed=0):
        regression(d=2)(rows=3, x=jnp.ones((3, 2)), w=1)
    with pytest.raises(probml.ModelError, match="'d'"):
        regression().simulate(x=np.ones((3, 2)))


# Simulation


@probml.model
def plates(k: int, d: int):
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with probml.rows():
        z = sample("z", dist.Categorical(jnp.full(k, 1.0 / k)))
        with plate("outer", 3, dim=-3), plate("inner", d, dim=-2):
            sample("cells", dist.Normal(mean[z, 0], 1.0))
            sample("vectors", dist.Normal(mean[z], 1.0).to_event(1))


def test_simulate_puts_rows_first_then_plates_outermost_first_then_event_axes():
    drawn = plates(k=2, d=4).simulate(5, seed=1)
    shapes = {name: value.shape for name, value in drawn.items()}
    assert shapes == {"z": (5,), "cells": (5, 3, 4), "vectors": (5, 3, 4, 2)}
    assert drawn["z"].dtype.kind == "i"


def test_simulate_repeats_with_its_seed():
    one, other, third = (vector(2).simulate(4, seed=seed)["x"] for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, other)
    assert not np.array_equal(one, third)


def test_simulated_rows_share_one_draw_of_the_parameters():
    x = vector(2).simulate(4000, seed=3)["x"]
    # of the noise alone, five standard errors
    np.testing.assert_allclose(x.std(0), 1.0, atol=5 / np.sqrt(2 * 4000))
    assert np.abs(x.mean(0)).max() > 0.1  # and not about the prior mean


def test_simulate_with_inputs_takes_its_rows_from_them():
    drawn = regression(d=2).simulate(x=np.ones((6, 2)))
    assert drawn["y"].shape == (6,)
    np.testing.assert_allclose(drawn["y"].std(), 1.0, atol=1.0)


def test_simulate_refuses_steps_without_a_chain():
    with pytest.raises(probml.ModelError, match="steps"):
        vector(2).simulate(3, steps=4)


# Engines and settings of engines


def test_engines_are_frozen_values():
    assert probml.EM(restarts=3) == probml.EM(restarts=3) != probml.EM()
    assert hash(probml.MAP(steps=5)) == hash(probml.MAP(steps=5))
    with pytest.raises(AttributeError):
        probml.EM().restarts = 4


@pytest.mark.parametrize("call", ["EM(max_iterations=0)", "EM(tolerance=-1)", "EM(restarts=1.5)",
                                  "MAP(steps=-3)", "EM(restarts=True)"])
def test_settings_of_engines_out_of_range_are_refused(call):
    with pytest.raises(probml.ModelError, match=call.split("(")[1].split("=")[0]):
        eval(f"probml.{call}", {"probml": probml})


def test_what_is_no_engine_is_refused():
    for wrong in (probml.EM, "EM", 3):
        with pytest.raises(probml.ModelError, match="engine"):
            vector(2).fit({"x": np.ones((3, 2))}, wrong)


def test_mini_batches_need_an_optimiser():
    with pytest.raises(probml.ModelError, match="batch_rows"):
        probml.MAP(batch_rows=10)
