"""Statistics of parts of the data add up to those of the whole, whatever their order, centre,
weights and unseen cells."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
from numpyro import plate, sample

import probml
from probml.models import gaussian_mixture, naive_bayes

RANDOM = np.random.default_rng(0)
LABELS = RANDOM.integers(3, size=200)
X = RANDOM.normal(size=(200, 3)) + 3 * LABELS[:, None] + 1e3
HOLES = np.where(RANDOM.random(X.shape) < 0.2, np.nan, X)
COLOURS = np.array(["red", "green", "blue"])[RANDOM.integers(3, size=200)]
PARTS = np.array_split(RANDOM.permutation(200), 4)


def equal(a, b):
    for name in a.params:
        np.testing.assert_allclose(a.params[name], b.params[name], rtol=1e-9, atol=1e-12)
    if a.log_evidence is not None:
        np.testing.assert_allclose(a.log_evidence, b.log_evidence, rtol=1e-9)


BAYES = naive_bayes(3, {"x": ("normal", 3), "colour": 3, "n": "poisson"})
CASES = {
    "full": (gaussian_mixture(3, 3), {"x": X, "z": LABELS}),
    "tied": (gaussian_mixture(3, 3, "tied"), {"x": X, "z": LABELS}),
    "diagonal with unseen cells": (gaussian_mixture(3, 3, "diagonal"), {"x": HOLES, "z": LABELS}),
    "columns of several kinds": (BAYES, {"x": HOLES, "colour": COLOURS,
                                         "n": RANDOM.poisson(LABELS + 1.0), "class": LABELS}),
}


PAIRS = [(case, engine) for case in CASES for engine in (probml.Exact(), probml.EM(prior=False))]
PAIRS.append(("diagonal with unseen cells", probml.MAP()))


@pytest.mark.parametrize("case, engine", PAIRS, ids=lambda value: value if isinstance(value, str)
                         else type(value).__name__)
def test_parts_and_further_rows_equal_one_batch(case, engine):
    model, data = CASES[case]
    whole = model.fit(data, engine)
    parts = [model.fit({name: value[rows] for name, value in data.items()}, engine)
             for rows in PARTS]
    merged = parts[3]
    for part in parts[:3]:
        merged = merged.merge(part)
    updated = parts[0]
    for rows in PARTS[1:]:
        updated = updated.update({name: value[rows] for name, value in data.items()})
    if isinstance(engine, probml.MAP):
        np.testing.assert_allclose(merged.history[-1], whole.history[-1], rtol=1e-9)
        return
    equal(merged, whole)
    equal(updated, whole)
    np.testing.assert_allclose(updated.log_prob(data), whole.log_prob(data), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid:RuntimeWarning")
@pytest.mark.parametrize("engine", [probml.Exact(), probml.EM(prior=False), probml.MAP()])
@pytest.mark.parametrize(("size", "weight"), [(1e300, 1.0), (1.0, 1e300)], ids=["rows", "weights"])
def test_further_rows_that_overflow_are_refused_in_words(engine, size, weight):
    """Only statistics are left of the rows before, so that no engine may ask for a column of theirs."""
    model, data = CASES["full"]
    with jax.enable_x64(False):
        fit = model.fit(data, engine)
        with pytest.raises((probml.Refusal, probml.ModelError), match="gaussian_mixture"):
            fit.update({**data, "x": np.full(X.shape, size)}, weights=np.full(200, weight))


def test_a_part_of_rows_all_alike_is_added_without_being_fitted_alone():
    model, data = CASES["full"]
    with pytest.raises(probml.Refusal, match="collapsed"):
        model.fit({"x": X[:1], "z": LABELS[:1]}, probml.EM(prior=False))
    fit = model.fit({"x": X[1:], "z": LABELS[1:]},
                    probml.EM(prior=False)).update({"x": X[:1], "z": LABELS[:1]})
    equal(fit, model.fit(data, probml.EM(prior=False)))


def test_weights_and_columns_missing_from_a_part_add_up():
    weights = RANDOM.random(200) * 3
    whole = gaussian_mixture(3, 3, "diagonal").fit(
        {"x": np.where(np.arange(200)[:, None] < 50, np.nan, X), "z": LABELS}, weights=weights
    )
    first = gaussian_mixture(3, 3, "diagonal").fit({"z": LABELS[:50]}, weights=weights[:50])
    equal(first.update({"x": X[50:], "z": LABELS[50:]}, weights=weights[50:]), whole)


def test_only_alike_fits_of_complete_data_merge():
    model, data = CASES["full"]
    fit = model.fit(data)
    with pytest.raises(probml.Refusal, match="statistics"):
        model.fit({"x": X}, probml.EM(restarts=2)).merge(fit)
    with pytest.raises(probml.Refusal, match="'z'"):
        fit.update({"x": X})
    with pytest.raises(probml.ModelError, match="same model"):
        fit.merge(gaussian_mixture(3, 3, scale=1.0).fit(data))
    with pytest.raises(probml.ModelError, match="same engine"):
        fit.merge(model.fit(data, probml.EM(prior=False)))


@probml.model
def shape_and_rate():
    with plate("kinds", 2):
        shape = sample("shape", dist.LogNormal(0.0, 1.0))
        rate = sample("rate", dist.Gamma(2.0, 1.0))
    with probml.rows():
        kind = sample("kind", dist.Categorical(jnp.array([0.4, 0.6])))
        sample("y", dist.Gamma(shape[kind], rate[kind]))


def test_statistics_without_closed_form_add_up_too():
    kind = RANDOM.integers(2, size=300)
    data = {"kind": kind, "y": RANDOM.gamma(2.0 + kind, 0.5, size=300)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = shape_and_rate().fit(data, probml.MAP())
        half = shape_and_rate().fit({name: value[:150] for name, value in data.items()},
                                    probml.MAP())
        both = half.update({name: value[150:] for name, value in data.items()})
    np.testing.assert_allclose(both.history[-1], whole.history[-1], rtol=1e-8)


@probml.model
def rate():
    heat = sample("heat", dist.Gamma(2.0, 1.0))
    with probml.rows():
        sample("n", dist.Poisson(heat))


COUNTS = RANDOM.poisson(3.0, size=40)
MERGING = {
    "Exact": probml.Exact(),
    "EM": probml.EM(),
    "MAP": probml.MAP(),
    "MAP by an optimiser": probml.MAP(optimizer=optax.adam(0.1), steps=400),
    "NUTS": probml.NUTS(draws=300, warmup=150, chains=1),
    "SVI": probml.SVI(steps=300, optimizer=optax.adam(0.05)),
    "Laplace": probml.Laplace(),
}


@pytest.mark.parametrize("engine", MERGING)
def test_whatever_engine_kept_statistics_merges_them(engine):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        a, b = (rate().fit({"n": part}, MERGING[engine]) for part in (COUNTS[:15], COUNTS[15:]))
        both = a.merge(b)
    shape, inverse = 2.0 + COUNTS.sum(), 1.0 + len(COUNTS)
    mode, mean, deviation = (shape - 1) / inverse, shape / inverse, np.sqrt(shape) / inverse
    if engine == "Exact":
        np.testing.assert_allclose(both.params["heat"], mean, rtol=1e-6)
    elif engine in ("NUTS", "SVI", "Laplace"):
        assert abs(both.params["heat"] - mean) < 0.5 * deviation
    else:
        np.testing.assert_allclose(both.params["heat"], mode, rtol=1e-3)
    assert both.engine == a.engine and both.kept is not None


def test_rows_held_out_are_rows_and_no_statistics():
    engine = probml.MAP(optimizer=optax.adam(0.1), steps=400, held_out=0.25)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = rate().fit({"n": COUNTS}, engine)
    assert np.isfinite(fit.held_out).all() and abs(fit.params["heat"] - COUNTS.mean()) < 1.0
    with pytest.raises(probml.Refusal, match="statistics"):
        fit.merge(fit)
