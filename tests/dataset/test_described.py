"""Columns are described as a user knows them: type, missing values, range, an example."""

import numpy as np
import pandas as pd
import pytest

from probml.dataset.described import described, written

TABLE = pd.DataFrame({
    "age": [30, 41, 25, 30], "weight": [71.5, np.nan, 60.25, 80.0], "smoker": [True, False, True, True],
    "town": ["York", None, "Bath", "York"], "day": pd.to_datetime(["2020-02-01", None, "2020-01-01",
                                                                  "2020-03-01"]),
    "size": pd.Categorical(["s", "l", "m", "s"], ["s", "m", "l"], ordered=True),
    "empty": [np.nan] * 4})
EXPECTED = {
    "age": ("integer", "0.0%", "25 to 41", "30"), "weight": ("number", "25.0%", "60.25 to 80", "71.5"),
    "smoker": ("boolean", "0.0%", "False, True", "True"),
    "town": ("category", "25.0%", "Bath, York", "York"),
    "day": ("date", "25.0%", "2020-01-01 to 2020-03-01", "2020-02-01"),
    "size": ("category", "0.0%", "s, m, l", "s"), "empty": ("number", "100.0%", "", "")}


@pytest.mark.parametrize("form", ["pandas", "polars", "mapping"])
def test_a_table_of_any_library_is_described(form):
    table = TABLE
    if form == "polars":
        polars = pytest.importorskip("polars")
        table = polars.DataFrame({
            name: [None if value != value or value is None else value for value in column.tolist()]
            for name, column in TABLE.drop(columns=["day", "size", "empty"]).items()})
    if form == "mapping":
        table = {name: TABLE[name] for name in TABLE}
    found = {column.name: column.record() for column in described(table)}
    assert list(found) == [name for name in EXPECTED if name in found] and len(found) >= 4
    for name, record in found.items():
        assert tuple(record.values()) == (name, *EXPECTED[name])


def test_arrays_and_sequences_have_columns_by_number():
    assert [own.name for own in described(np.zeros((3, 2)))] == ["column 0", "column 1"]
    assert [own.name for own in described({"x": np.zeros((3, 2)), "n": [1, 2, 3]})] == [
        "x[0]", "x[1]", "n"]
    (own,) = described([np.zeros(3), np.ones(5)], "y")
    assert (own.rows, own.low, own.high) == (8, 0, 1)
    (wide,) = described(np.zeros((2, 300)), "pixel")
    assert wide.name == "pixel (300 columns)" and wide.rows == 600
    assert described(np.array(["a", "b"] * 40 + [None], object))[0].distinct == 2


def test_many_labels_are_cut_and_numbers_are_short():
    (own,) = described(pd.Series([f"s{i:02}" for i in range(20)] * 2, name="subject"))
    assert own.record()["range"] == "s00, s01, s02, s03, s04, s05, s06, s07, … (20 values)"
    assert [written(value) for value in (0.1 + 0.2, 123456.0, 2, True, None, "a " * 40)] == [
        "0.3", "123456", "2", "True", "", "a " * 19 + "a…"]
