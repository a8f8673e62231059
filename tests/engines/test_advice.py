"""What a refusal offers does not itself refuse."""

import ast
import pathlib
import pickle
import re
import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml

X = np.linspace(-2, 2, 12)
LABELS = (X + np.random.default_rng(0).normal(size=12) > 0).astype(int)


@probml.model
def logistic(x):
    slope = sample("slope", dist.Normal(0.0, 5.0))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=slope * x))


@probml.model
def gates(group, groups: int):
    """Effects that enter as products, of which no engine finds a mode."""
    spread = sample("spread", dist.HalfNormal(2.0))
    with plate("groups", groups):
        width = sample("width", dist.LogNormal(0.0, spread))
    with probml.rows():
        sample("y", dist.Normal(0.0, width[group]))


@probml.model
def bells():
    """Nothing is unknown but what is unseen in rows."""
    with probml.rows():
        z = sample("z", dist.Bernoulli(0.3))
        sample("x", dist.Normal(2.0 * z, 1.0))


def test_a_row_is_enough_where_nothing_is_to_be_found():
    assert "chosen" in {record[""] for record in bells().explain({"x": [0.4]}).engines}
    assert bells().fit({"x": [0.4]}).predict({"x": [0.4]}, "z")[0] == 0


def offered(text):
    return text.partition("such as ")[2]


def test_where_em_would_refuse_it_is_not_offered():
    data = {"x": X, "y": LABELS}
    with pytest.raises(probml.Refusal) as caught:
        logistic().fit(data, probml.Exact())
    assert offered(str(caught.value)) == "Laplace()"
    said = {record["engine"]: record[""] for record in logistic().explain(data).engines}
    assert offered(said["Exact"]) == "Laplace()" and offered(said["VB"]) == "SVI()"


def test_where_all_that_is_named_would_refuse_the_first_that_does_not_is_offered():
    data = {"group": np.arange(12) % 4, "y": X}
    with pytest.raises(probml.Refusal) as caught:
        gates(groups=4).fit(data, probml.Exact())
    assert offered(str(caught.value)) == "Laplace()"


def test_a_refusal_travels_with_what_it_offers():
    why = probml.Refusal("site 'z' is unseen", ("EM", "MAP", "NUTS"))
    assert str(why) == "site 'z' is unseen. Use another engine, such as EM(), MAP() or NUTS()"
    assert str(pickle.loads(pickle.dumps(why))) == str(why)
    assert str(why.offering(["SVI"])) == "site 'z' is unseen. Use another engine, such as SVI()"
    assert str(why.offering([])) == str(probml.Refusal("site 'z' is unseen")) == "site 'z' is unseen"


@probml.model
def counted_walk():
    """A chain that no engine can sample, nor integrate out."""
    step = sample("step", dist.HalfNormal(1.0))
    with probml.rows():
        z = sample("z", probml.GaussianChain(jnp.zeros(1), jnp.eye(1), jnp.eye(1),
                                             step**2 * jnp.eye(1)))
        sample("y", dist.Poisson(jnp.exp(z[..., 0])).to_event(1))


@probml.model
def innovations(step, steps: int):
    """What the refusal of `counted_walk` says to write."""
    wide = sample("wide", dist.HalfNormal(1.0))
    path = jnp.cumsum(sample("innovation", dist.Normal(0, 1).expand([steps]).to_event(1)))
    with probml.rows():
        sample("y", dist.Poisson(jnp.exp(wide * path[step])))


@probml.model
def marked():
    """A number of the row beside a factor."""
    a = sample("a", dist.Normal(0.0, 2.0))
    with probml.rows():
        b = sample("b", dist.Normal(0.0, 1.0))
        sample("y", dist.Normal(a + b, 0.5))
        numpyro.factor("weight", -jnp.exp(b))


@probml.model
def correlated(d: int):
    """Correlations alone: of fewer rows than numbers the density has no mode, which none foresees."""
    lower = sample("lower", dist.LKJCholesky(d, 1.0))
    with probml.rows():
        sample("y", dist.MultivariateNormal(jnp.zeros(d), scale_tril=lower))


@probml.model
def groups(group, members: int):
    tau = sample("tau", dist.HalfNormal(1.0))
    with plate("members", members):
        a = sample("a", dist.Normal(0.0, tau))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=a[group]))


@probml.model
def kinds():
    p = sample("p", dist.Beta(1.0, 1.0))
    with plate("kind", 2):
        shape = sample("shape", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Bernoulli(p))
        sample("y", dist.Weibull(1.0, shape[z]))


STEPS, GROUP = np.arange(12), np.arange(12) % 4
# a model, its data, and what somebody asks: a line a case
REFUSED = {
    "counts over a chain": (counted_walk(), {"y": STEPS[None] % 3}, None),
    "counts over a chain, sampled": (counted_walk(), {"y": STEPS[None] % 3}, probml.NUTS()),
    "logistic regression": (logistic(), {"x": X, "y": LABELS}, probml.Exact()),
    "logistic regression, bound": (logistic(), {"x": X, "y": LABELS}, probml.VB()),
    "products": (gates(groups=4), {"group": GROUP, "y": X}, probml.Exact()),
    "a factor": (marked(), {"y": X}, probml.EM()),
    "a factor, exactly": (marked(), {"y": X}, probml.Exact()),
    "correlations": (correlated(d=4), {"y": np.stack([X, X**2, LABELS, np.cos(9 * X)], 1)},
                     probml.Exact()),
    "effects": (groups(members=4), {"group": GROUP, "y": LABELS}, probml.EM()),
    "effects, exactly": (groups(members=4), {"group": GROUP, "y": LABELS}, probml.Exact()),
    "a mixture": (kinds(), {"y": np.exp(X)}, probml.Exact()),
    "a mixture, bound": (kinds(), {"y": np.exp(X)}, probml.VB()),
    "effects, points": (groups(members=4), {"group": GROUP, "y": LABELS},
                        lambda fit: fit.posterior("tau")),
    "a regression, points": (logistic(), {"x": X, "y": LABELS}, lambda fit: fit.draws(2)),
    "a mixture, points": (kinds(), {"y": np.exp(X)}, lambda fit: fit.draws(2)),
}
BRIEF = {"NUTS": {"draws": 4, "warmup": 4, "chains": 1}, "SVI": {"steps": 5}}
FAST = ("counts over a chain", "counts over a chain, sampled", "logistic regression", "a factor",
        "effects")


@pytest.mark.parametrize("name", [
    name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in REFUSED])
def test_every_engine_that_a_refusal_offers_takes_the_data(name):
    model, data, asked = REFUSED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(probml.Refusal) as caught:
            if asked is None or isinstance(asked, probml.engines.Engine):
                model.fit(data, asked)
            else:
                asked(model.fit(data, probml.MAP()))
        for engine in re.findall(r"(\w+)\(\)", "".join(str(caught.value).split("another engine, such as ")[1:])):
            model.fit(data, getattr(probml, engine)(**BRIEF.get(engine, {})))


@pytest.mark.slow
def test_the_sum_of_innovations_that_a_refused_chain_is_told_to_be_is_sampled():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few draws
        fit = innovations(steps=12).fit({"step": STEPS, "y": 3 * STEPS}, probml.NUTS(
            draws=300, warmup=300, chains=2, target_accept=0.95, progress=False))
    np.testing.assert_allclose(fit.predict({"step": STEPS}, "y")[4:], 3 * STEPS[4:], rtol=0.35)


def test_no_refusal_names_an_engine_in_its_own_words():
    """Who refuses gives names, Refusal(why, ("NUTS",)), which are held against the data."""
    named = re.compile(r"(?:[Uu]se|[Tt]ry|[Tt]ake|with|it) (?:\(?probml\.)?"
                       r"(?:EM|MAP|NUTS|SVI|VB|Exact|Laplace)\(\)")
    found = []
    for path in pathlib.Path(probml.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Refusal":
                said = "".join(part.value for arg in node.args[:1] for part in ast.walk(arg)
                               if isinstance(part, ast.Constant) and isinstance(part.value, str))
                found += [f"{path.name}: {said}"] * bool(named.search(said))
    assert not found
