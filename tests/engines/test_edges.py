"""Ends at the edge of what can be: spreads, correlations and noise that the rows do not tell from
their boundary are told by name, however they are written; an end beside an edge that is no maximum is
left."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy import stats

import probml
from coded import about, codes
from probml.models import factor_analysis, local_level

ENGINE = probml.MAP(prior=False)
RNG = np.random.default_rng(5)
GROUP, T = np.arange(96) % 12, np.repeat(np.linspace(-1, 1, 8), 12)
OWN = RNG.normal(size=12)[GROUP]
Y = 1 + OWN + (0.5 - 0.7 * OWN) * T + 0.5 * RNG.normal(size=96)


@probml.model
def lines(group, t):
    level = sample("level", dist.Normal(0.0, 1e2).expand([2]).to_event(1))
    spread = sample("spread", dist.HalfNormal(1e1).expand([2]).to_event(1))
    noise, turn = sample("noise", dist.HalfNormal(1e1)), sample("turn", dist.LKJCholesky(2))
    with plate("groups", 12):
        own = sample("own", dist.MultivariateNormal(jnp.zeros(2), scale_tril=spread[:, None] * turn))
    with probml.rows():
        line = level + own[group]
        sample("y", dist.Normal(line[..., 0] + line[..., 1] * t, noise))


def singular(level, spread, noise):
    """log p(y) where slopes are the intercepts' opposites."""
    design = np.eye(12)[GROUP] * (spread[0] - spread[1] * T)[:, None]
    covariance = design @ design.T + noise**2 * np.eye(96)
    return stats.multivariate_normal(level[0] + level[1] * T, covariance).logpdf(Y)


def test_a_correlation_of_minus_one_is_a_singular_fit_and_one_maximum():
    fit = lines().fit({"group": GROUP, "t": T, "y": Y}, ENGINE)
    assert fit.converged and fit.params["turn"][1, 0] < -0.999
    assert codes(fit) == {"singular-correlation"} and about(fit, "singular-correlation") == ["turn"]
    assert "effects 0 and 1 (counted from 0) have the correlation -1" in fit.status
    found = [np.asarray(fit.params[name]) for name in ("level", "spread", "noise")]
    assert fit.history[-1] == pytest.approx(singular(*found), abs=1e-4)
    for i in range(2):
        for share in (0.97, 1.03):
            moved = found[1].copy()
            moved[i] *= share
            assert singular(found[0], moved, found[2]) < fit.history[-1]


def test_a_climb_that_begins_at_a_correlation_of_one_leaves_it():
    start = {"turn": np.array([[1.0, 0.0], [1 - 1e-14, 1.4e-7]])}
    free = lines().fit({"group": GROUP, "t": T, "y": Y}, ENGINE)
    begun = lines().fit({"group": GROUP, "t": T, "y": Y}, ENGINE, start=start)
    assert begun.history[-1] == pytest.approx(free.history[-1], abs=1e-4)


FORMS = {
    "precision": (dist.Gamma(1.0, 0.1), lambda p: p**-0.5),
    "variance": (dist.HalfNormal(10.0), jnp.sqrt),
    "logarithm": (dist.Normal(0.0, 2.0), jnp.exp),
    "bounded": (dist.Uniform(0.0, 50.0), lambda p: p),
}


@probml.model
def levels(group, form: str, centred: bool):
    prior, width = FORMS[form]
    mean, noise = sample("mean", dist.Normal(0.0, 1e2)), sample("noise", dist.HalfNormal(1e1))
    p = sample("p", prior)
    with plate("groups", 12):
        own = sample("own", dist.Normal(0.0, width(p) if centred else 1.0))
    with probml.rows():
        sample("y", dist.Normal(mean + (1.0 if centred else width(p)) * own[group], noise))


@pytest.mark.parametrize("form", ["precision", *(pytest.param(form, marks=pytest.mark.slow)
                                                 for form in FORMS if form != "precision")])
@pytest.mark.parametrize("centred", [True, False])
def test_a_spread_of_zero_is_told_however_it_is_written(form, centred):
    residual = RNG.normal(size=96)
    nothing = residual - np.array([residual[g == GROUP].mean() for g in range(12)])[GROUP]
    model = levels(form=form, centred=centred)
    fit = model.fit({"group": GROUP, "y": nothing}, ENGINE)
    assert fit.converged and about(fit, "zero-variance") == ["p"]
    want = stats.norm(nothing.mean(), nothing.std()).logpdf(nothing).sum()
    assert fit.history[-1] == pytest.approx(want, abs=1e-3)
    told = model.fit({"group": GROUP, "y": nothing + OWN}, ENGINE)
    assert "boundary" not in told.status and told.history[-1] > stats.norm(
        (nothing + OWN).mean(), (nothing + OWN).std()).logpdf(nothing + OWN).sum() + 5


def rows_of(correlations, n=400):
    """Rows whose correlations are these to the last digit."""
    random = np.random.default_rng(0).normal(size=(n, len(correlations)))
    random -= random.mean(0)
    white = random @ np.linalg.inv(np.linalg.cholesky(np.cov(random.T, bias=True))).T
    return white @ np.linalg.cholesky(correlations).T


def test_noise_at_zero_that_is_no_maximum_is_left():
    """Three columns of one factor: there is a maximum that fits them to the last digit."""
    load = np.array([0.8, -0.9, 0.4])
    x = rows_of(np.outer(load, load) + np.diag(1 - load**2))
    want = stats.multivariate_normal(np.zeros(3), np.cov(x.T, bias=True)).logpdf(x).sum()
    for noise in (1.0, 1e9):  # of the second column
        start = {"precision": np.array([1.0, noise, 1.0]), "mean": np.zeros(3),
                 "loadings": np.array([[0.8], [-1.0], [0.4]])}
        fit = factor_analysis(k=1, d=3).fit({"x": x}, ENGINE, start=start)
        assert fit.history[-1] == pytest.approx(want, abs=1e-4) and "boundary" not in fit.status


def test_a_heywood_case_is_told():
    """The first column correlates with the others by more than one factor with noise in it can: at
    best the others are independent given it."""
    r12, r13, r23 = 0.9, 0.9, 0.7
    x = rows_of(np.array([[1, r12, r13], [r12, 1, r23], [r13, r23, 1]]))
    want = -0.5 * len(x) * (3 * np.log(2 * np.pi) + 3 + np.log1p(-r12**2) + np.log1p(-r13**2))
    fit = factor_analysis(k=1, d=3).fit({"x": x}, ENGINE)
    assert fit.history[-1] == pytest.approx(want, abs=1e-3)
    assert about(fit, "heywood-case") == ["precision[0]"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 4, 7])
def test_a_climb_from_far_away_ends_where_em_does(seed):
    """By L-BFGS alone these ended without noise in a column, 33 to 3,222 nats lower."""
    random = np.random.default_rng(seed)
    d, k = int(random.integers(4, 8)), int(random.integers(1, 3))
    x = random.normal(size=(300, k)) @ random.normal(size=(k, d)) + random.normal(
        size=(300, d)) * random.uniform(0.3, 1.5, d)
    best = factor_analysis(k=k, d=d).fit({"x": x}, probml.EM(prior=False, tolerance=1e-9,
                                                             max_iterations=3000))
    fit = factor_analysis(k=k, d=d).fit({"x": x}, ENGINE)
    assert fit.converged and fit.history[-1] >= best.history[-1] - 1e-4


@probml.model
def two_kinds():
    share = sample("share", dist.Dirichlet(jnp.ones(2)))
    place = sample("place", dist.TransformedDistribution(
        dist.Normal(0.0, 5.0).expand([2]), dist.transforms.OrderedTransform()))
    width = sample("width", dist.HalfNormal(2.0))
    with probml.rows():
        sample("y", dist.MixtureSameFamily(dist.Categorical(share), dist.Normal(place, width)))


def test_components_of_ordered_places_part_where_there_are_two():
    """A climb from the prior's middle ends where both are one, 36 nats below."""
    random = np.random.default_rng(0)
    y = np.concatenate([random.normal(-2, 0.7, 60), random.normal(1.8, 0.7, 60)])
    fit = two_kinds().fit({"y": y}, probml.MAP())
    assert fit.converged and "boundary" not in fit.status
    assert fit.params["place"] == pytest.approx([y[:60].mean(), y[60:].mean()], abs=0.03)
    assert fit.params["width"] == pytest.approx(y.reshape(2, 60).std(1).mean(), abs=0.03)


def test_components_that_ended_as_one_are_told():
    y = stats.norm.ppf((np.arange(120) + 0.5) / 120)
    fit = two_kinds().fit({"y": y}, probml.MAP())
    assert about(fit, "equal-entries") == ["place"] and "0 and 1" in fit.status
    assert np.ptp(fit.params["place"]) < 1e-3


def test_a_series_without_noise_has_no_maximum_and_says_so():
    """Steps that are all alike: the density is without bound where noise and wandering are 0."""
    with pytest.warns(match="no maximum"):
        fit = local_level().fit({"y": np.full((1, 20), 1.3)}, probml.EM())
    assert not fit.converged
    assert about(fit, "scale-to-zero") == ["sigma"]
