"""Stepwise EM: a few passes in batches reach what many iterations of all rows reach."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
from numpyro import plate, sample

import probml
from probml.engines.restarting import batches
from probml.errors import ModelError, Refusal
from small_models import mixture


@probml.model
def lines(x):
    weights = sample("weights", dist.Dirichlet(jnp.ones(2)))
    with plate("line", 2):
        slope = sample("slope", dist.Normal(0.0, 3.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("y", dist.Normal(x * slope[z], 1.0))


def rows_of(n: int = 8_000) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {"x": np.sort(random.normal(size=n) + 3.0 * random.integers(2, size=n)) + 100.0}  # in order


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:model 'mixture':UserWarning")
def test_three_passes_in_batches_reach_what_a_hundred_iterations_reach(monkeypatch):
    monkeypatch.setattr(batches, "START_ROWS", 2000)  # the first point knows a quarter of the rows
    table, few = rows_of(), probml.EM(batch_rows=400, max_iterations=3, tolerance=0.0, restarts=2)
    start = {"mean": np.array([99.0, 104.0])}
    full = mixture(k=2).fit(table, probml.EM(max_iterations=100, restarts=2), start=start)
    fit = mixture(k=2).fit(table, few, start=start)
    assert fit.score(table, plug_in=True) > full.score(table, plug_in=True) - 5e-4
    assert 1 <= fit.iterations <= 3 and len(fit.history) == fit.iterations + 1 and fit.history[1] > fit.history[0] and "batch_rows=400" in fit.status
    assert max(fit.history) == pytest.approx(fit.log_joint(table), rel=1e-5)  # the objective of all rows
    np.testing.assert_array_equal(mixture(k=2).fit(table, few, start=start).history, fit.history)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:model 'mixture':UserWarning")
def test_rows_that_are_read_in_parts_are_batches_as_they_come():
    table, few = rows_of(), probml.EM(batch_rows=400, max_iterations=3, tolerance=0.0, restarts=2)
    start = {"mean": np.array([99.0, 104.0])}
    full = mixture(k=2).fit(table, probml.EM(max_iterations=100, restarts=2), start=start)
    parts = [{"x": table["x"][i::7]} for i in range(7)]
    streamed = mixture(k=2).fit(lambda: iter(parts), few, start=start)
    assert streamed.score(table, plug_in=True) > full.score(table, plug_in=True) - 1e-3


TABLE = {"x": rows_of(50)["x"]}


@pytest.mark.parametrize("data", [TABLE, lambda: iter([{"x": TABLE["x"][:30]}, {"x": TABLE["x"][30:]}])],
                         ids=["in memory", "in parts"])
@pytest.mark.parametrize("engine", [probml.EM(batch_rows=51), probml.VB(batch_rows=51), probml.SVI(batch_rows=51),
                                    probml.MAP(optimizer=optax.sgd(0.1), batch_rows=51)],
                         ids=lambda engine: type(engine).__name__)
def test_a_batch_larger_than_the_data_is_refused_by_every_engine(engine, data):
    name = type(engine).__name__
    with pytest.raises(ModelError, match=rf"{name}\(batch_rows=51\) .* only 50 rows"):
        mixture(k=2).fit(data, engine)


def test_what_has_no_batches_is_refused_by_name():
    table = TABLE
    with pytest.raises(Refusal, match="site 'y' has no sufficient statistics"):
        lines().fit(table | {"y": table["x"]}, probml.EM(batch_rows=10))
    with pytest.raises(ModelError, match=r"EM\(batch_rows=0\)"):
        probml.EM(batch_rows=0)
