"""What a first answer compiles: each program once, and none but those that are kept on disk."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from compilations import compiled, unkept
from probml.numerics.kept import disk

N, GROUPS = 60, 6
RANDOM = np.random.default_rng(0)
DATA = {"x": RANDOM.normal(size=N), "group": np.arange(N) % GROUPS, "y": RANDOM.poisson(2.0, N)}


@probml.model
def grouped(x, group, kind: str):
    level, sd = sample("level", dist.Normal(0.0, 2.0)), sample("sd", dist.HalfNormal(1.0))
    if kind == "slopes":
        factor = sample("factor", dist.LKJCholesky(2, 2.0))
        with plate("groups", GROUPS):
            effect = sample("effect", dist.MultivariateNormal(jnp.zeros(2), scale_tril=sd * factor))
        line = level + effect[group, 0] + effect[group, 1] * x
    else:
        with plate("groups", GROUPS):
            effect = sample("effect", dist.Normal(0.0, sd))
        line = level + effect[group]
    with probml.rows():
        if kind == "overdispersed":
            sample("y", dist.NegativeBinomial2(jnp.exp(line), 2.0))
        else:
            sample("y", dist.Poisson(jnp.exp(line)))


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    folder = disk.Folder(tmp_path / "programs")
    monkeypatch.setattr(disk, "folder", lambda: folder)


@pytest.mark.parametrize("kind", ["counts", "overdispersed", "slopes"])
def test_a_first_answer_has_no_program_that_is_not_kept(kind, shelf):
    with unkept() as found:
        grouped(kind=kind).fit(DATA)
    assert not found


def test_chains_in_threads_share_one_program(shelf):
    with compiled() as found:
        grouped(kind="counts").fit(DATA, probml.NUTS(draws=100, warmup=100, chains=4))
    assert sum("advance" in name for name in found) == 1, found
