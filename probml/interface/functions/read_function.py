"""A model function together with its data → the model as it is read.

A function of several tables is read with its tables (tables/relations.py). Of a function without
rows() the data are divided into arguments and values of sites, and checked; then a plate of its own
is tried as the rows (find_rows.py), else the model is one joint density (joint_density.py)."""

import contextlib
from collections.abc import Collection, Mapping
from weakref import WeakKeyDictionary

import jax
import numpy as np
from numpyro.distributions import constraints

from probml.dataset import frames
from probml.dataset.ragged import padded
from probml.errors import MARK_ROWS, DataError, ModelError, listed
from probml.families import domains
from probml.interface.functions.find_rows import (
    RowsReading,
    find_row_candidates,
    has_many_joint_states,
    read_as_rows,
    translate_data,
)
from probml.interface.functions.given.indexing import (
    recode_out_of_bounds,
    refuse_out_of_bounds,
    rerun_with_codes,
)
from probml.interface.functions.given.values import Ragged, value_of
from probml.interface.functions.joint_density import (
    ReadModel,
    find_missing_cells,
    read_as_density,
    read_with_numbers_bound,
    sites_summed_by_cell,
)
from probml.interface.functions.readings import JointReading
from probml.interface.functions.survey import Survey, SurveyedSite, survey_run
from probml.interface.tables.relations import (
    RelationalFunction,
    flatten_tables,
    read_tables,
    widen,
)
from probml.language.language import Bound, RowsUnknown, mentions_rows
from probml.language.renamed import by_new_names
from probml.language.settings import thaw
from probml.numerics.process.threads import single_thread
from probml.typing import ArrayLike, DataLike, SiteValues

# models whose functions call rows() elsewhere than in their own text → the names given then
_WITH_ROWS: WeakKeyDictionary[Bound, set[frozenset[str]]] = WeakKeyDictionary()


def _has_entries(data: DataLike) -> bool:
    try:
        return len(data) > 0
    except TypeError:  # None, a class, an array of no axes
        return False


@single_thread()
def read_function(model: Bound, data: DataLike,
                  named: Collection[str] | None = None, drawn: bool = False) -> ReadModel:
    """A pasted function as a model of the given data; a model with rows() is returned unchanged.

    Args:
        data: name of an argument (also one that has a default), or of a site → values.
        named: parameters whose values are given: these are not integrated out, and what is observed
            may be absent from the data, as it is from new rows; None: to be estimated.
        drawn: it is to be drawn, and may be absent where there are no rows, too.

    Raises:
        DataError: a name is neither, something is given twice, nothing is observed.
    """
    data = frames.to_pandas(data)
    if frames.is_far(data) or not _has_entries(data):
        return ReadModel(model, data)
    if isinstance(data, Mapping) and model.renamed.keys() & data.keys():
        data = by_new_names(data, model.renamed)
    if isinstance(model.generative, RowsReading):
        reading = model.generative
        expected = (*reading.inputs.values(), *reading.placeholders, *reading.columns.values())
        known = (*expected, *(name for name, _ in model.settings), *reading.sites)
        items = _known_columns(data, _given_items(data), known, expected)
        return ReadModel(model, translate_data(model, items))
    if isinstance(model.generative, JointReading):
        return _read_new_data(model, data)
    if isinstance(model.generative, RelationalFunction):
        tables = frames.tables_of(data)
        if tables is None:
            return ReadModel(model, data)
        flat, places = flatten_tables(model, tables)
        return ReadModel(widen(model, {name: place.width for name, place in places.items()}), flat)
    tables = frames.tables_of(data)
    read = None if tables is None else read_tables(model, tables)
    if read is not None:
        return read
    chosen, has_rows = model.generative.chosen, mentions_rows(model.generative.function)
    if chosen is not None and has_rows:
        raise ModelError(f"model '{model.name}' already has rows(), so no plate can be chosen as "
                         f"the rows. Omit rows='{chosen}'")
    if has_rows or not (isinstance(data, Mapping) or hasattr(data, "columns")):
        return ReadModel(model, data)
    items = _given_items(data)
    given_before = _WITH_ROWS.setdefault(model, set())
    if (names := frozenset(items)) in given_before:
        return ReadModel(model, data)
    arguments, given = _split_data(model, items)
    if any(name not in arguments for name in model.inputs):
        return _refuse_missing_input(model, data, arguments, given)
    try:
        survey, items, arguments, given = _survey_run(model, items, arguments, given)
    except RowsUnknown:
        given_before.add(names)
        return ReadModel(model, data)
    if named is not None:
        absent = _absent_observations(model, survey, arguments, given, named)
        result = read_function(model, {**items, **absent}, named) if absent else None
        if result is not None and (drawn or not result.model.is_joint):
            return result
    known = model.generative.arguments
    items = _known_columns(data, items, (*known, *survey.sites, *survey.computed),
                           (*known, *(site.name for site in survey.observed_sites)))
    given = {name: value for name, value in given.items() if name in items}
    _check_data(model, survey, arguments, given)
    _refuse_text(model, survey, items, {**arguments, **given})
    result = _read(model, survey, arguments, given, items, named or ())
    if survey.subsample_sizes:
        result = result._replace(
            reason=f"{result.reason}. {_describe_subsampling(result.model, survey)}")
    return result


def _absent_observations(model: Bound, survey: Survey, arguments: SiteValues, given: SiteValues,
                         named: Collection[str]) -> dict[str, np.ndarray]:
    """The arguments that are None and would be observed (obs=y), all cells missing: one that makes
    a site, of which no value is given, an observed one."""
    absent = dict[str, np.ndarray]()
    for name in (arg for arg, value in model.bound.items() if value is None
                 and arg not in arguments):
        latent = {site.name: site.shape for site in survey.sites.values()
                  if site.name not in named and not site.observed}
        for shape in dict.fromkeys(latent.values()):
            value = np.full(shape, np.nan)
            with contextlib.suppress(Exception):  # another site's shape
                rerun = survey_run(model, {**arguments, **absent, name: value}, given)
                if any(latent.get(site.name) == shape for site in rerun.observed_sites):
                    survey, absent[name] = rerun, value
                    break
    return absent


def _survey_run(
    model: Bound, items: dict[str, ArrayLike], arguments: dict[str, ArrayLike],
    given: dict[str, ArrayLike]
) -> tuple[Survey, dict[str, ArrayLike], dict[str, ArrayLike], dict[str, ArrayLike]]:
    """The survey of a run of the function, and the arguments and values given to it: indices as
    codes; lists of arrays of different lengths unchanged; where it wants arrays, these padded by
    missing cells.

    Raises:
        DataError: unseen cells within such a list; one that the function takes as an array and does
            not observe.
    """
    lists = {name: value for name, value in (*arguments.items(), *given.items())
             if isinstance(value, Ragged)}
    for name, value in lists.items():
        i = next((i for i, part in enumerate(value) if np.isnan(part).any()), None)
        if i is not None:
            raise DataError(f"model '{model.name}': '{name}' is a list of arrays, and array {i} "
                            f"has missing values (NaN), which are not supported in such lists. "
                            f"Drop these values")
    site = next((name for name in lists if name in given), None)
    if site is not None:
        raise DataError(f"model '{model.name}': the value of site '{site}' must be one array, got "
                        f"a list of arrays of different lengths. Pad the shorter ones with NaN, or "
                        f"make the list an argument of the function")
    failure: Exception | None = None
    try:
        survey = survey_run(model, arguments, given)
        if not any(isinstance(site.value, Ragged) for site in survey.observed_sites):
            survey, recoded = recode_out_of_bounds(model, survey, items, {**arguments, **given})
            return survey, items, {name: recoded[name] for name in arguments}, {
                name: recoded[name] for name in given}
    except (DataError, ModelError) as error:
        rerun = None if lists else rerun_with_codes(model, items, arguments, given)
        if rerun is not None:
            return rerun[0], items, *rerun[1:]
        table = next((name for name in arguments if frames.is_table(items.get(name))), None)
        if table is not None:
            raise DataError(f"{model.name}: {_by_columns(model, table, items[table])}. {error}"
                            ) from error
        if not lists:
            raise
        failure = error
    arrays = {name: value_of(padded(name, list(value))) for name, value in lists.items()}
    try:
        survey = survey_run(model, {**arguments, **arrays}, given)
    except (DataError, ModelError) as error:
        raise failure or error from None
    observed = {id(site.value) for site in survey.observed_sites}
    other = next((name for name, value in arrays.items() if id(value) not in observed), None)
    if other is not None:
        raise DataError(
            f"model '{model.name}': '{other}' is a list of arrays of different lengths, but the "
            f"function uses '{other}' as one array. Shorter arrays can be padded only in an array "
            "that is observed (obs=). Write a loop over the list in the function, or pass one "
            "array and mask the padding by handlers.mask"
        )
    return survey, {**items, **arrays}, {**arguments, **arrays}, given


def _by_columns(model: Bound, name: str, table: object) -> str:
    """What to do about a table as an argument of a function that asks it for columns."""
    cols = list(map(str, frames.names_of(table)))
    return (f"'{name}' is a table with the columns {listed(cols)}, but the arguments of a model "
            f"function are arrays of numbers. Make each column an argument, def "
            f"{model.name}({', '.join(cols)}), and pass the table itself, fit(table); text columns "
            f"become codes and keep their labels. Or pass a mapping of its columns to arrays")


def _describe_subsampling(model: Bound, survey: Survey) -> str:
    """How a plate with a subsample_size is read."""
    name, size = next(iter(survey.subsample_sizes.items()))
    text = f"All elements of the plate '{name}' are used, not only subsample_size of them"
    if model.batch:
        return f"{text}, except by SVI and MAP(optimizer=…), which use batches of {size}"
    return text


def _read(model: Bound, survey: Survey, arguments: Mapping, given: Mapping, items: Mapping,
          named: Collection[str]) -> ReadModel:
    """A plate as the rows where it can be, else one density."""
    chosen = model.generative.chosen
    candidates = find_row_candidates(survey, chosen)
    if chosen is not None:
        why = read_as_rows(model, survey, arguments, items, candidates)
        if isinstance(why, ReadModel):
            return why
        raise ModelError(f"model '{model.name}': rows='{chosen}': this plate cannot be used as "
                         f"independent rows, because {why}. Omit rows= to fit one joint density of "
                         f"all data")
    if isinstance(candidates, list) and all(has_many_joint_states(survey, plate)
                                            for plate, _, _ in candidates):
        # rows would go through joint states where cells can be summed out one by one
        refuse_out_of_bounds(model, survey, {**arguments, **given})
        why = "the elements of its discrete sites are summed out one by one"
        with contextlib.suppress(ModelError):
            return read_with_numbers_bound(model, survey, arguments, given,
                                           find_missing_cells(model, arguments, given, why),
                                           sites_summed_by_cell(survey), why)
    why = read_as_rows(model, survey, arguments, items, candidates)
    if isinstance(why, ReadModel):
        return why
    refuse_out_of_bounds(model, survey, {**arguments, **given})
    return read_as_density(model, survey, arguments, given, why, named)


def _given_items(data: object) -> dict[str, ArrayLike]:
    """Name → values, but for what is None, as an argument is by default: it is not observed."""
    return {name: value for name, value in frames.items_of(data).items() if value is not None}


def _known_columns(data: object, items: dict[str, ArrayLike], known: Collection[str],
                   expected: Collection[str]) -> dict[str, np.ndarray]:
    """The columns of a table that a function knows. Others are ignored, except one whose name is
    close to a column that is expected and missing: it is refused later on. Of a mapping all."""
    if not frames.is_table(data):
        return items
    missing = [name for name in expected if name not in items]
    return {name: value for name, value in items.items()
            if name in known or frames.closest_name(name, missing)}


def _split_data(model: Bound,
                items: SiteValues) -> tuple[dict[str, ArrayLike], dict[str, ArrayLike]]:
    """The data as values of arguments, and as values of sites."""
    arguments, defaults = model.generative.arguments, model.generative.defaults
    for name, bound in model.settings:
        if name in items and defaults.get(name) != bound:
            raise DataError(f"model '{model.name}': '{name}' is a setting of the model, "
                            f"{name}={thaw(bound)!r}, and also given in the data. Omit '{name}' "
                            f"from the data, or {name}= from {model.name}(...)")
    for name, table in items.items():
        columns = frames.items_of(table) if frames.is_table(table) and name in arguments else {}
        text = {np.asarray(column).dtype.kind in "OUST" for column in columns.values()}
        if len(text) > 1:
            raise DataError(f"{model.name}: {_by_columns(model, name, table)}")
    values = {name: value_of(value, name) for name, value in items.items()}
    return ({name: value for name, value in values.items() if name in arguments},
            {name: value for name, value in values.items() if name not in arguments})


def _refuse_missing_input(model: Bound, data: object, arguments: Mapping,
                          given: Mapping) -> ReadModel:
    """The function as it is written, where it calls rows(): its data are checked when read.

    Raises:
        DataError: else, naming the missing input.
    """
    name = next(name for name in model.inputs if name not in arguments)
    try:
        survey_run(model, arguments, given)
    except RowsUnknown:
        return ReadModel(model, data)
    except Exception:
        pass
    columns = frames.names_of(data) if frames.is_table(data) else ()
    raise frames.missing_input(model.name, name,
                               [column for column in columns if column not in model.inputs])


def _check_data(model: Bound, survey: Survey, arguments: Mapping, given: Mapping) -> None:
    """Refuse data that are given twice or unknown, and too few."""
    frames.refuse_computed(model.name, survey.computed, given)
    unknown = next((name for name in given if name not in survey.sites), None)
    if unknown is not None and survey.sites:  # a function without sites is refused later
        own = dict.fromkeys((*model.generative.arguments, *survey.sites))
        raise frames.unknown_name(model.name, unknown, own,
                                  [name for name in own if name not in arguments])
    both = next((name for name in arguments if name in model.generative.defaults
                 and name in survey.sites and not survey.sites[name].observed), None)
    if both is not None:
        raise DataError(
            f"model '{model.name}': '{both}' in the data is ambiguous: it is the name of an "
            f"argument of the function and of a latent site. Rename one of them. Or remove "
            f"'{both}' from the data, set the argument by {model.name}(…, {both}=...), and observe "
            f"the site by numpyro.handlers.condition around the function"
        )
    for name in survey.given_twice:
        arg = next((own for own, value in arguments.items() if value is survey.sites[name].value),
                   None)
        source = f"as the argument '{arg}'" if arg else "by obs= inside the function"
        raise DataError(f"model '{model.name}': site '{name}' is given twice, by its name in the "
                        f"data and {source}. Omit '{name}' from the data")
    if survey.sites and not survey.observed_sites and not any(site.factor
                                                              for site in survey.sites.values()):
        unset = [name for name, value in model.bound.items() if value is None
                 and name not in arguments]
        advice = f"{listed(unset, ' or ')}, or one of" if unset else "one of"
        raise DataError(f"model '{model.name}': the values of all sites are missing in the data, "
                        f"so nothing can be estimated. Pass values of {advice} the sites "
                        f"{listed(survey.sites)}")
    for site in survey.observed_sites:
        if site.support is not None and hasattr(site.value, "dtype") and not isinstance(
                site.value, jax.core.Tracer):
            _check_support(model, survey.as_written(site))


def _refuse_text(model: Bound, survey: Survey, items: Mapping, values: Mapping) -> None:
    """Refuse text where numbers are observed: its codes would be taken for them."""
    for name, value in items.items():
        if not isinstance(value, str) and not isinstance(values[name], Ragged) and np.asarray(
            value
        ).dtype.kind in "OUST":
            site = next((s for s in survey.observed_sites if s.value is values[name]
                         or s.name == name), None)
            support = getattr(site, "support", None)
            site = None if site is None else survey.as_written(site)
            if site is not None and not (site.discrete and (
                hasattr(support, "upper_bound") or isinstance(support, type(constraints.boolean))
            )) and isinstance(values[name], np.ndarray):
                flat = np.asarray(value, object).ravel().tolist()
                if not any(isinstance(cell, str | bytes) for cell in flat) and None in flat:
                    raise DataError(f"model '{model.name}': '{name}' has a missing value (None) at "
                                    f"position {flat.index(None)}, but only values inside rows() "
                                    f"may be missing. Write `with probml.rows():` around the "
                                    f"statement that samples '{site.name}', or drop the value")
                raise DataError(f"model '{model.name}': '{name}' is text, got "
                                f"{listed(np.asarray(value).ravel()[:3].tolist())} …, but the "
                                f"values of site '{site.name}' are numbers. Convert '{name}' to "
                                "numbers")


def _check_support(model: Bound, site: SurveyedSite) -> None:
    """Refuse values outside the support of a site, elements under a mask left out."""
    value = np.asarray(site.value, float)
    is_finite = np.isfinite(value)
    if site.discrete and (frac := is_finite & (value != np.floor(value))).any():
        raise DataError(f"model '{model.name}': the values of site '{site.name}' must be integers, "
                        f"got {value[frac][0]:g} at index {listed(np.argwhere(frac)[0].tolist())}. "
                        "Round the values, or use a continuous distribution")
    if not site.masked and len(site.outside):
        cell = tuple(map(int, site.outside[0]))
        where = f" at index {cell[0] if len(cell) == 1 else cell}" if cell else ""
        raise DataError(f"model '{model.name}': '{site.name}' is {value[cell]:g}{where}, outside "
                        "the support of its distribution (the possible values: "
                        f"{domains.of(site.support).description}). Check the data, or leave this "
                        "value out by handlers.mask")


def _read_new_data(model: Bound, data: DataLike) -> ReadModel:
    """New data for a function that was read as one joint density.

    Raises:
        DataError: an argument is missing, or the data lead to another density.
    """
    reading = model.generative
    items = _given_items(data)
    lacks = next((arg for arg in reading.arg_names.values() if arg not in items), None)
    if lacks is not None:
        again = ", ".join(f"{name}=..." for name in reading.arg_names.values() if name in items)
        raise DataError(f"model '{model.name}': the data have no '{lacks}', so it would have to be "
                        f"predicted. A prediction for new rows needs independent rows, but the "
                        f"model was fitted as one joint density, because {reading.reason}. "
                        f"{MARK_ROWS}, and fit again. Without it, use fit.params, fit.draws and "
                        f"fit.posterior, which describe the fitted data, or fit.simulate({again}), "
                        f"which draws new observations")
    settings = tuple((name, value) for name, value in model.settings if name not in items)
    named = () if reading.integrated else reading.steps.groups
    bound = type(model)(reading.generative, settings, model.interventions)
    read = read_function(bound, items, named)
    if read.model != model:
        raise DataError(f"model '{model.name}': the fit does not describe these data. Their array "
                        "lengths, settings or columns with missing cells are not the fitted ones. "
                        "Use model.at(fit.params) instead of the fit")
    return read
