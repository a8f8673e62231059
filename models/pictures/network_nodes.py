"""What a picture of a network says of each node: the probabilities of its states given one row of
evidence, its mean, or what was seen or set."""

import warnings
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from probml import DataError, Fit, ModelError, Refusal
from probml.models.pictures.canvas import listed

STATES = 10  # bars in a box at the most: of more states the most probable ones are drawn
LETTERS = 18  # of a state's label


class Shown(NamedTuple):
    """A node as it is drawn."""

    name: str
    kind: str  # a key of STYLES
    bars: tuple[tuple[str, float], ...] = ()  # label of a state, its probability
    note: str = ""  # instead of bars: what is known of the value


def graph_of(fit):
    """The DAG of the sites in rows, and what do() has set: name → its text."""
    if not isinstance(fit, Fit):
        raise ModelError(f"draw_network: expected a Fit, got {type(fit).__name__}: fit the model, "
                         f"or use model.at(params)")
    before = fit.model if fit.learnt is None else fit.learnt
    dag, done = before.graph, {}
    for name in set(dag) - set(fit.model.graph):
        dag.remove_edges_from(list(dag.in_edges(name)))
        done[name] = _text(fit.simulate(1)[name][0]) if not fit.model.inputs else "set"
    return dag, done


def row_of(fit, evidence, dag, done) -> dict[str, list]:
    """Evidence as the fit takes it: name → one row, what is unseen left out."""
    import pandas as pd

    if evidence is None:
        return {}
    if isinstance(evidence, pd.DataFrame):
        if len(evidence) != 1:
            raise DataError(f"draw_network: evidence has {len(evidence)} rows, expected one: pass "
                            f"a single row, evidence.iloc[[0]]")
        evidence = {name: evidence[name].iloc[0] for name in evidence.columns}
    if not isinstance(evidence, Mapping | pd.Series):
        raise ModelError(f"draw_network: evidence is a {type(evidence).__name__}; expected a "
                         f"mapping of names to labels, or a DataFrame of one row")
    row = {}
    for name, value in evidence.items():
        if name in done:
            raise DataError(f"draw_network: '{name}' is set by do(): drop it from the evidence")
        if not isinstance(name, str) or name not in dag and name not in fit.model.inputs:
            raise ModelError(f"draw_network: evidence names {name!r}, which is not a node; the "
                             f"nodes are {_list(dag)}")
        if np.ndim(value) and len(value) != 1:
            raise DataError(f"draw_network: evidence of '{name}' has {len(value)} rows, expected "
                            f"one: a label, or an array (1, states)")
        value = value if np.ndim(value) else [value]
        if np.ndim(value) == 1 and pd.isna(value[0]):
            continue
        site = fit.structure.sites.get(name)
        if np.ndim(value) == 1 and site is not None and site.states and value[0] not in fit.labels(
            name
        ):
            raise DataError(f"draw_network: evidence of '{name}' is {value[0]!r}, expected one of "
                            f"its states, {_list(fit.labels(name))}")
        row[name] = value
    return row


def chosen(dag, nodes) -> list[str]:
    if nodes is None:
        return list(dag)
    return listed("draw_network", "nodes", nodes, list(dag))


def describe(fit: Fit, row: Mapping[str, np.ndarray], names: Iterable[str],
             done: Mapping[str, str]) -> list[Shown]:
    """Every node with its probabilities given the row, or its mean."""
    sites, marks = fit.structure.sites, [marked(fit, row, name, done) for name in names]
    empty = next(({n: [None] if sites[n].states else [np.nan]} for n in sites if sites[n].rows
                  and not sites[n].cells), {})
    data = {**empty, **row}  # a row of data has at least one cell
    asked = [mark.name for mark in marks if mark.name not in done and sites[mark.name].states
             and not sites[mark.name].cells]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*impossible under the fitted model",
                                category=RuntimeWarning)
        chances = fit.predict_proba(data, asked) if asked else {}
    if any(not chance.sum() > 0.5 for chance in chances.values()):
        raise DataError(f"draw_network: the evidence has probability 0 under the model, so the "
                        f"other probabilities are undefined: "
                        f"{', '.join(f'{name} = {_text(row[name][0])}' for name in row)}")
    out = []
    for mark in marks:
        if mark.name in chances:
            out.append(mark._replace(
                bars=_bars(map(_text, fit.labels(mark.name)), chances[mark.name][0]), note=""
            ))
        elif mark.kind == "unseen" and not sites[mark.name].states:
            try:
                note = f"mean {_text(fit.predict(data, mark.name)[0])}"
            except Refusal:  # it depends on a continuous node that is unseen as well
                note = "mean unknown"
            out.append(mark._replace(note=note))
        else:
            out.append(mark)
    return out


def marked(fit, row, name, done) -> Shown:
    if name in done:
        return Shown(name, "done", note=f"do: {done[name]}")
    if name not in row:
        return Shown(name, "unseen")
    if fit.structure.sites[name].states and np.ndim(row[name]) == 2 and not fit.structure.sites[
        name
    ].cells:
        return Shown(name, "likelihood", note="likelihood")
    return Shown(name, "seen", note=f"= {_text(row[name][0])}")


def _bars(labels, chances) -> tuple:
    pairs = [(label, float(chance)) for label, chance in zip(labels, chances, strict=True)]
    if len(pairs) <= STATES:
        return tuple(pairs)
    kept = sorted(sorted(range(len(pairs)), key=lambda i: -pairs[i][1])[: STATES - 1])
    rest = sum(chance for i, (_, chance) in enumerate(pairs) if i not in kept)
    return (*(pairs[i] for i in kept), (f"{len(pairs) - len(kept)} others", rest))


def _text(value) -> str:
    if np.ndim(value):
        return "[" + ", ".join(map(_text, value)) + "]"
    text = f"{value:.3g}" if isinstance(value, float | np.floating) else str(value)
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"


def _list(names) -> str:
    names = list(names)
    return ", ".join(map(repr, names[:12])) + (f", … ({len(names)} in all)" if len(names) > 12
                                               else "")
