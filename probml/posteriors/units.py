"""Parameters and columns in the units of a user's table, for summaries, reports, pictures and
ArviZ's groups of a fit whose columns were centred and scaled. The fit itself keeps its own
coordinates.

The units of all parameters together are one affine map. Values and draws go through `in_units`,
covariances through its linear part, `ways_in_units`, as columns of a root of theirs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jax.typing import ArrayLike


@dataclass(frozen=True, eq=False)
class Unit:
    """The map of a parameter, or of a site in rows, to the user's units: factor · value + shift +
    terms of other parameters, and then a linear map of its entries.

    Args:
        factor, shift: broadcast against the value; a factor is above 0.
        mix: (axis, matrix): entries along an axis, counted from the last, become entries @ matrix.
        others: parameter → (axis, weights): its weighted sum over that axis, counted from the last,
            is added.
        names: axis → the names of the entries along it.
    """

    factor: ArrayLike = 1.0
    shift: ArrayLike = 0.0
    mix: tuple[int, np.ndarray] | None = None
    others: Mapping[str, tuple[int, np.ndarray]] = field(default_factory=dict)
    names: Mapping[int, tuple] = field(default_factory=dict)

    @property
    def is_elementwise(self) -> bool:
        """Whether each entry is converted by itself: its standard deviation is then multiplied by
        the factor."""
        return self.mix is None and not self.others

    def convert(self, name: str, values: Mapping[str, np.ndarray],
                shifted: bool = True) -> np.ndarray:
        """The parameter `name` in the units of the table, from values or draws of all, (...,
        *shape) each.

        Args:
            shifted: False: the linear part alone, for differences.
        """
        value = np.asarray(values[name], float) * self.factor
        value = value + self.shift if shifted else value
        for other, (axis, weights) in self.others.items():
            value = value + np.moveaxis(np.asarray(values[other], float), axis, -1) @ weights
        if self.mix is not None:
            axis, matrix = self.mix
            value = np.moveaxis(np.moveaxis(value, axis, -1) @ matrix, -1, axis)
        return value


def in_units(units: Mapping[str, Unit], values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Those of the values, or draws, that have units, converted to these."""
    return {name: unit.convert(name, values) for name, unit in units.items()
            if name in values and all(other in values for other in unit.others)}


def roots_in_units(units: Mapping[str, Unit],
                   roots: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A root of the covariance of some parameters, name → (k, *shape), in the user's units: sums
    over k of products of its entries are covariances. Parameters whose unit has terms of others
    need these too."""
    return {name: units[name].convert(name, roots, False) if name in units
            else np.asarray(root, float)
            for name, root in roots.items()
            if name not in units or all(other in roots for other in units[name].others)}


def deviations(roots: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The standard deviations of parameters, from a root of their covariance."""
    return {name: np.sqrt(np.sum(np.square(root), 0)) for name, root in roots.items()}


def of_rows(**scalings: tuple[ArrayLike, ArrayLike]) -> dict[str, Unit]:
    """Units of sites and inputs of rows, name=(centre, unit), which were subtracted and divided by;
    without those that were not changed."""
    return {name: Unit(unit, centre) for name, (centre, unit) in scalings.items()
            if np.any(np.asarray(centre) != 0) or np.any(np.asarray(unit) != 1)}


def density(unit: Unit, observed: np.ndarray) -> np.ndarray:
    """The amount to subtract from log densities of rows in these units, (n,): log |factor| of each
    observed cell.

    Args:
        observed: (n, *cells) bool, the observed cells.
    """
    logs = np.log(np.abs(np.broadcast_to(np.asarray(unit.factor, float), observed.shape[1:])))
    return (observed * logs).reshape(len(observed), -1).sum(1)


def plane(beta: str, bias: str, centre: np.ndarray, unit: np.ndarray, axes: int = 1,
          level: ArrayLike = 0.0, spread: float = 1.0, names: tuple = ()) -> dict[str, Unit]:
    """Units of the plane x β + b whose columns were centred and scaled, and y as well.

    Args:
        centre, unit: (d,), of the columns; level, spread: of y.
        axes: of β, whose first are the columns: (d,), or (d, planes).
        names: of the columns, or none.
    """
    slope = spread / unit
    factor = slope.reshape(-1, *(1,) * (axes - 1))
    return {beta: Unit(factor, names={0: names} if names else {}),
            bias: Unit(spread, level, others={beta: (-axes, -centre * slope)})}
