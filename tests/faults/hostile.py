"""Files that are not what they say: `python tests/faults/hostile.py [fit zoo bif checkpoint cache csv parquet]
--seconds 600`.

Good files are changed at random, by bytes, by words and behind their seals (guided.py); a file that leads the reader
along lines of ours it had not been on is kept and changed further. A reader answers, or refuses in words of ours that
name the file; within seconds, with memory bounded, and it writes nothing beside the file. `--corpus FOLDER`: from whose
files it goes on, and where it puts new ones; libfuzzer.py lets libFuzzer choose.
"""

import argparse
import functools
import gzip
import hashlib
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import guided
import networkx as nx
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from guided import changed
from numpyro import sample

import probml
from faults import POINT, clusters
from probml import models
from probml.models.commandline.files import read_table
from probml.numerics.kept import disk
from probml.numerics.outside.checkpoint import Checkpoint, Journal

OURS = (probml.ModelError, probml.DataError, probml.Refusal)
LONG = 60  # seconds of processor that a reader may take
WAITS = 600  # seconds that it may take by the clock, of a machine that does other things
LEAST = 2.0  # seconds that are worth a kind's good files
GROWTH = 2**29  # bytes by which reading may let the process grow


class Reader(NamedTuple):
    """A kind of file: good ones, who reads a path, what is asked of what was read, how it is changed inside, and the
    files of ours whose lines are followed."""

    good: list[bytes]
    read: Callable[[Path], Any]
    asked: Callable[[Any], Any] = lambda found: None
    change: Callable[..., bytes] = changed
    files: tuple[str, ...] = ()


@probml.model
def sizes():
    mean = sample("mean", dist.Normal(0.0, 10.0))
    share = sample("share", dist.Beta(2.0, 2.0))
    with probml.rows():
        sample("x", dist.Normal(mean, 1.0))
        sample("word", dist.Bernoulli(share))


def readers(folder: Path) -> dict[str, Callable[[], Reader]]:
    """Of every kind of file, made when it is asked for."""
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 2)) + np.repeat([[0.0], [4.0]], 20, 0)
    frame = pd.DataFrame({"x": x[:, 0], "word": np.array(["no", "yes"])[random.integers(2, size=40)]})
    arrays, files = guided.inside_arrays("meta"), ("interface/loading", "fits/saving", "fits/encoding", "posteriors/",
                                                   "interface/given_parameters", "structure/trace")
    estimators, tables = (*files, "estimators/keeping", "probml/language/"), ("commandline/files", "probml/dataset/")
    made = {
        "fit": lambda: Reader([_written(folder, fit.save) for fit in _fits(x)],
                              lambda path: probml.load(path, clusters()), lambda fit: _asked(fit, x), arrays, files),
        "zoo": lambda: Reader([_written(folder, fit.save) for fit in _zoo(x)], probml.load, _told,
                              guided.inside_arrays("meta", guided.identified), estimators),
        "bif": lambda: Reader(_networks(folder), models.read_bif, lambda fit: fit.simulate(2), guided.inside_gzip,
                              ("bayesian_networks/",)),
        **{name: functools.partial(_checkpoints, folder, x, engine) for name, engine in CHECKPOINTS.items()},
        "cache": lambda: _programs(folder / "programs"),
        "csv": lambda: Reader([_written(folder, lambda path: frame.to_csv(path, index=False))],
                              lambda path: _table(path, ".csv"), files=tables),
        "parquet": lambda: Reader(
            [_written(folder, lambda path: frame.to_parquet(path, index=False, row_group_size=10))],
            lambda path: _table(path, ".parquet"), _streamed, guided.inside_parquet, tables),
    }
    return {name: functools.partial(_quietly, make) for name, make in made.items()}


def _quietly(make: Callable[[], Reader]) -> Reader:
    """Good files, of fits that are cut short."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


def _fits(x: np.ndarray) -> list[probml.Fit]:
    """Of a user's model, by several engines."""
    return [clusters().at(POINT), *(clusters().fit({"x": x}, engine) for engine in (
        probml.EM(restarts=1, max_iterations=5), probml.NUTS(draws=5, warmup=5, chains=1), probml.Laplace()))]


def _zoo(x: np.ndarray) -> list[Any]:
    """Fits of the zoo's functions, and estimators."""
    y = x @ [1.0, -1.0]
    return [models.ridge().fit({"x": x, "y": y}, probml.Exact()),
            models.gaussian_mixture(k=2).at({"weights": POINT["weights"], "mean": POINT["mean"],
                                             "precision": np.stack([np.eye(2)] * 2)}),
            models.GaussianMixture(2, n_init=1, max_iter=3).fit(x),
            models.BayesianLinearRegression().fit(pd.DataFrame(x, columns=["a", "b"]), y),
            models.LogisticRegression().fit(x, np.array(["no", "yes"])[(y > 0).astype(int)])]


def _networks(folder: Path) -> list[bytes]:
    """BIF as it is written here, packed, and as others write it."""
    dag = nx.DiGraph([("a", "b")])
    network = models.bayesian_network(dag, states={"a": ["no", "yes"], "b": ["u", "v", "w"]}).at(
        {"a.table": [0.3, 0.7], "b.table": [[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]]})
    own = _written(folder, lambda path: models.write_bif(network, path))
    return [own, gzip.compress(own), DIALECT]


def _programs(folder: Path) -> Reader:
    """A kept program: what is given out is what its digest is of."""
    own = disk.Folder(folder)
    own.put("key", b"program" * 100)

    def read(path: Path) -> None:
        content = path.read_bytes()
        (folder / "key").write_bytes(content)
        held = own.get("key")
        assert held is None or hashlib.sha256(held).digest() == content[: disk.DIGEST_BYTES], "another program than was kept"

    return Reader([(folder / "key").read_bytes()], read, change=guided.inside_digest, files=("kept/disk",))


CHECKPOINTS = {
    "checkpoint": probml.EM(max_iterations=60, tolerance=0.0, accelerate=False, restarts=2),
    "sampling": probml.NUTS(draws=20, warmup=20, chains=2), "steps": probml.SVI(steps=500),
}  # fmt: skip
DIALECT = b"""network "dog problem" { property credal-set constant-density-bounded ; }
variable  "light-on" { // two states
    type discrete[2] {  "true"  "false" };
    property "position = (218, 195)" ;
}
variable "family out" { type discrete [ ] { <5 20_MG/L "a\\"b" }; }
/* the child runs slowest */
probability ( "light-on" | "family out" ) { default 0.5 0.5; (<5) 1e-1 9e-1; ("a\\"b") 1, 0; }
probability ( "family out" ) { table 0.25 0.25 .5; }
"""


def _checkpoints(folder: Path, x: np.ndarray, engine: Any) -> Reader:
    """States of a fit: what was read is gone on from."""
    kept, note = [], Journal.note

    def noted(self: Journal, key: Any, past: Any) -> None:
        note(self, key, past)
        kept.append((self.path.read_bytes(), self.of))

    Journal.note = noted
    try:
        clusters().fit({"x": x}, engine, checkpoint=Checkpoint(folder / type(engine).__name__, seconds=0))
    finally:
        Journal.note = note

    def gone_on(journal: Journal) -> None:
        clusters().fit({"x": x}, engine, checkpoint=Checkpoint(journal.path, seconds=1e9))

    good = [kept[0][0], kept[len(kept) // 2][0], kept[-1][0]]
    return Reader(good, lambda path: Journal(Checkpoint(path), kept[0][1]), gone_on,
                  files=("outside/checkpoint", "engines/"))


def _written(folder: Path, write: Callable[[Path], Any]) -> bytes:
    path = folder / "good"
    write(path)
    content = path.read_bytes()
    path.unlink()
    return content


def _asked(fit: Any, x: np.ndarray) -> None:
    """A fit that was read answers, and says what it is."""
    fit.log_prob({"x": x}), str(fit.status), fit.summary(), repr(fit)


def _told(estimator: Any) -> None:
    """A fit, or that of an estimator, says what it is."""
    fit = estimator if isinstance(estimator, probml.Fit) else estimator.fit_
    repr(estimator), fit.summary(), str(fit.status), [fit.posterior(name) for name in fit.params]


def _table(path: Path, ending: str) -> Path:
    """As the command line reads a table."""
    named = path.with_suffix(ending)
    path.rename(named)
    try:
        read_table(str(named))
    finally:
        named.rename(path)
    return path


def _streamed(path: Path) -> None:
    """A table as rows on disk, some of which are read at a time."""
    from pyarrow import dataset

    try:
        rows = dataset.dataset(path, format="parquet")
    except (OSError, ValueError):  # of pyarrow's own
        return
    sizes().at({"mean": 1.0, "share": 0.5}).answer(rows, ("log_prob",), to=None)


def judged(reader: Reader, path: Path, trail: guided.Trail | None = None, deep: bool = True) -> str | None:
    """What is wrong with how a file is read: None: nothing; "" where it was read.

    Args:
        deep: what was read is asked too; else where it was read along another trail than any before.
    """
    before, beside = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, sorted(path.parent.rglob("*"))
    watched = trail.run if trail is not None else lambda work: work()

    def stop(*_: Any) -> None:
        raise TimeoutError(f"no answer within {LONG} s")

    for name in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(name, stop)
    signal.setitimer(signal.ITIMER_PROF, LONG)
    signal.alarm(WAITS)
    said: str | None = ""
    new: set[tuple] = set()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = watched(lambda: reader.read(path))
            new = trail.new if trail is not None else new
            if deep or new:
                watched(lambda: reader.asked(found))
    except OURS as error:
        said = None if len(str(error)) > 20 else f"too few words: {error}"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error} at {'/'.join(last.filename.split('/')[-2:])}:{last.lineno}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        if trail is not None:
            trail.new |= new
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    if grown > GROWTH:
        return f"grew by {grown / 2**20:.0f} MB"
    if sorted(path.parent.rglob("*")) != beside:
        return "wrote beside the file"
    return said


def tried(name: str, reader: Reader, folder: Path, seconds: float, seed: int,
          pool: list[bytes] | None = None, most: int = 1000) -> tuple[Counter, dict[str, bytes]]:
    """Changed files for some time: how they were answered, and faults, each place once.

    Args:
        pool: files from which it goes on, and to which those are added that led along another trail.
        most: faults after which it ends.
    """
    random, pool = np.random.default_rng([seed, *name.encode()]), [] if pool is None else pool
    ends, counts, faults = time.monotonic() + seconds, Counter(), {}
    path, trail, asking = folder / "file", guided.Trail(*reader.files), Share()
    for content in [*reader.good, *pool]:
        path.write_bytes(content)
        count(judged(reader, path, trail), name, content, counts, faults)
    pool[:0] = reader.good
    while time.monotonic() < ends and len(faults) < most:
        recent = len(pool) > 20 and random.random() < 0.3
        base = pool[-int(random.integers(1, 20)) if recent else random.integers(len(pool))]
        content = made(reader, base, random, pool)
        path.write_bytes(content)
        with asking as deep:
            found = judged(reader, path, trail, deep)
        count(found, name, content, counts, faults)
        if trail.new and not found and len(content) < guided.LARGE and len(pool) < guided.KEPT:
            pool.append(content)
    counts["trails"] = len(trail.taken)
    counts["kept"] = len(pool)
    return counts, faults


class Share:
    """Whether a file that was read is also asked, which may compile: so that this has about half of the time."""

    def __init__(self) -> None:
        self.spent = [0.0, 0.0]

    def __enter__(self) -> bool:
        self.deep, self.began = self.spent[True] <= self.spent[False], time.process_time()
        return self.deep

    def __exit__(self, *_: object) -> None:
        self.spent[self.deep] += time.process_time() - self.began


def made(reader: Reader, content: bytes, random: np.random.Generator, pool: list[bytes]) -> bytes:
    """A changed file: behind its seal where it can be opened, else as it lies."""
    if random.random() < 0.6:
        try:
            return reader.change(content, random, pool)
        except Exception:  # a change that its format cannot hold
            pass
    return changed(content, random, pool)


def count(found: str | None, name: str, content: bytes, counts: Counter, faults: dict[str, bytes]) -> None:
    counts["refused" if found is None else "fault" if found else "read"] += 1
    if found:
        place = re.sub(r"[-\d.e+]+(?!\d*$)|'[^']*'", "#", found)[-80:]
        if place not in faults:
            print(f"{name}: {found[:300]}\n  {content[:200]!r}", flush=True)
        faults.setdefault(place, content)


def keep(folder: Path | None, name: str, contents: Iterable[bytes]) -> None:
    """Writes files under names that their contents have."""
    for content in contents if folder is not None else ():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}").write_bytes(content)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", help="of files; by default all")
    parser.add_argument("--seconds", type=float, default=600.0,
                        help=f"for all of them together; less than {LEAST} for each: for some, that the seed chooses")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", type=Path, help="where files that are faults go")
    parser.add_argument("--corpus", type=Path, help="a folder of files from which it goes on, and where new ones go")
    said = parser.parse_args()
    print(f"seed {said.seed}", flush=True)
    total = 0
    with tempfile.TemporaryDirectory() as made_in, tempfile.TemporaryDirectory() as other:
        every = readers(Path(made_in))
        kinds = said.kinds or list(every)
        few = max(int(said.seconds / LEAST), 1)
        if few < len(kinds):
            kinds = list(np.random.default_rng(said.seed).permutation(kinds)[:few])
        for name in kinds:
            began = time.process_time()
            place = None if said.corpus is None else said.corpus / name
            pool = [] if place is None or not place.is_dir() else [one.read_bytes() for one in sorted(place.iterdir())]
            counts, faults = tried(name, every[name](), Path(other), said.seconds / len(kinds), said.seed, pool)
            total += len(faults)
            print(f"# {name}: {dict(counts)}, {time.process_time() - began:.0f} s of processor", flush=True)
            keep(said.keep, name, faults.values())
            keep(place, name, pool)
    return int(total > 0)


if __name__ == "__main__":
    os.environ.setdefault("PROBML_CACHE", "0")
    sys.exit(main())
