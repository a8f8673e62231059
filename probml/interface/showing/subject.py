"""The subject of a report: a fit, the name of its model, and the user's table.

It is made by `of_fit` for a fit of a user's function, and by `Portable._subject` for an estimator.
The page and its pictures read nothing else, so that both have the same page.
"""

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from probml.assessment.pages.html import PICTURES
from probml.dataset import dataset
from probml.dataset.described import Column, described
from probml.dataset.frames import as_pandas
from probml.errors import DataError, ModelError
from probml.interface.showing.summaries import summarize
from probml.interface.showing.summary import Summary
from probml.queries.fitted import Fitted
from probml.typing import SiteValues

LIBRARY_PREFIX = "probml."
TITLES = {"network": "Bayesian network", "hidden_markov": "Hidden Markov model",
          "latent_dirichlet": "Latent Dirichlet allocation"}
PROPER = {"gaussian": "Gaussian", "bayes": "Bayes", "bayesian": "Bayesian", "markov": "Markov",
          "poisson": "Poisson", "fisher": "Fisher", "parzen": "Parzen", "pca": "PCA", "svm": "SVM"}


@dataclass(frozen=True, eq=False)
class Subject:
    """The fit, model and table of a report.

    Attributes:
        fit: the fit. title: its model in words, such as "Gaussian mixture".
        fitted: the argument of pictures: the estimator, or the fit.
        rows: their further arguments: (X, y), or the data of a fit; () where there are none.
        given: the rows as data of the function; None where there are none. data: the same, read.
        columns: of the user's table. table: its name, "" where it has none.
        unit: the word for one row of it.
        names: site → the names of the columns that it came from. categories: site → the categories
            of each of these.
        summary: returns the summary.
        choice: a table of criteria over a range of settings, such as numbers of components.
    """

    fit: Fitted
    title: str
    fitted: object
    summary: Callable[[], Summary]
    rows: tuple = ()
    given: Any = None
    data: dataset.Data | None = None
    columns: Sequence[Column] = ()
    table: str = ""
    unit: str = "row"
    names: Mapping[str, tuple] = field(default_factory=dict)
    categories: Mapping[str, Sequence] = field(default_factory=dict)
    choice: Any = None

    @property
    def headline(self) -> str:
        """Such as "Gaussian mixture of faithful.csv"."""
        return f"{self.title} of {self.table}" if self.table else self.title

    @property
    def size(self) -> str:
        """Such as "112 time steps"."""
        return count_words(max((column.rows for column in self.columns), default=0), self.unit)

    def pictures(self) -> list[tuple[str, str, str]]:
        """(title, SVG, caption) of the pictures of this kind of model, the most important first;
        none without matplotlib."""
        try:
            return importlib.import_module(PICTURES).draw_pictures(self)
        except ImportError:  # of matplotlib
            return []


def of_fit(fit: Fitted, data: object = None, name: str | None = None) -> Subject:
    """The subject of a fit of a function."""
    parsed = fit.data if data is None else fit._read(data)
    is_library = fit.model.generative.__module__.startswith(LIBRARY_PREFIX)
    title = words_of_name(fit.model.name) if is_library else fit.model.name
    steps = bool(fit.structure.markov) or (parsed is not None and parsed.steps is not None)
    return Subject(fit, title, fit, partial(summarize, fit),
                   () if data is None else (data,), data, parsed,
                   () if data is None else described(data), name_of(name, data),
                   "time step" if steps else "row")


def words_of_name(name: str) -> str:
    """A name of code as words: GaussianMixture and gaussian_mixture are "Gaussian mixture"."""
    if name in TITLES:
        return TITLES[name]
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)
    text = " ".join(PROPER.get(word.lower(), word.lower()) for word in words)
    return text[:1].upper() + text[1:]


def count_words(count: int, unit: str) -> str:
    """Such as "1 row" or "1,200 rows"."""
    return f"{count:,} {unit}{'' if count == 1 else 's'}"


def name_of(name: str | None, *tables: object) -> str:
    """The name of a table: the one that is given, or `attrs["name"]` of a DataFrame.

    Raises:
        ModelError: a name that is no text.
    """
    if not isinstance(name, str | None):
        raise ModelError(f"report(name={name!r:.80}): expected the name of the table as text, such "
                         f"as 'faithful.csv', or None")
    if name is not None:
        return name
    for table in tables:
        frames = list(table.values()) if isinstance(table, Mapping) else [table]
        for frame in frames:
            attrs = getattr(frame, "attrs", None)
            if isinstance(attrs, Mapping) and isinstance(attrs.get("name"), str):
                return attrs["name"]
    return ""


def columns_of(rows: SiteValues) -> list[Column]:
    """The columns of the arguments of an estimator's fit, argument → values: those of X, then y and
    the others."""
    columns = []
    for argument, values in rows.items():
        if values is None:
            continue
        new = describe_argument(argument, values)
        columns += new if argument == "X" else [
            column._replace(name=f"{column.name} ({ROLES[argument]})")
            if argument in ROLES else column for column in new]
    return columns


def describe_argument(argument: str, values: object) -> list[Column]:
    """The columns of an argument.

    Raises:
        DataError: it is no table.
    """
    try:
        return described(as_pandas(values), "column" if argument == "X" else argument)
    except (TypeError, ValueError) as error:
        raise DataError(f"report({argument}=...): the {type(values).__name__} cannot be read as "
                        f"rows ({error}). Pass a table, an array or a mapping from names to "
                        "arrays") from None


ROLES = {"y": "target", "sample_weight": "weights", "offset": "offset", "trials": "trials",
         "exog": "covariate", "lengths": "lengths of sequences"}
