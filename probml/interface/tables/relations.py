"""The relations of a function's tables, read with the data: the root, whose rows are the rows of
the model, and the inputs by which rows of other tables index it; with the refusals, as of rows that
are not exchangeable given the row of the root to which they belong.

Relational data as rows of the root table: the rows of other tables become cells, in padded
arrays, of the row of the root to which they belong.
"""

import functools
import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset import arrays, grid
from probml.errors import DataError, ModelError, listed, present
from probml.interface.functions.given.values import value_of
from probml.interface.functions.joint_density import ReadModel, bind, input_name
from probml.interface.functions.readings import Reading
from probml.interface.functions.survey import Survey, survey_run
from probml.jaxpr import exchangeability
from probml.jaxpr.program import ClosedJaxpr, jaxpr_of
from probml.language.fingerprint import nested_code
from probml.language.language import Bound, chain_length_scope, row_scope, unwrapped
from probml.language.named_rows import Nested, Relation, RowPlate, Tables, UnnamedTable
from probml.numerics.process.making import unchecked
from probml.structure.site import Site
from probml.structure.sites import dtype_of, input_specs, leaves_of, sites_of
from probml.typing import ArrayLike, SiteValues


@dataclass(eq=False)
class RelationalFunction(Reading):
    """A function of several tables, with the rows of `root` as the rows and those of other tables
    as cells, along an axis of `places`, as many as the greatest number that belong to one row.

    Where the function indexes a site of the root, `a[patient]`, it gets the row's own value: the
    index has assigned the other table's rows to it. So these are cells in a plate inside rows,
    which all engines and queries support: latent discrete cells are summed out, continuous ones
    integrated out, missing cells left out, rows chunked and pooled.

    Args:
        tables: name of another table → (its index, places of each row).
        owners: argument → the other table of which it is a column.

    Cost: rows × places.
    """

    root: str
    tables: Mapping[str, tuple[str, int]]
    owners: Mapping[str, str]

    @property
    def places(self) -> dict[str, int]:
        """Name of another table → places of each row: the greatest number in the data so far."""
        return {name: width for name, (_, width) in self.tables.items()}

    def with_widths(self, places: Mapping[str, int]) -> "RelationalFunction":
        """The function with other numbers of places for some tables."""
        tables = {name: (key, places.get(name, width))
                  for name, (key, width) in self.tables.items()}
        return replace(self, tables=tables)

    def run(self, settings: Mapping[str, object], inputs: SiteValues,
            rows: int | None = None) -> object:
        arguments = {arg: jnp.moveaxis(jnp.asarray(inputs[name]), 1, 0) if arg in self.owners
                     else inputs[name] for name, arg in self.inputs.items()}
        with RowPlate("rows", rows, dim=-1) as number:
            pass
        arguments |= {key: number[None] for key, _ in self.tables.values()}
        with unchecked(), row_scope(Nested(self.root, int(rows or 0), self.places)):
            return self.call({**settings, **arguments})


Columns = Mapping[str, SiteValues]  # table → column → values


def count_rows(name: str, table: SiteValues) -> int:
    return len(arrays.as_raw(f"'{next(iter(table))}' of table '{name}'",
                             next(iter(table.values())), True).values)


def flatten_tables(model: Bound,
                   tables: Columns) -> tuple[dict[str, ArrayLike], dict[str, grid.Places]]:
    """The tables as rows of the root: name → (n, ...), of others (n, places, ...); and the place
    of each row of the others."""
    reading: RelationalFunction = model.generative
    root_table = tables.get(reading.root, {})
    keys = dict.fromkeys(key for key, _ in reading.tables.values())
    row_of_key = {key: _rows_by_key(reading, tables, key) for key in keys}
    rows = max(map(len, row_of_key.values()), default=None)
    inputs = {arg: name for name, arg in reading.inputs.items()}
    flat = {inputs.get(name, name): value for name, value in root_table.items() if name not in keys}
    places = {}
    for name, (key, width) in reading.tables.items():
        if name not in tables:
            continue
        what = f"'{key}' of table '{name}'"
        if key not in tables[name]:
            raise DataError(f"model '{model.name}': the column {what} is missing. Add it: it gives "
                            f"the row of '{reading.root}' to which each row belongs")
        positions = grid.positions(what, tables[name][key], row_of_key[key],
                                   f"table '{reading.root}'")
        places[name] = positions
        for column, value in tables[name].items():
            if column != key:
                arg = inputs.get(column, column)
                flat[arg] = positions.spread(f"'{column}' of table '{name}'", value, present(rows),
                                             max(width, positions.width), arg not in model.inputs)
    return flat, places


def _rows_by_key(reading: RelationalFunction, tables: Columns, key: str) -> dict[Hashable, int]:
    """Key → row of the root: by its column of that name, or of another index; else by row number;
    without the root table one row for each key that occurs."""
    root_table, keys = tables.get(reading.root, {}), {index for index, _ in reading.tables.values()}
    key = key if key in root_table else next((index for index in root_table if index in keys), key)
    if key in root_table:
        what = f"'{key}' of table '{reading.root}'"
        values, codes = grid.keys_of(what, root_table[key])
        if len(values) < len(codes):
            duplicate = values[int(np.argmax(np.bincount(codes)))]
            raise DataError(f"{what} contains {duplicate!r} twice, but every row needs a different "
                            f"key. Drop one of the rows, or give it another key")
        return {values[code]: row for row, code in enumerate(codes)}
    if root_table:
        return {row: row for row in range(count_rows(reading.root, root_table))}
    known = {value for name, (index, _) in reading.tables.items() if name in tables
             for value in grid.keys_of(f"'{index}' of table '{name}'", tables[name][index])[0]}
    return {value: row for row, value in enumerate(sorted(known, key=lambda v: (isinstance(v, str),
                                                                                v)))}


def widen(model: Bound, places: Mapping[str, int]) -> Bound:
    """The model with at least these numbers of places for the rows of other tables."""
    reading: RelationalFunction = model.generative
    widths = {name: max(places.get(name, 1), width) for name, (_, width) in reading.tables.items()}
    return type(model)(reading.with_widths(widths), model.settings, model.interventions)


def read_tables(model: Bound, tables: Columns) -> ReadModel | None:
    """A function of several tables, read with them; None where it names none.

    Raises:
        DataError: a table, a column or a key that is not there, or twice.
        ModelError: tables without a relation; a row that depends on rows of another table that do
            not belong to it.
    """
    if any(name in tables for name in model.inputs):
        return None
    codes = [unwrapped(model.generative.function).__code__, *model.helpers.values()]
    texts = (constant for code in codes for part in nested_code(code) for constant in part.co_consts
             if isinstance(constant, str))
    if not any(text in tables for text in texts):
        return None
    found = _survey_tables(model, tables)
    if found is None:
        return None
    context, survey, arguments = found
    root, others = _check_tables(model, context.declared, tables)
    _check_chains(model, survey, root)
    keys = {name: _key(model, name, link, tables) for name, link in others.items()}
    home = _tables_of_names(model, survey, root, others, keys, tables)
    names = {input_name(arg, survey): arg for arg in arguments if arg not in keys.values()}
    reading = RelationalFunction(model.generative, names, root,
                                 {name: (key, 1) for name, key in keys.items()},
                                 {arg: home[arg] for arg in names.values() if home[arg] in others},
                                 params=survey.params)
    bound = bind(model, reading, {}, arguments)
    flat, places = flatten_tables(bound, tables)
    bound = widen(bound, {name: found.width for name, found in places.items()})
    _check_exchangeable(bound, flat, others)
    joins = ", ".join(f"joined with those of '{name}' by '{key}'" for name, key in keys.items())
    return ReadModel(bound, flatten_tables(bound, tables)[0],
                     f"the rows are those of table '{root}'{', ' * bool(joins)}{joins}",
                     survey.initial_values)


def _survey_tables(model: Bound,
                   tables: Columns) -> tuple[Tables, Survey, dict[str, ArrayLike]] | None:
    """A run of the function as written: the tables that it declares, its sites, its arguments; None
    where it names no table.

    A key that is a column of several tables is an index in one of them: each is tried.
    """
    sizes = {name: count_rows(name, table) for name, table in tables.items() if table}
    failure: Exception | None = None
    lengths = {np.shape(value)[1]: None for table in tables.values() for value in table.values()
               if len(np.shape(value)) > 1}
    for last, steps in itertools.product(tables, lengths or (None,)):
        arguments = _arguments(model, {name: table for name, table in tables.items()
                                       if name != last} | {last: tables[last]})
        context = Tables(sizes)
        try:
            with row_scope(context), chain_length_scope(steps):
                survey = survey_run(model, arguments, {})
        except UnnamedTable:
            return None
        except (DataError, ModelError) as error:
            link = context.declared.get(last)
            if failure is None or link is not None and link.of is not None:
                failure = error  # the index is more often a column of the table that belongs
            continue
        return (context, survey, arguments) if context.declared else None
    raise present(failure)


def _arguments(model: Bound, tables: Columns) -> dict[str, ArrayLike]:
    """The function's arguments, columns of its tables; of several of the same name the last."""
    arguments = {}
    for table in tables.values():
        arguments |= {name: value_of(table[name]) for name in model.inputs if name in table}
    missing = next((name for name in model.inputs if name not in arguments), None)
    if missing is not None:
        raise DataError(f"model '{model.name}': none of the tables {listed(tables)} has the column "
                        f"'{missing}', which is an argument of the model function. Add the column "
                        f"to a table, or give its value to the model, {model.name}(…, "
                        f"{missing}=...)")
    return arguments


def _check_tables(model: Bound, declared: Mapping[str, Relation],
                  tables: Columns) -> tuple[str, dict[str, Relation]]:
    """The root table, and the relations of the others."""
    where = f"model '{model.name}'"
    unknown = next((name for name in tables if name not in declared), None)
    if unknown is not None:
        raise DataError(f"{where} has no rows('{unknown}'), so the table '{unknown}' is not used. "
                        f"The tables of the model are {listed(declared)}. Drop the table or rename "
                        f"it")
    roots = [name for name, link in declared.items() if link.of is None]
    others = {name: link for name, link in declared.items() if link.of is not None}
    if len(roots) != 1:
        raise ModelError(f"{where}: expected exactly one table without of= in rows(), got "
                         f"{roots or 'none'}. " + (
                             "Declare to which table the others belong, such as rows('visits', "
                             "of='patients') if each visit belongs to a patient" if roots else
                             f"Add a block rows('{next(iter(others.values())).of}')"))
    sub = next((name for name, link in others.items() if link.of != roots[0]), None)
    if sub is not None:
        raise ModelError(
            f"{where}: the rows of '{sub}' belong to '{others[sub].of}', " + (
                f"which belongs to '{others[str(others[sub].of)].of}', but only two levels of "
                f"tables are supported. Write rows('{sub}', of='{roots[0]}'). For the middle level "
                f"use a numpyro.plate, indexed by a column of '{sub}'"
                if others[sub].of in others else
                f"but the model has no rows('{others[sub].of}'). Write rows('{sub}', "
                f"of='{roots[0]}')")
        )
    missing = next((name for name in others if name not in tables), None)
    if missing is not None:
        raise DataError(f"{where}: the table '{missing}' is missing. Add it to the data, which "
                        f"contain only the tables {listed(tables)}")
    return roots[0], others


def _check_chains(model: Bound, survey: Survey, root: str) -> None:
    outside = next((site for site in survey.sites.values() if root not in site.plates
                    and site.kind in ("MarkovChain", "GaussianChain")), None)
    if outside is not None:
        raise ModelError(
            f"model '{model.name}', site '{outside.name}': a {outside.kind} is supported in the "
            f"rows of '{root}' only, not in those of a table that belongs to it. Write a model of "
            f"one table, whose rows are the sequences. Write what the rows of '{root}' have as a "
            f"numpyro.plate, indexed by a column, such as level[group]")


def _key(model: Bound, name: str, link: Relation, tables: Columns) -> str:
    """The input of a table that is the index of the root's rows."""
    root, where = tables.get(str(link.of), {}), f"rows('{name}', of='{link.of}')"
    if link.by is not None:
        if link.by not in model.inputs or link.by not in tables[name]:
            raise DataError(f"model '{model.name}': {where} has by='{link.by}', expected an "
                            f"argument of the model function that is also a column of '{name}'. "
                            "These are "
                            f"{listed([col for col in model.inputs if col in tables[name]])}")
        return link.by
    cols = [col for col in model.inputs if col in tables[name] and col in root]
    if len(cols) != 1:
        raise DataError(
            f"model '{model.name}', {where}: the column that links the two tables must be in both "
            f"and be an argument of the model function. Expected one such column, got "
            f"{cols or 'none'}. Name the column of '{name}' that contains the row of '{link.of}', "
            f"rows('{name}', of='{link.of}', by='...')"
        )
    return cols[0]


def _tables_of_names(model: Bound, survey: Survey, root: str, others: Mapping[str, Relation],
                     keys: Mapping[str, str], tables: Columns) -> dict[str, str]:
    """Site or column → its table; keys, which several tables may have, left out."""
    home: dict[str, str] = {}
    for site in survey.sites.values():
        blocks = [name for name in site.plates if name == root or name in others]
        if len(blocks) > 1:
            raise ModelError(
                f"model '{model.name}', site '{site.name}' is inside {listed(blocks, ' and ')} at "
                "once, but blocks of rows(…, of=…) cannot be nested. Write the blocks one below "
                f"the other. To use a site a of '{root}' in the second block, write "
                f"a[{next(keys[table_name] for table_name in blocks if table_name in keys)}]"
            )
        if blocks and site.factor and blocks[0] in others:
            raise ModelError(f"model '{model.name}', site '{site.name}': numpyro.factor in "
                             f"rows('{blocks[0]}', of=…) is not supported, because shorter groups "
                             "are filled up with empty rows, which the factor would count. Use a "
                             f"distribution, or put the factor in rows('{root}')")
        if blocks:
            home[site.name] = blocks[0]
    columns: dict[str, str] = {}
    for name, table in tables.items():
        for column in table:
            if column in keys.values():
                continue
            if column in survey.sites and home.get(column) != name:
                where = (f"of rows('{home[column]}')" if column in home
                         else "outside the rows of all tables")
                raise DataError(f"model '{model.name}': '{column}' is a site {where}, but the data "
                                f"have it as a column of the table '{name}'. Sample the site in "
                                f"rows('{name}'), or rename one of the two")
            if columns.setdefault(column, name) != name:
                raise DataError(f"model '{model.name}': '{column}' is a column of "
                                f"'{columns[column]}' and of '{name}'. Give each a different name")
    return {**columns, **home}


def _check_exchangeable(model: Bound, flat: SiteValues, others: Iterable[str]) -> None:
    """Refuse a model in which a row of another table depends on rows that do not belong with it, on
    its row number or on the number of rows: these differ in the padded arrays."""
    for table in others:
        for owner, mixed in _dependence_on_others(model, flat, table):
            if mixed:
                whys = {exchangeability.NUMBER: "on its row number",
                        exchangeability.COUNT: "on the number of rows"}
                why = whys.get(mixed, f"on other rows of its table through the operation '{mixed}'")
                raise ModelError(
                    f"model '{model.name}', site '{owner}': a row of table '{table}' depends "
                    f"{why}, but the rows must be independent of one another and of their order. "
                    "Compute standardised or lagged columns before the fit, and pass them as "
                    f"inputs. Pass a total over rows as a column of '{model.generative.root}'"
                )


def _dependence_on_others(model: Bound, flat: SiteValues,
                          table: str) -> Iterator[tuple[str, str]]:
    """(site's argument, how a row of a table comes to depend on others in it): see
    exchangeability.looks, the axis of places followed through the function's program."""
    raws = {name: arrays.as_raw(f"the input '{name}'", flat[name], True) for name in model.inputs
            if name in flat}
    reading: RelationalFunction = model.generative
    in_table = {name for name, arg in reading.inputs.items() if reading.owners.get(arg) == table}
    owners: list[str] = []

    def traced(places: int) -> tuple[ClosedJaxpr, list[int | None]]:
        bound = type(model)(reading.with_widths({table: places}), model.settings)
        specs = tuple(sorted(
            (name, (places, *raw.values.shape[2:]) if name in in_table else raw.values.shape[1:],
             raw.values.dtype.kind) for name, raw in raws.items()
        ))
        sites = sites_of(bound, specs, bool(jax.config.jax_enable_x64), 1)[0]
        values = {name: jax.ShapeDtypeStruct(site.shape, dtype_of(site))
                  for name, site in sites.items()}
        closed = jaxpr_of(functools.partial(leaves_of, bound, owners))(
            values, input_specs(specs, 1)
        )
        return closed, [*(_axis(sites[name], table) for name in sorted(sites)),
                        *(1 if name in in_table else None for name in sorted(raws))]

    single, axes = traced(1)
    mixed = exchangeability.row_dependence(single, lambda places: traced(places)[0], axes)
    return zip(owners, mixed, strict=True)


def _axis(site: Site, table: str) -> int | None:
    """The axis of a site that is the rows of a table."""
    plates = [name for name, _ in site.plates if name != "rows"]
    return site.axes[plates.index(table)] if site.rows and table in plates else None
