"""Decisions from probabilities and a loss: the action of least expected loss, or none where that
exceeds the cost of rejection.

    risk(a) = Σ_k p_k loss[k, a],    decide = argmin_a risk(a), and −1 where min_a risk(a) > reject

Sources: Wald (1950); Chow (1970), "On optimum recognition error and reject tradeoff", for the
    reject option.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from probml.dataset.frames import as_pandas
from probml.errors import DataError, ModelError, listed
from probml.language.given import labels as as_labels
from probml.numerics.process.libraries import pd
from probml.typing import ArrayLike

REJECTED = -1
SUM_TOLERANCE = 1e-3  # of probabilities: they may be in float32, or have three printed digits


def decide(probabilities: object, loss: object = None, reject: float | None = None,
           labels: Sequence | None = None) -> np.ndarray:
    """The action with the least expected loss (the Bayes action) for every row; of several equally
    good actions, the first.

    Args:
        probabilities: (..., k), p(state | row) along the last axis: rows (n, k), or the steps of
            chains (n, t, k); columns of a table that are the labels by name.
        loss: (k, actions), loss[truth, action], any unit; actions may be more or fewer than states.
            By default 1 for a mistake, 0 else. A DataFrame, or truth → action → loss, names its
            states, in any order, and its actions.
        reject: the cost of not deciding, in the same unit.
        labels: of the k states, for an answer in names instead of numbers.

    Returns:
        (...,) actions, 0 … actions − 1, and −1 for none. With labels, or a loss that names its
        actions: names, and None for none (an action is named by the loss, else, of as many actions
            as states, by the state; else it stays a number).

    Raises:
        DataError: probabilities that are negative, NaN, do not sum to one or have no axis of
            states. ModelError: a loss of another shape, with other states or without finite
            numbers; a negative reject.

    Cost: n · k · actions.
    """
    p = distribution(by_label(probabilities, labels), "decide")
    costs, names = table(loss, p.shape[-1], labels)
    if reject is not None and (isinstance(reject, bool) or not isinstance(
            reject, int | float | np.number) or not 0 <= reject < np.inf):
        raise ModelError(f"decide(reject={reject!r}): expected the cost of deciding nothing, a "
                         f"number of at least 0, or None")
    expected = p @ costs
    actions = expected.argmin(-1)
    if reject is not None:
        actions = np.where(expected.min(-1) > reject, REJECTED, actions)
    return actions if names is None else named(actions, names)


# Reading


def by_label(probabilities: object, labels: object) -> object:
    """Probabilities, columns of a table in the order of the labels, if they are these."""
    table = as_pandas(probabilities)
    if not hasattr(table, "columns") or labels is None:
        return probabilities
    order = as_labels(labels, "labels")
    return table[order] if {*order} == {*table.columns} else table


def distribution(probabilities: object, verb: str) -> np.ndarray:
    """(..., k) probabilities as float64, checked, with a sum of one."""
    try:
        p = np.asarray(probabilities, float)
    except (TypeError, ValueError):
        got = " ".join(f"{probabilities!r:.80}".split())
        truth = (". The first argument of calibration is the array of true labels, the second the "
                 "array of probabilities") if verb == "calibration" else ""
        raise DataError(f"{verb}(probabilities): expected an array of probabilities with one "
                        f"column per state, got {got}{truth}. Pass the result of "
                        "predict_proba") from None
    if p.ndim < 2 or not p.shape[-1]:
        remedy = (". For two states give both columns: np.column_stack([1 - p, p])"
                if p.ndim == 1 else "")
        raise DataError(f"{verb}(probabilities): expected an array of shape (n, k), one row for "
                        f"each case and one column for each state, got shape {p.shape}{remedy}")
    total = p.sum(-1)
    invalid = ~((p >= 0).all(-1) & (np.abs(total - 1) <= SUM_TOLERANCE))
    if invalid.any():
        index = tuple(map(int, np.argwhere(invalid)[0]))
        row = index[0] if len(index) == 1 else index
        raise DataError(
            f"{verb}(probabilities): row {row} is {listed(np.round(p[index], 4))}, with the sum "
            f"{total[index]:.4g}; expected probabilities of at least 0 that sum to 1. Pass the "
            f"result of predict_proba"
        )
    return p / total[..., None]


def table(loss: ArrayLike, states: int, labels: Sequence | None) -> tuple[np.ndarray, list | None]:
    """The loss (states, actions), and the names of the actions, None where they have none."""
    labels = None if labels is None else as_labels(labels, "decide(labels)")
    if labels is not None and len(labels) != states:
        raise ModelError(f"decide(labels=[{listed(labels)}]): expected {states} labels, one for "
                         "each state")
    if loss is None:
        return 1.0 - np.eye(states), labels
    if isinstance(loss, Mapping):
        loss = _frame(loss)
    names = labels
    if hasattr(loss, "columns"):
        have, want = list(loss.index), list(range(states)) if labels is None else labels
        if len(have) != states or set(have) != set(want):
            raise ModelError("decide(loss): expected a table with one row for each of the "
                             f"{states} states, with the index {listed(want)}, got {listed(have)}. "
                             f"Give the index these states, loss.index = [{listed(want)}]")
        loss = loss.loc[want]
        names, loss = list(loss.columns), loss.to_numpy()
    try:
        costs = np.asarray(loss, float)
    except (TypeError, ValueError):
        raise ModelError(
            "decide(loss): expected an array of numbers, loss[true state, action], such as [[0, "
            f"5], [1, 0]], got {loss!r:.80}"
        ) from None
    if costs.ndim != 2 or costs.shape[0] != states or not costs.shape[1]:
        raise ModelError(f"decide(loss): got shape {costs.shape}, expected one row for each of the "
                         f"{states} states and one column for each action, such as [[0, 5], [1, "
                         "0]]")
    if not np.isfinite(costs).all():
        k, a = map(int, np.argwhere(~np.isfinite(costs))[0])
        raise ModelError(f"decide(loss): loss[{k}, {a}] is {costs[k, a]}, expected a finite "
                         f"number. Use a large number for an action that must never be chosen")
    if names is not None and len(names) != costs.shape[1]:
        names = list(range(costs.shape[1]))
    return costs, names


def _frame(loss: Mapping):
    if not all(isinstance(row, Mapping) for row in loss.values()):
        raise ModelError(f"decide(loss={dict(loss)!r:.80}): expected "
                         f"{{truth: {{action: loss}}}}, such as "
                         f"{{'ill': {{'treat': 1, 'wait': 9}}}}")
    actions = list(dict.fromkeys(action for row in loss.values() for action in row))
    for truth, row in loss.items():
        if lacking := [action for action in actions if action not in row]:
            raise ModelError(f"decide(loss): the true state {truth!r} has no loss for the action "
                             f"{lacking[0]!r}. Give a loss for each of the actions "
                             f"{listed(actions)}")
    return pd.DataFrame([[row[action] for action in actions] for row in loss.values()],
                        index=list(loss), columns=actions)


def named(codes: np.ndarray, names: Sequence) -> np.ndarray:
    """Codes as names, −1 as None."""
    same_type = len(set(map(type, names))) == 1 and type(names[0]) in (str, int, float, bool)
    if same_type and not (codes == REJECTED).any():
        return np.array(list(names))[codes]
    return np.fromiter([*names, None], object, len(names) + 1)[codes]
