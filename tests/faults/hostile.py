"""Files that are not what they say: `python tests/faults/hostile.py [fit bif checkpoint cache csv parquet]
--seconds 600`.

Good files are changed at random, by bytes and by words, one time after another: what was read and
not refused is changed further, so that changes which reach deeper are followed. A reader answers,
or refuses in words of ours that name the file; within seconds, with memory bounded, and it writes
nothing beside the file.
"""

import argparse
import gzip
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
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import probml
from faults import POINT, clusters
from probml import models
from probml.models.commandline.files import read_table
from probml.numerics.kept import disk
from probml.numerics.outside.checkpoint import Checkpoint, Journal

OURS = (probml.ModelError, probml.DataError, probml.Refusal)
LONG = 60  # seconds that a reader may take
GROWTH = 2**29  # bytes by which reading may let the process grow
KEPT = 40  # changed files from which it goes on
WORDS = (b"", b"0", b"-1", b"1e400", b"nan", b"{", b"}", b"(", b")", b";", b",", b"|", b'"', b"//", b"/*",
         b"probability", b"variable", b"table", b"default", b"type discrete [ 99999999 ]", b"\x00",
         "é".encode("latin-1"), b"9" * 400, b"a" * 70000, b"\n" * 1000, b"../../escaped")


class Reader(NamedTuple):
    """A kind of file: good ones, and who reads a path."""

    good: list[bytes]
    read: Callable[[Path], Any]


def changed(content: bytes, random: np.random.Generator) -> bytes:
    """A file with something changed in it."""
    out = bytearray(content)
    for _ in range(int(random.integers(1, 4))):
        if not out:
            break
        at, kind = int(random.integers(len(out))), int(random.integers(7))
        span = int(min(len(out) - at, random.integers(1, 2 + len(out) // 8)))
        if kind == 0:
            out[at] ^= 1 << int(random.integers(8))
        elif kind == 1:
            del out[at:]
        elif kind == 2:
            del out[at : at + span]
        elif kind == 3:
            out[at:at] = out[at : at + span] * int(random.integers(1, 4))
        elif kind == 4:
            out[at : at + 4] = random.bytes(4)
        elif kind == 5:
            out[at:at] = WORDS[random.integers(len(WORDS))]
        else:  # a word or a number in the place of another
            found = list(re.finditer(rb"[A-Za-z_0-9.+-]+|[{}()\[\],;|\"]", bytes(out[:200_000])))
            if found:
                one, other = (found[random.integers(len(found))] for _ in range(2))
                new = other.group() if random.random() < 0.6 else WORDS[random.integers(len(WORDS))]
                out[one.start() : one.end()] = new
    return bytes(out)


def readers(folder: Path) -> dict[str, Reader]:
    """Of every kind of file."""
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 2)) + np.repeat([[0.0], [4.0]], 20, 0)
    fits = [clusters().at(POINT), clusters().fit({"x": x}, probml.EM(restarts=1, max_iterations=5)),
            clusters().fit({"x": x}, probml.NUTS(draws=5, warmup=5, chains=1)),
            clusters().fit({"x": x}, probml.Laplace())]
    saved = [_written(folder, fit.save) for fit in fits]
    rain = probml.models.learn_structure(
        {"a": random.integers(0, 2, 40), "b": random.integers(0, 3, 40)}, max_parents=1)
    network = models.bayesian_network(rain, states={"a": ["no", "yes"], "b": ["u", "v", "w"]}).at(
        {"a.table": [0.3, 0.7], "b.table": [[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]]} if ("a", "b") in rain.edges
        else {"a.table": [0.3, 0.7], "b.table": [0.2, 0.3, 0.5]})
    bif = [_written(folder, lambda path: models.write_bif(network, path))]
    bif.append(gzip.compress(bif[0]))
    kept, note = [], Journal.note

    def noted(self: Journal, key: Any, past: Any) -> None:
        note(self, key, past)
        kept.append((self.path.read_bytes(), self.of))

    Journal.note = noted
    try:
        clusters().fit({"x": x}, probml.EM(max_iterations=60, tolerance=0.0, accelerate=False, restarts=2),
                       checkpoint=Checkpoint(folder / "state", seconds=0))
    finally:
        Journal.note = note
    of = kept[0][1]
    frame = pd.DataFrame({"x": x[:, 0], "word": np.array(["no", "yes"])[random.integers(2, size=40)]})
    csv = _written(folder, lambda path: frame.to_csv(path, index=False))
    parquet = _written(folder, lambda path: frame.to_parquet(path, index=False, row_group_size=10))
    own = disk.Folder(folder / "programs")
    own.put("key", b"program" * 100)
    program = (folder / "programs" / "key").read_bytes()

    def cached(path: Path) -> Any:
        (folder / "programs" / "key").write_bytes(path.read_bytes())
        assert own.get("key") in (None, b"program" * 100), "a program that is not the one that was kept"

    return {
        "fit": Reader(saved, lambda path: _asked(probml.load(path, clusters()), x)),
        "bif": Reader(bif, lambda path: models.read_bif(path).simulate(2)),
        "checkpoint": Reader([kept[0][0], kept[-1][0]], lambda path: Journal(Checkpoint(path), of)),
        "cache": Reader([program], cached),
        "csv": Reader([csv], lambda path: _table(path, ".csv")),
        "parquet": Reader([parquet], lambda path: _table(path, ".parquet")),
    }


def _written(folder: Path, write: Callable[[Path], Any]) -> bytes:
    path = folder / "good"
    write(path)
    content = path.read_bytes()
    path.unlink()
    return content


def _asked(fit: Any, x: np.ndarray) -> None:
    """A fit that was read answers, and says what it is."""
    fit.log_prob({"x": x}), str(fit.status), fit.summary(), repr(fit)


def _table(path: Path, ending: str) -> None:
    """As the command line reads a table."""
    named = path.with_suffix(ending)
    path.rename(named)
    try:
        read_table(str(named))
    finally:
        named.rename(path)


def judged(reader: Reader, path: Path) -> str | None:
    """What is wrong with how a file is read: None: nothing; "" where it was read."""
    before, beside = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, sorted(path.parent.rglob("*"))

    def stop(*_: Any) -> None:
        raise TimeoutError(f"no answer within {LONG} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(LONG)
    said: str | None = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(path)
    except OURS as error:
        said = None if len(str(error)) > 20 else f"too few words: {error}"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error} at {'/'.join(last.filename.split('/')[-2:])}:{last.lineno}"
    finally:
        signal.alarm(0)
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    if grown > GROWTH:
        return f"grew by {grown / 2**20:.0f} MB"
    if sorted(path.parent.rglob("*")) != beside:
        return "wrote beside the file"
    return said


def tried(name: str, reader: Reader, folder: Path, seconds: float, seed: int) -> tuple[Counter, list]:
    """Changed files for some time: how they were answered, and faults, each place once."""
    random, pool = np.random.default_rng([seed, *name.encode()]), list(reader.good)
    ends, counts, faults = time.monotonic() + seconds, Counter(), {}
    path = folder / "file"
    while time.monotonic() < ends:
        content = changed(pool[random.integers(len(pool))], random)
        path.write_bytes(content)
        found = judged(reader, path)
        counts["refused" if found is None else "fault" if found else "read"] += 1
        if found:
            place = re.sub(r"[-\d.e+]+(?!\d*$)|'[^']*'", "#", found)[-80:]
            if place not in faults:
                print(f"{name}: {found[:300]}\n  {content[:200]!r}", flush=True)
            faults.setdefault(place, content)
        elif found == "" and len(content) < 200_000:  # goes on from there
            pool = [*pool, content] if len(pool) < KEPT else [
                *reader.good, *(one for one in pool[len(reader.good) :] if random.random() < 0.5)]
    return counts, list(faults.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", help="of files; by default all")
    parser.add_argument("--seconds", type=float, default=600.0, help="for all of them together")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", type=Path, help="where files that are faults go")
    said = parser.parse_args()
    print(f"seed {said.seed}", flush=True)
    total = 0
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryDirectory() as other:
        every = readers(Path(made))
        kinds = said.kinds or list(every)
        for name in kinds:
            began = time.process_time()
            counts, faults = tried(name, every[name], Path(other), said.seconds / len(kinds), said.seed)
            total += len(faults)
            print(f"# {name}: {dict(counts)}, {time.process_time() - began:.0f} s of processor", flush=True)
            for i, content in enumerate(faults if said.keep else []):
                said.keep.mkdir(parents=True, exist_ok=True)
                (said.keep / f"{name}-{said.seed}-{i}").write_bytes(content)
    return int(total > 0)


if __name__ == "__main__":
    os.environ.setdefault("PROBML_CACHE", "0")
    sys.exit(main())
