"""What must not change an answer: each program of the tables in tests/ and of strangers/, fitted by
default, against itself after a change of units, labels, order, type or wording of which the effect is
known.

    python tests/testing/invariances.py [parts of names] [--kind part] [--each 3] [--seconds 170]
                                        [--shard i/n] [--out FILE]

Prints a line for each pair that is not the same, then the table: transformation × same, said (one of
the two fits warns), refused (in words), failed and DIFFERENT.
"""

import argparse
import json
import re
import sys
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import jax
import numpy as np

TESTS = Path(__file__).resolve().parents[1]
for folder in ("", "strangers", "default_posterior", "testing"):
    if str(TESTS / folder) not in sys.path:
        sys.path.insert(0, str(TESTS / folder))

import judged_by_nuts  # noqa: E402
import rewritings  # noqa: E402
import rewritings_of_functions  # noqa: E402, F401  (which adds to their table)
import tabled_models  # noqa: E402
from judge import Moments, moments, said  # noqa: E402
from rewritten_models import Unwritten  # noqa: E402

import first_cases  # noqa: E402
import probml  # noqa: E402

MEAN, SD, LOG, NOISE = 0.1, 0.1, 0.05, 4.0  # posterior sds, a share, nats, Monte Carlo errors
SLOW = 6.0  # seconds of the processor of a first fit, beyond which a program is left to others
FORGET = 20  # programs, after which what was compiled is let go


@dataclass(frozen=True)
class Subject:
    """A program with its data."""

    name: str
    model: Any
    data: Any
    weights: Any = None
    engine: Any = None

    def fit(self, seed: int = 0) -> Any:
        fit = self.model.fit(self.data, self.engine, weights=self.weights, seed=seed)
        fit.params  # noqa: B018
        return fit


@dataclass(frozen=True)
class Twin:
    """What a transformation makes of a subject.

    Attributes:
        subject: the other one.
        base: what it is compared with, where that is not what was given.
        factors: site → by what its values are multiplied.
        renamed: name of a site → its name now.
        order: which of its rows are the rows of `base`, and by how much its log density of one is higher.
        sorted: whether entries of a site may have changed places.
        fit: how it is fitted, where not as every subject.
        double: in double precision.
    """

    subject: Subject
    base: Subject | None = None
    factors: Mapping[str, float] = field(default_factory=dict)
    renamed: Callable[[str], str] = staticmethod(lambda name: name)
    order: Any = None
    shift: Any = 0.0
    sorted: bool = False
    fit: Callable[[Subject], Any] = Subject.fit
    double: bool = False


def subjects(wanted: Callable[[str], bool] = lambda name: True) -> Iterator[Subject]:
    """All programs of names that are wanted, users', strangers', and those written elsewhere, in an
    order that their names give: a short run sees some of every table."""
    import test_strangers  # noqa: F401  (whose imports fill the tables)

    cases = {name: case for name, case in tabled_models.every().items() if not case.hopeless}
    own = {f"strangers/{name}": make for name, make in judged_by_nuts.PROGRAMS.items()}
    asks = {f"questions/{name}": ask for name, (_, ask) in first_cases.CASES.items()
            if name not in judged_by_nuts.PROGRAMS}
    for name in sorted(filter(wanted, (*cases, *own, *asks)), key=lambda name: crc32(name.encode())):
        if name in cases:
            yield Subject(name, cases[name].build(), cases[name].read())
        elif name in own:
            made = own[name]()
            yield Subject(name, made.model, made.data, made.weights)
        elif (found := asked_first(name, asks[name])) is not None:
            yield found


def asked_first(name: str, ask: Callable) -> Subject | None:
    """What a stranger's question fits first."""
    class Asked(BaseException):
        pass

    def record(model, data, engine=None, *, weights=None, **more):
        raise Asked(Subject(name, model, data, weights, engine))

    def leave(*args, **more):
        raise Asked(None)

    own = probml.Model.fit, probml.Model.at, probml.Model.simulate
    probml.Model.fit, probml.Model.at, probml.Model.simulate = record, leave, leave
    try:
        ask()
    except Asked as found:
        return found.args[0]
    except Exception:
        return None
    finally:
        probml.Model.fit, probml.Model.at, probml.Model.simulate = own
    return None


@dataclass(frozen=True)
class Verdict:
    word: str
    why: str = ""
    rungs: str = ""


def attempted(subject: Subject, fit: Callable[[Subject], Any] = Subject.fit) -> tuple[Any, str, float]:
    """(fit or None, what was raised, seconds)."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return fit(subject), "", time.process_time() - began
        except (probml.ModelError, probml.DataError, probml.Refusal) as error:
            return None, f"refused {type(error).__name__}: {' '.join(str(error).split())[:400]}", 0.0
        except Exception:
            return None, "failed " + " | ".join(traceback.format_exc().splitlines()[-5:])[:600], 0.0


def compared(one: Any, other: Any, twin: Twin, base: Subject,
             noise: tuple[float, float] = (0.0, 0.0)) -> Verdict:
    """Two fits; noise: by how much log densities of rows, and predictions, differ between seeds."""
    rungs = "" if one.engine == other.engine else f"{one.engine[:20]} → {other.engine[:20]}"
    found = [differing_moments(one, other, twin), differing_rows(one, other, twin, base, noise[0]),
             differing_predictions(one, other, twin, base, noise[1])]
    if found[0] and not twin.sorted and not differing_moments(one, other, replace(twin, sorted=True)):
        found, rungs = found[1:], f"{rungs} places of entries: {found[0]}"
    found = [words for words in found if words]
    if not found:
        return Verdict("same", "", rungs)
    return Verdict("said" if said(one) or said(other) else "DIFFERENT", "; ".join(found), rungs)


def differing_moments(one: Any, other: Any, twin: Twin) -> str:
    """The farthest mean and width beyond what is allowed, in words."""
    before, after = moments(one, twin.sorted), moments(other, twin.sorted)
    worst, words = 1.0, ""
    for name, own in before.items():
        now = after.get(twin.renamed(name))
        if now is None or now.mean.shape != own.mean.shape:
            continue
        by = twin.factors.get(name, twin.factors.get(re.split("[./]", name)[-1], 1.0))  # in a scope
        now = Moments(now.mean / by, *(value / abs(by) for value in now[1:]))
        sd = np.maximum(own.sd, now.sd)
        moves = sd > 1e-5 * (1e-6 + np.abs(own.mean))
        if not moves.any():
            continue
        sd = np.where(moves, sd, 1.0)
        away = np.where(moves, np.abs(own.mean - now.mean) / sd, 0.0)
        allowed = MEAN + NOISE * np.hypot(own.error, now.error) / sd
        with np.errstate(all="ignore"):
            wide = np.where(moves, np.abs(np.log(now.sd / own.sd)), 0.0)
            room = SD + NOISE * np.hypot(own.sd_error / own.sd, now.sd_error / now.sd)
            beyond = np.maximum(np.nan_to_num(away / allowed, nan=9.0), np.nan_to_num(
                wide / np.nan_to_num(room, nan=SD), nan=0.0, posinf=9.0))
        at = int(np.argmax(beyond))
        if beyond[at] > worst:
            worst = float(beyond[at])
            words = (f"{name}[{at}] {own.mean[at]:.4g} ± {own.sd[at]:.3g}, now {now.mean[at]:.4g} ± "
                     f"{now.sd[at]:.3g} ({worst:.1f} times what is allowed)")
    return words


def noise_of(one: Any, subject: Subject) -> tuple[float, float]:
    """By how much log densities of rows, and predictions of what is observed, differ from those of a
    fit with another seed."""
    again, *_ = attempted(subject, lambda own: own.fit(seed=1))

    def farthest(ask: Callable[[Any], Any]) -> float:
        try:
            return float(np.nanmax(np.abs(np.asarray(ask(one), float) - np.asarray(ask(again), float)),
                                   initial=0.0))
        except Exception:
            return 0.0

    return (farthest(lambda fit: fit.log_prob(subject.data)),
            farthest(lambda fit: fit.predict(*asked_of(subject))))


def asked_of(subject: Subject) -> tuple[dict[str, Any], str]:
    """The data without what is observed, and the first name of that."""
    seen = rewritings.rows_of(subject)[0]
    return {name: value for name, value in rewritings.columns(subject).items()
            if name not in seen}, seen[0]


def differing_rows(one: Any, other: Any, twin: Twin, base: Subject, noise: float) -> str:
    """Log densities of the rows."""
    try:
        before = np.asarray(one.log_prob(base.data), float)
    except (probml.ModelError, probml.DataError):
        return ""
    try:
        after = np.asarray(other.log_prob(twin.subject.data), float)
    except (probml.ModelError, probml.DataError) as error:
        return f"log_prob: {error!s:.200}"
    after = (after if twin.order is None else after[twin.order]) + twin.shift
    if before.shape != after.shape:
        return f"log_prob of shape {after.shape}, before {before.shape}"
    if before.ndim == 0:
        return ""
    with np.errstate(invalid="ignore"):
        off = np.abs(before - after) / (LOG + 3 * noise + 0.05 * np.abs(before - np.median(before)))
    off = np.where((before == after) | (np.isnan(before) & np.isnan(after)), 0.0, off)
    at = int(np.argmax(np.nan_to_num(off, nan=99.0)))
    return "" if off[at] <= 1 else f"log_prob of row {at} {before[at]:.4g}, now {after[at]:.4g}"


def differing_predictions(one: Any, other: Any, twin: Twin, base: Subject, noise: float) -> str:
    """What is predicted of a site that is observed, where the model is the same program."""
    if twin.subject.model != base.model:
        return ""
    try:
        given, name = asked_of(base)
        if not given:
            return ""
        before = np.asarray(one.predict(given, name), float)
        changed = {key: value for key, value in rewritings.columns(twin.subject).items() if key in given}
    except (Unwritten, probml.ModelError, probml.DataError, ValueError):
        return ""
    try:
        after = np.asarray(other.predict(changed, name), float)
    except (probml.ModelError, probml.DataError) as error:
        return f"predict: {error!s:.300}"
    after = after if twin.order is None else after[twin.order]
    if before.shape != after.shape or before.size < 2:
        return "" if before.size < 2 else f"predictions of shape {after.shape}, before {before.shape}"
    shown = np.nanstd(np.asarray(rewritings.columns(base)[name], float))
    off = np.abs(before - after) / (1e-6 + 0.3 * np.std(before) + 0.06 * shown + 3 * noise * (len(np.unique(before)) > 5))
    discrete = len(np.unique(before)) <= 5 and np.mean(before != after) < 0.1  # states that are nearly as likely
    at = np.unravel_index(np.argmax(off), off.shape)
    return "" if off[at] <= 1 or discrete else f"predict at {at}: {before[at]:.4g}, now {after[at]:.4g}"


def tried(subject: Subject, kind: str, fits: dict[str, Any]) -> Verdict:
    """One transformation of one subject."""
    try:
        twin = rewritings.KINDS[kind](subject)
    except Unwritten as error:
        return Verdict("—", str(error))
    base, one = twin.base or subject, fits.get("base")
    if twin.base is not None:
        one, why, _ = attempted(base)
        if one is None:
            return Verdict("—", why)
    with jax.enable_x64(bool(twin.double or jax.config.jax_enable_x64)):
        other, why, seconds = attempted(twin.subject, twin.fit)
        if other is None:
            return Verdict(why.split()[0], why)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            verdict = compared(one, other, twin, base)
            if verdict.word == "DIFFERENT":  # beyond the noise of both?
                noises = [noise_of(one, base)]
                noises += [noise_of(other, twin.subject)] * (twin.fit is Subject.fit)
                verdict = compared(one, other, twin, base, tuple(map(sum, zip(*noises, strict=True))))
    slower = seconds > 3 * fits["seconds"] + 5
    return replace(verdict, rungs=verdict.rungs + f" {seconds:.0f} s for {fits['seconds']:.0f}" * slower)


def ordered(name: str, kinds: list[str]) -> list[str]:
    """The kinds in an order that the name of the program gives."""
    number = {kind: crc32(f"{name} {kind}".encode()) for kind in kinds}
    return sorted(kinds, key=lambda kind: (kind in rewritings.SELDOM and number[kind] % 8 > 0, number[kind]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=[""], help="of names")
    parser.add_argument("--kind", default="", help="part of the name of a transformation")
    parser.add_argument("--each", type=int, help="transformations of a program")
    parser.add_argument("--seconds", type=float, default=np.inf)
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--out", type=Path, help="a file of lines, by which a run goes on")
    asked = parser.parse_args()
    ends, (part, parts) = time.time() + asked.seconds, map(int, asked.shard.split("/"))
    done = {(row["name"], row["kind"]): row for row in map(json.loads, asked.out.read_text().splitlines())
            } if asked.out and asked.out.exists() else {}
    table: dict[str, Counter] = defaultdict(Counter)
    kinds = [kind for kind in rewritings.KINDS if asked.kind in kind]

    def note(name, kind, verdict):
        row = {"name": name, "kind": kind, "verdict": verdict.word, "why": verdict.why,
               "rungs": verdict.rungs}
        table[kind][verdict.word] += kind != "begun"
        if verdict.word in ("DIFFERENT", "failed", "refused", "said"):
            print(f"{verdict.word:9s} {name} [{kind}] {verdict.rungs} {verdict.why}", flush=True)
        if asked.out:
            with asked.out.open("a") as file:
                file.write(json.dumps(row) + "\n")

    def left(name):
        """How many more transformations of a program are asked for."""
        known = [done[name, kind] for kind in kinds if (name, kind) in done]
        # a run that was ended in its first fit: that would take as long again
        ended = (name, "begun") in done and not any((name, kind) in done for kind in rewritings.KINDS)
        if (name, "base") in done or len(known) == len(kinds) or ended:
            return 0
        return (asked.each or len(kinds)) - sum(row["verdict"] != "—" for row in known)

    def wanted(name):
        return (crc32(name.encode()) % parts == part and any(word in name for word in asked.parts)
                and left(name) > 0)

    number = 0
    for subject in subjects(wanted):
        if time.time() > ends:
            break
        note(subject.name, "begun", Verdict("—"))
        one, why, seconds = attempted(subject)
        if one is None or seconds > SLOW:
            note(subject.name, "base", Verdict("—", why or f"{seconds:.0f} s"))
            continue
        fits = {"base": one, "seconds": seconds}
        more = left(subject.name)
        for kind in ordered(subject.name, kinds):
            if (subject.name, kind) in done:
                continue
            try:
                verdict = tried(subject, kind, fits)
            except Exception:
                verdict = Verdict("failed", "here: " + " | ".join(
                    traceback.format_exc().splitlines()[-5:])[:700])
            note(subject.name, kind, verdict)
            more -= verdict.word != "—"
            if more <= 0:
                break
        number += 1
        if number % FORGET == 0:
            jax.clear_caches()
    print(counted(table))
    return int(any(row["DIFFERENT"] or row["failed"] for row in table.values()))


def counted(table: Mapping[str, Counter]) -> str:
    words = ("same", "said", "refused", "failed", "DIFFERENT", "—")
    lines = [f"{'':34s}" + "".join(f"{word:>10s}" for word in words)]
    return "\n".join(lines + [f"{kind:34s}" + "".join(f"{row[word]:10d}" for word in words)
                              for kind, row in sorted(table.items())])


if __name__ == "__main__":
    sys.modules.setdefault("invariances", sys.modules["__main__"])
    sys.exit(main())
