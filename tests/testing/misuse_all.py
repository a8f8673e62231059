"""`python tests/testing/misuse_all.py [parts of names] [--share 0.1] [--seconds 600] [--seed 0]`: every
public call with every argument misused, and every command of the shell with every word, or a share of
these by chance, or so many as the seconds allow, in an order of the seed's and at least one; prints
each fault, and how many were tried."""

import argparse
import os
import random
import sys
import tempfile
import time
import warnings
from collections import Counter

import calls
import picture_calls
import shell_calls
from random_models import misuse


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=[""], help="of names")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    faults, tried, ends = 0, 0.0, time.monotonic() + (asked.seconds or float("inf"))
    warnings.simplefilter("ignore")
    os.chdir(tempfile.mkdtemp())  # 'text' is the name of a file
    every = {**calls.calls(), **calls.estimator_calls(), **picture_calls.drawn()}
    commands = {f"probml {name}": name for name in shell_calls.COMMANDS}
    names = [name for name in (*every, *commands) if any(part in name for part in asked.parts)]
    if asked.seconds is not None:
        random.Random(asked.seed).shuffle(names)
    for name in names:
        if tried and time.monotonic() > ends:
            break
        start = time.monotonic()
        if name in commands:
            found = list(shell_calls.misused(commands[name], asked.share, asked.seed))
            tried += len(found)
        else:
            call, arguments = every[name]
            found = misuse.misused(name, call, arguments, share=asked.share, seed=asked.seed)
            tried += len(arguments) * len(misuse.odd()) * asked.share
        places = Counter()  # one place is told once
        for fault in filter(None, found):
            place = fault.argument, fault.what.rpartition(" at ")[2]
            if not places[place]:
                print(fault, flush=True)
            places[place] += 1
        faults += sum(places.values())
        print(f"# {name}: {time.monotonic() - start:.0f} s", flush=True)
    print(f"# {tried:.0f} tried, {faults} faults")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
