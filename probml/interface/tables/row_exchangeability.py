"""A check that the rows of a table are exchangeable given the row of the root to which they belong,
so that they can become its cells."""

import functools
from collections.abc import Iterable, Iterator

import jax

from probml.dataset import arrays
from probml.errors import ModelError
from probml.interface.tables.flat_tables import RelationalFunction
from probml.jaxpr import exchangeability
from probml.jaxpr.program import ClosedJaxpr, jaxpr_of
from probml.language.language import Bound
from probml.structure.site import Site
from probml.structure.sites import dtype_of, input_specs, leaves_of, sites_of
from probml.typing import SiteValues


def check_exchangeable(model: Bound, flat: SiteValues, others: Iterable[str]) -> None:
    """Refuse a model in which a row of another table depends on rows that do not belong with it, on
    its row number or on the number of rows: these differ in the padded arrays."""
    for table in others:
        for owner, mixed in _dependence_on_others(model, flat, table):
            if mixed:
                whys = {exchangeability.NUMBER: "on its row's number",
                        exchangeability.COUNT: "on how many rows there are"}
                why = whys.get(mixed, f"on other rows of it through '{mixed}'")
                raise ModelError(
                    f"model '{model.name}', site '{owner}': a row of table '{table}' depends "
                    f"{why}, but rows must be exchangeable. Standardise or lag the inputs before "
                    f"fitting; make totals of the other rows an input of '{model.generative.root}'"
                )


def _dependence_on_others(model: Bound, flat: SiteValues,
                          table: str) -> Iterator[tuple[str, str]]:
    """(site's argument, how a row of a table comes to depend on others in it): see
    exchangeability.looks, the axis of places followed through the function's program."""
    raws = {name: arrays.as_raw(f"the input '{name}'", flat[name], True) for name in model.inputs
            if name in flat}
    reading: RelationalFunction = model.generative
    inside = {name for name, own in reading.inputs.items() if reading.owners.get(own) == table}
    owners: list[str] = []

    def traced(places: int) -> tuple[ClosedJaxpr, list[int | None]]:
        read = type(model)(reading.with_widths({table: places}), model.settings)
        own = tuple(sorted(
            (name, (places, *raw.values.shape[2:]) if name in inside else raw.values.shape[1:],
             raw.values.dtype.kind) for name, raw in raws.items()
        ))
        found = sites_of(read, own, bool(jax.config.jax_enable_x64), 1)[0]
        values = {name: jax.ShapeDtypeStruct(site.shape, dtype_of(site))
                  for name, site in found.items()}
        closed = jaxpr_of(functools.partial(leaves_of, read, owners))(
            values, input_specs(own, 1)
        )
        return closed, [*(_axis(found[name], table) for name in sorted(found)),
                        *(1 if name in inside else None for name in sorted(raws))]

    single, axes = traced(1)
    mixed = exchangeability.looks(single, lambda places: traced(places)[0], axes)
    return zip(owners, mixed, strict=True)


def _axis(site: Site, table: str) -> int | None:
    """The axis of a site that is the rows of a table."""
    inside = [name for name, _ in site.plates if name != "rows"]
    return site.axes[inside.index(table)] if site.rows and table in inside else None
