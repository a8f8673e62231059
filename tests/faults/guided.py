"""Changes that follow what a reader does: files that lead it along lines it has not been on are kept, and changed
further. Files that are sealed, by a digest, a checksum or a compression, are opened, changed inside, and sealed again:
else no change would come further than the seal.
"""

import gzip
import hashlib
import io
import json
import re
import sys
import zipfile
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any

import numpy as np

from probml.fits.saving import named, unpacked
from probml.numerics.kept.disk import DIGEST_BYTES

WORDS = (b"", b"0", b"-1", b"1e400", b"nan", b"{", b"}", b"(", b")", b";", b",", b"|", b'"', b"//", b"/*",
         b"probability", b"variable", b"table", b"default", b"type discrete [ 99999999 ]", b"\x00",
         "é".encode("latin-1"), b"9" * 400, b"a" * 70000, b"\n" * 1000, b"../../escaped", b"\xef\xbb\xbf",
         b"\x1f\x8b\x08", b"PK\x03\x04", b"\\", b"\\u0000", b"[" * 3000)
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 2**31, 2**63, 10**30, -(2**63), 1.5, 1e308, 1e400, float("nan"), "", "x",
    "../../escaped", "a" * 5000, [], {}, [0], [[]], ["a", "a"], {"kind": "range", "value": [0, 1, 2**60]},
    {"kind": "record", "module": "probml.fits.saving", "name": "importlib.import_module",
     "value": {}},
    {"kind": "dtype", "value": "V99999999"}, {"kind": "type", "value": "float"})
KEPT = 2000  # files from which it goes on
LARGE = 200_000  # bytes of a file from which it does not


class Trail:
    """The steps from line to line that are taken in files whose paths hold one of these; `new` are those of the last
    run that none before had taken."""

    def __init__(self, *files: str):
        self.files = files
        self.taken: set[tuple] = set()
        self.new: set[tuple] = set()
        self._own: dict[CodeType, bool] = {}

    def run(self, work: Callable[[], Any]) -> Any:
        """work(), watched."""
        self.new = set()
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            return work()
        finally:
            sys.settrace(before)
            self.taken |= self.new

    def _call(self, frame: FrameType, event: str, arg: Any) -> Callable | None:
        code = frame.f_code
        own = self._own.get(code)
        if own is None:
            own = self._own[code] = any(part in code.co_filename for part in self.files)
        if not own:
            return None
        last = 0

        def line(frame: FrameType, event: str, arg: Any) -> Callable:
            nonlocal last
            step = (code, last, frame.f_lineno if event != "exception" else -frame.f_lineno)
            if step not in self.taken:
                self.new.add(step)
            last = frame.f_lineno
            return line

        return line


# Changes


def changed(content: bytes, random: np.random.Generator, others: Sequence[bytes] = ()) -> bytes:
    """A file with something changed in it, or with a piece of another file of its kind."""
    out = bytearray(content)
    for _ in range(int(random.integers(1, 4))):
        if not out:
            break
        at, kind = int(random.integers(len(out))), int(random.integers(8 if others else 7))
        span = int(min(len(out) - at, random.integers(1, 2 + len(out) // 8)))
        if kind == 0:
            out[at] ^= 1 << int(random.integers(8))
        elif kind == 1:
            del out[at:]
        elif kind == 2:
            del out[at : at + span]
        elif kind == 3:
            out[at:at] = out[at : at + span] * int(random.integers(1, 4))
        elif kind == 4:
            out[at : at + 4] = random.bytes(4)
        elif kind == 5:
            out[at:at] = WORDS[random.integers(len(WORDS))]
        elif kind == 6:  # a word or a number in the place of another
            found = list(re.finditer(rb"[A-Za-z_0-9.+-]+|[{}()\[\],;|\"]", bytes(out[:LARGE])))
            if found:
                one, other = (found[random.integers(len(found))] for _ in range(2))
                new = other.group() if random.random() < 0.6 else WORDS[random.integers(len(WORDS))]
                out[one.start() : one.end()] = new
        else:
            other = others[random.integers(len(others))]
            low, high = sorted(int(i) for i in random.integers(len(other) + 1, size=2))
            out[at : at + span] = other[low:high]
    return bytes(out)


def changed_json(value: Any, random: np.random.Generator) -> Any:
    """A value of JSON in which one place holds something else: another place's, a word, nothing, itself twice."""
    value = json.loads(json.dumps(value))
    places = list(_places(value))
    for _ in range(int(random.integers(1, 3))):
        if not places:
            return VALUES[random.integers(len(VALUES))]
        holder, key = places[random.integers(len(places))]
        if (isinstance(holder, dict) and key not in holder) or (isinstance(holder, list) and key >= len(holder)):
            continue
        other, name = places[random.integers(len(places))]
        kind = random.integers(6)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, list):
            holder.insert(key, holder[key])
        elif kind == 2 and isinstance(holder[key], int | float):
            holder[key] = holder[key] + int(random.integers(-2, 3))
        elif kind == 3 and isinstance(holder, dict):
            holder[str(VALUES[random.integers(len(VALUES))])[:40]] = holder[key]
        elif kind == 4 and (isinstance(other, dict) and name in other or isinstance(other, list) and name < len(other)):
            holder[key] = json.loads(json.dumps(other[name]))
        else:
            holder[key] = VALUES[random.integers(len(VALUES))]
    return value


def _places(value: Any):
    """(holder, key) of all that stands in a value of JSON."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, key
        yield from _places(item)


def changed_array(value: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """An array of another shape, dtype, order, or with something odd in it."""
    value = np.array(value)
    kind = random.integers(8)
    if kind == 0 and value.size:
        flat = value.reshape(-1)
        with np.errstate(all="ignore"):
            flat[random.integers(flat.size)] = np.array(
                [np.nan, np.inf, -np.inf, 0, -1, 1e30, -0.0, 2**31][random.integers(8)]).astype(value.dtype, copy=False)
        return value
    if kind == 1:
        return value.astype(["f4", "f8", "i4", "i8", "u1", "?", "S3", "U3", "c8", "M8[s]", ">f8"][random.integers(11)])
    if kind == 2:
        return value[..., None] if random.random() < 0.5 else value[None]
    if kind == 3:
        return value.reshape(-1)
    if kind == 4 and value.ndim:
        return value[: int(random.integers(len(value) + 1))]
    if kind == 5 and value.ndim:
        return np.repeat(value, int(random.integers(2, 50)), int(random.integers(value.ndim)))
    if kind == 6:
        return np.zeros(0, value.dtype)
    return np.asfortranarray(value.T)


def _sealed_arrays(arrays: dict[str, np.ndarray]) -> bytes:
    whole = io.BytesIO()
    np.savez(whole, **arrays)
    return whole.getvalue()


def inside_arrays(words: str, seal: Callable[[dict, dict], None] | None = None) -> Callable:
    """Changes inside a file of arrays, of which the one of that name is JSON.

    Args:
        seal: sets what the words say of the arrays.
    """
    def change(content: bytes, random: np.random.Generator, others: Sequence[bytes] = ()) -> bytes:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        if words not in arrays:
            return changed(content, random, others)
        said, kind = json.loads(arrays[words].tobytes()), random.integers(8)
        names = list(arrays)
        name = names[random.integers(len(names))]
        if kind < 4:
            said = changed_json(said, random)
        elif kind == 4:
            arrays.pop(name)
        elif kind == 5:
            arrays[name + "x"] = arrays.pop(name)
        elif kind == 6 and (members := _inner(arrays[name])) is not None:
            arrays[name] = np.frombuffer(change(members, random), np.uint8)
        else:
            arrays[name] = changed_array(arrays[name], random)
        if words in arrays:
            if seal is not None and isinstance(said, dict):
                seal(said, {name: array for name, array in arrays.items() if name != words})
            arrays[words] = np.frombuffer(json.dumps(said).encode(), np.uint8)
            if random.random() < 0.1:
                arrays[words] = np.frombuffer(changed(arrays[words].tobytes(), random), np.uint8)
        return _sealed_arrays(arrays)

    return change


def _inner(array: np.ndarray) -> bytes | None:
    """A file of arrays within an array, as an estimator holds its fit."""
    content = array.tobytes() if array.dtype == np.uint8 else b""
    return content if zipfile.is_zipfile(io.BytesIO(content)) else None


def identified(said: dict, arrays: dict[str, np.ndarray]) -> None:
    """The identity of the model of the zoo that a fit's file names, made anew where it names one."""
    try:
        zoo = said["zoo"]
        settings = {name: unpacked(value, arrays) for name, value in zoo["settings"].items()}
        said["identity"] = named(zoo["module"], zoo["name"])(**settings).identity
    except Exception:  # as load will find
        return


def inside_gzip(content: bytes, random: np.random.Generator, others: Sequence[bytes] = ()) -> bytes:
    """Changes of what a file unpacks to."""
    if not content.startswith(b"\x1f\x8b"):
        return changed(content, random, others)
    return gzip.compress(changed(gzip.decompress(content), random), 1)


def inside_digest(content: bytes, random: np.random.Generator, others: Sequence[bytes] = ()) -> bytes:
    """Changes behind the digest of a kept program."""
    value = changed(content[DIGEST_BYTES:], random)
    return hashlib.sha256(value).digest() + value


def inside_parquet(content: bytes, random: np.random.Generator, others: Sequence[bytes] = ()) -> bytes:
    """Columns of other types and names, nested, dictionaries, holes; other words beside them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(content))
    names, columns, rows = list(table.column_names), list(table.columns), table.num_rows
    i, kind = int(random.integers(len(names))), random.integers(6)
    if kind < 2:
        columns[i] = pa.array(_odd(rows, random))
    elif kind == 2:
        names[i] = [names[0], "", "../../escaped", "__index_level_0__", "\x00", "x.y"][random.integers(6)]
    elif kind == 3 and len(names) > 1:
        del names[i], columns[i]
    elif kind == 4:
        columns = [column.slice(0, int(random.integers(rows + 1))) for column in columns[:1]]
        names = names[:1]
    else:
        said = {**(table.schema.metadata or {b"pandas": b"{}"})}
        words = said.get(b"pandas", b"{}")
        try:
            said[b"pandas"] = json.dumps(changed_json(json.loads(words), random)).encode()
        except ValueError:
            said[b"pandas"] = changed(words, random)
        table = table.replace_schema_metadata(said)
    out = io.BytesIO()
    made = pa.table(columns, names=names).replace_schema_metadata(table.schema.metadata)
    pq.write_table(made, out, row_group_size=int(random.integers(1, 30)),
                   compression=["none", "snappy", "gzip", "zstd"][random.integers(4)])
    return out.getvalue()


def _odd(rows: int, random: np.random.Generator) -> Any:
    """A column of some type."""
    import datetime
    import decimal

    import pyarrow as pa

    kinds: tuple[Callable[[int], Any], ...] = (
        lambda i: None, lambda i: i % 3 == 0, lambda i: "word" * (i % 3), lambda i: b"\xff" * (i % 3),
        lambda i: [i, None], lambda i: {"a": i, "b": [str(i)]}, lambda i: decimal.Decimal(i) / 7,
        lambda i: datetime.datetime(1 + 200 * (i % 40), 1, 1),
        lambda i: datetime.timedelta(i), lambda i: datetime.date(2000, 1, 1 + i % 28), lambda i: float("inf"),
        lambda i: 2**63 - 1 - i, lambda i: -i, lambda i: float("nan") if i % 2 else None, lambda i: 1e-320 * i)
    values = [kinds[random.integers(len(kinds))]] * rows
    made = pa.array([value(i) if random.random() < 0.9 else None for i, value in enumerate(values)])
    return made.dictionary_encode() if random.random() < 0.3 and not pa.types.is_nested(made.type) else made
