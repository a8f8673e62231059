"""hostile.py with files that libFuzzer chooses: `python tests/faults/libfuzzer.py bif --seconds 3600 --corpus FOLDER`,
in an environment that has atheris beside probml (pip install atheris; it is no dependency).

libFuzzer follows the branches and comparisons of the same code as guided.py, counts them, and keeps in the folder what
led further; half of its changes are its own, half those of guided.py, behind the seals. What is at fault is printed and
kept as by hostile.py, and the run goes on.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import atheris

FOLLOWED = ["probml.interface", "probml.fits", "probml.estimators.portable", "probml.posteriors", "probml.language",
            "probml.dataset", "probml.numerics.outside", "probml.numerics.kept", "probml.structure.trace",
            "probml.models.bayesian_networks", "probml.models.commandline", "zipfile", "numpy.lib"]
with atheris.instrument_imports(include=FOLLOWED):
    import hostile
    import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 2**31)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--corpus", type=Path, required=True)
    said = parser.parse_args()
    corpus, folder = said.corpus / said.kind, Path(tempfile.mkdtemp())
    corpus.mkdir(parents=True, exist_ok=True)
    (folder / "made").mkdir(), (folder / "read").mkdir()
    reader = hostile.readers(folder / "made")[said.kind]()
    for i, good in enumerate(reader.good):
        (corpus / f"good-{i}").write_bytes(good)
    path, counts, faults = folder / "read" / "file", Counter(), {}
    random, asking, began = np.random.default_rng(said.seed), hostile.Share(), time.process_time()

    def one(content: bytes) -> None:
        path.write_bytes(content)
        with asking as deep:
            found = hostile.judged(reader, path, deep=deep)
        hostile.count(found, said.kind, content, counts, faults)
        if time.monotonic() > ends:  # libFuzzer ends a process without a word
            told()
            os._exit(int(bool(faults)))

    def change(content: bytes, most: int, seed: int) -> bytes:
        if random.random() < 0.5:
            return atheris.Mutate(content, most)
        return hostile.made(reader, content, np.random.default_rng(seed), [])[:most]

    def told() -> None:
        print(f"# {said.kind}: {dict(counts)}, {len(list(corpus.iterdir()))} files in the corpus, "
              f"{time.process_time() - began:.0f} s of processor", flush=True)
        hostile.keep(said.keep, said.kind, faults.values())

    ends = time.monotonic() + said.seconds
    atheris.Setup([sys.argv[0], str(corpus), f"-seed={said.seed}", "-timeout=0", "-rss_limit_mb=0", "-max_len=65536",
                   "-verbosity=0"], one, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    os.environ.setdefault("PROBML_CACHE", "0")
    main()
