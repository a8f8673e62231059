"""`python tests/testing/misuse_all.py [part of a name]`: every public call with every argument
misused; prints each fault, and how many were tried."""

import os
import sys
import tempfile
import time
import warnings
from collections import Counter

import calls

from probml.testing import misuse


def main(part: str = "") -> int:
    faults, tried = 0, 0
    warnings.simplefilter("ignore")
    os.chdir(tempfile.mkdtemp())  # 'text' is the name of a file
    for name, (call, arguments) in {**calls.calls(), **calls.face_calls()}.items():
        if part not in name:
            continue
        start = time.monotonic()
        places = Counter()  # one place is told once
        for fault in misuse.misused(name, call, arguments):
            place = fault.argument, fault.what.rpartition(" at ")[2]
            if not places[place]:
                print(fault, flush=True)
            places[place] += 1
        faults += sum(places.values())
        tried += len(arguments) * len(misuse.odd())
        print(f"# {name}: {time.monotonic() - start:.0f} s", flush=True)
    print(f"# {tried} tried, {faults} faults")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
