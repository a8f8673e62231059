"""The data sets that a certificate is made of: drawn from the prior and the model, with the pattern
of the user's own."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from probml.dataset import dataset, read, tables
from probml.dataset.measures import with_measures
from probml.errors import ModelError, Refusal
from probml.language.language import Bound
from probml.numerics.transfer import random_key
from probml.plan.plan import Plan
from probml.queries.simulation import simulate_draws
from probml.structure.structure import Structure
from probml.structure.trace import structure_of

MOST = 2**28  # simulated numbers held at once


# What is simulated


def template(model: Bound, data: Any, rows: int | None, steps: int | None) -> tuple[dataset.Data,
                                                                                    bool]:
    """What of the simulated rows is to be seen, the values being placeholders, and whether they are
    the user's data."""
    if _is_integer(data):
        if rows is not None:
            raise ModelError(f"check({data}, rows={rows}): give the number of rows once")
        data, rows = None, int(data)
    if rows is not None and not (_is_integer(rows) and rows >= 1):
        raise ModelError(f"check(rows={rows!r}): expected an integer of at least 1")
    names = getattr(data, "column_names", data if data is not None else ())
    try:
        known = set(names)
    except TypeError:
        raise ModelError(f"check({data!r:.60}): expected data, or a number of rows") from None
    if rows is None and not known:
        raise ModelError(f"check needs rows to simulate: model.check(data), or "
                         f"model.check(rows=100) where '{model.name}' has no inputs")
    held = with_measures(read.read(model, data, rows=rows, steps=steps))
    soft = next((name for name, column in held.table.columns.items()
                 if column.likelihood is not None), None)
    if soft is not None:
        raise Refusal(f"check: site '{soft}' is given as label probabilities, which are not "
                      f"simulated: give states, or drop it")
    if held.table.columns:
        return held.trimmed(), True
    sites, columns = held.structure.sites, {}
    for site in sites.values():
        latent = site.states is not None and any(sites[child].rows
                                                 for child in held.structure.children[site.name])
        if site.rows and not latent and not site.factor:
            shape = (held.table.rows, *site.along(held.steps))
            columns[site.name] = tables.Column(np.zeros(shape,
                                                        np.int32 if site.discrete else float), None)
    return held._replace(table=replace(held.table, columns=columns)), False


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def simulated(
    model: Bound, held: dataset.Data, plan: Plan, simulations: int, seed: int,
    simulator: Bound | None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """True values of what lies outside rows, and the seen columns: name → (simulations, ...).

    Raises:
        Refusal: a prior or a site that cannot be drawn from, or whose draws are not finite.
            ModelError: another model's sites differ.
    """
    structure = held.structure if simulator is None else _other(held, plan, simulator)
    given = {name: value for name, value in held.table.values.items() if name in structure.sites}
    sites = structure.sites
    outside = tuple(s for s in (*plan.free, *plan.globals) if s in sites
                    and sites[s].shape == held.structure.sites[s].shape)
    seen = tuple(held.table.columns)
    drawn = from_prior(structure, held, (*outside, *seen), given, simulations, seed, "check")
    for name, value in drawn.items():
        bad = ~np.isfinite(value) | ((value < 0) if sites[name].discrete else False)
        if bad.any():
            count = int(bad.reshape(simulations, -1).any(1).sum())
            whose = (f"the priors of what it depends on, {list(sites[name].parents)}, reach"
                     if sites[name].parents else "its prior reaches")
            raise Refusal(
                f"check: in {count} of {simulations} simulations '{name}' ({sites[name].kind}) is "
                f"not finite or overflows: {whose} too extreme values: use a narrower prior"
            )
    return {name: drawn[name] for name in outside}, {name: drawn[name] for name in seen}


def from_prior(structure: Structure, held: dataset.Data, names: tuple[str, ...], given: Mapping,
               count: int, seed: int, verb: str) -> dict[str, np.ndarray]:
    """`count` data sets with the inputs of these rows, each with its own draw from the prior: site
    → (count, ...).

    Args:
        given: values of sites outside rows that are not drawn.

    Raises:
        Refusal: a loss, a prior that weighs by a factor or is improper: none can be drawn from;
            more numbers than MOST.
    """
    structure.need_likelihood(verb)
    sites, n = structure.sites, held.table.rows
    flat = next((s.name for s in sites.values() if s.entry.improper and s.name not in given
                 and not s.rows), None)
    if structure.penalties or flat is not None:
        what = (f"the factor '{structure.penalties[0]}' modifies the prior" if structure.penalties
                else f"the prior of '{flat}' is improper")
        raise Refusal(f"{verb}: {what} of model '{structure.model.name}', so it cannot be sampled: "
                      f"use a proper prior, such as sample(\"{flat or 'mean'}\", "
                      f"dist.Normal(0, 10)), or give a value in the data")
    size = count * n * sum(math.prod(structure.named[name].along(held.steps)) for name in names
                           if structure.named[name].rows)
    if size > MOST:
        raise Refusal(f"{verb}: {count} data sets of {n} rows are {size:.2g} numbers, more than "
                      f"the limit of {MOST:.2g}: give fewer rows, or ask for fewer data sets")
    drawn = simulate_draws(structure, names, {}, given, held.table.inputs, random_key(seed), n,
                           count, held.steps)
    return {name: np.asarray(value) for name, value in drawn.items()}


def _other(held: dataset.Data, plan: Plan, simulator: Any) -> Structure:
    """The structure of another model that makes the rows.

    Raises:
        ModelError: it lacks a seen site, or shares no parameter.
    """
    if not isinstance(simulator, Bound):
        raise ModelError(f"check(simulator={simulator!r}): expected a Model that simulates the "
                         f"rows")
    inputs = {name: (a.shape[1:], a.dtype.kind) for name, a in held.table.inputs.items()}
    missing = next((name for name in simulator.inputs if name not in inputs), None)
    if missing is not None:
        raise ModelError(f"check(simulator={simulator!r}): its input '{missing}' is not in the "
                         f"data, whose inputs are {list(inputs)}")
    structure, sites = (structure_of(simulator, {name: inputs[name] for name in simulator.inputs}),
                        held.structure.sites)
    for name in held.table.columns:
        other = structure.sites.get(name)
        if other is None or not other.rows or other.along(held.steps) != sites[name].along(
            held.steps
        ):
            got = "no such site" if other is None else f"the shape {other.along(held.steps)}"
            raise ModelError(f"check(simulator={simulator!r}): expected site '{name}' of shape "
                             f"{sites[name].along(held.steps)}, got {got}")
    shared = [n for n in (*plan.free, *plan.globals) if n in structure.sites
              and structure.sites[n].shape == sites[n].shape]
    if not shared:
        raise ModelError(f"check(simulator={simulator!r}): no parameter has the name and shape of "
                         f"one of {[*plan.free, *plan.globals]}")
    return structure


def filled(held: dataset.Data, values: Mapping[str, np.ndarray]) -> dataset.Data:
    """The template with simulated values; what was unseen stays so."""
    columns = {
        name: replace(column, values=values[name].astype(column.values.dtype, copy=False))
        for name, column in held.table.columns.items()
    }
    return held._replace(table=replace(held.table, columns=columns))
