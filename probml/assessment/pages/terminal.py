"""The same tables as rich text, for terminals: what `rich.print` and rich's pretty printer show.
rich is imported where it asks, and nothing here needs it otherwise."""

from collections.abc import Mapping, Sequence
from typing import Any

from probml.assessment.pages.html import format_cell

GOOD, BAD, HEAD = "green", "yellow", "bold"


def rich_report(lines: Sequence[tuple[str, str]],
                tables: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> Any:
    """A renderable of rich: lines, (text, style) each, then tables of records under their titles,
    the first column in bold. Nothing in them is read as rich's markup."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Any] = [Text(text, style) for text, style in lines]
    for title, records in tables:
        if not records:
            continue
        out = Table(title=Text(title, HEAD), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        for i, name in enumerate(records[0]):
            numbers = all(isinstance(record.get(name), int | float) for record in records)
            out.add_column(Text(str(name)), style="" if i else HEAD, overflow="fold",
                           justify="right" if numbers else "left")
        for record in records:
            out.add_row(*(Text(format_cell(value)) for value in record.values()))
        parts.append(out)
    return Group(*parts)


def ended(converged: bool, status: str) -> tuple[str, str]:
    """How a fit ended, as a line."""
    return (f"✓ {status}", GOOD) if converged else (f"⚠ {status}", BAD)
