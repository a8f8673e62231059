"""A function of several tables read as rows of one: those of the others stand beside the row to
which they belong."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from numpyro.distributions.distribution import validation_enabled

from probml.interface.functions.readings import Reading
from probml.language.language import row_scope
from probml.language.named_rows import Nested, RowPlate


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

    def run(self, settings: Mapping[str, Any], inputs: Mapping[str, Any],
            rows: int | None = None) -> Any:
        arguments = {own: jnp.moveaxis(jnp.asarray(inputs[name]), 1, 0) if own in self.owners
                     else inputs[name] for name, own in self.inputs.items()}
        with RowPlate("rows", rows, dim=-1) as number:
            pass
        arguments |= {key: number[None] for key, _ in self.tables.values()}
        with validation_enabled(False), row_scope(Nested(self.root, int(rows or 0), self.places)):
            return self.call({**settings, **arguments})
