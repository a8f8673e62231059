"""Models written for NumPyro, Stan and PyMC (tests/interface): the density and its gradient here
and by NumPyro, cold and warm, in processor seconds, so that a busy machine does not tell.

python benchmarks/function_cases.py [word ...]: a row of the table in functions.md for each case
whose name, or whose list, holds one of the words. What is discrete NumPyro sums out by funsor
alone, which is no requirement here: its columns are then empty, and agreement is with brute force.
"""

import importlib
import sys
import time
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)
TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "interface")]

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from numpyro.infer.util import log_density  # noqa: E402
from written_elsewhere import Case, asked_of_numpyro  # noqa: E402

import probml  # noqa: E402
from probml.device import load  # noqa: E402
from probml.engines.ladder import choose  # noqa: E402
from probml.errors import Refusal  # noqa: E402
from probml.evidence import density  # noqa: E402
from probml.interface.functions.readings import site_values  # noqa: E402

LISTS = ("numpyro_examples", "numpyro_more", "stan_guide", "pymc_gallery")
CALLS = 50
HEAD = ("| model | read as | joint states | engine | agrees to | ours cold, s | ours warm, ms "
        "| NumPyro cold, s | NumPyro warm, ms |\n|---|---|---|---|---|---|---|---|---|")


def timed(call) -> float:
    start = time.process_time()
    jax.block_until_ready(call())
    return time.process_time() - start


def warm(call) -> float:
    return float(np.median([timed(call) for _ in range(CALLS)])) * 1e3


def ours(case: Case, params: dict) -> tuple[str, str, float, float]:
    start = time.process_time()
    model = probml.model(case.function)(**case.settings)
    found = model.read(case.data)
    # a function that has observed nothing is read when it is asked
    held = model.at(params)._read(case.data).trimmed()
    plan = held.plan()
    values = site_values(found, params)  # steps of a loop as one site
    at = {name: np.asarray(values[name], float) for name in plan.free}
    rows, known = load.load(held, plan, params=at)
    u = density.to_unbounded(plan, at, known)
    both = jax.jit(lambda u, known, rows: density.log_posterior(plan, known, rows)(u))
    jax.block_until_ready(both(u, known, rows))
    cold = time.process_time() - start
    try:
        engine = type(choose(held)[0]).__name__
    except Refusal:
        engine = "NUTS"
    kind = "density" if found.is_joint else "rows"
    return kind, engine, cold, warm(lambda: both(u, known, rows))


def theirs(case: Case, params: dict) -> tuple[float, float]:
    arguments = {**case.settings, **case.plain,
                 **{name: jnp.asarray(v) if np.ndim(v) else v for name, v in case.data.items()}}
    params = jax.tree.map(jnp.asarray, params)
    both = jax.jit(jax.value_and_grad(lambda p: log_density(case.function, (), arguments, p)[0]))
    return timed(lambda: both(params)), warm(lambda: both(params))


def row(case: Case) -> str:
    want = asked_of_numpyro(case)
    got = probml.model(case.function)(**case.settings).log_density(case.data, want.params)
    kind, engine, cold, again = ours(case, want.params)
    agrees = f"{abs(got - want.log) / max(abs(want.log), 1):.0e}"
    beside = ("", "")
    if want.joint == 1:
        try:
            first, later = theirs(case, want.params)
            beside = (f"{first:.2f}", f"{later:.3f}")
        except Exception as error:  # what its users would meet
            beside = (type(error).__name__, "")
    return (f"| {case.name} | {kind} | {want.joint if want.joint > 1 else ''} | {engine} | {agrees} "
            f"| {cold:.2f} | {again:.3f} | {beside[0]} | {beside[1]} |")


def main(words: list[str]) -> None:
    print(HEAD, flush=True)
    for name in LISTS:
        for case in importlib.import_module(name).CASES:
            if not words or any(word in case.name or word == name for word in words):
                try:
                    print(row(case), flush=True)
                except Exception as error:
                    text = str(error).splitlines()[0] if str(error) else ""
                    print(f"| {case.name} | {type(error).__name__}: {text[:80]} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
