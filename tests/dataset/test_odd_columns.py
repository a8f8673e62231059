"""The same column in every kind of container is the same column, or refused in words."""

import datetime
import decimal
import uuid

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pyarrow as pa
import pytest
from numpyro import plate, sample

import probml
from probml.dataset.arrays import as_raw

VALUES = np.array([2.0, 0.0, 1.0, np.nan, 2.0, 1.0])
HELD = [None if np.isnan(v) else int(v) for v in VALUES]
SAME = {
    "nullable": pd.array(HELD, "Int64"), "arrow": pa.array(HELD), "chunks": pa.chunked_array([HELD[:2], HELD[2:]]),
    "masked": np.ma.masked_array(np.nan_to_num(VALUES, nan=10**6), np.isnan(VALUES)), "bfloat16": jnp.asarray(
        VALUES, jnp.bfloat16), "big-endian": VALUES.astype(">f4"), "backwards": VALUES[::-1].copy()[::-1],
    "Decimals": [decimal.Decimal("sNaN") if v is None else decimal.Decimal(v) for v in HELD],
    "quiet Decimals": [decimal.Decimal("NaN") if v is None else decimal.Decimal(v) for v in HELD],
    "pandas.NA": [pd.NA if v is None else v for v in HELD], "longdouble": VALUES.astype(np.longdouble),
    "sparse": pd.Series(pd.arrays.SparseArray(VALUES)), "arrow in pandas": pd.Series(HELD, dtype="int64[pyarrow]"),
}  # fmt: skip


@pytest.mark.parametrize("kind", SAME)
def test_a_container_changes_no_cell(kind):
    np.testing.assert_array_equal(as_raw("'y'", SAME[kind], True).values, VALUES)


LABELS = [b"1,5", datetime.date(2020, 1, 1), datetime.timedelta(1), pd.Interval(0, 1), pd.Period("2020"), (1, 2),
          frozenset({1}), uuid.UUID(int=1), 1j, float, object()]


@pytest.mark.parametrize("label", LABELS, ids=lambda label: type(label).__name__)
def test_a_category_of_any_type_where_numbers_are_expected_is_refused_in_words(label):
    """Parquet files may hold bytes, as whatever a dictionary is said to be of."""
    cells = pd.Series(pd.Categorical.from_codes([0, 1, 0], pd.Index([label, 2.0], dtype=object)))
    with pytest.raises(probml.DataError, match="'y' must be a number, got .* in row 0. Convert the column"):
        groups().at({"effect": [0.0, 1.0]}).log_prob({"g": [0, 1, 0], "y": cells})


@probml.model
def groups(g, k: int = 2):
    with plate("group", k):
        effect = sample("effect", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal(effect[g], 1.0))


@pytest.mark.parametrize("names", [np.array([2**63 + 5, 2**63 + 6], np.uint64), np.array([1e30, 2e30])])
@pytest.mark.parametrize("unknown", ["refuse", "new"])
def test_names_of_groups_beyond_whole_numbers_are_not_taken_for_one_another(names, unknown):
    """As integers of 64 bits they would be negative, or all the same new member."""
    fit = groups().at({"effect": [0.0, 1.0]})
    with pytest.raises(probml.DataError, match="does not fit in a 64-bit integer.*as text"):
        fit.log_prob({"g": names, "y": [0.0, 1.0]}, unknown=unknown)


def test_text_that_no_file_holds_is_refused():
    with pytest.raises(probml.DataError, match="cannot be read"):
        as_raw("'y'", ["\ud800", "a"], True)


def test_a_long_label_does_not_flood_a_message():
    with pytest.raises(probml.DataError) as refused:
        groups(k=1).fit({"g": ["a" * 10**5, "b"], "y": [0.0, 1.0]})
    assert len(str(refused.value)) < 1000


def test_a_table_of_arrow_is_an_array_of_its_columns():
    @probml.model
    def vectors():
        mean = sample("mean", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
        with probml.rows():
            sample("x", dist.Normal(mean, 1.0).to_event(1))

    x = np.array([[1.0, 2.0], [3.0, 5.0], [2.0, 2.0]])
    fit = vectors().fit({"x": pa.table({"a": x[:, 0], "b": x[:, 1]})})
    np.testing.assert_allclose(fit.params["mean"], vectors().fit({"x": x}).params["mean"], rtol=1e-6)
    with pytest.raises(probml.DataError, match="2 columns named 'a'"):
        vectors().fit({"x": pa.Table.from_arrays([pa.array(x[:, 0])] * 2, names=["a", "a"])})
