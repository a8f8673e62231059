"""Functions that do the same are one program; functions that differ never share one."""

import functools
import types

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml
from compilations import counted
from probml.language.fingerprint import fingerprint

HEAD = "import jax.numpy as jnp, numpy as np, numpyro.distributions as dist\nimport probml\n"


def ran(code: str, **names):
    """The function `f` of a cell of a notebook, run once more."""
    space = {"__name__": "__main__", **names}
    exec(compile(HEAD + code, "<cell>", "exec"), space)
    return space["f"]


CELLS = {
    "constants": "def f(x):\n    return x + 2.0",
    "a global": "scale = 3.0\ndef f(x):\n    return scale * x",
    "a global array": "scale = np.arange(3.0)\ndef f(x):\n    return scale @ x",
    "a helper": "def g(x):\n    return x + 1\ndef f(x):\n    return g(x)",
    "helpers that name each other": "def g(x):\n    return f(x)\ndef f(x):\n    return g(x)",
    "a closure": "def make(k):\n    def f(x):\n        return x * k\n    return f\nf = make(2)",
    "a comprehension": "k = 2\ndef f(x):\n    return [x * k for _ in range(3)]",
    "a prior": "prior = dist.Normal(0.0, jnp.ones(2))\ndef f(x):\n    return prior.log_prob(x)",
    "a dict": "sizes = {'a': [1, 2]}\ndef f(x):\n    return sizes['a'][0] * x",
    "a lambda": "g = lambda x: x\ndef f(x):\n    return g(x)",
}
CHANGED = {
    "constants": ("2.0", "2"),
    "a global": ("3.0", "3.5"),
    "a global array": ("3.0", "4.0"),
    "a helper": ("x + 1", "x + 2"),
    "helpers that name each other": ("return f(x)", "return f(x + 1)"),
    "a closure": ("make(2)", "make(2.0)"),
    "a comprehension": ("k = 2", "k = True"),
    "a prior": ("0.0", "-0.0"),
    "a dict": ("[1, 2]", "[2, 2]"),
    "a lambda": ("lambda x: x", "lambda x: -x"),
}


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_that_is_run_again_is_the_same_function(cell):
    one, other = ran(CELLS[cell]), ran("\n\n" + CELLS[cell])
    assert one is not other and fingerprint(one) == fingerprint(other)
    assert hash(fingerprint(one)) == hash(fingerprint(other))


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_that_was_changed_is_another_function(cell):
    before, after = CHANGED[cell]
    assert before in CELLS[cell]
    changed = ran(CELLS[cell].replace(before, after))
    assert fingerprint(ran(CELLS[cell])) != fingerprint(changed)


def test_a_module_of_the_users_counts_by_what_is_read_of_it():
    settings = types.ModuleType("my_settings")
    settings.width, settings.other = 3.0, 1.0
    code = "def f(x):\n    return settings.width * x"
    before = fingerprint(ran(code, settings=settings))
    settings.other = 2.0
    assert fingerprint(ran(code, settings=settings)) == before
    settings.width = 4.0
    assert fingerprint(ran(code, settings=settings)) != before


class Mutable:
    """An object of which nobody knows what it holds."""

    k = 3


OPAQUE = {
    "an object": ("def f(x):\n    return thing.k * x", dict(thing=Mutable())),
    "a class": ("def f(x):\n    return thing.k * x", dict(thing=Mutable)),
    "its method": ("def f(x):\n    return thing(x)", dict(thing=Mutable().__init__)),
    "random numbers": ("def f(x):\n    return x + r.normal()", dict(r=np.random.default_rng(0))),
    "a name by a string": ("k = 1\ndef f(x):\n    return x + globals()['k']", {}),
    "a partial of an object": ("def f(x):\n    return g(x)",
                               dict(g=functools.partial(print, Mutable()))),
    "a module of its own": ("def f(x):\n    import cases\n    return cases.ROWS * x", {}),
}


@pytest.mark.parametrize("what", OPAQUE)
def test_what_cannot_be_read_by_value_is_not_shared(what):
    code, names = OPAQUE[what]
    one, other = ran(code, **names), ran(code, **names)
    assert fingerprint(one) is one and fingerprint(one) != fingerprint(other)


def make(width: float):
    @probml.model
    def line(x):
        slope = sample("slope", dist.Normal(0.0, width))
        with probml.rows():
            sample("y", dist.Normal(slope * x, 1.0))

    return line()


def test_models_made_in_a_loop_are_equal_and_compile_once():
    data = {"x": np.arange(6.0), "y": np.arange(6.0)}
    first = make(2.0).fit(data)
    with counted() as found:
        again = make(2.0).fit(data)
    assert found == [] and make(2.0) == make(2.0) and hash(make(2.0)) == hash(make(2.0))
    assert again.params["slope"] == first.params["slope"]


def test_models_that_differ_in_their_closure_are_fitted_apart():
    data = {"x": np.arange(6.0), "y": np.arange(6.0)}
    assert make(2.0) != make(0.5)
    for width in (2.0, 0.5):  # E[slope] = Σxy / (Σx² + 1/width²)
        slope = 55.0 / (55.0 + width**-2)
        assert jnp.isclose(make(width).fit(data).params["slope"], slope, rtol=1e-6)
