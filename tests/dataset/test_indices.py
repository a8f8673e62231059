"""Claims of index inputs: what indexes which axis is read off the program; codes are checked,
labels kept, new members answered."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import deterministic, plate, sample
from scipy import stats

import probml
from probml.dataset import read as reading
from probml.errors import DataError
from probml.interface.fit import Fit
from probml.posteriors.posterior import Draws
from probml.structure.indices import Axis
from probml.structure.trace import structure_of

# Facts of the structure: random programs against NumPy with strict bounds

SHAPES = {"a": (5,), "b": (4, 6), "c": (7,), "d": (6, 3)}
TABLE = (2, 0, 4, 1, 3, 3)  # of settings: indices of a
CODES = range(-8, 16)


def affine(form, i, n, xp):
    """The index that a form of arithmetic makes of a code, for an axis of n entries."""
    match form:
        case "plain":
            return i
        case "from one":
            return i - 1
        case "odd":
            return 2 * i + 1
        case "backwards":
            return n - 1 - i
        case "sum":
            return (i + 2) * 3 - 2 * i - 4
        case "clip":
            return xp.clip(i, 0, n - 1)
        case "at least 0":
            return xp.maximum(i - 2, 0)
        case "at most":
            return xp.minimum(n - 1, i)


FORMS = ("plain", "from one", "odd", "backwards", "sum", "clip", "at least 0", "at most")


def jax_pick(how, arrays, i, j):
    a, b, c, d = (arrays[name] for name in "abcd")
    match how:
        case "index":
            return a[i]
        case "take":
            return jnp.take(c, i)
        case "both":
            return b[i, j]
        case "column":
            return b[:, j].sum()
        case "in turn":
            return b[i][j]
        case "nested":
            return a[jnp.array(TABLE)[i]]
        case "matrix":
            return d[i].sum() + c[j]
        case "mapped":
            return jax.vmap(lambda k: c[k])(jnp.stack([i, j])).sum()
        case "scaled":
            return (1.5 + 2.0 * a)[i] + jnp.concatenate([jnp.zeros(1), c])[j]
        case "turned":
            return d.T[:, i].sum()
        case "added":
            return jnp.zeros(7).at[i].add(1.0) @ c
        case "sliced":
            return jax.lax.dynamic_index_in_dim(c, i, keepdims=False) + c[2:][j]
        case "called":
            return jax.jit(lambda a, k: a[k])(a, i)


def strict(array, *index):
    """array[index], refusing negative indices as those beyond the end."""
    for k, size in zip(index, array.shape, strict=False):
        if not 0 <= k < size:
            raise IndexError(k)
    return array[index]


def numpy_pick(how, i, j):
    a, b, c, d = (np.zeros(SHAPES[name]) for name in "abcd")
    match how:
        case "index" | "called":
            strict(a, i)
        case "take" | "added":
            strict(c, i)
        case "both" | "in turn":
            strict(b, i, j)
        case "column":
            strict(b.T, j)
        case "nested":
            strict(np.array(TABLE), i)
        case "matrix":
            strict(d, i), strict(c, j)
        case "mapped":
            strict(c, i), strict(c, j)
        case "scaled":
            strict(a, i), strict(np.zeros(8), j)
        case "turned":
            strict(d, i)
        case "sliced":
            strict(c, i), strict(c[2:], j)


# how → the length of the axis that each of two inputs indexes, and (parameter, axis, shift of its
# entries); None: it reads none
HOWS = {
    "index": ((5, "a", 0, 0), None),
    "take": ((7, "c", 0, 0), None),
    "both": ((4, "b", 0, 0), (6, "b", 1, 0)),
    "column": (None, (6, "b", 1, 0)),
    "in turn": ((4, "b", 0, 0), (6, "b", 1, 0)),
    "nested": ((6, None, 0, 0), None),
    "matrix": ((6, "d", 0, 0), (7, "c", 0, 0)),
    "mapped": ((7, "c", 0, 0), (7, "c", 0, 0)),
    "scaled": ((5, "a", 0, 0), (8, "c", 0, -1)),
    "turned": ((6, "d", 0, 0), None),
    "added": ((7, None, 0, 0), None),
    "sliced": ((7, "c", 0, 0), (5, "c", 0, 2)),
    "called": ((5, "a", 0, 0), None),
}
PLACES = {"plain": lambda n: (1, 0), "from one": lambda n: (1, -1), "odd": lambda n: (2, 1),
          "backwards": lambda n: (-1, n - 1)}
PLACES |= {"sum": lambda n: (1, 2), "clip": lambda n: (1, 0), "at least 0": lambda n: (1, -2),
           "at most": lambda n: (1, 0)}


@probml.model
def gathered(recipe, g, pair):
    arrays = {name: sample(name, dist.Normal(0, 1).expand(shape).to_event(len(shape)))
              for name, shape in SHAPES.items()}
    with probml.rows():

        def row(g, pair):
            total = 0.0
            for how, forms, order in recipe:
                codes = [(g, pair[1]), (pair[1], g)][order]
                first, second = HOWS[how]
                i, j = (affine(f, code, at[0] if at else 1, jnp)
                        for f, code, at in zip(forms, codes, (first, second), strict=True))
                total += jax_pick(how, arrays, i, j)
            return total

        sample("y", dist.Normal(jax.vmap(row)(g, pair), 1.0))


def recipes(count):
    random = np.random.default_rng(0)
    for _ in range(count):
        steps = random.integers(1, 3)
        yield tuple(
            (str(random.choice(list(HOWS))), tuple(str(f) for f in random.choice(FORMS, 2)),
             int(random.integers(2))) for _ in range(steps)
        )


def runs(recipe, codes):
    """Whether NumPy runs the recipe without an index out of bounds."""
    try:
        for how, forms, order in recipe:
            first, second = HOWS[how]
            own = codes if order == 0 else codes[::-1]
            i, j = (int(affine(f, code, at[0] if at else 1, np))
                    for f, code, at in zip(forms, own, (first, second), strict=True))
            numpy_pick(how, i, j)
    except IndexError:
        return False
    return True


@pytest.mark.parametrize("recipe", [*recipes(40)], ids=lambda r: " and ".join(how for how, *_ in r))
def test_the_codes_that_are_allowed_are_those_that_strict_bounds_allow(recipe):
    structure = structure_of(gathered(recipe), {"g": ((), "i"), "pair": ((2,), "i")})
    allowed = []
    for name in ("g", "pair[1]"):
        index = structure.indexed.get(name)
        low, high = (None, None) if index is None else (index.low, index.high)
        allowed.append([c for c in CODES if (low is None or c >= low)
                        and (high is None or c <= high)])
    assert "pair" not in structure.indexed and "pair[0]" not in structure.indexed
    for g in CODES:
        for h in CODES:
            assert (g in allowed[0] and h in allowed[1]) == runs(recipe, (g, h)), (
                g, h, structure.indexed
            )


@pytest.mark.parametrize("recipe", [*recipes(40)], ids=lambda r: " and ".join(how for how, *_ in r))
def test_an_index_names_the_axes_along_which_its_codes_run(recipe):
    structure = structure_of(gathered(recipe), {"g": ((), "i"), "pair": ((2,), "i")})
    wanted = {"g": set(), "pair[1]": set()}
    for how, forms, order in recipe:
        for form, at, name in zip(forms, HOWS[how], list(wanted)[:: 1 - 2 * order], strict=True):
            if at is not None and at[1] is not None:
                length, parameter, axis, shift = at
                scale, offset = PLACES[form](length)
                wanted[name].add(Axis(parameter, axis, scale, offset + shift))
    for name, axes in wanted.items():
        found = structure.indexed[name].axes if name in structure.indexed else ()
        assert set(found) == axes


def one(function, **inputs):
    return structure_of(probml.model(function)(), inputs).indexed


def test_a_matrix_of_codes_is_one_index_and_a_column_of_a_matrix_another():
    def words(w, x):
        a = sample("a", dist.Normal(0, 1).expand([9]).to_event(1))
        with probml.rows():
            sample("y", dist.Normal(a[w].sum(-1) + a[x[:, 1].astype(int)] * x[:, 0], 1.0))

    found = one(words, w=((3,), "i"), x=((2,), "f"))
    assert list(found) == ["w", "x[1]"] and (found["w"].low, found["w"].high,
                                             found["w"].length) == (0, 8, 9)
    assert found["x[1]"].input == "x" and found["x[1]"].parameters == (("a", 0),)


@pytest.mark.parametrize("turned", [False, True])
def test_a_code_beside_an_unseen_state_is_an_index(turned):
    def towns(town, k=2):
        shape = [k, 3] if turned else [3, k]
        mean = sample("mean", dist.Normal(0, 10).expand(shape).to_event(2))
        with probml.rows():
            z = sample("z", dist.Categorical(jnp.ones(k) / k))
            sample("y", dist.Normal(mean[z, town] if turned else mean[town, z], 1.0))

    found = one(towns, town=((), "i"))["town"]
    assert (found.low, found.high) == (0, 2) and found.axes == (Axis("mean", int(turned)),)
    data = {"town": np.array(["alta", "voss", "hamar", "alta"]), "y": np.arange(4.0)}
    fit = probml.model(towns)().fit(data, probml.MAP())
    assert list(fit.labels("town")) == ["alta", "hamar", "voss"]
    with pytest.raises(DataError, match="oslo"):
        fit.log_prob({"town": np.array(["oslo"]), "y": np.zeros(1)})


def test_a_number_that_is_clipped_filled_or_taken_modulo_has_no_range():
    def free(g):
        a = sample("a", dist.Normal(0, 1).expand([4]).to_event(1))
        with probml.rows():
            loc = a[jnp.clip(g, 0, 3)] + a[g % 4] + jnp.take(a, g, mode="clip") + a.at[g].get(
                mode="fill", fill_value=0.0
            )
            sample("y", dist.Normal(loc + a[jnp.where(g > 3, 0, g)], 1.0))

    index = one(free, g=((), "i"))["g"]
    assert (index.low, index.high) == (None, None) and index.parameters == (("a", 0),)


def test_an_index_that_is_computed_from_several_codes_is_checked_on_the_data():
    def crossed(g, h):
        a = sample("a", dist.Normal(0, 1).expand([12]).to_event(1))
        b = sample("b", dist.Normal(0, 1).expand([3]).to_event(1))
        with probml.rows():
            loc = a[g * 3 + h] + b[g // 2] + b[h % 3] + b[jnp.where(h > 2, 0, h)] + a[
                jnp.array([0, 5, 11, 2, 7])[h]
            ]
            sample("y", dist.Normal(loc, 1.0))

    known = probml.model(crossed)().at({"a": np.zeros(12), "b": np.zeros(3)})
    for g in range(-3, 9):
        for h in range(-3, 9):
            fine = 0 <= g * 3 + h < 12 and 0 <= g // 2 < 3 and h >= 0 and h < 5
            try:
                found = bool(reading.read(known.model, {"g": [0, g], "h": [0, h]}))
            except DataError as error:
                found = False
                assert "in row 1" in str(error)
            assert found == fine, (g, h)
    with pytest.raises(DataError, match=r"'g' = 3 and 'h' = 3 give the index 12 of 'a' "
                       r"\(axis 0\); expected an index from 0 to 11"):
        reading.read(known.model, {"g": [3], "h": [3]})


def test_an_index_into_a_row_of_indices_checks_both():
    def nested(region, county):
        a = sample("a", dist.Normal(0, 1).expand([5]).to_event(1))
        with probml.rows():
            sample("y", dist.Normal(a[jnp.take_along_axis(region, county[:, None], 1)[:, 0]], 1.0))

    found = one(nested, region=((3,), "i"), county=((), "i"))
    assert (found["county"].high,
            found["region"].high) == (2, 4) and found["region"].parameters == (("a", 0),)


def test_an_index_within_a_loop_of_known_length_is_found():
    def looped(w):
        a = sample("a", dist.Normal(0, 1).expand([5]).to_event(1))
        with probml.rows():
            total = jax.vmap(lambda own: jax.lax.scan(lambda total, k: (total + a[k - 1], a[k]),
                                                      0.0, own)[0])(w)
            sample("y", dist.Normal(total, 1.0))

    index = one(looped, w=((3,), "i"))["w"]
    assert (index.low, index.high) == (1, 4)  # of both readings


def test_a_covariate_is_no_index():
    def plain(x, g):
        b = sample("b", dist.Normal(0, 1))
        with probml.rows():
            sample("y", dist.Normal(b * x + jnp.where(g > 2, b, 0.0), 1.0))

    assert one(plain, x=((), "f"), g=((), "i")) == {}


# Reading

Y = np.arange(8.0)


@probml.model
def groups(n: int, group):
    with plate("groups", n):
        alpha = sample("alpha", dist.Normal(1.5, 2.0))
    with probml.rows():
        sample("y", dist.Normal(alpha[group], 1.0))


FOUR = groups(4)


def fit(group, model=FOUR):
    return model.fit({"y": Y, "group": group}, probml.Exact())


def refused(words, group, model=FOUR, error=DataError):
    with pytest.raises(error) as caught:
        fit(group, model)
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_codes_out_of_range_are_refused_by_row_and_code():
    refused(["'group' is 4 in row 3, but it is used as an index of 'alpha' (axis 0), which has 4 entries, "
             "0 … 3. If your codes start at 1, subtract 1"], [1, 2, 3, 4] * 2)
    refused(["'group' is -1 in row 7, but it is used as an index of 'alpha' (axis 0), which has 4 entries"], [0, 1, 2, 3, 0, 1, 2, -1])
    refused(["'group' is 10 in row 0", "as text or as a pandas Categorical"], [10, 20, 30, 40] * 2)
    with pytest.raises(DataError) as caught:
        fit([0, 2, 3, 4] * 2)
    assert "subtract" not in str(caught.value)


def test_every_question_checks_codes():
    known = FOUR.at({"alpha": np.arange(4.0)})
    for ask in (
        lambda g: known.predict({"group": g}),
        lambda g: known.log_prob({"group": g, "y": [0.0]}),
        lambda g: known.simulate(group=g),
        lambda g: FOUR.simulate(1, group=g),
        lambda g: FOUR.log_density({"group": g, "y": [0.0]}, {"alpha": np.zeros(4)}),
    ):
        with pytest.raises(DataError,
                           match="'group' is 4 in row 0, but .* has 4 entries, 0 … 3"):
            ask([4])
    assert known.predict({"group": [3]}).tolist() == [3.0]


def test_whole_numbers_may_be_floats_and_others_are_refused():
    assert np.array_equal(fit([0.0, 1.0, 2.0, 3.0] * 2).params["alpha"],
                          fit([0, 1, 2, 3] * 2).params["alpha"])
    refused(["'group' is 2.5 in row 3", "Pass integers"], [0, 1, 2, 2.5] * 2)
    refused(["'group' is inf in row 3"], [0, 1, 2, np.inf] * 2)


@pytest.mark.parametrize(
    "group", [[0, 1, None, 3] * 2, [0, 1, np.nan, 3] * 2,
              pd.array([0, 1, None, 3] * 2, dtype="Int64"), ["a", "b", None, "c"] * 2]
)
def test_an_unseen_group_is_refused_by_name(group):
    refused(["'group' is missing in row 2", "an index cannot be missing"], group)


def test_an_index_that_the_function_makes_whole_itself_is_checked_too():
    def cast(n: int, x):
        a = sample("a", dist.Normal(0, 1).expand([n]).to_event(1))
        with probml.rows():
            sample("y", dist.Normal(a[x[:, 1].astype(int)] * x[:, 0], 1.0))

    known = probml.model(cast)(3).at({"a": np.ones(3)})
    assert known.predict({"x": [[0.5, 2.0]]}).tolist() == [0.5]
    with pytest.raises(DataError, match=r"'x\[1\]' is 2.5 in row 1"):
        known.predict({"x": [[0.5, 2.0], [0.1, 2.5]]})
    with pytest.raises(DataError, match=r"'x\[1\]' is 3 in row 0"):
        known.predict({"x": [[0.5, 3.0]]})


def test_text_that_is_no_index_is_refused_by_name():
    def line(x):
        b = sample("b", dist.Normal(0, 1))
        with probml.rows():
            sample("y", dist.Normal(b * x, 1.0))

    with pytest.raises(DataError, match=r"the input 'x' must be a number, got 'hot' in row 0. Model 'line' computes with 'x'. An "
                       r"input may be text only if the model uses it as an index"):
        probml.model(line)().fit({"x": ["hot", "cold"], "y": [1.0, 2.0]})


@pytest.mark.parametrize("function", ["rows", "joint"])
def test_text_that_no_site_reads_is_ignored_as_numbers_are(function):
    def row_model(x, key):
        b = sample("b", dist.Normal(0, 1))
        with probml.rows():
            sample("y", dist.Normal(b * x, 1.0))

    def joint(x, key, y=None):
        sample("y", dist.Normal(sample("b", dist.Normal(0, 1)) * x, 1.0).to_event(1), obs=y)

    model = probml.model(row_model if function == "rows" else joint)()
    fits = [model.fit({"x": [1.0, 3.0], "key": key, "y": [1.0, 2.0]}, probml.Laplace())
            for key in ([5, 6], ["hot", "cold"], pd.Categorical(["a", None]))]
    assert len({float(fit.params["b"]) for fit in fits}) == 1
    if function == "rows":
        assert fits[1].predict({"x": [2.0], "key": ["new"]}) == fits[0].predict(
            {"x": [2.0], "key": [9]})


def test_text_that_only_a_deterministic_reads_is_refused():
    def line(x):
        b = sample("b", dist.Normal(0, 1))
        with probml.rows():
            deterministic("twice", 2 * x)
            sample("y", dist.Normal(b, 1.0))

    with pytest.raises(DataError, match="the input 'x' must be a number, got 'hot' in row 0"):
        probml.model(line)().fit({"x": ["hot", "cold"], "y": [1.0, 2.0]})


def test_an_index_along_the_steps_of_a_chain_is_checked_and_padding_is_not():
    def steps(group):
        a = sample("a", dist.Normal(0, 1).expand([2]).to_event(1))
        with probml.rows():
            z = sample("z", probml.MarkovChain(jnp.full(2, 0.5), jnp.full((2, 2), 0.5)))
            sample("x", dist.Normal(a[group - 1] + z, 1.0).to_event(1))

    known = probml.model(steps)().at({"a": np.array([0.0, 9.0])},
                                     labels={"group": ("day", "night")})
    x = [np.zeros(3), np.zeros(2)]
    read = reading.read(known.model, {"x": x, "group": [["day", "night", "day"], ["night", "day"]]},
                        known.names)
    assert read.table.inputs["group"].tolist() == [[1, 2, 1], [2, 1, 2]]
    with pytest.raises(DataError,
                       match="'group' is 3 in row 1, cell 1, but .* has 2 entries, 1 … 2"):
        reading.read(known.model, {"x": x, "group": [[1, 2, 1], [2, 3]]})


# Labels


def test_text_becomes_codes_that_the_fit_remembers():
    text, codes = fit(list("bacd") * 2), fit([1, 0, 2, 3] * 2)
    assert text.labels("group") == ("a", "b", "c", "d") and codes.labels("group") == (0, 1, 2, 3)
    assert np.array_equal(text.params["alpha"], codes.params["alpha"])
    assert text.predict({"group": ["d", "a"]}).tolist() == text.params["alpha"][[3, 0]].tolist()
    assert text.predict(
        pd.DataFrame({"group": pd.Categorical(["d", "a"])})
    ).tolist() == text.params["alpha"][[3, 0]].tolist()


def test_categories_keep_their_order_and_an_unused_level():
    group = pd.Categorical(list("xy") * 4, categories=["y", "q", "x"])
    for data in ({"group": group, "y": Y}, {"group": pd.Series(group), "y": Y},
                 pd.DataFrame({"group": group, "y": Y})):
        found = FOUR.fit(data, probml.Exact())
        assert found.labels("group") == ("y", "q", "x", "state 3")
        assert found.params["alpha"][1] == found.params["alpha"][3] == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("group", "labels"),
    [
        ([True, False] * 4, (False, True, 2, 3)),
        (pd.array([0, 1, 2, 3] * 2, dtype="Int64"), (0, 1, 2, 3)),
        (pd.array([True, False] * 4, dtype="boolean"), (False, True, 2, 3)),
        (pd.Categorical([10, 20] * 4), (10, 20, 2, 3)),
        (pd.Series(list("cdab") * 2, dtype="string"), ("a", "b", "c", "d")),
    ],
    ids=["bool", "nullable integer", "nullable bool", "numbers as categories", "string dtype"],
)
def test_other_kinds_of_groups_become_codes(group, labels):
    found = fit(group)
    assert found.labels("group") == labels
    assert found.predict({"group": group}).shape == (8,)


def test_more_labels_than_entries_are_refused_naming_both():
    refused(["'group' has 5 labels, 'a', 'b', 'c', 'd', 'e'", "'alpha' (axis 0), which has only 4 entries"],
            list("abcdeabc"))


def test_text_beside_numbers_is_refused():
    refused(["'group' must be all text", "got 1 in row 1"], ["a", 1] * 4)


def test_labels_stand_in_summary_and_arviz():
    found = fit(list("abcc") * 2)
    assert list(found.summary().index) == ["alpha[a]", "alpha[b]", "alpha[c]", "alpha[state 3]"]
    posterior = found.to_arviz({"y": Y, "group": list("abcc") * 2}).posterior["alpha"]
    assert posterior.dims[-1] == "groups" and posterior.coords["groups"].values.tolist() == [
        "a", "b", "c", "state 3"
    ]


@probml.model
def shifted(n: int, group):
    with plate("groups", n):
        alpha = sample("alpha", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal(alpha[n - group], 1.0))


def test_labels_stand_at_the_entries_that_their_codes_pick():
    found = shifted(3).at({"alpha": np.array([30.0, 20.0, 10.0])},
                          labels={"group": ("a", "b", "c")})
    assert found.predict({"group": ["a", "c", "b"]}).tolist() == [10.0, 30.0, 20.0]
    assert list(found.summary().index) == ["alpha[c]", "alpha[b]", "alpha[a]"]


@probml.model
def matches(n: int, home, away):
    strength = sample("strength", dist.Normal(0, 1).expand([n]).to_event(1))
    with probml.rows():
        sample("win", dist.Bernoulli(logits=strength[home] - strength[away]))


def test_inputs_that_index_one_axis_share_their_labels():
    data = {"home": ["rome", "oslo"], "away": ["oslo", "bern"], "win": [1, 0]}
    read = reading.read(matches(3), data)
    assert read.labels["home"] == read.labels["away"] == ("bern", "oslo", "rome")
    assert read.table.inputs["home"].tolist() == [2, 1] and read.table.inputs["away"].tolist() == [
        1, 0
    ]
    with pytest.raises(DataError, match="'home' contains labels and 'away' contains integer codes"):
        reading.read(matches(3), {**data, "away": [0, 1]})


def test_labels_outlive_saving_intervening_and_pickling(tmp_path):
    found = fit(list("bacd") * 2)
    found.save(tmp_path / "fit")
    for other in (probml.load(tmp_path / "fit", FOUR), pickle.loads(pickle.dumps(found)),
                  found.do({"y": 1.0})):
        assert other.labels("group") == ("a", "b", "c", "d")
    again = jax.tree.map(lambda leaf: leaf, found)
    assert again.predict({"group": ["d"]}).tolist() == found.params["alpha"][[3]].tolist()


def test_labels_of_a_fit_at_known_parameters_are_each_listed_once():
    known = FOUR.at({"alpha": np.arange(4.0)}, labels={"group": ("n", "s", "w")})
    assert known.predict({"group": ["w"]}).tolist() == [2.0]
    with pytest.raises(probml.ModelError, match="'group' has the label 'n' twice"):
        FOUR.at({"alpha": np.arange(4.0)}, labels={"group": ("n", "s", "n")})
    with pytest.raises(probml.ModelError, match="expected at most . different labels"):
        FOUR.at({"alpha": np.arange(4.0)}, labels={"group": tuple("abcde")}).predict(
            {"group": ["a"]}
        )


def test_explain_names_what_an_input_indexes():
    (line,) = FOUR.explain({"y": Y, "group": list("abcd") * 2}).indices
    assert line == {"input": "group", "index of": "alpha (axis 0, 4 entries)", "codes": "0 … 3",
                    "labels": "a, b, c, d"}


# New members


def test_an_unknown_label_is_refused_by_name():
    found = fit(list("abcd") * 2)
    with pytest.raises(DataError, match="'group' is 'z' in row 1, which is not one of the labels "
                       "in the fitted data, 'a', 'b', 'c', 'd'"):
        found.predict({"group": ["a", "z"]})
    with pytest.raises(DataError, match="'group' must be one of its labels, 'a', 'b', 'c', 'd', "
                       "not a code, got 0 in row 0"):
        found.predict({"group": [0]})
    with pytest.raises(probml.ModelError, match="predict.unknown='maybe'.: expected 'refuse' or 'new'"):
        found.predict({"group": ["a"]}, unknown="maybe")


def test_a_fit_that_knows_codes_refuses_text_and_reads_categories_that_are_numbers_as_codes():
    found = fit([0, 1, 2, 3] * 2)
    with pytest.raises(DataError, match="'group' is 'c' in row 0, but .*alpha.* has integer "
                       "codes without labels, 0, 1, 2, 3"):
        found.predict({"group": ["c"]})
    np.testing.assert_array_equal(found.predict({"group": pd.Categorical([2, 1])}),
                                  found.predict({"group": [2, 1]}))
    new = found.predict({"group": ["c"]}, unknown="new")
    np.testing.assert_allclose(new, [1.5], atol=0.1)  # the mean of draws from the prior


def test_a_new_member_has_the_prior_predictive_and_others_keep_theirs():
    found, group = fit(list("abcd") * 2), ["a", "z", "d", "z"]
    mean = found.predict({"group": group}, unknown="new")
    assert mean[[0, 2]] == pytest.approx(found.params["alpha"][[0, 3]])
    assert mean[[1, 3]] == pytest.approx(1.5, abs=4 * 2 / np.sqrt(16384))
    y = [1.0, 2.0, 3.0, -1.0]
    log = found.log_prob({"group": group, "y": y}, unknown="new")
    assert log[[0, 2]] == pytest.approx(found.log_prob({"group": ["a", "d"], "y": [1.0, 3.0]}))
    assert log[[1, 3]] == pytest.approx(
        np.asarray(dist.Normal(1.5, 5**0.5).log_prob(np.array([2.0, -1.0]))), abs=0.04
    )
    assert found.score({"group": group, "y": y}, unknown="new") == pytest.approx(log.mean())
    drawn = found.simulate(group=["z"] * 1000 + ["a"], unknown="new")["y"][:1000]
    assert (drawn.mean() == pytest.approx(1.5, abs=4 * 5**0.5 / 1000**0.5)
            and drawn.var() == pytest.approx(5, abs=4 * 5 * (2 / 1000) ** 0.5))
    assert found.predict({"group": ["z"]}, plug_in=True, unknown="new").tolist() == [1.5]


@probml.model
def hierarchy(n: int, group):
    mu = sample("mu", dist.Normal(0.0, 10.0))
    tau = sample("tau", dist.HalfNormal(5.0))
    with plate("groups", n):
        z = sample("z", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal((mu + tau * z)[group - 1], 0.5))


def test_a_new_member_is_drawn_given_each_draw_of_the_parameters_above_it():
    random = np.random.default_rng(0)
    values = {"mu": random.normal(3.0, 1.0, (1, 400)), "tau": random.uniform(0.5, 2.0, (1, 400)),
              "z": random.normal(5.0, 1.0, (1, 400, 3))}
    point = {"mu": np.array(3.0), "tau": np.array(1.0), "z": np.zeros(3)}
    found = Fit(hierarchy(3), point, {"group": ((), "i")}, belief=Draws(values, None, {}))
    mean = found.predict({"group": [9, 1]}, unknown="new")  # a code that no member has
    mu, tau = (values[name][0] for name in ("mu", "tau"))
    assert mean[0] == pytest.approx(mu.mean(), abs=0.1) and mean[1] > 6
    y = np.array([2.0, 5.0])
    log = found.log_prob({"group": [9, 9], "y": y}, unknown="new")
    exact = np.exp(np.asarray(dist.Normal(mu, np.sqrt(tau**2 + 0.25)).log_prob(y[:, None]))).mean(1)
    assert np.exp(log) == pytest.approx(exact, rel=0.08)
    drawn = found.simulate(group=np.full(2000, 9), unknown="new")["y"]
    assert drawn.var() == pytest.approx(mu.var() + (tau**2).mean() + 0.25, rel=0.2)
    point = hierarchy(3).at({"mu": 3.0, "tau": 1.0, "z": np.ones(3)})
    assert point.predict({"group": [9, 1]}, unknown="new").tolist() == [3.0, 4.0]


def test_new_teams_meet_each_other_and_known_ones():
    known = matches(3).at({"strength": np.array([-1.0, 0.0, 2.0])},
                          labels={"home": tuple("xyz"), "away": tuple("xyz")})
    data = {"home": ["z", "new", "new", "new", "x"], "away": ["y", "z", "new", "other", "new"]}
    p = known.predict_proba(data, "win", unknown="new")[:, 1]
    assert p == pytest.approx(1 / (1 + np.exp(-np.array([2.0, -2.0, 0.0, 0.0, -1.0]))), rel=1e-6)


def test_a_new_member_without_a_prior_of_its_own_is_refused():
    def ask(function, params, words):
        known = probml.model(function)().at(params)
        with pytest.raises(probml.Refusal) as caught:
            known.predict({"g": [0, 7]}, unknown="new")
        for word in words:
            assert word in str(caught.value), str(caught.value)

    def centred(g):
        with plate("groups", 3):
            a = sample("a", dist.Normal(0, 1))
        with probml.rows():
            sample("y", dist.Normal((a - a.mean())[g], 1.0))

    def looked_up(g):
        with plate("regions", 2):
            a = sample("a", dist.Normal(0, 1))
        with probml.rows():
            sample("y", dist.Normal(a[jnp.array([0, 1, 1])[g]], 1.0))

    def different(g):
        with plate("groups", 3):
            a = sample("a", dist.Normal(jnp.arange(3.0), 1))
        with probml.rows():
            sample("y", dist.Normal(a[g], 1.0))

    def tied(g):
        a = sample("a", dist.MultivariateNormal(jnp.zeros(3), jnp.eye(3)))
        with probml.rows():
            sample("y", dist.Normal(a[g], 1.0))

    def heavy(g):
        with plate("groups", 3):
            a = sample("a", dist.Cauchy(0, 1))
        with probml.rows():
            sample("y", dist.Normal(a[g], 1.0))

    zeros = {"a": np.zeros(3)}
    ask(centred, zeros, ["a new group of 'g'", "also uses the effects of all groups at once"])
    ask(looked_up, {"a": np.zeros(2)}, ["has no entry in an array of the model (a setting"])
    ask(different, zeros, ["the prior of 'a' differs between groups"])
    ask(tied, zeros, ["one joint prior for all groups along axis 0"])
    ask(heavy, zeros, ["has no mean"])


def test_a_new_member_has_all_its_effects_drawn_parents_first():
    def nested(g):
        with plate("groups", 4):
            a = sample("a", dist.Normal(1.0, 1.0))
            b = sample("b", dist.Normal(a, 1.0))
        with probml.rows():
            sample("y", dist.Normal(a[g] + b[g], 1.0))

    known = probml.model(nested)().at({"a": np.full(4, 7.0), "b": np.full(4, -3.0)})
    assert known.predict({"g": [2, 9]}, unknown="new").tolist() == [4.0, 2.0]


def test_the_structure_is_traced_with_whole_numbers_only_where_they_index():
    def mixed(g, x):
        a = sample("a", dist.Normal(0, 1).expand([3]).to_event(1))
        with probml.rows():
            sample("y", dist.Normal(a[g] * x, 1.0))

    known = probml.model(mixed)().at({"a": np.arange(3.0)})
    assert known.predict({"g": [1.0, 2.0], "x": [0.5, 0.25]}).tolist() == [0.5, 0.5]
    read = reading.read(known.model, {"g": [1.0, 2.0], "x": [0.5, 0.25]})
    assert read.structure.indexed["g"].parameters == (("a", 0),)


# Numbers from which an index is computed

EDGES = np.array([10.0, 20.0, 30.0, 40.0])
BANDS = {
    "floor": (lambda a, x: a[jnp.floor(x / 10).astype(int)], lambda a, x: a[np.floor(x / 10).astype(int)]),
    "//": (lambda a, x: a[(x // 10).astype(int)], lambda a, x: a[np.floor(x / 10).astype(int)]),
    "digitize": (lambda a, x: a[jnp.digitize(x, EDGES)], lambda a, x: a[np.digitize(x, EDGES)]),
    "interp": (lambda a, x: jnp.interp(x, jnp.arange(5.0), a), lambda a, x: np.interp(x, np.arange(5.0), a)),
}


@pytest.mark.parametrize("name", BANDS)
def test_an_index_may_be_computed_from_any_number(name):
    """Ages in bands, or between knots: the age itself is no code, and need not be an integer."""
    mean, right = BANDS[name]

    @probml.model
    def by_age(age):
        a = sample("a", dist.Normal(0.0, 1.0).expand([5]).to_event(1))
        with probml.rows():
            sample("y", dist.Normal(mean(a, age), 0.7))

    age, y, a = np.array([3.5, 12.2, 25.0, 31.9, 44.4, 17.0]), np.arange(6.0), np.arange(5.0) ** 2
    model = by_age()
    for given in (age, age.astype(int)):
        want = stats.norm(right(a, given), 0.7).logpdf(y).sum() + stats.norm.logpdf(a).sum()
        np.testing.assert_allclose(model.log_density({"age": given, "y": y}, {"a": a}), want)
    fit = model.fit({"age": age.astype(int), "y": y}, probml.MAP())  # and integers do not make it a code
    np.testing.assert_allclose(fit.predict({"age": age}), right(fit.params["a"], age), rtol=1e-6)
    with pytest.raises(DataError, match="'age' must be complete.* row 4"):
        model.log_density({"age": np.where(age > 40, np.nan, age), "y": y}, {"a": a})
    if name in ("floor", "//"):
        with pytest.raises(DataError, match="'age' = 54.4 gives the index 5 of 'a'"):
            model.log_density({"age": age + 10, "y": y}, {"a": a})


@pytest.mark.parametrize("last", [3, 4])
def test_an_index_may_be_computed_from_constants(last):
    """A season of each step: of what the function counts itself, the data are no part."""
    def seasons(y):
        s = sample("s", dist.Normal(0.0, 1.0).expand([last]).to_event(1))
        sample("y", dist.Normal(s[jnp.arange(10) % 4], 0.7), obs=y)

    y, s, model = np.arange(10.0), np.arange(1.0 * last), probml.model(seasons)()
    if last < 4:
        with pytest.raises(DataError, match="index 3 "):
            model.log_density({"y": y}, {"s": s})
    else:
        want = stats.norm(s[np.arange(10) % 4], 0.7).logpdf(y).sum() + stats.norm.logpdf(s).sum()
        np.testing.assert_allclose(model.log_density({"y": y}, {"s": s}), want)
