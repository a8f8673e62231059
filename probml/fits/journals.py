"""What a checkpoint must know a fit by: its model, data, engine, start and seed, in words."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from probml.dataset.dataset import Data
from probml.engines.engine import Engine
from probml.language.language import Bound
from probml.numerics.identity import Nameless
from probml.numerics.outside.checkpoint import Checkpoint, Journal
from probml.numerics.outside.processes import gathered
from probml.typing import SiteValues

DIGITS = 12  # of a digest in messages


def journal_of(checkpoint: Checkpoint, model: Bound, data: Data, engine: Engine | None,
               weights: np.ndarray | None, seed: int, start: SiteValues) -> Journal:
    """The journal of a fit.

    Raises:
        DataError: the file is that of a fit of other data.
        ModelError: the file is that of another model, engine, seed or start, or no checkpoint. Of
            several processes all hear of the file of any.

    Cost: one pass over the rows in memory, for their digest; of a source its profile is digested.
    """
    try:
        code = model.portable
    except Nameless:
        code = model.identity
    double = "float64" if jax.config.jax_enable_x64 else "float32"
    several = data.survey is not None and bool(data.survey.shares)
    return Journal(checkpoint, {
        "model": f"{model!r} ({_digest(code)})",
        "engine": "the first that does not refuse" if engine is None else _engine_settings(engine),
        "data": f"{data.extent} numbers ({_digest(*_seen(data), weights)})",
        "seed": str(seed),
        "start": f"{sorted(start)} ({_digest(start)})",
        "precision": double,
    }, **({"every": gathered} if several else {}))


def _engine_settings(engine: Engine) -> str:
    """The settings of an engine as text, without the addresses of functions, which differ between
    processes."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(engine))


def _seen(data: Data) -> list[Any]:
    """All that is seen: of a source what a first look told."""
    table = data.table
    found = [table.rows, {name: [c.values, c.seen, c.likelihood] for name, c
                          in table.columns.items()}, table.inputs, table.values, table.labels]
    if data.survey is not None:
        profile = data.survey.profile
        found += [profile.rows, {name: list(m) for name, m in profile.moments.items()}]
    return found


def _digest(*values: object) -> str:
    into = hashlib.blake2b()
    _feed(into, values)
    return into.hexdigest()[:DIGITS]


def _feed(into: "hashlib.blake2b", value: Any) -> None:
    if isinstance(value, Mapping):
        value = sorted((str(name), own) for name, own in value.items())
    if isinstance(value, list | tuple):
        into.update(f"({len(value)}".encode())
        for item in value:
            _feed(into, item)
    elif isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.ascontiguousarray(value)
        into.update(f"{array.dtype.str}{array.shape}".encode())
        into.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.data)
    else:
        into.update(f"{type(value).__name__}:{value!r}".encode())
