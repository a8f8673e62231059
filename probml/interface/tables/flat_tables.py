"""Relational data as rows of the root table: the rows of other tables become cells, in padded
arrays, of the row of the root to which they belong."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpyro.distributions.distribution import validation_enabled

from probml.dataset import arrays, frames, grid
from probml.dataset.sources.parts import source_of
from probml.errors import DataError, present
from probml.interface.functions.readings import Reading
from probml.language.language import Bound, row_scope
from probml.language.named_rows import Nested, RowPlate
from probml.typing import SiteValues


@dataclass(eq=False)
class RelationalFunction(Reading):
    """A function of several tables, with the rows of `root` as the rows and those of other tables
    as cells, along an axis of `places`, as many as the greatest number that belong to one row.

    Where the function indexes a site of the root, `a[patient]`, it gets the row's own value: the
    index has assigned the other table's rows to it. So these are cells in a plate inside rows,
    which all engines and queries support: latent discrete cells are summed out, continuous ones
    integrated out, missing cells left out, rows chunked and pooled.

    Args:
        tables: name of another table → (its index, places of each row).
        owners: argument → the other table of which it is a column.

    Cost: rows × places.
    """

    root: str
    tables: Mapping[str, tuple[str, int]]
    owners: Mapping[str, str]

    @property
    def places(self) -> dict[str, int]:
        """Name of another table → places of each row: the greatest number in the data so far."""
        return {name: width for name, (_, width) in self.tables.items()}

    def with_widths(self, places: Mapping[str, int]) -> "RelationalFunction":
        """The function with other numbers of places for some tables."""
        tables = {name: (key, places.get(name, width))
                  for name, (key, width) in self.tables.items()}
        return replace(self, tables=tables)

    def run(self, settings: Mapping[str, object], inputs: SiteValues,
            rows: int | None = None) -> object:
        arguments = {own: jnp.moveaxis(jnp.asarray(inputs[name]), 1, 0) if own in self.owners
                     else inputs[name] for name, own in self.inputs.items()}
        with RowPlate("rows", rows, dim=-1) as number:
            pass
        arguments |= {key: number[None] for key, _ in self.tables.values()}
        with validation_enabled(False), row_scope(Nested(self.root, int(rows or 0), self.places)):
            return self.call({**settings, **arguments})


Columns = Mapping[str, SiteValues]  # table → column → values


def tables_of(data: object) -> dict[str, dict[str, ArrayLike]] | None:
    """A mapping of tables as table → column → values; None for anything else."""
    if not isinstance(data, Mapping) or not data or source_of(data) is not None:
        return None
    if not all(isinstance(name, str) and (isinstance(table, Mapping) or hasattr(table, "columns"))
               for name, table in data.items()):
        return None
    for table in data.values():
        if hasattr(table, "column_names"):  # an Arrow table cannot be indexed by a duplicate name
            frames.check_once(table)
    return {name: dict(table) if isinstance(table, Mapping) else
            {column: table[column] for column in frames.names_of(table)}
            for name, table in data.items()}


def count_rows(name: str, table: SiteValues) -> int:
    return len(arrays.as_raw(f"'{next(iter(table))}' of table '{name}'",
                             next(iter(table.values())), True).values)


def flatten_tables(model: Bound,
                   tables: Columns) -> tuple[dict[str, ArrayLike], dict[str, grid.Places]]:
    """The tables as rows of the root: name → (n, ...), of others (n, places, ...); and the place
    of each row of the others."""
    reading: RelationalFunction = model.generative
    first = tables.get(reading.root, {})
    keys = dict.fromkeys(key for key, _ in reading.tables.values())
    number = {key: _rows_by_key(reading, tables, key) for key in keys}
    rows = max(map(len, number.values()), default=None)
    inputs = {own: name for name, own in reading.inputs.items()}
    out = {inputs.get(name, name): value for name, value in first.items() if name not in keys}
    places = {}
    for name, (key, width) in reading.tables.items():
        if name not in tables:
            continue
        what = f"'{key}' of table '{name}'"
        if key not in tables[name]:
            raise DataError(f"{model.name}: the index {what} is missing, the column that gives the "
                            f"row of '{reading.root}' to which each row belongs")
        found = grid.positions(what, tables[name][key], number[key], f"table '{reading.root}'")
        places[name] = found
        for column, value in tables[name].items():
            if column != key:
                own = inputs.get(column, column)
                out[own] = found.spread(f"'{column}' of table '{name}'", value, present(rows),
                                        max(width, found.width), own not in model.inputs)
    return out, places


def _rows_by_key(reading: RelationalFunction, tables: Columns, key: str) -> dict[Hashable, int]:
    """Key → row of the root: by its column of that name, or of another index; else by row number;
    without the root table one row for each key that occurs."""
    first, keys = tables.get(reading.root, {}), {own for own, _ in reading.tables.values()}
    key = key if key in first else next((own for own in first if own in keys), key)
    if key in first:
        what = f"'{key}' of table '{reading.root}'"
        values, codes = grid.keys_of(what, first[key])
        if len(values) < len(codes):
            twice = values[int(np.argmax(np.bincount(codes)))]
            raise DataError(f"{what} contains {twice!r} twice: the key of every row must be unique")
        return {values[code]: row for row, code in enumerate(codes)}
    if first:
        return {row: row for row in range(count_rows(reading.root, first))}
    found = {value for name, (own, _) in reading.tables.items() if name in tables
             for value in grid.keys_of(f"'{own}' of table '{name}'", tables[name][own])[0]}
    return {value: row for row, value in enumerate(sorted(found, key=lambda v: (isinstance(v, str),
                                                                                v)))}


def widen(model: Bound, places: Mapping[str, int]) -> Bound:
    """The model with at least these numbers of places for the rows of other tables."""
    reading: RelationalFunction = model.generative
    wide = {name: max(places.get(name, 1), width) for name, (_, width) in reading.tables.items()}
    return type(model)(reading.with_widths(wide), model.settings, model.interventions)
