"""One table of JAX's primitives: name → its effect on axes, and its computation by NumPy. About a
primitive that is not in the table, every analysis assumes the worst. And constant folding of
integers, such as `arange(n)` used as an index; nothing is compiled.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import JaxprEqn
from jax.typing import ArrayLike

from probml.jaxpr.tapes import moves, operation, randoms, sums
from probml.jaxpr.tapes.operation import Aval, Operation, Unsupported


class Kind(enum.Enum):
    """What a primitive does to the axes of its operands."""

    # an element of a result is a function of the elements of the operands at the same place
    ELEMENTWISE = enum.auto()
    COPY = enum.auto()  # the k-th result is a copy of the k-th operand
    # every element of the result is an element of the first operand; the other operands are indices
    MOVE = enum.auto()
    WRITE = enum.auto()  # the first operand with elements of another written, or added, at indices
    JOIN = enum.auto()  # concatenates operands along an axis
    REDUCE = enum.auto()  # combines elements along axes, which are removed
    ALONG = enum.auto()  # combines elements along one axis, which remains, such as a cumulative sum
    WINDOW = enum.auto()  # combines neighbours within a window
    CONTRACT = enum.auto()  # sums of products along paired axes
    # any function of trailing axes; leading axes are a batch, shared by all operands
    OPAQUE = enum.auto()
    # appends or removes trailing axes; the leading axes are those of the operands
    LEADING = enum.auto()
    CREATE = enum.auto()  # an array without operands
    CALL = enum.auto()  # runs its jaxpr once on its operands
    LOOP = enum.auto()  # runs its jaxprs many times, or one of many


class Known(NamedTuple):
    """An entry of the table."""

    kind: Kind
    core_ndims: tuple[int, ...] = ()
    """For OPAQUE: how many trailing axes of each operand belong to one call, the axes before them
    being batch axes; the last number also holds for operands beyond these."""
    axes: str = ""
    """For REDUCE and ALONG: the parameter that holds the axes, or the axis."""


_NAMES = {
    # these, and those of tapes/operation.py
    Kind.ELEMENTWISE: """
        clz complex conj eq_to igamma_grad_a imag le_to lt_to mulhi population_count real
        shift_right_arithmetic threefry2x32 zeros_like""",
    Kind.COPY: "copy copy_p device_put layout_constraint name optimization_barrier pvary reshard "
    "sharding_constraint",
    Kind.MOVE: """
        broadcast broadcast_in_dim dynamic_slice expand_dims gather reduce_precision reshape rev
        slice split squeeze tile transpose unstack""",
    Kind.WRITE: "dynamic_update_slice scatter scatter_add scatter_max scatter_min scatter_mul "
    "scatter_sub",
    Kind.JOIN: "concatenate pad stack",
    Kind.WINDOW: "reduce_window reduce_window_max reduce_window_min reduce_window_sum",
    Kind.CONTRACT: "conv_general_dilated dot_general",
    Kind.LEADING: "random_bits random_clone random_fold_in random_seed random_split random_unwrap "
    "random_wrap",
    Kind.CREATE: "empty iota platform_index",
    Kind.CALL: """
        call call_hi_primitive checkpoint closed_call composite core_call custom_jvp_call
        custom_linear_solve custom_vjp_call custom_vjp_call_jaxpr custom_vmap_call eval_jaxpr jit
        pjit remat remat2""",
    Kind.LOOP: "cond scan while",
}
_OWN = {
    "cholesky": (2,),
    "cholesky_update": (2, 1),
    "eig": (2,),
    "eigh": (2,),
    "geqp3": (2, 1),
    "geqrf": (2,),
    "hessenberg": (2,),
    "householder_product": (2, 1),
    "lu": (2,),
    "lu_pivots_to_permutation": (1,),
    "ormqr": (2, 1, 2),
    "qr": (2,),
    "schur": (2,),
    "svd": (2,),
    "symmetric_product": (2, 2),
    "triangular_solve": (2, 2),
    "tridiagonal": (2,),
    "tridiagonal_solve": (1, 1, 1, 2),
    "fft": (),  # as many axes as lengths
}
FACTORISING = frozenset(name for name, own in _OWN.items() if own[:1] == (2,)) - {
    "symmetric_product"}
"""Primitives that factorise a matrix, or solve with one, by LAPACK."""
OPERATIONS: dict[str, Operation] = {**operation.OPERATIONS, **moves.OPERATIONS,
                                    **randoms.OPERATIONS, **sums.OPERATIONS}
TABLE: dict[str, Known] = {
    **{name: Known(Kind.ELEMENTWISE) for name in operation.OPERATIONS},
    **{name: Known(kind) for kind, names in _NAMES.items() for name in names.split()},
    **dict.fromkeys(("argmax argmin reduce_and reduce_max reduce_min reduce_or reduce_prod "
                     "reduce_sum reduce_xor").split(), Known(Kind.REDUCE, axes="axes")),
    "reduce": Known(Kind.REDUCE, axes="dimensions"),
    **dict.fromkeys("cumlogsumexp cummax cummin cumprod cumsum top_k".split(),
                    Known(Kind.ALONG, axes="axis")),
    "sort": Known(Kind.ALONG, axes="dimension"),
    "approx_top_k": Known(Kind.ALONG, axes="reduction_dimension"),
    **{name: Known(Kind.OPAQUE, own) for name, own in _OWN.items()},
}
MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
"""A comparison → the one with its operands exchanged."""


def name_of(eqn: JaxprEqn) -> str:
    """The name of an equation's primitive in the table."""
    return eqn.primitive.name.replace("-", "_")


def table_entry(eqn: JaxprEqn) -> Known | None:
    """The entry of an equation's primitive in the table; None where it has none."""
    return TABLE.get(name_of(eqn))


def named(kind: Kind, table: Mapping[str, Known] = TABLE) -> frozenset[str]:
    """The primitives of one kind."""
    return frozenset(name for name, entry in table.items() if entry.kind is kind)


def computed(eqn: JaxprEqn, values: Sequence[np.ndarray], dtype: np.dtype | None = None,
             **changed: Any) -> list[np.ndarray] | None:
    """The results of an equation by NumPy; None where it is not implemented.

    Args:
        dtype: of the elements to move, if not that of the program.
        changed: parameters that replace the equation's.
    """
    name = changed.pop("name", None) or name_of(eqn)
    operation = OPERATIONS.get(name)
    if operation is None:
        return None
    ins = [Aval(value.shape, dtype or atom.aval.dtype)
           for value, atom in zip(values, eqn.invars, strict=True)]
    outs = [Aval(tuple(var.aval.shape), dtype or var.aval.dtype) for var in eqn.outvars]
    params = {key: value for key, value in {**eqn.params, **changed}.items()
              if key in operation.keys}
    try:
        function = operation.build(ins, outs, **params)
    except Unsupported:
        return None
    with np.errstate(all="ignore"):
        results = function(*values)
    return list(map(np.asarray, results if operation.several else [results]))


LARGEST_READ = 100_000


def as_integers(value: ArrayLike) -> np.ndarray | None:
    """The integers that an array holds, as floats; None if it holds anything else."""
    if isinstance(value, bool | int):
        return np.asarray(value, float)
    kind = getattr(getattr(value, "dtype", None), "kind", "V")
    if kind not in "biu" or np.size(value) > LARGEST_READ:
        return None
    try:
        return np.asarray(value, float)
    except TypeError:  # a tracer
        return None


def folded(eqn: JaxprEqn, numbers: Sequence[Any]) -> np.ndarray | None:
    """The integers that the single result of an equation holds; NaN where they depend on data; None
    if nothing is known.

    Args:
        numbers: the same for its operands; None: the operand depends on data.
    """
    aval, entry = eqn.outvars[0].aval, table_entry(eqn)
    # random keys and tokens have no such kind
    kind = getattr(getattr(aval, "dtype", None), "kind", "V")
    if entry is None or kind not in "biu" or not 0 < aval.size <= LARGEST_READ or (
            numbers and all(array is None for array in numbers)):
        return None
    exact = [array is not None and not np.isnan(array).any() for array in numbers]
    if all(exact):
        results = computed(eqn, [array.astype(atom.aval.dtype) for array, atom
                                 in zip(numbers, eqn.invars, strict=True)])
    elif name_of(eqn) == "convert_element_type":
        array = numbers[0]
        results = [np.where(np.isnan(array), np.nan, array != 0) if kind == "b" else array]
    elif entry.kind is Kind.JOIN or entry.kind is Kind.MOVE and all(exact[1:]):
        results = computed(eqn, [
            np.full(atom.aval.shape, np.nan) if array is None
            else array if entry.kind is Kind.JOIN or i == 0 else array.astype(int)
            for i, (array, atom) in enumerate(zip(numbers, eqn.invars, strict=True))
        ], np.dtype(float))
    else:
        return None
    return None if results is None else np.broadcast_to(np.asarray(results[0], float), aval.shape)
