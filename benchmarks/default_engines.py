"""What `fit` chooses for models that were written for others, whether its point is an answer, and how
long a user waits: beside the means and standard deviations of a long run of NUTS in which nothing is
integrated out. Each in a process of its own, in float32 as users have it.

python benchmarks/default_engines.py [--choose | --fit] [--seconds N] [word ...]: a row for each case of
tests/interface whose name, or whose list, is one of the words; --choose names the engines alone, --fit
runs what is chosen and nothing beside it; N seconds of processor for each (120), then the next.
"""

import importlib
import os
import resource
import sys
import time
import warnings
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "tests" / name)
                for name in ("interface", "")]

import jax.numpy as jnp  # noqa: E402, F401  (loaded once, before processes part)
import numpy as np  # noqa: E402

import probml  # noqa: E402
from probml.errors import Refusal  # noqa: E402

LISTS = ("numpyro_examples", "numpyro_more", "stan_guide", "pymc_gallery", "pasted_ecology", "pasted_bugs",
         "pasted_rethinking", "pasted_forum", "made_hierarchies")
DRAWS, CHAINS = 500, 2


def gaps(point: dict, drawn: dict, own: dict) -> list[tuple[float, float, str, str]]:
    """(standard deviations between point and mean, the smaller of those of the numbers and of
    their logarithms where they are positive; the own deviation that the fit reports, over that of
    the draws, nan where it reports none; the number's name; point, mean and deviation)."""
    found = []
    for name in drawn:
        draws, value = np.asarray(drawn[name], float), np.asarray(point[name], float)
        draws, value = draws.reshape(len(draws), -1), value.reshape(-1)
        told = np.asarray(own[name], float).reshape(len(own[name]), -1).std(0) if name in own else None
        for i in range(value.size):
            one = draws[:, i]
            gap = abs(value[i] - one.mean()) / max(one.std(), 1e-12)
            if (one > 0).all() and value[i] > 0:
                log = np.log(one)
                gap = min(gap, abs(np.log(value[i]) - log.mean()) / max(log.std(), 1e-12))
            ratio = told[i] / max(one.std(), 1e-12) if told is not None and told[i] > 0 else np.nan
            found.append((gap, ratio, f"{name}[{i}]" if value.size > 1 else name,
                          f"{value[i]:.3g} for {one.mean():.3g} ± {one.std():.2g}"))
    return sorted(found, reverse=True, key=lambda row: row[0])


def row(case, manner: str) -> str:
    """The engine, seconds of processor until it is chosen and until it has ended, and the rest."""
    start = time.process_time()
    model = probml.model(case.function)(**case.settings)
    try:
        told = model.explain(case.data)
    except (probml.ModelError, probml.DataError, Refusal) as error:
        return f"| {case.name} | refuses | {str(error)[:200]} |"
    engine = next(row["engine"] for row in told.engines if row[""].startswith("chosen"))
    integrated = [row["site"] for row in told.sites if "integrated" in row["role"]]
    head = f"| {case.name} | {engine}{' with ' + ', '.join(integrated) + ' integrated out' if integrated else ''} "
    chosen = time.process_time() - start
    if manner == "--choose":
        return head + f"| {chosen:.1f} s |"
    if not manner and engine in ("NUTS", "Exact"):
        return head + f"| {chosen:.1f} s |"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = model.fit(case.data)
        head += f"| {chosen:.1f} + {time.process_time() - start - chosen:.1f} s "
        if manner == "--fit":
            return head + f"| {fit.status[:300]} |"
        print(head + f"| {fit.status} | (not compared)", flush=True)
        own = {}
        try:
            own = fit.draws(400, seed=0)
        except Refusal:
            pass
        long = model.fit(case.data, probml.NUTS(draws=DRAWS, warmup=DRAWS, chains=CHAINS, target_accept=0.95,
                                                integrate="none"), seed=1)
    drawn = long.draws(CHAINS * DRAWS, seed=0)
    drawn = {name: drawn[name] for name in drawn if name in fit.params and name in long.params}
    found = gaps(fit.params, drawn, own)
    words = "; ".join(f"{name} {gap:.1f} sd ({text})" for gap, _, name, text in found[:3])
    told = [(max(ratio, 1 / ratio), ratio, name) for _, ratio, name, _ in found if ratio > 0]
    widths = "" if not told else "widths {1:.2f} of {2}".format(*max(told))
    return head + f"| {words} | {widths} | {fit.status[:300]} | {long.status[:160]} |"


def alone(name: str, which: str, manner: str, seconds: int) -> None:
    """A row, in a process of its own."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        try:
            case = next(case for case in importlib.import_module(which).CASES if case.name == name)
            print(row(case, manner), flush=True)
        except Exception as error:
            print(f"| {name} | fails | {type(error).__name__}: {str(error)[:300]} |", flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(f"| {name} | more than {seconds} s of processor |", flush=True)


def names(which: str) -> list[str]:
    """Those of a list, read in a process of its own: some make arrays as they are read."""
    own, other = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(other, " ".join(case.name for case in importlib.import_module(which).CASES).encode())
        os._exit(0)
    os.close(other)
    with os.fdopen(own) as told:
        found = told.read().split()
    os.waitpid(child, 0)
    return found


def main() -> None:
    words, manner, seconds = sys.argv[1:], "", 120
    if "--seconds" in words:
        at = words.index("--seconds")
        seconds = int(words[at + 1])
        del words[at : at + 2]
    manner = next((word for word in words if word.startswith("--")), "")
    words = [word for word in words if not word.startswith("-")]
    cases = [(name, which) for which in LISTS for name in names(which)]
    for word in words or [""]:  # in the order that is asked for
        for name, which in cases:
            if word in (name, which, ""):
                alone(name, which, manner, seconds)


if __name__ == "__main__":
    main()
