"""The methods of a fit for serving and for sequences: queries compiled for single rows, filters,
pairwise marginals of chains, forecasts."""

from dataclasses import dataclass

import numpy as np

from probml.assessment.intervals import Interval, bands
from probml.dataset import ragged
from probml.dataset.sources.parts import by_parts
from probml.errors import ModelError, listed, present
from probml.interface.answers import Answers
from probml.interface.argument_checks import checked_verbs
from probml.interface.tables.table_answers import as_columns_of
from probml.numerics.precision import in_its_own
from probml.queries import asking
from probml.queries.serving import Compiled, Filter
from probml.typing import ArrayLike


@in_its_own
@checked_verbs
@dataclass(frozen=True, eq=False)
class Serving(Answers):
    """Compiled queries, filters, pairwise marginals and forecasts."""

    def compiled(self, ask: str, example: object, site: str | None = None,
                 plug_in: bool = False) -> Compiled:
        """A question compiled for rows like `example`, to be asked of one row after another in a
        service: predict_proba, predict or log_prob. A row that it is called with is name → value;
        the answer has no axis of rows.

        Args:
            example: one row, name → (1, ...): its observed cells may have other values later, and
                partially missing sites other observed cells.
            site: as in predict_proba.

        Raises:
            ModelError: another question. Refusal: sequences (see `filter`), or one density of
                everything.
        """
        if not isinstance(ask, str) or ask not in Compiled.ASKS:
            raise ModelError(f"compiled(ask={ask!r:.60}): expected one of {listed(Compiled.ASKS)}")
        parsed = self._read(example)
        guess = ask != "log_prob" and site is None
        name = self._site_to_predict(parsed, continuous=ask == "predict") if guess else site
        return Compiled(self, parsed, ask, name, plug_in)

    def filter(self, example: object) -> Filter:
        """A filter of a hidden Markov chain, which is given step after step and keeps the state:
        `step({"y": value})` answers p(state now | the steps so far), at the point `params`.

        Args:
            example: a sequence of one step, name → (1, 1, ...), as the data of a question.

        Raises:
            Refusal: no MarkovChain or several, moves that vary, or something latent in addition to
                it.
        """
        return Filter(self, self._read(example))

    @by_parts
    def pairs(self, data: object, site: str | None = None, plug_in: bool = False) -> np.ndarray:
        """p(z_t = i, z_{t+1} = j | row) of a MarkovChain z, (n, steps − 1, k, k): the smoothed pair
        marginals.

        Raises:
            ModelError: the site is no chain.

        Cost: memory of steps · K² numbers a row, K the joint states of all chains.
        """
        chains = self.structure.markov
        name = site or (chains[0] if len(chains) == 1 else None)
        if name not in chains:
            raise ModelError(f"pairs(site={site!r}): expected the name of a MarkovChain. Those "
                             f"of model '{self.model.name}' are: {listed(chains)}")
        parsed = self._read(data).loosened([name])
        return asking.answer(self, parsed, [("pairs", name)], plug_in)[1]["pairs", name][:, 1:]

    def forecast(self, data: object, steps: int = 1, plug_in: bool = False,
                 interval: float | None = None, **inputs: object) -> dict[str, ArrayLike]:
        """The steps that follow each row: site along time → the most probable states, or means, (n,
        steps, ...), given the row.

        Sequences that were given as tables, a Series or a DataFrame of any library whose rows are
        the steps, are answered as tables: the dates or numbers of rows go on, and the columns keep
        their names. A list of tables is answered by a list, one table by one.

        For their distribution pad the data with NaN: predict_proba for probabilities, conditional
        for numbers, simulate(given=...) for joint draws.

        Args:
            steps: h, how many. They follow the last step that was given, observed or not; in a list
                of sequences, the end of each.
            interval: a probability, such as 0.9: answer for numbers with an Interval (value,
                lower, upper), each step's by itself: exact where it is normal given the row, else
                quantiles of some thousand draws.
            **inputs: inputs with an axis of time, at those steps: (n, steps, ...).

        Raises:
            ModelError: no chain, chains of a stated length, steps below 1.

        Cost: as impute of sequences that are longer by `steps`; with an interval where nothing is
        normal some thousand draws.
        """
        if steps is None:
            raise ModelError("forecast(steps=None): expected the number of steps to forecast, an "
                             "integer of at least 1, such as steps=12")
        parsed = self._read_rows("forecast", data)
        structure = parsed.structure
        unknown = [name for name in inputs if name not in structure.timed]
        if unknown:
            raise ModelError(f"forecast: '{unknown[0]}' is not an input with a time axis. Pass "
                             f"only inputs with one: {listed(structure.timed)}")
        if not structure.chains or structure.declared:
            reason = (f"fixes the number of steps of {listed(structure.chains)} to "
                      f"{structure.declared}, so it cannot forecast further steps. Omit steps= of "
                      f"these chains in the model" if structure.chains else
                      "has no chain, so it has no time steps to forecast. Use predict(data)")
            raise ModelError(f"forecast(steps={steps}): model '{self.model.name}' {reason}")
        lengths = np.full(parsed.table.rows,
                          parsed.steps) if parsed.list_lengths is None else parsed.list_lengths
        extended = parsed.extended(lengths, steps, self._read, inputs)
        filled = self._imputed(extended, plug_in)
        step_index = lengths[:, None] + np.arange(steps)
        timed = {s.name: s for s in structure.named.values() if s.time is not None
                 and s.name in filled}

        def ahead(name: str, array: np.ndarray):
            axis = 1 + present(timed[name].time)
            array = np.moveaxis(array, axis, 1)[np.arange(len(step_index))[:, None], step_index]
            return np.moveaxis(array, 1, axis)

        forecasts = as_columns_of(data, self, {name: ahead(name, filled[name]) for name in timed})
        numbers = [name for name in timed if name in structure.sites and not timed[name].states]
        bounds = {} if interval is None else bands(self, extended, numbers, interval, plug_in)
        bounds = as_columns_of(data, self, {name: tuple(ahead(name, bound) for bound in pair)
                                            for name, pair in bounds.items()})
        sequences = ragged.sequence_tables(structure, data)
        first_table = next(iter(sequences.values()), None)

        def back(name: str, array: np.ndarray):
            if first_table is None:
                return array
            table = sequences.get(name)
            return first_table.ahead(array, name) if table is None else table.ahead(array, None)

        return {name: Interval(back(name, array), *(back(name, b) for b in bounds[name]))
                if name in bounds else back(name, array) for name, array in forecasts.items()}
