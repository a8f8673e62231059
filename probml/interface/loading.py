"""Reading a fit that `Fit.save` wrote: every array is held to the model's shapes before it is
believed."""

import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from probml.engines.engine import Status
from probml.errors import ModelError
from probml.fits import saving
from probml.interface.fit import Fit
from probml.language.language import Bound
from probml.posteriors.posterior import part

# what stands beside the arrays of a file: name → the types that it may have
WORDS: dict[str, tuple[type, ...]] = {
    "format": (int,), "model": (str,), "identity": (str,), "engine": (str,), "outcome": (int,),
    "iterations": (int,), "log_evidence": (float, int, type(None)), "notes": (list,),
    "names": (dict,), "shapes": (dict,), "pattern": (list,)}
NUMBERS = ("params/", "given/", "closed/", "effects/", "states")  # arrays that hold no NaN
PATTERNS = ("seen", "part", "torn", "likelihood", "carried")


def load(path: str | os.PathLike, model: Bound) -> Fit:
    """Read a Fit that `Fit.save` wrote; nothing in the file is executed, and no more memory is
    taken than the file is long.

    Raises:
        ModelError: not such a file, or saved from another model.
        OSError: it is not there, or may not be read.
    """
    if not isinstance(model, Bound):
        raise ModelError(f"load(path, model): expected the model that was fitted, such as "
                         f"{getattr(model, '__name__', 'mixture')}(k=3), got {model!r}")
    if not isinstance(path, str | os.PathLike):  # a number would be an open file of the process
        raise ModelError(f"load(path={path!r:.60}): expected the name of a file")
    try:
        arrays = _arrays(path)
        meta = json.loads(arrays["meta"].tobytes().decode())
        if meta["format"] != 1:
            raise ModelError(f"'{path}' has format {meta['format']}, expected 1: it was saved by "
                             f"another version of probml")
        _check_words(meta)
        read = bool(model.generative.key)
        if meta["identity"] != model.identity or meta.get("read", read) != read:
            raise ModelError(f"'{path}' was saved from {meta['model']}, not from {model!r}: pass "
                             f"the model it was fitted with; a function that writes no rows() is "
                             f"read by its data, load(path, model.read(data))")
        shapes = {k: (tuple(shape), kind) for k, (shape, kind) in meta["shapes"].items()}
        fit = Fit(
            model, part(arrays, "params/"), shapes, meta["engine"], arrays.get("history"),
            Status(meta["outcome"]), meta["iterations"],
            meta["log_evidence"], tuple(meta["notes"]),
            {k: tuple(v) for k, v in meta["names"].items()}, part(arrays, "given/"),
            tuple((k, v) for k, v in meta["pattern"]),
            held_out=arrays.get("held_out"),
            double=bool(meta.get("double", False)),
            bound=meta.get("bound"),
        )  # fmt: skip
        _check_sites(fit, path)
        return _drawable(replace(fit, belief=saving.belief(meta, arrays, fit._plan, path)), path)
    except (ModelError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:
        raise ModelError(
            f"'{path}' is not a fit saved by probml ({type(error).__name__}: {error})"
        ) from None


def _arrays(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """The arrays of a file, none of them longer than what the file has for it."""
    with open(path, "rb") as raw:
        with zipfile.ZipFile(raw) as packed:
            long = sum(member.file_size for member in packed.infolist())
        size = os.fstat(raw.fileno()).st_size
        if long > size:
            raise ModelError(f"'{path}' is not a fit saved by probml: it has {size:,} bytes, which "
                             f"would unpack to {long:,}, and Fit.save packs nothing")
        raw.seek(0)
        with np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    odd = [name for name, value in arrays.items() if value.dtype.kind not in "biuf"
           or name.startswith(NUMBERS) and np.isnan(value).any()]
    if odd:
        raise ModelError(f"'{path}' is not a fit saved by probml: '{odd[0]}' has the dtype "
                         f"{arrays[odd[0]].dtype}, or a NaN in it: expected numbers")
    return arrays


def _check_words(meta: Mapping[str, Any]) -> None:
    """
    Raises:
        TypeError: what stands beside the arrays is not of the kind that Fit.save writes.
    """
    for name, kinds in WORDS.items():
        if not isinstance(meta[name], kinds) or isinstance(meta[name], bool):
            raise TypeError(f"its {name} is {meta[name]!r:.60}")
    if not all(isinstance(note, str) for note in meta["notes"]):
        raise TypeError(f"its notes are {meta['notes']!r:.60}")


def _check_sites(fit: Fit, path: Any) -> None:
    """
    Raises:
        ModelError: what the file says of sites and parameters is not true of its model.
    """
    sites = fit.structure.sites
    for name, word in fit.pattern:
        if name not in sites or word not in PATTERNS:
            raise ModelError(f"'{path}' is not a fit saved by probml: of '{name}' it says {word!r}")
    for name, value in fit.given.items():
        if name not in sites or value.shape != sites[name].shape:
            raise ModelError(f"'{path}' is not a fit saved by probml: '{name}' was given with the "
                             f"shape {value.shape}")
    for name, labels in fit.names.items():
        known = name in fit.model.inputs or name in sites and sites[name].finite == len(labels)
        if not known or len(set(labels)) < len(labels):
            raise ModelError(f"'{path}' is not a fit saved by probml: it has the labels "
                             f"{list(labels)!r:.60} of '{name}'")
    wanted = {name: sites[name].shape for name in fit._plan.free}
    if {name: value.shape for name, value in fit.point.items()} != wanted:
        got = {name: value.shape for name, value in fit.point.items()}
        raise ModelError(f"'{path}' is not a fit saved by probml: its parameters have shapes "
                         f"{got}, the model has {wanted}")


def _drawable(fit: Fit, path: Any) -> Fit:
    """A fit of whose closed form draws have the shapes of the parameters: nothing is computed."""
    if not fit.belief.exact:
        return fit
    plan, known = fit._plan, fit._known()
    drawn = jax.eval_shape(lambda belief: belief.draw(plan, known, 1, 0), fit.belief)
    wrong = [name for name in plan.free
             if drawn[name].shape[1:] != fit.structure.sites[name].shape]
    if wrong:
        raise ModelError(f"'{path}' is not a fit saved by probml: its draws of '{wrong[0]}' have "
                         f"the shape {drawn[wrong[0]].shape[1:]}")
    return fit
