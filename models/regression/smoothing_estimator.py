"""The scikit-learn estimator of smooth curves, their smoothness chosen by evidence."""

from collections.abc import Collection, Iterable
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import ClassVar

import numpy as np
from jax.typing import ArrayLike

from probml import DataError, Exact, Fit, ModelError
from probml.errors import counted, listed
from probml.estimators.estimator import absent
from probml.estimators.rules import (
    ANY,
    Rule,
    one_of,
    parameter,
    sizes,
)
from probml.interface.showing.estimates import Estimates
from probml.interface.showing.summary import Table
from probml.models.regression import evidence
from probml.models.regression.from_moments import FLAT_PRIOR_SD, NOISE, FromMoments, is_scale
from probml.models.regression.moments import few_rows
from probml.models.regression.smoothing import design, smooth_moments, smoothing
from probml.models.summaries.regressions import spline_tables
from probml.numerics.process.libraries import pd
from probml.posteriors.units import Unit, of_rows

LAM: Rule = ("None or numbers above 0",
             lambda v: v is None or is_scale(v) and not isinstance(v, str))


@dataclass(eq=False, repr=False)
class SmoothingSpline(FromMoments):
    """Smooth curves, y = b + Σ_j f_j(x_j) + noise, their smoothness and the noise chosen by log
    evidence (REML).

    The model is probml.models.smoothing: cubic B-splines with a Gaussian prior against curvature,
    what mgcv's gam(y ~ s(x), method="REML") fits. Straight lines are not penalised. Columns with
    fewer than 4 distinct values enter as lines. Beyond the values that were fitted a curve goes on
    as the straight line that touches it there.

    Args:
        knots: interior knots of every curve, or one number for each column; more only cost time,
            the prior smooths.
        penalty: "curvature": ∫ f''², knots at quantiles (a smoothing spline on few knots);
            "differences": second differences of the coefficients, equal distances (a P-spline).
        linear: columns that enter as straight lines, by name or index.
        lam: λ of |y − f|² + λ · penalty; None: chosen; or known, one number or one for each curve.
            x is in units of its range in ∫ f''².
        noise: σ in units of y; None: chosen.

    Attributes:
        lam_ (curves,), noise_: σ; edf_: effective degrees of freedom, the intercept and lines
        included; log_evidence_: the restricted log likelihood; intercept_: mean of y; design_: the
        basis; moments_; fit_: the probml Fit.

    Cost: one pass, about 20 operations a row and pair of columns; then O(d³) of the d columns of
        the basis.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> mcycle = pd.read_csv(files("probml.data") / "mcycle.csv")
        >>> from probml.models import SmoothingSpline
        >>> curve = SmoothingSpline(knots=20).fit(mcycle[["times"]], mcycle["accel"])
        >>> print(curve.predict(mcycle[["times"]][40:41]).round(-1))
        [-50.]
    """

    _kind: ClassVar[str] = "smooth"

    knots: int | ArrayLike = parameter(20, sizes(1))
    _: KW_ONLY
    penalty: str = parameter("curvature", one_of("curvature", "differences"))
    linear: Collection | None = parameter((), ANY)
    lam: ArrayLike = parameter(None, LAM)
    noise: float | None = parameter(None, NOISE)

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and y (n,).

        Args:
            sample_weight: (n,), how many times each row counts; knots do not depend on it.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell or a weight that cannot be used,
                by name.
        """
        X, y, weights = self._read(X, y, sample_weight)
        d = X.shape[1]
        if np.shape(self.knots) not in ((), (d,)):
            raise ModelError(f"SmoothingSpline(knots={self.knots!r}): expected one number, or "
                             f"a list with one number for each column ({d})")
        self.design_ = design(X, self.knots, self.penalty, self._lines(d), weights)
        groups = self.design_.groups
        size = sum(map(len, groups))
        rows = float(len(y) if weights is None else weights.sum())
        if rows <= d + 1 and (self.noise is None or len(y) == 1):
            raise DataError(f"{'n_samples=' if weights is None else 'the sample weights sum to '}"
                            f"{rows:g}: an intercept and a slope for each column need more than "
                            f"{counted(d + 1, 'row')}. Give more rows, or fewer columns")
        stats = smooth_moments(self.design_, X, y[:, 0], weights)
        try:
            system = evidence.problem(stats, d, size)
        except ValueError as error:
            raise DataError(
                f"{self._column(error.args[0])} of X is constant, or a linear combination of "
                "earlier columns, so its slope cannot be estimated. Drop this column"
            ) from None
        floor, variance = self._floor(y), None if self.noise is None else float(self.noise) ** 2
        if self.lam is None and groups:
            scales = evidence.choose(system, groups, floor, variance)
        else:
            if np.ndim(self.lam) == 1 and len(self.lam) != len(groups):
                raise ModelError(f"SmoothingSpline(lam={self.lam!r}): expected one number, or "
                                 f"a list with one number for each curve ({len(groups)})")
            lams = np.broadcast_to(1.0 if self.lam is None else self.lam, len(groups))
            ratio = np.concatenate([np.zeros(0), *(np.full(len(m), 1 / lam)
                                                   for m, lam in zip(groups, lams, strict=True))])
            scales = evidence.evaluate(system, ratio, groups, floor, variance)
        self.moments_, self._scales = stats, scales
        self._weights = evidence.posterior(stats, d, scales.ratio, scales.variance)
        self.__dict__.pop("fit_", None)
        return self

    def _lines(self, d: int) -> set[int]:
        """`linear` as indices."""
        names, lines = list(getattr(self, "feature_names_in_", [])), set()
        if not isinstance(self.linear, Iterable | Integral) or (
                isinstance(self.linear, np.ndarray) and not self.linear.ndim):
            raise ModelError(f"SmoothingSpline(linear={self.linear!r}): expected columns, by name "
                             f"or index, such as ['age'] or [0, 2], or () for none")
        columns = [self.linear] if isinstance(self.linear, str | Integral) else list(self.linear)
        for column in columns:
            if (isinstance(column, Integral) and not isinstance(column, bool)
                    and 0 <= int(column) < d):
                lines.add(int(column))
            elif column in names:
                lines.add(names.index(column))
            else:
                known = listed(names) if names else f"0 … {d - 1}"
                raise ModelError(f"SmoothingSpline(linear={self.linear!r}): {column!r} is not a "
                                 f"column of X. Use one of its columns, {known}")
        return lines

    def predict(self, X, return_std=False, interval=None):
        """The posterior mean of b + Σ f_j(x_j) at rows X, and its standard deviation: of the curve,
        without the noise, as mgcv's se.

        Args:
            interval: a probability, such as 0.9: answer with an Interval (value, lower, upper), the
                bounds of a new y, with the noise.

        Returns:
            mean (n,); with return_std (mean, std).
        """
        if interval is not None:
            mean, std = self.predict(X, return_std=True)
            return self._interval(mean, np.sqrt(std**2 + self._scales.variance), interval)
        X = self._asked(X)
        mix, centre = self.design_.mixing(), self.moments_.mean
        splines = self.design_.sparse(X)
        mean = centre[-1] - centre[:-1] @ self._weights.mean + splines @ (mix @ self._weights.mean)
        if not return_std:
            return mean
        deviations = splines @ (mix @ self._weights.spread) - centre[:-1] @ self._weights.spread
        return mean, np.sqrt(self._scales.variance / self.moments_.rows + (deviations**2).sum(1))

    def as_data(self, X, y=None) -> dict[str, np.ndarray]:
        """Rows as the data of `fit_`: the columns of the basis and y, about the means of the rows
        that were fitted."""
        data = {"h": self.design_.columns(self._asked(X)) - self.moments_.mean[:-1]}
        return data if y is None else {**data, "y": np.asarray(y, float) - self.moments_.mean[-1]}

    def _exact(self) -> Fit:
        rows, weights = few_rows(self.moments_._replace(mean=0.0 * self.moments_.mean))
        groups = self.design_.groups
        model = smoothing(lines=self.n_features_in_, curves=tuple(map(len, groups)),
                          wide=FLAT_PRIOR_SD)
        data = {"h": rows[:, :-1], "y": rows[:, -1], "variance": self._scales.variance}
        if groups:
            data["smoothness"] = np.sqrt([self._scales.ratio[members[0]] for members in groups])
        return replace(model.fit(data, Exact(), weights=weights), units=self._told_units())

    def _told_units(self) -> dict[str, Unit]:
        """Coefficients by the column whose line or curve they are part of, those of lines in units
        of y per unit of it; the level of y."""
        names = self._column_names or tuple(f"x{j}" for j in range(self.n_features_in_))
        curves = [f"{names[j]}, curve {i}" for j, members in zip(
            self.design_.curves, self.design_.groups, strict=True) for i in range(len(members))]
        lines = [f"{name}, line" for name in names]
        factor = np.concatenate([self.design_.slopes(), np.ones(len(curves))])
        return {"beta": Unit(factor, names={0: (*lines, *curves)}),
                "intercept": Unit(shift=self.moments_.mean[-1]),
                **of_rows(h=(self.moments_.mean[:-1], 1.0), y=(self.moments_.mean[-1], 1.0))}

    confint = absent("confint", "a curve has no single coefficient; use predict(X, "
                                "return_std=True)")

    @property
    def intercept_(self):
        """The level of the curves: the mean of y."""
        return float(self.moments_.mean[-1])

    @property
    def lam_(self):
        """λ of every curve, (curves,)."""
        return np.array([1 / self._scales.ratio[members[0]] for members in self.design_.groups])

    @property
    def noise_(self):
        """σ, in units of y."""
        return float(np.sqrt(self._scales.variance))

    def _tables(self, estimates: Estimates) -> list[Table]:
        names = self._column_names or tuple(f"x{j}" for j in range(self.n_features_in_))
        curves = pd.DataFrame({"edf": self._scales.effective, "lambda": self.lam_},
                              index=[f"s({names[j]})" for j in self.design_.curves])
        return [*spline_tables(estimates), Table("Smooth terms", curves)]

    @property
    def edf_(self):
        """Effective degrees of freedom: 1 + lines + what the curves add."""
        return float(1 + self.n_features_in_ + self._scales.effective.sum())

    @property
    def log_evidence_(self):
        """log p(y | X, scales) with intercept and lines integrated over a density of 1: the
        restricted log likelihood, nats."""
        return self._scales.log_evidence
