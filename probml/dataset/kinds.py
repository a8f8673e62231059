"""The type with which inputs are traced: integers if they are indices, else floats."""

from collections.abc import Mapping

import jax
import numpy as np

from probml.dataset.arrays import NUMBERS, Raw, deny
from probml.errors import ModelError
from probml.jaxpr.memo import memo
from probml.language.language import Bound
from probml.structure.structure import Structure
from probml.structure.trace import structure_of


def structure_for_inputs(model: Bound, raws: Mapping[str, Raw], shapes: Mapping[str, tuple],
                         specs: Mapping[str, tuple]) -> Structure:
    """The structure of a model for its inputs, index inputs traced as integers.

    Args:
        shapes: input → (trailing shape, dtype kind) in an earlier fit. specs: the same for these
            data; None in a shape is the number of steps.

    Raises:
        ModelError: the function fails with these inputs.
    """
    known = _codes(structure_of(model, shapes)) if shapes else set()
    found = {name: (specs[name][0], shapes[name][1] if name in known else _kind(raw))
             for name, raw in raws.items()}
    return structure_of(
        model,
        dict(_resolve_kinds(model, tuple(sorted((name, *spec) for name, spec in found.items()))))
    )


def _codes(structure: Structure) -> set[str]:
    """The inputs that are codes. One from which an index is computed is a number."""
    return {index.input for index in structure.indexed.values() if index.code}


def _kind(raw: Raw) -> str:
    """The dtype kind with which an input is traced first: text as codes, labels that are numbers as
    floats."""
    if raw.labels is None:
        return raw.values.dtype.kind
    return "f" if all(isinstance(label, NUMBERS) for label in raw.labels) else "i"


@memo(256)
def _resolve_kinds(model: Bound, specs: tuple) -> tuple:
    """Specs with which the function runs: index inputs are integers, since floats and booleans
    cannot index; other integers are floats, whose squares do not overflow."""
    given = {name: (shape, kind) for name, shape, kind in specs}
    try:
        indexed = _codes(structure_of(model, given))
        floats = {name: (shape, "f") if kind in "iu" and name not in indexed else (shape, kind)
                  for name, (shape, kind) in given.items()}
        return tuple((floats if floats == given or _accepts_types(model, floats)
                      else given).items())
    except ModelError as error:
        floats = {name: (shape, "f") if kind in "iu" else (shape, kind)
                  for name, (shape, kind) in given.items()}
        if floats != given and _accepts_types(model, floats):
            return tuple(floats.items())
        ints = {name: (shape, "i") if kind in "fb" else (shape, kind)
                for name, (shape, kind) in given.items()}
        if ints == given:
            raise
        try:
            mixed = {**given, **{name: ints[name] for name in structure_of(model, ints).indexed
                                 if name in given}}
            structure_of(model, mixed)
        except ModelError:
            raise error from None
        return tuple(mixed.items())


def _accepts_types(model: Bound, specs: Mapping[str, tuple]) -> bool:
    """Whether the model function runs with inputs of these types: one that uses an input as a size
    or in bit operations needs integers."""
    try:
        structure_of(model, specs)
    except ModelError:
        return False
    return True


def refuse_long(name: str, raw: Raw) -> None:
    """
    Raises:
        DataError: integers that the function uses as integers exceed JAX's.
    """
    info = np.iinfo(np.int64 if jax.config.jax_enable_x64 else np.int32)
    deny((raw.values < info.min) | (raw.values > info.max), f"the input '{name}'",
         raw.values, f"in {info.min} … {info.max}", hint="The model function uses this input as "
                                                         "an integer. Subtract the first value, "
                                                         "or use other units.")
