"""New groups of a plate: rows whose index is a label that was not in the fitted data. Their effects
are drawn from the prior.

Given its hyperparameters, the effect of a new group is independent of the data, so the posterior
predictive distribution is: θ ~ p(θ | data), a_new ~ p(a | θ), row ~ p(row | θ, a_new). Compiled
programs have entries for the fitted groups only, so rows with new groups are computed separately:
entries of fitted groups that these rows do not use are replaced by the new effects. With a point
estimate, the effect is the mean of its prior given the point.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset.coding.indices import bounds, have_same_coding, together
from probml.dataset.dataset import Data
from probml.errors import Refusal, counted, listed, present
from probml.numerics.compiling import ASKED, jit
from probml.numerics.transfer import random_key, split_key
from probml.posteriors.posterior import Draws, Point
from probml.queries.asking import DRAWS
from probml.queries.fitted import Fitted
from probml.structure.indices import Index
from probml.structure.structure import Structure
from probml.typing import PyTree

REPEATS = 64  # effects drawn for each draw of the other parameters, at most
HELD = 2**24  # numbers in all of these draws, at most


class _Many(Draws):
    """Posterior draws, all of which are averaged over and not a subset: effects of new groups vary
    more than the other parameters."""

    def averaging_draws(self, plan: object, known: object, n: int) -> tuple[dict[str, jax.Array],
                                                                              jax.Array | None]:
        return self.pick(np.arange(self.size))


def answer(fit: Fitted, data: Data, plug_in: bool, ask: Callable[[Any, Data], PyTree]) -> PyTree:
    """The results of `ask` for all rows, including those with new groups.

    Args:
        ask: (fit, data without new groups) → arrays with a leading axis of rows, in any pytree.

    Raises:
        Refusal: a new group has no separate prior.
    """
    if not data.new:
        return ask(fit, data)
    groups = _groups(fit, data)
    n, codes = data.table.rows, {name: np.array(data.table.inputs[name]) for name in data.new}
    redrawn: list[list[tuple[tuple[str, int], frozenset[int]]]] = [[] for _ in range(n)]
    for names in groups:
        _assign(fit.structure, names, data, codes, redrawn)
    parts: dict[tuple, list[int]] = {}
    for row, entries in enumerate(redrawn):
        parts.setdefault(tuple(sorted((place, tuple(sorted(index))) for place, index in entries)),
                         []).append(row)
    coded = data._replace(new={}, table=replace(data.table, inputs={**data.table.inputs, **codes}))
    answers = []
    for places, rows in parts.items():
        renewed_fit = renewed(fit, {place: np.array(index) for place, index in places},
                              plug_in) if places else fit
        answers.append(ask(renewed_fit, coded.taken(np.array(rows))))
    perm = np.argsort(np.concatenate([np.array(rows) for rows in parts.values()]), kind="stable")
    return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves])[perm],
                        *answers)


def _groups(fit: Fitted, data: Data) -> list[list[str]]:
    """Names of the indices with new groups, each together with the others that index the same axes.

    Raises:
        Refusal: a new group has no separate prior.
    """
    structure = fit.structure
    groups = [names for names in together(structure.indexed)
              if any((_new(data, structure.indexed[name]) >= 0).any() for name in names)]
    for index in (structure.indexed[name] for names in groups for name in names):
        what = f"a new group of '{index.name}', the index of {index.description},"
        if index.table:
            raise Refusal(f"{what} has no entry in an array of the model (a setting or a constant) "
                          f"that '{index.name}' indexes. Instead of this array, give its entry for "
                          "each row in the data, as an input")
        if (index.no_new_groups or index.low is None or index.high is None or index.cells
            and index.input in structure.timed):
            raise Refusal(
                f"{what} cannot be predicted. The model must use only the effect of the group of "
                f"each row, as in effect[{index.name}]. Model '{structure.model.name}' also uses "
                f"the effects of all groups at once, such as their sum, or computes with the index"
            )
        missing = next((name for name, _ in index.parameters if name not in fit.point), None)
        if missing is not None:
            raise Refusal(f"{what} cannot be predicted, because '{missing}' has no value for a new "
                          "group. It was not estimated (it is discrete, or was given as data). "
                          "Give only groups that were in the fitted data")
    if structure.prior_factors:
        raise Refusal(f"the data contain a new group of {listed(sum(groups, []), ' or ')}, whose "
                      "effect would be drawn from its prior. But numpyro.factor "
                      f"'{structure.prior_factors[0]}' of the model changes the prior, which then "
                      "cannot be sampled. Give only groups that were in the fitted data, or write "
                      "the factor as a distribution")
    for names in groups:
        if not have_same_coding(structure.indexed[name] for name in names):
            raise Refusal(f"the inputs {listed(names)} index the same parameters in different "
                          "ways, such as a[g] and a[h - 1]. So it is unknown which effect belongs "
                          "to a new group. Give only groups that were in the fitted data")
    return groups


def _new(data: Data, index: Index) -> np.ndarray:
    """(rows, cells): the number of the new group, −1 for groups of the fit."""
    numbers = data.new.get(index.input)
    if numbers is None:
        numbers = np.full(data.table.inputs[index.input].shape, -1)
    flat = numbers.reshape(len(numbers), -1)
    return flat[:, list(index.cells)] if index.cells else flat


def _assign(structure: Structure, names: list[str], data: Data, codes: dict, redrawn: list) -> None:
    """Write codes of fitted groups that the row does not use for its new groups (in place), and
    append the entries to be redrawn to `redrawn`."""
    indices = [structure.indexed[name] for name in names]
    low, high = bounds(indices)
    axes = {axis for index in indices for axis in index.axes}
    free = [c for c in range(present(low), present(high) + 1) if all(
        0 <= a.scale * c + a.offset < structure.sites[a.parameter].shape[a.axis] for a in axes
    )]
    n = data.table.rows
    new = [_new(data, index) for index in indices]
    flat = {index.input: codes.get(index.input, data.table.inputs[index.input]).reshape(n, -1)
            for index in indices}
    cells = [list(index.cells) or list(range(flat[index.input].shape[1])) for index in indices]
    for row in np.flatnonzero(np.any([(numbers >= 0).any(1) for numbers in new], axis=0)):
        used_codes, members = set(), {}
        for index, columns, numbers in zip(indices, cells, new, strict=True):
            used_codes |= set(flat[index.input][row, columns][numbers[row] < 0].tolist())
        spare_codes = (c for c in free if c not in used_codes)
        for index, columns, numbers in zip(indices, cells, new, strict=True):
            for cell, number in zip(columns, numbers[row], strict=True):
                if number < 0:
                    continue
                if number not in members:
                    members[number] = next(spare_codes, None)
                if members[number] is None:
                    raise Refusal(
                        f"row {row} of the data has more different groups than "
                        f"{index.description}, which has effects of {counted(len(free), 'group')}. "
                        "Fit data that contain more groups")
                flat[index.input][row, cell] = members[number]
        for axis in axes:
            entries = frozenset(axis.scale * int(present(c)) + axis.offset
                                for c in members.values())
            redrawn[row].append((axis[:2], entries))


def renewed(fit: Fitted, entries: Mapping[tuple[str, int], np.ndarray], plug_in: bool) -> Fitted:
    """The fit with some entries of parameters redrawn from their prior given the other parameters;
    of a point estimate, set to the prior mean.

    Args:
        entries: (parameter, axis) → positions along that axis.

    Raises:
        Refusal: the entries of a parameter do not have the same prior, or have a joint one; a
            prior has no mean.
    """
    structure, sites = fit.structure, fit.structure.sites
    names = tuple(name for name in structure.parameters
                  if any(place[0] == name for place in entries))
    masks, given = {}, {name: jnp.asarray(value) for name, value in fit.given.items()}
    for name in names:
        mask = np.zeros(sites[name].shape, bool)
        for (owner, axis), positions in entries.items():
            if owner == name:
                if axis >= len(sites[name].batch) + len(sites[name].independent):
                    raise Refusal(
                        f"'{name}' ({sites[name].kind}) has one joint prior for all groups along "
                        f"axis {axis}, so the effect of a new group cannot be drawn separately. "
                        f"Give each group its own prior, by a numpyro.plate over the groups"
                    )
                np.moveaxis(mask, axis, 0)[positions] = True
        masks[name] = jnp.asarray(mask)
    _exchangeable(fit, names, entries)
    if plug_in or not fit.belief.varies:
        point = {name: jnp.asarray(value) for name, value in fit.point.items()}
        means = _entries(structure, names, point, given, masks, random_key(0), True)
        for name in names:
            if not np.isfinite(np.asarray(means[name])).all():
                kind = sites[name].kind
                raise Refusal(f"the prior of '{name}' ({kind}) has no mean, but the prediction for "
                              f"a new group from a point estimate uses the mean of the "
                              f"prior. Use a prior that has a mean", ("NUTS",))
        any_fit: Any = fit
        return replace(any_fit, point={
            **fit.point, **{name: np.asarray(means[name]) for name in names}
        }, belief=Point(fit.belief.table))
    values, tables = fit.belief.averaging_draws(fit._plan, fit._known(), DRAWS)
    repeats = int(np.clip(HELD // sum(value.size for value in values.values()), 1, REPEATS))
    values = {name: jnp.repeat(jnp.asarray(value), repeats, 0) for name, value in values.items()}
    keys = split_key(random_key(0), len(values[names[0]]))
    redrawn = _entries_of_draws(structure, names, values, given, masks, keys)
    draws = {name: np.asarray(value)[None] for name, value in {**values, **redrawn}.items()}
    tables = None if tables is None else np.repeat(np.asarray(tables), repeats, 0)[None]
    target: Any = fit
    return replace(target, belief=_Many(draws, tables, {}))


def _entries(structure: Structure, names: tuple[str, ...], params: Mapping, given: Mapping,
             masks: Mapping, key: object, mean: bool) -> dict:
    """The parameters `names`, in which the entries with mask True are drawn from the prior (or set
    to its mean), parents first."""
    env = {name: jnp.reshape(value, structure.sites[name].shape)
           for name, value in {**params, **given}.items()}
    for i, name in enumerate(names):
        site = structure.sites[name]
        prior = structure.distribution(name, env).expand(site.batch + site.independent)
        value = jnp.broadcast_to(prior.mean, site.shape) if mean else prior.sample(
            jax.random.fold_in(key, i)
        )
        env[name] = jnp.where(masks[name], value, env[name])
    return {name: env[name] for name in names}


@jit(static_argnums=(0, 1), seldom=ASKED)
def _entries_of_draws(structure: Structure, names: tuple[str, ...], values: Mapping, given: Mapping,
                      masks: Mapping, keys: object) -> dict:
    """`_entries` for each of many draws."""
    return jax.vmap(lambda params, key: _entries(structure, names, params, given, masks, key,
                                                 False))(values, keys)


def _exchangeable(fit: Fitted, names: Iterable[str],
                  entries: Mapping[tuple[str, int], np.ndarray]) -> None:
    """Refuse priors that differ between groups, unless through entries that are also redrawn: a new
    group would have none."""
    structure = fit.structure
    env = {name: np.reshape(value, structure.sites[name].shape)
           for name, value in {**fit.point, **fit.given}.items()}
    for owner, axis in entries:
        # the same effect for all groups, so that differences due to redrawn entries vanish
        env[owner] = np.repeat(np.take(env[owner], [0], axis), env[owner].shape[axis], axis)
    for name in names:
        site = structure.sites[name]
        absent = next((parent for parent in structure.programs[name][1] if parent not in env), None)
        if absent is not None:
            raise Refusal(f"the prior of '{name}' depends on '{absent}', whose value is unknown, "
                          f"so the effect of a new group cannot be drawn. Give only groups that "
                          f"were in the fitted data")
        batch = structure.distribution(name, env).batch_shape
        for argument, value in structure.arguments(name, env).items():
            value = np.asarray(value)
            tail = site.traits.argument_event[argument] if site.family is not None else max(
                value.ndim - len(batch), 0
            )
            for axis in (axis for owner, axis in entries if owner == name):
                position = axis - (len(site.batch) + len(site.independent)) + value.ndim - tail
                if 0 <= position < value.ndim - tail and not np.array_equal(
                    value, np.repeat(np.take(value, [0], position), value.shape[position], position)
                ):
                    raise Refusal(
                        f"the prior of '{name}' differs between groups along axis {axis}, so the "
                        f"prior of a new group is unknown. Give all groups the same prior, and add "
                        f"their known differences inside rows(), as an input with one value per row"
                    )
