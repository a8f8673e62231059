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

Layout: time first, the lanes last, (T, D, D, M); what is the same at all times, or in all lanes,
has size 1 there. So all is elementwise over lanes. Values do not enter covariances and gains:
sequences that are seen at the same steps share one recursion of them, of one lane. Long sequences
are cut into blocks, one lane each, lane = sequence · B + block, which are filtered at once (Särkkä
& García-Fernández 2021): a block's filter begun from a known state, its mean a matrix on that
state, tells what the block says of its entry and where it leads (blocks.py).

Cost: O(D³ + m D²) a step and lane, m numbers seen; memory of T · D² · M numbers. Where covariances
are shared, O(D² + m D) a step and lane, and T · D · M numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from probml.numerics.logs import LOG_TWO_PI

FLAT = 1e-4  # relative distance at which what has no variance is seen elsewhere: impossible
UNROLLED = 4  # numbers of a step that are seen one after the other without a loop


@dataclass(frozen=True)
class System:
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
    seen: jax.Array  # bool (T or 1, m, M or 1)
    alive: jax.Array | None  # bool (T, M or 1), the first steps of a sequence that count; None: all
    blocks: int = 1  # B

    @property
    def is_lane_invariant(self) -> bool:
        """Whether lanes that begin with the same covariance keep the same covariances: nothing that
        moves them differs between lanes."""
        moved = (self.transition, self.noise, self.slope, self.variance, self.seen, self.alive)
        return all(leaf is None or leaf.shape[-1] == 1 for leaf in moved)

    @property
    def shared(self) -> bool:
        """Whether all lanes have the same covariances."""
        return self.is_lane_invariant and self.blocks == 1 and self.covariance.shape[-1] == 1


jax.tree_util.register_dataclass(
    System, meta_fields=["blocks"], data_fields=[
        "mean", "covariance", "transition", "offset", "noise", "value", "slope", "variance",
        "seen", "alive"])


def about(system: System, centre: jax.Array) -> System:
    """The same in states less `centre`, (D, M or 1)."""
    moved = applied(system.transition, centre[None]) - centre
    return replace(system, mean=system.mean - centre, offset=system.offset + moved,
                   value=system.value - applied(system.slope, centre[None]))


State = tuple[jax.Array, jax.Array]  # (D, M), (D, D, M): mean and covariance, or λ and N


class Filtered(NamedTuple):
    """The forward pass: predicted states, filtered ones, and of each number seen its innovation
    over its variance, the inverse of that, and its gain."""

    before: State  # with the axis of time first; covariances that lanes share have one lane
    after: State
    error: jax.Array  # (T, m, M)
    precision: jax.Array  # (T, m, M or 1)
    gain: jax.Array  # (T, m, D, M or 1)
    log: jax.Array  # (T, M) log p(what is seen at t | before)


class Adjoint(NamedTuple):
    """The backward pass: λ and N of the predicted and of the filtered states, and of each number
    seen."""

    before: State  # with the axis of time first
    after: State
    error: jax.Array  # (T, m, M) E[ν | all] / r
    curvature: jax.Array  # (T, m, M or 1) −∂² log p / ∂ value²
    pull: jax.Array  # (T, m, D, M or 1) P N k, P the covariance after it is seen


class Smoothed(NamedTuple):
    """States given all that is seen of their lanes."""

    mean: jax.Array  # (T, D, M)
    covariance: jax.Array  # (T, D, D, M), or of one lane where lanes share it
    across: jax.Array  # the same: Cov(s_{t−1}, s_t); entry 0 is 0


def outer(a: jax.Array, b: jax.Array) -> jax.Array:
    return a[..., :, None, :] * b[..., None, :, :]


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Matrix products lane by lane, (..., i, j, M), (..., j, k, M)."""
    return (a[..., :, :, None, :] * b[..., None, :, :, :]).sum(-3)


def applied(a: jax.Array, x: jax.Array) -> jax.Array:
    """Matrices on vectors lane by lane, (..., i, j, M), (..., j, M)."""
    return (a * x[..., None, :, :]).sum(-2)


def transposed(a: jax.Array) -> jax.Array:
    return jnp.swapaxes(a, -2, -3)


def symmetric(a: jax.Array) -> jax.Array:
    return 0.5 * (a + transposed(a))


def see(covariance: jax.Array, slope: jax.Array, variance: jax.Array, seen: jax.Array):
    """A number is seen: the covariance after it, its gain and the inverse of its variance."""
    reach = applied(covariance, slope)
    total = (slope * reach).sum(-2) + variance
    live = seen & (total > 0)
    total = jnp.where(live, total, 1.0)
    precision = jnp.where(live, 1.0 / total, 0.0)
    # of a number seen without noise exactly 1 at its own place, so that its variance is 0 behind it
    gain = jnp.where(live, reach / total, 0.0)
    left = covariance - outer(gain, reach)
    left = left - outer(applied(left, slope), gain) + variance * outer(gain, gain)
    return symmetric(left), gain, precision


def looped(step: Callable, carry: object, xs: tuple, reverse: bool = False):
    """A scan over the numbers of a step."""
    count = len(jax.tree.leaves(xs)[0])
    return lax.scan(step, carry, xs, reverse=reverse,
                    unroll=max(count, 1) if count <= UNROLLED else 1)


def following(leaf: jax.Array, lanes: int = -1) -> jax.Array:
    """What comes a step later, (T, ..., M): behind a block the next lane's first, behind a sequence
    any.

    Args:
        lanes: their axis.
    """
    return jnp.concatenate([leaf[1:], jnp.roll(leaf[:1], -1, lanes)])


def previous(leaf: jax.Array, lanes: int = -1) -> jax.Array:
    """What was a step before; before a sequence any."""
    return jnp.concatenate([jnp.roll(leaf[-1:], 1, lanes), leaf[:-1]])


def sequence_starts(steps: int, lanes: int, blocks: int) -> np.ndarray:
    """Whether a step is the first of its sequence, (T, M)."""
    return (np.arange(steps) == 0)[:, None] & (np.arange(lanes) % blocks == 0)


def over_time(system: System, names: tuple[str, ...], later: bool = False):
    """What of a system varies along time, as a scan takes it, and the rest, so that both make a
    step's, or the step's after it."""
    own = {name: getattr(system, name) for name in names}
    timed = {name: following(leaf) if later else leaf
             for name, leaf in own.items() if leaf.shape[0] > 1}
    return timed, {name: leaf[0] for name, leaf in own.items() if name not in timed}


SIGHT, MOVES = ("value", "slope", "variance", "seen"), ("transition", "offset", "noise")


def filtered(system: System, start: State | None = None) -> Filtered:
    """The forward pass.

    Args:
        start: the states before each lane's first step; by default those of sequences.
    """
    sight, still = over_time(system, SIGHT)
    moves, constant = over_time(system, MOVES, True)
    later = None if system.alive is None else following(system.alive)
    steps = len(system.value)

    def measurement_update(carry: tuple, now: tuple):
        mean, covariance = carry
        value, slope, variance, seen = now
        covariance, gain, precision = see(covariance, slope, variance, seen)
        gap = value - (slope * mean).sum(-2)
        wrong = seen & (precision == 0) & (jnp.abs(gap) > FLAT * (1 + jnp.abs(value)))
        gap = jnp.where(precision > 0, gap, 0.0)
        log = jnp.where(precision > 0, -0.5 * (gap**2 * precision + LOG_TWO_PI - jnp.log(
            jnp.where(precision > 0, precision, 1.0))), jnp.where(wrong, -jnp.inf, 0.0))
        return (mean + gain * gap, covariance), (gap * precision, precision, gain, log)

    def step(before: tuple, now: tuple):
        sight, moves, alive = now
        sight, moves = {**still, **sight}, {**constant, **moves}
        numbers = len(sight["value"])
        after, (error, precision, gain, log) = looped(measurement_update, before, tuple(
            jnp.broadcast_to(sight[name], (numbers, *sight[name].shape[1:])) for name in SIGHT))
        mean = applied(moves["transition"], after[0]) + moves["offset"]
        covariance = symmetric(product(product(moves["transition"], after[1]),
                                        transposed(moves["transition"])) + moves["noise"])
        if alive is not None:  # behind the end of a lane nothing grows
            mean = jnp.where(alive, mean, after[0])
            covariance = jnp.where(alive, covariance, after[1])
        return (mean, covariance), (before, after, error, precision, gain, log.sum(0))

    _, out = lax.scan(step, first(system) if start is None else start, (sight, moves, later),
                      length=steps)
    return Filtered(*out)


def first(system: System) -> State:
    """The states with which sequences begin, one a lane; one covariance where lanes share it."""
    d, lanes = system.mean.shape[0], system.value.shape[-1]
    return (jnp.broadcast_to(system.mean, (d, lanes)),
            jnp.broadcast_to(system.covariance, (d, d, 1 if system.shared else lanes)))


def adjoint(system: System, found: Filtered, end: State | None = None) -> Adjoint:
    """The backward pass.

    Args:
        end: λ and N behind each lane's last step; by default 0, as behind sequences.
    """
    names = ("slope", "variance", "seen")
    sight, still = over_time(system, names)
    moves, constant = over_time(system, ("transition",), True)
    d, lanes = system.mean.shape[0], system.value.shape[-1]

    def unsee(carry: tuple, now: tuple):
        slope, covariance, error, precision, gain = now
        push, curve = carry
        weight = applied(curve, gain)
        own = error - (gain * push).sum(-2)
        bend = precision + (gain * weight).sum(-2)
        push = push + slope * own
        curve = curve - outer(slope, weight) - outer(weight, slope) + outer(
            slope, slope) * bend
        return (push, symmetric(curve)), (own, bend, applied(covariance, weight))

    def step(carry: tuple, now: tuple):
        sight, moves, covariance, error, precision, gain = now
        sight, moves = {**still, **sight}, {**constant, **moves}
        transition = moves["transition"]
        after = (applied(transposed(transition), carry[0]),
                 symmetric(product(product(transposed(transition), carry[1]), transition)))
        numbers = len(error)
        slope, variance, seen = (jnp.broadcast_to(sight[name], (numbers, *sight[name].shape[1:]))
                                 for name in names)

        def again(covariance: jax.Array, now: tuple):
            covariance = see(covariance, *now)[0]
            return covariance, covariance

        _, covariances = looped(again, covariance, (slope, variance, seen))
        before, out = looped(unsee, after, (slope, covariances, error, precision, gain), True)
        return before, (before, after, *out)

    zero = (jnp.zeros((d, lanes), system.value.dtype), jnp.zeros_like(found.before[1][0]))
    _, out = lax.scan(step, zero if end is None else end,
                      (sight, moves, found.before[1], found.error, found.precision, found.gain),
                      reverse=True)
    return Adjoint(*out)
