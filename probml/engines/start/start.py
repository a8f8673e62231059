"""Where iterative engines start: at prior means, or at an M-step from a few labelled rows.
Independent of the model."""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset.dataset import Data
from probml.dataset.sources.profile import representative_sample
from probml.device.load import load
from probml.device.rows import Chunk, Known, Resident, Rows, merge_chunks, take_rows
from probml.engines.engine import Problem
from probml.engines.start.labelling import Labelling, hidden_variables, labelled, single_steps
from probml.engines.start.prior import (
    UNDRAWABLE,
    Noise,
    closed_start,
    given_start,
    prior_draw,
    prior_noise,
    prior_point,
)
from probml.errors import present
from probml.evidence.e_step import Expected, expect
from probml.jaxpr.backward import shortened
from probml.jaxpr.levels import Level
from probml.numerics.compiling import ONCE, jit
from probml.numerics.transfer import placed, placed_all, random_key
from probml.plan.blocks import all_blocks, users
from probml.plan.hierarchy import multiplied
from probml.plan.plan import Plan
from probml.updates.updates import maximise, transforms

RANDOM_SHARE = 0.2  # of a random table in the first probability tables of hidden chains
STICKY_SHARE = 0.7  # of the identity in the first transition tables of every other start
# relative difference of parameters of states that are equal, and by which they are separated
EQUAL, SEPARATION = 1e-3, 0.05


class Start(NamedTuple):
    """Where restarts begin.

    Attributes:
        params: (restarts, ...).
        expected: statistics of labelled rows, whose M-step is the first point; None: `params` are.
        fixed: the user's values, (restarts, ...).
        allowed: variable → (restarts, states) bool, see Known.
        drawn: (restarts,) those that begin at `params` all the same; None: none.
    """

    params: dict[str, jax.Array]
    expected: Expected | None
    fixed: dict[str, jax.Array]
    allowed: dict[str, jax.Array] = {}
    drawn: np.ndarray | None = None


def states_depend_on_start(plan: Plan, start: Mapping) -> bool:
    """Whether a start decides which state is which: there are hidden states, and parameters that
    the user's start leaves open."""
    has_states = any(plan.variables[v].states > 1 for v in (*hidden_variables(plan), *plan.globals))
    return has_states and not set(plan.free) <= set(start)


@jit(static_argnames=("plan", "prior"), seldom=ONCE)
def _labelled_statistics(plan: Plan, prior: bool, known: Known, rows: Rows, allowed: Mapping,
                         key: jax.Array, noise: Noise | None) -> tuple[dict, Expected, dict]:
    """The prior's point; the E-step there on the labelled rows of every restart; and other points,
    one for every draw in `noise`: near the prior's point, and draws of the prior if it can be drawn
    from. States that are not exchangeable have their meaning from there."""
    point, others = prior_point(plan, known), {}
    expected = jax.vmap(shortened(
        lambda rows, allowed: expect(plan, point, known._replace(allowed=allowed), rows), last=True
    ))(rows, allowed)
    if noise is not None:
        count = len(noise.normal)
        try:
            draws = jax.vmap(shortened(lambda noise: prior_draw(plan, known, noise), last=True))(
                noise)
            near = _points_near(plan, prior, 1, point, known, key)
            others = {name: jnp.concatenate([near[name], draws[name][1:].astype(near[name].dtype)])
                      for name in plan.free}
        except UNDRAWABLE:
            others = _points_near(plan, prior, count, point, known, key)
    return point, expected, others


@jit(static_argnames=("plan", "prior"), seldom=ONCE)
def first_step(plan: Plan, prior: bool, known: Known, rows: Rows,
               allowed: Mapping) -> dict[str, jax.Array]:
    """The M-step from labelled rows, for engines that make no other."""

    def first_m_step(rows: Rows, allowed: Mapping[str, jax.Array]):
        point = prior_point(plan, known)
        if plan.latents:
            point = _perturbed(plan, point, known, multiplied(plan), jax.random.key(0))
        expected = expect(plan, point, known._replace(allowed=dict(allowed)), rows)
        return maximise(plan, expected, point, known, rows, prior, steps=40)

    return jax.vmap(first_m_step)(rows, allowed)


@jit(static_argnames=("plan", "prior", "restarts"), seldom=ONCE)
def _near_prior(plan: Plan, prior: bool, restarts: int, known: Known, key: jax.Array):
    return _points_near(plan, prior, restarts, prior_point(plan, known), known, key)


def _points_near(plan: Plan, prior: bool, restarts: int, point: Mapping, known: Known,
                 key: jax.Array) -> dict[str, jax.Array]:
    """The prior's point for every restart, with parameters that have no closed form a small random
    step away, since prior means are the saddle point of every product of parameters, and of every
    mixture. Parameters that enter affinely are in no product: their units may make the step large.
    """
    sites = plan.structure.sites
    formless = [name for block in all_blocks(plan, prior) if block.form is None
                for name in block.names]
    nonlinear = {p for name in users(plan) for uses in sites[name].uses.values()
                 for p, use in uses.items() if use.level > Level.AFFINE}
    names = [name for name in formless if name in nonlinear]
    children = {child for z in plan.cellwise for child in (z, *plan.structure.children[z])}
    # parameters of hidden cells distinguish states, which are equal at the prior means
    of_states = {p for name in children for uses in sites[name].uses.values() for p in uses}
    names += [name for name in plan.free if name not in names
              and (name in multiplied(plan) or name in of_states)]
    if not names:
        return {name: jnp.broadcast_to(value, (restarts, *jnp.shape(value)))
                for name, value in point.items()}
    return jax.vmap(lambda key: _perturbed(plan, point, known, names, key))(
        jax.random.split(key, restarts)
    )


def _perturbed(plan: Plan, point: Mapping, known: Known, names: Sequence[str],
               key: jax.Array) -> dict[str, jax.Array]:
    """A point with some parameters a small random step away in their unbounded coordinates."""
    maps, perturbed = transforms(plan, point, known, names), dict(point)
    for i, name in enumerate(names):
        u = maps[name].inv(point[name])
        perturbed[name] = maps[name](
            u + 0.1 * jax.random.normal(jax.random.fold_in(key, i), jnp.shape(u), u.dtype)
        )
    return perturbed


def starts(data: Data, plan: Plan, known: Known, weights: np.ndarray | None, restarts: int,
           seed: int, start: Mapping, prior: bool, whole: bool = False,
           allowed: Mapping = MappingProxyType({})) -> Start:
    """Starting points: with hidden states, an M-step from k rows far from each other, labelled 0 …
    k−1 with weight 1, and others unlabelled with total weight k; else the prior means. Values of
    `start` replace these.

    Args:
        whole: make the M-step here, for engines that have none.
        allowed: variable → (restarts, states) bool: the states that a restart uses.
    """
    allowed, integrated = dict(allowed), plan.latents or plan.groupings
    fixed = {name: stack(value, restarts) for name, value in given_start(plan, start).items()}

    def completed(point: Mapping) -> dict:
        return {name: {**point, **fixed}[name] for name in plan.free}

    if set(fixed) >= set(plan.free):
        return Start(completed({}), None, {})
    joint = _joint_states(plan, restarts, seed)
    # partly observed labels distinguish states
    exchangeable = hidden_variables(plan) or allowed or joint
    if plan.complete and not (plan.globals and plan.free) or not exchangeable and (
            restarts == 1 or integrated):
        return Start(completed(_near_prior(plan, prior, restarts, known, random_key(seed))), None,
                     {})
    data, weights = representative_sample(data, weights)
    data, weights = single_steps(data, plan, weights, seed)
    labels = labelled(data, plan, weights, restarts, seed, allowed)
    rows = _start_rows(data, plan, labels)
    # the posterior of row-wise sites belongs to the rows it was made on
    if (whole or plan.rowwise) and not allowed or integrated:
        return Start(completed(first_step(plan, prior, known, rows, allowed | joint)), None, {},
                     allowed)
    n_drawn = int(labels.drawn.sum())
    noise = prior_noise(plan, n_drawn, seed) if n_drawn else None
    point, expected, others = _labelled_statistics(
        plan, prior, known, rows, allowed | joint, random_key(seed), noise)
    point = {name: stack(point[name], restarts) for name in plan.free}
    point |= _chain_tables(plan, point, seed)
    if not others:
        return Start(point, expected, fixed, allowed)
    fixed_drawn = jax.tree.map(lambda value: np.asarray(value)[labels.drawn], fixed)
    for name, value in others.items():
        point[name] = np.array(point[name])
        point[name][labels.drawn] = fixed_drawn.get(name, value)
    return Start(point, expected, fixed, allowed, labels.drawn)


def first_points(problem: Problem, prior: bool, count: int = 1,
                 closed: bool = True) -> list[dict[str, jax.Array]]:
    """Points at which an engine without restarts begins.

    Args:
        closed: if nothing is latent, the parameters of the first that have a closed form are
            replaced by their maximum.
    """
    plan, known, start = problem.plan, problem.known, problem.start
    init = starts(problem.data, plan, known, problem.weights, count, problem.seed, start, prior,
                  whole=True)
    points = [{name: placed(np.asarray(value)[i]) for name, value in init.params.items()}
              for i in range(count)]
    if closed and plan.complete and not start and any(block.form
                                                      for block in all_blocks(plan, prior)):
        points[0] = closed_start(plan, prior, points[0], known, problem.rows)
    return points


def _joint_states(plan: Plan, restarts: int, seed: int) -> dict[str, np.ndarray]:
    """For latent discrete sites outside rows the one joint state with which a restart begins:
    variable → (restarts, states) bool. If all states were possible, exchangeable ones would remain
    equal."""
    random, allowed = np.random.default_rng([seed, 4]), {}
    for name in plan.globals if plan.free else ():
        states = plan.variables[name].states
        allowed[name] = np.arange(states) == random.integers(states, size=(restarts, 1))
    return allowed


def separate_equal_states(plan: Plan, params: Mapping, seed: int) -> dict[str, np.ndarray] | None:
    """The parameters a little apart, if states of a hidden site have equal values: such a point may
    be a saddle, at which EM stops all the same. None if there are no such states."""
    sites, names = plan.structure.sites, set()
    for variable in (v for v in (*plan.variables, *plan.cellwise)
                     if v not in plan.pattern and sites[v].states):
        names |= _parameters_of_equal_states(plan, params, variable)
    if not names:
        return None
    random, separated = np.random.default_rng([seed, 5]), {name: np.asarray(value)
                                                           for name, value in params.items()}
    for name in sorted(names):
        step = SEPARATION * (1 + random.standard_normal(separated[name].shape))
        domain = sites[name].domain
        value = domain.shaken(separated[name], step)
        separated[name] = (value.astype(separated[name].dtype) if domain.holds(value)
                           else separated[name])
    return separated


def _parameters_of_equal_states(plan: Plan, params: Mapping, variable: str) -> set[str]:
    """The parameters of emissions with an entry for each state of a hidden site, if some states
    have equal values of all; none otherwise."""
    sites, states = plan.structure.sites, present(plan.structure.sites[variable].states)
    axes_of = {p: [axis for axis, size in enumerate(sites[p].shape) if size > 1 and size == states]
               for name in plan.structure.children[variable]
               for uses in sites[name].uses.values() for p in uses if p in plan.free}
    equal = []
    for p, axes in axes_of.items():
        is_equal = np.zeros((states, states), bool)
        for axis in axes:  # any of several axes with as many entries may be that of states
            values = np.moveaxis(np.asarray(params[p], float), axis, 0).reshape(states, -1)
            scale = np.maximum(np.abs(values).max(), 1e-30)
            is_equal |= (np.abs(values[:, None] - values[None]) <= EQUAL * scale).all(-1)
        if axes:
            equal.append(is_equal)
    if not equal or not np.logical_and.reduce(equal).sum() > states:
        return set()
    return {p for p, axes in axes_of.items() if axes}


def _chain_tables(plan: Plan, point: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Probability tables of hidden chains, which single steps do not inform, some way off their
    prior means: equal ones would remain equal."""
    random, tables = np.random.default_rng([seed, 3]), {}
    chain_params = {p for name in plan.chains for uses in plan.structure.sites[name].uses.values()
                    for p in uses}
    for name in (name for name in plan.free if name in chain_params
                 and plan.structure.sites[name].domain.sums_to_one):
        table = point[name]
        draw = random.gamma(1.0, size=table.shape)
        draw /= draw.sum(-1, keepdims=True)
        mixed = (1 - RANDOM_SHARE) * table + RANDOM_SHARE * draw
        # transition tables, (restarts, from, to): in every other start states persist
        if table.ndim > 2 and table.shape[-2] == table.shape[-1]:
            mixed[1::2] = ((1 - STICKY_SHARE) * mixed[1::2]
                           + STICKY_SHARE * np.eye(table.shape[-1]))
        tables[name] = mixed.astype(table.dtype)
    return tables


def stack(value: np.ndarray, restarts: int) -> np.ndarray:
    """The same value for every restart."""
    return np.broadcast_to(np.asarray(value), (restarts, *np.shape(value)))


def _start_rows(data: Data, plan: Plan, labels: Labelling) -> Rows:
    """The labelled rows of every restart, on the device."""
    restarts, size = labels.rows.shape
    rows, _ = load(data, plan, None, labels.rows.reshape(-1))
    flat = merge_chunks(jax.tree.map(np.asarray, rows.stacked))
    sets = [take_rows(flat, index) for index in np.arange(labels.rows.size).reshape(restarts, size)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves)[:, None], *sets)
    weights = labels.weights[:, None].astype(stacked.weights.dtype)
    steps = stacked.steps
    by_step, likelihood = dict(steps.rows.likelihood) if steps else {}, dict(stacked.likelihood)
    for variable, evidence in labels.evidence.items():
        target = likelihood if plan.structure.sites[variable].time is None else by_step
        target[variable] = evidence[:, None].astype(weights.dtype)
    stacked = _filled(stacked)._replace(weights=weights, likelihood=likelihood)
    if steps:
        stacked = stacked._replace(
            steps=dataclasses.replace(steps, rows=_filled(steps.rows)._replace(likelihood=by_step))
        )
    return Resident(placed_all(stacked))


def _filled(rows: Chunk) -> Chunk:
    """Rows whose partially observed vectors, filled by column means, count as observed."""
    return rows._replace(
        observed={name: mask for name, mask in rows.observed.items() if name not in rows.missing},
        missing={}
    )
