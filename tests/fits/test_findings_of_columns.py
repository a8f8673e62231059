"""A column of which all values are missing is said, unless it is a latent variable of the model."""

import numpy as np
import numpyro.distributions as dist
from numpyro import sample

import probml
from probml.engines.findings import Code


@probml.model
def kinds(x):
    b, q = sample("b", dist.Normal(0.0, 5.0)), sample("q", dist.Beta(1.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Bernoulli(q))
        sample("y", dist.Normal(b * x + z, 1.0))


X, Z, Y = np.arange(6.0), np.array([0, 1, 0, 1, 0, 1]), np.array([0.1, 1.9, 2.2, 4.1, 3.8, 6.0])


def codes(**data):
    return {finding.code: finding.parameter for finding in kinds().fit({"x": X, **data}).warnings}


def test_an_outcome_without_values_is_said():
    assert codes(z=Z, y=np.full(6, np.nan)) == {Code.NO_VALUES: "y"}
    assert Code.NO_VALUES not in codes(z=Z) and Code.NO_VALUES not in codes(z=Z, y=Y)


def test_a_latent_class_without_labels_is_none():
    assert Code.NO_VALUES not in codes(z=np.full(6, np.nan), y=Y)
