"""Kalman's filter and its adjoint, the smoother, for many sequences at once.

States s_t of D numbers move by s_t = A_t s_{t−1} + b_t + ε, ε ~ N(0, Q_t). The measurements of a
step, y = cᵀ s + ν, ν ~ N(0, r), are processed one after the other (Koopman & Durbin 2000): so
nothing is factored or solved, missing ones are skipped, and Q, the first covariance and r may be
singular or 0. The filter updates in Joseph's form, whose rounding is not magnified where a prior is
wide.

Backwards, λ and N are the gradient and minus the Hessian of log p(all measurements) in the mean of
a state (de Jong 1989; Durbin & Koopman 2012, sections 4.4–4.5). Since the density is a normal
convolved,

    ∂ log p / ∂ mean = λ,   ∂ log p / ∂ covariance = ½ (λ λᵀ − N),

and the smoothed states are f + F λ and F − F N F, F the filtered covariance: without any inverse.
So the gradient of the evidence in everything that enters it comes with the smoother, in one pass.

Layout: time first, the lanes last, (T, D, D, M); what is the same at all times, or in all lanes,
has size 1 there. So all is elementwise over lanes. Values do not enter covariances and gains:
sequences that are observed at the same steps share one recursion of them, of one lane. Long
sequences are cut into blocks, one lane each, lane = sequence · B + block, which are filtered at
once (blocks.py).

Cost: O(D³ + m D²) a step and lane, m measurements a step; memory of T · D² · M numbers. Where
covariances are shared, O(D² + m D) a step and lane, and T · D · M numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from probml.numerics.logs import LOG_TWO_PI
from probml.typing import PyTree

FLAT = 1e-4  # relative distance from its mean at which a value without variance is impossible
UNROLLED = 4  # measurements of a step up to which their loop is unrolled


@dataclass(frozen=True)
class System:
    """Linear Gaussian chains and their m measurements a step; see the top of this file.

    Entry t of `transition`, `offset` and `noise` leads into step t; entry 0 is not used.
    """

    mean: jax.Array  # (D, M) of the first state
    covariance: jax.Array  # (D, D, M)
    transition: jax.Array  # (T or 1, D, D, M or 1)
    offset: jax.Array  # (T or 1, D, M or 1)
    noise: jax.Array  # (T or 1, D, D, M or 1)
    value: jax.Array  # (T, m, M) less the location at s = 0; any number where missing
    slope: jax.Array  # (T or 1, m, D, M or 1)
    variance: jax.Array  # (T or 1, m, M or 1)
    observed: jax.Array  # bool (T or 1, m, M or 1)
    alive: jax.Array | None  # bool (T, M or 1), the first steps of a sequence that count; None: all
    blocks: int = 1  # B

    @property
    def is_lane_invariant(self) -> bool:
        """Whether lanes that begin with the same covariance keep the same covariances: nothing that
        moves them differs between lanes."""
        leaves = (self.transition, self.noise, self.slope, self.variance, self.observed, self.alive)
        return all(leaf is None or leaf.shape[-1] == 1 for leaf in leaves)

    @property
    def shared(self) -> bool:
        """Whether all lanes have the same covariances."""
        return self.is_lane_invariant and self.blocks == 1 and self.covariance.shape[-1] == 1


jax.tree_util.register_dataclass(
    System, meta_fields=["blocks"], data_fields=[
        "mean", "covariance", "transition", "offset", "noise", "value", "slope", "variance",
        "observed", "alive"])


def centred(system: System, centre: jax.Array) -> System:
    """The same chains in coordinates s − centre, (D, M or 1)."""
    shift = apply(system.transition, centre[None]) - centre
    return replace(system, mean=system.mean - centre, offset=system.offset + shift,
                   value=system.value - apply(system.slope, centre[None]))


State = tuple[jax.Array, jax.Array]  # (D, M), (D, D, M): mean and covariance, or λ and N


class Filtered(NamedTuple):
    """The forward pass."""

    predicted: State  # predicted, time first; covariances that lanes share have one lane
    filtered: State  # filtered
    error: jax.Array  # (T, m, M) innovations over their variances
    precision: jax.Array  # (T, m, M or 1) of innovations; 0 of missing measurements
    gain: jax.Array  # (T, m, D, M or 1)
    log: jax.Array  # (T, M) log p(measurements of t | those before)


class Adjoint(NamedTuple):
    """The backward pass."""

    predicted: State  # λ and N of predicted states, time first
    filtered: State  # of filtered ones
    error: jax.Array  # (T, m, M) E[ν | all] / r
    curvature: jax.Array  # (T, m, M or 1) −∂² log p / ∂ value²
    cov_gain: jax.Array  # (T, m, D, M or 1) P N k, P the covariance after the measurement


class Smoothed(NamedTuple):
    """States given all measurements of their lanes."""

    mean: jax.Array  # (T, D, M)
    covariance: jax.Array  # (T, D, D, M), or of one lane where lanes share it
    across: jax.Array  # the same: Cov(s_{t−1}, s_t); entry 0 is 0


def outer(a: jax.Array, b: jax.Array) -> jax.Array:
    return a[..., :, None, :] * b[..., None, :, :]


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Matrix products lane by lane, (..., i, j, M), (..., j, k, M)."""
    return (a[..., :, :, None, :] * b[..., None, :, :, :]).sum(-3)


def apply(a: jax.Array, x: jax.Array) -> jax.Array:
    """Matrices on vectors lane by lane, (..., i, j, M), (..., j, M)."""
    return (a * x[..., None, :, :]).sum(-2)


def transpose(a: jax.Array) -> jax.Array:
    return jnp.swapaxes(a, -2, -3)


def symmetric(a: jax.Array) -> jax.Array:
    return 0.5 * (a + transpose(a))


class Measurement(NamedTuple):
    """The measurements of a step, leading with m, or one of them; as of a System."""

    value: jax.Array
    slope: jax.Array
    variance: jax.Array
    observed: jax.Array


class Move(NamedTuple):
    """From a step to the next; as of a System. `alive`: whether the next counts."""

    transition: jax.Array
    offset: jax.Array
    noise: jax.Array
    alive: jax.Array | None

    def ahead(self, state: State) -> State:
        """The predicted state of the next step; behind the end of a sequence nothing changes."""
        mean = apply(self.transition, state[0]) + self.offset
        covariance = symmetric(product(product(self.transition, state[1]),
                                       transpose(self.transition)) + self.noise)
        return self.where_alive(mean, state[0]), self.where_alive(covariance, state[1])

    def where_alive(self, new: jax.Array, old: jax.Array) -> jax.Array:
        return new if self.alive is None else jnp.where(self.alive, new, old)


def scan_steps(system: System, step: Callable, carry: PyTree, *along: PyTree,
               reverse: bool = False):
    """A scan over time of step(carry, its measurements, the move to the next step, *along) →
    (carry, kept); leaves of `along` lead with T."""
    obs = (system.value, system.slope, system.variance, system.observed)
    moves = (system.transition, system.offset, system.noise)
    # the scan takes what varies along time alone
    varying = [leaf if len(leaf) > 1 else None for leaf in obs]
    varying += [following(leaf) if len(leaf) > 1 else None for leaf in moves]
    alive = None if system.alive is None else following(system.alive)

    def at(carry: PyTree, xs: tuple):
        leaves, alive, along = xs
        vals = [constant[0] if leaf is None else leaf
                for constant, leaf in zip((*obs, *moves), leaves, strict=True)]
        return step(carry, Measurement(*vals[:4]), Move(vals[4], vals[5], vals[6], alive), *along)

    return lax.scan(at, carry, (varying, alive, along), length=len(system.value), reverse=reverse)


def scan_measurements(function: Callable, carry: PyTree, xs: PyTree, reverse: bool = False):
    """A scan over the measurements of a step."""
    count = len(jax.tree.leaves(xs)[0])
    return lax.scan(function, carry, xs, reverse=reverse,
                    unroll=max(count, 1) if count <= UNROLLED else 1)


def update_covariance(covariance: jax.Array,
                      obs: Measurement) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The covariance after a measurement, its gain and the precision of its innovation."""
    cov_slope = apply(covariance, obs.slope)
    total_var = (obs.slope * cov_slope).sum(-2) + obs.variance
    is_usable = obs.observed & (total_var > 0)
    total_var = jnp.where(is_usable, total_var, 1.0)
    precision = jnp.where(is_usable, 1.0 / total_var, 0.0)
    # of a measurement without noise exactly 1 at its own place, so that its variance is 0 behind it
    gain = jnp.where(is_usable, cov_slope / total_var, 0.0)
    reduced = covariance - outer(gain, cov_slope)
    reduced = reduced - outer(apply(reduced, obs.slope), gain) + obs.variance * outer(gain, gain)
    return symmetric(reduced), gain, precision


def update(state: State, obs: Measurement) -> tuple[State, tuple]:
    """The state after a measurement, and of this the innovation over its variance, the inverse of
    that, the gain and the log density."""
    mean, covariance = state
    covariance, gain, precision = update_covariance(covariance, obs)
    innovation = obs.value - (obs.slope * mean).sum(-2)
    misfit = obs.observed & (precision == 0) & (jnp.abs(innovation) > FLAT
                                                * (1 + jnp.abs(obs.value)))
    innovation = jnp.where(precision > 0, innovation, 0.0)
    log = jnp.where(precision > 0, -0.5 * (innovation**2 * precision + LOG_TWO_PI - jnp.log(
        jnp.where(precision > 0, precision, 1.0))), jnp.where(misfit, -jnp.inf, 0.0))
    return (mean + gain * innovation, covariance), (innovation * precision, precision, gain, log)


def following(leaf: jax.Array, lanes: int = -1) -> jax.Array:
    """The array one step later, (T, ..., M): behind a block the next lane's first step, behind a
    sequence anything.

    Args:
        lanes: their axis.
    """
    return jnp.concatenate([leaf[1:], jnp.roll(leaf[:1], -1, lanes)])


def previous(leaf: jax.Array, lanes: int = -1) -> jax.Array:
    """The array one step before; before a sequence anything."""
    return jnp.concatenate([jnp.roll(leaf[-1:], 1, lanes), leaf[:-1]])


def sequence_starts(steps: int, lanes: int, blocks: int) -> np.ndarray:
    """Whether a step is the first of its sequence, (T, M)."""
    return (np.arange(steps) == 0)[:, None] & (np.arange(lanes) % blocks == 0)


def filtered(system: System, start: State | None = None) -> Filtered:
    """The forward pass.

    Args:
        start: the states before each lane's first step; by default those of sequences.
    """
    def step(before: State, obs: Measurement, move: Move):
        after, (error, precision, gain, log) = scan_measurements(update, before, obs)
        return move.ahead(after), (before, after, error, precision, gain, log.sum(0))

    return Filtered(*scan_steps(system, step, first(system) if start is None else start)[1])


def first(system: System) -> State:
    """The states with which sequences begin, one a lane; one covariance where lanes share it."""
    d, lanes = system.mean.shape[0], system.value.shape[-1]
    return (jnp.broadcast_to(system.mean, (d, lanes)),
            jnp.broadcast_to(system.covariance, (d, d, 1 if system.shared else lanes)))


def adjoint(system: System, fwd: Filtered, end: State | None = None,
            keeps: bool = True) -> tuple[State, Adjoint | None]:
    """The backward pass: λ and N of each lane's first predicted state; and, where it `keeps` them,
    those of all steps.

    Args:
        end: λ and N behind each lane's last step; by default 0, as behind sequences.
    """
    def undo(carry: State, xs: tuple):
        slope, covariance, error, precision, gain = xs
        score, info = carry
        weight = apply(info, gain)
        residual = error - (gain * score).sum(-2)
        curvature = precision + (gain * weight).sum(-2)
        score = score + slope * residual
        info = info - outer(slope, weight) - outer(weight, slope) + outer(
            slope, slope) * curvature
        return (score, symmetric(info)), (residual, curvature, apply(covariance, weight))

    def step(carry: State, obs: Measurement, move: Move, covariance: jax.Array,
             error: jax.Array, precision: jax.Array, gain: jax.Array):
        transition_t = transpose(move.transition)
        after = apply(transition_t, carry[0]), symmetric(product(product(transition_t, carry[1]),
                                                                 move.transition))

        def again(covariance: jax.Array, obs: Measurement):
            covariance = update_covariance(covariance, obs)[0]
            return covariance, covariance

        _, covariances = scan_measurements(again, covariance, obs)
        before, out = scan_measurements(undo, after, (obs.slope, covariances, error, precision,
                                                      gain), True)
        return before, (before, after, *out) if keeps else None

    start, per_step = scan_steps(system, step, nothing_behind(system, fwd) if end is None else end,
                                 fwd.predicted[1], fwd.error, fwd.precision, fwd.gain, reverse=True)
    return start, None if per_step is None else Adjoint(*per_step)


def nothing_behind(system: System, fwd: Filtered) -> State:
    """λ and N behind the ends of sequences: 0."""
    return (jnp.zeros((system.mean.shape[0], system.value.shape[-1]), system.value.dtype),
            jnp.zeros_like(fwd.predicted[1][0]))
