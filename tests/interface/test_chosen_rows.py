"""`probml.model(f, rows="plate")`: the rows named by hand."""

import pickle

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.interface.functions.read_function import read_function

RNG = np.random.default_rng(0)
Y = RNG.normal(size=(6, 3))


def both(y):
    """Two plates of what is observed, either of which may be the rows."""
    m, s = sample("m", dist.Normal(0.0, 1.0)), sample("s", dist.HalfNormal(1.0))
    with plate("people", len(y), dim=-2), plate("items", y.shape[1], dim=-1):
        sample("y", dist.Normal(m, s), obs=y)


def effects(y):
    s = sample("s", dist.HalfNormal(1.0))
    with plate("people", len(y)):
        a = sample("a", dist.Normal(0.0, 1.0))
        sample("y", dist.Normal(a[:, None], s).to_event(1), obs=y)
    sample("beside", dist.Normal(s, 1.0), obs=0.3)


def loose(x, y):
    b = sample("b", dist.Normal(0.0, 1.0))
    sample("y", dist.Normal(b * x, 1.0), obs=y)


def writes(y):
    m = sample("m", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal(m, 1.0))


def test_a_plate_that_is_named_is_the_rows():
    named = probml.model(both, rows="people")()
    met = read_function(named, {"y": Y})
    assert "the rows of the data are the plate 'people'" in met.reason
    p = {"m": 0.2, "s": 0.8}
    assert named.log_density({"y": Y}, p) == pytest.approx(
        probml.model(both)().log_density({"y": Y}, p), rel=1e-12)
    assert met.model.at(p).log_prob({"y": Y}).shape == (6,)
    assert "'people'" in str(named.explain({"y": Y}))
    met = read_function(probml.model(rows="y")(loose)(), {"x": Y[:, 0], "y": Y[:, 1]})
    assert "the last axis of 'y'" in met.reason


@pytest.mark.parametrize(("function", "rows", "words"), [
    (both, "persons", ("rows='persons'", "'people'", "'items'")),
    (effects, "people", ("rows='people'", "'a', which is latent and continuous",
                            "one joint density")),
    (writes, "people", ("already has rows()", "Omit rows='people'")),
])
def test_what_cannot_be_the_rows_is_said(function, rows, words):
    with pytest.raises(probml.ModelError) as error:
        probml.model(function, rows=rows)().log_density({"y": Y}, {"s": 0.5, "m": 0.1})
    assert all(word in str(error.value) for word in words), str(error.value)
    with pytest.raises(probml.ModelError, match="name of a plate"):
        probml.model(function, rows=3)


CHOSEN = probml.model(both, rows="people")


def test_a_model_with_named_rows_is_pickled_and_is_another_than_without():
    again = pickle.loads(pickle.dumps(CHOSEN()))
    assert again == CHOSEN() != probml.model(both)()
    assert again.generative.chosen == "people"
    assert jnp.isfinite(again.log_density({"y": Y}, {"m": 0.2, "s": 0.8}))
