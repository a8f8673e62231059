"""Text has no order: where a model needs one, it is asked for, before anything is compiled; where any
numbering of the labels tells the same, text is taken as it is.

To add a case, add a line to NEEDS or to NEEDS_NONE: a function of the labelled column `z`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pyarrow as pa
import pytest
from numpyro import plate, sample

import probml
from probml.dataset.read import read
from probml.dataset.sources.parts import open_data
from probml.jaxpr.cells import find_amounts
from probml.jaxpr.program import jaxpr_of

ORDER = ("none", "mild", "severe")
CODES = np.random.default_rng(0).integers(0, 3, 60)
TEXT = np.array(ORDER)[CODES]
X = CODES + np.random.default_rng(1).normal(size=60)


class OrderedProbit(dist.CategoricalProbs):
    """As users write it: a Categorical by another name."""

    def __init__(self, eta, cut):
        below = jax.scipy.stats.norm.cdf(cut - eta[..., None])
        ends = jnp.zeros_like(below[..., :1])
        super().__init__(jnp.diff(jnp.concatenate([ends, below, 1 + ends], -1)))


def cuts():
    return sample("cut", dist.TransformedDistribution(dist.Normal(jnp.zeros(2), 3.0).to_event(1),
                                                      dist.transforms.OrderedTransform()))


def category():
    return sample("z", dist.Categorical(jnp.array([0.3, 0.3, 0.4])))


def slope():
    return sample("slope", dist.Normal(0.0, 5.0))


def several():
    return sample("several", dist.Normal(0.0, 5.0).expand([3]).to_event(1))


def ordered_logistic(x):
    b, cut = slope(), cuts()
    with probml.rows():
        sample("z", dist.OrderedLogistic(b * x, cut))


def ordered_probit(x):
    b, cut = slope(), cuts()
    with probml.rows():
        sample("z", OrderedProbit(b * x, cut))


def ordered_vector(x):
    b, cut = slope(), cuts()
    with probml.rows():
        sample("z", dist.OrderedLogistic((b * x)[..., None] * jnp.ones(2), cut).to_event(1))


def uniform(x):
    with probml.rows():
        sample("z", dist.DiscreteUniform(0, 2))


def of_plain_numpyro(x, z=None):
    b, cut = slope(), cuts()
    with plate("n", len(x)):
        sample("z", dist.OrderedLogistic(b * x, cut), obs=z)


def amount():
    b = slope()
    with probml.rows():
        sample("x", dist.Normal(b * category(), 1.0))


def log_rate():
    b = slope()
    with probml.rows():
        z = category()
        sample("count", dist.Poisson(jnp.exp(0.3 * b * z)))


def threshold():
    b = several()
    with probml.rows():
        sample("x", dist.Normal(jnp.where(category() >= 1, b[0], b[1]), 1.0))


def along_a_chain():
    b = slope()
    with probml.rows():
        z = sample("z", probml.MarkovChain(jnp.full(3, 1 / 3), jnp.full((3, 3), 1 / 3)))
        sample("x", dist.Normal(b * z, 1.0).to_event(1))


def input_as_index_and_amount(z):
    b, own = slope(), several()
    with probml.rows():
        sample("x", dist.Normal(own[z] + b * z, 1.0))


def index():
    b = several()
    with probml.rows():
        sample("x", dist.Normal(b[category()], 1.0))


def one_hot():
    b = several()
    with probml.rows():
        sample("x", dist.Normal(jax.nn.one_hot(category(), 3) @ b, 1.0))


def indicators():
    b = several()
    with probml.rows():
        z = category()
        sample("x", dist.Normal(b[0] + b[1] * (z == 1) + b[2] * (z == 2), 1.0))


def switch():
    b = several()
    with probml.rows():
        z = category()
        sample("x", dist.Normal(jnp.select([z == 0, z == 1], [b[0], b[1]], b[2]), 1.0))


def states_of_a_chain():
    b = several()
    with probml.rows():
        z = sample("z", probml.MarkovChain(jnp.full(3, 1 / 3), jnp.full((3, 3), 1 / 3)))
        sample("x", dist.Normal(b[z], 1.0).to_event(1))


def input_as_index(z):
    b = several()
    with probml.rows():
        sample("x", dist.Normal(b[z], 1.0))


NEEDS = (ordered_logistic, ordered_probit, ordered_vector, uniform, of_plain_numpyro, amount, log_rate,
         threshold, along_a_chain, input_as_index_and_amount)
NEEDS_NONE = (index, one_hot, indicators, switch, states_of_a_chain, input_as_index)


def table(function, z):
    """The data of a function, `z` shaped as it wants it."""
    shape = {"ordered_vector": lambda c: np.stack([c, c], 1)}.get(
        function.__name__, (lambda c: c.reshape(6, 10)) if "chain" in function.__name__
        else lambda c: c)
    if isinstance(z, pd.Categorical):
        codes = shape(np.asarray(z.codes))
        z = (pd.DataFrame({j: pd.Categorical.from_codes(codes[:, j], dtype=z.dtype)
                           for j in range(codes.shape[1])}) if codes.ndim == 2 else z)
    else:
        z = shape(np.asarray(z))
    x = X.reshape(6, 10) if "chain" in function.__name__ else X
    return {"z": z, "count": CODES} if function is log_rate else {"z": z, "x": x}


def codes_of(function, z):
    found = read(probml.model(function)(), table(function, z)).table
    return found.columns["z"].values if "z" in found.columns else found.inputs["z"]


@pytest.mark.parametrize("z", [TEXT, TEXT.tolist(), pd.Categorical(TEXT),
                               pd.Categorical(TEXT, categories=ORDER)],
                         ids=["array", "list", "category", "listed category"])
@pytest.mark.parametrize("function", NEEDS, ids=lambda f: f.__name__)
def test_labels_without_an_order_are_refused_where_a_model_needs_one(function, z):
    with pytest.raises(probml.DataError, match="text has no order.*ordered=True"):
        probml.model(function)().fit(table(function, z), probml.MAP())


@pytest.mark.parametrize("function", [each for each in NEEDS if each is not of_plain_numpyro],
                         ids=lambda f: f.__name__)
def test_ordered_categories_are_their_codes(function):
    z = pd.Categorical(TEXT, categories=ORDER, ordered=True)
    np.testing.assert_array_equal(codes_of(function, z), table(function, CODES)["z"])


@pytest.mark.parametrize("function", NEEDS_NONE, ids=lambda f: f.__name__)
def test_text_is_taken_where_any_numbering_tells_the_same(function):
    np.testing.assert_array_equal(codes_of(function, TEXT), table(
        function, np.searchsorted(sorted(ORDER), TEXT))["z"])


@probml.model
def named(x):
    b, cut = slope(), cuts()
    with probml.rows():
        sample("y", dist.OrderedLogistic(b * x, cut), infer={"labels": ORDER})


def test_a_model_may_state_the_order():
    found = read(named(), {"x": X, "y": TEXT})
    np.testing.assert_array_equal(found.table.columns["y"].values, CODES)


@probml.model
def two(x):
    b = slope()
    with probml.rows():
        sample("y", dist.Bernoulli(logits=b * x))


def test_two_labels_need_no_order():
    found = read(two(), {"x": X, "y": np.where(X > 1, "yes", "no")})
    np.testing.assert_array_equal(found.table.columns["y"].values, X > 1)


TABLE = jnp.ones(3)
READS = {
    "a product": (lambda z: 2.0 * z, True),
    "a power": (lambda z: 2.0**z, True),
    "a shifted product": (lambda z: (z * 2 + 1) * 0.5, True),
    "above the first": (lambda z: jnp.where(z > 0, 1.0, 2.0), True),
    "a sum in a scan": (lambda z: jax.lax.scan(lambda c, i: (c + 0.5 * z, c), 0.0 * z,
                                               jnp.arange(3))[0], True),
    "a sum in a loop": (lambda z: jax.lax.fori_loop(0, 3, lambda i, c: c + 0.5 * z, 0.0 * TABLE[z]),
                        True),
    "a branch with the number": (lambda z: jax.lax.cond(z == 1, lambda a: 1.0 * a, lambda a: 0.0, z),
                                 True),
    "an index": (lambda z: TABLE[z], False),
    "a reversed index": (lambda z: TABLE[2 - z], False),
    "a clipped index": (lambda z: TABLE[jnp.clip(z, 0, 2)], False),
    "an index with a first level": (lambda z: jnp.concatenate([jnp.zeros(1), TABLE])[z + 1], False),
    "take": (lambda z: jnp.take(TABLE, z, mode="fill"), False),
    "one-hot": (lambda z: jax.nn.one_hot(z, 3) @ TABLE, False),
    "equality": (lambda z: jnp.where(z == 1, 1.0, 2.0), False),
    "truth": (lambda z: jnp.where(z, 1.0, 2.0), False),
    "a branch": (lambda z: jax.lax.switch(z, [lambda: 1.0, lambda: 2.0, lambda: 3.0]), False),
    "an index in a scan": (lambda z: jax.lax.scan(lambda c, i: (c + TABLE[z], c), 0.0,
                                                  jnp.arange(3))[0], False),
}


@pytest.mark.parametrize("name", READS)
def test_codes_are_amounts_where_a_program_computes_with_them(name):
    function, amounts = READS[name]
    assert bool(find_amounts(jaxpr_of(function)(jnp.int32(0)), [3])) == amounts


# a column that has some of the states only: the codes it stands for; None: which states these are is
# unknown, which matters to all models of PARTIAL but `nominal`, where the labels are the first states
SOME = {
    "codes": ([1, 1, 2], [1, 1, 2]),
    "codes of pandas": (pd.array([1, 1, 2], dtype="Int64"), [1, 1, 2]),
    "objects": (np.array([1, 1, 2], object), [1, 1, 2]),
    "categories that are codes": (pd.Categorical([1, 1, 2]), [1, 1, 2]),
    "categories that are floats": (pd.Categorical([1.0, 1.0, 2.0]), [1, 1, 2]),
    "ordered codes": (pd.Categorical([2, 2, 0], ordered=True), [2, 2, 0]),
    "codes of Arrow": (pa.array([0, 2, 2]).dictionary_encode(), [0, 2, 2]),
    "numbers that are no codes": (pd.Categorical([10, 10, 20]), None),
    "ordered categories": (pd.Categorical(["mild", "mild", "severe"], ["mild", "severe"],
                                          ordered=True), None),
    "text": (["mild", "mild", "severe"], None),
    "categories": (pd.Categorical(["mild", "mild", "severe"]), None),
}


def nominal():
    with probml.rows():
        sample("z", dist.Categorical(jnp.ones(3) / 3))


def uneven():
    with probml.rows():
        category()


def uneven_below_a_site():
    with probml.rows():
        switch = sample("switch", dist.Bernoulli(0.5))
        sample("z", dist.Categorical(logits=jnp.array([[0.0, 0.0, 0.0], [0.0, 1.0, 2.0]])[switch]))


PARTIAL = (uneven, uneven_below_a_site, ordered_logistic, ordered_probit, uniform, amount, log_rate, threshold,
           input_as_index_and_amount)


@pytest.mark.parametrize("column", SOME)
@pytest.mark.parametrize("function", [*PARTIAL, nominal], ids=lambda f: f.__name__)
def test_some_of_the_states_are_what_they_are_in_every_type_of_column(function, column):
    z, codes = SOME[column]
    alone = function in (nominal, uneven, uneven_below_a_site)
    data = {"z": z} | ({} if alone else {"x": X[:3], "count": CODES[:3]})
    data = {name: value for name, value in data.items()
            if name == "z" or name == ("count" if function is log_rate else "x")}
    model = probml.model(function)()
    if codes is None and function is not nominal:
        with pytest.raises(probml.DataError, match="'z' (contains|has) .*pandas.Categorical"):
            open_data(model, data)
        return
    found = open_data(model, data).table
    got = found.columns["z"].values if "z" in found.columns else found.inputs["z"]
    np.testing.assert_array_equal(got, [0, 0, 1] if codes is None else codes)


ALL = {"categories": pd.Categorical([1, 2, 0, 2], categories=[2, 0, 1]),
       "categories of floats": pd.Categorical([1.0, 2.0, 0.0, 2.0], categories=[2.0, 0.0, 1.0]),
       "dictionary of Arrow": pa.DictionaryArray.from_arrays([2, 0, 1, 0], pa.array([2, 0, 1]))}


@pytest.mark.parametrize("column", ALL)
@pytest.mark.parametrize("function", [nominal, uneven, index], ids=lambda f: f.__name__)
def test_codes_are_themselves_in_any_order_of_the_categories(function, column):
    data = {"z": ALL[column], "x": np.zeros(4)}
    found = open_data(probml.model(function)(), {name: data[name] for name in (
        ("z", "x") if function is index else ("z",))}).table
    got = found.columns["z"].values if "z" in found.columns else found.inputs["z"]
    np.testing.assert_array_equal(got, [1, 2, 0, 2])


@probml.model
def coin():
    p = sample("p", dist.Beta(1.0, 1.0))
    with probml.rows():
        sample("y", dist.Bernoulli(p))


ONE = {"codes": [1, 1, 1], "booleans": [True] * 3, "text": ["yes"] * 3,
       "categories of codes": pd.Categorical([1, 1, 1]),
       "categories of booleans": pd.Categorical([True] * 3),
       "categories of text": pd.Categorical(["yes"] * 3),
       "a number that is no code": pd.Categorical([7] * 3),
       "both categories": pd.Categorical(["yes"] * 3, ["no", "yes"]),
       "partly missing": np.array(["yes", None, "yes"], object)}
UNKNOWN = ("text", "categories of text", "a number that is no code", "partly missing")


@pytest.mark.parametrize("streamed", [False, True], ids=["in memory", "in parts"])
@pytest.mark.parametrize("column", ONE)
def test_a_bernoulli_of_one_label_is_a_success_only_if_that_is_known(column, streamed):
    parts = [{"y": ONE[column][:1]}, {"y": ONE[column][1:]}]
    data = (lambda: iter(parts)) if streamed else {"y": ONE[column]}
    if column in UNKNOWN:
        with pytest.raises(probml.DataError, match="1 of 2 possible labels.*Bernoulli is that of the second"):
            open_data(coin(), data)
        return
    observed = open_data(coin(), data).table.columns["y"]
    np.testing.assert_array_equal(observed.values, [1, 1, 1])


def test_parts_with_one_label_each_have_two_together():
    parts = [{"y": ["yes", "yes"]}, {"y": ["no"]}]
    found = open_data(coin(), lambda: iter(parts)).table
    assert found.labels["y"] == ("no", "yes")
    np.testing.assert_array_equal(np.sort(found.columns["y"].values), [0, 1, 1])
