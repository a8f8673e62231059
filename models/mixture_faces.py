"""scikit-learn faces of the models whose components are never seen: Gaussian mixtures, latent classes, counts, mixed columns."""

from numbers import Integral

import numpy as np

from probml import DataError, ModelError
from probml.estimator import Mixture, flat
from probml.models import columns
from probml.models.gaussian_mixture import COVARIANCES, canonical, gaussian_mixture
from probml.models.naive_bayes import naive_bayes
from probml.models.starts import precision_near
from probml.models.units import InUnits
from probml.parameters import ANY, ENGINE, FLAG, SEED, number, numbers, one_of, optional, sizes, whole

COVARIANCE = (
    "one of 'full', 'tied', 'diag', 'spherical', 'tied diag', 'tied spherical'",
    lambda value: isinstance(value, str) and canonical(value) in COVARIANCES,
)
_SEARCH = {
    "n_components": sizes(1),
    "criterion": one_of("bic", "icl", "aic"),
    "tol": number(0.0),
    "max_iter": whole(1),
    "n_init": optional(whole(1)),
    "random_state": SEED,
    "prior": FLAG,
    "accelerate": FLAG,
    "engine": ENGINE,
}
_NORMAL = {"centre": optional(numbers(-np.inf)), "mean_scale": number(0.0, above=True), "scale": optional(numbers(0.0))}


class GaussianMixture(InUnits, Mixture):
    """A mixture of normals; unseen cells are NaN. The model is probml.models.gaussian_mixture.

    The names are scikit-learn's. What differs: the default is the mode under a weak, constant prior that no component can
    collapse under (prior=False is the likelihood); `tol` is the gain per row at which EM stops; there is no `reg_covar`.

    Args:
        n_components: components, k; or several, range(1, 10), to choose among by `criterion`.
        covariance_type: "full", "diag" or "spherical" for each; "tied", "tied diag" or "tied spherical" for one shared.
        tol: stop when an iteration gains less than this a row, in nats.
        max_iter: EM iterations at the most; one that stops there warns and leaves converged_ False.
        n_init: starts, run as one program; the best is kept. None: as many as about a second buys, see EM.
        weights_init, means_init, precisions_init: start, (k,), (k, d), and the shape of precisions_. Beside means_init, weights
            that are not given are equal, and precisions one diagonal for all, 1 / the mean squared distance to the nearest
            mean, so that no unit of measurement matters; without means_init the engine finds what is not given.
        random_state: seed of the starts and of sample(); None is 0, a fit repeats.
        criterion: of several n_components the lowest "bic" (Schwarz 1978), "icl" (Biernacki, Celeux & Govaert 2000: BIC and twice
            the doubt of the assignments) or "aic" is kept; all fits are starts of one program.
        prior: posterior mode (True) or maximum likelihood (False).
        accelerate: extrapolate EM (SQUAREM), fewer passes to the same point.
        hard: classification EM; with "tied spherical" and a large concentration it is k-means.
        concentration: pseudo-rows of every component's weight; 1/k or less lets components that are not needed empty themselves.
        centre, mean_scale, scale: the prior of means and covariances in units of X, see gaussian_mixture; centre and scale are by
            default (None) each column's mean and a tenth of its standard deviation: no unit of measurement matters.
        engine: an engine's value instead of the EM that these arguments describe.

    Attributes:
        weights_ (k,), means_ (k, d); covariances_ and precisions_: (k, d, d) full, (d, d) tied, (k, d) diag, (k,) spherical,
        (d,) tied diag, () tied spherical; converged_, n_iter_, lower_bound_ (the objective a row), lower_bounds_, n_parameters_;
        fit_: the probml Fit; of several n_components: n_components_, the one kept, fits_ (components → Fit) and table_, a DataFrame
        with n_components, loglik, parameters, aic, bic, icl, converged.
    """

    _rules = {
        **_SEARCH,
        "covariance_type": COVARIANCE,
        "hard": FLAG,
        "concentration": numbers(0.0),
        **_NORMAL,
        "weights_init": ANY,
        "means_init": ANY,
        "precisions_init": ANY,
    }

    def __init__(
        self,
        n_components=1,
        *,
        covariance_type="full",
        tol=1e-7,
        max_iter=1000,
        n_init=None,
        weights_init=None,
        means_init=None,
        precisions_init=None,
        random_state=None,
        criterion="bic",
        prior=True,
        accelerate=True,
        hard=False,
        concentration=1.0,
        centre=None,
        mean_scale=1000.0,
        scale=None,
        engine=None,
    ):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.weights_init = weights_init
        self.means_init = means_init
        self.precisions_init = precisions_init
        self.random_state = random_state
        self.criterion = criterion
        self.prior = prior
        self.accelerate = accelerate
        self.hard = hard
        self.concentration = concentration
        self.centre = centre
        self.mean_scale = mean_scale
        self.scale = scale
        self.engine = engine

    def _model(self, k):
        return gaussian_mixture(
            k=k,
            d=self.n_features_in_,
            covariance=canonical(self.covariance_type),
            concentration=self.concentration,
            mean_scale=self.mean_scale,
            **self._prior(),
        )

    def _start(self, X, labels):
        given = {"weights": self.weights_init, "mean": self.means_init, "precision": self.precisions_init}
        if all(value is None for value in given.values()):
            return {}
        k, d = self.n_components, self.n_features_in_
        if not isinstance(k, Integral):
            raise ModelError(f"weights_init, means_init and precisions_init need one n_components, got n_components={k!r}")
        tied = canonical(self.covariance_type).startswith("tied")
        shape = (() if tied else (k,)) + _matrix(self.covariance_type, d)
        names = {"weights": ("weights_init", (k,)), "mean": ("means_init", (k, d)), "precision": ("precisions_init", shape)}
        start = {}
        for site, value in given.items():
            name, expected = names[site]
            if value is None:
                continue
            try:
                start[site] = np.asarray(value, float)
            except (TypeError, ValueError):
                raise ModelError(f"{name}: expected numbers of shape {expected}, got {value!r}") from None
            if start[site].shape != expected:
                raise ModelError(f"{name} has shape {start[site].shape}, expected {expected}")
        if self.means_init is not None:  # without means the engine finds some that suit what is given
            start.setdefault("weights", np.full(k, 1 / k))
            start.setdefault("precision", np.broadcast_to(precision_near(X, start["mean"], _matrix(self.covariance_type, d)), shape))
        return start

    def _judge(self, X, codes):
        if not self.covariance_type.endswith("spherical") and (constant := flat(X)).any():
            raise DataError(
                f"{self._column(int(np.argmax(constant)))} is constant: a normal that is fitted to it has variance 0 and no maximum "
                "of the likelihood. Drop it, or keep prior=True"
            )

    def _doubt(self, X):
        columns.warn_of_tied(X, self._column, "Drop it, or take MixedMixture, which treats it as categories")
        return []

    @property
    def means_(self):
        return self.fit_.params["mean"]

    @property
    def precisions_(self):
        return self.fit_.params["precision"]

    @property
    def covariances_(self):
        precision = self.fit_.params["precision"]
        return np.linalg.inv(precision) if canonical(self.covariance_type) in ("full", "tied") else 1 / precision


def _matrix(covariance_type: str, d: int) -> tuple[int, ...]:
    """The shape of one precision."""
    name = canonical(covariance_type)
    return () if name.endswith("spherical") else (d,) if name.endswith("diagonal") else (d, d)


class _Columns(InUnits, Mixture):
    """A mixture whose columns are independent given the component: naive Bayes with its classes unseen."""

    _named = {kind: f"{kind}_prior" for kind in ("normal", "exponential", "poisson")}

    def _settings(self):
        """(categorical, kinds) of the columns."""
        return self.categorical, self.kinds

    def _take(self, X, reset):
        X = columns.take(self, X, reset, frames=self._settings())
        if reset:
            self.columns_ = columns.learn_for(self, X, *self._settings())
        return X

    def _data(self, X):
        return self.columns_.data(X)

    def _model(self, k):
        given = {name: getattr(self, name) for name in ("concentration", "alpha", "mean_scale", "shape") if hasattr(self, name)}
        given |= self._prior()
        return naive_bayes(classes=k, features=self.columns_.features, target="z", **given)

    def _judge(self, X, codes):
        columns.refuse_constant(self.columns_, self._data(X))

    def _doubt(self, X):
        columns.warn_of_ties(self.columns_, self._data(X))
        return [self.columns_.status] if self.columns_.status else []

    def _rows_of(self, data):
        return self.columns_.rows(data)

    @property
    def tables_(self):
        """Column → parameter → (k, ...), each column's parameters in every component."""
        return self.columns_.tables(self.fit_.params)


class MixedMixture(_Columns):
    """Components in which the columns are independent, each column of its own kind; unseen cells are NaN or None.

    The model is probml.models.naive_bayes with its classes unseen.

    Args:
        n_components: components, k; or several to choose among, as in GaussianMixture.
        categorical: None, "all", or the categorical columns by name or index. Columns of text, booleans, categories, and of at most ten
            distinct whole numbers are categorical by themselves (probml.models.kinds); what was guessed is shown in columns_.
        kinds: a kind for all columns, or column → kind, for those that are not as guessed: "normal", "categorical", "bernoulli",
            "poisson", "geometric", "exponential", or "multinomial" (all such columns are one vector of counts).
        categories: None (those that are seen), or column → categories, or one list for all.
        alpha: pseudo-rows a category; 2 is Laplace's rule at the mode.
        unknown: "refuse", or "prior": a category unseen in training gets the prior's mass alpha.
        tol, max_iter, n_init, random_state, prior, accelerate, engine, concentration, centre, mean_scale, scale: as in
            GaussianMixture.
        shape, rate: Gamma prior of Poisson and exponential rates, see naive_bayes; by default a hundredth of a row of counts, or of a
            column's mean waiting time.

    Attributes:
        weights_ (k,), tables_, columns_, converged_, n_iter_, lower_bound_, n_parameters_, fit_.
    """

    _rules = {
        **_SEARCH,
        "categorical": ANY,
        "kinds": ANY,
        "categories": ANY,
        "unknown": one_of("refuse", "prior"),
        "concentration": numbers(0.0),
        "alpha": number(0.0, above=True),
        **_NORMAL,
        "shape": number(0.0, above=True),
        "rate": optional(number(0.0, above=True)),
    }

    def __init__(
        self,
        n_components=2,
        *,
        categorical=None,
        kinds=None,
        categories=None,
        alpha=2.0,
        unknown="refuse",
        tol=1e-7,
        max_iter=1000,
        n_init=None,
        random_state=None,
        criterion="bic",
        prior=True,
        accelerate=True,
        concentration=1.0,
        centre=None,
        mean_scale=1000.0,
        scale=None,
        shape=2.0,
        rate=None,
        engine=None,
    ):
        self.n_components = n_components
        self.categorical = categorical
        self.kinds = kinds
        self.categories = categories
        self.alpha = alpha
        self.unknown = unknown
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.random_state = random_state
        self.criterion = criterion
        self.prior = prior
        self.accelerate = accelerate
        self.concentration = concentration
        self.centre = centre
        self.mean_scale = mean_scale
        self.scale = scale
        self.shape = shape
        self.rate = rate
        self.engine = engine


class LatentClass(_Columns):
    """Latent class analysis: categorical columns that are independent given an unseen class; unseen cells are NaN or None.

    Args: those of MixedMixture that concern categories.

    Attributes: weights_ (k,), tables_: column → {"probs": (k, categories)}, and those of MixedMixture.
    """

    _rules = {name: MixedMixture._rules[name] for name in (*_SEARCH, "categories", "unknown", "concentration", "alpha")}

    def __init__(
        self,
        n_components=2,
        *,
        categories=None,
        alpha=2.0,
        unknown="refuse",
        tol=1e-7,
        max_iter=1000,
        n_init=None,
        random_state=None,
        criterion="bic",
        prior=True,
        accelerate=True,
        concentration=1.0,
        engine=None,
    ):
        self.n_components = n_components
        self.categories = categories
        self.alpha = alpha
        self.unknown = unknown
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.random_state = random_state
        self.criterion = criterion
        self.prior = prior
        self.accelerate = accelerate
        self.concentration = concentration
        self.engine = engine

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        return tags

    def _settings(self):
        return "all", None


class PoissonMixture(_Columns):
    """Components in which every column is an independent Poisson count; unseen cells are NaN.

    Args: those of MixedMixture that concern counts.

    Attributes: weights_ (k,), rates_ (k, d), and those of MixedMixture.
    """

    _rules = {name: MixedMixture._rules[name] for name in (*_SEARCH, "concentration", "shape", "rate")}

    def __init__(
        self,
        n_components=2,
        *,
        tol=1e-7,
        max_iter=1000,
        n_init=None,
        random_state=None,
        criterion="bic",
        prior=True,
        accelerate=True,
        concentration=1.0,
        shape=2.0,
        rate=None,
        engine=None,
    ):
        self.n_components = n_components
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.random_state = random_state
        self.criterion = criterion
        self.prior = prior
        self.accelerate = accelerate
        self.concentration = concentration
        self.shape = shape
        self.rate = rate
        self.engine = engine

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.categorical = True  # scikit-learn's only word for "whole numbers": its checks then round their data
        return tags

    def _settings(self):
        return None, "poisson"

    @property
    def rates_(self):
        """The Poisson rates, (k, d)."""
        return self.fit_.params["poisson_rate"]
