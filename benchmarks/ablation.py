"""What each mechanism that shortens first answers is worth: `python ablation.py [mechanism ...]`.

Each job of first_table.py runs in processes of their own: with everything on and with one mechanism
off (`PROBML_OFF`, probml/jaxpr/mechanisms.py) in turns, first with an empty folder of programs (cold),
then with those that the first process kept. A figure is the processor's seconds of the answer,
imports left out, of all threads, the best of ROUNDS. `again` is the same answer once more on other
data, so that it is what compiled programs take to run.

ONLY=word,word takes the jobs whose names have one of the words; SKIP leaves such out; ROUNDS is 1
where it is not set. Lines are printed as they are found, so that a run may be cut short; `python
ablation.py --table file ...` prints the table of such lines.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from importlib.resources import as_file, files

from first_table import JOBS, OURS, UNSET

MEASURED = """
import json, resource
def clocked(job):
    wall, cpu = time.perf_counter(), time.process_time()
    job()
    return time.process_time() - cpu, time.perf_counter() - wall
answer, repeat = clocked(first), clocked(again)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([*answer, repeat[0], peak]))
"""
KEPT = ("", "tapes", "programs", "cache", "effort", "emitters")  # tried with kept programs, too
ROUNDS = int(os.environ.get("ROUNDS", "1"))


def jobs():
    only, skip = (tuple(filter(None, os.environ.get(key, "").split(","))) for key in ("ONLY", "SKIP"))
    return [name for name in JOBS if (not only or any(word in name for word in only))
            and not any(word in name for word in skip)]


def measured(job, data, off, folder):
    """The processor's seconds, the clock's, those of another answer, and megabytes at most."""
    kept = {key: value for key, value in os.environ.items() if key not in UNSET}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", OURS + JOBS[job][0] + MEASURED, data],
                          env=kept | {"PROBML_CACHE": folder, "PROBML_OFF": off},
                          capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{job} without {off}: {done.stderr[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def run(mechanisms):
    """Prints a line a process: job, what is off, whether programs were kept, and the figures."""
    with as_file(files("probml.data")) as data:
        for _ in range(ROUNDS):
            for job in jobs():
                for off in ("", *mechanisms):
                    with tempfile.TemporaryDirectory() as folder:
                        for state in ("cold", "kept") if off in KEPT else ("cold",):
                            try:
                                found = measured(job, str(data), off, folder)
                            except (RuntimeError, subprocess.TimeoutExpired) as error:
                                print(f"# {error}", file=sys.stderr, flush=True)
                                break
                            print(json.dumps([job, off, state, *found]), flush=True)


def table(paths):
    """Ratios to everything on, of the best of each: by mechanism the median over jobs, and the jobs
    in which it is worth most."""
    best = defaultdict(lambda: [float("inf")] * 4)
    for path in paths:
        with open(path) as lines:
            for job, off, state, *found in map(json.loads, lines):
                best[job, off, state] = list(map(min, best[job, off, state], found))
    parts = {"cold": ("cold", 0), "kept": ("kept", 0), "again": ("cold", 2), "memory": ("cold", 3)}
    print("| off | jobs |", " | ".join(f"{part}: median, most in" for part in parts), "|")
    print("|---|---|" + "---|" * len(parts))
    for off in sorted({off for _, off, _ in best} - {""}):
        cells, count = [], 0
        for state, figure in parts.values():
            ratios = {job: found[figure] / best[job, "", state][figure] - 1
                      for (job, each, where), found in best.items()
                      if each == off and where == state and (job, "", state) in best}
            count = max(count, len(ratios))
            if not ratios:
                cells.append("")
                continue
            most = max(ratios, key=ratios.__getitem__)
            cells.append(f"{statistics.median(ratios.values()):+.0%}, {ratios[most]:+.0%} {most}")
        print(f"| {off} | {count} |", " | ".join(cells), "|")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--table"]:
        table(sys.argv[2:])
    else:
        run(sys.argv[1:])
