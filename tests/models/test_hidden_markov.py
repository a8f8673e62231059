"""The hidden Markov models of the zoo and their estimator: published fits, textbooks, parameters
recovered, sequences of any form, refusals.

Likelihoods that EM climbs are reached or beaten: those of depmixS4, of R's optim and of Zucchini &
MacDonald. Where hmmlearn has decoded known parameters, its paths and probabilities are found.
"""

import json
import pickle

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample
from scipy import stats

import probml
from probml.models import HiddenMarkov, dishonest_casino, hidden_markov, markov_chain

pytest.importorskip("sklearn")
from sklearn.base import clone  # noqa: E402

  # noqa: E402

nan = np.nan
SLOW = pytest.mark.slow
SEARCH = {"prior": False, "n_init": 40, "tol": 1e-9, "max_iter": 3000, "random_state": 0}
SHORT = 1e-4  # nats a maximum may fall short of the reference: both stop at a tolerance


def reference(folder, name, where="fits"):
    return json.loads((folder / where / f"{name}.json").read_text())


def some(quick, params):
    """Parameters of a test, all but the quick ones marked slow."""
    return [pytest.param(p, marks=() if p in quick else SLOW) for p in params]


# Published fits


def reached(estimator, X, fit, lengths=None):
    found = estimator.score(X, lengths)
    assert estimator.converged_ and found >= fit["loglik"] - SHORT, f"{found} < {fit['loglik']}"
    if "n_free_parameters" in fit:
        assert estimator.n_parameters_ == fit["n_free_parameters"]
    if found < fit["loglik"] + SHORT and "aic" in fit:  # the same maximum
        np.testing.assert_allclose([estimator.aic(X, lengths), estimator.bic(X, lengths)],
                                   [fit["aic"], fit["bic"]], atol=2 * SHORT)


def same_states(estimator, X, order, fit, lengths=None):
    """The paths and the first posteriors of the reference, in its order of the states."""
    np.testing.assert_array_equal(order[estimator.predict(X, lengths)] + 1, fit["viterbi"])
    found = np.asarray(estimator.predict_proba(X, lengths))  # of a table a table
    np.testing.assert_allclose(found[:10, np.argsort(order)],
                               fit["smoothed_first10"], atol=1e-3)


@pytest.fixture(scope="module")
def earthquakes(shared_data):
    reported = reference(shared_data, "hmm_earthquakes")
    return reported, pd.read_csv(shared_data / reported["dataset"])[["count"]]


@pytest.mark.parametrize("k", some({3}, (1, 2, 3, 4)))
def test_earthquakes_with_a_stationary_start_are_those_of_zucchini_and_macdonald(earthquakes, k):
    reported, counts = earthquakes
    estimator = HiddenMarkov(k, emission="poisson", initial="stationary", **SEARCH).fit(counts)
    fit = reported["K1" if k == 1 else f"K{k}_stationary"]
    reached(estimator, counts, fit)
    np.testing.assert_allclose(-estimator.score(counts), reported["published"][f"m{k}"], atol=1e-4)
    assert estimator.n_parameters_ == k**2
    order = np.argsort(estimator.lambdas_[:, 0])
    np.testing.assert_allclose(estimator.lambdas_[order, 0], fit.get("rates", fit.get("rate")),
                               rtol=1e-3)
    if k in (2, 3):
        np.testing.assert_allclose(estimator.startprob_[order], fit["stationary"], atol=1e-3)
        same_states(estimator, counts, np.argsort(order), fit)


@pytest.mark.parametrize("k", some({2}, (2, 3, 4)))
def test_earthquakes_with_a_free_start_are_those_of_depmix(earthquakes, k):
    reported, counts = earthquakes
    fit = reported[f"K{k}_free_initial"]
    estimator = HiddenMarkov(k, emission="poisson", **SEARCH).fit(counts)
    reached(estimator, counts, fit)
    if k == 2:
        order = np.array([np.argmin(abs(np.array(fit["rates"]) - rate))
                          for rate in estimator.lambdas_[:, 0]])
        same_states(estimator, counts, order, fit)


@pytest.mark.parametrize("name", some({"K2_stationary"},
                                      ("K2_stationary", "K2_free_initial", "K3_free_initial")))
@pytest.mark.parametrize("emission", some({"bernoulli"}, ("bernoulli", "categorical")))
def test_long_and_short_eruptions_are_those_published(shared_data, name, emission):
    reported = reference(shared_data, "hmm_geyser_binary")
    X = pd.read_csv(shared_data / reported["dataset"])["long"]
    initial = "stationary" if "stationary" in name else "free"
    estimator = HiddenMarkov(int(name[1]), emission=emission, initial=initial, **SEARCH).fit(X)
    reached(estimator, X, reported[name])
    assert estimator.emissionprob_.shape == (int(name[1]), 1 if emission == "bernoulli" else 2)


def test_the_flow_of_the_nile_changes_once(shared_data):
    reported = reference(shared_data, "hmm_nile")
    X = pd.read_csv(shared_data / reported["dataset"])["volume"]
    estimator = HiddenMarkov(2, **SEARCH).fit(X)
    reached(estimator, X, reported["K2"])
    order = np.argsort(np.argsort(-estimator.means_[:, 0]))
    same_states(estimator, X, order, reported["K2"])
    assert (np.diff(estimator.predict(X)) != 0).sum() == 1


@pytest.mark.parametrize("k", some((), (2, 3)))
def test_reaction_times_in_three_sequences_are_those_of_depmix(shared_data, k):
    reported = reference(shared_data, "hmm_speed")
    X, lengths = pd.read_csv(shared_data / reported["dataset"])["rt"].to_numpy(), [168, 134, 137]
    estimator = HiddenMarkov(k, **SEARCH).fit(X, lengths=lengths)
    reached(estimator, X, reported[f"rt_K{k}"], lengths)
    if k == 2:
        same_states(estimator, X, np.argsort(np.argsort(estimator.means_[:, 0])), reported["rt_K2"], lengths)


@probml.model
def two_measures(k: int):
    initial = sample("initial", dist.Dirichlet(jnp.ones(k)))
    with plate("state", k):
        transition = sample("transition", dist.Dirichlet(jnp.ones(k)))
        mean = sample("mean", dist.Normal(0.0, 100.0))
        scale = sample("scale", dist.InverseGamma(1.0, 0.1))
        probs = sample("probs", dist.Beta(1.0, 1.0))
    with probml.rows():
        z = sample("z", probml.MarkovChain(initial, transition))
        sample("time", dist.Normal(mean[z], scale[z]).to_event(1))
        sample("correct", dist.Bernoulli(probs[z]).to_event(1))


def test_times_and_errors_together_are_those_of_depmix(shared_data):
    reported = reference(shared_data, "hmm_speed")
    table = pd.read_csv(shared_data / reported["dataset"])
    parts = np.split(np.arange(439), [168, 302])
    data = {
        "time": [table["rt"].to_numpy()[part] for part in parts],
        "correct": [(table["corr"] == "cor").to_numpy(float)[part] for part in parts],
    }
    fit = two_measures(k=2).fit(data, probml.EM(prior=False, restarts=10, tolerance=1e-8))
    assert fit.converged and fit.log_prob(data).sum() >= reported["rt_corr_K2"]["loglik"] - SHORT


def test_the_federal_funds_rate_is_that_of_stata(shared_data):
    reported = reference(shared_data, "hmm_stata_fedfunds", "peer")
    rates = pd.read_csv(shared_data / reported["dataset"].split()[0])
    X = rates.select_dtypes("number").iloc[:, -1].to_numpy()
    estimator = HiddenMarkov(2, emission="tied spherical", initial="stationary", **SEARCH).fit(X)
    reached(estimator, X, reported)
    order = np.argsort(estimator.means_[:, 0])
    np.testing.assert_allclose(estimator.means_[order, 0], reported["means"], atol=1e-3)
    np.testing.assert_allclose(estimator.transmat_[np.ix_(order, order)], reported["transition"],
                               atol=1e-4)
    np.testing.assert_allclose(np.sqrt(estimator.covars_), reported["sd"], atol=1e-4)
    np.testing.assert_allclose(estimator.predict_proba(X)[:, order[0]], reported["smoothed_state1"],
                               atol=1e-4)
    np.testing.assert_allclose(estimator.filter(X)[:, order[0]], reported["filtered_state1"], atol=1e-4)


# The casino and other textbooks


@pytest.mark.parametrize("rolls", ["1", "2"])
def test_the_casino_is_decoded_as_by_hmmlearn(shared_data, rolls):
    book = reference(shared_data, "hmm_casino", "peer")
    expected, casino = book[f"book_parameters_rolls{rolls}"], dishonest_casino()
    data = {"y": np.array([[int(roll) - 1 for roll in book[f"rolls{rolls}"]]])}
    np.testing.assert_allclose(casino.log_prob(data), expected["loglik"], rtol=1e-10)
    path = casino.decode(data, sites=["z"])["z"][0]
    assert "".join(die[0].upper() for die in path) == expected["viterbi"]
    np.testing.assert_allclose(casino.log_prob({**data, "z": path[None]}),
                               expected["viterbi_logprob"], rtol=1e-10)
    np.testing.assert_allclose(casino.predict_proba(data, "z")[0, :, 0], expected["posterior_fair"],
                               atol=1e-8)
    true = ["loaded" if die == "L" else "fair" for die in book[f"true_die{rolls}"]]
    assert (path == true).mean() == pytest.approx(expected["viterbi_accuracy"])


def test_em_of_the_casino_ends_where_hmmlearns_does(shared_data):
    book = reference(shared_data, "hmm_casino", "peer")
    expected, rolls = (book["em_both_sequences_from_book_parameters"],
                       [np.array(list(book[f"rolls{i}"]), int) - 1 for i in (1, 2)])
    start = dishonest_casino().params
    estimator = HiddenMarkov(2, emission="categorical", prior=False, start=start, tol=1e-12).fit(rolls)
    np.testing.assert_allclose(estimator.score(rolls), expected["loglik"], atol=1e-6)
    np.testing.assert_allclose(estimator.transmat_, expected["transition"], atol=1e-4)
    np.testing.assert_allclose(estimator.emissionprob_, expected["emission"], atol=1e-4)


def test_known_dice_are_counted(shared_data):
    book = reference(shared_data, "hmm_casino", "peer")
    die = np.array([list(book["true_die1"])]) == "L"
    fit = markov_chain(k=2).fit({"z": die.astype(int)})
    assert fit.engine == "Exact()"
    counts = np.array(book["supervised_ml_rolls1"]["transition_counts"])
    np.testing.assert_allclose(fit.posterior("transition").concentration, counts + 1)
    np.testing.assert_allclose(fit.posterior("initial").concentration, [2.0, 1.0])
    rolls = np.array(list(book["rolls1"]), int) - 1
    estimator = HiddenMarkov(2, emission="categorical", prior=False).fit(rolls, die[0].astype(int))
    np.testing.assert_allclose(estimator.transmat_, book["supervised_ml_rolls1"]["transition"],
                               atol=1e-8)
    np.testing.assert_allclose(estimator.emissionprob_, book["supervised_ml_rolls1"]["emission"],
                               atol=1e-8)


def test_small_chains_are_those_of_the_textbooks(shared_data):
    for case in reference(shared_data, "hmm_small_categorical", "peer")["cases"]:
        probs = np.array(case["emission"])
        model = hidden_markov(k=2, emission="categorical", symbols=probs.shape[1])
        fit = model.at({"initial": np.array(case["initial"]),
                        "transition": np.array(case["transition"]), "probs": probs})
        data = {"y": np.array([case["observations"]])}
        np.testing.assert_allclose(fit.log_prob(data), case["loglik_computed"], rtol=1e-10)
        for key, given in (("smoothed", {}), ("filtered", {"given": "filtered"})):
            if key in case:
                np.testing.assert_allclose(fit.predict_proba(data, "z", **given)[0], case[key],
                                           atol=case["tol"])
        if "viterbi" in case:
            assert fit.decode(data, sites=["z"])["z"][0].tolist() == case["viterbi"]


# Emissions recover what made the data

CHAIN = {"initial": np.array([1.0, 0.0]), "transition": np.array([[0.95, 0.05], [0.10, 0.90]])}
COVARIANCE = np.array([[[1.0, 0.8], [0.8, 1.0]], [[2.0, -1.0], [-1.0, 1.0]]])
MADE = {
    "normal": {"mean": np.array([[0.0, 0.0], [3.0, -1.0]]),
               "scale": np.array([[1.0, 2.0], [0.5, 1.0]])},
    "full": {"mean": np.array([[0.0, 0.0], [3.0, -1.0]]), "precision": np.linalg.inv(COVARIANCE)},
    "tied": {"mean": np.array([[0.0, 0.0], [3.0, -1.0]]),
             "precision": np.linalg.inv(COVARIANCE[0])},
    "spherical": {"mean": np.array([[0.0, 0.0], [3.0, -1.0]]), "precision": np.array([1.0, 2.0])},
    "tied diagonal": {"mean": np.array([[0.0, 0.0], [3.0, -1.0]]),
                      "precision": np.array([1.0, 2.0])},
    "tied spherical": {"mean": np.array([[0.0, 0.0], [3.0, -1.0]]), "precision": np.array(2.0)},
    "categorical": {"probs": np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])},
    "bernoulli": {"probs": np.array([[0.9, 0.2], [0.3, 0.7]])},
    "poisson": {"rate": np.array([[2.0, 9.0], [8.0, 1.0]])},
}


@pytest.mark.slow
@pytest.mark.parametrize("emission", some({"normal", "categorical"}, MADE))
def test_every_emission_recovers_what_made_the_data(emission):
    model = hidden_markov(k=2, d=1 if emission == "categorical" else 2, emission=emission,
                          symbols=3)
    truth = {**CHAIN, **MADE[emission]}
    drawn = model.at(truth).simulate(rows=4, steps=500, seed=1)
    fit = model.fit({"y": drawn["y"]}, probml.EM(restarts=4))
    agree = (fit.predict({"y": drawn["y"]}, "z") == drawn["z"]).mean()
    order = [0, 1] if agree > 0.5 else [1, 0]
    assert max(agree, 1 - agree) > 0.85
    np.testing.assert_allclose(fit.params["transition"][np.ix_(order, order)], truth["transition"],
                               atol=0.05)
    for name, value in MADE[emission].items():
        found = fit.params[name] if value.ndim == 0 or (
            name == "precision" and emission.startswith("tied")
        ) else fit.params[name][order]
        np.testing.assert_allclose(found, value, atol=0.12 * max(1.0, np.abs(value).max()),
                                   err_msg=name)


@pytest.mark.slow
def test_counts_to_come_are_forecast_by_their_means():
    estimator = HiddenMarkov(2, emission="poisson", start={"rate": [[2.0], [9.0]]}).fit(
        [2, 1, 3, 2, 9, 8, 11, 9, 2, 1, 2, 8, 10, 9]
    )
    expected = estimator.filter([2, 9])[-1] @ estimator.transmat_ @ estimator.lambdas_
    np.testing.assert_allclose(estimator.forecast([2, 9], 2)[0], expected, rtol=1e-6)


def test_unknown_emissions_and_starts_are_refused_by_name():
    with pytest.raises(probml.ModelError, match=r"emission='gauss'.*'normal', 'full'.*'poisson'"):
        hidden_markov(k=2, emission="gauss").fit({"y": np.zeros((1, 5, 1))})
    with pytest.raises(probml.ModelError, match="initial='fixed'.*'free' or 'stationary'"):
        hidden_markov(k=2, initial="fixed").fit({"y": np.zeros((1, 5, 1))})
    with pytest.raises(probml.ModelError, match="d=2.*one column of symbols"):
        hidden_markov(k=2, d=2, emission="categorical").fit({"y": np.zeros((1, 5))})


def test_no_state_collapses_onto_a_step():
    y = np.r_[np.zeros(40), 7.0, np.ones(40)] + 0.3 * np.random.default_rng(0).normal(size=81)
    fit = hidden_markov(k=3).fit({"y": y[None, :, None]}, probml.EM(restarts=5))
    assert fit.converged and fit.params["scale"].min() > 0.01


@SLOW
def test_a_sticky_prior_keeps_the_chain_in_its_states():
    y = np.random.default_rng(0).normal(size=(1, 60, 1))
    free, sticky = (hidden_markov(k=2, sticky=a).fit({"y": y}) for a in (0.0, 100.0))
    assert np.diag(sticky.params["transition"]).min() > max(
        0.6, np.diag(free.params["transition"]).min()
    )


def test_one_sequence_does_not_make_its_first_state_sure():
    """Laplace's rule: of one first state (1 + 1) / (2 + 1), the posterior mean under a uniform
    prior."""
    y, z = np.array([[0, 1, 1, 0, 0, 1]]), np.array([[0, 1, 1, 0, 0, 1]])
    for first, expected in ((None, [2 / 3, 1 / 3]), (4.0, [4 / 7, 3 / 7])):
        model = hidden_markov(k=2, emission="categorical", first=first)
        fit = model.fit({"y": y, "z": z}, probml.EM())
        np.testing.assert_allclose(fit.params["initial"], expected, atol=1e-9)
    with pytest.raises(probml.ModelError, match="first=0.*above 0"):
        hidden_markov(k=2, first=0).fit({"y": np.zeros((1, 5, 1))})


# The estimator


def torn(random, sizes=(30, 7, 55, 1)):
    """Sequences of two clear states, as in ../shared/checks/chains.py."""
    return [random.normal(size=(t, 1)) + 5 * (random.random((t, 1)) < 0.5) for t in sizes]


@pytest.fixture(scope="module")
def sequences():
    return torn(np.random.default_rng(2))


@pytest.fixture(scope="module")
def estimator(sequences):
    return HiddenMarkov(2, random_state=0).fit(sequences)


@pytest.mark.slow
def test_lists_and_lengths_are_the_same_sequences(estimator, sequences):
    X, lengths = np.vstack(sequences), [30, 7, 55, 1]
    other = HiddenMarkov(2, random_state=0).fit(X, lengths=lengths)
    np.testing.assert_allclose(other.transmat_, estimator.transmat_, atol=1e-10)
    assert [part.shape for part in estimator.predict(sequences)] == [(30,), (7,), (55,), (1,)]
    for asked in ("predict", "predict_proba", "filter"):
        np.testing.assert_allclose(getattr(estimator, asked)(X, lengths),
                                   np.concatenate(getattr(estimator, asked)(sequences)), atol=1e-10)
    assert estimator.score(sequences) == pytest.approx(estimator.score(X, lengths), rel=1e-12)
    assert estimator.score(sequences) == pytest.approx(sum(estimator.score(part) for part in sequences),
                                                       rel=1e-10)
    assert estimator.predict(X).shape == (93,)  # one sequence, not four
    assert estimator.score(sequences[0][:, 0]) == pytest.approx(estimator.score(sequences[0]), rel=1e-12)
    flat = HiddenMarkov(2, random_state=0).fit([part[:, 0] for part in sequences])
    assert flat.score(X, lengths) == pytest.approx(estimator.score(X, lengths))


def test_the_estimator_answers_as_hmmlearn_does(estimator, sequences):
    X, lengths = np.vstack(sequences), [30, 7, 55, 1]
    log, path = estimator.decode(X, lengths)
    means, deviations = estimator.means_[:, 0], np.sqrt(estimator.covars_[:, 0])
    total = 0.0
    for part, z in zip(sequences, np.split(path, np.cumsum(lengths)[:-1]), strict=True):
        total += np.log(estimator.startprob_[z[0]]) + np.log(estimator.transmat_[z[:-1], z[1:]]).sum()
        total += stats.norm.logpdf(part[:, 0], means[z], deviations[z]).sum()
    assert log == pytest.approx(total, rel=1e-8) and log < estimator.score(X, lengths)
    total, posteriors = estimator.score_samples(X, lengths)
    assert total == pytest.approx(estimator.score(X, lengths)) and posteriors.shape == (93, 2)
    np.testing.assert_allclose(posteriors.sum(1), 1.0)
    by_step = clone(estimator).set_params(algorithm="map")
    by_step.__dict__.update({name: value for name, value in vars(estimator).items()
                             if name.endswith("_")})
    np.testing.assert_array_equal(by_step.predict(X, lengths), posteriors.argmax(1))
    assert estimator.n_parameters_ == 1 + 2 + 2 + 2
    assert (estimator.aic(X, lengths) == pytest.approx(-2 * total + 14)
            and estimator.bic(X, lengths) == pytest.approx(-2 * total + 7 * np.log(93)))
    # nothing comes after
    np.testing.assert_allclose(estimator.filter(sequences)[0][-1], estimator.predict_proba(sequences)[0][-1],
                               atol=1e-10)
    X, Z = estimator.sample(200, random_state=3)
    assert X.shape == (200, 1) and Z.shape == (200,) and set(Z) == {0, 1}
    assert (estimator.sample(5, random_state=3)[0] == estimator.sample(5, random_state=3)[0]).all()
    ahead = estimator.forecast(sequences, 3)
    assert len(ahead) == 4 and ahead[0].shape == (3, 1)
    np.testing.assert_allclose(
        ahead[1][0], estimator.filter(sequences)[1][-1] @ estimator.transmat_ @ estimator.means_, rtol=1e-6
    )
    assert estimator.forecast(sequences[0], 2).shape == (2, 1)
    assert (pickle.loads(pickle.dumps(estimator)).predict(X) == estimator.predict(X)).all()
    assert estimator.history_[-1] >= estimator.history_[0] and estimator.n_iter_ > 1 and estimator.converged_
    assert not hasattr(estimator, "lambdas_") and hasattr(estimator, "means_")


def test_unseen_cells_and_steps_are_summed_out(sequences):
    holes = [part.copy() for part in sequences]
    holes[0][[3, 4, 5]] = holes[2][10:20] = nan
    estimator = HiddenMarkov(2, random_state=0).fit(holes)
    np.testing.assert_allclose(np.sort(estimator.means_[:, 0]), [0, 5], atol=0.5)
    assert estimator.score([np.full((4, 1), nan)]) == pytest.approx(0.0, abs=1e-10)
    padded = np.vstack([holes[0], np.full((6, 1), nan)])
    np.testing.assert_allclose(estimator.predict_proba(padded)[:30], estimator.predict_proba(holes[0]),
                               atol=1e-10)
    np.testing.assert_allclose(estimator.score(padded), estimator.score(holes[0]), rtol=1e-10)


def test_states_known_in_part_name_the_states(sequences):
    known = [np.where(part[:, 0] > 6, 0.0, np.where(part[:, 0] < -1, 1.0, nan))
             for part in sequences]
    estimator = HiddenMarkov(2).fit(sequences, known)
    np.testing.assert_allclose(estimator.means_[:, 0], [5, 0], atol=0.5)


def test_integers_and_a_single_step_are_data():
    estimator = HiddenMarkov(2, scale=1.0).fit(np.array([0, 0, 1, 0, 9, 9, 8, 10, 0, 1]))
    np.testing.assert_allclose(np.sort(estimator.means_[:, 0]), [0.4, 9], atol=0.5)
    one = HiddenMarkov(1, emission="poisson").fit([[3]])
    assert one.predict([[3]]).tolist() == [0] and one.transmat_.shape == (1, 1)
    # sequences of one step: a mixture
    steps = [np.array([0.1]), np.array([5.2]), np.array([0.0]), np.array([4.9])]
    assert [len(z) for z in HiddenMarkov(2, scale=1.0).fit(steps).predict(steps)] == [1, 1, 1, 1]


@pytest.mark.slow
def test_a_sequence_twice_is_one_of_weight_two(sequences):
    twice = HiddenMarkov(2, start={"mean": [[0.0], [5.0]]}).fit([*sequences, sequences[0]])
    weighed = HiddenMarkov(2, start={"mean": [[0.0], [5.0]]}).fit(
        sequences, sample_weight=[2.0, 1.0, 1.0, 1.0]
    )
    np.testing.assert_allclose(weighed.means_, twice.means_, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "X", "lengths", "words"),
    [
        ({}, [], None, ["empty"]),
        ({}, np.zeros((0, 2)), None, ["empty"]),
        ({}, np.zeros((93, 1)), [30, 7, 55, 2], ["lengths", "94", "93"]),
        ({}, np.zeros((5, 1)), [7, -2], [r"lengths\[1\]", "-2"]),
        ({}, np.zeros((5, 1)), [2.5, 2.5], ["lengths", "integers"]),
        ({}, np.zeros((5, 1)), [5, 0], ["sequence 1", "empty", "rop this sequence"]),
        ({}, [np.zeros((5, 1)), np.zeros((0, 1))], None, ["sequence 1", "empty"]),
        ({}, [np.zeros((5, 1)), np.zeros((4, 2))], None,
         ["sequence 1", "2 columns", "same columns"]),
        ({}, [np.zeros((5, 1))], [5], ["list", "Omit lengths"]),
        ({}, [["a"], ["b"]], None, ["numbers"]),
        ({}, [[1.0, 2.0], [3.0]], None, ["list of such arrays"]),
        ({}, [[0.0], [np.inf], [1.0]], None, ["inf", "sequence 0, step 1, column 0"]),
        ({}, np.full((4, 1), nan), None, ["missing"]),
        ({}, np.zeros((4, 2, 2, 1)), None, [r"\(4, 2, 2, 1\)"]),
        ({"n_states": 5}, [[0.0], [1.0], [2.0]], None, ["n_states=5", "time steps of X, 3"]),
        ({"n_states": 0}, [[0.0]], None, ["n_states=0"]),
        ({"emission": "gauss"}, [[0.0]], None, ["emission", "'normal'"]),
        ({"emission": "categorical"}, [[0.5], [1.0]], None, ["0.5", "symbol"]),
        ({"emission": "categorical"}, np.zeros((4, 2)), None, ["2 columns", "one"]),
        ({"emission": "categorical", "n_symbols": 3}, [0, 1, 3, 1], None,
         ["3 in sequence 0, step 2", r"from 0 to 2", "n_symbols"]),
        ({"emission": "poisson"}, [[1.0], [-1.0]], None, ["-1", "count"]),
        ({"emission": "bernoulli"}, [[1.0], [2.0]], None, ["2", "0 or 1"]),
    ],
)
def test_what_cannot_be_fitted_is_refused_by_name(settings, X, lengths, words):
    with pytest.raises(ValueError, match="(?s)" + ".*".join(words)):
        HiddenMarkov(**settings).fit(X, lengths=lengths)


def test_what_cannot_be_asked_is_refused_by_name(estimator):
    with pytest.raises(ValueError, match="not fitted"):
        HiddenMarkov().predict([[0.0]])
    with pytest.raises(probml.DataError, match="3 features.*1 features"):
        estimator.predict(np.zeros((4, 3)))
    with pytest.raises(probml.DataError, match="by name"):
        estimator.fit(np.zeros((4, 1)), [2, 3])  # lengths that do not add up
    with pytest.raises(probml.DataError, match="a state from 0 to 1"):
        estimator.fit([[0.0], [1.0]], [0, 2])
    with pytest.raises(probml.ModelError, match="n_steps=0"):
        estimator.sample(0)
    with pytest.raises(probml.ModelError, match="steps=0"):
        estimator.forecast([[0.0]], 0)


def test_criteria_count_a_sequence_as_often_as_its_weight():
    random = np.random.default_rng(4)
    parts = [random.normal(np.arange(n)[:, None] // 5 % 2 * 4.0, 1.0, (n, 1)) for n in (20, 30)]
    once = HiddenMarkov((1, 2), n_init=1).fit(parts, sample_weight=[2, 1])
    twice = HiddenMarkov((1, 2), n_init=1).fit([parts[0], *parts])
    np.testing.assert_allclose(once.table_["bic"], twice.table_["bic"], rtol=1e-4)
    assert once.n_observations_ == twice.n_observations_ == 70
