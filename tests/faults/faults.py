"""What goes wrong from outside, at random moments: `python tests/faults/faults.py --seconds 300`.

Each fault is a function of a folder and a random generator, that raises where the project does not
stand it. `test_faults.py` runs each for a moment.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import plate, sample

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
    out, said = process.communicate(timeout=120)
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
        thread.join(300)
    assert not failed, failed
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


def fit_of(table):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clusters().fit({"x": table}, probml.EM(restarts=2, max_iterations=50)).params["mean"]


FAULTS = (killed_while_saving, two_save_to_one_path, interrupted, disk_full, threads)


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


def main():
    if sys.argv[1:2] == ["save"]:
        return save(sys.argv[2])
    if sys.argv[1:2] == ["interrupt"]:
        return interrupt(sys.argv[2])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    said = parser.parse_args()
    print(f"seed {said.seed}", flush=True)
    random, survived, ends = np.random.default_rng(said.seed), Counter(), (time.monotonic()
                                                                         + said.seconds)
    while time.monotonic() < ends:
        fault = FAULTS[random.integers(len(FAULTS))]
        with tempfile.TemporaryDirectory() as folder:
            fault(Path(folder), random)
        survived[fault.__name__] += 1
    print(", ".join(f"{name} {times}" for name, times in survived.items()))
    return None


if __name__ == "__main__":
    main()
