"""Programs found on disk without being traced: the compiled program of a function of ours at given
static arguments and shapes, by the digest of all that it depends on.

Tracing and lowering a fit takes as long as compiling it, and JAX's own cache is asked after both.
So what a function of ours compiles is kept whole (`jax.experimental.serialize_executable`) under
the digest of its name, its static arguments, the shapes and types of the others, XLA's options,
JAX's settings, and the versions of everything (identity.py). Where one of these cannot be told, the
program is traced and lowered, and known by its text.

The folder is that of disk.py, which says who may write there: reading such a file runs what is in
it, as reading one of JAX's cache does.
"""

import contextlib
import functools
import inspect
import pickle
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.api_util import shaped_abstractify
from jax.experimental import serialize_executable
from jax.tree_util import PyTreeDef

from probml.jaxpr.compat import OFF, start_lapack, trace_settings
from probml.jaxpr.tapes.operation import TooLong
from probml.jaxpr.tapes.recorded import Tape, record
from probml.numerics import identity
from probml.numerics.kept import disk, holding
from probml.numerics.process.making import making
from probml.typing import PyTree

FORMAT = 3  # of the files
_LAPACK = b"lapack_"
_CALLS_BACK = (b"_python_cpu_callback", b"_python_gpu_callback")  # by address, into this process


@dataclass(eq=False)
class Taped:
    """A program that NumPy runs; its results lie where compiled ones do, or on the host."""

    tape: Tape
    results: PyTreeDef  # the tree of the results
    otherwise: Callable  # the same by XLA, for a loop that turns out to be long
    on_host: bool

    def __call__(self, *args: object) -> PyTree:
        try:
            found = self.tape.run(jax.tree.leaves(args))
        except TooLong:
            return self.otherwise(*args)
        if self.on_host:
            return jax.tree.unflatten(self.results, found)
        placed = [jax.random.wrap_key_data(value) if key else value
                  for value, key in zip(jax.device_put(found), self.tape.keys, strict=True)]
        return jax.tree.unflatten(self.results, placed)


class Shelf:
    """The programs of one function, by what tells them apart.

    Args:
        function: what is compiled; of ours, and no closure, if it is to be found again.
        keywords: of jax.jit.
        seldom: seconds that a call may take by NumPy, without being compiled.
        on_host: what NumPy computes stays on the host.
    """

    def __init__(self, function: Callable, keywords: dict[str, Any], seldom: float = 0.0,
                 on_host: bool = False):
        self._function, self._keywords, self._seldom = function, keywords, seldom
        self._on_host = on_host
        self._held: OrderedDict[tuple, Callable | None] = OrderedDict()  # last used, last
        holding.kept_by(self)
        names = list(inspect.signature(function).parameters)
        numbers, named = (keywords.get(key, ()) for key in ("static_argnums", "static_argnames"))
        numbers = (numbers,) if isinstance(numbers, int) else tuple(numbers)
        named = (named,) if isinstance(named, str) else tuple(named)
        self.static = frozenset((*numbers, *map(names.index, named)))

    def find(self, args: Sequence[PyTree], options: dict | None) -> Callable | None:
        """The program for these arguments, to be called with those that are not static: from
        memory, from disk, or made now and kept. None: nothing is kept on disk, and jax.jit is
        asked.
        """
        folder = None if "programs" in OFF else disk.folder()
        taped = "tapes" not in OFF and self._seldom > 0 and jax.default_backend() == "cpu"
        if any(isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1
               for leaf in jax.tree.leaves(args)):
            return None  # where its arguments lie is part of such a program
        watched = jax.config.jax_disable_jit or jax.config.jax_debug_nans or (
            jax.config.jax_debug_infs)
        if watched or folder is None and not taped:
            return None
        dynamic = [value for i, value in enumerate(args) if i not in self.static]
        fixed = [value for i, value in enumerate(args) if i in self.static]
        leaves, tree = jax.tree.flatten((tuple(dynamic), {}))
        avals = tuple(map(shaped_abstractify, leaves))
        key = (tuple(fixed), tree, avals, trace_settings())
        if key in self._held:
            with contextlib.suppress(KeyError):  # another thread has let it go
                self._held.move_to_end(key)
                return self._held[key]
        try:
            name = None if folder is None else self._name(fixed, tree, avals, options)
        except identity.Nameless:
            name = None
        holding.made()
        found: Callable | None
        if folder is None:
            found = self._record_tape(self._traced(args, options), fixed,
                                      options) if taped else None
            self._held[key] = found
            return found
        held = None if name is None else _read(folder, name, tree)
        made = (key, fixed, folder, name, args, options)
        if held is None:
            found = self._made(*made)
        elif isinstance(held[0], Tape):
            found = Taped(held[0], held[1], self._compiled(fixed, options), self._on_host)
        else:
            found = self._tried(held[0], *made)
        self._held[key] = found
        return found

    def forget(self) -> None:
        """Let go of the half of the programs that was used longest ago."""
        for _ in range(len(self._held) // 2):
            self._held.popitem(last=False)

    def _traced(self, args: Sequence[PyTree], options: dict | None) -> jax.stages.Traced:
        with making():
            return jax.jit(self._function, compiler_options=options, **self._keywords).trace(*args)

    def _record_tape(self, traced: jax.stages.Traced, fixed: list,
                     options: dict | None) -> Taped | None:
        """The traced program as NumPy calls; None where that would take too long, or is not
        possible."""
        jaxpr, taken = traced.jaxpr, len(jax.tree.leaves(traced.args_info))
        if "tapes" in OFF or not self._seldom or len(jaxpr.in_avals) != taken:
            return None
        tape = record(jaxpr, self._seldom)
        results = jax.tree.structure(traced.out_info)
        return None if tape is None else Taped(tape, results, self._compiled(fixed, options),
                                               self._on_host)

    def _compiled(self, fixed: list, options: dict | None) -> Callable:
        """The program by jax.jit, a function of what is not static."""
        jitted = jax.jit(self._function, compiler_options=options, **self._keywords)

        def call(*dynamic: object) -> PyTree:
            told, rest = iter(fixed), iter(dynamic)
            with making():
                return jitted(*(next(told if i in self.static else rest)
                                for i in range(len(fixed) + len(dynamic))))

        return call

    def _made(self, key: tuple, fixed: list, folder: disk.Folder, name: str | None,
              args: Sequence[PyTree], options: dict | None) -> Callable:
        """The program, traced now, and kept.

        Args:
            name: None: its text is its name, once it is lowered.
        """
        traced = self._traced(args, options)
        taped = self._record_tape(traced, fixed, options)
        if taped is not None:
            if name is not None:
                _keep(folder, name, taped.tape, taped.results)
            return taped
        with making():
            lowered = traced.lower()
        if name is None:
            name = identity.digest(FORMAT, lowered.as_text(), options, *_device())
            held = _read(folder, name, lowered.in_tree, lowered.out_tree)
            if held is not None:
                return self._tried(held[0], key, fixed, folder, name, args, options)
        with making():
            program = lowered.compile()
        _write(folder, name, program)
        return program

    def _tried(self, program: Callable, key: tuple, *again: Any) -> Callable:
        """A program from disk, compiled after all if its first call fails: XLA finds out only then
        that a part of it is missing."""

        def first(*dynamic: PyTree) -> PyTree:
            try:
                out = jax.block_until_ready(program(*dynamic))
                self._held[key] = program
            except jax.errors.JaxRuntimeError:
                fresh = self._held[key] = self._made(key, *again)
                out = fresh(*dynamic)
            return out

        return first

    def _name(self, fixed: list, tree: object, avals: tuple, options: dict | None) -> str:
        own = f"{self._function.__module__}.{self._function.__qualname__}"
        told = [*map(str, avals), *map(_describe_setting, trace_settings()),
                repr(jax.config.values)]
        ours = own.startswith("probml.") and "<locals>" not in own and not _shuffled(tree)
        if not ours or any(" at 0x" in text for text in told):
            raise identity.Nameless(own)
        return identity.digest(FORMAT, identity.surroundings(), own, fixed, tree, told,
                               [a.weak_type for a in avals], options, *_device())


def _device() -> tuple[str, str, int]:
    """What a program is compiled for."""
    kind = jax.devices()[0]
    return kind.platform, kind.device_kind, jax.device_count()


def _describe_setting(setting: object) -> str:
    """A setting in words: names of mapped axes, of which there are none outside of maps."""
    return "no axes" if list(getattr(setting, "axis_sizes", [1])) == [] else repr(setting)


def _shuffled(tree: PyTree) -> bool:
    """Whether some of the leaves stand in an order of this process alone (see `_read`)."""
    node = tree.node_data()
    return (node is not None and hasattr(node[0], "gather_pytree_data_fields")
            or any(map(_shuffled, tree.children())))


def _write(folder: disk.Folder, name: str, program: object) -> None:
    """Keeps a program, where it can be kept: one that calls back into this process cannot."""
    try:
        held, _, tree = serialize_executable.serialize(program)
    except Exception:  # of a kind that cannot be written
        return
    if not any(target in held for target in _CALLS_BACK):
        _keep(folder, name, held, tree)


def _keep(folder: disk.Folder, name: str, held: Any, tree: PyTreeDef) -> None:
    """Writes a program and the tree of its results, as an example of itself, whose leaves are their
    places: classes of its nodes by name. Whatever cannot be written is made again."""
    with contextlib.suppress(Exception):
        example = jax.tree.unflatten(tree, range(tree.num_leaves))
        folder.put(name, zlib.compress(pickle.dumps((held, example)), 1))


def _read(folder: disk.Folder, name: str, tree: object, out_tree: object = None) -> tuple | None:
    """A compiled program alone, or a tape and the tree of its results; None: there is none.

    Args:
        out_tree: the tree of the results, where it is known, in the order in which they are made.
    """
    held = folder.get(name)
    if held is None:
        return None
    try:
        held = zlib.decompress(held)
        program, example = pickle.loads(held)
        # NumPyro's distributions have their leaves in the order of a set, another in each process
        places, results = jax.tree.flatten(example)
        if isinstance(program, Tape):
            return replace(program, outputs=tuple([program.outputs[i] for i in places]),
                           keys=tuple([program.keys[i] for i in places])), results
        if _LAPACK in program:
            start_lapack()
        if out_tree is not None:
            return (serialize_executable.deserialize_and_load(program, tree, out_tree),)
        kept = places == sorted(places)
        loaded = serialize_executable.deserialize_and_load(
            program, tree, results if kept else jax.tree.structure(tuple(places)))
        return (loaded if kept else functools.partial(_ordered, loaded, places, results),)
    except Exception:  # of another build, or cut short: compiled anew
        return None


def _ordered(program: Callable, places: Sequence[int], results: object, *args: object) -> Any:
    found = program(*args)
    return jax.tree.unflatten(results, [found[i] for i in places])


