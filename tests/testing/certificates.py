"""`python tests/testing/certificates.py [parts of names] [--engines NUTS] [--simulations 100]`: the
certificate of every function of the zoo by every engine that finds a posterior.

Parameters from the prior, rows given these, a posterior of the rows: the ranks of the parameters
must be uniform (`Model.check`). Of an engine that is exact but for the noise of its draws, ranks that
are not uniform twice, of two seeds, are a defect; of one that is near they are told. So are refusals,
which must be in words of ours. Prints a line for each certificate and their sum. With `--seconds` as
many as these allow, in an order of the seed's and at least one.
"""

import argparse
import contextlib
import math
import random
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import zoo_calls

import probml
from probml import models
from probml.numerics.kept import programs

OURS = (probml.ModelError, probml.DataError, probml.Refusal)
ENGINES = {
    "Exact": probml.Exact(), "NUTS": probml.NUTS(), "Laplace": probml.Laplace(),
    "VB": probml.VB(), "SVI": probml.SVI(steps=1000),
}  # fmt: skip
TRUE = ("Exact", "NUTS")  # but for the noise of their draws
LEAST = 20  # seconds of processor that one has, however few are left for all
PASSED, REFUSED, NEAR, DEFECT, LATE = "passed", "refused", "near", "DEFECT", "late"
SILENT = "SILENT"  # near, and nobody says so
DOUBTS = ("result is unreliable", "guide-not-converged")
TOLD = 0.1  # of the fits


class Late(BaseException):
    """It takes longer than it may."""


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    """Interrupts what takes the processor longer."""
    def stop(*_: Any) -> None:
        raise Late

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextlib.contextmanager
def heard(engine: type) -> Iterator[list[tuple[str, ...]]]:
    """What the fits of an engine say of their ends, one after another."""
    run, said = engine.run, []

    def listened(self: Any, problem: Any) -> Any:
        outcome = run(self, problem)
        said.append(tuple(map(str, outcome.findings)))
        return outcome

    engine.run = listened
    try:
        yield said
    finally:
        engine.run = run


def doubted(said: list[tuple[str, ...]]) -> tuple[float, str]:
    """The share of fits that say that they are not to be relied on, and the first such saying."""
    found = [next((note for note in notes if any(word in note for word in DOUBTS)), "")
             for notes in said]
    return sum(map(bool, found)) / max(len(found), 1), next(filter(None, found), "")


def functions() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Name → (the bound model, what check is given beside the engine)."""
    found = {}
    for name, (call, settings) in zoo_calls.simulated().items():
        made, given = call.args
        sizes = {own: given[own] for own in ("rows", "steps") if own in given}
        inputs = {own: value for own, value in given.items() if own not in sizes}
        found[name] = getattr(models, name)(**settings), {"data": inputs or None, **sizes}
        assert made is getattr(models, name)
    return found


def certified(model: Any, given: dict[str, Any], engine: str, simulations: int,
              seconds: int) -> tuple[str, str]:
    """(what came of it, in more words)."""
    said = ""
    for seed in (0, 1):
        try:
            with (within(seconds), warnings.catch_warnings(),
                  heard(type(ENGINES[engine])) as notes):
                warnings.simplefilter("ignore")
                found = model.check(engine=ENGINES[engine], simulations=simulations, seed=seed,
                                    **given)
        except OURS as error:
            return REFUSED, str(error)
        except Late:
            return LATE, f"no certificate within {seconds} s of processor"
        except Exception as error:
            return DEFECT, f"{type(error).__name__}: {error}"
        if found.passed:
            return PASSED, said
        first = next(iter(found.failures.values()), "")
        said = "; ".join([f"'{name}': {how}" for name, how in found.rejected.items()]
                         + [f"{len(found.failures)} failed: {first}"] * bool(first))
        if engine not in TRUE:
            share, word = doubted(notes)
            return (NEAR if share >= TOLD else SILENT), (f"{share:.0%} of the fits say so; {said}"
                                                         f"; {word}")
    return DEFECT, said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=[""], help="of names")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--simulations", type=int, default=100)
    parser.add_argument("--each", type=int, default=300, help="seconds of processor that one may take")
    parser.add_argument("--seconds", type=float, default=None, help="for all of them")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    ends: Counter[str] = Counter()
    over = time.monotonic() + (asked.seconds or float("inf"))
    every, done = functions(), ""
    pairs = [(name, engine) for name in every if any(part in name for part in asked.parts)
             for engine in asked.engines.split(",")]
    if asked.seconds is not None:
        random.Random(asked.seed).shuffle(pairs)
    for name, engine in pairs:
        if ends and time.monotonic() > over:
            break
        if done not in ("", name):
            jax.clear_caches()
            programs.trim()
        began, done = time.process_time(), name
        left = max(over - time.monotonic(), LEAST)
        end, said = certified(*every[name], engine, asked.simulations, math.ceil(min(asked.each, left)))
        ends[end] += 1
        print(f"{name} by {engine}: {end}{': ' * bool(said)}{' '.join(said.split())[:400]} "
              f"({time.process_time() - began:.0f} s)", flush=True)
    print("# " + ", ".join(f"{count} {end}" for end, count in ends.most_common()))
    return int(ends[DEFECT] + ends[SILENT] > 0)


if __name__ == "__main__":
    sys.exit(main())
