"""MAP's climbs end at the maximum whatever the units of coordinates are, and say of a ridge that
the data tell that they do."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from coded import codes
from probml.numerics.optimum import Optimum
from probml.numerics.refinement import refine

RNG = np.random.default_rng(1)
G = np.arange(60) % 5
X = np.arange(60.0) - 30
Y = 3 + 0.02 * X + 0.3 * G + 0.1 * RNG.normal(size=60)


def optimum(evaluate, u):
    """A point of a function that nothing maximises from elsewhere."""
    return Optimum(lambda u, steps: (u, *evaluate(u)), u)


@probml.model
def intercepts(x, g, groups, unit=1.0):
    level = sample("level", dist.Normal(0.0, 1e6 * unit))
    slope = sample("slope", dist.Normal(0.0, 10.0 * unit))
    spread, noise = sample("spread", dist.HalfNormal(unit)), sample("noise", dist.HalfNormal(unit))
    with plate("group", groups):
        own = sample("own", dist.Normal(0.0, spread))
    with probml.rows():
        sample("y", dist.Normal(level + slope * x + own[g], noise))


@pytest.mark.parametrize(("at", "unit"), [(738_060.0, 1.0), (20_000.0, 1.0), (0.0, 1e9)])
def test_neither_an_offset_of_an_input_nor_the_unit_of_what_is_seen_matters(at, unit):
    near = intercepts(groups=5).fit({"x": X, "g": G, "y": Y}, probml.MAP(prior=False)).params
    fit = intercepts(groups=5, unit=unit).fit({"x": X + at, "g": G, "y": unit * Y},
                                              probml.MAP(prior=False))
    assert fit.converged and "not-identified" not in codes(fit)
    for name in ("slope", "spread", "noise"):
        assert fit.params[name] / unit == pytest.approx(near[name], rel=1e-3)


@probml.model
def line(x):
    level, slope = sample("level", dist.Normal(0.0, 1e6)), sample("slope", dist.Normal(0.0, 10.0))
    noise = sample("noise", dist.HalfNormal(1.0))
    with probml.rows():
        sample("y", dist.Normal(level + slope * x, noise))


@pytest.mark.parametrize("prior", [True, False])
@pytest.mark.parametrize("at", [2005.0, 738_060.0])
def test_a_line_beside_dates_is_least_squares_and_no_direction_is_said_to_be_untold(at, prior):
    fit = line().fit({"x": X + at, "y": Y}, probml.MAP(prior=prior))
    slope, level = np.polyfit(X, Y, 1)
    assert fit.converged and "not-identified" not in codes(fit)
    assert fit.params["slope"] == pytest.approx(slope, rel=1e-3)
    assert fit.predict({"x": [at]}, "y")[0] == pytest.approx(level, rel=1e-3)


def test_nearly_collinear_columns_are_taken_to_double_before_a_word_is_said():
    """Longley's kind of table: what float32 cannot tell is not said to be untold."""
    @probml.model
    def plane(x):
        b = sample("b", dist.Normal(0.0, 1e3).expand([2]).to_event(1))
        with probml.rows():
            sample("y", dist.Normal(x @ b, 1.0))

    x = np.stack([1000 + X, 1000 + X + 1e-2 * np.cos(7 * X)], 1)
    y = x @ [2.0, -1.0] + RNG.normal(size=60)
    with jax.enable_x64(False):
        fit = plane().fit({"x": x, "y": y}, probml.MAP(prior=False))
    assert "not-identified" not in codes(fit) and "float32-to-float64" in codes(fit)
    np.testing.assert_allclose(fit.params["b"], np.linalg.lstsq(x, y)[0], rtol=1e-3)


def test_a_column_twice_is_still_told():
    @probml.model
    def both(x):
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with probml.rows():
            sample("y", dist.Normal(b[0] * x + b[1] * (2 * x), 1.0))

    fit = both().fit({"x": X, "y": Y}, probml.MAP(prior=False))
    assert "not-identified" in codes(fit)


def parabola(curvature, top):
    """What a climb asks of −½ (u − top)ᵀ H (u − top)."""
    def evaluate(u):
        away = np.asarray(u, float) - top
        slope = curvature @ away
        return float(-0.5 * away @ slope), slope

    return evaluate


def test_widths_of_a_billion_and_ridges_of_a_billionth_are_climbed():
    top = np.array([1.5e9, -2.0, 3e-5])
    wide = np.array([1e9, 1.0, 1e-6])
    near = np.array([[1.0, 1 - 1e-9, 0.0], [1 - 1e-9, 1.0, 0.0], [0.0, 0.0, 1.0]])
    end, heights, gain = refine(optimum(parabola(near / wide[:, None] / wide, top),
                                            np.zeros(3)))
    assert heights[-1] > -1e-8 and gain < 1e-8 and len(heights) > 1
    np.testing.assert_allclose((end.point - top) / wide, 0.0, atol=1e-3)


def test_an_end_at_the_maximum_stays_where_it_is():
    top, calls = np.array([0.3, -2.0]), []
    evaluate = parabola(np.array([[4.0, 1.0], [1.0, 2.0]]), top)

    def counted(u):
        calls.append(u)
        return evaluate(u)

    end, heights, _ = refine(optimum(counted, top))
    assert end.point is top and len(heights) == 1 and len(calls) <= 1 + 2 + 8


def test_a_posterior_is_begun_at_the_priors_point_where_draws_have_no_density():
    @probml.model
    def rates(x):
        level = sample("level", dist.Normal(0.0, 1e4))
        slope = sample("slope", dist.Normal(0.0, 10.0))
        with probml.rows():
            sample("y", dist.Poisson(jnp.exp(level + slope * x)))

    y, x = np.arange(12) % 5, np.arange(12.0) + 20_000  # exp(−0.1 · 20,000) is 0
    fit = rates().fit({"x": x, "y": y}, probml.Laplace())
    mode = rates().fit({"x": x, "y": y}, probml.MAP())
    deviation = fit.draws(1000)["slope"].std()
    assert abs(fit.params["slope"] - mode.params["slope"]) < 0.1 * deviation


def test_laplace_has_the_same_widths_beside_dates_as_about_their_middle():
    """Level and slope are 10⁻⁹ apart from a line there: the curvature is taken until it is told."""
    y = {"y": Y}
    near = line().fit({"x": X, **y}, probml.Laplace()).draws(2000, seed=0)
    for at, float64 in ((738_060.0, True), (20_000.0, False)):
        with jax.enable_x64(float64):
            fit = line().fit({"x": X + at, **y}, probml.Laplace())
            far = fit.draws(2000, seed=0)
        assert "from the mode" not in fit.status and "rely" not in fit.status
        for name, tolerance in (("slope", 0.1), ("noise", 0.1)):
            assert np.std(far[name]) == pytest.approx(np.std(near[name]), rel=tolerance)
            assert np.mean(far[name]) == pytest.approx(np.mean(near[name]), rel=0.01)


def test_a_first_look_at_a_maximum_is_few_slopes_and_sees_what_is_none():
    bends, calls = np.array([[4.0, 1.0], [1.0, 2.0]]), []

    def count(top, curvature, end):
        evaluate = parabola(curvature, top)
        calls.clear()
        return refine(optimum(lambda u: (calls.append(u), evaluate(u))[1], end))[2]

    top = np.array([0.3, -2.0])
    assert count(top, bends, top.copy()) < 1e-12 and len(calls) == 4
    count(top, bends, top + 1e-3)
    assert len(calls) > 8  # something is left to gain
    wide = np.array([1e9, 1.0])
    count(top, bends / wide[:, None] / wide, top + 0.1 * wide)
    assert len(calls) > 8
