"""Parquet files that are cut, or in which bits are flipped, are refused in words by their name, or read."""

import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("pyarrow.parquet")

# in a process of its own: what reads Parquet is not ours, and could end the process
PROGRAM = textwrap.dedent("""
    import sys, warnings
    from pathlib import Path
    import numpy as np, pyarrow as pa, pyarrow.dataset as ds, pyarrow.parquet as pq
    import numpyro.distributions as dist
    from numpyro import sample
    import probml

    warnings.simplefilter("ignore")
    folder, times = Path(sys.argv[1]), int(sys.argv[2])
    random = np.random.default_rng(0)

    @probml.model
    def normal():
        mean = sample("mean", dist.Normal(0.0, 5.0))
        share = sample("share", dist.Dirichlet(np.ones(2)))
        with probml.rows():
            sample("x", dist.Normal(mean, 1.0))
            sample("z", dist.Categorical(share))

    def written(name):
        words = np.array(["no", "yes"])[random.integers(2, size=40)]
        pq.write_table(pa.table({"x": random.normal(size=40), "z": words}), folder / name, row_group_size=10)

    for name in ("a.parquet", "b.parquet"):
        written(name)
    path = folder / "b.parquet"
    whole, counts = path.read_bytes(), {"read": 0, "refused": 0, "arrow's": 0}
    changed = [whole[:int(n)] for n in np.linspace(0, len(whole) - 1, times // 3)]
    for _ in range(times):
        torn = bytearray(whole)
        torn[random.integers(len(torn))] ^= 1 << random.integers(8)
        changed.append(bytes(torn))
    for content in changed:
        path.write_bytes(whole)
        source = ds.dataset(folder, format="parquet")
        path.write_bytes(content)  # after the dataset was opened: its files are read anew
        try:
            fit = normal().fit(source, probml.Exact())
            assert np.isfinite(float(fit.params["mean"])), fit.params
            counts["read"] += 1
        except (probml.DataError, probml.ModelError) as error:
            assert "b.parquet" in str(error) or "'x'" in str(error) or "'z'" in str(error), error
            counts["refused"] += 1
    print(counts)
""")


@pytest.mark.slow
def test_a_file_that_is_cut_or_torn_is_refused_or_read(tmp_path):
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path), "60"], capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "'refused': 0" not in done.stdout
