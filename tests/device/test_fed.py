"""Rows on their way to a running program: in memory that is used again, and told as the work that they are."""

import jax
import numpy as np
import numpyro.distributions as dist
from numpyro import sample

import probml
from probml.dataset.sources.parts import opened
from probml.device import streamed as streaming
from probml.device.streamed import Cut, streamed
from probml.numerics import tiers
from probml.numerics.outside import feeding

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
    data = opened(normal(), parts)
    cutter = Cut.of(data, data.plan())
    for made, found in zip(cutter.read(), cutter.fed(), strict=True):
        jax.tree.map(np.testing.assert_array_equal, made, found)
    places = [chunk.values["x"].ctypes.data for chunk in cutter.fed()]
    assert len(places) == 9 and len(set(places)) == 3 and places[:6] == places[3:]
    kept = [chunk.values["x"].ctypes.data for chunk in list(cutter.read())]
    assert len(set(kept)) == 9


def test_what_a_program_is_fed_counts_as_its_work():
    data = opened(normal(), parts)
    feed, rows, _ = streamed(data, data.plan())
    assert feeding.fed((rows,)) == 0  # nothing is open
    with feed:
        numbers = feeding.fed(({"rows": rows}, 1.0))
    assert N <= numbers <= 4 * N
    leaves = jax.tree.leaves(rows)
    assert tiers.options(leaves, (), 1, numbers) is tiers.QUICK
    assert tiers.options(leaves, (), 1, 1000 * numbers) is tiers.FULL
    assert tiers.options(leaves, (), 1000, numbers) is tiers.FULL
