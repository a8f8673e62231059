"""Idioms of NumPyro's users that were refused, or read otherwise than they were meant."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import handlers, plate, sample
from scipy.stats import norm

import probml
from plain_numpyro import log_density

RNG = np.random.default_rng(4)


def test_a_function_that_masks_unseen_cells_by_numpy_is_taken_as_it_is():
    def masked(y):
        m, s = sample("m", dist.Normal(0.0, 1.0)), sample("s", dist.HalfNormal(1.0))
        there = ~np.isnan(np.asarray(y))
        with plate("n", len(y)), handlers.mask(mask=there):
            sample("o", dist.Normal(m, s), obs=jnp.where(there, np.nan_to_num(y), 0.0))

    y = np.where(RNG.uniform(size=9) < 0.3, np.nan, RNG.normal(size=9))
    y[2] = np.nan
    p = {"m": 0.3, "s": 0.8}
    want = log_density(masked, (y,), {}, p)
    np.testing.assert_allclose(probml.model(masked)().log_density({"y": y}, p), want, rtol=1e-10)


def test_a_plate_along_the_second_axis_of_what_is_observed_is_not_read_as_rows():
    def slopes(y, x):
        tau = sample("tau", dist.HalfNormal(1.0))
        with plate("subject", 3, dim=-2):
            ab = sample("ab", dist.MultivariateNormal(jnp.zeros(2), tau * jnp.eye(2)))
            with plate("time", len(x), dim=-1):
                sample("y", dist.Normal(ab[..., 0] + ab[..., 1] * x, 0.5), obs=y)

    data = {"y": RNG.normal(size=(3, 5)), "x": RNG.normal(size=5)}
    p = {"tau": np.array(0.7), "ab": RNG.normal(size=(3, 1, 2))}
    want = log_density(slopes, (), data, p)
    np.testing.assert_allclose(probml.model(slopes)().log_density(data, p), want, rtol=1e-10)


def test_a_distribution_that_holds_a_function_of_parameters_has_its_density():
    def diffusion(y):
        k, s = sample("k", dist.LogNormal(-1.0, 0.5)), sample("s", dist.HalfNormal(1.0))
        pull = lambda x: -k * x  # noqa: E731
        x = sample("x", dist.EulerMaruyama(t=jnp.arange(6) * 0.1, init_dist=dist.Normal(0.0, 1.0),
                                           sde_fn=lambda x, t: (pull(x), s)))
        sample("y", dist.Normal(x, 0.5), obs=y)

    y, p = RNG.normal(size=6), {"k": 0.4, "s": 0.8, "x": RNG.normal(size=6)}
    want = log_density(diffusion, (y,), {}, p)
    np.testing.assert_allclose(probml.model(diffusion)().log_density({"y": y}, p), want, rtol=1e-9)


def test_the_ends_of_a_censored_interval_need_not_be_values_of_what_is_censored():
    """The end that a flag leaves out is anything; NumPyro states the support of the number between
    the ends, which is no support of the ends."""
    def visits(y, left, right):
        m, s = sample("m", dist.Normal(0.0, 1.0)), sample("s", dist.HalfNormal(1.0))
        with plate("n", len(y)):
            base = dist.LogNormal(m, s)
            sample("y", dist.IntervalCensoredDistribution(base, left, right), obs=y)

    @probml.model
    def by_rows(left, right):
        m, s = sample("m", dist.Normal(0.0, 1.0)), sample("s", dist.HalfNormal(1.0))
        with probml.rows():
            sample("y", dist.IntervalCensoredDistribution(dist.LogNormal(m, s), left, right))

    low = np.exp(RNG.normal(size=8))
    left, right = np.arange(8) % 4 == 1, np.arange(8) % 4 == 2
    data = {"y": np.stack([np.where(left, -1.0, low), low + 1.0], -1), "left": left, "right": right}
    p = {"m": 0.3, "s": 0.8}
    f = lambda x: norm.cdf((np.log(x) - 0.3) / 0.8)  # noqa: E731
    mass = np.where(left, f(low + 1), np.where(right, 1 - f(low), f(low + 1) - f(low)))
    want = np.log(mass).sum() + norm.logpdf(0.3) + np.log(2) + norm.logpdf(0.8)
    for model in (probml.model(visits)(), by_rows()):
        np.testing.assert_allclose(model.log_density(data, p), want, rtol=1e-6)
    np.testing.assert_allclose(by_rows().at(p).log_prob(data), np.log(mass), rtol=1e-5)


def counted(x, g, y=None):
    groups = len(np.unique(g))
    with plate("groups", groups):
        level = sample("level", dist.Normal(0.0, 3.0))
    with plate("rows", len(x)):
        sample("y", dist.Normal(level[g] + x, 1.0), obs=y)


TREES = np.array(["oak", "ash", "elm"], object)[np.arange(12) % 3]
TABLE = pd.DataFrame({"x": RNG.normal(size=12), "g": TREES, "y": RNG.normal(size=12)})


def test_groups_that_the_function_counts_are_rows_in_the_users_labels_beside_further_columns():
    more = TABLE.assign(name=[f"tree {i}" for i in range(12)],
                        when=pd.date_range("2026-01-01", periods=12))
    model = probml.model(counted)()
    fit = model.fit(more)
    assert [name for name in fit.summary().index if "[" in name] == [
        "level[ash]", "level[elm]", "level[oak]"]
    codes = {"x": TABLE["x"], "g": np.unique(TREES.astype(str), return_inverse=True)[1],
             "y": TABLE["y"]}
    p = {"level": np.array([0.1, -0.3, 0.4])}
    want = log_density(counted, (), {k: np.asarray(v) for k, v in codes.items()}, p)
    named = {"g": ["ash", "elm", "oak"]}
    np.testing.assert_allclose(model.log_density(more, p, named), want, rtol=1e-10)
    with pytest.raises(probml.DataError, match=r"integer codes without labels.* labels="):
        model.log_density(more, p)
    old = fit.predict(more.drop(columns="y"))
    np.testing.assert_allclose(fit.predict(more.drop(columns=["y", "name"])), old)
    with pytest.raises(probml.ModelError, match="Omit from the data the column that you want to predict, one of"):
        fit.predict(more)


def test_a_column_that_may_be_meant_is_named_and_an_unseen_group_too():
    model = probml.model(counted)()
    with pytest.raises(probml.DataError, match=r"'Y' is neither .* Did you mean 'y'\?"):
        model.fit(TABLE.rename(columns={"y": "Y"}))
    with pytest.raises(probml.DataError, match="'g' is used as an index, but is missing in row 0"):
        model.fit(TABLE.assign(g=[None, *TREES[1:]]))


def test_categories_keep_their_order_where_nothing_is_rows():
    def rated(y=None):
        cut = sample("cut", dist.TransformedDistribution(
            dist.Normal(0.0, 2.0).expand([2]).to_event(1), dist.transforms.OrderedTransform()))
        with plate("n", len(y)):
            bent = sample("bent", dist.Normal(0.0, 1.0))
            sample("y", dist.OrderedLogistic(bent, cut), obs=y)

    y = pd.Categorical(["low", "high", "mid", "low"], ["low", "mid", "high"], ordered=True)
    p = {"cut": np.array([-0.5, 1.0]), "bent": RNG.normal(size=4)}
    want = log_density(rated, (np.array([0, 2, 1, 0]),), {}, p)
    np.testing.assert_allclose(probml.model(rated)().log_density({"y": y}, p), want, rtol=1e-10)


def test_labels_given_in_part_by_an_argument_are_summed_out_where_they_are_not():
    def mixture(x, z=None):
        w = sample("w", dist.Dirichlet(jnp.ones(2)))
        with plate("components", 2):
            m = sample("m", dist.Normal(0.0, 3.0))
        with plate("n", len(x)):
            k = sample("z", dist.Categorical(w), obs=z)
            sample("x", dist.Normal(m[k], 1.0), obs=x)

    x, p = RNG.normal(size=5), {"w": np.array([0.3, 0.7]), "m": np.array([-1.0, 2.0])}
    both = [log_density(mixture, (), {"x": x, "z": np.array([0, a, 1, b, 1])}, p)
            for a in (0, 1) for b in (0, 1)]
    labels = ["no", None, "yes", None, "yes"]
    for z in (np.array([0, np.nan, 1, np.nan, 1]), labels, pd.Series(labels)):
        names = {} if isinstance(z, np.ndarray) else {"z": ("no", "yes")}
        got = probml.model(mixture)().log_density({"x": x, "z": z}, p, names)
        np.testing.assert_allclose(got, np.logaddexp.reduce(both), rtol=1e-10)


def test_a_table_or_text_inside_an_argument_is_named_where_the_function_fails():
    def held(data):
        a = sample("a", dist.Normal(jnp.zeros(3), 1.0))
        with plate("n", len(data["y"])):
            sample("y", dist.Normal(a[data["g"]], 1.0), obs=data["y"])

    model = probml.model(held)()
    with pytest.raises(probml.DataError, match=r"'data' is a table.* def held\(x, g, y\)"):
        model.fit({"data": TABLE})
    with pytest.raises(probml.DataError, match="'data' contains the text column 'g'. Make"):
        model.fit({"data": {"g": TREES, "y": TABLE["y"].to_numpy()}})


def test_spreads_alike_of_which_what_is_observed_takes_one_are_a_hierarchy_like_others():
    def nested(y):
        a, b, _ = y.shape
        above, within, noise = (sample(name, dist.HalfNormal(1.0)) for name in "abs")
        with plate("A", a, dim=-3):
            first = sample("first", dist.Normal(0.0, above))
            with plate("B", b, dim=-2):
                second = sample("second", dist.Normal(first, within))
                with plate("C", 2, dim=-1):
                    sample("y", dist.Normal(second, noise), obs=y)

    found = probml.model(nested)().explain({"y": RNG.normal(size=(3, 4, 2))})
    roles = {row["site"]: row["role"] for row in found.sites}
    assert any("scale of" in role for role in roles.values())
    assert [r["engine"] for r in found.engines if r[""].startswith("chosen")] == ["Laplace"]


def matches(home, away, won):
    with plate("teams", 3):
        strength = sample("strength", dist.Normal(0.0, 1.0))
    numpyro.factor("all", dist.Bernoulli(logits=strength[home] - strength[away])
                   .log_prob(won).sum())


def test_texts_of_one_axis_share_their_labels_where_nothing_is_rows():
    home, away = np.array([0, 1, 0, 1]), np.array([1, 2, 2, 2])  # by themselves 0, 1 and 0, 1
    teams, won = np.array(["ash", "elm", "oak"]), np.array([1.0, 0.0, 1.0, 1.0])
    text, p = {"home": teams[home], "away": teams[away], "won": won}, {"strength": RNG.normal(size=3)}
    model, names = probml.model(matches)(), {"home": tuple(teams), "away": tuple(teams)}
    want = log_density(matches, (home, away, won), {}, p)
    np.testing.assert_allclose(model.log_density(text, p, names), want, rtol=1e-10)
    fit = model.fit(text)
    assert list(fit.summary().index) == [f"strength[{team}]" for team in teams]
    with pytest.raises(probml.ModelError, match="'home' has the label 'fir', which is not one of its labels"):
        fit.simulate(home=["fir"], away=["elm"], won=won[:1])
    with pytest.raises(probml.Refusal, match="no plate of independent rows"):
        fit.predict({"home": ["elm"], "away": ["oak"]})


def test_codes_of_texts_that_a_function_takes_as_numbers_are_not_mixed_up():
    def counted_twice(home, away, won):
        teams = int(max(np.asarray(home).max(), np.asarray(away).max())) + 1
        strength = sample("strength", dist.Normal(jnp.zeros(teams), 1.0))
        numpyro.factor("all", (won * (strength[home] - strength[away])).sum())

    data = {"home": ["ash", "elm"], "away": ["elm", "oak"], "won": np.ones(2)}
    with pytest.raises(probml.DataError, match="text with some common labels, 'elm'"):
        probml.model(counted_twice)().fit(data)
    with pytest.raises(probml.DataError, match="may be text only if the model uses it as an index"):
        probml.model(lambda x: numpyro.factor("f", x.sum() * sample("b", dist.Normal(0.0, 1.0))))(
        ).fit({"x": ["high", "low"]})
