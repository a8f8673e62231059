"""What goes wrong from outside, at random moments: `python tests/faults/faults.py --seconds 300`.

Each fault is a function of a folder and a random generator, that raises where the project does not
stand it. First each in turn, the short ones first, then by chance, until the longest of those met would
not end in time any more, and at least one. `test_faults.py` has each of them once.
"""

import argparse
import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from kills import KILLS, MOST
from numpyro import plate, sample
from sharing import SHARING

import probml

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 2)) + np.repeat([[0.0], [4.0]], 20, 0)


@probml.model
def clusters(k: int = 2, d: int = 2):
    weights = sample("weights", dist.Dirichlet(jnp.full(k, 2.0)))
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 5.0).expand([d]).to_event(1))
        scale = sample("scale", dist.LogNormal(0.0, 1.0).expand([d]).to_event(1))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], scale[z]).to_event(1))


ENGINES = {
    "EM": probml.EM(), "MAP": probml.MAP(), "NUTS": probml.NUTS(draws=50, warmup=50, chains=1),
    "SVI": probml.SVI(steps=200), "Laplace": probml.Laplace(),
}  # fmt: skip
POINT = {"weights": [0.5, 0.5], "mean": [[0.0, 0.0], [4.0, 4.0]], "scale": np.ones((2, 2))}


def _started(*words, **options):
    """This file again, as a process that says "ready" before it does what the words say."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen([sys.executable, __file__, *map(str, words)], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
                               **options)
    line = process.stdout.readline()
    if line != "ready\n":
        raise AssertionError(f"{words}: {line}{process.stderr.read()}")
    return process


def _ended(process):
    process.kill()
    process.communicate()


def _whole(path):
    """The fit of a file, held to the one that was saved."""
    fit = probml.load(path, clusters())
    np.testing.assert_array_equal(fit.params["mean"], POINT["mean"])


def killed_while_saving(folder, random):
    """kill -9: the file is the old one or the new one, whole."""
    path = folder / "fit"
    clusters().at(POINT).save(path)
    process = _started("save", path)
    time.sleep(random.uniform(0, 0.3))
    _ended(process)
    _whole(path)


def two_save_to_one_path(folder, random):
    """Two processes save to one path while a third reads it: each time it is whole."""
    path = folder / "fit"
    clusters().at(POINT).save(path)
    both = [_started("save", path) for _ in range(2)]
    for _ in range(50):
        _whole(path)
    for process in both:
        _ended(process)
    _whole(path)


def interrupted(folder, random):
    """Ctrl-C at a random moment: the fit comes to an end in seconds, and the next one is right."""
    name = random.choice(list(ENGINES))
    process = _started("interrupt", name)
    time.sleep(random.uniform(0, 3))
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=MOST)
    assert process.returncode == 0 and "right" in out, f"{name}: {out}\n{said[-2000:]}"


def disk_full(folder, random):
    """No space: the error is the system's, the old file is whole, and nothing else is left."""
    import resource

    path = folder / "fit"
    clusters().at(POINT).save(path)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(random.integers(0, 2000)), hard))
        try:
            clusters().at(POINT).save(path)
        except OSError:
            pass
        else:
            raise AssertionError("saved without space")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    _whole(path)
    assert [p.name for p in folder.iterdir()] == ["fit"]


def threads(folder, random):
    """Fits in several threads at once give what each gives alone."""
    tables = [X[: int(n)] for n in random.integers(30, 41, 4)]
    alone = [fit_of(table) for table in tables]
    together, failed = [None] * len(tables), []

    def work(i):
        try:
            together[i] = fit_of(tables[i])
        except BaseException as error:
            failed.append(error)

    running = [threading.Thread(target=work, args=(i,)) for i in range(len(tables))]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(MOST)
    assert not failed, failed
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


def threads_of_all_kinds(folder, random):
    """Engines in several threads at once, each in its own precision, every program met for the first
    time by several, while another turns NumPyro's checks off and on, as its own samplers do: what each
    gives alone."""
    rows = int(random.integers(20, 40))
    names = [str(name) for name in random.choice(list(ENGINES), 2, replace=False)]
    kinds = [(name, double) for name in names for double in (False, True)]
    together, failed, ended = {}, [], threading.Event()

    def work(kind):
        try:
            together[kind] = _by(*kind, rows)
        except BaseException:
            failed.append((kind, traceback.format_exc(limit=40)))

    def check():
        while not ended.wait(1e-3):
            with numpyro.validation_enabled(bool(random.integers(2))):
                time.sleep(1e-3)

    running = [threading.Thread(target=work, args=(kind,)) for kind in kinds]
    other = threading.Thread(target=check)
    for thread in (other, *running):
        thread.start()
    for thread in running:
        thread.join(MOST)
    ended.set()
    other.join()
    assert not failed, "\n".join(f"{kind}: {said}" for kind, said in failed)
    for kind in kinds:
        alone = _by(*kind, rows)
        for name, value in alone.items():
            np.testing.assert_array_equal(together[kind][name], value, err_msg=f"{kind}: {name}")
            assert np.asarray(value).dtype == (np.float64 if kind[1] else np.float32), kind


def _by(name, double, rows):
    with jax.enable_x64(double):
        fit = clusters().fit({"x": X[:rows]}, ENGINES[name])
        answered = np.asarray(fit.predict_proba({"x": X}))
        return {name: np.asarray(fit.params[name]) for name in ("weights", "mean", "scale")} | {
            "answers": answered}


def forked(folder, random):
    """A process forked after a fit says what to do instead, and does not wait for ever."""
    process = _started("fork")
    out, said = process.communicate(timeout=MOST)
    assert process.returncode == 0 and "spawn" in out, f"{out}\n{said[-2000:]}"


def forked_at_once(folder, random):
    """A process forked after the import, before anything has run, finds what its parent finds."""
    process = _started("fork_first", folder / "found.npy")
    out, said = process.communicate(timeout=MOST)
    assert process.returncode == 0 and "same" in out, f"{out}\n{said[-2000:]}"


def clock_set(folder, random):
    """The clock of the machine jumps to and fro amid a fit that shows its progress and is kept."""
    right, own, past = _chained(None), time.time, Path(folder) / "state"
    try:
        time.time = lambda: own() + float(random.choice([-1e9, -3600.0, 0.0, 3600.0, 1e9]))
        found = _chained(probml.Checkpoint(past, seconds=0))
    finally:
        time.time = own
    np.testing.assert_array_equal(found, right)


def _chained(checkpoint):
    engine = probml.NUTS(draws=20, warmup=20, chains=1, progress=checkpoint is not None)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        return np.asarray(clusters().fit({"x": X}, engine, checkpoint=checkpoint).params["mean"])


def fit_of(table):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clusters().fit({"x": table}, probml.EM(restarts=2, max_iterations=50)).params["mean"]


def killed_while_fitting(folder, random):
    """kill -9 in the midst of fits that are kept: the next goes on, and the end is bitwise that of one that was
    not disturbed. The lives of a fit are forked from one process that has read its modules."""
    name, lives = random.choice(list(KEPT)), int(random.integers(1, 5))
    process = _started("lives", name, folder, stdin=subprocess.PIPE)
    try:
        long = _lived(process, folder, "right", None)
        for _ in range(lives):
            long = min(long, _lived(process, folder, "fit", random.uniform(0, long)) + 1.0)
        _lived(process, folder, "fit", None)
    finally:
        _ended(process)
    right, found = (np.load(folder / f"{name}.npz") for name in ("right", "fit"))
    assert sorted(right) == sorted(found) and "history" in right
    for key in right:
        np.testing.assert_array_equal(found[key], right[key], err_msg=f"{name}, {lives} kills: {key}")
    assert not list(folder.glob(".*"))  # nothing half written but what was killed at it


def _lived(process, folder, what, seconds):
    """A life of a fit, ended after so many seconds (None: by itself): how long it took."""
    began = time.monotonic()
    process.stdin.write(f"{what}\n")
    process.stdin.flush()
    pid = int(process.stdout.readline())
    if seconds is not None:
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):  # it had come to its end
            os.kill(pid, signal.SIGKILL)
    status = int(process.stdout.readline())
    assert status == 0 or (seconds is not None and status == signal.SIGKILL), (what, status)
    for left in folder.glob(".*"):  # of one that was killed while it wrote
        assert seconds is not None, left
        left.unlink()
    return time.monotonic() - began


def _parts():
    for low in range(0, 40, 15):
        yield {"x": X[low : low + 15]}


KEPT = {
    "EM": ({"x": X}, probml.EM(max_iterations=160, tolerance=0.0, accelerate=False, restarts=2)),
    "EM of parts": (_parts, probml.EM(max_iterations=40, tolerance=0.0, accelerate=False, restarts=2)),
    "EM in batches": (_parts, probml.EM(max_iterations=40, tolerance=0.0, batch_rows=10, restarts=1)),
    "MAP in batches": (_parts, probml.MAP(optimizer=optax.adam(0.01), steps=2000, batch_rows=10)),
    "SVI in batches": (_parts, probml.SVI(steps=4000, batch_rows=10)),
    "SVI": ({"x": X}, probml.SVI(steps=4000)),
    "NUTS": ({"x": X}, probml.NUTS(draws=150, warmup=150, chains=2)),
}  # fmt: skip


def lives(name, folder):
    """Forks a fit whenever it is asked to, and says how each ended."""
    print("ready", flush=True)
    for what in map(str.strip, sys.stdin):
        pid = os.fork()
        if not pid:
            _fitted(name, Path(folder), what)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) * -1, flush=True)


def _fitted(name, folder, what):
    code = 1
    try:
        data, engine = KEPT[name]
        fit = clusters().fit(data, engine, checkpoint=probml.Checkpoint(folder / f"{what}.state", seconds=0))
        np.savez(folder / f"{what}.npz", history=fit.history, **fit.params)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


FAULTS = (disk_full, killed_while_saving, threads, forked_at_once, two_save_to_one_path, forked, clock_set,
          killed_while_fitting, threads_of_all_kinds, interrupted, *SHARING, *KILLS)


def save(path):
    """Forever, until this process is killed."""
    fit = clusters().at(POINT)
    print("ready", flush=True)
    while True:
        fit.save(path)


def interrupt(name):
    """A fit that is interrupted at some moment, then one that is not."""
    right = fit_of(X)
    print("ready", flush=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for seed in range(1000):
                clusters().fit({"x": X}, ENGINES[name], seed=seed)
    except KeyboardInterrupt:
        pass
    np.testing.assert_array_equal(fit_of(X), right)
    print("right", flush=True)


def fork():
    """A fit, then the same in a process that is forked from this one."""
    fit_of(X)
    print("ready", flush=True)
    pid = os.fork()
    if not pid:
        signal.alarm(MOST // 2)  # in the place of waiting for ever
        try:
            fit_of(X)
        except probml.ModelError as error:
            print(error, flush=True)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    fit_of(X)  # and here as before


def fork_first(path):
    """The same fit in this process and in one that is forked from it."""
    print("ready", flush=True)
    pid = os.fork()
    if not pid:
        signal.alarm(MOST // 2)
        try:
            np.save(path, fit_of(X))
        finally:
            os._exit(0)
    found = fit_of(X)
    os.waitpid(pid, 0)
    np.testing.assert_array_equal(np.load(path), found)
    print("same", flush=True)


def main():
    verbs = {each.__name__: each for each in (fork, fork_first, save, lives, interrupt)}
    if sys.argv[1:2] and sys.argv[1] in verbs:
        return verbs[sys.argv[1]](*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", default="", help="faults whose name holds this")
    parser.add_argument("--times", type=int, help="so many faults in turn, whatever the seconds")
    said = parser.parse_args()
    print(f"seed {said.seed}", flush=True)
    chosen = [fault for fault in FAULTS if said.only in fault.__name__]
    random, survived, ends = np.random.default_rng(said.seed), Counter(), (time.monotonic()
                                                                         + said.seconds)
    longest = 0.0
    while (time.monotonic() + longest < ends or not survived) if said.times is None else (
            survived.total() < said.times):
        turn = survived.total()
        if said.times is None and turn >= len(chosen):
            turn = random.integers(len(chosen))
        fault = chosen[turn % len(chosen)]
        began = time.monotonic()
        print(f"{survived.total() + 1}: {fault.__name__}", end="", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            fault(Path(folder), random)
        survived[fault.__name__] += 1
        longest = max(longest, took := time.monotonic() - began)
        print(f" stood, {took:.0f} s", flush=True)
    print(f"{survived.total()} stood: " + ", ".join(f"{name} {times}" for name, times in survived.items()))
    return None


if __name__ == "__main__":
    main()
