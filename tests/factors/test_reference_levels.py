"""Effects of groups of which some rows read none: a level that is fixed at 0, however it is written.

Such rows belong to no member, and their density counts all the same. The same model, in which these
rows read a member times 0, has the same optimum.
"""

import warnings

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml

G = np.arange(60) % 5  # level 0 is the reference, in one form level 4 as well
X = np.random.default_rng(5).normal(size=60)
ETA = 0.5 + np.array([0.0, 0.8, -0.6, 0.4, 0.0])[G]
FORMS = {
    "before": lambda b, g: jnp.concatenate([jnp.zeros_like(b[:1]), b])[g],
    "after, turned": lambda b, g: jnp.concatenate([b, jnp.zeros_like(b[:1])])[4 - g],
    "padded": lambda b, g: jnp.pad(b, [(1, 1)] + [(0, 0)] * (b.ndim - 1))[g],
    "where": lambda b, g: jnp.where(g > 0, b[jnp.maximum(g - 1, 0)].T, 0.0).T,
    "where, read outside": lambda b, g: jnp.where(g > 0, b[g - 1].T, 0.0).T,
    "times, read outside": lambda b, g: ((g > 0) * b[g - 1].T).T,
    "set": lambda b, g: jnp.zeros((5, *b.shape[1:])).at[1:].set(b)[g],
}
SITES = {
    "counts": lambda eta, s: dist.Poisson(jnp.exp(eta)),
    "overdispersed": lambda eta, s: dist.NegativeBinomial2(jnp.exp(eta), s),
    "choices": lambda eta, s: dist.Bernoulli(logits=eta),
    "widths": lambda eta, s: dist.Normal(0.0, jnp.exp(eta)),
    "normal": lambda eta, s: dist.Normal(eta, s),
}


def of_groups(form, site, slopes=False):
    """With a level at 0 as a form has it; None: a member is read times 0."""
    ends = 2 if form == "padded" else 1

    @probml.model
    def effects(g, own, there, x):
        a, s = sample("a", dist.Normal(0.0, 2.0)), sample("s", dist.Gamma(4.0, 2.0))
        sd = sample("sd", dist.Gamma(2.0, 2.0))
        wide = dist.Normal(0.0, sd).expand([2]).to_event(1) if slopes else dist.Normal(0.0, sd)
        with plate("groups", 5 - ends):
            b = sample("b", wide)
        with probml.rows():
            if own is None:
                read = FORMS[form](b, g)
            else:
                read = there[:, None] * b[own] if slopes else there * b[own]
            eta = a + (read[:, 0] + read[:, 1] * x if slopes else read)
            sample("y", SITES[site](eta, s))

    return effects


def best(form, site, written, slopes=False):
    r = np.random.default_rng(2)
    y = {"counts": r.poisson(np.exp(ETA)), "overdispersed": r.poisson(np.exp(ETA) * r.gamma(2, 0.5, 60)),
         "choices": r.random(60) < 1 / (1 + np.exp(-2 * ETA)), "widths": np.exp(ETA) * r.normal(size=60),
         "normal": ETA + r.normal(size=60)}[site]
    there = (G > 0) & (G < 4) if form == "padded" else G > 0
    data = {"g": G, "there": there * 1.0, "x": X, "y": y}
    given = {} if written else {"own": np.where(there, G - 1, 0)}
    model = of_groups(form, site, slopes)
    bound = model(own=None) if written else model()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bound.fit(data | given, probml.MAP())


PAIRS = [("before", "counts"), ("before", "choices"), ("before", "overdispersed"), ("before", "normal"),
         ("after, turned", "counts"), ("after, turned", "widths"), ("padded", "choices"),
         ("set", "counts"), ("where", "choices"), ("where, read outside", "counts"),
         ("where, read outside", "normal"), ("times, read outside", "choices")]


@pytest.mark.parametrize(("form", "site"), PAIRS)
def test_rows_of_a_level_that_is_fixed_count(form, site):
    one, other = best(form, site, True), best(form, site, False)
    # a form that is not read as an index has Laplace's approximation in place of a quadrature
    np.testing.assert_allclose(one.history[-1], other.history[-1], atol=0.1)
    for name in ("a", "sd"):
        np.testing.assert_allclose(one.params[name], other.params[name], rtol=0.05, atol=0.02)


@pytest.mark.parametrize("site", ["counts", "choices"])
def test_several_numbers_of_a_level_are_no_rough_integral(site):
    one, other = (best("before", site, written, True) for written in (True, False))
    np.testing.assert_allclose(one.history[-1], other.history[-1], rtol=1e-4)
    assert [f.code for f in one.warnings] == [f.code for f in other.warnings]


def test_a_code_out_of_range_is_refused_where_a_row_uses_it():
    model = of_groups("where, read outside", "normal")(own=None)
    data = {"g": G, "there": (G > 0) * 1.0, "x": X,
            "y": ETA + np.random.default_rng(1).normal(size=60)}
    fit = model.fit(data, probml.MAP())
    new = {"g": np.array([0, 4]), "there": np.array([0.0, 1.0]), "x": X[:2]}
    at = fit.params
    np.testing.assert_allclose(fit.predict(new), [at["a"], at["a"] + at["b"][3]], rtol=1e-5)
    with pytest.raises(probml.DataError, match="'g' is 5 in row 1"):
        fit.predict(new | {"g": np.array([0, 5])})
    with pytest.raises(probml.DataError, match="'g' is -1 in row 2"):
        of_groups("before", "normal")(own=None).fit(data | {"g": np.where(G == 2, -1, G)})


@pytest.mark.parametrize("used", [
    lambda b, g, a, z: jnp.maximum(b[g - 1], 1.0), lambda b, g, a, z: jnp.minimum(b[g - 1], -1.0),
    lambda b, g, a, z: jnp.where(a > 2, b[g - 1], 0.0), lambda b, g, a, z: jnp.where(z, b[g - 1], 0.0)])
def test_an_entry_that_is_used_at_some_values_only_is_used(used):
    @probml.model
    def limited(g):
        a = sample("a", dist.Normal(0.0, 2.0))
        with plate("groups", 4):
            b = sample("b", dist.Normal(0.0, 1.0))
        with probml.rows():
            z = sample("z", dist.Bernoulli(0.5))
            sample("y", dist.Normal(a + used(b, g, a, z), 1.0))

    with pytest.raises(probml.DataError, match="'g' is 0 in row 0"):
        limited().fit({"g": G, "y": X}, probml.MAP())
