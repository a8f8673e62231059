"""The command line by its runner: tables in, tables out, exit codes, and errors of one line."""

import io
import json
import re
import subprocess
import sys
from importlib.resources import files as shipped

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("click")
from click.testing import CliRunner  # noqa: E402

import probml  # noqa: E402
from probml.engines import Engine  # noqa: E402
from probml.models import GeneralizedLinearModel, MetaAnalysis, MixedMixture  # noqa: E402
from probml.models.commandline import answers, catalogue, engines, files, learning  # noqa: E402
from probml.models.commandline.main import main  # noqa: E402

ROWS = pd.DataFrame({"size": [1.0, 1.1, 0.9, 5.0, 5.1, 4.9, np.nan, 1.05],
                     "colour": ["red", "red", None, "blue", "blue", "red", "blue", "red"],
                     "kind": ["small"] * 3 + ["large"] * 4 + ["small"]})
OWN = '''
import numpyro.distributions as dist
from numpyro import sample
import probml

@probml.model
def coin(a: float = 1.0):
    bias = sample("bias", dist.Beta(a, 1.0))
    with probml.rows():
        sample("toss", dist.Bernoulli(bias))

@probml.model
def line(t):
    slope = sample("slope", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("y", dist.Normal(slope * t, 1.0))
'''


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a table, a model, and a fit of it."""
    folder = tmp_path_factory.mktemp("commandline")
    ROWS.to_csv(folder / "rows.csv", index=False)
    ROWS.drop(columns="kind").to_parquet(folder / "new.parquet")
    (folder / "mine.py").write_text(OWN)
    pd.DataFrame({"t": [0, 1, 2, 3], "y": [0.1, 2.2, 3.9, 6.0]}).to_csv(folder / "line.csv",
                                                                       index=False)
    pd.DataFrame({"toss": [1, 0, 1, 1]}).to_csv(folder / "tosses.csv", index=False)
    run = CliRunner().invoke(main, ["fit", str(folder / "rows.csv"), "-m", "naive_bayes",
                                    "--target", "kind", "-o", str(folder / "fit.probml"), "--json"])
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout)["engine"] == "Exact()" and json.loads(run.stdout)["rows"] == 8
    return folder


def ask(place, *words, code=0):
    run = CliRunner().invoke(main, [str(place / w[1:]) if w.startswith("@") else w for w in words])
    assert run.exit_code == code, (run.output, run.exception)
    return run


def test_predict_writes_a_column_and_its_probabilities(place):
    out = ask(place, "predict", "@fit.probml", "@new.parquet", "--proba", "-o", "@out.csv")
    assert out.stdout == ""
    table = pd.read_csv(place / "out.csv")
    assert list(table.columns) == ["prediction", "p(large)", "p(small)"]
    assert (table["prediction"] == ROWS["kind"]).all()
    np.testing.assert_allclose(table[["p(large)", "p(small)"]].sum(axis=1), 1.0, rtol=1e-6)
    assert len(json.loads(ask(place, "predict", "@fit.probml", "@rows.csv", "--json").stdout)) == 8


def test_score_with_a_target_is_json_if_asked(place):
    found = json.loads(ask(place, "score", "@fit.probml", "@rows.csv", "--target", "kind",
                           "--json").stdout)
    assert found["accuracy"] == 1.0 and found["log_score"] < 0 and found["rows"] == 8


def test_score_of_a_classifier_asks_for_the_column_of_the_truth(place):
    run = ask(place, "score", "@fit.probml", "@rows.csv", code=4)
    assert "NaiveBayes is scored by its predictions" in run.stderr
    assert "--target NAME; the columns are 'size', 'colour', 'kind'" in run.stderr


def test_a_table_with_another_separator_says_so(place):
    (place / "semi.csv").write_text("size;kind\n1,5;small\n2,5;large\n")
    run = ask(place, "fit", "@semi.csv", "-m", "mixture", code=3)
    assert "single column, 'size;kind', because its values are separated by ';'" in run.stderr
    again = pd.read_csv(place / "semi.csv", sep=";", decimal=",")  # as it says
    assert again["size"].tolist() == [1.5, 2.5]


def test_simulate_answers_in_the_columns_that_were_learnt(place):
    drawn = pd.read_csv(ask_file(place, "simulate", "@fit.probml", "-n", "5"))
    assert len(drawn) == 5 and {"size", "colour"} <= set(drawn.columns)


def ask_file(place, *words):
    (place / "piped.csv").write_text(ask(place, *words).stdout)
    return place / "piped.csv"


def test_a_network_comes_from_bif_and_goes_back(place):
    asia = str(shipped("probml.data") / "asia.bif")
    ask(place, "convert", asia, "@asia.probml")
    ask(place, "convert", "@asia.probml", "@asia.bif")
    assert 'variable "lung"' in (place / "asia.bif").read_text() or "variable lung" in (
        place / "asia.bif").read_text()
    pd.DataFrame({"smoke": ["yes", "no"], "dysp": ["yes", None], "other": [1, 2]}).to_csv(
        place / "patients.csv", index=False)
    found = pd.read_csv(ask_file(place, "predict", "@asia.probml", "@patients.csv", "--site",
                                 "bronc", "--proba"))
    assert found.loc[0, "bronc"] == "yes" and found["p(yes)"].between(0, 1).all()
    filled = pd.read_csv(ask_file(place, "impute", "@asia.probml", "@patients.csv"))
    assert list(filled.columns) == ["smoke", "dysp", "other"] and not filled.isna().any().any()


def test_a_model_of_ones_own_is_a_file_and_a_name(place):
    spec = str(place / "mine.py") + ":coin"
    ask(place, "fit", "@tosses.csv", "-m", spec, "--set", "a=2.0", "-o", "@coin.probml")
    run = ask(place, "score", "@coin.probml", "@tosses.csv", code=4)
    assert "--model FILE.py:name" in run.stderr
    out = ask(place, "score", "@coin.probml", "@tosses.csv", "-m", spec, "--set", "a=2.0")
    assert "log_score" in out.stdout
    out = ask(place, "explain", "@coin.probml", "-m", spec, "--set", "a=2.0")
    assert "by Exact: Exact posterior" in out.stdout and "bias" in out.stdout
    assert "possible, on request" in ask(place, "explain", "-m", spec, "--data",
                                         "@tosses.csv").stdout
    found = json.loads(ask(place, "check", spec, "--rows", "5", "--simulations", "40",
                           "--json").stdout)
    assert found["passed"] is True


def test_inputs_of_a_model_come_from_a_table(place):
    spec = str(place / "mine.py") + ":line"
    ask(place, "fit", "@line.csv", "-m", spec, "-o", "@line.probml")
    assert "--data FILE" in ask(place, "simulate", "@line.probml", "-m", spec, code=4).stderr
    assert "--data FILE" in ask(place, "check", spec, code=4).stderr
    drawn = pd.read_csv(ask_file(place, "simulate", "@line.probml", "-m", spec, "--data",
                                 str(place / "line.csv")))
    assert list(drawn.columns) == ["t", "y"] and drawn["t"].tolist() == [0, 1, 2, 3]
    wide = pd.DataFrame({"day": ["mon", "tue"], "t": [0, 1], "y": [0.1, np.nan]})
    wide.to_csv(place / "wide.csv", index=False)
    filled = pd.read_csv(ask_file(place, "impute", "@line.probml", "@wide.csv", "-m", spec))
    assert list(filled.columns) == list(wide.columns) and filled["y"].iloc[0] == 0.1
    assert filled["y"].iloc[1] == pytest.approx(2.0, abs=0.1)


@pytest.mark.slow
def test_a_network_is_learnt_from_rows_with_empty_cells(place):
    random = np.random.default_rng(0)
    sick = random.random(120) < 0.5
    table = pd.DataFrame({"sick": sick, "fever": sick ^ (random.random(120) < 0.1),
                          "coin": random.random(120) < 0.5}).replace({True: "yes", False: "no"})
    for i, name in enumerate(table):  # no row is whole
        table.loc[i::3, name] = None
    table.to_csv(place / "torn.csv", index=False)
    ask(place, "fit", "@torn.csv", "-m", "network", "-o", "@network.probml")
    found = probml.load(place / "network.probml")
    assert {frozenset(arc) for arc in found.model.graph.edges} == {frozenset(("sick", "fever"))}
    filled = pd.read_csv(ask_file(place, "impute", "@network.probml", "@torn.csv"))
    assert not filled.isna().any().any()
    table.assign(age=np.where(sick, 60.5, 40.1)).to_csv(place / "aged.csv", index=False)
    run = ask(place, "fit", "@aged.csv", "-m", "network", "-o", "@network.probml", code=3)
    assert "a network with continuous columns (such as 'age')" in run.stderr


@pytest.mark.filterwarnings("default:the table lacks columns:RuntimeWarning")
def test_a_column_that_is_absent_is_unseen_and_said_so(place):
    pd.DataFrame({"size": [5.0, 1.0]}).to_csv(place / "sizes.csv", index=False)
    run = ask(place, "predict", "@fit.probml", "@sizes.csv")
    assert run.stdout.split() == ["prediction", "large", "small"]
    assert "warning: the table lacks columns of the fitted data: 'colour'" in run.stderr


@pytest.mark.filterwarnings("default:column 'y' is missing:RuntimeWarning")
def test_a_regression_leaves_out_rows_without_a_target_and_says_so(place):
    pd.DataFrame({"t": [0, 1, 2, 3, 4], "y": [0.1, 2.2, None, 3.9, 8.2]}).to_csv(
        place / "torn_line.csv", index=False)
    run = ask(place, "fit", "@torn_line.csv", "-m", "regression", "--target", "y", "-o",
              "@torn.probml")
    assert "probml: warning: column 'y' is missing in 1 of 5 rows" in run.stderr
    answers = pd.read_csv(ask_file(place, "predict", "@torn.probml", "@torn_line.csv"))
    assert len(answers) == 5 and answers["prediction"].is_monotonic_increasing
    told = ask(place, "explain", "@torn.probml").stdout
    assert "beta[t]" in told and "intercept" in told


def test_dates_and_names_are_left_out_by_request(place):
    rows = pd.concat([ROWS] * 4, ignore_index=True)
    rows["day"] = pd.date_range("2024-01-01", periods=len(rows)).strftime("%Y-%m-%d")
    rows["who"] = [f"nobody {i}" for i in range(len(rows))]
    rows.to_csv(place / "dated.csv", index=False)
    fit = "fit", "@dated.csv", "-m", "naive_bayes", "--target", "kind", "-o", "@dated.probml"
    assert "'day' has dates" in ask(place, *fit, code=3).stderr
    run = ask(place, *fit, "--drop", "day", code=3)
    assert "'who' has a different text in nearly every row" in run.stderr and "--drop" in run.stderr
    ask(place, *fit, "--drop", "day", "--drop", "who")
    ask(place, *fit, "--drop", "day,who")
    assert "has no column" in ask(place, *fit, "--drop", "sort", code=3).stderr


@pytest.mark.parametrize(("words", "code", "said"), [
    (("predict", "@fit.probml"), 2,
     "Missing argument 'DATA'. Write 'probml predict [OPTIONS] FITTED DATA'. See probml predict"),
    (("foretell", "@fit.probml"), 2, "No such command 'foretell'"),
    (("--quiet",), 2, "--quiet"),
    (("simulate", "@fit.probml", "-n", "0"), 2, "0 is not in the range"),
    (("fit", "@rows.csv", "-m", "mixture", "--set", "k=3"), 4, "MixedMixture has no setting 'k'"),
    (("fit", "@none.csv", "-m", "mixture"), 3, "there is no such file"),
    (("fit", "@rows.csv", "-m", "forest"), 4, "expected one of naive_bayes, mixture"),
    (("fit", "@rows.csv", "-m", "naive_bayes", "--target", "sort"), 3, "has no column"),
    (("fit", "@rows.csv", "-m", "naive_bayes"), 4, "--target NAME"),
    (("fit", "@rows.csv", "-m", "mixture", "--engine", "magic"), 4, "expected one of Exact"),
    (("fit", "@rows.csv", "-m", "mixture", "--engine", "EM(restart=2)"), 4, "no such setting"),
    (("fit", "@rows.csv", "-m", "mixture", "--engine", "EM(restarts=x)"), 4, "'NUTS(draws=500)'"),
    (("fit", "@rows.csv", "-m", "mixture", "--engine", "EmpiricalBayes"), 4, "needs choose"),
    (("fit", "@rows.csv", "-m", "mixture", "--target", "kind"), 4, "Omit --target"),
    (("fit", "@line.csv", "-m", "regression", "--target", "y", "--engine", "em"), 4, "exact"),
    (("fit", "@rows.csv", "-m", "network", "--components", "3"), 4, "factor and hmm have"),
    (("report", "@fit.probml", "--target", "kind"), 4, "Give it, --data FILE"),
    (("report", "@fit.probml", "--data", "@rows.csv", "--target", "sort"), 3, "has no column"),
    (("fit", "@rows.csv", "-m", "mixture", "--components", "3-1"), 4, "a range, such as 1-5"),
    (("fit", "@mine.py", "-m", "mixture"), 3, "Save the table in one of"),
    (("predict", "@rows.csv", "@rows.csv"), 4, "is not a fit saved by probml"),
    (("predict", "@fit.probml", "@tosses.csv"), 3, "has no column 'size'"),
    (("fit", "@rows.csv", "-m", "regression", "--target", "kind"), 3, "is text"),
])
def test_every_error_is_one_line_and_a_code(place, words, code, said):
    run = ask(place, *words, code=code)
    lines = run.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("probml: ") and said in lines[0]
    assert run.stdout == ""


def test_engines_are_those_of_the_library_by_any_spelling():
    public = {name for name in probml.__all__ if isinstance(getattr(probml, name), type)
              and issubclass(getattr(probml, name), Engine)}
    assert {*engines.KNOWN} == public and all(name in engines.SAID for name in public)
    for name in public - {"EmpiricalBayes"}:
        assert engines.engine_of(name.lower()) == getattr(probml, name)()
    assert engines.engine_of("nuts(draws=7, chains=2)") == probml.NUTS(draws=7, chains=2)
    assert engines.engine_of("EmpiricalBayes(choose=('a',))") == probml.EmpiricalBayes(("a",))
    assert engines.engine_of(None) is None


def test_the_report_and_the_versions_are_written(place):
    ask(place, "report", "@fit.probml", "--data", "@new.parquet", "-o", "@report.html")
    assert (place / "report.html").read_text().startswith("<!DOCTYPE html>")
    ask(place, "report", "@fit.probml", "--data", "@rows.csv", "--target", "kind", "-o",
        "@answered.html")
    told = [re.search(r"<tr><th scope=\"row\">class</th>.*?</tr>", (place / name).read_text())[0]
            for name in ("report.html", "answered.html")]
    assert ["latent" in told[0], "observed" in told[1]] == [True, True]
    assert json.loads(ask(place, "versions", "--json").stdout)["probml"] is not None
    assert probml.__version__ in ask(place, "--version").stdout


def test_numbers_have_no_digits_that_single_precision_did_not_know():
    single = np.array([0.1, 0.3], np.float32)
    assert files.to_json(single) == [0.1, 0.3] and files.to_json(single[1]) == 0.3
    assert files.to_json(pd.DataFrame({"a": single})) == [{"a": 0.1}, {"a": 0.3}]


def test_help_comes_at_once():
    """Neither JAX, nor pandas, nor scikit-learn is imported for it."""
    code = ("import sys; from probml.models.commandline.main import main\n"
            "try: main(['fit', '--help'])\n"
            "except SystemExit: pass\n"
            "sys.exit(','.join({'jax', 'numpyro', 'pandas', 'sklearn', 'numpy'} & {*sys.modules}) or 0)")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert all(name in found.stdout for name in ("--formula", "latent_class", "EmpiricalBayes"))


def test_the_catalogue_is_what_is_learnt():
    assert {*catalogue.MODELS} == {*learning.LEARN}


def test_fit_prints_the_summary_that_summary_prints_again(place):
    said = ask(place, "fit", "@rows.csv", "-m", "naive-bayes", "--target", "kind", "-o", "@s.probml")
    assert "Class proportions" in said.stdout and "large" in said.stdout
    assert said.stderr.strip().endswith("s.probml") and "written to" in said.stderr
    again = ask(place, "summary", "@s.probml").stdout
    assert said.stdout == again and "weights[large]" in ask(place, "explain", "@s.probml").stdout
    told = json.loads(ask(place, "summary", "@s.probml", "--json").stdout)
    assert told["engine"] == "Exact()" and len(told["parameters"]) > 2
    assert told["summary"]["tables"][0]["heading"] == "Class proportions"


def test_predict_takes_the_option_names_of_fit(place):
    """--target is --site."""
    one, other = (ask(place, "predict", "@fit.probml", "@rows.csv", option, "kind").stdout
                  for option in ("--target", "--site"))
    assert one == other and one.startswith("prediction")


def test_models_of_classes_and_factors_and_generalized_ones(place):
    random = np.random.default_rng(0)
    z = random.integers(0, 2, 200)
    answers = pd.DataFrame({f"item{j}": np.where(random.random(200) < 0.1 + 0.8 * z, "yes", "no")
                            for j in range(4)})
    answers.to_csv(place / "answers.csv", index=False)
    ask(place, "fit", "@answers.csv", "-m", "latent-class", "--components", "2", "-o", "@l.probml")
    p = pd.read_csv(io.StringIO(ask(place, "predict", "@l.probml", "@answers.csv").stdout))
    right = (p["prediction"] == z).mean()
    assert max(right, 1 - right) > 0.9

    numbers = pd.DataFrame(random.normal(size=(100, 1)) @ random.normal(size=(1, 4))
                           + 0.3 * random.normal(size=(100, 4)), columns=list("abcd"))
    numbers.to_csv(place / "numbers.csv", index=False)
    assert "loadings" in ask(place, "fit", "@numbers.csv", "-m", "factor", "--components", "1",
                             "-o", "@f.probml").stdout.lower()
    assert "is text" in ask(place, "fit", "@answers.csv", "-m", "factor", code=3).stderr

    x = random.normal(size=300)
    counts = pd.DataFrame({"x": x, "y": random.poisson(np.exp(0.5 + 0.7 * x))})
    counts.to_csv(place / "counts.csv", index=False)
    ask(place, "fit", "@counts.csv", "-m", "glm", "--target", "y", "--set", "family=poisson", "-o",
        "@g.probml")
    plain = GeneralizedLinearModel("poisson").fit(counts[["x"]], counts["y"]).predict(counts[["x"]])
    found = pd.read_csv(io.StringIO(ask(place, "predict", "@g.probml", "@counts.csv").stdout))
    np.testing.assert_allclose(found["prediction"], plain, rtol=1e-4)
    assert "mixture has no formula" in ask(place, "fit", "@counts.csv", "-m", "mixture", "--formula", "y ~ x",
                                   code=4).stderr
    assert "give a formula" in ask(place, "fit", "@counts.csv", "-m", "mixed", code=4).stderr


def test_a_meta_analysis_has_the_mean_effect_of_the_class(place):
    rows = pd.DataFrame({"study": list("abcdef"), "effect": [0.1, 0.5, -0.2, 0.9, 0.4, 0.3],
                         "error": [0.1, 0.2, 0.15, 0.3, 0.1, 0.25]})
    rows.to_csv(place / "studies.csv", index=False)
    assert "--set standard_error=NAME" in ask(place, "fit", "@studies.csv", "-m", "meta",
                                              "--target", "effect", code=3).stderr
    out = ask(place, "fit", "@studies.csv", "-m", "meta", "--target", "effect", "--set",
              "standard_error=error", "-o", "@studies.probml").stdout
    plain = MetaAnalysis().fit(rows["effect"], rows["error"], names=rows["study"])
    found = probml.load(place / "studies.probml")
    assert found.intercept_ == pytest.approx(plain.intercept_, rel=1e-4)
    assert found.studies_ == list("abcdef") and "Intercept" in out
    told = pd.read_csv(io.StringIO(ask(place, "predict", "@studies.probml", "@studies.csv").stdout))
    np.testing.assert_allclose(told["prediction"], plain.intercept_, rtol=1e-4)


@pytest.mark.slow
def test_a_mixed_model_by_formula_has_lme4s_numbers(place):
    """lme4's published fit of sleepstudy: 251.41 + 10.467 Days."""
    pytest.importorskip("formulaic")
    (place / "sleep.csv").write_text((shipped("probml.data") / "sleepstudy.csv").read_text())
    ask(place, "fit", "@sleep.csv", "-m", "mixed", "--formula",
        "Reaction ~ Days + (Days | Subject)", "-o", "@m.probml")
    found = probml.load(place / "m.probml")
    np.testing.assert_allclose([found.intercept_, *found.coef_], [251.405, 10.467], rtol=1e-3)
    p = pd.read_csv(io.StringIO(ask(place, "predict", "@m.probml", "@sleep.csv").stdout))
    assert len(p) == 180 and p["prediction"].between(150, 500).all()


def test_a_forecast_has_the_dates_that_follow(place):
    months = pd.date_range("2019-01-01", periods=48, freq="MS").strftime("%Y-%m-%d")
    level = np.cumsum(np.random.default_rng(0).normal(size=48))
    pd.DataFrame({"month": months, "sales": level}).to_csv(place / "sales.csv", index=False)
    ask(place, "fit", "@sales.csv", "-m", "series", "-o", "@sales.probml")
    found = pd.read_csv(io.StringIO(ask(place, "forecast", "@sales.probml", "@sales.csv", "-n", "2",
                                        "--interval", "0.9").stdout))
    assert found["month"].tolist() == ["2023-01-01", "2023-02-01"]
    assert list(found) == ["month", "ahead", "sales", "sales lower", "sales upper"]


@pytest.mark.filterwarnings("default:the fit leaves out 2 of 30 rows:RuntimeWarning")
def test_a_formula_leaves_out_rows_with_missing_cells_and_says_so(place):
    random = np.random.default_rng(3)
    table = pd.DataFrame({"x": random.normal(size=30), "other": np.nan})
    table["y"] = 1 + 2 * table["x"]
    table.loc[[4, 7], "y"] = np.nan
    table.to_csv(place / "torn_formula.csv", index=False)
    run = ask(place, "fit", "@torn_formula.csv", "-m", "glm", "--formula", "y ~ x", "-o",
              "@torn_formula.probml")
    assert "the fit leaves out 2 of 30 rows, because columns of the formula have missing values" in run.stderr, run.stderr
    assert "observations: 28" in run.stdout


def test_a_setting_that_is_asked_for_as_an_option_is_told_how_it_is_written(place):
    run = CliRunner().invoke(main, ["fit", "x.csv", "-m", "glm", "--family", "poisson"])
    assert run.exit_code == 2 and "--set family=VALUE" in run.stderr


def test_a_column_is_not_asked_of_a_model_that_predicts_components():
    with pytest.raises(probml.ModelError, match="not a column. Omit --target"):
        answers.predict(MixedMixture(2), pd.DataFrame({"x": [1.0]}), "x", False)
