"""Regressions and mixed models with weakly informative priors, written down by hand for NumPyro in
the units of the table: what engine="bayes" is held to."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import deterministic, plate, sample
from numpyro.infer import MCMC, NUTS


def regression(X, y, family="normal", link=None, trials=1, offset=0.0, members=(), slopes=None):
    """A function of no arguments: sites `coef`, `intercept` at the means of the columns, `sigma` or
    `concentration`; of every grouping k of members (n,) `sd{k}`, `effects{k}`, and where `slopes`
    names a column, its effects and their correlation too, `corr`."""
    X, y = np.asarray(X, float), np.asarray(y, float)
    link = link or {"normal": "identity", "bernoulli": "logit", "binomial": "logit"}.get(family,
                                                                                         "log")
    level, unit, centre = 0.0, 1.0, X.mean(0)
    if family == "normal" and link == "identity":
        level, unit = y.mean(), y.std()
    size = np.sqrt(np.mean(y**2)) if family == "gamma" or (family == "normal"
                                                           and link == "log") else 1.0
    wide = unit if link == "identity" else size

    def model():
        coef = sample("coef", dist.Normal(0, 2.5 * unit / X.std(0)).to_event(1))
        at = sample("intercept", dist.Normal(level + np.log(size), 2.5 * unit))
        eta = at + (X - centre) @ coef + offset
        for k, member in enumerate(members):
            count = int(member.max()) + 1
            if slopes is None:
                sd = sample(f"sd{k}", dist.Exponential(1 / unit))
                with plate(f"members{k}", count):
                    eta = eta + sd * sample(f"raw{k}", dist.Normal(0, 1))[member]
                continue
            z = X[:, slopes]
            sd = sample(f"sd{k}", dist.Exponential(jnp.array([1.0, z.std()]) / unit).to_event(1))
            root = sample(f"root{k}", dist.LKJCholesky(2, 1.0))
            deterministic("corr", root[1, 0])
            with plate(f"members{k}", count):
                raw = sample(f"raw{k}", dist.Normal(0, 1).expand([2]).to_event(1))
            own = (raw @ (sd[:, None] * root).T)[member]
            eta = eta + own[:, 0] + own[:, 1] * z
        mean = {"identity": lambda x: x, "log": jnp.exp, "logit": jax.nn.sigmoid}[link](eta)
        if family == "normal":
            seen = dist.Normal(mean, sample("sigma", dist.Exponential(1 / wide)))
        elif family in ("gamma", "negative binomial"):
            c = sample("concentration", dist.Exponential(1.0))
            seen = dist.Gamma(c, c / mean) if family == "gamma" else dist.NegativeBinomial2(mean, c)
        else:
            seen = {"bernoulli": lambda: dist.Bernoulli(logits=eta), "poisson":
                    lambda: dist.Poisson(mean), "binomial":
                    lambda: dist.Binomial(trials, logits=eta)}[family]()
        with plate("rows", len(y)):
            sample("y", seen, obs=y)

    return model


def draws(model, X, count=4000, warmup=1000, seed=0):
    """Draws of the sites by NumPyro's NUTS, name → (4 · count / 4, ...), the intercept where the
    columns are 0."""
    sampler = MCMC(NUTS(model, target_accept_prob=0.95), num_warmup=warmup,
                   num_samples=count // 4, num_chains=4, chain_method="vectorized",
                   progress_bar=False)
    sampler.run(jax.random.key(seed))
    found = {name: np.asarray(value) for name, value in sampler.get_samples().items()}
    found["intercept"] = found["intercept"] - found["coef"] @ np.asarray(X, float).mean(0)
    return found
