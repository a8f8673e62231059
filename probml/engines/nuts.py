"""NUTS: NumPyro's sampler on the posterior density, discrete sites summed out, in coordinates that
the mode's curvature made round."""

import functools
import math
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset.dataset import Data
from probml.device.rows import Known, Rows, Summary
from probml.engines.engine import Outcome, Progress, Status, check_settings
from probml.engines.start import begin
from probml.engines.start.start import check_distinct
from probml.errors import ModelError
from probml.evidence import centring, density
from probml.evidence.passes import global_posterior
from probml.numerics.compiling import jit
from probml.numerics.curvature import Frame, Starts
from probml.numerics.transfer import random_key, rows_of
from probml.plan import hierarchy
from probml.plan.plan import Plan
from probml.posteriors import diagnostics
from probml.posteriors import drawn as beliefs
from probml.posteriors.drawn import Draws
from probml.posteriors.relabelling import exchanges, relabelled

TRIED = 32  # draws of the normal at the mode, by which it is judged
UNLIKE = 10.0  # nats by which its density and the posterior's differ, from draw to draw
HELD = 256  # iterations a device call holds at the most
LASTS = 2**11  # exponentials of a density from which a slower compilation to quicker ones pays
PAUSE = 0.5  # seconds a device call should take: progress shows and Ctrl-C works in between
BLOCK = 512  # draws that are given their states by one device call
# numbers of a chunk of rows and all states, of as many draws as are worked on at once
TOGETHER = 2**18
METHODS = (None, "parallel", "vectorized", "sequential")


class Settings(NamedTuple):
    """What a compiled sampler depends on."""

    warmup: int
    target_accept: float
    max_tree_depth: int


@dataclass(frozen=True)
class NUTS:
    """The no-U-turn sampler (Hoffman & Gelman 2014; NumPyro's, with its step-size and mass
    adaptation), over the parameters alone.

    The density is the evidence: hidden discrete sites are summed out, and drawn exactly given each
    draw when they are asked for. Chains start about one mode (EM's where something is hidden), in
    coordinates in which its curvature is that of a standard normal.

    Args:
        draws: kept a chain.
        warmup: iterations a chain before them, in which step size and masses are learnt; another
            number compiles anew.
        chains: independent runs; R-hat needs two.
        target_accept: the acceptance probability that the step size is tuned to; nearer to 1 is
            slower and more careful.
        max_tree_depth: at most 2^depth − 1 gradients an iteration.
        relabel: give exchangeable hidden states the same numbers in all draws.
        chain_method: "parallel" (a thread a chain; the choice on a CPU), "vectorized" (one program;
            on a GPU) or "sequential".
        progress: show a progress bar at once; else it comes after ten seconds, in a terminal or a
            notebook.

    Cost: 2^depth evidences and gradients an iteration; memory of the draws and of one gradient a
        chain.
    """

    draws: int = 1000
    warmup: int = 1000
    chains: int = 4
    target_accept: float = 0.8
    max_tree_depth: int = 10
    relabel: bool = True
    chain_method: str | None = None
    progress: bool = False

    def __post_init__(self):
        check_settings(self, positive=("draws", "chains", "max_tree_depth"),
                       nonnegative=("warmup",))
        if not (isinstance(self.target_accept, int | float) and 0 < self.target_accept < 1):
            raise ModelError(f"NUTS(target_accept={self.target_accept!r}): expected a probability "
                             f"between 0 and 1, such as 0.9")
        if self.chain_method not in METHODS:
            raise ModelError(f"NUTS(chain_method={self.chain_method!r}): expected one of "
                             f"{list(METHODS)}")

    def refuse(self, data: Data, plan: Plan, ladder: bool = False) -> None:
        """NUTS treats every plan."""
        check_distinct(data, plan)

    def run(self, data: Data, plan: Plan, rows: Rows, known: Known, weights, seed: int,
            start: Mapping[str, Any]) -> Outcome:
        with Progress("NUTS", (self.warmup + self.draws) * self.chains, self.progress) as bar:
            return self._run(bar, data, plan, rows, known, weights, seed, start)

    def _run(self, bar: Progress, data: Data, plan: Plan, rows: Rows, known: Known, weights,
             seed: int, start) -> Outcome:
        params = begin.rough(data, plan, rows, known, weights, seed, start)
        spread = np.random.default_rng([seed, 7]).standard_normal(
            (max(self.chains, TRIED), density.size(plan, known))
        )
        incidental = any(tie.kind == "incidental"
                         for tie in hierarchy.ties(plan, None if data is None else data.table.rows))
        steps = 0 if incidental else begin.STEPS  # a climb would end at the joint mode
        coordinates = known._replace(centring=centring.none(plan))
        others = None if incidental else begin.elsewhere(plan, coordinates, seed, start)
        if coordinates.centring:
            known, begun = begin.balanced(plan, params, coordinates, rows, spread, others, steps)
        else:
            begun = begin.measured(plan, begin.hyper(plan), params, known, rows, spread, others,
                                   steps)
        begin.check(plan, begun, params, known, "NUTS")
        begun = jax.device_get(begun)
        frame = begun.frame.plain() if fits(begun) else begun.frame.diagonal()
        begun = begun._replace(starts=jax.tree.map(lambda leaf: leaf[: self.chains], begun.starts))
        z, stats = self._sampled(bar, plan, frame, begun.starts, known, rows, seed)
        values = jax.device_get(beliefs.constrained(plan, known, frame.points(z)))
        found = []
        if self.relabel:
            # any draw will do to find what is exchangeable: the density is asked there
            found = exchanges(plan, {name: value[0, -1] for name, value in values.items()}, known,
                              rows)
            values, moved = relabelled(found, values)
        wrong, notes = diagnostics.complaints(values, stats, vars(self))
        if found and moved:
            named = ", ".join(repr(exchange.site) for exchange in found)
            notes.append(f"the states of {named} are exchangeable: {moved} draws were renumbered "
                         f"(relabel=False leaves them)")
        draws = with_states(plan, Draws(values, None, stats), known, rows, seed)
        status = Status.DOUBTFUL if wrong else Status.SAMPLED
        history = np.concatenate([_finite(begun.trail), stats["log_density"].mean(0)])
        return Outcome(
            beliefs.mean({n: draws.values[n] for n in plan.free}), history, status, self.draws,
            (*wrong, *notes), belief=draws
        )

    def _sampled(
        self, bar: Progress, plan: Plan, frame: Frame, starts: Starts, known: Known, rows: Rows,
        seed: int
    ) -> tuple[np.ndarray, dict]:
        """Draws z (chains, draws, d) after the warm-up, and what the sampler says of each."""
        settings = Settings(self.warmup, self.target_accept, self.max_tree_depth)
        method = self.chain_method or ("parallel" if jax.default_backend() == "cpu"
                                       else "vectorized")
        states = first(plan, settings, frame, starts, random_key(seed), known, rows)
        programs = LASTING if rows_work(plan, rows) >= LASTS else QUICK
        total, stop, lock = self.warmup + self.draws, threading.Event(), threading.Lock()
        shown = [0]

        def walk(state):
            # a first iteration may take 2^depth gradients: who knows how long they are?
            done, count, out = 0, 1, []
            while done < total and not stop.is_set():
                count = min(count, HELD, total - done)
                began = time.perf_counter()
                advance = programs[method == "vectorized"]
                state, trail = advance(plan, settings, frame, state, known, rows, count)
                axis = 1 if method == "vectorized" else 0
                keep = (slice(None),) * axis + (slice(count),)
                out.append(jax.tree.map(lambda leaf, keep=keep: np.asarray(leaf)[keep], trail))
                done += count
                took = max(time.perf_counter() - began, 1e-6)
                count = int(np.clip(count * PAUSE / took, 1, 8 * count))
                with lock:
                    shown[0] += (self.chains if method == "vectorized"
                                 else 1) * out[-1]["steps"].shape[-1]
                    bar.update(shown[0], float(np.mean(out[-1]["log_density"])))
            return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis), *out)

        if method == "vectorized":
            found = walk(states)
        else:
            leaves, treedef = jax.tree.flatten(states)
            held = [rows_of(leaf) for leaf in leaves]
            apart = [jax.tree.unflatten(treedef, [leaf[c] for leaf in held])
                     for c in range(self.chains)]
            workers = min(self.chains, os.cpu_count() or 1) if method == "parallel" else 1
            with ThreadPoolExecutor(workers) as pool:
                try:
                    found = list(pool.map(walk, apart))
                except BaseException:  # Ctrl-C: the other chains end after their present call
                    stop.set()
                    raise
            found = jax.tree.map(lambda *leaves: np.stack(leaves), *found)
        kept = {name: value[:, self.warmup :] for name, value in found.items()}
        return kept.pop("z"), kept


def fits(begun: begin.Begin) -> bool:
    """Whether the density is about that of the normal at its mode: then the coordinates of its
    curvature serve it elsewhere too."""
    frame, starts = jax.device_get((begun.frame, begun.starts))
    if frame.root.ndim == 1:
        return True
    if not (np.all(frame.curvature > 0) and np.isfinite(frame.root).all()
            and np.isfinite(starts.value).all()):
        return False
    z = np.linalg.solve(frame.root, (starts.u - frame.centre).T)
    return float(np.std(starts.value + 0.5 * (z**2).sum(0))) < UNLIKE


def with_states(plan: Plan, draws: Draws, known: Known, rows: Rows, seed: int) -> Draws:
    """The same with the discrete sites outside rows, drawn given the data and each draw of the
    parameters."""
    if not plan.globals:
        return draws
    lead = np.shape(draws.values[plan.free[0]])[:2]
    count = math.prod(lead)
    keys, flat = jax.random.split(random_key(seed + 1), count), {}
    for name in plan.free:
        flat[name] = np.asarray(draws.values[name]).reshape(count,
                                                            *np.shape(draws.values[name])[2:])
    parts, size = [], min(BLOCK, 1 << (count - 1).bit_length())
    # of one size, the last draw again to fill it: one program, and Ctrl-C works in between
    for low in range(0, count, size):
        at = np.arange(low, low + size).clip(max=count - 1)
        found = jax.device_get(_states(plan, {name: value[at] for name, value in flat.items()},
                                       known, rows, keys[at]))
        parts.append(jax.tree.map(lambda leaf, low=low: leaf[: count - low], found))
    tables, drawn = jax.tree.map(
        lambda *leaves: np.concatenate(leaves).reshape(*lead, *leaves[0].shape[1:]), *parts
    )
    return draws._replace(values={**draws.values, **drawn}, tables=tables)


@functools.partial(jit, static_argnums=0)
def _states(plan: Plan, values: Mapping, known: Known, rows: Rows, keys):
    """The posterior of the discrete sites outside rows at each point, and a draw of them."""

    def one(pair):
        params, key = pair
        table = global_posterior(plan, params, known, rows)
        where = jnp.unravel_index(jax.random.categorical(key, table.reshape(-1)), table.shape)
        cells = {n: jnp.asarray(plan.variables[n].values)[at]
                 for n, at in zip(plan.globals, where, strict=True)}
        return table, {n: cell.reshape(plan.structure.sites[n].shape) for n, cell in cells.items()}

    states = math.prod(plan.variables[name].states for name in plan.globals)
    held = rows.weights.shape[-1] if isinstance(rows, Rows) else 1
    together = 1 << max(TOGETHER // (held * states), 1).bit_length() - 1
    return jax.lax.map(one, (values, keys), batch_size=min(together, len(keys)))


def _finite(trail) -> np.ndarray:
    trail = np.asarray(trail)
    return trail[np.isfinite(trail)]


def _sampler(settings: Settings, plan: Plan, frame: Frame):
    """NumPyro's functional NUTS, whose density takes the data as arguments: init and step."""
    from numpyro.infer.hmc import hmc  # late: the inference part of NumPyro is slow to import

    def potential(frame, known, rows):
        both = frame.pulled(density.posterior(plan, known, rows))
        return density.differentiable(lambda z: jax.tree.map(jnp.negative, both(z)))

    return hmc(potential_fn_gen=potential, algo="NUTS")


def _init(settings: Settings, init, z, value, gradient, key, arguments):
    from numpyro.infer.util import ParamInfo

    return init(
        ParamInfo(z, -value, -gradient),
        num_warmup=settings.warmup,
        target_accept_prob=settings.target_accept,
        max_tree_depth=settings.max_tree_depth,
        model_args=arguments,
        rng_key=key,
    )


def begin_chains(plan: Plan, settings: Settings, frame: Frame, starts: Starts, keys, known: Known,
                 rows: Rows):
    """The sampler's state of every chain; a start without density goes to the frame's centre."""
    init, _ = _sampler(settings, plan, frame)
    z, values, gradients = frame.coordinates(starts.u), starts.value, frame.pull(starts.gradient)
    good = jnp.isfinite(values) & jnp.all(jnp.isfinite(gradients), 1)
    best = jnp.argmax(jnp.where(good, values, -jnp.inf))
    index = jnp.where(good, jnp.arange(len(z)), best)
    return jax.lax.map(
        lambda at: _init(settings, init, *at, (frame, known, rows)),
        (z[index], values[index], gradients[index], keys)
    )


def advance(plan: Plan, settings: Settings, frame: Frame, state, known: Known, rows: Rows, count):
    """`count` iterations of one chain, at most HELD: its state, and what was drawn, the rest
    blank."""
    init, step = _sampler(settings, plan, frame)
    arguments = (frame, known, rows)
    # sets the schedule of the warm-up
    _init(settings, init, state.z, -state.potential_energy, -state.z_grad, state.rng_key, arguments)

    def once(i, carry):
        state, trail = carry
        state = step(state, arguments)
        drawn = {
            "z": state.z,
            "log_density": -state.potential_energy,
            "diverging": state.diverging,
            "steps": state.num_steps,
            "accept": state.accept_prob,
        }
        return state, jax.tree.map(lambda held, new: held.at[i].set(new), trail, drawn)

    dtype = state.z.dtype
    blank = {
        "z": jnp.zeros((HELD, state.z.size), dtype),
        "log_density": jnp.zeros(HELD, dtype),
        "diverging": jnp.zeros(HELD, bool),
        "steps": jnp.zeros(HELD, state.num_steps.dtype),
        "accept": jnp.zeros(HELD, dtype),
    }
    return jax.lax.fori_loop(0, count, once, (state, blank))


@functools.partial(jit, static_argnums=(0, 1))
def first(plan: Plan, settings: Settings, frame: Frame, starts: Starts, key, known: Known,
          rows: Rows):
    """The same of all chains, each with a key of its own."""
    keys = jax.random.split(key, len(starts.u))
    return begin_chains(plan, settings, frame, starts, keys, known, rows)


def advance_all(plan: Plan, settings: Settings, frame: Frame, states, known: Known, rows: Rows,
                count):
    """The same of all chains at once."""
    return jax.vmap(lambda state: advance(plan, settings, frame, state, known, rows, count))(states)


def rows_work(plan: Plan, rows: Rows | Summary) -> int:
    """Exponentials and logarithms of one density, about: those of the rows, which may be compiled
    to vectors of them."""
    if plan.chains or not plan.variables or isinstance(rows, Summary):
        return 0
    return rows.weights.size * max(plan.work, 2 if plan.ordered else 0)


QUICK, LASTING = ([functools.partial(jit, static_argnums=(0, 1), long=long)(f)
                   for f in (advance, advance_all)] for long in (False, True))
