"""Rows over devices give the sums, answers and samples of rows on one; several real devices and processes are
left to a process of their own."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from probml.device.rows import Chunk, Resident
from probml.device.sharded import distribute_rows, replicate_rows
from probml.errors import DataError, ModelError
from probml.numerics.compiling import jit
from probml.numerics.outside.meshes import mesh_of
from probml.numerics.outside.processes import joint

CHUNKS, SIZE = 3, 4
X = np.random.default_rng(0).normal(size=(CHUNKS, SIZE, 2))
WEIGHTS = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [2, 1, 0, 0]], float)
HELD = Resident(Chunk({}, {}, {}, {}, {}, {"x": X}, WEIGHTS))


@jit
def asked(rows, powers, index, order):
    """A sum for every power, as restarts make them; an answer a row; some rows; batches in random order."""
    def batch(carry, some):
        weight, count = carry
        return weight + some.total(lambda chunk: chunk.weights.sum()), count + 1

    sums = jax.vmap(lambda p: rows.total(lambda some: some.weights @ jnp.abs(some.inputs["x"]) ** p))(powers)
    answers = rows.map(lambda some, scale: scale * some.inputs["x"].sum(1), jnp.arange(3.0))
    return sums, answers, rows.taken(index).stacked.inputs["x"], rows.walk(batch, (0.0, 0), 5, order, 0)


def test_sums_answers_samples_and_batches_are_those_of_one_device():
    powers, index = np.array([1.0, 2.0]), np.array([[11, 0], [5, 5]])
    rows = distribute_rows(HELD, mesh_of(jax.devices()[:1]))
    assert rows.weight == WEIGHTS.sum() and rows.size == SIZE and rows.chunks == CHUNKS
    sums, answers, some, (weight, count) = asked(rows, powers, index, jax.random.key(0))
    for p, own in zip(powers, sums, strict=True):
        np.testing.assert_allclose(own, np.einsum("ci,cij->j", WEIGHTS, np.abs(X) ** p), rtol=1e-6)
    np.testing.assert_allclose(answers, np.arange(3)[:, None] * X.sum(2), rtol=1e-6)
    np.testing.assert_allclose(some, X.reshape(-1, 2)[index], rtol=1e-6)
    assert count == 3 and weight == WEIGHTS.sum()  # each row once, the last batch filled up
    np.testing.assert_allclose(asked(HELD, powers, index, jax.random.key(0))[0], sums, rtol=1e-6)


@jit
def side_by_side(rows, powers):
    return rows.vmap_copies(lambda p: rows.total(lambda some: some.weights @ jnp.abs(some.inputs["x"]) ** p), powers)


def test_runs_side_by_side_find_what_they_find_where_rows_are_held_once():
    powers, rows = np.array([1.0, 2.0, 3.0]), replicate_rows(HELD, mesh_of(jax.devices()[:1]))
    assert rows.parallel_copies == 1 and not rows.joint and distribute_rows(HELD, mesh_of(jax.devices()[:1])).joint
    for some in (powers, powers[:1]):
        np.testing.assert_allclose(side_by_side(rows, some), side_by_side(HELD, some), rtol=1e-6)


def test_places_that_are_no_row_of_devices_are_refused():
    device = jax.devices()[0]
    with pytest.raises(ModelError, match="where='cpu': expected a list of devices such as"):
        mesh_of("cpu")
    with pytest.raises(ModelError, match="expected a list of devices"):
        mesh_of([])
    with pytest.raises(ModelError, match="is given twice"):
        mesh_of([device, device])
    other = Mock(spec=jax.Device, platform="gpu")
    with pytest.raises(ModelError, match=r"expected devices of one kind, got cpu and gpu. Use jax.devices\('gpu'\)"):
        mesh_of([device, other])
    assert mesh_of(Mesh(np.array([[device]]), ("a", "b"))) == mesh_of([device]) == mesh_of(device)


def test_a_process_that_is_lost_is_told_of_and_other_errors_of_jax_are_left():
    with pytest.raises(DataError, match=r"another process .* stopped \(UNKNOWN: Gloo all-reduce failed"), joint():
        raise jax.errors.JaxRuntimeError("UNKNOWN: Gloo all-reduce failed: Connection closed\nby peer")
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"), joint():
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")


HEAD = """
import os, sys
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp, numpy as np, numpyro.distributions as dist, probml
from numpyro import plate, sample

@probml.model
def mixture(k: int):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 10.0))
        scale = sample("scale", dist.LogNormal(0.0, 1.0))
        table = sample("table", dist.Dirichlet(jnp.ones(3)))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], scale[z]))
        sample("colour", dist.Categorical(table[z]))

@probml.model
def lines(x):
    slope = sample("slope", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=x @ slope))

random = np.random.default_rng(0)
z = random.integers(2, size=401)
x = random.normal(size=401) + 3.0 * z
x[random.random(401) < 0.1] = np.nan
table = {"x": x, "colour": np.array(["blue", "green", "red"], object)[(z + random.integers(2, size=401)) % 3]}
table["colour"][:210] = np.where(table["colour"][:210] == "red", None, table["colour"][:210])
u = random.normal(size=(401, 2))
other = {"x": u, "y": (random.random(401) < 1 / (1 + np.exp(-u @ [2.0, -1.0]))).astype(int)}
EM = probml.EM(max_iterations=8, tolerance=0.0, restarts=2, accelerate=False)
def same(one, two):
    assert one.labels("colour") == two.labels("colour") if "colour" in one.structure.sites else True
    np.testing.assert_allclose(one.history[[0, -1]], two.history[[0, -1]], rtol=1e-9)
    for name in two.params:
        np.testing.assert_allclose(one.params[name], two.params[name], rtol=1e-6, atol=1e-8)
"""


def started(folder: Path, body: str, **environment: str) -> subprocess.Popen:
    file = folder / f"case{environment.get('RANK', '')}.py"
    file.write_text(HEAD + textwrap.dedent(body))
    return subprocess.Popen([sys.executable, "-W", "ignore", str(file)], env=os.environ | environment,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process: subprocess.Popen) -> None:
    try:
        said = process.communicate(timeout=300)[0]
    finally:
        process.kill()
    assert process.returncode == 0, said[-1500:]


@pytest.mark.slow
def test_engines_find_on_four_devices_what_they_find_on_one(tmp_path):
    ended(started(tmp_path, """
    devices = jax.devices()
    assert len(devices) == 4
    weights = random.integers(0, 3, 401)
    same(mixture(k=2).fit(table, EM, weights=weights, where=devices), mixture(k=2).fit(table, EM, weights=weights))
    same(lines().fit(other, probml.MAP(), where=devices), lines().fit(other, probml.MAP()))
    same(lines().fit(other, probml.Laplace(), where=devices), lines().fit(other, probml.Laplace()))
    parts = lambda: iter([{name: value[low:low + 97] for name, value in table.items()} for low in range(0, 401, 97)])
    same(mixture(k=2).fit(parts, EM, where=devices), mixture(k=2).fit(table, EM))
    """, XLA_FLAGS="--xla_force_host_platform_device_count=4"))


@pytest.mark.slow
def test_runs_are_cut_over_devices_where_rows_are_few(tmp_path):
    ended(started(tmp_path, """
    from probml.device import sharded
    from probml.fits import places
    from probml.interface.sizes import grid
    devices, held, calls = jax.devices(), sharded.replicate_rows, []
    def repeated(rows, mesh):
        calls.append(rows)
        return held(rows, mesh)
    sharded.replicate_rows = repeated
    many = probml.EM(max_iterations=8, tolerance=0.0, restarts=6, accelerate=False)
    same(mixture(k=2).fit(table, many, where=devices), mixture(k=2).fit(table, many))
    assert len(calls) == 1
    sizes = {k: mixture(k=k) for k in (1, 2, 3)}
    for k, one in grid(sizes, table, "z", many, where=devices).items():
        same(one, grid(sizes, table, "z", many)[k])
    assert len(calls) == 2
    chains = probml.NUTS(draws=60, warmup=60, chains=4)
    plain, spread = lines().fit(other, chains), lines().fit(other, chains, where=devices)
    assert len(calls) == 3 and spread.draws(240)["slope"].shape == (240, 2)
    deviation = plain.draws(240)["slope"].std(0)
    assert (np.abs(spread.params["slope"] - plain.params["slope"]) < 0.5 * deviation).all()
    places.MAX_REPLICATED_NUMBERS = 0  # as of many rows: the chains, one after another, pass over rows that devices share
    shared = lines().fit(other, chains, where=devices)
    assert len(calls) == 3
    assert (np.abs(shared.params["slope"] - plain.params["slope"]) < 0.5 * deviation).all()
    """, XLA_FLAGS="--xla_force_host_platform_device_count=4"))


@pytest.mark.slow
def test_processes_with_rows_of_their_own_find_what_one_finds_and_hear_of_bad_ones(tmp_path):
    body = """
    rank = int(os.environ["RANK"])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize("127.0.0.1:" + os.environ["PORT"], 2, rank)
    cut = [slice(0, 170), slice(170, None)][rank]
    own = {name: value[cut] for name, value in table.items()}
    plain = mixture(k=2).fit(table, EM)
    same(mixture(k=2).fit(own, EM, where=jax.devices()), plain)
    same(mixture(k=2).fit(lambda: iter([own]), EM, where=jax.devices()), plain)
    if rank == 1:
        own["x"][3] = np.inf
    try:
        mixture(k=2).fit(own, EM, where=jax.devices())
    except probml.DataError as error:
        assert "row 3" in str(error) and (rank == 1 or "process 1" in str(error)), error
    else:
        raise AssertionError("process 1 has a bad row")
    """
    port = str(30_000 + os.getpid() % 5000)
    both = [started(tmp_path, body, RANK=str(rank), PORT=port) for rank in (0, 1)]
    for process in both:
        ended(process)
