"""Claims of symbols that are codes of many digits, such as product numbers: the answers are those of
the same symbols numbered 0 … n − 1, and no table has a column for each number below them."""

import numpy as np
import pytest

import probml
from probml.models import HiddenMarkov, MixedMixture, NaiveBayes

RANDOM = np.random.default_rng(0)
CODES = np.sort(RANDOM.integers(10**7, 10**8, 5))
PARTS = [RANDOM.integers(0, 5, n) for n in (30, 40, 25)]
X = RANDOM.integers(0, 5, (80, 3))
Y = RANDOM.integers(0, 2, 80)


def hidden(code):
    estimator = HiddenMarkov(2, emission="categorical", max_iter=20, n_init=2)
    estimator.fit([code(part) for part in PARTS])
    return estimator.score([code(part) for part in PARTS]), estimator.emissionprob_


def bayes(code):
    estimator = NaiveBayes(categorical="all").fit(code(X), Y)
    return estimator.predict_proba(code(X)),


def mixture(code):
    estimator = MixedMixture(2, categorical="all", max_iter=20, n_init=2).fit(code(X))
    return estimator.score(code(X)),


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fit", [hidden, bayes, mixture])
def test_codes_of_eight_digits_are_the_symbols_that_are_seen(fit):
    for own, plain in zip(fit(lambda part: CODES[part]), fit(lambda part: part), strict=True):
        np.testing.assert_allclose(own, plain, rtol=1e-5, atol=1e-7)


@pytest.mark.filterwarnings("ignore")
def test_a_hidden_markov_model_answers_in_the_codes_and_names_one_that_it_does_not_know():
    estimator = HiddenMarkov(2, emission="categorical", max_iter=20, n_init=2).fit(
        [CODES[part] for part in PARTS])
    np.testing.assert_array_equal(estimator.symbols_, CODES)
    assert estimator.n_symbols_ == 5 and np.isin(estimator.sample(50)[0], CODES).all()
    assert np.isin(estimator.forecast(CODES[PARTS[0]], 3), CODES).all()
    with pytest.raises(probml.DataError, match=f"one of the 5 symbols of the fit, {CODES[0]}"):
        estimator.predict([CODES[0] + 1, CODES[0]])


@pytest.mark.filterwarnings("ignore")
def test_an_alphabet_of_small_numbers_keeps_those_that_are_not_seen():
    estimator = HiddenMarkov(2, emission="categorical", max_iter=5, n_init=1).fit(
        [np.array([0, 5, 7, 5, 0, 7, 7, 5])])
    assert estimator.n_symbols_ == 8 and estimator.emissionprob_.shape == (2, 8)
