"""What a user holds after fitting: answers, labels, files; and that nothing is compiled twice."""

import copy
import dataclasses
import functools
import json
import pickle
import warnings
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample

import cases
import probml
from cases import fitted, mixture, nan


@probml.model
def weather(kinds: int = 2):
    """A kind of day with a sky, a wind and a temperature below it."""
    p = sample("p", dist.Dirichlet(jnp.ones(kinds)))
    with plate("kinds", kinds):
        q = sample("q", dist.Dirichlet(jnp.ones(3)))
        r = sample("r", dist.Beta(1.0, 1.0))
        mean = sample("mean", dist.Normal(0.0, 30.0))
    with probml.rows():
        kind = sample("kind", dist.Categorical(p))
        sample("sky", dist.Categorical(q[kind]))
        sample("windy", dist.Bernoulli(r[kind]))
        sample("degrees", dist.Normal(mean[kind], 3.0))


TABLE = pd.DataFrame(
    {
        "kind": ["wet", "dry", "wet", "wet", "dry"] * 6,
        "sky": ["rain", "sun", "cloud", "rain", "sun"] * 6,
        "windy": ["yes", "no", "no", "yes", "yes"] * 6,
        "degrees": np.tile([5.0, 20.0, 8.0, 6.0, 23.0], 6),
    }
)
HOLES = TABLE.head(4).copy()
HOLES.loc[0, "kind"], HOLES.loc[1, "sky"], HOLES.loc[2, "degrees"], HOLES.loc[3, "windy"] = (
    None, None, nan, None
)


@functools.lru_cache
def days(engine=None):
    return fitted(weather(), TABLE, engine)


@functools.lru_cache
def blobs(engine=None):
    model, data, start, _ = mixture("scale")
    return fitted(model, data, engine or probml.EM(max_iterations=30, accelerate=False),
                  start=start)


# Labels


def test_every_answer_comes_back_in_labels():
    fit = days()
    assert (fit.labels("kind") == ("dry", "wet") and fit.labels("sky") == ("cloud", "rain", "sun")
            and fit.labels("windy") == ("no", "yes"))
    assert set(fit.predict(HOLES, "kind")) <= {"dry", "wet"}
    np.testing.assert_array_equal(fit.predict(HOLES, "kind")[1:], HOLES["kind"][1:])
    decoded = fit.decode(HOLES)
    assert (set(decoded) == {"kind", "sky", "windy"} and decoded["kind"][0] == "wet"
            and decoded["sky"][1] == "sun")
    filled = fit.impute(HOLES)
    assert filled["kind"][0] == "wet" and filled["sky"][1] == "sun" and filled["windy"][3] in (
        "yes", "no"
    )
    drawn = fit.simulate(20, seed=0)
    assert set(drawn["sky"]) <= {"cloud", "rain", "sun"} and set(drawn["kind"]) <= {"dry", "wet"}


def test_predict_proba_has_its_columns_in_the_order_of_the_labels():
    fit = days()
    proba = fit.predict_proba({"degrees": [5.0, 22.0]}, "kind")
    assert proba.shape == (2, 2) and proba[0, 1] > 0.99 and proba[1, 0] > 0.99
    seen = fit.predict_proba(TABLE.head(3), "kind")
    np.testing.assert_array_equal(seen, [[0, 1], [1, 0], [0, 1]])


def test_the_order_of_a_pandas_categorical_is_kept():
    order = pd.CategoricalDtype(["wet", "dry"])
    fit = weather().fit(TABLE.astype({"kind": order}))
    assert fit.labels("kind") == ("wet", "dry")
    np.testing.assert_allclose(fit.params["p"], [19 / 32, 13 / 32], rtol=1e-9)


def test_a_table_is_labelled_with_parents_in_rows():
    table = days().table("sky")
    assert (list(table.index) == ["dry", "wet"] and list(table.columns) == ["cloud", "rain", "sun"]
            and table.index.name == "kind")
    np.testing.assert_allclose(table.loc["dry"], [1 / 15, 1 / 15, 13 / 15], rtol=1e-9)
    root = days().table("kind")
    np.testing.assert_allclose(root.to_numpy(), [[13 / 32, 19 / 32]], rtol=1e-9)


def test_pandas_arrow_and_arrays_give_the_same_fit():
    arrow = pytest.importorskip("pyarrow")
    one = days()
    for other in (weather().fit(arrow.Table.from_pandas(TABLE)),
                  weather().fit({name: TABLE[name].to_list() for name in TABLE})):
        assert other.labels("sky") == one.labels("sky")
        for name in one.params:
            np.testing.assert_array_equal(one.params[name], other.params[name])


def test_text_is_no_state_of_a_fit_that_knows_codes_or_saw_none():
    kind = (TABLE["kind"] == "wet").astype(int)
    for table in (TABLE.assign(kind=kind), TABLE.drop(columns="kind")):
        fit = weather().fit(table)
        rows = TABLE.head(2)
        for question in (fit.log_prob, fit.predict_proba, fit.impute):
            with pytest.raises(probml.DataError, match="'kind' must be one of the categories "
                               "0, 1, got 'wet' in row 0"):
                question(rows)
        np.testing.assert_array_equal(
            fit.log_prob(rows.assign(kind=pd.Categorical([1, 0], categories=[1, 0]))),
            fit.log_prob(rows.assign(kind=[1, 0])))


def test_an_unknown_label_is_refused_by_name():
    with pytest.raises(probml.DataError, match="'sky'.*hail"):
        days().predict(pd.DataFrame({"sky": ["hail"]}), "kind")


# Answers


def test_a_seen_cell_stays_and_an_unseen_one_has_its_conditional_mean():
    fit = days()
    filled = fit.impute(HOLES)
    np.testing.assert_array_equal(filled["degrees"][[0, 1, 3]], HOLES["degrees"][[0, 1, 3]])
    np.testing.assert_allclose(filled["degrees"][2], fit.params["mean"][1], rtol=1e-9)
    np.testing.assert_array_equal(filled["sky"][[0, 2, 3]], HOLES["sky"][[0, 2, 3]])


def test_imputing_from_an_uncertain_class_averages_its_means():
    model, _, _, _ = mixture("scale")
    fit = blobs()
    x = np.array([[0.5, nan], [nan, nan]])
    q = fit.predict_proba({"x": x}, "z")
    filled = fit.impute({"x": x})["x"]
    np.testing.assert_allclose(filled[0], [0.5, q[0] @ fit.params["mean"][:, 1]], rtol=1e-9)
    np.testing.assert_allclose(filled[1], fit.params["weights"] @ fit.params["mean"], rtol=1e-9)
    w, m, s = (fit.params[name] for name in ("weights", "mean", "scale"))
    like = w * np.exp(-0.5 * ((0.5 - m[:, 0]) / s[:, 0]) ** 2) / s[:, 0]
    np.testing.assert_allclose(q[0], like / like.sum(), rtol=1e-9)


def test_score_is_the_mean_of_log_prob_and_nothing_seen_has_probability_one():
    fit, data = blobs(), mixture("scale")[1]
    np.testing.assert_allclose(fit.score(data), fit.log_prob(data).mean(), rtol=1e-12)
    np.testing.assert_allclose(fit.log_prob({"x": np.full((2, 2), nan)}), 0.0, atol=1e-12)


def test_the_one_unseen_site_is_the_default_and_two_are_refused_by_name():
    assert blobs().predict(mixture("scale")[1]).shape == (cases.ROWS,)
    with pytest.raises(probml.ModelError, match="kind.*sky"):
        days().predict({"degrees": [5.0]})


def test_questions_about_the_wrong_site_are_refused_by_name():
    fit = days()
    with pytest.raises(probml.ModelError, match="'degrees'"):
        fit.predict_proba(TABLE, "degrees")
    with pytest.raises(probml.ModelError, match="'nope'"):
        fit.predict(TABLE, "nope")
    with pytest.raises(probml.ModelError, match="'kind'.*predict_proba"):
        fit.posterior("kind")
    with pytest.raises(probml.Refusal, match="no closed form of the posterior of 'mean'"):
        blobs().posterior("mean")
    with pytest.raises(probml.Refusal, match="gives point estimates"):
        blobs().draws(3)


def test_simulating_given_data_keeps_the_seen_cells_and_draws_the_rest_from_their_posterior():
    fit = blobs()
    x = np.tile([[0.0, nan]], (4000, 1))
    drawn = fit.simulate(given={"x": x}, seed=1)
    np.testing.assert_array_equal(drawn["x"][:, 0], 0.0)
    q = fit.predict_proba({"x": x[:1]}, "z")[0]
    # five standard errors
    np.testing.assert_allclose(np.bincount(drawn["z"], minlength=3) / 4000, q,
                               atol=5 * 0.5 / np.sqrt(4000))
    np.testing.assert_allclose(drawn["x"][:, 1].mean(), q @ fit.params["mean"][:, 1],
                               atol=5 * 2 / np.sqrt(4000))


def test_a_number_of_rows_that_simulate_would_not_draw_is_refused():
    fit = weather().fit(TABLE)
    for rows in (3, 0, 1.5):
        with pytest.raises(probml.ModelError, match=f"rows={rows}"):
            fit.simulate(rows, given=TABLE.head(2)) if rows else fit.simulate(rows)
    assert len(fit.simulate(2, given=TABLE.head(2))["sky"]) == 2


def test_simulated_rows_have_the_fitted_moments():
    fit = blobs()
    drawn = fit.simulate(4000, seed=2)
    assert drawn["x"].shape == (4000, 2) and drawn["z"].shape == (4000,)
    np.testing.assert_allclose(drawn["x"].mean(0), fit.params["weights"] @ fit.params["mean"],
                               atol=5 * 3 / np.sqrt(4000))
    np.testing.assert_array_equal(drawn["x"], fit.simulate(4000, seed=2)["x"])


def test_rows_simulated_from_a_posterior_spread_like_its_predictive():
    fit = cases.known_variance(s0=20.0).fit({"x": [2.0, 9.0]})
    drawn = fit.simulate(4000, seed=0)["x"]
    predictive = 9.0 + float(fit.posterior("mean").variance)
    np.testing.assert_allclose(drawn.var(), predictive, rtol=5 * np.sqrt(2 / 4000))
    np.testing.assert_allclose(fit.simulate(4000, seed=0, plug_in=True)["x"].var(), 9.0,
                               rtol=5 * np.sqrt(2 / 4000))


def test_the_summary_has_a_row_for_every_number():
    table = days().summary()
    assert table.loc["p[wet]"].iloc[0] == pytest.approx(19 / 32) and len(table) == 2 + 6 + 2 + 2
    exact = cases.coin(a=2.0, b=3.0).fit({"toss": [1, 0]}).summary()
    assert (exact.loc["heads", "mean"] == pytest.approx(3 / 7)
            and exact.loc["heads", "sd"] == pytest.approx(np.sqrt(12 / (49 * 8))))
    assert list(blobs().summary().columns) == ["value", "sd"]


# A Fit is a value


def test_a_fit_is_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        blobs().params = {}
    with pytest.raises((ValueError, TypeError)):
        blobs().params["mean"][0, 0] = 99.0


def test_a_fit_is_a_pytree_of_its_arrays():
    for fit in (blobs(), days()):
        leaves, tree = jax.tree.flatten(fit)
        assert len(leaves) >= len(fit.params) and all(np.ndim(leaf) >= 0 for leaf in leaves)
        back = jax.tree.unflatten(tree, leaves)
        assert isinstance(back, probml.Fit) and back.model == fit.model
        for name in fit.params:
            np.testing.assert_array_equal(back.params[name], fit.params[name])


@probml.model
def known_spread():
    mean = sample("mean", dist.Normal(0.0, 5.0))
    with probml.rows():
        sample("x", dist.Normal(mean, 2.0))


ENGINES = {
    "EM": probml.EM(max_iterations=3),
    "Exact": probml.Exact(),
    "NUTS": probml.NUTS(draws=20, warmup=20, chains=2),
    "Laplace": probml.Laplace(),
    "known": None,
}


def ended(engine, x=(1.0, 2.0, 4.0)):
    if engine is None:
        return known_spread().at({"mean": 2.0})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(EM|NUTS) of model", UserWarning)
        return known_spread().fit({"x": np.array(x)}, engine)


@pytest.mark.parametrize("name", ENGINES)
def test_equal_fits_are_equal_trees_and_trace_a_function_once(name):
    one, same = ended(ENGINES[name]), ended(ENGINES[name])
    traced = []

    @jax.jit
    def doubled(fit):
        traced.append(fit)
        return jax.tree.map(lambda leaf: 2 * leaf, fit), fit.params["mean"] + 1

    for fit in (one, same, copy.deepcopy(one)):
        twice, above = doubled(fit)
        np.testing.assert_allclose(twice.params["mean"], 2 * fit.params["mean"])
        np.testing.assert_allclose(above, fit.params["mean"] + 1)
    assert len(traced) == 1
    middle = jax.tree.map(lambda a, b: (a + b) / 2, one, same)
    np.testing.assert_allclose(middle.params["mean"], one.params["mean"])
    assert middle.status == one.status and middle.engine == one.engine
    if one.history is not None:
        np.testing.assert_array_equal(middle.history, one.history)
    tree = jax.tree.structure(one)
    assert tree == jax.tree.structure(same) and hash(tree) == hash(jax.tree.structure(same))


def test_fits_of_other_settings_are_other_trees():
    one = jax.tree.structure(ended(probml.EM(max_iterations=3)))
    assert one != jax.tree.structure(ended(probml.EM(max_iterations=4)))
    assert one != jax.tree.structure(ended(probml.Exact()))
    at, labelled = (mixture("scale")[0].at(blobs().params, labels)
                    for labels in ({}, {"z": ("a", "b", "c")}))
    assert jax.tree.structure(at) != jax.tree.structure(labelled)


def test_a_fit_at_known_parameters_is_not_changed_by_questions():
    model, data, _, _ = mixture("regression")
    at = model.at(regressed().params)
    before = jax.tree.structure(at)
    np.testing.assert_allclose(at.log_prob(data), regressed().log_prob(data), atol=1e-10)
    assert jax.tree.structure(at) == before and at.shapes == {}
    drawn = at.simulate(x=np.asarray(data["x"])[:5])
    assert len(drawn["y"]) == 5 and np.isfinite(at.score(data))


def test_known_parameters_are_shown_before_any_data_tell_the_shapes_of_inputs():
    @probml.model
    def plane(x):
        beta = sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with probml.rows():
            sample("y", dist.Normal(x @ beta, 1.0))

    at = plane().at({"beta": [1.0, 2.0]})
    assert at.summary()["value"].to_dict() == {"beta[0]": 1.0, "beta[1]": 2.0}
    assert "beta[1]" in at._repr_html_() and repr(at).startswith("plane() with given parameters")


def test_a_fit_survives_copying_and_pickling():
    fit, data = days(), TABLE.head(3)
    for other in (copy.deepcopy(fit), pickle.loads(pickle.dumps(fit))):
        np.testing.assert_array_equal(other.log_prob(data), fit.log_prob(data))


def test_known_parameters_need_no_fitting():
    model, data, _, _ = mixture("scale")
    at = model.at(blobs().params, labels={"z": ("a", "b", "c")})
    np.testing.assert_allclose(at.log_prob(data), blobs().log_prob(data), atol=1e-10)
    assert set(at.predict(data)) <= {"a", "b", "c"} and at.converged
    with pytest.raises(probml.ModelError, match="'scale'"):
        model.at({name: value for name, value in blobs().params.items() if name != "scale"})
    with pytest.raises(probml.ModelError, match="'mean'.*shape"):
        model.at({**blobs().params, "mean": np.zeros(3)})
    with pytest.raises(probml.ModelError, match="'nope'"):
        model.at({**blobs().params, "nope": 1.0})


# Files


FITS = {
    "EM": lambda: (blobs(), mixture("scale")[1]),
    "MAP": lambda: (blobs(probml.MAP(steps=60)), mixture("scale")[1]),
    "Exact": lambda: (days(), HOLES),
    "Exact, global": lambda: (cases.candy_bags().fit({"cherry": [1, 0, 1]}), {"cherry": [1, nan]}),
    "EM, inputs": lambda: (regressed(),
                           {name: value[:4] for name, value in mixture("regression")[1].items()}),
    "known": lambda: (cases.lab_test().at({}), {"positive": [1, 0]}),
}


@functools.lru_cache
def regressed():
    model, data, start, _ = mixture("regression")
    return fitted(model, data, probml.EM(max_iterations=5, accelerate=False), start=start)


@pytest.mark.parametrize("name", FITS)
def test_a_fit_survives_saving(name, tmp_path):
    fit, data = FITS[name]()
    fit.save(tmp_path / "fit")
    back = probml.load(tmp_path / "fit", fit.model)
    np.testing.assert_array_equal(back.log_prob(data), fit.log_prob(data))
    assert (back.status == fit.status and back.iterations == fit.iterations
            and back.engine == fit.engine)
    assert back.log_evidence == fit.log_evidence and set(back.params) == set(fit.params)
    for parameter in fit.params:
        np.testing.assert_array_equal(back.params[parameter], fit.params[parameter])
    if fit.history is not None:
        np.testing.assert_array_equal(back.history, fit.history)


def test_a_loaded_posterior_draws_what_the_saved_one_draws(tmp_path):
    fit = days()
    fit.save(tmp_path / "fit")
    back = probml.load(tmp_path / "fit", weather())
    assert back.labels("sky") == ("cloud", "rain", "sun")
    np.testing.assert_array_equal(back.predict(HOLES, "kind"), fit.predict(HOLES, "kind"))
    for name, value in fit.draws(3, seed=4).items():
        np.testing.assert_array_equal(back.draws(3, seed=4)[name], value)


def test_a_failing_save_leaves_the_old_file_whole(tmp_path, monkeypatch):
    fit = blobs()
    fit.save(tmp_path / "fit")
    before = (tmp_path / "fit").read_bytes()

    def broken(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", broken)
        with pytest.raises(OSError, match="disk full"):
            fit.save(tmp_path / "fit")
    assert (tmp_path / "fit").read_bytes() == before and [p.name for p in tmp_path.iterdir()] == [
        "fit"
    ]


def test_loading_with_another_model_is_refused(tmp_path):
    blobs().save(tmp_path / "fit")
    for other in (cases.diagonal_mixture(k=4, d=2), cases.coin()):
        with pytest.raises(probml.ModelError, match="diagonal_mixture"):
            probml.load(tmp_path / "fit", other)


@probml.model
def with_setting(setting):
    mean = sample("mean", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("x", dist.Normal(mean, 1.0))


def test_a_fit_of_a_model_with_a_graph_setting_loads(tmp_path):
    fit = with_setting(nx.DiGraph([("a", "b")])).fit({"x": [1.0]})
    fit.save(tmp_path / "fit")
    assert probml.load(tmp_path / "fit",
                       with_setting(nx.DiGraph([("a", "b")]))).params == fit.params


def test_load_tells_models_apart_by_all_their_settings(tmp_path):
    one, other = np.zeros(5000), np.zeros(5000)
    other[2500] = 1.0  # where NumPy prints dots
    with_setting(one).fit({"x": [1.0]}).save(tmp_path / "fit")
    probml.load(tmp_path / "fit", with_setting(one))
    with pytest.raises(probml.ModelError):
        probml.load(tmp_path / "fit", with_setting(other))


class Bomb:
    def __reduce__(self):
        return Path.touch, (Path("exploded"),)


def test_a_hostile_or_broken_file_is_refused_and_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, path = blobs().model, tmp_path / "fit"
    blobs().save(path)
    whole = path.read_bytes()
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(probml.ModelError, match="not a fit"):
        probml.load(path, model)
    with open(path, "wb") as file:
        np.savez(file, meta=np.array([Bomb()], dtype=object))
    with pytest.raises(probml.ModelError, match="not a fit"):
        probml.load(path, model)
    for broken in (b"", b"PK", whole[: len(whole) // 2], whole[:-200], b"not a fit at all"):
        path.write_bytes(broken)
        with pytest.raises(probml.ModelError, match="not a fit"):
            probml.load(path, model)
    assert not Path("exploded").exists()
    with pytest.raises(FileNotFoundError):
        probml.load(tmp_path / "absent", model)


def tampered(path, change):
    """Rewrite the metadata or arrays of a saved fit."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    meta = json.loads(arrays["meta"].tobytes())
    change(meta, arrays)
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    with open(path, "wb") as file:
        np.savez(file, **arrays)


def test_a_file_whose_arrays_do_not_fit_the_model_is_refused(tmp_path):
    path = tmp_path / "fit"
    changes = [
        lambda meta, arrays: arrays.pop("params/mean"),
        lambda meta, arrays: arrays.update({"params/mean": np.zeros((7, 2))}),
        lambda meta, arrays: meta.pop("engine"),
        lambda meta, arrays: meta.update(format=99),
    ]
    for change in changes:
        blobs().save(path)
        tampered(path, change)
        with pytest.raises(probml.ModelError):
            probml.load(path, blobs().model)
    days().save(path)
    tampered(path, lambda meta, arrays: [arrays.pop(name) for name in list(arrays)
                                         if name.startswith("closed/0")])
    with pytest.raises(probml.ModelError):
        probml.load(path, weather())


def test_a_posterior_of_an_unknown_kind_is_refused_by_name(tmp_path):
    days().save(tmp_path / "fit")
    tampered(tmp_path / "fit", lambda meta, arrays: meta.update(posterior="Copula"))
    with pytest.raises(probml.ModelError, match="kind 'Copula', but the known kinds are"):
        probml.load(tmp_path / "fit", weather())


def test_the_file_is_arrays_and_json(tmp_path):
    days().save(tmp_path / "fit")
    with zipfile.ZipFile(tmp_path / "fit") as file:
        assert all(name.endswith(".npy") for name in file.namelist())
    with np.load(tmp_path / "fit", allow_pickle=False) as file:
        json.loads(file["meta"].tobytes())


def test_a_fit_after_do_is_not_saved_but_the_one_before_is(tmp_path):
    fit = cases.coin().fit({"toss": [0, 1, 1]})
    with pytest.raises(probml.ModelError, match="Save the Fit on which"):
        fit.do({"toss": 1}).save(tmp_path / "fit.npz")
    assert not (tmp_path / "fit.npz").exists()
