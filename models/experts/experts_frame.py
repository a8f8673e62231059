"""What the estimators of experts share: standardised columns, the tree of gates, and the
coefficients of experts and gates in the units of the data.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from probml import DataError, Fit, ModelError
from probml.errors import counted
from probml.estimators.estimator import Estimator, flat, n_parameters
from probml.estimators.information_criteria import criteria
from probml.estimators.rules import Rule, integer
from probml.estimators.validation import check_is_fitted
from probml.models.experts.experts import hierarchical_mixture_of_experts, mixture_of_experts
from probml.models.frames.complete import Complete
from probml.posteriors.units import Unit, of_rows


class Learnt:
    """Coefficients, shares and criteria of an estimator of experts whose `fit_` is of standardised
    columns: `_centre` and `_unit` of X, `_answer_centre` and `_answer_unit` of y."""

    # of the estimator
    gate: bool
    branches: tuple[int, ...] | None
    fit_: Fit
    n_features_in_: int
    as_data: Callable[..., dict]
    _asked: Callable[..., dict]
    _centre: np.ndarray
    _unit: np.ndarray
    _column_names: Any

    _answer_unit, _answer_centre = 1.0, 0.0

    @property
    def _sites(self) -> tuple[str, ...]:
        """The choices from the top; none with one expert."""
        return ()

    def gates(self, X):
        """p(expert | x), (n, experts): the gates' shares, those of a tree multiplied down to its
        leaves."""
        data = self._asked(X)
        return self._posterior(data)

    def _posterior(self, data):
        n = len(data["x"])
        return (np.ones((n, 1)) if not self._sites
                else np.asarray(self.fit_.joint(data, self._sites)).reshape(n, -1))

    def _bare(self, coefs, axis: int, unit):
        """Coefficients of standardised columns, the intercept first on `axis`, as (slopes,
        intercept) of the columns themselves; their axis comes last."""
        coefs = np.moveaxis(np.asarray(coefs, float), axis, -1)
        slopes = coefs[..., 1:] * unit / self._unit
        return slopes, coefs[..., 0] * unit - slopes @ self._centre

    def _parameter_units(self, fit: Fit) -> dict[str, Unit]:
        d, slope = self.n_features_in_, 1 / self._unit
        mix = np.diag(np.concatenate([[1.0], slope]))
        mix[1:, 0] = -self._centre * slope
        terms = ("intercept", *(self._column_names or (f"x{j}" for j in range(d))))
        unit, level = self._answer_unit, np.zeros(d + 1)
        level[0] = self._answer_centre
        units = {"weights": Unit(unit, level, (-1, mix)), "precision": Unit(1 / unit**2)}
        units |= {f"gate{site[1:]}": Unit(mix=(-2, mix)) for site in self._sites}
        axes = {name: np.ndim(fit.point[name]) + unit.mix[0] for name, unit in units.items()
                if unit.mix is not None and name in fit.point}
        labelled = {name: replace(unit, names={axes[name]: terms}) if name in axes else unit
                    for name, unit in units.items() if name in fit.point}
        return labelled | of_rows(x=(self._centre, self._unit), y=(self._answer_centre, unit))

    def _gates(self, part: int):
        check_is_fitted(self, "fit_")
        if self._sites and not self.gate:
            raise AttributeError(f"{type(self).__name__}(gate=False) has no gate_coef_ and no "
                                 f"gate_intercept_, because the probabilities of the experts are "
                                 f"the same in every row. Use shares_")
        gates = []
        for site in self._sites:
            # (*above, ways − 1[, d])
            coefs = self._bare(self.fit_.params["gate" + site[1:]], -2, 1.0)[part]
            axis = coefs.ndim - 2 + part
            gates.append(np.concatenate([np.zeros_like(np.take(coefs, [0], axis)), coefs], axis))
        if self.branches is not None:
            return gates
        return gates[0] if gates else np.zeros((1, self.n_features_in_) if part == 0 else 1)

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
            raise AttributeError(f"{type(self).__name__}(gate=True) has no shares_, because the "
                                 f"probabilities of the experts depend on X. Use gates(X)")
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

    def log_prob(self, X, y):
        """log p(y | x) of every row, (n,), in units of y; 0 where y is missing."""
        data = self.as_data(X, y)
        has_y = (~np.isnan(np.asarray(data["y"], float)) if np.asarray(data["y"]).dtype.kind == "f"
                 else True)
        return self.fit_.log_prob(data) - np.log(self._answer_unit) * has_y

    def responsibilities(self, X, y):
        """p(expert | x, y), (n, experts); where y is missing the gates' shares."""
        return self._posterior(self.as_data(X, y))

    @property
    def n_parameters_(self) -> int:
        """Free parameters of gates and experts."""
        check_is_fitted(self, "fit_")
        return n_parameters(self.fit_)

    def bic(self, X, y):
        """−2 Σ log p(y | x) + parameters · log n (Schwarz 1978); the lower the better."""
        log_probs = self.log_prob(X, y)
        return float(criteria(log_probs.sum(), self.n_parameters_, len(log_probs))["bic"])

    def aic(self, X, y):
        """−2 Σ log p(y | x) + 2 · parameters (Akaike 1974); the lower the better."""
        return float(criteria(self.log_prob(X, y).sum(), self.n_parameters_, 1)["aic"])


def _is_branches(value) -> bool:
    return value is None or isinstance(value, tuple | list) and len(value) > 0 and all(
        map(integer(2)[1], value)
    )


BRANCHES: Rule = ("None or a tuple of integers of at least 2, such as (2, 2)", _is_branches)


class ExpertsEstimator(Learnt, Complete, Estimator):
    """Settings, standardised columns, and the model that they make."""

    _target = "y"

    # Reading

    def _validated(self, X, reset):
        return self._require_complete(X, reset)

    def _standardise(self, X, weights) -> None:
        """Learn the columns' means and standard deviations: units and offsets then do not matter to
        the priors, nor to rounding."""
        if not self.prior and (constant := flat(X)).any():
            raise DataError(
                f"{self._column(int(np.argmax(constant)))} of X is constant (n_samples={len(X)}), "
                "so its coefficient cannot be estimated separately from the intercept. Drop the "
                "column, or set prior=True"
            )
        self._centre, self._unit = centre_and_unit(X, weights)

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
                             f"tree of experts needs gates. Use gate=True, or n_experts= instead "
                             f"of branches=")
        return hierarchical_mixture_of_experts(branches=tuple(map(int, self.branches)), **settings)

    def _refuse_few(self, X, y) -> None:
        """Fewer distinct rows than experts."""
        setting = (f"n_experts={self.n_experts}" if self.branches is None
                   else f"branches={self.branches!r}")
        distinct = len(np.unique(np.column_stack([X, y]), axis=0)) if len(X) <= 10_000 else len(X)
        if distinct < self._leaves:
            raise DataError(
                f"{type(self).__name__}({setting}): X and y have only "
                f"{counted(distinct, 'distinct row')} (n_samples={len(X)}). Use at most "
                f"{counted(distinct, 'expert')}, not {self._leaves}"
            )

    def _learnt(self, fit, X, weights, unit: float) -> None:
        self._keep(fit, len(X) if weights is None else weights.sum())
        self.lower_bounds_ = self.lower_bounds_ - np.log(unit)
        self.lower_bound_ = float(self.lower_bounds_[-1])
        self.history_ = self.lower_bounds_ * self.total_weight_


def centre_and_unit(X, weights) -> tuple[np.ndarray, np.ndarray]:
    """Weighted means and standard deviations of columns, 1 where there is none."""
    centre = np.average(X, 0, weights)  # two passes: digits survive an offset
    unit = np.sqrt(np.average((X - centre) ** 2, 0, weights))
    return centre, np.where(unit > 1e-12 * np.abs(centre), unit, 1.0)
