"""No unit of measurement matters: columns times 10⁶ and plus 10⁹ give the same classes, clusters and states, in double and single."""

import jax
import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.datasets import load_iris

from probml.models import (
    GaussianDiscriminant,
    GaussianMixture,
    HiddenMarkov,
    MixedMixture,
    MixtureDiscriminant,
    NaiveBayes,
    gaussian_mixture,
)
from probml.models.units import moments

ROWS = np.arange(0, 150, 2)
X, Y = (part[ROWS] for part in load_iris(return_X_y=True))
FACES = {
    "naive Bayes": NaiveBayes(),
    "naive Bayes, some labels unseen": NaiveBayes(unlabelled_weight=0.5),
    "discriminant": GaussianDiscriminant(),
    "shared discriminant": GaussianDiscriminant("shared"),
    "mixture discriminant": MixtureDiscriminant(2, covariance="diag"),
    "mixture": GaussianMixture(3),
    "diagonal mixture": GaussianMixture(3, covariance_type="diag"),
    "mixed mixture": MixedMixture(2),
    "hidden Markov": HiddenMarkov(2),
}
QUICK = {"naive Bayes", "discriminant"}


def answers(face, x, name):
    """Classes, clusters or states."""
    face = clone(face)
    y = np.where(np.arange(len(Y)) % 3 == 0, np.nan, Y) if "unseen" in name else Y
    return (face.fit(x) if isinstance(face, GaussianMixture | MixedMixture | HiddenMarkov) else face.fit(x, y)).predict(x)


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in FACES])
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.filterwarnings("ignore::UserWarning")  # of unlabelled rows
def test_no_unit_of_measurement_matters(name, double):
    with jax.enable_x64(double):
        unit = np.array([1e6, 1.0, 1e-4, 1e6])
        moved = X * unit
        moved[:, [0, 1, 3]] += 1e9  # of column 1 no digit is left in float32
        np.testing.assert_array_equal(answers(FACES[name], X, name), answers(FACES[name], moved, name))


def test_waiting_times_may_be_in_any_unit():
    random = np.random.default_rng(0)
    x = random.exponential(np.where(np.arange(60) % 2, 1.0, 30.0)[:, None], (60, 2))
    for unit in (1e-6, 1e6):
        np.testing.assert_array_equal(*(NaiveBayes(kinds="exponential").fit(z, np.arange(60) % 2).predict(z) for z in (x, x * unit)))


def test_a_prior_in_the_users_units_stays_as_written():
    model = gaussian_mixture(k=3, d=4, covariance="full", concentration=1.0, mean_scale=1000.0, centre=1.0, scale=0.5)
    assert GaussianDiscriminant(centre=1.0, scale=0.5).fit(X, Y).fit_.model == model
    given = GaussianDiscriminant().fit(X, Y).fit_.given
    within = np.sqrt(np.mean([X[Y == k].var(0) for k in range(3)], 0))
    np.testing.assert_allclose(given["prior_centre"], X.mean(0), rtol=1e-6)
    np.testing.assert_allclose(given["prior_scale"], 0.1 * within, rtol=1e-6)


def test_moments_of_parts_add_up_to_those_of_the_whole():
    random = np.random.default_rng(0)
    x, weights = random.normal(1e9, 1e-1, (50, 3)), random.random(50)
    x[random.random(x.shape) < 0.2] = np.nan
    codes = random.integers(0, 2, 50).astype(float)
    codes[::7] = np.nan
    whole = moments(x, weights, codes, 2)
    parts = moments(x[:20], weights[:20], codes[:20], 2) + moments(x[20:], weights[20:], codes[20:], 2)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    np.testing.assert_allclose(whole.centre, np.nansum(weights[:, None] * x, 0) / (weights[:, None] * ~np.isnan(x)).sum(0), rtol=1e-12)
    np.testing.assert_array_equal(moments(np.full((3, 1), -5.0)).spread, [5.0])


def test_parts_learnt_one_after_the_other_or_merged_have_the_prior_of_the_whole():
    whole = GaussianDiscriminant("diag").fit(X, Y)
    order = np.argsort(np.arange(len(Y)) % 2, kind="stable")
    first, second = order[:38], order[38:]
    chunks = GaussianDiscriminant("diag").partial_fit(X[first], Y[first]).partial_fit(X[second], Y[second])
    merged = GaussianDiscriminant("diag").fit(X[first], Y[first]).merge(GaussianDiscriminant("diag").fit(X[second], Y[second]))
    for face in (chunks, merged):
        np.testing.assert_allclose(face.fit_.given["prior_scale"], whole.fit_.given["prior_scale"], rtol=1e-5)
        np.testing.assert_allclose(face.predict_proba(X), whole.predict_proba(X), atol=1e-4)
