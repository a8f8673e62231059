"""The table of a summary, whose columns and rows are also found by other names: a point's value and
a posterior's mean, and the names that parameters had before."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from probml.language.renamed import warn


class Estimates(pd.DataFrame):
    """A pandas table whose column 'value', the estimates of a point, is 'mean' where the fit has a
    posterior, so that code works for either result of a fit without a named engine."""

    @property
    def _constructor(self) -> type:
        return Estimates

    def __repr__(self) -> str:
        # with all columns, of which pandas would leave out those beyond 80 characters
        with pd.option_context("display.width", 120, "display.max_columns", None):
            return super().__repr__()

    def __getitem__(self, key: object) -> Any:
        lacks = isinstance(key, str) and key == "value" and key not in self.columns
        return super().__getitem__("mean" if lacks and "mean" in self.columns else key)


class RenamedRows(pd.Index):
    """The names of rows, `sigma` or `beta[age]`, which are also found by their former names."""

    former: Mapping[str, str] = {}  # of a class of its own: pandas copies an index without asking

    def _current_name(self, name: object) -> Any:
        old, bracket, entry = name.partition("[") if isinstance(name, str) else ("", "", "")
        if old not in self.former or name in self:
            return name
        warn("the parameter", old, self.former[old], 4)
        return self.former[old] + bracket + entry

    def get_loc(self, key: object) -> Any:
        return super().get_loc(self._current_name(key))

    def get_indexer_for(self, target: Sequence) -> Any:
        return super().get_indexer_for([self._current_name(name) for name in target])

    def __reduce__(self) -> Any:
        return pd.Index(list(self), name=self.name).__reduce__()


def rows_by_old_names(table: "pd.DataFrame", former: Mapping[str, str]) -> "pd.DataFrame":
    """The same table, whose rows are found by old names, too."""
    if former:
        rows = table.index.astype(object)
        rows.__class__ = type("RenamedRows", (RenamedRows,), {"former": former})
        table.index = rows
    return table
