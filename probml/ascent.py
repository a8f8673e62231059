"""Climbing: Newton's steps for sums of functions of one number each, L-BFGS for everything else."""

import functools

import jax
import jax.numpy as jnp

NEWTON = 40  # Newton's steps at the most


def newton(loss, start):
    """Minimise a sum of functions of one number each, all at once: Newton's steps, bounded, downhill where the curvature is negative.

    Keeps the start if that is better: then the objective of the whole never falls.
    """
    gradient = jax.grad(loss)

    def step(carry):
        u, _, count = carry
        slope, curvature = jax.jvp(gradient, (u,), (jax.tree.map(jnp.ones_like, u),))

        def move(x, g, h):
            step = jnp.where(h > 0, -g / jnp.where(h > 0, h, 1.0), -jnp.sign(g) * jnp.minimum(jnp.abs(g), 0.5))
            return jnp.clip(step, -1.0 - jnp.abs(x), 1.0 + jnp.abs(x))

        moves = jax.tree.map(move, u, slope, curvature)
        size = jnp.max(jnp.stack([jnp.max(jnp.abs(m) / (1 + jnp.abs(x))) for m, x in zip(*map(jax.tree.leaves, (moves, u)), strict=True)]))
        return jax.tree.map(jnp.add, u, moves), size, count + 1

    def more(carry):
        _, size, count = carry
        return (count < NEWTON) & (size > 4 * jnp.finfo(size.dtype).eps)

    dtype = jax.tree.leaves(start)[0].dtype
    best, _, _ = jax.lax.while_loop(more, step, (start, jnp.full((), jnp.inf, dtype), 0))
    good = loss(best) <= loss(start)
    return jax.tree.map(lambda a, b: jnp.where(good, a, b), best, start)


def lbfgs(value_and_gradient, start, steps: int | jax.Array, tolerance: float, trail: int = 0):
    """Minimise by optax's L-BFGS with a backtracking line search; returns (best point, its value, iterations, values, gradient).

    Args:
        value_and_gradient: point → (value, gradient).
        tolerance: stop when the value falls by less than this, relative to 1 + |value|.
        trail: how many values to keep; the first is the start's.
    """
    import optax  # late: not every model climbs

    value0, gradient0 = value_and_gradient(start)
    curvature = optax.scale_by_lbfgs(memory_size=10)
    norm = optax.tree.norm(gradient0)

    def step(carry):
        point, value, gradient, memory, _, count, values = carry
        direction, memory = curvature.update(gradient, memory, point)
        slope = -optax.tree.vdot(direction, gradient)
        direction = jax.tree.map(lambda d, g: jnp.where(slope < 0, -d, -g), direction, gradient)
        slope = jnp.where(slope < 0, slope, -optax.tree.vdot(gradient, gradient))
        first = jnp.where(count == 0, jnp.minimum(1.0, 1.0 / jnp.maximum(optax.tree.norm(gradient), 1e-30)), 1.0)

        def shrink(trial):
            size, _, _, _ = trial
            there = jax.tree.map(lambda p, d: p + size * d, point, direction)
            new, slopes = value_and_gradient(there)
            return size * 0.3, there, new, slopes

        def rejected(trial):
            size, _, new, _ = trial
            return ~(new <= value + 1e-4 * (size / 0.3) * slope) & (size > 1e-10)

        _, there, new, slopes = jax.lax.while_loop(rejected, shrink, shrink((first, point, value, gradient)))
        improved = new < value
        keep = functools.partial(jnp.where, improved)
        fall = jnp.where(improved, value - new, 0.0)
        return (
            jax.tree.map(keep, there, point),
            keep(new, value),
            jax.tree.map(keep, slopes, gradient),
            memory,
            fall,
            count + 1,
            values.at[count + 1].set(keep(new, value)),
        )

    def more(carry):
        _, value, gradient, _, fall, count, _ = carry
        small = fall <= tolerance * (1 + jnp.abs(value))
        return (count < steps) & ~((count > 0) & small) & (optax.tree.norm(gradient) > 1e-14 * (1 + norm))

    values = jnp.full(trail + 1, jnp.nan, value0.dtype).at[0].set(value0)
    carry = (start, value0, gradient0, curvature.init(start), jnp.full((), jnp.inf, value0.dtype), 0, values)
    point, value, gradient, _, _, count, values = jax.lax.while_loop(more, step, carry)
    return point, value, count, values, gradient
