"""A cache on disk of compiled programs, which are found without tracing: the compiled program of a
function of ours at given static arguments and shapes, by the digest of all that it depends on.

Tracing and lowering a fit takes as long as compiling it, and JAX's own cache is looked up after
both. So compiled programs are stored whole (`jax.experimental.serialize_executable`) under the
digest of the function's name, its static arguments, the shapes and dtypes of the others, XLA's
options, JAX's settings, and all versions (identity.py). Where one of these has no digest, the
program is traced and lowered, and its text is the key.

The folder is that of disk.py, which checks who may write there: a file that is read is executed, as
with JAX's cache.

Releases cached programs before the process runs out of memory mappings or memory.

A compiled program holds memory and several memory mappings, of which Linux allows a process 65,530;
JAX keeps all programs, and a process that exceeds the limit is killed. So after some programs have
been compiled the mappings are counted; where they are many, the least recently used of our programs
are released, then JAX's caches, whose programs are found on disk or compiled when needed again.

Memory fills long before that: there are some 0.3 megabytes of programs and traces per mapping, five
gigabytes per twenty thousand. So programs are also released where the process has grown by
MAX_GROWTH since the last release and there are MIN_NEW_MAPPINGS new mappings, which user data do
not cause, or MAX_PROGRAMS new programs: those that NumPy runs have no mappings, but traces. C's
allocator keeps the memory that JAX frees; half of it returns to the system only by malloc_trim.
"""

import contextlib
import ctypes
import functools
import gc
import inspect
import os
import pickle
import sys
import threading
import weakref
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.api_util import shaped_abstractify
from jax.experimental import serialize_executable
from jax.tree_util import PyTreeDef

from probml.jaxpr import memo
from probml.jaxpr.compat import OFF, start_lapack, trace_settings
from probml.jaxpr.cost import count_operations
from probml.jaxpr.program import equations
from probml.jaxpr.tapes.operation import TooLong
from probml.jaxpr.tapes.recorded import Tape, record
from probml.numerics import identity
from probml.numerics.kept import disk
from probml.numerics.process.making import LEVEL, making
from probml.typing import PyTree

FORMAT = 3  # of the files
# Numbers that an equation of a program computes in a call, at the least, such that XLA's full level
# pays, times the seconds that a call may take in NumPy, which are the fewer the more calls there
# are. The level takes half a millisecond more to compile an equation, and saves 0.4 to 5 ns a
# number: 3e4 in some ten calls of a fit, a tenth for queries.
MIN_OPERATIONS = 1.5e6
_LAPACK = b"lapack_"
_CALLS_BACK = (b"_python_cpu_callback", b"_python_gpu_callback")  # by address, into this process


@dataclass(eq=False)
class NumpyProgram:
    """A program that NumPy runs; its results are on the device, as compiled ones, or on the host.
    """

    tape: Tape
    results: PyTreeDef  # the tree of the results
    compiled: Callable  # the program by XLA, for a loop that turns out to be long
    on_host: bool

    def __call__(self, *args: object) -> PyTree:
        try:
            results = self.tape.run(jax.tree.leaves(args))
        except TooLong:
            return self.compiled(*args)
        if self.on_host:
            return jax.tree.unflatten(self.results, results)
        placed = [jax.random.wrap_key_data(value) if key else value
                  for value, key in zip(jax.device_put(results), self.tape.keys, strict=True)]
        return jax.tree.unflatten(self.results, placed)


class ProgramCache:
    """The programs of one function, by static arguments, shapes and options.

    Args:
        function: the function; only one of ours that is no closure can be found on disk.
        keywords: of jax.jit.
        seldom: seconds that a call may take by NumPy, without being compiled.
        on_host: results that NumPy computes stay on the host.
    """

    def __init__(self, function: Callable, keywords: dict[str, Any], seldom: float = 0.0,
                 on_host: bool = False):
        self._function, self._keywords, self._seldom = function, keywords, seldom
        self._on_host = on_host
        self._programs: OrderedDict[tuple,
                                    Callable | None] = OrderedDict()  # most recently used last
        _CACHES.add(self)
        names = list(inspect.signature(function).parameters)
        numbers, named = (keywords.get(key, ()) for key in ("static_argnums", "static_argnames"))
        numbers = (numbers,) if isinstance(numbers, int) else tuple(numbers)
        named = (named,) if isinstance(named, str) else tuple(named)
        self.static = frozenset((*numbers, *map(names.index, named)))

    def find(self, args: Sequence[PyTree], options: dict | None) -> Callable | None:
        """The program for these arguments, to be called with those that are not static: from
        memory, from disk, or compiled and stored. None: the caller uses jax.jit, since there is no
        cache on disk, or arguments are on several devices.
        """
        folder = None if "programs" in OFF else disk.folder()
        use_tape = "tapes" not in OFF and self._seldom > 0 and jax.default_backend() == "cpu"
        if any(isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1
               for leaf in jax.tree.leaves(args)):
            return None  # where its arguments lie is part of such a program
        debugging = jax.config.jax_disable_jit or jax.config.jax_debug_nans or (
            jax.config.jax_debug_infs)
        if debugging or folder is None and not use_tape:
            return None
        dynamic = [value for i, value in enumerate(args) if i not in self.static]
        fixed = [value for i, value in enumerate(args) if i in self.static]
        leaves, tree = jax.tree.flatten((tuple(dynamic), {}))
        avals = tuple(map(shaped_abstractify, leaves))
        key = (tuple(fixed), tree, avals, trace_settings())
        if key in self._programs:
            with contextlib.suppress(KeyError):  # released by another thread
                self._programs.move_to_end(key)
                return self._programs[key]
        try:
            name = None if folder is None else self._name(fixed, tree, avals, options)
        except identity.Nameless:
            name = None
        count_program()
        program: Callable | None
        if folder is None:
            program = self._record_tape(self._trace(args, options), fixed,
                                        options) if use_tape else None
            self._programs[key] = program
            return program
        entry = None if name is None else _read(folder, name, tree)
        request = (key, fixed, folder, name, args, options)
        if entry is None:
            program = self._compile_and_store(*request)
        elif isinstance(entry[0], Tape):
            program = NumpyProgram(entry[0], entry[1], self._by_jit(fixed, options), self._on_host)
        else:
            program = self._with_recompilation(entry[0], *request)
        self._programs[key] = program
        return program

    def release_half(self) -> None:
        """Releases the least recently used half of the programs."""
        for _ in range(len(self._programs) // 2):
            self._programs.popitem(last=False)

    def _trace(self, args: Sequence[PyTree], options: dict | None) -> jax.stages.Traced:
        with making():
            return jax.jit(self._function, compiler_options=options, **self._keywords).trace(*args)

    def _record_tape(self, traced: jax.stages.Traced, fixed: list,
                     options: dict | None) -> NumpyProgram | None:
        """The traced program as NumPy calls; None where that would take too long, or is not
        possible."""
        jaxpr, n_leaves = traced.jaxpr, len(jax.tree.leaves(traced.args_info))
        if "tapes" in OFF or not self._seldom or len(jaxpr.in_avals) != n_leaves:
            return None
        tape = record(jaxpr, self._seldom)
        results = jax.tree.structure(traced.out_info)
        return None if tape is None else NumpyProgram(tape, results, self._by_jit(fixed, options),
                                                      self._on_host)

    def _by_jit(self, fixed: list, options: dict | None) -> Callable:
        """The program by jax.jit, a function of the arguments that are not static."""
        jitted = jax.jit(self._function, compiler_options=options, **self._keywords)

        def call(*dynamic: object) -> PyTree:
            static, rest = iter(fixed), iter(dynamic)
            with making():
                return jitted(*(next(static if i in self.static else rest)
                                for i in range(len(fixed) + len(dynamic))))

        return call

    def _compile_and_store(self, key: tuple, fixed: list, folder: disk.Folder, name: str | None,
                           args: Sequence[PyTree], options: dict | None) -> Callable:
        """The program, traced, compiled and stored.

        Args:
            name: the key on disk; None: the digest of its text, once lowered.
        """
        traced = self._trace(args, options)
        taped = self._record_tape(traced, fixed, options)
        if taped is not None:
            if name is not None:
                _store(folder, name, taped.tape, taped.results)
            return taped
        with making():
            lowered = traced.lower()
        if name is None:
            # the text leaves out arguments that are not used, but a call checks their shapes
            name = identity.digest(FORMAT, lowered.as_text(), list(map(str, key[2])), options,
                                   *_device())
            entry = _read(folder, name, lowered.in_tree, lowered.out_tree)
            if entry is not None:
                return self._with_recompilation(entry[0], key, fixed, folder, name, args, options)
        if options and LEVEL in options and self._seldom and (
                count_operations(traced.jaxpr.jaxpr)
                < MIN_OPERATIONS * self._seldom * len(list(equations(traced.jaxpr)))):
            options = {**options, LEVEL: 0}
        with making():
            program = lowered.compile(compiler_options=options)
        _write(folder, name, program)
        return program

    def _with_recompilation(self, program: Callable, key: tuple, *request: Any) -> Callable:
        """A program from disk that is recompiled if its first call fails: XLA notices only then
        that a part of it is missing."""

        def first(*dynamic: PyTree) -> PyTree:
            try:
                out = jax.block_until_ready(program(*dynamic))
                self._programs[key] = program
            except jax.errors.JaxRuntimeError:
                fresh = self._programs[key] = self._compile_and_store(key, *request)
                out = fresh(*dynamic)
            return out

        return first

    def _name(self, fixed: list, tree: object, avals: tuple, options: dict | None) -> str:
        qualname = f"{self._function.__module__}.{self._function.__qualname__}"
        settings = [*map(str, avals), *map(_describe_setting, trace_settings()),
                    repr(jax.config.values)]
        is_ours = (qualname.startswith("probml.") and "<locals>" not in qualname
                   and not _has_unordered_leaves(tree))
        if not is_ours or any(" at 0x" in text for text in settings):
            raise identity.Nameless(qualname)
        return identity.digest(FORMAT, identity.surroundings(), qualname, fixed, tree, settings,
                               [a.weak_type for a in avals], options, *_device())


def _device() -> tuple[str, str, int]:
    """The platform, device kind and number of devices for which a program is compiled."""
    kind = jax.devices()[0]
    return kind.platform, kind.device_kind, jax.device_count()


def _describe_setting(setting: object) -> str:
    """A setting of JAX as text; of mapped axes their names."""
    return "no axes" if list(getattr(setting, "axis_sizes", [1])) == [] else repr(setting)


def _has_unordered_leaves(tree: PyTree) -> bool:
    """Whether some of the leaves have an order that differs between processes (see `_read`)."""
    node = tree.node_data()
    return (node is not None and hasattr(node[0], "gather_pytree_data_fields")
            or any(map(_has_unordered_leaves, tree.children())))


def _write(folder: disk.Folder, name: str, program: object) -> None:
    """Stores a program on disk, unless it cannot be serialised, as with callbacks into Python."""
    try:
        serialised, _, tree = serialize_executable.serialize(program)
    except Exception:  # of a kind that cannot be written
        return
    if not any(target in serialised for target in _CALLS_BACK):
        _store(folder, name, serialised, tree)


def _store(folder: disk.Folder, name: str, program: Any, tree: PyTreeDef) -> None:
    """Writes a program and the tree of its results, as an example tree whose leaves are their
    positions, with the classes of its nodes by name. What cannot be written is skipped."""
    with contextlib.suppress(Exception):
        example = jax.tree.unflatten(tree, range(tree.num_leaves))
        folder.put(name, zlib.compress(pickle.dumps((program, example)), 1))


def _read(folder: disk.Folder, name: str, tree: object, out_tree: object = None) -> tuple | None:
    """A compiled program, or a tape and the tree of its results; None: there is none.

    Args:
        out_tree: the tree of the results in the order in which the program returns them, if known.
    """
    content = folder.get(name)
    if content is None:
        return None
    try:
        content = zlib.decompress(content)
        program, example = pickle.loads(content)
        # leaves of NumPyro's distributions are in the order of a set, which differs by process
        places, results = jax.tree.flatten(example)
        if isinstance(program, Tape):
            return replace(program, outputs=tuple([program.outputs[i] for i in places]),
                           keys=tuple([program.keys[i] for i in places])), results
        if _LAPACK in program:
            start_lapack()
        if out_tree is not None:
            return (serialize_executable.deserialize_and_load(program, tree, out_tree),)
        is_sorted = places == sorted(places)
        loaded = serialize_executable.deserialize_and_load(
            program, tree, results if is_sorted else jax.tree.structure(tuple(places)))
        return (loaded if is_sorted else functools.partial(_in_order, loaded, places, results),)
    except Exception:  # of another build, or cut short: compiled anew
        return None


def _in_order(program: Callable, places: Sequence[int], results: object, *args: object) -> Any:
    found = program(*args)
    return jax.tree.unflatten(results, [found[i] for i in places])


MAX_MAPPINGS = 20_000  # of some thousand programs; a third of what Linux allows
MAX_GROWTH = 2**30  # bytes of the process since the last release
MIN_NEW_MAPPINGS = 4_000  # since the last release, if the growth is due to programs
MAX_PROGRAMS = 1_000  # new ones that may be the growth: 0.4 to 1.2 megabytes each, with their trace
PROGRAMS_BETWEEN_CHECKS = 32  # a check takes as long as compiling one small program

_MAPS, _PAGES = Path("/proc/self/maps"), Path("/proc/self/statm")
_LOCK = threading.Lock()
_CACHES: "weakref.WeakSet[ProgramCache]" = weakref.WeakSet()
_NEW_PROGRAMS = [0]  # since the last check
_PROGRAMS_SINCE_RELEASE = [0]  # as of the last check


class MemoryUse(NamedTuple):
    """Memory use of the process: memory mappings and resident bytes."""

    mappings: int
    resident: int  # bytes in memory


_AFTER_RELEASE: list[MemoryUse] = []  # after the last release; at first, at the first check


def count_program() -> None:
    """Counts a program that was compiled or loaded from disk."""
    _NEW_PROGRAMS[0] += 1


def mappings() -> int:
    """Returns the number of memory mappings of this process; 0 if unknown."""
    try:
        return _MAPS.read_bytes().count(b"\n")
    except OSError:
        return 0


def resident() -> int:
    """Returns the resident bytes of this process; 0 if unknown."""
    try:
        return int(_PAGES.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 0


def trim() -> None:
    """Returns the free memory of C's allocator to the system."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # of another C library
            ctypes.CDLL(None).malloc_trim(0)


def release_if_many() -> bool:
    """Releases cached programs if they are many or fill memory; returns whether it did. Called
    between programs."""
    if ("holding" in OFF or _NEW_PROGRAMS[0] < PROGRAMS_BETWEEN_CHECKS
            or not _LOCK.acquire(blocking=False)):
        return False
    try:
        _PROGRAMS_SINCE_RELEASE[0] += _NEW_PROGRAMS[0]
        _NEW_PROGRAMS[0] = 0
        usage = MemoryUse(mappings(), resident())
        if not _AFTER_RELEASE:
            _AFTER_RELEASE.append(usage)
        grown = MemoryUse(*(now - then for now, then in zip(usage, _AFTER_RELEASE[0], strict=True)))
        many_new = grown.mappings > MIN_NEW_MAPPINGS or _PROGRAMS_SINCE_RELEASE[0] > MAX_PROGRAMS
        if usage.mappings < MAX_MAPPINGS and not (many_new and grown.resident > MAX_GROWTH):
            return False
        _PROGRAMS_SINCE_RELEASE[0] = 0
        for cache in list(_CACHES):
            cache.release_half()
        memo.release_half()
        if mappings() >= usage.mappings // 2:
            jax.clear_caches()
        gc.collect()  # traces and their functions are reference cycles
        trim()
        # fragmented memory stays with the process: growth is measured from the least use so far,
        # else the process might grow by as much each time
        _AFTER_RELEASE[0] = MemoryUse(mappings(), min(resident(), _AFTER_RELEASE[0].resident))
        return True
    finally:
        _LOCK.release()
