"""`python -m random_models.fuzz`: random cases against all claims for some time; what does not
hold is made small and kept as a file.

    --seconds 600   how long
    --seed 7        the first seed, printed; by default of the clock
    --keep FOLDER   where found cases go, with the claim that each broke, as JSON

Each round is a run of hypothesis with the next seed, so that a round is repeated by its seed alone.
Exit status 1 where something was found.
"""

import argparse
import faulthandler
import hashlib
import json
import os
import random
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import jax
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import Flaky, NoSuchExample

from probml.errors import present
from probml.numerics.compiling import EMITTERS
from probml.numerics.kept import programs
from random_models.case import Case
from random_models.claims import CLAIMS, check
from random_models.strategies import cases

ROUND = 20  # cases of one seed
SOME = 5  # claims of a round, beside the first
HANG = 300  # seconds after which a case is taken to hang, and the stacks are printed
MAPPINGS = 4_000  # a gigabyte of programs, none of which is called again


def main(arguments: list[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="random_models.fuzz", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", type=Path, default=None)
    parser.add_argument("--most", type=int, default=4, help="sites of a model")
    said = parser.parse_args(arguments)
    # programs run once: compiling is what costs, half of a case's time; without emitters a sixth
    # less of the whole, and no frames of hypothesis in what is lowered
    os.environ.setdefault("XLA_FLAGS", " ".join(
        ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1",
         *(f"--{name}={value}".lower() for name, value in EMITTERS.items())]))
    jax.config.update("jax_traceback_in_locations_limit", 1)
    jax.config.update("jax_enable_x64", True)
    print(f"seed {said.seed}", flush=True)
    found, tried, ends = 0, Counter[str](), time.monotonic() + said.seconds
    number = said.seed
    while time.monotonic() < ends:
        found += _round(number, ends, said.keep, said.most, tried)
        number += 1
        _let_go()
    print(f"{tried['cases']} cases, {tried['claims']} claims true, {found} found; seeds "
          f"{said.seed} … {number - 1}")
    return int(found > 0)


def _round(number: int, ends: float, keep: Path | None, most: int, tried: Counter) -> int:
    """One seed: how many cases failed (0 or 1). Of the claims it takes some: more models are worth
    more than more questions about each."""
    some = (CLAIMS[0], *random.Random(number).sample(CLAIMS[1:], SOME))

    failed: dict[str, Any] = {}  # the last failure: claim, said, where, case

    def fails(case: Case) -> bool:
        if time.monotonic() > ends and "said" not in failed:  # what failed is made small
            return False
        faulthandler.dump_traceback_later(HANG, file=present(sys.__stderr__))
        try:
            for claim in some:
                failed["claim"] = claim.__name__
                tried["claims"] += check(case, (claim,))
            tried["cases"] += 1
            return False
        except Exception as error:
            failed["said"] = f"{type(error).__name__}: {error}"
            failed["where"], failed["case"] = traceback.format_exc(), case
            print(f"  seed {number}: {failed['said'][:200]}", flush=True)
            return True
        finally:
            faulthandler.cancel_dump_traceback_later()

    search = settings(max_examples=ROUND, database=None, deadline=None,
                      phases=[Phase.generate, Phase.shrink],
                      suppress_health_check=list(HealthCheck))
    try:
        case = find(cases(most), fails, settings=search, random=random.Random(number))
    except NoSuchExample:
        return 0
    except Flaky:  # what failed holds when it is asked again: not made small, but told
        case, failed["said"] = failed["case"], f"{failed['said']} (not each time)"
    print(f"FOUND by seed {number}: {failed['said']}\n{case}\n{failed['where']}", flush=True)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256(str(case).encode()).hexdigest()[:10]
        said = {"claims": [failed["claim"]], "said": failed["said"][:300],
                "case": json.loads(str(case))}
        (keep / f"{name}.json").write_text(json.dumps(said, indent=1) + "\n")
    return 1


def _let_go() -> None:
    """JAX keeps every program until the process has no memory left."""
    if programs.mappings() > MAPPINGS:
        jax.clear_caches()
        programs.trim()


if __name__ == "__main__":
    sys.exit(main())
