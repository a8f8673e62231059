"""Reading a fit that `Fit.save` wrote: every array is checked against the shapes of the model."""

import io
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from typing import IO, Any

import jax
import numpy as np

from probml.engines.engine import Status
from probml.engines.findings import Finding
from probml.errors import ModelError, listed
from probml.fits import saving
from probml.fits.saving import damaged, named, unpacked
from probml.interface.fit import Fit
from probml.interface.given_parameters import fit_at
from probml.interface.model import Generative
from probml.interface.tables.relations import RelationalFunction
from probml.language.given import as_path
from probml.language.language import Bound
from probml.posteriors.posterior import part
from probml.posteriors.units import Unit, in_units
from probml.structure.portrait import difference
from probml.typing import Json

# the metadata of a file: name → its allowed types
METADATA_TYPES: dict[str, tuple[type, ...]] = {
    "format": (int,), "model": (str,), "identity": (str,), "engine": (str,), "outcome": (int,),
    "iterations": (int,), "log_evidence": (float, int, type(None)),
    "names": (dict,), "shapes": (dict,), "pattern": (list,)}
ARRAYS_WITHOUT_NAN = ("params/", "given/", "closed/", "effects/", "states")  # by their prefix
PATTERNS = ("seen", "part", "partially_observed", "likelihood", "sampled")  # of observed cells


def load(path: str | os.PathLike, model: Bound | None = None) -> Fit:
    """Read a Fit that `Fit.save` wrote, or an estimator that its `save` wrote; nothing in the file
    is executed, and no more memory is taken than the file is long.

    Args:
        model: the model that was fitted; not needed for a function of the model library or an
            estimator, which the file names.

    Raises:
        ModelError: not such a file, saved from another model, or from one of your own without
            `model`.
        OSError: it does not exist, or may not be read.
    """
    if model is not None and not isinstance(model, Bound):
        raise ModelError(f"load(path, model): expected the model that was fitted, called with its "
                         f"settings, such as {getattr(model, '__name__', 'mixture')}(...), got "
                         f"{model!r}")
    as_path(path, "load(path)")
    try:
        with open(path, "rb") as raw:
            meta, arrays = read_file(raw, path)
        if "face" not in meta:
            return restore(path, meta, arrays, model)
        if model is not None:
            raise ModelError(f"'{path}' contains a fitted {meta['face'][1]}, which includes its "
                             f"model. Omit the model, load(path)")
        return named(*meta["face"])._restored(meta, arrays)
    except (ModelError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from None


def read_file(raw: IO[bytes], path: object) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The metadata and arrays of a saved fit; arrays that would be larger than the file are
    refused."""
    with zipfile.ZipFile(raw) as packed:
        total = sum(member.file_size for member in packed.infolist())
    size = raw.seek(0, io.SEEK_END)
    if total > size:
        raise damaged(path, f"its {size:,} bytes would unpack to {total:,} bytes, but save() does "
                            f"not compress")
    raw.seek(0)
    with np.load(raw, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    # a file from a machine of the other byte order, which JAX does not read
    arrays = {name: value.astype(value.dtype.newbyteorder("="), copy=False)
              for name, value in arrays.items()}
    meta = json.loads(arrays.pop("meta").tobytes().decode())
    if meta["format"] != 1:
        raise ModelError(f"'{path}' has the file format {meta['format']} of another version of "
                         f"probml, and this version reads format 1. Load it with the version that "
                         f"saved it, or fit and save again")
    kinds = "biufUS" if "face" in meta else "biuf"  # estimators hold names of columns and classes
    bad = [name for name, value in arrays.items() if not name.startswith("plain/")
           and (value.dtype.kind not in kinds or value.dtype.kind == "f" and value.itemsize > 8
                or name.startswith(ARRAYS_WITHOUT_NAN) and np.isnan(value).any())]
    if bad:
        raise damaged(path, f"'{bad[0]}' has the dtype {arrays[bad[0]].dtype}, or contains NaN; "
                            f"expected numbers")
    return meta, arrays


def restore(path: str | os.PathLike, meta: Json, arrays: Mapping[str, np.ndarray],
            model: Bound | None = None) -> Fit:
    """The fit that the metadata and arrays of a file describe.

    Raises:
        ModelError: as load.
    """
    _check_metadata_types(meta)
    model = _library_model(path, meta, arrays) if model is None else model
    is_read = bool(model.generative.key)
    if meta["identity"] != model.identity or meta.get("read", is_read) != is_read:
        raise ModelError(f"'{path}' was saved from the model {meta['model']}, not from {model!r}. "
                         f"Pass the model of the fit, load(path, model). If the model has no "
                         f"rows(), or several tables as data, use load(path, model.read(data))")
    if isinstance(model.generative, RelationalFunction) and meta.get("places"):
        # as many cells a row as in the fitted data; a query may have more rows, or fewer
        model = type(model)(model.generative.with_widths(meta["places"]), model.settings)
    shapes = {k: (tuple(shape), kind) for k, (shape, kind) in meta["shapes"].items()}
    if not shapes and model.inputs:  # parameters that were given, for data of any shape
        return replace(fit_at(model, part(arrays, "params/"), meta["names"]),
                       units=_units(meta, arrays, part(arrays, "params/")))
    fit = Fit(
        model, part(arrays, "params/"), shapes, meta["engine"], arrays.get("history"),
        Status(meta["outcome"]), meta["iterations"],
        meta["log_evidence"], _findings(meta),
        {k: tuple(v) for k, v in meta["names"].items()}, part(arrays, "given/"),
        tuple(map(tuple, meta["pattern"])),
        held_out=arrays.get("held_out"),
        double=bool(meta.get("double", False)),
        bound=meta.get("bound"),
        columns={k: tuple(v) for k, v in meta.get("columns", {}).items()},
        seed=meta.get("seed"),
        units=_units(meta, arrays, part(arrays, "params/")),
        errors=part(arrays, "errors/"),
        evidence_error=meta.get("evidence_error"),
        weighted=bool(meta.get("weighted", False)),
    )  # fmt: skip
    mismatch = difference(fit.structure, meta.get("structure", {}))
    if mismatch is not None:
        raise ModelError(f"'{path}' was saved from another model named '{model.name}': {mismatch}. "
                         f"Pass the model that was fitted, or fit this model")
    _check_sites(fit, path)
    belief = saving.restore_posterior(meta, arrays, fit._plan, path)
    restored = _check_draws(replace(fit, belief=belief), path)
    errors = saving.errors_of(meta, arrays, restored.point)
    if errors is not None:
        vars(restored)["_standard_errors"] = errors  # in the place of those from its rows
    return restored


def _units(meta: Json, arrays: Mapping[str, np.ndarray],
           point: Mapping[str, np.ndarray]) -> dict[str, Unit]:
    """The units in which summaries show parameters, checked against the parameters.

    Raises:
        TypeError, ValueError: the file holds something else.
    """
    units = unpacked(meta["units"], arrays) if meta.get("units") else {}
    if not isinstance(units, dict) or not all(isinstance(unit, Unit) for unit in units.values()):
        raise TypeError(f"its units are {units!r:.60}, expected a mapping from names to units")
    for name, unit in units.items():
        if any(np.asarray(value).dtype.kind not in "biuf" for value in (unit.factor, unit.shift)):
            raise TypeError(f"the unit of '{name}' is {unit!r:.60}, expected numbers")
    for name, converted in in_units(units, point).items():
        if units[name].is_elementwise and converted.shape != np.shape(point[name]):
            raise ValueError(f"the unit of '{name}' has the shape {converted.shape}, expected "
                             f"{np.shape(point[name])}")
    return units


def _library_model(path: object, meta: Json,
                   arrays: Mapping[str, np.ndarray]) -> Bound:
    """The model of the model library that a file names.

    Raises:
        ModelError: it names none.
    """
    zoo = meta.get("zoo")
    if not zoo:
        raise ModelError(f"'{path}' was saved from {meta['model']}, which is your own model and "
                         f"not stored in the file. Use load(path, model)")
    if not str(zoo["module"]).startswith(saving.LIBRARY_PREFIX):
        raise ModelError(f"'{path}' was saved from a model of the module '{zoo['module']}', which "
                         f"is not part of probml. Import the model and pass it with the settings "
                         f"that it had, load(path, model)")
    function = named(zoo["module"], zoo["name"])
    if not isinstance(function, Generative):
        raise ModelError(f"'{path}' was saved from {zoo['name']}, which is not a model of the "
                         f"model library of probml. Use load(path, model)")
    return function(**{name: unpacked(value, arrays) for name, value in zoo["settings"].items()})


def _check_metadata_types(meta: Json) -> None:
    """
    Raises:
        TypeError: the metadata are not of the types that Fit.save writes.
    """
    for name, kinds in METADATA_TYPES.items():
        if not isinstance(meta[name], kinds) or isinstance(meta[name], bool):
            raise TypeError(f"its metadata '{name}' have an unexpected type, {meta[name]!r:.60}")


def _findings(meta: Json) -> tuple[Finding, ...]:
    """The findings of a file.

    Raises:
        TypeError: they are not of the kind that Fit.save writes.
    """
    records = meta.get("findings")
    if not isinstance(records, list) or not all(isinstance(r, dict) for r in records):
        raise TypeError(f"its warnings are {records!r:.60}, expected a list of records")
    return tuple(map(Finding.read, records))


def _check_sites(fit: Fit, path: object) -> None:
    """
    Raises:
        ModelError: the sites and parameters of the file are not those of its model.
    """
    sites = fit.structure.sites
    for name, word in fit.pattern:
        if name not in sites or word not in PATTERNS:
            raise damaged(path, f"'{name}' is not a site of the model, or its pattern of missing "
                                f"values, {word!r}, is unknown")
    for name, value in fit.given.items():
        if name not in sites or value.shape != sites[name].shape:
            raise damaged(path, f"the fixed value of '{name}' has the shape {value.shape}, or "
                                f"'{name}' is not a site of the model")
    for name, labels in fit.names.items():
        known = name in fit.model.inputs or name in sites and sites[name].finite == len(labels)
        if not known or len(set(labels)) < len(labels):
            raise damaged(path, f"the labels of '{name}' are {listed(labels)}, expected "
                                f"different labels, one for each state")
    for name, value in fit.errors.items():
        if name not in fit.point or value.shape != np.shape(fit.point[name]):
            raise damaged(path, f"the standard errors of '{name}' have the shape {value.shape}, "
                                f"expected that of the estimate")
    expected = {name: sites[name].shape for name in fit._plan.free}
    if {name: value.shape for name, value in fit.point.items()} != expected:
        got = {name: value.shape for name, value in fit.point.items()}
        raise damaged(path, f"its parameters have the shapes {got}, but those of the model have "
                            f"the shapes {expected}")


def _check_draws(fit: Fit, path: object) -> Fit:
    """The fit, after a check that draws of its posterior have the shapes of the parameters; by
    jax.eval_shape, so that nothing is computed."""
    if not fit.belief.varies or fit.belief.chains is not None:
        return fit
    plan, known = fit._plan, fit._known()
    drawn = jax.eval_shape(lambda: fit.belief.draw(plan, known, 1, 0))
    invalid = [name for name in plan.free
               if drawn[name].shape[1:] != fit.structure.sites[name].shape]
    if invalid:
        raise damaged(path, f"its draws of '{invalid[0]}' have the shape "
                            f"{drawn[invalid[0]].shape[1:]}, expected "
                            f"{fit.structure.sites[invalid[0]].shape}")
    return fit
