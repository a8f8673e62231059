"""Information criteria, and the number of components or states that has the lowest.

Sources: Akaike (1974), "A new look at the statistical model identification"; Schwarz (1978),
"Estimating the dimension of a model".
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from probml.numerics.process.libraries import pd
from probml.typing import DataLike


def criteria(loglik: float, parameters: int, rows: float = np.nan) -> dict[str, float]:
    """The log-likelihood, the number of parameters, AIC and BIC, both the lower the better; without
    the number of rows no BIC."""
    return {"loglik": loglik, "parameters": parameters, "aic": -2 * loglik + 2 * parameters,
            "bic": -2 * loglik + parameters * np.log(rows)}


def choose_lowest(records: list[dict[str, Any]], criterion: str) -> tuple[Any, int]:
    """A table of models of several sizes, and the best size.

    Args:
        records: for each model its size, first, and its criteria. criterion: for "bound" greater is
            better, for any other lower.
    """
    table = pd.DataFrame(records)
    score = table[criterion] * (-1 if criterion == "bound" else 1)
    return table, int(table.loc[score.idxmin(), table.columns[0]])


class InformationCriteria:
    """AIC and BIC of an estimator with `score_samples`."""

    n_parameters_: int
    score_samples: Callable[[DataLike], np.ndarray]

    def _criteria(self, X: object) -> dict[str, float]:
        log = self.score_samples(X)
        return criteria(float(log.sum()), self.n_parameters_, len(log))

    def bic(self, X: object):
        """−2 Σ log p(row) + parameters · log n (Schwarz 1978); the lower the better."""
        return float(self._criteria(X)["bic"])

    def aic(self, X: object):
        """−2 Σ log p(row) + 2 · parameters (Akaike 1974); the lower the better."""
        return float(self._criteria(X)["aic"])
