"""Weights beyond what double holds are refused in words."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:MAP of model:probml.ConvergenceWarning")
def test_effects_of_weights_beyond_double_are_refused_in_words():
    @probml.model
    def groups(g):
        spread, noise = sample("spread", dist.HalfNormal(1.0)), sample("noise", dist.HalfNormal(1.0))
        with plate("group", 3):
            effect = sample("effect", dist.Normal(0.0, spread))
        with probml.rows():
            sample("y", dist.Normal(effect[g], noise))

    data = {"y": np.array([0.3, -1.0, 0.2, 0.5, -0.7, 0.1]), "g": np.arange(6) % 3}
    try:
        fit = groups().fit(data, probml.MAP(), weights=np.full(6, 1e18))
    except probml.Refusal as error:
        assert "'effect'" in str(error) and "double precision" in str(error)
    else:
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(fit.params))
