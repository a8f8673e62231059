"""Which inputs are indices: an input's codes → the axes of parameters and of constant arrays that they pick from, and their range.

JAX clamps a gather out of bounds and drops such a scatter, so nobody would hear of a wrong code. The traced program of a site's
arguments says which number of which input reaches which gather: the program is read once, element by element, every number being
an affine function of one cell of an input, perhaps clipped, or other arithmetic, kept as a formula that is evaluated on the data.
`where(i < 0, i + n, i)`, by which jnp reads negative indices, is seen through: a negative code is out of range.

What is left unchecked, as it is meant: `mode="clip"`, a fill value that is stated, a one-hot row of zeros (reference coding), the
branches of `cond`, and loops of `while`.

For arrays of floats the reader follows along which axis the members of a plate stand, through elementwise arithmetic, so that
`(mu + tau * z)[group]` is a reading of `z`; and whether anything else of a row depends on other members.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from probml import levels

if TYPE_CHECKING:
    from probml.structure import Structure

SOURCE, SCALE, OFFSET, LOW, HIGH, NODE = range(6)  # of a number: clip(scale · code + offset, low, high), the code of which cell
KNOWN, UNKNOWN = -1, -2  # in the place of a cell: the number is its offset; nothing is known
LARGEST = 2**16  # elements of an array that are read one by one
WRITTEN = 256  # elements of an array whose formulas are kept
ALTERNATIVES = 256  # elements one of which a number may be
UNROLLED = 256  # steps of a scan
TABLE = ""  # stands for a constant array in the place of a parameter

Label = tuple[str, int, int]  # a parameter, an axis of it, and how far its entries are shifted along the axis of an array


class Axis(NamedTuple):
    """Along which axis of a parameter the codes of an input run: code c is entry scale · c + offset."""

    parameter: str
    axis: int
    scale: int = 1
    offset: int = 0


class Index(NamedTuple):
    """An input, or a cell of it, that is used as an index.

    Attributes:
        input: its name. cells: the cells of a row that are meant; () for a whole input.
        length: the number of entries of the (shortest) axis it indexes; 0 where no range follows from it.
        low, high: the codes that are allowed, both included; None: no bound, as after a clip.
        axes: the axes of parameters along which the codes run.
        table: it reads constant arrays too (settings): codes that these do not have have no value.
        rigid: it reads a parameter in a way that a new member cannot have: after other arithmetic, or as a part of a whole.
    """

    input: str
    cells: tuple[int, ...]
    length: int
    low: int | None
    high: int | None
    axes: tuple[Axis, ...]
    table: bool
    rigid: bool

    @property
    def name(self) -> str:
        return self.input + (f"[{', '.join(map(str, self.cells))}]" if self.cells else "")

    @property
    def parameters(self) -> tuple[tuple[str, int], ...]:
        """The parameters that it indexes, (name, axis)."""
        return tuple(dict.fromkeys((axis.parameter, axis.axis) for axis in self.axes))

    @property
    def words(self) -> str:
        """What it indexes, for messages."""
        return ", ".join(f"{name} (axis {axis})" for name, axis in self.parameters) or "an array"


class _Value(NamedTuple):
    """What is known of one array.

    Attributes:
        numbers: (6, alternatives, *shape), what each element is; None: nothing is known. Where the scale is NaN, the node is the
            number of its formula, from 1 on; 0: it has none.
        axes: for each axis, the axes of parameters whose entries stand along it.
        loose: axes of parameters on which elements depend in another way.
        negative: of a predicate `x < 0`, the numbers x.
    """

    numbers: np.ndarray | None
    axes: tuple[frozenset[Label], ...]
    loose: frozenset[tuple[str, int]] = frozenset()
    negative: np.ndarray | None = None

    @property
    def every(self) -> frozenset[tuple[str, int]]:
        """All axes of parameters on which it depends."""
        return self.loose | {label[:2] for labels in self.axes for label in labels}


class _Reading(NamedTuple):
    """One index of one gather, slice or scatter: the number, the largest index allowed, and what is read."""

    number: tuple[float, ...]
    last: int
    length: int
    labels: frozenset[Label]
    free: bool  # an index out of bounds has a meaning here
    whole: bool  # the array read depends on all entries of a parameter


class Node(NamedTuple):
    """An operation on numbers, each of them six fields as above; `whole` where its result is a whole number."""

    name: str
    numbers: tuple[tuple[float, ...], ...]
    whole: bool
    more: Any  # the power of integer_pow, the entries of a table


class Formula(NamedTuple):
    """An index that is computed from codes by more than a shift: what it is, and the largest value that is allowed."""

    number: tuple[float, ...]
    last: int
    words: str
    nodes: Sequence[Node]
    cells: dict[int, tuple[str, int]]  # source → input, cell

    @property
    def sources(self) -> list[int]:
        return _sources(self.nodes, self.number)

    def index(self, codes: dict[int, np.ndarray]) -> np.ndarray:
        """Its value for arrays of codes, by source."""
        with np.errstate(all="ignore"):
            return _evaluated(self.nodes, self.number, codes, {})


class Facts(NamedTuple):
    """What is known of the indices of a model.

    Attributes:
        indexed: the inputs that index something, by name; where cells of one differ, by name and cell, as `x[1]`.
        formulas: indices whose range is not that of one input's codes.
    """

    indexed: dict[str, Index]
    formulas: tuple[Formula, ...]


def facts(structure: "Structure") -> Facts:
    """Which inputs of a model index what.

    Cost: one pass over the programs of the sites in rows, no array computation.
    """
    reader, loose, starts = _read(structure)
    readings, out = reader.found, {}
    cells = {begin + cell: (name, cell) for name, count, begin in starts for cell in range(count)}
    formulas = {}
    for number, last, labels in reader.formulas:
        words = ", ".join(sorted({f"{p} (axis {axis})" for p, axis, _ in labels if p != TABLE})) or "an array"
        formulas[number[NODE], last, words] = Formula(number, last, words, reader.nodes, cells)
    for name, cells, begin in starts:
        found = {cell: _index(name, readings[begin + cell], loose) for cell in range(cells) if begin + cell in readings}
        if len(found) == cells and len(set(found.values())) == 1:
            out[name] = found[0]
            continue
        for cell, index in found.items():
            own = index._replace(cells=(cell,))
            out[own.name] = own
    return Facts(out, tuple(formulas.values()))


def _read(structure: "Structure") -> tuple["_Reader", frozenset, list[tuple[str, int, int]]]:
    starts, begin = [], 0
    for name, shape, _ in structure.specs:
        cells = math.prod(1 if size is None else size for size in shape)
        starts.append((name, cells, begin))
        begin += cells
    reader, loose = _Reader(), frozenset()
    first = {name: (begin, cells) for name, cells, begin in starts}
    for site in structure.sites.values():
        if not site.rows or not starts:
            continue
        program, takes = structure.programs[site.name]
        inputs = []
        for name, aval in zip(takes, program.in_avals, strict=True):
            if name in first:
                number = np.arange(first[name][1], dtype=float).reshape(aval.shape) + first[name][0]
                inputs.append(_Value(_numbers(number, 1.0, 0.0), (frozenset(),) * len(aval.shape)))
            elif structure.sites[name].rows:
                inputs.append(_Value(None, (frozenset(),) * len(aval.shape)))
            else:
                inputs.append(_Value(None, tuple(frozenset([(name, axis, 0)]) for axis in range(len(aval.shape)))))
        for value in levels._interpret(program.jaxpr, program.consts, inputs, _constant, reader.rule):
            loose |= value.every
    return reader, loose, starts


def _index(name: str, readings: Sequence[_Reading], loose: frozenset) -> Index:
    """All readings by one cell as one fact."""
    low, high, tightest, axes, table, rigid = -math.inf, math.inf, None, set(), False, False
    for reading in readings:
        _, scale, offset, least, most, _ = reading.number
        plain = math.isfinite(scale) and scale == round(scale) and scale != 0
        if plain:
            axes |= {Axis(p, axis, int(scale), int(offset) - shift) for p, axis, shift in reading.labels if p != TABLE}
        table |= not reading.labels or any(label[0] == TABLE for label in reading.labels)
        rigid |= not plain or reading.whole or math.isfinite(least) or math.isfinite(most)
        if not plain or reading.free:
            continue
        ends = sorted([(0 - offset) / scale, (reading.last - offset) / scale])
        below, above = least < 0, most > reading.last  # whether the number can fall short, or exceed
        if scale < 0:
            below, above = above, below
        before = low, high
        low, high = max(low, math.ceil(ends[0])) if below else low, min(high, math.floor(ends[1])) if above else high
        if (low, high) != before:
            tightest = reading.length if tightest is None else min(tightest, reading.length)
    rigid |= any(axis[:2] in loose for axis in axes)
    low, high = (None if math.isinf(bound) else int(bound) for bound in (low, high))
    return Index(name, (), tightest or 0, low, high, tuple(sorted(axes)), table, rigid)


def _numbers(source: Any, scale: Any, offset: Any, low: Any = -np.inf, high: Any = np.inf) -> np.ndarray:
    """One alternative."""
    return np.stack(np.broadcast_arrays(*(np.asarray(v, float) for v in (source, scale, offset, low, high, 0.0))))[:, None]


def _constant(value: Any) -> _Value:
    """A literal or a constant of the program. One whose elements differ gives each entry along its axes its own value."""
    shape = tuple(np.shape(value))
    plain = (frozenset(),) * len(shape)
    if getattr(value, "size", 1) > LARGEST or not _numeric(value):
        return _Value(None, tuple(frozenset([(TABLE, 0, 0)]) if size > 1 else frozenset() for size in shape))
    array = np.asarray(value, float)
    differ = array.size > 1 and not np.all(array == array.flat[0])
    axes = tuple(frozenset([(TABLE, 0, 0)]) if size > 1 else frozenset() for size in shape) if differ else plain
    return _Value(_numbers(KNOWN, 0.0, array), axes)


def _numeric(value: Any) -> bool:
    dtype = getattr(value, "dtype", np.asarray(value).dtype if np.isscalar(value) else None)
    return dtype is not None and any(jnp.issubdtype(dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_))


ELEMENTWISE = frozenset(
    "abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil clamp convert_element_type cos cosh digamma div eq erf erf_inv "
    "erfc exp exp2 expm1 floor ge gt igamma igammac integer_pow is_finite le lgamma log log1p logistic lt max min mul ne neg nextafter "
    "not or polygamma pow real reduce_precision regularized_incomplete_beta rem round rsqrt select_n shift_left shift_right_arithmetic "
    "shift_right_logical sign sin sinh sqrt square stop_gradient sub tan tanh xor zeta".split()
)
FOLDED = {"div": np.true_divide, "rem": np.fmod, "floor": np.floor, "sign": np.sign, "lt": np.less, "gt": np.greater}
FOLDED |= {"le": np.less_equal, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal, "and": np.logical_and, "or": np.logical_or}


OPERATIONS = {**FOLDED, "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "max": np.maximum, "min": np.minimum}
OPERATIONS |= {"abs": np.abs, "ceil": np.ceil, "round": np.round, "convert_element_type": np.asarray, "integer_pow": None, "table": None}
OPERATIONS |= {"not": np.logical_not, "clamp": lambda low, x, high: np.clip(x, low, high)}
OPERATIONS |= {"select_n": lambda which, no, yes: np.where(np.asarray(which) != 0, yes, no)}


class _Reader:
    """Reads programs, and keeps what it finds: cell → its readings, and indices that are formulas."""

    def __init__(self):
        self.found: dict[int, list[_Reading]] = {}
        self.nodes: list[Node] = []
        self.formulas: list[tuple[tuple[float, ...], int, frozenset[Label]]] = []

    def rule(self, eqn: Any, values: list[_Value]) -> list[_Value]:
        """The results of an equation that is not a call."""
        name = eqn.primitive.name.replace("-", "_")
        if name == "gather":
            return [self._gather(eqn, *values)]
        if name == "dynamic_slice":
            return [self._slice(eqn, values[0], values[1:])]
        if name.startswith("scatter"):
            self._scatter(eqn, *values)
        if name == "dynamic_update_slice":
            for axis, start in enumerate(values[2:]):
                size, length = eqn.invars[1].aval.shape[axis], eqn.invars[0].aval.shape[axis]
                self._note(start.numbers, length - size, length, _blank(values[0]), axis)
        if name == "scan" and eqn.params["length"] <= UNROLLED:
            return self._scan(eqn, values)
        if name in levels._COPIES and len(values) == len(eqn.outvars):
            return values
        if name in ELEMENTWISE:
            return [_elementwise(name, eqn, values, self.nodes)]
        move = _MOVES.get(name)
        return _unknown(eqn, values) if move is None else move(eqn, values)

    def _note(self, numbers: np.ndarray | None, last: int, length: int, operand: _Value, axis: int, free: Any = False) -> None:
        """An index array reads along an axis of an array."""
        if numbers is None or length == 0:
            return
        whole = bool(operand.loose & {label[:2] for label in operand.axes[axis]})
        whole |= not operand.axes[axis] and bool(operand.every)
        for number in np.unique(numbers.reshape(len(numbers), -1).T, axis=0):
            own = tuple(number.tolist())
            for source in _sources(self.nodes, own):
                reading = _Reading(own, last, length, operand.axes[axis], free, whole)
                kept = self.found.setdefault(source, [])
                if reading not in kept:
                    kept.append(reading)
            if own[NODE] and not free and not 0 <= own[LOW] <= own[HIGH] <= last:
                self.formulas.append((own, last, operand.axes[axis]))

    def _gather(self, eqn: Any, operand: _Value, indices: _Value) -> _Value:
        numbers, dims, sizes = eqn.params["dimension_numbers"], eqn.invars[0].aval.shape, eqn.params["slice_sizes"]
        mode, fill = eqn.params["mode"].name, eqn.params["fill_value"]
        stated = mode == "FILL_OR_DROP" and fill is not None and not _default(fill, eqn.invars[0].aval.dtype)
        for k, axis in enumerate(numbers.start_index_map):
            own = None if indices.numbers is None else indices.numbers[..., k]
            # vmap makes a slice into a gather that clips, whose axis is not collapsed; of one that is, somebody has asked for it
            clips = mode == "CLIP" and axis in numbers.collapsed_slice_dims
            self._note(own, dims[axis] - sizes[axis], dims[axis], operand, axis, free=stated or clips)
        away = (*numbers.collapsed_slice_dims, *getattr(numbers, "operand_batching_dims", ()))
        window = [axis for axis in range(len(dims)) if axis not in away]
        axes = [frozenset()] * len(eqn.outvars[0].aval.shape)
        loose = set(operand.loose)
        for axis, place in zip(window, numbers.offset_dims, strict=True):
            if sizes[axis] == dims[axis]:
                axes[place] = operand.axes[axis]
        for axis in range(len(dims)):
            k = numbers.start_index_map.index(axis) if axis in numbers.start_index_map else None
            full = axis in window and sizes[axis] == dims[axis]
            if not full and not (k is not None and indices.numbers is not None and (indices.numbers[SOURCE, ..., k] >= 0).all()):
                loose |= {label[:2] for label in operand.axes[axis]}
        found = _gathered(operand.numbers, indices.numbers, numbers, dims, sizes, eqn.outvars[0].aval.shape, self.nodes)
        return _Value(found, tuple(axes), frozenset(loose))

    def _slice(self, eqn: Any, operand: _Value, starts: Sequence[_Value]) -> _Value:
        dims, sizes = eqn.invars[0].aval.shape, eqn.params["slice_sizes"]
        axes, loose = [], set(operand.loose)
        for axis, (start, dim, size) in enumerate(zip(starts, dims, sizes, strict=True)):
            if dim == size:
                axes.append(operand.axes[axis])
                continue
            self._note(start.numbers, dim - size, dim, operand, axis)
            axes.append(frozenset())
            if start.numbers is None or not (start.numbers[SOURCE] >= 0).all():
                loose |= {label[:2] for label in operand.axes[axis]}
        indices = None if any(s.numbers is None for s in starts) else _stacked([s.numbers for s in starts])
        found = _gathered(operand.numbers, indices, None, dims, sizes, eqn.outvars[0].aval.shape, self.nodes)
        return _Value(found, tuple(axes), frozenset(loose))

    def _scatter(self, eqn: Any, operand: _Value, indices: _Value, updates: _Value) -> None:
        numbers, dims = eqn.params["dimension_numbers"], eqn.invars[0].aval.shape
        away = (*numbers.inserted_window_dims, *getattr(numbers, "operand_batching_dims", ()))
        window = dict(zip((a for a in range(len(dims)) if a not in away), numbers.update_window_dims, strict=True))
        for k, axis in enumerate(numbers.scatter_dims_to_operand_dims):
            size = eqn.invars[2].aval.shape[window[axis]] if axis in window else 1
            free = eqn.params["mode"].name == "CLIP"
            if indices.numbers is not None:
                self._note(indices.numbers[..., k], dims[axis] - size, dims[axis], _blank(operand), axis, free=free)

    def _scan(self, eqn: Any, values: list[_Value]) -> list[_Value]:
        """A loop of known length, step by step."""
        constants, carries, length = eqn.params["num_consts"], eqn.params["num_carry"], eqn.params["length"]
        body, held = eqn.params["jaxpr"], values[:constants]
        carry, along = values[constants : constants + carries], values[constants + carries :]
        steps: list[list[_Value]] = []
        for i in reversed(range(length)) if eqn.params["reverse"] else range(length):
            each = [
                _Value(None if v.numbers is None else v.numbers[:, :, i], v.axes[1:], v.loose | {label[:2] for label in v.axes[0]})
                for v in along
            ]
            results = levels._interpret(body.jaxpr, body.consts, [*held, *carry, *each], _constant, self.rule)
            carry = results[:carries]
            steps.append(results[carries:])
        if not steps:
            return _unknown(eqn, values)
        steps = steps[::-1] if eqn.params["reverse"] else steps
        out = []
        for parts in zip(*steps, strict=True):
            numbers = None if any(p.numbers is None or p.numbers.shape[1] > 1 for p in parts) else np.stack([p.numbers for p in parts], 2)
            axes = tuple(frozenset().union(*each) for each in zip(*(p.axes for p in parts), strict=True))
            out.append(_Value(numbers, (frozenset(), *axes), frozenset().union(*(p.loose for p in parts))))
        return [*carry, *out]


def _blank(operand: _Value) -> _Value:
    """An array that is written to: whatever stands there now, its entries have no names of their own."""
    return operand._replace(axes=tuple(labels or frozenset([(TABLE, 0, 0)]) for labels in operand.axes))


def _default(fill: Any, dtype: Any) -> bool:
    """Whether a fill value is the one that jnp.take has where none is stated."""
    if jnp.issubdtype(dtype, jnp.floating):
        return bool(np.isnan(fill))
    if not jnp.issubdtype(dtype, jnp.integer):
        return bool(fill)
    info = jnp.iinfo(dtype)
    return int(fill) == (info.max if info.min == 0 else info.min)


def _unknown(eqn: Any, values: Iterable[_Value]) -> list[_Value]:
    """Results that depend on all operands in a way that is not followed."""
    loose = frozenset().union(*(value.every for value in values))
    return [_Value(None, (frozenset(),) * len(getattr(var.aval, "shape", ())), loose) for var in eqn.outvars]


# Elementwise arithmetic


def _elementwise(name: str, eqn: Any, values: list[_Value], nodes: list[Node]) -> _Value:
    shape = eqn.outvars[0].aval.shape
    same = [v for v in values if len(v.axes) == len(shape)]
    axes = tuple(frozenset().union(*(v.axes[i] for v in same)) for i in range(len(shape)))
    loose = frozenset().union(*(v.loose for v in values))
    if any(v.numbers is None for v in values) or math.prod(shape) > LARGEST:
        return _Value(None, axes, loose)
    seen = _wrapped(*values) if name == "select_n" and len(values) == 3 else None
    if seen is not None:
        return _Value(seen, axes, loose)
    parts = _alike([v.numbers for v in values], shape)
    if parts is None:
        return _Value(None, axes, loose)
    negative = None
    match name:
        case "add" | "add_any":
            numbers = _sum(*parts)
        case "sub":
            numbers = _sum(parts[0], _scaled(parts[1], -1.0))
        case "neg":
            numbers = _scaled(parts[0], -1.0)
        case "mul" if (parts[1][SOURCE] == KNOWN).all():
            numbers = _scaled(parts[0], parts[1][OFFSET])
        case "mul" if (parts[0][SOURCE] == KNOWN).all():
            numbers = _scaled(parts[1], parts[0][OFFSET])
        case "max" | "min" if any((p[SOURCE] == KNOWN).all() for p in parts):
            at, bound = parts if (parts[1][SOURCE] == KNOWN).all() else parts[::-1]
            numbers = _clipped(at, getattr(np, f"{name}imum"), bound[OFFSET])
        case "clamp" if (parts[0][SOURCE] == KNOWN).all() and (parts[2][SOURCE] == KNOWN).all():
            numbers = _clipped(_clipped(parts[1], np.maximum, parts[0][OFFSET]), np.minimum, parts[2][OFFSET])
        case "convert_element_type" if jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.floating):
            numbers = parts[0]
        case "convert_element_type" | "floor" | "ceil" | "round" | "reduce_precision" | "stop_gradient" | "real":
            broken = (parts[0][[SCALE, OFFSET]] % 1 != 0).any(0)
            numbers = np.where(broken, _opaque(parts), parts[0])
            if name == "convert_element_type":
                numbers = np.where(broken & (parts[0][SOURCE] == KNOWN), _known(np.trunc(parts[0][OFFSET])), numbers)
        case "lt" if (parts[1][SOURCE] == KNOWN).all() and not parts[1][OFFSET].any():
            numbers, negative = _opaque(parts), parts[0]
        case "select_n" if len(parts) == 3:
            numbers = _selected(*parts)
        case _ if name in FOLDED and all((p[SOURCE] == KNOWN).all() for p in parts):
            whole = jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.integer)
            with np.errstate(all="ignore"):
                folded = np.asarray(FOLDED[name](*(p[OFFSET] for p in parts)), float)
            numbers = _known(np.trunc(folded) if whole else folded)
        case _:
            numbers = _opaque(parts)
    _write(nodes, numbers, parts, name, not jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.floating), eqn.params.get("y"))
    return _Value(numbers, axes, loose, negative)


def _write(nodes: list[Node], numbers: np.ndarray, parts: list[np.ndarray], name: str, whole: bool, more: Any) -> None:
    """Keep the formulas of numbers that are no affine function."""
    flat = numbers.reshape(6, -1)
    at = np.flatnonzero(np.isnan(flat[SCALE]) & (flat[NODE] == 0))
    if name not in OPERATIONS or not 0 < len(at) <= WRITTEN:
        return
    operands = [part.reshape(6, -1) for part in parts]
    for i in at:
        own = tuple(tuple(part[:, i].tolist()) for part in operands)
        if all(number[SOURCE] == KNOWN or math.isfinite(number[SCALE]) or number[NODE] for number in own):
            nodes.append(Node(name, own, whole, more))
            numbers[(NODE, *np.unravel_index(i, numbers.shape[1:]))] = len(nodes)


def _sources(nodes: Sequence[Node], number: tuple[float, ...]) -> list[int]:
    """The cells of inputs that enter a number."""
    if not number[NODE]:
        return [int(number[SOURCE])] if number[SOURCE] >= 0 else []
    seen, stack, out = set(), [number], set()
    while stack:
        *_, node = top = stack.pop()
        if node and node not in seen:
            seen.add(node)
            stack += nodes[int(node) - 1].numbers
        elif not node and top[SOURCE] >= 0:
            out.add(int(top[SOURCE]))
    return sorted(out)


def _evaluated(nodes: Sequence[Node], number: tuple[float, ...], codes: dict[int, np.ndarray], known: dict[int, Any]) -> Any:
    """A number's value for given codes."""
    if not number[NODE]:
        if number[SOURCE] == KNOWN:
            return number[OFFSET]
        return np.clip(number[SCALE] * codes[int(number[SOURCE])] + number[OFFSET], number[LOW], number[HIGH])
    place = int(number[NODE])
    if place not in known:
        node = nodes[place - 1]
        operands = [_evaluated(nodes, each, codes, known) for each in node.numbers]
        if node.name == "table":
            value = node.more[np.clip(operands[0], 0, len(node.more) - 1).astype(int)]
        elif node.name == "integer_pow":
            value = np.asarray(operands[0], float) ** node.more
        else:
            value = np.asarray(OPERATIONS[node.name](*operands), float)
        known[place] = np.trunc(value) if node.whole else value
    return known[place]


def _alike(parts: list[np.ndarray], shape: tuple[int, ...]) -> list[np.ndarray] | None:
    """Operands with the same shape and the same alternatives: of two that have several, all pairs."""
    many = [i for i, part in enumerate(parts) if part.shape[1] > 1]
    total = math.prod(parts[i].shape[1] for i in many)
    if total > ALTERNATIVES:
        return None
    out = []
    for i, part in enumerate(parts):
        lead = [part.shape[1] if j == i else 1 for j in many]
        wide = part.reshape(6, *lead, *(part.shape[2:] or (1,) * len(shape)))
        wide = np.broadcast_to(wide, (6, *(parts[j].shape[1] for j in many), *shape))
        out.append(wide.reshape(6, total, *shape))
    return out


def _known(value: np.ndarray) -> np.ndarray:
    return np.stack(np.broadcast_arrays(float(KNOWN), 0.0, value, -np.inf, np.inf, 0.0))


def _opaque(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Some function of the operands: its cell is theirs, if they have one."""
    source = np.full(parts[0].shape[1:], float(KNOWN))
    for part in parts:
        own = part[SOURCE]
        source = np.where((own == KNOWN) | (own == source), source, np.where(source == KNOWN, own, UNKNOWN))
    source = np.where(source == KNOWN, UNKNOWN, source)
    return np.stack(np.broadcast_arrays(source, np.nan, np.nan, -np.inf, np.inf, 0.0))


def _sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    held = [(p[SOURCE] == KNOWN) for p in (a, b)]
    free = [np.isinf(p[LOW]) & np.isinf(p[HIGH]) for p in (a, b)]
    with np.errstate(invalid="ignore"):
        both = np.stack([np.where(held[0], b[SOURCE], a[SOURCE]), *(a[[SCALE, OFFSET]] + b[[SCALE, OFFSET]])])
        low = np.where(held[0], b[LOW] + a[OFFSET], a[LOW] + b[OFFSET])
        high = np.where(held[0], b[HIGH] + a[OFFSET], a[HIGH] + b[OFFSET])
    same = held[0] | held[1] | (a[SOURCE] == b[SOURCE]) & (a[SOURCE] >= 0) & free[0] & free[1]
    one = held[0] ^ held[1]
    found = np.stack([*both, np.where(one, low, -np.inf), np.where(one, high, np.inf), np.zeros_like(low)])
    found = np.where(same, found, _opaque([a, b]))
    gone = (found[SOURCE] >= 0) & (found[SCALE] == 0)
    return np.where(gone, _known(found[OFFSET]), found)


def _scaled(a: np.ndarray, factor: Any) -> np.ndarray:
    factor = np.broadcast_to(factor, a.shape[1:])
    with np.errstate(invalid="ignore"):
        ends = np.sort(a[[LOW, HIGH]] * factor, 0)
        out = np.stack([a[SOURCE], a[SCALE] * factor, a[OFFSET] * factor, *ends, np.zeros_like(factor)])
    zero = (factor == 0) | (a[SOURCE] == KNOWN)
    return np.where(zero, _known(np.where(factor == 0, 0.0, a[OFFSET] * factor)), out)


def _clipped(a: np.ndarray, bound: Any, value: np.ndarray) -> np.ndarray:
    """max(a, value) or min(a, value)."""
    out = np.stack([*a[: OFFSET + 1], bound(a[LOW], value), bound(a[HIGH], value), np.zeros_like(value)])
    return np.where(a[SOURCE] == KNOWN, _known(bound(a[OFFSET], value)), out)


def _wrapped(predicate: _Value, index: _Value, shifted: _Value) -> np.ndarray | None:
    """where(i < 0, i + n, i), by which jnp reads negative indices, is i itself; None: this is no such thing."""
    no, yes, tested = index.numbers, shifted.numbers, predicate.negative
    if tested is None or not (tested.shape == no.shape == yes.shape and np.array_equal(tested, no, True)):
        return None
    with np.errstate(invalid="ignore"):
        shift = yes[OFFSET] - no[OFFSET]
    same = (yes[SOURCE] == no[SOURCE]) & ((yes[SCALE] == no[SCALE]) | np.isnan(yes[SCALE]) & np.isnan(no[SCALE]))
    if not same.all() or not ((shift > 0) | np.isnan(shift)).all():
        return None
    return no


def _selected(which: np.ndarray, no: np.ndarray, yes: np.ndarray) -> np.ndarray:
    """where(which, yes, no)."""
    picked = np.where(which[OFFSET] != 0, yes, no)
    return np.where(which[SOURCE] == KNOWN, picked, _opaque([which, no, yes]))


# Gathers of indices


def _stacked(parts: list[np.ndarray]) -> np.ndarray | None:
    """Scalars as one vector of indices."""
    if any(part.shape[1] > 1 for part in parts):
        return None
    return np.stack(parts, -1)


def _gathered(operand: Any, indices: Any, numbers: Any, dims: tuple, sizes: tuple, shape: tuple, nodes: list) -> np.ndarray | None:
    """The numbers that a gather finds in an array of numbers."""
    if operand is None or indices is None or indices.shape[1] > 1 or math.prod(shape) > LARGEST:
        return None
    flat = indices[:, 0]  # (6, *batch, components)
    components = tuple(numbers.start_index_map) if numbers is not None else tuple(range(len(dims)))
    varying = [k for k in range(len(components)) if not (flat[SOURCE, ..., k] == KNOWN).all()]
    if not varying:
        return operand.reshape(6, operand.shape[1], -1)[:, :, _positions(flat[OFFSET], components, numbers, dims, sizes, shape)]
    if (operand[SOURCE] == KNOWN).all():  # a table of constants: some number of those, by the cell of the index
        source = _opaque([flat[..., k] for k in varying])[SOURCE]
        single = np.unique(source)
        found = _numbers(np.full(shape, single[0] if len(single) == 1 else UNKNOWN), np.nan, np.nan)
        found[LOW], found[HIGH] = operand[OFFSET].min(), operand[OFFSET].max()
        if len(dims) == 1 and sizes == (1,) and operand.shape[1] == 1:
            starts = np.broadcast_to(flat[..., 0].reshape(6, -1), (6, math.prod(shape)))[:, None]
            _write(nodes, found, [starts.reshape(6, 1, *shape)], "table", True, operand[OFFSET].ravel())
        return found
    count = math.prod(dims[components[k]] - sizes[components[k]] + 1 for k in varying)
    if count * operand.shape[1] > ALTERNATIVES:
        return None
    out = []
    for at in np.ndindex(*(dims[components[k]] - sizes[components[k]] + 1 for k in varying)):
        starts = flat[OFFSET].copy()
        for k, start in zip(varying, at, strict=True):
            starts[..., k] = start
        out.append(operand.reshape(6, operand.shape[1], -1)[:, :, _positions(starts, components, numbers, dims, sizes, shape)])
    return np.concatenate(out, 1)


def _positions(starts: np.ndarray, components: tuple, numbers: Any, dims: tuple, sizes: tuple, shape: tuple) -> np.ndarray:
    """Where in the flattened operand each element of the result stands."""
    grid = np.arange(math.prod(dims)).reshape(dims)
    if numbers is None:
        where = tuple(slice(b, b + s) for b, s in zip(_inside(starts, dims, sizes, components), sizes, strict=True))
        return grid[where]
    paired = dict(zip(getattr(numbers, "operand_batching_dims", ()), getattr(numbers, "start_indices_batching_dims", ()), strict=True))
    away = (*numbers.collapsed_slice_dims, *paired)
    window = [axis for axis in range(len(dims)) if axis not in away]
    batch = starts.shape[:-1]
    out = np.empty((*batch, *(sizes[axis] for axis in window)), int)
    for at in np.ndindex(*batch):
        begin = _inside(starts[at], dims, sizes, components)
        for axis, place in paired.items():
            begin[axis] = at[place]
        part = grid[tuple(slice(b, b + s) for b, s in zip(begin, sizes, strict=True))]
        out[at] = part.reshape([sizes[axis] for axis in window])
    order, rest, wide = [], iter(range(len(batch))), iter(range(len(batch), out.ndim))
    for place in range(out.ndim):
        order.append(next(wide) if place in numbers.offset_dims else next(rest))
    return out.transpose(order).reshape(shape)


def _inside(starts: np.ndarray, dims: tuple, sizes: tuple, components: tuple) -> list[int]:
    """Where a slice begins, as JAX clamps it."""
    begin = [0] * len(dims)
    for axis, start in zip(components, starts, strict=True):
        begin[axis] = int(np.clip(start, 0, dims[axis] - sizes[axis]))
    return begin


# Moves: numbers and labels go with the elements


def _moved(value: _Value, change: Any, axes: Sequence[frozenset[Label]], lost: Iterable[frozenset[Label]] = ()) -> _Value:
    loose = value.loose | {label[:2] for labels in lost for label in labels}
    small = value.numbers is not None
    return _Value(change(value.numbers) if small else None, tuple(axes), loose, None if value.negative is None else change(value.negative))


def _broadcast(eqn: Any, values: list[_Value]) -> list[_Value]:
    (value, *_), shape, places = values, eqn.params["shape"], eqn.params["broadcast_dimensions"]
    sizes = eqn.invars[0].aval.shape
    wide = [1] * len(shape)
    axes, lost = [frozenset()] * len(shape), []
    for place, size, labels in zip(places, sizes, value.axes, strict=True):
        wide[place] = size
        if size == shape[place]:
            axes[place] = labels
        else:
            lost.append(labels)

    def change(a):
        return np.broadcast_to(a.reshape(*a.shape[:2], *wide), (*a.shape[:2], *shape))

    if math.prod(shape) > LARGEST:
        value = value._replace(numbers=None, negative=None)
    return [_moved(value, change, axes, lost)]


def _reshape(eqn: Any, values: list[_Value]) -> list[_Value]:
    before, after, value = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape, values[0]
    axes, lost = [frozenset()] * len(after), []
    i = j = 0
    while i < len(before) or j < len(after):  # groups of axes with the same product; of one axis each, but for ones, labels stay
        group, other = [i] if i < len(before) else [], [j] if j < len(after) else []
        i, j = i + len(group), j + len(other)
        while math.prod(before[k] for k in group) != math.prod(after[k] for k in other):
            if math.prod(before[k] for k in group) < math.prod(after[k] for k in other):
                group.append(i)
                i += 1
            else:
                other.append(j)
                j += 1
        real, place = [k for k in group if before[k] != 1], [k for k in other if after[k] != 1]
        if len(real) == len(place) == 1:
            axes[place[0]] = value.axes[real[0]]
            lost += [value.axes[k] for k in group if k not in real]
        elif not real and group and other:
            axes[other[0]] = frozenset().union(*(value.axes[k] for k in group))
        else:
            lost += [value.axes[k] for k in group]
    return [_moved(value, lambda a: a.reshape(*a.shape[:2], *after), axes, lost)]


def _squeeze(eqn: Any, values: list[_Value]) -> list[_Value]:
    gone = [axis % len(values[0].axes) for axis in eqn.params["dimensions"]]
    axes = [labels for axis, labels in enumerate(values[0].axes) if axis not in gone]
    lost = [values[0].axes[axis] for axis in gone]
    return [_moved(values[0], lambda a: a.reshape(*a.shape[:2], *eqn.outvars[0].aval.shape), axes, lost)]


def _transpose(eqn: Any, values: list[_Value]) -> list[_Value]:
    order = eqn.params["permutation"]
    axes = [values[0].axes[axis] for axis in order]
    return [_moved(values[0], lambda a: a.transpose(0, 1, *(2 + axis for axis in order)), axes)]


def _cut(eqn: Any, values: list[_Value]) -> list[_Value]:
    begins, ends, steps = eqn.params["start_indices"], eqn.params["limit_indices"], eqn.params["strides"] or (1,) * len(values[0].axes)
    where = tuple(slice(b, e, s) for b, e, s in zip(begins, ends, steps, strict=True))
    axes, lost = [], []
    for labels, begin, step, size, left in zip(
        values[0].axes, begins, steps, eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape, strict=True
    ):
        if step == 1 and (left > 1 or size == 1):
            axes.append(frozenset((p, axis, shift - begin) for p, axis, shift in labels))
        else:  # one entry, whichever group a row belongs to
            axes.append(frozenset())
            lost.append(labels)
    return [_moved(values[0], lambda a: a[(slice(None), slice(None), *where)], axes, lost)]


def _split(eqn: Any, values: list[_Value]) -> list[_Value]:
    axis, begin, out = eqn.params["axis"], 0, []
    for size in eqn.params["sizes"]:
        where = (slice(None),) * (2 + axis) + (slice(begin, begin + size),)
        axes = list(values[0].axes)
        axes[axis] = frozenset((p, a, shift - begin) for p, a, shift in axes[axis])
        out.append(_moved(values[0], lambda a, where=where: a[where], axes))
        begin += size
    return out


def _unstack(eqn: Any, values: list[_Value]) -> list[_Value]:
    axis = eqn.params["axis"]
    axes = [labels for i, labels in enumerate(values[0].axes) if i != axis]
    return [
        _moved(values[0], lambda a, i=i: np.take(a, i, 2 + axis), axes, [values[0].axes[axis]]) for i in range(len(eqn.outvars))
    ]


def _reverse(eqn: Any, values: list[_Value]) -> list[_Value]:
    turned = eqn.params["dimensions"]
    axes = [frozenset() if axis in turned else labels for axis, labels in enumerate(values[0].axes)]
    lost = [values[0].axes[axis] for axis in turned]
    return [_moved(values[0], lambda a: np.flip(a, [2 + axis for axis in turned]), axes, lost)]


def _concatenate(eqn: Any, values: list[_Value]) -> list[_Value]:
    axis, begin, axes = eqn.params["dimension"], 0, [frozenset() for _ in values[0].axes]
    for value, var in zip(values, eqn.invars, strict=True):
        for i, labels in enumerate(value.axes):
            axes[i] |= {(p, a, shift + begin) for p, a, shift in labels} if i == axis else labels
        begin += var.aval.shape[axis]
    parts = [value.numbers for value in values]
    loose = frozenset().union(*(value.loose for value in values))
    return [_Value(_together(parts, lambda parts: np.concatenate(parts, 2 + axis)), tuple(axes), loose)]


def _stack(eqn: Any, values: list[_Value]) -> list[_Value]:
    axis = eqn.params["axis"]
    axes = [frozenset().union(*each) for each in zip(*(value.axes for value in values), strict=True)]
    axes.insert(axis, frozenset())
    loose = frozenset().union(*(value.loose for value in values))
    return [_Value(_together([v.numbers for v in values], lambda parts: np.stack(parts, 2 + axis)), tuple(axes), loose)]


def _together(parts: list, join: Any) -> np.ndarray | None:
    """Arrays of numbers as one, if all are known, with the alternatives of each."""
    if any(part is None for part in parts):
        return None
    most = max(part.shape[1] for part in parts)
    return join([np.take(part, np.arange(most) % part.shape[1], 1) for part in parts])


def _tile(eqn: Any, values: list[_Value]) -> list[_Value]:
    reps = eqn.params["reps"]
    axes = [frozenset() if rep != 1 else labels for rep, labels in zip(reps, values[0].axes, strict=True)]
    lost = [labels for rep, labels in zip(reps, values[0].axes, strict=True) if rep != 1]
    return [_moved(values[0], lambda a: np.tile(a, (1, 1, *reps)), axes, lost)]


def _iota(eqn: Any, values: list[_Value]) -> list[_Value]:
    shape, axis = eqn.params["shape"], eqn.params["dimension"]
    if math.prod(shape) > LARGEST:
        return [_Value(None, tuple(frozenset([(TABLE, 0, 0)]) if i == axis else frozenset() for i in range(len(shape))))]
    return [_constant(np.broadcast_to(np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape))]


def _reduce(eqn: Any, values: list[_Value]) -> list[_Value]:
    gone = eqn.params["axes"]
    axes = [labels for axis, labels in enumerate(values[0].axes) if axis not in gone]
    return [_Value(None, tuple(axes), values[0].loose | {label[:2] for axis in gone for label in values[0].axes[axis]})]


def _dot(eqn: Any, values: list[_Value]) -> list[_Value]:
    summed, batch = eqn.params["dimension_numbers"]
    left, right = values
    axes = [left.axes[a] | right.axes[b] for a, b in zip(*batch, strict=True)]
    loose = left.loose | right.loose
    for value, own, shared in zip(values, summed, batch, strict=True):
        axes += [labels for axis, labels in enumerate(value.axes) if axis not in (*own, *shared)]
        loose |= {label[:2] for axis in own for label in value.axes[axis]}
    return [_Value(None, tuple(axes), loose)]


_MOVES = {
    "broadcast_in_dim": _broadcast, "reshape": _reshape, "squeeze": _squeeze, "transpose": _transpose, "slice": _cut, "split": _split,
    "unstack": _unstack, "rev": _reverse, "concatenate": _concatenate, "stack": _stack, "tile": _tile, "iota": _iota,
    "reduce_sum": _reduce, "reduce_max": _reduce, "reduce_min": _reduce, "reduce_prod": _reduce, "dot_general": _dot,
}  # fmt: skip
