"""The place of rows for the argument `where=`."""

import jax

from probml.errors import DataError
from probml.fits.cluster import Cluster, is_client, is_frame
from probml.fits.places import Devices, Place, SingleDevice
from probml.numerics.outside.meshes import mesh_of


def place_of(where: object, data: object) -> Place:
    """The place of the rows of a fit.

    Args:
        where: None, a list of devices, a Mesh (see meshes.mesh_of), or a dask.distributed.Client.

    Raises:
        ModelError: something else. DataError: a Dask DataFrame without a client.
    """
    if is_client(where):
        return Cluster(where)
    if is_frame(data):
        raise DataError("the data are a Dask DataFrame, so fit needs the client of its cluster, "
                        "where=: fit(frame, ..., where=client), with client = "
                        "dask.distributed.Client(...)")
    if where is None:
        return SingleDevice()
    mesh = mesh_of(where)
    alone = mesh.size == 1 and mesh.devices.flat[0] == jax.devices()[0]
    return SingleDevice() if alone else Devices(mesh)
