"""A model is analysed without data also if its inputs are of several kinds: its graph, the table of a
site at given parameters. Where common shapes do not do, `table` takes the rows."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers, plate, sample

import probml

KIND = jnp.array([0.5, 0.3, 0.2])


@probml.model
def masked(ok, x):
    with probml.rows():
        kind = sample("kind", dist.Categorical(KIND))
        with handlers.mask(mask=ok):
            sample("y", dist.Normal(kind + x, 1.0))


@probml.model
def mask_alone(ok):
    with probml.rows():
        kind = sample("kind", dist.Categorical(KIND))
        with handlers.mask(mask=ok):
            sample("y", dist.Normal(1.0 * kind, 1.0))


@probml.model
def along_time(unit, ok, heat, total):
    with plate("units", 2):
        a = sample("a", dist.Normal(0.0, 1.0))
    with probml.rows():
        kind = sample("kind", dist.Categorical(KIND))
        z = sample("z", probml.MarkovChain(jnp.array([0.6, 0.4]), jnp.eye(2)))
        sample("y", dist.Normal(z + heat[..., :] + (a[unit] + kind)[..., None], 1.0).to_event(1))
        with handlers.mask(mask=ok):
            sample("n", dist.Binomial(total, 0.2 + 0.3 * (kind == 1)))


@pytest.mark.parametrize(("model", "params"), ((masked, {}), (mask_alone, {}),
                                               (along_time, {"a": np.zeros(2)})))
def test_no_data_are_needed(model, params):
    assert "kind" in model().graph
    np.testing.assert_allclose(model().at(params).table("kind"), [KIND], rtol=1e-6)


def test_a_table_takes_the_rows_where_shapes_are_unusual():
    @probml.model
    def wide(x):
        with probml.rows():
            kind = sample("kind", dist.Categorical(KIND))
            sample("y", dist.Normal(kind + x @ jnp.ones(3), 1.0))

    fit = wide().at({})
    with pytest.raises(probml.ModelError, match="'x': .* Pass data that contain them"):
        fit.table("kind")
    np.testing.assert_allclose(fit.table("kind", {"x": np.ones((2, 3))}), [KIND], rtol=1e-6)
    fitted = wide().fit({"x": np.ones((2, 3)), "y": [0.0, 1.0]})
    np.testing.assert_allclose(fitted.table("kind"), [KIND], rtol=1e-6)
