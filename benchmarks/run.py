"""Time probml against its peers: `python benchmarks/run.py [CASE ...] [--quick]`; without a name,
every case.

Every case and precision runs in a fresh process, without JAX's cache of compiled programs: "cold"
is the first call, compile included; "warm" the median of later ones, which take turns with the peer
on the same data. Discriminative models are `million`, `digits`, `machine`, `experts`. Posteriors
(`schools`, `linear`, `logistic`, `labels`, `states`, `conjugate`, `spline`) give effective draws a
second, or an error, as quality. `defaults` gives how far the first answers fall short of known
likelihoods, nats a row, and then held-out scores of every estimator's first answer beside its peers'.
`first` is a table of its own: the stages of first answers, by the clock, each the median of five
processes (about 7 minutes; with PEERS also beside hmmlearn and pgmpy). `process` is from process
start to the answer, in seconds of processor.
`variational` is VB beside BayesianGaussianMixture.
`unseen_numbers` is what integrals over unseen numbers take, in some minutes of a quiet machine.
`stream` passes over a folder of Parquet, beside reading alone and rows in memory; `workers` do so side by side.
`cliffs` is a table of its own: where memory could end or a user would wait, each in a process with
limits. `gpu` does the same work on CPU and GPU, where there is one, together with a step written by
hand. `many` is the table of many rows; `--only chain` takes those of its rows that have the word.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from chain_cases import CASES as CHAINS
from cliff_cases import CASES as CLIFFS
from common_cases import CASES as COMMON
from default_cases import CASES as DEFAULTS
from discriminative_cases import CASES as DISCRIMINATIVE
from first_answers import CASES as ANSWERS
from first_cases import CASES as PROCESSES
from first_table import CASES as FIRST
from gpu_cases import CASES as GPUS
from kalman_cases import CASES as KALMAN
from latent_cases import CASES as LATENTS
from many_cases import CASES as MANY
from mixed_cases import CASES as MIXED
from network_cases import CASES as NETWORKS
from posterior_cases import CASES as POSTERIORS
from stream_cases import CASES as STREAMS
from unseen_cases import CASES as UNSEEN
from variational_cases import CASES as VARIATIONAL
from worker_cases import CASES as WORKERS

# case -> the files that run it
FILES = {"common_cases.py": COMMON, "network_cases.py": NETWORKS, "chain_cases.py": CHAINS,
         "posterior_cases.py": POSTERIORS}
FILES |= {"discriminative_cases.py": DISCRIMINATIVE, "default_cases.py": DEFAULTS,
          "first_answers.py": ANSWERS, "first_cases.py": PROCESSES, "first_table.py": FIRST,
          "kalman_cases.py": KALMAN, "latent_cases.py": LATENTS, "mixed_cases.py": MIXED,
          "stream_cases.py": STREAMS, "variational_cases.py": VARIATIONAL,
          "unseen_cases.py": UNSEEN, "gpu_cases.py": GPUS, "worker_cases.py": WORKERS,
          "many_cases.py": MANY, "cliff_cases.py": CLIFFS}
CASES = {case: [file for file in FILES if case in FILES[file]] for cases in FILES.values()
         for case in cases}
PRECISIONS = dict.fromkeys(("mixture", "unseen", "defaults", "kalman", "gpu", *CHAINS), ("float64", "float32"))
ALONE = {"first_answers.py": ("float32",)}  # files with precisions of their own
ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false",
               "SCIPY_ARRAY_API": "1"}
HEAD = ("case", "cold, s", "warm, s", "peer, s", "peer / warm", "floor, s", "quality", "of the peer",
        "note")


def rows(case: str, file: str, precision: str, quick: bool, only: list[str]):
    """The rows of a case, as they come from its process."""
    environment = os.environ | ENVIRONMENT | {"JAX_ENABLE_X64": str(precision == "float64").lower()}
    script = Path(__file__).with_name(file)
    command = [sys.executable, str(script), case, precision, *["--quick"] * quick,
               *(["--only", *only] if only else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        yield from map(json.loads, process.stdout)
    if process.returncode:
        yield dict.fromkeys(("cold", "warm", "peer", "floor", "quality", "peer_quality")) | {
            "case": case, "note": f"FAILED ({process.returncode})"
        }


def line(record: dict) -> str:
    if "head" in record:  # of a table of its own
        return f"\n| {' | '.join(record['head'])} |\n|{'---|' * len(record['head'])}"
    if "cells" in record:
        return f"| {' | '.join(record['cells'])} |"
    ratio = record["peer"] / record["warm"] if record["peer"] and record["warm"] else None
    times = [record["cold"], record["warm"], record["peer"], ratio, record.get("floor")]
    cells = ["" if value is None else f"{value:.3g}" for value in times]
    cells += ["" if record[key] is None else f"{record[key]:.7g}"
              for key in ("quality", "peer_quality")]
    return f"| {record['case']} | {' | '.join(cells)} | {record['note']} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", nargs="*", help=f"any of {', '.join(CASES)}; all by default")
    parser.add_argument("--quick", action="store_true",
                        help="small sizes: shows that it runs, not how fast")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD",
                        help="of case many: rows whose names have one of these words")
    chosen = parser.parse_args()
    if unknown := [case for case in chosen.case if case not in CASES]:
        parser.error(f"no case '{unknown[0]}': choose from {', '.join(CASES)}")
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}", flush=True)
    failed = False
    for case in chosen.case or CASES:
        runs = [(file, p) for file in CASES[case]
                for p in ALONE.get(file, PRECISIONS.get(case, ("float64",)))]
        for file, precision in runs:
            for record in rows(case, file, precision, chosen.quick, chosen.only):
                failed |= record["note"].startswith("FAILED")
                print(line(record), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
