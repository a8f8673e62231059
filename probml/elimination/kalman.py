"""Elimination along time of numbers: Kalman's filter and its adjoint, for many sequences at once.

States s_t of D numbers move by s_t = A_t s_{t−1} + b_t + ε, ε ~ N(0, Q_t), and are seen in numbers
one after the other, y = cᵀ s + ν, ν ~ N(0, r) (Koopman & Durbin 2000): so nothing is factored or
solved, unseen numbers are skipped, and Q, the first covariance and r may be singular or 0. The
filter updates in Joseph's form, whose rounding is not magnified where a prior is wide.

Backwards, λ and N are the gradient and minus the Hessian of log p(all that is seen) in the mean of
a state (de Jong 1989; Durbin & Koopman 2012, sections 4.4–4.5), since log p is that of a normal
convolved,

    ∂ log p / ∂ mean = λ,   ∂ log p / ∂ covariance = ½ (λ λᵀ − N),

and the smoothed states are f + F λ and F − F N F, F the filtered covariance: without any inverse.
So the gradient of the evidence in everything that enters it comes with the smoother, in one pass.

Layout: time first, the lanes (sequences) last, (T, D, D, M); what is the same at all times, or in
all lanes, has size 1 there. So all is elementwise over lanes.

Cost: O(D³ + m D²) a step and lane, m numbers seen; memory of T · D² · M numbers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LOG_TWO_PI = float(np.log(2 * np.pi))
FLAT = 1e-4  # relative distance at which what has no variance is seen elsewhere: impossible
UNROLLED = 4  # numbers of a step that are seen one after the other without a loop


class System(NamedTuple):
    """A linear Gaussian chain and what is seen of it; see the top of this file.

    Entry t of `transition`, `offset` and `noise` leads into step t; entry 0 is not used.
    """

    mean: jax.Array  # (D, M) of the first state
    covariance: jax.Array  # (D, D, M)
    transition: jax.Array  # (T or 1, D, D, M or 1)
    offset: jax.Array  # (T or 1, D, M or 1)
    noise: jax.Array  # (T or 1, D, D, M or 1)
    value: jax.Array  # (T, m, M) less the location at s = 0; any number where unseen
    slope: jax.Array  # (T or 1, m, D, M or 1)
    variance: jax.Array  # (T or 1, m, M or 1)
    seen: jax.Array  # bool (T, m, M)
    alive: jax.Array | None  # bool (T, M), the first steps of a lane that count; None: all


class Filtered(NamedTuple):
    """The forward pass: predicted states, filtered ones, and of each number seen its innovation
    over its variance, the inverse of that, and its gain."""

    before: tuple[jax.Array, jax.Array]  # (T, D, M), (T, D, D, M)
    after: tuple[jax.Array, jax.Array]
    error: jax.Array  # (T, m, M)
    precision: jax.Array  # (T, m, M)
    gain: jax.Array  # (T, m, D, M)
    log: jax.Array  # (T, M) log p(what is seen at t | before)


class Adjoint(NamedTuple):
    """The backward pass: λ and N of the predicted and of the filtered states, and of each number
    seen."""

    before: tuple[jax.Array, jax.Array]  # (T, D, M), (T, D, D, M)
    after: tuple[jax.Array, jax.Array]
    error: jax.Array  # (T, m, M) E[ν | all] / r
    curvature: jax.Array  # (T, m, M) −∂² log p / ∂ value²
    pull: jax.Array  # (T, m, D, M) P N k, P the covariance after it is seen


class Smoothed(NamedTuple):
    """States given all that is seen of their lanes."""

    mean: jax.Array  # (T, D, M)
    covariance: jax.Array  # (T, D, D, M)
    across: jax.Array  # (T, D, D, M) Cov(s_{t−1}, s_t); entry 0 is 0


def _outer(a: jax.Array, b: jax.Array) -> jax.Array:
    return a[..., :, None, :] * b[..., None, :, :]


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Matrix products lane by lane, (..., i, j, M), (..., j, k, M)."""
    return (a[..., :, :, None, :] * b[..., None, :, :, :]).sum(-3)


def applied(a: jax.Array, x: jax.Array) -> jax.Array:
    """Matrices on vectors lane by lane, (..., i, j, M), (..., j, M)."""
    return (a * x[..., None, :, :]).sum(-2)


def transposed(a: jax.Array) -> jax.Array:
    return jnp.swapaxes(a, -2, -3)


def _symmetric(a: jax.Array) -> jax.Array:
    return 0.5 * (a + transposed(a))


def _see(covariance: jax.Array, slope: jax.Array, variance: jax.Array, seen: jax.Array):
    """A number is seen: the covariance after it, its gain and the inverse of its variance."""
    reach = applied(covariance, slope)
    total = (slope * reach).sum(-2) + variance
    live = seen & (total > 0)
    total = jnp.where(live, total, 1.0)
    precision = jnp.where(live, 1.0 / total, 0.0)
    # of a number seen without noise exactly 1 at its own place, so that its variance is 0 behind it
    gain = jnp.where(live, reach / total, 0.0)
    left = covariance - _outer(gain, reach)
    left = left - _outer(applied(left, slope), gain) + variance * _outer(gain, gain)
    return _symmetric(left), gain, precision


def _looped(step, carry, xs, reverse: bool = False):
    """A scan over the numbers of a step."""
    count = len(jax.tree.leaves(xs)[0])
    return lax.scan(step, carry, xs, reverse=reverse,
                    unroll=max(count, 1) if count <= UNROLLED else 1)


def _over_time(system: System, names: tuple[str, ...], shift: int = 0):
    """What of a system varies along time, as a scan takes it, and the rest, so that both make a
    step's; `shift` steps ahead, the last one any."""
    own = {name: getattr(system, name) for name in names}
    timed = {name: jnp.concatenate([leaf[shift:], leaf[:shift]]) if shift else leaf
             for name, leaf in own.items() if leaf is not None and leaf.shape[0] > 1}
    fixed = {name: leaf[0] for name, leaf in own.items() if leaf is not None
             and name not in timed}
    return timed, fixed


SIGHT, MOVES = ("value", "slope", "variance", "seen"), ("transition", "offset", "noise")


def filtered(system: System) -> Filtered:
    """The forward pass."""
    sight, still = _over_time(system, SIGHT)
    moves, constant = _over_time(system, MOVES, 1)
    later = None if system.alive is None else jnp.roll(system.alive, -1, 0)
    steps, lanes = len(system.value), system.value.shape[-1]

    def see(carry, now):
        mean, covariance = carry
        value, slope, variance, seen = now
        covariance, gain, precision = _see(covariance, slope, variance, seen)
        gap = value - (slope * mean).sum(-2)
        wrong = seen & (precision == 0) & (jnp.abs(gap) > FLAT * (1 + jnp.abs(value)))
        gap = jnp.where(precision > 0, gap, 0.0)
        log = jnp.where(precision > 0, -0.5 * (gap**2 * precision + LOG_TWO_PI - jnp.log(
            jnp.where(precision > 0, precision, 1.0))), jnp.where(wrong, -jnp.inf, 0.0))
        return (mean + gain * gap, covariance), (gap * precision, precision, gain, log)

    def step(before, now):
        sight, moves, alive = now
        sight, moves = {**still, **sight}, {**constant, **moves}
        numbers = len(sight["value"])
        after, (error, precision, gain, log) = _looped(see, before, tuple(
            jnp.broadcast_to(sight[name], (numbers, *sight[name].shape[1:])) for name in SIGHT))
        mean = applied(moves["transition"], after[0]) + moves["offset"]
        covariance = _symmetric(product(product(moves["transition"], after[1]),
                                        transposed(moves["transition"])) + moves["noise"])
        if alive is not None:  # behind the end of a lane nothing grows
            mean = jnp.where(alive, mean, after[0])
            covariance = jnp.where(alive, covariance, after[1])
        return (mean, covariance), (before, after, error, precision, gain, log.sum(0))

    d = system.mean.shape[0]
    first = (jnp.broadcast_to(system.mean, (d, lanes)),
             jnp.broadcast_to(system.covariance, (d, d, lanes)))
    _, out = lax.scan(step, first, (sight, moves, later), length=steps)
    return Filtered(*out)


def adjoint(system: System, found: Filtered) -> Adjoint:
    """The backward pass."""
    names = ("slope", "variance", "seen")
    sight, still = _over_time(system, names)
    moves, constant = _over_time(system, ("transition",), 1)
    d, lanes = system.mean.shape[0], system.value.shape[-1]

    def unsee(carry, now):
        slope, covariance, error, precision, gain = now
        push, curve = carry
        weight = applied(curve, gain)
        own = error - (gain * push).sum(-2)
        bend = precision + (gain * weight).sum(-2)
        push = push + slope * own
        curve = curve - _outer(slope, weight) - _outer(weight, slope) + _outer(
            slope, slope) * bend
        return (push, _symmetric(curve)), (own, bend, applied(covariance, weight))

    def step(carry, now):
        sight, moves, covariance, error, precision, gain = now
        sight, moves = {**still, **sight}, {**constant, **moves}
        transition = moves["transition"]
        after = (applied(transposed(transition), carry[0]),
                 _symmetric(product(product(transposed(transition), carry[1]), transition)))
        numbers = len(error)
        slope, variance, seen = (jnp.broadcast_to(sight[name], (numbers, *sight[name].shape[1:]))
                                 for name in names)

        def again(covariance, now):
            covariance = _see(covariance, *now)[0]
            return covariance, covariance

        _, covariances = _looped(again, covariance, (slope, variance, seen))
        before, out = _looped(unsee, after, (slope, covariances, error, precision, gain), True)
        return before, (before, after, *out)

    zero = (jnp.zeros((d, lanes), system.value.dtype), jnp.zeros((d, d, lanes), system.value.dtype))
    _, out = lax.scan(step, zero, (sight, moves, found.before[1], found.error, found.precision,
                                   found.gain), reverse=True)
    return Adjoint(*out)


def smoothed(system: System) -> Smoothed:
    """The states given all that is seen."""
    found = filtered(system)
    back = adjoint(system, found)
    (mean, covariance), (push, curve) = found.after, back.after
    whole = covariance - product(product(covariance, curve), covariance)
    d = mean.shape[1]
    moved = product(covariance[:-1], transposed(_at(system.transition, 1)))
    eye = jnp.eye(d, dtype=mean.dtype)[:, :, None]
    across = product(moved, eye - product(back.before[1][1:], found.before[1][1:]))
    return Smoothed(mean + applied(covariance, push), _symmetric(whole),
                    jnp.concatenate([jnp.zeros_like(across, shape=(1, *whole.shape[1:])), across]))


def _at(leaf: jax.Array, first: int) -> jax.Array:
    """Entries along time from the first on; of what is the same at all times, that."""
    return leaf if len(leaf) == 1 else leaf[first:]


@jax.custom_vjp
def evidence(system: System) -> jax.Array:
    """log p(what is seen of each lane), (M,), in nats."""
    return filtered(system).log.sum(0)


def _forward(system: System):
    found = filtered(system)
    return found.log.sum(0), (system, found)


def _backward(kept: tuple[System, Filtered], share: jax.Array):
    system, found = kept
    back = adjoint(system, found)
    push, curve = back.before
    # of mean and covariance of the state before each step
    bend = 0.5 * (_outer(push, push) - curve)
    mean = found.after[0] + applied(found.after[1], back.after[0])
    moves = _outer(push[1:], mean[:-1]) - product(curve[1:], product(
        _at(system.transition, 1), found.after[1][:-1]))
    slope = back.error[..., None, :] * mean[:, None] - found.gain + back.pull
    variance = 0.5 * (back.error**2 - back.curvature)

    def of(leaf, gradient, later=False):
        if later:  # entry 0 is not used
            gradient = jnp.concatenate([jnp.zeros_like(gradient, shape=(1, *gradient.shape[1:])),
                                        gradient])
        gradient = jnp.where(share != 0, gradient * share, 0.0)
        axes = tuple(i for i, (own, size) in enumerate(zip(leaf.shape, gradient.shape,
                                                           strict=True)) if own != size)
        return gradient.sum(axes, keepdims=True).astype(leaf.dtype)

    live = found.precision > 0

    def where_seen(gradient):
        return jnp.where(live if gradient.ndim == live.ndim else live[..., None, :], gradient, 0.0)

    return (System(
        of(system.mean, push[0]), of(system.covariance, bend[0]),
        of(system.transition, moves, True), of(system.offset, push[1:], True),
        of(system.noise, bend[1:], True), of(system.value, where_seen(-back.error)),
        of(system.slope, where_seen(slope)), of(system.variance, where_seen(variance)),
        np.zeros(system.seen.shape, jax.dtypes.float0),
        None if system.alive is None else np.zeros(system.alive.shape, jax.dtypes.float0),
    ),)


evidence.defvjp(_forward, _backward)
