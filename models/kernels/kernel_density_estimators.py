"""scikit-learn estimators of kernel densities: the density itself, and the Parzen-window
classifier."""

from dataclasses import KW_ONLY, dataclass, replace

import numpy as np
from jax.typing import ArrayLike

from probml import DataError, Fit, ModelError
from probml.errors import counted, listed
from probml.estimators.classifier import Classifier
from probml.estimators.estimator import Estimator, absent
from probml.estimators.rules import SEED, Rule, Seed, check, check_count, one_of, parameter
from probml.estimators.validation import DensityMixin, check_is_fitted
from probml.interface.showing.estimates import Estimates, Quantity, no_tables
from probml.interface.showing.summary import Table
from probml.models.frames.complete import refuse_missing, require_classes
from probml.models.kernels.kernel_density import factor, kernel_density, left_out, parzen_classifier
from probml.posteriors.units import Unit, of_rows

RULES = ("scott", "silverman", "likelihood")


def _is_bandwidth(value) -> bool:
    if isinstance(value, str):
        return value in RULES
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool) and array.ndim <= 1 and array.size > 0 and bool(
        (np.isfinite(array) & (array > 0)).all()
    )


BANDWIDTH: Rule = (f"one of {listed(RULES)}, or numbers above 0, one or (d,)",
                   _is_bandwidth)
PRIORS: Rule = ("None or probabilities, one for each class", lambda v: v is None or np.ndim(v) == 1)

MAX_SAMPLE_NUMBERS = 2**40  # numbers of a sample: a terabyte in bytes


class _Kernels(Estimator):
    """What both estimators share: complete centres, and bandwidths by rule. The Fit is of columns
    less their means, in bandwidths."""

    def _in_units(self, fit: Fit) -> Fit:
        """The fit, whose summary is in the units of X."""
        names = self._column_names
        axis = np.ndim(fit.point["bandwidth"]) - 1
        units = {"centre": Unit(self._unit, self._centre, names={1: names} if names else {}),
                 "bandwidth": Unit(self._unit, names={axis: names} if names else {})}
        return replace(fit, units=units | of_rows(x=(self._centre, self._unit)))

    def _tables(self, estimates: Estimates) -> list[Table]:
        bandwidths = np.atleast_2d(self.bandwidth_)
        columns = estimates.columns("x", bandwidths.shape[1], ("centre", 1))
        index = getattr(self, "classes_", [""] * len(bandwidths))
        no_tables(estimates)
        return [estimates.across("Bandwidths", index, columns, Quantity({"Estimate": bandwidths}))]

    def _centres(self, X):
        """Rows as centres, (n, d): complete."""
        X = X.astype(float)
        refuse_missing(self, X, "every fitted row is the centre of a kernel and must be complete. "
                       "Drop these rows, or fill in the values; only rows for prediction may have "
                       "missing values")
        if np.ndim(self.bandwidth) == 1 and len(self.bandwidth) != X.shape[1]:
            raise ModelError(
                f"{type(self).__name__}(bandwidth=...): expected one number, or "
                f"a list with one number for each column ({X.shape[1]}), got {len(self.bandwidth)}"
            )
        return X

    def _spread(self, X, weights) -> np.ndarray:
        """Standard deviations of the columns, 0 for a constant one, (d,)."""
        centre, n = np.average(X, 0, weights), float(weights.sum())
        square = np.where((X == X[:1]).all(0), 0.0, weights @ (X - centre) ** 2)
        return np.sqrt(square / max(n - 1, n / 2))  # weights below 1 may sum to less

    def _refuse_constant(self, X) -> None:
        if isinstance(self.bandwidth, str) and (constant := (X == X[:1]).all(0)).any():
            column = f"every column (n_samples={len(X)})" if constant.all() else self._column(
                int(np.argmax(constant))
            )
            raise DataError(
                f"{column} is constant, so its standard deviation is 0, and "
                f"bandwidth={self.bandwidth!r} is 0 for this column. Give a number in the units of "
                "the column, such as bandwidth=0.5, or drop the column"
            )

    def _widths(self, X, weights, instead) -> np.ndarray:
        """Bandwidths of the columns, (d,); a column that is constant in these rows has the spread
        `instead`."""
        d, n = X.shape[1], float(weights.sum())
        if not isinstance(self.bandwidth, str):
            return np.broadcast_to(np.asarray(self.bandwidth, float), d).astype(float)
        spread = self._spread(X, weights)
        spread = np.where(spread > 0, spread, instead)
        if self.bandwidth == "likelihood" and not (X == X[:1]).all():
            return spread * left_out((X - X[0]) / spread, weights, self._seed())
        return spread * factor("silverman" if self.bandwidth == "silverman" else "scott", n, d)

    def score_samples(self, X):
        """log p(observed cells of the row), (n,); 0 where nothing is observed."""
        data = self._asked(X)
        return self.fit_.log_prob(data) - ~np.isnan(data["x"]) @ np.log(self._unit)

    def _data(self, X):
        return {"x": (X - self._centre) / self._unit}


@dataclass(eq=False, repr=False)
class KernelDensity(DensityMixin, _Kernels):
    """Gaussian kernel density; in rows that are asked about, missing cells are NaN. The model is
    probml.models.kernel_density.

    Args:
        bandwidth: "likelihood": one multiple of the columns' standard deviations, at the maximum of
            the leave-one-out likelihood; "scott" or "silverman": a power of n times the standard
            deviations, as scipy's gaussian_kde but without correlations, which blurs columns that
            have clusters or go together; or numbers, one or (d,), in units of X.
        kernel: "gaussian"; there is no other.
        random_state: seed of sample(), and of the rows that "likelihood" depends on where they are
            more than 2000; None is 0.

    Attributes:
        bandwidth_ (d,); fit_: the probml Fit, of columns less their means and in bandwidths.

    Cost: of a query, kernels · d multiplications in one matrix product; all kernels are used,
        far ones too.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> faithful = pd.read_csv(files("probml.data") / "faithful.csv")
        >>> from probml.models import KernelDensity
        >>> density = KernelDensity().fit(faithful)
        >>> print(density.score_samples(faithful[:2]).round(1))
        [-4.6 -3.6]
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = False  # of rows that are fitted
        return tags

    bandwidth: float | str | None = parameter("likelihood", BANDWIDTH)
    _: KW_ONLY
    kernel: str = parameter("gaussian", one_of("gaussian"))
    random_state: Seed = parameter(None, SEED)

    def fit(self, X, y=None, sample_weight=None):
        """Put a kernel at every row of X (n, d); y is ignored, present for scikit-learn's
        convention.

        Args:
            sample_weight: (n,), how many times each row counts.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell or a weight that cannot be used,
                by name.
        """
        check(self)
        X = self._centres(self._validated(X, reset=True))
        weights, kept_rows = self._weigh(X, sample_weight)
        X = X if kept_rows is None else X[kept_rows]
        weights = np.ones(len(X)) if weights is None else weights
        self._refuse_constant(X)
        self.bandwidth_ = self._widths(X, weights, np.ones(X.shape[1]))
        self._centre, self._unit = np.average(X, 0, weights), self.bandwidth_
        params = {"weights": weights / weights.sum(), "centre": self._data(X)["x"],
                  "bandwidth": np.ones(X.shape[1])}
        self.fit_ = self._in_units(kernel_density(n=len(X), d=X.shape[1]).at(params))
        return self

    def score(self, X, y=None):
        """The mean of score_samples."""
        return float(self.score_samples(X).mean())

    def impute(self, X):
        """X with its missing cells at their mean given the row's observed cells (the
        Nadaraya–Watson regression on these)."""
        X = self._validated(X, reset=False).astype(float)
        return np.where(np.isnan(X),
                        self.fit_.impute(self._asked(X))["x"] * self._unit + self._centre, X)

    def sample(self, n_samples=1, random_state=None):
        """New rows, (n_samples, d): a row of X, and noise."""
        check_is_fitted(self, "fit_")
        check_count("sample", "n_samples", n_samples)
        if n_samples * len(self._unit) > MAX_SAMPLE_NUMBERS:
            raise ModelError(f"sample(n_samples={n_samples!r}): for "
                             f"{counted(len(self._unit), 'column')} at most "
                             f"{MAX_SAMPLE_NUMBERS // len(self._unit):,} samples can be drawn at "
                             "once. Ask for fewer samples")
        random, params = np.random.default_rng(self._seed(
            random_state, "sample")), self.fit_.params
        picks = random.choice(len(params["weights"]), int(n_samples), p=params["weights"])
        return ((params["centre"][picks] + random.normal(size=(len(picks), len(self._unit))))
                * self._unit + self._centre)

    predict_proba = absent("predict_proba", "use ParzenClassifier for class probabilities")


@dataclass(eq=False, repr=False)
class ParzenClassifier(_Kernels, Classifier):
    """A kernel density in each class; in rows that are asked about, missing cells are NaN. The
    model is probml.models.parzen_classifier.

    Rows whose label is None or NaN are left out.

    Args:
        bandwidth: as in KernelDensity; rules are of each class by itself, but for a column that is
            constant in a class: there the standard deviation of all rows is used, and of a class
            of one row "likelihood" is "scott".
        priors: None: the classes' shares of the rows; or their probabilities, in the order of
            classes_.
        kernel, random_state: as in KernelDensity.

    Attributes:
        classes_; class_prior_ (classes,); bandwidth_ (classes, d); fit_: the probml Fit, of columns
        less their means, in their standard deviation.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> iris = pd.read_csv(files("probml.data") / "iris.csv")
        >>> X, y = iris[["Petal.Length", "Petal.Width"]], iris["Species"]
        >>> from probml.models import ParzenClassifier
        >>> classifier = ParzenClassifier().fit(X, y)
        >>> round(classifier.score(X, y), 2)
        0.97
    """

    _target = "class"
    bandwidth: float | str | None = parameter("likelihood", BANDWIDTH)
    _: KW_ONLY
    priors: ArrayLike | None = parameter(None, PRIORS)
    kernel: str = parameter("gaussian", one_of("gaussian"))
    random_state: Seed = parameter(None, SEED)

    def _learn(self, X, y, sample_weight, classes):
        X, codes, weights = self._batch(X, y, sample_weight, classes, True)
        labelled = ~np.isnan(codes) if codes.dtype.kind == "f" else np.ones(len(codes), bool)
        X, codes = self._centres(X[labelled]), codes[labelled].astype(int)
        weights = np.ones(len(X)) if weights is None else weights[labelled]
        k, (n, d) = len(self.classes_), X.shape
        require_classes(self.classes_)
        total = np.bincount(codes, weights, k)
        self.class_prior_ = total / total.sum() if self.priors is None else self._check_priors(k)
        self._refuse_constant(X)
        spread = self._spread(X, weights)
        self.bandwidth_ = np.stack([self._widths(X[codes == c], weights[codes == c], spread)
                                    for c in range(k)])
        self._centre, self._unit = (np.average(X, 0, weights),
                                    np.exp(np.log(self.bandwidth_).mean(0)))
        params = {
            "weights": self.class_prior_[codes] * weights / total[codes],
            "centre": self._data(X)["x"],
            "bandwidth": (self.bandwidth_ / self._unit)[codes],
            "membership": np.eye(k)[codes],
        }
        self.fit_ = self._in_units(parzen_classifier(n=n, d=d, classes=k).at(
            params, labels={"class": tuple(self.classes_.tolist())}
        ))
        return self

    def _check_priors(self, k: int) -> np.ndarray:
        priors = np.asarray(self.priors, float)
        if priors.shape != (k,) or not (priors >= 0).all() or abs(priors.sum() - 1) > 1e-6:
            raise ModelError(
                f"ParzenClassifier(priors={self.priors!r}): expected {k} probabilities that sum to "
                f"1, one for each of the classes {listed(self.classes_.tolist())}"
            )
        return priors / priors.sum()
