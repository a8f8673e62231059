"""Libraries that take 0.1 s and more to import, each imported at its first use: a fit of arrays
needs none of them, and every script and every process would pay for all."""

from typing import TYPE_CHECKING, Any

from probml.numerics.process.late import import_late


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
