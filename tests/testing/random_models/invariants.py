"""What two ways must agree on, whatever the model: rows and names in another order, weights, parts,
files, tables, halves; no oracle is asked."""

import itertools
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from probml.engines import EM, MAP, NUTS, SVI, Exact, Laplace
from probml.errors import Refusal
from probml.interface.fit import Fit
from probml.interface.loading import load
from random_models.case import SOFT, Case
from random_models.comparing import (
    CLOSE,
    assert_same_fit,
    at,
    digits,
    fit_at_truth,
    fitted,
    same,
    short_fit,
    starting_point,
    states_of,
)
from random_models.recipe import CHAINS, INDEXES, STEPS, counted, finite, timed

SHORT = (Laplace(), SVI(steps=5), NUTS(draws=4, warmup=4, chains=1))


def order(case: Case) -> None:
    """Rows in another order, and sites in another order, give the same fit."""
    if (fit := short_fit(case)) is None or _kinked(case):
        return
    turned = {name: np.asarray(value)[::-1] for name, value in reversed(case.data.items())}
    other = short_fit(case, turned)
    assert_same_fit(fit, other, "rows in reverse")
    same(fit.log_prob(case.data), np.asarray(other.log_prob(turned))[::-1],
         "log_prob of rows in reverse", 1e-7)


def _kinked(case: Case) -> bool:
    """Whether EM climbs a density with kinks: where four steps of that end, the last digit says."""
    return any(site["kind"] == "laplace" and site.get("adds") and set(site.get("learn", ())) - {
        "scale"} for site in case.recipe["sites"])


def _unseen(case: Case, name: str, rows: int) -> bool:
    """Whether the first rows show nothing of a site that others show."""
    shown = np.asarray(case.data.get(name, 0.0), float)
    return bool(np.isnan(shown[:rows]).all()) if shown.ndim else False


def weight(case: Case) -> None:
    """A row of weight 2 is that row twice; a row of weight 0, or of nothing seen, is none."""
    counts = np.arange(case.rows) % 3
    if (fit := short_fit(case, weights=counts.astype(float))) is None:
        return
    doubled = {n: np.repeat(np.asarray(v), counts, 0) for n, v in case.data.items()}
    assert_same_fit(fit, short_fit(case, doubled), "weight 2")
    for engine, start in ((Exact(), None), (MAP(), starting_point(case))):
        try:
            one = fitted(case, engine, case.data, start, counts.astype(float))
            other = fitted(case, engine, doubled, start)
        except Refusal:
            continue
        if isinstance(engine, Exact):
            same(one.log_evidence, other.log_evidence, "Exact's evidence of weights", 1e-7)
        elif one.converged and other.converged:
            same(one.history[-1], other.history[-1], "MAP's end of weights", 1e-5)
    if not case.inputs and not case.nested and SOFT not in case.hidden.values():
        more = {n: np.concatenate([np.asarray(v, float), np.full_like(v[:1], np.nan, float)])
                for n, v in case.data.items()}
        # the way of EM is slower, as of every unseen cell: its ends are the same
        same(fit.log_joint(more), fit.log_joint(case.data), "log_joint with a row of NaN", CLOSE)


def modes(case: Case) -> None:
    """Where EM has ended, MAP stays."""
    if not case.learnt or not case.data:
        return
    try:
        fit = fitted(case, EM(restarts=1, max_iterations=3000, tolerance=1e-12), case.data,
                     starting_point(case))
        other = fitted(case, MAP(), case.data, dict(fit.point))
    except Refusal:
        return
    if fit.converged and other.converged:
        # two modes may be near: what one finds the other may leave, but never for less
        gain = float(other.history[-1]) - float(fit.history[-1])
        assert gain > -1e-6 * (1 + abs(fit.history[-1])), f"MAP's optimum is {-gain:.3g} below EM's"
        assert gain < 1e-3 * (1 + abs(fit.history[-1])), f"MAP's optimum is {gain:.3g} above EM's"


def saving(case: Case) -> None:
    """What was saved and loaded, or pickled, answers as before."""
    if (fit := short_fit(case)) is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fit"
        fit.save(path)
        again = load(path, case.model)
    for other in (again, pickle.loads(pickle.dumps(fit))):
        np.testing.assert_array_equal(fit.log_prob(case.data), other.log_prob(case.data))
        assert_same_fit(fit, other, "saved and loaded")


def parts(case: Case) -> None:
    """Rows that are read in parts, some at a time, give what rows in memory give."""
    if (fit := short_fit(case)) is None or _kinked(case):
        return
    cuts = [0, 1, case.rows // 2, case.rows]
    if any(timed(site, case.sites) and _unseen(case, name, 1) for name, site in case.sites.items()):
        cuts = [0, case.rows - 1, case.rows]  # steps of EM leave out such rows, but no whole part

    def read():
        for low, high in itertools.pairwise(cuts):
            yield {name: np.asarray(value)[low:high] for name, value in case.data.items()}

    assert_same_fit(fit, short_fit(case, read), "rows in batches")
    same(fit.log_prob(read), fit.log_prob(case.data), "log_prob of rows in batches", 1e-7)


def names(case: Case) -> None:
    """What sites are called makes no difference, nor in which order the names stand."""
    other = case.renamed()
    own = [[site["name"] for site in one.recipe["sites"]] for one in (case, other)]
    to = dict(zip(*own, strict=True))
    fits = [at(one) for one in (case, other)]
    shown = {to.get(name, name): value for name, value in case.data.items()}
    same(fits[1].log_prob(shown), fits[0].log_prob(case.data), "log_prob under other names", CLOSE)
    for name in case.unseen:
        same(fits[1].predict_proba(shown, to[name]), fits[0].predict_proba(case.data, name),
             f"predict_proba of '{name}' under another name", CLOSE)


def labelled(case: Case) -> None:
    """Members of groups named by text, or by codes from 1, of which one may have no rows, are those
    named by codes from 0."""
    indexes = [name for name in INDEXES if name in case.inputs]
    if not indexes:
        return
    fit, data, _ = fit_at_truth(case)
    words = {name: ("none", "one", "two")[: INDEXES[name]] for name in indexes}
    codes = {name: tuple(range(1, 1 + INDEXES[name])) for name in indexes}
    for what, labels in (("in words", words), ("from 1", codes)):
        named = {**data, **{name: np.array(labels[name])[data[name]] for name in indexes}}
        other = at(case, **labels)
        same(other.log_prob(named), fit.log_prob(data), f"log_prob of members {what}", CLOSE)
        # by itself a row may be of a pattern of its own, and integrated at once
        first = {name: np.asarray(value)[:1] for name, value in named.items()}
        same(other.log_prob(first), np.asarray(fit.log_prob(data))[:1],
             f"log_prob of one row, members {what}", digits(case))


def spelled(case: Case) -> None:
    """States named by text, in an order that is not that of the alphabet, are those named by
    numbers."""
    own = {name: tuple(f"{'zyxw'[i]} {name}" for i in range(states_of(case, name)))
           for name, site in case.sites.items() if finite(site) and not counted(site)
           and site["kind"] != "chain"}
    if not own or not case.data:
        return
    fit, data = at(case), dict(case.data)
    for name, words in own.items():
        if name in data and case.hidden.get(name) != SOFT:
            codes, hole = np.nan_to_num(data[name]).astype(int), np.isnan(data[name])
            data[name] = np.where(hole, None, np.array(words, object)[codes])
    other = at(case, **own)
    same(other.log_prob(data), fit.log_prob(case.data), "log_prob of states in words", CLOSE)
    for name in set(own) & set(case.unseen):
        p = fit.predict_proba(case.data, name)
        same(other.predict_proba(data, name), p, f"predict_proba of '{name}' in words", CLOSE)
        said = np.asarray(other.predict(data, name))
        got = np.take_along_axis(p, np.vectorize(own[name].index)(said)[..., None], -1)[..., 0]
        same(got, p.max(-1), f"p of the word that predict says of '{name}'", CLOSE)


def data_frames(case: Case) -> None:
    """Columns of a table, of whatever kind, are the arrays that they hold."""
    if not case.data or any(np.ndim(value) != 1 for value in case.data.values()) or any(
            site["kind"] in CHAINS for site in case.sites.values()):  # no column holds a sequence
        return
    fit, columns = at(case), {}
    for name, value in case.data.items():
        whole = not np.isnan(np.asarray(value, float)).any()
        if name not in case.sites or not finite(case.sites[name]):
            columns[name] = (pd.array(value) if name in case.inputs else pd.Series(
                value, dtype=object).where(~np.isnan(value), None))
        elif whole and states_of(case, name) == 2:
            columns[name] = np.asarray(value).astype(bool)
        else:
            columns[name] = pd.array(np.where(np.isnan(np.asarray(value, float)), 0, value)
                                     .astype(int), "Int8")
            columns[name][np.isnan(np.asarray(value, float))] = pd.NA
    frame = pd.DataFrame({name: list(value) if name in case.inputs else value
                          for name, value in columns.items()})
    for what, table in (("a table", frame), ("rows of a table", frame.iloc[::-1])):
        turn = slice(None) if table is frame else slice(None, None, -1)
        same(np.asarray(fit.log_prob(table))[turn], fit.log_prob(case.data),
             f"log_prob of {what}", CLOSE)
        for name in case.unseen:
            if name in frame:
                same(np.asarray(fit.predict_proba(table, name))[turn],
                     fit.predict_proba(case.data, name), f"predict_proba of '{name}' of {what}",
                     CLOSE)


def filtered(case: Case) -> None:
    """What is filtered is smoothed without what comes after; what is predicted without the step."""
    chains = [name for name in case.unseen if case.sites[name]["kind"] == "chain"]
    if not chains:
        return
    fit, data = at(case), case.data
    steps = {name for name in data if name in case.sites and timed(case.sites[name], case.sites)}
    for given, shown in (("filtered", 1), ("predicted", 0)):
        found = {name: np.asarray(fit.predict_proba(data, name, given=given)) for name in chains}
        for t in range(STEPS):
            cut = {name: np.where((np.arange(STEPS) < t + shown).reshape(
                STEPS, *(1,) * (np.ndim(value) - 2)), value, np.nan) if name in steps else value
                for name, value in data.items()}
            for name in chains:
                if given == "predicted" and case.hidden.get(name) != "absent":
                    continue  # a state that is seen is no forecast
                same(found[name][:, t], np.asarray(fit.predict_proba(cut, name))[:, t],
                     f"predict_proba(given='{given}') of '{name}' at step {t}", digits(case))


def merged(case: Case) -> None:
    """Two halves merged, and one half with the other as further rows, are the whole."""
    if not case.learnt or not case.data or case.inputs:
        return
    half = case.rows // 2
    halves = [{name: np.asarray(value)[part] for name, value in case.data.items()}
              for part in (slice(half), slice(half, None))]
    for engine in (Exact(), EM(restarts=1, max_iterations=200)):
        try:
            whole = fitted(case, engine, case.data, None)
            one, other = (fitted(case, engine, some, None) for some in halves)
            found = [one.merge(other), one.update(halves[1])]
        except Refusal:
            continue
        for what, fit in zip(("merge", "update"), found, strict=True):
            if fit.log_evidence is not None:
                same(fit.log_evidence, whole.log_evidence, f"{what}: log_evidence", 1e-7)
            if not case.hidden:
                same(fit.log_prob(case.data), whole.log_prob(case.data), f"{what}: log_prob",
                     1e-6 if isinstance(engine, Exact) else 1e-3)


def unaided(case: Case) -> None:
    """Without an engine or a start a fit ends: its numbers are numbers, and its history is what
    log_joint says of them."""
    if not case.data:
        return
    for engine in (None, EM(restarts=3, max_iterations=5), MAP(steps=5)):
        try:
            fit = fitted(case, engine, case.data, None)
        except Refusal:
            continue
        _assert_finite(fit, case)
        if isinstance(engine, EM | MAP) and not case.nested and len(fit.history):
            same(fit.log_joint(case.data), fit.history[-1],
                 f"{type(engine).__name__}'s history against log_joint", 1e-6)


def sampled(case: Case) -> None:
    """An engine that approximates the posterior answers with numbers, and at its point as a model
    does whose parameters are known."""
    if not case.learnt or not case.data:
        return
    fit = fitted(case, SHORT[case.seed % len(SHORT)], case.data, None)
    _assert_finite(fit, case)
    if not case.nested and not case.outside:
        same(fit.log_prob(case.data, plug_in=True), case.model.at(dict(fit.point)).log_prob(
            case.data), "log_prob(plug_in=True)", 1e-7)
    again = pickle.loads(pickle.dumps(fit))
    same(again.log_prob(case.data), fit.log_prob(case.data), "log_prob of a fit that was pickled",
         CLOSE)


def _assert_finite(fit: Fit, case: Case) -> None:
    """All numbers of a fit are finite, and its status is a text."""
    assert isinstance(fit.status, str) and fit.status
    repr(fit), fit.summary()
    for name, value in {**fit.params, "log_prob": fit.log_prob(case.data)}.items():
        assert np.isfinite(np.asarray(value, float)).all(), f"'{name}' is {value}"
