"""scikit-learn faces of the models whose classes are seen, in part at least: naive Bayes, discriminant analysis."""

import warnings

import numpy as np

from probml import EM, DataError, Refusal
from probml.estimator import Additive, Classifier, Face, flat
from probml.models import columns
from probml.models.gaussian_mixture import COVARIANCES, canonical, gaussian_mixture
from probml.models.mixture_of_mixtures import mixture_of_mixtures
from probml.models.naive_bayes import naive_bayes
from probml.models.starts import far_rows, precision_near
from probml.models.units import InUnits
from probml.models.unlabelled import WEIGHT, PartlyLabelled
from probml.parameters import ANY, ENGINE, FLAG, SEED, number, numbers, one_of, optional, whole

COVARIANCE = (
    "one of 'own', 'shared', 'diagonal', 'spherical', 'shared diagonal', 'shared spherical', or scikit-learn's 'full', 'tied', 'diag'",
    lambda value: isinstance(value, str) and canonical(value) in COVARIANCES,
)
_SEARCH = {"tol": number(0.0), "max_iter": whole(1), "random_state": SEED, "prior": FLAG, "unlabelled_weight": WEIGHT, "engine": ENGINE}
_NORMAL = {
    "concentration": numbers(0.0),
    "centre": optional(numbers(-np.inf)),
    "mean_scale": number(0.0, above=True),
    "scale": optional(numbers(0.0)),
}


class NaiveBayes(PartlyLabelled, InUnits, Additive, Classifier):
    """Naive Bayes over columns of any kind; unseen cells, and unseen labels, are NaN or None.

    The model is probml.models.naive_bayes. With all labels seen and prior=True the posterior is exact and predictions are
    averaged over it (plug_in=True: at the posterior mean); with some labels unseen the fit is the mode, by EM; prior=False
    is maximum likelihood.

    Args:
        categorical: None, "all", or the categorical columns by name or index. Columns of text, booleans, categories, and of at most ten
            distinct whole numbers are categorical by themselves (probml.models.kinds); what was guessed is shown in columns_.
        kinds: a kind for all columns, or column → kind, for those that are not as guessed: "normal", "categorical", "bernoulli",
            "poisson", "geometric", "exponential", or "multinomial" (all such columns are one vector of counts).
        categories: None (those that are seen), or column → categories, or one list for all: with partial_fit, those to come.
        alpha: pseudo-rows of every category; 1 is Laplace's rule.
        concentration: pseudo-rows of every class.
        unknown: "refuse", or "prior": a category unseen in training gets the prior's mass alpha.
        prior: use the priors (True), or maximum likelihood (False).
        plug_in: predict at the point estimate instead of averaging over the posterior.
        centre, mean_scale, scale: prior of the normal columns, see naive_bayes; in units of X, by default (None) about each column's
            mean and a tenth of its standard deviation within the classes, so that no unit of measurement matters.
        shape, rate: Gamma prior of Poisson and exponential rates, see naive_bayes; by default a hundredth of a row of counts, or of a
            column's mean waiting time.
        tol, max_iter: of EM, where labels are unseen.
        unlabelled_weight: how much a row without a label counts, beside 1 of one with a label; "auto": chosen by the log score of held-out
            labels. A warning says where such rows make held-out labels less probable, and which weight helps (Nigam et al. 2000).
        random_state: seed of EM's start; None is 0.
        engine: an engine's value; by default Exact() where it can, else EM.

    Attributes:
        classes_, class_prior_ (k,), tables_ (column → parameter → (k, ...)), theta_ and var_ (k, normal columns),
        columns_, fit_: the probml Fit.
    """

    _target = "class"
    _named = {kind: f"{kind}_prior" for kind in ("normal", "exponential", "poisson")}
    _rules = {
        "categorical": ANY,
        "kinds": ANY,
        "categories": ANY,
        "alpha": number(0.0, above=True),
        "unknown": one_of("refuse", "prior"),
        "plug_in": FLAG,
        **_NORMAL,
        "shape": number(0.0, above=True),
        "rate": optional(number(0.0, above=True)),
        **_SEARCH,
    }

    def __init__(
        self,
        categorical=None,
        *,
        kinds=None,
        categories=None,
        alpha=1.0,
        concentration=1.0,
        unknown="refuse",
        prior=True,
        plug_in=False,
        centre=None,
        mean_scale=1000.0,
        scale=None,
        shape=1.0,
        rate=None,
        tol=1e-7,
        max_iter=1000,
        unlabelled_weight=1.0,
        random_state=None,
        engine=None,
    ):
        self.categorical = categorical
        self.kinds = kinds
        self.categories = categories
        self.alpha = alpha
        self.concentration = concentration
        self.unknown = unknown
        self.prior = prior
        self.plug_in = plug_in
        self.centre = centre
        self.mean_scale = mean_scale
        self.scale = scale
        self.shape = shape
        self.rate = rate
        self.tol = tol
        self.max_iter = max_iter
        self.unlabelled_weight = unlabelled_weight
        self.random_state = random_state
        self.engine = engine

    def _take(self, X, reset):
        X = columns.take(self, X, reset, frames=(self.categorical, self.kinds))
        if reset:
            self.columns_ = columns.learn_for(self, X, self.categorical, self.kinds)
        return X

    def _data(self, X):
        return self.columns_.data(X)

    def _model(self, k):
        given = {name: getattr(self, name) for name in ("concentration", "alpha", "mean_scale", "shape")} | self._prior()
        return naive_bayes(classes=k, features=self.columns_.features, **given)

    def _doubt(self, X):
        return [self.columns_.status] if self.columns_.status else []

    def _judge(self, X, codes):
        data = self._data(X)
        for code, label in enumerate(self.classes_.tolist()):
            columns.refuse_constant(self.columns_, {name: values[codes == code] for name, values in data.items()}, label)

    def bayes_factors(self, X, a, b):
        """p(x_f | class a) / p(x_f | class b) of every cell, (n, d): times the prior odds, their product is the posterior odds.

        An unseen cell has the factor 1. The cells of a multinomial vector are one draw, whose factor has no parts.

        Raises:
            DataError: a or b is not a class, or a column is multinomial.
        """
        data, (n, width) = self._asked(X), np.shape(X)
        for label in (a, b):
            if label not in self.classes_:
                raise DataError(f"bayes_factors: {label!r} is not one of the classes {self.classes_.tolist()}")
        if "multinomial" in self.columns_.kinds:
            raise DataError("bayes_factors: the columns of kind 'multinomial' are one vector, whose factor has no parts: use 'poisson'")
        alone = {}  # every row d times, with one column seen in each
        for name, (_, js) in self.columns_.groups.items():
            cells = np.full((width, n, len(js)), np.nan)
            cells[js, :, range(len(js))] = np.asarray(data[name], float).T
            alone[name] = cells.reshape(width * n, len(js))
        names = np.empty(width * n, object)
        logs = []
        for label in (a, b):
            names[:] = self.classes_[self.classes_ == label].tolist()[0]
            logs.append(self.fit_.log_prob({**alone, self._target: names}, plug_in=self.plug_in))
        blank = {name: np.full((1, len(js)), np.nan) for name, (_, js) in self.columns_.groups.items()}
        prior = self.fit_.predict_proba(blank, self._target, plug_in=self.plug_in)[0]
        odds = prior[self.classes_ == b][0] / prior[self.classes_ == a][0]
        return np.exp(logs[0] - logs[1]).reshape(width, n).T * odds

    @property
    def class_prior_(self):
        """The classes' weights, (k,)."""
        return self.fit_.params["weights"]

    @property
    def tables_(self):
        """Column → parameter → (k, ...), each column's parameters in every class."""
        return self.columns_.tables(self.fit_.params)

    @property
    def theta_(self):
        """Means of the normal columns, (k, normal columns)."""
        return self.fit_.params["normal_mean"]

    @property
    def var_(self):
        """Variances of the normal columns, (k, normal columns)."""
        return 1 / self.fit_.params["normal_precision"]


class GaussianDiscriminant(PartlyLabelled, InUnits, Additive, Classifier):
    """Gaussian discriminant analysis: a normal in each class. "own" is quadratic (QDA), "shared" linear (LDA).

    The model is probml.models.gaussian_mixture with its components seen. prior=False is maximum likelihood; scikit-learn's
    QDA divides by n − 1 instead, and its LDA by n.

    Args:
        covariance: "own", "diagonal" or "spherical" in each class; "shared", "shared diagonal" or "shared spherical" for all;
            scikit-learn's words "full", "tied" and "diag" are taken as well.
        prior, plug_in, tol, max_iter, unlabelled_weight, random_state, engine: as in NaiveBayes.
        concentration: pseudo-rows of every class.
        centre, mean_scale, scale: prior of means and covariances in units of X, see gaussian_mixture; centre and scale are by default
            (None) each column's mean and a tenth of its standard deviation within the classes: no unit of measurement matters.

    Attributes:
        classes_, priors_ (k,), means_ (k, d), covariance_ (k, d, d), (d, d), (k, d), (d,), (k,) or (), fit_.
    """

    _rules = {"covariance": COVARIANCE, "plug_in": FLAG, **_NORMAL, **_SEARCH}

    def __init__(
        self,
        covariance="own",
        *,
        prior=True,
        plug_in=False,
        concentration=1.0,
        centre=None,
        mean_scale=1000.0,
        scale=None,
        tol=1e-7,
        max_iter=1000,
        unlabelled_weight=1.0,
        random_state=None,
        engine=None,
    ):
        self.covariance = covariance
        self.prior = prior
        self.plug_in = plug_in
        self.concentration = concentration
        self.centre = centre
        self.mean_scale = mean_scale
        self.scale = scale
        self.tol = tol
        self.max_iter = max_iter
        self.unlabelled_weight = unlabelled_weight
        self.random_state = random_state
        self.engine = engine

    def _model(self, k):
        given = {name: getattr(self, name) for name in ("concentration", "mean_scale")} | self._prior()
        return gaussian_mixture(k=k, d=self.n_features_in_, covariance=canonical(self.covariance), **given)

    def _judge(self, X, codes):
        _refuse_flat(self, X, codes)

    @property
    def priors_(self):
        return self.fit_.params["weights"]

    @property
    def means_(self):
        return self.fit_.params["mean"]

    @property
    def covariance_(self):
        precision = self.fit_.params["precision"]
        return np.linalg.inv(precision) if canonical(self.covariance) in ("full", "tied") else 1 / precision


def _refuse_flat(face: Face, X, codes) -> None:
    """A column without spread has no maximum of the likelihood: in a class, or in all where the covariance is shared."""
    if face.covariance.endswith("spherical"):
        return
    groups = {f" in class {label!r}": X[codes == code] for code, label in enumerate(face.classes_.tolist())}
    if canonical(face.covariance).startswith("tied"):  # what is left after the classes' means, of all classes together
        groups = {" in every class": np.concatenate([mine - np.nanmean(mine, 0) for mine in groups.values() if len(mine) > 1])}
    for where, mine in groups.items():
        if len(mine) < 2:
            raise DataError(
                f"{where.removeprefix(' in ')} has {len(mine)} row: a normal of its own has variance 0 there and no maximum of the "
                "likelihood. Keep prior=True, share the covariance (covariance='shared'), or drop the class"
            )
        if (constant := flat(mine)).any():
            raise DataError(
                f"{face._column(int(np.argmax(constant)))} is constant{where}: its variance is 0 and the likelihood has no maximum. "
                "Drop it, or keep prior=True"
            )


class MixtureDiscriminant(PartlyLabelled, InUnits, Classifier):
    """Discriminant analysis by mixtures: a Gaussian mixture in each class (MclustDA), fitted by EM with the labels seen.

    The model is probml.models.mixture_of_mixtures.

    Args:
        n_components: components of each class, k.
        covariance: as in GaussianDiscriminant; "shared" is one for all components of all classes.
        n_init: starts, each by k-means++ within the classes; the best is kept.
        prior, tol, max_iter, unlabelled_weight, random_state, engine, concentration, centre, mean_scale, scale: as in GaussianDiscriminant.

    Attributes:
        classes_, priors_ (classes,), weights_ (classes, k) of the components in a class, means_ (classes, k, d), covariance_,
        fit_.
    """

    _target = "class"
    _rules = {"n_components": whole(1), "covariance": COVARIANCE, "n_init": whole(1), **_NORMAL, **_SEARCH}

    def __init__(
        self,
        n_components=2,
        *,
        covariance="own",
        n_init=1,
        prior=True,
        concentration=1.0,
        centre=None,
        mean_scale=1000.0,
        scale=None,
        tol=1e-7,
        max_iter=1000,
        unlabelled_weight=1.0,
        random_state=None,
        engine=None,
    ):
        self.n_components = n_components
        self.covariance = covariance
        self.n_init = n_init
        self.prior = prior
        self.concentration = concentration
        self.centre = centre
        self.mean_scale = mean_scale
        self.scale = scale
        self.tol = tol
        self.max_iter = max_iter
        self.unlabelled_weight = unlabelled_weight
        self.random_state = random_state
        self.engine = engine

    def _model(self, k):
        given = {name: getattr(self, name) for name in ("concentration", "mean_scale")} | self._prior()
        return mixture_of_mixtures(classes=k, k=self.n_components, d=self.n_features_in_, covariance=canonical(self.covariance), **given)

    def _judge(self, X, codes):
        _refuse_flat(self, X, codes)

    def _doubt(self, X):
        if self.n_components > 1:
            columns.warn_of_tied(X, self._column, "Drop it, or take NaiveBayes, which treats it as categories")
        return []

    def _infer(self, model, data, weights, start, complete):
        """The best of n_init starts, each with its own means: the engine's own start labels rows without regard to classes."""
        if self.n_components == 1 or self.engine is not None and not isinstance(self.engine, EM):
            return super()._infer(model, data, weights, start, complete)
        fits = []
        with warnings.catch_warnings(record=True) as caught:  # only the best one's failure to converge is the user's business
            warnings.simplefilter("always", RuntimeWarning)
            for i in range(self.n_init):
                start = self._begin(data["x"], data["class"], np.random.RandomState([self._seed(), i]))
                try:
                    fits.append(super()._infer(model, data, weights, start, False))
                except Refusal as refusal:  # a start whose component collapsed
                    failure = refusal
        if not fits:
            raise failure
        best = max(fits, key=lambda fit: fit.history[-1])
        if not best.converged:
            warnings.warn(str(caught[-1].message), RuntimeWarning, stacklevel=4)
        return best

    def _begin(self, X, codes, random) -> dict[str, np.ndarray]:
        """Every class begins at equal shares, at rows of its own that lie far from each other, and at their spread."""
        classes, k, d = self.classes_.tolist(), self.n_components, X.shape[1]
        event = {"full": (d, d), "tied": (d, d)}.get(canonical(self.covariance), () if self.covariance.endswith("spherical") else (d,))
        X = np.where(np.isnan(X), np.nanmean(X, 0), X)
        means, precisions = [], []
        for code, label in enumerate(classes):
            mine = X[codes == code]
            if len(mine) < k:
                raise DataError(f"class {label!r} has {len(mine)} rows, fewer than n_components={k} components: use at most {len(mine)}")
            means.append(far_rows(mine, k, random))
            precisions.append(precision_near(mine, means[-1], event))
        precision = np.stack([precisions] * k, 1) if not canonical(self.covariance).startswith("tied") else np.mean(precisions, 0)
        weights, shares = np.full(len(classes), 1 / len(classes)), np.full((len(classes), k), 1 / k)
        return {"weights": weights, "shares": shares, "mean": np.stack(means), "precision": precision}

    @property
    def priors_(self):
        return self.fit_.params["weights"]

    @property
    def weights_(self):
        return self.fit_.params["shares"]

    @property
    def means_(self):
        return self.fit_.params["mean"]

    @property
    def covariance_(self):
        precision = self.fit_.params["precision"]
        return np.linalg.inv(precision) if canonical(self.covariance) in ("full", "tied") else 1 / precision
