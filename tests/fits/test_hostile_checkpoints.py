"""A checkpoint that is not what it says is refused in words, with memory bounded, or the fit ends as if it
had not been."""

import io
import json
import warnings
import zipfile

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.errors import ModelError
from probml.numerics.outside.checkpoint import Checkpoint, Journal, _digest

X = np.concatenate([np.random.default_rng(0).normal(m, 1.0, 20) for m in (-0.7, 0.7)])
ENGINE = probml.EM(max_iterations=80, tolerance=0.0, accelerate=False, restarts=2)


@probml.model
def pair():
    weights = sample("weights", dist.Dirichlet(np.full(2, 2.0)))
    with plate("component", 2):
        mean = sample("mean", dist.Normal(0.0, 5.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], 1.0))


def fitted(path):
    return pair().fit({"x": X}, ENGINE, checkpoint=Checkpoint(path, seconds=0))


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """(the bytes of a checkpoint amid its fit, what it is of, where the fit ends)."""
    path, kept = tmp_path_factory.mktemp("good") / "state", []
    noted = Journal.note

    def note(self, key, past):
        noted(self, key, past)
        kept.append((path.read_bytes(), self.of))

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the limit of iterations
        patch.setattr(Journal, "note", note)
        right = fitted(path)
    assert len(kept) > 1
    return *kept[0], right


def attempt(path, right):
    """The file is refused by its name, or the fit ends where it should."""
    try:
        found = fitted(path)
    except ModelError as error:
        assert str(path) in str(error) or "the checkpoint cannot be read" in str(error), error
        return False
    np.testing.assert_allclose(found.history[-1], right.history[-1], rtol=1e-6)
    return True


def rewritten(content, change, signed=True):
    """The file with its words and arrays changed; the sums of the zip file are right, and its own if `signed`."""
    with np.load(io.BytesIO(content)) as file:
        arrays = [file[f"arr_{i}"] for i in range(len(file.files))]
    meta = json.loads(arrays[0].tobytes())
    change(meta, arrays)
    if signed:
        meta.pop("sum", None)
        meta["sum"] = _digest(meta, arrays[1:])
    out = io.BytesIO()
    np.savez(out, np.frombuffer(json.dumps(meta).encode(), np.uint8), *arrays[1:])
    return out.getvalue()


def test_a_checkpoint_cut_anywhere_or_with_flipped_bits_is_refused_or_the_same(good, tmp_path):
    content, of, _ = good
    path, rng, read = tmp_path / "state", np.random.default_rng(0), 0
    for length in np.unique(np.linspace(0, len(content) - 1, 40).astype(int)):
        path.write_bytes(content[:length])
        with pytest.raises(ModelError, match="state' cannot be read as a checkpoint"):
            Journal(Checkpoint(path), of)
    for _ in range(200):
        torn = bytearray(content)
        torn[rng.integers(len(torn))] ^= 1 << rng.integers(8)
        path.write_bytes(torn)
        try:
            Journal(Checkpoint(path), of)
            read += 1
        except ModelError as error:
            assert str(path) in str(error)
    assert read < 80  # what a zip file does not check: dates, and the like


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("value", [None, -1, 10**30, 1.5, "text", [], {}, [[1, 2]], {"map": {}}, {"array": 99},
                                   {"key": 1, "kind": "none"}], ids=str)
def test_what_a_checkpoint_says_may_be_anything(value, good, tmp_path):
    content, _, right = good
    path = tmp_path / "state"

    def anything(meta, _):
        return [(meta, "loops"), (meta, "of"), (meta, "probml checkpoint"),
                *((loop, i) for loop in meta["loops"].values() for i in range(4)),
                *((loop[3]["map"], name) for loop in meta["loops"].values() for name in loop[3]["map"]),
                *((loop[3]["map"]["history"], 0) for loop in meta["loops"].values())]

    places = []
    rewritten(content, lambda *found: places.extend(anything(*found)))
    for i in range(len(places)):
        def change(meta, arrays):
            where, name = anything(meta, arrays)[i]  # noqa: B023
            where[name] = value
        path.write_bytes(rewritten(content, change, signed=False))
        attempt(path, right)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_arrays_of_a_checkpoint_may_be_anything(good, tmp_path):
    content, _, right = good
    path, count = tmp_path / "state", []
    rewritten(content, lambda meta, arrays: count.append(len(arrays)))
    for i in range(1, count[0]):
        for value in (np.zeros(0), np.zeros((3, 3, 3)), np.array("text"), np.array([1j])):
            path.write_bytes(rewritten(content, lambda meta, arrays: arrays.__setitem__(i, value),  # noqa: B023
                                       signed=False))
            assert not attempt(path, right)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_checkpoint_of_the_other_order_of_bytes_is_read(good, tmp_path):
    content, _, right = good
    path = tmp_path / "state"

    def swap(meta, arrays):
        arrays[1:] = [array.astype(array.dtype.newbyteorder()) for array in arrays[1:]]

    path.write_bytes(rewritten(content, swap))
    assert attempt(path, right)


def test_a_bomb_and_an_array_longer_than_its_file_are_refused(good, tmp_path):
    of, path, header = good[1], tmp_path / "state", io.BytesIO()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("arr_0.npy", b"\0" * 2**26)
    assert path.stat().st_size < 2**18
    with pytest.raises(ModelError, match="that unpack to 67,108,864"):
        Journal(Checkpoint(path), of)
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("arr_0.npy", header.getvalue())
    with pytest.raises(ModelError, match="cannot be read as a checkpoint"):
        Journal(Checkpoint(path), of)
    deep = json.dumps({"probml checkpoint": 2, "of": of, "loops": {}}).replace("{}", "[" * 10**5 + "]" * 10**5)
    np.savez(path, np.frombuffer(deep.encode(), np.uint8))
    path.with_suffix(".npz").replace(path)
    with pytest.raises(ModelError, match="cannot be read as a checkpoint"):
        Journal(Checkpoint(path), of)
