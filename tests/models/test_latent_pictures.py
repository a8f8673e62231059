"""Pictures of numbers that nobody saw show the numbers of the fit; bad input is refused by name."""

import dataclasses

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

matplotlib = pytest.importorskip("matplotlib")

import probml  # noqa: E402
from probml.models import pictures  # noqa: E402
from probml.posteriors.units import Unit  # noqa: E402


@dataclasses.dataclass
class Told:
    """A fit as far as a picture looks at one."""

    belief: dist.Distribution

    def posterior(self, name):
        return self.belief


def test_effects_stand_in_order_with_their_bars_and_names(tmp_path):
    fit = Told(dist.Normal(np.array([2.0, -1.0, 0.1]), np.array([0.5, 0.2, 1.0])))
    ax = pictures.effects(fit, "school", labels=["Ayr", "Bath", "Cork"])
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["Bath", "Cork", "Ayr"]
    bars = np.concatenate([np.array(c.get_segments())[:, :, 0] for c in ax.collections])
    np.testing.assert_allclose(np.sort(bars, 0), np.sort(
        [[1.02, 2.98], [-1.392, -0.608], [-1.86, 2.06]], 0), atol=1e-9)
    ax.figure.savefig(tmp_path / "effects.png")
    framed = Told(dist.Normal(np.array([[2.0, 0.0], [-1.0, 0.0]]), np.ones((2, 2))))
    framed.units = {"driver": Unit(np.array([10.0, 1.0]), names={0: ("s1", "s2"), 1: ("1", "days")})}
    ax = pictures.effects(framed, "driver")
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["s2", "s1"]
    assert ax.get_xlabel() == "effect of driver on intercept, with 95% intervals"
    bars = np.concatenate([np.array(c.get_segments())[:, :, 0] for c in ax.collections
                           if c.get_segments()])
    np.testing.assert_allclose(np.sort(bars.mean(1)), [-10.0, 20.0])
    many = Told(dist.Normal(np.zeros((80, 2)), np.ones((80, 2))))
    assert not pictures.effects(many, "slope", coordinate=1).get_yticklabels()


def test_parts_have_bands_and_the_series_its_forecast(tmp_path):
    table = pd.DataFrame({"value": [1.0, 2.0, 3.0], "lower": [0.0, 1.0, 2.0],
                          "upper": [2.0, 3.0, 4.0]})
    axes = pictures.components({"level": table, "slope": table}, [1.0, np.nan, 3.0], table[:2])
    assert [ax.get_ylabel() for ax in axes] == ["series", "level", "slope"]
    np.testing.assert_allclose(axes[1].get_lines()[0].get_ydata(), table["value"])
    np.testing.assert_allclose(axes[0].get_lines()[1].get_xdata(), [3, 4])
    (band,) = axes[1].collections
    assert (band.get_paths()[0].get_extents().y0, band.get_paths()[0].get_extents().y1) == (0, 4)
    axes[0].figure.savefig(tmp_path / "components.png")


def test_a_biplot_has_a_point_a_row_and_an_arrow_a_column(tmp_path):
    random = np.random.default_rng(0)
    scores, loadings = random.normal(size=(30, 3)), random.normal(size=(4, 3))
    ax = pictures.biplot(scores, loadings, list("abcd"), groups=np.arange(30) % 2)
    assert sum(len(c.get_offsets()) for c in ax.collections) == 30
    words = {t.get_text(): t.xy for t in ax.texts if t.get_text()}
    assert set(words) == set("abcd")
    np.testing.assert_allclose(words["a"][0] * loadings[0, 1], words["a"][1] * loadings[0, 0], atol=1e-9)
    ax.figure.savefig(tmp_path / "biplot.png")


def test_what_cannot_be_drawn_is_refused_by_name():
    fit = Told(dist.Normal(np.zeros((3, 2)), np.ones((3, 2))))
    with pytest.raises(probml.ModelError, match="3 labels, one for each level of 'u', got 2"):
        pictures.effects(fit, "u", labels=["a", "b"])
    with pytest.raises(probml.ModelError, match="coordinate=2.*an integer below 2"):
        pictures.effects(fit, "u", coordinate=2)
    with pytest.raises(probml.ModelError, match="'level' has the columns.*expected"):
        pictures.components({"level": pd.DataFrame({"mean": [1.0]})})
    with pytest.raises(probml.ModelError, match="at least one component"):
        pictures.components({})
    with pytest.raises(probml.ModelError, match="same k of at least 2"):
        pictures.biplot(np.zeros((5, 1)), np.zeros((3, 1)))
