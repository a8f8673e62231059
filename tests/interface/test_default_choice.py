"""What `fit` chooses where nobody names an engine: a posterior that is tested, and a point only where
no posterior is wanted."""

import made_hierarchies
import numpyro_examples
import numpyro_more
import pasted_bugs
import pasted_ecology
import pasted_forum
import pasted_rethinking
import pymc_gallery
import pytest
import stan_guide

import probml
from coded import about, codes

LISTS = (made_hierarchies, stan_guide, pymc_gallery, pasted_rethinking, pasted_forum, numpyro_more,
         numpyro_examples, pasted_ecology, pasted_bugs)
CASES = {case.name: case for own in LISTS for case in own.CASES}
SAMPLED = ("rounded_data", "process_of_two_classes", "milk_with_imputed_cells",
           "cells_imputed_by_an_argument", "stochastic_volatility_of_stan", "rat_tumours",
           "missing_data_as_parameters", "finnish_horseshoe", "relaxed_spikes", "errors_of_known_size",
           "errors_of_unknown_size", "factors_with_scores", "answers_with_discrimination",
           "process_at_its_points", "process_behind_counts", "values_between_bounds",
           "a_prior_by_a_factor", "censored_times_filled_in", "occupancy_with_unlike_sites",
           "innovations_through_a_recursion", "shares_with_their_concentration",
           "a_rate_of_their_own", "seasons_with_effects", "counts_of_a_walk_by_scan",
           "innovations_summed_up", "studies_by_a_regression", "cutpoints_of_raters", "ice",
           "effects_one_by_one", "rounded_one_by_one", "effects_by_name", "several_outcomes",
           "matrix_of_normals", "errors_in_measurement", "mortality")
INTEGRATED = {"slopes_with_a_correlation": "b", "slopes_of_two_classes_by_a_precision": "b",
              "uncentred_by_softplus": "z", "uncentred_by_a_logarithm": "z",
              "spline_with_its_smoothing": "w", "zeros_and_groups": "e"}
MODES = ("ridge_of_known_scale", "logistic_of_known_scale", "regression_of_unknown_noise",
         "more_columns_than_is_wise", "negative_binomial_by_hand", "process_integrated",
         "two_cells_filled_in", "weibull_survival", "gaussian_process", "linear_regression",
         "holt_winters", "best", "cubic_number_by_number",
         "tones_of_two_chains")
QUICK = ("rounded_data", "cells_imputed_by_an_argument", "finnish_horseshoe", "values_between_bounds",
         "ridge_of_known_scale", "regression_of_unknown_noise", "weibull_survival",
         "uncentred_by_softplus", "effects_by_name", "cubic_number_by_number", "several_outcomes",
         "errors_in_measurement")


def each(names):
    return [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in names]


def chosen(name):
    case = CASES[name]
    told = probml.model(case.function)(**case.settings).explain(case.data)
    engine = next(row["engine"] for row in told.engines if row[""].startswith("chosen"))
    return engine, {row["site"]: row["role"] for row in told.sites}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", each((*SAMPLED, *MODES)))
def test_a_posterior_is_the_default_that_says_how_it_is_tested(name):
    case = CASES[name]
    told = probml.model(case.function)(**case.settings).explain(case.data)
    engine, words = next((row["engine"], row[""]) for row in told.engines
                         if row[""].startswith("chosen"))
    assert engine in ("Exact", "EM", "Laplace", "NUTS")
    assert engine != "Laplace" or "tested: NUTS is used instead" in words


@pytest.mark.parametrize("name", each(INTEGRATED))
def test_effects_of_rows_are_integrated_out(name):
    engine, roles = chosen(name)
    assert engine == "Laplace" and "integrated out" in roles[INTEGRATED[name]]


def test_codes_beside_weights_without_a_prior_are_not_sampled():
    assert chosen("autoencoder")[0] == "MAP"


@pytest.mark.slow
def test_a_point_of_codes_and_weights_without_a_prior_says_why_it_is_one():
    """Along weights that the rows do not tell, flat as they are, sampling has no posterior."""
    case = CASES["autoencoder"]
    fit = probml.model(case.function)(**case.settings).fit(case.data)
    assert "a point estimate without a posterior, because the model has numpyro.param parameters" in fit.status


@pytest.mark.slow
def test_a_spread_of_paths_that_ends_next_to_zero_is_told():
    case = CASES["population_by_state_space"]
    fit = probml.model(case.function)().fit(case.data, probml.MAP())
    assert fit.params["sigma.proc"] < 1e-3 and about(fit, "boundary") == ["sigma.proc"]


@pytest.mark.slow
def test_a_line_through_a_few_points_of_a_mixture_is_told():
    """Four points nearly on a line: of Hogg's signal and noise the highest maximum, and no answer."""
    case = CASES["robust_lines"]
    fit = probml.model(case.function)().fit(case.data)
    assert fit.params["sigma_in"] < 0.05
    assert "'sigma_in' is" in fit.status and "spurious-maximum" in codes(fit)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["holt_winters", "supervised_topics", "recapture_fixed"])
def test_a_mode_at_an_end_of_a_support_is_told(name):
    case = CASES[name]
    fit = probml.model(case.function)(**case.settings).fit(case.data, probml.MAP())
    assert "boundar" in fit.status
