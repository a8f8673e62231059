"""One iteration of variational Bayes: an E-step at expected log densities, the bound there, and
every conjugate block at its optimum given the others. Pure JAX: to be jitted or vmapped.

    q(z) ∝ exp E[log p(x, z | θ)]                    an E-step at averaged natural parameters
    q(θ_b) ∝ exp E[log p(x, z, θ)]                   over z and all other blocks
    bound = E[log p(x, z, θ)] − E[log q(z)] − E[log q(θ)] = Σ log Σ_z exp E[log p(x, z | θ)]
            + E[log p(θ) − log q(θ)]

A location whose prior scales with the deviation of its data is normal given that scale, and both
are one factor of q (normal–inverse-gamma, normal–inverse-Wishart); all others are independent.

Sources: Attias (1999), "Inferring parameters and structure of latent variable models by variational
Bayes"; Winn & Bishop (2005), "Variational message passing"; Beal (2003), "Variational algorithms
for approximate Bayesian inference".

All restarts of variational Bayes until they converge, in one program.

Stochastic variational inference (Hoffman et al. 2013): q(θ) is updated after every batch of
rows, see restarting/batches.py.

Expectations under independent conjugate blocks are means over values of the parameters, an exact
cubature. Log densities are linear in the statistics of each block, so that any function of several
blocks that is made of log densities is affine in the statistics of each. Nodes of a block
(`Form.nodes`) are values over which the mean of every statistic is its expectation; over the grid
of the nodes of blocks that occur in the density of the same site, that holds for such functions.
Other blocks share an axis of the grid. So expectations of log densities are exact, by evaluating
the model, and no pair of families needs a formula (Winn & Bishop have them one by one).
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.device.rows import Known, Rows, Summary
from probml.engines.engine import Status
from probml.engines.exact import integrated
from probml.engines.restarting.restarts import run_to_convergence
from probml.engines.start.race import Race
from probml.engines.start.start import Start
from probml.errors import present
from probml.evidence.e_step import Expected, Settings, expect
from probml.factors.naturals import log_prior
from probml.families.form import backward
from probml.jaxpr.memo import memo
from probml.numerics import lapack
from probml.numerics.compiling import ONCE, jit
from probml.plan.blocks import Block, all_blocks, blocks, unpack, users
from probml.plan.plan import Plan
from probml.posteriors.closed import Closed
from probml.posteriors.conjugate import Marginals, coupled
from probml.posteriors.posterior import Posterior
from probml.typing import PyTree
from probml.updates.updates import Objective, maximise, natural_parameters


@memo(256)
def schedule(plan: Plan) -> tuple[tuple[tuple[Block, ...], frozenset[str]], ...]:
    """The blocks that are updated together, in order, and the first names of those that are not
    averaged over meanwhile: a location that is normal given a scale is updated at the scale's
    reference, and right after it the scale, with the location integrated out."""
    stages = blocks(plan, True)
    scales = {block.names[0]: coupled(plan, block) for stage in stages for block in stage}
    scales = {name: scale for name, scale in scales.items() if scale is not None}

    def kind(block: Block) -> int:
        name = block.names[0]
        return 0 if name in scales else 1 if name in scales.values() else 2

    steps = []
    for rank in range(3):
        for stage in stages:
            group = tuple(block for block in stage if kind(block) == rank)
            names = {block.names[0] for block in group}
            related = {scales[name] for name in names if name in scales}
            related |= {name for name, scale in scales.items() if scale in names}
            if group:
                steps.append((group, frozenset(name for name in names | related if name)))
    return tuple(steps)


def update_blocks(plan: Plan, expected: Expected, params: Mapping, known: Known,
                  rows: Rows | Summary,
                  closed: Closed | None) -> Closed:
    """q(θ), every block in turn at its optimum given the others and the expected statistics.

    Args:
        closed: q(θ) so far; None: there is only a point, `params`, at which the others are fixed.
    """
    blockset = all_blocks(plan, True)
    references = {coupled(plan, block) for block in blockset}
    q: dict[tuple[str, ...], dict] = {}
    if closed is not None:
        q = {block.names: natural for block, natural in zip(blockset, closed.natural, strict=True)}
        params = {**closed.params, **_typical_values(plan, blockset, q, closed.params)}
    params = dict(params)
    for group, excluded in schedule(plan):
        grid = None
        if closed is not None:
            natural = tuple(q[block.names] for block in blockset)
            grid = settings(Marginals(plan, known, Closed(natural, params, params)), excluded)
        objective = Objective(plan, expected, params, known, rows, True, mode=False,
                              settings=grid)
        new = {block.names: _without_impossible_states(
                   block, integrated(plan, block, natural, params, known), known)
               for block, natural in zip(group, natural_parameters(objective, group), strict=True)}
        q |= new
        # a scale stays at the reference of the locations that it scales
        movable = [block for block in group if block.names[0] not in references]
        params |= _typical_values(plan, movable, new, params)
    return Closed(tuple(q[block.names] for block in blockset), params, params)


def _without_impossible_states(block: Block, natural: dict, known: Known) -> dict:
    """A block's natural parameters, without the states of its table that are impossible."""
    concentration = known.concentration.get(block.names[0])
    return natural if concentration is None else dict(
        block.closed_form.confined(natural, concentration))


def _typical_values(plan: Plan, group: Iterable[Block], natural: Mapping,
                    params: Mapping) -> dict[str, jax.Array]:
    """The parameters of some blocks at typical values of their distributions, with the shapes of
    `params`."""
    values: dict[str, jax.Array] = {}
    for block in group:
        prior = present(plan.structure.sites[block.names[0]].entry.prior)
        values |= unpack(params, block, block.closed_form.middle(natural[block.names], prior))
    return values


def averaged_e_step(plan: Plan, closed: Closed, known: Known,
             rows: Rows) -> tuple[Expected, Marginals, Settings | None]:
    """The E-step at q(θ), q(θ), and the settings over which it averages."""
    marginals = Marginals(plan, known, closed)
    grid = settings(marginals) if plan.free else None
    return expect(plan, closed.params, known, rows, settings=grid), marginals, grid


def bound(plan: Plan, closed: Closed, known: Known, rows: Rows) -> tuple[Expected, jax.Array]:
    """The E-step at q(θ), and the bound there."""
    expected, marginals, grid = averaged_e_step(plan, closed, known, rows)
    return expected, expected.log_evidence + expected_log_ratio(plan, marginals, present(grid),
                                                                known)


def expected_log_ratio(plan: Plan, marginals: Marginals, grid: Settings,
                       known: Known) -> jax.Array:
    """E[log p(θ) − log q(θ)], −KL(q ‖ p)."""
    return grid.mean(lambda params: log_prior(plan, params, known)
                     - marginals.log_density(params))


def negative_divergence(plan: Plan, closed: Closed, known: Known) -> jax.Array:
    """E[log p(θ) − log q(θ)] of q(θ), without rows."""
    if not plan.free:
        return jnp.zeros(())
    marginals = Marginals(plan, known, closed)
    return expected_log_ratio(plan, marginals, settings(marginals), known)


@jit(static_argnames=("plan",), seldom=ONCE)
def add_means(plan: Plan, closed: Closed, known: Known) -> Closed:
    """q(θ) with its means, or typical values where these are not finite."""
    return closed._replace(mean=Marginals(plan, known, closed).finite_means(closed.params))


BLOCK = 16  # iterations of a device call, at most: progress shows and Ctrl-C works in between
PATIENCE = 3  # consecutive iterations that gain less than the tolerance, after which a run ends
MATRICES = 16  # of an iteration for each matrix of the plan, about: for the size of batches

Own = Mapping[str, Mapping[str, jax.Array]]  # field of Known → values of each restart


class Run(NamedTuple):
    """All restarts; the first axis of every leaf is that of restarts.

    Attributes:
        closed: q(θ) that is evaluated next, or was evaluated last if the run has ended.
        value: the bound. stalled: consecutive iterations that gained less than the tolerance.
        count: iterations. status: of the run.
    """

    closed: Closed
    value: jax.Array
    stalled: jax.Array
    count: jax.Array
    status: jax.Array


@jit(static_argnames=("plan",), seldom=ONCE)
def initial_posteriors(plan: Plan, init: Start, known: Known, rows: Rows, fields: Own) -> Run:
    """q(θ) of every restart after one update from the responsibilities at its start; for labelled
    rows the start is their mode."""

    def update_restart(init: Start, fields: Own):
        params, local = dict(init.params), known._replace(**dict[str, Any](fields))
        if init.expected is not None:
            params = {**maximise(plan, init.expected, params, known, rows, True), **init.fixed}
        expected = expect(plan, params, local._replace(allowed=init.allowed or local.allowed), rows)
        return update_blocks(plan, expected, params, local, rows, None)

    closed = _map_restarts(plan, update_restart, init, fields)
    restarts = len(jax.tree.leaves(init.params)[0])
    value = jnp.full(restarts, -jnp.inf, jnp.result_type(float))
    zero = jnp.zeros(restarts, jnp.int32)
    return Run(closed, value, zero, zero, zero)


@jit(static_argnames=("plan",))
def advance(plan: Plan, run: Run, known: Known, rows: Rows, fields: Own, limit: jax.Array,
            max_evals: jax.Array, gain: jax.Array):
    """Iterations until `limit` or until every restart has ended: the restarts, and their bounds,
    (restarts, BLOCK).

    Args:
        max_evals: evaluations at most; q(θ) does not move after the last.
    """
    values = jnp.full((run.value.shape[0], BLOCK), jnp.nan, run.value.dtype)

    def more(carry: tuple):
        run, _, i = carry
        return (i < BLOCK) & jnp.any((run.status == 0) & (run.count < limit))

    def body(carry: tuple):
        run, values, i = carry
        after = _map_restarts(plan, lambda restart,
                              fields: _iteration(plan, restart, known._replace(**fields), rows,
                                                 max_evals, gain), run, fields)
        active = (run.status == 0) & (run.count < limit)
        after = jax.tree.map(lambda a, b: jnp.where(active.reshape(-1, *(1,) * (a.ndim - 1)), a, b),
                             after, run)
        return after, values.at[:, i].set(jnp.where(active, after.value, jnp.nan)), i + 1

    run, values, _ = jax.lax.while_loop(more, body, (run, values, 0))
    return run, values


def _map_restarts(plan: Plan, function: Callable, *restarts: object):
    """A function of every restart: in one batch, or one after the other if their matrices are too
    many for a batch (numerics/lapack.py)."""
    count = len(jax.tree.leaves(restarts)[0])
    if count == 1:
        result = function(*jax.tree.map(lambda leaf: leaf[0], restarts))
        return jax.tree.map(lambda leaf: leaf[None], result)
    if MATRICES * count * plan.factorising < lapack.WORK:
        return jax.vmap(function)(*restarts)
    return jax.lax.map(lambda arguments: function(*arguments), restarts)


def _iteration(plan: Plan, run: Run, known: Known, rows: Rows, max_evals: jax.Array,
               gain: jax.Array) -> Run:
    """One restart after an iteration: its bound, and the next q(θ) unless it has ended."""
    expected, value = bound(plan, run.closed, known, rows)
    noise = 64 * jnp.finfo(value.dtype).eps * (1 + jnp.abs(value) + expected.size)
    stalled = jnp.where(value - run.value <= gain, run.stalled + 1, 0).astype(run.stalled.dtype)
    fell = value < run.value - noise
    status = jnp.where(~jnp.isfinite(value), Status.COLLAPSED, jnp.where(
        fell, Status.FELL, jnp.where(stalled >= PATIENCE, Status.CONVERGED, Status.RUNNING)
    )).astype(run.status.dtype)
    count = run.count + 1
    ended = (status != Status.RUNNING) | (count >= max_evals)
    next_closed = update_blocks(plan, expected, run.closed.params, known, rows, run.closed)
    closed = jax.tree.map(lambda new, old: jnp.where(ended, old, new), next_closed, run.closed)
    return Run(closed, value, stalled, count, status)


def run_restarts(plan: Plan, run: Run, known: Known, rows: Rows, fields: Own, race: Race | None,
                 limit: int, gain: float, progress: bool) -> tuple[Run, np.ndarray]:
    """Every restart at its end, and its bounds, (restarts, iterations + 1).

    Args:
        fields: fields of `known` of each restart, with a leading axis of restarts.
        limit: iterations at most. gain: of the bound, below which an iteration counts as stalled.
    """
    max_evals = np.int32(limit + 1)
    return run_to_convergence(
        "VB", rows, run, fields, lambda run, fields, limit: (
            *advance(plan, run, known, rows, fields, np.int32(limit), max_evals, gain), False),
        BLOCK, limit, race, progress)


@dataclass(frozen=True)
class MeanField:
    """q(θ), updated to its optimum given statistics."""

    def update_point(self, plan: Plan, expected: Expected, point: Closed, known: Known,
                     rows: Rows | Summary) -> Closed:
        return update_blocks(plan, expected, point.params, known, rows, point)

    def point_of_fit(self, params: Mapping, posterior: Posterior) -> Closed:
        assert isinstance(posterior, Closed)
        return posterior

    def statistics_and_evidence(self, plan: Plan, point: Closed, known: Known,
                                rows: Rows) -> tuple[PyTree, jax.Array]:
        expected = averaged_e_step(plan, point, known, rows)[0]
        return expected.statistics, expected.log_evidence

    def validity_and_prior(self, plan: Plan, point: Closed, known: Known,
                           rows: Rows | Summary) -> tuple[jax.Array, jax.Array]:
        value = negative_divergence(plan, point, known)
        return jnp.isfinite(value), value

    def found(self, plan: Plan, point: Closed, known: Known) -> tuple[dict[str, ArrayLike], Closed]:
        closed = jax.device_get(add_means(plan, point, known))
        return dict(closed.mean), closed


# Expectations under q(θ).

NOISE = ""  # differs from the names of parameters


@memo(256)
def meeting(plan: Plan) -> frozenset[tuple[str, str]]:
    """The pairs of blocks, by their first names, that occur in the density of the same site; both
    ways."""
    own = {name: block.names[0] for block in all_blocks(plan, True)
           for name in block.names}
    pairs = set()
    for user in users(plan):
        neighbours = {user, *(name for uses in plan.structure.sites[user].uses.values()
                              for name in uses)}
        pairs |= set(itertools.permutations({own[name] for name in neighbours if name in own}, 2))
    return frozenset(pairs)


def settings(marginals: Marginals, without: Collection[str] = ()) -> Settings:
    """Values of the parameters of all blocks but some, over which the mean of a function of log
    densities is its expectation.

    Args:
        without: first names of blocks that are left out; a location that is normal given one of
            them is that at the posterior's reference.
    """
    plan = marginals.plan
    wanted = [block for block in marginals.blocks if block.names[0] not in without]
    nodes = {block.names[0]: simplex(block, marginals) if block.closed_form.joint
             else _nodes(marginals, block) for block in wanted}
    place, sizes = _placed(plan, {name: len(values) for name, values in nodes.items()})

    def axes(name: str) -> tuple[int, ...]:
        """The shape of a block's values on the grid."""
        return tuple(size if i == place.get(name) else 1 for i, size in enumerate(sizes))

    out = {}
    for block in (block for block in wanted if not block.closed_form.joint):
        name = block.names[0]
        out[name] = nodes[name].reshape(*axes(name), *nodes[name].shape[1:])
    for block in (block for block in wanted if block.closed_form.joint):
        name, scale = block.names[0], coupled(plan, block)
        known = {scale: out[scale]} if scale in out else {}
        # along its own axis, and along that of the scale on which it is conditional
        noise = jnp.asarray(nodes[name]).reshape(*axes(name), *nodes[name].shape[1:])
        grid = Settings({NOISE: noise, **known}, sizes)
        out |= grid.map_grid(lambda at, block=block: marginals.placed(
            block, at[NOISE], {**marginals.posterior.params, **at}))
    return Settings(out, sizes)


def _placed(plan: Plan, counts: dict[str, int]) -> tuple[dict[str, int], tuple[int, ...]]:
    """Block → its axis of the grid, none for a single node; and the sizes of these axes. Blocks of
    the same site have different ones."""
    neighbours, place, sizes = meeting(plan), {}, []
    for name, count in counts.items():
        if count == 1:
            continue
        taken = {place[other] for other in place if (name, other) in neighbours}
        free = (axis for axis, size in enumerate(sizes) if size == count and axis not in taken)
        place[name] = next(free, len(sizes))
        if place[name] == len(sizes):
            sizes.append(count)
    return place, tuple(sizes)


def _nodes(marginals: Marginals, block: Block) -> jax.Array:
    """A block's nodes as values of its parameter."""
    from_c = block.closed_form.nodes(marginals.natural[block.names],
                                     marginals.prior(block.names[0]))
    return backward(from_c, block.steps)


def simplex(block: Block, marginals: Marginals) -> np.ndarray:
    """Standard normal values over which the mean of a quadratic function is its expectation: ±1 for
    independent numbers, else the corners of a regular simplex, (d + 1, ...)."""
    loc = marginals.natural[block.names]["loc"]
    if block.event == 0:
        corners = np.ones(loc.shape)
        return np.stack([corners, -corners]).astype(loc.dtype)
    separate = np.array(block.vectors) if block.vectors else None  # vectors that do not interact
    d = loc.shape[-1] if separate is None else separate.shape[1]
    helmert = np.tril(np.ones((d + 1, d + 1)))[1:]  # rows that are orthogonal to all before
    helmert[np.arange(d), np.arange(1, d + 1)] = -np.arange(1, d + 1)
    helmert /= np.linalg.norm(helmert, axis=1, keepdims=True)
    corners = np.sqrt(d + 1) * helmert.T
    if separate is not None:
        out = np.zeros((d + 1, *loc.shape), loc.dtype)
        out[:, separate] = corners[:, None, :]
        return out
    shape = (d + 1, *(1,) * (loc.ndim - 1), d)
    return np.broadcast_to(corners.reshape(shape), (d + 1, *loc.shape)).astype(loc.dtype)
