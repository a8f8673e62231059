"""What is linear and Gaussian, integrated out as the joint normal has it: by NumPyro's own density
at 0, at unit vectors and at their sums, which a parabola is known by. So what is compiled has no
derivatives, and is one program for a function."""

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from numpyro.infer import util

from plain_numpyro import met, unseen


@functools.cache
def _densities(function: Callable) -> Callable:
    """log p(params, y, all other sites) where these have several values."""
    def log(steps, params, y):
        return util.log_density(function, (y,), {}, {**params, **steps})[0]

    return jax.jit(jax.vmap(log, (0, None, None)))


def joint_normal(function: Callable, params: Mapping[str, Any], y: Any) -> tuple:
    """log p(params, y, all other sites = 0), and the gradient and minus the Hessian there in these;
    and how a vector of them is taken apart."""
    shapes = {name: value.shape
              for name, value in unseen(met(function, (y,), draw=False)).items()
              if name not in params}
    ends = list(itertools.accumulate(map(math.prod, shapes.values()), initial=0))

    def back(flat):
        return {name: flat[..., low:high].reshape(*flat.shape[:-1], *shape) for (name, shape), low, high
                in zip(shapes.items(), ends[:-1], ends[1:], strict=True)}

    n = ends[-1]
    unit, pairs = np.eye(n), np.triu_indices(n)
    at = np.concatenate([np.zeros((1, n)), unit, -unit, unit[pairs[0]] + unit[pairs[1]]])
    found = np.asarray(_densities(function)(back(at), dict(params), np.asarray(y)))
    value, up, down, both = np.split(found, (1, n + 1, 2 * n + 1))
    hessian = np.zeros((n, n))
    hessian[pairs] = both - up[pairs[0]] - up[pairs[1]] + value
    hessian = np.triu(hessian) + np.triu(hessian, 1).T
    return value[0], (up - down) / 2, -hessian, back


def integral(function: Callable, params: Mapping[str, Any], y: Any) -> float:
    """log p(params, y)."""
    log, h, k, _ = joint_normal(function, params, y)
    return float(log + 0.5 * h @ np.linalg.solve(k, h) - 0.5 * np.linalg.slogdet(k)[1]
                 + 0.5 * len(h) * np.log(2 * np.pi))
