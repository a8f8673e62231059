"""What users of R, statsmodels and scikit-learn expect: each row of docs/statistics_expectations.md
is shown by a test, here or elsewhere, or is a documented no."""

import ast
import re
from pathlib import Path

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import sample
from scipy import stats

import probml
from probml import models

TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs" / "statistics_expectations.md"
HERE = "test_expectations.py"
RESULTS, FORMULAS = "models/test_regression_results.py", "models/test_formulas_of_peers.py"
NEW_ESTIMATORS = "models/test_meta_ordinal_survival.py"
SHOWN = {  # number of a row of the page → file of tests, the test
    1: ("models/test_estimators.py", "test_estimators_work_in_pipelines_and_searches"),
    2: ("models/test_estimators.py",
        "test_classifiers_learn_from_unseen_cells_and_labels_together"),
    3: (HERE, "test_categories_need_no_encoding"),
    4: (HERE, "test_a_new_category_has_a_fallback"),
    5: ("models/test_summaries.py", "test_a_logistic_regression_prints_what_is_published"),
    6: ("models/test_summaries.py", "test_every_estimator_has_a_summary_in_the_users_names"),
    7: (RESULTS, "test_linear_regressions_have_the_intervals_of_least_squares"),
    8: ("models/test_summaries.py", "test_a_mixed_model_prints_what_lme4_prints"),
    9: (FORMULAS, "test_a_family_gives_a_fitted_estimator_and_none_the_columns"),
    10: (FORMULAS, "test_casks_in_batches_have_the_figures_of_lme4"),
    11: (FORMULAS, "test_categories_may_differ_among_groups"),
    12: ("models/test_names_and_orders.py", "test_neither_names_nor_their_order_change_an_answer"),
    13: (FORMULAS, "test_offsets_are_read_from_every_table"),
    14: ("models/test_formulas.py", "test_terms_are_columns_and_new_rows_are_coded_as_the_old"),
    15: (HERE, "test_the_criteria_are_their_formulas"),
    16: (RESULTS, "test_the_anova_of_sleepstudy_is_that_of_lme4"),
    17: ("models/test_regression_pictures.py",
         "test_residuals_and_their_quantiles_are_those_of_the_predictions"),
    18: ("models/test_latent_pictures.py",
         "test_effects_stand_in_order_with_their_bars_and_names"),
    19: ("models/test_regression_pictures.py",
         "test_an_effect_is_the_prediction_along_a_column_at_the_medians_of_the_others"),
    20: (HERE, "test_a_predicted_count_has_an_interval"),
    21: (RESULTS, "test_a_binomial_without_trials_is_of_0_and_1"),
    22: (RESULTS, "test_estimates_and_errors_are_those_of_the_maximum"),
    23: (NEW_ESTIMATORS, "test_ovarian_cancer_has_the_digits_of_survreg"),
    24: (HERE, "test_rows_of_trials_have_every_answer"),
    25: ("models/test_labels_of_answers.py", "test_a_forecast_continues_the_index"),
    27: ("models/test_labels_of_answers.py", "test_exogenous_columns_have_their_names"),
    28: ("models/test_latent_pictures.py", "test_parts_have_bands_and_the_series_its_forecast"),
    29: ("models/test_sequence_names.py", "test_hmmlearns_attributes"),
    30: (HERE, "test_classes_are_counted_by_the_bic_and_have_errors_by_label"),
    31: (HERE, "test_classes_are_counted_by_the_bic_and_have_errors_by_label"),
    32: ("models/test_rotation.py", "test_varimax_gives_the_loadings_of_factanal"),
    33: (NEW_ESTIMATORS, "test_heterogeneity_and_prediction_are_as_printed"),
    34: (HERE, "test_a_topic_has_its_most_probable_words"),
    35: (HERE, "test_a_structure_is_scored_by_the_types_of_its_columns"),
    36: ("models/test_arc_probabilities.py",
         "test_probabilities_of_arcs_are_those_of_all_543_graphs"),
    37: ("models/test_structural_em.py",
         "test_the_graph_is_found_with_a_fifth_of_the_cells_unseen"),
    38: ("engines/test_posteriors.py",
         "test_r_hat_and_effective_draws_are_those_of_independent_and_of_stuck_chains"),
    39: (HERE, "test_rows_of_trials_have_every_answer"),
    40: ("test_findings.py", "test_every_finding_that_is_made_has_the_numbers_of_its_sentences"),
    41: ("interface/test_report.py", "test_the_page_of_an_estimator_is_about_it_and_the_table"),
    42: ("models/test_summaries.py",
         "test_a_loaded_fit_has_the_standard_errors_that_were_computed"),
    43: ("commandline/test_commandline.py", "test_help_comes_at_once"),
    44: ("commandline/test_commandline.py", "test_a_mixed_model_by_formula_has_lme4s_numbers"),
    45: ("test_examples.py", "test_the_example_of_a_class_prints_what_it_shows"),
    46: ("test_docs.py",
         "test_every_name_of_the_reference_has_a_page_of_its_own_in_its_group"),
    47: ("test_docs.py", "test_a_task_has_its_parts_and_its_picture"),
    48: ("models/test_estimator_refusals.py", "test_a_bad_parameter_is_refused_by_name"),
}


def rows_of_the_page() -> dict[int, str]:
    """Number of a row → its answer."""
    found = re.findall(r"^\| (\d+) \| .+ \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {int(number): answer for number, answer in found}


def test_every_row_is_shown_or_a_documented_no():
    rows = rows_of_the_page()
    assert list(rows) == list(range(1, 49))
    for number, answer in rows.items():
        assert answer.startswith("yes") == (number in SHOWN), answer
        assert answer.startswith(("yes", "no: ")), answer
    for path, name in SHOWN.values():
        tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name


def grouped(rows=60, seed=0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    table = pd.DataFrame({"x": random.normal(size=rows),
                          "site": np.resize(["a", "b", "c"], rows)})
    table["y"] = 1 + table["x"] + (table["site"] == "b") + random.normal(size=rows)
    return table


def test_categories_need_no_encoding():
    table = grouped()
    found = models.formula("y ~ x + site", table, family="gaussian").summary()["Coefficients"]
    peer = np.linalg.lstsq(np.stack([np.ones(60), table["x"], table["site"] == "b",
                                     table["site"] == "c"], 1).astype(float), table["y"])[0]
    np.testing.assert_allclose(found["Estimate"], peer, rtol=1e-6)
    kinds = models.NaiveBayes().fit(table[["x", "site"]], table["y"] > 1)
    high = table.loc[table["y"] > 1, "site"]
    assert kinds.summary()["Probabilities of categories"].loc[("site", "b"), True] == \
        pytest.approx(((high == "b").sum() + 1) / (len(high) + 3))  # a row of each beforehand
    with pytest.raises(probml.DataError, match="get_dummies.*formula"):
        models.LogisticRegression().fit(table[["x", "site"]], table["y"] > 1)


def test_a_new_category_has_a_fallback():
    table, new = grouped(), pd.DataFrame({"x": [0.3], "site": ["d"]})
    with pytest.raises(probml.DataError, match="'d'.*unknown='prior'"):
        models.NaiveBayes().fit(table[["x", "site"]], table["y"] > 1).predict(new)
    kinds = models.NaiveBayes(unknown="prior").fit(table[["x", "site"]], table["y"] > 1)
    assert np.isfinite(kinds.predict_proba(new)).all()


def test_the_criteria_are_their_formulas():
    table = grouped()
    fit = models.formula("y ~ x + (1 | site)", table, family="gaussian")
    assert fit.aic_ == pytest.approx(-2 * fit.loglik_ + 2 * 4)  # two coefficients, two sds
    assert fit.bic_ == pytest.approx(-2 * fit.loglik_ + 4 * np.log(60))


def test_a_predicted_count_has_an_interval():
    random = np.random.default_rng(1)
    x = random.normal(size=(200, 1))
    fit = models.GeneralizedLinearModel("poisson").fit(x, random.poisson(np.exp(1 + x[:, 0])))
    found = fit.predict(x, interval=0.9)
    for bound, share in ((found.lower, 0.05), (found.upper, 0.95)):
        below = stats.poisson.cdf(bound - 1, found.value), stats.poisson.cdf(bound, found.value)
        assert (below[0] < share + 0.015).all() and (below[1] > share - 0.015).all()


@probml.model
def seeds(n):
    rate = sample("rate", dist.Beta(1.0, 1.0))
    with probml.rows():
        sample("y", dist.Binomial(n, rate))


def test_rows_of_trials_have_every_answer():
    data = {"n": np.array([10, 20, 5]), "y": np.array([3, 9, 2])}
    fit = seeds().fit(data, probml.Laplace())
    mode = 14 / 35
    assert fit.params["rate"] == pytest.approx(mode, abs=0.02)
    assert fit.summary().index.tolist() == ["rate"]
    point = seeds().fit(data, probml.MAP())
    np.testing.assert_allclose(point.predict({"n": data["n"]}, "y"), mode * data["n"], rtol=1e-4)
    np.testing.assert_allclose(point.log_prob(data),
                               stats.binom.logpmf(data["y"], data["n"], mode), rtol=1e-4)
    assert (fit.simulate(n=data["n"])["y"] <= data["n"]).all()
    pytest.importorskip("arviz")
    out = fit.to_arviz(data)
    assert out.log_likelihood["y"].shape[-1] == 3


def test_classes_are_counted_by_the_bic_and_have_errors_by_label():
    random = np.random.default_rng(3)
    kind = np.repeat([0, 1], 150)
    table = pd.DataFrame({f"item {j}": np.where(random.random(300) < np.where(kind, 0.9, 0.2),
                                                "yes", "no") for j in range(5)})
    found = models.LatentClass(range(1, 4), n_init=4).fit(table)
    assert found.n_components_ == 2
    assert found.table_["bic"].argmin() == 1
    shown = found.summary()
    rows = shown["Probabilities of categories"]
    assert set(rows.index.get_level_values("category")) == {"no", "yes"}
    np.testing.assert_allclose(np.sort(rows.loc[("item 0", "yes")]), [0.2, 0.9], atol=0.1)
    errors = next(table.errors for table in shown.tables
                  if table.heading == "Probabilities of categories")
    assert errors.loc[("item 0", "yes")].between(0.01, 0.06).all()


def test_a_topic_has_its_most_probable_words():
    names = ["goal", "ball", "team", "oven", "salt", "flour"]
    X = pd.DataFrame([[4, 3, 5, 0, 0, 1], [0, 1, 0, 6, 4, 5]] * 10, columns=names)
    topics = models.TopicModel(2, random_state=0).fit(X)
    found = topics.top_words(3)
    assert found["topic"].tolist() == [0, 0, 0, 1, 1, 1]
    assert {frozenset(words) for _, words in found.groupby("topic")["word"]} == {
        frozenset(names[:3]), frozenset(names[3:])}
    first = found.iloc[0]
    row = topics.components_[0] / topics.components_[0].sum()
    assert first["probability"] == pytest.approx(row.max()) and names[row.argmax()] == first["word"]
    with pytest.raises(probml.ModelError, match="top_words"):
        topics.top_words(0)


def test_a_structure_is_scored_by_the_types_of_its_columns():
    random = np.random.default_rng(4)
    table = pd.DataFrame({"kind": np.resize(["p", "q"], 80), "a": random.normal(size=80)})
    table["b"] = table["a"] + random.normal(size=80)
    mixed, discrete = models.learn_structure(table), models.learn_structure(table[["kind"]])
    assert mixed.graph["score"] == pytest.approx(
        models.structure_score(table, mixed, "bic").sum())
    assert discrete.graph["score"] == pytest.approx(
        models.structure_score(table[["kind"]], discrete, "bdeu").sum())
    assert ("a", "b") in mixed.edges or ("b", "a") in mixed.edges
