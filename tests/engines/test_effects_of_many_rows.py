"""Claims of effects of groups in many rows: no pass over the rows for each draw, the search of the
mode begins with some of the chunks, and the answer is that of the exact way."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.device.rows import Resident
from probml.engines.sampling import states
from probml.engines.start import begin
from probml.plan.plan import Plan

GROUPS = 12


def model_of(kind):
    @probml.model
    def model(group, other, x):
        level = sample("level", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0))
        with plate("groups", GROUPS):
            own = (sample("own", dist.Normal(0.0, sd).expand([2]).to_event(1)) if kind == "slopes"
                   else sample("own", dist.Normal(0.0, sd)))
        eta = 0.0
        if kind == "crossed":
            with plate("others", 5):
                eta = sample("second", dist.Normal(0.0, sd))[other]
        with probml.rows():
            shift = own[group]
            if kind == "slopes":
                shift = shift[..., 0] + shift[..., 1] * x
            eta = level[0] + level[1] * x + shift + eta
            if kind == "normal":
                sample("y", dist.Normal(eta, 0.5))
            elif kind == "counts":
                sample("y", dist.Poisson(jnp.exp(eta)))
            else:
                sample("y", dist.Bernoulli(logits=eta))

    return model()


def data_of(kind, rows):
    random = np.random.default_rng(0)
    group, other = np.arange(rows) % GROUPS, np.arange(rows) % 5
    x = random.normal(size=rows)
    eta = 0.5 + 0.3 * x + 0.6 * random.normal(size=GROUPS)[group]
    y = {"normal": lambda: eta + 0.5 * random.normal(size=rows),
         "counts": lambda: random.poisson(np.exp(eta))}.get(
             kind, lambda: (random.random(rows) < 1 / (1 + np.exp(-eta))).astype(int))()
    return {"group": group, "other": other, "x": x, "y": y}


@pytest.mark.parametrize("kind", ["normal", "counts", "choices", "slopes", "crossed"])
def test_draws_about_linear_means_are_near_exact_ones(kind, monkeypatch):
    """The same draws of the parameters, so that means and widths differ by the draws of the effects
    alone."""
    data, found = data_of(kind, 600), {}
    caught = {}
    engine = probml.Laplace()

    def complete(*args):
        caught["args"] = args
        return original(*args)

    original = states.complete_normal
    monkeypatch.setattr("probml.engines.laplace.complete_normal", complete)
    # as if a pass over the rows were so dear that only a few densities can be compared
    monkeypatch.setattr("probml.engines.importance.MAX_WORK", 600 * 8 * 30)
    model_of(kind).fit(data, engine)
    for limit in (np.inf, 0):
        monkeypatch.setattr(states, "MAX_EXACT_WORK", limit)
        found[limit] = original(*caught["args"])
    assert found[0].values.keys() == found[np.inf].values.keys()
    for name in found[0].values:
        exact, near = found[np.inf].values[name][0], found[0].values[name][0]
        sd = exact.std(0)
        np.testing.assert_allclose(near.mean(0), exact.mean(0), atol=0.15 * sd.max())
        np.testing.assert_allclose(near.std(0), sd, rtol=0.12)


def test_the_mode_of_some_chunks_begins_the_search_of_all(monkeypatch):
    data = data_of("counts", 4_000)
    whole = model_of("counts").fit(data, probml.Laplace())
    met = []

    def some(plan, rows):
        few = original(plan, rows)
        met.append(few)
        return few

    original = begin._some_chunks
    monkeypatch.setattr(begin, "SUBSAMPLED_WORK", 0)
    monkeypatch.setattr(begin, "_some_chunks", some)
    monkeypatch.setattr(Plan, "chunk_rows", lambda self, copies=1: 128)
    parted = model_of("counts").fit(data, probml.Laplace())
    assert isinstance(met[0], Resident) and met[0].chunks == 2
    for name in ("level", "sd", "own"):
        sd = np.std(jax.device_get(whole.draws(500, seed=0)[name]), 0)
        assert np.max(np.abs(whole.params[name] - parted.params[name]) / sd) < 0.2
