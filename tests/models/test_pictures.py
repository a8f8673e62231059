"""The pictures show the numbers of the fit: curves, ellipses, bars, tables, counts; bad input is
refused by name."""

import sys

import numpy as np
import pandas as pd
import pytest

matplotlib = pytest.importorskip("matplotlib")
metrics = pytest.importorskip("sklearn.metrics")

import probml  # noqa: E402
from probml.models import (  # noqa: E402
    GaussianDiscriminant,
    GaussianMixture,
    LatentClass,
    MixtureDiscriminant,
    NaiveBayes,
    PoissonMixture,
    gaussian_mixture,
    pictures,
)
from probml.models.pictures.canvas import COLOURS  # noqa: E402

nan = np.nan
NAMES = ["length_mm", "weight_g"]


def blobs(n=120, seed=0):
    random = np.random.default_rng(seed)
    z = random.integers(2, size=n)
    x = np.array([[0.0, 0.0], [4.0, 2.0]])[z] + random.normal(size=(n, 2)) @ np.array(
        [[1.0, 0.5], [0.0, 0.7]]
    )
    return pd.DataFrame(x, columns=NAMES), np.array(["small", "large"])[z]


@pytest.fixture(scope="module")
def table():
    return blobs()[0]


@pytest.fixture(scope="module")
def mixture(table):
    return GaussianMixture(2, random_state=0).fit(table)


def lines(ax):
    return {line.get_label(): line.get_xydata() for line in ax.get_lines()}


def saved(ax, tmp_path):
    """Drawn to the end, as a user would."""
    path = tmp_path / "picture.png"
    ax.figure.savefig(path)
    return path.stat().st_size > 5000


def test_a_density_is_the_sum_of_its_components_and_integrates_to_one(mixture, table, tmp_path):
    ax = pictures.density(mixture, table, "weight_g")
    drawn = lines(ax)
    grid, total = drawn.pop("mixture").T
    assert len(drawn) == 2 and ax.get_xlabel() == "weight_g" and ax.get_ylabel() == "density"
    np.testing.assert_allclose(sum(part[:, 1] for part in drawn.values()), total, atol=1e-12)
    mean, var = mixture.means_[:, 1], mixture.covariances_[:, 1, 1]
    expected = np.exp(
        -0.5 * (grid[:, None] - mean) ** 2 / var
    ) / np.sqrt(2 * np.pi * var) @ mixture.weights_
    np.testing.assert_allclose(total, expected, rtol=1e-9)
    bars = ax.patches
    np.testing.assert_allclose(sum(bar.get_height() * bar.get_width() for bar in bars), 1.0)
    assert saved(ax, tmp_path)


def test_a_density_of_counts_is_a_probability_at_every_count():
    counts = np.random.default_rng(0).poisson([[2.0], [9.0]] * 40).reshape(-1, 1)
    estimator = PoissonMixture(2, random_state=0).fit(counts)
    grid, total = lines(pictures.density(estimator, counts))["mixture"].T
    np.testing.assert_array_equal(grid, np.arange(counts.min(), counts.max() + 1))
    np.testing.assert_allclose(total, np.exp(estimator.score_samples(grid[:, None])), rtol=1e-9)


def test_a_fit_is_drawn_as_an_estimator_is(mixture, table):
    x = table.to_numpy()
    fit = gaussian_mixture(2, 2).at(mixture.fit_.params)
    for ours, theirs in (
        (pictures.density(fit, {"x": x}, 1), pictures.density(mixture, table, 1)),
        (pictures.ellipses(fit, {"x": x}), pictures.ellipses(mixture, table)),
    ):
        for a, b in zip(ours.get_lines(), theirs.get_lines(), strict=True):
            np.testing.assert_allclose(a.get_xydata(), b.get_xydata())
    assert ours.get_xlabel() == "x[0]" and theirs.get_xlabel() == "length_mm"


def axes_of(edge, mean):
    """The half axes of a drawn ellipse, squared: the eigenvalues of its matrix."""
    distance = ((edge - mean) ** 2).sum(1)
    return distance.min(), distance.max()


@pytest.mark.parametrize("covariance",
                         ["full", "tied", "diag", "spherical", "tied diag", "tied spherical"])
def test_ellipses_have_the_eigenvalues_of_the_covariance(table, covariance):
    estimator = GaussianMixture(2, covariance_type=covariance, random_state=0).fit(table)
    ax = pictures.ellipses(estimator, table, sd=(1, 3))
    drawn = [line.get_xydata() for line in ax.get_lines()]
    assert len(drawn) == 4 and (ax.get_xlabel(), ax.get_ylabel()) == tuple(NAMES)
    whole = {
        "full": lambda c: c,
        "tied": lambda c: np.stack([c, c]),
        "diag": lambda c: c[:, :, None] * np.eye(2),
        "spherical": lambda c: c[:, None, None] * np.eye(2),
        "tied diag": lambda c: np.stack([np.diag(c)] * 2),
        "tied spherical": lambda c: np.stack([c * np.eye(2)] * 2),
    }[covariance](estimator.covariances_)
    for j in range(2):
        for size, edge in zip((1, 3), drawn[2 * j : 2 * j + 2], strict=True):
            expected = size**2 * np.linalg.eigvalsh(whole[j])
            # the ellipse has 181 corners
            np.testing.assert_allclose(axes_of(edge, estimator.means_[j]), expected, rtol=2e-3)


def test_points_have_the_mixed_colours_of_their_probabilities_and_torn_rows_are_ticks(
    mixture, table, tmp_path
):
    torn = table.copy()
    torn.loc[3, "weight_g"] = nan
    torn.loc[7, "length_mm"] = nan
    ax = pictures.ellipses(mixture, torn)
    points, ticks_x, ticks_y = ax.collections
    colours = np.array([matplotlib.colors.to_rgb(c) for c in COLOURS[:2]])
    np.testing.assert_allclose(points.get_facecolors()[:, :3],
                               mixture.predict_proba(torn) @ colours, atol=1e-9)
    assert (ticks_x.get_offsets()[0, 0] == torn.loc[3, "length_mm"]
            and ticks_y.get_offsets()[0, 1] == torn.loc[7, "weight_g"])
    assert saved(ax, tmp_path)


@pytest.mark.slow
def test_the_ellipses_of_a_classifier_bear_the_names_of_its_classes():
    x, y = blobs()
    ax = pictures.ellipses(GaussianDiscriminant().fit(x, y), x)
    assert [text.get_text() for text in ax.texts] == ["large", "small"]
    ax = pictures.ellipses(MixtureDiscriminant(2, random_state=0).fit(x, y), x, sd=(1,))
    assert [text.get_text() for text in ax.texts] == ["large", "large", "small",
                                                      "small"] and len(ax.get_lines()) == 4


def test_responsibilities_are_stacked_sorted_and_add_up_to_one(mixture, table, tmp_path):
    ax = pictures.responsibilities(mixture, table)
    probability = mixture.predict_proba(table)
    best = probability.argmax(1)
    order = np.lexsort((-probability.max(1), best))
    lowest, highest = (collection.get_paths()[0].vertices[:, 1] for collection in ax.collections)
    assert highest.max() == pytest.approx(1.0) and lowest.min() == 0.0
    for i, row in enumerate(order):
        assert np.isclose(lowest, probability[row, 0]).any(), i
    assert saved(ax, tmp_path)


def test_a_profile_writes_the_parameters_and_colours_how_far_they_are_apart(tmp_path):
    random = np.random.default_rng(1)
    _, y = blobs()
    table = pd.DataFrame({"sex": random.choice(
        ["f", "m"], 120
    ), "site": random.choice(["a", "b", "c"], 120), "x": random.normal(size=120)})
    table.loc[y == "large", "x"] += 3.0
    estimator = NaiveBayes(kinds={"x": "normal"}).fit(table, y)
    ax = pictures.profile(estimator)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["sex = m", "site = a", "site = b",
                                                                  "site = c", "x"]
    assert [tick.get_text().split("\n")[0] for tick in ax.get_xticklabels()] == ["large", "small"]
    tables = estimator.tables_
    expected = np.vstack([tables["sex"]["probs"][:, 1], tables["site"]["probs"].T])
    written = np.array([float(text.get_text()) for text in ax.texts]).reshape(5, 2)
    np.testing.assert_allclose(written[:4], expected, atol=0.005)
    np.testing.assert_allclose(written[4], tables["x"]["mean"], rtol=5e-3)
    shown, w = ax.images[0].get_array()[1], estimator.class_prior_
    overall = expected[1] @ w
    np.testing.assert_allclose(shown, (expected[1] - overall) / np.sqrt(overall * (1 - overall)),
                               atol=1e-9)
    assert saved(ax, tmp_path)


@pytest.mark.slow
def test_every_kind_of_estimator_has_a_profile(mixture, table):
    codes = np.random.default_rng(0).integers(3, size=(60, 2))
    assert len(pictures.profile(LatentClass(2, random_state=0).fit(codes)).get_yticks()) == 6
    rates = pictures.profile(PoissonMixture(2, random_state=0).fit(codes))
    assert [tick.get_text() for tick in rates.get_yticklabels()] == ["0", "1"]
    kinds = {0: "bernoulli", 1: "geometric", 2: "exponential", 3: "multinomial", 4: "multinomial"}
    X = np.column_stack([codes[:, 0] % 2, codes[:, 1], codes[:, 0] + 0.5, codes])
    estimator = NaiveBayes(kinds=kinds).fit(X, codes[:, 0] > 0)
    written = np.array([float(text.get_text()) for text in pictures.profile(estimator).texts]).reshape(5,
                                                                                                  2)
    tables, atol = estimator.tables_, 0.006
    np.testing.assert_allclose(written[0], tables[0]["probs"], atol=atol)
    np.testing.assert_allclose(written[1], 1 / tables[1]["probs"] - 1, atol=atol)
    np.testing.assert_allclose(written[2], 1 / tables[2]["rate"], atol=atol)
    np.testing.assert_allclose(written[3:], [tables[3]["probs"], tables[4]["probs"]], atol=atol)
    ax = pictures.profile(mixture)
    np.testing.assert_allclose([float(t.get_text()) for t in ax.texts], mixture.means_.T.ravel(),
                               atol=0.01)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == NAMES


def test_a_confusion_counts_as_scikit_learn_counts(tmp_path):
    random = np.random.default_rng(0)
    truth, found = random.choice(["a", "b", "c"], 80), random.choice(["a", "c"], 80)
    ax = pictures.confusion(truth, found)
    drawn = np.array([int(text.get_text()) for text in ax.texts]).reshape(3, 3)
    np.testing.assert_array_equal(drawn, metrics.confusion_matrix(truth, found))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("predicted", "true")
    turned = pictures.confusion(truth, found, labels=["c", "b", "a"])
    np.testing.assert_array_equal([int(text.get_text()) for text in turned.texts],
                                  drawn[::-1, ::-1].ravel())
    clusters = pictures.confusion([*truth, None], [*random.integers(2, size=80), 1])
    assert [tick.get_text() for tick in clusters.get_xticklabels()] == ["0", "1"] and len(
        clusters.texts
    ) == 6
    # a row without its truth is left out
    assert sum(int(text.get_text()) for text in clusters.texts) == 80
    assert saved(ax, tmp_path)


def test_choosing_draws_the_table_and_rings_the_best(tmp_path):
    table = pd.DataFrame({"n_components": [2, 1, 3], "bic": [90.0, 100.0, 95.0],
                          "icl": [96.0, 100.0, 99.0], "score": [-2.0, -3.0, -1.5]})
    ax = pictures.choosing(table)
    np.testing.assert_array_equal(lines(ax)["BIC: best at 2"], [[1, 100], [2, 90], [3, 95]])
    held = next(other for other in ax.figure.axes if other is not ax)
    np.testing.assert_array_equal(lines(held)["held-out score: best at 3"],
                                  [[1, -3], [2, -2], [3, -1.5]])
    alone = pictures.choosing(table.set_index("n_components")[["score"]])
    assert "higher" in alone.get_ylabel() and saved(ax, tmp_path)


@pytest.mark.slow
def test_choosing_takes_the_table_of_an_estimator_fitted_with_a_range(table):
    estimator = GaussianMixture(range(1, 4), random_state=0).fit(table)
    found = lines(pictures.choosing(estimator.table_))
    np.testing.assert_array_equal(found[f"BIC: best at {estimator.n_components_}"][:, 1],
                                  estimator.table_["bic"])


def test_pictures_are_drawn_where_they_are_told_to_and_leave_no_state(mixture, table):
    pyplot = sys.modules.get("matplotlib.pyplot")
    before = pyplot and pyplot.get_fignums()
    ax = matplotlib.figure.Figure().subplots()
    assert (
        pictures.density(mixture, table, ax=ax) is ax
        and pictures.choosing(pd.DataFrame({"n_components": [1], "bic": [1.0]}), ax=ax) is ax
    )
    assert (pyplot and pyplot.get_fignums()) == before


def test_a_picture_is_pyplots_where_pyplot_is_loaded(monkeypatch):
    table = pd.DataFrame({"n_components": [1, 2], "bic": [2.0, 1.0]})
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
        assert pictures.choosing(table).figure.canvas.manager is None
    import matplotlib.pyplot as plt

    assert pictures.choosing(table).figure is plt.gcf()


@pytest.mark.slow
def test_more_components_than_named_colours_have_colours_of_their_own(table):
    estimator = GaussianMixture(9, covariance_type="tied spherical", random_state=0).fit(table)
    assert len(
        {line.get_color().tobytes() for line in pictures.ellipses(estimator, table, sd=(1,)).get_lines()}
    ) == 9


MIXED = pd.DataFrame({"a": ["x", "y"] * 10, "b": np.arange(20.0)})
REFUSED = {
    "not fitted": (lambda m, x: pictures.density(GaussianMixture(2), x), "fitted",
                   "GaussianMixture"),
    "an array for a Fit": (lambda m, x: pictures.density(m.fit_, x), "mapping"),
    "a column that is not there": (lambda m, x: pictures.density(m, x, "height"), "'height'",
                                   "weight_g"),
    "an index that is not there": (lambda m, x: pictures.ellipses(m, x, (0, 2)), "2", "weight_g"),
    "one column": (lambda m, x: pictures.ellipses(m, x, "length_mm"), "two columns"),
    "no normals": (lambda m, x: pictures.ellipses(LatentClass(2, random_state=0).fit(x.round()),
                                                  x.round()), "Gaussian mixture", "profile"),
    "text": (lambda m, x: pictures.density(NaiveBayes().fit(MIXED, MIXED["a"]), MIXED), "numbers"),
    "nothing seen": (lambda m, x: pictures.density(m, x.assign(length_mm=nan)), "length_mm",
                     "observed"),
    "lengths": (lambda m, x: pictures.confusion([1, 2], [1]), "(2,)", "(1,)"),
    "a label that is not listed": (
        lambda m, x: pictures.confusion(["a", "b"], ["a", "c"], labels=["a", "b"]), "'c'"
    ),
    "no criterion": (lambda m, x: pictures.choosing(
        pd.DataFrame({"n_components": [1, 2], "aic": [1, 2]})
    ), "'bic'", "aic"),
    "several normals in a class": (
        lambda m, x: pictures.profile(
            MixtureDiscriminant(2, random_state=0).fit(x, np.arange(len(x)) % 2)
        ),
        "several components",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_by_name(mixture, table, case):
    call, *words = REFUSED[case]
    with pytest.raises((probml.ModelError, probml.DataError)) as error:
        call(mixture, table)
    for word in words:
        assert word in str(error.value), str(error.value)


def test_the_colours_of_the_pictures_are_public_and_apart():
    from probml.models.pictures import COLOURS

    assert len(set(COLOURS)) == len(COLOURS) >= 7
