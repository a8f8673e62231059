"""The identity of a fit in its checkpoint: its model, data, engine, start and seed, in words."""

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

DIGEST_DIGITS = 12  # of a digest in messages


def open_journal(checkpoint: Checkpoint, model: Bound, data: Data, engine: Engine | None,
                 weights: np.ndarray | None, seed: int, start: SiteValues) -> Journal:
    """The checkpoint of a fit, opened.

    Raises:
        DataError: the file is that of a fit of other data.
        ModelError: the file is that of another model, engine, seed or start, or no checkpoint;
            raised in all of several processes if it is so in one.

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
        "data": f"{data.extent} numbers ({_digest(*_data_to_digest(data), weights)})",
        "seed": str(seed),
        "start": f"{sorted(start)} ({_digest(start)})",
        "precision": double,
    }, **({"every": gathered} if several else {}))


def _engine_settings(engine: Engine) -> str:
    """The settings of an engine as text, without the addresses of functions, which differ between
    processes."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(engine))


def _data_to_digest(data: Data) -> list[Any]:
    """All data; of a source its profile."""
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
    return into.hexdigest()[:DIGEST_DIGITS]


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
