"""Crossed effects of known standard deviation are the only parameters: no form is exact but under
normal rows, so a tested approximation of all of them is the default, never an integral that nothing
tests. Oracle: importance sampling from the prior, by NumPy."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats as st
from numpyro import handlers, plate, sample

import probml

G, H = np.array([0, 1, 2, 1, 0, 2, 1, 0]), np.array([0, 0, 1, 1, 0, 1, 0, 1])
OK = np.array([1, 1, 1, 0, 1, 1, 1, 0], bool)
COUNTS, YES = np.array([1, 0, 2, 1, 0, 3, 1, 4]), np.array([1, 0, 1, 1, 0, 1, 1, 0])
HOURS = np.array([0.3, 1.2, 0.4, 2.2, 0.9, 0.5, 1.1, 0.8])

# rows, their site given the sum of the effects, and its log density by SciPy
KINDS = {
    "counts": (COUNTS, lambda m, ok: dist.Poisson(jnp.exp(m)),
               lambda m: st.poisson.logpmf(COUNTS, np.exp(m))),
    "yes or no": (YES, lambda m, ok: dist.Bernoulli(logits=m),
                  lambda m: st.bernoulli.logpmf(YES, 1 / (1 + np.exp(-m)))),
    "binomial": (COUNTS, lambda m, ok: dist.Binomial(6, logits=m),
                 lambda m: st.binom.logpmf(COUNTS, 6, 1 / (1 + np.exp(-m)))),
    "times": (HOURS, lambda m, ok: dist.Exponential(jnp.exp(m)),
              lambda m: st.expon.logpdf(HOURS, scale=np.exp(-m))),
    "masked": (HOURS, lambda m, ok: dist.Normal(m, 0.7).mask(ok),
               lambda m: st.norm.logpdf(HOURS, m, 0.7) * OK),
    "normal": (HOURS, lambda m, ok: dist.Normal(m, 0.7), lambda m: st.norm.logpdf(HOURS, m, 0.7)),
}


def model(kind):
    def crossed(g, h, ok):
        with plate("gs", 3):
            a = sample("a", dist.Normal(0.0, 1.0))
        with plate("hs", 2):
            b = sample("b", dist.Normal(0.5, 0.8))
        with probml.rows():
            sample("y", KINDS[kind][1](a[g] + b[h], ok))

    return probml.model(crossed)()


def by_hand(kind, size=200_000):
    """Means and standard deviations of a and b, log evidence."""
    random = np.random.default_rng(1)
    a, b = random.normal(size=(size, 3)), 0.5 + 0.8 * random.normal(size=(size, 2))
    log = KINDS[kind][2](a[:, G] + b[:, H]).sum(1)
    w, both = np.exp(log - log.max()), np.hstack([a, b])
    evidence, w = log.max() + np.log(w.mean()), w / w.sum()
    mean = w @ both
    return mean, np.sqrt(w @ (both - mean) ** 2), evidence


@pytest.mark.parametrize("kind", KINDS)
def test_the_default_posterior_is_right_and_says_what_it_is(kind):
    fit = model(kind).fit({"g": G, "h": H, "ok": OK, "y": KINDS[kind][0]})
    assert fit.status.startswith("Exact" if kind == "normal" else "Posterior by Laplace")
    drawn, (mean, sd, evidence) = fit.draws(4000), by_hand(kind)
    both = np.hstack([drawn["a"], drawn["b"]])
    np.testing.assert_allclose(both.mean(0), mean, atol=0.08)
    np.testing.assert_allclose(both.std(0), sd, rtol=0.15)
    np.testing.assert_allclose(fit.log_evidence, evidence, atol=0.06)


def test_the_same_under_a_handler_and_weights():
    def crossed(g, h, ok):
        a = sample("a", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        b = sample("b", dist.Normal(0.5, 0.8).expand([2]).to_event(1))
        with probml.rows(), handlers.mask(mask=ok):
            sample("y", dist.Poisson(jnp.exp(a[g] + b[h])))

    twice, data = np.repeat(np.arange(8), OK * 2), {"g": G, "h": H, "ok": OK, "y": COUNTS}
    fit = probml.model(crossed)().fit(data, weights=np.full(8, 2))
    other = probml.model(crossed)().fit({name: value[twice] for name, value in data.items()})
    np.testing.assert_allclose(fit.draws(4000)["a"].mean(0), other.draws(4000)["a"].mean(0), atol=0.05)
    np.testing.assert_allclose(fit.log_evidence, other.log_evidence, atol=0.05)
