"""Hidden discrete sites of many cells in a row, such as the mastery of skills or the kinds of a
plate's members, summed out element by element.

Where each element of a log density depends on one cell of such a site at most, the run with all
cells in one state holds what every cell has in that state; so states × cells evaluations tell all,

    log Σ_z Π_e f_e(z_c(e), u) = Σ_c log Σ_k Π_{e: c(e) = c} f_e(k, u),

and elimination/cellwise does the same for several sites whose cells meet one another. Which cell an
element depends on is read from its traced program (jaxpr/cells.py). Numbers u of the row are
integrated outside: the sum is taken at each of their nodes. Expectations over cells are
derivatives: of λ_e h_e(z, u), added to the log density, with respect to λ at 0.

Cost: states × cells a row, of each node of the numbers beside them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml.elimination.cellwise.by_cells import NONE, Part, Tangled, sum_out
from probml.errors import listed, present
from probml.jaxpr.cells import SEVERAL, cells
from probml.jaxpr.memo import memo
from probml.jaxpr.program import jaxpr_of
from probml.latents.latent import WEIGHTS, Group, Seen, mean_over_settings
from probml.numerics.logs import log_of, weighted_log
from probml.numerics.process.inline_calls import evaluated
from probml.structure.densities import example, log_densities, log_masses, over_grid
from probml.structure.site import Site
from probml.structure.structure import Structure

MAX_TABLE_ENTRIES = 2**24  # entries of a table


class HiddenCells:
    """Hidden cells without numbers beside them; see the top of this file."""

    description = "summed out element by element"
    pools, exact = False, True
    averages = False
    breadth, finer, tolerance = 1, None, 0.0

    def why_not(self, structure: Structure, group: Group) -> str | None:
        return "it is continuous" if group.names else None

    def message(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> jax.Array:
        return log_sum(structure, group, env, seen)

    def conditional(self, structure: Structure, group: Group, env: Mapping,
                    seen: Seen) -> dist.Distribution:
        raise NotImplementedError("expectations over cells are derivatives")

    def row_posterior(self, structure: Structure, group: Group, env: Mapping,
                      seen: Seen) -> list[jax.Array]:
        """The posterior probabilities of the states of the cells on which each element of each
        density depends."""
        parts, sizes = _parts(structure, group, env, seen), _sizes(structure, group)
        return jax.grad(lambda logs: sum_out([
            part._replace(log=log) for part, log in zip(parts, logs, strict=True)
        ], sizes, MAX_TABLE_ENTRIES))([part.log for part in parts])

    def draw(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
             key: jax.Array) -> jax.Array:
        return jnp.zeros(0)

    def expected(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
                 moments: list[jax.Array]) -> jax.Array:
        parts = zip(_parts(structure, group, env, seen), moments, strict=True)
        return sum((weighted_log(share, part.log).sum() for part, share in parts), jnp.zeros(()))


def sites_with_hidden_cells(structure: Structure, group: Group) -> tuple[str, ...]:
    """The hidden cells' sites, and those whose density depends on them."""
    own = set(group.cellwise)
    return tuple(name for name in group.sites if name in own
                 or not own.isdisjoint(structure.sites[name].parents))


def log_sum(structure: Structure, group: Group, env: Mapping, seen: Seen,
            best: Sequence[str] = (), weights: Mapping[str, jax.Array] | None = None,
            drawn: Mapping[str, jax.Array] | None = None) -> jax.Array:
    """log Σ over all hidden cells of p(cells, what is seen below | env) of one row; 0 where the
    group has none.

    Args:
        env: all on which the sites depend, numbers of the row included.
        best: sites that are maximised, the others summed out before.
        weights: site → log weights of its states, (states, cells).
        drawn: site → the states of its cells, where these are known, (cells,).
    """
    if not group.cellwise:
        return jnp.zeros(())
    parts, sizes = _parts(structure, group, env, seen), _sizes(structure, group)
    parts += [Part(log, {name: np.arange(log.shape[1])}) for name, log in (weights or {}).items()]
    if group.asked is not None and WEIGHTS in env:
        function, cell_of = group.asked
        part = _over_states(structure, env, cell_of, function)
        parts.append(part._replace(log=part.log * env[WEIGHTS]))
    for name, states in (drawn or {}).items():
        parts, _ = [_at_states(part, name, states) for part in parts], sizes.pop(name)
    return sum_out(parts, sizes, MAX_TABLE_ENTRIES, (), best)


def _at_states(part: Part, name: str, states: jax.Array) -> Part:
    """A part at known states of a site."""
    if name not in part.cells:
        return part
    cell = part.cells[name]
    log = jnp.moveaxis(part.log, part.names.index(name), 0)
    state = jnp.where(cell == NONE, 0, states[cell]).reshape(1, *(1,) * (log.ndim - 2), -1)
    return Part(jnp.take_along_axis(log, state, 0)[0],
                {other: own for other, own in part.cells.items() if other != name})


def decoded(structure: Structure, group: Group, env: Mapping, seen: Seen,
            names: Sequence[str]) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The log weight of the jointly most probable states of the cells of some sites, all others
    summed out, and these states, (*cells); of equal ones the lowest."""
    zeros = {name: jnp.zeros(_size(structure, name)[::-1]) for name in names}
    log, hot = jax.value_and_grad(lambda weights: log_sum(
        structure, group, env, seen, names, weights))(zeros)
    return log, {name: each.argmax(0).reshape(structure.sites[name].cells)
                 for name, each in hot.items()}


def draw(structure: Structure, group: Group, env: Mapping, seen: Seen,
         key: jax.Array) -> dict[str, jax.Array]:
    """A joint draw of all hidden cells of a row, site → (*cells): site after site, given those
    drawn, each cell by itself: of a site that can be left to the last no cells depend on each other
    (Gumbel-max)."""
    remaining, drawn = list(group.cellwise), dict[str, jax.Array]()
    while remaining:
        key, draw_key = jax.random.split(key)
        for name in remaining:
            noise = jax.random.gumbel(draw_key, _size(structure, name)[::-1])
            try:
                hot = jax.grad(lambda weights, name=name: log_sum(
                    structure, group, env, seen, (name,), {name: weights}, drawn))(noise)
            except Tangled:
                continue
            drawn[name] = hot.argmax(0)
            remaining.remove(name)
            break
        else:
            raise Tangled(remaining)
    return {name: states.reshape(structure.sites[name].cells) for name, states in drawn.items()}


def expectation(structure: Structure, group: Group, env: Mapping, seen: Seen,
                function: Callable[[Mapping], jax.Array], names: Sequence[str]) -> jax.Array:
    """E[function(env) | what is seen of a row], element by element, over its numbers and cells.

    Args:
        names: the hidden sites on which the function depends.

    Raises:
        Tangled: an element depends on several cells of one.
    """
    blank = {name: jnp.zeros(structure.sites[name].shape, int) for name in names}
    blank |= {name: jnp.zeros(structure.sites[name].shape) for name in group.names}
    shape = jax.eval_shape(lambda: function({**env, **blank})).shape
    cell_of = cells_of_elements(structure, function, {**env, **blank}, names)
    asked_group = replace(group, asked=(function, cell_of))
    zeros = jnp.zeros(math.prod(shape))
    return jax.grad(lambda weights: group.kind.message(
        structure, asked_group, {**env, WEIGHTS: weights}, seen))(zeros).reshape(shape)


def _size(structure: Structure, name: str) -> tuple[int, int]:
    """The cells of a site, and its states."""
    site = structure.sites[name]
    return math.prod(site.cells), present(site.finite)


def _sizes(structure: Structure, group: Group) -> dict[str, tuple[int, int]]:
    return {name: _size(structure, name) for name in group.cellwise}


def _parts(structure: Structure, group: Group, env: Mapping, seen: Seen) -> list[Part]:
    """The log densities of the sites that depend on hidden cells, over the states of these."""
    return [part for name in sites_with_hidden_cells(structure, group)
            for part in _parts_of(structure, group, env, name, seen.get(name, (None, None)))]


def _parts_of(structure: Structure, group: Group, env: Mapping, name: str,
              data: tuple[jax.Array | None, jax.Array | None]) -> list[Part]:
    """The log density of a site over the states of the cells on which it depends."""
    site, (x, mask) = structure.sites[name], data
    cell_of = parent_cells(structure, group.cellwise, name)
    if name not in group.cellwise:
        if x is None:
            return []
        x = x.reshape(site.cells)
        mask = None if mask is None else mask.reshape(site.cells)
        return [_over_states(structure, env, cell_of, lambda here: mean_over_settings(
            here, lambda at: log_densities(structure, site, at, x, mask)))]
    part = _over_states(structure, env, cell_of, lambda here: log_masses(structure, name, here))
    count = math.prod(site.cells)
    # the states of each cell as an axis: then each cell is an element
    log = part.log.reshape(*part.log.shape[:-1], count, site.finite)
    cell_index = {other: cell.reshape(count, -1).max(1) for other, cell in part.cells.items()}
    parts = [Part(jnp.moveaxis(log, -1, -2), {**cell_index, name: np.arange(count)})]
    if x is not None and jnp.issubdtype(x.dtype, jnp.floating):  # likelihoods of its states
        parts.append(Part(log_of(x).reshape(site.finite, count), {name: np.arange(count)}))
    elif x is not None:
        matches = x.reshape(-1) == jnp.arange(site.finite)[:, None]
        matches = matches if mask is None else matches | ~mask.reshape(-1)
        parts.append(Part(jnp.where(matches, 0.0, -jnp.inf), {name: np.arange(count)}))
    return parts


def _over_states(structure: Structure, env: Mapping, cell_of: Mapping[str, np.ndarray],
                 function: Callable) -> Part:
    """function(env), flat, over the states of the hidden cells on which its elements depend, all
    cells of a site in one state at a time."""
    sites = {name: structure.sites[name] for name in cell_of}
    return Part(over_grid(lambda at: function(at).reshape(-1), env, {name: jnp.broadcast_to(
        jnp.arange(site.finite).reshape(-1, *(1,) * len(site.shape)), (site.finite, *site.shape))
        for name, site in sites.items()}), dict(cell_of))


def _kind(site: Site) -> np.dtype:
    return jnp.result_type(int if site.discrete else float)


@memo(512)
def parent_cells(structure: Structure, cellwise: tuple[str, ...], name: str) -> dict[str,
                                                                                     np.ndarray]:
    """Hidden site → the cell of it on which each element of a site's log density depends; of a
    hidden site itself, of the log probabilities of its states.

    Raises:
        Tangled: an element depends on several cells of one.
    """
    site, parents = structure.sites[name], structure.sites[name].parents

    def function(env: Mapping) -> jax.Array:
        if name in cellwise:
            return log_masses(structure, name, env)
        return log_densities(structure, site, env, jnp.zeros(site.cells, _kind(site)), None)

    return cells_of_elements(structure, function, example(structure, name),
                     [z for z in cellwise if z in parents])


def cells_of_elements(structure: Structure, function: Callable, env: Mapping,
              names: Sequence[str]) -> dict[str, np.ndarray]:
    """Hidden site → the cell of it on which each element of function(env), flat, depends."""
    sites = structure.sites
    closed = jaxpr_of(lambda states: function(
        {**env, **dict(zip(names, states, strict=True))}).reshape(-1))(
        [jnp.zeros(sites[z].shape, int) for z in names])
    with evaluated():
        numbers = {z: np.asarray(sites[z].place(jnp.arange(math.prod(sites[z].cells)).reshape(
            sites[z].cells))) for z in names}
    (by_site,) = cells(closed, dict(enumerate(names)), numbers)
    several = next((z for z, cell in by_site.items() if (cell == SEVERAL).any()), None)
    if several is not None:
        raise Tangled((several,))
    return {z: by_site.get(z, np.full(closed.out_avals[0].shape, NONE)) for z in names}


def why_not(structure: Structure, group: Group) -> str | None:
    """Why hidden cells cannot be summed out one by one, in words; None: they can."""
    def log_sum_of(seen: Seen) -> jax.Array:
        blank = {key: value for name in sites_with_hidden_cells(structure, group)
                 for key, value in example(structure, name).items()}
        return log_sum(structure, group, blank, seen)

    sites = structure.sites
    names = [name for name in sites_with_hidden_cells(structure, group)
             if name not in group.cellwise]
    for name in sites_with_hidden_cells(structure, group):
        try:
            parent_cells(structure, group.cellwise, name)
        except Tangled as tangled:
            return f"an element of '{name}' depends on several elements of '{tangled.names[0]}'"
    try:
        jax.eval_shape(lambda: log_sum_of({name: (jnp.zeros(sites[name].cells, _kind(sites[name])),
                                                  None)
                                           for name in names}))
    except Tangled as tangled:
        return (f"each element of {listed(tangled.names, ' and ')} depends on several elements of "
                f"the other sites")
    return None
