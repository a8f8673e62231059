"""What a hidden Markov model has learnt, by hmmlearn's names, which may be set as well."""

from collections.abc import Callable, Sequence
from numbers import Integral
from types import SimpleNamespace
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from probml import Fit, ModelError, stationary
from probml.estimators.validation import check_is_fitted
from probml.models.chains.hidden_markov import canonical_emission
from probml.models.frames.covariances import canonical
from probml.typing import SiteValues

# of each emission, beside those of the chain
SITES = {"categorical": ("probs",), "bernoulli": ("probs",), "poisson": ("rate",),
         "normal": ("mean", "scale")}


class ByName:
    """Attributes that are read from `fit_`; one that is set begins the next fit, and of an
    estimator that is not fitted all together are its parameters, as known ones."""

    # of the estimator
    initial: str
    emission: str
    start: SiteValues | None
    n_states: int | Sequence[int]
    n_symbols: int | None
    n_states_: int
    fit_: Fit
    converged_: bool
    n_iter_: int
    history_: np.ndarray
    _model: Callable[..., Any]
    _parameter: Callable[..., Any]

    def _set(self, site: str, value: ArrayLike) -> None:
        try:
            value = np.asarray(value, float)
        except (TypeError, ValueError):
            raise ModelError(f"{type(self).__name__}: '{site}' must be numbers, got "
                             f"{value!r:.100}") from None
        self._values = {**getattr(self, "_values", {}), site: value}
        known = {**self.fit_.params, **self._values} if hasattr(self, "fit_") else self._values
        chain = ("initial", "transition") if self.initial == "free" else ("transition",)
        required = (*chain, *SITES.get(canonical_emission(self.emission), ("mean", "precision")))
        if not set(required) <= set(known):
            return
        if not hasattr(self, "fit_"):
            emitted = known[required[len(chain)]]
            self.n_features_in_ = 1 if self.emission == "categorical" else emitted.shape[-1]
            self.n_symbols_ = emitted.shape[-1]
            self.symbols_ = np.arange(self.n_symbols_)
        # no prior matters to what is known
        model = self._model(len(known["transition"]), centre=0.0, scale=1.0, rate=1.0)
        self.fit_ = model.at({name: known[name] for name in required})

    def _start_values(self) -> dict[str, ArrayLike]:
        """Values from which a fit starts: those that were set, and those of the setting `start`."""
        return {**getattr(self, "_values", {}), **(self.start or {})}

    @property
    def n_components(self) -> int:
        """Number of states; of several n_states the chosen one."""
        return int(self.n_states) if isinstance(self.n_states, Integral) else self.n_states_

    @property
    def n_features(self) -> int | None:
        """Number of columns; of a categorical emission the size of the alphabet, which may be
        set."""
        if self.emission != "categorical":
            return self.n_features_in_
        return self.n_symbols_ if hasattr(self, "n_symbols_") else self.n_symbols

    @n_features.setter
    def n_features(self, value):
        if self.emission == "categorical":
            self.n_symbols = value
        else:
            self.n_features_in_ = int(value)

    @property
    def monitor_(self) -> SimpleNamespace:
        """How EM converged: `converged`, `iter`, and `history`, the objective of every
        iteration."""
        check_is_fitted(self, "history_")
        return SimpleNamespace(converged=self.converged_, iter=self.n_iter_,
                               history=list(self.history_))

    @property
    def startprob_(self):
        """p(first state), (k,)."""
        if self.initial == "free":
            return self._parameter("initial")
        return np.asarray(stationary(self._parameter("transition")))

    @startprob_.setter
    def startprob_(self, value):
        if self.initial != "free":
            raise ModelError(f"{type(self).__name__}(initial={self.initial!r}): startprob_ cannot "
                             f"be set, because it is computed from transmat_ unless "
                             f"initial='free'. Use initial='free', or set transmat_ instead")
        self._set("initial", value)

    @property
    def transmat_(self):
        """p(next | now), (k, k), a row for each state now."""
        return self._parameter("transition")

    @transmat_.setter
    def transmat_(self, value):
        self._set("transition", value)

    @property
    def means_(self):
        """Means of normal emissions, (k, d)."""
        return self._parameter("mean")

    @means_.setter
    def means_(self, value):
        self._set("mean", value)

    @property
    def covars_(self):
        """Variances or covariance matrices of normal emissions, see the class."""
        if canonical_emission(self.emission) == "normal":
            return self._parameter("scale") ** 2
        precision = self._parameter("precision")
        return np.linalg.inv(precision) if self._matrices() else 1 / precision

    @covars_.setter
    def covars_(self, value):
        value = np.asarray(value, float)
        if canonical_emission(self.emission) == "normal":
            self._set("scale", np.sqrt(value))
        else:
            self._set("precision", np.linalg.inv(value) if self._matrices() else 1 / value)

    def _matrices(self) -> bool:
        return canonical(canonical_emission(self.emission)) in ("full", "tied")

    @property
    def emissionprob_(self):
        """Probabilities of the symbols, (k, n_symbols), or of 1 in each column, (k, d)."""
        return self._parameter("probs")

    @emissionprob_.setter
    def emissionprob_(self, value):
        self._set("probs", value)

    @property
    def lambdas_(self):
        """Poisson rates, (k, d)."""
        return self._parameter("rate")

    @lambdas_.setter
    def lambdas_(self, value):
        self._set("rate", value)
