"""`make nightly`: the other targets that look for faults, one after the other, each with its share of the
seconds: `python tests/nightly.py --seconds 36000 --seed 7`, in an environment that is made. A part that ends early leaves its seconds to
those after it. Exit status 1 where one has found something; all are run.
"""

import argparse
import subprocess
import sys
import time

SHARES = {"slow": 2, "fuzz": 2, "faults": 1, "hostile": 1, "misuse": 1, "certificates": 1}
LEAST = 1  # second that a part is given, in which it does one thing of its kind
HOUR = 3600  # a shorter run leaves out the slow tests, which take a minute to collect


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=36_000.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    said = parser.parse_args()
    print(f"seed {said.seed}", flush=True)
    ends, found, beyond = time.monotonic() + said.seconds, [], 0.0
    shares = {part: own for part, own in SHARES.items() if part != "slow" or said.seconds >= HOUR}
    for part in list(shares):
        began = time.monotonic()
        share = (ends - began) * shares[part] / sum(shares.values())
        given = max(round(share - beyond), LEAST)
        print(f"## make {part} SECONDS={given} SEED={said.seed}", flush=True)
        status = subprocess.run(["make", "--no-print-directory", "-o", "env", part, f"SECONDS={given}",
                                 f"SEED={said.seed}"]).returncode
        took = time.monotonic() - began
        beyond = max(took - given, 0.0)  # to begin, and to end what had begun: so the next one has, too
        del shares[part]
        found += [part] if status else []
        print(f"## {part}: {took:.0f} s, status {status}", flush=True)
    print(f"## found something: {', '.join(found) or 'none'}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
