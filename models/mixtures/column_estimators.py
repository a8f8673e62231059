"""Mixtures of categories, counts and columns of several kinds, by the manners of scikit-learn."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from probml.engines.engine import Engine
from probml.estimators.mixture import Mixture
from probml.estimators.rules import (
    ANY,
    ENGINE,
    FLAG,
    SEED,
    STARTS,
    Seed,
    integer,
    number,
    numbers,
    one_of,
    optional,
    parameter,
    sizes,
)
from probml.estimators.validation import check_is_fitted
from probml.models.frames.learning import learn_for, validated_columns
from probml.models.frames.ties import refuse_constant, warn_of_ties
from probml.models.frames.units import InUnits
from probml.models.mixtures.naive_bayes import naive_bayes
from probml.numerics.process.libraries import pd


class _Columns(InUnits, Mixture):
    """A mixture whose columns are independent given the component: naive Bayes with its classes
    unseen."""

    _named = {kind: f"{kind}_prior" for kind in ("normal", "exponential", "poisson")}

    def _settings(self):
        """(categorical, kinds) of the columns."""
        return self.categorical, self.kinds

    def _validated(self, X, reset):
        X = validated_columns(self, X, reset, frames=self._settings())
        if reset:
            self.columns_ = learn_for(self, X, *self._settings())
        return X

    def _site_columns(self):
        return self.columns_.cells

    def _categories(self):
        return self.columns_.categories

    def _data(self, X):
        return self.columns_.data(X)

    @property
    def _components(self) -> int:  # type: ignore[override]
        return int(np.max(self.n_components))

    def _model(self, k):
        settings = {name: getattr(self, name) for name in ("concentration", "alpha", "mean_scale",
                                                           "shape") if hasattr(self, name)}
        settings |= self._prior()
        return naive_bayes(classes=k, features=self.columns_.features, target="z", **settings)

    def _check_likelihood_is_bounded(self, X, codes):
        refuse_constant(self.columns_, self._data(X))

    def _row_notes(self, X):
        warn_of_ties(self.columns_, self._data(X))
        return [self.columns_.status] if self.columns_.status else []

    def _rows_of(self, data):
        return self.columns_.rows(data)

    @property
    def tables_(self):
        """Column → parameter → (k, ...), each column's parameters in every component."""
        return self.columns_.tables(self.fit_.params)

    def table(self, column):
        """What was learnt of one column, a pandas table with a component a row: the probabilities
        of its categories, or its parameters.

        Raises:
            ModelError: no such column.
        """
        check_is_fitted(self, "fit_")
        rows = pd.RangeIndex(len(self.weights_), name="component")
        return self.columns_.table(column, self.fit_.params, rows)


@dataclass(eq=False, repr=False)
class MixedMixture(_Columns):
    """Components in which the columns are independent, each column of its own kind; missing cells
    are NaN or None.

    The model is probml.models.naive_bayes with its classes latent.

    Args:
        n_components: components, k; or several to choose among, as in GaussianMixture.
        categorical: None, "all", or the categorical columns by name or index. Columns of text,
            booleans, categories, and of at most ten distinct whole numbers are categorical by
            themselves (probml.models.kinds); what was guessed is shown in columns_.
        kinds: a kind for all columns, or column → kind, for those that are not as guessed:
            "normal", "categorical", "bernoulli", "poisson", "geometric", "exponential", or
            "multinomial" (all such columns are one vector of counts).
        categories: None (those that occur), or column → categories, or one list for all.
        alpha: pseudo-rows a category; 2 is Laplace's rule at the mode.
        unknown: "refuse", or "prior": a category that is new in a prediction gets the prior's mass
        alpha. tol, max_iter, n_init, random_state, prior, accelerate, engine, concentration,
            centre, mean_scale, scale: as in GaussianMixture.
        shape, rate: Gamma prior of Poisson and exponential rates, see naive_bayes; by default
            with its mode at the rate of all rows of the column.

    Attributes:
        weights_ (k,), tables_, columns_, converged_, n_iter_, lower_bound_, n_parameters_, fit_.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> penguins = pd.read_csv(files("probml.data") / "penguins.csv")
        >>> from probml.models import MixedMixture
        >>> X = penguins[["island", "bill_length_mm", "body_mass_g"]]
        >>> mixture = MixedMixture(n_components=3, n_init=5, random_state=0).fit(X)
        >>> print(mixture.weights_.round(1))
        [0.4 0.4 0.2]
        >>> print(mixture.impute(X)["body_mass_g"].isna().sum())
        0
    """

    _title: ClassVar[str] = "Mixture model for columns of mixed type"

    n_components: int | Sequence[int] = parameter(2, sizes(1))
    _: KW_ONLY
    categorical: Collection | str | None = parameter(None, ANY)
    kinds: Mapping[Hashable, str] | Sequence[str] | None = parameter(None, ANY)
    categories: Mapping[Hashable, Sequence] | Sequence | str | None = parameter(None, ANY)
    alpha: float = parameter(2.0, number(0.0, above=True))
    unknown: str = parameter("refuse", one_of("refuse", "prior"))
    tol: float = parameter(1e-7, number(0.0))
    max_iter: int = parameter(1000, integer(1))
    n_init: int | None = parameter(None, optional(STARTS))
    random_state: Seed = parameter(None, SEED)
    criterion: str = parameter("bic", one_of("bic", "icl", "aic"))
    prior: bool = parameter(True, FLAG)
    accelerate: bool = parameter(True, FLAG)
    concentration: ArrayLike = parameter(1.0, numbers(0.0))
    centre: ArrayLike | None = parameter(None, optional(numbers(-np.inf)))
    mean_scale: float = parameter(1000.0, number(0.0, above=True))
    scale: ArrayLike | None = parameter(None, optional(numbers(0.0)))
    shape: float = parameter(2.0, number(0.0, above=True))
    rate: float | None = parameter(None, optional(number(0.0, above=True)))
    engine: Engine | None = parameter(None, ENGINE)


@dataclass(eq=False, repr=False)
class LatentClass(_Columns):
    """Latent class analysis: categorical columns that are independent given a latent class; missing
    cells are NaN or None.

    Args: those of MixedMixture that concern categories.

    Attributes: weights_ (k,), tables_: column → {"probs": (k, categories)}, and those of
        MixedMixture.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> votes = pd.read_csv(files("probml.data") / "votes.csv")
        >>> X, y = votes.drop(columns="Class"), votes["Class"]
        >>> from probml.models import LatentClass
        >>> classes = LatentClass(n_components=2, n_init=5, random_state=0).fit(X)
        >>> print(classes.weights_.round(2))
        [0.52 0.48]
        >>> print(classes.table("V4").round(2))
        V4            n     y
        component            
        0          0.96  0.04
        1          0.17  0.83
    """

    _title: ClassVar[str] = "Latent class model"
    _size_noun: ClassVar[str] = "classes"

    n_components: int | Sequence[int] = parameter(2, sizes(1))
    _: KW_ONLY
    categories: Mapping[Hashable, Sequence] | Sequence | str | None = parameter(None, ANY)
    alpha: float = parameter(2.0, number(0.0, above=True))
    unknown: str = parameter("refuse", one_of("refuse", "prior"))
    tol: float = parameter(1e-7, number(0.0))
    max_iter: int = parameter(1000, integer(1))
    n_init: int | None = parameter(None, optional(STARTS))
    random_state: Seed = parameter(None, SEED)
    criterion: str = parameter("bic", one_of("bic", "icl", "aic"))
    prior: bool = parameter(True, FLAG)
    accelerate: bool = parameter(True, FLAG)
    concentration: ArrayLike = parameter(1.0, numbers(0.0))
    engine: Engine | None = parameter(None, ENGINE)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        return tags

    def _settings(self):
        return "all", None


@dataclass(eq=False, repr=False)
class PoissonMixture(_Columns):
    """Components in which every column is an independent Poisson count; missing cells are NaN.

    Args: those of MixedMixture that concern counts.

    Attributes: weights_ (k,), rates_ (k, d), and those of MixedMixture.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> quakes = pd.read_csv(files("probml.data") / "earthquakes.csv")
        >>> from probml.models import PoissonMixture
        >>> X = quakes[["count"]]
        >>> mixture = PoissonMixture(n_components=2, n_init=5, random_state=0).fit(X)
        >>> print(mixture.weights_.round(1))
        [0.7 0.3]
        >>> print(mixture.rates_.round(0))
        [[16.]
         [27.]]
    """

    n_components: int | Sequence[int] = parameter(2, sizes(1))
    _: KW_ONLY
    tol: float = parameter(1e-7, number(0.0))
    max_iter: int = parameter(1000, integer(1))
    n_init: int | None = parameter(None, optional(STARTS))
    random_state: Seed = parameter(None, SEED)
    criterion: str = parameter("bic", one_of("bic", "icl", "aic"))
    prior: bool = parameter(True, FLAG)
    accelerate: bool = parameter(True, FLAG)
    concentration: ArrayLike = parameter(1.0, numbers(0.0))
    shape: float = parameter(2.0, number(0.0, above=True))
    rate: float | None = parameter(None, optional(number(0.0, above=True)))
    engine: Engine | None = parameter(None, ENGINE)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        # scikit-learn's only word for "whole numbers": its checks then round their data
        tags.input_tags.categorical = True
        return tags

    def _settings(self):
        return None, "poisson"

    @property
    def rates_(self):
        """The Poisson rates, (k, d)."""
        return self.fit_.params["poisson_rate"]
