"""Values that jax.jit, vmap or grad traces: refused in our words, by every method that takes
numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers, sample
from numpyro.infer.util import log_density

import probml

X = np.array([0.5, 2.0, 3.0])


@probml.model
def line(x):
    b = sample("b", dist.Normal(0.0, 3.0))
    with probml.rows():
        z = sample("z", dist.Bernoulli(0.3))
        sample("y", dist.Normal(b * x + z, 1.0))


FIT = line().fit({"x": X, "y": X}, probml.MAP())
ASK = {
    "log_prob": lambda v: FIT.log_prob({"x": v, "y": v}),
    "an observed column": lambda v: FIT.log_prob({"x": X, "y": v}),
    "a list": lambda v: FIT.log_prob({"x": X, "y": [v[0], v[1], v[2]]}),
    "predict": lambda v: FIT.predict({"x": v}, "y"),
    "predict_proba": lambda v: FIT.predict_proba({"x": X, "y": v}, "z"),
    "impute": lambda v: FIT.impute({"x": v}),
    "decode": lambda v: FIT.decode({"x": X, "y": v}),
    "simulate": lambda v: FIT.simulate(x=v),
    "simulate the prior": lambda v: line().simulate(x=v),
    "fit": lambda v: line().fit({"x": X, "y": v}, probml.MAP()),
    "weights": lambda v: line().fit({"x": X, "y": X}, probml.MAP(), weights=v),
    "start": lambda v: line().fit({"x": X, "y": X}, probml.MAP(), start={"b": v[0]}),
    "at": lambda v: line().at({"b": v[0]}),
    "log_density": lambda v: line().log_density({"x": X, "y": X}, {"b": v[0]}),
    "do": lambda v: FIT.do({"z": v[0]}),
}
OVER = {"jit": jax.jit, "grad": jax.grad,
        "vmap": lambda ask: jax.vmap(lambda v: ask(v * jnp.ones(3)))}


@pytest.mark.parametrize("over", OVER)
@pytest.mark.parametrize("name", ASK)
def test_traced_values_are_refused_with_what_to_do(name, over):
    with pytest.raises(probml.ModelError, match="traced by jax.jit, vmap or grad.*log_density"):
        OVER[over](ASK[name])(jnp.asarray(X))


def test_a_traced_key_and_a_traced_fit_are_refused():
    with pytest.raises(probml.ModelError, match="seed.*traced"):
        jax.jit(lambda key: line().simulate(x=X, seed=key))(jax.random.key(0))
    with pytest.raises(probml.ModelError, match="the fit is traced"):
        jax.jit(lambda fit: fit.log_prob({"x": X, "y": X}))(FIT)


def test_the_advice_works():
    def ours(b):
        known = handlers.condition(line(), {"z": jnp.zeros(3, int), "y": X})
        return log_density(known, (), {"rows": 3, "x": X}, {"b": b})[0]

    slope = jax.jit(jax.grad(ours))(0.5)
    np.testing.assert_allclose(slope, X @ (X - 0.5 * X) - 0.5 / 9, rtol=1e-5)
