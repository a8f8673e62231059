"""Any partition of the same rows, in any order, of any kind of tables, is the same data: a fit ends where that of
one table in memory ends."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.dataset.sources.parts import Reader, open_data
from probml.dataset.sources.profile import joined, measured
from small_models import network

N = 60
ENGINE = probml.EM(max_iterations=3, tolerance=0.0, accelerate=False)


@probml.model
def walks():
    table = sample("table", dist.Dirichlet(jnp.ones((2, 2))).to_event(1))
    with plate("state", 2):
        mean = sample("mean", dist.Normal(0.0, 10.0))
    with probml.rows():
        z = sample("z", probml.MarkovChain(jnp.ones(2) / 2, table))
        sample("x", dist.Normal(mean[z], 1.0).to_event(1))


@probml.model
def towns(town):
    with plate("town", 3):
        mean = sample("mean", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("y", dist.Normal(mean[town], 1.0))


def of(kind: str) -> tuple:
    """A model, its columns, the column of weights, and where all its parameters begin."""
    random = np.random.default_rng(1)
    if kind == "sequences":
        steps = [random.normal(size=n) + 3.0 * random.integers(2) for n in random.integers(2, 7, N)]
        for one in steps[::5]:
            one[random.integers(len(one))] = np.nan
        start = {"table": np.array([[0.7, 0.3], [0.4, 0.6]]), "mean": np.array([0.0, 2.0])}
        return walks(), {"x": np.fromiter(steps, object, N)}, None, start
    z, times = random.integers(2, size=N), random.integers(0, 4, N).astype(float)
    y = random.normal(size=N) + 3.0 * z
    if kind == "labels of an index":
        town = np.array(["hamar", "alta", "voss"], object)[np.r_[0, random.integers(1, 3, N - 1)]]
        return towns(), {"town": town, "y": y, "times": times}, "times", {}
    b = np.array(["low", "mid", "high"], object)[(z + random.integers(2, size=N)) % 3]
    a = z.astype(float)
    for column in (a, b, y):
        column[random.random(N) < 0.3] = np.nan if column.dtype == float else None
    start = {"first": np.array([0.6, 0.4]), "second": np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]]),
             "mean": np.array([0.0, 2.0])}
    return network(), {"a": a, "b": b, "y": y, "times": times}, "times", start


def partition(table: dict, seed: int) -> tuple[list, np.ndarray]:
    """The rows in random order, in tables of random sizes, of one kind or another, some empty; and the order."""
    import pandas as pd
    import pyarrow as pa

    random = np.random.default_rng(seed)
    order, some = random.permutation(N), random.integers(1, 8)
    ends = [0, *np.sort(random.integers(0, N + 1, some)), N]
    parts = [{name: column[order[low:high]] for name, column in table.items()}
             for low, high in zip(ends[:-1], ends[1:], strict=True)]
    if "x" in table:
        return [{"x": list(part["x"])} for part in parts], order
    frames = [pd.DataFrame, lambda part: pa.table(
        {name: pa.array(column, from_pandas=True) for name, column in part.items()}), dict]
    return [frames[random.integers(3)](part) for part in parts], order


KINDS = ("a network with holes and weights", "sequences", "labels of an index")


@pytest.mark.parametrize("kind", KINDS)
def test_any_partition_in_any_order_is_read_as_one_table(kind):
    model, table, weights, _ = of(kind)
    whole = open_data(model, {name: list(column) for name, column in table.items()}, weights)
    whole = measured(whole)
    for seed in range(8):
        parts, order = partition(table, seed)
        held = open_data(model, lambda parts=parts: iter(parts), weights)
        found = joined(list(Reader(held).batches()))
        assert held.labels == whole.labels and held.pattern == whole.pattern and held.size == N
        assert held.steps == whole.steps and held.survey.profile.weight == pytest.approx(
            N if weights is None else table["times"].sum())
        own = whole.taken(order)
        real = None if own.lengths is None else np.arange(held.steps) < own.lengths[:, None]
        for name, column in own.table.columns.items():
            mine, theirs = (c.values_or_nan if real is None else np.where(real, c.values_or_nan, 0.0)
                            for c in (found.table.columns[name], column))
            np.testing.assert_allclose(mine, theirs, err_msg=f"{name}, {seed}")
        for name, column in own.table.inputs.items():
            np.testing.assert_array_equal(found.table.inputs[name], column)
        if weights:
            np.testing.assert_array_equal(found.weights, own.weights)


@pytest.mark.parametrize("kind", [*(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[:2]), KINDS[2]])
@pytest.mark.filterwarnings("ignore:EM of model:probml.ConvergenceWarning")
def test_any_partition_in_any_order_ends_where_one_table_ends(kind):
    model, table, weights, start = of(kind)
    engine = ENGINE if start else probml.Exact()
    plain = model.fit({name: list(column) for name, column in table.items()}, engine, start=start, weights=weights)
    for seed in range(5):
        parts, _ = partition(table, seed)
        fit = model.fit(lambda parts=parts: iter(parts), engine, start=start, weights=weights)
        np.testing.assert_allclose(fit.history[[0, -1]], plain.history[[0, -1]], rtol=1e-10)
        for name, value in plain.params.items():
            np.testing.assert_allclose(fit.params[name], value, rtol=1e-8, err_msg=f"{name}, {seed}")
