"""What must hold of every answer, whatever the model: each claim takes a Case and raises where it
does not hold."""

import functools
import itertools
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from probml.engines import EM, MAP, VB, Exact
from probml.errors import Refusal
from probml.interface.fit import Fit
from probml.interface.loading import load
from probml.testing.case import SEEN, Case
from probml.testing.oracle import Truth, Unknown, truth
from probml.testing.recipe import GROUPS, finite, states

CLOSE = 1e-8  # of float64, where nothing but the order of sums differs
GRIDS = 1e-6  # where ours or the oracle's integral is one over nodes
SINGLE = 1e-3  # of float32
FEW = EM(max_iterations=4, accelerate=False, tolerance=0.0, restarts=1)


@functools.lru_cache(maxsize=4)
def known(case: Case) -> tuple[Fit, dict[str, Any], Truth]:
    """(the fit at the drawn parameters, its data, what is true of them).

    Raises:
        Unknown: brute force has no answer.
    """
    params, rows = case.drawn
    shown = {name: value for name, value in case.data.items() if name not in case.inputs}
    found = truth(case.model, params, shown, case.inputs, rows, _read(case))
    return case.model.at(params), case.data, found


def density(case: Case) -> None:
    """log_prob is the log of the sum over all joint states; log_joint adds the prior."""
    fit, data, right = known(case)
    close = _digits(case)
    same(fit.log_prob(data), right.evidence, "log_prob", close)
    same(fit.log_joint(data), right.evidence.sum() + right.prior, "log_joint", close)


def probabilities(case: Case) -> None:
    """predict_proba is each state's share of the joint states."""
    fit, data, right = known(case)
    for name in right.states:
        k = _states(case, name)
        same(fit.predict_proba(data, name), right.marginal(name, k),
             f"predict_proba of '{name}'", _digits(case))


def decoding(case: Case) -> None:
    """decode finds a joint state of which none is more probable."""
    fit, data, right = known(case)
    if not right.states or right.means and any(np.isnan(data.get(n, np.nan)).any()
                                               for n in right.means if n in _read(case)):
        return
    found = fit.decode(data)
    rows = len(right.log)
    match = np.ones(right.log.shape, bool)
    for name, cells in right.states.items():
        hit = np.asarray(found[name]).reshape(rows, 1, -1) == cells.reshape(1, len(cells), -1)
        match &= hit.all(-1)
    assert (match.sum(1) == 1).all(), "decode: a row's answer is no joint state"
    same(right.log[match], right.log.max(1), "log p of what decode finds", CLOSE)


def imputation(case: Case) -> None:
    """impute fills numbers and counts by their means, states by one of which none is more
    probable."""
    fit, data, right = known(case)
    filled = fit.impute(data)
    for name in right.means:
        same(filled[name], right.mean(name), f"impute of '{name}'", 10 * _digits(case))
    for name in right.states:
        p = right.marginal(name, _states(case, name))
        if case.sites[name]["kind"] == "binomial":  # a count among a total
            same(filled[name], p @ np.arange(p.shape[-1]), f"impute of '{name}'", _digits(case))
            continue
        got = np.take_along_axis(p, np.asarray(filled[name])[..., None].astype(int), -1)[..., 0]
        shown = np.asarray(data.get(name, np.full(got.shape, np.nan)), float)
        same(np.where(np.isnan(shown), got, 1.0), np.where(np.isnan(shown), p.max(-1), 1.0),
             f"p of what impute says of '{name}'", CLOSE)


def single(case: Case) -> None:
    """float32 has the digits that it promises."""
    _, data, right = known(case)
    point = case.drawn[0]  # in double: single would draw others
    with jax.enable_x64(False):
        got = case.model.at(point).log_prob(data)
    same(got, right.evidence, "log_prob in float32", SINGLE)


def learning(case: Case) -> None:
    """EM's history is the objective at its parameters, and does not fall."""
    if (fit := few(case)) is None:
        return
    history = np.asarray(fit.history)
    assert (np.diff(history) > -1e-7 * (1 + np.abs(history[1:]))).all(), (
        f"EM's objective falls: {history}")
    same(fit.log_joint(case.data), history[-1], "EM's history against log_joint", 1e-7)
    params, rows = case.drawn
    shown = {name: value for name, value in case.data.items() if name not in case.inputs}
    found = truth(case.model, dict(fit.point), shown, case.inputs, rows, _read(case))
    same(history[-1], found.evidence.sum() + found.prior, "EM's history", 1e-7)


def order(case: Case) -> None:
    """Rows in another order, and sites in another order, give the same fit."""
    if (fit := few(case)) is None:
        return
    turned = {name: np.asarray(value)[::-1] for name, value in reversed(case.data.items())}
    other = few(case, turned)
    _alike(fit, other, "rows in reverse")
    same(fit.log_prob(case.data), np.asarray(other.log_prob(turned))[::-1],
         "log_prob of rows in reverse", 1e-7)


def weight(case: Case) -> None:
    """A row of weight 2 is that row twice; a row of weight 0, or of nothing seen, is none."""
    if (fit := few(case, weights=np.arange(case.rows) % 3.0)) is None:
        return
    twice = np.repeat(np.arange(case.rows), np.arange(case.rows) % 3)
    _alike(fit, few(case, {n: np.asarray(v)[twice] for n, v in case.data.items()}), "weight 2")
    if not case.inputs:
        more = {n: np.concatenate([np.asarray(v, float), np.full_like(v[:1], np.nan, float)])
                for n, v in case.data.items()}
        # the way of EM is slower, as of every unseen cell: its ends are the same
        same(fit.log_joint(more), fit.log_joint(case.data), "log_joint with a row of NaN", CLOSE)


def modes(case: Case) -> None:
    """Where EM has ended, MAP stays."""
    if not case.learnt or not case.data:
        return
    try:
        fit = _fitted(case, EM(restarts=1, max_iterations=3000, tolerance=1e-12), case.data,
                      case.drawn[0])
        other = _fitted(case, MAP(), case.data, dict(fit.point))
    except Refusal:
        return
    if fit.converged and other.converged:
        # two modes may be near: what one finds the other may leave, but never for less
        gain = float(other.history[-1]) - float(fit.history[-1])
        assert gain > -1e-6 * (1 + abs(fit.history[-1])), f"MAP ends {-gain:.3g} below EM's end"
        assert gain < 1e-3 * (1 + abs(fit.history[-1])), f"MAP climbs {gain:.3g} above EM's end"


def kept(case: Case) -> None:
    """What was saved and loaded answers as before."""
    if (fit := few(case)) is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fit"
        fit.save(path)
        again = load(path, case.model)
    np.testing.assert_array_equal(fit.log_prob(case.data), again.log_prob(case.data))
    _alike(fit, again, "saved and loaded")


def parts(case: Case) -> None:
    """Rows that are read in parts, some at a time, give what rows in memory give."""
    if (fit := few(case)) is None:
        return
    cuts = [0, 1, case.rows // 2, case.rows]

    def read():
        for low, high in itertools.pairwise(cuts):
            yield {name: np.asarray(value)[low:high] for name, value in case.data.items()}

    _alike(fit, few(case, read), "rows in parts")
    same(fit.log_prob(read), fit.log_prob(case.data), "log_prob of rows in parts", 1e-7)


def names(case: Case) -> None:
    """What sites are called makes no difference, nor in which order the names stand."""
    other = case.renamed()
    to = dict(zip(case.sites, other.sites, strict=True))
    fits = [one.model.at(one.drawn[0]) for one in (case, other)]
    shown = {to.get(name, name): value for name, value in case.data.items()}
    same(fits[1].log_prob(shown), fits[0].log_prob(case.data), "log_prob under other names", CLOSE)
    for name in case.unseen:
        same(fits[1].predict_proba(shown, to[name]), fits[0].predict_proba(case.data, name),
             f"predict_proba of '{name}' under another name", CLOSE)


def exactly(case: Case) -> None:
    """Of one parameter, Exact's evidence is p(data, parameter) / p(parameter | data)."""
    params, _, right = *case.drawn, known(case)[2]
    if len(params) != 1 or not case.data:
        return
    fit = _fitted(case, Exact(), case.data, None)
    name, value = next(iter(params.items()))
    log = np.sum(np.asarray(fit.posterior(name).log_prob(value)))
    same(fit.log_evidence, right.evidence.sum() + right.prior - log, "Exact's evidence", CLOSE)


def bounds(case: Case) -> None:
    """VB's bound does not fall, and lies below the evidence where that is known."""
    if not case.learnt or not case.data:
        return
    fit = _fitted(case, VB(max_iterations=30, restarts=1), case.data, None)
    history = np.asarray(fit.history)
    assert (np.diff(history) > -1e-7 * (1 + np.abs(history[1:]))).all(), (
        f"VB's bound falls: {history}")
    try:
        exact = _fitted(case, Exact(), case.data, None)
    except Refusal:
        return
    assert fit.bound <= exact.log_evidence + 1e-7 * (1 + abs(exact.log_evidence)), (
        f"VB's bound {fit.bound} lies above the evidence {exact.log_evidence}")


def labelled(case: Case) -> None:
    """Members of groups named by text, of which one has no rows, are those named by numbers."""
    if "group" not in case.inputs:
        return
    words = ("none", "one", "two")[:GROUPS]
    fit, data, _ = known(case)
    named = {**data, "group": np.array(words)[np.asarray(data["group"])]}
    other = case.model.at(case.drawn[0], labels={"group": words})
    same(other.log_prob(named), fit.log_prob(data), "log_prob of members in words", CLOSE)
    first = {name: np.asarray(value)[:1] for name, value in named.items()}
    same(other.log_prob(first), np.asarray(fit.log_prob(data))[:1], "log_prob of one row", CLOSE)


CLAIMS: tuple[Callable[[Case], None], ...] = (
    density, probabilities, decoding, imputation, single, learning, order, weight, modes, kept,
    parts, names, exactly, bounds, labelled)
ALWAYS = 4  # of these are held of every case; of the others each round of fuzzing takes some


def check(case: Case, claims: tuple[Callable[[Case], None], ...] = CLAIMS) -> int:
    """Hold a case to claims.

    Returns:
        How many were tried; those of which brute force knows nothing, or which the engine refuses,
        are not.

    Raises:
        AssertionError: one does not hold.
    """
    tried = 0
    for claim in claims:
        try:
            claim(case)
            tried += 1
        except (Unknown, Refusal):
            continue
    return tried


def few(case: Case, data: dict[str, Any] | None = None, weights: Any = None) -> Fit | None:
    """A few steps of EM from the drawn parameters; None where there is nothing to learn."""
    if not case.learnt or not case.data:
        return None
    start = case.drawn[0]
    return _fitted(case, FEW, case.data if data is None else data, start, weights)


def _fitted(case: Case, engine: Any, data: Any, start: Any, weights: Any = None) -> Fit:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return case.model.fit(data, engine, weights=weights, start=start)


def _read(case: Case) -> set[str]:
    """The sites and inputs that sites look at."""
    return {p for site in case.recipe["sites"]
            for p in (*site.get("parents", ()), *site.get("adds", ()))}


def _states(case: Case, name: str) -> int:
    return states(case.sites[name])


def _digits(case: Case) -> float:
    """How near answers must be: integrals over nodes have fewer digits."""
    hidden = {name for name in _read(case) if case.hidden.get(name, SEEN) != SEEN
              and name in case.sites and not finite(case.sites[name])}
    rough = any(hidden & set(site.get("adds", ())) and site["kind"] != "normal"
                for site in case.recipe["sites"])
    return GRIDS if rough else CLOSE


def _alike(one: Fit, other: Fit | None, what: str) -> None:
    assert other is not None
    same(other.history[-1], one.history[-1], f"{what}: objective", 1e-7)
    for name, value in one.point.items():
        same(other.point[name], value, f"{what}: '{name}'", 1e-6)


def same(got: Any, wanted: Any, what: str, close: float) -> None:
    """Equal within `close`, relative to what is larger than 1."""
    got, wanted = np.asarray(got, float), np.asarray(wanted, float)
    assert got.shape == wanted.shape, f"{what}: shape {got.shape}, expected {wanted.shape}"
    with np.errstate(invalid="ignore"):
        off = np.abs(got - wanted) / np.maximum(1.0, np.abs(wanted))
    off = np.where((got == wanted) | np.isnan(got) & np.isnan(wanted), 0.0, off)
    assert (off <= close).all(), (
        f"{what}: off by {np.nanmax(off):.3g}: got {got.tolist()}, expected {wanted.tolist()}")

