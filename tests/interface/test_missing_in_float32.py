"""Missing cells of a function with obs= and a scan, in float32: no warning about types."""

import warnings

import jax
import numpy as np
import numpyro.distributions as dist
from numpyro import sample
from numpyro.contrib.control_flow import scan

import probml


def test_missing_steps_of_a_scan_do_not_warn_of_float64():
    def walk(y):
        def step(level, value):
            level = sample("level", dist.Normal(level, 1.0))
            sample("y", dist.StudentT(4.0, level, 1.0), obs=value)
            return level, None

        scan(step, 0.0, y)

    y = np.array([0.1, np.nan, 0.3, 1.0])
    with jax.enable_x64(False), warnings.catch_warnings():
        warnings.simplefilter("error")
        model = probml.model(walk)()
        assert np.isfinite(model.log_density({"y": y}, {"level": np.zeros(4)}))
