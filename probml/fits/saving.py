"""Keeping a fit: one file of arrays and JSON, written atomically, read without running anything in
it."""

import io
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.errors import ModelError
from probml.plan.plan import Plan
from probml.posteriors.closed import Closed
from probml.posteriors.drawn import Draws, Normal
from probml.posteriors.posterior import Point, Posterior

if TYPE_CHECKING:
    from probml.interface.fit import Fit


def save(fit: "Fit", path: str | os.PathLike) -> None:
    """See Fit.save."""
    if fit.model.interventions:
        raise ModelError("save: this fit stands after do(); save the one before, and call do() on "
                         "what is loaded: it costs nothing")
    said, belief = fit.belief.saved()
    meta = {
        "format": 1, "model": repr(fit.model),
        "identity": fit.model.identity, "engine": fit.engine, "outcome": int(fit.outcome),
        "iterations": fit.iterations,
        "log_evidence": fit.log_evidence, "bound": fit.bound, "notes": fit.notes,
        "names": {k: [_plain(x) for x in v] for k, v in fit.names.items()},
        "shapes": fit.shapes, "pattern": fit.pattern,
        "closed": None, "drawn": None, "roots": [], "double": fit.double,
    } | said  # fmt: skip
    arrays = {"meta": np.frombuffer(json.dumps(meta).encode(), np.uint8)}
    arrays |= {f"params/{k}": np.asarray(v) for k, v in fit.point.items()} | {
        f"given/{k}": np.asarray(v) for k, v in fit.given.items()
    }
    kept = {"history": fit.history, "held_out": fit.held_out, **belief}
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


def belief(meta: Mapping, arrays: Mapping, plan: Plan, path: Any) -> Posterior:
    """The posterior that a file holds: every array in its place, of the shape that the model has.

    Raises:
        ModelError: the file lacks some, or they are of another model.
    """
    if meta.get("drawn") is not None:
        return _drawn(meta["drawn"], part(arrays, "drawn/"), plan, path)
    if meta["closed"] is None:
        return Point(arrays.get("states"))
    template = Closed.template(plan, meta.get("roots") or ())
    missing = [i for i in range(meta["closed"]) if f"closed/{i}" not in arrays]
    if missing or meta["closed"] != len(jax.tree.leaves(template)):
        raise ModelError(
            f"'{path}' is not a fit saved by probml: its posterior has {meta['closed']} arrays, of "
            f"which {len(missing)} are missing"
        )
    leaves = [arrays[f"closed/{i}"] if meta.get("double") else jnp.asarray(arrays[f"closed/{i}"])
              for i in range(meta["closed"])]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def _drawn(kind: str, arrays: Mapping, plan: Plan, path: Any) -> Posterior:
    wanted = {name: plan.structure.sites[name].shape for name in plan.free}
    found: Posterior | None = None
    if kind == "Normal" and arrays.keys() == set(Normal._fields):
        found = Normal(**arrays)
    if kind == "Draws":
        found = Draws(part(arrays, "values/"), arrays.get("tables"), part(arrays, "stats/"),
                      part(arrays, "inside/"))
        if any(name not in found.values or found.values[name].shape[2:] != shape
               for name, shape in wanted.items()):
            found = None
    if found is None:
        raise ModelError(f"'{path}' is not a fit saved by probml: its draws are {sorted(arrays)}, "
                         f"expected those of {sorted(wanted)}")
    return found


def part(arrays: Mapping, prefix: str) -> dict[str, np.ndarray]:
    return {name[len(prefix) :]: value for name, value in arrays.items() if name.startswith(prefix)}
