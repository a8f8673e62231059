"""What the answers of one fit must be to one another, by the rules of probability: each program of the tables in
tests/ and of strangers/, fitted by default.

    python tests/testing/coherence.py [parts of names] [--rule part] [--seconds 170] [--shard i/n] [--out FILE]

Prints a line for each rule that is broken, then the table: rule × kept, refused (in words), failed and BROKEN.
"""

import argparse
import json
import sys
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import jax
import numpy as np
import pandas as pd

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import invariances  # noqa: E402
import rewritings  # noqa: E402
from rewritten_models import Unwritten  # noqa: E402

import probml  # noqa: E402

ROWS = 4  # of the data, that are asked
GRID = 801  # values of a site that is a number
DRAWS = 400  # data sets that are simulated
LOG, SHARE, NOISE = 0.05, 0.03, 5.0  # nats; a probability; Monte Carlo errors
WIDTH = 0.15  # of a predictive sd: an average over 256 draws has a standard error of at most a 16th
STATES = 60  # of counts, at the most
RULES: dict[str, Callable[["Asked"], str]] = {}


class Asked(NamedTuple):
    """A fit, and rows of its data.

    Attributes:
        rows: name → values of a few rows; others are whole.
        seen: names of what is observed. site: one of these.
        each: names that have a row each.
    """

    fit: Any
    rows: Mapping[str, Any]
    seen: list[str]
    site: str
    each: list[str]

    def repeated(self, row: int, values: np.ndarray) -> dict[str, Any]:
        """A row as often as there are values of the site, with these."""
        data = {name: value[np.full(len(values), row)] if name in self.each else value
                for name, value in self.rows.items()}
        return {**data, self.site: values}

    def missing(self) -> dict[str, Any]:
        """The rows without the site."""
        return {name: value for name, value in self.rows.items() if name != self.site}

    def log_prob(self, data: Mapping[str, Any]) -> np.ndarray:
        return np.asarray(self.fit.log_prob(data), float)


def rule(name: str) -> Callable:
    def keep(function: Callable[[Asked], str]) -> Callable[[Asked], str]:
        RULES[name] = function
        return function
    return keep


def values_of(asked: Asked) -> tuple[np.ndarray, bool]:
    """Values of a site that its probability adds up over, (m,), and whether they are states.

    Raises:
        Unwritten: it is no number, or no few values hold all of its probability.
    """
    site = asked.fit.structure.sites[asked.site]
    whole = np.asarray(asked.rows[asked.site])
    if any(other.factor for other in asked.fit.structure.sites.values()):
        raise Unwritten("a factor, which need be no density")
    if site.domain.name == "circle":
        raise Unwritten("a direction, whose mean is another")
    if whole.ndim != 1 or np.prod(site.shape) != 1 or site.chain:
        raise Unwritten("no one number")
    if site.finite:
        return np.asarray(asked.fit.labels(asked.site) or site.low + np.arange(site.count)), True
    if whole.dtype.kind not in "fiub":
        raise Unwritten("text")
    drawn = np.ravel(draws_of(asked, 40))
    if site.domain.discrete:
        if not 0 <= drawn.min() or drawn.max() > STATES / 2:
            raise Unwritten("large counts")
        return np.arange(STATES), True
    low, high = np.quantile(drawn, [0.25, 0.75])
    if not high > low or np.unique(drawn).size < 0.9 * drawn.size:
        raise Unwritten("no density")
    middle, width = (low + high) / 2, high - low
    grid = middle + width * np.sinh(np.linspace(-7, 7, GRID)) / 4  # to 130 quartile ranges
    inside = np.asarray(site.domain.support(grid)) if callable(site.domain.support) else np.ones(GRID, bool)
    return grid[inside], False


def inputs_of(asked: Asked) -> dict[str, Any]:
    return {name: value for name, value in asked.rows.items() if name not in asked.seen}


def draws_of(asked: Asked, count: int) -> np.ndarray:
    """The site of so many data sets that are simulated, (count, rows)."""
    given = inputs_of(asked)
    rows = {} if any(name in asked.each for name in given) else {"rows": ROWS}
    return np.stack([np.asarray(asked.fit.simulate(seed=seed, **rows, **given)[asked.site])
                     for seed in range(count)])


def total(asked: Asked, row: int, values: np.ndarray, states: bool) -> tuple[float, np.ndarray]:
    """The log of the sum or integral of the density of a row over a site, and log densities."""
    logs = asked.log_prob(asked.repeated(row, values))
    weights = np.ones(len(values)) if states else np.gradient(np.asarray(values, float))
    top = np.nanmax(logs)
    return top + np.log(np.nansum(weights * np.exp(logs - top))), logs


@rule("the density adds up to that without the site")
def adds_up(asked: Asked) -> str:
    values, states = values_of(asked)
    others = [name for name in asked.seen if name != asked.site]
    without = asked.log_prob(asked.missing()) if others else np.zeros(ROWS)
    found = np.array([total(asked, row, values, states)[0] for row in range(ROWS)])
    off = np.abs(found - without)
    at = int(np.argmax(off))
    return "" if off[at] < LOG else f"row {at}: log sum {found[at]:.4f}, without '{asked.site}' {without[at]:.4f}"


@rule("chances of a site are shares of the density")
def shares(asked: Asked) -> str:
    values, states = values_of(asked)
    if not asked.fit.structure.sites[asked.site].finite:
        raise Unwritten("no states")
    if not any(name in asked.each for name in asked.missing()):
        raise Unwritten("nothing else in a row")
    got = np.asarray(asked.fit.predict_proba(asked.missing(), asked.site), float)
    for row in range(ROWS):
        whole, logs = total(asked, row, values, True)
        want = np.exp(logs - whole)
        if np.abs(got[row] - want).max() > SHARE:
            return f"row {row}: predict_proba {got[row].round(4)}, by log_prob {want.round(4)}"
    return ""


@rule("what is filled in is the mean or the likeliest value")
def filled(asked: Asked) -> str:
    values, states = values_of(asked)
    data = asked.missing()
    if not any(name in asked.each for name in data):
        raise Unwritten("nothing else in a row")
    blank = np.full(ROWS, None, object) if values.dtype == object else np.full(ROWS, np.nan)
    got = np.asarray(asked.fit.impute({**data, asked.site: blank})[asked.site])
    guess = np.asarray(asked.fit.predict(data, asked.site))
    counted = not asked.fit.structure.sites[asked.site].finite
    for row in range(ROWS):
        whole, logs = total(asked, row, values, states)
        p = np.exp(logs - whole) * (1.0 if states else np.gradient(np.asarray(values, float)))
        if counted:
            mean = float((p * values).sum())
            width = float(np.sqrt(max((p * (values - mean) ** 2).sum(), 0.0)))
            tails = p[[0, -1]].max() * np.abs(values[[0, -1]] - mean).max()
            if abs(float(guess[row]) - mean) > WIDTH * width + 1e-6 * abs(mean) + 3 * tails:
                return f"row {row}: predict {guess[row]:.4g}, by log_prob {mean:.4g} ± {width:.3g}"
            if not states and abs(float(got[row]) - mean) > WIDTH * width + 1e-6 * abs(mean) + 3 * tails:
                return f"row {row}: impute {got[row]:.4g}, by log_prob {mean:.4g} ± {width:.3g}"
        elif isinstance(guess[row], float | np.floating) and guess[row] % 1:  # a count of few values
            if abs(guess[row] - (p * values).sum()) > WIDTH * np.std(values):
                return f"row {row}: predict {guess[row]:.4g}, by log_prob {(p * values).sum():.4g}"
        elif p[values == got[row]].sum() < p.max() - SHARE or p[values == guess[row]].sum() < p.max() - SHARE:
            return f"row {row}: impute {got[row]}, predict {guess[row]}, by log_prob {dict(zip(values, p.round(4), strict=True))}"
    return ""


@rule("what is simulated has the mean that is predicted")
def simulated(asked: Asked) -> str:
    values, _ = values_of(asked)
    inputs = inputs_of(asked)
    if not any(name in asked.each for name in inputs):
        raise Unwritten("no inputs")
    return differing_draws(asked, inputs, draws_of(asked, DRAWS), values)


@rule("what is simulated given the rest has the mean that is predicted")
def simulated_given(asked: Asked) -> str:
    values, _ = values_of(asked)
    others = asked.missing()
    if not set(others) & set(asked.seen):
        raise Unwritten("nothing else is observed")
    blank = np.full(ROWS, None, object) if values.dtype == object else np.full(ROWS, np.nan)
    drawn = np.stack([np.asarray(asked.fit.simulate(
        seed=seed, given={**others, asked.site: blank})[asked.site]) for seed in range(DRAWS)])
    return differing_draws(asked, others, drawn, values)


def differing_draws(asked: Asked, data: Mapping[str, Any], drawn: np.ndarray, values: np.ndarray) -> str:
    """Where draws (draws, rows) have another mean, or other states, than what is predicted."""
    if asked.fit.structure.sites[asked.site].finite:
        got = (drawn[..., None] == values).mean(0)
        want = np.asarray(asked.fit.predict_proba(data, asked.site), float)
        error = np.sqrt(want * (1 - want) / DRAWS) + 1 / DRAWS
    else:
        drawn = drawn.astype(float)
        got, error = drawn.mean(0), drawn.std(0) / np.sqrt(DRAWS) + 1e-9
        error = np.hypot(error, drawn.std(0) / 16 / 2)  # the average of 256 draws that is predicted
        want = np.asarray(asked.fit.predict(data, asked.site), float)
        spread = 1.4826 * np.median(np.abs(drawn - np.median(drawn, 0)), 0)
        if (drawn.std(0) > 4 * spread).any():
            raise Unwritten("heavy tails, of which few draws have no mean")
    off = np.abs(got - want) / error
    at = np.unravel_index(np.argmax(off), off.shape)
    return "" if off[at] < NOISE else (f"at {[*map(int, at)]}: simulated {got[at]:.4g} ± "
                                       f"{error[at]:.2g}, predicted {want[at]:.4g}")


@rule("an interval holds what is simulated")
def inside(asked: Asked) -> str:
    _, states = values_of(asked)
    inputs = inputs_of(asked)
    if states or not any(name in asked.each for name in inputs):
        raise Unwritten("no density, or no inputs")
    _, low, high = asked.fit.predict(inputs, asked.site, interval=0.8)
    drawn = draws_of(asked, DRAWS).astype(float)
    share = ((drawn >= low) & (drawn <= high)).mean(0)
    off = np.abs(share - 0.8)
    at = int(np.argmax(off))
    return "" if off[at] < 0.1 else f"row {at}: {share[at]:.3f} of 0.8"


def ask(subject: Any, fit: Any) -> list[Asked]:
    """A question of each site that is observed, a number, and inside rows.

    Raises:
        Unwritten: the function has no rows, or its data are no columns.
    """
    seen, each, n = rewritings.rows_of(subject)
    columns = rewritings.columns(subject)
    sites = [name for name in seen if name in fit.structure.sites]
    if n < ROWS or not sites or "mask" in rewritings.source(subject):
        raise Unwritten("no sites of rows, or masks, under which a row has no density")
    found = []
    for site in sites[:2]:
        column = np.asarray(columns[site])
        there = np.flatnonzero(~pd.isna(column)) if column.ndim == 1 else np.arange(0)
        if len(there) < ROWS:
            continue
        chosen = there[np.linspace(0, len(there) - 1, ROWS).astype(int)]
        rows = {name: np.asarray(value)[chosen] if name in each else value
                for name, value in columns.items()}
        found.append(Asked(fit, rows, seen, site, each))
    return found


def tried(asked: Asked, name: str) -> invariances.Verdict:
    """One rule of one fit."""
    with warnings.catch_warnings():  # values far out are averages over few draws, which a fit says
        warnings.simplefilter("ignore")
        try:
            why = RULES[name](asked)
        except Unwritten as error:
            return invariances.Verdict("—", str(error))
        except (probml.ModelError, probml.DataError, probml.Refusal) as error:
            return invariances.Verdict("refused", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
        except Exception:
            return invariances.Verdict("failed", " | ".join(traceback.format_exc().splitlines()[-5:])[:600])
    return invariances.Verdict("BROKEN" if why else "kept", why)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=[""], help="of names")
    parser.add_argument("--rule", default="", help="part of the name of a rule")
    parser.add_argument("--seconds", type=float, default=np.inf)
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--out", type=Path, help="a file of lines, by which a run goes on")
    given = parser.parse_args()
    ends, (part, parts) = time.time() + given.seconds, map(int, given.shard.split("/"))
    done = {json.loads(line)["name"] for line in given.out.read_text().splitlines()
            } if given.out and given.out.exists() else set()
    table: dict[str, Counter] = defaultdict(Counter)

    def note(name: str, about: str, verdict: invariances.Verdict) -> None:
        table[about][verdict.word] += 1
        if verdict.word not in ("kept", "—"):
            print(f"{verdict.word:8s} {name} [{about}] {verdict.why}", flush=True)
        if given.out:
            with given.out.open("a") as file:
                file.write(json.dumps({"name": name, "rule": about, "verdict": verdict.word,
                                       "why": verdict.why}) + "\n")

    def wanted(name: str) -> bool:
        return (crc32(name.encode()) % parts == part and name not in done
                and any(word in name for word in given.parts))

    for number, subject in enumerate(invariances.subjects(wanted)):
        if time.time() > ends:
            break
        fit, why, _ = invariances.attempted(subject)
        if fit is None or not fit.converged or fit.warnings:
            note(subject.name, "fitted", invariances.Verdict("—", why or fit.status))
            continue
        try:
            questions = ask(subject, fit)
        except Unwritten as error:
            note(subject.name, "fitted", invariances.Verdict("—", str(error)))
            continue
        for asked in questions:
            for name in (name for name in RULES if given.rule in name):
                note(f"{subject.name}/{asked.site}", name, tried(asked, name))
        note(subject.name, "fitted", invariances.Verdict("kept"))
        if number % invariances.FORGET == 0:
            jax.clear_caches()
    words = ("kept", "refused", "failed", "BROKEN", "—")
    print(f"{'':52s}" + "".join(f"{word:>9s}" for word in words))
    for name, row in sorted(table.items()):
        print(f"{name:52s}" + "".join(f"{row[word]:9d}" for word in words))
    return int(any(row["BROKEN"] or row["failed"] for row in table.values()))


if __name__ == "__main__":
    sys.modules.setdefault("coherence", sys.modules["__main__"])
    sys.exit(main())
