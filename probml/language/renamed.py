"""Names that parameters of the model library had before: they go on working for one minor version,
with a DeprecationWarning that names the new one.

A function says them once, `function.renames({"bias": "intercept"})`; all that takes or gives values
by name asks here."""

import warnings
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from probml.errors import ModelError
from probml.typing import ArrayLike, SiteValues


def warn(where: str, old: str, new: str, stacklevel: int = 3) -> None:
    """Warn that a name is old, at the caller of the caller.

    Args:
        where: what comes before the old name, such as "Model:" or "the parameter".
        new: the name now.
    """
    warnings.warn(f"{where} '{old}' is now named '{new}'. Use '{new}': the old name works only "
                  "until the next minor version", DeprecationWarning, stacklevel=stacklevel)


class Renamed(dict):
    """Values by name, which are also found by their former names.

    Args:
        former: old name → the name now.
    """

    def __init__(self, values: Mapping[str, np.ndarray], former: Mapping[str, str]):
        super().__init__(values)
        self.former = {old: new for old, new in former.items()
                       if new in values and old not in values}

    def __missing__(self, name: str) -> Any:
        if name not in self.former:
            raise KeyError(name)
        warn("the parameter", name, self.former[name], 4)
        return self[self.former[name]]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self.former

    def get(self, name: str, default: object = None) -> ArrayLike | None:
        return self[name] if name in self else default


def by_old_names(values: dict[str, np.ndarray], former: Mapping[str, str]) -> dict[str, ArrayLike]:
    """The same values, found by old names, too."""
    return Renamed(values, former) if former else values


def by_new_names(values: SiteValues, former: Mapping[str, str]) -> dict[str, ArrayLike]:
    """Values by name, those with old names by the new ones.

    Raises:
        ModelError: one is given by both.
    """
    renamed = dict(values)
    for old in former.keys() & values.keys():
        new = former[old]
        if new in values:
            raise ModelError(f"'{old}' is now named '{new}', and both are given. Drop '{old}'")
        warn("the parameter", old, new, 4)
        renamed[new] = renamed.pop(old)
    return renamed


def _flatten(values: Renamed):
    names = sorted(values)
    return [values[name] for name in names], (tuple(names), tuple(values.former.items()))


jax.tree_util.register_pytree_node(
    Renamed, _flatten,
    lambda names, leaves: Renamed(dict(zip(names[0], leaves, strict=True)), dict(names[1])))
