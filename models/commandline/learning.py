"""Which model a table is fitted with: a name of the zoo, or a function of the user's own."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from probml.engines.engine import Engine
from probml.errors import DataError, ModelError, counted, listed
from probml.models import (
    BayesianLinearRegression,
    FactorAnalysis,
    GeneralizedLinearModel,
    HiddenMarkov,
    LatentClass,
    LogisticRegression,
    MetaAnalysis,
    MixedMixture,
    NaiveBayes,
    StructuralTimeSeries,
    bayesian_network,
    formula,
    learn_structure,
)
from probml.models.commandline.catalogue import MODELS, OWN, SEQUENCES, canonical_name
from probml.models.commandline.files import own_model, require_columns
from probml.models.commandline.layouts import PLAIN, Layout, index_by_date, of_model, sequences
from probml.models.frames.kinds import default_kind
from probml.models.mixed_models.formulas import missing_cells
from probml.numerics.process.libraries import pd
from probml.typing import FitOrEstimator

NAMELESS = "Unnamed: "  # as pandas calls a column without a name
MAX_CATEGORIES_KEPT = 20  # categories that are never too many
CODED = "replace it by 0/1 columns, one for each of its values except one"


class Wish(NamedTuple):
    """What a user asked for beside the table."""

    target: str | None = None
    engine: Engine | None = None
    seed: int = 0
    sizes: Any = None  # components or states: a number, or a range
    settings: Mapping[str, Any] = {}
    drop: tuple[str, ...] = ()  # columns that are left out
    layout: Layout = PLAIN  # of the table as data
    formula: str | None = None  # of a regression


def learn(model: str, table: "pd.DataFrame", wish: Wish) -> FitOrEstimator:
    """An estimator or a Fit.

    Raises:
        ModelError: an unknown name, a target that is missing or not wanted.
        DataError: a table that the model cannot take.
    """
    dropped = [name for option in wish.drop for name in (
        [option] if option in table.columns else option.split(","))]
    require_columns(table, dropped, "--drop")
    table, model = _without_row_numbers(table.drop(columns=dropped)), canonical_name(model)
    if model in MODELS:
        if wish.layout.joined or wish.layout.by and model not in SEQUENCES:
            option = "--as" if wish.layout.joined else "--by"
            raise ModelError(f"{option} is not supported by --model {model}. Omit {option}")
        _refuse_options(model, wish, MODELS[model].takes)
        if model not in (*SEQUENCES, "meta") and wish.formula is None:
            _refuse_names(table)
        return LEARN[model](table, wish)
    if ":" not in model:
        raise ModelError(f"--model {model}: expected one of {', '.join(MODELS)}, or FILE.py:name")
    _refuse_options(model, wish, OWN)
    loaded = own_model(model, dict(wish.settings))
    return loaded.fit(of_model(loaded, table, wish.layout).data, wish.engine, seed=wish.seed)


def _without_row_numbers(table: "pd.DataFrame") -> "pd.DataFrame":
    """A table without a column that has no name and holds the numbers of the rows, as pandas and R
    write them."""
    for name in (name for name in table.columns if str(name).startswith(NAMELESS)):
        column = table[name]
        if (pd.api.types.is_integer_dtype(column) and len(column) > 1
                and (column.diff()[1:] == 1).all()):
            warnings.warn(f"the column without a name in the file (read as '{name}') contains the "
                          "row numbers, so it is dropped. To keep it, give it a name in the file",
                          RuntimeWarning, stacklevel=2)
            table = table.drop(columns=name)
    return table


def _refuse_names(table: "pd.DataFrame") -> None:
    """
    Raises:
        DataError: columns of dates, or of text that differs in (nearly) every row, such as names:
            as categories they would be learnt by heart, and no new row has them. All at once.
    """
    reasons = {}
    for name, column in table.items():
        if pd.api.types.is_numeric_dtype(column):
            continue
        cells = column.dropna()
        nested = next((each for each in cells if isinstance(each, list | dict | np.ndarray)), None)
        if nested is not None:
            raise DataError(f"column '{name}' has several values in a row, {nested!r:.60}. Give "
                            f"each value a separate column, or drop the column, --drop '{name}'")
        each = cells.nunique() > max(0.9 * len(cells), MAX_CATEGORIES_KEPT)
        if each or pd.api.types.is_datetime64_any_dtype(column):
            reasons[name] = "dates" if not each or _dates(cells) else ("a different text in nearly "
                                                                       "every row")
    if not reasons:
        return
    problems = "; ".join(f"column '{name}' has {what}" for name, what in reasons.items())
    drops = " ".join(f"--drop '{name}'" for name in reasons)
    dates = (", or convert dates to numbers, such as the year or weekday"
             if "dates" in reasons.values() else "")
    raise DataError(f"{problems}. A model cannot learn from such columns. Leave them out, "
                    f"{drops}{dates}")


def _refuse_options(model: str, wish: Wish, takes: tuple[str, ...]) -> None:
    """
    Raises:
        ModelError: an option that this model would not look at.
    """
    if wish.target is not None and "target" not in takes:
        raise ModelError(f"--target {wish.target}: {model} models all columns jointly and has no "
                         f"target. Omit --target" + (
                             f", and choose the column when you predict, --site {wish.target}"
                             if model == "network" else ". To predict a column, use --model "
                             "naive_bayes, regression or network"))
    if wish.sizes is not None and "sizes" not in takes:
        sized = [name for name, kind in MODELS.items() if "sizes" in kind.takes]
        raise ModelError(f"--components: {model} has no number of components or states; "
                         f"{', '.join(sized[:-1])} and {sized[-1]} have one. Omit --components. "
                         f"For a function of your own, set its argument, such as --set k=3")
    if wish.formula is not None and "formula" not in takes:
        fits = " and ".join(name for name, kind in MODELS.items() if "formula" in kind.takes)
        raise ModelError(f"--formula {wish.formula}: {model} has no formula; only {fits} have one. "
                         f"Omit --formula")


def _dates(column: "pd.Series") -> bool:
    """Whether text reads as dates, 2024-01-31 and on."""
    return bool(column.astype(str).str.match(r"\d{4}-\d{2}-\d{2}").all())


def sizes_of(text: str | None, option: str) -> Any:
    """A number, or the range that "1-5" is.

    Raises:
        ModelError: neither.
    """
    if text is None:
        return None
    low, dash, high = text.partition("-")
    if not low.isdigit() or dash and not high.isdigit() or dash and int(high) < int(low):
        raise ModelError(f"{option} {text}: expected an integer, such as 3, or a range, such as "
                         f"1-5")
    return range(int(low), int(high) + 1) if dash else int(low)


def split_target(table: "pd.DataFrame", wish: Wish) -> "tuple[pd.DataFrame, pd.Series]":
    """The other columns, and the target.

    Raises:
        ModelError: no target was said. DataError: the table has no such column.
    """
    if wish.target is None:
        raise ModelError("the column to predict is not given. Name it, --target NAME; the columns "
                         f"are {listed(list(table.columns))}")
    require_columns(table, [wish.target], "--target")
    return table.drop(columns=wish.target), table[wish.target]


def _make_estimator(kind: type, wish: Wish, **given: Any) -> FitOrEstimator:
    """An estimator with what the options say, and the settings of the user, which come first.

    Raises:
        ModelError: it has no such setting.
    """
    known = list(kind().get_params())
    unknown = next((name for name in wish.settings if name not in known), None)
    if unknown is not None:
        raise ModelError(f"--set {unknown}=…: {kind.__name__} has no setting '{unknown}'. Use one "
                         f"of its settings, {listed(known)}")
    return kind(**{**given, **wish.settings})


def _naive_bayes(table: "pd.DataFrame", wish: Wish) -> FitOrEstimator:
    X, y = split_target(table, wish)
    estimator = _make_estimator(NaiveBayes, wish, random_state=wish.seed, engine=wish.engine)
    return estimator.fit(X, y.astype(object).where(y.notna(), None).to_numpy())


def _components(kind: type) -> "Callable[[pd.DataFrame, Wish], FitOrEstimator]":
    """A mixture of this kind; of no number of components the best of 1 to 5."""
    def fitted(table: "pd.DataFrame", wish: Wish) -> FitOrEstimator:
        sizes = range(1, 6) if wish.sizes is None else wish.sizes
        return _make_estimator(kind, wish, n_components=sizes, random_state=wish.seed,
                               engine=wish.engine).fit(table)

    return fitted


def _factor(table: "pd.DataFrame", wish: Wish) -> FitOrEstimator:
    _refuse_text(table, "factor analysis")
    sizes = {} if wish.sizes is None else {"n_components": wish.sizes}
    return _make_estimator(FactorAnalysis, wish, random_state=wish.seed, engine=wish.engine,
                           **sizes).fit(table)


def _refuse_text(table: "pd.DataFrame", what: str, instead: str = CODED) -> None:
    """
    Raises:
        DataError: a column of text, where numbers are needed.
    """
    text = [name for name in table.columns if not pd.api.types.is_numeric_dtype(table[name])]
    if text:
        raise DataError(f"column '{text[0]}' is text, but a {what} needs columns of numbers. Drop "
                        f"the column, --drop '{text[0]}', or {instead}")


def _learn_generalized_linear(table: "pd.DataFrame", wish: Wish) -> FitOrEstimator:
    if wish.formula is not None:
        return _by_formula(table, wish)
    X, y = split_target(table, wish)
    _refuse_text(X, "generalized linear model")
    return _make_estimator(GeneralizedLinearModel, wish, random_state=wish.seed,
                           engine=wish.engine).fit(X, y.to_numpy())


def _by_formula(table: "pd.DataFrame", wish: Wish) -> FitOrEstimator:
    """A generalized linear model, or with effects of groups a mixed model.

    Raises:
        ModelError: there is no formula, or no effect of groups where a mixed model is meant.
    """
    if wish.formula is None:
        raise ModelError(f"--model mixed: give a formula, such as --formula 'y ~ x + (x | group)'; "
                         f"the columns are {listed(list(table.columns))}")
    settings = {"random_state": wish.seed or None, "engine": wish.engine}
    stated = {name: value for name, value in settings.items() if value is not None}
    if gaps := list(missing_cells(wish.formula, table)):
        rows, table = len(table), table.dropna(subset=gaps)
        warnings.warn(f"the fit leaves out {rows - len(table)} of {counted(rows, 'row')}, because "
                      f"columns of the formula have missing values: {listed(gaps)}. To use them, "
                      "fill in the values in the file", RuntimeWarning, stacklevel=2)
    return formula(wish.formula, table).fit(**{**stated, **wish.settings})


def _meta(table: "pd.DataFrame", wish: Wish) -> FitOrEstimator:
    """Estimates of studies: the target and its standard errors; a column of text names the studies,
    and columns of numbers are moderators.

    Raises:
        DataError: no column of standard errors, or several of text.
    """
    settings = dict(wish.settings)
    error = str(settings.pop("standard_error", "standard_error"))
    X, y = split_target(table, wish)
    if error not in X.columns:
        raise DataError(f"the table has no column '{error}', which must contain the standard "
                        f"errors of '{wish.target}'. Give the name of this column, --set "
                        f"standard_error=NAME; the columns are {listed(list(X.columns))}")
    others = X.drop(columns=error)
    text = [name for name in others if not pd.api.types.is_numeric_dtype(others[name])]
    if len(text) > 1:
        raise DataError(f"the columns '{text[0]}' and '{text[1]}' are text, but only one column of "
                        f"text is expected, the names of the studies. Drop the others, --drop "
                        f"'{text[1]}', or replace them by 0/1 columns")
    moderators = others.drop(columns=text)
    estimator = _make_estimator(MetaAnalysis, wish._replace(settings=settings),
                                random_state=wish.seed,
                                engine=wish.engine)
    return estimator.fit(y, X[error], moderators if len(moderators.columns) else None,
                         list(others[text[0]]) if text else None)


def _regression(table: "pd.DataFrame", wish: Wish) -> FitOrEstimator:
    X, y = split_target(table, wish)
    known = y.notna()
    if known.any() and not known.all():
        warnings.warn(f"column '{wish.target}' is missing in {int((~known).sum())} of "
                      f"{counted(len(y), 'row')}. A regression cannot use rows without it, and "
                      "drops them. To use them, fill in the values in the file", RuntimeWarning,
                      stacklevel=2)
        X, y = X[known], y[known]
    _refuse_text(X, "regression", f"{CODED}. Or use --model network, which takes columns of any "
                 f"kind and missing values, and predict with --site '{wish.target}'")
    if pd.api.types.is_numeric_dtype(y) and not pd.api.types.is_bool_dtype(y):
        if wish.engine is not None:
            raise ModelError(f"--engine {type(wish.engine).__name__}: a linear regression is "
                             "always computed exactly. Omit --engine, or write the model as a "
                             "function (@probml.model), --model FILE.py:name")
        return _make_estimator(BayesianLinearRegression, wish).fit(X, y)
    return _make_estimator(LogisticRegression, wish, engine=wish.engine).fit(X, y.to_numpy())


def _network(table: "pd.DataFrame", wish: Wish) -> FitOrEstimator:
    numbers = [name for name, column in table.items()
               if default_kind(column, f"column '{name}'") == "normal"]
    rows = table.dropna() if numbers else table  # with holes: structural EM, of categories alone
    if not len(rows):
        raise DataError("every row has a missing value, but a network with continuous columns "
                        f"(such as '{numbers[0]}') can be learned only from rows without missing "
                        "values. Fill in the values, or leave out the columns with many missing "
                        "values, --drop NAME. Or write a model with a known graph in a Python "
                        "file, --model FILE.py:name")
    dag = learn_structure(rows, **{"seed": wish.seed, **wish.settings})
    return bayesian_network(dag, data=table).fit(table, wish.engine, seed=wish.seed)


def _hidden_markov(table: "pd.DataFrame", wish: Wish) -> FitOrEstimator:
    by, table = wish.layout.by, index_by_date(table)
    numbers = table if by is None else table.drop(columns=by, errors="ignore")
    _refuse_text(numbers, "hidden Markov model", "if it identifies sequences, name it in --by")
    estimator = _make_estimator(HiddenMarkov, wish, n_states=2 if wish.sizes is None
                                else wish.sizes,
                                random_state=wish.seed, engine=wish.engine)
    return estimator.fit(numbers if by is None else sequences(numbers, table, by))


def _series(table: "pd.DataFrame", wish: Wish) -> FitOrEstimator:
    table = index_by_date(table)
    numbers = [name for name in table if pd.api.types.is_numeric_dtype(table[name])]
    if wish.target is None and len(numbers) != 1:
        raise ModelError("the column of the time series is not given. Name it, --target NAME; the "
                         f"columns of numbers are {listed(numbers)}")
    name = wish.target or numbers[0]
    require_columns(table, [name], "--target")
    if name not in numbers:
        raise DataError(f"column '{name}' is text, but a time series needs numbers, one row per "
                        "step. Name a column of numbers, --target NAME")
    estimator, by = _make_estimator(StructuralTimeSeries, wish, engine=wish.engine), wish.layout.by
    return estimator.fit(table[[name]] if by is None else sequences(table[[name]], table, by))


LEARN: "dict[str, Callable[[pd.DataFrame, Wish], FitOrEstimator]]" = {
    "naive_bayes": _naive_bayes,
    "mixture": _components(MixedMixture),
    "latent_class": _components(LatentClass),
    "factor": _factor,
    "network": _network,
    "hmm": _hidden_markov,
    "regression": _regression,
    "glm": _learn_generalized_linear,
    "mixed": _by_formula,
    "meta": _meta,
    "series": _series,
}


def setting(text: str) -> tuple[str, object]:
    """name=value, the value a number, true, false, none, or text.

    Raises:
        ModelError: no "=".
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ModelError(f"--set {text}: expected NAME=VALUE")
    words = {"true": True, "false": False, "none": None}
    if value.lower() in words:
        return name, words[value.lower()]
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value
