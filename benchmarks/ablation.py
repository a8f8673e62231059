"""What each mechanism that shortens first answers is worth: `python ablation.py [mechanism ...]`.

Each job of first_table.py is answered with everything on and with one mechanism off (`PROBML_OFF`,
probml/jaxpr/compat.py), in turns, ROUNDS times: with an empty folder of programs (cold), then
with the programs that the first process kept. Each answer has a process of its own, forked from one
that has imported everything and has not started JAX. A figure is the processor's seconds of the
answer, of all threads: the best of the rounds. `again` is the same answer once more on other data
of that shape, so that it is what compiled programs take to run.

COUNT=1 counts instead of clocking, for a machine that others use, too: functions of Python and C
that the answer calls (thousands; tracing is nothing else), and equations of the programs that XLA is
given (lowering and compiling take about half a millisecond each).

ONLY=word,word takes the jobs whose names have one of the words. Lines are printed as they are
found, so that a run may be cut short; `python ablation.py --table file ...` prints the table of
such lines.
"""

import json
import os
import statistics
import sys
import tempfile
import traceback
from collections import defaultdict
from importlib.resources import as_file, files

KEPT = ("", "tapes", "programs", "effort")  # tried with kept programs, too
ROUNDS = int(os.environ.get("ROUNDS", "3"))
MOST = 300  # seconds of an answer

COUNTED = """
import jax
lines, calls = [0], [0]
from jax._src import compiler
def reads(own):
    def compiled(backend, module, *args, **more):
        lines[0] += str(module).count(" = ")
        return own(backend, module, *args, **more)
    return compiled
compiler.compile_or_get_cached = reads(compiler.compile_or_get_cached)
import jax._src.interpreters.pxla as pxla
pxla.compiler = compiler
def count(frame, event, argument):
    if event in ("call", "c_call"):
        calls[0] += 1
sys.setprofile(count)
first()
sys.setprofile(None)
answer, repeat, peak = (calls[0] / 1000, lines[0]), (0.0,), 0.0
"""
MEASURED = """
import json, resource
def clocked(job):
    wall, cpu = time.perf_counter(), time.process_time()
    job()
    return time.process_time() - cpu, time.perf_counter() - wall
answer, repeat = clocked(first), clocked(again)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
"""


def measured(code, off, folder):
    """The processor's seconds, the clock's, those of another answer, and megabytes at most; None:
    it failed, which was printed."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            import signal

            from probml.jaxpr import compat

            signal.alarm(MOST)
            os.environ["PROBML_CACHE"] = folder
            compat.OFF.update(off.split(","))
            there = {}
            exec(code + (COUNTED if os.environ.get("COUNT") else MEASURED), there)
            found = [*there["answer"], there["repeat"][0], there["peak"]]
            os.write(writes, json.dumps(found).encode())
        except BaseException:
            traceback.print_exc(limit=-2)
        finally:
            sys.stderr.flush()
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as said:
        text = said.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def run(mechanisms):
    """Prints a line a process: job, what is off, whether programs were kept, and the figures."""
    import warnings

    from first_table import JOBS, OURS, UNSET

    for key in UNSET:
        os.environ.pop(key, None)
    warnings.simplefilter("ignore")
    only = tuple(filter(None, os.environ.get("ONLY", "").split(",")))
    chosen = [name for name in JOBS if not only or any(word in name for word in only)]
    with as_file(files("probml.data")) as data:
        sys.argv = ["", str(data)]
        exec(OURS, {})  # what is imported
        import probml.models
        from probml import models

        for name in probml.models.__all__:
            getattr(models, name)
        for _ in range(ROUNDS):
            for job in chosen:
                for off in ("", *mechanisms):
                    with tempfile.TemporaryDirectory() as folder:
                        for state in ("cold", "kept") if off in KEPT else ("cold",):
                            found = measured(OURS + JOBS[job][0], off, folder)
                            if found is None:
                                print(f"# {job} without {off}", file=sys.stderr, flush=True)
                                break
                            print(json.dumps([job, off, state, *found]), flush=True)


def table(paths):
    """Ratios to everything on, of the best of each: by mechanism the median over jobs, and the job
    in which it is worth most."""
    best = defaultdict(lambda: [float("inf")] * 4)
    for path in paths:
        with open(path) as lines:
            for job, off, state, *found in map(json.loads, lines):
                best[job, off, state] = list(map(min, best[job, off, state], found))
    parts = {"cold": ("cold", 0), "kept": ("kept", 0), "again": ("cold", 2), "memory": ("cold", 3)}
    print("| off | jobs |", " | ".join(f"{part}: median; most" for part in parts), "|")
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
            cells.append(f"{statistics.median(ratios.values()):+.0%}; {ratios[most]:+.0%} {most}")
        print(f"| {off} | {count} |", " | ".join(cells), "|")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--table"]:
        table(sys.argv[2:])
    else:
        run(sys.argv[1:])
