"""Arguments of a function in the containers that users keep columns in: the density is NumPyro's own,
also with a missing observation, and the function is given the container that was passed."""

import pickle
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from numpyro.infer.util import log_density

import probml
from probml.language.settings import freeze, thaw

X, G = np.array([0.3, 1.0, -2.0, 0.1]), np.array([0, 2, 1, 0])


class Pair(NamedTuple):
    x: np.ndarray
    g: np.ndarray


@dataclass
class Columns:
    x: np.ndarray
    g: np.ndarray
    size: int = field(init=False)

    def __post_init__(self):
        self.size = len(self.x)


@dataclass(frozen=True)
class Fixed:
    x: np.ndarray
    g: np.ndarray
    scale: float = 1.0


@dataclass
class Nested:
    inner: Pair
    other: dict

    x = property(lambda self: self.inner.x)
    g = property(lambda self: self.other["g"])


MADE = {"named tuple": Pair(X, G), "dataclass": Columns(X, G), "frozen": Fixed(X, G),
        "nested": Nested(Pair(X, G), {"g": G})}


def model(d, y=None):
    a = sample("a", dist.Normal(0.0, 1.0))
    with plate("groups", 3):
        u = sample("u", dist.Normal(0.0, 1.0))
    with plate("n", len(d.x)):
        sample("y", dist.Normal(a + d.x + u[d.g], 1.0), obs=y)


@pytest.mark.parametrize("kind", MADE)
def test_the_density_is_numpyros(kind):
    own, y, at = MADE[kind], X + 1.0, {"a": 0.4, "u": np.array([0.0, 1.0, -1.0])}
    right, _ = log_density(model, (own, y), {}, at)
    bound = probml.model(model)()
    np.testing.assert_allclose(bound.log_density({"d": own, "y": y}, at), right, rtol=1e-5)
    cell = dist.Normal(0.4 + X + at["u"][G], 1.0).log_prob(y)[1]
    missing = bound.log_density({"d": own, "y": np.where(np.arange(4) == 1, np.nan, y)}, at)
    np.testing.assert_allclose(missing, right - cell, rtol=1e-5)
    assert bound.at(at).simulate(d=own)["y"].shape == (4,)


@pytest.mark.parametrize("kind", MADE)
def test_a_setting_comes_back_as_it_was(kind):
    frozen = freeze(MADE[kind])
    back = thaw(pickle.loads(pickle.dumps(frozen)))
    assert type(back) is type(MADE[kind]) and freeze(back) == frozen
    assert hash(freeze(back)) == hash(frozen)
    np.testing.assert_array_equal(back.x, X)
    np.testing.assert_array_equal(back.g, G)
