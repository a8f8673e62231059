"""Whether a fit has the posterior means and standard deviations of a long run of NumPyro's NUTS."""

import itertools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from probml.engines.findings import Code

MEAN, SD = 0.2, 0.15  # posterior standard deviations; share of one
NOISE = 3.0  # Monte Carlo errors
DRAWS = 4000
FEWEST = 1000  # effective draws of a truth whose Monte Carlo errors are not stored
LABELS = 4  # of one site at the most
PARTS = 8  # batches of draws, by which the error of a standard deviation is known


class Moments(NamedTuple):
    """Means and standard deviations of one site, flat, with their Monte Carlo errors."""

    mean: np.ndarray
    sd: np.ndarray
    error: np.ndarray
    sd_error: np.ndarray


class Judgement(NamedTuple):
    """What came out.

    Attributes:
        verdict: "right": means within 0.2 sd and sds within 15 %, beyond Monte Carlo errors; "said":
            not right, and the status or a warning says that the answer is not to be trusted;
            "wrong": neither; "refused": an error in words; "not compared": no site in common.
        farthest: the farthest mean, in standard deviations of the truth.
        ratio: the sd of the fit over that of the truth, where it is farthest from 1; NaN where the
            fit has no standard deviation.
        site: the site that is the farthest beyond what is allowed.
    """

    verdict: str
    farthest: float
    ratio: float
    site: str


def judge(fit: Any, truth: Mapping[str, Any]) -> Judgement:
    """The judgement of a fit, or of what it raised.

    Args:
        fit: a Fit, or the exception in its place.
        truth: the entry of truths.json.
    """
    if isinstance(fit, Exception):
        return Judgement(refused(fit), math.nan, math.nan, "")
    return compared(moments(fit, bool(truth.get("labels"))), truth, said(fit))


def refused(error: Exception) -> str:
    """ "refused" of an error in words, "failed" of any other."""
    from probml.errors import DataError, ModelError

    return "refused" if isinstance(error, ModelError | DataError) else "failed"


def said(fit: Any) -> bool:
    """Whether the fit warns, or says that it is a point and no posterior."""
    return (not fit.converged or bool(fit.warnings)
            or any(finding.code is Code.POINT for finding in fit.findings))


def compared(found: Mapping[str, Moments], truth: Mapping[str, Any], doubted: bool) -> Judgement:
    """The judgement of means and standard deviations."""
    farthest, ratio, site, excess = 0.0, 1.0, "", -math.inf
    common = [name for name in truth["mean"] if name in found
              and found[name].mean.size == np.size(truth["mean"][name])]
    for name in common:
        own, want = found[name], true(truth, name)
        if truth.get("aligned"):
            own = Moments(*(value[alignment(own.mean, want, np.shape(truth["mean"][name]))]
                            for value in own))
        moves = want.sd > 1e-6 * (1e-6 + np.abs(want.mean))
        if not moves.any():
            continue
        own, want = (Moments(*(value[moves] for value in side)) for side in (own, want))
        away = np.abs(own.mean - want.mean) / want.sd
        allowed = MEAN + NOISE * np.hypot(own.error, want.error) / want.sd
        quotient = own.sd / want.sd
        width = SD + NOISE * np.hypot(own.sd_error / np.where(own.sd > 0, own.sd, 1.0),
                                      want.sd_error / want.sd)
        farthest = max(farthest, _largest(away))
        # without a standard deviation: beyond
        beyond = np.fmax(np.nan_to_num(away / allowed, nan=np.inf),
                         np.nan_to_num(np.abs(quotient - 1) / width, nan=np.inf))
        worst = quotient[np.argmax(np.where(np.isnan(quotient), np.inf, np.abs(quotient - 1)))]
        if not abs(worst - 1) <= abs(ratio - 1):
            ratio = float(worst)
        if beyond.max() > excess:
            site, excess = name, float(beyond.max())
    if not site:
        return Judgement("not compared", math.nan, math.nan, "")
    verdict = "right" if excess <= 1 else "said" if doubted else "wrong"
    return Judgement(verdict, farthest, ratio, site)


def alignment(mean: np.ndarray, want: Moments, shape: tuple) -> np.ndarray:
    """The order of a site's entries, flat, under which its means are nearest to those wanted, of all
    that permute its axes of few entries: labels are exchangeable."""
    places = np.arange(mean.size).reshape(shape)
    scale = np.where(want.sd > 0, want.sd, 1.0)
    ways = [list(itertools.permutations(range(size))) if size <= LABELS else [tuple(range(size))]
            for size in shape]
    orders = [places[np.ix_(*way)].ravel() for way in itertools.product(*ways)] or [places.ravel()]
    return min(orders, key=lambda order: np.sum(((mean[order] - want.mean) / scale) ** 2))


def _largest(values: np.ndarray) -> float:
    return math.inf if np.isnan(values).any() else float(values.max())


def true(truth: Mapping[str, Any], name: str) -> Moments:
    """The moments of one site that are stored."""
    def flat(key):
        return np.ravel(np.asarray(truth[key][name], float))

    mean, sd = flat("mean"), flat("sd")
    error = flat("error") if "error" in truth else sd / math.sqrt(FEWEST)
    if "sd_error" in truth:
        return Moments(mean, sd, error, flat("sd_error"))
    return Moments(mean, sd, error, np.maximum(error, sd / math.sqrt(FEWEST)))


def moments(fit: Any, labels: bool = False) -> dict[str, Moments]:
    """Of every site of a fit: of draws where its posterior has all of them, else its point and standard
    errors as in its summary; in ascending order where labels are exchangeable."""
    if fit.belief.varies and not getattr(fit.belief, "partly", ()):
        return of_draws(fit, labels)
    table, out = fit.summary(), {}
    for name, value in fit.params.items():
        value = np.ravel(np.asarray(value, float))
        sd = _column(table, name, "sd", value.size)
        order = np.argsort(value) if labels else slice(None)
        nothing = np.zeros(value.size)
        out[name] = Moments(value[order], sd[order], nothing, nothing)
    return out


def of_draws(fit: Any, labels: bool) -> dict[str, Moments]:
    """Of the draws of a fit, which may be fewer effective ones than they are."""
    drawn, table, out = fit.draws(DRAWS, seed=0), fit.summary(), {}
    for name, value in drawn.items():
        value = np.asarray(value, float).reshape(len(value), -1)
        value = np.sort(value, 1) if labels else value
        mean, sd = value.mean(0), value.std(0)
        effective = _column(table, name, "ess_bulk", value.shape[1])
        if np.isnan(effective).all():
            effective = _column(table, name, "ess", value.shape[1])
        fewer = np.clip(np.nan_to_num(effective, nan=DRAWS), 1.0, DRAWS)
        parts = np.stack([part.std(0) for part in np.array_split(value, PARTS)])
        # draws come in random order: batches of them say nothing of how few they are worth
        sd_error = parts.std(0, ddof=1) / math.sqrt(PARTS) * np.sqrt(DRAWS / fewer)
        out[name] = Moments(mean, sd, sd / np.sqrt(fewer), sd_error)
    return out


def _column(table: Any, name: str, column: str, size: int) -> np.ndarray:
    """The entries of a site in a column of a summary; NaN where it has none."""
    if column in table.columns:
        rows = [str(row) == name or str(row).startswith(f"{name}[") for row in table.index]
        if sum(rows) == size:
            return np.asarray(table[column][rows], float)
    return np.full(size, np.nan)
