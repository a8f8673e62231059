"""What users are told: an ill-formed model, a refusal, data that do not fit."""

import difflib
import reprlib
from collections.abc import Collection, Iterable, Mapping
from numbers import Number
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")
MAX_VALUE_CHARACTERS = 80  # characters of one value in a message


class ModelError(ValueError):
    """A model, or a setting of it, that cannot be used: what, where, expected, got, what to do."""


SUCH = ", such as {engines}"  # in a refusal: where the engines that may do instead are named


class Refusal(ModelError):
    """An engine cannot fit a model with these data: the site, the reason, and what to type instead.

    Args:
        why: the site and the reason; SUCH stands where `instead` is to be named.
        instead: the names of engines that may treat it, the best first.
    """

    def __init__(self, why: str, instead: Iterable[str] = ()):
        super().__init__(why, *([tuple(instead)] if instead else []))

    def __str__(self) -> str:
        calls = [f"{name}()" for name in self.instead]
        said = " or ".join([", ".join(calls[:-1])] * (len(calls) > 1) + calls[-1:])
        why = str(self.args[0])
        why += f". Use another engine{SUCH}" * (SUCH not in why and bool(calls))
        return why.replace(SUCH, f", such as {said}" * bool(calls))

    @property
    def instead(self) -> tuple[str, ...]:
        return self.args[1] if len(self.args) > 1 else ()

    def offering(self, names: Iterable[str]) -> "Refusal":
        """The same, with other engines to try."""
        return Refusal(self.args[0], tuple(names))


MARK_ROWS = ("Write `with probml.rows():` instead of the numpyro.plate of the rows, and "
             "probml.MarkovChain or probml.GaussianChain instead of a scan")


class DataError(ValueError):
    """Data that the model cannot take: what and where, expected and got, what to do."""


class ConvergenceWarning(UserWarning, RuntimeWarning):
    """The warning for an optimisation that stopped before it converged, or that has no maximum. It
    is also a RuntimeWarning, for filters of earlier versions."""

    kind: ClassVar[type["ConvergenceWarning"]]  # what is issued; estimators refine it


ConvergenceWarning.kind = ConvergenceWarning


class ReliabilityWarning(UserWarning):
    """The warning for a result that may be wrong although its computation ended normally: estimates
    at a boundary, parameters that are not identified, draws that do not represent the posterior."""


class KindError(DataError, TypeError):
    """A cell of a kind that is no number and no label; what checks of estimators look for, too."""


class RowError(DataError):
    """What is wrong with one row, whose number among more rows may be another.

    Args:
        before, row, after: the message is before + "row " + the number + after.
    """

    def __init__(self, before: str, row: int, after: str):
        super().__init__(before, row, after)

    def __str__(self) -> str:
        before, row, after = self.args
        return f"{before}row {row}{after}"

    def behind(self, first: int) -> "RowError":
        """The error with the number of the row among all, `first` of which come before these."""
        before, row, after = self.args
        return RowError(before, row + first, after)


def meant(name: str, known: Iterable[str],
          elsewhere: Mapping[str, str] = MappingProxyType({})) -> str:
    """A hint at the end of the error for an unknown name: the word for it here, if it is another
    library's; else known names that are spelt alike; or nothing.

    Args:
        elsewhere: a word of another library → what does it here.
    """
    if name in elsewhere:
        return f". In probml use {elsewhere[name]}"
    spelt = {own.lower(): own for own in known}
    close = [spelt[own] for own in difflib.get_close_matches(name.lower(), list(spelt), 3, 0.7)]
    return f". Did you mean {' or '.join(close)}?" if close else ""


def name_in_function(name: str, names: Collection[str]) -> str:
    """The name that a function gives a site: of one with obs_mask= NumPyro makes two, 'x_observed'
    and 'x_unobserved'.

    Args:
        names: of all sites.
    """
    base = name.removesuffix("_observed").removesuffix("_unobserved")
    return base if {f"{base}_observed", f"{base}_unobserved"} <= {*names} else name


def listed(names: Iterable, between: str = ", ") -> str:
    """Names in a message, the first twelve: 'a', 'b'; "none" where there are none."""
    names = list(names)
    more = f", … ({len(names)} in all)" if len(names) > 12 else ""
    return (between.join(map(shortly, names[:12])) or "none") + more


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun in a message: "1 row", "1,200 rows"; `plural` where it is not the noun
    and an s, as of "entry", or of "row is"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def shortly(value: Any) -> str:
    """A value in a message, its beginning, in a line."""
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        value = value if value.dtype.kind in "mM" else value.item()  # 0.5, not np.float64(0.5)
    said = " ".join(line.strip() for line in repr(value).splitlines())  # of arrays and tables
    return said if len(said) <= MAX_VALUE_CHARACTERS else f"{said[:MAX_VALUE_CHARACTERS]} …"


def type_of(value: object) -> str:
    """The type of a value in a message: "a list", "an int"."""
    name = type(value).__name__.removeprefix("nd")
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def described(value: object) -> str:
    """A value in a message: its beginning, or its type where that says more, as of a table."""
    plain = isinstance(value, str | bytes | Number | Collection) or value is None
    return reprlib.repr(value) if plain and not getattr(value, "shape", ()) else type_of(value)


def describe_dates(what: str, kind: object) -> str:
    """The message about dates or times, which become numbers only by the choice of a unit."""
    return (f"{what} contains dates or times ({kind}), which are not numbers. Convert them to "
            f"numbers, such as (column - column.min()) / pandas.Timedelta(days=1)")


def present(value: T | None) -> T:
    """The value itself, of which its type alone does not say that it is there."""
    assert value is not None
    return value


def untraced(what: str, value: object) -> None:
    """
    Args:
        value: an array, or a pytree of arrays.

    Raises:
        ModelError: jax.jit, vmap or grad traces it, so that it has no numbers to be checked.
    """
    import jax  # by what is called with numbers: the command line's help comes without

    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value)):
        raise ModelError(f"{what} is traced by jax.jit, vmap or grad (has no values yet), but "
                         f"fits and predictions need concrete arrays. Call them outside; they are "
                         f"compiled already, and take many rows at once. Inside jit or grad, use "
                         f"fit.params or numpyro.infer.util.log_density(model, ...)")
