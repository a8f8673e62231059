"""Which tests are left to `make test-all`: the longest, as measured where nothing was compiled yet,
so many that those which are left take BUDGET seconds of a core; a file keeps its shortest test.

`make times` measures them again, all but those marked slow by hand, on an empty cache, and rewrites
long_tests.txt beside this file. What it did not measure stays in the list.
"""

import sys
from collections import Counter, defaultdict
from pathlib import Path

BUDGET = 900.0  # seconds of a core: two of them take seven and a half minutes
ALWAYS = "test_the_readme_prints"  # what a newcomer types is run by every `make test`
LIST = Path(__file__).with_suffix(".txt")


def long_tests() -> set[str]:
    """Their node ids."""
    return {line.split("\t")[1] for line in LIST.read_text().splitlines()}


def file_of(name: str) -> str:
    return name.partition("::")[0]


def rewrite(times: Path) -> None:
    """The list anew from lines `seconds, node id`, one for every phase of every test."""
    seconds: dict[str, float] = defaultdict(float)
    for line in times.read_text().splitlines():
        duration, name = line.split("\t")
        seconds[name] += float(duration)
    listed = (line.split("\t") for line in LIST.read_text().splitlines())
    found = {name: float(time) for time, name in listed if name not in seconds}
    left, of_file = sum(seconds.values()), Counter(map(file_of, seconds))
    for name in sorted(seconds, key=seconds.__getitem__, reverse=True):
        if left <= BUDGET:
            break
        if ALWAYS not in name and of_file[file_of(name)] > 1:
            of_file[file_of(name)] -= 1
            found[name] = seconds[name]
            left -= seconds[name]
    LIST.write_text("".join(f"{found[name]:.0f}\t{name}\n" for name in sorted(found)))


if __name__ == "__main__":
    rewrite(Path(sys.argv[1]))
