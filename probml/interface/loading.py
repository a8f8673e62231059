"""Reading a fit that `Fit.save` wrote: every array is held to the model's shapes before it is
believed."""

import json
import os
from dataclasses import replace

import numpy as np

from probml.engines.engine import Status
from probml.errors import ModelError
from probml.fits import saving
from probml.interface.fit import Fit
from probml.language.language import Bound
from probml.posteriors.posterior import part


def load(path: str | os.PathLike, model: Bound) -> Fit:
    """Read a Fit that `Fit.save` wrote; nothing in the file is executed.

    Raises:
        ModelError: not such a file, or saved from another model.
    """
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        meta = json.loads(arrays["meta"].tobytes().decode())
        if meta["format"] != 1:
            raise ModelError(f"'{path}' has format {meta['format']}, expected 1: it was saved by "
                             f"another version of probml")
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
    except ModelError:
        raise
    except FileNotFoundError:
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
