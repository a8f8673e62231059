"""A slice of hostile.py: changed files of every kind are answered, or refused in words."""


import guided
import hostile
import numpy as np
import pytest


def test_a_change_of_a_file_is_one_and_the_same_for_one_seed():
    content = b"variable rain { type discrete [ 2 ] { no, yes }; }"
    found = [guided.changed(content, np.random.default_rng(seed)) for seed in (1, 1, *range(2, 40))]
    assert found[0] == found[1] and len(set(found)) > 30


def _deep(path):
    """A reader that is reached by one byte after another."""
    content = path.read_bytes()
    if content[:1] == b"w":
        if content[1:2] == b"a":
            if content[2:3] == b"y":
                raise ZeroDivisionError("found")
    return content


def test_a_file_that_leads_further_is_changed_further(tmp_path):
    def step(content, random, others):
        out = bytearray(content)
        out[random.integers(3)] = random.integers(97, 123)
        return bytes(out)

    reader = hostile.Reader([b"abc"], _deep, change=step, files=(__file__,))
    counts, faults = hostile.tried("deep", reader, tmp_path, 20.0, 0, most=1)
    assert [content[:3] for content in faults.values()] == [b"way"] and counts["kept"] >= 3


def test_a_reader_that_fails_without_words_is_at_fault(tmp_path):
    def reads(path):
        int(path.read_bytes())

    path = tmp_path / "file"
    path.write_bytes(b"7")
    reader = hostile.Reader([b"7"], reads)
    assert hostile.judged(reader, path) == ""
    path.write_bytes(b"seven")
    assert hostile.judged(reader, path).startswith("ValueError")
    assert hostile.judged(hostile.Reader([], lambda path: path.with_name("other").touch()),
                          path) == "wrote beside the file"


SLICE = ("bif", "cache", "csv")  # which compile nothing


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in SLICE else [pytest.mark.slow]) for name in (
    "fit", "zoo", "bif", *hostile.CHECKPOINTS, "cache", "csv", "parquet")])
def test_changed_files_are_answered_or_refused_in_words(name, tmp_path):
    (made := tmp_path / "made").mkdir()
    (other := tmp_path / "other").mkdir()
    reader, quick = hostile.readers(made)[name](), name in SLICE
    reader = reader._replace(asked=lambda found: None) if quick else reader
    counts, faults = hostile.tried(name, reader, other, 0.3 if quick else 5.0, 0)
    assert not faults and (counts["refused"] or counts["read"])
