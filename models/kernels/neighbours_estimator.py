"""Nearest neighbours as a predictive distribution, how many of them chosen by leaving one out."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from probml import DataError
from probml.errors import counted
from probml.estimators.classifier import Classifier
from probml.estimators.rules import FLAG, SEED, Seed, check, number, parameter, sizes
from probml.estimators.validation import check_is_fitted
from probml.models.frames.complete import refuse_missing
from probml.models.frames.scaling import middle_and_unit


@dataclass(eq=False, repr=False)
class NearestNeighbours(Classifier):
    """The classes of a row's k nearest neighbours, as a Dirichlet–categorical:

        p(y = c | x) = (n_c(x) + a) / (k + a · classes),   n_c of the k nearest rows of class c

    Of several k the one is used under which the rows' own labels are most probable, each evaluated
    by its neighbours without itself: Σ log p(y_i | x_i, all others), which is exact here, and needs
    no refit. scikit-learn finds the neighbours.

    Args:
        n_neighbors: k; or several, such as range(1, 31), to choose among.
        concentration: a, pseudo-neighbours of each class; with 0 counting alone, which is sure
            where all k agree, and of which no k below about 20 survives the choice.
        scale: measure distances in standard deviations of the columns.
        random_state: nothing here is by chance.

    Attributes:
        classes_, n_neighbors_, the k that is used; scores_: k → mean log score left out a
        row; n_features_in_.

    Sources: Cover & Hart (1967), "Nearest neighbor pattern classification"; Holmes & Adams (2002),
        "A probabilistic nearest neighbour method", for the posterior of k that this is a mode of.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> iris = pd.read_csv(files("probml.data") / "iris.csv")
        >>> X, y = iris.drop(columns="Species"), iris["Species"]
        >>> from probml.models import NearestNeighbours
        >>> neighbours = NearestNeighbours(range(1, 16)).fit(X, y)   # k by leave-one-out
        >>> round(neighbours.score(X, y), 2)
        0.97
    """

    n_neighbors: int | Sequence[int] = parameter(range(1, 31), sizes(1))
    _: KW_ONLY
    concentration: float = parameter(0.5, number(0.0))
    scale: bool = parameter(True, FLAG)
    random_state: Seed = parameter(None, SEED)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = False
        return tags

    def fit(self, X, y):  # type: ignore[override] # no weights
        """Store the rows X (n, d), all values observed, and the labels y (n,).

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell or a label that cannot be used,
                by name; fewer rows than the least k and one.
        """
        from sklearn.neighbors import NearestNeighbors

        check(self)
        X, codes, _ = self._batch(X, y, None, None, True)
        labelled = ~np.isnan(codes.astype(float))
        X, codes = X[labelled], codes[labelled].astype(int)
        ks = np.unique(np.atleast_1d(np.asarray(self.n_neighbors)))
        candidates = ks[ks < max(len(X), 2)]
        if not len(candidates):
            raise DataError(f"NearestNeighbours(n_neighbors={self.n_neighbors!r}): a row of X has "
                            f"only {counted(len(X) - 1, 'neighbour')}, because n_samples={len(X)}. "
                            f"Use n_neighbors of at most {len(X) - 1}")
        self._middle, unit = middle_and_unit(X)
        self._unit = unit if self.scale else np.ones(X.shape[1])
        self._codes_, self._rows = codes, NearestNeighbors().fit(self._z(X))
        self.scores_ = {}
        if len(X) > 1:
            k_max = int(candidates[-1])
            neighbours = self._rows.kneighbors(n_neighbors=k_max, return_distance=False)
            votes = self._counted(neighbours)
            own_votes = votes[np.arange(len(X)), :, codes]
            for k in candidates:
                with np.errstate(divide="ignore"):
                    self.scores_[int(k)] = float(np.log(self._share(own_votes[:, k - 1], k)).mean())
        self.n_neighbors_ = (max(self.scores_, key=lambda k: self.scores_[k]) if self.scores_
                             else int(candidates[0]))
        return self

    def _refuse_gaps(self, X, reset: bool) -> None:
        super()._refuse_gaps(X, reset)
        refuse_missing(self, X, "distances need a number in every column. Fill in the missing "
                       "values first")

    def _z(self, X) -> np.ndarray:
        return (X - self._middle) / self._unit

    def _counted(self, neighbours: np.ndarray) -> np.ndarray:
        """(rows, k, classes): how many of the 1, 2, … nearest are of each class."""
        member = self._codes_[neighbours][..., None] == np.arange(len(self.classes_))
        return member.cumsum(1)

    def _share(self, count, k) -> np.ndarray:
        return (count + self.concentration) / (k + self.concentration * len(self.classes_))

    def predict_proba(self, X):
        """p(class | row), (n, classes)."""
        check_is_fitted(self, "n_neighbors_")
        k = min(self.n_neighbors_, len(self._codes_))
        neighbours = self._rows.kneighbors(self._z(self._validated(X, reset=False)), k,
                                           return_distance=False)
        return self._share(self._counted(neighbours)[:, -1], k)
