"""Counts what JAX traces and compiles: a claim of "compiles nothing" is a number here."""

import contextlib
import sys

import jax

import probml
from probml.numerics import compiling
from probml.numerics.kept import programs

PACKAGE, OF_PROGRAMS = probml.__path__[0], (compiling.__file__, programs.__file__)

_EVENTS: list[str] = []  # "event: program"
_COMPILED: list[str] = []  # the names of programs
_UNKEPT: list[str] = []  # "file:line" of probml, of programs that are compiled again in each process


@jax.monitoring.register_event_duration_secs_listener
def _listen(event: str, duration: float, **more) -> None:
    _EVENTS.append(f"{event}: {more.get('fun_name', '?')}")
    if event.endswith("backend_compile_duration"):
        _COMPILED.append(more.get("fun_name", "?"))
        _note_unkept()


def _note_unkept() -> None:
    frame, ours = sys._getframe(2), []
    while frame is not None:
        if frame.f_code.co_filename in OF_PROGRAMS:
            return
        if frame.f_code.co_filename.startswith(PACKAGE):
            ours.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        frame = frame.f_back
    _UNKEPT.extend(ours[:1])


@contextlib.contextmanager
def counted():
    """Yields a list that on leaving holds the names of the programs' lowerings and compilations
    made inside."""
    start, found = len(_EVENTS), []
    try:
        yield found
    finally:
        wanted = ("jaxpr_to_mlir_module", "backend_compile")
        found += [event for event in _EVENTS[start:] if any(word in event for word in wanted)]


@contextlib.contextmanager
def compiled():
    """Yields a list that on leaving holds the names of the programs that were compiled inside, or
    read from a cache of compiled ones."""
    start, found = len(_COMPILED), []
    try:
        yield found
    finally:
        found += _COMPILED[start:]


@contextlib.contextmanager
def unkept():
    """Yields a list that on leaving holds the lines of the package that made JAX compile a program
    of its own, which no later process finds: an operation outside `compiling.jit`."""
    start, found = len(_UNKEPT), []
    try:
        yield found
    finally:
        found += _UNKEPT[start:]
