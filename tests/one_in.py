"""Which cases of a long list `-m slow` runs. A test marked `@pytest.mark.one_in(10)` runs a tenth of its
slow cases: those whose names have the smallest checksums, so that a case that is added displaces one
other at most. All of them are run, another tenth every day, by `make slow`, and by whoever names the
test (`pytest FILE::test`, or `-k`).
"""

import zlib
from collections import defaultdict


def checksum(item) -> int:
    return zlib.crc32(item.nodeid.encode())


def left_out(items) -> set[str]:
    """Node ids of the slow cases that their test's mark leaves out."""
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("one_in") and item.get_closest_marker("slow"):
            cases[item.nodeid.partition("[")[0]].append(item)
    left: set[str] = set()
    for own in cases.values():
        kept = -(-len(own) // own[0].get_closest_marker("one_in").args[0])  # rounded up
        left |= {item.nodeid for item in sorted(own, key=checksum)[kept:]}
    return left
