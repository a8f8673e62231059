"""Transformations of a program with its data, of which the effect on every answer is known."""

import functools
import inspect
import pickle
import re
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import rewritten_models as written_again
from rewritten_models import Unwritten

import probml
from probml.interface.functions.replay import lacks_rows
from probml.language.settings import thaw

KINDS: dict[str, Callable] = {}
# what other tests hold to more programs, or what is refused in words
SELDOM = {"lists", "arrays of JAX", "pickled", "saved and loaded", "two threads", "float32", "synonyms",
          "arguments turned", "weights of 1 as integers", "inputs of missing outcomes missing",
          "groups with gaps", "half and an update", "groups as small integers"}
ORDERED = re.compile(r"scan|RandomWalk|cumsum|roll|diff\(|Chain|\[1:\]|\[:-1\]|AutoReg|lag|grid|GaussianProc|EulerMar")


def kind(name: str, *args: Any) -> Callable:
    def keep(function):
        KINDS[name] = functools.partial(function, *args) if args else function
        return function
    return keep


def twin(subject, model=None, data=None, **more):
    from invariances import Twin

    changes = {k: v for k, v in (("model", model), ("data", data)) if v is not None}
    if "weights" in more:
        changes["weights"] = more.pop("weights")
    return Twin(replace(subject, **changes), **more)


def columns(subject) -> dict[str, Any]:
    """The data, by name; arrays where they are numbers."""
    data = subject.data
    if not hasattr(data, "items") or any(isinstance(value, Mapping) for value in dict(data).values()):
        raise Unwritten("no columns")
    out = {str(name): value for name, value in data.items()}
    for name, value in out.items():
        if isinstance(value, list | tuple | pd.Series) and not isinstance(
                getattr(value, "dtype", None), pd.CategoricalDtype):
            try:
                array = np.asarray(value)
            except ValueError as error:
                raise Unwritten("ragged") from error
            if array.dtype.kind in "fiub":
                out[name] = array
    return out


def source(subject) -> str:
    try:
        return inspect.getsource(subject.model.generative.function)
    except (OSError, TypeError) as error:
        raise Unwritten("no source") from error


def rows_of(subject) -> tuple[list[str], list[str], int]:
    """(names of what is observed, names with a row each, number of rows)."""
    data, text = columns(subject), source(subject)
    if lacks_rows(subject.model):
        seen = [name for name in data if re.search(rf"obs={name}\b", text)]
        if not seen:
            raise Unwritten("no rows known")
    else:
        seen = [name for name in data if name not in subject.model.inputs]
    n = {len(data[name]) for name in seen if np.ndim(data[name])}
    if len(n) != 1:
        raise Unwritten("no one number of rows")
    n = n.pop()
    return seen, [name for name, v in data.items() if np.ndim(v) and len(v) == n], n


def exchangeable(subject) -> tuple[list[str], list[str], int]:
    """As rows_of, of rows that are exchangeable."""
    found = rows_of(subject)
    if found[2] < 3 or lacks_rows(subject.model) and ORDERED.search(source(subject)):
        raise Unwritten("few rows, or rows in an order")
    return found


def model_of(subject, function, drop=()):
    own = subject.model
    settings = {name: thaw(value) for name, value in own.settings if name not in drop}
    return probml.model(function, rows=own.generative.chosen)(**settings)


def function_of(subject):
    return written_again.plain_function(subject.model.generative.function)


def numbers(value) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def indices(subject) -> list[str]:
    """Inputs that are codes of groups, all of which have rows."""
    text, out = source(subject), []
    for name, value in columns(subject).items():
        if (isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.ndim == 1
                and re.search(rf"\[[^\]]*\b{name}\b[^\]]*\]", text)
                and value.size and set(np.unique(value)) == set(range(value.max() + 1))
                and f"obs={name}" not in text and value.max() > 0
                and name in inspect.signature(subject.model.generative.function).parameters):
            out.append(name)
    return out


# ---- units -----------------------------------------------------------------------------------------


@kind("parameters × 1e3", 1e3)
@kind("parameters × 1e-6", 1e-6)
def parameters_in_units(by, subject):
    factors: dict[str, float] = {}
    function = written_again.rebound(function_of(subject), written_again.in_units(
        set(columns(subject)), by, factors))
    return twin(subject, model_of(subject, function), factors=factors)


@kind("covariates × 1e3", 1e3)
@kind("covariates × 1e-6", 1e-6)
def covariates_in_units(by, subject):
    data, text = columns(subject), source(subject)
    scaled = [name for name, value in data.items() if numbers(value) and f"obs={name}" not in text
              and name in inspect.signature(subject.model.generative.function).parameters]
    if not scaled:
        raise Unwritten("no covariates")

    def smaller(arguments):
        return {name: value / by if name in scaled and value is not None else value
                for name, value in arguments.items()}

    function = written_again.with_inputs(function_of(subject), smaller)
    return twin(subject, model_of(subject, function),
                {name: value * by if name in scaled else value for name, value in data.items()})


@kind("outcomes × 1e3", 1e3)
@kind("outcomes × 1e-6", 1e-6)
def outcomes_in_units(by, subject):
    data, text = columns(subject), source(subject)
    seen, _, n = rows_of(subject)
    if re.search(r"mask|factor|Truncated|Censored|Interval", text):
        raise Unwritten("cells that are none, or bounds")
    sites = {name for name in seen if numbers(data[name])}
    if lacks_rows(subject.model):
        sites = {name for name in sites if written_again.only_observed(function_of(subject), name)}
    if not sites:
        raise Unwritten("no outcomes with a unit")
    factors: dict[str, float] = {}
    function = written_again.rebound(function_of(subject), written_again.outcomes_in_units(
        sites, by, factors))
    model = model_of(subject, function)
    try:
        model.explain({name: v * by if name in sites else v for name, v in data.items()})
    except Exception:
        pass
    if not factors:
        raise Unwritten("no family with a unit")
    cells = sum((~np.isnan(data[name])).reshape(n, -1).sum(1) for name in factors if name in data)
    return twin(subject, model, {name: v * by if name in factors else v for name, v in data.items()},
                shift=cells * np.log(by), factors=factors)


# ---- order and labels ------------------------------------------------------------------------------


@kind("rows permuted")
def rows_permuted(subject):
    _, names, n = exchangeable(subject)
    order = np.random.default_rng(5).permutation(n)
    weights = None if subject.weights is None else np.asarray(subject.weights)[order]
    back = np.argsort(order)
    return twin(subject, data=_taken(subject, order, names), weights=weights, order=back)


def labelled(subject, make, **more):
    names, data = indices(subject), columns(subject)
    if not names:
        raise Unwritten("no groups")
    if any(name not in names and isinstance(value, np.ndarray) and value.dtype.kind in "iu"
           and re.search(rf"\[[^\]]*\b{name}\b[^\]]*\]", source(subject))
           for name, value in data.items()):
        raise Unwritten("other codes, perhaps of the same groups")
    return twin(subject, data={name: make(value) if name in names else value
                               for name, value in data.items()}, **more)


@kind("groups as strings")
def groups_as_strings(subject):
    return labelled(subject, lambda g: np.array([f"g{k:03d}" for k in range(g.max() + 1)])[g])


@kind("groups with gaps")
def groups_with_gaps(subject):
    return labelled(subject, lambda g: 10 * g + 3)


@kind("groups as nullable integers")
def groups_nullable(subject):
    return labelled(subject, lambda g: pd.array(g, "Int32"))


@kind("groups as small integers")
def groups_small(subject):
    return labelled(subject, lambda g: g.astype(np.uint8))


@kind("groups as floats")
def groups_floats(subject):
    return labelled(subject, lambda g: g.astype(float))


@kind("groups under permuted names")
def groups_permuted(subject):
    def named(g):
        k = g.max() + 1
        return np.array([f"g{j:03d}" for j in np.random.default_rng(1).permutation(k)])[g]
    if ORDERED.search(source(subject)):
        raise Unwritten("groups in an order")
    return labelled(subject, named, sorted=True)


@kind("groups as categories backwards")
def groups_backwards(subject):
    def named(g):
        names = np.array([f"g{k:03d}" for k in range(g.max() + 1)])
        return pd.Categorical(names[g], categories=names[::-1])
    if ORDERED.search(source(subject)):
        raise Unwritten("groups in an order")
    return labelled(subject, named, sorted=True)


# ---- names and statements --------------------------------------------------------------------------


@kind("sites renamed")
def sites_renamed(subject):
    function = written_again.rebound(function_of(subject), written_again.renamed())
    data = columns(subject)
    own = set(inspect.signature(function).parameters)
    return twin(subject, model_of(subject, function),
                {name if name in own else written_again.mirrored(name): value
                 for name, value in data.items()}, renamed=written_again.mirrored)


@kind("arguments turned")
def arguments_turned(subject):
    function = written_again.written(function_of(subject), written_again.TurnedArguments())
    return twin(subject, model_of(subject, function))


@kind("statements exchanged")
def statements_exchanged(subject):
    return twin(subject, model_of(subject, written_again.written(
        function_of(subject), written_again.Swapped())))


# ---- weights and missing cells ---------------------------------------------------------------------


def _taken(subject, order, names):
    return {name: value if name not in names else value.iloc[order] if hasattr(value, "iloc")
            else [value[i] for i in order] if isinstance(value, list | tuple) else value[order]
            for name, value in columns(subject).items()}


def _weights(subject, n):
    return np.ones(n) if subject.weights is None else np.asarray(subject.weights, float)


def _codes(subject, n):
    """Groups by rows: what else is as long as the rows may be read by code, or be its own."""
    if not lacks_rows(subject.model):
        return
    own = function_of(subject)
    known = inspect.getclosurevars(own)
    if n in own.__code__.co_consts or any(
            isinstance(value, np.ndarray | jax.Array) and value.ndim and len(value) == n
            for value in (*known.nonlocals.values(), *known.globals.values())
    ) or re.search(r"arange|range\(len|\.shape\[0\]\)\s*:|for ", source(subject)):
        raise Unwritten("rows by number")


@kind("rows twice at half weight")
def rows_twice(subject):
    _, names, n = exchangeable(subject)
    _codes(subject, n)
    order = np.tile(np.arange(n), 2)
    return twin(subject, data=_taken(subject, order, names), order=np.arange(n),
                weights=_weights(subject, n)[order] / 2)


@kind("weights of 1 as integers")
def integer_weights(subject):
    if subject.weights is not None:
        raise Unwritten("weights")
    return twin(subject, weights=np.ones(exchangeable(subject)[2], int))


@kind("a row of weight 0")
def row_of_no_weight(subject):
    _, names, n = exchangeable(subject)
    _codes(subject, n)
    order = np.r_[np.arange(n), 1]
    return twin(subject, data=_taken(subject, order, names), order=np.arange(n),
                weights=np.where(np.arange(n + 1) < n, _weights(subject, n)[order], 0.0))


def _blank(data, names, rows):
    out = dict(data)
    for name in names:
        value = np.array(np.asarray(data[name]), float)
        value[rows] = np.nan
        out[name] = value
    return out


def _numeric(subject, seen):
    data = columns(subject)
    if not all(isinstance(data[name], np.ndarray) and data[name].dtype.kind in "fiub" for name in seen):
        raise Unwritten("labels")


@kind("a row with nothing observed")
def row_of_nothing(subject):
    seen, names, n = exchangeable(subject)
    _codes(subject, n)
    _numeric(subject, seen)
    order = np.r_[np.arange(n), 1]
    weights = None if subject.weights is None else np.r_[_weights(subject, n), 1.0]
    return twin(subject, data=_blank(_taken(subject, order, names), seen, [n]), order=np.arange(n),
                weights=weights)


@kind("inputs of missing outcomes missing")
def inputs_missing(subject):
    seen, names, n = exchangeable(subject)
    _codes(subject, n)
    _numeric(subject, seen)
    data = columns(subject)
    inputs = [name for name in names if name not in seen and numbers(data[name])]
    if not inputs or n < 6:
        raise Unwritten("no inputs")
    rows = [1, n // 2]
    base = replace(subject, data=_blank(data, seen, rows))
    return twin(subject, data=_blank(base.data, inputs, rows), base=base)


@kind("missing outcomes left out")
def missing_left_out(subject):
    seen, names, n = exchangeable(subject)
    _codes(subject, n)
    _numeric(subject, seen)
    if n < 6:
        raise Unwritten("few rows")
    rows = np.setdiff1d(np.arange(n), [1, n // 2])
    less = replace(subject, data=_taken(subject, rows, names), weights=None if subject.weights is None
                   else _weights(subject, n)[rows])
    return twin(subject, data=_blank(columns(subject), seen, [1, n // 2]), base=less, order=rows)


# ---- types -----------------------------------------------------------------------------------------


def _retyped(subject, change):
    data = columns(subject)
    return {name: change(value) if isinstance(value, np.ndarray) and value.dtype.kind in "fiu" else value
            for name, value in data.items()}


@kind("lists")
def lists(subject):
    return twin(subject, data=_retyped(subject, lambda v: v.tolist()))


@kind("float32")
def floats(subject):
    rounded = _retyped(subject, lambda v: v.astype(np.float32).astype(float) if v.dtype.kind == "f" else v)
    return twin(subject, data=_retyped(replace(subject, data=rounded), lambda v: v.astype(np.float32)
                                       if v.dtype.kind == "f" else v.astype(np.int32)))


@kind("arrays of JAX")
def arrays_of_jax(subject):
    return twin(subject, data=_retyped(subject, jnp.asarray))


@kind("whole numbers as floats")
def whole_as_floats(subject):
    seen, *_ = rows_of(subject)
    data = columns(subject)
    whole = [name for name in seen if isinstance(data[name], np.ndarray) and data[name].dtype.kind in "iub"]
    if not whole:
        raise Unwritten("no whole numbers")
    return twin(subject, data={name: v.astype(float) if name in whole else v for name, v in data.items()})


def _frame(subject):
    data = columns(subject)
    if lacks_rows(subject.model) or any(np.ndim(v) != 1 for v in data.values()):
        raise Unwritten("no table")
    # the order of categories is part of what they say
    return pd.DataFrame({name: getattr(v, "array", v) if isinstance(
        getattr(v, "dtype", None), pd.CategoricalDtype) else np.asarray(v)
        if isinstance(v, np.ndarray) else list(v) for name, v in data.items()})


@kind("a table of odd index")
def odd_index(subject):
    frame = _frame(subject)
    frame.index = np.random.default_rng(0).permutation(len(frame)) // 2
    return twin(subject, data=frame[frame.columns[::-1]])


@kind("pyarrow")
def arrow(subject):
    import pyarrow

    return twin(subject, data=pyarrow.Table.from_pandas(_frame(subject)))


@kind("double")
def double(subject):
    return twin(subject, double=True)


# ---- parts, files, threads -------------------------------------------------------------------------


@kind("half and an update")
def updated(subject):
    _, names, n = exchangeable(subject)
    _codes(subject, n)
    if subject.weights is not None:
        raise Unwritten("weights")
    halves = [_taken(subject, part, names) for part in (np.arange(n // 2), np.arange(n // 2, n))]
    codes = [name for name in indices(subject) if any(len(np.unique(h[name])) <= columns(
        subject)[name].max() for h in halves)]
    if codes:
        raise Unwritten("groups without rows in a half")
    return twin(subject, fit=lambda own: replace(own, data=halves[0]).fit().update(halves[1]))


@kind("saved and loaded")
def saved(subject):
    def fit(own):
        found = own.fit()
        with tempfile.TemporaryDirectory() as folder:
            found.save(Path(folder) / "fit")
            tables = any(isinstance(value, Mapping) for value in dict(own.data).values())
            model = own.model.read(own.data) if tables or lacks_rows(own.model) else own.model
            return probml.load(Path(folder) / "fit", model)
    return twin(subject, fit=fit)


@kind("pickled")
def pickled(subject):
    return twin(subject, fit=lambda own: pickle.loads(pickle.dumps(own.fit())))


@kind("two threads")
def threads(subject):
    def fit(own):
        found: list[Any] = []

        def one():
            try:
                found.append(own.fit())
            except Exception as error:
                found.append(error)

        workers = [threading.Thread(target=one) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        for each in found:
            if isinstance(each, Exception):
                raise each
        return found[-1]
    return twin(subject, fit=fit)
