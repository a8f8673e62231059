"""Many small fits in one process: `python tests/faults/long_life.py --fits 20000`. Memory and
mappings are printed, and what a million fits would have of each by the last half's slope.

Most fits are of other data, by Exact; every `--fresh`-th is of other shapes, whose programs are made
anew: mappings grow by these alone, up to `--most`, at which programs are let go (numerics/kept/holding).
Every twentieth is a mixture by EM, and every twentieth an estimator, fitted and asked.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import numpyro.distributions as dist
from numpyro import plate, sample

import probml
from probml.models import NaiveBayes
from probml.numerics.kept import programs
from probml.numerics.kept.programs import mappings

LIMIT = 65_530  # mappings of a process, as Linux has it
MILLION = 1_000_000


@probml.model
def rate(a: float = 2.0, cells: int = 1):
    p = sample("p", dist.Beta(a, 3.0).expand([cells]).to_event(1))
    with probml.rows():
        sample("y", dist.Bernoulli(p).to_event(1))


@probml.model
def pair():
    with plate("component", 2):
        mean = sample("mean", dist.Normal(0.0, 10.0))
    with probml.rows():
        z = sample("z", dist.Categorical(np.full(2, 0.5)))
        sample("x", dist.Normal(mean[z], 1.0))


def mixed(random: np.random.Generator) -> None:
    """A mixture whose parts lie far from each other: its means are those of the parts, drawn to 0 by
    the prior."""
    x = np.concatenate([random.normal(-20.0, 1.0, 8), random.normal(20.0, 1.0, 8)])
    fit = pair().fit({"x": x}, probml.EM(restarts=1))
    right = [part.sum() / (8 + 0.01) for part in (x[:8], x[8:])]
    np.testing.assert_allclose(np.sort(np.asarray(fit.params["mean"])), right, rtol=1e-4)


def faced(random: np.random.Generator) -> None:
    """An estimator that tells classes far from each other apart."""
    x = random.normal(size=(16, 2)) + np.repeat([[-5.0], [5.0]], 8, 0)
    y = np.repeat([0, 1], 8)
    np.testing.assert_array_equal(NaiveBayes().fit(x, y).predict(x), y)


def resident() -> float:
    """Megabytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def lived(fits: int, fresh: int, looks: int = 20) -> np.ndarray:
    """(looks, 3): after how many fits, mappings, megabytes.

    Raises:
        AssertionError: a fit is wrong.
    """
    random, found, cells = np.random.default_rng(0), [], 1
    for i in range(fits):
        if i % 20 in (7, 17):
            (mixed if i % 20 == 7 else faced)(random)
        cells = 1 + i // fresh if i % fresh == 0 else 1
        y = random.integers(0, 2, (8, cells))
        fit = rate(cells=cells).fit({"y": y}, probml.Exact())
        right = (2.0 + y.sum(0)) / (5.0 + len(y))
        np.testing.assert_allclose(np.asarray(fit.params["p"]), right, rtol=1e-5)
        if (i + 1) % max(fits // looks, 1) == 0:
            found.append((i + 1, mappings(), resident()))
            print(f"{i + 1:>8} fits {mappings():>7} mappings {resident():>8.0f} MB", flush=True)
    return np.array(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=20_000)
    parser.add_argument("--fresh", type=int, default=100)
    parser.add_argument("--most", type=int, default=programs.MAX_MAPPINGS)
    said = parser.parse_args()
    programs.MAX_MAPPINGS = said.most
    warnings.simplefilter("ignore")
    began = time.process_time()
    found = lived(said.fits, said.fresh)
    late = found[len(found) // 2 :]
    slope = [np.polyfit(late[:, 0], late[:, j], 1)[0] for j in (1, 2)]
    print(f"a fit took {1e3 * (time.process_time() - began) / said.fits:.2f} ms of processor; by the "
          f"slope of the last half a million would have {found[-1, 1] + slope[0] * MILLION:,.0f} "
          f"mappings and {found[-1, 2] + slope[1] * MILLION:,.0f} MB; programs are let go at "
          f"{said.most:,} of the {LIMIT:,} mappings that Linux allows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
