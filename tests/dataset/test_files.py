"""Folders as users have them: columns of every type of Arrow, files without rows, types that widen, lists; what
cannot be read is refused by file and row."""

import decimal

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.dataset.read import read
from probml.dataset.sources.parts import Reader, open_data
from probml.dataset.sources.profile import joined
from probml.errors import DataError

pa = pytest.importorskip("pyarrow")
csv = pytest.importorskip("pyarrow.csv")
ds = pytest.importorskip("pyarrow.dataset")
pq = pytest.importorskip("pyarrow.parquet")


@probml.model
def columns():
    mean, rate = sample("mean", dist.Normal(0.0, 10.0)), sample("rate", dist.Gamma(2.0, 1.0))
    table = sample("table", dist.Dirichlet(jnp.ones(3)))
    with probml.rows():
        sample("y", dist.Normal(mean, 1.0))
        sample("z", dist.Categorical(table))
        sample("count", dist.Poisson(rate))


@probml.model
def vectors(x):
    slope = sample("slope", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with probml.rows():
        sample("w", dist.Normal(x @ slope, 1.0))
        sample("v", dist.Normal(jnp.zeros(3), 1.0).to_event(1))


@probml.model
def walks():
    table = sample("table", dist.Dirichlet(jnp.ones((2, 2))).to_event(1))
    with plate("state", 2):
        mean = sample("mean", dist.Normal(0.0, 10.0))
    with probml.rows():
        z = sample("z", probml.MarkovChain(jnp.ones(2) / 2, table))
        sample("x", dist.Normal(mean[z], 1.0).to_event(1))


N = 30


def rows_of() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    y = random.normal(size=N).round(2)
    y[[4, 17]] = np.nan
    z = np.array(["green", "red", "blue"], object)[random.integers(3, size=N)]
    z[[3, 25]] = None
    count = random.poisson(3.0, N).astype(float)
    count[9] = np.nan
    return {"y": y, "z": z, "count": count}


def none(values, kind):
    return pa.array([None if v is None or v != v else v for v in values.tolist()], kind)


def read_again(model, source):
    """All that a pass over a source reads, in turn."""
    held = open_data(model, source)
    return joined(list(Reader(held).batches())), held


def same(one, other):
    assert one.labels == other.labels and one.pattern == other.pattern
    for name, column in other.table.columns.items():
        np.testing.assert_allclose(one.table.columns[name].values_or_nan, column.values_or_nan, err_msg=name)
    for name, column in other.table.inputs.items():
        np.testing.assert_allclose(one.table.inputs[name], column, err_msg=name)


KINDS = {
    "as they are": (pa.float64(), pa.string(), pa.int64()),
    "narrow": (pa.float64(), pa.large_string(), pa.int8()),
    "decimals, dictionaries": (pa.decimal128(9, 2), pa.dictionary(pa.int8(), pa.string()), pa.uint64()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_any_type_of_arrow_are_read_as_from_memory(kind, tmp_path):
    table, (y, z, count) = rows_of(), KINDS[kind]
    exact = [None if v != v else decimal.Decimal(f"{v:.2f}") for v in table["y"]]
    whole = pa.table({"y": pa.array(exact, y) if pa.types.is_decimal(y) else none(table["y"], y),
                      "z": none(table["z"], pa.string()).cast(z) if not pa.types.is_dictionary(z)
                      else none(np.sort(table["z"][table["z"] != None]), pa.string()).dictionary_encode().cast(z).take(  # noqa: E711
                          pa.array([None if v is None else sorted(table["z"][table["z"] != None].tolist()).index(v) for v in table["z"]])),  # noqa: E711
                      "count": none(table["count"], pa.float64()).cast(count)})
    for i, (low, high) in enumerate([(0, 11), (11, 11), (11, 30)]):  # a file without rows
        pq.write_table(whole[low:high], tmp_path / f"{i}.parquet", row_group_size=4)
    plain = read(columns(), table)
    found, held = read_again(columns(), ds.dataset(tmp_path, format="parquet"))
    same(found, plain)
    assert held.size == N and held.labels == plain.labels
    same(read(columns(), whole), plain)


def test_dictionaries_in_the_order_in_which_each_file_met_its_words_are_text(tmp_path):
    table = {"z": np.array(["red", "blue", "green", "blue", "green", "red", "green", "red"], object)}
    for i, low in enumerate((0, 3, 6)):
        part = pa.array(table["z"][low : low + 3]).dictionary_encode()
        pq.write_table(pa.table({"z": part}), tmp_path / f"{i}.parquet")
    found, held = read_again(columns(), ds.dataset(tmp_path))
    same(found, read(columns(), table))
    assert held.labels["z"] == ("blue", "green", "red")


def test_what_no_number_is_is_refused_by_file(tmp_path):
    days = pa.array([0, 1], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"y": pa.array([0.5, 1.0]), "z": days}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"batch 'a.parquet': 'z' must be numbers, labels or None, got 1970-01-01 in row 0"):
        open_data(columns(), ds.dataset(tmp_path))
    with pytest.raises(DataError, match="a.parquet': 'z' contains dates or times"):
        times = ds.dataset(tmp_path).scanner(columns={"z": ds.field("z").cast(pa.timestamp("ms"))})
        open_data(columns(), times)


def written(path, *files):
    for i, text in enumerate(files):
        (path / f"{i}.csv").write_text(text)
    return ds.dataset(path, format="csv")


def test_types_that_differ_between_text_files_are_those_that_hold_all(tmp_path):
    empty, first = "y,z,count\n", "y,z,count\n1,red,3\n2,green,4\n"
    source = written(tmp_path, empty, first, "y,z,count\nfar,red,1\n")
    with pytest.raises(DataError, match=r"'y' has the type string in the file '2.csv', but int64 in '1.csv'. Use one"):
        open_data(columns(), source)
    source = written(tmp_path, empty, first, "y,z,count\n0.5,7,\n,7,5\n")  # 7 is a word where others are
    found, held = read_again(columns(), source)
    np.testing.assert_array_equal(found.table.columns["y"].values_or_nan, [1.0, 2.0, 0.5, np.nan])
    np.testing.assert_array_equal(found.table.columns["count"].values_or_nan, [3, 4, np.nan, 5])
    assert held.labels["z"] == ("7", "green", "red")


def test_a_file_that_cannot_be_read_is_named_with_the_row_from_which_on(tmp_path):
    small = ds.CsvFileFormat(read_options=csv.ReadOptions(block_size=64))
    written(tmp_path, "y\n" + "1\n" * 40, "y\n" + "2\n" * 40 + "far\n" + "2\n" * 40, "y\n3\n")
    with pytest.raises(DataError, match=r"cannot be read after row \d+ of the file '1.csv': .*'far'"):
        open_data(columns(), ds.dataset(tmp_path, format=small))
    (tmp_path / "1.csv").write_text("")
    with pytest.raises(DataError, match="the file '1.csv' cannot be read ..*Empty CSV file"):
        open_data(columns(), ds.dataset(tmp_path, format="csv"))


def test_a_scanner_of_some_columns_is_a_source_with_its_files(tmp_path):
    table = rows_of()
    whole = pa.table({"half": table["y"] / 2, "id": np.arange(N), "year": np.repeat([2020, 2021], N // 2)})
    ds.write_dataset(whole, tmp_path, format="parquet", partitioning=["year"], partitioning_flavor="hive")
    source = ds.dataset(tmp_path, format="parquet", partitioning="hive")
    with pytest.raises(DataError, match=r"batch 'year=2020/part-0.parquet': model 'columns': 'half' is neither"):
        open_data(columns(), source)
    scanner = source.scanner(columns={"y": ds.field("half") * 2.0, "z": ds.field("year") - 2020})
    found, held = read_again(columns(), scanner)
    np.testing.assert_allclose(found.table.columns["y"].values_or_nan, table["y"])
    np.testing.assert_array_equal(found.table.columns["z"].values, np.repeat([0, 1], N // 2))
    assert held.survey.names[0].endswith("year=2020/part-0.parquet")
    with pytest.raises(DataError, match=r"year=2021/part-0.parquet': 'z' must be .* got 3 in row 0"):
        open_data(columns(), source.scanner(columns={"z": ds.field("year") - 2018}))


def test_batches_without_rows_are_passed_over():
    table = rows_of()
    parts = [{name: column[low:high] for name, column in table.items()}
             for low, high in ((0, 0), (0, 12), (12, 12), (12, 30))]
    plain = read(columns(), table)
    for batches in (parts, [pa.table({n: pa.array(c, from_pandas=True) for n, c in part.items()})
                            for part in parts[1:]]):
        found, held = read_again(columns(), lambda batches=batches: iter(batches))
        same(found, plain)
        assert held.survey.sizes == (12, 18)
    with pytest.raises(DataError, match="the data source returned no batches"):
        open_data(columns(), lambda: iter(parts[:1]))


def test_lists_in_rows_are_vectors_and_lists_along_time_sequences(tmp_path):
    random = np.random.default_rng(1)
    x, v, w = random.normal(size=(N, 2)), random.normal(size=(N, 3)), random.normal(size=N)
    v[5] = np.nan
    whole = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 2), "w": w,
                      "v": pa.array([None if np.isnan(row).any() else row.tolist() for row in v])})
    pq.write_table(whole, tmp_path / "a.parquet", row_group_size=7)
    found, _ = read_again(vectors(), ds.dataset(tmp_path))
    same(found, read(vectors(), {"x": x, "v": v, "w": w}))
    lengths = random.integers(1, 6, N)
    steps = [random.normal(size=length) for length in lengths]
    steps[2][:] = np.nan
    lists = pa.table({"x": pa.array([None if np.isnan(s).all() else s.tolist() for s in steps])})
    plain = read(walks(), {"x": steps}).trimmed()
    for table in (lists, lambda: iter([lists[:20], lists[20:]])):
        held = open_data(walks(), table)
        assert held.steps == plain.steps == 5 and held.size == N
        np.testing.assert_array_equal(held.lengths, np.where(np.arange(N) == 2, 0, lengths))
        real = np.arange(5) < held.lengths[:, None]
        np.testing.assert_array_equal(held.table.columns["x"].values_or_nan[real], plain.table.columns["x"].values_or_nan[real])
    found, _ = read_again(walks(), lambda: iter([lists[:20], lists[20:]]))
    np.testing.assert_array_equal(found.table.columns["x"].values_or_nan[real], plain.table.columns["x"].values_or_nan[real])


def test_answers_of_a_part_without_holes_leave_room_for_those_of_others(tmp_path):
    fit = columns().at({"mean": 1.0, "rate": 2.5, "table": np.array([0.2, 0.3, 0.5])})
    parts = [{"y": np.array([0.5, 1.5]), "count": np.array([3, 4]), "z": np.array([0, 1])},
             {"y": np.array([np.nan, 0.5]), "count": np.array([np.nan, 1.0]), "z": np.array([2, 2])}]
    back = pq.read_table(fit.answer(lambda: iter(parts), ask="impute", to=tmp_path / "a.parquet")).to_pydict()
    assert back == {"impute[y]": [0.5, 1.5, 1.0, 0.5], "impute[z]": [0, 1, 2, 2], "impute[count]": [3, 4, 2.5, 1]}
