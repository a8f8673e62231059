"""Keeping a fit: one file of arrays and JSON, written atomically, read without running anything in
it."""

import io
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from probml.errors import ModelError
from probml.plan.blocks import blocks
from probml.posteriors.coupling import Posterior
from probml.posteriors.drawn import Draws, Normal

if TYPE_CHECKING:
    from probml.interface.fit import Fit


def save(fit: "Fit", path: str | os.PathLike) -> None:
    """See Fit.save."""
    if fit.model.interventions:
        raise ModelError("save: this fit stands after do(); save the one before, and call do() on "
                         "what is loaded: it costs nothing")
    leaves, _ = jax.tree.flatten(fit.closed)
    drawn = {} if fit.drawn is None else {f"drawn/{key}": np.asarray(value)
                                          for key, value in _named(fit.drawn).items()}
    meta = {
        "format": 1, "model": repr(fit.model),
        "identity": fit.model.identity, "engine": fit.engine, "outcome": int(fit.outcome),
        "iterations": fit.iterations,
        "log_evidence": fit.log_evidence, "notes": fit.notes,
        "names": {k: [_plain(x) for x in v] for k, v in fit.names.items()},
        "shapes": fit.shapes, "pattern": fit.pattern,
        "closed": len(leaves) if fit.closed is not None else None,
        "drawn": type(fit.drawn).__name__ if fit.drawn is not None else None, "double": fit.double,
        "roots": [] if fit.closed is None
        else ["root" in natural for natural in fit.closed.natural],
    }  # fmt: skip
    arrays = {"meta": np.frombuffer(json.dumps(meta).encode(), np.uint8)}
    arrays |= {f"params/{k}": np.asarray(v) for k, v in fit.point.items()} | {
        f"given/{k}": np.asarray(v) for k, v in fit.given.items()
    }
    arrays |= {f"closed/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)} | drawn
    kept = {"history": fit.history, "states": fit.states, "held_out": fit.held_out}
    arrays |= {name: np.asarray(value) for name, value in kept.items() if value is not None}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(buffer.getvalue())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def _named(drawn: Draws | Normal) -> dict[str, Any]:
    """The arrays of draws or of a normal, by names of paths."""
    if isinstance(drawn, Normal):
        return drawn._asdict()
    tables = {} if drawn.tables is None else {"tables": drawn.tables}
    return {
        f"values/{k}": v for k, v in drawn.values.items()
    } | {f"stats/{k}": v for k, v in drawn.stats.items()} | tables


def drawn_part(kind: str, arrays: Mapping, wanted: Mapping, path: Any) -> Draws | Normal:
    """The inverse of `_named`."""
    found: Draws | Normal | None = None
    if kind == "Normal" and arrays.keys() == set(Normal._fields):
        found = Normal(**arrays)
    if kind == "Draws":
        found = Draws(part(arrays, "values/"), arrays.get("tables"), part(arrays, "stats/"))
        if any(name not in found.values or found.values[name].shape[2:] != shape
               for name, shape in wanted.items()):
            found = None
    if found is None:
        raise ModelError(f"'{path}' is not a fit saved by probml: its draws are {sorted(arrays)}, "
                         f"expected those of {sorted(wanted)}")
    return found


def part(arrays: Mapping, prefix: str) -> dict[str, np.ndarray]:
    return {name[len(prefix) :]: value for name, value in arrays.items() if name.startswith(prefix)}


def closed_template(plan, roots: Sequence[bool]) -> Posterior:
    """A Posterior with the right keys, to give saved leaves their places; `roots`: which blocks
    have that of their precision."""
    every = [block for stage in blocks(plan, True) for block in stage]
    rooted = ("loc", "root")
    named = [rooted if i < len(roots) and roots[i] else block.form.keys
             for i, block in enumerate(every)]
    natural = tuple(dict.fromkeys(names, 0.0) for names in named)
    return Posterior(natural, dict.fromkeys(plan.free, 0.0), dict.fromkeys(plan.free, 0.0))
