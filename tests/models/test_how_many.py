"""The criteria of how_many, each held to its formula, and what they say of groups that are there."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

from probml import VB, DataError, ModelError
from probml.models import GaussianMixture, how_many
from probml.models.mixtures.counting import _first_gap, _gaps


@pytest.fixture(scope="module")
def groups():
    random = np.random.default_rng(0)
    return np.concatenate([random.normal(m, 1.0, (30, 2)) for m in ((0, 0), (9, 0), (4.5, 7.8))])


@pytest.fixture(scope="module")
def table(groups):
    return how_many(groups, range(1, 5), covariance_type="spherical", references=5)


def test_three_groups_apart_are_three_by_every_criterion(table):
    assert isinstance(table, pd.DataFrame) and [*table.index] == [1, 2, 3, 4]
    chosen = dict(table.attrs["chosen"])
    assert {chosen[name] for name in ("bic", "icl", "gap", "silhouette_kmeans", "silhouette_ward",
                                      "bound", "sparse", "hdbscan", "mean shift")} == {3}
    # the penalty of a small component is small: five rows that lie close together pay for theirs
    assert chosen["mdl"] in (3, 4) and chosen["mdl"] == table["mdl"].idxmin()


def test_the_bound_is_that_of_each_mixture_and_its_orders(groups, table):
    most = GaussianMixture(range(1, 5), covariance_type="spherical", engine=VB()).fit(groups)
    prior = most.fit_.given  # in units of the most groups that are tried
    alone = GaussianMixture(2, covariance_type="spherical", engine=VB(), scale=prior["prior_scale"],
                            centre=prior["prior_centre"]).fit(groups)
    assert table.loc[2, "bound"] == pytest.approx(alone.fit_.bound + np.log(2), abs=1e-3)


def test_the_description_is_as_long_as_its_formula(groups, table):
    estimator = GaussianMixture(3, covariance_type="spherical").fit(groups)
    parts = [np.log(90), *(1.5 * np.log(90 * estimator.weights_))]  # two weights; two means, a spread
    expected = sum(map(np.sum, parts)) - estimator.score_samples(groups).sum()
    assert table.loc[3, "mdl"] == pytest.approx(expected, abs=0.05)


def test_a_bound_chooses_only_where_there_is_one(groups):
    estimator = GaussianMixture(range(1, 5), covariance_type="spherical", criterion="bound")
    with pytest.raises(ModelError, match="criterion='bound'.*engine=probml.VB"):
        estimator.fit(groups)
    estimator.set_params(engine=VB()).fit(groups)
    assert estimator.n_components_ == 3 and estimator.table_["bound"].idxmax() == 2


def test_so_many_components_have_rows_as_draws_of_them_say():
    """Two rows that belong to either of two with probabilities p and q share one with pq + (1 − p)(1
    − q)."""
    estimator = GaussianMixture(2, covariance_type="spherical").fit([[0.0], [0.3], [3.0], [3.4]])
    p, q = estimator.predict_proba([[1.5], [1.8]])[:, 0]
    found = estimator.occupied([[1.5], [1.8]], draws=4000)
    assert list(found.index) == [1, 2] and found.sum() == pytest.approx(1.0)
    assert found[1] == pytest.approx(p * q + (1 - p) * (1 - q), abs=0.03)
    with pytest.raises(ModelError, match="draws=0"):
        estimator.occupied([[1.5]], draws=0)


def test_distances_are_those_of_scikit_learn(groups, table):
    z = (groups - groups.mean(0)) / groups.std(0)
    peer = KMeans(2, n_init=5, random_state=0).fit(z)
    assert table.loc[2, "within"] == pytest.approx(peer.inertia_)
    assert table.loc[2, "silhouette_kmeans"] == pytest.approx(silhouette_score(z, peer.labels_))
    assert np.isnan(table.loc[1, "silhouette_kmeans"])
    mixture = GaussianMixture(2, covariance_type="spherical").fit(groups)
    assert table.loc[2, "bic"] == pytest.approx(mixture.bic(groups), rel=0.02)


def test_the_gap_of_one_group_is_that_of_a_box():
    """E* within of one group of n rows that are uniform in a box is Σ width² (n − 1) / 12."""
    random = np.random.default_rng(1)
    z = random.uniform(-1, 1, (400, 2)) * [3.0, 1.0]
    along = z @ np.linalg.svd(z, full_matrices=False)[2].T
    gap, error = _gaps(z, [1], np.array([((z - z.mean(0)) ** 2).sum()]), 10, 0)
    box = np.log((np.ptp(along, axis=0) ** 2).sum() * 399 / 12)
    assert gap[0] == pytest.approx(box - np.log(((z - z.mean(0)) ** 2).sum()), abs=0.02)
    assert 0 < error[0] < 0.1


def test_the_first_maximum_of_the_gap_is_taken_or_what_lies_within_its_error():
    """R's cluster::maxSE(method="firstSEmax")."""
    sizes, gap = [1, 2, 3, 4], np.array([0.1, 0.5, 0.52, 0.4])
    assert _first_gap(sizes, gap, np.full(4, 0.05)) == 2
    assert _first_gap(sizes, gap, np.full(4, 0.001)) == 3
    assert _first_gap(sizes, np.array([0.1, 0.2, 0.3, 0.4]), np.full(4, 0.001)) == 4
    assert _first_gap(sizes, np.array([0.3, 0.2, 0.9, 0.4]), np.full(4, 0.001)) == 1


def test_what_has_no_distances_is_refused_by_its_cell(groups):
    holed = groups.copy()
    holed[4, 1] = np.nan
    with pytest.raises(DataError, match="X is nan in row 4, column 1.*supports missing"):
        how_many(holed)
    with pytest.raises(DataError, match="has only 5 rows, which cannot form 8"):
        how_many(groups[:5])
    with pytest.raises(ModelError, match="sizes=0"):
        how_many(groups, 0)
    with pytest.raises(ModelError, match="references=1"):
        how_many(groups, references=1)
