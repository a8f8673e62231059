"""What the estimators of experts share: standardised columns, and the tree."""

import math

import numpy as np

from probml import DataError, ModelError
from probml.estimators.estimator import Estimator, flat
from probml.estimators.rules import Rule, integer
from probml.models.experts.experts import hierarchical_mixture_of_experts, mixture_of_experts
from probml.models.experts.learnt import Learnt
from probml.models.frames.complete import Complete


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
                f"{self._column(int(np.argmax(constant)))} of X is constant (n_samples={len(X)}): "
                f"its weight is not identified separately from the intercept. Drop the column, or "
                f"keep prior=True"
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
                             f"tree of experts needs its gates: use gate=True, or n_experts= "
                             f"instead of branches=")
        return hierarchical_mixture_of_experts(branches=tuple(map(int, self.branches)), **settings)

    def _refuse_few(self, X, y) -> None:
        """Fewer distinct rows than experts."""
        given = (f"n_experts={self.n_experts}" if self.branches is None
                 else f"branches={self.branches!r}")
        distinct = len(np.unique(np.column_stack([X, y]), axis=0)) if len(X) <= 10_000 else len(X)
        if distinct < self._leaves:
            raise DataError(
                f"{type(self).__name__}({given}): expected at most {distinct} experts, the number "
                f"of distinct rows of X and y (n_samples={len(X)}), got {self._leaves}"
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
