"""Further rows of what is hidden: each part is a step of stepwise EM, whose end is near that of all rows at once."""

import dataclasses
import pickle

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy.special import digamma, gammaln
from sklearn.base import clone

import probml
from probml import DataError, ModelError, Refusal
from probml.models import (
    GaussianMixture,
    HiddenMarkov,
    MixtureDiscriminant,
    NaiveBayes,
    PoissonMixture,
)
from small_models import mixture

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=600) + 3.0 * RANDOM.integers(2, size=600) + 100.0
PARTS = np.array_split(X, 4)
START = {"weights": np.array([0.4, 0.6]), "mean": np.array([99.0, 104.0]), "scale": np.array([1.0, 1.5])}
ENGINE = probml.EM(max_iterations=2, tolerance=0.0, prior=False, accelerate=False)


@probml.model
def lines(x):
    with plate("line", 2):
        slope = sample("slope", dist.Normal(0.0, 3.0))
    with probml.rows():
        z = sample("z", dist.Categorical(jnp.ones(2) / 2))
        sample("y", dist.Normal(x * slope[z], 1.0))


@pytest.fixture(scope="module")
def begun() -> probml.Fit:
    with pytest.warns(probml.ConvergenceWarning, match="iteration limit"):
        fit = mixture(k=2).fit({"x": PARTS[0]}, ENGINE, start=START)
    return fit.running({"x": PARTS[0]})


def shown(x, point, weights=1.0):
    """What rows are expected to show of each component, of a unit of weight: (3, k); and their mean log density."""
    x, w = x[:, None], np.broadcast_to(weights, x.shape)[:, None]
    log = np.log(point["weights"]) - 0.5 * ((x - point["mean"]) / point["scale"]) ** 2 - np.log(
        point["scale"] * np.sqrt(2 * np.pi))
    total = np.logaddexp.reduce(log, 1)
    r = w * np.exp(log - total[:, None]) / w.sum()
    return np.stack([r.sum(0), (r * x).sum(0), (r * x**2).sum(0)]), (w[:, 0] * total).sum() / w.sum()


def best(statistics):
    weight, first, second = statistics
    mean = first / weight
    return {"weights": weight, "mean": mean, "scale": np.sqrt(second / weight - mean**2)}


def test_each_part_is_a_step_that_is_worked_out_by_hand(begun):
    fit, point, rows = begun, begun.params, len(PARTS[0])
    statistics, told = shown(PARTS[0], point)[0], []
    for part in PARTS[1:]:
        fit = fit.update({"x": part})
        rows += len(part)
        new, log = shown(part, point)
        statistics += (len(part) / rows) ** 0.6 * (new - statistics)
        point = best(statistics)
        told.append(rows * log)
    for name, value in point.items():
        np.testing.assert_allclose(fit.params[name], value, rtol=1e-7)
    np.testing.assert_allclose(fit.history[len(begun.history) :], told, rtol=1e-9)
    assert fit.iterations == begun.iterations + 3 and not fit.converged and "further rows" in fit.status


def test_parts_of_a_source_are_steps_and_weights_count_as_rows_do(begun):
    steps = begun.update({"x": PARTS[1]}).update({"x": PARTS[2]})
    source = begun.update(lambda: iter([{"x": PARTS[1]}, {"x": PARTS[2]}]))
    weights = np.random.default_rng(1).integers(3, size=len(PARTS[1]))
    once = begun.update({"x": PARTS[1]}, weights=weights)
    twice = begun.update({"x": np.repeat(PARTS[1], weights)})
    for name in begun.params:
        np.testing.assert_array_equal(source.params[name], steps.params[name])
        np.testing.assert_allclose(once.params[name], twice.params[name], rtol=1e-9)
    with pytest.raises(DataError, match="the data source returned no batches"):
        begun.update(lambda: iter([]))
    with pytest.raises(DataError, match="'x' must be finite, got inf in row 1"):
        begun.update({"x": [1.0, np.inf]})


def test_a_fit_that_goes_on_travels_and_is_no_sum(begun):
    again = pickle.loads(pickle.dumps(begun)).update({"x": PARTS[1]})
    np.testing.assert_array_equal(again.params["mean"], begun.update({"x": PARTS[1]}).params["mean"])
    with pytest.raises(Refusal, match="has no sufficient statistics"):
        begun.merge(begun)


def test_what_takes_no_steps_is_refused_by_name(begun):
    data = {"x": PARTS[0]}
    with pytest.raises(Refusal, match="site 'y' has no sufficient statistics"):
        dataclasses.replace(lines().at({"slope": np.array([0.0, 0.1])}), by=ENGINE).running({"x": X, "y": X})
    with pytest.raises(Refusal, match=r"running\(fitted_rows\)"):
        mixture(k=2).at(begun.params).update(data)
    with pytest.raises(Refusal, match="can be updated only if it was fitted by EM.. or VB"):
        mixture(k=2).at(begun.params).running(data)
    with pytest.raises(ModelError, match="needs one number of components"):
        GaussianMixture(range(1, 3)).partial_fit(X[:, None])
    with pytest.raises(ModelError, match="needs one number of states"):
        HiddenMarkov(range(1, 3)).partial_fit(X[:, None])
    one = GaussianMixture(1)
    one.fit_ = mixture(k=2).at(begun.params)  # as from a file
    with pytest.raises(DataError, match="loaded from a file.*also the first ones"):
        one.partial_fit(X[:, None])
    one.fit_ = dataclasses.replace(one.fit_, by=probml.MAP(), engine="MAP()")
    with pytest.raises(Refusal, match=r"was fitted by MAP\(\).* stores no sufficient statistics"):
        one.partial_fit(X[:, None])


@pytest.mark.parametrize("estimator", [PoissonMixture(2, n_init=1), HiddenMarkov(2, emission="poisson", n_init=1)],
                         ids=["mixture", "hidden Markov"])
def test_rows_behind_a_fit_are_a_step_from_it_as_behind_the_first_rows(estimator):
    """They move what was fitted (60/120)^0.6 of the way to a fit of them alone."""
    random = np.random.default_rng(5)
    first, more = (random.poisson(np.repeat(rates, 30)).astype(float)[:, None] for rates in ((2.0, 20.0), (4.0, 28.0)))
    alone, fitted = (clone(estimator).fit(rows) for rows in (more, first))
    before, chunks = rates_of(fitted), clone(estimator).partial_fit(first).partial_fit(more)
    with pytest.raises(DataError, match="loaded from a file"):
        pickle.loads(pickle.dumps(fitted)).partial_fit(more)
    fitted.partial_fit(more)
    np.testing.assert_array_equal(rates_of(fitted), rates_of(chunks))
    share = (rates_of(fitted) - before) / (rates_of(alone) - before)
    np.testing.assert_allclose(share, 0.5**0.6, atol=0.1)


def rates_of(estimator):
    return np.sort(estimator.fit_.params["rate" if isinstance(estimator, HiddenMarkov) else "poisson_rate"].ravel())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_fit_in_batches_goes_on_with_further_rows():
    """Where the rows that come later are of the same kind, the steps stay near the maximum of all rows."""
    fit = mixture(k=2).fit({"x": np.concatenate(PARTS[:2])}, probml.EM(batch_rows=100, restarts=1, max_iterations=3))
    for part in PARTS[2:]:
        fit = fit.update({"x": part})
    full = mixture(k=2).fit({"x": X}, probml.EM(restarts=2))
    assert fit.score({"x": X}) > full.score({"x": X}) - 5e-3


@pytest.mark.slow
def test_chunks_of_a_mixture_end_near_all_rows_at_once():
    random = np.random.default_rng(2)
    z = random.integers(3, size=4000)
    table = random.normal(size=(4000, 2)) + np.array([[0.0, 0.0], [4.0, 0.0], [2.0, 3.0]])[z]
    table[random.random(table.shape) < 0.05] = np.nan
    chunks, full = GaussianMixture(3, n_init=4), GaussianMixture(3, n_init=4).fit(table)
    before = None
    for rows in np.array_split(np.arange(4000), 20):
        chunks.partial_fit(table[rows])
        before = chunks.score(table) if before is None else before
    assert before < chunks.score(table) and chunks.score(table) > full.score(table) - 3e-3
    assert chunks.total_weight_ == 4000 and chunks.n_iter_ >= 20
    with pytest.raises(ValueError, match="1 features.*2 features"):
        chunks.partial_fit(table[:, :1])


@pytest.mark.slow
def test_chunks_of_sequences_end_near_all_sequences_at_once():
    states = np.arange(240) // 5 % 2
    truth = HiddenMarkov(2, random_state=0).fit(np.random.default_rng(0).normal(4.0 * states, 1.0)[:, None])
    all_of = [truth.sample(40, random_state=i)[0] for i in range(48)]
    chunks, full = HiddenMarkov(2, n_init=4), HiddenMarkov(2, n_init=4).fit(all_of)
    for begin in range(0, 48, 8):
        chunks.partial_fit(all_of[begin : begin + 8])
    assert chunks.score(all_of) > full.score(all_of) - 1e-2 * 48 * 40
    assert len(chunks.history_) > 5 and chunks.predict(all_of)[0].shape == (40,)


@pytest.mark.slow
def test_chunks_whose_labels_are_unseen_in_part_are_learnt_from():
    random = np.random.default_rng(3)
    y = random.integers(2, size=1200)
    table, names = random.normal(size=(1200, 3)) + 1.5 * y[:, None], np.array(["no", "yes"], object)[y]
    names[60:] = np.where(random.random(1140) < 0.9, None, names[60:])
    parts = [slice(0, 60), *(slice(i, i + 95) for i in range(60, 1200, 95))]
    chunks, few = NaiveBayes(), NaiveBayes().fit(table[:60], names[:60])
    for rows in parts:
        chunks.partial_fit(table[rows], names[rows], classes=["no", "yes"])
    full = NaiveBayes().fit(table, names)

    def right(estimator):
        return np.log(estimator.predict_proba(table)[np.arange(1200), y]).mean()

    assert right(chunks) > right(full) - 0.02 and right(chunks) > right(few)
    assert chunks.fit_.kept.running and chunks.total_weight_ == 1200
    chunks.partial_fit(table[:60], names[:60].tolist())  # complete ones are a step as well


@probml.model
def counts():
    weights = sample("weights", dist.Dirichlet(jnp.full(2, 2.0)))
    with plate("component", 2):
        rate = sample("rate", dist.Gamma(2.0, 0.5))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Poisson(rate[z]))


def told_by(x, alpha, a, b):
    """What rows show at q(θ) of `counts`, (2, k), and their part of the bound."""
    log = (digamma(alpha) - digamma(alpha.sum()) + x[:, None] * (digamma(a) - np.log(b)) - a / b
           - gammaln(x + 1)[:, None])
    total = np.logaddexp.reduce(log, 1)
    r = np.exp(log - total[:, None])
    return np.stack([r.sum(0), r.T @ x]), total.sum()


def test_a_mean_field_goes_on_by_steps_that_are_worked_out_by_hand():
    parts = np.array_split(np.random.default_rng(3).permutation(
        np.concatenate([np.random.default_rng(4).poisson(m, 40) for m in (2.0, 12.0)])), [50])
    start = {"weights": np.array([0.5, 0.5]), "rate": np.array([2.0, 10.0])}
    fit = counts().fit({"x": parts[0]}, probml.VB(restarts=1), start=start)
    alpha, of = np.asarray(fit.posterior("weights").concentration), fit.posterior("rate")
    a, b = np.asarray(of.concentration), np.asarray(of.rate)
    first, (second, log) = told_by(parts[0], alpha, a, b)[0], told_by(parts[1], alpha, a, b)
    share = (30 / 80) ** 0.6
    statistics = (1 - share) * first * 80 / 50 + share * second * 80 / 30
    found = fit.running({"x": parts[0]}).update({"x": parts[1]})
    np.testing.assert_allclose(found.posterior("weights").concentration, 2.0 + statistics[0],
                               rtol=1e-8)
    np.testing.assert_allclose(found.posterior("rate").concentration, 2.0 + statistics[1],
                               rtol=1e-8)
    np.testing.assert_allclose(found.posterior("rate").rate, 0.5 + statistics[0], rtol=1e-8)
    prior = fit.bound - told_by(parts[0], alpha, a, b)[1]
    assert found.history[-1] == pytest.approx(80 / 30 * log + prior, rel=1e-6)
    assert found.bound is None and "further rows" in found.status
    np.testing.assert_allclose(found.params["rate"], (2.0 + statistics[1]) / (0.5 + statistics[0]),
                               rtol=1e-8)


@pytest.mark.slow
def test_chunks_of_a_mean_field_and_of_mixtures_of_classes_end_near_all_rows_at_once():
    random = np.random.default_rng(2)
    z = random.integers(3, size=1500)
    table = random.normal(size=(1500, 2)) + np.array([[0.0, 0.0], [5.0, 0.0], [2.0, 4.0]])[z]
    chunks, full = (GaussianMixture(3, n_init=4, engine=probml.VB()) for _ in range(2))
    classes, whole = (MixtureDiscriminant(2) for _ in range(2))
    for rows in np.array_split(np.arange(1500), 5):
        chunks.partial_fit(table[rows])
        classes.partial_fit(table[rows], z[rows] > 0)
    assert chunks.score(table) > full.fit(table).score(table) - 1e-2
    assert chunks.fit_.posterior("weights").concentration.sum() > 1490
    whole.fit(table, z > 0)
    assert classes.score(table, z > 0) > whole.score(table, z > 0) - 5e-3
    assert classes.total_weight_ == 1500
