"""The climb of very many rows: few passes, in parts, to the top that Newton's steps on all find."""

import jax
import numpy as np
import pytest

import probml
from probml.dataset.read import read
from probml.device.load import load
from probml.engines.engine import planned
from probml.engines.optimization import maximization
from probml.engines.restarting import squarem
from probml.models import logistic_regression
from probml.numerics.optimum import maximize
from probml.numerics.refinement import HostBFGS

ROUNDING = np.finfo(float).eps


def ascend(both, start, steps, tolerance, enough, rounding):
    return maximize(both, start, HostBFGS(steps, tolerance, enough, rounding))


def quartic(seed=0, d=5):
    """A concave function whose curvature is about −1, and its maximum."""
    random = np.random.default_rng(seed)
    bend = np.diag(random.uniform(0.9, 1.1, d))
    top = random.normal(size=d)

    def both(z):
        away = z - top
        return (float(-0.5 * away @ bend @ away - 0.01 * (away**4).sum()),
                -bend @ away - 0.04 * away**3)

    return both, top


def counted(both):
    calls = []

    def told(z):
        calls.append(z)
        return both(z)

    return told, calls


def test_ascend_finds_the_top_and_tells_its_way():
    both, top = quartic()
    found = ascend(both, np.zeros(5), 50, 1e-14, 1e-15, ROUNDING)
    assert found.flat and np.abs(found.point - top).max() < 1e-6
    assert len(found.history) == found.iterations + 1 and (np.diff(found.history) >= 0).all()


def test_a_last_step_that_is_foretold_to_be_enough_is_taken_without_a_look():
    both, top = quartic()
    told, calls = counted(both)
    found = ascend(told, np.zeros(5), 50, 1e-9, 1e-5, ROUNDING)
    assert len(calls) == found.iterations < 5  # the start is one of them
    assert -both(found.point)[0] < 1e-5 and abs(found.value - both(found.point)[0]) < 1e-5


def test_ascend_learns_a_curvature_that_nothing_tells():
    random = np.random.default_rng(1)
    scale, top = np.array([100.0, 1.0, 25.0]), random.normal(size=3)
    found = ascend(lambda z: (float(-0.5 * scale @ (z - top) ** 2), -scale * (z - top)),
                          np.zeros(3), 100, 1e-14, 0.0, ROUNDING)
    assert np.abs(found.point - top).max() < 1e-5


def test_ascend_says_that_it_found_no_way_up():
    """A slope that leads down."""
    found = ascend(lambda z: (float(-(z**2).sum()), 1e3 * np.ones(2)), np.zeros(2), 20, 1e-9,
                          1e-12, ROUNDING)
    assert found.iterations == 0 and not found.flat


@pytest.fixture(params=[True, False], ids=["double", "single"])
def double(request):
    with jax.enable_x64(request.param):
        yield request.param


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(0)
    x = random.normal(size=(4_000, 3))
    y = (random.random(4_000) < 1 / (1 + np.exp(-x @ [1.0, -0.5, 0.2] - 0.3))).astype(int)
    return {"x": x, "y": y}


def test_parts_of_the_rows_tell_what_all_do(rows, double, monkeypatch):
    monkeypatch.setattr("probml.plan.plan.CHUNK", 2**12)
    monkeypatch.setattr(squarem, "PARTED", 1)
    monkeypatch.setattr("probml.device.load.PARTED", 1)
    monkeypatch.setattr(squarem, "cores", lambda: 2)
    model, engine = logistic_regression(), probml.MAP()
    data = read(model, rows)
    plan = planned(engine.prepare_data(data), engine)
    held, known = load(data, plan)
    assert len(squarem.split_rows(plan, held)) == 2
    u = np.array([0.3, 0.8, -0.2, 0.1])
    value, slope = maximization.host_objective(plan, True, known, held)(u)
    monkeypatch.setattr(squarem, "PARTED", 2**40)
    whole, all_of_it = maximization.host_objective(plan, True, known, held)(u)
    close = 1e-10 if double else 1e-4
    assert value == pytest.approx(whole, rel=close)
    assert slope == pytest.approx(all_of_it, rel=close, abs=close * np.abs(all_of_it).max())


def test_many_rows_end_where_newton_on_all_does(rows, double, monkeypatch):
    model = logistic_regression()
    whole = model.fit(rows, probml.MAP())
    monkeypatch.setattr(maximization, "SAMPLE_ROWS", 512)
    monkeypatch.setattr(maximization, "SAMPLE_CHUNK", 256)
    some = model.fit(rows, probml.MAP())
    close = 1e-6 if double else 2e-3
    assert some.converged
    assert some.params["beta"] == pytest.approx(whole.params["beta"], abs=close)
    assert some.history[-1] == pytest.approx(whole.history[-1], rel=1e-9 if double else 1e-5)


def test_chunks_of_wide_inputs_stay_in_cache(rows):
    model = logistic_regression()
    wide = {"x": np.zeros((8, 200)), "y": np.zeros(8, int)}
    plans = [planned(read(model, each), probml.MAP()) for each in (rows, wide)]
    assert [plan.brought for plan in plans] == [3, 200]
    assert plans[1].chunk_rows() * 200 <= 2**19 < plans[0].chunk_rows() * 200
