"""Tables for functions with arrays and with steps: the command line answers as Python does of the
arrays and lists that the table stands for."""

import json

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("click")
from click.testing import CliRunner  # noqa: E402

import probml  # noqa: E402
from probml.models.commandline.files import own_model  # noqa: E402
from probml.models.commandline.layouts import index_by_date  # noqa: E402
from probml.models.commandline.main import main  # noqa: E402

OWN = '''
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import plate, sample
import probml

@probml.model
def centre(d: int = 2):
    mean = sample("mean", dist.Normal(0.0, 10.0).expand([d]).to_event(1))
    with probml.rows():
        sample("x", dist.Normal(mean, 1.0).to_event(1))

@probml.model
def moods():
    with plate("mood", 2):
        level = sample("level", dist.Normal(0.0, 5.0))
    with probml.rows():
        kind = sample("kind", dist.Categorical(jnp.array([0.5, 0.5])))
        z = sample("z", probml.MarkovChain(jnp.array([0.5, 0.5]),
                                           jnp.array([[0.9, 0.1], [0.2, 0.8]])))
        sample("y", dist.Normal(level[z] + 0.1 * kind[..., None], 1.0).to_event(1))
'''
STEPS = pd.DataFrame({"who": ["b", "a", "b", "b", "a", "b"], "kind": [1, 0, 1, 1, 0, 1],
                      "y": [0.1, 4.0, 0.4, np.nan, 3.5, 5.0], "note": list("uvwxyz")})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("layouts")
    (folder / "own.py").write_text(OWN)
    pd.DataFrame({"long": [1.0, 2.0, 3.0, np.nan], "wide": [5.0, 6.0, np.nan, 5.5],
                  "id": range(4)}).to_csv(folder / "leaves.csv", index=False)
    STEPS.to_csv(folder / "steps.csv", index=False)
    centre, moods = (("-m", f"{folder}/own.py:{name}") for name in ("centre", "moods"))
    ask(folder, "fit", "@leaves.csv", *centre, "--as", "x=long,wide", "-o", "@centre.probml")
    ask(folder, "fit", "@steps.csv", *moods, "--by", "who", "-o", "@moods.probml")
    return folder, centre, moods


def ask(folder, *words, code=0):
    run = CliRunner().invoke(main, [str(folder / w[1:]) if w.startswith("@") else w for w in words])
    assert run.exit_code == code, (run.output, run.exception)
    return run


def told(folder, *words):
    return pd.DataFrame(json.loads(ask(folder, *words, "--json").stdout))


def test_columns_make_an_array_and_come_back_as_columns(place):
    folder, centre, _ = place
    filled = told(folder, "impute", "@centre.probml", "@leaves.csv", *centre)
    table = pd.read_csv(folder / "leaves.csv")
    model = own_model(centre[1], {})
    expected = model.fit({"x": table[["long", "wide"]]}).impute({"x": table[["long", "wide"]]})["x"]
    np.testing.assert_allclose(filled[["long", "wide"]], expected, rtol=1e-5)
    assert filled["id"].tolist() == [0, 1, 2, 3] and filled["long"][0] == 1.0
    drawn = told(folder, "simulate", "@centre.probml", "-n", "3", *centre)
    assert list(drawn) == ["long", "wide"] and len(drawn) == 3
    run = ask(folder, "score", "@centre.probml", "@steps.csv", *centre, "--as", "x=long,wide",
              code=3)
    assert "--as x=long,wide: the table has no column 'long'" in run.stderr
    assert "--as z=…: model 'centre' has no site or input 'z'" in ask(
        folder, "fit", "@leaves.csv", *centre, "--as", "z=long", code=4).stderr
    assert "expected NAME=COLUMN or NAME=COLUMN,COLUMN" in ask(folder, "fit", "@leaves.csv", *centre, "--as", "x",
                                                code=4).stderr


def test_rows_of_a_model_with_chains_are_steps(place):
    folder, _, moods = place
    fit = probml.load(folder / "moods.probml", own_model(moods[1], {}))
    sequences = {"y": [STEPS["y"][[0, 2, 3, 5]].to_numpy(), STEPS["y"][[1, 4]].to_numpy()],
                 "kind": np.array([1, 0])}
    states, p = fit.predict(sequences, "z"), fit.predict_proba(sequences, "z")
    by = *moods, "--by", "who"
    found = told(folder, "predict", "@moods.probml", "@steps.csv", "--site", "z", "--proba", *by)
    order = [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1), (0, 3)]
    assert found["z"].tolist() == [states[at] for at in order]
    np.testing.assert_allclose(found["p(1)"], [p[*at, 1] for at in order], rtol=1e-5)
    filled = told(folder, "impute", "@moods.probml", "@steps.csv", *by)
    np.testing.assert_allclose(filled["y"][3], fit.impute(sequences)["y"][0, 2], rtol=1e-5)
    assert filled["note"].tolist() == STEPS["note"].tolist() and filled["y"][0] == 0.1
    score = json.loads(ask(folder, "score", "@moods.probml", "@steps.csv", *by, "--json").stdout)
    assert score["sequences"] == 2
    np.testing.assert_allclose(score["log_score"], fit.score(sequences), rtol=1e-5)
    ahead = told(folder, "forecast", "@moods.probml", "@steps.csv", "-n", "2", *by)
    assert ahead["who"].tolist() == ["b", "b", "a", "a"] and ahead["ahead"].tolist() == [1, 2] * 2
    np.testing.assert_allclose(ahead["y"], fit.forecast(sequences, 2)["y"].ravel(), rtol=1e-5)
    drawn = told(folder, "simulate", "@moods.probml", "-n", "4", *moods)
    assert len(drawn) == 4 and set(drawn) == {"kind", "z", "y"}


def test_what_has_no_steps_is_the_same_along_them(place):
    folder, centre, moods = place
    run = ask(folder, "score", "@moods.probml", "@steps.csv", *moods, code=3)
    assert "column 'kind' must have one value in each sequence, but it has 2 different values in the sequence" in run.stderr
    assert "has no chain" in ask(folder, "score", "@centre.probml", "@leaves.csv", *centre, "--by",
                                 "id", code=4).stderr
    assert "has no time steps" in ask(folder, "forecast", "@centre.probml", "@leaves.csv",
                                            *centre, code=4).stderr
    STEPS.assign(who=["b", None, "b", "b", "a", "b"]).to_csv(folder / "torn.csv", index=False)
    assert "is missing in row 1" in ask(folder, "score", "@moods.probml", "@torn.csv", *moods, "--by",
                                      "who", code=3).stderr


@pytest.mark.slow
def test_fits_of_own_functions_are_compared(place):
    folder, centre, _ = place
    ask(folder, "fit", "@leaves.csv", *centre, "--as", "x=long,wide", "--engine", "EM", "-o",
        "@other.probml")
    found = told(folder, "compare", "@leaves.csv", "@centre.probml", "@other.probml", *centre)
    assert set(found["model"]) == {"centre", "other"} and np.isfinite(found["loglik"]).all()
    assert "--model FILE.py:name" in ask(folder, "compare", "@leaves.csv", "@centre.probml",
                                         code=4).stderr


@pytest.mark.filterwarnings("default:the table lacks columns:RuntimeWarning")
def test_what_was_seen_at_the_fit_and_is_not_there_is_said(place):
    folder, centre, _ = place
    pd.DataFrame({"far": [1.0], "wide": [5.0]}).to_csv(folder / "far.csv", index=False)
    assert "'x' consists of 'long', 'wide': the table has no column 'long'" in ask(
        folder, "impute", "@centre.probml", "@far.csv", *centre, code=3).stderr
    STEPS.drop(columns="y").to_csv(folder / "still.csv", index=False)
    run = ask(folder, "predict", "@moods.probml", "@still.csv", "--site", "z", "--by", "who",
              *place[2])
    assert "the table lacks columns of the fitted data: 'y'" in run.stderr
    assert "--as y=COLUMN" in run.stderr


@pytest.mark.slow
def test_a_series_and_members_of_groups_that_are_new(tmp_path):
    days = np.arange(24)
    pd.DataFrame({"day": [f"2024-01-{d + 1:02d}" for d in days],
                  "sales": 10 + 0.5 * days + np.tile([0.0, 1.0, -1.0, 0.5], 6)}).to_csv(
        tmp_path / "sales.csv", index=False)
    ask(tmp_path, "fit", "@sales.csv", "-m", "series", "-o", "@sales.probml")
    ahead = told(tmp_path, "forecast", "@sales.probml", "@sales.csv", "-n", "2", "--interval", "0.9")
    assert ahead["ahead"].tolist() == [1, 2] and (ahead["sales lower"] < ahead["sales"]).all()
    (tmp_path / "own.py").write_text(OWN + '''
@probml.model
def wards(ward, n: int):
    with plate("wards", n):
        own = sample("own", dist.Normal(0.0, 5.0))
    with probml.rows():
        sample("y", dist.Normal(own[ward], 1.0))
''')
    pd.DataFrame({"ward": list("aabb"), "y": [1.0, 1.2, 4.0, 4.4]}).to_csv(
        tmp_path / "wards.csv", index=False)
    pd.DataFrame({"ward": ["b", "c"]}).to_csv(tmp_path / "new.csv", index=False)
    own = "-m", f"{tmp_path}/own.py:wards"
    assert "--set n=VALUE" in ask(tmp_path, "fit", "@wards.csv", *own, code=3).stderr
    own = *own, "--set", "n=2"
    ask(tmp_path, "fit", "@wards.csv", *own, "-o", "@wards.probml")
    assert "'c' in row 1" in ask(tmp_path, "predict", "@wards.probml", "@new.csv", *own,
                                 code=3).stderr
    found = told(tmp_path, "predict", "@wards.probml", "@new.csv", "--unknown", "new", *own)
    np.testing.assert_allclose(found["prediction"], [4.0, 0.0], atol=0.2)


DAYS = pd.date_range("2024-01-01", periods=3)
TEXTS = list(DAYS.strftime("%Y-%m-%d"))


@pytest.mark.parametrize("column", [DAYS, DAYS.to_period("D"), DAYS.tz_localize("UTC"), TEXTS, pd.Categorical(TEXTS),
                                    list(DAYS.date), pd.array(TEXTS, dtype="string")], ids=lambda c: type(c).__name__)
def test_steps_are_indexed_by_their_one_column_of_dates(column):
    table = index_by_date(pd.DataFrame({"day": column, "y": np.arange(3.0)}))
    assert list(table) == ["y"] and list(table.index.strftime("%Y-%m-%d")) == TEXTS


@pytest.mark.parametrize("column", [[b"\xff\xfe"] * 3, [[1], [2], [3]], list("abc"), [None, *TEXTS[1:]], [1, 2, 3]],
                         ids=lambda c: str(c[0]))
def test_a_column_of_something_else_is_no_index(column):
    table = pd.DataFrame({"day": column, "y": np.arange(3.0)})
    assert index_by_date(table) is table


def test_a_column_with_the_name_of_a_setting_is_refused_with_what_to_type(place, tmp_path):
    folder, centre, _ = place
    table = pd.DataFrame({"long": [1.0, 2.0], "wide": [5.0, 6.0], "d": [7, 7]})
    table.to_csv(tmp_path / "leaves.csv", index=False)
    words = ("fit", str(tmp_path / "leaves.csv"), *centre, "-o", "@c.probml")
    refused = ask(folder, *words, "--as", "x=long,wide", code=3)
    assert "column 'd' has the name of a setting of the model, d=2" in refused.output
    ask(folder, *words, "--as", "x=long,wide", "--drop", "d")
    ask(folder, *words, "--as", "x=long,wide,d", "--set", "d=3")
