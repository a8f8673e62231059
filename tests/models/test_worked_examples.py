"""Worked examples of courses whose answers are printed."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.nn import softmax
from numpyro import sample

import probml


@probml.model
def die():
    tilt = sample("tilt", dist.ImproperUniform(dist.constraints.real, (), ()))
    with probml.rows():
        sample("face", dist.Categorical(logits=tilt * jnp.arange(1, 7)))


def test_the_die_of_greatest_entropy_with_mean_four_and_a_half_is_jayness():
    """Jaynes (1978), "Where do we stand on maximum entropy?", his Brandeis dice."""
    fit = die().fit({"face": np.array([3, 4])}, probml.MAP(prior=False),
                    weights=np.array([0.5, 0.5]))
    found = np.asarray(softmax(fit.params["tilt"] * jnp.arange(1, 7)))
    np.testing.assert_allclose(found, [0.05435, 0.07877, 0.11416, 0.16545, 0.23977, 0.34749],
                               atol=6e-6)


@probml.model
def threshold(temperature):
    t = sample("t", dist.Categorical(jnp.ones(11) / 11))
    with probml.rows():
        sample("hot", dist.Bernoulli(jnp.where(temperature >= t, 1.0, 0.0)))


def test_the_hypotheses_of_a_version_space_share_the_posterior():
    """Mitchell (1982): those that agree with every row, here t = 5, 6 and 7."""
    data = {"temperature": np.array([2.0, 9.0, 4.0, 7.0]), "hot": np.array([0, 1, 0, 1])}
    fit = threshold().fit(data)
    left = np.where(np.isin(np.arange(11), (5, 6, 7)), 1 / 3, 0.0)
    np.testing.assert_allclose(fit.posterior("t").probs, left, atol=1e-12)
    p = fit.predict_proba({"temperature": np.arange(11.0)}, "hot")[:, 1]
    np.testing.assert_allclose(p, np.cumsum(left), atol=1e-12)
