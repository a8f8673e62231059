"""kill -9 of those who work together: a worker of a cluster, one of two processes that hold the rows between them,
a process that writes answers. Faults as those of faults.py, which has them among its own; nothing waits for ever."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import plate, sample

import probml

N, MOST = 600, 900  # rows; seconds that anything may take, of a busy machine: they pass only where something hangs
ENGINE = probml.EM(max_iterations=60, tolerance=0.0, restarts=2, accelerate=False)
POINT = {"weights": [0.5, 0.5], "mean": [0.0, 3.0], "scale": [1.0, 1.0]}


@probml.model
def pair():
    weights = sample("weights", dist.Dirichlet(jnp.ones(2)))
    with plate("component", 2):
        mean = sample("mean", dist.Normal(0.0, 10.0))
        scale = sample("scale", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], scale[z]))


def column() -> np.ndarray:
    random = np.random.default_rng(0)
    return random.normal(size=N) + 3.0 * random.integers(2, size=N)


def parts():
    whole = column()
    for low in range(0, N, 70):
        yield {"x": whole[low : low + 70]}


def started(*words) -> subprocess.Popen:
    """This file again, as a process that says "ready" before it does what the words say."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen([sys.executable, "-W", "ignore", __file__, *map(str, words)], text=True, env=environment,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def ready(process: subprocess.Popen) -> None:
    lines: list[str] = []
    watch = threading.Timer(MOST, process.kill)
    watch.start()
    while not lines or lines[-1] not in ("ready\n", ""):
        lines.append(process.stdout.readline())
    watch.cancel()
    if lines[-1] != "ready\n":
        raise AssertionError(f"it did not begin: {''.join(lines)[-3000:]}")


def ended(process: subprocess.Popen) -> tuple[int, str]:
    """How it ended by itself, and what it said; one that waits for ever is a failure."""
    try:
        said = process.communicate(timeout=MOST)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"it did not end: {process.communicate()[0][-3000:]}") from None
    return process.returncode, said


def same(found, right) -> None:
    for name, value in right.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-8, atol=1e-10, err_msg=name)


# A worker of a cluster


def killed_worker(folder, random):
    """Workers are killed amid fits, one or two in turn: the answer is that of an undisturbed fit, or an error says
    what was lost; the next fit on the same cluster is right."""
    import dask.dataframe as dd
    import pandas as pd
    from dask.distributed import Client, LocalCluster

    frame = dd.from_pandas(pd.DataFrame({"x": column()}), npartitions=5)
    with (warnings.catch_warnings(), LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
          Client(cluster) as client):
        warnings.simplefilter("ignore")

        def fitted():
            fit = pair().fit(frame, ENGINE, where=client)
            return {"history": fit.history, **fit.params}

        fitted()  # compiles
        began = time.monotonic()
        right = fitted()
        long = time.monotonic() - began
        moments = sorted(random.uniform(0, long, random.integers(1, 3)))

        def kill():
            before = time.monotonic()
            for moment in moments:
                time.sleep(max(moment - (time.monotonic() - before), 0.0))
                pids = [worker.pid for worker in cluster.workers.values() if getattr(worker, "pid", None)]
                if pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(random.choice(pids)), signal.SIGKILL)

        for disturbed in (True, False):
            if not disturbed and not client.scheduler_info()["workers"]:
                break  # a nanny that could not start another gives up
            thread = threading.Thread(target=kill if disturbed else time.time)
            thread.start()
            try:
                same(within(MOST, fitted), right)
            except probml.DataError as error:
                assert disturbed and "lost" in str(error), error
            thread.join()


def within(seconds, work):
    """work() in a thread of its own, which ends in time."""
    found: list = []

    def run():
        try:
            found.append((work(), None))
        except BaseException as error:
            found.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, f"it had not ended after {seconds} seconds"
    if found[0][1] is not None:
        raise found[0][1]
    return found[0][0]


# One of two processes


def killed_process(folder, random):
    """One of two processes that hold the rows between them is killed: the other ends, with an error that says so, or
    had ended; both begun again go on from what the farther one had kept, and find what two undisturbed ones find."""
    began = time.monotonic()
    assert [code for code, _ in together(folder, "right")] == [0, 0]
    long, right = time.monotonic() - began, dict(np.load(folder / "right0.npz"))
    both = begun(folder, "fit")
    time.sleep(random.uniform(0, 0.3 * long))
    lost = int(random.integers(2))
    both[lost].kill()
    code, said = ended(both[1 - lost])
    both[lost].communicate()
    # JAX itself may end the process, in words of its own
    assert code == 0 or ("was lost" if code > 0 else "task died") in said, said[-2000:]
    for code, said in together(folder, "fit"):
        assert code == 0, said[-3000:]
    for rank in range(2):
        same(np.load(folder / f"fit{rank}.npz"), right)


def begun(folder, what):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    both = [started("process", rank, port, folder, what) for rank in range(2)]
    for process in both:
        ready(process)
    return both


def together(folder, what):
    return [ended(process) for process in begun(folder, what)]


def process(rank, port, folder, what):
    """One of two, with rows of its own, which keeps its fit in a file of its own."""
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(rank), heartbeat_timeout_seconds=10)
    print("ready", flush=True)
    mine = {"x": column()[[slice(0, 250), slice(250, None)][int(rank)]]}
    fit = pair().fit(mine, ENGINE, where=jax.devices(),
                     checkpoint=probml.Checkpoint(Path(folder) / f"{what}.state{rank}", seconds=0))
    np.savez(Path(folder) / f"{what}{rank}.npz", history=fit.history, **fit.params)


# One that writes answers


def killed_while_answering(folder, random):
    """Answers about a source stand in a file that is whole or not there."""
    import pyarrow.parquet as pq

    path = folder / "answers.parquet"
    process = started("answer", path)
    try:
        ready(process)
        time.sleep(random.uniform(0, 0.5))
    finally:
        process.kill()
        process.communicate()
    if path.exists():
        found = pq.read_table(path)
        assert found.num_rows == N and found.column_names == ["predict", "log_prob"]


def answer(path):
    """For ever, until this process is killed."""
    fit = pair().at(POINT)
    fit.answer(parts, site="z")
    print("ready", flush=True)
    while True:
        fit.answer(parts, site="z", to=path)


KILLS = (killed_worker, killed_process, killed_while_answering)


if __name__ == "__main__":
    {"process": process, "answer": answer}[sys.argv[1]](*sys.argv[2:])
