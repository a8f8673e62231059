"""Fit.save: one file of arrays and JSON, written atomically and read without executing anything.

Values as JSON and arrays, and back: numbers, text, lists, dicts, arrays, graphs, and the records
of this package; nothing that is read can run.
"""

import dataclasses
import importlib
import io
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.engines.findings import Finding
from probml.errors import ModelError, listed, type_of
from probml.fits.standard_errors import StandardErrors
from probml.language.given import as_new_file
from probml.language.language import Bound
from probml.numerics.outside.atomic import replacing
from probml.numerics.process.libraries import networkx, pd
from probml.plan.plan import Plan
from probml.posteriors.posterior import KINDS, Posterior
from probml.queries.fitted import Fitted
from probml.structure.portrait import portrait
from probml.typing import Json

LIBRARY_PREFIX = "probml.models."  # whose functions a file may name
MAX_ERROR_NUMBERS = 2**20  # in the standard errors that a file stores: 8 MiB
AFTER_INTERVENTION = ("save: this Fit was returned by do() and cannot be saved. Save the Fit on "
                      "which do() was called, and call do() on the loaded Fit")


def save(fit: Fitted, path: str | os.PathLike) -> None:
    """See Fit.save."""
    write(path, file_contents(fit))


def file_contents(fit: Fitted) -> dict[str, np.ndarray]:
    """The arrays of a file that holds a fit, name → array; "meta" is JSON."""
    if fit.model.interventions:
        raise ModelError(AFTER_INTERVENTION)
    posterior_meta, belief_arrays = fit.belief.saved()
    meta = {
        "format": 1, "model": repr(fit.model),
        "identity": fit.model.identity, "read": bool(fit.model.generative.key),
        "engine": fit.engine, "outcome": int(fit.outcome), "iterations": fit.iterations,
        "log_evidence": fit.log_evidence, "evidence_error": fit.evidence_error,
        "bound": fit.bound, "weighted": fit.weighted,
        "findings": [finding.record() for finding in fit.findings],
        "names": {k: [x.item() if isinstance(x, np.generic) else x for x in v]
                  for k, v in fit.names.items()},
        "shapes": fit.shapes, "pattern": fit.pattern,
        "posterior": None, "double": fit.double, "columns": fit.columns,
        "seed": fit.seed, "structure": _describe_structure(fit),
        "places": dict(getattr(fit.model.generative, "places", {})),
    } | posterior_meta  # fmt: skip
    arrays: dict[str, np.ndarray] = {}
    meta["zoo"] = origin(fit.model, arrays)
    meta["units"] = packed(dict(fit.units), arrays, "the units of parameters")
    meta["standard_errors"] = packed(_computed_errors(fit), arrays, "standard errors")
    arrays["meta"] = encoded(meta)
    arrays |= {f"params/{k}": np.asarray(v) for k, v in fit.point.items()} | {
        f"given/{k}": np.asarray(v) for k, v in fit.given.items()
    } | {f"errors/{k}": np.asarray(v) for k, v in fit.errors.items()}
    optional = {"history": fit.history, "held_out": fit.held_out, **belief_arrays}
    arrays |= {name: np.asarray(value) for name, value in optional.items() if value is not None}
    return arrays


def _computed_errors(fit: Fitted) -> dict[str, ArrayLike] | None:
    """The standard errors of a point, if a summary has computed them: a loaded fit has no rows to
    compute them from."""
    errors = vars(fit).get("_standard_errors")
    if errors is None or sum(own.size for own in errors.derivatives.values()) > MAX_ERROR_NUMBERS:
        return None
    finding = errors.posterior
    return {"moves": dict(errors.derivatives), "curvature": errors.curvature,
            "identified": errors.identified, "why": dict(errors.reasons),
            "posterior": None if finding is None else finding.record()}


def errors_of(meta: Json, arrays: Mapping[str, np.ndarray],
              point: Mapping[str, np.ndarray]) -> StandardErrors | None:
    """The standard errors of a file.

    Raises:
        TypeError, ValueError, KeyError: the file holds something else.
    """
    record = unpacked(meta["standard_errors"], arrays) if meta.get("standard_errors") else None
    if record is None:
        return None
    moves, count = record["moves"], len(record["curvature"])
    if len(record["identified"]) != count or any(len(values) != count for values in moves.values()):
        raise ValueError("the number of standard errors differs from that of the second "
                         "derivatives")
    for name in moves.keys() & point.keys():
        if moves[name].shape[1:] != np.shape(point[name]):
            raise ValueError(f"the standard errors of '{name}' have the shape "
                             f"{moves[name].shape[1:]}, expected {np.shape(point[name])}")
    posterior = record["posterior"]
    return StandardErrors.of(moves, record["curvature"], record["identified"].astype(bool),
                             record["why"], None if posterior is None else Finding.read(posterior))


def encoded(meta: Json) -> np.ndarray:
    """The metadata as bytes of JSON.

    Raises:
        ModelError: a label that JSON cannot represent.
    """
    for site, labels in meta.get("names", {}).items():
        invalid = [x for x in labels if not isinstance(x, str | int | float | None)]
        if invalid:
            raise ModelError(f"save: '{site}' has the label {invalid[0]!r}, {type_of(invalid[0])}, "
                             f"but labels in a file can only be text, numbers or booleans. Convert "
                             f"the column before the fit, such as column.astype(str)")
    return np.frombuffer(json.dumps(meta).encode(), np.uint8)


def write(path: str | os.PathLike, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to a file, atomically; its permissions follow the umask.

    Raises:
        ModelError: no file name, or a folder that does not exist.
    """
    path, buffer = as_new_file(path, "save(path)"), io.BytesIO()
    np.savez(buffer, **dict[str, Any](arrays))
    with replacing(path) as temporary:
        Path(temporary).write_bytes(buffer.getvalue())


def origin(model: Bound, arrays: dict[str, np.ndarray]) -> dict[str, object] | None:
    """The module, name and settings of a model of the library; None of a user's own, and of one
    with settings that a file cannot hold."""
    function = model.generative
    if not _is_of_library(model) or function.key:
        return None
    try:
        settings = {name: packed(value, arrays, "setting") for name, value in model.bound.items()}
    except ModelError:
        return None
    return {"module": function.__module__, "name": function.__qualname__, "settings": settings}


def _describe_structure(fit: Fitted) -> dict[str, object]:
    """A description of the structure by which loading detects another model; {} while the shapes of
    the inputs are unknown, and of models of the library, whose functions may change with versions.
    """
    if any(name not in fit.shapes for name in fit.model.inputs):
        return {}
    return portrait(fit.structure, not _is_of_library(fit.model))


def _is_of_library(model: Bound) -> bool:
    return model.generative.__module__.startswith(LIBRARY_PREFIX)


def damaged(path: object, why: object) -> ModelError:
    """The error about a file that is not as `save` writes it."""
    return ModelError(f"'{path}' is not a fit saved by probml ({why}). Load a file that save() "
                      "wrote, or save again")


def restore_posterior(meta: Mapping, arrays: Mapping, plan: Plan, path: object) -> Posterior:
    """The posterior of a file, with its arrays checked against the shapes of the model.

    Raises:
        ModelError: arrays that are missing or of another model, or a posterior of unknown kind.
    """
    kind = meta["posterior"] or "Point"
    if kind not in KINDS:
        raise ModelError(f"'{path}' contains a posterior of kind {kind!r}, but the known kinds are "
                         f"{listed(sorted(KINDS))}. Import the package that defines the kind "
                         f"{kind!r} before load()")
    try:
        return KINDS[kind].restored(meta, arrays, plan)
    except ModelError as error:
        raise damaged(path, error) from None


TYPES = {"float": float, "int": int, "str": str, "bool": bool}
ROOT = "probml."  # whose dataclasses and named tuples a file may name
LIBRARY = "probml.models"

Arrays = dict[str, np.ndarray]
Others = Mapping[str, tuple[type, Callable, Callable]]  # kind → (class, to JSON, from JSON)
NONE: Others = MappingProxyType({})


def packed(value: object, arrays: Arrays, where: str, others: Others = NONE) -> Any:
    """A value as JSON, its arrays put into `arrays`.

    Args:
        where: what it is, for the message.
        others: further kinds: `to JSON` is given the value and `arrays`.

    Raises:
        ModelError: something that a file cannot hold, such as a function.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    for name, (base, pack, _) in others.items():
        if isinstance(value, base):
            return {"kind": name, "value": pack(value, arrays)}
    for name, kind in VALUE_KINDS.items():
        if kind.holds(value):
            return {"kind": name, **kind.write(value, _Writer(arrays, where, others))}
    raise ModelError(f"save: {where} is a {type(value).__module__}.{type(value).__qualname__}, but "
                     f"a file can contain only numbers, text and arrays. Use pickle or joblib")


def unpacked(value: object, arrays: Mapping[str, np.ndarray], others: Others = NONE) -> Any:
    """What `packed` made JSON of.

    Raises:
        ModelError: a kind that nobody knows.
    """
    if not isinstance(value, dict):
        return value
    name, content = value["kind"], value["value"]
    if name in others:
        return others[name][2](content, arrays)
    if name not in VALUE_KINDS:
        raise ModelError(f"a saved value has the type {name!r}, which this version of probml "
                         f"cannot read. Load the file with the version that saved it, or a later "
                         f"one")
    return VALUE_KINDS[name].read(value, _Reader(arrays, others))


class _Writer(NamedTuple):
    """Packs the parts of a value."""

    arrays: Arrays
    description: str
    extra_kinds: Others

    def one(self, value: object, field: str = "") -> Any:
        return packed(value, self.arrays, self.description + f".{field}" * bool(field),
                      self.extra_kinds)

    def all(self, values: Iterable) -> list:
        return [self.one(item) for item in values]

    def array(self, values: object) -> dict[str, object]:
        name = f"plain/{len(self.arrays)}"
        self.arrays[name] = np.asarray(values)
        return {"value": name}

    def table(self, table: "pd.DataFrame") -> dict[str, object]:
        return {"index": self.all(table.index), "names": self.all(table.index.names)}


class _Reader(NamedTuple):
    """Unpacks the parts of a value."""

    arrays: Mapping[str, np.ndarray]
    extra_kinds: Others

    def one(self, value: object) -> Any:
        return unpacked(value, self.arrays, self.extra_kinds)

    def all(self, values: Iterable) -> list:
        return [self.one(item) for item in values]


class Kind(NamedTuple):
    """How the values of one kind are written and read: `write` returns the entry, with "value"."""

    holds: Callable[[object], bool]
    write: Callable[[Any, _Writer], dict[str, Any]]
    read: Callable[[Any, _Reader], Any]


def _read_objects(entry: dict, read: _Reader) -> np.ndarray:
    array = np.empty(len(entry["value"]), object)
    array[:] = read.all(entry["value"])
    return array.reshape(entry["shape"])


def _read_range(entry: dict, read: _Reader) -> range:
    labels = read.all(entry["value"])
    first, step = [*labels[:1], 0][0], labels[1] - labels[0] if len(labels) > 1 else 1
    expected = range(first, first + step * len(labels), step)
    if len(expected) != len(labels) or any(a != b for a, b in zip(expected, labels, strict=True)):
        raise ModelError(f"the file is damaged: integer labels should be equally spaced, got "
                         f"{labels!r:.60}. Save the fit again, or fit again")
    return expected


def _read_graph(entry: dict, read: _Reader) -> "networkx.Graph":
    graph = getattr(networkx, entry["kind"])()
    graph.add_nodes_from(map(tuple, map(read.all, entry["value"])))
    graph.add_edges_from(map(tuple, map(read.all, entry["edges"])))
    return graph


def _read_table(entry: dict, read: _Reader) -> "pd.DataFrame":
    table = (pd.DataFrame(read.one(entry["value"])) if entry["kind"] == "frame" else
             pd.Series(read.all(entry["value"]), name=read.one(entry["name"])))
    index, names = read.all(entry["index"]), read.all(entry["names"])
    table.index = (pd.MultiIndex.from_tuples(index, names=names) if len(names) > 1
                   else pd.Index(index, name=names[0]))
    return table


def _read_record(entry: dict, read: _Reader) -> Any:
    record_type = named(entry["module"], entry["name"])
    # what a module of ours has imported from elsewhere is no record of ours
    if _fields(record_type) is None or not record_type.__module__.startswith(ROOT):
        raise ModelError(f"the file contains a value of the class "
                         f"{entry['module']}.{entry['name']}, which is not one of the classes that "
                         f"probml saves. Load only files that were written by save()")
    return record_type(**{name: read.one(item) for name, item in entry["value"].items()})


def _is_table(value: Any, ndim: int) -> bool:
    return (type(value).__module__.startswith("pandas") and hasattr(value, "to_dict")
            and value.ndim == ndim)


# the first that holds a value writes it
VALUE_KINDS = {
    "type": Kind(lambda v: isinstance(v, type) and TYPES.get(v.__name__) is v,
                 lambda v, write: {"value": v.__name__},
                 lambda entry, read: TYPES[entry["value"]]),
    "dtype": Kind(lambda v: isinstance(v, np.dtype), lambda v, write: {"value": v.str},
                  lambda entry, read: np.dtype(entry["value"])),
    "objects": Kind(lambda v: isinstance(v, np.ndarray) and v.dtype.hasobject,
                    lambda v, write: {"shape": list(v.shape), "value": write.all(v.ravel())},
                    _read_objects),
    "array": Kind(lambda v: isinstance(v, np.ndarray), lambda v, write: write.array(v),
                  lambda entry, read: read.arrays[entry["value"]]),
    "number": Kind(lambda v: isinstance(v, np.generic), lambda v, write: write.array(v),
                   lambda entry, read: read.arrays[entry["value"]][()]),
    "jax": Kind(lambda v: hasattr(v, "__jax_array__") or type(v).__module__.startswith("jax"),
                lambda v, write: write.array(v),
                lambda entry, read: jnp.asarray(read.arrays[entry["value"]])),
    "record": Kind(lambda v: (type(v).__module__.startswith(ROOT)
                              and "<" not in type(v).__qualname__
                              and _fields(type(v)) is not None),
                   lambda v, write: {"module": type(v).__module__, "name": type(v).__qualname__,
                                     "value": {name: write.one(getattr(v, name), name)
                                               for name in _fields(type(v)) or ()}},
                   _read_record),
    **{kind.__name__: Kind(lambda v, kind=kind: type(v) is kind,  # type: ignore[misc]
                           lambda v, write: {"value": write.all(v)},
                           lambda entry, read, kind=kind: kind(  # type: ignore[misc]
                               read.all(entry["value"])))
       for kind in (list, tuple, set, frozenset)},
    "range": Kind(lambda v: type(v) is range, lambda v, write: {"value": write.all(v)},
                  _read_range),
    "dict": Kind(lambda v: isinstance(v, Mapping),
                 lambda v, write: {"value": [write.all(item) for item in v.items()]},
                 lambda entry, read: dict(map(read.all, entry["value"]))),
    **{name: Kind(lambda v, name=name: (  # type: ignore[misc]
                      type(v).__module__.startswith("networkx") and type(v).__name__ == name),
                  lambda v, write: {
                      "value": [write.all((n, dict(d))) for n, d in v.nodes.items()],
                      "edges": [write.all((a, b, dict(d))) for (a, b), d in v.edges.items()]},
                  _read_graph) for name in ("Graph", "DiGraph")},
    "series": Kind(lambda v: _is_table(v, 1),
                   lambda v, write: {"name": write.one(v.name), "value": write.all(v.array),
                                     **write.table(v)}, _read_table),
    "frame": Kind(lambda v: _is_table(v, 2),
                  lambda v, write: {"value": write.one(v.to_dict("list")), **write.table(v)},
                  _read_table),
}


def named(module: str, name: str) -> Any:
    """A name of a module of this package; of a public name of the model library its module does
    not matter, as it may have moved since a file was written.

    Raises:
        ModelError: it is none of this package, or not there.
    """
    if not module.startswith(ROOT) or not all(part.isidentifier() for part in module.split(".")):
        raise ModelError(f"the file refers to {module}.{name}, which is not part of probml, and "
                         "load() imports only code of probml, for safety. Load only files that "
                         "save() wrote")
    try:
        library = importlib.import_module(LIBRARY) if module.startswith(LIBRARY) else None
        public = library is not None and name in library.__all__
        target: Any = library if public else importlib.import_module(module)
        for part in name.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError) as error:
        raise ModelError(f"the file refers to {module}.{name}, which cannot be imported ({error}). "
                         "Install the version of probml that saved the file") from None
    return target


def _fields(kind: object) -> tuple[str, ...] | None:
    """The fields of a record, which its constructor takes by name; None: it is none."""
    if not isinstance(kind, type):
        return None
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind) if field.init)
    return getattr(kind, "_fields", None) if issubclass(kind, tuple) else None
