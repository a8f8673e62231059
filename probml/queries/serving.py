"""Low-latency queries of single rows: a query compiled once from an example row and called with
other rows of the same form; and online filtering of a hidden Markov chain, step by step."""

import functools
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.dataset import dataset, tables
from probml.dataset.coding.indices import axis
from probml.dataset.coding.labels import listed_given
from probml.device.rows import Chunk, Resident
from probml.errors import DataError, ModelError, Refusal, counted, listed, present, shortly
from probml.factors import sequences
from probml.plan.plan import Plan
from probml.queries import asking, queries
from probml.queries.asking import Question
from probml.queries.fitted import Fitted
from probml.queries.queries import parts_of
from probml.typing import PyTree, SiteValues


class Compiled:
    """A compiled query of one row: call it with a row, name → value. The row has values for the
    names in the example row. Cells may be missing only in sites that had missing cells in the
    example; a site that was completely missing there cannot be given.

    Attributes:
        names: the sites and inputs that a row may contain.
    """

    ASKS = ("predict_proba", "predict", "log_prob")

    def __init__(self, fit: Fitted, data: dataset.Data, ask: str, site: str | None, plug_in: bool):
        finite = site is not None and fit._site(site).finite is not None
        if ask == "predict_proba" and not finite:
            raise ModelError(f"compiled('predict_proba'): '{site}' has infinitely many values, but "
                             f"predict_proba is for a site with a finite number of states. Use "
                             f"compiled(..., 'predict')")
        fit.structure.need_rows("compiled()")
        if data.steps is not None:
            raise Refusal(f"each row of model '{fit.model.name}' is a sequence, which compiled() "
                          "does not support. Use fit.filter() for one step of a sequence at a time")
        self._request = None if site is None else ("probability" if finite else "mean", site)
        requests = () if self._request is None else (self._request,)
        query = asking.prepare(fit, data, [name for _, name in requests], plug_in, min_rows=1)
        self._ask, self._labels = ask, None if site is None else fit.names.get(site)
        self._returns_mode = ask == "predict" and finite
        self._form = _Form(fit, data, query)
        self.names = tuple(self._form.writers)
        self._program = _compiled(
            lambda stacked: queries.answer(query.plan, requests, query.averaged, query.belief,
                                           query.known, Resident(stacked)), self._form.stacked)

    def __call__(self, row: SiteValues) -> PyTree:
        """The result of the query, without an axis of rows."""
        log_prob, results = self._program(self._form.of(row))
        if self._ask == "log_prob":
            return float(np.asarray(log_prob)[0, 0])
        answer = np.asarray(results[self._request])[0, 0]
        if not self._returns_mode:
            return answer
        labels = tables.to_labels(np.atleast_1d(answer.argmax(-1)), self._labels)
        return labels if answer.ndim > 1 else labels[0]


class Filter:
    """Online filter of a hidden Markov chain at the point estimate: takes observations step by step
    and updates the distribution of the current state.

    Attributes:
        probabilities: p(current state | steps so far), (k,); before the first step its prior.
        predicted: p(next state | steps so far), (k,).
        log_prob: log p(steps so far), nats.
        steps: number of steps so far.
        labels: labels of the states.
    """

    def __init__(self, fit: Fitted, data: dataset.Data):
        chains = data.structure.markov
        if len(chains) != 1 or len(data.structure.chains) > 1:
            names = data.structure.chains
            raise Refusal(f"filter() needs a model with one MarkovChain and no other chain, but "
                          f"model '{fit.model.name}' has "
                          + (f"the chains {listed(names)}. Use fit.predict_proba(data, site, "
                             f"given='filtered') for the states of a MarkovChain" if names else
                             "no chain. Use compiled() for predictions of single rows"))
        if data.pattern.get(chains[0]) == "seen":
            raise ModelError(f"filter(example): the example has states of '{chains[0]}', but "
                             f"filter() infers them. Omit '{chains[0]}' from the example")
        n_states = present(data.structure.sites[chains[0]].finite)
        self.labels = fit.names.get(chains[0], tuple(range(n_states)))
        data = _in_part(data)
        self._fit, self._question = fit, asking.prepare(fit, data, [], True, min_rows=1)
        self._refuse(self._question.plan, chains[0])
        self._form = _Form(fit, data, self._question)
        initial, transition, _ = jax.jit(self._tables)(self._form.stacked)
        self._initial, self._transition = (np.exp(np.asarray(table, float))
                                           for table in (initial, transition))
        self._emission = _compiled(lambda stacked: self._tables(stacked)[2], self._form.stacked)
        self.restart()

    def _refuse(self, plan: Plan, chain: str) -> None:
        others = [name for name in (*plan.order, *plan.globals) if name != chain]
        if others or plan.latents:
            raise Refusal(f"filter() supports no other latent site than the chain '{chain}', but "
                          f"'{(others or list(plan.hidden))[0]}' is latent too. Use "
                          f"fit.predict_proba(data, '{chain}', given='filtered')")

    def _tables(self, stacked: Chunk) -> tuple[jax.Array, jax.Array, jax.Array]:
        """log p(initial state), (k,), log p(next state | state), (k, k), and the emission log
        likelihood of the first step, log p(step | state), (k,)."""
        plan, belief, known = self._question.plan, self._question.belief, self._question.known
        parts = parts_of(plan, belief, known, Resident(stacked).first)
        (moves,) = parts.moves
        if moves.scope or moves.transition.shape[0] > 1:
            raise Refusal(f"filter: the transitions of '{moves.name}' differ between rows or "
                          f"steps, but filter() needs the same transitions in all. Use "
                          f"predict_proba(data, given='filtered')")
        inner = sequences.within(plan, parts.steps) if parts.steps else None
        states = plan.variables[moves.name].states
        log_lik = (jnp.zeros(states) if inner is None else
                   jnp.broadcast_to(sequences.expand_axes(inner.log, inner.names, plan.chains)[0],
                                    (states,)))
        return moves.initial[0], moves.transition[0], log_lik

    def restart(self) -> "Filter":
        """Reset to the initial state distribution, for a new sequence."""
        self.steps, self.log_prob = 0, 0.0
        self.probabilities = self._initial / self._initial.sum()
        return self

    @property
    def predicted(self) -> np.ndarray:
        return self.probabilities @ self._transition if self.steps else self.probabilities

    def step(self, seen: SiteValues) -> np.ndarray:
        """Update with one step, site → observed value (absent or None: missing), and return
        `probabilities`.

        Raises:
            DataError: a value that the site cannot have; a step that is impossible.
        """
        logs = np.asarray(self._emission(self._form.of(seen)), float)
        peak = logs.max()
        joint = self.predicted * np.exp(logs - peak) if np.isfinite(peak) else np.zeros(len(logs))
        total = joint.sum()
        if not total > 0:
            raise DataError(f"filter: step {self.steps}, {dict(seen)}, has probability 0 given the "
                            f"steps before it. Check these values and give the step again, or call "
                            f"restart() to begin a new sequence")
        self.probabilities = joint / total
        self.log_prob += float(np.log(total) + peak)
        self.steps += 1
        return self.probabilities


def _in_part(data: dataset.Data) -> dataset.Data:
    """The data with a mask of observed cells for every site whose cells are single numbers, so that
    these may be missing in later steps."""
    sites = data.structure.sites
    columns = {name: replace(column, observed=np.ones(column.values.shape, bool))
               if column.observed is None and column.likelihood is None and not sites[name].event
               else column for name, column in data.table.columns.items()}
    return data._replace(table=replace(data.table, columns=columns))


def _compiled(function: Callable, stacked: Chunk) -> Callable:
    """The function compiled for these shapes; calls use the precision (float32 or float64) that it
    was compiled in, whatever the caller's setting."""
    program, double = jax.jit(function).lower(stacked).compile(), jax.config.jax_enable_x64

    def call(row: Chunk) -> PyTree:
        if jax.config.jax_enable_x64 == double:
            return program(row)
        with jax.enable_x64(double):
            return program(row)

    return call


class _Form:
    """Converts rows to the arrays that the program takes; each call fills a copy of the example's
    arrays, so that concurrent calls do not share them.

    Attributes:
        stacked: NumPy copies of the example's device arrays.
        writers: name → (whether it lies along time, function that writes its value).
    """

    def __init__(self, fit: Fitted, data: dataset.Data, question: Question):
        rows, plan = question.rows, question.plan
        if data.table.rows != 1:
            raise DataError("compiled and filter: expected an example with one row, got "
                            f"{counted(data.table.rows, 'row')}. Pass a single row, such as "
                            f"table.iloc[[0]]")
        if not isinstance(rows, Resident) or any(part is not None and part.missing for part in (
                rows.stacked, _steps(rows.stacked))):
            raise Refusal(f"model '{fit.model.name}': a vector of the row given to compiled() or "
                          f"filter() has some missing entries, which is not supported there. Give "
                          f"all entries or none, or call predict, predict_proba or log_prob of the "
                          f"Fit")
        self.stacked = jax.tree.map(np.array, rows.stacked)
        self.model, self.fit, self.plan = fit.model.name, fit, plan
        self.centre = {name: np.asarray(value, float) for name, value in
                       question.known.centre.items()}
        self.writers: dict[str, tuple[bool, Callable]] = {}
        self.example = data
        for level in (self.stacked, _steps(self.stacked)):
            if level is not None:
                self._learn(level, level is not self.stacked)

    def _learn(self, level: Chunk, along_time: bool) -> None:
        writers: dict[str, Callable] = {}
        for key, names in self.plan.partly.items() if level.codes else ():
            writers |= {name: functools.partial(self._write_code, name, key, place)
                        for place, name in enumerate(names)
                        if (self.plan.structure.sites[name].time is not None) == along_time}
        writers |= {name: functools.partial(self._write_values, name, name in level.observed)
                    for name in level.values}
        writers |= {name: functools.partial(self._write_likelihood, name)
                    for name in level.likelihood}
        writers |= {name: functools.partial(self._write_input, name, self._codes_of(name))
                    for name in level.inputs}
        self.writers |= {name: (along_time, write) for name, write in writers.items()}

    def of(self, row: SiteValues) -> Chunk:
        """The row as arrays for the program.

        Raises:
            DataError: an unknown name, a value outside a site's support, or a missing value that
                the program needs.
        """
        if not isinstance(row, Mapping):
            raise DataError(f"model '{self.model}': expected a row as a mapping from names to "
                            f"values, with the names {listed(self.writers)}, got {shortly(row)}")
        unknown = next((name for name, value in row.items() if name not in self.writers and not (
            name in self.plan.structure.sites
            and all(map(_is_missing, np.ravel(np.asarray(value, object)))))), None)
        if unknown is not None:
            raise DataError(f"model '{self.model}': the row contains '{unknown}', which is not "
                            "in the example given to compiled() or filter(). Use only the names "
                            f"{listed(self.writers)}")
        arrays = jax.tree.map(np.copy, self.stacked)
        for name, (along_time, write) in self.writers.items():
            write(_steps(arrays) if along_time else arrays, row.get(name))
        return arrays

    def _code(self, name: str, value: object) -> int:
        site, labels = self.plan.structure.sites[name], self.fit.names.get(name)
        if labels is not None:
            if value not in labels:
                raise DataError(f"'{name}' is {shortly(value)}, which is not one of the fitted "
                                f"categories. Use one of {listed_given(labels)}")
            return labels.index(value)
        code = float(_numbers(name, value)) - site.low
        if code != int(code) or not 0 <= code < (site.states or np.inf):
            raise DataError(f"'{name}' is {shortly(value)}, expected the number of a state, an "
                            f"integer from {site.low}"
                            + (f" to {site.low + site.states - 1}" if site.states else " on"))
        return int(code)

    def _write_code(self, name: str, key: int, column: int, row: Chunk, value: ArrayLike) -> None:
        row.codes[key][0, 0, column] = (-1 if _is_missing(value)
                                        else self._code(name, _to_scalar(value)))

    def _write_values(self, name: str, partly: bool, row: Chunk, value: ArrayLike) -> None:
        site, target = self.plan.structure.sites[name], row.values[name][0, 0]
        value = np.full(target.shape, np.nan) if value is None else value
        if site.discrete and (self.fit.names.get(name) or site.states):
            value = [np.nan if _is_missing(cell) else self._code(name, cell)
                     for cell in np.ravel(np.asarray(value, object))]
        numbers = _cells(name, "values", value, target)
        observed = ~np.isnan(numbers)
        if not partly and not observed.all():
            raise DataError(f"'{name}' is missing in this row but was observed in the example. "
                            f"Compile again with an example in which '{name}' is missing")
        if np.isinf(numbers).any():
            raise DataError(f"'{name}' is {shortly(value)}, expected finite numbers")
        if name in self.centre:
            numbers = numbers - self.centre[name].reshape(target.shape)
        row.values[name][0, 0] = np.where(observed, numbers, 0)
        if partly:
            row.observed[name][0, 0] = observed

    def _write_likelihood(self, name: str, row: Chunk, value: ArrayLike) -> None:
        if value is None:
            raise DataError(f"'{name}' is missing in this row, but the example contains label "
                            f"probabilities of '{name}'. Give label probabilities, or compile with "
                            f"an example without '{name}'")
        target = row.likelihood[name]
        target[0, 0] = _cells(name, "label probabilities", value, target[0, 0])

    def _codes_of(self, name: str) -> dict[Hashable, int] | None:
        """Label → code of an input that is an index; None if it has no labels or is no index."""
        structure, labels = self.plan.structure, self.fit.names.get(name)
        if labels is None or name not in structure.indexed:
            return None
        base, _ = axis(structure, name)
        return {label: base + i for i, label in enumerate(labels)}

    def _write_input(self, name: str, codes: Mapping[Hashable, int] | None, row: Chunk,
                     value: ArrayLike) -> None:
        if value is None:
            raise DataError(f"the input '{name}' is missing in this row, but every input needs a "
                            f"value. Give the value, or drop the row")
        if codes is not None and _to_scalar(value) not in codes:
            raise DataError(f"the input '{name}' is {shortly(value)}, expected one of "
                            f"{listed_given(tuple(codes))}")
        target = row.inputs[name][0, 0]
        numbers = _numbers(name, value if codes is None else codes[_to_scalar(value)])
        if numbers.size != np.size(target) or not np.isfinite(numbers).all():
            raise DataError(f"the input '{name}' is {shortly(value)}, expected "
                            f"{counted(np.size(target), 'finite number')}")
        index = self.plan.structure.indexed.get(name)
        if index is not None and codes is None and (
                index.low is not None and (numbers < index.low).any()
                or index.high is not None and (numbers > index.high).any()):
            raise DataError(f"the input '{name}' is used as an index and is "
                            f"{shortly(numbers.tolist())}, expected integers from {index.low} to "
                            f"{index.high}")
        row.inputs[name][0, 0] = numbers.reshape(np.shape(target))


def _cells(name: str, what: str, value: ArrayLike, target: np.ndarray) -> np.ndarray:
    """The value as floats, reshaped to the cells of `target`."""
    numbers = _numbers(name, value)
    if numbers.size != np.size(target):
        raise DataError(f"'{name}' has {numbers.size} {what} in this row, expected "
                        f"{np.size(target)}, as in the example")
    return numbers.reshape(np.shape(target))


def _numbers(name: str, value: object) -> np.ndarray:
    """The value as an array of floats."""
    try:
        return np.asarray(value, float)
    except (TypeError, ValueError):
        raise DataError(f"'{name}' is {shortly(value)}, expected a number or an array of numbers"
                        ) from None


def _steps(chunk: Chunk) -> Chunk | None:
    return None if chunk.steps is None else chunk.steps.rows


def _is_missing(value: object) -> bool:
    value = _to_scalar(value)
    return value is None or isinstance(value, float | np.floating) and value != value


def _to_scalar(value: object) -> object:
    """The value as a Python scalar, if it is a scalar or a list or array of one element."""
    if isinstance(value, list | tuple | np.ndarray) and np.size(value) == 1:
        value = np.ravel(np.asarray(value, object))[0]
    return value.item() if isinstance(value, np.generic) else value

