"""Pictures along time, a covariate, iterations; intervals of parameters: what is drawn are the
numbers of the fit."""

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

pytest.importorskip("matplotlib")

import probml  # noqa: E402
from probml.models import hidden_markov, pictures  # noqa: E402

CHAIN = hidden_markov(k=2, d=1).at({
    "initial": [0.5, 0.5], "transition": [[0.9, 0.1], [0.1, 0.9]], "mean": [[0.0], [6.0]],
    "scale": [[1.0], [1.0]]})
X = np.linspace(-2.0, 2.0, 12)


@probml.model
def line(x):
    slope = sample("slope", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("y", dist.Normal(slope * x, 1.0))


@pytest.fixture(scope="module")
def fit():
    return line().fit({"x": X, "y": 2 * X}, probml.Laplace())


def test_steps_stand_in_the_colours_of_their_states():
    y = np.array([0.1, -0.2, 6.3, 5.8, 0.2])[None, :, None]
    ax = pictures.timeline(CHAIN, {"y": y})
    drawn = {artist.get_label(): artist.get_xdata().tolist() for artist in ax.lines[1:]}
    assert drawn == {"state 0, 60% of the steps": [0, 1, 4], "state 1, 40% of the steps": [2, 3]}
    assert len(ax.patches) == 3 and ax.get_xlabel() == "time step"
    with pytest.raises(probml.ModelError, match="one MarkovChain"):
        pictures.timeline(line().at({"slope": 1.0}), {"y": y})


def test_a_band_holds_the_interval_of_predictions_by_its_input(fit):
    data = {"x": X[::-1], "y": 2 * X[::-1]}
    ax = pictures.bands(fit, data, "x", "y")
    middle, low, high = fit.predict({"x": data["x"]}, "y", interval=0.9)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), middle[::-1], rtol=1e-6)
    edge = ax.collections[0].get_paths()[0].vertices
    np.testing.assert_allclose([edge[:, 1].min(), edge[:, 1].max()], [low.min(), high.max()],
                               rtol=1e-6)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "y") and len(ax.lines) == 2
    with pytest.raises(probml.DataError, match="along='z'"):
        pictures.bands(fit, data, "z")


def test_intervals_are_those_of_the_summary(fit):
    ax = pictures.intervals(fit, "slope")
    row = fit.summary().loc["slope"]
    (begin, end), = (path.vertices[:, 0] for path in ax.collections[0].get_paths())
    np.testing.assert_allclose([begin, end], [row["5%"], row["95%"]])
    assert [text.get_text() for text in ax.get_yticklabels()] == ["slope"]
    with pytest.raises(probml.ModelError, match="'tilt' is not one of .* 'slope'"):
        pictures.intervals(fit, ["tilt"])


def test_a_curve_of_learning_is_the_history(fit):
    found = line().fit({"x": X, "y": 2 * X}, probml.MAP())
    history = np.ravel(found.history)
    if history.size > 1:
        np.testing.assert_array_equal(pictures.learning(found).lines[0].get_ydata(), history)
    with pytest.raises(probml.ModelError, match="does not store the objective"):
        pictures.learning(CHAIN)
