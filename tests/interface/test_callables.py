"""A model may be any callable: an object with __call__, a method, a partial of either; what its object
holds is part of the model."""

import functools
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers, plate, sample

import probml

X = np.arange(6.0)
Y = 2 * X + np.array([0.1, -0.2, 0.3, 0.0, -0.1, 0.1])


def rowed(width, x):
    b = sample("b", dist.Normal(0.0, width))
    with probml.rows():
        sample("y", dist.Normal(b * x, 1.0))


def pasted(width, x, y=None):
    b = sample("b", dist.Normal(0.0, width))
    with plate("n", x.shape[0]):
        sample("y", dist.Normal(b * x, 1.0), obs=y)


class Plain:
    def __init__(self, width):
        self.width = width

    def __call__(self, x, y=None):
        return pasted(self.width, x, y)

    def line(self, x, y=None):
        return self(x, y)


class Rowed(Plain):
    def __call__(self, x):
        b = sample("b", dist.Normal(0.0, self.width))
        with probml.rows():
            sample("y", dist.Normal(b * x, 1.0))


@dataclass
class Data:
    width: float

    def __call__(self, x, y=None):
        return pasted(self.width, x, y)


@dataclass(frozen=True)
class Frozen:
    width: float
    __call__ = Data.__call__


class Slots:
    __slots__ = ("width",)
    __init__, __call__ = Plain.__init__, Plain.__call__


class Held(Plain):
    """Reads what it holds by a method and out of a list; and writes."""

    calls = 0

    def __init__(self, width):
        self.widths = [width]

    def own(self):
        return self.widths[0]

    def __call__(self, x, y=None):
        self.calls += 1
        self.kept = pasted(self.own(), x, y)


def logged(function):
    @functools.wraps(function)
    def inner(*args, **more):
        return function(*args, **more)

    return inner


MADE = {
    "object": Plain, "object with rows": Rowed, "dataclass": Data, "frozen": Frozen, "slots": Slots,
    "held": Held, "method": lambda w: Plain(w).line, "partial": lambda w: functools.partial(pasted, w),
    "partial of rows": lambda w: functools.partial(rowed, width=w),
    "partial of an object": lambda w: functools.partial(Plain(w)),
    "partial of a method": lambda w: functools.partial(Plain(w).line),
    "handler of an object": lambda w: handlers.mask(Plain(w), mask=True),
    "wrapped": lambda w: logged(functools.partial(pasted, w)),
}


def found(model):
    return float(model.fit({"x": X, "y": Y}, probml.Exact()).params["b"])


def right(width):
    return float(X @ Y / (X @ X + 1 / width**2))


@pytest.mark.parametrize("kind", MADE)
def test_every_callable_is_a_model(kind):
    for width in (1.0, 0.1):
        model = probml.model(MADE[kind](width))()
        np.testing.assert_allclose(found(model), right(width), rtol=1e-4)
        assert model == model.plain and repr(model)
        assert model.simulate(x=X, parameters=True)["y"].shape == (6,)


@pytest.mark.parametrize("kind", ["object", "object with rows", "dataclass", "slots", "method", "held"])
def test_an_object_that_has_changed_is_another_model(kind):
    made: Any = MADE[kind](1.0)
    own = made.__self__ if kind == "method" else made
    name = "widths" if kind == "held" else "width"
    before = probml.model(made)()
    np.testing.assert_allclose(found(before), right(1.0), rtol=1e-4)
    setattr(own, name, [0.1] if kind == "held" else 0.1)
    after = probml.model(made)()
    assert after != before
    np.testing.assert_allclose(found(after), right(0.1), rtol=1e-4)
    if kind != "held":  # of plain values it is said, too
        with pytest.raises(probml.ModelError, match="'self.width', a variable outside its function"):
            found(before)


def test_an_objects_name_is_that_of_its_class():
    model = probml.model(Plain(1.0))()
    assert repr(model) == "Plain(y=None)"
    assert found(pickle.loads(pickle.dumps(model))) == found(model)


def test_what_is_not_written_in_python_is_refused():
    for function in (len, np.sin, Plain):
        with pytest.raises(probml.ModelError, match="expected a model function"):
            probml.model(function)
