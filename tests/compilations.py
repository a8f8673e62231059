"""Counts what JAX traces and compiles: a claim of "compiles nothing" is a number here."""

import contextlib

import jax

_EVENTS: list[str] = []  # "event: program"
_COMPILED: list[str] = []  # the names of programs


@jax.monitoring.register_event_duration_secs_listener
def _listen(event: str, duration: float, **more) -> None:
    _EVENTS.append(f"{event}: {more.get('fun_name', '?')}")
    if event.endswith("backend_compile_duration"):
        _COMPILED.append(more.get("fun_name", "?"))


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
