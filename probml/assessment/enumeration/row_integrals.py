"""Integrals of rows over their latent continuous sites: in closed form where normal, else over a
grid."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from probml.assessment.enumeration.separable_integral import Unknown

NODES = 3001
MAX_T, MAX_BOUNDED_T = 11.0, 5.0  # of the grid in t = asinh x, and for x a logarithm or a logit
QUADRATIC_TOLERANCE = 1e-7  # of a log density, for it to be that of a normal


def integrate_rows(log_density: Callable[[jax.Array], jax.Array], rows: int, size: int,
                   bent: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(log of the integral over `size` numbers, (rows,); its nodes, (nodes, rows, size), and their
    weights, (nodes, rows)); of a normal its mean is the only node.

    Args:
        log_density: numbers (rows, size) → (rows,).
        bent: whether some numbers have bounds.

    Raises:
        Unknown: several numbers whose density is not normal, or an infinite density.
    """
    log, nodes, weights = _integral(log_density, rows, size, bent)
    if np.isposinf(log).any():
        raise Unknown("the density by NumPyro is infinite, for example that of a normal "
                      "distribution truncated far from its mean")
    return log, nodes, weights


def _integral(log_density: Callable, rows: int, size: int,
              bent: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if not size:
        none = np.zeros((rows, 0))
        return np.asarray(jax.jit(log_density)(none)), none[None], np.ones((1, 1))
    if not bent:
        zero, density = np.zeros((rows, size)), jax.jit(log_density)
        along = np.broadcast_to(np.eye(size)[:, None], (size, rows, size))

        def bends(u: jax.Array):
            gradient = jax.grad(lambda u: log_density(u).sum())
            curved = jax.vmap(lambda v: jax.jvp(gradient, (u,), (v,))[1], out_axes=-1)(along)
            return gradient(u), curved

        slope, curved = jax.jit(bends)(zero)
        curved = -np.asarray(curved)
        with np.errstate(all="ignore"):
            at = np.linalg.solve(curved, np.asarray(slope)[..., None])[..., 0]
        found = np.asarray(density(at))
        probe = np.random.default_rng(0).normal(size=(rows, size))
        foretold = found - 0.5 * np.einsum("ri,rij,rj->r", probe, curved, probe)
        error = np.abs(np.asarray(density(at + probe)) - foretold)
        if np.all(error < QUADRATIC_TOLERANCE * (1 + np.abs(foretold))):
            log = found + 0.5 * size * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(curved)[1]
            return np.asarray(log), at[None], np.ones((1, rows))
    if size > 1:
        raise Unknown("rows have several latent continuous variables whose density is not normal")
    t = np.linspace(-1.0, 1.0, NODES) * (MAX_BOUNDED_T if bent else MAX_T)
    nodes = np.sinh(t)
    logs = np.asarray(jax.jit(jax.vmap(lambda u: log_density(jnp.full((rows, 1), u))))(nodes))
    if np.isposinf(logs).any():
        raise Unknown("a draw was rounded to a boundary at which a density is infinite")
    logs = np.nan_to_num(logs, nan=-np.inf) + np.log(np.cosh(t) * (t[1] - t[0]))[:, None]
    top = logs.max(0)
    share = np.exp(logs - top)
    whole = share.sum(0)
    return (np.log(whole) + top, np.broadcast_to(nodes[:, None, None], (NODES, rows, 1)),
            share / whole)
