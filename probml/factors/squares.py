"""Rows of Normals whose locations are affine in coefficients, as one matrix: the log density of all
of them is a quadratic in the coefficients, whatever their number.

With the residuals at `about`, r = x − loc(about), and the slopes a = ∂loc/∂c of a row and a cell,

    Σ w log N(x | loc(c), s) = −½ vᵀ G v / s² − Σw (log s + ½ log 2π),
    G = Σ w (a, r)(a, r)ᵀ,    v = (about − c, 1).

About the least squares of the rows, G has the digits that residuals row by row would have: what is
subtracted is small beside the squares that are left.
"""

import functools
import math
import operator
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from probml.device.rows import Chunk, Known, Rows
from probml.factors.rowwise import row_environment
from probml.numerics.logs import LOG_TWO_PI, divide
from probml.plan.plan import Plan
from probml.plan.sufficient_statistics import coefficients
from probml.structure.densities import cells

RIDGE = 1e-6  # of a column's own square: of collinear columns any least squares will do
PASSES = 2  # about the given point, and about the least squares found there


class Squares(NamedTuple):
    """Of all rows of a site."""

    gram: jax.Array  # (cells, 1 + p, 1 + p)
    count: jax.Array  # (cells,) the weight of its seen rows
    about: jax.Array  # (p,)


def squares_of(plan: Plan, name: str, params: Mapping, known: Known, rows: Rows) -> Squares:
    """The rows of a site, passed over twice; `params` is any point.

    Cost: rows × cells × p² twice.
    """

    def turn(_: int, squares: Squares) -> Squares:
        about = squares.about + _least(squares)
        gram, count = rows.total(functools.partial(_chunk, plan, name, params, known, about))
        return Squares(gram, count, about)

    first = _vector(plan, name, params)
    site, size = plan.structure.sites[name], first.size
    blank = Squares(jnp.zeros((math.prod(site.lattice), 1 + size, 1 + size), first.dtype),
                    jnp.zeros(math.prod(site.lattice), first.dtype), first)
    return jax.lax.fori_loop(0, PASSES, turn, blank)


def log_density(plan: Plan, name: str, params: Mapping, known: Known,
                squares: Squares) -> jax.Array:
    """Σ over rows of weight × log p(seen cells of the site | params)."""
    program, inputs = plan.structure.programs[name]
    blank = {t: jnp.zeros(spec.shape, spec.dtype)  # zeros of a row: the scale does not depend on it
             for t, spec in zip(inputs, program.in_avals, strict=True)}
    env = {**blank, **known.given, **params}
    scale = plan.structure.cells(name, {t: jnp.reshape(env[t], blank[t].shape) for t in inputs})[
        "scale"]
    v = jnp.concatenate([squares.about - _vector(plan, name, params), jnp.ones(1, scale.dtype)])
    square = (squares.gram @ v) @ v
    return (-0.5 * square / scale**2
            - squares.count * (jnp.log(scale) + 0.5 * LOG_TWO_PI)).sum()


def _vector(plan: Plan, name: str, params: Mapping) -> jax.Array:
    return jnp.concatenate([jnp.reshape(params[p], -1) for p in coefficients(plan, name)])


def _chunk(plan: Plan, name: str, params: Mapping, known: Known, about: jax.Array,
           rows: Chunk) -> tuple[jax.Array, jax.Array]:
    site, names, parts, start = plan.structure.sites[name], coefficients(plan, name), {}, 0
    for p in names:
        size = math.prod(plan.structure.sites[p].shape)
        parts[p], start = slice(start, start + size), start + size
    fixed = {**known.given, **params}

    def row_slope(varying: Mapping[str, jax.Array]):
        def loc(c: jax.Array):
            by_name = {p: c[part].reshape(plan.structure.sites[p].shape)
                       for p, part in parts.items()}
            return plan.structure.cells(name, {**fixed, **varying, **by_name})["loc"]

        return jax.jacfwd(loc)(about), loc(about)

    slope, loc = jax.vmap(row_slope, axis_size=len(rows.weights))(row_environment(plan, known, rows,
                                                                                  name))
    residual = cells(site, rows.values[name]) - loc
    weight = jnp.broadcast_to(rows.weights[:, None], residual.shape)
    if name in rows.observed:
        weight = jnp.where(cells(site, rows.observed[name]), weight, 0.0)
    z = jnp.where(weight[..., None] > 0, jnp.concatenate([slope, residual[..., None]], -1), 0.0)
    return unfused_product(jnp.transpose(z, (1, 2, 0)),
                           jnp.swapaxes(z * weight[..., None], 0, 1)), weight.sum(0)


def unfused_product(a: jax.Array, b: jax.Array) -> jax.Array:
    """a @ b of arrays that are made first: XLA would fold what they are made of into the product,
    which is then half as fast."""
    return operator.matmul(*lax.optimization_barrier((a, b)))


def _least(squares: Squares) -> jax.Array:
    """The step from `about` to the least squares, each cell in units of its residuals; 0 without
    data."""
    mean = squares.gram[:, -1, -1] / jnp.maximum(squares.count, 1.0)
    gram = jnp.tensordot(divide(1.0, mean), squares.gram, 1)
    normal, right = gram[:-1, :-1], gram[:-1, -1]
    unit = jnp.sqrt(jnp.diagonal(normal))
    unit = jnp.where(unit > 0, unit, 1.0)
    scaled = normal / (unit[:, None] * unit) + RIDGE * jnp.eye(len(unit), dtype=unit.dtype)
    step = jnp.linalg.solve(scaled, right / unit) / unit
    return jnp.where(jnp.all(jnp.isfinite(step)), step, 0.0)
