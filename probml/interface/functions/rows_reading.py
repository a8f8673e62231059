"""A plate of a function's own, or a common axis of what it observes, as the rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax
from numpyro.distributions.distribution import validation_enabled
from numpyro.primitives import CondIndepStackFrame, Messenger

from probml.errors import ModelError
from probml.interface.functions.given.column import with_known_values
from probml.interface.functions.messages import prepare
from probml.interface.functions.readings import Reading
from probml.language.named_rows import ROWS


@dataclass(eq=False)
class RowsReading(Reading):
    """A plate of the function's own, or a common axis of what it observes, as the rows.

    Args:
        plate: its name; None: the last batch axis of the sites `along`.
        along: sites in no plate whose last batch axis runs along the rows.
        shown: arguments that are observed and nothing else, name → (trailing shape, dtype kind):
            the function is given zeros in their place.
        columns: arguments that are observed as they are, name → site.
        computed: observed sites whose values the function computes from arguments.
        every: arguments of whose values the function computes the set or the maximum, name → the
            distinct values in order, as they were when the function was first read.
        sized: settings that are the number of rows.
        sites: the names of all, and of what is computed.
    """

    plate: str | None
    along: tuple[str, ...]
    shown: Mapping[str, tuple]
    columns: Mapping[str, str]
    every: Mapping[str, tuple]
    sized: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    found: ClassVar[bool] = True

    def run(self, settings: Mapping[str, Any], inputs: Mapping[str, Any],
            rows: int | None = None) -> Any:
        arguments = {own: inputs[name] for name, own in self.inputs.items()}
        kinds = {"f": float, "b": bool}
        arguments |= {name: jnp.zeros((rows, *shape), jnp.result_type(kinds.get(kind, int)))
                      for name, (shape, kind) in self.shown.items()}
        arguments |= {name: with_known_values(arguments[name], values)
                      for name, values in self.every.items()}
        settings = {**settings, **dict.fromkeys(self.sized, rows)}
        with validation_enabled(False), AsRows(self.plate, self.along, rows):
            return self.call({**settings, **arguments})


class AsRows(Messenger):
    """Makes one plate, or the last batch axis of some sites, the rows, and drops observed values:
    they come from the data, or are drawn."""

    def __init__(self, plate: str | None = None, along: tuple[str, ...] = (),
                 rows: int | None = None):
        super().__init__()
        self.plate, self.along, self.rows = plate, along, rows

    def process_message(self, msg: dict) -> None:
        prepare(msg)
        if msg["type"] not in ("sample", "deterministic"):
            return
        frames = list(msg["cond_indep_stack"])
        if msg["name"] in self.along and msg["type"] == "sample":
            frames.append(CondIndepStackFrame("rows", -1, self.rows))
            shape = lax.broadcast_shapes(msg["fn"].batch_shape, (self.rows,))
            if isinstance(msg["fn"], dist.Unit):
                msg["fn"] = dist.Unit(jnp.broadcast_to(msg["fn"].log_factor, shape))
            else:
                msg["fn"] = msg["fn"].expand(shape)
        inside = next((i for i, frame in enumerate(frames) if frame.name == self.plate), None)
        if inside is not None:
            frames[inside] = frames[inside]._replace(name="rows")
            if frames[inside].size != self.rows:
                raise ModelError(
                    f"plate '{self.plate}' has a fixed size of {frames[inside].size}: write its "
                    f"size as the length of an argument, len(y)"
                )
        msg["cond_indep_stack"] = frames
        row = next((frame for frame in frames if frame.name == "rows"), None)
        if row is not None and msg["type"] == "sample":
            msg[ROWS] = row.dim
        if msg["type"] == "sample" and msg["is_observed"] and not isinstance(msg["fn"], dist.Unit):
            msg |= {"is_observed": False, "value": None}

