"""Answers in the order of the tables that were given: of relational data, which are computed for
the rows of the root, in that of each table's rows; of a vector whose elements are named columns, in
that of the columns."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from numpyro.distributions import Distribution

from probml.dataset.frames import columns_of, is_table, names_of, tables_of
from probml.dataset.grid import Places
from probml.errors import DataError, listed
from probml.interface.tables.relations import RelationalFunction, flatten_tables, widen
from probml.queries.fitted import Fitted
from probml.typing import ArrayLike, DataLike, SiteValues


def answers_in_tables(of_site: bool = False) -> Callable:
    """Let a query, whose first argument is data, take several tables: answers about a site come in
    the order of its table's rows, answers about rows in the order of the root's. Of a site whose
    elements are columns of a table they come in the order of its columns.

    Args:
        of_site: the answer is about `site`, or about the only missing one; a dict is about the
            sites that it names, all else about rows.
    """

    def asked(verb: Callable) -> Callable:
        @functools.wraps(verb)
        def ask(self: Any, data: DataLike, *args: Any, **options: Any) -> Any:
            flattened = flatten_for(self, data)
            if flattened is None:
                return as_columns_of(data, self, verb(self, data, *args, **options), lambda: (
                    _asked_site(self, data, verb, args, options)) if of_site else None)
            fit, flat, places = flattened
            answer = verb(fit, flat, *args, **options)
            if isinstance(answer, dict):
                return gather_by_table(fit, answer, places)
            if not of_site:
                return answer
            site = _asked_site(fit, flat, verb, args, options)
            return gather_by_table(fit, {site: answer}, places)[site]

        return ask

    return asked


def _asked_site(fit: Any, data: DataLike, verb: Callable, args: tuple, options: Mapping) -> Any:
    """The site that a query is about: that which it names, or the only missing one."""
    site = options.get("site", args[0] if args else None)
    return site or fit._site_to_predict(fit._read(data), continuous=verb.__name__ == "predict")


def as_columns_of(data: DataLike, fit: Any, answer: Any,
                  about: Callable[[], Any] = lambda: None) -> Any:
    """An answer in the order of the columns of the tables in `data`, by whose names they were read
    in the order of the fitted columns.

    Args:
        answer: of sites, name → (n, elements, ...); or of one. about: that one.

    Raises:
        DataError: a joint distribution, whose elements have one order.
    """
    reorder = {name: function for name, function in (
        (name, _column_order(data[name], fit.columns[name])) for name in columns_of(data)
        if name in fit.columns and name in fit.structure.sites) if function is not None}
    if not reorder:
        return answer
    axes = {name: len(fit.structure.sites[name].along(1)) for name in reorder}

    def in_order(name: str, value: Any) -> Any:
        return jax.tree.map(lambda a: reorder[name](a, axes[name]), value)

    if isinstance(answer, dict):
        return {name: in_order(name, value) if name in reorder else value
                for name, value in answer.items()}
    if isinstance(answer, Distribution):
        name = next(iter(reorder))
        raise DataError(f"'{name}' has its columns in another order than in the fitted data. Give "
                        "them in the order of the fitted data, "
                        f"{name}[[{listed(fit.columns[name])}]]")
    name = about()
    return in_order(name, answer) if name in reorder else answer


def _column_order(given: DataLike, columns: tuple[str, ...]) -> Callable | None:
    """(array (n, ...), axis of the elements) → it in the order of the columns of a table, or of
    each of a list of tables, the sequences; None: that is the order of `columns`."""
    tables = [given] if is_table(given) else given
    orders = [tuple(map(str, names_of(table))) for table in tables]
    if all(names == columns for names in orders):
        return None
    positions = [[columns.index(name) for name in names if name in columns] for names in orders]

    def moved(array: np.ndarray, axis: int) -> np.ndarray:
        array = np.asarray(array)
        return (np.take(array, positions[0], axis) if is_table(given) else
                np.stack([np.take(row, places, axis - 1)
                          for row, places in zip(array, positions, strict=True)]))

    return moved


def flatten_for(fit: Any,
                data: DataLike) -> tuple[DataLike, dict[str, ArrayLike], dict[str, Places]] | None:
    """A fit with enough places for these tables, the tables as rows of the root, and the places of
    the rows of others; None where the data are no tables, or the model has none."""
    tables = tables_of(data) if isinstance(fit.model.generative, RelationalFunction) else None
    if tables is None:
        return None
    flat, places = flatten_tables(fit.model, tables)
    model = widen(fit.model, {name: place.width for name, place in places.items()})
    if model != fit.model:
        reading = model.generative
        widths = {name: reading.tables[reading.owners[arg]][1]
                  for name, arg in reading.inputs.items() if arg in reading.owners}
        shapes = {name: ((widths[name], *shape[1:]), kind) if name in widths else (shape, kind)
                  for name, (shape, kind) in fit.shapes.items()}
        fit = replace(fit, model=model, shapes=shapes, data=None, kept=None)
    return fit, flat, places


def gather_by_table(fit: Fitted, answers: SiteValues,
                    places: Mapping[str, Places]) -> dict[str, ArrayLike]:
    """Answers about sites, name → (n, ...), those of other tables in the order of their rows."""
    gathered = {}
    for name, answer in answers.items():
        site = fit.structure.named[name]
        table = next((plate for plate, _ in site.plates if plate in places), None)
        gathered[name] = answer if table is None else jax.tree.map(places[table].gathered, answer)
    return gathered
