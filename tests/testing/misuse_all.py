"""`python tests/testing/misuse_all.py [part of a name]`: every public call with every argument
misused; prints each fault, and how many were tried."""

import sys
import time
import warnings

import calls

from probml.testing import misuse


def main(part: str = "") -> int:
    faults, tried = 0, 0
    warnings.simplefilter("ignore")
    for name, (call, arguments) in {**calls.calls(), **calls.face_calls()}.items():
        if part not in name:
            continue
        start = time.monotonic()
        for fault in misuse.misused(name, call, arguments):
            print(fault, flush=True)
            faults += 1
        tried += len(arguments) * len(misuse.odd())
        print(f"# {name}: {time.monotonic() - start:.0f} s", flush=True)
    print(f"# {tried} tried, {faults} faults")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
