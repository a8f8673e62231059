"""Random files, orders of files, row groups, parts and chunks: every engine that passes over a source finds what it
finds in one table, and answers in the order of the rows."""

import numpy as np
import pytest

import probml
from probml.dataset.sources import arrow
from probml.device import streamed
from small_models import network

pa = pytest.importorskip("pyarrow")
ds = pytest.importorskip("pyarrow.dataset")
pq = pytest.importorskip("pyarrow.parquet")

N = 120
SETTINGS = {"max_iterations": 4, "tolerance": 0.0}


def table(hidden: bool) -> dict[str, np.ndarray]:
    random = np.random.default_rng(4)
    z = random.integers(2, size=N)
    y, b = random.normal(size=N) + 3.0 * z, np.array(["low", "mid", "high"])[(z + random.integers(2, size=N)) % 3]
    found = {"a": np.where(random.random(N) < 0.5, z, np.nan) if hidden else z.astype(float), "b": b, "y": y,
             "times": random.integers(1, 4, N).astype(float)}
    if hidden:
        y[random.random(N) < 0.2] = np.nan
    return found


def partition(folder, rows, seed: int):
    """The rows in random order, in files that are read in another, in row groups of random sizes; and the order."""
    random = np.random.default_rng(seed)
    order = random.permutation(N)
    ends = [0, *np.sort(random.choice(np.arange(1, N), random.integers(1, 7), replace=False)), N]
    files, orders = [], []
    for i, (low, high) in enumerate(zip(ends[:-1], ends[1:], strict=True)):
        own = order[low:high]
        files.append(folder / f"{seed}_{i}.parquet")
        part = pa.table({name: pa.array(column[own], from_pandas=True) for name, column in rows.items()})
        pq.write_table(part, files[-1], row_group_size=int(random.integers(1, 40)))
        orders.append(own)
    mixed = random.permutation(len(files))
    return ds.dataset([str(files[i]) for i in mixed], format="parquet"), np.concatenate([orders[i] for i in mixed])


START = {"first": np.array([0.6, 0.4]), "second": np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]]),
         "mean": np.array([0.0, 2.0])}
ENGINES = {
    "Exact": (probml.Exact(), False), "EM": (probml.EM(**SETTINGS, restarts=1), True),
    "hard EM": (probml.EM(**SETTINGS, restarts=1, hard=True), True), "VB": (probml.VB(**SETTINGS, restarts=1), True),
    "MAP": (probml.MAP(), True), "Laplace": (probml.Laplace(), True),
    "NUTS": (probml.NUTS(draws=20, warmup=20, chains=1), False), "SVI": (probml.SVI(steps=100), False),
}  # fmt: skip
QUICK = ("Exact",)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
                                  for name in ENGINES])
def test_an_engine_finds_in_any_files_and_orders_what_it_finds_in_one_table(name, tmp_path, monkeypatch):
    engine, hidden = ENGINES[name]
    rows, start = table(hidden), START if hidden else {}
    plain = network().fit(rows, engine, start=start, weights="times")
    asked = plain.log_prob({name: rows[name] for name in ("a", "b", "y")})
    for seed in range(3):
        monkeypatch.setattr(arrow, "ROWS", (7, 30, 500)[seed])
        monkeypatch.setattr(streamed, "NUMBERS", (2**6, 2**20, 2**8)[seed])
        source, order = partition(tmp_path, rows, seed)
        fit = network().fit(source, engine, start=start, weights="times")
        # sums in another order move a path by their rounding: a sampler's grows, a climb's ends where rounding hides gains
        close = {"NUTS": 1e-2, "SVI": 1e-3, "MAP": 1e-5,
                 # of rows in parts the normal distribution at the mode, and no weighted draws
                 "Laplace": 2e-2}.get(name, 1e-7)
        # means of 20 draws on other paths; the mode beside the mean
        off = {"NUTS": 0.08, "Laplace": 2e-3}.get(name, 0.0)
        ends = [0] if name == "NUTS" else [0, -1]  # its last one is of a draw
        np.testing.assert_allclose(fit.history[ends], plain.history[ends], rtol=max(close / 100, 1e-9))
        for site, value in plain.params.items():
            np.testing.assert_allclose(fit.params[site], value, rtol=close, atol=off, err_msg=f"{site}, {seed}")
        shown = fit.log_prob(source.scanner(columns=["a", "b", "y"]))
        np.testing.assert_allclose(shown, asked[order], rtol=close, atol=off)
