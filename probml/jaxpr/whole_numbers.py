"""Whole numbers that a traced program computes from constants alone, such as `arange(n)` made fit
for an index. Nothing is compiled."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from probml.jaxpr.primitives import name_of

LARGEST_READ = 100_000

MOVED: dict[str, Callable] = {
    "broadcast_in_dim": lambda eqn, a: np.broadcast_to(
        a.reshape([dict(zip(map(int, eqn.params["broadcast_dimensions"]), a.shape,
                            strict=True)).get(d, 1) for d in _dims(eqn)]),
        eqn.outvars[0].aval.shape,
    ),
    "concatenate": lambda eqn, *a: np.concatenate(a, eqn.params["dimension"]),
    "convert_element_type": lambda eqn, a: (a != 0) + 0 * a if eqn.outvars[0].aval.dtype == bool
    else a,
    "reshape": lambda eqn, a: a.reshape(eqn.outvars[0].aval.shape),
    "squeeze": lambda eqn, a: a.reshape(eqn.outvars[0].aval.shape),
    "expand_dims": lambda eqn, a: a.reshape(eqn.outvars[0].aval.shape),
    "transpose": lambda eqn, a: a.transpose(eqn.params["permutation"]),
}
_COMPUTED: dict[str, Callable] = {
    "iota": lambda eqn: np.broadcast_to(
        np.arange(eqn.params["shape"][eqn.params["dimension"]], dtype=float).reshape(
            [-1 if d == eqn.params["dimension"] else 1 for d in _dims(eqn)]
        ),
        eqn.params["shape"],
    ),
    "add": lambda eqn, a, b: a + b,
    "sub": lambda eqn, a, b: a - b,
    "mul": lambda eqn, a, b: a * b,
    "max": lambda eqn, a, b: np.maximum(a, b),
    "min": lambda eqn, a, b: np.minimum(a, b),
    "lt": lambda eqn, a, b: (a < b).astype(float),
    "ge": lambda eqn, a, b: (a >= b).astype(float),
    "clamp": lambda eqn, a, b, c: np.clip(b, a, c),
    "select_n": lambda eqn, which, *a: np.choose(which.astype(int), a),
}


def _dims(eqn: Any) -> range:
    return range(len(eqn.outvars[0].aval.shape))


def folded(eqn: Any, known: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """The whole numbers that the one result of an equation is; NaN where they depend on data; None
    where nothing is known.

    Args:
        known: the same of its operands. Where nothing is known of one, it depends on data.
    """
    out, name = eqn.outvars[0].aval, name_of(eqn)
    # random keys and tokens have no such kind
    whole = getattr(getattr(out, "dtype", None), "kind", "") in ("b", "i", "u")
    if (not whole or not 0 < out.size <= LARGEST_READ or name == "reshape"
        and eqn.params.get("dimensions") is not None):
        return None
    if name in _COMPUTED and all(array is not None and not np.isnan(array).any()
                                 for array in known):
        return np.asarray(_COMPUTED[name](eqn, *known), float)
    if name in MOVED and any(array is not None for array in known):
        arrays = [np.full(atom.aval.shape, np.nan) if array is None else array
                  for array, atom in zip(known, eqn.invars, strict=True)]
        return np.asarray(MOVED[name](eqn, *arrays), float)
    return None
