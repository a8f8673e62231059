"""The table of many rows: every work of it, project and peers in turns in one run, each in a process
of its own; `PEERS=/path/to/python` names an interpreter that has the peers.

`run.py many [--quick] [--only WORD ...]`; a word is part of a row's name (`chain`, `bayes plug-in`).
A row has the median of the warm calls by the clock, what the machine needs for the work at the
least (numbers to read or operations of products, both measured in this run), and the quality of
what was found. The note tells what is wanted, seconds of processors, the most memory that a warm
call added to its process, and how many cores other work took meanwhile: above half a core the row
is NOT QUIET. A call that adds more memory than its row allows has FAILED.

`--quick` has the same sizes but for what takes minutes, fewer iterations where an iteration counts,
and fewer turns: a quarter of an hour on two quiet cores.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from common_cases import clusters, floor, row, tell
from machine import Others, about, verdict, versions
from many_data import alarm_rows, bayes_rows, digits, expert_rows, lines, logits, moons

OWN = ("probml", "ours", "numpy", "numpyro")  # what the project's own interpreter has
TURNS, BUDGET, LIMIT = 7, 20.0, 900.0  # calls, seconds of a side's warm ones, seconds of any call
QUICK_TURNS, QUICK_BUDGET, QUICK_LIMIT = 3, 4.0, 90.0


@dataclass(frozen=True)
class Work:
    """A row of the table.

    Attributes:
        sides: ours and the peers, a row of the bench for each of these.
        data: quick -> (what all sides are given, counts): arrays, tables, paths as strings.
        numbers, operations: what has to be read, and be multiplied and added, at the least.
        memory: megabytes that a warm call of ours may add; None: not held to any.
        wanted: what the table asks.
    """

    name: str
    group: str
    work: str
    sides: tuple[str, ...]
    data: Callable
    wanted: str
    numbers: Callable = field(default=lambda data, size: 0)
    operations: Callable = field(default=lambda data, size: 0)
    memory: Callable = field(default=lambda data, size: None)
    dtype: str = "float64"


# Data and floors


def mixture_data(quick, dtype="float64", iterations=(50, 10), unseen=False):
    n, d, k = 100_000, 16, 16
    x, size = clusters(n, d, k, np.dtype(dtype).type), {"k": k, "iterations": iterations[quick]}
    if not unseen:
        return {"x": x}, size
    holes = np.random.default_rng(1).random(x.shape) < 0.2
    return {"x": np.where(holes, np.nan, x).astype(dtype), "complete": x}, size


def sizes_data(quick):
    return {"x": clusters(4_000 if quick else 20_000, 8, 5)}, {"k": 10, "iterations": 0}


def e_steps(data, size):
    """Operations of the two products of every E-step of a full mixture."""
    n, d = data["x"].shape
    return (size["iterations"] + 1) * 4 * n * (d + d * (d + 1) // 2) * size["k"]


def chain_data(name, **emission):
    def made(quick):
        from chain_cases import generate, sizes

        y, start = generate(**sizes(False)[name], **emission)
        return {"y": y, **start}, {"iterations": 4 if quick else 6}

    return made


def chain_states(data):
    """Numbers of one number a step and state."""
    return data["y"].shape[0] * data["y"].shape[1] * len(data["initial"])


def chain_numbers(data, size):
    """The rows, and filtered weights written and read again."""
    return data["y"].size + 2 * chain_states(data)


def chain_operations(data, size):
    """A step forwards, one backwards, and a pair."""
    return 6 * chain_states(data) * len(data["initial"])


def chain_memory(data, size):
    """Two numbers a step and state, and a tenth of a gigabyte for all that is not."""
    return 2 * chain_states(data) * 8 / 1e6 + 100


def posterior_data(case):
    def made(quick):
        import posterior_cases

        data = {"chain": lambda: posterior_cases.chain_data(1_000)}.get(
            case, lambda: getattr(posterior_cases, f"{case}_data")(False))()
        return data, {"sampler": (1_000, 1_000)}

    return made


def mean_data(quick):
    return {"y": 3 + 2 * np.random.default_rng(5).normal(size=10_000_000)}, {"sampler": None}


def read(times):
    """So many times over the rows."""
    return lambda data, size: times * next(iter(data.values())).size


def chain(name, work, which, hmms, wanted, memory=False, **emission):
    return Work(name, "chain", work, ("probml", *hmms, "dynamax float64"),
                chain_data(which, **emission), wanted, chain_numbers, chain_operations,
                **({"memory": chain_memory} if memory else {}))


def posterior(name, case, wanted, sides=("nutpie numba", "blackjax", "numpyro")):
    return Work(name, "posterior", case, ("probml", *sides), posterior_data(case), wanted)


SCALING, EITHER = ("hmmlearn scaling",), ("hmmlearn scaling", "hmmlearn log")
WORKS = (
    Work("full mixture, 100,000 × 16, k = 16, float64", "mixture", "fit",
         ("probml", "sklearn", "ours products"), mixture_data, "10 times; 2 times the products",
         operations=e_steps),
    Work("full mixture, 100,000 × 16, k = 16, float32", "mixture", "fit",
         ("probml", "sklearn", "sklearn torch", "ours products"),
         lambda quick: mixture_data(quick, "float32"), "3 times torch", operations=e_steps,
         dtype="float32"),
    Work("full mixture by the estimator, 15 iterations", "mixture", "estimator", ("probml", "sklearn"),
         lambda quick: mixture_data(quick, iterations=(15, 15)), "as the function",
         operations=e_steps),
    Work("full mixture, a fifth unseen", "mixture", "unseen", ("probml", "ours complete"),
         lambda quick: mixture_data(quick, iterations=(20, 10), unseen=True),
         "1/3: three times complete rows", operations=e_steps),
    Work("sizes: k = 1 … 10 × 10 restarts", "mixture", "sizes", ("probml", "sklearn"), sizes_data,
         "15 times"),
    Work("naive bayes, Gaussian, averaged, 10⁶ × 30", "bayes", "gaussian averaged",
         ("probml", "sklearn"), lambda quick: bayes_rows("gaussian"), "4 times", read(2)),
    Work("naive bayes, Gaussian, plug-in, 10⁶ × 30", "bayes", "gaussian plug-in",
         ("probml", "sklearn"), lambda quick: bayes_rows("gaussian"), "5 times", read(2)),
    Work("naive bayes, categorical, averaged, 10⁶ × 30", "bayes", "categorical averaged",
         ("probml", "sklearn"), lambda quick: bayes_rows("categorical"), "8 times", read(2)),
    Work("mean of 10⁷ normal rows, variance known", "posterior", "known", ("probml", "numpy"),
         mean_data, "0.06 s, 50 MB", read(1), memory=lambda data, size: 50),
    Work("mean of 10⁷ normal rows, variance unknown", "posterior", "unknown", ("probml", "numpy"),
         mean_data, "0.06 s, 50 MB", read(1), memory=lambda data, size: 50),
    chain("chain of 10⁶ steps × 4, k = 8, an iteration of EM", "learn", "chain", SCALING,
          "5 times; 2 numbers a step and state", True, d=4),
    chain("chain of 10⁶ symbols, k = 8, an iteration of EM", "learn", "chain", SCALING,
          "4 times; 2 numbers a step and state", True, symbols=50),
    chain("chain of 10⁶ steps × 4, k = 8, decode", "decode", "chain", EITHER, "4 times", d=4),
    chain("chain of 10⁶ steps × 4, k = 8, smooth", "smooth", "chain", SCALING, "4 times", d=4),
    chain("sequences, 100 × 1,000 symbols, k = 16, an iteration of EM", "learn", "sequences",
          SCALING, "5 times", symbols=50),
    chain("sequences, 100 × 1,000 × 8, k = 16, decode", "decode", "sequences", EITHER, "5 times",
          d=8),
    chain("sequences, 100 × 1,000 × 8, k = 16, smooth", "smooth", "sequences", SCALING, "5 times",
          d=8),
    Work("alarm, all marginals of 10,000 rows", "network", "marginals", ("probml", "pyagrum"),
         lambda quick: alarm_rows(0.5, 1), "300 times"),
    Work("alarm, EM with a fifth unseen, an iteration", "network", "learn", ("probml", "pyagrum"),
         lambda quick: alarm_rows(0.2, 2), "0.04 s"),
    Work("logistic regression, 10⁶ × 50", "logistic", "fit",
         ("probml", "sklearn lbfgs", "sklearn newton-cholesky"), lambda quick: logits(),
         "2.5 times lbfgs, 4 newton-cholesky", read(12)),
    Work("softmax on digits", "logistic", "digits", ("probml", "sklearn newton-cg"),
         lambda quick: digits(), "3 times"),
    Work("linear regression, 10⁶ × 20, MAP", "squares", "MAP", ("probml", "sklearn"),
         lambda quick: lines(), "two passes over rows", read(2)),
    Work("linear regression, 10⁶ × 20, NUTS 2 × (500 + 500)", "squares", "NUTS", ("probml",),
         lambda quick: lines(), "two passes over rows", read(2)),
    Work("experts, 4, 100,000 × 10, an iteration", "experts", "learn", ("probml",),
         lambda quick: expert_rows(), "0.1 s"),
    posterior("schools: eight schools by NUTS", "schools", "1 / 1.5 of nutpie"),
    posterior("linear regression 1,000 × 10 by NUTS", "linear", "as nutpie"),
    posterior("labels: mixture, n = 1,000, k = 3, by NUTS", "mixture", "5 times the best"),
    posterior("states: HMM, T = 1,000, k = 3, by NUTS", "chain", "3.3 times the best",
              ("nutpie numba", "blackjax")),
    Work("rbf machine, 5,000 rows", "machine", "fit", ("probml", "sklearn"), lambda quick: moons(),
         "as libsvm"),
)

# Processes


class Side:
    """One side in its process; after an error its numbers are None and `error` tells why."""

    def __init__(self, name, work, folder, size, limit):
        self.name, self.limit, self.turns, self.error, self.folder = name, limit, [], "", Path(folder)
        own = name.partition(" ")[0] in OWN
        python = sys.executable if own else os.environ.get("PEERS", sys.executable)
        # ours store their programs, as with a user, which may be compiled otherwise; none is there
        settings = {"JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(self.folder / "cache"),
                    "JAX_ENABLE_COMPILATION_CACHE": str(own).lower(),
                    "JAX_ENABLE_X64": str(work.dtype == "float64").lower(), "SCIPY_ARRAY_API": "1",
                    "PYTENSOR_FLAGS": f"base_compiledir={self.folder / name}"}
        command = [python, "-W", "ignore", str(Path(__file__).with_name("many_sides.py")), name,
                   work.group, work.work, str(folder), json.dumps(size)]
        self.log = self.folder / f"{name}.log"
        with self.log.open("w") as log:
            try:
                self.process = subprocess.Popen(command, env=os.environ | settings, stderr=log,
                                                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                text=True)
            except OSError:
                self.process, self.error = None, "not installed"
        self.read()

    def read(self):
        """The next line of JSON; libraries may print others."""
        if self.error:
            return None
        timer = threading.Timer(self.limit, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                try:
                    return json.loads(line)
                except json.JSONDecodeError:
                    continue
        finally:
            timer.cancel()
        code, lines = self.process.wait(), [line for line in self.log.read_text().split("\n")
                                            if line.strip()]
        self.error = (f"ended after {self.limit:g} s" if code == -9
                      else (lines or [f"ended with {code}"])[-1][:200])
        if "ModuleNotFound" in self.error or "No module named" in self.error:
            self.error = "not installed"
        return None

    def turn(self, budget):
        if not self.error and sum(turn[3] for turn in self.turns[1:]) < budget:
            print(file=self.process.stdin, flush=True)
            found = self.read()
            self.turns += [found] if found else []

    def close(self):
        self.quality = None
        if self.process:
            if not self.error:
                self.process.stdin.close()
                self.quality = self.read()
            self.process.wait()
        warm = self.turns[1:] if not self.error else []
        self.cold = self.turns[0][3] if self.turns else None
        self.warm, self.processor, self.memory = (
            (statistics.median(turn[0] for turn in warm), statistics.median(turn[1] for turn in warm),
             None if warm[0][2] is None else max(turn[2] for turn in warm))
            if warm else (None, None, None))

    def results(self):
        """What samplers drew, the first call left out."""
        out = []
        for turn in range(len(self.turns)):
            with np.load(self.folder / f"{self.name}{turn}.npz") as file:
                out.append({name: file[name] for name in file.files})
        return out[1:] or out

    def note(self):
        if self.error:
            return f"{self.name} {self.error}"
        memory = "" if self.memory is None else f", {self.memory:+.0f} MB"
        return (f"{self.name} {len(self.turns) - 1} turns, of processors {self.processor:.3g} s{memory}")


def effective(sides):
    """Least effective draws a warm second as the quality of samplers."""
    from posterior_cases import Posterior

    for side in sides:
        if not side.error and list(side.folder.glob(f"{side.name}*.npz")):
            side.quality = Posterior(side).rate


def kept(data, folder):
    """What all sides are given, on disk; the arrays of it."""
    paths, arrays = {}, {}
    for name, value in data.items():
        if isinstance(value, str):
            paths[name] = value
        elif hasattr(value, "to_csv"):
            paths[name] = str(folder / f"{name}.csv")
            value.to_csv(paths[name], index=False)
        else:
            arrays[name] = np.asarray(value)
            np.save(folder / f"{name}.npy", arrays[name])
    (folder / "paths.json").write_text(json.dumps(paths))
    return arrays


def compete(work: Work, quick: bool):
    """The rows of one work."""
    turns, budget, limit = (QUICK_TURNS, QUICK_BUDGET, QUICK_LIMIT) if quick else (TURNS, BUDGET, LIMIT)
    others = Others()
    with tempfile.TemporaryDirectory() as folder:
        data, size = work.data(quick)
        arrays = kept(data, Path(folder))
        least = floor(work.numbers(arrays, size), work.operations(arrays, size), work.dtype)
        allowed = work.memory(arrays, size)
        del data, arrays
        sides = [Side(name, work, folder, size, LIMIT if name == "probml" else limit)
                 for name in work.sides]
        for turn in range(1 + turns):
            for side in sides:
                side.turn(budget if turn > 1 else np.inf)
        for side in sides:
            side.close()
        if work.group == "posterior":
            effective(sides)
    ours, *peers = sides
    said = f"wanted {work.wanted}; {verdict(others.cores())}"
    failed = f"FAILED: {ours.error}: " if ours.error else ""
    if allowed is not None and ours.memory is not None and ours.memory > allowed:
        failed = f"FAILED: {ours.memory:.0f} MB added, {allowed:.0f} allowed: "
    for peer in peers or [None]:
        name = work.name + (f", peer {peer.name}" if peer else ", no peer")
        note = "; ".join([said, ours.note(), *([peer.note()] if peer else [])])
        yield row(name, ours.cold, ours.warm, peer and peer.warm, ours.quality,
                  peer and peer.quality, failed + note, least or None)


def many(dtype, quick):
    """Every row of the table, or those that `--only` names; first the machine and what it has."""
    peers = os.environ.get("PEERS", sys.executable)
    has = ["; ".join(f"{name} {number}" for name, number in versions(python).items())
           for python in dict.fromkeys((sys.executable, peers))]
    speed = ", ".join(f"{dtype} {1e-9 / floor(1, dtype=dtype):.1f} billion numbers read a second, "
                      f"{1e-9 / floor(0, 1, dtype):.0f} GFlop/s" for dtype in ("float64", "float32"))
    yield row("machine", note=f"{about()}; {speed}; has {' / peers have '.join(has)}")
    words = sys.argv[sys.argv.index("--only") + 1 :] if "--only" in sys.argv else [""]
    chosen = [work for work in WORKS if any(word in work.name + " " + work.dtype for word in words)]
    if not chosen:
        names = "\n".join(work.name for work in WORKS)
        raise SystemExit(f"no row has {' or '.join(map(repr, words))} in its name; rows are\n{names}")
    for work in chosen:
        yield from compete(work, quick)


CASES = {"many": many}


if __name__ == "__main__":
    tell(CASES)
