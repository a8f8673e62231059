"""Queries of relational data: computed for the rows of the root, answered in the order of each
table's rows."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
from jax.typing import ArrayLike

from probml.dataset.grid import Places
from probml.interface.tables.relations import RelationalFunction, flatten_tables, tables_of, widen
from probml.queries.fitted import Fitted
from probml.typing import DataLike, SiteValues


def answers_in_tables(of_site: bool = False) -> Callable:
    """Let a query, whose first argument is data, take several tables: answers about a site come in
    the order of its table's rows, answers about rows in the order of the root's.

    Args:
        of_site: the answer is about `site`, or about the only missing one; a dict is about the
            sites that it names, all else about rows.
    """

    def asked(verb: Callable) -> Callable:
        @functools.wraps(verb)
        def ask(self: Any, data: DataLike, *args: Any, **named: Any) -> Any:
            found = flatten_for(self, data)
            if found is None:
                return verb(self, data, *args, **named)
            fit, flat, places = found
            answer = verb(fit, flat, *args, **named)
            if isinstance(answer, dict):
                return gather_by_table(fit, answer, places)
            if not of_site:
                return answer
            site = named.get("site", args[0] if args else None)
            site = site or fit._site_to_predict(fit._read(flat),
                                                continuous=verb.__name__ == "predict")
            return gather_by_table(fit, {site: answer}, places)[site]

        return ask

    return asked


def flatten_for(fit: Any,
                data: DataLike) -> tuple[DataLike, dict[str, ArrayLike], dict[str, Places]] | None:
    """A fit with enough places for these tables, the tables as rows of the root, and the places of
    the rows of others; None where the data are no tables, or the model has none."""
    tables = tables_of(data) if isinstance(fit.model.generative, RelationalFunction) else None
    if tables is None:
        return None
    flat, places = flatten_tables(fit.model, tables)
    model = widen(fit.model, {name: found.width for name, found in places.items()})
    if model != fit.model:
        reading = model.generative
        wide = {name: reading.tables[reading.owners[own]][1]
                for name, own in reading.inputs.items() if own in reading.owners}
        shapes = {name: ((wide[name], *shape[1:]), kind) if name in wide else (shape, kind)
                  for name, (shape, kind) in fit.shapes.items()}
        fit = replace(fit, model=model, shapes=shapes, data=None, kept=None)
    return fit, flat, places


def gather_by_table(fit: Fitted, answers: SiteValues,
                    places: Mapping[str, Places]) -> dict[str, ArrayLike]:
    """Answers about sites, name → (n, ...), those of other tables in the order of their rows."""
    out = {}
    for name, answer in answers.items():
        site = fit.structure.named[name]
        table = next((plate for plate, _ in site.plates if plate in places), None)
        out[name] = answer if table is None else jax.tree.map(places[table].gathered, answer)
    return out
