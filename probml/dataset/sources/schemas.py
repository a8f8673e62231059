"""One schema for all files of a dataset: the columns that each must have, and types that hold the
values of all."""

from collections.abc import Iterable, Sequence
from typing import Any

from probml.errors import DataError, quoted

NOTHING, NUMBER, TEXT = "nothing", "number", "text"  # kinds of columns


def unify_schemas(dataset: Any, files: Iterable[tuple[str, Any]]) -> Any:
    """A dataset under one schema that holds the values of all its files: pyarrow takes the types of
    the first file, where an empty column has none, and integers have no fractions.

    Args:
        files: what each is called, and its fragment.

    Raises:
        DataError: a file that cannot be read, one of other columns, or of another kind.
    """
    import pyarrow as pa

    schema, loose = dataset.schema, _reads_text(dataset)
    parted = getattr(getattr(dataset, "partitioning", None), "schema", None) or ()
    known = [name for name in schema.names if name not in {field.name for field in parted}]
    types = {name: [("the dataset", schema.field(name).type)] for name in known}
    for file, fragment in files:
        try:
            own = fragment.physical_schema
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"part '{file}' cannot be read: {error}") from error
        _compare(file, known, own, schema)
        for name in known:
            _note(types[name], name, file, own.field(name).type, loose)
    wide = schema
    for name, found in types.items():
        i = schema.get_field_index(name)
        wide = wide.set(i, wide.field(i).with_type(_common_type([type_ for _, type_ in found])))
    return dataset if wide.equals(schema) else dataset.replace_schema(wide)


def _reads_text(dataset: object) -> bool:
    """Whether files are text, of which any column can be read as such: that of one file may look
    like numbers where others hold words."""
    kind = getattr(dataset, "format", None)
    return getattr(kind, "default_extname", "") in ("csv", "json")


def _compare(file: str, known: Sequence[str], own: Any, schema: Any) -> None:
    beyond = [name for name in own.names if name not in schema.names]
    lacking = [name for name in known if name not in own.names]
    if beyond or lacking:
        what = (f"has the column{_plural(beyond)} {quoted(beyond)}, which the schema of the "
                f"dataset does not have" if beyond else
                f"lacks the column{_plural(lacking)} {quoted(lacking)} of the dataset's schema")
        raise DataError(f"part '{file}' {what}: every file needs the same columns. To read only "
                        f"some columns pass a scanner, dataset.scanner(columns=[...])")


def _note(types: list[tuple[str, Any]], name: str, file: str, type_: object, loose: bool) -> None:
    """Add a file's type of a column to those before, each with who has it."""
    before = next((pair for pair in types if kind_of(pair[1]) != NOTHING), None)
    if before is not None and kind_of(type_) not in (NOTHING, kind_of(before[1])) and not (
        loose and kind_of(before[1]) == TEXT
    ):
        who = before[0] if before[0] == "the dataset" else f"'{before[0]}'"
        raise DataError(f"part '{file}' has '{name}' as {type_}, and {who} as {before[1]}: use one "
                        f"type in all files")
    if all(type_ != held for _, held in types):
        types.append((file, type_))


def _common_type(types: Sequence[Any]) -> Any:
    """A type that holds values of all of these, the dataset's first."""
    import pyarrow as pa
    import pyarrow.types as kinds

    own = [type_ for type_ in types if kind_of(type_) != NOTHING]
    if len(own) < 2 or {kind_of(type_) for type_ in own} != {NUMBER}:
        return own[0] if own else types[0]
    if not all(map(kinds.is_integer, own)):
        return pa.float64()
    return pa.uint64() if all(map(kinds.is_unsigned_integer, own)) else pa.int64()


def kind_of(type_: Any) -> str:
    """What values of an Arrow type are to a model."""
    import pyarrow.types as kinds

    if kinds.is_dictionary(type_):
        return kind_of(type_.value_type)
    if kinds.is_integer(type_) or kinds.is_floating(type_) or kinds.is_decimal(type_):
        return NUMBER
    if kinds.is_null(type_):
        return NOTHING
    if kinds.is_string(type_) or kinds.is_large_string(type_) or kinds.is_string_view(type_):
        return TEXT
    if kinds.is_list(type_) or kinds.is_large_list(type_) or kinds.is_fixed_size_list(type_):
        return f"lists of {kind_of(type_.value_type)}"
    return str(type_)


def _plural(names: Sequence[str]) -> str:
    return "s" if len(names) > 1 else ""
