"""Hierarchies: what makes one, who refuses it, and that the default answer is the posterior's."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree
from numpyro import plate, sample

import probml
from coded import about, codes
from probml.dataset import read
from probml.device.rows import Known
from probml.evidence import centring, density
from probml.plan import hierarchy

# Rubin (1981)
EFFECT, ERROR = (np.array([28.0, 8, -3, 7, -1, 1, 18, 12]),
                 np.array([15.0, 10, 16, 11, 9, 11, 10, 18]))


@probml.model
def schools(school, error):
    mu = sample("mu", dist.Normal(0.0, 5.0))
    tau = sample("tau", dist.HalfNormal(10.0))
    with plate("schools", 8):
        theta = sample("theta", dist.Normal(mu, tau))
    with probml.rows():
        sample("y", dist.Normal(theta[school], error))


SCHOOLS = {"school": np.arange(8), "error": ERROR, "y": EFFECT}


def exact_moments():
    """Means and standard deviations of mu, tau and theta: theta and mu by their normal laws given
    tau, tau on a grid."""
    taus = np.linspace(1e-4, 60.0, 6001)
    logs, mus, variances, thetas, squares = [], [], [], [], []
    for tau in taus:
        total = ERROR**2 + tau**2
        precision = (1 / total).sum() + 1 / 25
        mean = (EFFECT / total).sum() / precision
        covariance = np.diag(total) + 25.0
        logs.append(-0.5 * np.linalg.slogdet(covariance)[1] - 0.5 * EFFECT
                    @ np.linalg.solve(covariance, EFFECT) - tau**2 / 200)
        share = tau**2 / total
        theta = mean + share * (EFFECT - mean)
        spread = share * ERROR**2 + (1 - share) ** 2 / precision
        mus.append(mean), variances.append(1 / precision), thetas.append(theta), squares.append(
            spread + theta**2
        )
    weight = np.exp(np.array(logs) - np.max(logs))
    weight /= weight.sum()
    theta = weight @ np.array(thetas)
    mu = weight @ np.array(mus)
    return {
        "tau": (weight @ taus, np.sqrt(weight @ taus**2 - (weight @ taus) ** 2)),
        "mu": (mu, np.sqrt(weight @ (np.array(variances) + np.array(mus) ** 2) - mu**2)),
        "theta": (theta, np.sqrt(weight @ np.array(squares) - theta**2)),
    }


def test_effects_that_are_integrated_out_leave_the_posterior_of_a_hierarchy_as_it_is():
    """NUTS by name, over mu and tau alone; theta is drawn given each draw of them."""
    fit = schools().fit(SCHOOLS, probml.NUTS())
    summary = fit.summary()
    truth = exact_moments()
    for name, (mean, sd) in truth.items():
        rows = summary.loc[[row for row in summary.index if row == name
                            or row.startswith(f"{name}[")]]
        error = sd / np.sqrt(rows["ess_bulk"].to_numpy())
        assert np.all(np.abs(rows["mean"].to_numpy() - mean) < 4 * error), name
        np.testing.assert_allclose(rows["sd"], np.broadcast_to(sd, len(rows)), rtol=0.15)
    assert fit.converged and np.asarray(fit.belief.stats["diverging"]).sum() == 0


def test_the_mode_of_normal_effects_has_these_integrated_out():
    """The marginal mode of eight schools is at tau = 0, which is said."""
    fit = schools().fit(SCHOOLS, probml.MAP())
    assert fit.converged
    assert fit.params["tau"] < 0.1 and "'tau' is at its boundary" in fit.status
    mean = (EFFECT / ERROR**2).sum() / ((1 / ERROR**2).sum() + 1 / 25)
    assert fit.params["mu"] == pytest.approx(mean, abs=1e-3)
    np.testing.assert_allclose(fit.params["theta"], mean, atol=0.01)


def test_the_default_has_the_moments_of_the_posterior():
    fit = schools().fit(SCHOOLS)
    assert "weights-pass" in codes(fit) or fit.engine.startswith("NUTS")
    for name, (mean, sd) in exact_moments().items():
        np.testing.assert_allclose(fit.params[name], mean, atol=0.15 * np.max(sd))
        np.testing.assert_allclose(fit.draws(4000)[name].std(0), sd, rtol=0.15)


@probml.model
def heavy(school, error):
    """The same with effects that are not normal."""
    mu = sample("mu", dist.Normal(0.0, 5.0))
    tau = sample("tau", dist.HalfNormal(10.0))
    with plate("schools", 8):
        theta = sample("theta", dist.StudentT(4.0, mu, tau))
    with probml.rows():
        sample("y", dist.Normal(theta[school], error))


def test_map_by_name_runs_and_warns_at_once():
    with pytest.warns(RuntimeWarning):
        fit = heavy().fit(SCHOOLS, probml.MAP())
    assert (not fit.converged and about(fit, "scale-to-zero") == ["tau"]
            and "max_iterations" not in fit.status)


def test_explain_says_which_parameters_make_the_hierarchy():
    told = heavy().explain(SCHOOLS)
    roles = {row["site"]: row["role"] for row in told.sites}
    assert (roles["tau"] == "parameter of a hierarchy: the scale of theta"
            and roles["mu"] == "parameter")
    engines = {row["engine"]: row[""] for row in told.engines}
    assert engines["EM"].startswith("refuses") and "not by default" in engines["MAP"]
    assert engines["Laplace"].startswith("chosen")


def test_explain_says_which_effects_are_integrated_out():
    told = schools().explain(SCHOOLS)
    roles = {row["site"]: row["role"] for row in told.sites}
    assert roles["theta"] == "random effects, integrated out, in closed form (normal distributions)"
    assert roles["tau"] == "parameter, the scale of theta" and roles["mu"] == "parameter"
    engines = {row["engine"]: row[""] for row in told.engines}
    assert engines["Laplace"].startswith("chosen, tested: NUTS")
    assert "'theta' are integrated out" in engines["Exact"]


def effects_of(model, data):
    held = read.read(model, data)
    return {tie.name: tie.tied_with for tie in hierarchy.degenerate_modes(held.plan(), held.table.rows)}


@probml.model
def prior_on(kind: str):
    a = sample("a", dist.Normal(0.0, 1.0))
    s = sample("s", dist.HalfNormal(1.0))
    priors = {
        "scale": lambda: dist.Normal(a, s).expand([3]).to_event(1),
        "location": lambda: dist.Normal(a, 1.0).expand([3]).to_event(1),
        "location of Cauchy": lambda: dist.Cauchy(a, 1.0).expand([3]).to_event(1),
        "scale of Cauchy": lambda: dist.Cauchy(a, s).expand([3]).to_event(1),
        "covariance": lambda: dist.MultivariateNormal(jnp.zeros(3), s**2 * jnp.eye(3) + a**2),
        "walk": lambda: dist.GaussianRandomWalk(s, 3),
        "half width": lambda: dist.Uniform(-s, s).expand([3]).to_event(1),
        "rate": lambda: dist.Exponential(s).expand([3]).to_event(1),
        "concentration": lambda: dist.Beta(jax.nn.sigmoid(a) * 20,
                                           (1 - jax.nn.sigmoid(a)) * 20).expand([3]).to_event(1),
        "noise too": lambda: dist.Normal(a, 2 * s).expand([3]).to_event(1),
    }
    b = sample("b", priors[kind]())
    with probml.rows():
        sample("y", dist.Normal(b, s if kind == "noise too" else 1.0).to_event(1))


@pytest.mark.parametrize(
    ("kind", "ties"),
    [
        ("scale", {"b": ("s",)}),
        ("location", {}),
        ("location of Cauchy", {}),
        ("scale of Cauchy", {"b": ("s",)}),
        ("covariance", {"b": ("a", "s")}),
        ("walk", {"b": ("s",)}),
        ("half width", {"b": ("s",)}),
        ("rate", {"b": ("s",)}),
        ("concentration", {"b": ("a",)}),
        ("noise too", {}),  # the rows' own noise holds it
    ],
)
def test_a_hierarchy_is_an_unseen_parameter_as_more_than_a_location(kind, ties):
    found = effects_of(prior_on(kind=kind), {"y": np.zeros((4, 3))})
    assert {name: set(others) for name, others in found.items()} == {
        name: set(others) for name, others in ties.items()
    }


def test_a_spread_that_is_given_makes_no_hierarchy():
    assert effects_of(schools(), {**SCHOOLS, "tau": 3.0}) == {}
    assert schools().fit({**SCHOOLS, "tau": 3.0}).engine == "Exact()"


@probml.model
def effects(kind: str):
    m = sample("m", dist.Normal(0.0, 1.0))
    s = sample("s", dist.LogNormal(0.0, 1.0))
    priors = {
        "normal": lambda: dist.Normal(m, s).expand([2, 3]).to_event(2),
        "log-normal": lambda: dist.LogNormal(m, s).expand([3]).to_event(1),
        "student": lambda: dist.StudentT(4.0, m, s).expand([3]).to_event(1),
        "half-Cauchy": lambda: dist.HalfCauchy(s).expand([3]).to_event(1),
        "exponential": lambda: dist.Exponential(s).expand([3]).to_event(1),
        "vector": lambda: dist.MultivariateNormal(
            m * jnp.ones(3), scale_tril=s * jnp.tri(3) + jnp.eye(3)
        ).expand([2]).to_event(1),
        "walk": lambda: dist.GaussianRandomWalk(s, 4),
    }
    b = sample("b", priors[kind]())
    with probml.rows():
        sample("y", dist.Normal(b.sum(), 1.0))


@pytest.mark.parametrize("kind", ["normal", "log-normal", "student", "half-Cauchy", "exponential",
                                  "vector", "walk"])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_coordinates_of_effects_are_a_change_of_variables(kind, share):
    """There and back again, and the volume that of the Jacobian by automatic differentiation."""
    plan = read.read(effects(kind=kind), {"y": np.zeros(4)}).plan()
    share = round(share) if kind in ("vector", "walk") else share  # of vectors: whole
    known = Known({}, {}, {},
                  centring={name: zero + share for name, zero in centring.non_centred(plan).items()})
    assert set(known.centring) == {"b"}
    shapes = density.unbounded_shapes(plan)
    u = {name: 0.3 * jnp.asarray(np.random.default_rng(3).standard_normal(shape))
         for name, shape in shapes.items()}
    params, volume = density.from_unbounded_by_name(plan, u, known)
    back = density.unbounded_by_name(plan, params, known)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-10), back, u)
    flat, spread = ravel_pytree(u)
    jacobian = jax.jacobian(
        lambda flat: ravel_pytree(density.from_unbounded_by_name(plan, spread(flat), known)[0])[0]
    )(flat)
    assert float(volume) == pytest.approx(float(np.linalg.slogdet(jacobian)[1]), abs=1e-9)


def test_effects_that_the_data_tell_keep_their_own_coordinates():
    """The share is i / (i + 1/r), i the information on ε and r the least variance of it; 0 where
    nothing is told, or of few."""

    @probml.model
    def many(group, n: int):
        tau = sample("tau", dist.HalfNormal(1.0))
        with plate("groups", n):
            theta = sample("theta", dist.Normal(0.0, tau))
        with probml.rows():
            sample("y", dist.Normal(theta[group], 1.0))

    def shares(told, n=60):
        plan = read.read(many(n=n), {"group": np.arange(n), "y": np.zeros(n)}).plan()
        point, known = ({"tau": np.array(1.0), "theta": np.zeros(n)},
                        Known({}, {}, {}, centring=centring.non_centred(plan)))
        u = np.resize([1.0, -1.0], n) * told / (1 + told)  # the mode of ε where the data say ±1
        return centring.choose_centring(plan, point, known, {"theta": u},
                                        {"theta": np.eye(n) * (1 + told)})["theta"]

    np.testing.assert_allclose(shares(0.0), 0.0, atol=1e-3)
    assert np.all(shares(1e4) > 0.99) and np.all(shares(1.0, n=6) < 0.05)
    assert np.all((shares(8.0) > 0.3) & (shares(8.0) < 0.9))


@probml.model
def items(student, item, students: int):
    discrimination = sample("discrimination", dist.LogNormal(0.0, 0.5).expand([4]).to_event(1))
    difficulty = sample("difficulty", dist.Normal(0.0, 2.0).expand([4]).to_event(1))
    with plate("students", students):
        ability = sample("ability", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("right",
               dist.Bernoulli(logits=discrimination[item] * (ability[student] - difficulty[item])))


def answers(students):
    student, item = np.divmod(np.arange(4 * students), 4)
    return {"student": student, "item": item, "right": (student + item) % 2}


def test_members_of_few_rows_beside_what_all_share_are_incidental():
    """Neyman & Scott (1948): four answers a student, two hundred an item."""
    told = items(students=50).explain(answers(50))
    roles = {row["site"]: row["role"] for row in told.sites}
    assert roles["ability"] == ("random effects, integrated out, by adaptive quadrature with 25 "
                                "nodes per group")
    assert roles["difficulty"] == roles["discrimination"] == "parameter"
    engines = {row["engine"]: row[""] for row in told.engines}
    assert "'ability'" in engines["EM"] and engines["Laplace"].startswith("chosen")
    ties = effects_of(items(students=50), answers(50))
    assert ties == {"ability": ("discrimination", "difficulty")}


def test_members_of_many_rows_are_parameters_like_others():
    @probml.model
    def levels(group):
        sigma = sample("sigma", dist.HalfNormal(1.0))
        level = sample("level", dist.Normal(0.0, 10.0).expand([3]).to_event(1))
        with probml.rows():
            sample("y", dist.Normal(level[group], sigma))

    group = np.arange(240) % 3
    assert effects_of(levels(), {"group": group, "y": group + 0.1}) == {}
    # 20 each, but only 3 members
    assert effects_of(levels(), {"group": group[:60], "y": group[:60] + 0.1}) == {}
    assert effects_of(levels(), {"group": group[:27], "y": group[:27] + 0.1}) == {
        "level": ("sigma",)
    }


@pytest.mark.parametrize(
    ("kind", "ties"),
    [
        ("times a scale", {"z": ("tau",)}),
        ("times a scale of each column", {"z": ("tau",)}),
        ("through a link", {"z": ("tau",)}),
        ("over the root of a precision", {"z": ("tau",)}),
        ("times the root of a variance", {"z": ("tau",)}),
        ("times an exponential", {"z": ("m",)}),
        ("beside what it is not times", {}),
        ("a scale of something else", {}),
        ("a network", {}),
        ("one number", {}),
    ],
)
def test_a_hierarchy_written_as_a_product_is_one(kind, ties):
    """tau · z[group], z ~ Normal(0, 1): the same rows at 2 z and tau / 2; and of other forms of a
    width."""

    @probml.model
    def product(x, kind: str):
        m = sample("m", dist.Normal(0.0, 1.0))
        tau = sample("tau", dist.HalfNormal(1.0).expand([3]).to_event(1) if "column" in kind
                     else dist.HalfNormal(1.0))
        z = sample("z", dist.Normal(0.0, 1.0) if kind == "one number"
                   else dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with probml.rows():
            if kind == "through a link":
                sample("y", dist.Poisson(jnp.exp(m + x @ (tau * z))))
            elif kind == "a scale of something else":
                sample("y", dist.Normal(m + x @ z, tau))
            elif kind == "over the root of a precision":
                sample("y", dist.Normal(m + x @ (z / jnp.sqrt(tau)), 1.0))
            elif kind == "times the root of a variance":
                sample("y", dist.Normal(m + x @ (z * jnp.sqrt(tau)), 1.0))
            elif kind == "times an exponential":
                sample("y", dist.Normal(x @ (z * jnp.exp(m)), tau))
            elif kind == "beside what it is not times":
                sample("y", dist.Normal(m + jnp.exp(m) * (x @ z), 1.0))
            elif kind == "a network":
                sample("y", dist.Normal(m + tau * jnp.tanh(x @ z), 1.0))
            else:
                sample("y", dist.Normal(m + (x * (tau * z)).sum(-1), 1.0))

    x = np.random.default_rng(0).normal(size=(40, 3))
    found = effects_of(product(kind=kind), {"x": x, "y": np.ones(40)})
    assert found == ties


def test_a_prior_by_a_factor_holds_no_spread_and_missing_values_of_their_own_tell_none():
    def tumours(n, y):  # Gelman et al. (2013), section 5.3
        ab = sample("ab", dist.HalfNormal(10.0).expand([2]))
        numpyro.factor("hyper", -2.5 * jnp.log(ab.sum()))
        with plate("rats", len(n)):
            theta = sample("theta", dist.Beta(ab[0], ab[1]))
            sample("y", dist.Binomial(n, theta), obs=y)

    def missing(y):
        mu, sigma = sample("mu", dist.Normal(0.0, 3.0)), sample("sigma", dist.HalfNormal(2.0))
        sample("unseen", dist.Normal(mu, sigma).expand([4]).to_event(1))
        sample("y", dist.Normal(mu, sigma), obs=y)

    tables = {"n": np.array([20, 20, 19]), "y": np.array([0, 1, 3])}, {"y": np.arange(4.0)}
    for function, data, tied in zip((tumours, missing), tables, ("theta", "unseen"), strict=True):
        told = str(probml.model(function)().explain(data))
        assert f"the scale of {tied}" in told


def test_uncentred_effects_that_are_compared_with_one_another_are_no_joint_mode():
    """Home and away index one axis: at one code for both their difference is 0, whatever they are."""
    @probml.model
    def matches(home, away):
        tau = sample("tau", dist.HalfNormal(1.0))
        with plate("teams", 5):
            z = sample("z", dist.Normal(0.0, 1.0))
        with probml.rows():
            sample("won", dist.Bernoulli(logits=tau * (z[home] - z[away])))

    codes = np.arange(20)
    data = {"home": codes % 5, "away": (codes + 1 + codes // 5) % 5, "won": codes % 3 > 0}
    roles = {row["site"]: row["role"] for row in matches().explain(data).sites}
    assert "the scale of z" in roles["tau"] and "integrated out" in roles["z"]
