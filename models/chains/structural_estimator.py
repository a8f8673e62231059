"""The scikit-learn estimator of structural time series."""

from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from statistics import NormalDist
from typing import ClassVar

import numpy as np
from jax.typing import ArrayLike

from probml import MAP, DataError, Fit, ModelError
from probml.engines.engine import Engine
from probml.errors import counted, listed
from probml.estimators.estimator import absent, best_of
from probml.estimators.information_criteria import criteria
from probml.estimators.rules import (
    ENGINE,
    FLAG,
    SEED,
    Rule,
    Seed,
    check,
    check_count,
    integer,
    number,
    one_of,
    optional,
    parameter,
)
from probml.estimators.validation import check_is_fitted
from probml.interface.model import Model
from probml.models.chains.sequences import OfSequences, Steps, read, stacked
from probml.models.chains.structural import TRENDS, structural_time_series
from probml.posteriors.units import Unit, of_rows
from probml.typing import DataLike

# spreads of trend, seasons and the like that are begun with, as shares of the noise: the likelihood
# of few steps has several maxima, in which one part does another's work
STARTS = (0.3, 0.03, 1.0)


BOUNDS = ("value", "lower", "upper")


def _is_cycle(value: object) -> bool:
    return value is None or isinstance(value, tuple) and len(value) == 2 and all(
        isinstance(bound, int | float) for bound in value) and 2 <= value[0] < value[1]


CYCLE: Rule = ("None, or the shortest and the longest period in steps, at least 2, such as (6, 40)",
               _is_cycle)


@dataclass(eq=False, repr=False)
class StructuralTimeSeries(OfSequences):
    """A level, a trend, seasons, a cycle, that vary and add up, observed with noise; R's StructTS
    and statsmodels' UnobservedComponents. Missing steps are NaN. The model is
    probml.models.structural_time_series.

    X is one series, (n_steps,) or (n_steps, 1), or a list of series of any lengths, which share
    what is learnt, and for which answers are lists too. Exogenous columns of a series, with the
    same coefficients, are `exog`, (n_steps, d), or a list of such. Answers about a Series or a
    DataFrame have its index, or its column of dates, which forecasts continue.

    Args:
        trend: "level", one that wanders (local level); "trend", with a slope that wanders (local
            linear trend); "smooth", of which the slope alone wanders; "still", a constant.
        seasonal: seasons of a year, such as 12 of months; None: none. With trend="trend" it is the
            basic structural model.
        cycle: the shortest and the longest period of a cycle in steps; None: none.
        order: of an autoregression in addition to these.
        first: prior standard deviation of the first level about the mean of the series, in standard
            deviations of all steps; that of the first slope and seasons is a tenth of it.
        prior: posterior mode under half-normal priors of all standard deviations (True) or maximum
            likelihood (False), as the peers.
        n_starts: number of initial values of the standard deviations, at most 3; the best
            result is used.
        random_state: seed of sample(); None is 0.
        engine: an engine's value; by default MAP(prior=prior).

    Attributes:
        variances_: part → variance of what is new in it, in the units of X; noise_, a standard
        deviation; coef_ (d,) of exog; cycle_: period and damping; ar_ (order,), coefficients;
        n_observations_, steps that are not missing; loglik_, natural, with all constants, under
        the proper prior of the first state that `first` says; n_parameters_, aic_, bic_; n_iter_,
        converged_; fit_: the probml Fit, of series in units of their own.

    Cost: as probml.MAP; a pass is O(steps × numbers of the state³).

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> nile = pd.read_csv(files("probml.data") / "nile.csv")
        >>> from probml.models import StructuralTimeSeries
        >>> river = StructuralTimeSeries("level").fit(nile["volume"])
        >>> print(*river.forecast(nile["volume"], 2).round(0))
        798.0 798.0
    """

    _kind: ClassVar[str] = "components"

    trend: str = parameter("level", one_of(*TRENDS))
    _: KW_ONLY
    seasonal: int | None = parameter(None, optional(integer(2)))
    cycle: tuple[float, float] | None = parameter(None, CYCLE)
    order: int = parameter(0, integer(0))
    first: float = parameter(10.0, number(0.0, above=True))
    prior: bool = parameter(False, FLAG)
    n_starts: int = parameter(2, integer(1, 10_000))
    random_state: Seed = parameter(None, SEED)
    engine: Engine | None = parameter(None, ENGINE)

    # Fitting

    def fit(self, X, y=None, exog=None):
        """Learn from a series, or several; y is ignored, present for scikit-learn's convention.

        Raises:
            ModelError, DataError: a parameter, a series or a cell that cannot be used, by name; a
                constant series, or of fewer steps than numbers to learn.
        """
        check(self)
        steps = self._steps(X, None, reset=True)
        values = steps.values[:, 0]
        self._centre, self._unit = np.nanmean(values), np.nanstd(values)
        if not self._unit > 1e-12 * abs(self._centre):
            raise DataError(f"X is {self._centre:g} at every step, so no component can be "
                            f"estimated. Give a series that varies")
        for name, value in (("seasonal", self.seasonal), ("order", self.order)):
            if value and value >= steps.lengths.max():
                raise ModelError(f"StructuralTimeSeries({name}={value}): the longest series of X "
                                 f"has only {counted(steps.lengths.max(), 'step')}. Use a smaller "
                                 f"{name}")
        self._columns(exog, steps)
        model = structural_time_series(
            trend=self.trend, seasonal=None if self.seasonal is None else int(self.seasonal),
            cycle=self.cycle, order=int(self.order), scale=1.0, centre=0.0,
            first=(self.first, self.first / 10, self.first / 10),
            **({} if self._wide else {"x": None}))
        data, engine = self._scaled(steps, exog), self.engine or MAP(prior=bool(self.prior))
        best = best_of(
            partial(model.fit, data, engine, seed=self._seed(), start=self._begin(model, share))
            for share in STARTS[: 1 if self.engine is not None else self.n_starts])
        self.fit_ = replace(best, units=self._parameter_units(best))
        self.n_iter_, self.converged_ = max(best.iterations, 1), best.converged
        self._learn(data, steps)
        return self

    def _check_values(self, values: np.ndarray, sizes: np.ndarray, reset: bool) -> None:
        if values.shape[1] != 1:
            raise DataError(f"X has {counted(values.shape[1], 'column')}, expected one series, "
                            f"shape "
                            f"(n_steps,). Pass other columns as exog=, and several series as a "
                            f"list")
        super()._check_values(values, sizes, reset)

    def _columns(self, exog: DataLike, steps: Steps) -> None:
        """Centres, units and names of exogenous columns."""
        self._wide, self._centre_x, self._unit_x = 0, np.zeros(0), np.ones(0)
        self._names_x: tuple[str, ...] = ()
        if exog is None:
            return
        x = self._read_exog(exog, steps.lengths)
        labels = read(exog, None).labels[0]
        self._names_x = () if labels is None else tuple(map(str, labels.names))
        self._wide, self._centre_x, self._unit_x = x.shape[1], x.mean(0), x.std(0)
        if (constant := ~(self._unit_x > 1e-12 * np.abs(self._centre_x))).any():
            raise DataError(f"column {int(np.argmax(constant))} of exog is the same at every step, "
                            "so its coefficient cannot be estimated separately from the level. "
                            "Drop the column")

    def _read_exog(self, exog: DataLike, lengths: np.ndarray, what: str = "exog") -> np.ndarray:
        """The columns of exog unscaled, the steps of all series one after another."""
        if exog is None:
            raise DataError(f"exog= is missing, but {type(self).__name__} was fitted with it. Pass "
                            f"exog= with the columns of the fit (number of columns: {self._wide})")
        x = read(exog, None)
        n_steps = x.lengths if x.listed else np.array([len(x.values)])
        expected = lengths if x.listed else np.array([lengths.sum()])
        if len(n_steps) != len(expected) or (n_steps != expected).any():
            raise DataError(f"{what} has {listed(n_steps.tolist())} steps, expected "
                            f"{listed(expected.tolist())}. Give {what} one row for each step")
        if not np.isfinite(x.values).all():
            row, j = np.argwhere(~np.isfinite(x.values))[0]
            raise DataError(f"{what} is {x.values[row, j]} in row {row}, column {j}, expected a "
                            "finite number, because missing values are not supported. Fill in the "
                            "value")
        for labels in x.labels:  # of arrays None
            names = self._names_x if labels is None or labels.column else labels.names
            if self._names_x and tuple(map(str, names)) != self._names_x:
                raise DataError(f"{what} has the columns {listed(names)}, but exog of the fit had "
                                f"{listed(self._names_x)}. Pass these columns in this order")
        if self._wide and x.values.shape[1] != self._wide:
            raise DataError(f"{what} has the shape {x.values.shape}, but exog of the fit had the "
                            f"shape (n_steps, {self._wide}). Pass the columns that were given to "
                            "fit")
        return x.values

    def _scaled(self, steps: Steps, exog: DataLike) -> dict[str, ArrayLike]:
        """Series as the data of `fit_`."""
        scaled = (steps.values[:, 0] - self._centre) / self._unit
        data = {"y": stacked(steps.parts(scaled))}
        if self._wide:
            x = (self._read_exog(exog, steps.lengths) - self._centre_x) / self._unit_x
            data["x"] = stacked(steps.parts(x))
        elif exog is not None and hasattr(self, "fit_"):
            raise DataError("exog= is given, but the model was fitted without exog. Omit exog=")
        return data

    def _begin(self, model: Model, share: float) -> dict[str, ArrayLike]:
        """A start: noise of half the series' spread, and a share of it for each part."""
        sites = {name: site for name, site in model.structure.nodes(data=True) if not site["rows"]}
        scales = {name: 0.5 * share * np.ones(2 if name == "trend_scale" and self.trend == "trend"
                                              else ()) for name in sites if name.endswith("_scale")}
        if "trend_scale" in scales:
            scales["trend_scale"] = scales["trend_scale"] * ([1.0, 0.1] if self.trend == "trend"
                                                             else 0.1)
        start = {"sigma": np.asarray(0.5), **scales}
        if self.cycle is not None:
            start |= {"cycle_period": np.sqrt(self.cycle[0] * self.cycle[1]),
                      "cycle_damping": np.asarray(0.9)}
        return start

    def _parameter_units(self, fit: Fit) -> dict[str, Unit]:
        """Spreads in the units of X, and of what a unit of exog adds."""
        point = fit.point
        units = {name: Unit(self._unit) for name in point
                 if name == "sigma" or name.endswith("_scale")}
        if np.ndim(point.get("trend_scale", 0.0)):
            units["trend_scale"] = Unit(self._unit, names={0: ("level", "slope")})
        if "beta" in point:
            names = {0: self._names_x} if self._names_x else {}
            units |= {"beta": Unit(self._unit / self._unit_x, names=names), **of_rows(
                x=(self._centre_x, self._unit_x))}
        parts = {"level": self._centre, "trend": np.array([self._centre, 0.0]), "season": 0.0,
                 "cycle": 0.0, "ar": 0.0}
        return units | of_rows(y=(self._centre, self._unit), **{
            name: (centre, self._unit) for name, centre in parts.items()
            if name in fit.structure.sites})

    def _learn(self, data: dict, steps: Steps) -> None:
        """What was learnt, in the units of X."""
        p, unit = self.fit_.params, self._unit
        names = {"level_scale": "level", "season_scale": "seasonal", "cycle_scale": "cycle",
                 "ar_scale": "autoregression"}
        self.variances_ = {word: float(p[name] * unit) ** 2 for name, word in names.items()
                           if name in p}
        if "trend_scale" in p:
            trend_vars = np.atleast_1d(np.asarray(p["trend_scale"], float) * unit) ** 2
            self.variances_ |= dict(zip(("level", "slope")[-len(trend_vars):], trend_vars.tolist(),
                                        strict=True))
        self.noise_ = float(p["sigma"] * unit)
        self.variances_["noise"] = self.noise_**2
        if "cycle_period" in p:
            self.cycle_ = {"period": float(p["cycle_period"]),
                           "damping": float(p["cycle_damping"])}
        if "ar_coefficients" in p:
            self.ar_ = np.asarray(p["ar_coefficients"], float)
        self.coef_ = np.asarray(p.get("beta", np.zeros(0)), float) * unit / self._unit_x
        self.n_observations_ = n_seen = int((~np.isnan(steps.values)).sum())
        log_prob = float(np.sum(self.fit_.log_prob(data, plug_in=True)))
        self.loglik_ = log_prob - n_seen * np.log(unit)
        ic = criteria(self.loglik_, self.n_parameters_, n_seen)
        self.aic_, self.bic_ = ic["aic"], ic["bic"]

    # Questions

    def as_data(self, X, exog=None):
        """Series as the data of `fit_`: in standard deviations about their mean;
        exogenous columns likewise."""
        return self._of(X, exog)[1]

    def _of(self, X, exog) -> tuple[Steps, dict]:
        check_is_fitted(self, "fit_")
        steps = self._steps(X, None, reset=False)
        return steps, self._scaled(steps, exog)

    predict_proba = absent("predict_proba", "use components(X) and forecast(X)")

    def score(self, X, y=None, exog=None):
        """log p(X), summed over all series, in units of X."""
        steps, data = self._of(X, exog)
        n_seen = (~np.isnan(steps.values)).sum()
        return float(np.sum(self.fit_.log_prob(data, plug_in=True)) - n_seen * np.log(self._unit))

    def components(self, X, exog=None, interval=0.9):
        """The parts of each step given the whole series (smoothed), with bands: part → a DataFrame
        (n_steps) of value, lower, upper; of a list of series a list of such. "level", "slope",
        "seasonal", "cycle", "autoregression", each where the model has it, and "regression"."""
        steps, data = self._of(X, exog)
        z = self._reach(interval, "components")
        bands: dict[str, tuple] = {}
        for site, parts in (("level", ("level",)), ("trend", ("level", "slope")),
                            ("season", ("seasonal",)), ("cycle", ("cycle",)),
                            ("ar", ("autoregression",))):
            if site not in self.fit_.structure.sites:
                continue
            smoothed = self.fit_.conditional(data, site)
            mean, sd = np.asarray(smoothed.mean), np.sqrt(np.asarray(smoothed.variance))
            for i, part in enumerate(parts):
                level = self._centre if part == "level" else 0.0
                bands[part] = (mean[..., i] * self._unit + level, sd[..., i] * self._unit)
        if self._wide:
            x = self._read_exog(exog, steps.lengths) - self._centre_x
            effects = [part @ self.coef_ for part in steps.parts(x)]
            longest = max(map(len, effects))
            value = np.stack([np.pad(part, (0, longest - len(part))) for part in effects])
            bands["regression"] = (value, np.zeros_like(value))
        tables = {part: steps.labelled(_bounds(value, z * sd), BOUNDS, framed=True)
                  for part, (value, sd) in bands.items()}
        if not steps.listed:
            return tables
        return [{part: table[i] for part, table in tables.items()}
                for i in range(len(steps.lengths))]

    def forecast(self, X, steps=1, interval=None, exog=None, future=None):
        """Forecast of the next steps: means (steps,), or with an interval, such as 0.9, a DataFrame
        of value, lower and upper for new observations; for a list of series a list of such. For a
        Series or a DataFrame the dates or row numbers continue.

        Args:
            future: exogenous columns at the steps that follow, (steps, d), or a list of such.
        """
        check_count("forecast", "steps", steps)
        sequences, data = self._of(X, exog)
        exog_data = {}
        if self._wide:
            if future is None:
                raise DataError("forecast(future=None): the model was fitted with exog. Pass the "
                                "values of exog at the forecast steps, future=array, of shape "
                                f"({int(steps)}, {self._wide})")
            x = self._read_exog(future, np.full(len(sequences.lengths), int(steps)), "future")
            exog_data["x"] = ((x - self._centre_x) / self._unit_x).reshape(len(sequences.lengths),
                                                                      int(steps), -1)
        elif future is not None:
            raise DataError("forecast: future= is given, but the model was fitted without exog. "
                            "Omit future=")
        if interval is not None:
            self._reach(interval, "forecast")
        answer = self.fit_.forecast(data, steps=int(steps), plug_in=True, interval=interval,
                                    **exog_data)["y"]
        bands = [np.asarray(part) * self._unit + self._centre
                 for part in (answer if interval is not None else (answer,))]
        if interval is None:
            return sequences.ahead(bands[0])
        return sequences.ahead(_bounds(bands[0], bands[2] - bands[0]), BOUNDS, framed=True)

    def impute(self, X, exog=None):
        """X with its missing steps at their mean given the whole series."""
        steps, data = self._of(X, exog)
        filled = np.asarray(self.fit_.impute(data)["y"]) * self._unit + self._centre
        parts = self._filled(steps, filled)
        if steps.listed:
            return [part[:, 0] for part in parts]
        return parts[0].reshape(np.shape(steps.tables[0]))

    def sample(self, n_steps=1, random_state=None):
        """A new series, (n_steps,), of a model without exogenous columns."""
        check_is_fitted(self, "fit_")
        check_count("sample", "n_steps", n_steps)
        if self._wide:
            raise DataError("sample is not supported for a model with exog. Use "
                            "estimator.fit_.simulate(1, steps=n, x=...), with the future exog in "
                            f"the shape (1, n, {self._wide}) as x=. Standardise it, (value − mean) "
                            "/ sd of the fitted exog; the result is standardised, too")
        simulated = self.fit_.simulate(rows=1, steps=int(n_steps),
                                       seed=self._seed(random_state, "sample"))["y"][0]
        return np.asarray(simulated) * self._unit + self._centre

    @staticmethod
    def _reach(interval: float | None, where: str) -> float:
        """Half the width of a normal's interval, in standard deviations."""
        if not (isinstance(interval, float) and 0 < interval < 1):
            raise ModelError(f"{where}(interval={interval!r}): expected a probability between 0 "
                             f"and 1, such as 0.9")
        return NormalDist().inv_cdf(0.5 + interval / 2)


def _bounds(value: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Value, lower and upper bound of each step, (..., 3)."""
    return np.stack([value, value - half, value + half], -1)
