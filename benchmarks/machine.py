"""What a figure depends on beside the code: versions, the machine's own speed, other work on it,
and the most memory that a call took.

Linux tells of other work and of peaks; elsewhere these are None, and no figure is called quiet.
"""

import contextlib
import json
import os
import platform
import resource
import subprocess
import sys
import time

QUIET = 0.5  # cores that other work may take
PACKAGES = ("numpy", "scipy", "jax", "jaxlib", "numpyro", "scikit-learn", "torch", "hmmlearn",
            "dynamax", "pyagrum", "nutpie", "pymc", "blackjax")
ASK = """
import importlib.metadata as kept, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = kept.version(name)
    except kept.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def versions(python: str = sys.executable) -> dict[str, str]:
    """Package -> version, of those that an interpreter has; {} where it cannot be asked."""
    with contextlib.suppress(OSError, ValueError):
        done = subprocess.run([python, "-c", ASK, *PACKAGES], capture_output=True, text=True)
        return json.loads(done.stdout)
    return {}


def load() -> float:
    """Processes that wait for a core or have one, the average of a minute, this one included."""
    return os.getloadavg()[0]


def about() -> str:
    """The machine and this interpreter in a line."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{platform.machine()}, {cores} cores, Python {platform.python_version()}, load {load():.2f}"


class Others:
    """How many cores work on something else than this process and its children, from here on.

    Children count once they have ended and were waited for: ask after that.
    """

    def __init__(self) -> None:
        self._busy, self._own, self._at = _busy(), _own(), time.monotonic()

    def cores(self) -> float | None:
        busy = _busy()
        if busy is None or self._busy is None:
            return None
        passed = time.monotonic() - self._at
        return max(0.0, (busy - self._busy - (_own() - self._own)) / max(passed, 1e-3))


def verdict(cores: float | None) -> str:
    """In words, whether a figure counts as one of a quiet machine."""
    if cores is None:
        return "other work unknown: not called quiet"
    return f"{'quiet' if cores <= QUIET else 'NOT QUIET'}: other work {cores:.2f} cores"


def _busy() -> float | None:
    """Seconds that all cores have worked, or were taken by other machines, since boot."""
    with contextlib.suppress(OSError):
        with open("/proc/stat") as lines:
            user, nice, system, _, _, irq, soft, steal, *_ = map(int, lines.readline().split()[1:])
        return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")
    return None


def _own() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


class Peak:
    """Megabytes of resident memory that were added at the most, from here on."""

    def __init__(self) -> None:
        self._before = None
        with contextlib.suppress(OSError):
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")  # the high-water mark falls to what is resident
            self._before = _status("VmRSS")

    def megabytes(self) -> float | None:
        return None if self._before is None else (_status("VmHWM") - self._before) / 1e3


def _status(name: str) -> int:
    """kB."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name))
