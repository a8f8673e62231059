"""NumPyro's no-U-turn sampler as compiled steps: its state at the start, and iterations of it."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows, Summary
from probml.evidence import density
from probml.numerics.compile_effort import ONCE
from probml.numerics.compiling import jit
from probml.numerics.curvature import Frame, Starts
from probml.numerics.process.inline_calls import traced_once
from probml.plan.plan import Plan

HELD = 256  # iterations a device call holds at the most
LOOPS = 128  # passes in a call of the sampler for one in an ascent, about
MANY = 4000  # iterations of all chains from which on a slower compilation to quicker ones pays
LASTS = 2**11  # exponentials of a density from which a slower compilation to quicker ones pays


TARGET = 0.8  # acceptance probability, where none matters: in a state that takes no step yet


class Settings(NamedTuple):
    """What a compiled sampler depends on."""

    warmup: int
    max_tree_depth: int


def _sampler(settings: Settings, plan: Plan, frame: Frame):
    """NumPyro's functional NUTS, whose density takes the data as arguments: init and step."""
    from numpyro.infer.hmc import hmc  # late: the inference part of NumPyro is slow to import

    @traced_once  # for all places where the sampler asks
    def both(frame, known, rows, z):
        found = frame.transform(density.posterior(plan, known, rows))(z)
        return jax.tree.map(jnp.negative, found)

    def potential(frame, known, rows):
        return density.differentiable(functools.partial(both, frame, known, rows))

    return hmc(potential_fn_gen=potential, algo="NUTS")


def _init(settings: Settings, init, target, z, value, gradient, key, arguments):
    from numpyro.infer.util import ParamInfo

    return init(
        ParamInfo(z, -value, -gradient),
        num_warmup=settings.warmup,
        target_accept_prob=target,
        max_tree_depth=settings.max_tree_depth,
        model_args=arguments,
        rng_key=key,
    )


# what is said of every draw, beside the draw itself
SAID = ("log_density", "energy", "diverging", "steps", "accept")


def advance(plan: Plan, settings: Settings, frame: Frame, target, state, known: Known, rows: Rows,
            count):
    """`count` iterations of one chain, at most HELD: its state, and what was drawn, the rest
    blank.

    Args:
        target: the acceptance probability that the step size is tuned to in the warm-up.
    """
    init, step = _sampler(settings, plan, frame)
    arguments = (frame, known, rows)
    # sets the schedule of the warm-up
    _init(settings, init, target, state.z, -state.potential_energy, -state.z_grad, state.rng_key,
          arguments)

    def once(i, carry):
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
        "z": jnp.zeros((HELD, state.z.size), dtype),
        "log_density": jnp.zeros(HELD, dtype),
        "energy": jnp.zeros(HELD, dtype),
        "diverging": jnp.zeros(HELD, bool),
        "steps": jnp.zeros(HELD, state.num_steps.dtype),
        "accept": jnp.zeros(HELD, dtype),
    }
    return jax.lax.fori_loop(0, count, once, (state, blank))


@functools.partial(jit, static_argnums=(0, 1), seldom=ONCE)
def first(plan: Plan, settings: Settings, frame: Frame, starts: Starts, key, known: Known,
          rows: Rows):
    """The sampler's state of every chain, each with a key of its own; a start without density goes
    to the best of the others.

    Args:
        starts: in the frame's coordinates.
    """
    init, _ = _sampler(settings, plan, frame)
    z, values, gradients = starts
    good = jnp.isfinite(values) & jnp.all(jnp.isfinite(gradients), 1)
    best = jnp.argmax(jnp.where(good, values, -jnp.inf))
    index = jnp.where(good, jnp.arange(len(z)), best)
    return jax.lax.map(
        lambda at: _init(settings, init, TARGET, *at, (frame, known, rows)),
        (z[index], values[index], gradients[index], jax.random.split(key, len(z)))
    )


def advance_all(plan: Plan, settings: Settings, frame: Frame, target, states, known: Known,
                rows: Rows, count):
    """The same of all chains at once."""
    return rows.vmap_copies(
        lambda state: advance(plan, settings, frame, target, state, known, rows, count), states)


def before_warmup(state):
    """A state on the host from which the warm-up is run anew, from its position, step size and
    masses."""
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


def rows_work(plan: Plan, rows: Rows | Summary) -> int:
    """Exponentials and logarithms of one density, about: those of the rows, which may be compiled
    to vectors of them."""
    if plan.chains or not plan.variables:
        return 0
    return rows.chunks * rows.size * max(plan.work, 2 if plan.ordered else 0)


QUICK, OFTEN, LASTING = (
    [functools.partial(jit, static_argnums=(0, 1), loops=LOOPS, steps=True, **how)(f)
     for f in (advance, advance_all)] for how in ({}, {"often": True}, {"long": True}))
