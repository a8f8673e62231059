"""Rows over several devices, of one process or more. `Sharded`: each device processes its own
chunks, and sums are combined once per pass. `Repeated`: each device holds all (few) rows and runs
its share of parallel restarts or chains. `Remote`: rows in the memory of worker processes of a
cluster, which return sums.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.typing import ArrayLike

from probml.dataset.dataset import Data
from probml.device.rows import Chunk, Known, Resident, Rows, Stacked
from probml.device.streamed import Cut
from probml.errors import Refusal
from probml.numerics.outside import sent
from probml.numerics.outside.meshes import ALONG, AXIS, EACH, cut
from probml.plan.plan import Plan
from probml.typing import PyTree


@dataclass(frozen=True)
class Remote(Rows):
    """Rows of a pool of workers (numerics/outside/sent.py). The shapes of a chunk are static for
    compiled programs; the number of the pool and the total weight are operands."""

    number: ArrayLike  # () int32, of the pool
    count: ArrayLike  # () int32, chunks
    total_weight: ArrayLike  # ()
    example: Chunk  # one chunk

    in_memory = False
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

    def fold(self, step: Callable, init: object, *along: object) -> tuple[PyTree, PyTree]:
        raise Refusal("an engine that needs the rows in a fixed order cannot use rows on a Dask "
                      "cluster (where=client). Pass a table in memory", ("EM", "MAP"))

    def accumulate(self, function: Callable, *along: object) -> tuple[PyTree, PyTree]:
        """As Rows.accumulate, for functions without output per chunk; sums are in float64."""
        outputs: list[PyTree] = []

        def total(chunk: Chunk) -> PyTree:
            result, output = function(chunk, *along)
            if jax.tree.leaves(output):
                raise Refusal("this method returns one result per row, which is not supported for "
                              "rows on a Dask cluster (where=client). Pass a table in memory")
            outputs.append(output)
            return result

        specs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype),
                             self.example)
        return sent.summed(total, self.number, specs), outputs[-1]


jax.tree_util.register_dataclass(Remote, meta_fields=[],
                                 data_fields=["number", "count", "total_weight", "example"])


@dataclass(frozen=True)
class Sharded(Stacked):
    """Rows whose chunks are distributed over the devices of a mesh, equally many on each."""

    total_weight: ArrayLike  # ()
    mesh: Mesh

    several = True
    joint = True

    def fold(self, step: Callable, init: object, *along: object) -> tuple[PyTree, PyTree]:
        """As Rows.fold: sequential over all chunks, on whichever device they are."""
        return Resident(self.stacked).fold(step, init, *along)

    def accumulate(self, function: Callable, *along: object) -> tuple[PyTree, PyTree]:
        """As Rows.accumulate: on all devices in parallel, followed by one sum over devices.

        The order of additions differs from that on one device, so totals agree only up to rounding
        errors; sums within a device are compensated.
        """
        def own(stacked: Chunk, *along: object) -> tuple[PyTree, PyTree]:
            total, outputs = Resident(stacked).accumulate(function, *along)
            return jax.lax.psum(total, AXIS), outputs

        return self._on_every_device(own, (EACH, ALONG), *along)

    def map(self, question: Callable, *along: object) -> PyTree:
        return self._on_every_device(
            lambda stacked, *along: Resident(stacked).map(question, *along), ALONG, *along)

    def _on_every_device(self, own: Callable, out: object, *along: object) -> PyTree:
        """Runs own(chunks of the device, ...) on every device."""
        # jit, so that traced values that the function closes over become arguments
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
    """Rows of which every device of a mesh has a copy: parallel runs are distributed over the
    devices, without synchronisation between them."""

    mesh: Mesh

    @property
    def parallel_copies(self) -> int:  # type: ignore[override] # an attribute in the base class
        return self.mesh.size

    def vmap_copies(self, function: Callable, *copies: object) -> PyTree:
        """As Rows.vmap_copies; the last copy is repeated so that every device has equally many."""
        count, devices = len(jax.tree.leaves(copies)[0]), self.mesh.size
        if count == 1:
            return super().vmap_copies(function, *copies)
        per_device = -(-count // devices)
        index = np.minimum(np.arange(per_device * devices), count - 1)

        def own(*copies: object) -> PyTree:
            if per_device > 1:
                return jax.vmap(function)(*copies)
            results = function(*jax.tree.map(lambda leaf: leaf[0], copies))
            return jax.tree.map(lambda leaf: leaf[None], results)

        # jit, as in Sharded
        program = jax.jit(jax.shard_map(own, mesh=self.mesh, in_specs=(ALONG,) * len(copies),
                                        out_specs=ALONG, check_vma=False))
        results = program(*jax.tree.map(lambda leaf: jnp.asarray(leaf)[index], copies))
        return jax.tree.map(lambda leaf: leaf[:count], results)


jax.tree_util.register_dataclass(Repeated, data_fields=["stacked", "pairs"], meta_fields=["mesh"])


def replicate_rows(rows: Rows, mesh: Mesh) -> Repeated:
    """Copies the rows of this process to each of the devices of a mesh."""
    return Repeated(jax.device_put(rows.stacked, NamedSharding(mesh, EACH)), mesh)


def distribute_rows(rows: Rows, mesh: Mesh) -> Sharded:
    """Distributes the chunks of this process over the devices of a mesh; their number must be a
    multiple of the number of devices."""
    return Sharded(jax.tree.map(functools.partial(cut, mesh), rows.stacked),
                   np.asarray(rows.weight), mesh)


def load_sharded(data: Data, plan: Plan, mesh: Mesh, copies: int = 1) -> tuple[Sharded, Known]:
    """The rows of a source, read once into the memory of the devices of a mesh, and what all rows
    share. Of several processes each reads its own share.

    Args:
        data: see parts.open_data and processes.open_data. copies: as for load.

    Cost: memory for all rows over all devices, in JAX's float type, and on the host for the rows
        of this process while they are read.
    """
    assert data.survey is not None
    cutter = Cut.of(data, plan, copies)
    devices = sum(device.process_index == jax.process_index() for device in mesh.devices.flat)
    n_together, shares = cutter.shape[0], data.survey.shares or (data.survey.sizes,)
    max_calls = max(cutter.counted(sum(sizes)) for sizes in shares)
    count = math.ceil(max_calls * n_together / devices) * devices
    stacked = jax.tree.map(lambda spec: np.zeros((count, *spec.shape[1:]), spec.dtype),
                           cutter.specs(cutter.shape))
    loaded, filled = None, 0
    for loaded in cutter.read():
        jax.tree.map(lambda out, leaf, at=filled: out.__setitem__(slice(at, at + n_together), leaf),
                     stacked, loaded)
        filled += n_together
    assert loaded is not None
    # fill the remaining chunks with copies of loaded rows, at weight 0
    for i in range(filled, count):
        jax.tree.map(lambda out, leaf, i=i: out.__setitem__(i, leaf[0]), stacked, loaded)
    stacked.weights[filled:] = 0.0
    total = np.asarray(data.survey.profile.weight, stacked.weights.dtype)
    return Sharded(jax.tree.map(functools.partial(cut, mesh), stacked), total, mesh), cutter.known
