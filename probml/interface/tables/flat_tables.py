"""Several tables as rows of one, the rows of the others in places beside them.

A function of several tables read as rows of one: those of the others stand beside the row to
which they belong.
"""

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
    """The rows of one table, `root`, with places for the rows of others beside each.

    Where the function reads a site of the root by an index, `a[patient]`, it is given the row's own
    number: the index is what has put the other table's rows beside it. So those are cells in a
    plate inside rows, of which all engines and questions know: discrete ones are summed out,
    numbers integrated, unseen cells left out, rows chunked and pooled.

    Args:
        tables: name of another table → (its index, places beside each row).
        owners: argument → the other table of which it is a column.

    Cost: rows × places of the root's row that has most.
    """

    root: str
    tables: Mapping[str, tuple[str, int]]
    owners: Mapping[str, str]

    @property
    def places(self) -> dict[str, int]:
        """Name of another table → places beside each row, as many as the data have shown so far."""
        return {name: width for name, (_, width) in self.tables.items()}

    def with_widths(self, places: Mapping[str, int]) -> "RelationalFunction":
        """The same function with so many places for the rows of some tables."""
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
        if hasattr(table, "column_names"):  # Arrow's find no column by a name that is there twice
            frames.check_once(table)
    return {name: dict(table) if isinstance(table, Mapping) else
            {column: table[column] for column in frames.names_of(table)}
            for name, table in data.items()}


def count_rows(name: str, table: SiteValues) -> int:
    return len(arrays.as_raw(f"'{next(iter(table))}' of table '{name}'",
                             next(iter(table.values())), True).values)


def flatten_tables(model: Bound,
                   tables: Columns) -> tuple[dict[str, ArrayLike], dict[str, grid.Places]]:
    """The tables as rows of the root: name → (n, ...), of others (n, places, ...); and where the
    rows of others stand."""
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
            raise DataError(f"{model.name}: the index {what} is missing: it gives the row of "
                            f"'{reading.root}' to which each row belongs")
        found = grid.positions(what, tables[name][key], number[key], f"table '{reading.root}'")
        places[name] = found
        for column, value in tables[name].items():
            if column != key:
                own = inputs.get(column, column)
                out[own] = found.spread(f"'{column}' of table '{name}'", value, present(rows),
                                        max(width, found.width), own not in model.inputs)
    return out, places


def _rows_by_key(reading: RelationalFunction, tables: Columns, key: str) -> dict[Hashable, int]:
    """Key → row of the root: by its column of that name, or of another index; without one its rows
    are numbered, and without the root they are the keys that occur."""
    first, keys = tables.get(reading.root, {}), {own for own, _ in reading.tables.values()}
    key = key if key in first else next((own for own in first if own in keys), key)
    if key in first:
        what = f"'{key}' of table '{reading.root}'"
        values, codes = grid.keys_of(what, first[key])
        if len(values) < len(codes):
            twice = values[int(np.argmax(np.bincount(codes)))]
            raise DataError(f"{what} has {twice!r} twice: the key of every row must be unique")
        return {values[code]: row for row, code in enumerate(codes)}
    if first:
        return {row: row for row in range(count_rows(reading.root, first))}
    found = {value for name, (own, _) in reading.tables.items() if name in tables
             for value in grid.keys_of(f"'{own}' of table '{name}'", tables[name][own])[0]}
    return {value: row for row, value in enumerate(sorted(found, key=lambda v: (isinstance(v, str),
                                                                                v)))}


def widen(model: Bound, places: Mapping[str, int]) -> Bound:
    """The model with at least so many places for the rows of other tables."""
    reading: RelationalFunction = model.generative
    wide = {name: max(places.get(name, 1), width) for name, (_, width) in reading.tables.items()}
    return type(model)(reading.with_widths(wide), model.settings, model.interventions)
