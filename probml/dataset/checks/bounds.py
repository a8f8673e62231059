"""Bounds that depend on inputs, row by row: the trials of a binomial count, the censoring time of a
waiting time."""

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset.tables import Table
from probml.errors import DataError
from probml.jaxpr.program import ClosedJaxpr, evaluate
from probml.structure.site import Site
from probml.structure.structure import Structure


def check(structure: Structure, table: Table) -> None:
    """Checks observed values against bounds of their support that depend on inputs only.

    Raises:
        DataError: a value is out of bounds: which, its row and its bound there.

    Cost: one pass over the inputs on which such bounds depend.
    """
    for name, column in table.columns.items():
        site = structure.sites[name]
        if (site.event or site.time is not None or column.likelihood is not None or not site.inputs
            or site.traits.ancillary is not None):
            continue
        values = np.asarray(site.valued(column.values))
        for end, (program, takes) in structure.bounds(name).items():
            if not all(t in table.inputs and t not in structure.timed for t in takes):
                continue

            def at(*row: jax.Array, program: ClosedJaxpr = program, site: Site = site):
                values = (jnp.asarray(v[None], aval.dtype)
                          for v, aval in zip(row, program.in_avals, strict=True))
                return site.layout(evaluate(program, *values)[0], 0)

            bound = np.asarray(jax.vmap(at)(*(table.inputs[t] for t in takes))).reshape(
                values.shape
            )
            wrong = values > bound if end == "upper_bound" else values < bound
            wrong = wrong if column.seen is None else wrong & column.seen
            if wrong.any():
                where = tuple(int(i) for i in np.argwhere(wrong)[0])
                cell = f", cell {list(where[1:])}" if where[1:] else ""
                raise DataError(
                    f"'{name}' ({site.kind}) must be at "
                    f"{'most' if end == 'upper_bound' else 'least'} {bound[where]:g} in row "
                    f"{where[0]}"
                    f"{cell}, which {' and '.join(repr(t) for t in takes)} "
                    f"say{'s' * (len(takes) == 1)}, got {values[where]:g}"
                )
