"""Rows on disk, as pyarrow sees them: a folder of files is one table, and what is wrong with it is said by
file and row."""

import itertools

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.dataset.source import parts_of
from probml.dataset.sources import arrow
from probml.dataset.sources.arrow import ArrowRows
from probml.errors import DataError, ModelError

pa = pytest.importorskip("pyarrow")
ds = pytest.importorskip("pyarrow.dataset")
pq = pytest.importorskip("pyarrow.parquet")


@probml.model
def normal():
    with plate("class", 2):
        variance = sample("variance", dist.InverseGamma(2.0, 1.0))
        mean = sample("mean", dist.Normal(0.0, variance**0.5))
    share = sample("share", dist.Beta(1.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Bernoulli(share))
        sample("y", dist.Normal(mean[z], variance[z] ** 0.5))


def rows_of(n: int = 40) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    z = random.integers(2, size=n)
    return {"z": np.array(["no", "yes"], object)[z], "y": random.normal(size=n) + 3.0 * z}


def stored(folder, table, cuts, **options):
    ends = [0, *cuts, len(table["y"])]
    for i, (low, high) in enumerate(itertools.pairwise(ends)):
        part = pa.table({name: column[low:high] for name, column in table.items()})
        pq.write_table(part, folder / f"part{i}.parquet", **options)
    return ds.dataset(folder, format="parquet")


@pytest.fixture(scope="module")
def plain():
    return normal().fit(rows_of(), probml.Exact())


@pytest.mark.parametrize("seed", range(3))
def test_files_row_groups_and_parts_of_any_size_are_the_table(seed, tmp_path, plain, monkeypatch):
    random, table = np.random.default_rng(seed), rows_of()
    cuts = sorted(random.choice(np.arange(1, 40), 3, replace=False).tolist())
    source = stored(tmp_path, table, cuts, row_group_size=int(random.integers(1, 9)))
    monkeypatch.setattr(arrow, "ROWS", int(random.integers(2, 12)))
    parts = list(parts_of(ArrowRows(source)))
    assert max(part.rows.num_rows for part in parts) <= arrow.ROWS
    assert len({part.called for part in parts}) == len(parts) > 4
    np.testing.assert_array_equal(np.concatenate([part.rows["y"] for part in parts]), table["y"])
    fit = normal().fit(source, probml.Exact())
    assert fit.labels("z") == plain.labels("z") == ("no", "yes")
    assert fit.log_evidence == pytest.approx(plain.log_evidence, rel=1e-10)
    np.testing.assert_allclose(fit.log_prob(source), plain.log_prob(table), rtol=1e-9)


def test_a_bad_row_is_named_by_its_file_and_its_number_there(tmp_path, monkeypatch):
    table = rows_of()
    table["y"][33] = np.inf
    source = stored(tmp_path, table, [10, 20])
    monkeypatch.setattr(arrow, "ROWS", 4)
    with pytest.raises(DataError, match=r"batch 'part2.parquet': 'y' must be finite, got inf in "
                                        r"row 13\. "):
        normal().fit(source)


def test_files_of_other_columns_or_types_are_refused_by_name(tmp_path):
    source = stored(tmp_path, rows_of(), [20])
    narrow = source.replace_schema(pa.schema([("z", pa.string())]))
    with pytest.raises(DataError, match="'part0.parquet' has the column 'y', which the schema of the dataset"):
        normal().fit(narrow)
    wide = source.replace_schema(source.schema.append(pa.field("x", pa.float64())))
    with pytest.raises(DataError, match="the file 'part0.parquet' has no column 'x', which the schema"):
        normal().fit(wide)
    pq.write_table(pa.table({"z": [0, 1], "y": [0.5, 1.0]}), tmp_path / "part2.parquet")
    with pytest.raises(DataError, match="'z' has the type int64 in the file 'part2.parquet', but str"):
        normal().fit(ds.dataset(tmp_path, format="parquet"))


def test_a_file_that_vanishes_between_passes_is_named(tmp_path):
    source = stored(tmp_path, rows_of(), [20])
    read = ArrowRows(source)
    assert len(list(parts_of(read))) == 2
    (tmp_path / "part1.parquet").unlink()
    with pytest.raises(DataError, match=r"cannot be read after .*part1\.parquet"):
        list(parts_of(read))


def test_a_filter_and_partitions_of_a_dataset_hold(tmp_path):
    table = pa.table(rows_of())
    ds.write_dataset(table, tmp_path, format="parquet", partitioning=["z"],
                     partitioning_flavor="hive")
    source = ds.dataset(tmp_path, format="parquet", partitioning="hive")
    fit = normal().fit(source, probml.Exact())
    assert fit.log_evidence == pytest.approx(
        normal().fit(rows_of(), probml.Exact()).log_evidence, rel=1e-10
    )
    few = normal().fit(source.filter(ds.field("y") > 0.0), probml.Exact())
    kept = rows_of()["y"] > 0.0
    plain = normal().fit({n: c[kept] for n, c in rows_of().items()}, probml.Exact())
    assert few.log_evidence == pytest.approx(plain.log_evidence, rel=1e-10)


def test_what_speaks_arrows_interface_is_a_table_and_an_iterator_is_refused(plain):
    class Frame:  # as Polars' are
        def __arrow_c_stream__(self, requested_schema=None):
            return pa.table(rows_of()).__arrow_c_stream__(requested_schema)

    fit = normal().fit(Frame(), probml.Exact())
    assert fit.log_evidence == pytest.approx(plain.log_evidence, rel=1e-12)
    with pytest.raises(DataError, match="which can be read only once, but a fit"):
        normal().fit(iter([rows_of()]))


def test_answers_of_a_source_stand_in_a_file_that_is_whole_or_not_there(tmp_path, plain):
    table = {"y": rows_of()["y"]}
    source, out = stored(tmp_path, table, [7, 30]), tmp_path / "answers.feather"
    ask = ("predict", "predict_proba", "log_prob", "impute")
    assert plain.answer(source, ask=ask, site="z", to=out) == out
    back = ds.dataset(out, format="feather").to_table().to_pandas()
    assert set(back) == {"predict", "predict_proba[no]", "predict_proba[yes]", "log_prob", "impute[z]", "impute[y]"}
    np.testing.assert_array_equal(back["predict"], plain.predict(table, "z"))
    np.testing.assert_allclose(back[["predict_proba[no]", "predict_proba[yes]"]], plain.predict_proba(table, "z"))
    np.testing.assert_allclose(back["log_prob"], plain.answer(table, "log_prob")["log_prob"], rtol=1e-12)
    before = out.read_bytes()
    pq.write_table(pa.table({"y": [np.inf]}), tmp_path / "part9.parquet")
    with pytest.raises(DataError, match="batch 'part9.parquet': 'y' must be finite"):
        plain.answer(ds.dataset(sorted(map(str, tmp_path.glob("*.parquet")))), ask=ask, to=out)
    assert out.read_bytes() == before and not list(tmp_path.glob(".answers*"))
    with pytest.raises(ModelError, match=r"answer\(to='.*answers.txt'\): expected the name of a file that ends"):
        plain.answer(source, to=tmp_path / "answers.txt")
    with pytest.raises(ModelError, match=r"answer\(ask='guess'\): expected a list of some of"):
        plain.answer(source, ask="guess")


@pytest.mark.parametrize("kind", ["table", "dictionary", "pandas", "folder"])
def test_text_that_is_no_utf_8_is_refused_by_its_column(kind, tmp_path):
    torn = pa.array([b"no", b"yes", b"\xff\xfe"], pa.binary())
    z, y = pa.Array.from_buffers(pa.string(), len(torn), torn.buffers()), [1.0, 2.0, 3.0]
    table = pa.table({"z": z.dictionary_encode() if kind == "dictionary" else z, "y": y})
    pq.write_table(pa.table({"z": z, "y": y}), tmp_path / "a.parquet")
    data = {"pandas": lambda: pytest.importorskip("pandas").read_parquet(tmp_path / "a.parquet"),
            "folder": lambda: ds.dataset(tmp_path)}.get(kind, lambda: table)()
    with pytest.raises(DataError, match="'z' cannot be read .*not UTF-8"):
        normal().fit(data, probml.Exact())
