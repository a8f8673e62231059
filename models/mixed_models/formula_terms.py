"""The parts of a formula: its left side, the terms of the fixed effects, those of groups, offsets;
and the columns that they have in a table. Files can store them: they are text, numbers and
categories."""

import re
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from probml import DataError, ModelError
from probml.errors import listed
from probml.numerics.process.libraries import pd
from probml.typing import DataLike

if TYPE_CHECKING:
    import pandas as pd
    from formulaic import Formula, ModelMatrix, ModelSpec

INTERCEPT = "Intercept"


@dataclass(frozen=True)
class ParsedFormula:
    """A formula, taken apart.

    Attributes:
        left: as it is written, "" where there is none. right: of the fixed effects.
        groups: (terms, bar, grouping) of each bracket, nested groupings as one for each level.
        offsets: their expressions.
    """

    text: str
    left: str
    right: str
    groups: tuple[tuple[str, str, str], ...]
    offsets: tuple[str, ...]

    def used(self, names: Collection[str]) -> set:
        """The columns that are no terms: of the left side, of groupings and of offsets."""
        words = {word for part in (self.left, *self.offsets, *(name for *_, name in self.groups))
                 for word in re.findall(r"[^\W\d][\w.]*", part)}
        return {name for name in names if name in words or f"`{name}`" in self.left
                or name == self.left}


def written(text: str) -> ParsedFormula:
    """
    Raises:
        ModelError: brackets that do not match; a grouping in two brackets.
    """
    left, tilde, right = text.partition("~") if "~" in text else ("", "", text)
    groups, offsets, fixed, cursor = [], [], [], 0
    for start, end, name in _calls(text, right):
        body = right[start:end]
        bar = re.search(r"\|\|?", _outer(body))
        if name == "offset":
            offsets.append(body)
        elif not name and bar:
            terms, grouping = body[: bar.start()], body[bar.end():]
            levels = [part.strip() for part in grouping.split("/")]
            groups += [(terms.strip(), bar.group(), _pair(":".join(levels[: k + 1])))
                       for k in range(len(levels))]
        else:
            continue
        fixed.append(right[cursor : start - 1 - len(name)])
        cursor = end + 1
    right = "".join([*fixed, right[cursor:]])
    right = re.sub(r"\+\s*(?=$|\+)", "", right).strip()
    right = re.sub(r"^\+\s*", "", right).rstrip("+ ") or "1"
    names = [name for *_, name in groups]
    if repeat := next((name for name in names if names.count(name) > 1), None):
        raise ModelError(f"formula({text!r}): the grouping {repeat!r} is in two brackets. Write "
                         f"one, (1 + x | {repeat}), or (1 + x || {repeat}) without correlations")
    return ParsedFormula(text, left.strip(), right, tuple(groups), tuple(offsets))


def _pair(grouping: str) -> str:
    return ":".join(part.strip() for part in grouping.split(":"))


def _calls(text: str, part: str) -> Iterator[tuple[int, int, str]]:
    """(start and end of what is inside, the name before it) of each outermost bracket."""
    depth, start = 0, 0
    for index, char in enumerate(part):
        if char == "(":
            depth, start = depth + 1, index + 1 if depth == 0 else start
        elif char == ")":
            depth -= 1
            if depth < 0:
                break
            if depth == 0:
                match = re.search(r"[\w.]*$", part[: start - 1])
                yield start, index, match.group() if match else ""
    if depth:
        raise ModelError(f"formula({text!r}): the brackets do not match. Close every bracket, as "
                         f"in 'y ~ x + (1 | group)'")


def _outer(text: str) -> str:
    """A text, what is in its brackets as blanks."""
    chars, depth = [], 0
    for char in text:
        depth += char in "([{"
        chars.append(" " if depth else char)
        depth -= char in ")]}"
    return "".join(chars)


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of a formula as they were in the table that was fitted: categories and the numbers
    of splines and polynomials are those of then.

    Attributes:
        parts: the formula. formulas: of the fixed effects, then of each bracket. states: of each,
        (transforms, factor → (kind, categories)). columns: of each, the intercept included.
    """

    parts: ParsedFormula
    formulas: tuple[str, ...]
    states: tuple[tuple[dict, dict], ...]
    columns: tuple[tuple[str, ...], ...]

    @classmethod
    def learn(cls, parts: ParsedFormula, parsed: "Formula",
              table: DataLike) -> tuple["Terms", dict, "ModelMatrix"]:
        """(terms, grouping → columns of its effects, "1" the intercept, the specification of the
        fixed effects).

        Raises:
            DataError: a column that is missing, or has missing cells.
        """
        import formulaic

        table = _without_unused(table)
        specs = [_matrix(parts.text, parsed, table).model_spec]
        for terms, _, _ in parts.groups:
            try:
                formula = formulaic.Formula(terms)
            except Exception as error:
                raise ModelError(f"formula({parts.text!r}): {error_text(error)}. Correct the "
                                 "formula") from None
            specs.append(_matrix(parts.text, formula, table).model_spec)
        learnt = cls(parts, tuple(str(each.formula) for each in specs),
                     tuple(map(_state, specs)), tuple(tuple(each.column_names) for each in specs))
        effects = {name: ["1" if each == INTERCEPT else each for each in columns]
                   for (*_, name), columns in zip(parts.groups, learnt.columns[1:], strict=True)}
        return learnt, effects, specs[0]

    @property
    def names(self) -> list[str]:
        """The columns of X: of the fixed effects, of effects of groups alone, the groupings."""
        return list(dict.fromkeys([*(name for columns in self.columns for name in columns
                                     if name != INTERCEPT), *(name for *_, name in
                                                              self.parts.groups)]))

    def of(self, table: DataLike) -> Any:
        """X of the rows of a table.

        Raises:
            DataError: a column or a cell that is missing, a category that is new.
        """
        by_name, table = {}, _by_value(table)
        for formula, state, columns in zip(self.formulas, self.states, self.columns, strict=True):
            if {*columns} <= {*by_name, INTERCEPT} and by_name:
                continue
            matrix = _matrix(self.parts.text, _spec(formula, state), table)
            by_name |= {name: matrix[name] for name in columns}
        column = next(iter(by_name.values()))
        X = pd.DataFrame(by_name, index=column.index).drop(columns=[INTERCEPT], errors="ignore")
        return X.assign(**{name: self._labels(table, name) for *_, name in self.parts.groups})

    def _labels(self, table: DataLike, grouping: str) -> np.ndarray:
        """The labels of a grouping, of several columns joined by ":"."""
        columns = grouping.split(":") if grouping not in table.columns else [grouping]
        for name in columns:
            if name not in table.columns:
                raise DataError(f"formula({self.parts.text!r}): the grouping {name!r} is not a "
                                "column of the table. Use one of its columns, "
                                f"{listed(table.columns)}")
        if len(columns) == 1:
            return table[columns[0]].to_numpy()
        is_na = table[columns].isna().any(axis=1).to_numpy()
        joined = np.array([":".join(map(_as_label, cells)) for cells in zip(
            *(table[name].tolist() for name in columns), strict=True)], object)
        joined[is_na] = None
        return joined

    def others(self, table: DataLike) -> dict[str, np.ndarray]:
        """"y", "trials", "event" and "offset" of the rows, those that the formula has.

        Raises:
            DataError: a column or a cell that is missing.
        """
        left = _response(self.parts.text, self.parts.left, table) if self.parts.left else {}
        return left | (self._offset(table) if self.parts.offsets else {})

    def _offset(self, table: DataLike) -> dict[str, np.ndarray]:
        return {"offset": np.sum([_numbers(self.parts.text, each, table)
                                  for each in self.parts.offsets], axis=0)}

    def arguments(self, params: list[str], args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The arguments of a verb whose X is a table of the columns of the formula: X becomes the
        columns of the terms; y, offset and trials are read where the verb takes them, and they were
        not given."""
        X = args[0] if args else kwargs.get("X")
        if X is None or not hasattr(X, "columns"):
            return args, kwargs
        try:
            columns = self.of(X)
        except DataError:
            if not {*self.names} <= {*X.columns}:
                raise
            columns = X[self.names]  # a table of its terms, as Formula.X
        omitted, extras = {*params} - {*params[: len(args)], *kwargs}, {}
        if omitted & {"y", "trials", "event"} and self.parts.left:
            try:
                extras = _response(self.parts.text, self.parts.left, X)
            except DataError:
                pass  # new rows need no left side
        if "offset" in omitted and self.parts.offsets:
            extras |= self._offset(X)
        kwargs = {**kwargs, **{name: extras[name] for name in extras if name in omitted}}
        return ((columns, *args[1:]), kwargs) if args else ((), {**kwargs, "X": columns})


def _as_label(value: object) -> str:
    """A cell as text, the same whether a whole number is stored as an integer or a float."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _by_value(table: DataLike) -> "pd.DataFrame":
    """A table, categorical columns as their values: their categories may be others than the
    fitted."""
    return table.assign(**{name: table[name].astype(object) for name in table.columns
                           if isinstance(table[name].dtype, pd.CategoricalDtype)})


def _without_unused(table: DataLike) -> "pd.DataFrame":
    """A table, categorical columns without the categories that no row has, whose coefficients would
    be unknown, as in R."""
    return table.assign(**{name: table[name].cat.remove_unused_categories()
                           for name in table.columns
                           if isinstance(table[name].dtype, pd.CategoricalDtype)})


def _matrix(text: str, source: "Formula | ModelSpec", table: DataLike) -> "ModelMatrix":
    """The columns of terms.

    Raises:
        DataError: in one line. A category that the fitted rows did not have is an error, where
            formulaic warns and takes the row for one of the first category.
    """
    from formulaic.errors import DataMismatchWarning

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DataMismatchWarning)
            return source.get_model_matrix(table, context={"np": np}, na_action="raise")
    except Exception as error:
        if isinstance(error, DataMismatchWarning):
            new = re.search(r"\{(.*)\}", str(error))
            names = re.sub(r"np\.\w+\((.*?)\)", r"\1", new.group(1)) if new else ""
            raise DataError(f"formula({text!r}): the table contains categories without a "
                            f"coefficient, because no fitted row had them: {names}. Drop the rows "
                            f"with these categories, or add them to the fitted table and fit again"
                            ) from None
        raise DataError(f"formula({text!r}): {error_text(error)}. Correct the formula; the "
                        f"table has the columns {listed(table.columns)}") from None


def _state(spec: "ModelSpec") -> tuple[dict, dict]:
    """What a specification learnt, as text, numbers and categories."""
    return dict(spec.transform_state), {
        name: (kind.value, [getattr(level, "item", lambda level=level: level)() for level
                            in state["categories"]] if "categories" in state else None)
        for name, (kind, state) in spec.encoder_state.items()}


def _spec(formula: str, state: tuple[dict, dict]) -> "ModelSpec":
    """The specification that learnt this."""
    import formulaic

    transforms, factors = state
    kinds = formulaic.parser.types.Factor.Kind
    return formulaic.ModelSpec(
        formula=formulaic.Formula(formula.replace("1 + ", "", 1) if formula.startswith("1 + ")
                                  else formula if formula == "1" else f"0 + {formula}"),
        transform_state=dict(transforms),
        encoder_state={name: (kinds(kind), {} if levels is None else {"categories": list(levels)})
                       for name, (kind, levels) in factors.items()})


def _response(text: str, left: str, table: DataLike) -> dict[str, np.ndarray]:
    """The left side of a formula: y, and trials or event."""
    call = re.fullmatch(r"(cbind|p|prop|Surv)\s*\((.*)\)", left, re.DOTALL)
    if call is None:
        return {"y": _values(text, left, table)}
    name, body = call.groups()
    commas = [index for index, char in enumerate(_outer(body)) if char == ","]
    arguments = [body[a:b].strip() for a, b in zip([0, *(c + 1 for c in commas)],
                                                   [*commas, len(body)], strict=True)]
    interval = name == "Surv" and re.fullmatch(r"type\s*=\s*[\"']interval2[\"']",
                                               arguments[-1]) is not None
    arguments = arguments[:-1] if interval else arguments
    if len(arguments) != 2:
        raise ModelError(f"formula({text!r}): expected {name}(...) with two columns, such as "
                         f"cbind(successes, failures), p(successes, trials), Surv(time, event) or "
                         f"Surv(lower, upper, type=\"interval2\")")
    first, second = (_numbers(text, arg, table, interval) for arg in arguments)
    if name == "cbind":
        return {"y": first, "trials": first + second}
    if interval:
        return {"y": np.column_stack([np.where(np.isnan(first), 0.0, first),
                                      np.where(np.isnan(second), np.inf, second)])}
    return {"y": first, ("event" if name == "Surv" else "trials"): second}


def _values(text: str, left: str, table: DataLike) -> np.ndarray:
    """One column: numbers, or the labels of a column as they are."""
    if left in table.columns and table[left].dtype.kind not in "biuf":
        if (is_na := table[left].isna().to_numpy()).any():
            raise DataError(f"formula({text!r}): {left!r} is missing in row "
                            f"{int(np.argmax(is_na))}. Drop rows with missing values, "
                            f"table.dropna(subset=[{left!r}])")
        return table[left]
    return _numbers(text, left, table)


def _numbers(text: str, expression: str, table: DataLike,
             missing: bool = False) -> np.ndarray:
    """An expression of columns, (n,).

    Args:
        missing: cells may be missing.
    """
    import formulaic

    if expression in table.columns and table[expression].dtype.kind in "biuf":
        values = table[expression].to_numpy(float, na_value=np.nan)
        if not missing and np.isnan(values).any():
            raise DataError(f"formula({text!r}): {expression!r} is missing in row "
                            f"{int(np.argmax(np.isnan(values)))}. Drop rows with missing values, "
                            f"table.dropna(subset=[{expression!r}])")
        return values
    try:
        parsed = formulaic.Formula(f"0 + {expression}" if re.fullmatch(r"`[^`]*`|[\w.]+\(.*\)",
                                                                       expression, re.DOTALL)
                                   else f"0 + I({expression})")
    except Exception as error:
        raise ModelError(f"formula({text!r}): {error_text(error)}. Correct the formula") from None
    matrix = _matrix(text, parsed, table)
    if matrix.shape[1] != 1:
        raise ModelError(f"formula({text!r}): {expression!r} on the left side of ~ must be one "
                         f"numeric column, but gives {listed(matrix.columns)}. Use a column of "
                         f"numbers, such as 0 and 1 for two categories")
    return matrix.iloc[:, 0].to_numpy(float)


# as R writes it → what is wanted here
HABITS = (
    (re.compile(r"\bfactor\s*\("), "write a category as C(name), not factor(name)"),
    (re.compile(r"\bI\s*\([^()]*\^"), "write a power as I(x**2), not I(x^2)"),
    (re.compile(r"(?<![=~!<>])=(?!=)(?![^()]*\))"), "separate the two sides by ~, as in 'y ~ x'"),
    (re.compile(r"^[^()~]*~[^()]*\|[^()]*$"), "write the effects of groups in brackets, y ~ x + (1 "
                                              "| group)"),
)


def refuse_habits(text: str) -> None:
    """
    Raises:
        ModelError: what R's formulas have and these have not, with how it is written here.
    """
    for pattern, instead in HABITS:
        if pattern.search(text):
            raise ModelError(f"formula({text!r}): {instead}")


def error_text(error: Exception) -> str:
    """The text of an error of formulaic, without colours, on one line."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split()).rstrip(".")
