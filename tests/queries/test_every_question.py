"""Every question to a fit of every family by every engine has an answer, or a refusal in words: no
error of Python's or JAX's, nothing empty, and counts that are whole numbers."""

import tempfile
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml

RNG = np.random.default_rng(0)
N = 12
X, TOTAL, GROUP = RNG.normal(size=N), RNG.integers(5, 20, N), np.arange(N) % 3
HITS = RNG.binomial(TOTAL, 0.4)


def beta():
    return sample("p", dist.Beta(1.0, 1.0))


def positive(name):
    return sample(name, dist.LogNormal(0.0, 1.0))


# a family a line: the distribution of a row given its total, or covariate, and what is seen
FAMILIES = {
    "binomial": (lambda n: dist.Binomial(n, beta()), {"n": TOTAL, "y": HITS}),
    "binomial of logits": (lambda n: dist.Binomial(n, logits=sample("b", dist.Normal(0.0, 2.0))),
                           {"n": TOTAL, "y": HITS}),
    "beta-binomial": (lambda n: dist.BetaBinomial(positive("a"), positive("b"), n),
                      {"n": TOTAL, "y": HITS}),
    "zero-inflated binomial": (lambda n: dist.ZeroInflatedDistribution(
        dist.Binomial(n, beta()), gate=sample("gate", dist.Beta(1.0, 1.0))),
        {"n": TOTAL, "y": HITS}),
    "multinomial": (lambda n: dist.Multinomial(n, sample("w", dist.Dirichlet(jnp.ones(3))),
                                               total_count_max=20),
                    {"n": TOTAL, "y": np.array([RNG.multinomial(t, [0.2, 0.3, 0.5])
                                                for t in TOTAL])}),
    "poisson": (lambda n: dist.Poisson(n * sample("rate", dist.Gamma(1.0, 1.0))),
                {"n": TOTAL, "y": HITS}),
    "negative binomial": (lambda n: dist.NegativeBinomial2(n * positive("mean"), positive("c")),
                          {"n": TOTAL, "y": HITS}),
    "zero-inflated poisson": (lambda n: dist.ZeroInflatedPoisson(
        sample("gate", dist.Beta(1.0, 1.0)), n * positive("rate")), {"n": TOTAL, "y": HITS}),
    "normal": (lambda n: dist.Normal(sample("b", dist.Normal(0.0, 5.0)) * n, positive("s")),
               {"n": TOTAL, "y": 2.0 * TOTAL + X}),
    "student": (lambda n: dist.StudentT(4.0, sample("b", dist.Normal(0.0, 5.0)) * n, positive("s")),
                {"n": TOTAL, "y": 2.0 * TOTAL + X}),
    "gamma": (lambda n: dist.Gamma(positive("k") * n, positive("r")),
              {"n": TOTAL, "y": RNG.gamma(TOTAL)}),
    "weibull": (lambda n: dist.Weibull(n * positive("scale"), positive("k")),
                {"n": TOTAL, "y": RNG.weibull(1.5, N) * TOTAL}),
    "truncated normal": (lambda n: dist.TruncatedNormal(sample("m", dist.Normal(0.0, 1.0)) * n,
                                                        positive("s"), low=0.0),
                         {"n": TOTAL, "y": np.abs(X)}),
    "von mises": (lambda n: dist.VonMises(sample("m", dist.Normal(0.0, 1.0)) + 0.0 * n,
                                          positive("k")), {"n": TOTAL, "y": np.tanh(X)}),
    "bernoulli": (lambda n: dist.Bernoulli(logits=sample("b", dist.Normal(0.0, 1.0)) * n),
                  {"n": TOTAL, "y": (X > 0) * 1}),
    "ordered": (lambda n: dist.OrderedLogistic(sample("b", dist.Normal(0.0, 1.0)) * n, jnp.array(
        [-1.0, 1.0])), {"n": TOTAL, "y": np.arange(N) % 3}),
    "discrete uniform": (lambda n: dist.DiscreteUniform(0, n), {"n": TOTAL, "y": HITS,
                                                                "beside": X}),
}


def family(name: str):
    made = FAMILIES[name][0]

    @probml.model
    def rows(n):
        mean = sample("beside_mean", dist.Normal(0.0, 1.0)) if name == "discrete uniform" else None
        own = made(n)  # samples its parameters outside rows
        with probml.rows():
            sample("y", own)
            if mean is not None:
                sample("beside", dist.Normal(mean, 1.0))

    return rows()


@probml.model
def mixed(n):
    """A hidden kind beside totals."""
    w = sample("w", dist.Beta(1.0, 1.0))
    with plate("kind", 2):
        p = sample("p", dist.Beta(1.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Bernoulli(w))
        sample("y", dist.Binomial(n, p[z]))


@probml.model
def rated(n):
    """A number of the row beside totals."""
    a, b = positive("a"), positive("b")
    with probml.rows():
        p = sample("p", dist.Beta(a, b))
        sample("y", dist.Binomial(n, p))


@probml.model
def grouped(g, n, groups: int):
    tau = sample("tau", dist.HalfNormal(1.0))
    with plate("groups", groups):
        a = sample("a", dist.Normal(0.0, tau))
    with probml.rows():
        sample("y", dist.Binomial(n, logits=a[g]))


@probml.model
def marked(n):
    """A number of the row beside a factor."""
    a = sample("a", dist.Normal(0.0, 2.0))
    with probml.rows():
        b = sample("b", dist.Normal(0.0, 1.0))
        sample("y", dist.Normal((a + b)[..., None] * jnp.ones(2), 0.5).to_event(1))
        numpyro.factor("weight", -jnp.exp(0.1 * n + b))


def schools(y=None):
    """One density of everything."""
    mu = sample("mu", dist.Normal(0.0, 3.0))
    with plate("groups", 4, dim=-2):
        a = sample("a", dist.Normal(mu, 1.0))
        with plate("members", 10):
            sample("obs", dist.Normal(a, 1.0), obs=y)


def pasted(n, y=None):
    p = beta()
    with plate("data", len(n)):
        sample("obs", dist.Binomial(n, p), obs=y)


MODELS = {
    **{name: (lambda name=name: family(name), data) for name, (_, data) in FAMILIES.items()},
    "mixed": (mixed, {"n": TOTAL, "y": HITS}),
    "rated": (rated, {"n": TOTAL, "y": HITS}),
    "grouped": (lambda: grouped(groups=3), {"g": GROUP, "n": TOTAL, "y": HITS}),
    "marked": (marked, {"n": X, "y": np.where([[True, False]] * N, np.nan, RNG.normal(size=(N, 2)))
                        }),
    "schools": (lambda: probml.model(schools)(), {"y": RNG.normal(size=(4, 10))}),
    "pasted": (lambda: probml.model(pasted)(), {"n": TOTAL, "y": HITS}),
}
ENGINES = {"default": None, "Exact": probml.Exact(), "EM": probml.EM(), "MAP": probml.MAP(),
           "Laplace": probml.Laplace(), "VB": probml.VB(), "SVI": probml.SVI(steps=100),
           "NUTS": probml.NUTS(draws=50, warmup=50, chains=1, progress=False)}
NOTHING = (None, {}, ())


def questions(model, fit, data):
    """Question → a call; of rows without some of their cells, of their inputs alone, of all."""
    rows = [site.name for site in fit.structure.sites.values() if site.rows and not site.factor]
    inputs = {name: value for name, value in data.items() if name not in rows and name != "y"}
    holes = {name: value if name in inputs else np.where(
        (np.arange(len(value)) % 3 == 0).reshape(-1, *(1,) * (np.ndim(value) - 1)), np.nan, value)
        for name, value in data.items()}
    whole, site = fit.model.is_joint, next((name for name in rows if name in ("y", "obs")), "y")
    outside = next(s.name for s in fit.structure.sites.values() if not s.rows)
    ask = {name: value for name, value in data.items() if name != "y"}
    folder = Path(tempfile.mkdtemp())

    def kept():
        fit.save(folder / "fit")
        return probml.load(folder / "fit", fit.model).params

    return {
        "predict": lambda: fit.predict(ask, site),
        "interval": lambda: fit.predict(ask, site, interval=0.9),
        "predict_proba": lambda: fit.predict_proba(ask, site),
        "decode": lambda: fit.decode(ask), "impute": lambda: fit.impute(data if whole else holes),
        "simulate": lambda: fit.simulate(**({} if whole else inputs)),
        "simulate given": lambda: fit.simulate(given=holes),
        "prior": lambda: model.simulate(**inputs, parameters=not whole),
        "log_prob": lambda: fit.log_prob(data), "score": lambda: fit.score(data),
        "conditional": lambda: fit.conditional(ask, rows[0] if rows else site).mean,
        "decide": lambda: fit.decide(ask), "joint": lambda: fit.joint(ask, [site]),
        "draws": lambda: fit.draws(5), "posterior": lambda: fit.posterior(outside).sample(jax.random.key(0)),
        "table": lambda: fit.table(outside), "summary": lambda: fit.summary(),
        "to_arviz": lambda: fit.to_arviz(data) or True,
        "report": lambda: fit.report(folder / "report.html", data) or True, "save and load": kept,
    }


def check(model, fit, data):
    wrong = []
    for name, ask in questions(model, fit, data).items():
        try:
            found = ask()
        except (probml.ModelError, probml.DataError):
            continue
        except Exception as error:  # what this is about
            wrong.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
            continue
        if isinstance(found, dict | tuple | type(None)) and found in NOTHING:
            wrong.append(f"{name}: nothing, {found!r}")
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(found)] if name in (
            "predict", "interval", "impute", "simulate", "simulate given", "prior", "log_prob",
            "posterior") else []
        if any(leaf.dtype.kind == "f" and not np.isfinite(leaf).all() for leaf in leaves):
            wrong.append(f"{name}: no finite numbers")
        if name in ("simulate", "prior") and data.get("y", X).dtype.kind == "i":
            drawn = next(found[key] for key in ("y", "obs") if key in found)
            if not np.array_equal(drawn, np.round(drawn)) or drawn.shape != data["y"].shape:
                wrong.append(f"{name}: {drawn!r}")
    return wrong


FAST = {("binomial", "default"), ("discrete uniform", "default")}


@pytest.mark.one_in(10)
@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("name, engine", [
    (name, engine) if (name, engine) in FAST else pytest.param(name, engine, marks=pytest.mark.slow)
    for name in MODELS for engine in ENGINES])
def test_every_question_has_an_answer_or_a_refusal(name, engine, kind):
    made, data = MODELS[name]
    data = {key: value.astype(kind) if key == "n" and value.dtype.kind == "i" else value
            for key, value in data.items()}
    model = made()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fit = model.fit(data, ENGINES[engine])
        except probml.Refusal:
            return
        assert not check(model, fit, data)


def test_draws_of_totals_are_those_of_the_distribution():
    fit = family("binomial").at({"p": 0.4})
    many = np.repeat([20, 35], 4000)
    drawn = fit.simulate(n=many)["y"]
    assert drawn.dtype.kind == "i"
    np.testing.assert_allclose(drawn.reshape(2, -1).mean(1), [8.0, 14.0], atol=0.2)
    np.testing.assert_allclose(drawn.reshape(2, -1).std(1), np.sqrt([4.8, 8.4]), rtol=0.06)
