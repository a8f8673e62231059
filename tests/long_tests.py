"""Which tests are left to `make test-all`: those that took longer than LONG seconds where nothing
was compiled yet, as measured.

`make times` measures them again, all but those marked slow by hand, on an empty cache, and rewrites
long_tests.txt beside this file.
"""

import sys
from collections import defaultdict
from pathlib import Path

LONG = 3.0  # seconds of two busy cores
ALWAYS = "test_the_readme_prints"  # what a newcomer types is run by every `make test`
LIST = Path(__file__).with_suffix(".txt")


def long_tests() -> set[str]:
    """Their node ids."""
    return {line.split("\t")[1] for line in LIST.read_text().splitlines()}


def rewrite(times: Path) -> None:
    """The list anew from lines `seconds, node id`, one for every phase of every test."""
    seconds: dict[str, float] = defaultdict(float)
    for line in times.read_text().splitlines():
        duration, name = line.split("\t")
        seconds[name] += float(duration)
    found = sorted((name, time) for name, time in seconds.items()
                   if time > LONG and ALWAYS not in name)
    LIST.write_text("".join(f"{time:.0f}\t{name}\n" for name, time in found))


if __name__ == "__main__":
    rewrite(Path(sys.argv[1]))
