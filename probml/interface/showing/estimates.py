"""The estimates of a fit, and functions of them, in the units of the user's columns and with their
uncertainty: standard errors of a point (delta method), or mean, standard deviation and quantiles of
a posterior. From these the tables of summaries are built."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from probml.assessment import dimensions
from probml.dataset.frames import shortest
from probml.engines.findings import Finding
from probml.fits.standard_errors import StandardErrors
from probml.interface.showing.summary import P, Table
from probml.numerics.process.libraries import LateModule, pd
from probml.posteriors.units import in_units
from probml.typing import ArrayLike, FitOrEstimator, SiteValues

if TYPE_CHECKING:
    from probml.assessment import reports
else:
    reports = LateModule("probml.assessment.reports")

Z = 1.959963984540054  # of a 95% interval
DIFFERENCE_STEP = 1e-3  # of a central difference, in standard errors


@dataclass(frozen=True, eq=False)
class Quantity:
    """An array of estimates with its uncertainty.

    Attributes:
        columns: name of a column → array; the first are the estimates.
        source: the parameter that it is, or is a function of; "": several.
    """

    columns: Mapping[str, np.ndarray]
    source: str = ""

    @property
    def value(self) -> np.ndarray:
        return next(iter(self.columns.values()))

    @property
    def error(self) -> np.ndarray | None:
        """Standard errors, or posterior standard deviations; None: not computed."""
        return next((self.columns[name] for name in ("Std. Error", "sd") if name in self.columns),
                    None)

    def __getitem__(self, index: Any) -> "Quantity":
        return Quantity({name: column[index] for name, column in self.columns.items()}, self.source)

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> "Quantity":
        """The same entries in another order or shape."""
        return Quantity({name: function(column) for name, column in self.columns.items()},
                        self.source)

    @classmethod
    def concatenated(cls, parts: Sequence["Quantity"], axis: int | None = None) -> "Quantity":
        """Several concatenated along an axis; None: flattened. A column that only some have is NaN
        in the others."""
        names = dict.fromkeys(name for part in parts for name in part.columns)
        return cls({name: np.concatenate([part.columns.get(name, np.full(
            np.shape(part.value), np.nan)) for part in parts], axis) for name in names})

    @classmethod
    def stacked(cls, parts: Sequence["Quantity"]) -> "Quantity":
        """Several as the entries of a new last axis."""
        return cls.concatenated([part.map(lambda column: column[..., None]) for part in parts], -1)


class Estimates:
    """The parameters of a fit, and functions of them, in the units of the user's columns.

    Attributes:
        fit: the fit.
        settings: of its model, by name.
    """

    def __init__(self, fit: FitOrEstimator, errors: bool = True, categories: Mapping | None = None):
        """
        Args:
            errors: compute standard errors (of a point: a Hessian of all rows).
            categories: of sites whose columns have categories: site → a tuple of labels a column.
        """
        self.fit, self.settings = fit, fit.model.bound
        self.categories = dict(categories or {})
        self._with_errors = errors
        self.values = {**fit.params, **in_units(fit.units, fit.params)}
        self._entries = dimensions.named_entries(fit, fit.names)
        self.covered: set[str] = set()  # parameters that a table has, or leaves out on purpose
        self.table_names: dict[str, str] = {}  # parameter, or its entry "w[0]" → its name in tables

    def __contains__(self, name: str) -> bool:
        return name in self.values

    @functools.cached_property
    def _standard_errors(self) -> StandardErrors | None:
        return self.fit._standard_errors if self._with_errors else None

    @functools.cached_property
    def _draws(self) -> Mapping[str, np.ndarray]:
        return reports.draws_in_units(self.fit) if self._with_errors else {}

    @functools.cached_property
    def _given(self) -> SiteValues:
        return reports.posterior_deviations(self.fit) if self._with_errors else {}

    @property
    def posterior(self) -> bool:
        """Whether the fit has a posterior, not a point."""
        return bool(self.fit.belief.varies) and not self.fit.belief.partly

    @property
    def likelihood(self) -> bool:
        """Whether the fit maximised the likelihood alone, so that z and p are valid."""
        return not self.posterior and getattr(self.fit.made_by, "prior", True) is False

    def names(self, name: str, axis: int = 0) -> list:
        """The names of the entries of a parameter along an axis: columns, labels, or 0, 1, …"""
        known = self._entries.get((name, axis))
        return list(known) if known is not None else list(range(self.values[name].shape[axis]))

    def labels(self, site: str, size: int, what: str) -> "pd.Index":
        """An index of the states of a discrete site: its labels, or 0, 1, …"""
        known = self.fit.names.get(site)
        return pd.Index(range(size) if known is None or len(known) != size else known, name=what)

    def columns(self, site: str, size: int, *entries: tuple[str, int]) -> list:
        """The names of the columns of a site or input of rows: the table's, or site[0], …

        Args:
            entries: (parameter, axis) pairs whose entries have the same names, if known.
        """
        known = [self.fit.columns.get(site), *(self._entries.get(entry) for entry in entries)]
        for names in known:
            if names is not None and len(names) == size:
                return list(names)
        return [f"{site}[{i}]" for i in range(size)] if size > 1 else [site]

    def of(self, name: str) -> Quantity:
        """A parameter."""
        self.covered.add(name)
        value = np.asarray(self.values[name])
        columns = reports.estimate_columns(self.fit, name, value, self._draws, self._given) if (
            self._with_errors and self.fit.belief.varies) else {"value": value}
        errors = self._standard_errors
        if errors is not None and not self.fit.belief.exact:
            error = reports.standard_error(self.fit, errors, name, columns.get("sd"))
            columns = {**columns, "sd": error["sd"]}
        return replace(self._renamed(columns, value.shape), source=name)

    def function(self, function: Callable[..., ArrayLike], *names: str,
                 traced: bool = True) -> Quantity:
        """A function of some parameters.

        Args:
            traced: JAX can differentiate it; False: it is in NumPy, and differentiated
                numerically.
        """
        self.covered.update(names)
        x0 = [np.asarray(self.values[name], float) for name in names]
        with jax.enable_x64(True):
            value = np.asarray(function(*x0))
            if not self._with_errors:
                return Quantity({"Estimate": value})
            if self.fit.belief.varies and all(name in self._draws for name in names):
                draws = [np.asarray(self._draws[name], float) for name in names]
                chain_shape = draws[0].shape[:2]
                flat = [draw.reshape(-1, *draw.shape[2:]) for draw in draws]
                results = (jax.vmap(function)(*flat) if traced else
                           [function(*draw) for draw in zip(*flat, strict=True)])
                draw = np.asarray(results).reshape(*chain_shape, *value.shape)
                return self._renamed(reports.summary_of_draws(self.fit, draw), value.shape)
            errors, error = self.fit._standard_errors_by_direction, np.full(value.shape, np.nan)
            if errors is not None and all(name in errors.derivatives for name in names):
                directions = [errors.derivatives[name] for name in names]
                if traced:
                    derivatives = np.asarray(jax.vmap(jax.linearize(function, *x0)[1])(*directions))
                else:
                    derivatives = _differences(function, x0, directions, errors.curvature)
                error = np.sqrt(np.square(errors.root_of(derivatives)).sum(0))
            return self._renamed({"value": value, "sd": error}, value.shape)

    def _renamed(self, columns: SiteValues, shape: tuple) -> Quantity:
        """The columns under their usual names: of a point Estimate and Std. Error."""
        point = "value" in columns
        headings = {"value": "Estimate", "sd": "Std. Error" if point else "sd"}
        renamed = {headings.get(name, name): np.broadcast_to(np.asarray(value, float), shape)
                   for name, value in columns.items() if name != "note"}
        error = renamed.get("Std. Error")
        if error is not None and np.isnan(error).all():
            del renamed["Std. Error"]  # a note of the summary says why
        return Quantity(renamed)

    def called(self, finding: Finding) -> Finding:
        """A finding with the name of its parameter in the tables."""
        name = finding.parameter
        plain_name = dimensions.entry(name, finding.entry, {})
        if plain_name in self.table_names:
            return finding.called(self.table_names[plain_name])
        new_name = dimensions.entry(self.table_names.get(name, name), finding.entry, {
            (self.table_names.get(name, name), axis): own for (param, axis),
            own in self._entries.items()
            if param == name})
        return finding if new_name == plain_name else finding.called(new_name)

    # Tables

    def listed(self, heading: str, labels: Sequence, quantity: Quantity,
               tests: bool | None = None, index: str | None = None) -> Table:
        """A table with a row per estimate: Estimate, Std. Error, interval, and z and p of a maximum
        of the likelihood; of a posterior mean, sd and quantiles.

        Args:
            tests: z, p and the interval; None: where the likelihood alone was maximised.
        """
        columns = {name: np.ravel(column) for name, column in quantity.columns.items()}
        if "Std. Error" in columns and tests is not False:
            value, error = columns["Estimate"], columns["Std. Error"]
            if self.likelihood if tests is None else tests:
                from scipy.stats import norm

                with np.errstate(divide="ignore", invalid="ignore"):
                    z = value / error
                columns |= {"z": z, P: 2 * norm.sf(np.abs(z))}
            columns |= {"2.5%": value - Z * error, "97.5%": value + Z * error}
        rows = pd.MultiIndex.from_tuples(labels) if labels and isinstance(labels[0], tuple) else (
            pd.Index([str(label) for label in labels]))
        frame = pd.DataFrame({name: shortest(column) for name, column in columns.items()},
                             index=rows)
        return Table(heading, frame.rename_axis(index) if index else frame)

    def named(self, heading: str, quantities: Mapping[str, tuple[str, Callable | None]],
              labels: Callable[[str, str, Quantity], list[str]]) -> list[Table]:
        """A table with a row per entry of some parameters, those that the fit has; [] where it has
        none.

        Args:
            quantities: parameter → (its usual name, a transformation to the usual quantity, or
                None).
            labels: (parameter, its usual name, its estimates) → a label for each entry.
        """
        rows: list[str] = []
        parts = []
        for name, (label, function) in quantities.items():
            if name in self:
                quantity = self.of(name) if function is None else self.function(function, name)
                row_labels = labels(name, label, quantity)
                self.table_names |= {dimensions.entry(name, index, {}): word for index, word in zip(
                    np.ndindex(quantity.value.shape), row_labels, strict=True)}
                rows += row_labels
                parts.append(quantity)
        return [self.listed(heading, rows, Quantity.concatenated(parts), tests=False)
                ] if parts else []

    def across(self, heading: str, rows: Sequence, columns: Sequence, quantity: Quantity) -> Table:
        """A two-way table, (rows, columns), errors in parentheses."""
        rows = rows if isinstance(rows, pd.Index) else pd.Index(rows)
        columns = columns if isinstance(columns, pd.Index) else pd.Index(columns)
        if quantity.source and heading:
            self.table_names[quantity.source] = heading
        shape = (len(rows), len(columns))
        errors = quantity.error
        return Table(heading, pd.DataFrame(shortest(np.reshape(quantity.value, shape)), rows,
                                           columns),
                     None if errors is None else pd.DataFrame(np.reshape(errors, shape), rows,
                                                              columns))


def _differences(function: Callable[..., ArrayLike], x0: list[np.ndarray],
                 directions: list[np.ndarray], curvature: np.ndarray) -> np.ndarray:
    """Directional derivatives of a function, (k, *shape), by central differences with a step of a
    thousandth of a standard error, at most a thousandth of the parameters' norm."""
    size = np.sqrt(sum(float((arg**2).sum()) for arg in x0))
    derivatives = []
    for i, curv in enumerate(curvature):
        norm = np.sqrt(sum(float((tangent[i]**2).sum()) for tangent in directions))
        step = DIFFERENCE_STEP * min(curv**-0.5 if curv > 0 else np.inf, size / max(norm, 1e-300))
        up, down = (np.asarray(function(*(arg + side * step * tangent[i] for arg, tangent in zip(
            x0, directions, strict=True)))) for side in (1, -1))
        derivatives.append((up - down) / (2 * step))
    return np.stack(derivatives)


def parameters(estimates: Estimates, heading: str = "Parameters") -> list[Table]:
    """A table with a row per entry of each parameter that no table has yet."""
    labels, parts = [], []
    for name in [name for name in estimates.values if name not in estimates.covered]:
        quantity = estimates.of(name)
        labels += [dimensions.entry(name, index, estimates._entries)
                   for index in np.ndindex(quantity.value.shape)]
        parts.append(quantity)
    if not parts:
        return []
    return [estimates.listed(heading, labels, Quantity.concatenated(parts),
                             tests=False)]


def no_tables(estimates: Estimates) -> list[Table]:
    """No tables: of models with as many parameters as rows, such as kernel densities."""
    estimates.covered.update(estimates.values)
    return []
