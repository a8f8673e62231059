"""Runs some at a time, and rows in parts, find what all at once do."""

import jax
import numpy as np
import pytest

import probml
from probml.dataset.sources.parts import open_data
from probml.device import load as loading
from probml.device.load import load
from probml.engines.restarting import squarem
from probml.models import GaussianMixture, gaussian_mixture, hidden_markov
from probml.plan import plan as planning

pytestmark = pytest.mark.filterwarnings("ignore:EM of model:probml.ConvergenceWarning",
                                        "ignore:GaussianMixture:UserWarning")
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(240, 2)) + 4 * RANDOM.integers(3, size=(240, 1))
HOLES = np.where(RANDOM.random(X.shape) < 0.2, np.nan, X)
MODEL = gaussian_mixture(k=3, d=2)
ENGINE = probml.EM(max_iterations=12, restarts=5, tolerance=1e-6)


def same(one: probml.Fit, other: probml.Fit) -> None:
    np.testing.assert_allclose(one.history, other.history, rtol=1e-10)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12),
                 dict(one.params), dict(other.params))


def test_slices_of_runs_find_what_all_at_once_do(monkeypatch):
    whole, width = MODEL.fit({"x": X}, ENGINE), open_data(MODEL, {"x": X}).plan().effort
    monkeypatch.setattr(squarem, "SLICE_NUMBERS", 2 * 240 * width)
    made = []
    own = squarem.evaluate_running
    monkeypatch.setattr(squarem, "evaluate_running", lambda evaluate, running, size, *more: made.append(
        (int(running.sum()), size)) or own(evaluate, running, size, *more))
    same(MODEL.fit({"x": X}, ENGINE), whole)
    assert made[0] == (5, 2)
    assert all(size == 2 for _, size in made)


def test_sizes_side_by_side_find_in_slices_what_they_do_at_once(monkeypatch):
    estimator = GaussianMixture(range(1, 4), n_init=2, max_iter=8, tol=1e-9, prior=False)
    whole = estimator.fit(X).table_
    monkeypatch.setattr(squarem, "SLICE_NUMBERS", 1)
    np.testing.assert_allclose(estimator.fit(X).table_["loglik"], whole["loglik"], rtol=1e-10)


@pytest.mark.parametrize("x", (X, HOLES), ids=("complete", "with holes"))
def test_rows_in_parts_tell_what_all_do(monkeypatch, x):
    start = {"weights": np.ones(3) / 3, "mean": X[:3], "precision": np.tile(np.eye(2), (3, 1, 1))}
    monkeypatch.setattr(planning, "CHUNK", 2**9)
    monkeypatch.setattr(loading, "PARTED", 0)
    engine = probml.EM(max_iterations=5, tolerance=0.0)
    fits, made = {}, []
    own = squarem.parts_for_threads
    monkeypatch.setattr(squarem, "parts_for_threads", lambda *args: made.append(own(*args)) or made[-1])
    monkeypatch.setattr(squarem, "cores", lambda: 2)
    for least in (2**30, 0):
        monkeypatch.setattr(squarem, "PARTED", least)
        fits[least] = MODEL.fit({"x": x}, engine, start=start)
    assert [len(parts) > 1 for parts in made] == [False, True]
    same(fits[0], fits[2**30])


def test_parts_are_the_rows(monkeypatch):
    monkeypatch.setattr(planning, "CHUNK", 2**9)
    monkeypatch.setattr(loading, "PARTED", 0)
    monkeypatch.setattr(squarem, "PARTED", 0)
    monkeypatch.setattr(squarem, "cores", lambda: 2)
    held = open_data(MODEL, {"x": X})
    plan = held.plan()
    rows, _ = load(held, plan)
    found = squarem.parts_for_threads(plan, rows, 1)
    together = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(part.stacked for part in reversed(found)))
    jax.tree.map(np.testing.assert_array_equal, together, jax.tree.map(np.asarray, rows.stacked))
    assert squarem.parts_for_threads(plan, rows, 2) == []


def test_chains_run_in_slices(monkeypatch):
    model = hidden_markov(k=2, d=1)
    y = np.cumsum(RANDOM.normal(size=(6, 40, 1)), 1)
    engine = probml.EM(max_iterations=4, restarts=3, tolerance=0.0)
    whole = model.fit({"y": y}, engine)
    monkeypatch.setattr(squarem, "SLICE_NUMBERS", 1)
    same(model.fit({"y": y}, engine), whole)
