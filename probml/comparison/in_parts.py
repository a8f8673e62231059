"""A Fit and rows that are read in parts: what adds up over them."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from probml.assessment import reports
from probml.comparison.contestants import Fitted, likelihood
from probml.dataset.source import Source, naming, parts_of
from probml.errors import DataError, ModelError, Refusal, present
from probml.interface.fit import Fit

HELD = ("its rows are read in batches, and this needs all of them at once: hold out some batches "
        "and compare fit.score on them")


@dataclass(frozen=True)
class InParts(Fitted):
    """As Fitted; `held` are the rows of the first part."""

    source: Source | None = None

    @classmethod
    def of(cls, name: str, fit: Fit, source: Source) -> "InParts":
        """
        Raises:
            DataError: the source has no parts. Refusal: parts are tied, so that nothing adds up.
        """
        first = next(parts_of(source), None)
        if first is None:
            raise DataError("the source has no batches: expected at least one")
        with naming(first):
            held = reports.own_data(fit, first.rows, f"compare('{name}')")
        plan = held.plan(effects=fit.belief.partly)
        tied = next(iter((*plan.touching, *plan.effects)), None)
        if tied is not None:
            raise Refusal(f"compare: '{name}' cannot be evaluated on rows that are read in "
                          f"batches: they share '{tied}'. Pass all rows in memory")
        return cls(name, fit, held, source=source)

    @functools.cached_property
    def _passed(self) -> tuple[int, int, float, int, frozenset[str]]:
        """Of all parts: rows, n, log likelihood, degrees of freedom, and the sites that are seen.
        """
        rows, count, loglik, free, seen = 0, 0, 0.0, 0, frozenset[str]()
        for part in parts_of(present(self.source)):
            with naming(part):
                held = reports.own_data(self.fit, part.rows, f"compare('{self.name}')")
            more, own = likelihood(self.fit, held)
            rows += held.table.rows
            count += Fitted(self.name, self.fit, held).count
            loglik, free, seen = loglik + more, max(free, own), seen | held.table.columns.keys()
            del part, held  # before another comes
        return rows, count, loglik, free, seen

    @property
    def rows(self) -> int:
        return self._passed[0]

    @property
    def count(self) -> int:
        return self._passed[1]

    @property
    def seen(self) -> dict[str, np.ndarray]:
        """What it explains; all read the same values of the same source."""
        return dict.fromkeys(self._passed[4], np.zeros(0))

    def likelihood(self) -> tuple[float, int]:
        return self._passed[2:4]

    def logs(self, draws: Mapping[str, np.ndarray]) -> np.ndarray:
        raise ModelError(HELD)

    def leave_one_out(self) -> tuple[dict[str, float], np.ndarray]:
        raise ModelError(HELD)

    def held_out(self, train: np.ndarray, test: np.ndarray, seed: int) -> Any:
        raise ModelError(f"compare(folds=...): {HELD}")
