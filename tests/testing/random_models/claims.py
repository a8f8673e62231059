"""What must hold of every answer, whatever the model: each claim takes a Case and raises where it
does not hold. Here those that brute force answers; invariants.py has what two ways must agree on.
"""

from collections.abc import Callable

import jax
import numpy as np
from enumeration.separable_integral import Unknown

from probml.engines import EM, VB, Exact
from probml.engines.findings import Code
from probml.errors import Refusal
from random_models import agreements, invariants
from random_models.case import SOFT, Case
from random_models.comparing import (
    CLOSE,
    SINGLE,
    digits,
    fit_at_truth,
    fitted,
    read,
    rises,
    same,
    short_fit,
    starting_point,
    states_of,
    true,
)
from random_models.recipe import counted, finite, timed

MANY = 300  # draws of a row
APART = 6.0  # standard errors that a mean of draws may lie away


def density(case: Case) -> None:
    """log_prob is the log of the sum over all joint states; log_joint adds the prior."""
    fit, data, right = fit_at_truth(case)
    close = digits(case)
    same(fit.log_prob(data), right.evidence, "log_prob", close)
    same(fit.log_joint(data), right.total, "log_joint", close)


def probabilities(case: Case) -> None:
    """predict_proba is each state's share of the joint states."""
    fit, data, right = fit_at_truth(case)
    for name in right.states:
        k = states_of(case, name)
        same(fit.predict_proba(data, name), right.marginal(name, k),
             f"predict_proba of '{name}'", digits(case))


def decoding(case: Case) -> None:
    """decode finds a joint state of which none is more probable."""
    fit, data, right = fit_at_truth(case)
    if not right.states or case.outside or right.means and any(
            np.isnan(data.get(n, np.nan)).any() for n in right.means if n in read(case)):
        return
    found = fit.decode(data)
    rows = len(right.log)
    match = np.ones(right.log.shape, bool)
    for name, cells in right.states.items():
        hit = np.asarray(found[name]).reshape(rows, 1, -1) == cells.reshape(1, len(cells), -1)
        match &= hit.all(-1)
    assert (match.sum(1) == 1).all(), "decode: the result for a row is not a joint state"
    same(right.log[match], right.log.max(1), "log p of what decode finds", CLOSE)


def imputation(case: Case) -> None:
    """impute fills numbers and counts by their means, states by one of which none is more
    probable."""
    fit, data, right = fit_at_truth(case)
    filled = fit.impute(data)
    for name in right.means:
        same(filled[name], right.mean(name), f"impute of '{name}'", 10 * digits(case))
    for name in right.states:
        p = right.marginal(name, states_of(case, name))
        if counted(case.sites[name]):
            same(filled[name], p @ np.arange(p.shape[-1]), f"impute of '{name}'", digits(case))
            continue
        got = np.take_along_axis(p, np.asarray(filled[name])[..., None].astype(int), -1)[..., 0]
        shown = np.asarray(case.hard.get(name, np.full(got.shape, np.nan)), float)
        same(np.where(np.isnan(shown), got, 1.0), np.where(np.isnan(shown), p.max(-1), 1.0),
             f"p of what impute says of '{name}'", CLOSE)


def single(case: Case) -> None:
    """float32 has the digits that it promises."""
    _, data, right = fit_at_truth(case)
    point = starting_point(case)  # in double: single would draw others
    with jax.enable_x64(False):
        got = case.model.at(point).log_prob(data)
    same(got, right.evidence, "log_prob in float32", SINGLE)


def learning(case: Case) -> None:
    """EM's history is the objective at its parameters, and does not fall."""
    if (fit := short_fit(case)) is None:
        return
    rises(fit, "EM's objective")
    if not case.nested:  # whose effects are integrated out
        same(fit.log_joint(case.data), fit.history[-1], "EM's history against log_joint", 1e-7)
        same(fit.history[-1], true(case, dict(fit.point)).total, "EM's history",
             max(1e-7, digits(case)))


def likely(case: Case) -> None:
    """Without a prior EM's history is the likelihood; of hard EM it does not fall either."""
    if not case.learnt or not case.data or case.nested:
        return
    rises(fitted(case, EM(max_iterations=4, restarts=1, hard=True, tolerance=0.0), case.data,
                 starting_point(case)), "hard EM's objective")
    fit = fitted(case, EM(max_iterations=3, restarts=1, prior=False, tolerance=0.0,
                          accelerate=False), case.data, starting_point(case))
    rises(fit, "EM's likelihood")
    if not all(np.isfinite(value).all() for value in fit.point.values()):
        assert any(found.code is Code.SEPARATION for found in fit.warnings), (
            f"a parameter is infinite, but {fit.status}")
        return
    right = true(case, dict(fit.point))
    if case.outside:  # of which the prior stays
        right = right._replace(together=right.total)
    same(fit.history[-1], right.likelihood, "EM's history without a prior",
         max(1e-7, digits(case)))


def exactly(case: Case) -> None:
    """Of one parameter, Exact's evidence is p(data, parameter) / p(parameter | data)."""
    params, right = case.drawn[0], fit_at_truth(case)[2]
    if len(params) != 1 or not case.data or case.outside:
        return
    fit = fitted(case, Exact(), case.data, None)
    name, value = next(iter(params.items()))
    log = np.sum(np.asarray(fit.posterior(name).log_prob(value)))
    same(fit.log_evidence, right.total - log, "Exact's evidence", CLOSE)


def outside(case: Case) -> None:
    """Where all else is known, a finite parameter has the posterior that brute force gives it."""
    if not case.outside or set(case.drawn[0]) != set(case.outside) or not case.data:
        return
    fit = fitted(case, Exact(), case.data, None)
    same(fit.log_evidence, fit_at_truth(case)[2].total, "Exact's evidence of finite parameters",
         digits(case))


def bounds(case: Case) -> None:
    """VB's bound does not fall, and lies below the evidence where that is known."""
    if not case.learnt or not case.data:
        return
    fit = fitted(case, VB(max_iterations=30, restarts=1), case.data, None)
    rises(fit, "VB's bound")
    try:
        exact = fitted(case, Exact(), case.data, None)
    except Refusal:
        return
    assert fit.bound <= exact.log_evidence + 1e-7 * (1 + abs(exact.log_evidence)), (
        f"VB's bound {fit.bound} lies above the evidence {exact.log_evidence}")


def together(case: Case) -> None:
    """joint is what two sites have in common."""
    fit, data, right = fit_at_truth(case)
    names = [name for name in right.states if right.states[name].ndim == 1][:2]
    if len(names) == 2:
        k = states_of(case, names[0]), states_of(case, names[1])
        same(fit.joint(data, names), right.pair(*names, k), f"joint of {names}", digits(case))


def acted(case: Case) -> None:
    """do sets a site in every row, and learns nothing of what causes it."""
    fit, data, _ = fit_at_truth(case)
    name = next((name for name, site in case.sites.items() if finite(site)
                 and not timed(site, case.sites) and site.get("layout", "scalar") == "scalar"
                 and case.hidden.get(name) != SOFT), None)
    if name is None:
        return
    rest = {key: value for key, value in data.items() if key != name}
    if set(rest) <= set(case.inputs):
        return
    right = true(case, case.drawn[0], rest | {name: np.zeros(case.rows)}, without=(name,))
    same(fit.do({name: 0}).log_prob(rest), right.evidence, f"log_prob after do('{name}')",
         digits(case))


def drawn(case: Case) -> None:
    """What simulate(given=) draws has the means that brute force gives."""
    fit, data, right = fit_at_truth(case)
    if not case.unseen and not any(n in case.hidden for n in right.means):
        return
    many = {name: np.repeat(np.asarray(value), MANY, 0) for name, value in data.items()}
    found = fit.simulate(given=many, seed=case.seed)
    for name in (*right.states, *right.means):
        if case.hidden.get(name) is None:
            continue
        got = np.asarray(found[name], float).reshape(case.rows, MANY, *found[name].shape[1:])
        if name in right.states:
            p = right.marginal(name, states_of(case, name))
            wanted = p @ np.arange(p.shape[-1])
            spread = np.sqrt(np.maximum(p @ np.arange(p.shape[-1]) ** 2 - wanted**2, 0.0))
        else:
            if case.sites[name]["kind"] not in ("normal", "gumbel", "logistic", "poisson",
                                                "multivariate", "walk"):
                continue  # tails in which a mean of so few draws is none
            wanted = right.mean(name)
            spread = got.std(1)
        off = np.abs(got.mean(1) - wanted)
        # of counts that are nearly always 0 no draw may be another: their spread is none
        rare = 3.0 if name in right.states else 10.0 * (case.sites[name]["kind"] == "poisson")
        most = APART * spread / np.sqrt(MANY) + 1e-6 * (1 + np.abs(wanted)) + rare / MANY
        assert (off <= most).all(), (f"simulate(given=) of '{name}': means {got.mean(1).tolist()}, "
                                     f"expected {wanted.tolist()}, within {most.tolist()}")


CLAIMS: tuple[Callable[[Case], None], ...] = (
    density, probabilities, decoding, imputation, single, together, acted, invariants.filtered,
    invariants.data_frames, invariants.spelled,
    learning, invariants.order, invariants.weight, invariants.modes, invariants.saving,
    invariants.parts, invariants.names, exactly, bounds, invariants.labelled, likely, outside,
    drawn, invariants.merged, invariants.unaided, invariants.sampled, agreements.calibrated,
    agreements.singly, agreements.asked, agreements.array_types, agreements.computed,
    agreements.sampled_alike)


def check(case: Case, claims: tuple[Callable[[Case], None], ...] = CLAIMS) -> int:
    """Hold a case to claims.

    Returns:
        How many were tried; those of which brute force knows nothing, or which the engine refuses,
        are not.

    Raises:
        AssertionError: one does not hold.
    """
    tried = 0
    if not case.finite:  # which is refused as data
        return tried
    for claim in claims:
        try:
            claim(case)
            tried += 1
        except (Unknown, Refusal):
            continue
    return tried
