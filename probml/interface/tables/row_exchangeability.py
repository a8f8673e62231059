"""Whether the rows of a table that belong to those of another are exchangeable: it must hold before
they become cells of the rows of the other."""

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
    """Refuse a row of another table that looks at others than its own, at its number or at how many
    there are: places are not the table's rows."""
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
    """For every argument of a site, whose it is and how one row of a table comes to depend on
    others (exchangeability.looks), the number of places followed through the function's program."""
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
    """The axis of a site that runs along a table's rows."""
    inside = [name for name, _ in site.plates if name != "rows"]
    return site.axes[inside.index(table)] if site.rows and table in inside else None
