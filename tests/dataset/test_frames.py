"""Names stay: columns and groups name the entries of parameters; tables of any library go in, and
come out as they went in."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pyarrow as pa
import pytest
from numpyro import plate, sample

import probml
from probml.assessment.dimensions import Dimensions
from probml.dataset import frames
from probml.models import NaiveBayes, gaussian_mixture

RANDOM = np.random.default_rng(0)
X = pd.DataFrame({"smoke": RANDOM.normal(size=60), "age": RANDOM.normal(size=60)})
GROUPS = np.array(["D1", "D2", "D3"])[np.arange(60) % 3]
Y = 1.0 + X["smoke"].to_numpy() * 2 + RANDOM.normal(size=60)


@probml.model
def risk(x, ward, wards: int):
    w = sample("w", dist.Normal(0.0, 5.0).expand([x.shape[-1]]).to_event(1))
    with plate("wards", wards):
        alpha = sample("alpha", dist.Normal(0.0, 5.0))
    with probml.rows():
        sample("y", dist.Normal(alpha[ward] + x @ w, 1.0))


DATA = {"x": X, "ward": GROUPS, "y": Y}
TWO = pd.DataFrame({"a": [1.0, np.nan, 3.0, 2.0], "kind": ["p", "q", None, "p"]},
                   index=[7, 5, 3, 1])


@probml.model
def pair():
    p = sample("p", dist.Dirichlet(jnp.ones(2)))
    with plate("kinds", 2):
        mean = sample("mean", dist.Normal(0.0, 10.0))
    with probml.rows():
        kind = sample("kind", dist.Categorical(p))
        sample("a", dist.Normal(mean[kind], 1.0))


@functools.cache
def risks():
    return risk(wards=3).fit(DATA, probml.MAP())


@functools.cache
def pairs():
    return pair().fit(TWO)


def test_columns_and_groups_name_the_entries_of_parameters():
    assert set(risks().summary().index) == {"w[smoke]", "w[age]", "alpha[D1]", "alpha[D2]",
                                        "alpha[D3]"}
    assert risks().summary().loc["w[smoke]", "value"] == pytest.approx(2.0, abs=0.4)


def test_an_axis_that_mixes_columns_keeps_its_numbers():
    @probml.model
    def mixed(x):
        w = sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with probml.rows():
            sample("y", dist.Normal(x @ jnp.array([[1.0, 1.0], [1.0, -1.0]]) @ w, 1.0))

    fit = mixed().fit({"x": X, "y": Y}, probml.MAP())
    assert list(fit.summary().index) == ["w[0]", "w[1]"]


def test_columns_of_a_seen_site_name_means_and_covariances_of_components():
    fit = gaussian_mixture(k=1, d=2, covariance="full").fit({"x": X}, probml.EM(restarts=1))
    names = list(fit.summary().index)
    assert "mean[0, smoke]" in names and "precision[0, smoke, age]" in names


def test_states_with_labels_name_what_they_pick():
    assert {"p[p]", "p[q]", "mean[p]", "mean[q]"} == set(pairs().summary().index)


def test_columns_are_coordinates_of_arviz():
    names = Dimensions(risks(), risks()._read(DATA))  # what to_arviz takes them from
    (w,), (alpha,), (_, x) = names.of_parameter("w"), names.of_parameter("alpha"), names.covariate("x")
    assert names.coords[w].tolist() == names.coords[x].tolist() == ["smoke", "age"]
    assert alpha == "wards" and names.coords[alpha].tolist() == ["D1", "D2", "D3"]


def test_columns_in_another_order_are_put_in_that_of_the_fit():
    turned = {**DATA, "x": X[["age", "smoke"]]}
    np.testing.assert_array_equal(risks().log_prob(turned), risks().log_prob(DATA))
    with pytest.raises(probml.DataError, match="has no column 'age'"):
        risks().log_prob({**DATA, "x": X.rename(columns={"age": "years"})})


def test_impute_of_a_frame_is_a_frame_with_its_index():
    filled = pairs().impute(TWO)
    assert isinstance(filled, pd.DataFrame) and list(filled.index) == [7, 5, 3, 1]
    assert list(filled.columns) == ["a", "kind"] and not filled.isna().any().any()
    plain = pairs().impute({"a": TWO["a"].to_numpy(), "kind": TWO["kind"].to_numpy()})
    assert isinstance(plain, dict)
    np.testing.assert_array_equal(filled["a"], plain["a"])
    assert isinstance(pairs().impute(pa.Table.from_pandas(TWO, preserve_index=False)), pa.Table)


def test_categories_keep_their_order():
    table = TWO.assign(kind=pd.Categorical(TWO["kind"], ["q", "p"]))
    fit = pair().fit(table)
    assert fit.labels("kind") == ("q", "p")
    assert fit.impute(table)["kind"].cat.categories.tolist() == ["q", "p"]


def test_arrow_tables_go_into_estimators_and_impute_answers_in_kind():
    from probml.models import MixedMixture

    table = pd.DataFrame({"a": [1.0, 1.2, np.nan, 5.0, 5.2, 4.9, 1.1, 5.3],
                          "b": ["x", "x", "x", "y", "y", None, "x", "y"]}, index=range(8, 16))
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    y = ["l", "l", "l", "h", "h", "h", "l", "h"]
    estimator = NaiveBayes().fit(arrow, y)
    assert estimator.feature_names_in_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(estimator.predict(arrow), estimator.predict(table))
    mixture = MixedMixture(2, random_state=0, n_init=2).fit(table)
    filled = mixture.impute(table)
    assert isinstance(filled, pd.DataFrame) and filled["a"].dtype == float
    assert list(filled.index) == list(table.index) and set(filled["b"]) == {"x", "y"}
    assert isinstance(mixture.impute(arrow), pa.Table)


def test_polars_tables_go_in_and_come_out():
    pl = pytest.importorskip("polars")
    table = pl.DataFrame({"a": [1.0, None, 3.0, 2.0], "kind": ["p", "q", None, "p"]},
                         schema_overrides={"kind": pl.Enum(["p", "q"])})
    fit = pair().fit(table)
    assert fit.labels("kind") == ("p", "q")
    filled = fit.impute(table)
    assert isinstance(filled, pl.DataFrame) and filled["kind"].null_count() == 0
    np.testing.assert_allclose(fit.log_prob(table), pairs().log_prob(TWO), rtol=1e-6)
    columns = {"x": pl.DataFrame(X.to_dict("list")), "ward": pl.Series(GROUPS), "y": Y}
    np.testing.assert_allclose(risks().log_prob(columns), risks().log_prob(DATA))
    np.testing.assert_allclose(fit.log_prob(table.lazy()), fit.log_prob(table))
    assert NaiveBayes().fit(table.select("a"), ["l", "h", "h", "l"]).predict(table.select("a")).size


def test_columns_that_a_model_does_not_name_are_left_alone():
    wide = TWO.assign(note=["u", "v", "w", "x"], day=pd.date_range("2024-01-01", periods=4))
    np.testing.assert_allclose(pair().fit(wide).params["mean"], pairs().params["mean"])
    filled = pairs().impute(wide)
    assert list(filled.columns) == ["a", "kind", "note", "day"]
    assert filled["day"].equals(wide["day"]) and filled["note"].tolist() == ["u", "v", "w", "x"]
    arrow = pa.Table.from_pandas(wide, preserve_index=False)
    assert pairs().impute(arrow).column("day") == arrow.column("day")
    with pytest.warns(RuntimeWarning, match="no column 'kind', .* does not use the columns 'note'"):
        pairs().predict(wide[["a", "note"]], "kind")
    with pytest.raises(probml.DataError, match="Did you mean 'kind'"):
        pairs().log_prob(TWO.rename(columns={"kind": "kinds"}))
    with pytest.raises(probml.DataError, match="which the model does not use"):
        pair().fit(wide[["a", "note"]])  # what is absent would be hidden, and nobody said so
    more = X.assign(note=0.0)
    np.testing.assert_array_equal(risks().log_prob({**DATA, "x": more}), risks().log_prob(DATA))


def test_what_a_table_shows_comes_back_to_the_last_digit():
    table = TWO.assign(a=[0.1, np.nan, 0.3, 1 / 3])
    with jax.enable_x64(False):
        filled = pair().fit(table).impute(table)
    assert filled["a"].tolist()[::2] == [0.1, 0.3] and filled["a"].iloc[3] == 1 / 3
    assert filled["a"].dtype == float


def test_single_numbers_are_told_by_their_shortest_decimals():
    random = np.random.default_rng(0)
    values = (random.normal(size=2000) * 10.0 ** random.integers(-12, 13, 2000)).astype(np.float32)
    values = np.append(values, np.array([0.3, 8.6e9, 1e-30, 0, np.nan, np.inf], np.float32))
    np.testing.assert_array_equal(frames.shortest(values), [float(str(each)) for each in values[
        :-4]] + [float(np.float32(1e-30)), 0.0, np.nan, np.inf])
    assert frames.shortest(np.arange(3)).dtype == int


def test_names_of_a_table_are_those_of_its_kind():
    assert frames.columns_of({"x": X, "y": Y}) == {"x": ("smoke", "age")}
    assert frames.columns_of(X) == {} and frames.to_pandas(X) is X


@probml.model
def shared_mean():
    mean = sample("mean", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("y", dist.Normal(mean, 1.0))
        sample("w", dist.Normal(2 * mean, 1.0))


def test_columns_of_pandas_whose_rows_stand_in_another_order_are_refused():
    table = pd.DataFrame({"y": [1.0, 2.0, 3.0], "w": [2.0, 4.0, 6.0]})
    with pytest.raises(probml.DataError, match="index of 'w' has the same labels as that of 'y' in another order"):
        shared_mean().fit({"y": table["y"], "w": table["w"].iloc[::-1]})
    other = pd.Series([2.0, 4.0, 6.0], index=[7, 8, 9])  # other rows' names are another matter
    assert shared_mean().fit({"y": table["y"], "w": other}).params["mean"] > 0


def test_a_column_twice_and_records_are_refused_by_name():
    table = pd.DataFrame({"y": [1.0, 2.0], "w": [2.0, 4.0]})
    with pytest.raises(probml.DataError, match="2 columns named 'y'"):
        shared_mean().fit(pd.concat([table, table[["y"]]], axis=1))
    with pytest.raises(probml.DataError, match="record array of NumPy, with the fields"):
        shared_mean().fit(table.to_records(index=False))


def test_dates_are_told_how_to_become_numbers():
    table = pd.DataFrame({"y": pd.to_datetime(["2020-01-01", "2020-01-02"]), "w": [2.0, 4.0]})
    with pytest.raises(probml.DataError, match=r"pandas.Timedelta\(days=1\)"):
        shared_mean().fit(table)
