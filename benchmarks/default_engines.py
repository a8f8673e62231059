"""What `fit` chooses for models that were written for others, and whether its point is an answer:
beside the means and standard deviations of a long run of NUTS in which nothing is integrated out.

python benchmarks/default_engines.py [--choose] [word ...]: a row for each case of tests/interface
whose name, or whose list, is one of the words; --choose names the engines alone.
"""

import importlib
import sys
import time
import warnings
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)
sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "tests" / name)
                for name in ("interface", "")]

import numpy as np  # noqa: E402

import probml  # noqa: E402
from probml.errors import Refusal  # noqa: E402

LISTS = ("numpyro_examples", "numpyro_more", "stan_guide", "pymc_gallery", "pasted_ecology", "pasted_bugs",
         "pasted_rethinking", "pasted_forum", "made_hierarchies")
DRAWS, CHAINS = 500, 2


def gaps(point: dict, drawn: dict) -> list[tuple[float, str, str]]:
    """(standard deviations between point and mean, the smaller of those of the numbers and of
    their logarithms where they are positive; the number's name; point, mean and deviation)."""
    found = []
    for name in drawn:
        draws, value = np.asarray(drawn[name], float), np.asarray(point[name], float)
        draws, value = draws.reshape(len(draws), -1), value.reshape(-1)
        for i in range(value.size):
            own = draws[:, i]
            gap = abs(value[i] - own.mean()) / max(own.std(), 1e-12)
            if (own > 0).all() and value[i] > 0:
                log = np.log(own)
                gap = min(gap, abs(np.log(value[i]) - log.mean()) / max(log.std(), 1e-12))
            found.append((gap, f"{name}[{i}]" if value.size > 1 else name,
                          f"{value[i]:.3g} for {own.mean():.3g} ± {own.std():.2g}"))
    return sorted(found, reverse=True)


def row(case, choose: bool) -> str:
    start = time.process_time()
    model = probml.model(case.function)(**case.settings)
    try:
        told = model.explain(case.data)
    except (probml.ModelError, probml.DataError, Refusal) as error:
        return f"| {case.name} | refuses | {str(error)[:200]} |"
    engine = next(row["engine"] for row in told.engines if row[""].startswith("chosen"))
    integrated = [row["site"] for row in told.sites if "integrated" in row["role"]]
    head = f"| {case.name} | {engine}{' with ' + ', '.join(integrated) + ' integrated out' if integrated else ''} "
    took = time.process_time() - start
    if choose or engine in ("NUTS", "Exact"):
        return head + f"| {took:.1f} s |"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = model.fit(case.data)
        long = model.fit(case.data, probml.NUTS(draws=DRAWS, warmup=DRAWS, chains=CHAINS, target_accept=0.95,
                                                integrate="none"), seed=1)
    drawn = long.draws(CHAINS * DRAWS, seed=0)
    drawn = {name: drawn[name] for name in drawn if name in fit.params and name in long.params}
    worst = gaps(fit.params, drawn)[:3]
    words = "; ".join(f"{name} {gap:.1f} sd ({text})" for gap, name, text in worst)
    return head + f"| {words} | {fit.status[:160]} | {long.status[:120]} |"


def main() -> None:
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    cases = [(name, case) for name in LISTS for case in importlib.import_module(name).CASES]
    for word in words or [""]:  # in the order that is asked for
        for case in (case for name, case in cases if word in (case.name, name, "")):
            try:
                print(row(case, "--choose" in sys.argv), flush=True)
            except Exception as error:
                print(f"| {case.name} | fails | {type(error).__name__}: {str(error)[:300]} |",
                      flush=True)


if __name__ == "__main__":
    main()
