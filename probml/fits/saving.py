"""Fit.save: one file of arrays and JSON, written atomically and read without executing anything;
deprecated names of parameters in older files are replaced by the present ones."""

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from probml.engines.findings import Finding
from probml.errors import ModelError, listed, type_of
from probml.fits.encoding import packed, unpacked
from probml.fits.standard_errors import StandardErrors
from probml.language.given import as_new_file
from probml.language.language import Bound
from probml.language.renamed import rekeyed
from probml.numerics.outside.checkpoint import replacing
from probml.plan.plan import Plan
from probml.posteriors.posterior import KINDS, Posterior
from probml.queries.fitted import Fitted
from probml.structure.portrait import portrait
from probml.typing import Json

# the keys of arrays by name of a parameter, "params/sd"
KEYS_WITH_NAMES = ("params", "given", "errors", "drawn/values", "drawn/inside", "drawn/worth")


def by_new_names(meta: Json, arrays: Mapping[str, np.ndarray],
                 renamed: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The metadata and arrays of a file under present names; metadata "former" has old name → new
    name, for the readers of units, standard errors and arrays in the order of names.

    Args:
        renamed: of the model.
    """
    held = {name.rpartition("/")[2] for name in arrays if name.startswith(("params/", "given/"))}
    former = {old: new for old, new in renamed.items() if old in held}
    if not former:
        return {**meta, "former": {}}, dict(arrays)
    out = {name: rekeyed(meta[name], former) for name in ("shapes", "names", "columns")
           if name in meta}
    out["pattern"] = [(former.get(name, name), word) for name, word in meta["pattern"]]
    if "effects" in meta:
        out["effects"] = [former.get(name, name) for name in meta["effects"]]
    structure = rekeyed(meta.get("structure", {}), former)
    for said in structure.get("sites", {}).values():
        said["parents"] = sorted(former.get(name, name) for name in said["parents"])
    at = {f"{key}/{old}": f"{key}/{new}" for key in KEYS_WITH_NAMES for old, new in former.items()}
    return ({**meta, **out, "structure": structure, "former": former},
            {at.get(name, name): value for name, value in arrays.items()})


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
    said, belief = fit.belief.saved()
    meta = {
        "format": 1, "model": repr(fit.model),
        "identity": fit.model.identity, "read": bool(fit.model.generative.key),
        "engine": fit.engine, "outcome": int(fit.outcome), "iterations": fit.iterations,
        "log_evidence": fit.log_evidence, "evidence_error": fit.evidence_error,
        "bound": fit.bound, "weighted": fit.weighted,
        "findings": [found.record() for found in fit.findings],
        "names": {k: [x.item() if isinstance(x, np.generic) else x for x in v]
                  for k, v in fit.names.items()},
        "shapes": fit.shapes, "pattern": fit.pattern,
        "posterior": None, "double": fit.double, "columns": fit.columns,
        "seed": fit.seed, "structure": _describe_structure(fit),
        "places": dict(getattr(fit.model.generative, "places", {})),
    } | said  # fmt: skip
    arrays: dict[str, np.ndarray] = {}
    meta["zoo"] = origin(fit.model, arrays)
    meta["units"] = packed(dict(fit.units), arrays, "the units of parameters")
    meta["standard_errors"] = packed(_computed_errors(fit), arrays, "standard errors")
    arrays["meta"] = encoded(meta)
    arrays |= {f"params/{k}": np.asarray(v) for k, v in fit.point.items()} | {
        f"given/{k}": np.asarray(v) for k, v in fit.given.items()
    } | {f"errors/{k}": np.asarray(v) for k, v in fit.errors.items()}
    kept = {"history": fit.history, "held_out": fit.held_out, **belief}
    arrays |= {name: np.asarray(value) for name, value in kept.items() if value is not None}
    return arrays


def _computed_errors(fit: Fitted) -> dict[str, ArrayLike] | None:
    """The standard errors of a point, if a summary has computed them: a loaded fit has no rows to
    compute them from."""
    errors = vars(fit).get("_standard_errors")
    if errors is None or sum(own.size for own in errors.derivatives.values()) > MAX_ERROR_NUMBERS:
        return None
    found = errors.posterior
    return {"moves": dict(errors.derivatives), "curvature": errors.curvature,
            "identified": errors.identified, "why": dict(errors.reasons),
            "posterior": None if found is None else found.record()}


def errors_of(meta: Json, arrays: Mapping[str, np.ndarray],
              point: Mapping[str, np.ndarray]) -> StandardErrors | None:
    """The standard errors of a file.

    Raises:
        TypeError, ValueError, KeyError: the file holds something else.
    """
    found = unpacked(meta["standard_errors"], arrays) if meta.get("standard_errors") else None
    if found is None:
        return None
    found = rekeyed(found, meta["former"])
    moves, count = found["moves"], len(found["curvature"])
    if len(found["identified"]) != count or any(len(own) != count for own in moves.values()):
        raise ValueError("the number of standard errors differs from that of the second "
                         "derivatives; save the fit again")
    for name in moves.keys() & point.keys():
        if moves[name].shape[1:] != np.shape(point[name]):
            raise ValueError(f"the standard errors of '{name}' have the shape "
                             f"{moves[name].shape[1:]}, expected {np.shape(point[name])}; save the "
                             "fit again")
    posterior = found["posterior"]
    return StandardErrors.of(moves, found["curvature"], found["identified"].astype(bool),
                             found["why"], None if posterior is None else Finding.read(posterior))


def encoded(meta: Json) -> np.ndarray:
    """The metadata as bytes of JSON.

    Raises:
        ModelError: a label that JSON cannot represent.
    """
    for site, labels in meta.get("names", {}).items():
        odd = [x for x in labels if not isinstance(x, str | int | float | None)]
        if odd:
            raise ModelError(f"save: '{site}' has the label {odd[0]!r}, {type_of(odd[0])}, "
                             f"but labels in a file can only be text, numbers or booleans. Convert "
                             f"the column before the fit, such as column.astype(str)")
    return np.frombuffer(json.dumps(meta).encode(), np.uint8)


def write(path: str | os.PathLike, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to a file, atomically; its permissions follow the umask.

    Raises:
        ModelError: no file name, or a folder that does not exist.
    """
    path, whole = as_new_file(path, "save(path)"), io.BytesIO()
    np.savez(whole, **dict[str, Any](arrays))
    with replacing(path) as temporary:
        Path(temporary).write_bytes(whole.getvalue())


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
    # files of earlier versions, without a kind, hold "drawn", or how many arrays of a closed form
    kind = (meta.get("posterior") or meta.get("drawn")
            or ("Point" if meta.get("closed") is None else "Closed"))
    if kind not in KINDS:
        raise ModelError(f"'{path}' contains a posterior of kind {kind!r}, but the known kinds are "
                         f"{listed(sorted(KINDS))}. Import the package that defines the kind "
                         f"{kind!r} before load()")
    try:
        return KINDS[kind].restored(meta, arrays, plan)
    except ModelError as error:
        raise damaged(path, error) from None
