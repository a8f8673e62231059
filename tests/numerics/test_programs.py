"""Programs that are found without being traced: the same answers, and never those of another."""

import json
import os
import subprocess
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers, sample

import probml
from compilations import counted
from probml.device.rows import Known, Steps
from probml.numerics import compiling, identity
from probml.numerics.identity import Nameless, digest
from probml.numerics.kept import disk, programs

MODEL = """
import json, sys
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp, numpy as np, numpyro.distributions as dist
from numpyro import sample
import probml
from probml.numerics.kept import programs
if sys.argv[1] == "compiled":
    programs.record = lambda *_: None
traced = []
own = programs.ProgramCache._trace
programs.ProgramCache._trace = lambda *args: traced.append(1) or own(*args)
def make(variance):
    @probml.model
    def plane():
        mean = sample("mean", dist.MultivariateNormal(jnp.zeros(2), 4.0 * jnp.eye(2)))
        with probml.rows():
            sample("x", dist.MultivariateNormal(mean, variance * jnp.eye(2)))
    return plane()
x = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.25]])
out = []
for variance in map(float, sys.argv[2:]):
    traced.clear()
    fit = make(variance).fit({"x": x}, probml.Exact())
    out.append([np.asarray(fit.params["mean"]).tolist(), fit.log_evidence, len(traced)])
print(json.dumps(out))
"""


def process(folder, by, *variances):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_COMPILATION")}
    environment |= {"PROBML_CACHE": str(folder), "JAX_PLATFORMS": "cpu",
                    "JAX_ENABLE_COMPILATION_CACHE": "true"}
    done = subprocess.run([sys.executable, "-c", MODEL, by, *map(str, variances)], env=environment,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("by", ["compiled", pytest.param("NumPy", marks=pytest.mark.slow)])
def test_another_process_finds_programs_untraced_and_never_those_of_another_constant(tmp_path, by):
    ((mean, evidence, made),) = process(tmp_path, by, 1.0)
    assert made > 0
    again, other = process(tmp_path, by, 1.0, 2.5)
    assert again == [mean, evidence, 0]  # to the last digit, with LAPACK's functions
    assert other[2] > 0
    total = np.array([4.5, 1.25])
    for found, variance in ((mean, 1.0), (other[0], 2.5)):
        np.testing.assert_allclose(found, total / (3 + variance / 4.0), rtol=1e-12)


def _scaled(power, x):
    return {"value": x**power, "pair": (x.sum(), None)}


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """Makes shelves as new processes would, of one folder."""
    folder = disk.Folder(tmp_path / "programs")
    monkeypatch.setattr(disk, "folder", lambda: folder)
    monkeypatch.setattr(_scaled, "__module__", "probml.somewhere")
    return lambda: programs.ProgramCache(_scaled, {"static_argnums": 0})


@pytest.fixture
def power():
    """Of a program that JAX's own cache does not have: what comes from there cannot be kept."""
    return 2 + np.random.default_rng().random()


def files(tmp_path):
    return sorted((tmp_path / "programs").iterdir())


X = np.arange(4.0)


def test_what_one_shelf_compiled_another_finds(shelf, power, tmp_path):
    first = shelf().find((power, X), None)(X)
    with counted() as made:
        second = shelf().find((power, X), None)(X)
    assert made == [] and len(files(tmp_path)) == 1
    assert jax.tree.structure(first) == jax.tree.structure(second)
    np.testing.assert_array_equal(first["value"], second["value"])


def test_other_constants_shapes_types_and_settings_are_other_programs(shelf, tmp_path):
    for power, value in ((3, X), (2, X), (3, X[:2]), (3, X.astype(np.float32)), (3, 2.0),
                         (3, jnp.float64(2.0))):
        program = shelf().find((power, value), None)
        np.testing.assert_allclose(program(value)["value"], np.asarray(value) ** power, rtol=1e-6)
    shelf().find((3, X), {"xla_cpu_enable_fast_math": True})
    with jax.enable_x64(False):
        assert shelf().find((3, X), None)(X)["value"].dtype == np.float32
    assert len(files(tmp_path)) == 8


def test_a_file_that_is_cut_short_is_compiled_again(shelf, power, tmp_path):
    shelf().find((power, X), None)
    (file,) = files(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[:-9])
    program = shelf().find((power, X), None)
    np.testing.assert_allclose(program(X)["value"], X**power, rtol=1e-12)
    assert file.read_bytes() != whole[:-9]


def test_a_program_that_cannot_run_is_compiled_again(shelf, power, monkeypatch):
    def broken(*_):
        raise jax.errors.JaxRuntimeError("NOT_FOUND: a part of it")

    monkeypatch.setattr(programs, "_read", lambda *_: (broken,))
    own = shelf()
    for _ in range(2):
        np.testing.assert_allclose(own.find((power, X), None)(X)["value"], X**power, rtol=1e-12)


def test_what_is_not_read_by_value_is_known_by_its_text(shelf, power, tmp_path):
    class Mine:
        """Hashed by what it is, as a static argument must be."""

        def __init__(self, power):
            self.power = power

        def __rpow__(self, x):
            return x**self.power

    for each in (power, power + 1, power):
        with counted() as made:
            np.testing.assert_allclose(shelf().find((Mine(each), X), None)(X)["value"], X**each)
    assert len(files(tmp_path)) == 2  # one for each text
    assert not any("backend_compile" in event for event in made)


def _asks_python(x):
    spec = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(lambda x: np.asarray(x) + 1, spec, x)


def test_a_program_that_calls_back_into_its_process_is_not_kept(shelf, monkeypatch, tmp_path):
    monkeypatch.setattr(_asks_python, "__module__", "probml.somewhere")
    program = programs.ProgramCache(_asks_python, {}).find((X,), None)
    np.testing.assert_array_equal(program(X), X + 1)
    assert files(tmp_path) == []


def test_programs_are_no_longer_named_once_our_source_has_changed(monkeypatch):
    identity.surroundings.cache_clear()
    monkeypatch.setattr(identity, "_IMPORTED", 0.0)
    with pytest.raises(Nameless, match="has changed"):
        identity.surroundings()
    monkeypatch.undo()
    assert identity.surroundings() == identity.surroundings()


def test_different_values_have_different_digests():
    values = [1, 1.0, True, "1", b"1", (1,), [1], {1}, {1: 1}, None, 0.0, -0.0, float("nan"),
              np.arange(2), np.arange(2.0), np.arange(2, dtype=np.float32), np.arange(2)[:, None],
              jnp.arange(2.0), (("a", "b"), "c"), ("a", ("b", "c")), ("ab", "c"), ("a", "bc"),
              probml.EM(), probml.EM(restarts=2), np.sum, np.mean, jnp.exp, np, jnp, range(2),
              probml.Exact(), np.dtype(float), np.float64, {"a": 1, "b": 2}, {"b": 2, "a": 1}]
    assert len({digest(value) for value in values}) == len(values)


def test_trees_of_other_kinds_keys_or_settings_have_different_digests():
    def steps(length, wide):
        return Steps({"a": 1}, length, 1, False, wide)

    trees = [1, None, (1,), [1], (1, 1), ((1,), 1), {"a": 1}, {"b": 1}, {"a": None}, {"a": (1,)},
             Known({}, {}, {}), Known({"a": 1}, {}, {}), Known({}, {"a": 1}, {}), steps(3, False),
             steps(4, False), steps(3, True)]
    found = {digest(jax.tree.structure(tree)) for tree in trees}
    assert len(found) == len(trees)
    with pytest.raises(Nameless):
        digest(jax.tree.structure(Mine(1)))


class Mine(NamedTuple):
    """A node that no other process need have."""

    value: int


def test_equal_values_have_equal_digests_in_every_process():
    code = ("import numpy as np, probml; from probml.numerics.identity import digest; print(digest("
            "{'a', 'b', 'c'}, probml.EM(restarts=2), np.arange(3.0), 'x', (1, None)))")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                           check=True, env=os.environ | {"PYTHONHASHSEED": "7"}).stdout.strip()
    assert found == digest({"c", "b", "a"}, probml.EM(restarts=2), np.arange(3.0), "x", (1, None))


def _weighed(y):
    sample("y", dist.Normal(sample("mean", dist.Normal(0.0, 1.0)), 1.0), obs=y)


@pytest.mark.parametrize("value", [object(), lambda: 0, np.array([object()]),
                                   pytest.param(os, id="a module that is no library of ours"),
                                   pytest.param(probml.model(handlers.scale(scale=2.0)(_weighed)).function,
                                                id="a function that a handler of NumPyro decorates")])
def test_what_no_other_process_could_know_has_no_digest(value):
    with pytest.raises(Nameless):
        digest((1, {"a": [value]}))


def _summed(x):
    return {"total": jnp.exp(x).sum(), "none": None}


LITTLE = 1e-3  # seconds by NumPy


@pytest.mark.parametrize("kept", [True, False])
def test_what_runs_seldom_on_little_is_never_compiled(kept, tmp_path, monkeypatch):
    folder = disk.Folder(tmp_path / "programs") if kept else None
    monkeypatch.setattr(disk, "folder", lambda: folder)
    monkeypatch.setattr(_summed, "__module__", "probml.somewhere")
    own = programs.ProgramCache(_summed, {}, LITTLE)
    with counted() as made:
        for x in (X, X + 1):
            found = own.find((x,), None)(x)
            assert found["none"] is None and isinstance(found["total"], jax.Array)
            np.testing.assert_allclose(found["total"], np.exp(x).sum(), rtol=1e-14)
    assert made == []


def test_another_process_finds_what_numpy_runs_untraced(tmp_path, monkeypatch):
    folder = disk.Folder(tmp_path / "programs")
    monkeypatch.setattr(disk, "folder", lambda: folder)
    monkeypatch.setattr(_summed, "__module__", "probml.somewhere")
    first = programs.ProgramCache(_summed, {}, LITTLE).find((X,), None)(X)
    other = programs.ProgramCache(_summed, {}, LITTLE)
    monkeypatch.setattr(other, "_trace", None)
    np.testing.assert_array_equal(other.find((X,), None)(X)["total"], first["total"])


def test_what_would_take_numpy_long_is_compiled_and_traced_once(monkeypatch):
    monkeypatch.setattr(disk, "folder", lambda: None)
    traces = []

    def counting(x):
        traces.append(x.shape)
        return jnp.exp(x).sum()

    program, many = compiling.jit(counting, seldom=LITTLE), np.ones(10**6)
    with counted() as made:
        np.testing.assert_allclose(program(many), np.e * 10**6, rtol=1e-12)
    assert made and len(traces) == 1


def _counted(x, end):
    return jax.lax.while_loop(lambda s: s[0] < end, lambda s: s + 1.0, x)


def test_a_loop_that_turns_out_long_is_compiled_after_all(monkeypatch):
    monkeypatch.setattr(disk, "folder", lambda: None)
    program = compiling.jit(_counted, static_argnums=(), seldom=LITTLE)
    with counted() as made:
        np.testing.assert_array_equal(program(X, 7.0), X + 7)
    assert made == []
    with counted() as made:
        np.testing.assert_array_equal(program(X, 1e6), X + 1e6)
    assert made
