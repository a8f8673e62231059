"""Programs that are sent to other processes: a function of a chunk is compiled there, and its sum
over chunks is returned to the running program here.

The function is traced here; tracers that it closes over (parameters) become its constants, sent
with every call. The program is sent as StableHLO, serialised by `jax.export`.
"""

import dataclasses
import functools
import hashlib
import pickle
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax import export
from jax.custom_batching import custom_vmap
from jax.typing import ArrayLike

from probml.jaxpr.program import evaluate
from probml.numerics.compiling import jit
from probml.numerics.outside.callbacks import Supply, called_back
from probml.typing import PyTree


class Pool(Supply):
    """Sums programs over chunks in other processes; a context manager."""

    def sum(self, program: "Program", constants: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Σ over all chunks of program(constants, chunk)."""
        raise NotImplementedError


class Program:
    """A function (constants, leaves of a chunk) → arrays, lowered to be sent.

    Attributes:
        out_specs: shapes and dtypes of the arrays.
        content: the serialised program. digest: of that.
        double: whether JAX had 64 bits when it was traced.
    """

    def __init__(self, function: Callable, constants: Sequence[ArrayLike],
                 leaves: Sequence[ArrayLike]):
        specs = [jax.ShapeDtypeStruct(np.shape(c), c.dtype) for c in constants]
        lowered = export.export(jax.jit(function), platforms=_platforms())(specs, list(leaves))
        self.out_specs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype)
                          for aval in lowered.out_avals]
        self.content = pickle.dumps(dataclasses.replace(lowered, _get_vjp=None))
        self.digest = hashlib.blake2b(self.content).hexdigest()
        self.double = bool(jax.config.jax_enable_x64)


def _platforms() -> tuple[str, ...]:
    """The platform of this process: workers are assumed to have the same."""
    here = jax.default_backend()
    return ("cuda" if here == "gpu" else here,)


@functools.lru_cache(maxsize=64)
def received_for_many(digest: str, content: bytes) -> Callable:
    """A program that was sent, mapped over stacked chunks in one call: (constants, stacked leaves)
    → stacked arrays."""
    program = pickle.loads(content).call

    def run(constants: Sequence[ArrayLike], leaves: Sequence[ArrayLike]) -> PyTree:
        return jax.lax.map(lambda chunk_leaves: program(constants, chunk_leaves), list(leaves))

    return jit(run, often=True)


def summed(function: Callable, number: object, chunk: object) -> PyTree:
    """Σ over the chunks of the pool `number` of function(chunk), inside a program.

    Args:
        chunk: shapes and dtypes of a chunk.
    """
    treedefs: list[jax.ShapeDtypeStruct] = []
    leaves, treedef = jax.tree.flatten(chunk)

    def flat(*leaves: object) -> list[jax.Array]:
        out, tree = jax.tree.flatten(function(jax.tree.unflatten(treedef, leaves)))
        treedefs.append(tree)
        return out

    closed = jax.make_jaxpr(flat)(*leaves)

    def free(constants: Sequence[ArrayLike], leaves: Sequence[ArrayLike]) -> list[jax.Array]:
        return list(evaluate(closed.replace(consts=list(constants)), *leaves))

    results = _run(free, leaves, number, [jax.numpy.asarray(c) for c in closed.consts])
    return jax.tree.unflatten(treedefs[-1], results)


def _run(function: Callable, leaves: Sequence[ArrayLike], number: object, constants: list) -> list:
    """The callback; under vmap over constants it is one callback of the mapped function."""
    program = Program(function, constants, leaves)

    @custom_vmap
    def run(number: int, *constants: object):
        return called_back(functools.partial(_summed, program), program.out_specs, number,
                           *constants)

    @run.def_vmap
    def rule(size: int, mapped: PyTree, number: int, *constants: PyTree):
        axes = [0 if own else None for own in mapped[1:]]
        is_mapped = any(mapped[1:])
        own = function if not is_mapped else lambda constants, leaves: jax.vmap(
            lambda *own: function(own, leaves), in_axes=axes)(*constants)
        return _run(own, leaves, number, list(constants)), [is_mapped] * len(program.out_specs)

    return run(number, *constants)


def _summed(program: Program, pool: Pool, *constants: object) -> list[np.ndarray]:
    results = pool.sum(program, [np.asarray(c) for c in constants])
    return [np.asarray(value, spec.dtype).reshape(spec.shape)
            for value, spec in zip(results, program.out_specs, strict=True)]
