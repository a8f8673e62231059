"""Chains of many data sets in one program, advanced together."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.conjugate.side_by_side import stack_equal_shapes
from probml.engines.engine import Problem
from probml.engines.progress import Progress, Turn, iterate
from probml.engines.sampling import nuts_kernel as nuts
from probml.engines.sampling.states import with_states
from probml.engines.start import begin
from probml.evidence import density
from probml.numerics.compiling import jit
from probml.numerics.curvature import Frame
from probml.numerics.transfer import random_key
from probml.plan.plan import Plan
from probml.posteriors.drawn import Draws

if TYPE_CHECKING:
    from numpyro.infer.hmc import HMCState


def chain_each(problems: Sequence[Problem], settings: nuts.Settings, target_accept: float,
               draws: int, progress: bool) -> dict[int, dict[str, np.ndarray]]:
    """One chain a data set, all of them advanced together: number → the draws of its parameters,
    (draws, ...). The arguments are the settings of NUTS."""
    out, plan, seed = {}, problems[0].plan, problems[0].seed
    target = jnp.asarray(target_accept, jnp.result_type(float))
    loaded = [(problem.rows, problem.known) for problem in problems]
    total = settings.warmup + draws
    for members, (rows, known) in stack_equal_shapes(loaded):
        points = [begin.find_rough_mode(replace(problems[i], seed=seed + i)) for i in members]
        params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *points)
        keys = jax.random.split(random_key(seed), len(loaded))[jnp.asarray(members)]
        frames, states = _start_chains(plan, settings, params, known, rows, keys)
        trails: list[np.ndarray] = []

        def turn(done: int, known: Known = known, rows: Rows = rows, frames: Frame = frames,
                 trails: list[np.ndarray] = trails) -> Turn:
            nonlocal states
            count = min(nuts.HELD, total - done)
            states, trail = _advanced(plan, settings, frames, target, states, known, rows, count)
            trails.append(np.asarray(trail["z"])[:, :count])
            return Turn(count, float("nan"))

        with Progress("NUTS", total, progress) as bar:
            iterate(bar, total, turn)
        z = np.concatenate(trails, 1)[:, settings.warmup :]
        values = jax.device_get(_placed(plan, frames, known, z))
        for j, i in enumerate(members):
            single = Draws({name: value[j][None] for name, value in values.items()}, None, {})
            single = with_states(plan, single, loaded[i][1], loaded[i][0], seed + i)
            out[i] = {name: np.asarray(value)[0] for name, value in single.values.items()}
    return out


@functools.partial(jit, static_argnums=(0, 1))
def _start_chains(plan: Plan, settings: nuts.Settings, params: Mapping[str, jax.Array],
                  known: Known, rows: Rows, keys: jax.Array):
    def start_chain(params: Mapping[str, jax.Array], known: Known, rows: Rows, key: jax.Array):
        spread, first = jax.random.split(key)
        size = density.size(plan, known)
        begun = begin.find_mode_and_curvature(plan, begin.hyper(plan), params, known, rows,
                                              jax.random.normal(spread, (1, size)))
        frame, starts = begun.frame, begun.starts
        moved = starts._replace(u=frame.coordinates(starts.u), gradient=frame.pull(starts.gradient))
        states = nuts.begin_chains(plan, settings, frame, moved, first[None], known, rows)
        return begun.frame, jax.tree.map(lambda leaf: leaf[0], states)

    return jax.vmap(start_chain)(params, known, rows, keys)


@functools.partial(jit, static_argnums=(0, 1))
def _advanced(plan: Plan, settings: nuts.Settings, frames: Frame, target: jax.Array,
              states: "HMCState", known: Known, rows: Rows, count: jax.Array):
    return jax.vmap(lambda f, s, k, r: nuts.advance(plan, settings, f, target, s, k, r, count))(
        frames, states, known, rows
    )


@functools.partial(jit, static_argnums=0)
def _placed(plan: Plan, frames: Frame, known: Known, z: jax.Array):
    return jax.vmap(lambda f, k, z: jax.vmap(lambda z: density.unflat(plan, f.point(z), k)[0])(z))(
        frames, known, z
    )
