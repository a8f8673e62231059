"""A summary of a fit: titled tables, numbers about the fit as a whole, its status; as text, HTML
and plain values."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from probml.assessment.pages.html import noted, records_of
from probml.errors import counted, listed
from probml.numerics.process.libraries import pd

P = "P>|z|"  # the column of two-sided p-values of the normal
SHOWN_ROWS, SHOWN_TABLES = 60, 20  # in print
NEGLIGIBLE = 1e-14  # probability below which 0 is printed: rounding error


@dataclass(frozen=True, eq=False)
class Table:
    """One table of a summary.

    Attributes:
        heading: its title.
        values: a DataFrame.
        errors: a DataFrame of the same shape, standard errors or posterior standard deviations,
            which are printed in parentheses; None: they are columns of `values`, or there are none.
    """

    heading: str
    values: "pd.DataFrame"
    errors: "pd.DataFrame | None" = None

    @classmethod
    def concatenated(cls, heading: str, tables: Sequence["Table"], axis: int = 0) -> "Table":
        """Tables concatenated as rows, or as columns (axis 1)."""
        parts = [pd.concat([table.values for table in tables], axis=axis)]
        if all(table.errors is not None for table in tables):
            parts.append(pd.concat([table.errors for table in tables], axis=axis))
        return cls(heading, *parts)

    def printed(self) -> "pd.DataFrame":
        """A DataFrame of text, four significant digits, errors in parentheses."""
        printed = pd.DataFrame(index=self.values.index, columns=self.values.columns, dtype=object)
        numbers = self.values.select_dtypes("number").to_numpy(float)
        shares = P not in self.values.columns and not ((numbers < 0) | (numbers > 1 + 1e-9)).any()
        threshold = NEGLIGIBLE if shares else 0.0
        for j in range(self.values.shape[1]):
            text = _p_value if self.values.columns[j] == P else _number
            cells = ["0" if isinstance(value, float) and abs(value) < threshold else text(value)
                     for value in self.values.iloc[:, j]]
            if self.errors is not None:
                error = [_number(value, 2) for value in self.errors.iloc[:, j]]
                cells = [f"{cell} ({e})" if e and cell != "0" else cell
                         for cell, e in zip(cells, error, strict=True)]
            printed.isetitem(j, cells)
        printed.columns.names = self.values.columns.names
        return printed


@dataclass(frozen=True, eq=False)
class Summary:
    """Estimates as titled tables; `print(summary)` shows all of it, `summary["Fixed effects"]` is
    one table as a DataFrame.

    Attributes:
        title: the model, and by which engine it was fitted.
        tables: in the order in which they are shown.
        figures: name → value, such as the log-likelihood, AIC, the number of rows.
        status: how the fit ended, one line.
        warnings: the fit's, a tuple of findings.
        notes: sentences about the tables.
    """

    title: str
    tables: tuple[Table, ...]
    figures: Mapping[str, object] = field(default_factory=dict)
    status: str = ""
    warnings: tuple = ()
    notes: tuple[str, ...] = ()

    def __getitem__(self, heading: str) -> Any:
        by_heading = {table.heading: table.values for table in self.tables}
        if heading not in by_heading:
            raise KeyError(f"this summary has no table {heading!r}. Use one of its tables, "
                           f"{listed(by_heading)}")
        return by_heading[heading]

    def keys(self) -> list[str]:
        """The headings of the tables."""
        return [table.heading for table in self.tables]

    def __str__(self) -> str:
        parts = [self.title, *([self.status] if self.status else []), *map(str, self.warnings)]
        for table in self.tables[:SHOWN_TABLES]:
            frame = table.printed()
            n_hidden = len(frame) - SHOWN_ROWS
            text = frame.head(SHOWN_ROWS).to_string(justify="right", sparsify=True)
            further = counted(n_hidden, "further row is", "further rows are")
            parts += ["", table.heading, text] + [f"… {further} in "
                                                  f"summary[{table.heading!r}]"] * (n_hidden > 0)
        others = [table.heading for table in self.tables[SHOWN_TABLES:]]
        parts += ["", f"… {counted(len(others), 'further table')}; summary.keys() lists "
                      f"{'it' if len(others) == 1 else 'them'}"] if others else []
        if self.figures:
            parts += ["", "   ".join(f"{name}: {_number(value, 6)}"
                                     for name, value in self.figures.items())]
        return "\n".join([*parts, *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        warned = "".join(f"<li>{escape(str(finding))}</li>" for finding in self.warnings)
        tables_html = "".join(f"<h4>{escape(table.heading)}</h4>"
                              f"{table.printed().head(SHOWN_ROWS).to_html(border=0)}"
                              for table in self.tables[:SHOWN_TABLES])
        figures = " · ".join(f"{escape(name)} {escape(_number(value, 6))}"
                             for name, value in self.figures.items())
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return noted(f"<p><b>{escape(self.title)}</b></p><p>{escape(self.status)}</p>"
                     f'{f"""<ul class="warn">{warned}</ul>""" if warned else ""}'
                     f"{tables_html}<p>{figures}</p>{notes}")

    def to_dict(self) -> dict[str, object]:
        """The summary as plain values, for JSON: tables as lists of records."""
        def records(frame: "pd.DataFrame") -> list[dict[str, object]]:
            return [{key: _json_value(value) for key, value in record.items()} for record in
                    records_of(frame.rename_axis([name or "name" for name in frame.index.names]))]

        return {"title": self.title, "status": self.status,
                "warnings": [str(finding) for finding in self.warnings],
                "tables": [{"heading": table.heading, "values": records(table.values)}
                           | ({} if table.errors is None else {"errors": records(table.errors)})
                           for table in self.tables],
                "figures": {name: _json_value(value) for name, value in self.figures.items()},
                "notes": list(self.notes)}


def _json_value(value: object) -> object:
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _p_value(value: float) -> str:
    return "" if math.isnan(value) else "<0.001" if value < 5e-4 else f"{value:.3f}"


def _number(value: Any, digits: int = 4) -> str:
    """A number to some significant digits, without an exponent where four figures suffice."""
    if isinstance(value, bool | str) or value is None:
        return "" if value is None else str(value)
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    try:
        value = float(value)
    except (TypeError, ValueError):
        return str(value)
    if math.isnan(value):
        return ""
    if value and 1e-4 <= abs(value) < 1e6:
        places = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
        return f"{value:.{places}f}"
    return f"{value:.{digits}g}"
