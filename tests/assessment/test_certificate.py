"""The certificate accepts what is right, rejects what is broken and says how; nothing that cannot
be certified gets one."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from numpyro.distributions import constraints

import probml
from probml.assessment import certificate
from probml.engines import Engine, Outcome, Status
from probml.families import domains
from probml.posteriors.posterior import Draws
from probml.posteriors.relabelling import Exchange

nan = np.nan


@probml.model
def regression(x, noise: float = 0.5):
    beta = sample("beta", dist.Normal(0.0, 2.0).expand([x.shape[-1]]).to_event(1))
    with probml.rows():
        sample("y", dist.Normal(x @ beta, noise))


@probml.model
def labelled(k: int):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("class", k):
        mean = sample("mean", dist.Normal(0.0, 2.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], 1.0))


@probml.model
def improper():
    mean = sample("mean", dist.ImproperUniform(constraints.real, (), ()))
    with probml.rows():
        sample("x", dist.Normal(mean, 1.0))


@probml.model
def wild():
    scale = sample("scale", dist.LogNormal(0.0, 400.0))
    with probml.rows():
        sample("x", dist.Normal(0.0, scale))


@probml.model
def logistic(x):
    beta = sample("beta", dist.Normal(0.0, 2.0).expand([x.shape[-1]]).to_event(1))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=x @ beta))


@probml.model
def hierarchy(scale: float = 1.0):
    mu = sample("mu", dist.Normal(0.0, 3.0))
    tau = sample("tau", dist.LogNormal(0.0, 1.0))
    with plate("group", 4):
        theta = sample("theta", dist.Normal(mu, tau * scale))
    with probml.rows():
        sample("y", dist.Normal(theta, 1.0).to_event(1))


@probml.model
def mixture(k: int):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 5.0))
        scale = sample("scale", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], scale[z]))


@probml.model
def hidden_markov(k: int):
    initial = sample("initial", dist.Dirichlet(jnp.ones(k)))
    with plate("state", k):
        transition = sample("transition", dist.Dirichlet(jnp.ones(k)))
        mean = sample("mean", dist.Normal(0.0, 5.0))
    with probml.rows():
        z = sample("z", probml.MarkovChain(initial, transition))
        sample("y", dist.Normal(mean[z], 1.0).to_event(1))


@dataclasses.dataclass(frozen=True)
class Squeezed(Engine):
    """A user's engine: the exact posterior of a regression, its draws drawn together or moved;
    every so-many-th fit fails."""

    spread: float = 1.0
    shift: float = 0.0
    failing: int = 0

    def run(self, problem):
        if self.failing and problem.seed % self.failing == 0:
            raise probml.Refusal("no luck")
        data, seed = problem.data, problem.seed
        x, y = data.table.inputs["x"], data.table.columns["y"].values
        covariance = np.linalg.inv(x.T @ x / 0.25 + np.eye(2) / 4)
        noise = np.random.default_rng(seed).normal(size=(99, 2)) @ np.linalg.cholesky(covariance).T
        sd = np.sqrt(np.diag(covariance))
        beta = covariance @ x.T @ y / 0.25 + self.spread * noise + self.shift * sd
        return Outcome({}, np.zeros(1), Status.APPROXIMATED, 1,
                       posterior=Draws({"beta": beta[None]}, None, {}))


@pytest.fixture(scope="module")
def x():
    return np.column_stack([np.ones(12), np.random.default_rng(0).normal(size=12)])


@pytest.fixture(scope="module")
def right(x):
    return regression().check({"x": x}, simulations=200)


def test_a_right_model_passes_and_every_parameter_is_named(right):
    assert (right.passed and right.engine == "Exact()" and right.simulations == 200
            and right.rows == 12)
    assert list(right.table.index) == ["beta[0]", "beta[1]", "log likelihood"]
    assert "beta[1]" in str(right) and "passed" in str(right)
    assert (np.abs(right.table[["50%", "80%", "90%"]] - [0.5, 0.8, 0.9]) < 0.12).all(axis=None)
    assert ((right.levels > 0) & (right.levels < 1)).all(axis=None)


def test_the_same_seed_gives_the_same_certificate(right, x):
    again = regression().check({"x": x}, probml.Exact(), seed=0)
    np.testing.assert_array_equal(right.levels, again.levels)


def test_a_model_that_did_not_make_the_rows_is_rejected(x):
    report = regression(noise=1.0).check({"x": x}, simulator=regression())
    assert not report.passed and "beta[0]" in report.rejected and "NOT passed" in str(report)
    assert report.rejected["beta[0]"] == "the posterior is too wide"


@pytest.mark.slow
def test_labels_seen_in_part_of_the_rows_are_counted_in_the_prior_predictive():
    names = np.array(["low", "high"])[np.arange(30) % 2].astype(object)
    report = labelled(k=2).check({"z": names, "x": np.zeros(30)}, simulations=100)
    assert report.passed and {"weights[0]", "weights[1]", "mean[0]",
                              "mean[1]"} < set(report.table.index)
    shown = report.prior_predictive
    assert list(shown.index) == ["z = high", "z = low", "x"] and shown.loc["z = low", "data"] == 0.5
    assert abs(shown.loc["z = low", "mean"] - 0.5) < 0.1 and abs(
        shown.loc["x", "sd"] - 5**0.5
    ) < 0.4


@pytest.mark.slow
def test_classes_thousands_of_spreads_apart_are_certified():
    from probml.models import naive_bayes

    report = naive_bayes(classes=2, features={"a": "normal"},
                         target="s").check({"a": np.zeros(50), "s": np.arange(50) % 2})
    assert report.passed and not report.failures, str(report)


def test_broken_engines_are_rejected_and_the_report_says_how(x):
    assert regression().check({"x": x}, Squeezed(), simulations=120).passed
    narrow = regression().check({"x": x}, Squeezed(spread=0.4), simulations=120)
    assert narrow.rejected["beta[1]"] == "the posterior is too narrow" and narrow.table.loc[
        "beta[1]", "90%"
    ] < 0.7
    high = regression().check({"x": x}, Squeezed(shift=1.0), simulations=120)
    assert high.rejected["beta[0]"] == "the posterior is too high"


def test_failures_are_told_and_too_many_of_them_do_not_pass(x):
    report = regression().check({"x": x}, Squeezed(failing=7), simulations=60, seed=1)
    assert (len(report.failures) == 8 and report.simulations == 60 and not report.rejected
            and not report.passed)
    assert "8 simulations the fit failed. The first error: no luck" in str(report)
    with pytest.raises(probml.Refusal, match="no luck"):
        regression().check({"x": x}, Squeezed(failing=1))


def test_ranks_of_exchangeable_states_do_not_depend_on_their_numbers():
    rng = np.random.default_rng(0)
    values = {"weights": rng.dirichlet([1, 1, 1], 5), "mean": rng.normal(size=(5, 3)),
              "transition": rng.dirichlet([1, 1, 1], (5, 3))}
    found = Exchange("z", 3, (("weights", (0,)), ("mean", (0,)), ("transition", (0, 1))))
    structure = type("Structure", (),
                     {"sites": {n: type("Site", (), {"domain": domains.REAL}) for n in values}})
    order = np.array([2, 0, 1])
    one, other = (certificate.quantities(structure, [found], v)
                  for v in (values, found.permuted(values, order, 1)))
    assert len(one) == 3 + 3 + 9 and "mean[sorted 0]" in one and "transition[stay 2]" in one
    for name in one:
        np.testing.assert_allclose(one[name], other[name], err_msg=name)


def test_what_cannot_be_certified_is_refused_by_name(x):
    for attempt, words in (
        (lambda: improper().check(20), "prior of 'mean' is improper"),
        (lambda: wild().check(5), r"'scale' \(LogNormal\) are infinite.*priors of 'scale'"),
        (lambda: regression().check({"x": x}, probml.EM()), "EM gives a point"),
        (lambda: regression().check({"x": x}, probml.Exact), "Expected an engine, such as"),
        (lambda: regression().check({"x": x}, simulations=3), "simulations=3"),
        (lambda: improper().check(), "number of rows to simulate is unknown"),
        (lambda: improper().check(20, rows=30), "given twice"),
        (lambda: improper().check(rows=0), "rows=0"),
        (lambda: labelled(k=2).check({"z": np.full((5, 2), 0.5), "x": np.zeros(5)}),
         "'z' is given as label probabilities"),
        (lambda: mixture(k=2).check(20, probml.Exact()), "site 'z'"),
        (lambda: regression().check({"x": x}, simulator=labelled(k=2)), "site 'y'"),
        (lambda: labelled(k=2).check({"x": np.zeros(5)}, probml.NUTS(), simulator=wild()),
         "the simulator has no parameter with the name and the shape of a parameter of the checked model"),
        (lambda: regression().check({"x": x}, simulator=3), "expected the Model"),
    ):
        with pytest.raises(probml.ModelError, match=words):
            attempt()


def test_rank_histograms_are_drawn_with_the_rejected_ones_marked(right, tmp_path):
    pytest.importorskip("matplotlib")
    from probml.models import pictures

    axes = pictures.calibration(right)
    assert len(axes) == 3 and axes[0].get_title().startswith("beta[0], p =")
    assert sum(patch.get_height() for patch in axes[1].patches if patch.get_width() < 0.1) == 200
    axes[0].figure.savefig(tmp_path / "ranks.png")
    with pytest.raises(probml.ModelError, match="gamma"):
        pictures.calibration(right, ["gamma"])


CHECKED = {
    "logistic regression": lambda x: (logistic(), {"x": x}, {}),
    "hierarchical normal": lambda x: (hierarchy(), 12, {}),
    "mixture": lambda x: (mixture(k=2), 50, {}),
    "hidden Markov model": lambda x: (hidden_markov(k=2), 2, {"steps": 30}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKED)
def test_nuts_is_calibrated(name, x):
    model, data, more = CHECKED[name](x)
    report = model.check(data, probml.NUTS(), **more)
    assert report.passed, str(report)


@pytest.mark.slow
def test_a_hierarchy_with_a_broken_scale_is_rejected_by_nuts():
    report = hierarchy(scale=3.0).check(12, probml.NUTS(), simulations=100, simulator=hierarchy())
    assert "tau" in report.rejected, str(report)


@pytest.mark.slow
def test_laplace_of_a_normal_posterior_is_calibrated(x):
    assert regression().check({"x": x}, probml.Laplace()).passed


@pytest.mark.slow
def test_what_is_checked_is_what_a_fit_does_effects_of_groups_integrated_out():
    group = np.arange(30) % 6

    @probml.model
    def groups(g):
        level, wide = sample("level", dist.Normal(0, 2)), sample("wide", dist.HalfNormal(1))
        noise = sample("noise", dist.HalfNormal(1))
        with plate("groups", 6):
            own = sample("own", dist.Normal(0, 1))
        with probml.rows():
            sample("y", dist.Normal(level + wide * own[g], noise))

    found = groups().check({"g": group}, engine=probml.Laplace(), simulations=60, seed=1)
    assert found.passed, str(found)


def test_cells_that_a_mask_leaves_out_are_not_compared_with_the_prior():
    @probml.model
    def counted(ok):
        mean = sample("mean", dist.Normal(0.0, 1.0))
        with probml.rows():
            sample("y", dist.Normal(mean, 1.0).mask(ok))

    data = {"ok": np.arange(6) > 1, "y": np.array([99.0, 99.0, 1.0, 2.0, 3.0, 2.0])}
    table = counted().check(data, probml.Laplace(), simulations=20).prior_predictive
    assert table.loc["y", "data"] == pytest.approx(2.0) and table.loc["y", "95%"] < 9.0
