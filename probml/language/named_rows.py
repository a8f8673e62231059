"""The plates of rows: of one table, or of several, each of whose rows index another's.

`rows("patients")` is the plate of a table's rows, `rows("visits", of="patients")` that of another
table, each row of which belongs to one of the first: its sites read those of the first by an input
that is an index, `a[patient]`. So written a function is a plain NumPyro function, each table a
plate of its own (Tables). It is read as rows of the first table, with so many of the second beside
each (Nested).
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpyro

from probml.errors import ModelError

# the mark that rows() leaves on the messages of the sites inside it: its batch axis
ROWS = "probml.rows"
# the mark that holds what a message observed before it was a log weight of the one row
OBSERVED = "probml.observed"


class UnnamedTable(ModelError):
    """rows() without a name was called where there are several tables."""


class RowPlate(numpyro.plate):
    """A plate that is known by a mark and not by its name, which handlers such as scope change."""

    def process_message(self, msg: dict) -> None:
        super().process_message(msg)
        msg[ROWS] = self.dim


class Relation(NamedTuple):
    """What a call of rows says of a table: whose rows its own belong to (None: nobody's), and
    which input is the index of these (None: it is not said)."""

    of: str | None
    by: str | None


class Tables:
    """Several tables as the function is written: each the plate of its own rows.

    Args:
        sizes: name → number of rows; a table that is not there counts as one row.
    """

    def __init__(self, sizes: Mapping[str, int]):
        self.sizes = dict(sizes)
        self.declared: dict[str, Relation] = {}

    def plate(self, name: str | None, of: str | None, by: str | None) -> numpyro.plate:
        """
        Raises:
            Unnamed: no name. ModelError: the same table is said to belong to two.
        """
        if name is None:
            raise UnnamedTable("the data have several tables, so each rows() needs the name of a "
                               "table, such as rows(\"visits\")")
        link = Relation(of, by)
        if self.declared.setdefault(name, link) != link:
            raise ModelError(f"rows('{name}') is declared twice with different arguments, "
                             f"{self.declared[name]._asdict()} and {link._asdict()}. Use the same "
                             f"arguments at every call")
        return numpyro.plate(name, self.sizes.get(name, 1))


class Nested:
    """Several tables as they are read: rows of one, each with so many places for rows of others.

    Args:
        root: the table whose rows are the rows; rows: how many.
        places: name of another table → how many of its rows may belong to one of these.
    """

    def __init__(self, root: str, rows: int, places: Mapping[str, int]):
        self.root, self.rows, self.places = root, rows, dict(places)

    def plate(self, name: str | None, of: str | None, by: str | None) -> numpyro.plate:
        if name == self.root:
            return RowPlate("rows", self.rows, dim=-1)
        return _nested_plates(self.rows, str(name), self.places[str(name)])


@contextlib.contextmanager
def _nested_plates(rows: int, name: str, places: int) -> Iterator[None]:
    with RowPlate("rows", rows, dim=-1), numpyro.plate(name, places, dim=-2):
        yield
