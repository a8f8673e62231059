"""What engines say of the same rows, and what the same fit says to the same question asked in
another way, must agree."""

import jax
import jax.numpy as jnp
import numpy as np

from probml.engines import NUTS, Exact
from random_models.case import ABSENT, PART, SOFT, Case
from random_models.comparing import (
    CLOSE,
    FEW,
    GRIDS,
    SINGLE,
    at,
    digits,
    fit_at_truth,
    fitted,
    runs_away,
    same,
    short_fit,
    starting_point,
    states_of,
)
from random_models.recipe import INDEXES, counted, finite
from random_models.recipe import computed_value as doubled

# discrete without bound: no mean here
UNTOLD = ("poisson", "counts", "geometric", "negative", "inflated", "rates", "zeros")
CHAINS = NUTS(draws=250, warmup=250, chains=2)
APART = 6.0  # standard errors that means of two engines may lie apart
FEWEST = 40  # effective draws of which a mean has a standard error
SIMULATED = 60  # data sets of a certificate
SURE = 1e-6  # a probability below which ranks are not uniform by chance


def calibrated(case: Case) -> None:
    """Of rows that the model simulates the exact posterior tells the parameters that made them:
    their ranks are uniform."""
    if not case.learnt or not case.data or case.outside or SOFT in case.hidden.values():
        return
    found = case.model.check(case.data, Exact(), simulations=SIMULATED, seed=case.seed)
    assert not found.failures, f"{len(found.failures)} simulations failed: {found.failures}"
    least = found.table["p_value"]
    assert least.min() > SURE, f"ranks of '{least.idxmin()}' are not uniform:\n{found}"


def sampled_alike(case: Case) -> None:
    """Draws of NUTS have the means of the exact posterior, within their own standard errors."""
    if not case.learnt or not case.data or case.outside:
        return
    exact = fitted(case, Exact(), case.data, None).summary()
    drawn = fitted(case, CHAINS, case.data, None).summary().reindex(exact.index)
    both = exact.join(drawn, rsuffix="_drawn").query("sd > 0 and ess_bulk >= @FEWEST")
    off = (both["mean"] - both["mean_drawn"]).abs()
    most = APART * both[["sd", "sd_drawn"]].max(axis=1) / np.sqrt(both["ess_bulk"])
    assert (off <= most).all(), f"NUTS's means are not the exact ones:\n{both[off > most]}"


def computed(case: Case) -> None:
    """A deterministic of a site has the mean of what it computes, or its value."""
    fit, data, right = fit_at_truth(case)
    for name, site in case.sites.items():
        shown = np.asarray(data.get(name, np.nan), float)
        if not site.get("tells") or case.hidden.get(name) == SOFT:
            continue
        if name in right.states and not counted(site):
            wanted = right.marginal(name, states_of(case, name)) @ np.arange(states_of(case, name))
        elif shown.ndim and not np.isnan(shown).any():
            wanted = shown
        else:
            continue  # over simulated rows
        same(fit.impute(data)[f"{name}_told"], doubled(wanted), f"'{name}_told'", digits(case))


def singly(case: Case) -> None:
    """A few steps of EM in float32 end where those in float64 do."""
    if (fit := short_fit(case)) is None:
        return
    start = starting_point(case)  # in double: single would draw others
    with jax.enable_x64(False):
        other = fitted(case, FEW, case.data, start)
    if other.status == fit.status and not runs_away(fit):  # which single leaves at its least number
        same(other.history[-1], fit.history[-1], "EM's objective in float32", SINGLE)


def asked(case: Case) -> None:
    """One question asked in several ways: of all rows and of one, compiled, in a table, of pairs of
    steps, of the distribution of what is filled in."""
    fit, data, right = fit_at_truth(case)
    for name, site in case.sites.items():
        if site["kind"] == "chain" and name in right.states:
            hot = right.states[name][..., None] == np.arange(site["states"])  # (joint, steps, k)
            wanted = np.einsum("nj,jta,jtb->ntab", right.weights, hot[:, :-1], hot[:, 1:])
            same(fit.pairs(data, name), wanted, f"pairs of '{name}'", digits(case))
    for name in right.means:
        if case.hidden.get(name) in (ABSENT, PART) and right.mean(name).ndim == 1:
            shown = np.asarray(data.get(name, np.full(case.rows, np.nan)), float)
            hole = np.isnan(shown)
            if not hole.any() or case.sites[name]["kind"] in UNTOLD or _has_coupled_tails(case,
                                                                                          name):
                continue
            got = np.asarray(fit.conditional(data, name).mean, float)
            same(got[hole], right.mean(name)[hole], f"the mean of conditional of '{name}'",
                 10 * max(GRIDS, digits(case)))
    if not any(site["kind"] in ("chain", "walk") for site in case.sites.values()) and (
            "t" not in case.inputs):
        first = {name: np.asarray(value)[:1] for name, value in data.items()}
        served = fit.compiled("log_prob", first)
        got = served({name: value[0] for name, value in first.items()})
        same(got, right.evidence[0], "log_prob of a row, compiled", digits(case))


def _has_coupled_tails(case: Case, name: str) -> bool:
    """Whether a number that is not normal is observed together with another latent number: nodes in
    two directions do not follow the tails of powers that these have."""
    site = case.sites[name]
    return digits(case) > CLOSE and any(
        case.hidden.get(other) in (ABSENT, PART) and not finite(case.sites[other])
        for other in (*site.get("adds", ()), *filter(None, (site.get("takes"),)))
        if other in case.sites)


def array_types(case: Case) -> None:
    """Arrays of whatever type, of JAX's, in lists, are the numbers that they hold."""
    if not case.data:
        return
    fit = at(case)
    rounded = {name: np.asarray(value, np.float32) for name, value in case.data.items()}
    right = np.asarray(fit.log_prob({name: np.asarray(value, float) if name not in INDEXES else
                                     value.astype(int) for name, value in rounded.items()}))
    kinds = {
        "float32": {name: value if name not in INDEXES else value.astype(np.int8)
                    for name, value in rounded.items()},
        "lists": {name: (value if name not in INDEXES else value.astype(int)).tolist()
                  for name, value in rounded.items()},
        "arrays of JAX": {name: jnp.asarray(value if name not in INDEXES else value.astype(int))
                          for name, value in rounded.items()},
        "integers": {name: value.astype(np.uint8) if name in case.sites and finite(
            case.sites[name]) and not np.isnan(value).any() and case.hidden.get(name) != SOFT
            or name in INDEXES else value.astype(float) for name, value in rounded.items()},
        "Fortran's order": {name: np.asfortranarray(value if name not in INDEXES else
                                                    value.astype(int))
                            for name, value in rounded.items()},
    }
    for kind, table in kinds.items():
        same(fit.log_prob(table), right, f"log_prob of {kind}", CLOSE)
