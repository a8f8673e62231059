"""The verbs of a Fit that serve: questions compiled for one row after another."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from probml.dataset import tables
from probml.errors import ModelError
from probml.interface.answers import Answers
from probml.numerics.precision import in_its_own
from probml.queries.serving import Compiled, Filter


class Served:
    """A question to a fit about one row, compiled; call it with a row, name → value."""

    ASKS = ("predict_proba", "predict", "log_prob")

    def __init__(self, fit: Answers, held: Any, ask: str, site: str | None, plug_in: bool):
        finite = site is not None and fit._site(site).finite is not None
        if ask == "predict_proba" and not finite:
            raise ModelError(f"compiled('predict_proba'): '{site}' has no finite list of states: "
                             f"ask 'predict'")
        question = "probability" if finite else "mean"
        self.ask, self.labels = ask, None if site is None else fit.names.get(site)
        self.program = Compiled(fit, held, question, site, plug_in)
        self.most = ask == "predict" and finite

    @property
    def names(self) -> tuple[str, ...]:
        """What a row may show."""
        return self.program.names

    def __call__(self, row: Mapping[str, Any]) -> Any:
        log, found = self.program(row)
        if self.ask == "log_prob":
            return log
        if not self.most:
            return found
        best = np.atleast_1d(found.argmax(-1))
        named = tables.to_labels(best, self.labels)
        return named if found.ndim > 1 else named[0]


@in_its_own
@dataclass(frozen=True, eq=False)
class Serving(Answers):
    """A question compiled once, a chain filtered step after step."""

    def compiled(self, ask: str, example: Any, site: str | None = None,
                 plug_in: bool = False) -> "Served":
        """A question compiled for rows like `example`, to be asked of one row after another in a
        service: predict_proba, predict or log_prob. A row that it is called with is name → value;
        the answer has no axis of rows.

        Args:
            example: one row, name → (1, ...): what is seen in it may have other values later, what
                is unseen in part other cells.
            site: as in predict_proba.

        Raises:
            ModelError: another question. Refusal: sequences (see `filter`), or one density of
                everything.
        """
        if ask not in Served.ASKS:
            raise ModelError(f"compiled({ask!r}): expected one of {list(Served.ASKS)}")
        held = self._read(example)
        guess = ask != "log_prob" and site is None
        name = self._unseen(held, continuous=ask == "predict") if guess else site
        return Served(self, held, ask, name, plug_in)

    def filter(self, example: Any) -> Filter:
        """A filter of a hidden Markov chain, which is given step after step and keeps the state:
        `step({"y": value})` answers p(state now | the steps so far), at the point `params`.

        Args:
            example: a sequence of one step, name → (1, 1, ...), as the data of a question.

        Raises:
            Refusal: no MarkovChain or several, moves that vary, or something hidden beside it.
        """
        return Filter(self, self._read(example))
