"""Rows on their way to a running program: in memory that is used again, and told as the work that they are."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml
from coded import codes
from probml.dataset.sources.parts import open_data
from probml.device import streamed as streaming
from probml.device.streamed import Cut, open_stream
from probml.numerics import compiling
from probml.numerics.outside import callbacks

N = 900
X = np.random.default_rng(0).normal(3.0, 1.0, N)


@probml.model
def normal():
    mean = sample("mean", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("x", dist.Normal(mean, 1.0))


def parts():
    for low in range(0, N, 130):
        yield {"x": X[low : low + 130]}


def test_chunks_of_a_feed_are_made_in_memory_of_those_before(monkeypatch):
    monkeypatch.setattr(streaming, "NUMBERS", 64)
    monkeypatch.setattr(streaming, "_shape", lambda most, rows, numbers: (2, 50))
    data = open_data(normal(), parts)
    cutter = Cut.of(data, data.plan())
    for made, found in zip(cutter.read(), cutter.read_with_buffers(), strict=True):
        jax.tree.map(np.testing.assert_array_equal, made, found)
    places = [chunk.values["x"].ctypes.data for chunk in cutter.read_with_buffers()]
    assert len(places) == 9 and len(set(places)) == 3 and places[:6] == places[3:]
    kept = [chunk.values["x"].ctypes.data for chunk in list(cutter.read())]
    assert len(set(kept)) == 9


def test_what_a_program_is_fed_counts_as_its_work():
    data = open_data(normal(), parts)
    feed, rows, _ = open_stream(data, data.plan())
    assert callbacks.count_fed_numbers((rows,)) == 0  # nothing is open
    with feed:
        numbers = callbacks.count_fed_numbers(({"rows": rows}, 1.0))
    assert N <= numbers <= 4 * N
    leaves = jax.tree.leaves(rows)
    assert compiling.options_for(leaves, (), 1, numbers) is compiling.QUICK
    assert compiling.options_for(leaves, (), 1, 1000 * numbers) is compiling.FULL
    assert compiling.options_for(leaves, (), 1000, numbers) is compiling.FULL


@pytest.fixture
def single():
    """float32 in every thread, as users have it."""
    jax.config.update("jax_enable_x64", False)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", True)


def test_doubles_pass_to_a_program_and_back_whatever_the_other_threads_have(single):
    """The thread that is called back knows nothing of the context."""
    given = {"real": np.array([1 + 2.0**-40]), "whole": np.int64(2**40), "flag": np.array([True])}
    with callbacks.Supply() as supply, jax.enable_x64(True):
        specs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), given)
        met = []

        def function(supply, x):
            met.append(float(x))
            return given

        found = jax.jit(lambda x: callbacks.called_back(function, specs, np.int32(supply.number), x))(
            jnp.asarray(1 - 2.0**-40))
        found = jax.device_get(found)
    assert met == [1 - 2.0**-40]
    for name, value in given.items():
        assert found[name].dtype == value.dtype and (found[name] == value).all()


def test_rows_of_a_source_that_need_doubles_are_read_in_double(single):
    values = 1e6 + 0.1 * np.random.default_rng(0).normal(size=(300, 2))

    @probml.model
    def wide():
        mean = sample("mean", dist.Normal(1e6, 10.0).expand([2]).to_event(1))
        scale = sample("scale", dist.LogNormal(0.0, 3.0))
        with probml.rows():
            sample("x", dist.Normal(mean, scale).to_event(1))

    fit = wide().fit(lambda: ({"x": part} for part in np.split(values, 3)))
    assert "float32-to-float64" in codes(fit)
    np.testing.assert_allclose(fit.params["mean"], values.mean(0), rtol=1e-10)
