"""Claims of probml.tables: every accepted form of data, and every refusal by name."""

import ast
import datetime
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from probml.dataset import arrays, tables
from probml.dataset.tables import Expected, read, read_weights, to_labels
from probml.errors import DataError


def real(name="x", cells=(), **more):
    return Expected(name, False, None, cells, **more)


def states(name="z", k=3, cells=(), **more):
    return Expected(name, True, k, cells, **more)


def count(name="n", cells=()):
    return Expected(name, True, None, cells)


X, XV, Z, N = real(), real("x", (2,)), states(), count()


def take(data, *sites, **more):
    return read(data, {e.name: e for e in sites}, more.pop("inputs", ()), more.pop("labels", {}),
                model="mixture", **more)


def refuses(words, data, *sites, **more):
    with pytest.raises(DataError) as error:
        take(data, *sites, **more)
    for word in words:
        assert word in str(error.value), f"{word!r} not in: {error.value}"


def column(data, *sites, **more):
    return take(data, *sites, **more).columns[sites[0].name]


# Accepted forms


def test_reading_tables_stands_on_numpy_alone():
    """Other table libraries are found by what was given, not imported; nothing is traced."""
    for module in (tables, arrays):
        tree = ast.parse(Path(module.__file__).read_text())
        plain = [alias.name for node in tree.body if isinstance(node, ast.Import)
                 for alias in node.names]
        found = {name.split(".")[0] for name in [
            *plain, *(node.module for node in tree.body if isinstance(node, ast.ImportFrom))
        ]}
        assert not found & {"pandas", "pyarrow", "jax"}


def test_a_complete_float_array_is_not_copied():
    x = np.zeros((4, 2))
    got = column({"x": x}, XV)
    assert got.values is x and got.observed is None and got.likelihood is None


def test_float32_stays_float32_and_other_numbers_become_float64():
    assert column({"x": np.ones(3, np.float32)}, X).values.dtype == np.float32
    assert column({"x": np.array([1, np.nan], np.float32)}, X).values.dtype == np.float32
    for given in ([1, 2], np.array([True, False]), np.ones(2, np.longdouble), np.ones(2, ">f8"),
                  np.array([1, 2], object)):
        values = column({"x": given}, X).values
        assert values.dtype == np.float64 and values.dtype.isnative


def test_unseen_real_cells_hold_the_mean_of_their_column():
    nan = np.nan
    x = np.array([[1.0, nan, 4.0], [3.0, nan, nan]])
    got = column({"x": x}, real("x", (3,)))
    np.testing.assert_array_equal(got.observed, ~np.isnan(x))
    np.testing.assert_allclose(got.values, [[1.0, 8 / 3, 4.0], [3.0, 8 / 3, 4.0]])
    assert np.isnan(x).sum() == 3, "the user's array is left alone"


@pytest.mark.parametrize(
    "given",
    [
        [1.0, None, 3.0],
        np.array([1.0, np.nan, 3.0]),
        np.array([1, None, 3], object),
        np.array([1, pd.NA, 3], object),
        np.ma.masked_array([1, 7, 3], [0, 1, 0]),
        np.ma.masked_array([1, np.inf, 3], [0, 1, 0]),
        pd.Series([1, None, 3]),
        pd.Series([1, None, 3], dtype="Int64"),
        pd.array([1, None, 3], dtype="Float32"),
        pd.Index([1, None, 3]),
    ],
    ids=lambda v: f"{type(v).__name__}-{getattr(v, 'dtype', '')}",
)
@pytest.mark.parametrize("site", [real(), states("x", 4), count("x")],
                         ids=["real", "finite", "count"])
def test_every_way_to_write_an_unseen_cell(given, site):
    got = column({"x": given}, site)
    assert got.observed.tolist() == [True, False, True]
    assert got.values[[0, 2]].tolist() == [1, 3]
    assert got.values[1] == (0 if site.discrete else 2)
    assert got.values.dtype in ([np.int32] if site.discrete else [np.float64, np.float32])


def test_jax_arrays_are_taken_bfloat16_too():
    jnp = pytest.importorskip("jax.numpy")
    assert column({"x": jnp.array([1.0, jnp.nan])}, X).observed.tolist() == [True, False]
    assert column({"x": jnp.array([1.0, 2.0], jnp.bfloat16)}, X).values.tolist() == [1.0, 2.0]


def test_pyarrow_columns_and_tables_are_taken():
    pa = pytest.importorskip("pyarrow")
    kind = pa.array(["wet", None, "dry"])
    table = pa.table({"x": pa.array([1, None, 3]), "z": kind, "w": kind.dictionary_encode(),
                      "b": pa.array([True, None, False])})
    for data in (
        table,
        {name: table[name] for name in table.column_names},
        {name: table[name].combine_chunks() for name in table.column_names},
    ):
        got = take(data, X, states(k=2), states("w", 2), states("b", 2))
        assert got.rows == 3 and got.index is None
        assert got.columns["x"].values.tolist() == [1.0, 2.0, 3.0]
        assert got.labels == {"z": ("dry", "wet"), "w": ("wet", "dry")}
        assert (got.columns["z"].values.tolist() == [1, 0, 0]
                and got.columns["w"].values.tolist() == [0, 0, 1])
        assert got.columns["b"].values.tolist() == [1, 0, 0] and got.columns["b"].observed.tolist() == [
            True, False, True
        ]


def test_a_dataframe_keeps_its_index_and_a_dataframe_value_is_a_matrix():
    frame = pd.DataFrame({"x": [1.0, 2.0], "z": [0, 1]}, index=["p", "q"])
    got = take(frame, X, Z)
    assert list(got.index) == ["p", "q"] and got.rows == 2
    matrix = pd.DataFrame({"a": [1.0, np.nan], "b": [3, 4]})
    assert column({"x": matrix}, XV).observed.tolist() == [[True, True], [False, True]]


def test_a_dataframe_of_categoricals_keeps_the_category_order_of_its_first_column():
    a = pd.Categorical(["lo", "hi"], categories=["lo", "hi"])
    b = pd.Categorical(["hi", None], categories=["hi", "lo"])
    got = take({"z": pd.DataFrame({"a": a, "b": b})}, states(k=2, cells=(2,)))
    assert got.labels == {"z": ("lo", "hi")}
    assert (got.columns["z"].values.tolist() == [[0, 1], [1, 0]]
            and got.columns["z"].observed.tolist() == [[True, True], [True, False]])


def test_text_of_several_cells_has_one_set_of_labels():
    got = take({"z": [["b", None], ["a", "b"]]}, states(k=2, cells=(2,)))
    assert got.labels == {"z": ("a", "b")} and got.columns["z"].values.tolist() == [[1, 0], [0, 1]]


def test_a_flat_array_is_taken_for_one_cell_per_row():
    assert column({"x": [1.0, 2.0]}, real("x", (1,))).values.shape == (2, 1)
    assert column(pd.DataFrame({"x": [1.0, 2.0]}), real("x", (1,))).values.shape == (2, 1)


def test_codes_may_be_whole_floats_and_booleans():
    assert column({"z": [2.0, np.nan]}, Z).values.tolist() == [2, 0]
    assert column({"z": np.array([True, False])}, states(k=2)).values.tolist() == [1, 0]
    assert take({"z": [True, None, False]}, states(k=2)).labels == {}
    assert column({"z": np.array([0, 2], np.int64)}, Z).values.dtype == np.int32


def test_counts_beyond_int32_are_kept():
    assert column({"n": [1, 2**40]}, N).values.tolist() == [1, 2**40]
    assert column({"n": [1, 2]}, N).values.dtype == np.int32


def test_a_site_unseen_in_every_row_is_dropped_and_still_counts_rows():
    got = take({"x": [None, None], "z": pd.Series([None, None], dtype="str")}, X, Z)
    assert got.columns == {} and got.rows == 2
    assert take(pd.DataFrame({"z": [None]}), Z).rows == 1
    assert take(pd.DataFrame(index=range(3)), Z).rows == 3
    assert take({"z": pd.Categorical([None], ["a", "b"])}, states(k=2)).labels == {"z": ("a", "b")}


def test_no_data_takes_its_rows_from_the_argument_or_refuses():
    assert take(None, X, rows=5).rows == take({}, X, rows=5).rows == 5
    refuses(["empty", "'x'", "rows"], {}, X)
    refuses(["empty"], None, X, rows=0)
    assert take({"p": 0.5}, real("p", rows=False)).rows == 1, "a model without rows"


def test_a_float_matrix_over_the_states_is_likelihood_evidence():
    w = np.array([[0.2, 0.8, 0.0], [np.nan] * 3, [1.0, 0.0, 0.0]])
    got = column({"z": w}, Z)
    assert got.observed.tolist() == [False] * 3 and got.values.tolist() == [0] * 3
    np.testing.assert_array_equal(got.likelihood, [[0.2, 0.8, 0.0], [1, 1, 1], [1, 0, 0]])
    assert take({"z": w[1:2]}, Z).columns == {}
    assert column({"z": w}, Z, labels={"z": ("a", "b", "c")}).likelihood is not None
    for row, word in (([0.0] * 3, "at least one value above 0"), ([-1.0, 1, 1], "-1.0"), ([np.inf, 1, 1], "inf"),
                      ([np.nan, 1, 1], "nan")):
        refuses(["'z'", "likelihood", word, "row 1"], {"z": [[1.0, 1.0, 1.0], row]}, Z)
    refuses(["'z'", "(n, 3)", "(2, 4)"], {"z": np.ones((2, 4))}, Z)
    refuses(["'z'", "float"], {"z": np.ones((2, 3), int)}, Z)


def test_inputs_are_given_as_they_are():
    table = np.arange(6).reshape(3, 2)
    got = take({"y": [1.0, 2.0, 3.0], "x": table}, real("y"), inputs=("x",))
    assert got.inputs["x"] is table and set(got.columns) == {"y"}
    assert take({"x": table}, real("y"), inputs=("x",)).rows == 3


def test_values_outside_rows_have_no_row_axis():
    sites = (real("mean", (2,), rows=False), states("bag", 5, rows=False), real("rate", rows=False),
             X)
    got = take({"mean": [0, 1], "bag": 3, "rate": None, "x": [1.0]}, *sites)
    assert (got.values["mean"].tolist() == [0.0, 1.0] and got.values["bag"] == 3
            and got.values["bag"].shape == ())
    assert "rate" not in got.values and got.rows == 1
    refuses(["'mean'", "(2,)", "(3,)"], {"mean": [0, 1, 2]}, *sites)
    refuses(["'mean'", "cell 1", "missing"], {"mean": [0, None], "x": [1.0]}, *sites)
    refuses(["'rate'", "got -1.0."], {"rate": -1.0},
            real("rate", rows=False, support="positive", valid=lambda v: v > 0))
    refuses(["'mean'", "mapping"], pd.DataFrame({"mean": [1.0]}), *sites)


# Labels


def test_labels_are_in_categorical_order_else_sorted():
    values = ["mid", "low", None, "high"]
    order = pd.Categorical(values, categories=["low", "mid", "high"])
    for given in (order, pd.Series(order), pd.CategoricalIndex(order)):
        got = take({"z": given}, Z)
        assert got.labels["z"] == ("low", "mid", "high") and got.columns["z"].values.tolist() == [
            1, 0, 0, 2
        ]
    text = [values, np.array(values, object), pd.Series(values), pd.Series(values, dtype=object),
            pd.Series(values, dtype="string")]
    for given in text + [np.ma.masked_array(["mid", "low", "?", "high"], [0, 0, 1, 0]),
                         ["mid", "low", np.nan, "high"]]:
        got = take({"z": given}, Z)
        assert got.labels["z"] == ("high", "low", "mid") and got.columns["z"].values.tolist() == [
            2, 1, 0, 0
        ]
        assert got.columns["z"].observed.tolist() == [True, True, False, True]
    assert take({"z": np.array(["b", "a"])}, states(k=2)).columns["z"].observed is None


def test_labels_make_the_round_trip():
    rng = np.random.default_rng(0)
    text = np.array(["dry", "wet", "icy"])[rng.integers(3, size=50)]
    got = take({"z": text}, Z)
    back = to_labels(got.columns["z"].values, got.labels["z"])
    np.testing.assert_array_equal(back, text)
    again = take(pd.DataFrame({"z": back}), Z, labels=got.labels)
    np.testing.assert_array_equal(again.columns["z"].values, got.columns["z"].values)
    assert again.labels == got.labels


def test_the_labels_of_a_fit_rule_later_data():
    known = {"sky": ("sun", "rain", "cloud")}
    sky = states("sky")
    assert take(pd.DataFrame({"sky": ["cloud", None, "sun"]}), sky,
                labels=known).columns["sky"].values.tolist() == [2, 0, 0]
    later = pd.Categorical(["rain"], categories=["hail", "rain"])
    assert take({"sky": later}, sky, labels=known).columns["sky"].values.tolist() == [1], (
        "an unused category does no harm"
    )
    refuses(["'sky'", "'hail'", "row 1", "'sun', 'rain', 'cloud'"],
            pd.DataFrame({"sky": ["sun", "hail"]}), sky, labels=known)
    refuses(["'sky'", "got 1 in row 0", "'rain'", "not a code"], {"sky": [1, 2]}, sky, labels=known)
    assert take({"sky": [np.nan]}, sky, labels=known).columns == {}


def test_a_categorical_of_numbers_has_numbers_for_labels():
    got = take({"z": pd.Categorical([5, 3, 5])}, states(k=2))
    assert got.labels["z"] == (3, 5) and got.columns["z"].values.tolist() == [1, 0, 1]
    later = take({"z": [3.0, np.nan, 5.0]}, states(k=2), labels=got.labels).columns["z"]
    assert later.values.tolist() == [0, 0, 1] and later.observed.tolist() == [True, False, True]
    refuses(["'z'", "got 4 in row 0", "3, 5"], {"z": [4]}, states(k=2), labels=got.labels)


def test_fewer_labels_than_states_are_filled_up():
    assert take({"z": ["a", "b"]}, Z).labels["z"] == ("a", "b", "state 2")
    assert take({"z": pd.Categorical([5])}, Z).labels["z"] == (5, 1, 2)
    assert take({"z": pd.Categorical([2])}, Z).labels["z"] == (0, 1, 2)  # a code
    for labels in ("a", "b", "state 2"), ("a", "b", 2):
        back = to_labels(np.array([2, 0]), labels)
        assert back.tolist() == [labels[2], "a"]
        assert take({"z": back}, Z, labels={"z": labels}).columns["z"].values.tolist() == [2, 0]


def test_to_labels_keeps_shapes_and_refuses_codes_without_a_label():
    assert to_labels(np.array([1, 0]), None).tolist() == [1, 0]
    assert to_labels(np.array([[True, False]]), ("no", "yes")).tolist() == [["yes", "no"]]
    assert to_labels(np.array([0]), ((1, 2), (3, 4))).tolist() == [(1, 2)]
    for bad in (-1, 2):
        with pytest.raises(DataError, match=str(bad)):
            to_labels(np.array([bad]), ("no", "yes"))


def test_too_many_or_mixed_labels_are_refused():
    refuses(["'z'", "3 labels", "'a', 'b', 'c'", "2 states"], {"z": ["a", "b", "c"]}, states(k=2))
    refuses(["'z'", "3 labels", "remove_unused"], {"z": pd.Categorical(["a"], ["a", "b", "c"])},
            states(k=2))
    refuses(["'z'", "got 1 in row 1", "text"], {"z": ["a", 1]}, Z)


# Refusals


def test_unknown_names_are_refused_with_the_known_ones():
    refuses(["'y'", "'x', 'z'", "neither"], {"y": [1]}, X, Z)
    refuses(["'weigth'", "'weight'", "Did you mean"], {"weigth": [1]}, real("weight"))
    refuses(["'0'", "mapping", "table[["], pd.DataFrame(np.ones((2, 2))), XV)


def test_a_missing_input_is_named_before_anything_else():
    refuses(["have no 'd'", "mixture(…, d=...)"], {"x": [np.inf], "unknown": 1}, X,
            inputs=("d",))
    refuses(["'d'"], None, X, inputs=("d",))
    refuses(["'x'", "have no", "table[["], pd.DataFrame({"y": [1.0], "a": [1.0]}), real("y"),
            inputs=("x",))


def test_inputs_must_be_complete_numbers():
    refuses(["'d'", "missing", "row 1, cell 0"], {"d": [[1.0], [np.nan]]}, X, inputs=("d",))
    refuses(["'d'", "missing", "row 1"], {"d": [1, None]}, X, inputs=("d",))
    refuses(["'d'", "inf", "row 0"], {"d": [np.inf, 1]}, X, inputs=("d",))
    refuses(["'d'", "'a'", "row 1"], {"d": [None, "a"]}, X, inputs=("d",))
    refuses(["'d'", "single value"], {"d": 2}, X, inputs=("d",))


def test_differing_row_counts_name_both():
    refuses(["'z' has 299 rows, but 'x' has 300"], {"x": np.zeros((300, 2)), "z": np.zeros(299)}, XV, Z)
    refuses(["'x' has 2 rows, but 'z' has 3"], {"x": np.zeros(2), "z": np.zeros(3), "n": np.zeros(3)},
            X, Z, N)
    refuses(["'x' has 2 rows", "5 are expected"], {"x": np.zeros(2)}, X, rows=5)
    refuses(["'z' has 2 rows, but 'd' has 3"], {"d": np.zeros(3), "z": np.zeros(2)}, Z, inputs=("d",))


def test_empty_data_is_refused_by_name():
    refuses(["'x'", "empty", "0 rows"], {"x": np.zeros((0, 2))}, XV)
    refuses(["'x'", "empty"], {"x": []}, XV)
    refuses(["'x'", "empty"], pd.DataFrame({"x": []}), X)


def test_wrong_shapes_say_expected_and_got():
    refuses(["'x'", "(n, 2)", "(300, 1)"], {"x": np.zeros((300, 1))}, XV)
    refuses(["'x'", "(n, 2)", "(3,)"], {"x": np.zeros(3)}, XV)
    refuses(["'x'", "(n,)", "(3, 1)", "x[:, 0]"], {"x": np.zeros((3, 1))}, X)
    refuses(["'x'", "(n, 2)", "(2, 5)", "x.T"], {"x": np.zeros((2, 5))}, XV)
    refuses(["'x'", "single value"], {"x": "yes"}, states("x"))
    refuses(["'x'", "(2,)", "mapping, such as {'x': table[["], pd.DataFrame({"x": [1.0]}), XV)


def test_infinite_cells_are_named():
    x = np.where(np.arange(600).reshape(300, 2) == 7, np.inf, 0.0)
    refuses(["'x'", "got inf", "row 3, cell 1"], {"x": x}, XV)
    x[1, 0] = np.nan
    refuses(["'x'", "got inf", "row 3, cell 1"], {"x": x}, XV)
    refuses(["'x'", "got -inf", "row 0."], {"x": [-np.inf]}, X)
    refuses(["'z'", "inf"], {"z": [np.inf]}, Z)
    refuses(["'x'", "row 0, cell (1, 0)"], {"x": [[[0, 0], [np.inf, 0]]]}, real("x", (2, 2)))


def test_large_finite_numbers_are_not_infinite():
    got = column({"x": np.array([1.7e308, 1.7e308, np.nan])}, X)
    assert got.observed.tolist() == [True, True, False] and np.isfinite(got.values).all()
    assert column({"x": np.array([1.7e308, 1.7e308])}, X).observed is None


def test_codes_outside_the_states_are_refused():
    refuses(["'z'", "got 7 in row 0", "from 0 to 2", "3 states"], {"z": np.full(300, 7)}, Z)
    refuses(["'z'", "got 1.5 in row 1"], {"z": [0, 1.5]}, Z)
    refuses(["'z'", "got -1 in row 1", "NaN"], {"z": [0, -1]}, Z)
    refuses(["'z'", "got 3.0 in row 2"], {"z": [None, 1, 3]}, Z)
    refuses(["'z'", "got 18446744073709551615"], {"z": np.array([2**64 - 1], np.uint64)}, Z)


def test_counts_are_whole_and_not_negative():
    refuses(["'n'", "count", "got -2 in row 1"], {"n": [1, -2]}, N)
    refuses(["'n'", "count", "got 0.5 in row 0"], {"n": [0.5, None]}, N)
    refuses(["'n'", "'two'"], {"n": ["two"]}, N)


def test_text_in_a_continuous_site_is_refused():
    refuses(["'x'", "'b'", "row 1", "number"], {"x": [1.0, "b"]}, X)
    refuses(["'x'", "'b'", "row 0"], {"x": np.array(["b", "c"])}, X)
    refuses(["'x'", "'b'", "row 1"], {"x": pd.Series([None, "b"])}, X)
    assert column({"x": pd.Categorical([1.5, None])}, X).values.tolist() == [1.5, 1.5]
    assert column({"n": pd.Categorical([4, None])}, N).values.tolist() == [4, 0]


def test_values_outside_the_support_are_refused():
    positive = real("x", support="positive", valid=lambda v: v > 0)
    refuses(["'x' must be positive, got -1.0 in row 3"], {"x": [1.0, 1.0, np.nan, -1.0]}, positive)
    assert column({"x": [1.0, None]}, positive).observed.tolist() == [True, False]
    even = Expected("n", True, None, (2,), support="even", valid=lambda v: v % 2 == 0)
    refuses(["'n' must be even, got 3 in row 0, cell 1"], {"n": [[2, 3]]}, even)


@pytest.mark.parametrize("answer", [lambda v: np.isclose(v.sum(-1), 1),
                                    lambda v: np.isclose(v.sum(-1, keepdims=True), 1)])
def test_an_event_is_judged_whole_and_only_where_seen_whole(answer):
    simplex = real("x", (2,), support="on the simplex", valid=answer, event=1)
    assert column({"x": [[0.5, 0.5], [0.9, None]]}, simplex).observed.tolist() == [[True, True],
                                                                                   [True, False]]
    refuses(["'x' must be on the simplex, got [0.5, 0.6] in row 1"],
            {"x": [[0.5, 0.5], [0.5, 0.6]]}, simplex)


def test_unsupported_kinds_are_refused():
    refuses(["'x'", "complex128"], {"x": np.ones(2, complex)}, X)
    refuses(["'x'", "datetime64"], {"x": pd.Series(pd.date_range("2020", periods=2))}, X)
    refuses(["'x'", "Timestamp"], {"x": pd.Series(pd.date_range("2020", periods=2, tz="UTC"))}, X)
    refuses(["'x'", "date", "row 1"], {"x": [None, datetime.date(2020, 1, 1)]}, X)
    refuses(["'x'", "set"], {"x": {1, 2}}, X)


def test_ragged_rows_are_refused_and_rows_of_equal_length_are_not():
    refuses(["'x'", "not a rectangular array", "different lengths"], {"x": [[1.0, 2.0], [1.0]]}, XV)
    refuses(["'x'", "not a rectangular array"], {"x": pd.Series([[1.0, 2.0], [1.0]])}, XV)
    assert column({"x": pd.Series([[1.0, 2.0], [1.0, None]])}, XV).observed.tolist() == [[True, True],
                                                                                         [True, False]]


def test_data_that_is_no_mapping_is_refused_with_what_to_pass():
    for data in (np.ones(3), [1, 2], pd.Series([1]), "x"):
        refuses(["mapping", type(data).__name__, "{'x': ...}"], data, X)


# Weights


def test_weights_are_float64_and_may_be_absent():
    assert read_weights(None, 3) is None
    got = read_weights(pd.Series([1, 0, 2]), 3)
    assert got.dtype == np.float64 and got.tolist() == [1.0, 0.0, 2.0]


@pytest.mark.parametrize(
    "given",
    [
        [-1.0, 1],
        [np.nan, 1],
        [None, 1],
        [np.inf, 1],
        [1.0],
        [[1.0], [1.0]],
        [0.0, 0.0],
        ["a", "b"],
        1.0,
        [],
        [1j, 1],
        [{}, 1],
        [[1], [1, 2]],
    ],
    ids=str,
)
def test_bad_weights_are_refused_by_name(given):
    with pytest.raises(DataError, match="weights"):
        read_weights(given, 2)


# Cost


def test_a_million_rows_are_cheap():
    n = 1_000_000
    x, z = np.ones((n, 8)), np.ones((n, 4), np.int8)
    word = pd.Series(pd.Categorical.from_codes(np.zeros(n, np.int8), ["a", "b"]))
    sites = (real("x", (8,)), states("z", 3, (4,)), states("w", 2))
    tracemalloc.start()
    start = time.perf_counter()
    got = take({"x": x, "z": z, "w": word}, *sites)
    spent, peak = time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert got.columns["x"].values is x
    assert peak < 60e6, f"{peak / 1e6:.0f} MB"  # the int32 codes are 20 MB, x alone would be 64
    assert spent < 2.0, f"{spent:.2f} s"


def test_whole_numbers_are_looked_at_in_pieces_as_at_once(monkeypatch):
    from probml.numerics.process import threads

    monkeypatch.setattr(threads, "CHUNK_NUMBERS", 16)
    monkeypatch.setattr(threads, "MIN_THREADED_NUMBERS", 8)
    expected = tables.Expected("x", True, 4, (3,))
    codes = np.random.default_rng(0).integers(4, size=(50, 3))
    turned = np.asfortranarray(codes)
    for values in (codes, codes.astype(np.int32), codes.astype(np.uint8), codes.astype(float),
                   turned, codes[::2], codes < 2):
        found = tables._read_integers(expected, values)
        assert found.dtype == np.int32 and found.flags.c_contiguous and (found == values).all()
    for wrong, at in ((-1, 31), (4, 49), (2**40, 7)):
        odd = codes.copy()
        odd[at, 1] = wrong
        with pytest.raises(DataError, match=f"row {at}, cell 1"):
            tables._read_integers(expected, odd)
    with pytest.raises(DataError, match="row 20"):
        tables._read_integers(expected, np.where(np.arange(50)[:, None] == 20, 1.5, codes))
    counts = tables.Expected("n", True, None, (3,))
    assert tables._read_integers(counts, codes + 2**40).dtype == np.int64
    assert tables._read_integers(counts, codes).dtype == np.int32
    assert threads.finite(codes.astype(float))
    assert not threads.finite(np.where(codes > 2, np.nan, 1.0))


def test_a_site_that_is_none_is_not_observed():
    expected = {"x": X, "z": Z}
    table = read({"x": [1.0, 2.0], "z": None}, expected, model="m")
    assert list(table.columns) == ["x"] and table.rows == 2
    with pytest.raises(DataError, match="'y' is neither a site nor an input"):
        read({"x": [1.0], "y": None}, expected, model="m")
    with pytest.raises(DataError, match="the data have no 'w'"):
        read({"x": [1.0], "w": None}, expected, ("w",), model="m")
