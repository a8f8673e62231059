"""A slice of hostile.py: changed files of every kind are answered, or refused in words."""

import hostile
import numpy as np
import pytest


def test_a_change_of_a_file_is_one_and_the_same_for_one_seed():
    content = b"variable rain { type discrete [ 2 ] { no, yes }; }"
    found = [hostile.changed(content, np.random.default_rng(seed)) for seed in (1, 1, *range(2, 40))]
    assert found[0] == found[1] and len(set(found)) > 30


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


@pytest.mark.slow
def test_changed_files_are_answered_or_refused_in_words(tmp_path):
    (made := tmp_path / "made").mkdir()
    (other := tmp_path / "other").mkdir()
    for name, reader in hostile.readers(made).items():
        counts, faults = hostile.tried(name, reader, other, 4.0, 0)
        assert faults == [], name
        assert counts["refused"] or counts["read"], name
