"""No unit of measurement matters: columns times 10⁶ and plus 10⁹ give the same classes, clusters
and states, in double and single."""

import inspect

import jax
import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.datasets import load_iris

import probml.models
from probml.estimators.estimator import Estimator
from probml.models import (
    BayesianLinearRegression,
    Boosted,
    DynamicFactor,
    EvidenceTree,
    FactorAnalysis,
    FisherDiscriminant,
    FuzzyCMeans,
    GaussianDiscriminant,
    GaussianMixture,
    GaussianProcess,
    GeneralizedLinearModel,
    HiddenMarkov,
    ItemResponse,
    KernelDensity,
    KMedoids,
    LatentClass,
    LeastSquaresClassifier,
    LinearSVM,
    LogisticRegression,
    MetaAnalysis,
    MixedMixture,
    MixedModel,
    MixtureDiscriminant,
    MixtureOfExperts,
    MixtureOfExpertsClassifier,
    MultidimensionalScaling,
    NaiveBayes,
    NearestNeighbours,
    NeuralNetworkClassifier,
    NeuralNetworkRegressor,
    OrdinalRegression,
    ParzenClassifier,
    Perceptron,
    PoissonFactors,
    PoissonMixture,
    ProbabilisticPCA,
    RobustRegression,
    SampledTree,
    SmoothingSpline,
    SparseCoding,
    StructuralTimeSeries,
    SupportVectorMachine,
    SupportVectorRegression,
    SurvivalRegression,
    TopicModel,
    gaussian_mixture,
)
from probml.models.frames.clusters import clusters
from probml.models.frames.units import moments

ROWS = np.arange(0, 150, 2)
X, Y = (part[ROWS] for part in load_iris(return_X_y=True))
T = X @ [0.5, 0.0, -0.3, 2.0] + np.random.default_rng(0).normal(0, 0.1, len(X))
MOVED = X * [1e6, 1.0, 1e-9, 1e-4] + [1e9, 1e9, 0.0, 0.0]  # huge, far, tiny and small columns
FAR = X + 1e9
LIKE = X * 1e6 + 1e9  # all columns in one other unit
FREE = {  # estimators to which neither scale nor offset of any column matters
    "pruned tree": EvidenceTree(),
    "sampled tree": SampledTree(20, warmup=100),
    "nearest neighbours": NearestNeighbours(),
    "naive Bayes": NaiveBayes(),
    "naive Bayes, some labels unseen": NaiveBayes(unlabelled_weight=0.5),
    "discriminant": GaussianDiscriminant(),
    "Gaussian process": GaussianProcess(),
    "shared discriminant": GaussianDiscriminant("shared"),
    "Fisher's discriminant": FisherDiscriminant(),
    "mixture discriminant": MixtureDiscriminant(2, covariance="diag"),
    "mixture": GaussianMixture(3, n_init=4),
    "diagonal mixture": GaussianMixture(3, covariance_type="diag", n_init=4),
    "mixtures of several sizes": GaussianMixture(range(1, 4), covariance_type="diag", n_init=4),
    "mixed mixture": MixedMixture(2, n_init=4),
    "hidden Markov": HiddenMarkov(2, n_init=4),
    "hidden Markov, full": HiddenMarkov(2, emission="full", n_init=4),
    "experts": MixtureOfExperts(n_init=2),
    "classes by experts": MixtureOfExpertsClassifier(n_init=2),
    "factor analysis": FactorAnalysis(2),
    "kernel density": KernelDensity(),
    "kernel density, likelihood": KernelDensity("likelihood"),
    "Parzen": ParzenClassifier(),
    "logistic regression, no penalty": LogisticRegression(np.inf),
    "least squares classifier, no penalty": LeastSquaresClassifier(0.0),
    "perceptron": Perceptron(max_iter=100),
    "neural network": NeuralNetworkClassifier((4,)),
    # one mode
    "neural network of numbers": NeuralNetworkRegressor((2,), weight_scale=1.0, noise=0.5),
    "regression, a scale each": BayesianLinearRegression("each"),
    "smooth curves": SmoothingSpline(5),
    "generalized linear model": GeneralizedLinearModel(),
    "ordinal regression": OrdinalRegression(),
    "robust regression": RobustRegression(),
}
# estimators that compare columns in their own units, as their documentation says: an offset of all does
# not matter
COMPARED = {
    "logistic regression": LogisticRegression(),
    "linear SVM": LinearSVM(),
    "linear SVM, hinge": LinearSVM(loss="hinge"),
    "least squares classifier": LeastSquaresClassifier(),
    "kernel machine": SupportVectorMachine(),
    "linear kernel": SupportVectorMachine(kernel="linear"),
    "kernel regression": SupportVectorRegression(),
    "linear kernel regression": SupportVectorRegression(kernel="linear"),
    "regression": BayesianLinearRegression(),
    "principal components": ProbabilisticPCA(2),
    "medoids": KMedoids(3),
    "fuzzy means": FuzzyCMeans(3),
}
# categories and counts; groups and series, whose columns have tests of their own; likelihoods in any
# unit; distances, and what is coded as it is
UNITLESS = (LatentClass, PoissonMixture, ItemResponse, MixedModel, TopicModel, Boosted,
            PoissonFactors, DynamicFactor, StructuralTimeSeries, MultidimensionalScaling,
            SparseCoding, MetaAnalysis, SurvivalRegression)
QUICK = {
    "pruned tree", "nearest neighbours", "medoids", "fuzzy means",
    "naive Bayes", "naive Bayes, some labels unseen", "kernel density", "Parzen",
    "least squares classifier, no penalty", "perceptron",
    "regression, a scale each",
    "smooth curves", "robust regression", "logistic regression", "least squares classifier",
    "kernel machine", "linear kernel",
    "kernel regression", "regression",
}  # fmt: skip
CLUSTERS = GaussianMixture | MixedMixture | HiddenMarkov
WRITTEN = ("scikit-learn", "in like units", "units that can be compared")


def answers(estimator, x, name="", t=T):
    """Classes, clusters or states, or numbers that have the same unit whatever that of the
    columns."""
    estimator = clone(estimator)
    if isinstance(estimator, CLUSTERS):
        return estimator.fit(x).predict(x)
    if isinstance(estimator, FactorAnalysis | ProbabilisticPCA):
        return np.abs(estimator.fit(x).transform(x))
    if isinstance(estimator, KernelDensity):
        log = estimator.fit(x).score_samples(x)
        return log - log.mean()  # less the logarithm of the units
    if _numeric(estimator):
        return estimator.fit(x, t).predict(x)
    y = np.where(np.arange(len(Y)) % 3 == 0, np.nan, Y) if "unseen" in name else Y
    return estimator.fit(x, y).predict(x)


def _numeric(estimator) -> bool:
    return any(base.__name__ == "RegressorMixin" for base in type(estimator).__mro__)


def same(estimator, one, other):
    if _numeric(estimator) or isinstance(estimator, FactorAnalysis | ProbabilisticPCA | KernelDensity):
        np.testing.assert_allclose(one, other, atol=0.02 * np.std(one))
    else:
        np.testing.assert_array_equal(one, other)


def named(estimators):
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in estimators]


@pytest.mark.parametrize("name", named(FREE))
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.filterwarnings("ignore::UserWarning")  # of unlabelled rows
# of classes that no planes part, or that planes part without a penalty
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_unit_of_measurement_matters(name, double):
    with jax.enable_x64(double):
        same(FREE[name], answers(FREE[name], X, name), answers(FREE[name], MOVED, name))


@pytest.mark.parametrize("name", named(COMPARED))
@pytest.mark.parametrize("double", [True, False])
def test_an_offset_of_all_columns_matters_to_no_estimator(name, double):
    with jax.enable_x64(double):
        estimator = COMPARED[name]
        first = answers(estimator, X)
        same(estimator, first, answers(estimator, FAR))
        if isinstance(estimator, ProbabilisticPCA):
            same(estimator, first, answers(estimator, LIKE))


def test_every_estimator_is_held_to_units_or_says_why_not():
    estimators = {getattr(probml.models, name) for name in probml.models._LATE}
    estimators = {estimator for estimator in estimators if inspect.isclass(estimator) and issubclass(estimator, Estimator)}
    assert estimators == {type(estimator) for estimator in (*FREE.values(), *COMPARED.values())} | set(UNITLESS)
    for estimator in COMPARED.values():
        said = (
            f"{type(estimator).__doc__}{SupportVectorMachine.__doc__ if isinstance(estimator, SupportVectorRegression) else ''}"
        )
        assert any(words in " ".join(said.split()) for words in WRITTEN)


@pytest.mark.parametrize("name",
                         named(name for name, estimator in (FREE | COMPARED).items() if _numeric(estimator)))
@pytest.mark.parametrize("double", [True, False])
def test_answers_come_in_the_units_in_which_they_were_given(name, double):
    estimator = (FREE | COMPARED)[name]
    # C and epsilon, and this noise, are in units of y
    stated = isinstance(estimator, SupportVectorRegression | NeuralNetworkRegressor)
    unit = 1.0 if stated else 1e6
    with jax.enable_x64(double):
        same(estimator, answers(estimator, X), (answers(estimator, X, t=T * unit + 1e9) - 1e9) / unit)


@pytest.mark.parametrize("estimator", [
    NaiveBayes(), pytest.param(MixtureDiscriminant(2, covariance="diag"), marks=pytest.mark.slow)
])
def test_constant_columns_say_nothing_however_large(estimator):
    wide = np.column_stack([X, np.full(len(X), 5.0), np.full(len(X), 1e9)])
    with jax.enable_x64(False):
        np.testing.assert_array_equal(answers(estimator, X), answers(estimator, wide))


def test_waiting_times_may_be_in_any_unit():
    random = np.random.default_rng(0)
    x = random.exponential(np.where(np.arange(60) % 2, 1.0, 30.0)[:, None], (60, 2))
    for unit in (1e-6, 1e6):
        np.testing.assert_array_equal(*(NaiveBayes(
            kinds="exponential"
        ).fit(z, np.arange(60) % 2).predict(z) for z in (x, x * unit)))


def test_a_prior_in_the_users_units_stays_as_written():
    model = gaussian_mixture(k=3, d=4, covariance="full", concentration=1.0, mean_scale=1000.0,
                             centre=1.0, scale=0.5)
    assert GaussianDiscriminant(centre=1.0, scale=0.5).fit(X, Y).fit_.model == model
    given = GaussianDiscriminant().fit(X, Y).fit_.given
    within = np.sqrt(np.mean([X[Y == k].var(0) for k in range(3)], 0))
    np.testing.assert_allclose(given["prior_centre"], X.mean(0), rtol=1e-6)
    np.testing.assert_allclose(given["prior_scale"], within, rtol=1e-6)


def test_moments_of_parts_add_up_to_those_of_the_whole():
    random = np.random.default_rng(0)
    x, weights = random.normal(1e9, 1e-1, (50, 3)), random.random(50)
    x[random.random(x.shape) < 0.2] = np.nan
    codes = random.integers(0, 2, 50).astype(float)
    codes[::7] = np.nan
    whole = moments(x, weights, codes, 2)
    parts = moments(x[:20], weights[:20], codes[:20], 2) + moments(x[20:], weights[20:], codes[20:],
                                                                   2)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    np.testing.assert_allclose(whole.centre, np.nansum(weights[:, None] * x, 0)
                               / (weights[:, None] * ~np.isnan(x)).sum(0), rtol=1e-12)
    np.testing.assert_array_equal(moments(np.full((3, 1), -5.0)).spread, [5.0])


def test_the_scale_is_a_components_own_however_far_apart_components_lie():
    random = np.random.default_rng(0)
    z = np.arange(90) % 3
    x = random.normal(0, [1.0, 0.1], (90, 2))
    for apart in (10.0, 1e5):
        far = x + apart * z[:, None]
        found = moments(far, None, clusters(far, 3), 3)
        within = np.sqrt(np.mean([x[z == j].var(0) for j in range(3)], 0))
        np.testing.assert_allclose(found.within, within, rtol=1e-6)
        assert (found.spread > 8 * apart / 10).all()


def test_a_column_without_spread_in_its_groups_has_a_share_of_the_whole():
    x = np.column_stack([np.repeat([0.0, 1.0], 10), np.arange(20.0), np.full(20, 7.0)])
    found = moments(x, None, np.repeat([0, 1], 10), 2)
    np.testing.assert_allclose(found.within, [0.1 * 0.5, x[:10, 1].std(), 0.1 * 7.0])


def test_clusters_know_neither_order_nor_units_nor_repeated_rows():
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 3)) + 4 * (np.arange(60) % 4 == 0)[:, None]
    x[random.random(x.shape) < 0.05] = np.nan
    first, order = clusters(x, 4), random.permutation(60)
    assert len(set(first)) == 4
    np.testing.assert_array_equal(clusters(x[order], 4), first[order])
    np.testing.assert_array_equal(clusters(x * [1e6, 1.0, 1e-9] + [1e9, 0.0, 0.0], 4), first)
    weights = random.integers(1, 4, 60)
    np.testing.assert_array_equal(clusters(x, 4, weights),
                                  clusters(np.repeat(x, weights, 0), 4)[np.cumsum(weights) - 1])
    assert len(set(clusters(np.repeat([[0.0], [1.0]], 5, 0), 4))) == 2


def test_parts_learnt_one_after_the_other_or_merged_have_the_prior_of_the_whole():
    whole = GaussianDiscriminant("diag").fit(X, Y)
    order = np.argsort(np.arange(len(Y)) % 2, kind="stable")
    first, second = order[:38], order[38:]
    chunks = GaussianDiscriminant("diag").partial_fit(X[first], Y[first]).partial_fit(X[second],
                                                                                      Y[second])
    merged = GaussianDiscriminant("diag").fit(X[first], Y[first]).merge(
        GaussianDiscriminant("diag").fit(X[second], Y[second])
    )
    for estimator in (chunks, merged):
        np.testing.assert_allclose(estimator.fit_.given["prior_scale"], whole.fit_.given["prior_scale"],
                                   rtol=1e-5)
        np.testing.assert_allclose(estimator.predict_proba(X), whole.predict_proba(X), atol=1e-4)
