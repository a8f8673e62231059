"""Reading a fit that `Fit.save` wrote: every array is held to the model's shapes before it is
believed."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import IO, Any

import numpy as np

from probml.engines.engine import Status
from probml.errors import ModelError
from probml.fits import saving
from probml.fits.plain import named, unpacked
from probml.interface.fit import Fit
from probml.interface.model import Generative
from probml.language.language import Bound
from probml.posteriors.posterior import part


def load(path: str | os.PathLike, model: Bound | None = None) -> Any:
    """Read a Fit that `Fit.save` wrote, or a face that its `save` wrote; nothing in the file is
    executed.

    Args:
        model: the one that was fitted; of a model of the zoo, and of a face, the file knows it.

    Raises:
        ModelError: not such a file, saved from another model, or from one that the file does not
            know.
    """
    try:
        with open(path, "rb") as raw:
            meta, arrays = opened(raw)
        if meta["format"] != 1:
            raise ModelError(f"'{path}' has format {meta['format']}, expected 1: it was saved by "
                             f"another version of probml")
        if "face" in meta:
            if model is not None:
                raise ModelError(f"'{path}' holds a {meta['face'][1]}, which knows its model: "
                                 f"load(path)")
            return named(*meta["face"])._restored(meta, arrays)
    except (ModelError, FileNotFoundError):
        raise
    except Exception as error:
        raise ModelError(
            f"'{path}' is not a fit saved by probml ({type(error).__name__}: {error})"
        ) from None
    return restored(path, meta, arrays, model)


def opened(raw: IO[bytes]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What a file says, and its arrays."""
    with np.load(raw, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return json.loads(arrays["meta"].tobytes().decode()), arrays


def restored(path: Any, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray],
             model: Bound | None = None) -> Fit:
    """The fit of a file that is open.

    Raises:
        ModelError: as load.
    """
    model = _known(path, meta, arrays) if model is None else model
    try:
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
            columns={k: tuple(v) for k, v in meta.get("columns", {}).items()},
            seed=meta.get("seed"),
        )  # fmt: skip
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"'{path}' is not a fit saved by probml ({type(error).__name__}: {error})"
        ) from None
    wanted = {name: fit.structure.sites[name].shape for name in fit._plan.free}
    if {name: value.shape for name, value in fit.point.items()} != wanted:
        got = {name: value.shape for name, value in fit.point.items()}
        raise ModelError(f"'{path}' is not a fit saved by probml: its parameters have shapes "
                         f"{got}, the model has {wanted}")
    return replace(fit, belief=saving.belief(meta, arrays, fit._plan, path))


def _known(path: Any, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Bound:
    """The model of the zoo that a file names.

    Raises:
        ModelError: it names none.
    """
    zoo = meta.get("zoo")
    if not zoo:
        raise ModelError(f"'{path}' was saved from {meta.get('model')}, a model of your own, which "
                         f"no file can hold: load(path, model)")
    if not str(zoo["module"]).startswith(saving.ZOO):
        raise ModelError(f"'{path}' names {zoo['module']}, which is not of the zoo")
    function = named(zoo["module"], zoo["name"])
    if not isinstance(function, Generative):
        raise ModelError(f"'{path}' names {zoo['name']}, which is no model")
    return function(**{name: unpacked(value, arrays) for name, value in zoo["settings"].items()})
