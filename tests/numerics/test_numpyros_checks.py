"""NumPyro checks the arguments of distributions, but not where we trace: computed at once amid a trace
they would be, by functions that are inlined there, which ends in RecursionError."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.jaxpr.compat import OFF
from probml.numerics.process.making import unchecked

ENGINES = {
    "EM": probml.EM(restarts=1, max_iterations=20), "MAP": probml.MAP(), "Laplace": probml.Laplace(),
    "NUTS": probml.NUTS(draws=10, warmup=10, chains=1), "SVI": probml.SVI(steps=20),
}  # fmt: skip
NAMES = ["EM", "MAP", "NUTS", *(pytest.param(name, marks=pytest.mark.slow) for name in ("Laplace", "SVI"))]
X = np.random.default_rng(0).normal(size=(30, 2)) + np.repeat([[0.0], [4.0]], 15, 0)


def elsewhere(work):
    """What another thread does meanwhile."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def off_and_on():
    """As NumPyro's own inference does in another thread."""
    with numpyro.validation_enabled(False):
        pass


@probml.model
def clusters(amid):
    weights = sample("weights", dist.Dirichlet(jnp.full(2, 2.0)))
    with plate("component", 2):
        mean = sample("mean", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
        scale = sample("scale", dist.LogNormal(0.0, 1.0).expand([2]).to_event(1))
    amid()
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], scale[z]).to_event(1))


def joint(amid, x, y=None):
    slope, noise = sample("slope", dist.StudentT(3.0, 0.0, 2.0)), sample("noise", dist.HalfNormal(2.0))
    amid()
    with plate("n", len(x)):
        sample("y", dist.StudentT(4.0, slope * x, noise), obs=y)


def at_once():
    """Of a user who computes, or checks, amid a trace."""
    with jax.ensure_compile_time_eval():
        assert float(jnp.where(jnp.arange(3) > 1, 2.0, 0.0).sum()) == 2.0
    dist.Normal(0.0, 1.0, validate_args=True)


def fitted(amid):
    yield clusters(amid), {"x": X}
    yield probml.model(joint)(amid), {"x": X[:, 0], "y": X[:, 1]}


def test_they_are_off_inside_and_on_again_outside_and_in_other_threads():
    failed = []

    def other():
        with pytest.raises(ValueError, match="invalid scale"):
            dist.Normal(0.0, -1.0)
        failed.append(False)

    with unchecked(), unchecked():
        dist.Normal(0.0, -1.0)
        elsewhere(off_and_on)
        dist.Normal(0.0, -1.0)
        off_and_on()
        dist.Normal(0.0, -1.0)
        elsewhere(other)
    assert failed == [False] and dist.Distribution._validate_args is True
    with numpyro.validation_enabled(False), unchecked():
        pass
    assert dist.Distribution._validate_args is True
    with pytest.raises(ValueError):
        dist.Distribution.set_default_validate_args(None)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("amid", [lambda: elsewhere(off_and_on), off_and_on, at_once],
                         ids=["another thread's", "its own", "computed at once"])
def test_a_fit_stands_checks_that_come_on_amid_its_traces(name, amid):
    for model, data in fitted(amid):
        assert np.isfinite(jax.tree.leaves(model.fit(data, ENGINES[name]).params)[0]).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_fit_stands_checks_that_stay_on(name):
    """As with PROBML_OFF=validation."""
    OFF.add("validation")
    try:
        for model, data in fitted(lambda: None):
            assert np.isfinite(jax.tree.leaves(model.fit(data, ENGINES[name]).params)[0]).all()
    finally:
        OFF.discard("validation")
