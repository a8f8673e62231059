"""What one process has one of stays as it was, and a seed says the same everywhere: in another process, in another
order, on fewer cores, in other chunks."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import global_state
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import probml
from faults import POINT, X, clusters
from probml.plan import plan

FOLDER = Path(__file__).parent


def said_by(*words, **environment):
    paths = os.pathsep.join(filter(None, [str(FOLDER), *sys.path]))
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, timeout=900,
                          env=os.environ | {"PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"} | environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def test_a_change_of_what_a_process_has_one_of_is_told():
    before = global_state.state()
    numbers = np.random.get_state()
    try:
        np.random.seed(3)
        found = global_state.differences(before, global_state.state())
    finally:
        np.random.set_state(numbers)
    assert [words.partition(":")[0] for words in found] == ["numpy's numbers"]
    assert global_state.differences(before, global_state.state()) == []


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_a_fit_that_ends_an_error_and_an_interrupt_leave_the_process_as_it_was(error):
    """Also where it is raised while a program is traced."""
    states = []

    @probml.model
    def coin():
        p = numpyro.sample("p", dist.Beta(2.0, 3.0))
        with probml.rows():
            states.append(global_state.state())
            if error is not None and not states[-1]["numpyro's checks"] == str(True):
                raise error("amid a trace")
            numpyro.sample("y", dist.Bernoulli(p))

    before = global_state.state()
    with contextlib.nullcontext() if error is None else pytest.raises(error):
        coin().fit({"y": [1, 0, 1, 1]}, probml.EM(max_iterations=5))
    assert global_state.differences(before, global_state.state()) == []
    assert any(global_state.differences(before, within) for within in states)  # inside it is another


@pytest.mark.slow
def test_imports_and_fits_change_nothing_that_a_process_has_one_of():
    assert said_by(FOLDER / "global_state.py") == ""


SEEDED = """
import hashlib, json, os, sys, warnings
warnings.simplefilter("ignore")
if sys.argv[1] == "one":
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
import numpy as np
import probml
from faults import ENGINES, POINT, X, clusters
from probml import models

holes = np.where(np.random.default_rng(1).random(X.shape) < 0.2, np.nan, X)
known = clusters().at(POINT)
asked = {name: lambda engine=engine: clusters().fit({"x": X}, engine, seed=3).params for name, engine in ENGINES.items()}
asked |= {
    "batches": lambda: clusters().fit({"x": X}, probml.SVI(steps=50, batch_rows=10), seed=3).params,
    "simulate": lambda: known.simulate(7, seed=5), "given": lambda: known.simulate(given={"x": holes}, seed=5),
    "estimator": lambda: {"proba": models.GaussianMixture(2, random_state=4).fit(X).predict_proba(X)},
    "check": lambda: {"levels": models.ridge().check(
        data={"x": X[:8]}, engine=probml.Exact(), simulations=20, seed=2).levels},
}
names = sorted(asked, reverse=sys.argv[1] == "backwards")
found = {name: {site: hashlib.sha256(np.ascontiguousarray(np.asarray(value)).tobytes()).hexdigest()[:12]
                for site, value in asked[name]().items()} for name in names}
print(json.dumps({name: dict(sorted(found[name].items())) for name in sorted(found)}))
"""


@pytest.mark.slow
def test_a_seed_says_the_same_in_another_process_in_another_order_and_on_one_core():
    found = [json.loads(said_by("-c", SEEDED, how, PYTHONHASHSEED=seed))
             for how, seed in (("plain", "1"), ("backwards", "2"), ("one", "3"))]
    assert len(found[0]) > 8
    for other in found[1:]:
        for name, right in found[0].items():
            assert other[name] == right, name


def _seeded():
    """What is drawn and what is found, by one seed."""
    holes = np.where(np.random.default_rng(1).random(X.shape) < 0.2, np.nan, X)
    found = {name: clusters().fit({"x": X}, engine, seed=3).params for name, engine in {
        "EM": probml.EM(restarts=2, max_iterations=30, tolerance=0.0),
        "MAP": probml.MAP(), "SVI": probml.SVI(steps=300)}.items()}
    return found | {"given": clusters().at(POINT).simulate(given={"x": holes}, seed=5)}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_seed_says_the_same_in_chunks(monkeypatch):
    one = _seeded()
    monkeypatch.setattr(plan, "CHUNK", 1)
    for name, found in _seeded().items():
        for site, value in found.items():
            np.testing.assert_allclose(value, one[name][site], rtol=1e-6, atol=1e-8, err_msg=f"{name}: {site}")
