"""A source of rows of a user's own, folder_source.py: fitted and asked as the same rows in memory,
a chunk or two at a time."""

from contextlib import nullcontext

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from folder_source import Folder, stored
from numpyro import plate, sample

import probml
from compilations import compiled
from probml.dataset.sources.parts import Reader, open_data
from probml.device.load import load
from probml.device.rows import merge_chunks
from probml.device.streamed import Cut
from probml.errors import DataError, Refusal


@probml.model
def mixture(k: int):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
        scale = sample("scale", dist.LogNormal(0.0, 1.0).expand([2]).to_event(1))
        table = sample("table", dist.Dirichlet(jnp.ones(3)))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], scale[z]).to_event(1))
        sample("colour", dist.Categorical(table[z]))


@probml.model
def normal():
    with plate("class", 2):
        variance = sample("variance", dist.InverseGamma(2.0, 1.0))
        mean = sample("mean", dist.Normal(0.0, jnp.sqrt(variance)))
    share = sample("share", dist.Beta(1.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Bernoulli(share))
        sample("y", dist.Normal(mean[z], jnp.sqrt(variance[z])))


@probml.model
def logistic(x):
    slope = sample("slope", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=x @ slope))


@probml.model
def lines(x):
    weights = sample("weights", dist.Dirichlet(jnp.ones(2)))
    with plate("line", 2):
        slope = sample("slope", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
        scale = sample("scale", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("y", dist.Normal((x * slope[z]).sum(-1), scale[z]))


@probml.model
def torn():
    mean = sample("mean", dist.Normal(0.0, 10.0).expand([3]).to_event(1))
    covariance = sample("covariance", dist.InverseWishart(5.0, scale_matrix=jnp.eye(3)))
    with probml.rows():
        sample("x", dist.MultivariateNormal(mean, covariance))


@probml.model
def factor():
    loading = sample("loading", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    noise = sample("noise", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        f = sample("f", dist.Normal(0.0, 1.0))
        sample("x", dist.Normal(loading * f[..., None], noise).to_event(1))


@probml.model
def effects(group):
    middle, spread = sample("middle", dist.Normal(0.0, 5.0)), sample("spread",
                                                                     dist.LogNormal(0.0, 1.0))
    noise = sample("noise", dist.LogNormal(0.0, 1.0))
    with plate("groups", 6):
        effect = sample("effect", dist.Normal(middle, spread))
    with probml.rows():
        sample("y", dist.Normal(effect[group], noise))


@probml.model
def walks():
    first = sample("first", dist.Dirichlet(jnp.ones(2)))
    table = sample("table", dist.Dirichlet(jnp.ones((2, 2))).to_event(1))
    with plate("state", 2):
        mean = sample("mean", dist.Normal(0.0, 1e3))
    with probml.rows():
        z = sample("z", probml.MarkovChain(first, table))
        sample("x", dist.Normal(mean[z], 1.0).to_event(1))


# without leaps, which enlarge what rounding leaves
EIGHT = probml.EM(max_iterations=8, tolerance=0.0, restarts=2, accelerate=False)
FOUR = probml.EM(max_iterations=4, tolerance=0.0, accelerate=False)
CUTS = [50, 130, 131, 210]  # parts of unequal size, one of them a single row
FROM = {"slope": np.array([[1.0, 0.0], [-1.0, 0.5]])}


def clusters(seed: int = 0) -> dict[str, np.ndarray]:
    random, n = np.random.default_rng(seed), 240
    z = random.integers(2, size=n)
    x = random.normal(size=(n, 2)) + 4.0 * z[:, None] + 1e3
    x[random.random((n, 2)) < 0.1] = np.nan
    x[:50, 0] = 1e3 + random.normal(size=50)  # seen whole in the first part
    colour = np.array(["blue", "green", "red"], object)[(z + random.integers(2, size=n)) % 3]
    colour[130] = None  # nothing of it in the part of one row
    colour[131:210] = np.where(colour[131:210] == "blue", None, colour[131:210])
    return {"x": x, "colour": colour}


def rows_of(kind: str) -> dict[str, np.ndarray]:
    random, n = np.random.default_rng(1), 240
    x, z = random.normal(size=(n, 2)), random.integers(2, size=n)
    if kind == "normal":
        return {"z": z, "y": random.normal(size=n) + 3.0 * z}
    if kind == "logistic":
        return {"x": x, "y": (random.random(n) < 1 / (1 + np.exp(-x @ [2.0, -1.0]))).astype(int)}
    if kind == "lines":
        return {"x": x, "y": np.where(z, x @ [2.0, 1.0], x @ [-2.0, 0.0]) + random.normal(size=n)}
    if kind == "effects":
        group = random.integers(6, size=n)
        return {"group": group, "y": 2.0 * random.normal(size=6)[group] + random.normal(size=n)}
    held = random.normal(size=(n, 3)) @ [[1.0, 0.5, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 1.0]]
    held[random.random((n, 3)) < 0.2] = np.nan
    return {"x": held}


CASES = {
    "a mixture with holes and labels": (mixture(k=2), clusters(), EIGHT, {}),
    "statistics alone": (normal(), rows_of("normal"), probml.Exact(), {}),
    "Newton's steps": (logistic(), rows_of("logistic"), probml.MAP(), {}),
    "L-BFGS": (normal(), rows_of("normal") | {"z": np.full(240, np.nan)},
               probml.MAP(steps=5), {"mean": np.array([0.0, 3.0])}),
    "responsibilities made again": (lines(), rows_of("lines"), FOUR, FROM),
    "vectors seen in part": (torn(), rows_of("torn"), FOUR, {}),
    "a latent of each row": (factor(), rows_of("torn"), FOUR, {"loading": np.ones(3)}),
    "effects of groups": (effects(), rows_of("effects"), FOUR, {}),
}


LONG = ("L-BFGS", "responsibilities made again", "vectors seen in part", "a latent of each row",
        "effects of groups")


@pytest.mark.filterwarnings("ignore:EM of model:probml.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:MAP of model:probml.ConvergenceWarning")
@pytest.mark.parametrize("case", [
    *(case for case in CASES if case not in LONG),
    *(pytest.param(case, marks=pytest.mark.slow) for case in LONG),
])
def test_rows_in_parts_are_fitted_and_asked_as_rows_in_memory(case, tmp_path):
    model, table, engine, start = CASES[case]
    plain = model.fit(table, engine, start=start)
    source = stored(tmp_path, table, CUTS)
    fit = model.fit(source, engine, start=start)
    assert fit.labels("colour") == plain.labels("colour") if "colour" in table else True
    np.testing.assert_allclose(fit.history[[0, -1]], plain.history[[0, -1]], rtol=1e-10)
    for name, value in plain.params.items():
        np.testing.assert_allclose(fit.params[name], value, rtol=1e-7, atol=1e-8)
    # a scale that is climbed to rests where rounding leaves it
    np.testing.assert_allclose(fit.log_prob(source), plain.log_prob(table), rtol=1e-7,
                               atol=1e-12)
    assert fit.score(source) == pytest.approx(plain.score(table), rel=1e-8)
    if "z" in fit.structure.sites and "z" not in table:
        np.testing.assert_array_equal(fit.predict(source, "z"), plain.predict(table, "z"))
    assert min(source.opened.values()) > 2


@pytest.mark.filterwarnings("ignore:EM of model:probml.ConvergenceWarning")
def test_other_rows_of_the_same_chunks_compile_nothing_and_two_parts_are_held(tmp_path):
    first, more = tmp_path / "first", tmp_path / "more"
    first.mkdir(), more.mkdir()
    mixture(k=2).fit(stored(first, clusters(), CUTS), EIGHT)
    table = clusters(3)
    source = stored(more, table, [80, 81, 90, 150, 200])
    with compiled() as programs:
        fit = mixture(k=2).fit(source, EIGHT)
    assert programs == [] and len(source.opened) == 6
    assert source.most == 2
    assert fit.history[-1] == pytest.approx(mixture(k=2).fit(table, EIGHT).history[-1], rel=1e-9)


def sequences() -> list[np.ndarray]:
    """Of 3 to 9 steps, the longest in the middle, some cells unseen."""
    random, out = np.random.default_rng(2), []
    for steps in [3, 4, 3, 5, 9, 6, 4, 3, 3, 3, 5]:
        x = random.normal(size=steps) + 4.0 * (np.arange(steps) % 3 > 0) + 50.0
        x[random.random(steps) < 0.15] = np.nan
        out.append(x)
    return out


def some_sequences():
    for low, high in ((0, 3), (3, 4), (4, 11)):
        yield {"x": sequences()[low:high]}


def test_sequences_in_parts_lie_on_the_device_as_those_in_memory():
    held, whole = open_data(walks(), some_sequences), open_data(walks(), {"x": sequences()})
    assert held.steps == 9 and held.size == 11 and held.pattern == whole.pattern
    np.testing.assert_array_equal(held.lengths, whole.lengths)
    cut = Cut.of(held, plan := held.plan())
    (chunk,) = cut.read()
    rows, known = load(whole, whole.plan())
    np.testing.assert_allclose(cut.known.centre["x"], known.centre["x"], rtol=1e-6)
    loaded, rows = rows.stacked.steps.rows, merge_chunks(rows.stacked).weights
    assert plan == whole.plan() and chunk.weights.sum() == rows.sum() == 11
    real = np.asarray(loaded.weights)
    assert chunk.steps.rows.weights.shape == loaded.weights.shape
    np.testing.assert_array_equal(chunk.steps.rows.weights, loaded.weights)
    np.testing.assert_array_equal(chunk.steps.rows.observed["x"][real], loaded.observed["x"][real])
    np.testing.assert_allclose(chunk.steps.rows.values["x"][real], loaded.values["x"][real],
                               atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:EM of model:probml.ConvergenceWarning")
def test_sequences_in_parts_are_fitted_and_asked_as_sequences_in_memory():
    start, table = {"mean": np.array([49.0, 55.0])}, {"x": sequences()}
    plain = walks().fit(table, FOUR, start=start)
    fit = walks().fit(some_sequences, FOUR, start=start)
    np.testing.assert_allclose(fit.history, plain.history, rtol=1e-6)
    for name, value in plain.params.items():
        np.testing.assert_allclose(fit.params[name], value, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(fit.log_prob(some_sequences), plain.log_prob(table), rtol=1e-4)
    few = probml.EM(batch_rows=4, max_iterations=3, tolerance=0.0)
    found = walks().fit(some_sequences, few, start=start)
    assert found.score(table) > plain.score(table) - 0.1


def test_labels_of_an_index_are_those_of_all_parts():
    table = rows_of("effects")
    table["group"] = np.array(["oslo", "bergen", "tromso", "hamar", "voss", "alta"], object)[table["group"]]
    few = table["group"] != "tromso"
    cut = [few & (np.arange(240) < 100), ~few, few & (np.arange(240) >= 100)]
    tables = [{name: column[rows] for name, column in table.items()} for rows in cut]
    whole = {name: np.concatenate([part[name] for part in tables]) for name in table}
    held, plain = open_data(effects(), lambda: iter(tables)), open_data(effects(), whole)
    assert held.labels == plain.labels == {"group": ("alta", "bergen", "hamar", "oslo", "tromso", "voss")}
    codes = np.concatenate([part.table.inputs["group"] for part in Reader(held).batches()])
    np.testing.assert_array_equal(codes, plain.table.inputs["group"])
    np.testing.assert_array_equal(held.table.inputs["group"], plain.table.inputs["group"])
    tables[1]["group"] = np.full((~few).sum(), 2)
    with pytest.raises(DataError, match="'group' has labels, .*, in some batches and integer codes in"):
        open_data(effects(), lambda: iter(tables))
    tables[1]["group"] = np.full((~few).sum(), "rena", object)
    tables[2]["group"][0] = "moss"
    with pytest.raises(DataError, match="'group' has 7 labels in all batches"):
        open_data(effects(), lambda: iter(tables))


def test_weights_of_a_source_stand_in_a_column(tmp_path):
    table, weights = rows_of("normal"), np.arange(240) % 4 / 2.0
    plain = normal().fit(table, probml.Exact(), weights=weights)
    for data in (stored(tmp_path, table | {"w": weights}, CUTS), table | {"w": weights}):
        fit = normal().fit(data, probml.Exact(), weights="w")
        assert fit.log_evidence == pytest.approx(plain.log_evidence, rel=1e-6)
        np.testing.assert_allclose(fit.params["mean"], plain.params["mean"], rtol=1e-5)
    source = stored(tmp_path, table | {"w": np.zeros(240)}, CUTS)
    with pytest.raises(DataError, match="all weights are zero"):
        normal().fit(source, weights="w")
    source = stored(tmp_path, table | {"w": np.where(np.arange(240) == 53, -1.0, 1.0)}, CUTS)
    with pytest.raises(DataError, match="batch 'part1.npz': weights must be at least 0, got -1.0 in row 3"):
        normal().fit(source, weights="w")


def test_a_function_that_makes_batches_is_a_source():
    table = rows_of("normal")

    def batches():
        for low in range(0, 240, 60):
            yield {name: column[low : low + 60] for name, column in table.items()}

    found = normal().fit(batches, probml.Exact())
    assert found.log_evidence == pytest.approx(
        normal().fit(table, probml.Exact()).log_evidence, rel=1e-10
    )


def test_bad_rows_are_named_by_part_and_row(tmp_path):
    table = rows_of("normal")
    table["y"][53] = np.inf
    with pytest.raises(DataError, match=r"batch 'part1.npz': 'y' must be finite, got inf in row 3"):
        normal().fit(stored(tmp_path, table, CUTS))


def test_parts_that_do_not_make_one_table_are_refused(tmp_path):
    def parts(*tables):
        return lambda: iter(tables)

    text, codes = np.array(["a", "b"], object), np.array([0, 1])
    y = np.array([0.5, 1.0])
    with pytest.raises(DataError, match="'z' has labels, .*, in some batches and integer codes in"):
        normal().fit(parts({"z": text, "y": y}, {"z": codes, "y": y}))
    with pytest.raises(DataError, match="'z' has 3 labels in all batches"):
        normal().fit(parts({"z": text, "y": y}, {"z": np.array(["b", "c"], object), "y": y}))
    with pytest.raises(DataError, match="input 'x' has another type or shape"):
        logistic().fit(parts({"x": np.ones((2, 2)), "y": codes},
                             {"x": np.ones((2, 2), bool), "y": codes}))
    with pytest.raises(DataError, match="the data source returned no batches"):
        normal().fit(parts())


def test_a_source_that_changes_between_passes_is_refused(tmp_path):
    table, passes = rows_of("logistic"), []

    class Changing(Folder):
        def parts(self):
            passes.append(1)
            if len(passes) == 2:
                (tmp_path / "part4.npz").unlink()
            return super().parts()

    stored(tmp_path, table, CUTS)
    with pytest.raises(DataError, match="returned other batches than .* 'part4.npz' of 30 rows, got no more"):
        logistic().fit(Changing(tmp_path), probml.MAP())


def test_a_source_that_grows_between_passes_is_refused(tmp_path):
    table, passes = rows_of("logistic"), []

    class Growing(Folder):
        def parts(self):
            passes.append(1)
            if len(passes) == 2:
                (tmp_path / "part9.npz").write_bytes((tmp_path / "part0.npz").read_bytes())
            return super().parts()

    stored(tmp_path, table, CUTS)
    with pytest.raises(DataError, match="returned other batches than .*'part9.npz'"):
        logistic().fit(Growing(tmp_path), probml.MAP())


def test_a_source_whose_values_change_between_passes_is_refused():
    """As of a function that augments or draws its rows anew at every call."""
    table, random = rows_of("logistic"), np.random.default_rng(0)
    drawn = next(name for name, values in table.items() if values.dtype.kind == "f")

    def batches(noise):
        for part in np.array_split(np.arange(len(table[drawn])), 4):
            rows = {name: values[part] for name, values in table.items()}
            yield rows | {drawn: rows[drawn] + random.normal(0, noise, rows[drawn].shape)}

    changed = "the data source returned other values than when it was first read"
    with pytest.raises(DataError, match=f"{changed} .all batches together"):
        logistic().fit(lambda: batches(1e-3), probml.SVI(batch_rows=8, steps=40))
    for noise in (0.0, 1e-3):
        reader = Reader(open_data(logistic(), lambda noise=noise: batches(noise)))
        list(reader.batches())
        refused = pytest.raises(DataError, match=f"{changed} .batch 'batch 0'")
        with refused if noise else nullcontext():
            list(reader.batches())


def test_a_label_that_the_first_look_has_not_met_is_refused_where_it_comes_later():
    """It can come in a later pass alone, of a source that has changed: the first look meets every row."""
    looks = []

    def parts():
        looks.append(1)
        last = "b" if len(looks) == 1 else "c"
        return iter([{"z": np.array([own, "a", "b"], object), "y": np.arange(3.0)} for own in ("a", last)])

    with pytest.raises(DataError, match="batch 'batch 1': 'z' must be one of the categories 'a', 'b', got 'c' in row 0"):
        normal().fit(parts, probml.Exact())
    assert len(looks) == 2


def test_what_cannot_be_passed_in_parts_is_refused_in_words(tmp_path):
    source = stored(tmp_path, rows_of("logistic"), CUTS)
    with pytest.raises(DataError, match="weights must be the name of a column"):
        logistic().fit(source, weights=np.ones(240))
    with pytest.raises(DataError, match="batch 'part0.npz': weights='w': the data have no such "
                                        "column. Use one of the columns 'x', 'y'"):
        logistic().fit(source, weights="w")
    with pytest.raises(Refusal, match="the data are read in batches"):
        logistic().fit(source, probml.NUTS())
