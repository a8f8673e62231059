"""Whether float32 has digits, and exponents, enough for data: an offset of many spreads takes those
away that tell rows apart."""

import numpy as np

from probml.dataset.dataset import Data
from probml.families.domains import UnitInterval

# spreads from 0 at which float32, of 24 bits, leaves a spread 12; and a share beside 1 what is left
MAX_CENTRE_SDS = 2.0**12
# of a pooled density of terms as large as the square of that, which cancel
TERMS = 2.0**5
TOLD = 2**14  # rows that tell where a column lies
MAX_COUNT = 2**14  # a count n: float32 rounds the terms n log n of its log density by a hundredth
MIN_WEIGHT = 2.0**-10  # a weight of all rows: beside a prior's, of 1, float32 leaves it 14 bits
# of columns: rows and columns that are looked at, and the least singular value beside the largest,
# over whose square float32's rounding is a thousandth
MAX_SAMPLED_ROWS, MAX_SAMPLED_COLUMNS, MIN_SINGULAR_RATIO = 2**11, 64, 2.0**-7
MIN_SD, MAX_SD = 2.0**-24, 2.0**24  # spreads whose fourth powers are held with room to spare
ROUNDING = 64 * np.finfo(float).eps  # of a value: less is no spread, but its rounding in double


def find_precision_loss(data: Data) -> str | None:
    """Why float32 has too little precision for these weights, observed numbers and inputs, as a
    text that names the first cause; None where it suffices.

    Cost: one look at TOLD rows.
    """
    sites = data.structure.sites
    if data.weights is not None:
        if problem := _many(np.asarray(data.weights), None):
            return f"a weight of a row{problem}"
        if (total := float(np.sum(data.weights, dtype=float))) < MIN_WEIGHT:
            return (f"the sum of the row weights is so small, {total:.2g}, that it is lost to "
                    f"rounding when it is added to a prior")
    for name, column in data.table.columns.items():
        site = sites[name]
        cells, limit = (column.values,
                        column.observed), TERMS if site.traits.terms else MAX_CENTRE_SDS
        if site.discrete and site.states is None and (problem := _many(*cells)):
            return f"'{name}'{problem}"
        if not site.discrete and (problem := _describe_imprecise_cell(*cells, site.time, limit)):
            return f"'{name}'{problem}"
        if isinstance(site.domain, UnitInterval) and (problem := _near_one(*cells)):
            return f"'{name}'{problem}"
    for name, values in data.table.inputs.items():
        time = 0 if name in data.structure.timed else None
        if values.dtype.kind == "f" and (
                problem := _describe_imprecise_cell(values, None, time)
                or _find_collinearity(values)):
            return f"the input '{name}'{problem}"
    return None


def measured(values: np.ndarray, mask: np.ndarray | None = None,
             axes: tuple[int, ...] = (0,)) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations along some axes, of what is seen of about TOLD rows; both have
    the axes that are left."""
    n_taken, slices = 1, [slice(None)] * values.ndim
    for axis in axes:  # rows, then steps of few
        step = max(n_taken * values.shape[axis] // TOLD, 1)
        slices[axis] = slice(None, None, step)
        n_taken *= -(-values.shape[axis] // step)
    values = np.asarray(values[tuple(slices)], float)
    if mask is None:
        return values.mean(axes), values.std(axes)
    mask = mask[tuple(slices)]
    count = np.maximum(mask.sum(axes, keepdims=True), 1.0)
    mean = np.where(mask, values, 0.0).sum(axes, keepdims=True) / count
    square = np.where(mask, (values - mean) ** 2, 0.0).sum(axes, keepdims=True) / count
    return mean.squeeze(axes), np.sqrt(square).squeeze(axes)


def _find_collinearity(values: np.ndarray) -> str | None:
    """How near the columns are to linear dependence, as a text; None where they are far from it.

    Args:
        values: (rows, columns); others are not used, nor more than MAX_SAMPLED_COLUMNS columns.
    """
    if values.ndim != 2 or not 1 < values.shape[1] <= MAX_SAMPLED_COLUMNS:
        return None
    sample = np.asarray(values[:: max(len(values) // MAX_SAMPLED_ROWS, 1)], float)
    if len(sample) <= sample.shape[1]:
        return None
    sample = sample - sample.mean(0)
    spread = sample.std(0)
    if not (np.isfinite(spread).all() and (spread > 0).all()):
        return None
    singular = np.linalg.svd(sample / spread, compute_uv=False)
    ratio = singular[-1] / singular[0]
    if not ROUNDING * len(singular) < ratio < MIN_SINGULAR_RATIO:
        return None
    return (f" is nearly collinear: the other columns explain one of its columns except for a "
            f"fraction of {ratio:.1g} of its standard deviation")


def _many(values: np.ndarray, mask: np.ndarray | None) -> str | None:
    """What is wrong with a count that float32 does not hold well, in words."""
    largest = values.max(initial=0) if mask is None else np.where(mask, values, 0).max(initial=0)
    return (f" has values of up to {int(largest):,}" if largest > MAX_COUNT
            else None)


def _near_one(values: np.ndarray, mask: np.ndarray | None) -> str | None:
    """What is wrong with shares of which one lies so near 1 that float32 does not hold the rest, in
    words."""
    is_below = (values < 1) if mask is None else (values < 1) & mask
    gap = 1.0 - float(np.max(values, initial=0.0, where=is_below))
    return (f" has a value that is only {gap:.2g} below 1"
            if gap < 1 / MAX_CENTRE_SDS else None)


def _describe_imprecise_cell(values: np.ndarray, mask: np.ndarray | None, time: int | None,
                             limit: float = MAX_CENTRE_SDS) -> str | None:
    """What is wrong with the first cell that float32 does not hold well, in words.

    Args:
        values: (rows, *cells). mask: which of them; None: all. time: the axis of `cells` that is
            time. limit: spreads from 0 that it bears.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        centre, spread = measured(values, mask, (0,) if time is None else (0, 1 + time))
        size = np.abs(centre)
        is_far, is_extreme = size > limit * spread, (spread < MIN_SD) | (spread > MAX_SD)
        bad = (is_far | is_extreme) & (spread > ROUNDING * size)
    if not bad.any():
        return None
    i = int(np.argmax(bad))
    where = f", cell {i}," if bad.size > 1 else ""
    why = ("which is small compared with the mean" if is_far.flat[i] else
           "which is too large or too small")
    return (f"{where} has the mean {centre.flat[i]:.3g} and the standard deviation "
            f"{spread.flat[i]:.2g}, {why}")
