"""The arrays of a distribution, and the distribution from them again."""

from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist


class _ByAttributes:
    """A distribution of the user's own, whose class does not tell NumPyro all of its arrays
    (pytree_data_fields): what its attributes hold, arrays as leaves, all else as it is."""

    def __init__(self, whole: dist.Distribution):
        self.whole = whole


def _flatten(own: _ByAttributes) -> tuple[tuple, tuple]:
    held = vars(own.whole)
    arrays = [name for name, value in held.items()
              if isinstance(value, jax.Array | np.ndarray | dist.Distribution)]
    rest = tuple((name, value) for name, value in held.items() if name not in arrays)
    return tuple(held[name] for name in arrays), (type(own.whole), tuple(arrays), rest)


def _unflatten(how: tuple, arrays: tuple) -> dist.Distribution:
    kind, names, rest = how
    made = kind.__new__(kind)
    vars(made).update(dict(rest) | dict(zip(names, arrays, strict=True)))
    return made


jax.tree_util.register_pytree_node(_ByAttributes, _flatten, _unflatten)


def leaves_of_distribution(base: dist.Distribution) -> tuple[list, Any]:
    """The arrays of a distribution, and what `jax.tree.unflatten` makes it of again."""
    kind = type(base)
    told = {*kind.gather_pytree_data_fields(), *kind.gather_pytree_aux_fields(), "_batch_shape",
            "_event_shape"}
    shipped = kind.__module__.partition(".")[0] in ("numpyro", "probml")
    if shipped or told.issuperset(vars(base)):
        return jax.tree.flatten(base)
    return jax.tree.flatten(_ByAttributes(base))
