"""The waist: parameters and rows → log factors → evidence of each row.

`naturals` runs the traced arguments of the pooled sites over the states of their discrete parents, without rows.
`row_factors` meets them with a chunk of rows. Passes over all rows stand in passes.py.
"""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax
from numpyro.distributions import constraints

from probml import elimination, families, finite, sequences
from probml.elimination import Factor
from probml.families import chain
from probml.families.unseen import Unseen
from probml.families.unseen import log_density as unseen_density
from probml.plan import Plan
from probml.sequences import Moves, Steps
from probml.switches import SETTING

if TYPE_CHECKING:
    from probml.passes import Expected

LOST = 2e-4  # rounding of a component's mean square, or location, in units of its variance, or scale, that is too much
SLICES = 64  # seen states of a site's parents up to which all are evaluated and one is picked


class Rows(NamedTuple):
    """Rows on the device; every leaf leads with the rows axis (or with chunks and rows)."""

    values: dict[str, jax.Array]  # seen sites: (b, *cells), unseen cells filled harmlessly
    seen: dict[str, jax.Array]  # sites seen in part: bool (b, *cells)
    codes: dict[int, jax.Array]  # variables of so many states seen in part, Plan.partly: their states (b, variables), −1 unseen
    unseen: dict[str, Unseen]  # sites whose vectors are seen in part: which coordinates are not
    likelihood: dict[str, jax.Array]  # likelihood evidence: (b, states)
    inputs: dict[str, jax.Array]
    weights: jax.Array  # (b,), 0 for padding
    steps: Steps | None = None  # of sites along chains: every step as a row


class Summary(NamedTuple):
    """What is left of the rows of an additive plan: engines take it in the place of Rows, and the passes over rows are saved."""

    statistics: dict[str, Any]  # like naturals: Σ weight T(x)
    base: jax.Array  # Σ weight × what of log p(row) no parameter enters
    weights: jax.Array  # () the total


class Known(NamedTuple):
    """What all rows share: values of sites outside rows, and the column means that data are centred on."""

    given: dict[str, jax.Array]
    centre: dict[str, jax.Array]  # site -> (lattice cells, event)
    spread: dict[str, jax.Array]  # their standard deviations, against which a collapsed component is judged
    allowed: dict[str, jax.Array] = {}  # variable -> (states,) bool: the others are impossible, as if it had fewer
    centring: dict[str, jax.Array] = {}  # parameter -> how far its unbounded coordinates are its own (1), not its prior's (0)


def _env(plan: Plan, params: Mapping[str, jax.Array], known: Known) -> dict[str, jax.Array]:
    sites = plan.structure.sites
    return {name: jnp.reshape(value, sites[name].shape) for name, value in {**params, **known.given}.items() if name in sites}


def states_of(plan: Plan, name: str) -> jax.Array:
    """The states of a discrete site in NumPyro's single-row layout, (states, *shape)."""
    site = plan.structure.sites[name]
    values = plan.variables[name].values if name in plan.variables else jnp.arange(site.states).reshape(site.states, *site.cells)
    return jax.vmap(site.place)(jnp.asarray(values))


def over_states(plan: Plan, function, parents: tuple[str, ...]):
    """function(*parent values) → the same over all states: one leading axis per parent."""
    for i in reversed(range(len(parents))):
        function = jax.vmap(function, in_axes=tuple(0 if j == i else None for j in range(len(parents))))
    return function(*(states_of(plan, parent) for parent in parents))


def argument_table(plan: Plan, params: Mapping[str, jax.Array], known: Known, name: str) -> dict[str, jax.Array]:
    """A pooled site's arguments over its discrete parents: argument → (*parent states, lattice cells, own event axes)."""
    env, parents = _env(plan, params, known), plan.discrete_parents(name)
    return over_states(plan, lambda *states: plan.structure.cells(name, {**env, **dict(zip(parents, states, strict=True))}), parents)


def _natural(plan: Plan, name: str, arguments: Mapping[str, jax.Array], known: Known) -> Any:
    """Natural parameters; for a variable, the log table of its own joint states on a last axis."""
    site = plan.structure.sites[name]
    natural = site.family.natural(arguments, known.centre.get(name, 0.0))
    if name not in plan.variables or site.chain:
        return natural
    values = plan.variables[name].values.reshape(plan.variables[name].states, -1)
    lead = jax.tree.leaves(natural)[0].shape[: len(plan.discrete_parents(name))]
    if values.shape[1] == 1:
        return natural["log"][..., 0, :]
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[len(lead) :]), natural)
    return site.family.log_density(flat, jnp.asarray(values), None).T.reshape(*lead, -1)


def log_masses(structure, name: str, env: Mapping) -> jax.Array:
    """log p of every value of a site with finitely many, for one row: (lattice cells, values)."""
    site = structure.sites[name]
    if site.family is not None and site.states is not None:
        return site.family.natural(structure.cells(name, env), 0.0)["log"]
    return site.layout(finite.log_masses(structure.distribution(name, env), site.low, site.finite, site.shape), 1)


def _state_logs(plan: Plan, name: str, env: Mapping) -> jax.Array:
    """log p of a variable's joint states, for one row or outside rows: (states,)."""
    log, values = log_masses(plan.structure, name, env), plan.variables[name].values
    return log[0] if len(log) == 1 else jnp.take_along_axis(log, jnp.asarray(values.reshape(len(values), -1)).T, 1).sum(0)


def naturals(plan: Plan, params: Mapping[str, jax.Array], known: Known) -> dict[str, Any]:
    """Natural parameters of every pooled site; the whole dependence of the evidence on the parameters, but for row-wise sites."""
    out, env = {}, _env(plan, params, known)
    for names in plan.alike:
        if len(names) == 1:
            out[names[0]] = _natural(plan, names[0], argument_table(plan, params, known, names[0]), known)
            continue
        takes = [[p for p in plan.structure.sites[name].parents if p in env] for name in names]
        stacked = [jnp.stack([jnp.asarray(env[p]) for p in column]) for column in zip(*takes, strict=True)]

        def one(values, name=names[0], own=takes[0]):
            return _natural(plan, name, argument_table(plan, dict(zip(own, values, strict=True)), Known({}, {}, {}), name), known)

        out |= dict(zip(names, unstacked(jax.vmap(one)(stacked), len(names)), strict=True))
    return {name: out[name] for name in plan.pooled}


def unstacked(tree: Any, count: int) -> list[Any]:
    """A tree whose leaves lead with an axis of `count` → so many trees. One split a leaf: backwards it is one concatenation."""
    leaves, treedef = jax.tree.flatten(tree)
    parts = [[jnp.squeeze(part, 0) for part in jax.lax.split(leaf, [1] * count)] for leaf in leaves]
    return [jax.tree.unflatten(treedef, [part[i] for part in parts]) for i in range(count)]


def _cells(site, array: jax.Array) -> jax.Array:
    return array.reshape(len(array), math.prod(site.lattice), *site.event)


def _seen(plan: Plan, rows: Rows, name: str) -> jax.Array | None:
    return _cells(plan.structure.sites[name], rows.seen[name]) if name in rows.seen else None


def at_level(plan: Plan, rows: Rows, name: str) -> Rows:
    """The rows that a site's own factor has: those of the data, or their steps."""
    return rows.steps.rows if name in plan.steps else rows


def _log_densities(site, natural: Any, x: jax.Array, seen: jax.Array | None, unseen: Unseen | None) -> jax.Array:
    """A kernel at cells of rows, (b, p); `unseen` is for the families that integrate coordinates out."""
    return site.family.log_density(natural, x, seen) if unseen is None else site.family.log_density(natural, x, seen, unseen)


def _pooled_factor(plan: Plan, natural: Any, rows: Rows, name: str) -> Factor:
    site, parents, scope = plan.structure.sites[name], plan.discrete_parents(name), plan.scope(name)
    sliced = [p for p in parents if p not in plan.variables]
    is_variable = name in plan.variables
    slices = math.prod(plan.structure.sites[p].states for p in sliced)
    if sliced and not is_variable and slices <= SLICES:
        return Factor(_picked(plan, natural, rows, name, sliced), scope)
    if sliced:  # a parent seen in every row selects a slice of the table
        where = [parents.index(p) for p in sliced]
        codes = tuple(rows.values[p].reshape(-1) for p in sliced)
        natural = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, where, range(len(where)))[codes], natural)
    shape = tuple(plan.variables[p].states for p in scope)
    if is_variable:
        return Factor(natural if sliced else natural[None], scope)
    x, seen, unseen = _cells(site, rows.values[name]), _seen(plan, rows, name), rows.unseen.get(name)
    keep = len(parents) - len(sliced)
    flat = jax.tree.map(
        lambda leaf: leaf.reshape(*leaf.shape[: bool(sliced)], math.prod(shape), *leaf.shape[bool(sliced) + keep :]),
        natural,
    )
    if sliced:
        one = jax.tree.map(lambda leaf: leaf[:, None], (x, seen, unseen and unseen._replace(most=None)))
        value = jax.vmap(lambda n, row: _log_densities(site, n, *row)[0])(flat, one)
    else:
        value = _log_densities(site, flat, x, seen, unseen)
    return Factor(value.reshape(len(x), *shape), scope)


def _picked(plan: Plan, natural: Any, rows: Rows, name: str, sliced: list[str]) -> jax.Array:
    """A pooled factor at the seen states of some parents: all states by one product, then the seen one; its gradient is a
    product too, where a gather's would be a serial scatter."""
    site, parents = plan.structure.sites[name], plan.discrete_parents(name)
    order = [parents.index(p) for p in sliced] + [i for i, p in enumerate(parents) if p not in sliced]
    sizes = [plan.structure.sites[p].states if p in sliced else plan.variables[p].states for p in parents]
    shape = [sizes[i] for i in order]

    def flat(leaf):
        leaf = jnp.transpose(leaf, (*order, *range(len(parents), leaf.ndim)))
        return leaf.reshape(math.prod(shape), *leaf.shape[len(parents) :])

    x, seen, unseen = _cells(site, rows.values[name]), _seen(plan, rows, name), rows.unseen.get(name)
    value = _log_densities(site, jax.tree.map(flat, natural), x, seen, unseen)
    count = math.prod(shape[: len(sliced)])
    code = jnp.ravel_multi_index(tuple(rows.values[p].reshape(-1) for p in sliced), shape[: len(sliced)], mode="clip")
    hot = code[:, None] == jnp.arange(count)
    value = jnp.where(hot[..., None], value.reshape(len(code), count, -1), 0.0).sum(1)
    return value.reshape(len(code), *shape[len(sliced) :])


def _predictive_factor(plan: Plan, known: Known, rows: Rows, name: str, arguments: Mapping[str, jax.Array]) -> Factor:
    """The factor of a site whose parameters are integrated out, by its family's predictive; arguments over its table,
    (*states, cells, ...)."""
    site, parents, scope = plan.structure.sites[name], plan.discrete_parents(name), plan.scope(name)
    x, seen = _cells(site, rows.values[name]), _seen(plan, rows, name)
    if name in known.centre:
        arguments = {**arguments, "loc": arguments["loc"] - known.centre[name]}  # as the data are: float32 at large offsets
    sliced = [p for p in parents if p not in plan.variables]
    if sliced:
        codes, where = tuple(rows.values[p].reshape(-1) for p in sliced), [parents.index(p) for p in sliced]
        arguments = {a: jnp.moveaxis(v, where, range(len(where)))[codes] for a, v in arguments.items()}
    x, seen = (v if v is None else v.reshape(len(v), *(1,) * len(scope), *v.shape[1:]) for v in (x, seen))
    return Factor(site.family.predictive(arguments, x.astype(jnp.result_type(float)), seen).sum(-1), scope)


def row_environment(plan: Plan, known: Known, rows: Rows, name: str) -> dict[str, jax.Array]:
    """The row-varying things that a site's arguments take, one row in NumPyro's layout, with a leading rows axis."""
    sites, site = plan.structure.sites, plan.structure.named[name]
    env = {i: rows.inputs[i][:, None] for i in site.inputs}
    for parent in site.parents:
        if sites[parent].rows and parent not in plan.variables:
            value = rows.values[parent]
            if parent in known.centre:
                value = value + known.centre[parent].reshape(sites[parent].cells)
            env[parent] = jax.vmap(sites[parent].place)(value)
    return env


def _counted_factor(plan: Plan, natural: Any, rows: Rows, name: str, predictive: Mapping) -> Factor:
    """The factor of a chain that is seen whole; tables of which `predictive` has the concentrations are integrated out."""
    site, parents, steps = plan.structure.sites[name], plan.discrete_parents(name), rows.steps
    states = steps.folded(steps.rows.values[name].reshape(-1))
    alive = None if steps.rows.weights is None else steps.folded(steps.rows.weights)
    sliced = [p for p in parents if p not in plan.variables]
    tables = _sliced({a: _uncelled(leaf, len(parents)) for a, leaf in {**natural, **predictive}.items()}, parents, sliced, rows)
    counted = chain.counts(states, alive, site.states)
    logs = [(chain.predictive if a in predictive else chain.log_density)(table, counted[a]) for a, table in tables.items()]
    return Factor(sum(logs), plan.scope(name))


def _uncelled(leaf: jax.Array, parents: int) -> jax.Array:
    """A chain's table without the axis of its one cell."""
    return jnp.squeeze(leaf, parents)


def _sliced(tables: Mapping, parents: tuple[str, ...], sliced: list[str], rows: Rows) -> dict[str, jax.Array]:
    """Tables over discrete parents at the seen states of some: (rows or 1, *the other parents' states, ...)."""
    if not sliced:
        return {a: leaf[None] for a, leaf in tables.items()}
    where, codes = [parents.index(p) for p in sliced], tuple(rows.values[p].reshape(-1) for p in sliced)
    return {a: jnp.moveaxis(leaf, where, range(len(where)))[codes] for a, leaf in tables.items()}


def _moves(plan: Plan, params: Mapping, known: Known, natural: Any, rows: Rows, name: str, taps: Mapping | None = None) -> Moves:
    """The tables of a chain that is summed out."""
    parents = plan.discrete_parents(name)
    if name in plan.pooled:
        sliced = [p for p in parents if p not in plan.variables]
        own = {a: _uncelled(leaf, len(parents)) for a, leaf in natural.items()}
        timed = any(plan.structure.sites[p].time is not None for p in sliced)
        tables = _sliced(own, parents, sliced, rows.steps.rows if timed else rows)
    else:
        tables = rowwise_logs(plan, params, known, rows, name)
        if taps:
            tables = jax.tree.map(jnp.add, tables, taps[name])
    return Moves(tables["initial"], tables["transition"], tuple(p for p in parents if p in plan.variables), name)


def rowwise_logs(plan: Plan, params: Mapping, known: Known, rows: Rows, name: str, anchor: Mapping | None = None) -> Any:
    """The log factor of a row-wise site, (rows or steps, *states); of a chain, its tables, for every row, or every step where they
    vary along time.

    Args:
        anchor: parameters at which the minorant of a family that has one touches its density, in whose place it then is.
    """
    if name not in plan.chains:
        return _rowwise_factor(plan, params, known, at_level(plan, rows, name), name, anchor=anchor).log
    site, parents = plan.structure.sites[name], plan.discrete_parents(name)
    timed = any(i in plan.structure.timed for i in site.inputs) or any(plan.structure.sites[p].time is not None for p in site.parents)
    at, fixed = rows.steps.rows if timed else rows, _env(plan, params, known)

    def one(varying):
        def tables(*states):
            env = {**fixed, **varying, **dict(zip(parents, states, strict=True))}
            return site.family.natural(plan.structure.cells(name, env), 0.0)

        return over_states(plan, tables, parents)

    logs = jax.vmap(one)(row_environment(plan, known, at, name))
    return {a: _uncelled(leaf, 1 + len(parents)) for a, leaf in logs.items()}


def _rowwise_factor(
    plan: Plan,
    params: Mapping,
    known: Known,
    rows: Rows,
    name: str,
    predictive: Mapping | None = None,
    anchor: Mapping | None = None,
    settings: bool = False,
) -> Factor:
    site, parents, scope = plan.structure.sites[name], plan.discrete_parents(name), plan.scope(name)
    fixed = _env(plan, params, known)
    is_variable = name in plan.variables
    touching = _env(plan, anchor, known) if anchor is not None and hasattr(site.family, "minorant") else None

    def one(varying, x, seen):
        def at(env):
            env = {**fixed, **varying, **env}
            if is_variable:
                return _state_logs(plan, name, env)
            if predictive is not None:
                return _affine_density(plan.structure, site, env, x, seen, predictive)
            if touching is not None:
                there = plan.structure.cells(name, {**env, **touching})
                logs = site.family.minorant(there, plan.structure.cells(name, env), _cells(site, x[None])[0])
                return logs.sum() if seen is None else jnp.where(_cells(site, seen[None])[0], logs, 0.0).sum()
            return _log_density(plan.structure, site, env, x, seen)

        if name in plan.switches:
            return _switched(plan, name, at, varying, settings)
        return over_states(plan, lambda *states: at(dict(zip(parents, states, strict=True))), parents)

    x = None if is_variable or site.factor else rows.values[name]
    size = None if rows.weights is None else len(rows.weights)  # of a factor, or a variable, that looks at nothing of a row
    log = jax.vmap(one, axis_size=size)(row_environment(plan, known, rows, name), x, None if is_variable else rows.seen.get(name))
    return Factor(log, scope)


def setting_logs(plan: Plan, params: Mapping, known: Known, rows: Rows, name: str) -> jax.Array:
    """The log factor of a site with one switch, and of no other parents, where it is off and where it is on: (rows, 2)."""
    return _rowwise_factor(plan, params, known, rows, name, settings=True).log


def _switched(plan: Plan, name: str, at: Callable, varying: Mapping, settings: bool) -> jax.Array:
    """at(states of the parents) of one row over all states: evaluated at every setting of the switches, and looked up for every state.

    Args:
        settings: not looked up.
    """
    switches, parents = plan.switches[name], plan.discrete_parents(name)
    kept, count = tuple(p for p in parents if p not in switches.parents), len(switches.looks)

    grid = jnp.stack(jnp.meshgrid(*[jnp.array([False, True])] * count, indexing="ij"), -1).reshape(-1, count)

    def set_(*states):
        held = dict(zip(kept, states, strict=True))
        return jax.vmap(lambda on: at({**held, SETTING: lambda env: switches.outputs(env, on)}))(grid)

    logs = over_states(plan, set_, kept)  # (*states kept, settings, own)
    if settings:
        return logs
    logs = jnp.moveaxis(logs, len(kept), 0)
    own = logs.shape[1 + len(kept) :]
    logs = logs.reshape(*(2,) * count, *(plan.variables[p].states if p in kept else 1 for p in parents), *own)
    for j, looks in enumerate(switches.looks):

        def on(*states, j=j, looks=looks):
            return switches.setting({**varying, **dict(zip(looks, states, strict=True))}, j)

        where = over_states(plan, on, looks)
        where = where.reshape(*(plan.variables[p].states if p in looks else 1 for p in parents), *(1,) * len(own))
        logs = jnp.where(where, logs[1], logs[0])
    return logs


def _log_density(structure, site, env, x: jax.Array, seen: jax.Array | None) -> jax.Array:
    """log p of one row's seen cells of a site, by its kernel where it is discrete, else by NumPyro's log_prob; of a factor its value."""
    if site.factor:
        return log_weight(structure, site.name, env)
    if site.family is not None and hasattr(site.family, "direct"):
        arguments = structure.cells(site.name, env)
        return site.family.direct(arguments, _cells(site, x[None])[0], None if seen is None else _cells(site, seen[None])[0]).sum()
    if site.family is not None and site.discrete:
        natural = jax.tree.map(lambda leaf: leaf[None], site.family.natural(structure.cells(site.name, env), 0.0))
        mask = None if seen is None else _cells(site, seen[None])
        return site.family.log_density(natural, _cells(site, x[None]), mask)[0, 0]
    distribution = structure.distribution(site.name, env)
    if seen is not None and hasattr(site.family, "fill"):
        x, seen = (_cells(site, leaf[None])[0] for leaf in (x, seen))
        loc, covariance = site.layout(distribution.loc, 1), site.layout(distribution.covariance_matrix, 2)
        return unseen_density(loc, covariance, x, seen).sum()
    log = site.layout(supported(distribution, site.valued(site.place(x))), 0)
    if seen is not None:
        log = jnp.where(_cells(site, seen[None])[0].reshape(len(log), -1).all(-1), log, 0.0)
    return log.sum()


def log_weight(structure, name: str, env: Mapping) -> jax.Array:
    """What a numpyro.factor adds: the sum of its cells."""
    site, (value,) = structure.sites[name], structure.arguments(name, env).values()
    return jnp.broadcast_to(value, site.shape).sum()


def _affine_density(structure, site, env, x: jax.Array, seen: jax.Array | None, settings: Mapping) -> jax.Array:
    """log p of one row's value of a Normal site, its affine location and its scale integrated out (posterior.Marginals.affine).

    Var[loc] = Σ (loc at each column − loc)², since loc is affine; with a scale, Student t (a regression's predictive). Of several
    cells it is their covariance: one vector, unless every cell has its own scale and so its own coefficients.
    """

    def at(changed):
        arguments = structure.cells(site.name, {**env, **changed})
        return arguments["loc"], jnp.broadcast_to(arguments["scale"], arguments["loc"].shape) ** 2

    loc, variance = at({})
    moved = jax.vmap(lambda changed: at(changed)[0])(settings["columns"]) - loc  # (columns, cells)
    x = _cells(site, x[None])[0]
    seen = jnp.ones(x.shape, bool) if seen is None else _cells(site, seen[None])[0]
    scales, df = settings["scales"], None
    if scales:
        unit, shape, wide, variance = jax.vmap(lambda changed: at(changed)[1])(scales)
        df, wide = 2 * shape / unit, wide / unit
    if len(x) == 1 or scales and next(iter(scales.values()))[0].size > 1:
        variance = variance + jnp.sum(moved**2, 0)
        alone = dist.Normal(loc, jnp.sqrt(variance)) if df is None else dist.StudentT(df, loc, jnp.sqrt(variance * wide))
        return jnp.where(seen, alone.log_prob(x), 0.0).sum()
    covariance = jnp.diag(variance) + moved.T @ moved
    return unseen_density(loc, covariance if df is None else covariance * wide[0], x, seen, None if df is None else df[0])


def row_factors(
    plan: Plan,
    params: Mapping,
    known: Known,
    natural: Mapping,
    rows: Rows,
    taps: Mapping | None = None,
    predictive: Mapping | None = None,
    hard: bool = False,
) -> list[Factor]:
    """The factor graph of a chunk of rows; what is along time is one factor of each row.

    Args:
        taps: site -> zeros added to a row-wise factor, so that the gradient with respect to them is its posterior.
        predictive: site -> arguments of its family's predictive over its table, to stand in for its kernel.
        hard: what is hidden along time at its joint maximum instead of summed out.
    """
    factors = level_factors(plan, params, known, natural, rows, False, taps, predictive)
    if not plan.steps:
        return factors
    moves = chain_moves(plan, params, known, natural, rows, taps)

    def inside(rows, taps):
        return sequences.within(plan, level_factors(plan, params, known, natural, rows, True, taps, predictive), hard)

    return [*factors, sequences.factor(plan, [in_pieces(plan, inside, rows, taps)], moves, rows.steps, len(rows.weights), hard)]


def in_pieces(plan: Plan, function: Callable, rows: Rows, taps: Mapping | None = None) -> Factor:
    """function(rows, taps) → the factor of their steps, for all; where what it passes through is large, a piece of the steps at a time.

    Backwards a piece is passed through again, so that no more than one is held.
    """
    steps = rows.steps
    count = sequences.pieces(plan, steps, len(rows.weights))
    own = {n: taps[n] for n in plan.rowwise if n in plan.steps and n not in plan.chains} if taps else None
    if count == 1:
        return function(rows, own)

    def cut(leaf):
        return leaf.reshape(count, -1, *leaf.shape[1:])

    def piece(parts):
        found.append(function(rows._replace(steps=parts[0]), parts[1]))
        return found[-1].log

    found: list[Factor] = []
    logs = lax.map(jax.checkpoint(piece), jax.tree.map(cut, (steps, own)))
    return Factor(logs.reshape(-1, *logs.shape[2:]), found[-1].names)


def chain_moves(plan: Plan, params: Mapping, known: Known, natural: Mapping, rows: Rows, taps: Mapping | None = None) -> list[Moves]:
    """The tables of the chains that are summed out."""
    return [_moves(plan, params, known, natural.get(name), rows, name, taps) for name in plan.chains]


def level_factors(
    plan: Plan,
    params: Mapping,
    known: Known,
    natural: Mapping,
    whole: Rows,
    steps: bool,
    taps: Mapping | None = None,
    predictive: Mapping | None = None,
    evidence: bool = True,
) -> list[Factor]:
    """The factors of rows by themselves, or those of their steps by themselves, but for the chains' own.

    Args:
        evidence: with what is seen; else only what the hidden variables are to one another.
    """
    predictive = predictive or {}
    rows = whole.steps.rows if steps else whole
    own = [n for n in (*plan.pooled, *plan.rowwise) if (n in plan.steps) == steps and n not in plan.chains and n not in plan.counted]
    own = [n for n in own if evidence or n in plan.variables]
    names = [name for name in plan.pooled if name in own]
    factors = [_counted_factor(plan, natural[name], rows, name, predictive.get(name, {})) for name in plan.counted if not steps]
    factors += [_pooled_factor(plan, natural[name], rows, name) for name in names if name not in predictive]
    factors += [_predictive_factor(plan, known, rows, name, predictive[name]) for name in names if name in predictive]
    for name in (name for name in plan.rowwise if name in own):
        factor = _rowwise_factor(plan, params, known, rows, name, predictive.get(name))
        factors.append(Factor(factor.log + taps[name], factor.names) if taps else factor)
    variables = [name for name in plan.variables if (plan.structure.sites[name].time is not None) == steps]
    allowed = [name for name in known.allowed if name in variables and name not in plan.globals]
    factors += [Factor(jnp.where(known.allowed[name], 0.0, -jnp.inf)[None], (name,)) for name in allowed]
    for name in variables if evidence else ():
        site = plan.structure.sites[name]
        if name in rows.likelihood:
            weight = rows.likelihood[name]
            factors.append(Factor(jnp.where(weight > 0, jnp.log(jnp.where(weight > 0, weight, 1.0)), -jnp.inf), (name,)))
        elif site.rows and name in rows.values:  # seen in part: an indicator
            states = jnp.asarray(plan.variables[name].values)
            agrees = rows.values[name][:, None] == states[None]
            if name in rows.seen:
                agrees |= ~rows.seen[name][:, None]
            agrees = agrees.reshape(len(agrees), len(states), -1).all(-1)
            factors.append(Factor(jnp.where(agrees, 0.0, -jnp.inf), (name,)))
    for states, names in plan.partly.items() if not steps else ():
        codes = rows.codes[states].T[..., None]
        logs = unstacked(jnp.where((codes == jnp.arange(states)) | (codes < 0), 0.0, -jnp.inf), len(names))
        factors += [Factor(log, (name,)) for log, name in zip(logs, names, strict=True)]
    return factors


def global_factors(plan: Plan, params: Mapping, known: Known) -> list[Factor]:
    """Log tables of the discrete sites outside rows, then those of what looks at them there (Plan.mixed)."""
    out, env = [], _env(plan, params, known)
    for name in plan.globals:
        parents, scope = plan.discrete_parents(name), plan.scope(name)

        def states(*values, name=name, parents=parents):
            return _state_logs(plan, name, {**env, **dict(zip(parents, values, strict=True))})

        log = over_states(plan, states, parents)
        if name in known.allowed:
            mask = jnp.where(known.allowed[name], 0.0, -jnp.inf)
            log = log + mask.reshape([mask.size if other == name else 1 for other in scope])
        out.append(Factor(log[None], scope))
    for name in plan.mixed:  # each in its own coordinate: those of several states, mixed, must be one
        parents = plan.scope(name)

        def at(*states, name=name, parents=parents):
            return _prior(plan, name, {**env, **dict(zip(parents, states, strict=True))}, False)

        out.append(Factor(over_states(plan, at, parents)[None], parents))
    return out


def _evidence(plan: Plan, factors: list[Factor], size: int, hard: bool) -> jax.Array:
    """(rows, *states of the touching global variables)."""
    if hard:
        return jnp.broadcast_to(elimination.maximise_value(factors, plan.order), (size,))
    left = elimination.sum_out(factors, plan.order)
    log = jnp.transpose(left.log, (0, *(1 + left.names.index(n) for n in plan.touching if n in left.names)))
    log = log.reshape(len(log), *(plan.variables[n].states if n in left.names else 1 for n in plan.touching))
    return jnp.broadcast_to(log, (size, *(plan.variables[n].states for n in plan.touching)))


def row_evidence(plan: Plan, params: Mapping, known: Known, natural: Mapping, rows: Rows, taps=None, hard: bool = False) -> jax.Array:
    """log p(row | params [, touching global variables]): (rows, *global states), in nats."""
    return _evidence(plan, row_factors(plan, params, known, natural, rows, taps, hard=hard), len(rows.weights), hard)


def inner(statistics: Any, natural: Any) -> jax.Array:
    """⟨statistics, naturals⟩, with 0 · (−∞) = 0."""
    terms = jax.tree.map(lambda s, n: jnp.where(s == 0, 0.0, s * jnp.where(s == 0, 0.0, n)).sum(), statistics, natural)
    return sum(jax.tree.leaves(terms), start=jnp.zeros(()))


def outside(plan: Plan) -> tuple[str, ...]:
    """The sites of the log prior: the parameters, discrete sites outside rows whose value is data, factors."""
    return tuple(name for name in plan.outside if name not in plan.mixed)


def _prior(plan: Plan, name: str, env: Mapping, mode: bool) -> jax.Array:
    """log p of the value of a site outside rows, of a factor its weight; `mode` as in log_prior."""
    site = plan.structure.sites[name]
    if site.factor:
        return log_weight(plan.structure, name, env)
    if site.discrete and site.family is not None:  # of counts, a total that is theirs
        return _log_density(plan.structure, site, env, env[name], None)
    distribution = plan.structure.distribution(name, env)
    role = families.prior(site.kind)
    value = site.valued(env[name])
    log = role.log_density(distribution, value, mode) if hasattr(role, "log_density") else supported(distribution, value)
    return jnp.broadcast_to(log, site.lattice).sum()


def log_prior(plan: Plan, params: Mapping, known: Known, mode: bool = False, names: tuple[str, ...] | None = None) -> jax.Array:
    """Σ log p(parameter), of the free and the given ones, or of `names`; of those that look at no global variable (Plan.mixed).

    Args:
        mode: in the coordinates that are maximised, where that differs from a parameter's own.
    """
    env, total = _env(plan, params, known), jnp.zeros(())
    wanted = set(outside(plan) if names is None else names)

    for twins in plan.twins:
        if wanted.issuperset(twins) and len(twins) > 1:
            wanted -= set(twins)
            takes = [(name, *plan.structure.sites[name].parents) for name in twins]
            stacked = [jnp.stack([env[p] for p in column]) for column in zip(*takes, strict=True)]
            total += jax.vmap(lambda values, own=takes[0]: _prior(plan, own[0], dict(zip(own, values, strict=True)), mode))(stacked).sum()
    for name in (name for name in outside(plan) if name in wanted):
        total += _prior(plan, name, env, mode)
    return total


def supported(distribution: dist.Distribution, value: jax.Array) -> jax.Array:
    """log_prob, and −∞ outside the support, which NumPyro does not look at (supports of inequalities only)."""
    log, support = distribution.log_prob(value), distribution.support
    return log if support is None or not _inequalities(support) else jnp.where(support(value), log, -jnp.inf)


def _inequalities(support: Any) -> bool:
    """Whether a support is bounds and orders alone; a simplex or a Cholesky factor holds up to rounding."""
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    return support.event_dim == 0 or type(support) in map(type, (constraints.ordered_vector, constraints.positive_ordered_vector))


def surrogate(plan: Plan, expected: "Expected", params: Mapping, known: Known) -> jax.Array:
    """⟨q, log factors(params)⟩ of the pooled and global sites: the M-step's objective without rows and without prior."""
    value = inner(expected.statistics, naturals(plan, params, known))
    for posterior, factor in zip(expected.outer, global_factors(plan, params, known), strict=True):
        value += inner(posterior, factor.log)
    return value


def row_surrogate(plan: Plan, taps: Mapping, params: Mapping, known: Known, rows: Rows, anchor: Mapping | None = None) -> jax.Array:
    """⟨q, log factors(params)⟩ of the row-wise sites on one chunk, with minorants that touch at `anchor`, if given."""
    return sum(
        (inner(taps[name], rowwise_logs(plan, params, known, rows, name, anchor)) for name in plan.rowwise),
        start=jnp.zeros(()),
    )


def collapsed(plan: Plan, params: Mapping, known: Known, rows: Rows) -> jax.Array:
    """Whether some component's scale is below what the arithmetic can tell from zero, relative to its column.

    The squares of pooled sites lose half the digits. Row-wise sites take the difference first, and are judged at the first row.
    """
    eps, found = jnp.finfo(jnp.result_type(float)).eps, jnp.zeros((), bool)
    for name in known.spread:
        site = plan.structure.sites[name]
        if not any(site.uses.get(a) for a in site.family.scatter):
            continue
        if name in plan.rowwise:
            first = jax.tree.map(lambda leaf: leaf[0, :1], rows._replace(steps=None))
            varying = jax.tree.map(lambda leaf: leaf[0], row_environment(plan, known, first, name))
            env, parents = {**_env(plan, params, known), **varying}, plan.discrete_parents(name)
            arguments = over_states(
                plan, lambda *s, n=name, e=env, p=parents: plan.structure.cells(n, {**e, **dict(zip(p, s, strict=True))}), parents
            )
            floor = 256 * eps
        else:
            arguments, floor = argument_table(plan, params, known, name), jnp.sqrt(eps)
        away = jnp.maximum(jnp.abs(known.centre.get(name, 0.0)), 1.0)  # a constant column has no spread of its own
        found |= ~jnp.all(site.family.smallest(arguments) > floor * jnp.where(known.spread[name] > 0, known.spread[name], away))
    return found


def short(plan: Plan, params: Mapping, known: Known) -> jax.Array:
    """Whether some component is so narrow, beside its distance from where its column is centred, that squares leave it few digits.

    Of pooled sites: the square of a component's distance is taken off the mean square, and what is left is its variance.
    """
    eps, found = jnp.finfo(jnp.result_type(float)).eps, jnp.zeros((), bool)
    for name in (name for name in plan.pooled if name in known.centre):
        family = plan.structure.sites[name].family
        if getattr(family, "mean_of", None) != ("loc",) or not hasattr(family, "scatter"):
            continue
        arguments = argument_table(plan, params, known, name)
        away, scale = arguments["loc"] - known.centre[name], family.smallest(arguments)
        found |= jnp.any((eps * away**2 > LOST * scale**2) | (eps * jnp.abs(arguments["loc"]) > LOST * scale))
    return found
