"""An E-step of several workers beside that of one: rows that lie with the workers of a Dask cluster, and with processes
joined by `jax.distributed`. Each has a core of its own, so that one cannot take another's; an iteration is the
difference between a run of many and one of few, so that compiling is not in it.

Wanted: n workers in 1 / n of the time, to what the driver and the sums cost. `--quick` 5 million rows × 8, else 20
million; the files of stream_cases.py.
"""

import json
import os
import socket
import subprocess
import sys
import time
import warnings

import numpy as np

from common_cases import row, tell
from stream_cases import FEW, MANY, D, K, made, model

PARTS = 2  # a worker: each has so many partitions


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def files(rows: int) -> list[str]:
    return sorted(map(str, made(rows).glob("*.parquet")))


def iteration(fit) -> dict:
    """Seconds of an iteration of EM: fit(count) runs so many."""
    times = []
    for count in (FEW, FEW, MANY):  # the first compiles
        began = time.perf_counter()
        found = fit(count)
        times.append(time.perf_counter() - began)
    return {"pass": (times[2] - times[1]) / (MANY - FEW), "objective": float(found.history[-1])}


def fitted(data, count: int, **options):
    import probml

    start = {"mean": np.random.default_rng(99).normal(size=(K, D)) * 3.0 + 0.5, "scale": np.ones((K, D)),
             "weights": np.full(K, 1 / K)}
    engine = probml.EM(max_iterations=count, tolerance=0.0, accelerate=False, restarts=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model(False).fit(data, engine, start=start, **options)


def pinned(places, dask_worker=None) -> None:
    """A worker of a cluster takes one core."""
    os.sched_setaffinity(0, {places[dask_worker.address]})


def on_a_cluster(rows: int, workers: int) -> dict:
    import dask.dataframe as dd
    from dask.distributed import Client, LocalCluster

    with (LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None, memory_limit=0) as cluster,
          Client(cluster) as client):
        addresses = sorted(client.scheduler_info()["workers"])
        client.run(pinned, dict(zip(addresses, cores(), strict=False)))
        frame = dd.read_parquet(files(rows), columns=[f"x{j}" for j in range(D)], split_row_groups=False)
        frame = frame.repartition(npartitions=PARTS * workers)
        before = sum(client.run(time.process_time).values())
        found = iteration(lambda count: fitted(frame, count, where=client))
        return found | {"processor": sum(client.run(time.process_time).values()) - before}


def in_processes(rows: int, count: int) -> dict:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    every = [subprocess.Popen([sys.executable, __file__, "--one", str(rank), str(count), str(port), str(rows)],
                              env=os.environ, stdout=subprocess.PIPE, text=True) for rank in range(count)]
    said = [process.communicate()[0] for process in every]
    if any(process.returncode for process in every):
        raise RuntimeError(f"a process failed: {said}")
    return json.loads(said[0].strip().splitlines()[-1])


def one(rank: int, count: int, port: str, rows: int) -> dict:
    """One of so many processes, with its share of the files."""
    os.sched_setaffinity(0, {cores()[rank]})
    import jax
    import pyarrow.dataset as ds

    where = None
    if count > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", count, rank)
        where = jax.devices()
    mine = ds.dataset(files(rows)[rank::count], format="parquet").to_table(columns=[f"x{j}" for j in range(D)])
    return iteration(lambda number: fitted(mine, number, where=where))


def workers(dtype, quick):
    """Wanted: the time of one worker, divided by their number."""
    rows = 5_000_000 if quick else 20_000_000
    made(rows)
    most = min(len(cores()), len(files(rows)))
    for name, run in (("Dask workers", on_a_cluster), ("processes", in_processes)):
        alone, several = run(rows, 1), run(rows, most)
        note = (f"{alone['pass'] / several['pass']:.2f} times as fast as one, of {most} cores"
                + "".join(f"; {word} {own['processor']:.3g} s of processors in all"
                          for word, own in (("one", alone), ("several", several)) if "processor" in own))
        yield row(f"an iteration of EM by {most} {name}, {rows:,} × {D}, k = {K}, peer one of them", None,
                  several["pass"], alone["pass"], several["objective"], alone["objective"], note)


CASES = {"workers": workers}


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        print(json.dumps(one(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))))
    else:
        tell(CASES)
