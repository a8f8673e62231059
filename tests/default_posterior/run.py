"""Every model of the tables in tests/ by the default engine, held to truths.json.

    python tests/default_posterior/run.py                          # all
    python tests/default_posterior/run.py five_rows users/anova --out /tmp/table.json
    python tests/default_posterior/run.py --source users --shard 0/4
    python tests/default_posterior/run.py --judge /tmp/table.json  # anew, by truths that have grown

In float32, seed 0, one after another in this process, by the probml of the environment that runs
this. Prints a line per case, and writes a JSON table: name → rung, verdict, farthest mean, sd ratio,
site, status, warnings, seconds cold (nothing compiled is kept on disk) and warm (the same fit again),
and the moments, by which --judge judges anew. What an --out has already is not run again.
"""

import argparse
import json
import os
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import tabled_models
from judge import Moments, compared, moments, refused, said

HERE = Path(__file__).parent
FORGET = 25  # cases, after which compiled programs are let go
LARGEST = 2000  # entries of a site whose moments are kept


def stored() -> dict:
    """The truths of all cases by name, also those that new_truths.py keeps."""
    found = json.loads((HERE / "truths.json").read_text())
    for source in ("new", "more", "fifth", "sixth", "seventh", "eighth"):
        own = json.loads((HERE / f"{source}_truths.json").read_text())
        found |= {f"{source}/{name}": truth for name, truth in own.items()}
    return found


def measured(case: tabled_models.Case, warm: bool) -> dict:
    """The row of one case in the table."""
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model, data = case.build(), case.read()
            fit = model.fit(data, seed=0)
            fit.params  # noqa: B018
            cold = time.perf_counter() - began
        except Exception as error:
            return {"rung": "", "verdict": refused(error),
                    "status": f"{type(error).__name__}: {error}",
                    "cold": round(time.perf_counter() - began, 3)}
    told = sorted({str(one.message) for one in caught
                   if issubclass(one.category, RuntimeWarning | UserWarning)})
    row = {"rung": fit.engine.split("(")[0], "status": fit.status, "warned": told,
           "said": said(fit), "cold": round(cold, 3)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for key, labels in (("moments", False), ("in_order", True)):
                row[key] = {name: [[float(f"{x:.5g}") for x in value] for value in own]
                            for name, own in moments(fit, labels).items()
                            if own.mean.size <= LARGEST}
        except Exception as error:
            row["moments_failed"] = f"{type(error).__name__}: {error!s:.300}"
        if warm:
            began = time.perf_counter()
            fit = model.fit(data, seed=0)
            fit.params  # noqa: B018
            row["warm"] = round(time.perf_counter() - began, 3)
    return row


def judged(row: dict, truth: dict | None, hopeless: str) -> dict:
    """The row with its verdict."""
    if row.get("verdict") in ("refused", "failed") and "moments" not in row:
        return row
    if hopeless:
        return row | {"verdict": "said" if row["said"] else "wrong", "why": hopeless}
    if "in_order" not in row:
        return row | {"verdict": "failed"}
    if truth is None or "mean" not in truth:
        return row | {"verdict": "no truth"}
    if truth.get("r_hat", 1.0) > 1.05:
        return row | {"verdict": "no truth", "why": f"R-hat of the truth {truth['r_hat']}"}
    found = {name: Moments(*(np.asarray(value, float) for value in own))
             for name, own in row["in_order" if truth.get("labels") else "moments"].items()}
    verdict = compared(found, truth, row["said"])
    return row | {"verdict": verdict.verdict, "farthest": round(verdict.farthest, 3),
                  "ratio": round(verdict.ratio, 3), "site": verdict.site}


def shown(name: str, row: dict) -> str:
    return (f"{name:45s} {row['rung']:8s} {row['verdict']:12s} "
            f"mean {row.get('farthest', float('nan')):6.2f} sd, "
            f"ratio {row.get('ratio', float('nan')):6.2f} {row.get('site', ''):12s} "
            f"{row['cold']:6.1f} s {row.get('warm', float('nan')):7.3f} s  {row['status']:.110}")


def counts(table: dict) -> str:
    """How many of each verdict, in all and by rung."""
    lines = [f"{len(table)} cases: " + ", ".join(
        f"{verdict} {count}" for verdict, count in
        Counter(row["verdict"] for row in table.values()).most_common())]
    for rung in sorted({row["rung"] for row in table.values()}):
        own = [row for row in table.values() if row["rung"] == rung]
        verdicts = Counter(row["verdict"] for row in own).most_common()
        cold = sorted(row["cold"] for row in own)[len(own) // 2]
        warm = sorted(row["warm"] for row in own if "warm" in row)
        lines.append(f"  {rung or '(none)':8s} {len(own):4d}: "
                     + ", ".join(f"{verdict} {count}" for verdict, count in verdicts)
                     + f"; seconds cold {cold:.1f}"
                     + (f", warm {warm[len(warm) // 2]:.3f} (medians)" if warm else ""))
    return "\n".join(lines)


def write(path: Path, table: dict) -> None:
    lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in table.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--source", help="a table, such as users or new")
    parser.add_argument("--shard", help="i/n: the i-th of n parts")
    parser.add_argument("--out", type=Path, help="where the table goes, row by row")
    parser.add_argument("--all", action="store_true", help="also cases without a truth")
    parser.add_argument("--no-warm", action="store_true", help="each is fitted but once")
    parser.add_argument("--judge", type=Path, help="a table to be judged anew; nothing is fitted")
    asked = parser.parse_args()
    truths = stored()
    if asked.judge:
        every = tabled_models.every()
        table = {name: judged(row, truths.get(name), every[name].hopeless)
                 for name, row in json.loads(asked.judge.read_text()).items()}
        for name, row in table.items():
            print(shown(name, row))
        write(asked.judge, table)
        print(counts(table))
        return
    import jax

    os.environ.setdefault("PROBML_CACHE", "0")
    jax.config.update("jax_enable_x64", False)
    table = json.loads(asked.out.read_text()) if asked.out and asked.out.exists() else {}
    number = 0
    for case in tabled_models.chosen(asked.names, asked.source, asked.shard):
        truth = truths.get(case.name)
        if case.name in table or not (asked.all or asked.names or case.hopeless
                                      or "mean" in (truth or {})):
            continue
        row = judged(measured(case, not asked.no_warm), truth, case.hopeless)
        table[case.name] = row
        print(shown(case.name, row), flush=True)
        if asked.out:
            write(asked.out, table)
        number += 1
        if number % FORGET == 0:
            jax.clear_caches()
    print(counts(table))


if __name__ == "__main__":
    sys.exit(main())
