"""Rows that are read in parts: a pass of EM's steps over a folder of Parquet, beside (a) pyarrow reading the same
columns and nothing else and (b) the same rows held in memory; and the most memory that it took.

100 million rows × 8 columns of float32, made once under .cache/stream (about 3 GB; `--quick`: 5 million), a mixture of
8 normals and naive Bayes with 8 classes. Each of the three runs in a process of its own, whose peak of resident memory
is its own; a pass is the difference between a run of many passes and one of few, so that compiling is not in it. Of many
rows the pass over those in memory is that of HELD of them, times as many. Processor seconds stand in the notes: on a
machine with other work they tell more than the clock.
"""

import json
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from common_cases import row, tell

D, K, FILE = 8, 8, 2_500_000
FEW, MANY = 2, 6  # iterations of EM
HELD = 5_000_000  # rows in memory
FOLDER = Path(__file__).resolve().parent.parent / ".cache" / "stream"


def made(rows: int) -> Path:
    """The folder, written once, in files of FILE rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = FOLDER / f"{rows}"
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(rows // FILE):
        path = folder / f"part{i:03}.parquet"
        if path.exists():
            continue
        random = np.random.default_rng(i)
        z = random.integers(K, size=FILE)
        centre = np.random.default_rng(99).normal(size=(K, D)) * 3.0
        table = {f"x{j}": (centre[z, j] + random.normal(size=FILE)).astype(np.float32) for j in range(D)}
        beside = path.with_suffix(".part")
        pq.write_table(pa.table(table | {"z": z.astype(np.int8)}), beside, row_group_size=2**18,
                       use_dictionary=False)
        beside.rename(path)
    return folder


def model(seen: bool):
    import jax.numpy as jnp
    import numpyro.distributions as dist
    from numpyro import plate, sample

    import probml

    @probml.model
    def classes():
        weights = sample("weights", dist.Dirichlet(jnp.ones(K)))
        with plate("class", K):
            mean = sample("mean", dist.Normal(0.0, 10.0).expand([D]).to_event(1))
            scale = sample("scale", dist.LogNormal(0.0, 1.0).expand([D]).to_event(1))
        with probml.rows():
            z = sample("z", dist.Categorical(weights))
            for j in range(D):
                sample(f"x{j}", dist.Normal(mean[z, j], scale[z, j]))

    return classes()


def alone(kind: str, seen: bool, rows: int) -> dict:
    """One run in this process: seconds a pass, and its peak of resident memory in MB."""
    import pyarrow.dataset as ds

    warnings.simplefilter("ignore")
    folder = made(rows)
    source = ds.dataset(sorted(map(str, folder.glob("*.parquet"))), format="parquet")
    names = [f"x{j}" for j in range(D)] + ["z"] * seen
    if kind == "reading":
        began = _now()
        count = sum(len(batch) for batch in source.to_batches(columns=names))
        assert count == rows
        wall, processor = _now() - began
        return {"pass": wall, "processor": processor, "peak": _peak()}
    import probml

    # a scanner holds sixteen batches in each of four files, if nobody says so
    scanner = source.scanner(columns=names, batch_size=2**17, batch_readahead=4, fragment_readahead=2)
    data = scanner if kind == "streamed" else source.to_table(columns=names)
    start = {"mean": np.random.default_rng(99).normal(size=(K, D)) * 3.0 + 0.5, "scale": np.ones((K, D)),
             "weights": np.full(K, 1 / K)}
    times = []
    for count in (FEW, FEW, MANY):
        # the first compiles; statistics of complete rows are one pass, whatever the engine
        engine = probml.EM(max_iterations=count, tolerance=0.0, accelerate=False)
        began = _now()
        fit = model(seen).fit(data, engine, start=start)
        times.append(_now() - began)
    wall, processor = (times[2] - times[1]) / (MANY - FEW) if not seen else times[1] / 2  # a look and a pass
    return {"pass": wall, "processor": processor, "peak": _peak(), "objective": float(fit.history[-1])}


def _now() -> np.ndarray:
    return np.array([time.perf_counter(), time.process_time()])


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def stream(dtype, quick):
    """Wanted: below 1.5 GB, and a pass within 1.3 times the larger of reading alone and rows in memory."""
    rows = 5_000_000 if quick else 100_000_000
    made(rows)
    for seen in (False, True):
        found = {}
        for kind in ("reading", "resident", "streamed"):
            # 100 million rows with their copy in chunks are more than many machines hold
            some = min(rows, HELD) if kind == "resident" else rows
            made(some)
            command = [sys.executable, __file__, "--alone", kind, str(int(seen)), str(some)]
            out = subprocess.run(command, env=os.environ, stdout=subprocess.PIPE, text=True, check=True).stdout
            found[kind] = own = json.loads(out.strip().splitlines()[-1])
            for name in ("pass", "processor"):
                own[name] *= rows / some
            if some < rows:
                own["objective"] = None  # of other rows
        one = found["streamed"]
        floor = max(found[kind]["pass"] for kind in found if kind != "streamed")
        note = "; ".join(f"{kind} {own['pass']:.3g} s, of processors {own['processor']:.3g} s, peak "
                         f"{own['peak']:,.0f} MB" for kind, own in found.items())
        name = f"{'naive Bayes' if seen else 'mixture'} {rows:,} × {D}, k = {K}, a pass, peer the larger of reading and resident"
        yield row(name, None, one["pass"], floor, one.get("objective"), found.get("resident", {}).get("objective"), note)


CASES = {"stream": stream}


if __name__ == "__main__":
    if sys.argv[1] == "--alone":
        print(json.dumps(alone(sys.argv[2], sys.argv[3] == "1", int(sys.argv[4]))))
    else:
        tell(CASES)
