"""Several devices as a mesh with one axis, over which rows are sharded."""


import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from probml.errors import ModelError, listed

AXIS = "rows"
ALONG = PartitionSpec(AXIS)  # the leading axis is sharded
EACH = PartitionSpec()  # replicated on every device


def mesh_of(where: object) -> Mesh:
    """The user's devices as a mesh with one axis.

    Args:
        where: a list of JAX devices, or a Mesh, of any axes.

    Raises:
        ModelError: something else, no device, duplicates, two kinds of devices, or different
            numbers for the processes.
    """
    devices = list(where.devices.reshape(-1)) if isinstance(where, Mesh) else where
    if isinstance(devices, jax.Device):
        devices = [devices]
    if not isinstance(devices, list | tuple) or not devices or not all(
        isinstance(device, jax.Device) for device in devices
    ):
        raise ModelError(f"where={where!r}: expected a list of devices such as jax.devices(), a "
                         f"jax.sharding.Mesh, or a dask.distributed.Client")
    if len(set(devices)) < len(devices):
        twice = next(device for device in devices if devices.count(device) > 1)
        raise ModelError(f"where={where!r}: the device {twice!r} is given twice. Give each device "
                         f"once")
    kinds = sorted({device.platform for device in devices})
    if len(kinds) > 1:
        raise ModelError(f"where={where!r}: expected devices of one kind, got "
                         f"{' and '.join(kinds)}. Use jax.devices('{kinds[-1]}')")
    counts = np.bincount([device.process_index for device in devices],
                         minlength=jax.process_count())
    if len(set(counts[counts > 0])) > 1:
        raise ModelError(f"where={where!r}: the processes have different numbers of these devices, "
                         f"{listed(counts.tolist())}. Give the same number of devices in every "
                         "process")
    if not counts[jax.process_index()] or (counts > 0).sum() not in (1, len(counts)):
        raise ModelError(f"where={where!r}: some processes have none of these devices and would "
                         f"wait forever. Use jax.devices() for one fit by all processes, or "
                         f"jax.local_devices() for a fit in each")
    return Mesh(np.array(sorted(devices, key=lambda d: (d.process_index, d.id))), (AXIS,))


def spans_processes(mesh: Mesh | None) -> bool:
    """Whether the devices of a mesh belong to several processes."""
    return mesh is not None and len({d.process_index for d in mesh.devices.flat}) > 1


def cut(mesh: Mesh, leaf: np.ndarray) -> jax.Array:
    """An array sharded by its leading axis; of several processes each passes its part, all of the
    same shape, in the order of processes."""
    sharding = NamedSharding(mesh, ALONG)
    if not spans_processes(mesh):
        return jax.device_put(leaf, sharding)
    processes = len({d.process_index for d in mesh.devices.flat})
    return jax.make_array_from_process_local_data(
        sharding, leaf, (len(leaf) * processes, *leaf.shape[1:])
    )
