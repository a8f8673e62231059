"""Claims of labels: one meaning of a user's column, whatever holds it, whether it is a site, an
index of rows, or an argument of a function of the user's own."""

import datetime
import decimal

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pyarrow as pa
import pytest
from numpyro import plate, sample

import probml
from probml.dataset.arrays import Raw
from probml.dataset.coding import labels as naming
from probml.errors import DataError

CODES = np.array([0, 1, 2, 1, 0, 2, 1, 1, 0, 2])
WORDS = ["bac"[code] for code in CODES]  # in the order of the codes: b, a, c
DATES = pd.to_datetime([f"2020-01-0{code + 1}" for code in CODES])
Y = np.random.default_rng(0).normal(size=10)
MEANS = {code: Y[CODES == code].sum() / ((CODES == code).sum() + 1) for code in range(3)}


@probml.model
def site(k: int = 3):
    with plate("state", k):
        a = sample("a", dist.Normal(0.0, 1.0))
    with probml.rows():
        g = sample("g", dist.Categorical(jnp.ones(k) / k))
        sample("y", dist.Normal(a[g], 1.0))


@probml.model
def index(g, k: int = 3):
    with plate("group", k):
        a = sample("a", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal(a[g], 1.0))


@probml.model
def own_plate(g, y=None, k=3):
    with plate("group", k):
        a = sample("a", dist.Normal(0.0, 1.0))
    with plate("n", len(g)):
        sample("y", dist.Normal(a[g], 1.0), obs=y)


@probml.model
def density(g, y=None, k=None):
    with plate("group", int(np.max(g)) + 1 if k is None else k):
        a = sample("a", dist.Normal(0.0, 1.0))
    numpyro.factor("nothing", jnp.zeros(()))
    sample("y", dist.Normal(a[g], 1.0).to_event(1), obs=y)


MODELS = {"site": site, "index": index, "own plate": own_plate, "density": density}
# a column → its labels, in code order
COLUMNS = {
    "text": (WORDS, "abc"),
    "an array of text": (np.array(WORDS), "abc"),
    "text of Arrow": (pa.chunked_array([WORDS[:4], WORDS[4:]]), "abc"),
    "a dictionary of Arrow": (pa.array(WORDS).dictionary_encode(), "bac"),
    "categories": (pd.Series(pd.Categorical(WORDS)), "abc"),
    "ordered categories": (pd.Series(pd.Categorical(WORDS, list("cba"), ordered=True)), "cba"),
    "codes": (CODES, None),
    "codes that are floats": (CODES.astype(float), None),
    "codes of pandas": (pd.Series(CODES, dtype="Int64"), None),
    "codes that are decimals": ([decimal.Decimal(int(code)) for code in CODES], None),
}


QUICK = ("text", "ordered categories", "codes that are floats", "codes from 1", "dates")


def all_of(table):
    return [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in table]


@pytest.mark.parametrize("column", all_of(COLUMNS))
@pytest.mark.parametrize("kind", MODELS)
def test_a_column_means_the_same_wherever_it_stands(kind, column):
    given, labels = COLUMNS[column]
    engine = probml.MAP() if kind == "density" else None
    table = MODELS[kind]().fit({"g": given, "y": Y}, engine).summary()
    names = [name for name in table.index if name.startswith("a")]
    assert names == [f"a[{label}]" for label in labels or range(3)]
    for name in names:
        code = int(name[2:-1]) if labels is None else "bac".index(name[2:-1])
        assert table.loc[name].iloc[0] == pytest.approx(MEANS[code], abs=1e-4), name


@pytest.mark.parametrize("kind", ["index", "own plate", "density"])
def test_categories_that_are_numbers_and_truths_index_as_codes_with_labels(kind):
    engine, model = probml.MAP() if kind == "density" else None, MODELS[kind](k=3)
    many = model.fit({"g": pd.Categorical(10 * CODES + 10), "y": Y}, engine).summary()
    assert {"a[10]", "a[20]", "a[30]"} <= {*many.index}
    assert many.loc["a[20]"].iloc[0] == pytest.approx(MEANS[1], abs=1e-4)
    two = MODELS[kind](k=2).fit({"g": CODES > 0, "y": Y}, engine).summary()
    assert {"a[False]", "a[True]"} <= {*two.index}
    assert two.loc["a[False]"].iloc[0] == pytest.approx(MEANS[0], abs=1e-4)


REFUSED = {
    "codes from 1": (CODES + 1, "subtract 1|cannot be|from 0 to 2"),
    "numbers that are not whole": (CODES + 0.5, "integer"),
    "text beside numbers": ([1, *WORDS[1:]], "all text"),
    "an unused level": (pd.Categorical(WORDS, list("abcd")), "remove_unused_categories"),
    "dates": (DATES, "text"),
    "dates of NumPy": (DATES.to_numpy(), "text"),
    "dates of Python": ([datetime.date(2020, 1, code + 1) for code in CODES], "date"),
}


@pytest.mark.parametrize("column", all_of(REFUSED))
@pytest.mark.parametrize("kind", MODELS)
def test_what_is_no_code_is_refused_in_our_words(kind, column):
    given, words = REFUSED[column]
    with pytest.raises(DataError, match=words) as error:
        MODELS[kind](k=3).fit({"g": given, "y": Y})
    assert "'g'" in str(error.value) and "Indexer" not in str(error.value)


@pytest.mark.parametrize("given", [[None, *WORDS[1:]], np.r_[np.nan, CODES[1:]],
                                   pd.Series([None, *CODES[1:]], dtype="Int64")])
def test_a_group_that_is_unseen_is_refused_and_a_state_is_inferred(given):
    for kind in ("index", "own plate", "density"):
        with pytest.raises(DataError, match="'g'.*missing in row 0"):
            MODELS[kind](k=3).fit({"g": given, "y": Y})
    assert len(site().fit({"g": given, "y": Y}).predict({"g": given, "y": Y}, "g")) == 10


def test_an_index_beyond_its_axis_is_refused_where_the_function_computes_it():
    @probml.model
    def shifted(g, y=None):
        a = sample("a", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.factor("nothing", jnp.zeros(()))
        sample("y", dist.Normal(a[np.asarray(g) + 1], 1.0).to_event(1), obs=y)

    with pytest.raises(DataError, match="uses the index 3 on an axis of 3 entries"):
        shifted().fit({"g": CODES, "y": Y})


def test_an_index_that_is_clipped_by_name_or_made_of_the_unseen_is_left_alone():
    @probml.model
    def meant(g, y=None):
        a = sample("a", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        z = sample("z", dist.Categorical(jnp.ones(2) / 2))
        there = a.at[np.asarray(g) + 1].get(mode="clip") + a[z - 2]
        sample("y", dist.Normal(there, 1.0).to_event(1), obs=y)

    assert np.isfinite(meant().log_density({"g": CODES, "y": Y}, {"a": np.zeros(3)}))


def test_labels_of_parts_are_those_of_the_whole():
    assert naming.union([("a", "c"), ("a", "b", "c")]) == ("a", "b", "c")
    assert naming.union([("low", "high"), ("low", "mid", "high")], True) == ("low", "mid", "high")
    assert naming.union([("b", "a"), ("a", "b", "c")]) == ("a", "b", "c")  # of no order: sorted
    assert naming.union([("b", "a"), ("c", "a")], True) == ("b", "a", "c")
    assert naming.filled(("a", "b"), 4) == ("a", "b", "state 2", "state 3")
    assert naming.filled((5, 2), 4) == (5, 2, "state 2", 3)
    assert naming.without_padding(naming.filled(("a", "b"), 4), np.array([0, 2])) == ("a", "b", "state 2")


def test_codes_of_a_fit_are_those_of_its_labels():
    found = naming.coded("'g'", Raw(np.array([0, -1, 1]), ("x", "b")), ("a", "b"), base=1)
    assert found.codes.tolist() == [1, 1, 2]
    assert found.is_unknown.tolist() == [True, False, False]
    assert found.is_missing.tolist() == [False, True, False]
    numbers = naming.coded("'g'", Raw(np.array([30.0, np.nan, 10.0])), (10, 20, 30))
    assert numbers.codes.tolist() == [2, 0, 0] and numbers.is_missing.tolist() == [False, True, False]
    with pytest.raises(DataError, match="not a code"):
        naming.coded("'g'", Raw(np.array([0])), ("a", "b"))


@probml.model
def softmax(x, g, y=None):
    with plate("group", 3):
        z = sample("z", dist.Normal(0.0, 1.0))
    effect = numpyro.deterministic("effect", 1.0 + 2.0 * z)
    w = sample("w", dist.Normal(0.0, 1.0).expand([1, 2]).to_event(2))
    with plate("n", len(g)):
        own = x[:, None] @ w + effect[g][:, None]
        logits = jnp.concatenate([jnp.zeros((len(g), 1)), own], -1)
        sample("y", dist.Categorical(logits=logits), obs=y)


def test_labels_stand_on_what_is_computed_and_on_the_columns_of_a_softmax():
    data = {"x": Y, "g": WORDS, "y": np.array(["low", "mid", "top"])[CODES]}
    names = {*softmax().fit(data).summary().index}  # the first class is the reference
    assert {"effect[a]", "effect[c]", "z[b]", "w[0, mid]", "w[0, top]"} <= names


def test_a_number_that_soft_labels_look_at_is_integrated_out_where_it_is_unseen():
    @probml.model
    def rates():
        with probml.rows():
            rate = sample("rate", dist.Beta(2.0, 3.0))
            sample("hit", dist.Bernoulli(rate))

    soft, fit = np.array([[0.3, 0.7], [0.9, 0.2]]), rates().at({})
    seen, unseen = np.log([1.536 * 0.38, 1.5 * 0.55]), np.log([0.46, 0.62])  # of a mean of 0.4
    for gone in ([0, 0], [0, 1], [1, 0], [1, 1]):
        got = fit.log_prob({"hit": soft, "rate": np.where(gone, np.nan, [0.2, 0.5])})
        np.testing.assert_allclose(got, np.where(gone, unseen, seen), rtol=1e-5)
    np.testing.assert_allclose(fit.log_prob({"hit": soft}), unseen, rtol=1e-5)


def test_soft_labels_below_numbers_tell_what_a_sum_over_a_grid_says():
    @probml.model
    def links():
        with probml.rows():
            z = sample("z", dist.Normal(0.0, 1.0))
            w = sample("w", dist.Normal(z, 1.0))
            hit = sample("hit", dist.Bernoulli(logits=z + w))
            sample("x", dist.Normal(2.0 * hit, 0.7))

    grid = np.linspace(-8, 8, 801)
    z, w = np.meshgrid(grid, grid, indexing="ij")
    up, x = 1 / (1 + np.exp(-z - w)), np.array([0.1, 1.5])
    joint = np.stack([1 - up, up]) * np.exp(-z**2 / 2 - (w - z) ** 2 / 2) / (2 * np.pi)
    at_w = joint[..., np.argmin(np.abs(grid - 0.4))].sum(-1) * 0.02
    below = np.exp(-((x[:, None] - [0, 2]) ** 2) / 0.98) / (0.7 * np.sqrt(2 * np.pi))
    soft, fit = np.array([[0.3, 0.7], [0.9, 0.2]]), links().at({})
    share = below * soft * np.stack([at_w, joint.sum((1, 2)) * 0.02**2])
    data = {"hit": soft, "w": [0.4, np.nan], "x": x}
    np.testing.assert_allclose(fit.log_prob(data), np.log(share.sum(1)), atol=1e-4)
    np.testing.assert_allclose(fit.predict_proba(data, "hit"), share / share.sum(1)[:, None],
                               atol=1e-4)
    codes = {"hit": [1.0, np.nan], "w": [0.4, np.nan], "x": x}
    share[:, 0] *= [0, 1 / 0.9]
    share[:, 1] *= [1 / 0.7, 1 / 0.2]
    np.testing.assert_allclose(fit.log_prob(codes), np.log(share.sum(1)), atol=1e-4)


@pytest.mark.parametrize("column", ["group", "kind"])
@pytest.mark.parametrize("wrong", ["q", 1])
def test_a_label_of_new_data_is_compared_with_those_that_were_given_alone(column, wrong):
    """Of four states or groups three had names: "state 3" is not a label that a user knows."""

    @probml.model
    def model(group):
        effect = sample("effect", dist.Normal(0, 1).expand([4]).to_event(1))
        share = sample("share", dist.Dirichlet(2.0 * jnp.ones(4)))
        with probml.rows():
            sample("kind", dist.Categorical(share))
            sample("y", dist.Normal(effect[group], 1.0))

    names = np.array(["a", "b", "c"] * 4, object)
    fit = model().fit({"group": names, "kind": names, "y": np.arange(12.0)}, probml.MAP())
    new = {"group": names[:1], "kind": names[:1], "y": np.zeros(1)} | {column: [wrong]}
    with pytest.raises(probml.DataError, match="'a', 'b', 'c'[,.]") as error:
        fit.log_prob(new)
    assert "state 3" not in str(error.value)
