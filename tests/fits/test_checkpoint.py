"""A fit that was interrupted goes on where it was, and ends where it would have ended."""

import json

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import plate, sample

import probml
from probml.engines.restarting import batches
from probml.errors import DataError, ModelError
from probml.numerics.outside import checkpoint
from small_models import mixture


@probml.model
def means(k: int):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 10.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], 1.0))


@probml.model
def logistic(x):
    slope = sample("slope", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=x @ slope))


def rows_of(n: int = 80, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {"x": random.normal(size=n) + 3.0 * random.integers(2, size=n)}


def regression(n: int = 80) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    x = random.normal(size=(n, 2))
    return {"x": x, "y": (random.random(n) < 1 / (1 + np.exp(-x @ [2.0, -1.0]))).astype(int)}


def parts():
    for low in range(0, 80, 30):
        yield {"x": rows_of()["x"][low : low + 30]}


class Stop(KeyboardInterrupt):
    """As Ctrl-C at a certain turn."""


def guide(x):
    middle = numpyro.param("middle", jnp.zeros(2))
    spread = numpyro.param("spread", jnp.ones(2), constraint=dist.constraints.positive)
    sample("slope", dist.Normal(middle, spread).to_event(1))


def by_hand(x, y=None):
    slope = sample("slope", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    sample("y", dist.Bernoulli(logits=x @ slope).to_event(1), obs=y)


def regression_parts():
    for low in range(0, 80, 30):
        yield {name: value[low : low + 30] for name, value in regression().items()}


CASES = {
    "EM": (mixture(k=2), rows_of(), probml.EM(max_iterations=80, tolerance=0.0, accelerate=False, restarts=2), 2),
    "EM of parts": (mixture(k=2), parts, probml.EM(max_iterations=9, tolerance=0.0, accelerate=False, restarts=2), 4),
    "EM in batches": (mixture(k=2), rows_of(), probml.EM(batch_rows=20, max_iterations=9, tolerance=0.0, restarts=2), 2),
    "MAP by an optimiser": (logistic(), regression(), probml.MAP(optimizer=optax.adam(0.01), steps=600, batch_rows=20), 2),
    "SVI": (logistic(), regression(), probml.SVI(steps=1200), 1),
    "SVI of a guide of one's own": (probml.model(by_hand)(), regression(), probml.SVI(guide=guide, steps=1200), 1),
    "VB in batches": (means(k=2), rows_of(), probml.VB(batch_rows=20, max_iterations=9, tolerance=0.0, restarts=2), 2),
    "VB": (means(k=2), rows_of(), probml.VB(max_iterations=60, tolerance=0.0, restarts=2), 2),
    "EM of parts in batches": (mixture(k=2), parts, probml.EM(batch_rows=16, max_iterations=9, tolerance=0.0, restarts=2), 2),
    "MAP of parts in batches": (logistic(), regression_parts, probml.MAP(optimizer=optax.adam(0.01), steps=600, batch_rows=16), 2),
    "SVI of parts in batches": (logistic(), regression_parts, probml.SVI(steps=1200, batch_rows=16), 1),
    "NUTS": (logistic(), regression(), probml.NUTS(draws=40, warmup=40, chains=2, chain_method="sequential"), 5),
}
LONG = tuple(case for case in CASES if case != "EM")


def test_newtons_steps_that_had_ended_are_not_made_again(tmp_path):
    whole, again = (logistic().fit(regression(), probml.MAP(prior=False), checkpoint=tmp_path / "state")
                    for _ in range(2))
    np.testing.assert_array_equal(again.params["slope"], whole.params["slope"])
    np.testing.assert_array_equal(again.history, whole.history)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", [*(case for case in CASES if case not in LONG),
                                  *(pytest.param(case, marks=pytest.mark.slow) for case in LONG)])
def test_a_fit_that_goes_on_ends_as_one_that_was_not_interrupted(case, tmp_path, monkeypatch):
    model, table, engine, at = CASES[case]
    monkeypatch.setattr(batches, "START_ROWS", 40)
    monkeypatch.setattr(batches, "START_BATCHES", 1)
    whole = model.fit(table, engine, checkpoint=tmp_path / "never")
    turns, stopped, noted = [], [], checkpoint.Journal.note

    def note(self, key, past):
        noted(self, key, past)
        turns.append(past.done)
        if len(turns) >= at and past.status == 0 and not stopped:
            stopped.append(1)
            raise Stop

    monkeypatch.setattr(checkpoint.Journal, "note", note)
    with pytest.raises(Stop):
        model.fit(table, engine, checkpoint=tmp_path / "state")
    held = json.loads(np.load(tmp_path / "state")["arr_0"].tobytes())
    assert any(loop[1] == 0 for loop in held["loops"].values())  # one is under way
    again = model.fit(table, engine, checkpoint=tmp_path / "state")
    np.testing.assert_array_equal(again.history, whole.history)
    for name in whole.params:
        np.testing.assert_array_equal(again.params[name], whole.params[name])
    if whole.drawn is not None:
        np.testing.assert_array_equal(again.draws(20)["slope"], whole.draws(20)["slope"])
    before = len(turns)
    ended = model.fit(table, engine, checkpoint=tmp_path / "state")
    assert len(turns) == before  # no loop makes a turn
    np.testing.assert_array_equal(ended.history, whole.history)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_checkpoint_of_another_fit_is_refused_by_what_differs(tmp_path):
    model, table, engine, _ = CASES["EM"]
    path = tmp_path / "state"
    model.fit(table, engine, checkpoint=path)
    others = {"model": (mixture(k=3), table, engine, 0), "data": (model, rows_of(70), engine, 0),
              "engine": (model, table, probml.EM(max_iterations=9), 0), "seed": (model, table, engine, 1)}
    for kind, (other, rows, by, seed) in others.items():
        with pytest.raises(DataError if kind == "data" else ModelError,
                           match=f"the checkpoint .* belongs to another fit. Different {kind}: .* in the checkpoint"):
            other.fit(rows, by, seed=seed, checkpoint=path)
    with pytest.raises(DataError, match="80 × 1 numbers .* in the checkpoint, 80 × 1 numbers .* in this fit"):
        model.fit(rows_of(seed=1), engine, checkpoint=path)
    (tmp_path / "text").write_text("not a checkpoint")
    with pytest.raises(ModelError, match="cannot be read as a checkpoint"):
        model.fit(table, engine, checkpoint=tmp_path / "text")


def test_settings_of_a_checkpoint_are_checked(tmp_path):
    with pytest.raises(ModelError, match="does not exist"):
        probml.Checkpoint(tmp_path / "none" / "state")
    with pytest.raises(ModelError, match=r"Checkpoint\(seconds=-1\)"):
        probml.Checkpoint(tmp_path / "state", seconds=-1)
