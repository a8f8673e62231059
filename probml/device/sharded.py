"""Rows over several devices. Of one process or of several each device passes over its own chunks,
and what they find is added once a pass; of few rows each device holds all, and takes its share of
the runs that are made side by side.

Rows that lie in the memories of other processes, which pass over them there: what comes back is
the sum.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from probml.dataset.dataset import Data
from probml.device.rows import Chunk, Known, Resident, Rows, Stacked
from probml.device.streamed import Cut
from probml.errors import Refusal
from probml.numerics.outside import sent
from probml.numerics.outside.meshes import ALONG, AXIS, EACH, cut
from probml.plan.plan import Plan


@dataclass(frozen=True)
class Remote(Rows):
    """Rows of a pool (numerics/outside/sent.py). Programs know the shapes of a chunk; which pool it
    is and what its rows weigh are operands."""

    number: Any  # () int32, of the pool
    count: Any  # () int32, chunks
    total_weight: Any  # ()
    example: Chunk  # one of them

    held = False
    several = True

    @property
    def chunks(self) -> int:
        return self.count

    @property
    def size(self) -> int:
        return self.example.weights.shape[0]

    @property
    def first(self) -> Chunk:
        return self.example

    def fold(self, step: Callable, init: object, *along: object) -> tuple[Any, Any]:
        raise Refusal("rows on a cluster have no fixed order, which this needs: pass rows in "
                      "memory", ("EM", "MAP"))

    def accumulate(self, function: Callable, *along: object) -> tuple[Any, Any]:
        """As Rows.accumulate, of functions that say nothing of a chunk; sums are made in double."""
        said: list[Any] = []

        def total(chunk: Chunk) -> Any:
            found, own = function(chunk, *along)
            if jax.tree.leaves(own):
                raise Refusal("results for each row are not stored for rows on a cluster: pass "
                              "them in memory")
            said.append(own)
            return found

        specs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype),
                             self.example)
        return sent.summed(total, self.number, specs), said[-1]


jax.tree_util.register_dataclass(Remote, meta_fields=[],
                                 data_fields=["number", "count", "total_weight", "example"])


@dataclass(frozen=True)
class Sharded(Stacked):
    """Rows whose chunks lie on the devices of a mesh, as many on each."""

    total_weight: Any  # ()
    mesh: Mesh

    several = True
    joint = True

    def fold(self, step: Callable, init: object, *along: object) -> tuple[Any, Any]:
        """As Rows.fold: one chunk after another, wherever it lies."""
        return Resident(self.stacked).fold(step, init, *along)

    def accumulate(self, function: Callable, *along: object) -> tuple[Any, Any]:
        """As Rows.accumulate: all devices at once, and one sum over them.

        The order of additions is another than on one device, within which and over which sums are
        compensated: totals agree to some units of rounding.
        """
        def own(stacked: Chunk, *along: object) -> tuple[Any, Any]:
            total, said = Resident(stacked).accumulate(function, *along)
            return jax.lax.psum(total, AXIS), said

        return self._on_every_device(own, (EACH, ALONG), *along)

    def map(self, question: Callable, *along: object) -> Any:
        return self._on_every_device(
            lambda stacked, *along: Resident(stacked).map(question, *along), ALONG, *along)

    def _on_every_device(self, own: Callable, out: object, *along: object) -> Any:
        """own(chunks of a device, ...) on every device."""
        # a program of its own: what the function reads of traces outside becomes its arguments
        program = jax.jit(jax.shard_map(
            own, mesh=self.mesh, in_specs=(ALONG,) * (1 + len(along)), out_specs=out,
            check_vma=False
        ))
        return program(self.stacked, *along)

    def taken(self, index: jax.Array) -> Resident:
        return Resident(self.stacked).taken(index)


jax.tree_util.register_dataclass(Sharded, data_fields=["stacked", "total_weight"],
                                 meta_fields=["mesh"])


@dataclass(frozen=True)
class Repeated(Resident):
    """Rows that every device of a mesh holds: runs side by side are cut over the devices, which do
    not wait for each other."""

    mesh: Mesh

    @property
    def lanes(self) -> int:  # type: ignore[override] # of others a number of their class
        return self.mesh.size

    def vmap_copies(self, function: Callable, *copies: object) -> Any:
        """As Rows.vmap_copies; the last copy is repeated until every device has as many."""
        count, devices = len(jax.tree.leaves(copies)[0]), self.mesh.size
        if count == 1:
            return super().vmap_copies(function, *copies)
        each = -(-count // devices)
        index = np.minimum(np.arange(each * devices), count - 1)

        def own(*copies: object) -> Any:
            if each > 1:
                return jax.vmap(function)(*copies)
            found = function(*jax.tree.map(lambda leaf: leaf[0], copies))
            return jax.tree.map(lambda leaf: leaf[None], found)

        # a program of its own, as in Sharded
        program = jax.jit(jax.shard_map(own, mesh=self.mesh, in_specs=(ALONG,) * len(copies),
                                        out_specs=ALONG, check_vma=False))
        found = program(*jax.tree.map(lambda leaf: jnp.asarray(leaf)[index], copies))
        return jax.tree.map(lambda leaf: leaf[:count], found)


jax.tree_util.register_dataclass(Repeated, data_fields=["stacked", "pairs"], meta_fields=["mesh"])


def repeated(rows: Rows, mesh: Mesh) -> Repeated:
    """Rows of this process on each of the devices of a mesh."""
    return Repeated(jax.device_put(rows.stacked, NamedSharding(mesh, EACH)), mesh)


def spread(rows: Rows, mesh: Mesh) -> Sharded:
    """Rows of this process over the devices of a mesh, whose number divides that of the chunks."""
    return Sharded(jax.tree.map(functools.partial(cut, mesh), rows.stacked),
                   np.asarray(rows.weight), mesh)


def gathered(data: Data, plan: Plan, mesh: Mesh, copies: int = 1) -> tuple[Sharded, Known]:
    """The rows of a source, read once and held on the devices of a mesh; of several processes each
    reads its own.

    Args:
        data: see parts.open_data and processes.open_data. copies: as for load.

    Cost: all rows in the memory of all devices together, in JAX's float type, and those of this
        process in its own while they are read.
    """
    assert data.survey is not None
    cutter = Cut.of(data, plan, copies)
    devices = sum(device.process_index == jax.process_index() for device in mesh.devices.flat)
    together, shares = cutter.shape[0], data.survey.shares or (data.survey.sizes,)
    most = max(cutter.counted(sum(own)) for own in shares)
    count = math.ceil(most * together / devices) * devices
    stacked = jax.tree.map(lambda spec: np.zeros((count, *spec.shape[1:]), spec.dtype),
                           cutter.specs(cutter.shape))
    made, filled = None, 0
    for made in cutter.read():
        jax.tree.map(lambda out, leaf, at=filled: out.__setitem__(slice(at, at + together), leaf),
                     stacked, made)
        filled += together
    assert made is not None
    # what is left is padding of rows that are there
    for i in range(filled, count):
        jax.tree.map(lambda out, leaf, i=i: out.__setitem__(i, leaf[0]), stacked, made)
    stacked.weights[filled:] = 0.0
    total = np.asarray(data.survey.profile.weight, stacked.weights.dtype)
    return Sharded(jax.tree.map(functools.partial(cut, mesh), stacked), total, mesh), cutter.known
