"""What a function of the user's own indexes by: floats that are whole, truths and categories that
are numbers become codes there, as they do in rows; what cannot is refused by name, and codes that
are out of bounds are, where the function is one density (of rows, dataset/coding/indices.py says
so): JAX would take the last entry for them.
"""


import numpy as np

from probml.dataset.coding.indices import within
from probml.errors import DataError, ModelError, counted
from probml.interface.functions.given.values import codes_of
from probml.interface.functions.survey import Survey, describe_first, survey_run
from probml.language.language import Bound, RowsUnknown
from probml.structure.indices import Index
from probml.typing import ArrayLike, SiteValues


def recode_out_of_bounds(model: Bound, survey: Survey, items: SiteValues,
                         values: SiteValues) -> tuple[Survey, dict[str, ArrayLike]]:
    """What a run shows, and the values: where it indexes out of bounds, with categories that are
    numbers as codes.

    Args:
        items: name → as the user gave it. values: name → as the function was given it.
    """
    if survey.out_of_bounds:
        codes = {name: coded for name in values
                 if getattr(coded := codes_of(items.get(name)), "labels", ())}
        new = {**values, **codes}
        rerun = _run(model, new, values) if codes else None
        if rerun is not None and not rerun.out_of_bounds:
            return rerun, new
    return survey, dict(values)


def rerun_with_codes(
    model: Bound, items: SiteValues, arguments: SiteValues, given: SiteValues
) -> tuple[Survey, dict[str, ArrayLike], dict[str, ArrayLike]] | None:
    """A function that has failed, run again with codes in the place of what it indexes by: what it
    shows, the arguments and the sites; None: it does not fail for its indices.

    Raises:
        DataError: it indexes by what has no codes: dates, numbers that are not whole, unseen cells.
    """
    values = {**arguments, **given}
    bad = [name for name, value in values.items() if _size(value) and not (
        isinstance(value, np.ndarray) and value.dtype.kind in "iu")]
    zeros = {name: np.zeros(np.shape(value), int) for name, value in values.items() if name in bad}
    if not bad or _run(model, {**values, **zeros}, given) is None:
        return None
    indices = [name for name in bad
               if _run(model, {**values, **zeros, name: values[name]}, given) is None]
    codes = {name: codes_of(items.get(name)) for name in indices}
    for name in indices:
        if codes[name] is None:
            raise DataError(f"{model.name}: "
                            + _describe_invalid_index(name, items.get(name), values[name]))
    new = {**values, **codes}
    survey = _run(model, new, given)
    if survey is None:
        return None
    return (survey, {name: new[name] for name in arguments}, {name: new[name] for name in given})


def refuse_out_of_bounds(model: Bound, survey: Survey, values: SiteValues) -> None:
    """
    Raises:
        DataError: the function holds an index out of bounds.
    """
    for access in survey.out_of_bounds:
        for name, value in values.items():
            array = np.asarray(value) if isinstance(value, np.ndarray) else np.empty(0)
            if array.dtype.kind in "iu" and array.size == access.codes.size and np.array_equal(
                array.ravel().astype(access.codes.dtype), access.codes.ravel()  # as JAX has them
            ):
                within(Index(name, (), access.length, 0, access.last, (), False, False), array)
        raise DataError(
            f"model '{model.name}' uses the index {access.first} on an axis of "
            f"{counted(access.length, 'entry', 'entries')}; expected 0 … {access.last}. JAX would "
            f"silently use the nearest valid entry. "
            f"Check the codes (which start at 0) and the sizes of the plates; if this is intended, "
            f"write array.at[index].get(mode=\"clip\")"
        )


def _run(model: Bound, values: SiteValues, given: SiteValues) -> Survey | None:
    """What a run of the function shows; None: it fails."""
    try:
        return survey_run(model, {name: value for name, value in values.items()
                                  if name in model.generative.arguments},
                          {name: values[name] for name in given
                           if name not in model.generative.arguments})
    except RowsUnknown:
        raise
    except (DataError, ModelError):
        return None


def _size(value: ArrayLike) -> int:
    """How many entries there are along its first axis."""
    return len(value) if isinstance(value, list | tuple) or np.ndim(value) else 0


def _describe_invalid_index(name: str, item: object, value: object) -> str:
    """Why something is no index."""
    index = f"'{name}' is used as an index"
    array = np.asarray(item)
    if array.dtype.kind in "mM":
        return (f"{index}, but contains dates ({array.dtype}). Pass text, {name}.astype(str), if "
                f"the dates name groups, or step numbers that start at 0")
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        missing, fractional = np.isnan(value), value != np.floor(value)
        if missing.any():
            return (f"{index}, but is missing in {describe_first(missing)}: an index cannot be "
                    "missing, since it selects an entry. Drop these rows, give them a new label, "
                    f"such as 'missing', or make '{name}' a site")
        return (f"{index}, but has {value[fractional][0]:g} in {describe_first(fractional)}. Pass "
                f"integers, or text")
    first = array.ravel()[0] if array.size else item
    return (f"{index}, but has values of type {type(first).__name__}. Pass text, [str(v) for v in "
            f"{name}], or integers starting at 0")
