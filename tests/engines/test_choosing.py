"""Several numbers of components in one program: the fits are those of one by one, the table is the
textbook's."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris

import probml
from probml.interface.sizes import grid
from probml.models import GaussianMixture, LatentClass, gaussian_mixture

X = load_iris().data


@pytest.fixture(scope="module")
def estimator():
    return GaussianMixture(range(1, 6), n_init=5, random_state=0, prior=False, tol=1e-8,
                           max_iter=2000).fit(X)


def test_the_table_is_made_of_each_fits_own_numbers(estimator):
    table = estimator.table_.set_index("n_components")
    assert list(table.index) == [1, 2, 3, 4, 5]
    for k in (1, 2, 3):
        log, q = estimator.fits_[k].log_prob({"x": X}), estimator.fits_[k].predict_proba({"x": X}, "z")
        parameters = k - 1 + 4 * k + 10 * k
        np.testing.assert_allclose(table.loglik[k], log.sum())
        assert table.parameters[k] == parameters
        np.testing.assert_allclose(table.bic[k], -2 * log.sum() + parameters * np.log(150))
        np.testing.assert_allclose(table.aic[k], -2 * log.sum() + 2 * parameters)
        np.testing.assert_allclose(table.icl[k], table.bic[k] - 2 * np.log(q.max(1)).sum())
        np.testing.assert_allclose(estimator.fits_[k].history[-1], log.sum(), rtol=1e-9)


def test_the_best_by_bic_is_kept_and_answers(estimator):
    # as mclust and scikit-learn find on iris
    assert estimator.n_components_ == 2 and estimator.means_.shape == (2, 4)
    np.testing.assert_allclose(estimator.bic(X), estimator.table_.bic.min())
    assert set(estimator.predict(X)) == {0, 1}
    with pytest.raises(probml.ModelError, match="criterion"):
        clone(estimator).set_params(criterion="best").fit(X)


@pytest.mark.slow
def test_a_masked_model_stops_where_the_smaller_one_does(estimator):
    """EM from the end of the grid's fit, in the model of that size alone, has nothing left to
    gain."""
    for k in (2, 3):
        fit = estimator.fits_[k]
        again = gaussian_mixture(k, 4).fit({"x": X}, probml.EM(prior=False, tolerance=1e-8),
                                           start=fit.params)
        assert abs(again.history[-1] - fit.history[-1]) < 1e-3
        assert again.history[0] == pytest.approx(fit.history[-1], abs=1e-6)


@pytest.mark.slow
def test_the_posterior_mode_is_found_by_the_same_program():
    models = {k: gaussian_mixture(k, 4, "diagonal") for k in (2, 4)}
    engine = probml.EM(restarts=8, tolerance=1e-9)
    fits = grid(models, {"x": X}, "z", engine, seed=1)
    for k, model in models.items():
        alone = model.fit({"x": X}, engine, seed=1)
        assert fits[k].log_prob({"x": X}).sum() > alone.log_prob({"x": X}).sum() - 2.0
        joint = model.log_density({"x": X}, fits[k].params)
        assert np.isfinite(joint) and fits[k].converged


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*the largest value tried:UserWarning")  # short ranges
def test_unseen_cells_and_weights_go_with_it():
    holes = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    weights = np.random.default_rng(1).integers(1, 3, 150)
    estimator = GaussianMixture([1, 2], covariance_type="diag", n_init=2).fit(holes,
                                                                              sample_weight=weights)
    twice = GaussianMixture([1, 2], covariance_type="diag",
                            n_init=2).fit(np.repeat(holes, weights, 0))
    np.testing.assert_allclose(estimator.table_.loglik[0], twice.table_.loglik[0], rtol=1e-6)
    np.testing.assert_allclose(estimator.table_.bic[0], twice.table_.bic[0], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*the largest value tried:UserWarning")  # short ranges
def test_other_mixtures_and_other_priors_choose_too():
    answers = (X > X.mean(0)).astype(int)
    estimator = LatentClass([1, 2, 3], n_init=2, criterion="icl").fit(answers)
    assert estimator.n_components_ in (2, 3) and len(estimator.table_) == 3
    # one by one: masks need a flat prior
    spread = GaussianMixture([1, 2], concentration=2.0, covariance_type="spherical").fit(X)
    assert spread.n_components_ == 2


def test_bad_lists_are_refused():
    for wrong in ([], [0, 1], [1.5]):
        with pytest.raises(probml.ModelError, match="n_components"):
            GaussianMixture(wrong).fit(X)
    with pytest.raises(probml.DataError, match="components"):
        GaussianMixture(range(1, 200)).fit(X)
    with pytest.raises(probml.ModelError, match="means_init"):
        GaussianMixture([1, 2], means_init=X[:2]).fit(X)
