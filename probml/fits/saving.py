"""Keeping a fit: one file of arrays and JSON, written atomically, read without running anything in
it.

Files whose parameters have names of before: the same file by the names of now.
"""

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from probml.engines.findings import Finding
from probml.errors import ModelError
from probml.fits.encoding import packed, unpacked
from probml.fits.standard_errors import Widths
from probml.language.given import as_path
from probml.language.language import Bound
from probml.language.renamed import rekeyed
from probml.numerics.outside.checkpoint import replacing
from probml.plan.plan import Plan
from probml.posteriors.posterior import KINDS, Posterior
from probml.queries.fitted import Fitted
from probml.structure.portrait import portrait

NAMED = ("params", "given", "errors", "drawn/values", "drawn/inside", "drawn/worth")  # /name


def by_new_names(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray],
                 renamed: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What a file says, and its arrays. `former`, old name → new one, are those that it had: units,
    standard errors and what lies in the order of names are put right by who reads them.

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
    at = {f"{place}/{old}": f"{place}/{new}" for place in NAMED for old, new in former.items()}
    return ({**meta, **out, "structure": structure, "former": former},
            {at.get(name, name): value for name, value in arrays.items()})


ZOO = "probml.models."  # whose functions a file may name
ERRORS = 2**20  # numbers of standard errors that a file holds at the most: 8 MiB
ACTED = ("save: this Fit is the result of do() and cannot be saved. Save the Fit before do(), and "
         "call do() again on the loaded one, which takes no time")


def save(fit: Fitted, path: str | os.PathLike) -> None:
    """See Fit.save."""
    write(path, file_contents(fit))


def file_contents(fit: Fitted) -> dict[str, np.ndarray]:
    """The arrays of a file that holds a fit, name → array; "meta" is JSON."""
    if fit.model.interventions:
        raise ModelError(ACTED)
    said, belief = fit.belief.saved()
    meta = {
        "format": 1, "model": repr(fit.model),
        "identity": fit.model.identity, "read": bool(fit.model.generative.key),
        "engine": fit.engine, "outcome": int(fit.outcome), "iterations": fit.iterations,
        "log_evidence": fit.log_evidence, "evidence_error": fit.evidence_error,
        "bound": fit.bound, "findings": [found.record() for found in fit.findings],
        "names": {k: [_to_python_scalar(x) for x in v] for k, v in fit.names.items()},
        "shapes": fit.shapes, "pattern": fit.pattern,
        "posterior": None, "double": fit.double, "columns": fit.columns,
        "seed": fit.seed, "structure": _portrait(fit),
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


def _computed_errors(fit: Fitted) -> dict[str, Any] | None:
    """The standard errors of a point, where a summary has asked for them: a loaded fit has no rows
    to compute them from."""
    widths = vars(fit).get("_widths")
    if widths is None or sum(own.size for own in widths.moves.values()) > ERRORS:
        return None
    found = widths.posterior
    return {"moves": dict(widths.moves), "curvature": widths.curvature,
            "identified": widths.identified, "why": dict(widths.why),
            "posterior": None if found is None else found.record()}


def errors_of(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray],
              point: Mapping[str, np.ndarray]) -> Widths | None:
    """The standard errors that a file holds.

    Raises:
        TypeError, ValueError, KeyError: the file holds something else.
    """
    found = unpacked(meta["standard_errors"], arrays) if meta.get("standard_errors") else None
    if found is None:
        return None
    found = rekeyed(found, meta["former"])
    moves, count = found["moves"], len(found["curvature"])
    if len(found["identified"]) != count or any(len(own) != count for own in moves.values()):
        raise ValueError("its standard errors have other directions than their curvature")
    for name in moves.keys() & point.keys():
        if moves[name].shape[1:] != np.shape(point[name]):
            raise ValueError(f"the standard errors of '{name}' have the shape "
                             f"{moves[name].shape[1:]}")
    posterior = found["posterior"]
    return Widths.of(moves, found["curvature"], found["identified"].astype(bool), found["why"],
                     None if posterior is None else Finding.read(posterior))


def encoded(meta: Mapping[str, Any]) -> np.ndarray:
    """What stands beside the arrays, as bytes of JSON.

    Raises:
        ModelError: a label is none that JSON holds.
    """
    for site, labels in meta.get("names", {}).items():
        odd = [x for x in labels if not isinstance(x, str | int | float | None)]
        if odd:
            raise ModelError(f"save: '{site}' has the label {odd[0]!r}, a {type(odd[0]).__name__}: "
                             f"a file holds text, numbers and booleans. Give the categories such "
                             f"names before the fit, as in column.astype(str)")
    return np.frombuffer(json.dumps(meta).encode(), np.uint8)


def write(path: str | os.PathLike, arrays: Mapping[str, np.ndarray]) -> None:
    """One file of arrays, atomically; who may read it, the umask says.

    Raises:
        ModelError: no name of a file in a folder that is there.
    """
    path, whole = _place(path), io.BytesIO()
    np.savez(whole, **dict[str, Any](arrays))
    with replacing(path) as temporary:
        Path(temporary).write_bytes(whole.getvalue())


def _place(path: object) -> Path:
    """Where a file is to stand, refused before anything is made."""
    path = as_path(path, "save(path)")
    if not path.name or path.is_dir():
        raise ModelError(f"save(path='{path}'): expected the name of a file, got a folder")
    if not path.parent.is_dir():
        raise ModelError(f"save(path='{path}'): there is no folder '{path.parent}': create the "
                         f"folder first, or give another path")
    return path


def origin(model: Bound, arrays: dict[str, np.ndarray]) -> dict[str, Any] | None:
    """Where a model of the zoo comes from, and its settings; None of a user's own, and of one that
    holds what no file can."""
    function = model.generative
    if not _shipped(model) or function.key:
        return None
    try:
        settings = {name: packed(value, arrays, "setting") for name, value in model.bound.items()}
    except ModelError:
        return None
    return {"module": function.__module__, "name": function.__qualname__, "settings": settings}


def _portrait(fit: Fitted) -> dict[str, Any]:
    """What tells the model from another; nothing while the shapes of its inputs are unknown. The
    zoo's functions may be written better in another version."""
    if any(name not in fit.shapes for name in fit.model.inputs):
        return {}
    return portrait(fit.structure, not _shipped(fit.model))


def _shipped(model: Bound) -> bool:
    return model.generative.__module__.startswith(ZOO)


def _to_python_scalar(label: object) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def restore_posterior(meta: Mapping, arrays: Mapping, plan: Plan, path: object) -> Posterior:
    """The posterior that a file holds, with its arrays checked against the shapes of the model.

    Raises:
        ModelError: the file lacks some, or they are of another model, or of a kind unknown here.
    """
    # files of before the kind was said hold "drawn", or how many arrays of a closed form
    kind = (meta.get("posterior") or meta.get("drawn")
            or ("Point" if meta.get("closed") is None else "Closed"))
    if kind not in KINDS:
        raise ModelError(f"'{path}' holds a posterior of kind {kind!r}, expected one of "
                         f"{sorted(KINDS)}: first import the package that defines this kind")
    try:
        return KINDS[kind].restored(meta, arrays, plan)
    except ModelError as error:
        raise ModelError(f"'{path}' is not a fit saved by probml: {error}") from None
