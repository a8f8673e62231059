"""scikit-learn faces of classes parted by planes: logistic regression, least squares, Fisher's
discriminant, linear SVM."""

import dataclasses
import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from probml import MAP, DataError, Fit, Refusal
from probml.estimators.rules import (
    ENGINE,
    FLAG,
    SEED,
    fixed,
    number,
    one_of,
    optional,
    parameter,
    whole,
)
from probml.models.classifiers.discriminant_faces import GaussianDiscriminant
from probml.models.classifiers.linear_classification import linear_support_vector_machine
from probml.models.frames.framed import Framed, counted
from probml.models.frames.margins import Margin
from probml.models.kernels.interior_point import Solution, hinge, solution
from probml.models.kernels.support_vector_faces import CLASS_WEIGHT
from probml.models.regression.generalized_linear import logistic_regression, softmax_regression
from probml.models.regression.regression_faces import BayesianLinearRegression

try:
    from sklearn.base import TransformerMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import SVC
    from sklearn.utils.validation import check_is_fitted
except ModuleNotFoundError as error:
    raise ImportError(f"the faces of probml.models stand on scikit-learn ({error}): pip install "
                      f"probml[sklearn]") from error

# prior standard deviation in logits of intercepts that a posterior needs and nothing tells
LOOSE = 30.0
# by which the dual's maximum may be missed, relative to it
GAP = 1e-6
# prior standard deviation of a weight that is as good as free, in targets per standard deviation of
# its column
FLAT = 1e4
COST = ("a number above 0, inf for no penalty",
        lambda v: v == np.inf if isinstance(v, float) and v == np.inf else number(0.0, True)[1](v))


class _Planes(Framed, Margin):
    """What faces of planes share: the scale of the weights, decision values."""

    def _scale(self) -> np.ndarray:
        """Prior standard deviations of the weights, in units of the frame: √C in those of the
        user."""
        return np.sqrt(self.C if np.isfinite(self.C) else 1.0) * self._unit

    def decision_function(self, X):
        """x β + b of every row: (n,) of two classes, positive for classes_[1], else (n, k)."""
        check_is_fitted(self, "coef_")
        found = self._whole(X, reset=False) @ self.coef_.T + self.intercept_
        return found[:, 0] if found.shape[1] == 1 else found


@dataclass(eq=False, repr=False)
class LogisticRegression(_Planes):
    """Logistic regression, softmax regression of several classes (= maximum entropy): p(class | x)
    ∝ exp(x β_class + b_class).

        min over β, b:  ½ |β|² + C Σ_i weight_i · (−log p(y_i | x_i))

    β ~ N(0, C), as scikit-learn's; the intercept is flat. With engine=probml.Laplace() or NUTS()
    the coefficients have a posterior, over which the probabilities are averaged. The functions are
    probml.models.logistic_regression and softmax_regression.

    Args:
        C: prior variance of a weight, in inverse squared units of its column, as scikit-learn's:
            scale matters to it, an offset does not. inf: maximum likelihood, to which neither does.
        fit_intercept: with b.
        class_weight: None, "balanced" or class → weight.
        tol: L-BFGS, which climbs where classes and columns are many, stops where an iteration gains
            less of the objective.
        max_iter: Newton or L-BFGS iterations.
        random_state: seed of a sampler; None is 0.
        engine: an engine's value; by default MAP() at the penalty.

    Attributes:
        classes_, coef_ (1, d) or (k, d), intercept_ (1,) or (k,), n_iter_, converged_, history_,
        fit_: the probml Fit, whose data are those of `as_data`.

    A maximum that does not exist, of classes that are separated with C=inf, is warned of. Cost: see
    MAP; half a second for 1,000,000 × 50.
    """

    C: float = parameter(1.0, COST)
    _: KW_ONLY
    fit_intercept: bool = parameter(True, FLAG)
    class_weight: Any = parameter(None, CLASS_WEIGHT)
    tol: float = parameter(1e-9, number(0.0))
    max_iter: int = parameter(10_000, whole(1))
    random_state: Any = parameter(None, SEED)
    engine: Any = parameter(None, ENGINE)

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and labels y (n,).

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell, a label or a weight that cannot
                be used, by name; one class only.
        """
        X, codes, weights = self._balanced(X, y, sample_weight)
        k = len(self.classes_)
        # too many coefficients for Newton's steps: units matter to L-BFGS
        x = self._frame(X, weights, always=k > 2)
        # A shift of all intercepts changes no probability: where there is to be a posterior, a
        # prior that tells nothing else holds it.
        posterior = self.engine is not None and not isinstance(self.engine, MAP)
        flat = posterior and not np.isfinite(self.C)
        loose = LOOSE if posterior and k > 2 else None
        settings = {"weight_scale": None if flat else "each",
                    "bias_scale": loose if self.fit_intercept else 0}
        model = logistic_regression(**settings) if k == 2 else softmax_regression(states=k,
                                                                                  **settings)
        engine = self.engine or MAP(steps=int(self.max_iter), prior=bool(np.isfinite(self.C)),
                                    tolerance=float(self.tol))
        data = {"x": x, "y": codes} | ({} if flat else {"weight_scale": self._scale()})
        try:
            fit = model.fit(data, engine, weights=counted(weights), seed=self._seed())
        except Refusal as refusal:
            if self.engine is None or np.isfinite(self.C):
                raise
            raise Refusal(
                f"LogisticRegression(C={self.C}, engine={self.engine!r}): C=inf leaves the weights "
                f"without a prior, and these rows do not "
                f"hold them all, so that there is no posterior. Choose a finite C, such as C=100 "
                f"({refusal})"
            ) from refusal
        self._found(_labelled(fit, self.classes_))
        beta, bias = (fit.params["beta"].reshape(X.shape[1], -1),
                      np.reshape(fit.params.get("bias", np.zeros(1 if k == 2 else k)), -1))
        if k > 2 and self.fit_intercept:
            bias = bias - bias.mean()
        if k > 2 and not np.isfinite(self.C):
            beta = beta - beta.mean(1, keepdims=True)
        self.coef_, self.intercept_ = self._planes(beta, bias)
        return self

    def predict_proba(self, X):
        """p(class | row), (n, k); averaged over a posterior, where there is one."""
        check_is_fitted(self, "coef_")
        if self.fit_.drawn is not None:
            return self.fit_.predict_proba(self.as_data(X), "y")
        logits = self.decision_function(X)
        logits = np.column_stack([np.zeros(len(logits)), logits]) if logits.ndim == 1 else logits
        grown = np.exp(logits - logits.max(1, keepdims=True))
        return grown / grown.sum(1, keepdims=True)

    def predict_log_proba(self, X):
        """log p(class | row), (n, k)."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))


def _labelled(fit: Fit, classes: np.ndarray) -> Fit:
    """The fit, answering in labels."""
    return dataclasses.replace(fit, names={**fit.names, "y": tuple(classes.tolist())})


@dataclass(eq=False, repr=False)
class LinearSVM(_Planes):
    """A linear support vector machine; of several classes, one against the rest.

        min over β, b:  ½ |β|² + C Σ_i weight_i · max(0, 1 − s_i (x_i β + b))^p,   s_i = ±1

    The intercept is not penalised (scikit-learn's LinearSVC penalises it, SVC does not). The
    squared hinge is climbed as probml.models.linear_support_vector_machine; the hinge is solved by
    its dual, whose support vectors are then known.

    Args:
        C: cost of a violation, which weighs rows against the penalty; that is in the columns' own
            units, as scikit-learn's, so that scale matters to it, and an offset does not.
        loss: "squared_hinge" (p = 2) or "hinge" (p = 1).
        fit_intercept: with b.
        class_weight: None, "balanced" or class → weight.
        max_iter: iterations of L-BFGS; of the dual, turns of an interior point, some 20.
        random_state: of no use, as nothing is random; kept for scikit-learn's habit.
        engine: an engine's value for the squared hinge; by default MAP().

    Attributes:
        classes_, coef_ (1, d) or (k, d), intercept_, n_iter_, converged_, history_; support_ (of
        the hinge: rows at or within the margin of some plane); fit_: the probml Fit, a loss without
        likelihood, whose data are those of `as_data`.
    """

    C: float = parameter(1.0, number(0.0, above=True))
    _: KW_ONLY
    loss: str = parameter("squared_hinge", one_of("squared_hinge", "hinge"))
    fit_intercept: bool = parameter(True, FLAG)
    class_weight: Any = parameter(None, CLASS_WEIGHT)
    max_iter: int = parameter(1000, whole(1))
    random_state: Any = parameter(None, SEED)
    engine: Any = parameter(None, ENGINE)

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and labels y (n,).

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell, a label or a weight that cannot
                be used, by name; one class only.
        """
        X, codes, weights = self._balanced(X, y, sample_weight)
        k, x = len(self.classes_), self._frame(X, weights, always=True)
        model = linear_support_vector_machine(
            classes=k, loss=self.loss, weight_scale="each",
            bias_scale=None if self.fit_intercept else 0
        )
        if self.loss == "hinge":
            self._dual(X, codes, weights, model)
            return self
        data = {"x": x, "y": codes, "weight_scale": self._scale()}
        engine = self.engine or MAP(steps=int(self.max_iter))
        fit = model.fit(data, engine, weights=counted(weights), seed=self._seed())
        self._found(_labelled(fit, self.classes_))
        planes = fit.params["beta"].shape[1]
        self.coef_, self.intercept_ = self._planes(fit.params["beta"],
                                                   fit.params.get("bias", np.zeros(planes)))
        return self

    def _dual(self, X, codes, weights, model) -> None:
        """Each plane by its dual, on the columns about their means: Σβ = 0 says that an offset does
        not matter."""
        if not self.fit_intercept:
            raise DataError("LinearSVM(loss='hinge', fit_intercept=False): the dual has the "
                            "intercept in it; take loss='squared_hinge'")
        # in the frame's units the penalty would be another
        x, planes = X - self._centre, [1] if len(self.classes_) == 2 else range(len(self.classes_))
        found = [_plane(x, np.where(codes == plane, 1.0, -1.0), self.C * weights,
                        int(self.max_iter)) for plane in planes]
        beta = np.stack([x.T @ each.beta for each in found], 1) * self._unit[:, None]
        bias = np.array([each.bias for each in found])
        self.support_ = np.flatnonzero(np.any([each.beta != 0 for each in found], 0))
        self.n_iter_, self.converged_ = (max(each.turns for each in found),
                                         all(each.gap <= GAP for each in found))
        self.history_ = np.array([each.objective for each in found])
        if not self.converged_:
            warnings.warn(
                f"LinearSVM stopped after {self.n_iter_} turns, {max(e.gap for e in found):.2g} of "
                f"the loss from its least: standardise the columns, lower C={self.C:g}, or raise "
                f"max_iter={self.max_iter}", RuntimeWarning, stacklevel=3)
        self.coef_, self.intercept_ = self._planes(beta, bias)
        self.fit_ = model.at({"beta": beta, "bias": bias, "weight_scale": self._scale()},
                             {"y": tuple(self.classes_.tolist())})


def _plane(x: np.ndarray, sign: np.ndarray, cost: np.ndarray, most: int) -> Solution:
    """The plane of rows of sign 1 and −1; where its margin is so hard that an interior point runs
    out of digits, by LIBSVM's steps, `most` for each row."""
    found = hinge(x, sign, cost, most)
    if found.gap <= GAP:
        return found
    steps = SVC(C=1.0, kernel="linear", tol=1e-6, max_iter=most * len(x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        steps.fit(x, sign, sample_weight=cost)
    beta = np.zeros(len(x))
    beta[steps.support_] = steps.dual_coef_[0]
    other = solution(x, sign, cost, beta, int(steps.n_iter_[0]))
    return min(found, other, key=lambda each: each.gap)


@dataclass(eq=False, repr=False)
class LeastSquaresClassifier(_Planes):
    """Classes as numbers ±1, fitted by least squares: the plane of the largest value wins;
    scikit-learn's RidgeClassifier.

        min over β, b:  Σ_i weight_i |t_i − x_i β − b|² + alpha · |β|²,
        t_ij = 1 for the class j of the row, −1 for the others

    The regression is probml.models.BayesianLinearRegression with a known noise, so that its
    posterior is at hand; it is no model of classes, and has no probabilities of them. Where a class
    lies between two others it is masked (Hastie, Tibshirani & Friedman 2009, 4.2).

    Args:
        alpha: the penalty, in squared units of each column, as RidgeClassifier's: scale matters to
            it, an offset does not; 0 is least squares, to which neither does.
        fit_intercept: with b.
        class_weight: None, "balanced" or class → weight.

    Attributes:
        classes_, coef_ (1, d) or (k, d), intercept_, regression_: the regression, fit_: its probml
        Fit.
    """

    alpha: float = parameter(1.0, number(0.0))
    _: KW_ONLY
    fit_intercept: bool = parameter(True, FLAG)
    class_weight: Any = parameter(None, CLASS_WEIGHT)

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and labels y (n,).

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell, a label or a weight that cannot
                be used, by name; one class only.
        """
        X, codes, weights = self._balanced(X, y, sample_weight)
        k = len(self.classes_)
        targets = np.where(codes == 1, 1.0, -1.0) if k == 2 else np.where(
            codes[:, None] == np.arange(k), 1.0, -1.0
        )
        self._frame(X, weights, always=True)
        scale = 1 / np.sqrt(self.alpha) if self.alpha > 0 else FLAT / self._unit
        self.regression_ = BayesianLinearRegression(weight_scale=scale, noise=1.0,
                                                    fit_intercept=self.fit_intercept)
        self.regression_.fit(X, targets, sample_weight=weights)
        self._centre, self._unit = np.zeros(X.shape[1]), np.ones(X.shape[1])
        self.coef_ = np.atleast_2d(self.regression_.coef_)
        self.intercept_ = np.atleast_1d(self.regression_.intercept_)
        return self

    @property
    def fit_(self) -> Fit:
        """The probml Fit of the regression."""
        check_is_fitted(self, "coef_")
        return self.regression_.fit_

    def as_data(self, X, y=None) -> dict[str, np.ndarray]:
        """Rows as the data of `fit_`; y as the numbers that stand for its classes."""
        if y is not None:
            codes, k = np.searchsorted(self.classes_, y), len(self.classes_)
            y = np.where(codes == 1, 1.0, -1.0) if k == 2 else np.where(
                codes[:, None] == np.arange(k), 1.0, -1.0
            )
        return self.regression_.as_data(X, y)


@dataclass(eq=False, repr=False)
class FisherDiscriminant(TransformerMixin, GaussianDiscriminant):
    """Fisher's linear discriminant: the directions in which the classes' means lie furthest apart,
    in units of the spread within classes.

        max over v:  vᵀ S_b v / vᵀ S_w v,   S_w = Σ_j π_j Σ, S_b = Σ_j π_j (μ_j − μ)(μ_j − μ)ᵀ

    The model is gaussian_mixture with the labels seen and one covariance for all classes, whose
    posterior of the class this classifier
    takes: normal classes of one covariance are parted by planes. Unseen cells of X are integrated
        out of the fit and of predictions.

    Args:
        n_components: directions kept, at most min(classes − 1, d); None: all of these.
        prior: False (Fisher's): maximum likelihood; True: the priors of GaussianDiscriminant, as
            wide as they are by default.

    Attributes:
        classes_, priors_, means_, covariance_ (d, d) within classes, scalings_ (d, n_components)
        with vᵀ S_w v = 1, explained_variance_ratio_, mean_, fit_.

    Sources: Fisher (1936), "The use of multiple measurements in taxonomic problems"; Rao (1948) for
        several classes.
    """

    n_components: int | None = parameter(None, optional(whole(1)))
    _: KW_ONLY
    covariance: str = fixed("shared")
    prior: bool = parameter(False, FLAG)
    plug_in: bool = fixed(False)
    concentration: float = fixed(1.0)
    centre: None = fixed(None)
    mean_scale: float = fixed(1000.0)
    scale: None = fixed(None)
    unlabelled_weight: float = fixed(1.0)
    tol: float = parameter(1e-7, number(0.0))
    max_iter: int = parameter(1000, whole(1))
    random_state: Any = parameter(None, SEED)
    engine: Any = parameter(None, ENGINE)

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and labels y (n,); see GaussianDiscriminant.

        Raises:
            DataError: more components than directions, one class only; and as GaussianDiscriminant.
        """
        super().fit(X, y, sample_weight)
        k, d = self.means_.shape
        most = min(k - 1, d)
        if self.n_components is not None and self.n_components > most:
            raise DataError(f"FisherDiscriminant(n_components={self.n_components}): {k} classes "
                            f"and {d} columns have {most} directions")
        self.mean_ = self.priors_ @ self.means_
        away = self.means_ - self.mean_
        root = np.linalg.cholesky(self.covariance_)
        whitened = np.linalg.solve(root, away.T) * np.sqrt(self.priors_)  # (d, k)
        axes, lengths, _ = np.linalg.svd(whitened, full_matrices=False)
        kept = self.n_components or most
        self.explained_variance_ratio_ = (lengths**2 / (lengths**2).sum())[:kept]
        self.scalings_ = np.linalg.solve(root.T, axes[:, :kept])
        return self

    def _batch(self, X, y, sample_weight, classes, reset):
        X, codes, weights = super()._batch(X, y, sample_weight, classes, reset)
        if len(np.unique(codes[~np.isnan(codes.astype(float))])) < 2:
            names = self.classes_.tolist()
            raise DataError(f"The number of classes has to be greater than one; y has 1 class, "
                            f"{names}: give rows of another")
        return X, codes, weights

    def transform(self, X):
        """Rows in the discriminant directions, (n, n_components), about the mean; a row with an
        unseen cell is NaN."""
        check_is_fitted(self, "scalings_")
        return (self._take(X, reset=False) - self.mean_) @ self.scalings_

    @property
    def coef_(self):
        """Of the log odds of the classes, (k, d), up to what all have in common; (1, d) of two
        classes."""
        found = np.linalg.solve(self.covariance_, self.means_.T).T
        return found[1:] - found[:1] if len(found) == 2 else found

    @property
    def intercept_(self):
        """Beside coef_: (k,) or (1,)."""
        quadratic = np.einsum("kd,dk->k", self.means_,
                              np.linalg.solve(self.covariance_, self.means_.T))
        found = np.log(self.priors_) - 0.5 * quadratic
        return found[1:] - found[:1] if len(found) == 2 else found
