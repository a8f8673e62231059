"""What is linear and Gaussian, integrated out as the joint normal has it: by NumPyro's own density,
its gradient and its Hessian in the numbers that are integrated."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer.util import log_density


def joint_normal(function: Callable, params: Mapping[str, Any], y: Any) -> tuple:
    """log p(params, y, all other sites = 0), and the gradient and minus the Hessian there in these;
    and how a vector of them is taken apart."""
    trace = handlers.trace(handlers.seed(function, 1)).get_trace(y)
    steps = {name: jnp.zeros(np.shape(site["value"])) for name, site in trace.items()
             if site["type"] == "sample" and not site["is_observed"] and name not in params}
    flat, back = jax.flatten_util.ravel_pytree(steps)

    def log(flat):
        return log_density(function, (y,), {}, {**params, **back(flat)})[0]

    value, gradient = jax.value_and_grad(log)(flat)
    return value, gradient, -jax.hessian(log)(flat), back


def integral(function: Callable, params: Mapping[str, Any], y: Any) -> float:
    """log p(params, y)."""
    log, h, k, _ = joint_normal(function, params, y)
    return float(log + 0.5 * h @ np.linalg.solve(k, h) - 0.5 * np.linalg.slogdet(k)[1]
                 + 0.5 * len(h) * np.log(2 * np.pi))
