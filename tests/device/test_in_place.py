"""Rows whose inputs stay where the user has them are the rows that a copy holds."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import probml
from probml.dataset.read import read
from probml.device import in_place, load
from probml.models import LogisticRegression

jax.config.update("jax_enable_x64", True)


@probml.model
def line(x):
    d = x.shape[-1]
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([d]).to_event(1))
    with probml.rows():
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights))


def rows(n: int, d: int, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose first number lies so many numbers behind an aligned place."""
    random = np.random.default_rng(n + d)
    raw = np.empty(n * d + 16)
    begin = -raw.ctypes.data % 64 // 8 + shift
    x = raw[begin : begin + n * d].reshape(n, d)
    x[:] = random.normal(size=(n, d))
    return x, (random.random(n) < 0.5).astype(int)


@pytest.mark.parametrize("n, d, shift", [(5003, 3, 2), (4999, 4, 5), (4096, 8, 0)])
def test_a_pass_over_rows_where_they_lie_is_that_over_a_copy(monkeypatch, n, d, shift):
    x, y = rows(n, d, shift)
    monkeypatch.setattr(in_place, "LONG", 1)
    data, weights = read(line(), {"x": x, "y": y}), np.random.default_rng(1).random(n)
    plan = data.plan()
    found = in_place.long(data, plan, np.dtype(float))
    kinds = load.Kinds(np.dtype(float), np.dtype(int))
    lay = in_place.place_in_memory(data, found, weights, 4, lambda part, own, shape: load.packed(
        part, plan, {}, own, shape, kinds))
    assert lay.inputs["x"].unsafe_buffer_pointer() == x.ctypes.data + -x.ctypes.data % 64
    assert lay.chunks == 5

    def both(some):
        return some.total(lambda chunk: {
            "x": chunk.weights @ chunk.inputs["x"], "xx": (chunk.inputs["x"] ** 2).sum(1)
            @ chunk.weights, "y": chunk.weights @ chunk.values["y"]})

    told = {"x": weights @ x, "xx": weights @ (x**2).sum(1), "y": weights @ y}
    program = jax.jit(both)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-10, 1e-10), program(lay), told)
    parts = [program(part) for part in lay.halves()]
    assert program._cache_size() == 2  # of all, and of either half
    jax.tree.map(lambda a, b, c: np.testing.assert_allclose(a + b, c, 1e-10, 1e-10), *parts, told)
    np.testing.assert_allclose([lay.weight, lay.mass], weights.sum())
    every = lay.taken(jnp.arange(n))  # each row once, with its own weight and answer
    own = np.lexsort(x.T)
    there = np.lexsort(np.asarray(every.stacked.inputs["x"][0]).T)
    np.testing.assert_array_equal(every.stacked.inputs["x"][0][there], x[own])
    np.testing.assert_array_equal(every.stacked.values["y"][0][there], y[own])
    np.testing.assert_array_equal(every.stacked.weights[0][there], weights[own])
    np.testing.assert_allclose(lay.stacked.weights.sum(), weights.sum())


def test_a_fit_to_rows_where_they_lie_is_that_to_a_copy(monkeypatch):
    x, y = rows(2**17 + 3, 33, 3)
    y = (x @ np.linspace(-1, 1, 33) > 0.3).astype(int) ^ (x[:, 0] > 1)
    copied = LogisticRegression().fit(np.asfortranarray(x), y)
    seen = []
    monkeypatch.setattr(load, "place_in_memory", lambda *given: seen.append(in_place.place_in_memory(*given)) or seen[-1])
    lain = LogisticRegression().fit(x, y)
    assert isinstance(seen[0], in_place.InPlaceRows)
    # the curvature is that of other samples, so that the ends differ by what the tolerance leaves

    def height(estimator) -> float:
        logits = x @ estimator.coef_[0] + estimator.intercept_
        return np.logaddexp(0, np.where(y, -logits, logits)).sum() + 0.5 * (estimator.coef_**2).sum()

    np.testing.assert_allclose(height(lain), height(copied), 1e-9)
    np.testing.assert_allclose(lain.coef_, copied.coef_, 1e-3, 1e-4)
