"""Chains of the no-U-turn sampler on compiled steps: run, and run again with smaller steps, with
the programs of the first time."""

import os
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.engine import Status
from probml.engines.progress import Loop, Progress, Turn, in_threads, iterate
from probml.engines.sampling import nuts_kernel as kernel
from probml.engines.sampling.nuts_kernel import HELD, SAID
from probml.numerics.curvature import Frame, Starts
from probml.numerics.outside.checkpoint import Grown
from probml.numerics.transfer import random_key, rows_of
from probml.plan.plan import Plan

PAUSE = 0.5  # seconds a device call should take: progress shows and Ctrl-C works in between


class Limit(NamedTuple):
    """When chains stop before they have made all their iterations."""

    deadline: float = np.inf  # on time.monotonic()'s clock
    gradients: float = np.inf  # of each chain


class Run(NamedTuple):
    """What chains did."""

    states: list  # of each chain, or one of all
    z: np.ndarray  # (chains, draws, d) after the warm-up
    stats: dict[str, np.ndarray]  # what the sampler says of each draw, (chains, draws)
    iterations: int  # that every chain made, the warm-up included
    gradients: float  # the most that a chain took for them


class Chains:
    """Chains of one density in the coordinates of one frame.

    Every run takes the same compiled programs: the number of iterations and the acceptance
    probability to which the step size is tuned are their arguments.
    """

    def __init__(self, plan: Plan, frame: Frame, known: Known, rows: Rows,
                 settings: kernel.Settings, count: int, draws: int, method: str | None):
        """Args: count: of chains. draws: that a chain is to keep. method: NUTS.chain_method."""
        self.plan, self.frame, self.known, self.rows = plan, frame, known, rows
        self.settings, self.count = settings, count
        method = method or ("parallel" if rows.lanes == 1
                            and jax.default_backend() == "cpu" else "vectorized")
        if rows.joint and method == "parallel":
            method = "sequential"  # devices would meet in the passes of different chains
        self.together = method == "vectorized"
        self.workers = min(count, os.cpu_count() or 1) if method == "parallel" else 1
        total = (settings.warmup + draws) * count
        programs = (kernel.LASTING if kernel.rows_work(plan, rows) >= kernel.LASTS
                    else kernel.OFTEN if total >= kernel.MANY else kernel.QUICK)
        self.advance = programs[self.together]

    def begin(self, starts: Starts, seed: int) -> list:
        """The states of chains that begin at these points of the parameters' coordinates."""
        frame = self.frame
        # on the host: no program of theirs has to know how systems are solved
        moved = Starts(frame.inverse(starts.u), starts.value, frame.pull(starts.gradient))
        states = kernel.first(self.plan, self.settings, frame, moved, random_key(seed), self.known,
                              self.rows)
        return [states] if self.together else self._split_chains(states)

    def _split_chains(self, states: Any) -> list:
        """The states of each chain by itself."""
        leaves, treedef = jax.tree.flatten(states)
        held = [rows_of(leaf) for leaf in leaves]
        return [jax.tree.unflatten(treedef, [leaf[c] for leaf in held])
                for c in range(self.count)]

    def again(self, states: list, places: np.ndarray) -> list:
        """The states before a new warm-up, each with random numbers of its own.

        Args:
            places: (chains,) the chain from whose position, step size and masses each goes on.
        """
        if self.together:
            (state,) = states
            return [_going_on(state, _on_host(state, places))]
        return [_going_on(state, _on_host(states[at]))
                for state, at in zip(states, places, strict=True)]

    def run(self, bar: Progress, states: list, target: float, draws: int, limit: Limit) -> Run:
        """A warm-up and so many draws a chain, or as many as every chain made within the limit."""
        total, axis = self.settings.warmup + draws, 1 if self.together else 0
        lanes = self.count if self.together else 1
        target = np.asarray(target, jnp.result_type(float))

        def walk(chain):
            number, state = chain
            lead = np.shape(state.num_steps)  # chains, where they go together
            drawn = dict.fromkeys(SAID, (*lead, None)) | {
                "z": (*lead, None, np.shape(state.z)[-1])}
            loop = Loop(state, out=Grown(drawn, 0))
            # a first iteration may take 2^depth gradients: who knows how long they are?
            out, size, spent = loop.lists["out"], 1, 0

            def turn(done: int) -> Turn:
                nonlocal size, spent
                count = min(size, HELD, total - done)
                began = time.perf_counter()
                loop.state, trail = self.advance(self.plan, self.settings, self.frame, target,
                                                 loop.state, self.known, self.rows, count)
                keep = (slice(None),) * axis + (slice(count),)
                out.append(jax.tree.map(lambda leaf: np.asarray(leaf)[keep], trail))
                took = max(time.perf_counter() - began, 1e-6)
                most = HELD if self.rows.joint else count * PAUSE / took
                size = int(np.clip(most, 1, 8 * count))
                spent += int(np.max(out[-1]["steps"].sum(axis)))
                over = spent > limit.gradients or time.monotonic() > limit.deadline
                return Turn(count, float(np.mean(out[-1]["log_density"])),
                            Status.MAX_ITERATIONS if over else Status.RUNNING)

            iterate(bar, total, turn, lanes, loop, str(number))
            return loop.state, jax.tree.map(lambda *leaves: np.concatenate(leaves, axis), *out)

        found = in_threads(bar, walk, list(enumerate(states)), self.workers)
        trails = [trail for _, trail in found]
        every = {name: (trails[0][name] if self.together else _side_by_side(trails, name))
                 for name in trails[0]}
        # where chains were stopped is a matter of their gradients, not of when it was looked at
        spent = np.cumsum(every["steps"], 1, dtype=float)
        made = max(int((spent <= limit.gradients).all(0).sum()), 1)
        first = min(self.settings.warmup, made // 2)
        kept = {name: value[:, first:made] for name, value in every.items()}
        return Run([state for state, _ in found], kept.pop("z"), kept, made,
                   float(spent[:, made - 1].max()))


def _side_by_side(trails: list[dict[str, np.ndarray]], name: str) -> np.ndarray:
    """What was said of every chain, (chains, iterations, ...), as far as all of them came."""
    short = min(len(trail[name]) for trail in trails)
    return np.stack([trail[name][:short] for trail in trails])


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _on_host(state: Any, at: Any = ...) -> Any:
    """A state's numbers on the host, those of some chains; its random keys as they are."""
    return jax.tree.map(lambda leaf: leaf if _is_key(leaf) else np.asarray(leaf)[at], state)


def _going_on(state: Any, other: Any) -> Any:
    """The state before a new warm-up of another chain, with the random keys of this one."""
    return jax.tree.map(lambda own, new: own if _is_key(own) else new, state,
                        kernel.before_warmup(other))
