"""scikit-learn faces of mixtures of experts, for numbers and for classes."""

import math

import numpy as np

from probml import DataError, ModelError
from probml.estimators.classifier import Classifier
from probml.estimators.face import Face, flat, n_parameters
from probml.estimators.rules import ENGINE, FLAG, SEED, check, number, numbers, optional, whole
from probml.models.experts.experts import hierarchical_mixture_of_experts, mixture_of_experts
from probml.models.frames.complete import Complete

try:
    from sklearn.base import RegressorMixin
    from sklearn.utils import check_array, column_or_1d
    from sklearn.utils.validation import check_consistent_length, check_is_fitted
except ModuleNotFoundError as error:
    raise ImportError(f"the faces of probml.models stand on scikit-learn ({error}): pip install "
                      f"probml[sklearn]") from error


def _is_branches(value) -> bool:
    return value is None or isinstance(value, tuple | list) and len(value) > 0 and all(
        map(whole(2)[1], value)
    )


class _Experts(Complete, Face):
    """What both faces share: standardised columns, the tree, and coefficients in the user's
    units."""

    _target = "y"
    _rules = {
        "n_experts": whole(1),
        "branches": ("None or a tuple of whole numbers of at least 2, such as (2, 2)",
                     _is_branches),
        "gate": FLAG,
        "concentration": numbers(0.0),
        "gate_scale": number(0.0, above=True),
        "weight_scale": number(0.0, above=True),
        "prior": FLAG,
        "n_init": optional(whole(1)),
        "tol": number(0.0),
        "max_iter": whole(1),
        "random_state": SEED,
        "engine": ENGINE,
    }

    def __init__(
        self,
        n_experts=2,
        *,
        branches=None,
        gate=True,
        concentration=1.0,
        gate_scale=10.0,
        weight_scale=10.0,
        prior=True,
        n_init=None,
        tol=1e-8,
        max_iter=1000,
        random_state=None,
        engine=None,
    ):
        self.n_experts = n_experts
        self.branches = branches
        self.gate = gate
        self.concentration = concentration
        self.gate_scale = gate_scale
        self.weight_scale = weight_scale
        self.prior = prior
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.engine = engine

    # Reading

    def _take(self, X, reset):
        return self._whole(X, reset)

    def _standardise(self, X, weights) -> None:
        """Learn the columns' means and standard deviations: units and offsets then do not matter to
        the priors, nor to rounding."""
        if not self.prior and (constant := flat(X)).any():
            raise DataError(
                f"{self._column(int(np.argmax(constant)))} of X is constant (n_samples={len(X)}): "
                f"beside the intercept its weight has no "
                "maximum of the likelihood. Drop it, or keep prior=True"
            )
        self._centre, self._unit = _moments(X, weights)

    def _data(self, X):
        return {"x": (X - self._centre) / self._unit}

    @property
    def _sites(self) -> tuple[str, ...]:
        """The choices from the top; none with one expert."""
        if self._leaves == 1:
            return ()
        return ("z",) if self.branches is None else tuple(
            f"z{i}" for i in range(1, len(self.branches) + 1)
        )

    @property
    def _leaves(self) -> int:
        return int(self.n_experts) if self.branches is None else math.prod(map(int, self.branches))

    def _experts(self, **settings):
        """The bound model."""
        settings |= {"gate_scale": float(self.gate_scale), "weight_scale": float(self.weight_scale)}
        if self.branches is None:
            settings["concentration"] = self.concentration
            return mixture_of_experts(k=int(self.n_experts), gate=bool(self.gate), **settings)
        if not self.gate:
            raise ModelError(f"{type(self).__name__}(branches={self.branches!r}, gate=False): a "
                             f"tree is made of gates; say n_experts=...")
        return hierarchical_mixture_of_experts(branches=tuple(map(int, self.branches)), **settings)

    def _refuse_few(self, X, y) -> None:
        """Fewer distinct rows than experts."""
        given = (f"n_experts={self.n_experts}" if self.branches is None
                 else f"branches={self.branches!r}")
        distinct = len(np.unique(np.column_stack([X, y]), axis=0)) if len(X) <= 10_000 else len(X)
        if distinct < self._leaves:
            raise DataError(
                f"{type(self).__name__}({given}): X and y have only {distinct} distinct rows "
                f"(n_samples={len(X)}) for {self._leaves} "
                f"experts: use at most {distinct}"
            )

    def _learnt(self, fit, X, weights, unit: float) -> None:
        self._keep(fit, len(X) if weights is None else weights.sum())
        self.lower_bounds_ = self.lower_bounds_ - np.log(unit)
        self.lower_bound_ = float(self.lower_bounds_[-1])
        self.history_ = self.lower_bounds_ * self.total_weight_

    # What was learnt, in the units of the data

    def gates(self, X):
        """p(expert | x), (n, experts): the gates' shares, those of a tree multiplied down to its
        leaves."""
        data = self._asked(X)
        return self._posterior(data)

    def _posterior(self, data):
        n = len(data["x"])
        return (np.ones((n, 1)) if not self._sites
                else np.asarray(self.fit_.joint(data, self._sites)).reshape(n, -1))

    def _bare(self, found, axis: int, unit):
        """Coefficients of standardised columns, the intercept first on `axis`, as (slopes,
        intercept) of the columns themselves; their axis comes last."""
        found = np.moveaxis(np.asarray(found, float), axis, -1)
        slopes = found[..., 1:] * unit / self._unit
        return slopes, found[..., 0] * unit - slopes @ self._centre

    def _gates(self, part: int):
        check_is_fitted(self, "fit_")
        if self._sites and not self.gate:
            raise AttributeError(f"{type(self).__name__}(gate=False) has no gate: its shares_ are "
                                 f"the same in every row")
        out = []
        for site in self._sites:
            # (*above, ways − 1[, d])
            found = self._bare(self.fit_.params["gate" + site[1:]], -2, 1.0)[part]
            axis = found.ndim - 2 + part
            out.append(np.concatenate([np.zeros_like(np.take(found, [0], axis)), found], axis))
        if self.branches is not None:
            return out
        return out[0] if out else np.zeros((1, self.n_features_in_) if part == 0 else 1)

    @property
    def gate_coef_(self):
        """Logits per unit of X, (experts, d), the first expert's 0; of a tree a list of its levels,
        (*choices above, ways, d)."""
        return self._gates(0)

    @property
    def gate_intercept_(self):
        """Logits at X = 0, (experts,), the first 0; of a tree a list of its levels, (*choices
        above, ways)."""
        return self._gates(1)

    @property
    def shares_(self):
        """The experts' shares where there is no gate, (experts,)."""
        check_is_fitted(self, "fit_")
        if not self._sites:
            return np.ones(1)
        if self.gate:
            raise AttributeError(f"{type(self).__name__}(gate=True) has no shares: they depend on "
                                 f"x, see gates(X)")
        return np.asarray(self.fit_.params["shares"])

    @property
    def coef_(self):
        """The experts' slopes, (experts, d); of classes (experts, classes − 1, d), logits against
        the first class."""
        check_is_fitted(self, "fit_")
        return self._bare(self.fit_.params["weights"], -1, self._answer_unit)[0]

    @property
    def intercept_(self):
        """The experts' values at X = 0, (experts,); of classes (experts, classes − 1)."""
        check_is_fitted(self, "fit_")
        return self._bare(self.fit_.params["weights"], -1,
                          self._answer_unit)[1] + self._answer_centre

    _answer_unit, _answer_centre = 1.0, 0.0

    def log_prob(self, X, y):
        """log p(y | x) of every row, (n,), nats, in units of y; 0 where y is unseen."""
        data = self.as_data(X, y)
        seen = (~np.isnan(np.asarray(data["y"], float)) if np.asarray(data["y"]).dtype.kind == "f"
                else True)
        return self.fit_.log_prob(data) - np.log(self._answer_unit) * seen

    def responsibilities(self, X, y):
        """p(expert | x, y), (n, experts); where y is unseen the gates' shares."""
        return self._posterior(self.as_data(X, y))

    @property
    def n_parameters_(self) -> int:
        """Free parameters of gates and experts."""
        check_is_fitted(self, "fit_")
        return n_parameters(self.fit_)

    def bic(self, X, y):
        """−2 Σ log p(y | x) + parameters · log n (Schwarz 1978); the lower the better."""
        log = self.log_prob(X, y)
        return float(-2 * log.sum() + self.n_parameters_ * np.log(len(log)))

    def aic(self, X, y):
        """−2 Σ log p(y | x) + 2 · parameters (Akaike 1974); the lower the better."""
        return float(-2 * self.log_prob(X, y).sum() + 2 * self.n_parameters_)


def _moments(X, weights) -> tuple[np.ndarray, np.ndarray]:
    """Weighted means and standard deviations of columns, 1 where there is none."""
    centre = np.average(X, 0, weights)  # two passes: digits survive an offset
    unit = np.sqrt(np.average((X - centre) ** 2, 0, weights))
    return centre, np.where(unit > 1e-12 * np.abs(centre), unit, 1.0)


class MixtureOfExperts(RegressorMixin, _Experts):
    """Regression by experts, each a plane with a noise of its own, that a softmax gate shares the
    rows out to.

    The model is probml.models.mixture_of_experts, or the tree hierarchical_mixture_of_experts, of
    standardised X and y. By default the mode under weak priors in those units; prior=False is
    maximum likelihood, as flexmix and mixtools.

    Args:
        n_experts: k.
        branches: None, or the ways of every gate of a tree from the top; (2, 2) has four experts,
            and n_experts is not read.
        gate: False: the experts' shares do not depend on X, a mixture of regressions.
        concentration: pseudo-rows of every expert's share; without a gate only.
        gate_scale: prior standard deviation of the gates' coefficients, logits per standard
            deviation of a column.
        weight_scale: that of the experts' slopes, standard deviations of y per standard deviation
            of a column.
        scale: s; at the mode an expert's σ² is (residual squares + s²)/(rows + 1), s in standard
            deviations of y.
        prior: posterior mode (True) or maximum likelihood (False).
        n_init: starts, run as one program; the best is kept. None: as many as about a second buys,
            see EM.
        tol: stop when an iteration gains less than this a row, in nats.
        max_iter: EM iterations at the most; one that stops there warns and leaves converged_ False.
        random_state: seed of the starts; None is 0, a fit repeats.
        engine: an engine's value instead of the EM that these arguments describe.

    Attributes:
        coef_ (k, d), intercept_ (k,), scale_ (k,): σ of every expert; gate_coef_, gate_intercept_
        or shares_; history_: the objective, log posterior or log-likelihood in units of y;
        lower_bound_, converged_, n_iter_, n_parameters_; fit_: the probml Fit, whose data `as_data`
        gives.
    """

    _rules = {**_Experts._rules, "scale": number(0.0, above=True)}

    def __init__(
        self,
        n_experts=2,
        *,
        branches=None,
        gate=True,
        concentration=1.0,
        gate_scale=10.0,
        weight_scale=10.0,
        scale=0.1,
        prior=True,
        n_init=None,
        tol=1e-8,
        max_iter=1000,
        random_state=None,
        engine=None,
    ):
        super().__init__(
            n_experts,
            branches=branches,
            gate=gate,
            concentration=concentration,
            gate_scale=gate_scale,
            weight_scale=weight_scale,
            prior=prior,
            n_init=n_init,
            tol=tol,
            max_iter=max_iter,
            random_state=random_state,
            engine=engine,
        )
        self.scale = scale

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and numbers y (n,); rows whose y is NaN say nothing and are left
        out.

        Args:
            sample_weight: (n,), how many times each row counts.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell or a weight that cannot be used,
                by name.
        """
        check(self, self._rules)
        if y is None:
            raise DataError(f"This {type(self).__name__} estimator requires y to be passed, but "
                            f"the target y is None.")
        X, y = self._take(X, reset=True), _answers(y)
        check_consistent_length(X, y)
        weights, kept = self._weigh(X, sample_weight)
        X, y = (X, y) if kept is None else (X[kept], y[kept])
        use = ~np.isnan(y)
        if not use.any():
            raise DataError("y has no number, every one is missing: there is nothing to learn from")
        X, y, weights = X[use], y[use], None if weights is None else weights[use]
        self._refuse_few(X, y)
        k, d = self._leaves, X.shape[1]
        if not self.prior and len(y) <= k * (d + 1):
            raise DataError(
                f"n_samples={len(y)}: {k} experts of {d + 1} coefficients each fit so few rows "
                f"without a rest, and the likelihood has no "
                f"maximum. Give more than {k * (d + 1)} rows, or keep prior=True"
            )
        if not self.prior and y.min() == y.max():
            raise DataError(f"y is constant ({y[0]:g}): every expert's σ is 0 and the likelihood "
                            f"has no maximum. Keep prior=True")
        self._standardise(X, weights)
        self._answer_centre, self._answer_unit = (float(v) for v in _moments(y, weights))
        data = self._data(X) | {"y": (y - self._answer_centre) / self._answer_unit}
        self._learnt(self._infer(self._experts(scale=float(self.scale)), data, weights, {}, False),
                     X, weights, self._answer_unit)
        return self

    def as_data(self, X, y=None):
        """Rows as the data of `fit_`: X, and y, less their means and in their standard
        deviations."""
        data = self._asked(X)
        if y is None:
            return data
        y = _answers(y)
        check_consistent_length(data["x"], y)
        return data | {"y": (y - self._answer_centre) / self._answer_unit}

    def predict(self, X):
        """E[y | x] = Σ_j p(expert j | x) · its plane at x, (n,)."""
        data = self._asked(X)
        return np.asarray(self.fit_.predict(data, "y"),
                          float) * self._answer_unit + self._answer_centre

    @property
    def predict_proba(self):
        """A regression has no classes."""
        raise AttributeError(
            f"{type(self).__name__} has no predict_proba: gates(X) tells p(expert | x), "
            f"responsibilities(X, y) that given y"
        )

    @property
    def scale_(self):
        """σ of every expert, (experts,), in units of y."""
        check_is_fitted(self, "fit_")
        return np.asarray(self.fit_.params["precision"], float) ** -0.5 * self._answer_unit


def _answers(y) -> np.ndarray:
    y = column_or_1d(y, warn=True)
    return check_array(y, dtype=np.float64, ensure_2d=False, ensure_all_finite="allow-nan",
                       input_name="y").astype(float)


class MixtureOfExpertsClassifier(_Experts, Classifier):
    """Classification by experts, each a softmax regression, that a softmax gate shares the rows out
    to.

    The model is that of MixtureOfExperts with softmax experts, of standardised X. Rows whose label
    is None or NaN are left out.

    Args: those of MixtureOfExperts but for `scale`; weight_scale is in logits per standard
        deviation of a column.

    Attributes:
        classes_; coef_ (k, classes − 1, d) and intercept_ (k, classes − 1), logits against the
        first class; and those of MixtureOfExperts but for scale_.
    """

    def _learn(self, X, y, sample_weight, classes):
        X, codes, weights = self._batch(X, y, sample_weight, classes, True)
        seen = ~np.isnan(codes) if codes.dtype.kind == "f" else np.ones(len(codes), bool)
        X, codes, weights = (X[seen], codes[seen].astype(int),
                             None if weights is None else weights[seen])
        if len(self.classes_) < 2:
            raise DataError(f"y has one class, {self.classes_.tolist()[0]!r}: a classifier needs "
                            f"rows of two or more")
        self._refuse_few(X, codes)
        self._standardise(X, weights)
        model = self._experts(classes=len(self.classes_))
        self._learnt(self._infer(model, {**self._data(X), "y": codes}, weights, {}, False), X,
                     weights, 1.0)
        return self

    def as_data(self, X, y=None):
        """Rows as the data of `fit_`: X less its means and in its standard deviations, and y as
        codes of classes_, NaN unseen."""
        data = self._asked(X)
        if y is None:
            return data
        check_consistent_length(data["x"], y)
        return data | {"y": self._codes(y, self.classes_)}
