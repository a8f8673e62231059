"""What experts and their gates have learnt, in the units of the data."""

from dataclasses import replace

import numpy as np

from probml import Fit
from probml.estimators.estimator import n_parameters
from probml.estimators.information_criteria import criteria
from probml.estimators.validation import check_is_fitted
from probml.posteriors.units import Unit, of_rows


class Learnt:
    """Coefficients, shares and criteria of an estimator of experts whose `fit_` is of standardised
    columns: `_centre` and `_unit` of X, `_answer_centre` and `_answer_unit` of y."""

    _answer_unit, _answer_centre = 1.0, 0.0

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

    def _parameter_units(self, fit: Fit) -> dict[str, Unit]:
        d, slope = self.n_features_in_, 1 / self._unit
        mix = np.diag(np.concatenate([[1.0], slope]))
        mix[1:, 0] = -self._centre * slope
        named = ("intercept", *(self._column_names or (f"x{j}" for j in range(d))))
        unit, level = self._answer_unit, np.zeros(d + 1)
        level[0] = self._answer_centre
        out = {"weights": Unit(unit, level, (-1, mix)), "precision": Unit(1 / unit**2)}
        out |= {f"gate{site[1:]}": Unit(mix=(-2, mix)) for site in self._sites}
        axes = {name: np.ndim(fit.point[name]) + unit.mix[0] for name, unit in out.items()
                if unit.mix is not None and name in fit.point}
        told = {name: replace(unit, names={axes[name]: named}) if name in axes else unit
                for name, unit in out.items() if name in fit.point}
        return told | of_rows(x=(self._centre, self._unit), y=(self._answer_centre, unit))

    def _gates(self, part: int):
        check_is_fitted(self, "fit_")
        if self._sites and not self.gate:
            raise AttributeError(f"{type(self).__name__}(gate=False) has no gate, because the "
                                 f"probabilities of the experts are the same in every row: use "
                                 f"shares_")
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
            raise AttributeError(f"{type(self).__name__}(gate=True) has no shares_, because the "
                                 f"probabilities of the experts depend on x: use gates(X)")
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
        seen = (~np.isnan(np.asarray(data["y"], float)) if np.asarray(data["y"]).dtype.kind == "f"
                else True)
        return self.fit_.log_prob(data) - np.log(self._answer_unit) * seen

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
        log = self.log_prob(X, y)
        return float(criteria(log.sum(), self.n_parameters_, len(log))["bic"])

    def aic(self, X, y):
        """−2 Σ log p(y | x) + 2 · parameters (Akaike 1974); the lower the better."""
        return float(criteria(self.log_prob(X, y).sum(), self.n_parameters_, 1)["aic"])
