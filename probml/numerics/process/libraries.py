"""Libraries that take 0.1 s and more to import, each imported at its first use: a fit of arrays
needs none of them, and every script and every process would pay for all. So are the names of a
package: JAX, NumPyro and scikit-learn take seconds, and `probml --help` needs none of them.
"""

import gc
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from probml.numerics.process.shared_changes import uncollected


def import_late(name: str) -> Any:
    """The module. What imports create stays: as old objects, the collector does not visit them
    during the first fit (0.1 s)."""
    if name in sys.modules:
        return importlib.import_module(name)  # after an import by another thread has ended
    with uncollected():
        module = importlib.import_module(name)
    if gc.isenabled() and not gc.get_freeze_count():  # what a user has frozen stays frozen
        gc.freeze()
        gc.unfreeze()
    return module


def lazy(package: str, homes: Mapping[str, str], known: Iterable[str],
         hint: Callable[[str], str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

    Args:
        homes: name → the module inside the package that has it.
        known: further names for `dir`, such as folders.
        hint: an unknown name → the names that may be meant, the end of the error's sentence.
    """
    names = sorted({*homes, *known})

    def find(name: str) -> Any:
        if name in homes:
            value = getattr(import_late(f"{package}.{homes[name]}"), name)
            setattr(sys.modules[package], name, value)  # so that this is called once
            return value
        full_name = f"{package}.{name}"
        if not name.startswith("_") and importlib.util.find_spec(full_name) is not None:
            return importlib.import_module(full_name)
        raise AttributeError(f"module '{package}' has no attribute '{name}'{hint(name)}")

    return find, lambda: list(names)


class LateModule:
    """A module that is imported at the first access to an attribute."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_late(self._name), name)


if TYPE_CHECKING:
    import narwhals.stable.v1 as nw
    import networkx
    import optax
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    import pyarrow.types as arrow_types
else:
    arrow_types, ds, networkx, nw, optax, pa, pc, pd = map(LateModule, (
        "pyarrow.types", "pyarrow.dataset", "networkx", "narwhals.stable.v1", "optax", "pyarrow",
        "pyarrow.compute", "pandas"))
