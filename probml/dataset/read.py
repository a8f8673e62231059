"""Data in: every column checked against its site, labelled, and its unseen cells marked."""

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml import errors
from probml.dataset import arrays, chain_inputs, frames, kinds, ragged, tables
from probml.dataset.checks import bounds
from probml.dataset.coding import indices as coding
from probml.dataset.dataset import Data
from probml.dataset.sources.arrow import as_table
from probml.families.domains import Simplex
from probml.language.language import Bound
from probml.structure import covariances
from probml.structure.ordering import why_ordered
from probml.structure.possible import check_chains
from probml.structure.site import Site
from probml.structure.structure import Structure

ZERO = ("{kind} has no density at 0. Replace zeros from rounding by half the rounding unit, or use "
        "Exponential, which allows 0.")


def read(
    model: Bound,
    data: Any,
    labels: Mapping[str, tuple] | None = None,
    rows: int | None = None,
    shapes: Mapping | None = None,
    steps: int | None = None,
    unknown: str = coding.REFUSE,
) -> Data:
    """Check data against a model, before any compile.

    Args:
        labels: site or index input → its labels, from a fit; None: there is no fit yet, and the
            labels are those of these data. What a fit knows by codes has none later on either.
        shapes: input → (trailing shape, dtype kind) that a fit had.
        steps: the length of chains, where the data do not tell it.
        unknown: what becomes of a label or code of an index input that the fit does not know:
            "refuse", or "new".

    Raises:
        DataError: see tables.read and codes.read.
    """
    frames.check_order(data)
    known = {} if data is None else as_table(frames.plain(data))
    frames.check_once(known, model.inputs)
    if isinstance(known, str | bytes | jax.Array):
        tables.read(known, {}, list(model.inputs), model=model.name)  # raises
    done = next((name for name, _ in model.interventions
                 if name in getattr(known, "column_names", known)), None)
    if done is not None:
        raise errors.DataError(f"'{done}' is set by do() in every row: drop it from the data")
    raws, specs, beyond = {}, {}, {}
    for name in model.inputs:
        if name in getattr(known, "column_names", known if hasattr(known, "__contains__") else ()):
            value = ragged.of_column(known[name])
            full = ragged.padded(name, value, unseen=False)
            # asking a column of Arrow would convert it
            if not hasattr(full, "to_pandas") and not np.ndim(full):
                raise errors.DataError(
                    f"{model.name}: the input '{name}' is a single value, {value!r}, but an input "
                    f"has one value per row, (n, ...): bind an argument that is the same in all "
                    f"rows, {model.name}({name}={value!r})"
                )
            padded = full is not value
            # text is padded by None
            full = ragged.padded(name, value) if padded and full.dtype.hasobject else full
            raws[name] = raw = arrays.as_raw(f"the input '{name}'", full, True)
            if padded:
                beyond[name] = np.arange(
                    raw.values.shape[1]
                ) >= np.array([len(part) for part in value])[:, None]
            shape = raw.values.shape
            specs[name] = (shape[1:], raw.values.dtype.kind)
            if shapes and shapes[name][0][:1] == (None,) and len(shape) > 1:
                specs[name] = ((None, *shape[2:]), raw.values.dtype.kind)
            if shapes and specs[name][0] != tuple(shapes[name][0]):
                wanted = ("n", *shapes[name][0])
                raise errors.DataError(
                    f"input '{name}' has shape {shape}, but the fit had {wanted}: pass the same "
                    f"columns in the same order"
                )
        else:
            tables.read(known, {}, [name], model=model.name, rows=rows)  # raises, naming the input
    structure = kinds.settled(model, raws, shapes or {}, specs)
    shown = getattr(known, "column_names", known if hasattr(known, "__contains__") else ())
    frames.check_once(known, structure.sites)
    computed = next((name for name in structure.deterministics if name in shown), None)
    if computed is not None:
        raise errors.DataError(
            f"{model.name}: '{computed}' is computed by the model (numpyro.deterministic, or a "
            f"reparametrised site), so it cannot be data: drop '{computed}'; to observe it, sample "
            f"it without reparametrisation"
        )
    asked = labels is not None
    codes = coding.read(structure, raws, labels or {}, beyond, unknown, asked)
    length = given = None
    known = ragged.of_table(known) if structure.chains else known
    if structure.chains and (isinstance(known, Mapping) or not hasattr(known, "shape")):
        if not isinstance(known, Mapping):
            tables.read(known, {}, list(model.inputs), model=model.name)  # raises
        known, length, given = ragged.along_time(structure, known, steps)
    elif structure.chains:
        raise errors.DataError(f"{model.name}: a table's columns cannot hold sequences: pass a "
                               f"mapping name -> array (rows, steps, ...)")
    expected = {site.name: expected_of(site, structure, length) for site in structure.sites.values()
                if not site.factor}
    labels = {**structure.labels, **(labels or {})}
    table = tables.read(known, expected, model.inputs, labels, model=model.name, rows=rows,
                        codes=codes.values, asked=asked)
    table = replace(table, labels={**table.labels, **codes.labels})
    bounds.check(structure, table)
    covariances.check(structure, table.inputs)
    if length is not None and len(structure.chains) > len(structure.markov):
        check_chains(structure, {}, length)
        chain_inputs.check(structure, table.inputs, length)
    return Data(model, structure, table, length, given=given, new=codes.new)


def expected_of(site: Site, structure: Structure, steps: int | None) -> tables.Expected:
    """What a table must hold of a site."""
    words, valid, domain = "real", None, site.domain
    if domain.sums_to_one:
        # a density, whose value on the edge is 0 or infinite
        domain = Simplex(interior=site.rows and site.entry.interior)
        words, valid = domain.description, domain.contains
    elif site.rows and site.traits.checked is not None:
        words, valid = site.traits.checked.description, site.traits.checked.contains
    elif (most := structure.constant(site.name, site.traits.limit)) is not None:
        most = (most.reshape(-1)[0] if most.size == 1
                else np.asarray(site.layout(jnp.asarray(most), 0)).reshape(site.cells))
        words = f"an integer in 0 … {most}, its {site.traits.limit}"

        def valid(values):
            return values <= most

    elif domain.checkable and (site.states is None or domain.ragged) and site.event == ():
        words = domain.description
        held = domain.rearranged(  # of cells, in NumPyro's axes
            lambda end: np.asarray(site.layout(jnp.asarray(end), 0)).reshape(site.cells)
        ) if site.rows else domain

        def valid(values):
            return held.contains(site.valued(values))

    zero = ZERO.format(kind=site.kind) if site.rows and words == "positive" else arrays.UNSEEN
    event = 0 if site.chain else len(site.event)  # a chain may be seen in part
    low = site.low
    return tables.Expected(site.name, site.discrete, site.states, site.along(steps), site.rows,
                           words, valid, event, site.plates, low, zero,
                           functools.partial(why_ordered, structure, site.name))

