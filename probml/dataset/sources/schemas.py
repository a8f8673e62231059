"""One schema for all files of a dataset: every file has the same columns, with types that hold the
values of all."""

from collections.abc import Iterable, Sequence
from typing import Any

from probml.errors import DataError, quoted


def unify_schemas(dataset: Any, files: Iterable[tuple[str, Any]]) -> Any:
    """A dataset with a schema whose types hold the values of all its files. pyarrow takes the types
    of the first file, where a column may be empty, or of integers that are floats in others.

    Args:
        files: the name and the fragment of each.

    Raises:
        DataError: a file cannot be read, or has other columns, or incompatible types.
    """
    import pyarrow as pa

    wide = schema = dataset.schema
    # a column of a text file can be read as text where other files have numbers
    loose = getattr(getattr(dataset, "format", None), "default_extname", "") in ("csv", "json")
    parted = getattr(getattr(dataset, "partitioning", None), "schema", None) or ()
    known = [name for name in schema.names if name not in {field.name for field in parted}]
    whose = dict.fromkeys(known, "the dataset")
    for file, fragment in files:
        try:
            own = fragment.physical_schema
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"part '{file}' cannot be read: {error}") from error
        _compare(file, known, own, schema)
        for name in known:
            before, after = wide.field(name).type, own.field(name).type
            if before == after or _is_text(before) and (loose or _is_text(after)):
                continue
            if pa.types.is_null(before):
                whose[name] = f"'{file}'"
            try:
                both = pa.unify_schemas([pa.schema([(name, before)]), pa.schema([(name, after)])],
                                        promote_options="permissive")
            except pa.ArrowTypeError:
                raise DataError(f"part '{file}' has '{name}' as {after}, and {whose[name]} as "
                                f"{before}: use one type in all files") from None
            i = wide.get_field_index(name)
            wide = wide.set(i, wide.field(i).with_type(both.field(0).type))
    return dataset if wide.equals(schema) else dataset.replace_schema(wide)


def _compare(file: str, known: Sequence[str], own: Any, schema: Any) -> None:
    """Refuses a file whose columns are not those of the dataset."""
    beyond = [name for name in own.names if name not in schema.names]
    lacking = [name for name in known if name not in own.names]
    if beyond or lacking:
        what = (f"has the column{_plural(beyond)} {quoted(beyond)}, which the schema of the "
                f"dataset does not have" if beyond else
                f"lacks the column{_plural(lacking)} {quoted(lacking)} of the dataset's schema")
        raise DataError(f"part '{file}' {what}: every file needs the same columns. To read only "
                        f"some columns pass a scanner, dataset.scanner(columns=[...])")


def _is_text(type_: Any) -> bool:
    """Whether values of an Arrow type are text, in a dictionary too."""
    import pyarrow.types as kinds

    if kinds.is_dictionary(type_):
        return _is_text(type_.value_type)
    return kinds.is_string(type_) or kinds.is_large_string(type_) or kinds.is_string_view(type_)


def _plural(names: Sequence[str]) -> str:
    return "s" if len(names) > 1 else ""
