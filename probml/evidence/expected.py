"""What an E-step finds of the rows, which an M-step needs."""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from probml.device.rows import Known
from probml.factors.effects.eliminated import Moments


@functools.partial(jax.tree_util.register_dataclass,
                   data_fields=["params", "natural", "known", "share", "settings"],
                   meta_fields=["hard"])
@dataclass(frozen=True)
class Anchor:
    """Where an E-step was made, and the posterior there of the states that rows touch: all that its
    responsibilities can be made of again."""

    params: Any
    natural: Any
    known: Known
    share: jax.Array
    hard: bool
    settings: Any = None


class Expected(NamedTuple):
    """An E-step: what the M-step needs of the rows, and the log evidence."""

    statistics: dict[str, Any]  # like naturals: Σ q T(x)
    # row-wise sites: q a row, (chunks, b, *states); groups of latents: their belief
    taps: dict[str, Any]
    outer: list[jax.Array]  # posterior tables of the global factors
    log_evidence: jax.Array
    # Σ |statistics × naturals|, of the terms whose sum is the pooled objective: its rounding grows
    # with them
    size: jax.Array
    # groups of latents whose statistics pool: where these were taken about, and they themselves
    middle: dict[str, Any]
    pooled: dict[str, Any]
    # in the place of taps, where rows have no room for them: a pass makes them again
    anchor: Anchor | None = None
    effects: Moments | None = None  # of groups, given all rows
    squares: dict[str, Any] = {}  # of row-wise sites of which no rows are left
