"""NUTS against nutpie, PyMC, BlackJAX and NumPyro; exact posteriors against NumPy; smooth curves
against SciPy and scikit-learn.

`PEERS=/path/to/python` names an interpreter that has the samplers. Every side runs in a process of
its own and waits while another is
timed: they take turns on the same data, with another seed at every turn. Cold is the first call in
that process, tracing and compiling included, imports excluded; warm the median of later calls. All
caches of compiled programs on disk are off.

Samplers run 4 chains of 1,000 warm-up iterations and 1,000 draws in float64, each with its own
defaults and written as its user would write it; the densities are the same, with discrete sites
summed out (in the peers by hand, with the means in ascending order; probml renumbers its states).
Quality is effective draws a second: the smallest bulk effective sample size over all parameters by
the warm seconds. The note tells by how many of their joint standard errors the posterior means of a
peer and ours are apart at the most.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np

from chain_cases import peak
from common_cases import clock, floor, row, tell
from posterior_sides import SIDES

SAMPLERS = ("nutpie numba", "nutpie jax", "pymc", "blackjax", "numpyro")
OURS = ("probml", "numpy", "scipy", "sklearn")  # what the project's own interpreter has
QUICK = ("nutpie numba", "blackjax", "numpyro")
# a side that took longer than so many seconds in its turns gets no further one
TURNS, BUDGET = 5, 20.0
# seconds that end a call, and with it the side; a peer's in quick runs
LIMITS = {False: 900.0, True: 20.0}

# Data: what every side is given


def schools_data(quick):
    y, sigma = [28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], [15.0, 10.0, 16.0, 11.0, 9.0, 11.0,
                                                               10.0, 18.0]
    return {"y": np.array(y), "sigma": np.array(sigma)}


def linear_data(quick):
    random, n = np.random.default_rng(1), 200 if quick else 1_000
    x = random.normal(size=(n, 10))
    return {"x": x, "y": x @ random.normal(size=10) + random.normal(size=n)}


def logistic_data(quick):
    random, n = np.random.default_rng(2), 200 if quick else 1_000
    x = random.normal(size=(n, 10))
    return {"x": x,
            "y": (random.random(n) < 1 / (1 + np.exp(-x @ random.normal(size=10)))).astype(int)}


def _emitted(random, z):
    mean, scale = np.array([-3.0, 0.5, 4.0]), np.array([1.0, 0.7, 1.2])
    y = mean[z] + scale[z] * random.normal(size=z.shape)
    # where a peer's user would start the means
    return {"y": y, "first": np.quantile(y, [1 / 6, 3 / 6, 5 / 6])}


def mixture_data(quick):
    random = np.random.default_rng(3)
    return _emitted(random, random.choice(3, 200 if quick else 1_000, p=[0.3, 0.3, 0.4]))


def chain_data(steps):
    random, z = np.random.default_rng(4), np.zeros(steps, int)
    for t in range(1, steps):
        z[t] = z[t - 1] if random.random() < 0.85 else random.integers(3)
    return _emitted(random, z)


# Processes


def worker(side, variant, case, folder, size):
    """A call for every line that comes: its seconds and the process's peak memory as JSON, its
    result in the folder."""
    with np.load(Path(folder) / "data.npz") as file:
        data = {name: file[name] for name in file.files}
    run, before = SIDES[side](case, variant, data, json.loads(size)), peak()
    print(json.dumps(before), flush=True)
    for turn, _ in enumerate(sys.stdin):
        seconds, result = clock(lambda turn=turn: run(turn))
        memory = peak() - before
        np.savez(Path(folder) / f"{side} {variant}{turn}.npz", **result)
        print(json.dumps([seconds, memory]), flush=True)


class Side:
    """One side in its process; after an error its numbers are None and `error` tells why."""

    def __init__(self, name, case, size, folder, limit):
        self.name, self.folder, self.limit, self.turns, self.error = (name, Path(folder), limit, [],
                                                                      "")
        self.package, _, self.variant = name.partition(" ")
        python = sys.executable if self.package in OURS else os.environ.get("PEERS", sys.executable)
        settings = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false",
                    "JAX_ENABLE_X64": "true"}
        settings["PYTENSOR_FLAGS"] = f"base_compiledir={self.folder / name}"
        command = [python, "-W", "ignore", __file__, "worker", self.package, self.variant, case,
                   str(folder), json.dumps(size)]
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.log = self.folder / f"{name}.log"
        with self.log.open("w") as log:
            try:
                self.process = subprocess.Popen(command, env=os.environ | settings, stderr=log,
                                                **pipes)
            except OSError:
                self.process, self.error = None, "not installed"

    def read(self, limit):
        """The next line of JSON; libraries may print others."""
        if self.error:
            return None
        timer = threading.Timer(limit, self.process.kill)
        timer.start()
        for line in self.process.stdout:
            try:
                found = json.loads(line)
                break
            except json.JSONDecodeError:
                continue
        else:
            code, lines = self.process.wait(), [line for line in self.log.read_text().split("\n")
                                                if line.strip()]
            found, self.error = (None, f"ended after {limit:g} s"
                                 if code == -9 else (lines or [f"ended with {code}"])[-1][:200])
            if "ModuleNotFound" in self.error:
                self.error = "not installed"
        timer.cancel()
        return found

    @property
    def waits(self):
        return not self.error and sum(seconds for seconds, _ in self.turns[1:]) < BUDGET

    def turn(self):
        if self.waits:
            print(file=self.process.stdin, flush=True)
            found = self.read(self.limit)
            self.turns += [found] if found else []

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()
        self.cold = self.turns[0][0] if self.turns else None
        self.seconds = [seconds for seconds, _ in self.turns[1:]]
        self.warm = statistics.median(self.seconds) if self.seconds else None
        self.memory = self.turns[-1][1] if self.turns else None

    def results(self):
        """What the calls found, the first left out where there are others."""
        out = []
        for turn in range(len(self.turns)):
            with np.load(self.folder / f"{self.package} {self.variant}{turn}.npz") as file:
                out.append({name: file[name] for name in file.files})
        return out[1:] or out


def race(names, case, data, size, folder, quick):
    """The sides after their turns, in a folder that holds their results."""
    np.savez(Path(folder) / "data.npz", **data)
    sides = [Side(name, case, size, folder, LIMITS[quick and name != "probml"]) for name in names]
    for side in sides:
        side.read(LIMITS[False])  # its imports are done
    for _ in range(2 if quick else 1 + TURNS):
        for side in sides:
            side.turn()
    for side in sides:
        side.close()
    return sides


# Samplers


def ascending(draws):
    """States in the order of their means' averages; `transition` has two axes of them."""
    if "mean" not in draws:
        return draws
    order = np.argsort(draws["mean"].mean((0, 1)))
    out = {name: value[..., order] if name in ("weights", "mean", "scale") else value
           for name, value in draws.items()}
    return out | ({"transition": draws["transition"][..., order, :][..., order]}
                  if "transition" in draws else {})


class Posterior:
    """What the draws of a side's turns tell."""

    def __init__(self, side):
        from probml.posteriors.diagnostics import effective

        runs = [ascending(run) for run in side.results()]
        stats = [{name: run.pop(name) for name in ("diverging", "steps")} for run in runs]
        self.least = statistics.median(min(np.min(effective(value)) for value in run.values())
                                       for run in runs)
        self.rate = self.least / (side.warm or side.cold)
        self.steps = np.mean([stat["steps"] for stat in stats])
        self.diverging = [int(stat["diverging"].sum()) for stat in stats]
        both = {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
        self.means = {name: value.mean((0, 1)) for name, value in both.items()}
        self.errors = {name: value.std((0, 1)) / np.sqrt(effective(value))
                       for name, value in both.items()}
        kept = f"{stats[0]['diverging'].size:,}"
        self.text = (f"{self.least:.0f} effective draws, {self.steps:.3g} gradients a draw, "
                     f"{self.diverging} of {kept} diverge")

    def apart(self, other):
        """The largest difference of means in joint standard errors, and whose it is."""
        found = {n: np.max(
            np.abs(self.means[n] - other.means[n]) / np.hypot(self.errors[n], other.errors[n])
        ) for n in self.means}
        return max((float(value), name) for name, value in found.items())


def sample_all(case, title, data, quick):
    """A row for every peer."""
    size = (100, 100) if quick else (1_000, 1_000)
    with tempfile.TemporaryDirectory() as folder:
        ours, *peers = race(("probml", *(QUICK if quick else SAMPLERS)), case, data, size, folder,
                            quick)
        own = None if ours.error else Posterior(ours)
        for peer in peers:
            note = (f"FAILED: probml: {ours.error}"
                    if ours.error else f"probml ({len(ours.seconds)} turns): {own.text}")
            found = None if peer.error else Posterior(peer)
            if found:
                note += (f"; {peer.name} ({len(peer.seconds)} turns): cold {peer.cold:.3g} s, "
                         f"{found.text}")
            else:
                note += f"; {peer.name}: {peer.error}"
            if found and own:
                far, name = own.apart(found)
                note += f"; means at most {far:.1f} standard errors apart ('{name}')"
            quality = own and own.rate, found and found.rate
            yield row(f"NUTS, {title}, peer {peer.name}", ours.cold, ours.warm, peer.warm, *quality,
                      note)


def schools(dtype, quick):
    """Wanted here and in the regressions: at most 1.5 times nutpie's warm time, and not above
    BlackJAX's cold time."""
    yield from sample_all("schools", "eight schools, non-centred", schools_data(quick), quick)


def linear(dtype, quick):
    """Linear regression."""
    data = linear_data(quick)
    yield from sample_all("linear", f"linear regression {len(data['y']):,} × 10", data, quick)


def logistic(dtype, quick):
    """Logistic regression."""
    data = logistic_data(quick)
    yield from sample_all("logistic", f"logistic regression {len(data['y']):,} × 10", data, quick)


def labels(dtype, quick):
    """A mixture with its labels summed out; wanted: at most half of the best peer's cold time and a
    fifth of its warm time."""
    data = mixture_data(quick)
    yield from sample_all("mixture", f"mixture, labels summed out, n = {len(data['y']):,}, k = 3",
                          data, quick)


def states(dtype, quick):
    """Hidden Markov models with their states summed out; wanted: the same."""
    for steps in (30,) if quick else (200, 1_000):
        yield from sample_all("chain", f"HMM, states summed out, T = {steps:,}, k = 3",
                              chain_data(steps), quick)


# Closed forms


def conjugate(dtype, quick):
    """The posterior of a normal mean, with its variance known or not, in one pass; the peer: the
    same from NumPy's mean and variance."""
    n = 100_000 if quick else 10_000_000
    data = {"y": 3 + 2 * np.random.default_rng(5).normal(size=n)}
    for case, title in (("known", "variance known"), ("unknown", "variance unknown")):
        with tempfile.TemporaryDirectory() as folder:
            sides = race(("probml", "numpy"), case, data, None, folder, quick)
            yield closed(f"normal mean, {title}, {n:,} rows", sides,
                         lambda found: found["mean"].item()) | {"floor": floor(n)}


def spline(dtype, quick):
    """A smooth curve, its variance chosen; quality is the root mean square error against the
    truth."""
    random, n = np.random.default_rng(6), 5_000 if quick else 100_000
    x = np.sort(random.uniform(size=n))
    truth = np.sin(12 * x) + np.exp(-200 * (x - 0.6) ** 2)
    data = {"x": x, "y": truth + 0.3 * random.normal(size=n)}

    def error(found):
        return np.sqrt(np.mean((found["curve"] - truth) ** 2))

    with tempfile.TemporaryDirectory() as folder:
        ours, *peers = race(("probml", "scipy", "sklearn"), "spline", data, 50, folder, quick)
        for peer in peers:
            yield closed(f"smooth curve, {n:,} rows, 50 knots, peer {peer.name}", (ours, peer),
                         error)


def closed(title, sides, quality):
    """One row of two sides."""
    ours, peer = sides
    notes = [side.error or f"cold {side.cold:.3g} s, peak {side.memory:.0f} MB above imports "
             f"and data" for side in sides]
    note = ("FAILED: " if ours.error else "") + "; ".join(
        f"{side.name}: {text}" for side, text in zip(sides, notes, strict=True)
    )
    found = [None if side.error else side.results()[-1] for side in sides]
    if None not in found:
        far = max(np.max(np.abs(found[0][name] - found[1][name])) for name in found[0])
        note += f"; at most {far:.2g} apart"
    return row(title, ours.cold, ours.warm, peer.warm, *(each and quality(each) for each in found),
               note)


CASES = {case.__name__: case for case in (schools, linear, logistic, labels, states, conjugate,
                                          spline)}


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        worker(*sys.argv[2:])
    else:
        tell(CASES)
