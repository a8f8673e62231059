"""The process-wide changes during tracing, lowering and compilation of our programs.

NumPyro checks the arguments of distributions eagerly, also within a trace: two dozen small programs
for one covariance matrix. Arguments have been checked before, so these checks are off meanwhile.

Loops of a CPU program with little data are compiled as one piece of machine code each. XLA runs a
program as a list of kernels, a call each, and loops and branches as lists of their own: of a
leapfrog in ten coordinates the calls take five sixths. Loops that pass over less than a kilobyte it
compiles whole, with all loops and branches inside; how small is an option, but one in a
map, `xla_backend_extra_options`, which jax.jit cannot be given. So the options that JAX has made
are written out and read again with one more entry. The numbers of its fields and where JAX makes
options are not public (jaxpr/compat.py): where they are not found loops stay as they were
(tests/numerics/test_whole_loops.py fails then).

Loops with sorts, scatters or calls of LAPACK inside are left by XLA as they are. It computes the
same either way, operation by operation.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

from numpyro.distributions import Distribution

from probml.jaxpr import compat
from probml.jaxpr.compat import OFF
from probml.numerics import lapack
from probml.numerics.process.shared_changes import (
    SharedChange,
    assigned,
    no_change,
    uncollected,
)

_UNCHECKED: contextvars.ContextVar[bool] = contextvars.ContextVar("unchecked", default=False)


class _Checks:
    """NumPyro's default of whether distributions check their arguments: as it was set, and off
    within `unchecked`. NumPyro has one value for all threads; a thread that turned it on again
    would have checked what another one traces."""

    def __init__(self, on: bool):
        self.on = on

    def __get__(self, own: object, kind: type | None = None) -> bool:
        return self.on and not _UNCHECKED.get()

    def set(self, value: bool) -> None:
        if value not in (True, False):
            raise ValueError(f"expected True or False, got {value!r}")
        self.on = value


_CHECKS = _Checks(Distribution._validate_args)
Distribution._validate_args = _CHECKS
Distribution.set_default_validate_args = staticmethod(_CHECKS.set)


def unchecked() -> contextlib.AbstractContextManager[None]:
    """NumPyro's checks of arguments are off within, in this thread."""
    return assigned(_UNCHECKED, True)


LEVEL = "xla_backend_optimization_level"
# an option beside XLA's own: bytes up to which a loop is one piece
WHOLE_LOOPS = "probml_whole_loops"
_OPTION = b"xla_cpu_small_while_loop_byte_threshold"
# of CompileOptionsProto, ExecutableBuildOptionsProto and DebugOptions, from without to within
_FIELDS = (3, 3, 500)


@functools.cache
def whole_loops_known() -> bool:
    """Whether options may have WHOLE_LOOPS inside `whole_loops`."""
    if "whole_loops" in OFF:
        return False
    try:
        options_type = compat.compile_options()[1]
        with_entry = _entered(options_type().SerializeAsString(), 1)
        parsed = options_type.ParseFromString(with_entry).SerializeAsString()
    except Exception:  # of another build
        return False
    return parsed.count(_OPTION) == 1 and len(parsed) <= 2 * len(with_entry)


def _enable() -> Callable[[], object]:
    if not whole_loops_known():
        return no_change
    compiler, options_type = compat.compile_options()
    original = compiler.get_compile_options

    @functools.wraps(original)
    def options(*args: object, **keywords: Any) -> object:
        overrides = keywords.get("env_options_overrides") or {}
        if WHOLE_LOOPS not in overrides:
            return original(*args, **keywords)
        keywords["env_options_overrides"] = {k: v for k, v in overrides.items() if k != WHOLE_LOOPS}
        serialised = original(*args, **keywords).SerializeAsString()
        if _OPTION not in serialised:  # else the user has set it
            serialised = _entered(serialised, overrides[WHOLE_LOOPS])
        return options_type.ParseFromString(serialised)

    compiler.get_compile_options = options
    return lambda: setattr(compiler, "get_compile_options", original)


whole_loops = SharedChange(_enable)
"""Within it JAX's own compilations take WHOLE_LOOPS among their options."""


def _entered(options: bytes, size: int) -> bytes:
    """Serialised options with one entry more: protocol buffers merge appended fields."""
    entry = _field(1, _OPTION) + _field(2, str(size).encode())
    for number in reversed(_FIELDS):
        entry = _field(number, entry)
    return options + entry


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


@contextlib.contextmanager
def making() -> Iterator[None]:
    """A context for tracing and compilation: without NumPyro's checks, with large batches of
    matrices split (lapack.py), with XLA's option for whole loops, and without garbage
    collection."""
    no_context = contextlib.nullcontext
    with (lapack.guarded(), whole_loops(), (no_context if "validation" in OFF else unchecked)(),
          (no_context if "collector" in OFF else uncollected)()):
        yield
