"""What is linear and Gaussian, integrated out as the joint normal has it: by NumPyro's own density,
its gradient and its Hessian in the numbers that are integrated."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from numpyro.infer import util

from plain_numpyro import met, unseen


def joint_normal(function: Callable, params: Mapping[str, Any], y: Any) -> tuple:
    """log p(params, y, all other sites = 0), and the gradient and minus the Hessian there in these;
    and how a vector of them is taken apart."""
    steps = {name: jnp.zeros(value.shape)
             for name, value in unseen(met(function, (y,), draw=False)).items()
             if name not in params}
    flat, back = jax.flatten_util.ravel_pytree(steps)

    def log(flat):
        return util.log_density(function, (y,), {}, {**params, **back(flat)})[0]

    value, gradient, curve = jax.jit(lambda at: (
        *jax.value_and_grad(log)(at), jax.hessian(log)(at)))(flat)
    return value, gradient, -curve, back


def integral(function: Callable, params: Mapping[str, Any], y: Any) -> float:
    """log p(params, y)."""
    log, h, k, _ = joint_normal(function, params, y)
    return float(log + 0.5 * h @ np.linalg.solve(k, h) - 0.5 * np.linalg.slogdet(k)[1]
                 + 0.5 * len(h) * np.log(2 * np.pi))
