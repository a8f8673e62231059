"""Several queries about rows at once, partition by partition, as a table or an atomically written
file.

A query with one number or label a row gives a column of its name; `predict_proba` a column for each
state, "predict_proba[label]"; `impute` and `decode` a column for each site, "impute[site]"; an
answer with several cells a row is a column of fixed-size lists.
"""

import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from probml.dataset.dataset import Data
from probml.dataset.frames import as_pandas, is_table, names_of
from probml.dataset.source import Part, naming, parts_of
from probml.dataset.sources.parts import source_of
from probml.engines.progress import Progress
from probml.errors import DataError, ModelError, listed, shortly
from probml.language.given import as_new_file
from probml.numerics.outside.atomic import replacing
from probml.numerics.process.libraries import pa, pd
from probml.queries.fitted import Fitted
from probml.typing import DataLike

QUERIES = ("predict", "predict_proba", "log_prob", "impute", "decode")
WRITERS = {".parquet": ("pyarrow.parquet", "ParquetWriter"), ".arrow": ("pyarrow.ipc", "new_file"),
           ".feather": ("pyarrow.ipc", "new_file"), ".csv": ("pyarrow.csv", "CSVWriter")}


def answer_questions(fit: Fitted, data: DataLike, ask: Any, site: str | None,
                     default_site: Callable, to: str | os.PathLike | None) -> Any:
    """See Fit.answer.

    Args:
        default_site: rows → the site of `predict_proba` where none is named.
    """
    is_list = isinstance(ask, Sequence | set | frozenset) and not isinstance(ask, str)
    ask = tuple(ask) if is_list else (ask,)
    unknown = [name for name in ask if not isinstance(name, str) or name not in QUERIES]
    if unknown or not ask or len(set(ask)) < len(ask):
        text = repr(unknown[0]) if unknown else shortly(list(ask))
        raise ModelError(f"answer(ask={text}): expected a list of some of {listed(QUERIES)}, each "
                         f"once, such as ask=['predict']")
    if to is None:
        table = pd.concat([part.to_pandas() for part in _tables(
            fit, data, ask, site, default_site)], ignore_index=True)
        return table.set_axis(data.index) if isinstance(data, pd.DataFrame) else table
    path = as_new_file(to, "answer(to)")
    if path.suffix not in WRITERS:
        raise ModelError(f"answer(to='{path}'): expected the name of a file that ends in one of "
                         f"{listed(WRITERS)}")
    with replacing(path) as temporary:
        _write_tables(temporary, path.suffix, _tables(fit, data, ask, site, default_site))
    return path


def _tables(fit: Fitted, data: object, ask: Sequence[str], site: str | None,
            default_site: Callable) -> Iterator["pa.Table"]:
    """The answers of each partition, as Arrow tables of one schema."""
    source, schema, rows = source_of(data), None, 0
    parts = iter((Part("the data", data),)) if source is None else parts_of(source)
    with Progress("answer", None, False) as bar:
        for part in parts:
            if source is None:
                answers = _table(fit, part.rows, ask, site, default_site)
            else:
                with naming(part):
                    answers = _table(fit, part.rows, ask, site, default_site)
                    answers = _cast_to(_widen_counts(fit, answers), schema)
            schema, rows = answers.schema, rows + answers.num_rows
            bar.passed(rows)
            del part  # before another comes
            yield answers


def _widen_counts(fit: Fitted, table: "pa.Table") -> "pa.Table":
    """The answers of a partition with imputed counts as float64: in one partition they may be
    integers, in another have the mean of a missing count."""
    sites = fit.structure.sites
    counts = {f"impute[{name}]" for name, site in sites.items() if site.states is None}
    for i, field in enumerate(table.schema):
        if field.name in counts and pa.types.is_primitive(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(pa.float64()))
    return table


def _cast_to(table: "pa.Table", schema: "pa.Schema") -> "pa.Table":
    """The answers of a partition, cast to the schema of the first; None: this is the first.

    Raises:
        DataError: other columns, or types that cannot be cast.
    """
    if schema is None or table.schema == schema:
        return table
    try:
        return table.cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"the answers for a batch of the data have other types than those for "
                        f"earlier batches ({error}). Give the columns of the data the same types "
                        f"in all batches") from None


def _table(fit: Fitted, rows: Data, ask: Sequence[str], site: str | None,
           default_site: Callable) -> "pa.Table":
    columns: dict[str, pa.Array] = {}
    for name in ask:
        kwargs = {"site": site} if name in ("predict", "predict_proba") and site is not None else {}
        answer = getattr(fit, name)(rows, **kwargs)
        if is_table(answer):  # of a table, with its other columns
            column = answer.column if isinstance(answer, pa.Table) else as_pandas(answer).get
            answer = {key: column(key) for key in names_of(answer)
                      if str(key).partition("[")[0] in fit.structure.named}
        if isinstance(answer, Mapping):
            columns |= {f"{name}[{key}]": values for key, values in answer.items()}
        elif name == "predict_proba" and np.ndim(answer) == 2:
            labels = fit.labels(site or default_site(rows))
            columns |= {f"{name}[{label}]": answer[:, i] for i, label in enumerate(labels)}
        else:
            columns[name] = answer
    return pa.table({name: values if isinstance(values, pa.ChunkedArray)
                     else _column(np.asarray(values)) for name, values in columns.items()})


def _column(values: np.ndarray) -> "pa.Array":
    """(n, ...) as an Arrow array, axes after the first as fixed-size lists."""
    flat = pa.array(values.reshape(-1))
    for size in reversed(values.shape[1:]):
        flat = pa.FixedSizeListArray.from_arrays(flat, size)
    return flat


def _write_tables(path: str, kind: str, tables: Iterator["pa.Table"]) -> None:
    first, (module, writer) = next(tables), WRITERS[kind]
    with getattr(importlib.import_module(module), writer)(path, first.schema) as file:
        file.write_table(first)
        del first
        for table in tables:
            file.write_table(table)
