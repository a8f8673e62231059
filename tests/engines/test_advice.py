"""What a refusal offers does not itself refuse."""

import pickle

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml

X = np.linspace(-2, 2, 12)
LABELS = (X + np.random.default_rng(0).normal(size=12) > 0).astype(int)


@probml.model
def logistic(x):
    slope = sample("slope", dist.Normal(0.0, 5.0))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=slope * x))


@probml.model
def gates(group, groups: int):
    """Effects that enter as products, of which no engine finds a mode."""
    spread = sample("spread", dist.HalfNormal(2.0))
    with plate("groups", groups):
        width = sample("width", dist.LogNormal(0.0, spread))
    with probml.rows():
        sample("y", dist.Normal(0.0, width[group]))


@probml.model
def bells():
    """Nothing is unknown but what is unseen in rows."""
    with probml.rows():
        z = sample("z", dist.Bernoulli(0.3))
        sample("x", dist.Normal(2.0 * z, 1.0))


def test_a_row_is_enough_where_nothing_is_to_be_found():
    assert "chosen" in {record[""] for record in bells().explain({"x": [0.4]}).engines}
    assert bells().fit({"x": [0.4]}).predict({"x": [0.4]}, "z")[0] == 0


def offered(text):
    return text.partition("Try ")[2]


def test_where_em_would_refuse_it_is_not_offered():
    data = {"x": X, "y": LABELS}
    with pytest.raises(probml.Refusal) as caught:
        logistic().fit(data, probml.Exact())
    assert offered(str(caught.value)) == "MAP()"
    said = {record["engine"]: record[""] for record in logistic().explain(data).engines}
    assert offered(said["Exact"]) == "MAP()" and offered(said["VB"]) == "SVI()"


def test_where_all_that_is_named_would_refuse_the_first_that_does_not_is_offered():
    data = {"group": np.arange(12) % 4, "y": X}
    with pytest.raises(probml.Refusal) as caught:
        gates(groups=4).fit(data, probml.Exact())
    assert offered(str(caught.value)) == "NUTS()"


def test_a_refusal_travels_with_what_it_offers():
    why = probml.Refusal("site 'z' is unseen", ("EM", "MAP", "NUTS"))
    assert str(why) == "site 'z' is unseen. Try EM(), MAP() or NUTS()"
    assert str(pickle.loads(pickle.dumps(why))) == str(why)
    assert str(why.offering(["SVI"])) == "site 'z' is unseen. Try SVI()"
    assert str(why.offering([])) == str(probml.Refusal("site 'z' is unseen")) == "site 'z' is unseen"
