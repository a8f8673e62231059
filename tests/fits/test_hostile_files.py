"""A file that is not what it says is refused in words, with memory bounded and nothing written."""

import dataclasses
import io
import json
import os
import zipfile

import numpy as np
import pandas as pd
import pytest

import cases
import probml
import probml.models
from cases import fitted
from probml.fits import saving
from probml.fits.saving import packed
from probml.posteriors import posterior
from probml.posteriors.units import Unit


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The bytes of a saved fit, its model and data."""
    model, data = cases.coin(a=2.0, b=3.0), {"toss": [1, 0, 1, 1]}
    path = tmp_path_factory.mktemp("good") / "fit"
    fit = model.fit(data)
    fit.save(path)
    return path.read_bytes(), model, data, fit


def attempt(path, model, data, right):
    """A hostile file is refused, or is the fit that was saved."""
    try:
        fit = probml.load(path, model)
    except probml.ModelError as error:
        assert str(path) in str(error) or "posterior" in str(error)
        return False
    np.testing.assert_array_equal(fit.log_prob(data), right.log_prob(data))
    str(fit.status), fit.summary(), fit.converged
    return True


def test_a_file_cut_anywhere_is_refused(good, tmp_path):
    whole, model, data, right = good
    path = tmp_path / "fit"
    for length in np.unique(np.linspace(0, len(whole) - 1, 60).astype(int)):
        path.write_bytes(whole[:length])
        assert not attempt(path, model, data, right)


def test_a_file_with_flipped_bits_is_refused_or_the_same(good, tmp_path):
    whole, model, data, right = good
    path, rng = tmp_path / "fit", np.random.default_rng(0)
    same = 0
    for _ in range(300):
        torn = bytearray(whole)
        torn[rng.integers(len(torn))] ^= 1 << rng.integers(8)
        path.write_bytes(torn)
        same += attempt(path, model, data, right)
    assert same < 100  # what a zip file does not check: dates, and the like


def rewritten(whole, change):
    """The file with what stands beside the arrays, and the arrays, changed; its sums are right."""
    with np.load(io.BytesIO(whole)) as file:
        arrays = {name: file[name] for name in file.files}
    meta = json.loads(arrays.pop("meta").tobytes())
    meta, arrays = change(meta, arrays) or (meta, arrays)
    text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    out = io.BytesIO()
    np.savez(out, meta=text, **arrays)
    return out.getvalue()


VALUES = (None, True, -1, 10**30, 1.5, "text", [], [[]], {}, [1, 2], {"a": 1}, {"heads": [[], 1]},
          [["heads", "odd"]], [["x", "seen"]])


def test_every_word_of_a_file_may_be_anything(good, tmp_path):
    whole, model, data, right = good
    path = tmp_path / "fit"
    with np.load(io.BytesIO(whole)) as file:
        words = json.loads(file["meta"].tobytes())
    for word in words:
        for value in VALUES:
            path.write_bytes(rewritten(whole, lambda m, a: m.update({word: value})))  # noqa: B023
            try:
                fit = probml.load(path, model)
            except probml.ModelError:
                continue
            assert np.isfinite(fit.log_prob(data)).all(), (word, value)
            str(fit.status), fit.summary(), repr(fit)


def test_every_array_of_a_file_may_be_anything(good, tmp_path):
    whole, model, data, right = good
    path = tmp_path / "fit"
    with np.load(io.BytesIO(whole)) as file:
        names = [name for name in file.files if name != "meta"]
    for name in names:
        for value in (np.zeros(0), np.zeros((3, 3)), np.array("text"), np.array(np.nan),
                      np.array([1j]), None):
            def change(meta, arrays):
                arrays.pop(name)  # noqa: B023
                if value is not None:  # noqa: B023
                    arrays[name] = value  # noqa: B023
            path.write_bytes(rewritten(whole, change))
            try:
                fit = probml.load(path, model)
            except probml.ModelError:
                continue
            assert name in ("history", "held_out") or np.isfinite(fit.log_prob(data)).all(), name


BELIEFS = {
    "normal": (posterior.Normal(np.zeros(1), np.ones(1), np.zeros((1, 0))), [
        {"loc": np.zeros(2), "scale": np.ones(2), "factor": np.zeros((2, 0))}, {"loc": np.zeros(())},
        {"scale": np.ones(2)}, {"factor": np.zeros(0)}, {"factor": np.zeros((3, 1))}]),
    "draws": (posterior.Draws({"heads": np.full((1, 4), 0.5)}, None, {"accept": np.ones((1, 4))}), [
        {"values/heads": np.full((0, 4), 0.5)}, {"values/heads": np.full((1, 3), 0.5)},
        {"values/heads": np.full(4, 0.5)}, {"stats/accept": np.ones(4)}, {"tables": np.zeros((2, 2))}]),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "i"), [(kind, i) for kind, (_, wrong) in BELIEFS.items() for i in range(len(wrong))])
def test_a_posterior_of_other_shapes_is_refused(kind, i, good, tmp_path):
    model, (belief, wrong), path = good[1], BELIEFS[kind], tmp_path / "fit"
    dataclasses.replace(model.at({"heads": 0.5}), belief=belief, shapes=good[3].shapes).save(path)
    assert type(probml.load(path, model).belief) is type(belief)
    path.write_bytes(rewritten(path.read_bytes(), lambda meta, arrays: arrays.update(
        {f"drawn/{name}": value for name, value in wrong[i].items()})))
    with pytest.raises(probml.ModelError, match="not a fit saved by probml"):
        probml.load(path, model)


def test_a_file_of_the_other_order_of_bytes_is_read(good, tmp_path):
    whole, model, data, right = good
    path = tmp_path / "fit"
    path.write_bytes(rewritten(whole, lambda meta, arrays: (
        meta, {name: value.astype(value.dtype.newbyteorder()) for name, value in arrays.items()})))
    np.testing.assert_array_equal(probml.load(path, model).log_prob(data), right.log_prob(data))


@pytest.mark.parametrize("unit", [{"factor": np.array(["text"])}, {"shift": np.ones((2, 3)), "mix": (0, np.ones(3))},
                                  {"others": {"heads": (5, np.ones(2))}}, {"factor": np.ones((2, 1)), "names": {}}],
                         ids=lambda unit: "-".join(unit))
def test_units_that_tell_no_parameter_are_refused(good, tmp_path, unit):
    whole, model, *_ = good
    path, given = tmp_path / "fit", {}
    said = packed({"heads": Unit(**unit)}, given, "units")
    path.write_bytes(rewritten(whole, lambda meta, arrays: (meta | {"units": said}, arrays | given)))
    with pytest.raises(probml.ModelError, match="not a fit saved by probml"):
        probml.load(path, model)


def test_a_bomb_is_refused_before_it_is_unpacked(good, tmp_path):
    _, model, *_ = good
    path = tmp_path / "fit"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("meta.npy", b"\0" * 2**26)
    assert path.stat().st_size < 2**18
    with pytest.raises(probml.ModelError, match="would unpack to 67,108,864"):
        probml.load(path, model)


def test_an_array_longer_than_its_file_is_refused(good, tmp_path):
    _, model, *_ = good
    path, header = tmp_path / "fit", io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False,
                                                  "shape": (10**12,)})
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("meta.npy", header.getvalue())
    with pytest.raises(probml.ModelError, match="not a fit saved by probml"):
        probml.load(path, model)
    path.write_bytes(header.getvalue())  # an array alone
    with pytest.raises(probml.ModelError, match="not a fit saved by probml"):
        probml.load(path, model)


def test_objects_are_not_unpickled(good, tmp_path):
    _, model, *_ = good
    path, ran = tmp_path / "fit", tmp_path / "ran"

    class Run:
        def __reduce__(self):
            return os.mkdir, (str(ran),)

    np.savez(tmp_path / "evil.npz", meta=np.array([Run()], object))
    os.replace(tmp_path / "evil.npz", path)
    with pytest.raises(probml.ModelError, match="not a fit saved by probml"):
        probml.load(path, model)
    assert not ran.exists()


def test_names_with_paths_write_nothing(good, tmp_path):
    whole, model, data, right = good
    path = tmp_path / "deep" / "fit"
    path.parent.mkdir()
    path.write_bytes(whole)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("../../escaped.npy", b"x")
    before = sorted(p.name for p in tmp_path.rglob("*"))
    attempt(path, model, data, right)
    assert sorted(p.name for p in tmp_path.rglob("*")) == before


def test_a_folder_that_is_not_there_is_named(good, tmp_path):
    fit = good[3]
    with pytest.raises(probml.ModelError, match="nowhere' does not exist.*Create the folder first"):
        fit.save(tmp_path / "nowhere" / "fit")
    with pytest.raises(probml.ModelError, match="is a folder"):
        fit.save(tmp_path)
    with pytest.raises(probml.ModelError, match="expected the model that was fitted"):
        probml.load(tmp_path / "fit", cases.coin)


def test_labels_that_no_file_holds_are_named(tmp_path):
    data = {"face": pd.cut([1.0, 2, 3, 1], 3)}
    fit = fitted(cases.dice(), data)
    assert isinstance(fit.labels("face")[0], pd.Interval)
    with pytest.raises(probml.ModelError, match=r"'face' has the label Interval.*astype\(str\)"):
        fit.save(tmp_path / "fit")
    assert not list(tmp_path.iterdir())


def test_a_class_of_the_model_library_is_found_wherever_its_module_lies():
    moved = saving.named("probml.models.a_folder_of_before.gaussian", "GaussianMixture")
    assert moved is probml.models.GaussianMixture
    with pytest.raises(probml.ModelError, match="cannot be imported"):
        saving.named("probml.models.a_folder_of_before.gaussian", "Nothing")
    with pytest.raises(probml.ModelError, match="not part of probml"):
        saving.named("os", "system")
