"""Chains of the no-U-turn sampler, NumPyro's as compiled steps: run, and run again with smaller
steps, by the same programs.

Convergence diagnostics of a run of chains: R-hat, effective sample size, divergences, E-BFMI,
tree depth.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.hmc import HMCState, hmc
from numpyro.infer.util import ParamInfo

from probml.device.rows import Known, Rows, Summary
from probml.engines.engine import Status
from probml.engines.findings import Code, Finding
from probml.engines.progress import Loop, Progress, StepResult, in_threads, iterate
from probml.evidence import density
from probml.numerics.compiling import ONCE, jit
from probml.numerics.curvature import Frame, Starts
from probml.numerics.process.inline_calls import traced_once
from probml.numerics.transfer import random_key, rows_of
from probml.plan.plan import Plan
from probml.posteriors.diagnostics import (
    MIN_EFFECTIVE_PER_CHAIN,
    effective,
    energy_fraction,
    r_hat,
    r_hat_limits,
)
from probml.posteriors.pareto import k_limit, k_of_variance
from probml.typing import PyTree, SiteValues

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


def _init(settings: Settings, init: Callable, target: jax.Array, z: jax.Array, value: jax.Array,
          gradient: jax.Array, key: jax.Array):
    return init(
        ParamInfo(z, -value, -gradient),
        num_warmup=settings.warmup,
        target_accept_prob=target,
        max_tree_depth=settings.max_tree_depth,
        rng_key=key,
    )


def advance(plan: Plan, settings: Settings, frame: Frame, target: jax.Array, state: HMCState,
            known: Known, rows: Rows, count: jax.Array):
    """`count` iterations of one chain, at most BLOCK: its state, and its draws and statistics,
    padded with zeros.

    Args:
        target: acceptance probability, to which the step size is tuned in the warm-up.
    """
    def both(z: jax.Array):
        result = frame.transform(density.log_posterior(plan, known, rows))(z)
        return jax.tree.map(jnp.negative, result)

    # traced once, though the sampler calls it in several places
    init, step = hmc(algo="NUTS", potential_fn=density.differentiable(
        traced_once(density.for_loop(both, rows, state.z))))
    # sets the schedule of the warm-up
    _init(settings, init, target, state.z, -state.potential_energy, -state.z_grad, state.rng_key)

    def statistics(state: HMCState):
        return {
            "z": state.z,
            "log_density": -state.potential_energy,
            "energy": state.energy,
            "diverging": state.diverging,
            "steps": state.num_steps,
            "accept": state.accept_prob,
        }

    def once(i: jax.Array, carry: tuple):
        state, trail = carry
        state = step(state)
        return state, jax.tree.map(lambda array, new: array.at[i].set(new), trail,
                                   statistics(state))

    zeros = jax.tree.map(lambda leaf: jnp.zeros((BLOCK, *leaf.shape), leaf.dtype),
                         statistics(state))
    return jax.lax.fori_loop(0, count, once, (state, zeros))


@jit(static_argnums=0, seldom=ONCE)
def initial_states(settings: Settings, starts: Starts, key: jax.Array):
    """The sampler's state of every chain; a start without density is replaced by the best of the
    others.

    Args:
        starts: in the frame's coordinates.
    """
    init, _ = hmc(algo="NUTS")
    z, values, gradients = starts
    is_valid = jnp.isfinite(values) & jnp.all(jnp.isfinite(gradients), 1)
    best = jnp.argmax(jnp.where(is_valid, values, -jnp.inf))
    index = jnp.where(is_valid, jnp.arange(len(z)), best)
    return jax.lax.map(
        lambda start: _init(settings, init, ANY_TARGET, *start),
        (z[index], values[index], gradients[index], jax.random.split(key, len(z)))
    )


def advance_all(plan: Plan, settings: Settings, frame: Frame, target: jax.Array,
                states: HMCState, known: Known, rows: Rows, count: jax.Array):
    """`advance` for all chains at once."""
    return rows.vmap_copies(
        lambda state: advance(plan, settings, frame, target, state, known, rows, count), states)


def before_warmup(state: HMCState):
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


MAX_DIVERGING = 1e-3  # share of draws
MIN_E_BFMI = 0.3  # below it a chain hardly moves between low and high densities
MAX_FULL_TREES = 0.01  # share of draws with the maximum tree depth


class Verdict(NamedTuple):
    """The diagnostics of a run of chains.

    Attributes:
        findings: warnings first.
        needs_smaller_steps, needs_more_draws: whether these may help.
        r_hat: the largest; NaN of one chain.
    """

    findings: list[Finding]
    needs_smaller_steps: bool
    needs_more_draws: bool
    r_hat: float


def diagnose_chains(values: SiteValues, z: np.ndarray, stats: SiteValues,
                    target_accept: float, max_tree_depth: int) -> Verdict:
    """Convergence diagnostics of a run of chains.

    Args:
        values: the draws of the fit, name → (chains, draws, ...). z: all draws of the sampler, in
            its coordinates, (chains, iterations, d). stats: of these, (chains, iterations).
    """
    findings = []
    diverging = np.asarray(stats["diverging"])
    chains, count = len(diverging), int(diverging.sum())
    draws = np.shape(next(iter(values.values()), diverging))[1]
    is_constant = (z == z[:, :1]).all(1).any(1) & (z.shape[1] >= 4)
    stuck = ", ".join(str(chain + 1) for chain in np.flatnonzero(is_constant))
    if stuck:
        findings.append(Finding.of(Code.STUCK_CHAIN, chains=stuck))
    many = count > MAX_DIVERGING * diverging.size
    if count:
        findings.append(Finding.of(Code.DIVERGENCES if many else Code.FEW_DIVERGENCES, count=count,
                                   draws=diverging.size, target=target_accept))
    e_bfmi = energy_fraction(stats["energy"])
    min_e_bfmi = float(np.min(e_bfmi, initial=np.inf, where=~np.isnan(e_bfmi)))
    if min_e_bfmi < MIN_E_BFMI:
        findings.append(Finding.of(Code.E_BFMI, value=min_e_bfmi, limit=MIN_E_BFMI))
    full_share = float(np.mean(np.asarray(stats["steps"]) >= 2**max_tree_depth - 1))
    if full_share > MAX_FULL_TREES:
        findings.append(Finding.of(Code.TREE_DEPTH, share=full_share, depth=max_tree_depth))
    owners = [name for name, value in values.items() for _ in range(np.size(value[0, 0]))]
    entries = np.concatenate([np.zeros((chains, draws, 0)), *(
        np.reshape(value, (chains, draws, -1)) for value in values.values())], 2)
    owners.append("log density")
    parts = (entries, np.asarray(stats["log_density"], float)[..., None])
    short, max_r_hat = bool(stuck), np.nan
    if chains == 1:
        findings.append(Finding.of(Code.ONE_CHAIN))
    else:
        r_hats = [r_hat(part) for part in parts]
        all_r_hats = np.concatenate(r_hats)
        max_r_hat = _largest(all_r_hats, 1.0)[1]
        limits = np.concatenate(list(map(r_hat_limits, parts, r_hats)))
        worst, excess = _largest(all_r_hats - limits, 0.0)
        if excess > 0:
            means = np.concatenate([part.mean(1) for part in parts], 1)[:, worst]
            short = True
            findings.append(Finding.of(Code.R_HAT, owners[worst], value=all_r_hats[worst],
                                       limit=limits[worst], least=means.min(),
                                       greatest=means.max()))
    if draws >= 2 * MIN_EFFECTIVE_PER_CHAIN:
        worst, neg_ess = _largest(np.concatenate([
            -np.fmin(effective(part), effective(part, tail=True)) for part in parts]), -np.inf)
        if -neg_ess < MIN_EFFECTIVE_PER_CHAIN * chains:
            short = True
            findings.append(Finding.of(Code.ESS, owners[worst], effective=-neg_ess,
                                       least=MIN_EFFECTIVE_PER_CHAIN))
    if draws < MIN_EFFECTIVE_PER_CHAIN:
        findings.append(Finding.of(Code.FEW_DRAWS, draws=draws))
    else:
        flat = entries.reshape(chains * draws, -1)
        worst, k = _largest(np.append(k_of_variance(flat), -np.inf), -np.inf)
        if k > k_limit(len(flat)):  # draws do not determine its standard deviation
            findings.append(Finding.of(Code.DRAWS_TAIL, owners[worst], k=k))
    findings.sort(key=lambda finding: not finding.warns)
    return Verdict(findings, many or bool(stuck) or min_e_bfmi < MIN_E_BFMI, short, max_r_hat)


def _largest(values: np.ndarray, floor: float) -> tuple[int, float]:
    """The index of the largest of values (n,), NaN left out, and that value, at least `floor`."""
    filled = np.where(np.isnan(values), floor, np.maximum(values, floor))
    return int(np.argmax(filled)), float(filled.max(initial=floor))


PAUSE = 0.5  # seconds a device call should take: progress shows and Ctrl-C works in between


class Limit(NamedTuple):
    """Limits at which chains stop before they have made all their iterations."""

    deadline: float = np.inf  # on time.monotonic()'s clock
    gradients: float = np.inf  # of each chain


class Run(NamedTuple):
    """The result of a run of chains.

    Attributes:
        states: the sampler's, of each chain, or one of all. z: draws after the warm-up, (chains,
            draws, d). stats: the sampler's statistics of each draw, (chains, draws).
        iterations: of every chain, warm-up included. gradients: of the chain that took most.
    """

    states: list
    z: np.ndarray
    stats: dict[str, np.ndarray]
    iterations: int
    gradients: float


class Chains:
    """Chains of one density in the coordinates of one frame.

    Every run uses the same compiled programs: the number of iterations and the target acceptance
    probability are their arguments.
    """

    def __init__(self, plan: Plan, frame: Frame, known: Known, rows: Rows,
                 settings: Settings, count: int, draws: int, method: str | None):
        """Args: count: of chains. draws: to keep of each chain. method: NUTS.chain_method."""
        self.plan, self.frame, self.known, self.rows = plan, frame, known, rows
        self.settings, self.count = settings, count
        method = method or ("parallel" if rows.parallel_copies == 1
                            and jax.default_backend() == "cpu" else "vectorized")
        if rows.joint and method == "parallel":
            # on the devices, passes of different chains would wait for one another
            method = "sequential"
        self.together, self.first = method == "vectorized", threading.Lock()
        self.workers = min(count, os.cpu_count() or 1) if method == "parallel" else 1
        self.advance = programs(plan, rows, (settings.warmup + draws) * count)[self.together]

    def begin(self, starts: Starts, seed: int) -> list:
        """The states of chains that start at these points, in unbounded coordinates."""
        frame = self.frame
        # linear systems are solved on the host, so that no compiled program contains a solver
        in_frame = Starts(frame.inverse(starts.u), starts.value, frame.pull(starts.gradient))
        states = initial_states(self.settings, in_frame, random_key(seed))
        return [states] if self.together else self._split_chains(states)

    def _split_chains(self, states: object) -> list:
        """The state of each chain."""
        leaves, treedef = jax.tree.flatten(states)
        by_leaf = [rows_of(leaf) for leaf in leaves]
        return [jax.tree.unflatten(treedef, [leaf[c] for leaf in by_leaf])
                for c in range(self.count)]

    def restarted(self, states: list, sources: np.ndarray) -> list:
        """The states before a new warm-up; random keys differ.

        Args:
            sources: (chains,) the chain whose position, step size and mass matrix each continues
                with.
        """
        if self.together:
            (state,) = states
            return [_restarted(state, _on_host(state, sources))]
        return [_restarted(state, _on_host(states[source]))
                for state, source in zip(states, sources, strict=True)]

    def run(self, bar: Progress, states: list, target: float, draws: int, limit: Limit) -> Run:
        """A warm-up and `draws` draws a chain, or as many as every chain made within the limit."""
        total, axis = self.settings.warmup + draws, 1 if self.together else 0
        n_lanes = self.count if self.together else 1
        target_array = np.asarray(target, jnp.result_type(float))

        def walk(chain: tuple):
            number, state = chain
            loop = Loop(state, "out")
            # one iteration at first: it may take 2^depth gradients, of unknown duration
            blocks, size, spent = loop.lists["out"], 1, 0

            def turn(done: int) -> StepResult:
                nonlocal size, spent
                count = min(size, BLOCK, total - done)
                start_time = time.perf_counter()
                # chains share the program that the first one compiles
                with contextlib.nullcontext() if done else self.first:
                    loop.state, trail = self.advance(self.plan, self.settings, self.frame,
                                                     target_array,
                                                     loop.state, self.known, self.rows, count)
                keep = (slice(None),) * axis + (slice(count),)
                blocks.append(jax.tree.map(lambda leaf: np.asarray(leaf)[keep], trail))
                elapsed = max(time.perf_counter() - start_time, 1e-6)
                max_size = BLOCK if self.rows.joint else count * PAUSE / elapsed
                size = int(np.clip(max_size, 1, 8 * count))
                spent += int(np.max(blocks[-1]["steps"].sum(axis)))
                is_over = spent > limit.gradients or time.monotonic() > limit.deadline
                return StepResult(count, float(np.mean(blocks[-1]["log_density"])),
                                  Status.MAX_ITERATIONS if is_over else Status.RUNNING)

            iterate(bar, total, turn, n_lanes, loop, str(number))
            return loop.state, jax.tree.map(lambda *leaves: np.concatenate(leaves, axis), *blocks)

        results = in_threads(bar, walk, list(enumerate(states)), self.workers)
        trails = [trail for _, trail in results]
        stats = {name: (trails[0][name] if self.together else _stacked(trails, name))
                 for name in trails[0]}
        # chains end by the number of their gradients, not by when it was checked
        spent = np.cumsum(stats["steps"], 1, dtype=float)
        n_made = max(int((spent <= limit.gradients).all(0).sum()), 1)
        n_warmup = min(self.settings.warmup, n_made // 2)
        kept_stats = {name: value[:, n_warmup:n_made] for name, value in stats.items()}
        return Run([state for state, _ in results], kept_stats.pop("z"), kept_stats, n_made,
                   float(spent[:, n_made - 1].max()))


def _stacked(trails: list[dict[str, np.ndarray]], name: str) -> np.ndarray:
    """A statistic of all chains, (chains, iterations, ...), up to the length of the shortest."""
    length = min(len(trail[name]) for trail in trails)
    return np.stack([trail[name][:length] for trail in trails])


def _is_key(leaf: PyTree) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _on_host(state: PyTree, index: Any = ...) -> PyTree:
    """A state with its arrays on the host, those of some chains; random keys are not moved."""
    return jax.tree.map(lambda leaf: leaf if _is_key(leaf) else np.asarray(leaf)[index], state)


def _restarted(state: object, source: object) -> PyTree:
    """Another chain's state before a new warm-up, with the random keys of `state`."""
    return jax.tree.map(lambda old, new: old if _is_key(old) else new, state,
                        before_warmup(source))
