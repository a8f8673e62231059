"""The modelling language: a generative function bound to its settings, and `rows()`, the plate of
exchangeable rows."""

import contextlib
import contextvars
import functools
import hashlib
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from types import CodeType
from typing import Any

import jax
import numpy as np
import numpyro
from numpyro.primitives import Messenger

from probml.errors import ModelError, listed, untraced
from probml.language.fingerprint import fingerprint, nested_code, read_of_object, written_names
from probml.language.named_rows import Nested, RowPlate, Tables
from probml.language.settings import describe_setting, freeze, stable, thaw, words_of
from probml.numerics.identity import digest
from probml.numerics.process.shared_changes import assigned
from probml.typing import ArrayLike

_ROWS: contextvars.ContextVar[int | Tables | Nested | None] = contextvars.ContextVar(
    "rows", default=None
)
_STEPS: contextvars.ContextVar[tuple[int | None, bool]] = contextvars.ContextVar(
    "steps", default=(None, False)
)


LONGEST = 2**31 - 1  # rows, steps or draws; more have no index in JAX


class RowsUnknown(ModelError):
    """rows() was called where the number of rows is unknown; so the function does call it."""


def rows(name: str | None = None, of: str | None = None, by: str | None = None) -> numpyro.plate:
    """The plate of exchangeable rows; its size comes from the data (or from `rows=` when
    simulating).

    Args:
        name: of the table whose rows these are, where the data are several tables, name → table.
        of: another table, to whose rows these belong: their sites read that one's by an input of
            this table that is an index, as in `a[patient]`.
        by: the name of that input, which is a column of both tables; None: the one that is.

    Returns:
        numpyro.plate: named "rows"; inside it every site gets one value a row.

    Raises:
        RowsUnknown: outside a call of a bound model, where the number of rows is unknown.
        ModelError: of another table, where the data are one.
    """
    size = _ROWS.get()
    if size is None:
        raise RowsUnknown(
            "rows() needs the number of rows. Call the decorated function with its settings first, "
            "and the result with the number of rows, f(k=3)(rows=100, **inputs)"
        )
    if isinstance(size, Tables | Nested):
        return size.plate(name, of, by)
    if of is not None:
        raise ModelError(
            f"rows('{name}', of='{of}') needs several tables. To fit, give the data as a "
            f"mapping of tables, {{'{of}': {{...}}, '{name}': {{...}}}}. To call the model without "
            f"data, give the number of rows of each, such as model(rows={{'{of}': 3, '{name}': 7}})"
        )
    return RowPlate("rows", size)


def in_tables() -> bool:
    """Whether a function is run as it is written, with several tables."""
    return isinstance(_ROWS.get(), Tables)


def check_steps(steps: object, where: str) -> int | None:
    """A number of steps, checked; None stays None."""
    if steps is None or (isinstance(steps, int | np.integer) and not isinstance(steps, bool)
                         and 1 <= steps <= LONGEST):
        return None if steps is None else int(steps)
    raise ModelError(f"{where}(steps={steps!r}): expected an integer of at least 1, and at most "
                     f"{LONGEST:,}")


def check_seed(seed: Any, where: str) -> int:
    """A seed, checked: the same bits come of a whole number of at least 0; a NumPy generator gives
    its next number; jax.random.key(seed) is the seed."""
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**31 - 1))
    if isinstance(seed, np.random.RandomState):
        return int(seed.randint(2**31 - 1))
    if isinstance(seed, jax.Array):
        untraced(f"{where}(seed=...)", seed)
        if jax.dtypes.issubdtype(seed.dtype, jax.dtypes.prng_key):
            seed = jax.random.key_data(seed)
        if seed.shape == (2,) and seed.dtype == np.uint32:
            high, low = map(int, np.asarray(seed))
            return (high << 32 | low) % 2**63
    if (isinstance(seed, int | np.integer) and not isinstance(seed, bool)
        and 0 <= seed < 2**63):
        return int(seed)
    raise ModelError(f"{where}(seed={seed!r}): expected an integer of at least 0, a JAX key, or a "
                     f"NumPy generator")


def resolve_steps(declared: int | None, kind: str) -> int:
    """The number of steps of a chain: `declared`, else that of the enclosing chain_length_scope.

    Raises:
        ModelError: neither is known.
    """
    scope_steps, overrule = _STEPS.get()
    if scope_steps is not None and (declared is None or overrule):
        return scope_steps
    if declared is None:
        raise ModelError(f"the number of time steps of a {kind} is unknown. A fit takes it from "
                         f"the data if the {kind} is inside `with probml.rows():`, where each row "
                         f"is a sequence. Otherwise write {kind}(..., steps=10). To simulate, "
                         "write model.simulate(rows, steps=10)")
    return int(declared)


def chain_length_scope(steps: int | None,
                       overrule: bool = False) -> contextlib.AbstractContextManager[None]:
    """Within it, chains that state no length have `steps`; with `overrule`, all chains."""
    return assigned(_STEPS, (steps, overrule))


def unwrapped(function: Callable) -> Callable:
    """The function or method as it was written, under handlers such as reparam and
    functools.partial; of an object that can be called, its `__call__`."""
    while not inspect.isfunction(function) and not inspect.ismethod(function):
        names = ("fn", "func") if isinstance(function, Messenger | functools.partial) else (
            "__wrapped__", "__call__")
        attributes = (getattr(function, name, None) for name in names)
        inner = next((value for value in attributes
                      if callable(value) and not isinstance(value, types.MethodWrapperType)), None)
        if inner is None:
            return function
        function = inner
    return function


def codes_of(function: Callable) -> Iterable[CodeType]:
    """The code of a function, and of those inside it; none of a callable that is no function."""
    code = getattr(unwrapped(function), "__code__", None)
    return () if code is None else nested_code(code)


def mentions_rows(function: Callable) -> bool:
    """Whether the code of a function, or of one inside it, speaks of `rows`."""
    return any("rows" in code.co_names for code in codes_of(function))


def _names_around(function: Callable) -> dict[str, object]:
    """The values that a function reads by name from its module, its closure and, of a method, its
    object."""
    function = unwrapped(function)
    values = {name: function.__globals__[name] for name in function.__code__.co_names
              if name in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a cell not yet filled
            values[name] = cell.cell_contents
    attributes = read_of_object(function) if inspect.ismethod(function) else {}
    return values | {f"self.{name}": value for name, value in attributes.items()}


PLAIN = int | float | str | bool | np.ndarray | np.generic | jax.Array


def _context(function: Callable) -> tuple:
    """The plain values (numbers, strings, arrays) that a function reads from its module or its
    closure: part of a model's identity."""
    return tuple((name, freeze(value, name))
                 for name, value in sorted(_names_around(function).items())
                 if isinstance(value, PLAIN))


def _helpers(function: Callable) -> dict[str, CodeType]:
    """The code of the functions that a function reads by name, wherever it stands in its file."""
    return {name: value.__code__.replace(co_firstlineno=1)
            for name, value in _names_around(function).items()
            if isinstance(value, types.FunctionType)}


class Bound:
    """A generative function with its settings bound: immutable, hashable, picklable, callable in
    NumPyro's handlers.

    Two are equal when what their functions do (fingerprint.py) and their settings are equal, so
    that building a model twice, or running its cell again, re-traces and re-compiles nothing.
    `generative` is what the decorator made of the function: it has `function`, names, the names of
    its `arguments`, `run`, which calls the function, and `key`, how it is read; `is_joint` says
    that all of it is one density, of one row, `found` that its rows are a plate of its own, `batch`
    how many of them it wants at a time.
    """

    def __init__(self, generative: Any, settings: tuple, interventions: tuple = ()):
        self.generative, self.settings, self.interventions = generative, settings, interventions
        self.context = _context(generative.function)
        self.helpers = _helpers(generative.function)
        chosen = getattr(generative, "chosen", None)
        self.code = (fingerprint(generative.function), generative.key if chosen is None else (
            chosen, *generative.key), *map(fingerprint, filter(None, [self.identified_by])))
        self._hash = hash((self.code, settings, interventions, self.context))

    @property
    def identified_by(self) -> Callable | None:
        """The identified quantities that the model declares; see Generative.identifies."""
        return getattr(self.generative, "identified_by", None)

    @property
    def name(self) -> str:
        """The name of the generative function."""
        return self.generative.__name__

    @property
    def bound(self) -> dict[str, Any]:
        """The settings by name, as they were given."""
        return {name: thaw(value) for name, value in self.settings}

    @functools.cached_property
    def renamed(self) -> dict[str, str]:
        """Names that parameters had before → their names now (renamed.py)."""
        former = getattr(self.generative, "former", None)
        new_names = {} if former is None else former(self.bound)
        return {old: new for old, new in new_names.items() if old not in self.inputs}

    @property
    def identity(self) -> str:
        """The function's name and a digest of its settings, the same in every process."""
        parts = (self.settings, self.interventions) if self.interventions else self.settings
        return f"{self.name}:{hashlib.sha256(repr(stable(parts)).encode()).hexdigest()}"

    @functools.cached_property
    def portable(self) -> str:
        """The digest of what makes two models equal, the same in every process.

        Raises:
            Nameless: the function, or what it reads, is not read by value.
        """
        return digest(self.code, self.settings, self.interventions, self.context)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the covariates: arguments that no setting binds."""
        bound = {name for name, _ in self.settings}
        return tuple(name for name in self.generative.arguments if name not in bound)

    @property
    def is_joint(self) -> bool:
        """Whether all that is seen is one row, as of a function that names no rows."""
        return self.generative.is_joint

    @property
    def batch(self) -> int | None:
        """The rows of a batch that the function itself asks for, as by subsample_size."""
        return self.generative.batch

    @property
    def plain(self) -> "Bound":
        """The model without interventions."""
        self.check_context()
        return type(self)(self.generative, self.settings)

    def __hash__(self):
        return self._hash

    def __eq__(self, other: object):
        if not isinstance(other, Bound) or self._hash != other._hash:
            return False
        mine, theirs = ((m.code, m.settings, m.interventions, m.context) for m in (self, other))
        return mine == theirs

    def __repr__(self):
        text = (
            f"{self.name}({', '.join(f'{key}={words_of(value)}' for key, value in self.settings)})"
        )
        return text + (
            f".do({dict((name, thaw(value).tolist()) for name, value in self.interventions)})"
            if self.interventions else ""
        )

    def __reduce__(self):
        if "<locals>" in self.generative.__qualname__ or "<lambda>" in self.generative.__qualname__:
            raise ModelError(
                f"model '{self.name}' is defined inside a function "
                f"({self.generative.__qualname__}), so pickle cannot import the function. Define "
                f"it at the top level of a module"
            )
        return type(self), (self.generative, self.settings, self.interventions)

    def __copy__(self) -> "Bound":
        return self  # immutable

    def __deepcopy__(self, memo: dict) -> "Bound":
        return self

    def __call__(self, rows: int | Mapping[str, int] | None = None, **inputs: ArrayLike) -> object:
        """Run the plain generative function, inside any NumPyro handlers.

        Args:
            rows: the size of `probml.rows()`; by default the leading axis of the inputs. Of several
                tables the size of each, name → size.
            **inputs: the covariates, rows first; of a function written for NumPyro also what it
                observes, an argument that is None else.

        Raises:
            ModelError: no rows and no inputs; an input is missing or unknown.
        """
        unset = {name for name, value in self.bound.items() if value is None}
        self.check_inputs({name: array for name, array in inputs.items() if name not in unset})
        self.check_context()
        if rows is None and inputs:
            lengths = {name: np.shape(value)[0] for name, value in inputs.items() if np.ndim(value)}
            rows = next(iter(lengths.values()), None)
        with row_scope(
            Tables(rows) if isinstance(rows, Mapping) else rows
        ), _Intervene(self.interventions) if self.interventions else contextlib.nullcontext():
            return self.generative.run(self.bound, inputs, rows)

    def check_context(self) -> None:
        """What is known of a model was read when it was bound, and the function reads what is there
        when it runs: both must be the same.

        Raises:
            ModelError: a value or a function that the model's function reads from around it has
                changed since.
        """
        function = self.generative.function
        before, now = dict(self.context), dict(_context(function))
        written = written_names(unwrapped(function).__code__)  # a count of its own runs, say
        same = {name: name in now and ((now[name],) == (value,) or repr(now[name]) == repr(value))
                for name, value in before.items()}  # NaN is itself
        for name in (name for name in before if name not in written and not same[name]):
            texts = [words_of(values[name]) if name in values else "undefined or not a plain value"
                     for values in (before, now)]
            raise ModelError(
                f"model '{self.name}': '{name}', a variable outside its function, was {texts[0]} "
                f"when the model was built and is {texts[1]} now. A model must not change. Build "
                f"it again, {self.name}(...), or make '{name}' a setting, an argument with a "
                f"default"
            )
        helpers = _helpers(function)
        for name, code in self.helpers.items():
            if name not in written and helpers.get(name) != code:
                raise ModelError(
                    f"model '{self.name}': the function '{name}', which the model calls, has "
                    f"changed since the model was built. Build the model again, {self.name}(...)"
                )

    @property
    def at_default(self) -> tuple[str, ...]:
        """The settings that have their default values."""
        defaults = getattr(self.generative, "defaults", {})
        return tuple(name for name, value in self.settings
                     if name in defaults and defaults[name] == value)

    def check_inputs(self, inputs: Mapping[str, jax.Array]) -> None:
        """
        Raises:
            ModelError: an input is missing, or there is none of that name.
        """
        missing = [name for name in self.inputs if name not in inputs]
        unknown = [name for name in inputs if name not in self.inputs]
        if unknown and self.bound.get(unknown[0]) is not None:
            raise ModelError(describe_setting(self.name, unknown[0], self.bound[unknown[0]]))
        if unknown:
            raise ModelError(f"model '{self.name}' has no input '{unknown[0]}'. Use its inputs, "
                             f"{listed(self.inputs)}")
        if missing:
            raise ModelError(
                f"model '{self.name}' needs a value of '{missing[0]}'. Give it as a setting when "
                f"you build the model, {self.name}({missing[0]}=...), or here as an input with one "
                f"value per row, {missing[0]}=[...]"
            )


class _Intervene(Messenger):
    """Makes the sites of an intervention constants, so that nothing is learnt from them about their
    parents."""

    def __init__(self, interventions: tuple):
        super().__init__()
        self.values = {name: thaw(value) for name, value in interventions}

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "sample" and msg["name"] in self.values:
            shape = msg["fn"].batch_shape + msg["fn"].event_shape
            msg["value"] = jax.numpy.broadcast_to(jax.numpy.asarray(self.values[msg["name"]]),
                                                  shape)
            msg["type"] = "deterministic"


def row_scope(size: int | Tables | Nested | None) -> contextlib.AbstractContextManager[None]:
    """Within it rows() has so many members, or those of several tables."""
    return assigned(_ROWS, size)
