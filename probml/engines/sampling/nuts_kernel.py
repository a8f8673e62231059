"""NumPyro's no-U-turn sampler as compiled steps: its state at the start, and iterations of it."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows, Summary
from probml.evidence import density
from probml.numerics.compiling import ONCE, jit
from probml.numerics.curvature import Frame, Starts
from probml.numerics.process.inline_calls import traced_once
from probml.plan.plan import Plan

if TYPE_CHECKING:
    from numpyro.infer.hmc import HMCState

BLOCK = 256  # iterations of a device call, at most
LOOPS = 128  # passes over the rows in a call, relative to those of an optimisation, about
MANY_ITERATIONS = 4000  # of all chains, from which slower compilation to faster programs pays
# exponentials and logarithms of a density from which slower compilation to faster programs pays
MANY_TRANSCENDENTALS = 2**11
ANY_TARGET = 0.8  # acceptance probability of a state that takes no step yet


class Settings(NamedTuple):
    """Static arguments of the compiled sampler."""

    warmup: int
    max_tree_depth: int


def _sampler(plan: Plan):
    """NumPyro's functional NUTS, init and step, of a density with the data as arguments."""
    from numpyro.infer.hmc import hmc  # imported here since numpyro.infer is slow to import

    @traced_once  # though the sampler calls it in several places
    def both(frame: Frame, known: Known, rows: Rows, z: jax.Array):
        found = frame.transform(density.posterior(plan, known, rows))(z)
        return jax.tree.map(jnp.negative, found)

    def potential(frame: Frame, known: Known, rows: Rows):
        return density.differentiable(functools.partial(both, frame, known, rows))

    return hmc(potential_fn_gen=potential, algo="NUTS")


def _init(settings: Settings, init: Callable, target: jax.Array, z: jax.Array, value: jax.Array,
          gradient: jax.Array, key: jax.Array, arguments: tuple):
    from numpyro.infer.util import ParamInfo

    return init(
        ParamInfo(z, -value, -gradient),
        num_warmup=settings.warmup,
        target_accept_prob=target,
        max_tree_depth=settings.max_tree_depth,
        model_args=arguments,
        rng_key=key,
    )


# statistics of every draw
STATS = ("log_density", "energy", "diverging", "steps", "accept")


def advance(plan: Plan, settings: Settings, frame: Frame, target: jax.Array, state: "HMCState",
            known: Known, rows: Rows, count: jax.Array):
    """`count` iterations of one chain, at most BLOCK: its state, and its draws and statistics,
    padded with zeros.

    Args:
        target: acceptance probability, to which the step size is tuned in the warm-up.
    """
    init, step = _sampler(plan)
    arguments = (frame, known, rows)
    # sets the schedule of the warm-up
    _init(settings, init, target, state.z, -state.potential_energy, -state.z_grad, state.rng_key,
          arguments)

    def once(i: jax.Array, carry: tuple):
        state, trail = carry
        state = step(state, arguments)
        drawn = {
            "z": state.z,
            "log_density": -state.potential_energy,
            "energy": state.energy,
            "diverging": state.diverging,
            "steps": state.num_steps,
            "accept": state.accept_prob,
        }
        return state, jax.tree.map(lambda held, new: held.at[i].set(new), trail, drawn)

    dtype = state.z.dtype
    blank = {
        "z": jnp.zeros((BLOCK, state.z.size), dtype),
        "log_density": jnp.zeros(BLOCK, dtype),
        "energy": jnp.zeros(BLOCK, dtype),
        "diverging": jnp.zeros(BLOCK, bool),
        "steps": jnp.zeros(BLOCK, state.num_steps.dtype),
        "accept": jnp.zeros(BLOCK, dtype),
    }
    return jax.lax.fori_loop(0, count, once, (state, blank))


@jit(static_argnums=(0, 1), seldom=ONCE)
def initial_states(plan: Plan, settings: Settings, frame: Frame, starts: Starts, key: jax.Array,
          known: Known, rows: Rows):
    """The sampler's state of every chain; a start without density is replaced by the best of the
    others.

    Args:
        starts: in the frame's coordinates.
    """
    init, _ = _sampler(plan)
    z, values, gradients = starts
    good = jnp.isfinite(values) & jnp.all(jnp.isfinite(gradients), 1)
    best = jnp.argmax(jnp.where(good, values, -jnp.inf))
    index = jnp.where(good, jnp.arange(len(z)), best)
    return jax.lax.map(
        lambda at: _init(settings, init, ANY_TARGET, at[0], at[1], at[2], at[3],
                         (frame, known, rows)),
        (z[index], values[index], gradients[index], jax.random.split(key, len(z)))
    )


def advance_all(plan: Plan, settings: Settings, frame: Frame, target: jax.Array,
                states: "HMCState", known: Known, rows: Rows, count: jax.Array):
    """`advance` for all chains at once."""
    return rows.vmap_copies(
        lambda state: advance(plan, settings, frame, target, state, known, rows, count), states)


def before_warmup(state: "HMCState"):
    """A state, on the host, from which the warm-up runs again with its position, step size and mass
    matrix."""
    adapted = state.adapt_state
    *averages, centre = adapted.ss_state
    centre = np.log(10 * np.asarray(adapted.step_size)).astype(centre.dtype)
    return state._replace(
        i=np.zeros_like(state.i),
        mean_accept_prob=np.zeros_like(state.mean_accept_prob),
        adapt_state=adapted._replace(
            ss_state=(*map(np.zeros_like, averages), centre),
            mm_state=jax.tree.map(np.zeros_like, adapted.mm_state),
            window_idx=np.zeros_like(adapted.window_idx)),
    )


_QUICK, _OFTEN, _LONG = (
    [jit(f, static_argnums=(0, 1), loops=LOOPS, steps=True, often=often, long=long)
     for f in (advance, advance_all)]
    for often, long in ((False, False), (True, False), (False, True)))


def programs(plan: Plan, rows: Rows | Summary, iterations: int) -> list[Callable]:
    """`advance` and `advance_all`, compiled with as much effort as pays for so many iterations of
    all chains: a longer compilation vectorizes the exponentials of rows."""
    transcendentals = 0 if plan.chains or not plan.variables else (
        rows.chunks * rows.size * max(plan.work, 2 if plan.ordered else 0))
    if transcendentals >= MANY_TRANSCENDENTALS:
        return _LONG
    return _OFTEN if iterations >= MANY_ITERATIONS else _QUICK
