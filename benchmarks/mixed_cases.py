"""Mixed models: lines of many groups, crossed effects and counts, beside
statsmodels' MixedLM where it is installed, in turns in one process; seconds of processor.

statsmodels has no crossed effects of this size, and no maximum likelihood of counts with effects.
"""

import contextlib
import time
import warnings

import numpy as np

from common_cases import row, tell


def spent(call):
    """Seconds of processor, and the result."""
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def race(project, peer):
    """The project's first call, its second, and the peer's, in seconds of processor."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cold, found = spent(project)
        other, theirs = (None, None) if peer is None else spent(peer)
        return cold, spent(project)[0], other, found, theirs


def lines(n: int, groups: int):
    """Intercepts and slopes of groups that are correlated, maximum likelihood."""
    import jax.numpy as jnp
    import numpyro.distributions as dist
    from numpyro import plate, sample

    import probml

    @probml.model
    def model(group, t):
        level = sample("level", dist.Normal(0.0, 1e3).expand([2]).to_event(1))
        spread = sample("spread", dist.HalfNormal(1e2).expand([2]).to_event(1))
        noise, turn = sample("noise", dist.HalfNormal(1e2)), sample("turn", dist.LKJCholesky(2))
        with plate("groups", groups):
            own = sample("own", dist.MultivariateNormal(jnp.zeros(2), scale_tril=spread[:, None]
                                                        * turn))
        with probml.rows():
            line = level + own[group]
            sample("y", dist.Normal(line[..., 0] + line[..., 1] * t, noise))

    random = np.random.default_rng(0)
    group, t = np.arange(n) % groups, random.normal(size=n)
    own = random.normal(size=(groups, 2)) * [2.0, 0.5]
    y = 5 + own[group, 0] + (1 + own[group, 1]) * t + random.normal(size=n)
    other = None
    with contextlib.suppress(ImportError):
        from statsmodels.regression.mixed_linear_model import MixedLM

        design = np.column_stack([np.ones(n), t])

        def other():
            return MixedLM(y, design, groups=group, exog_re=design).fit(reml=False)

    return lambda: model().fit({"group": group, "t": t, "y": y}, probml.MAP(prior=False)), other


def crossed(n: int, ones: int, twos: int):
    """Two crossed groupings."""
    import numpyro.distributions as dist
    from numpyro import plate, sample

    import probml

    @probml.model
    def model(one, two):
        mean = sample("mean", dist.Normal(0.0, 1e3))
        spread = sample("spread", dist.HalfNormal(1e2).expand([2]).to_event(1))
        noise = sample("noise", dist.HalfNormal(1e2))
        with plate("ones", ones):
            a = sample("a", dist.Normal(0.0, spread[0]))
        with plate("twos", twos):
            b = sample("b", dist.Normal(0.0, spread[1]))
        with probml.rows():
            sample("y", dist.Normal(mean + a[one] + b[two], noise))

    random = np.random.default_rng(1)
    one, two = random.integers(0, ones, n), random.integers(0, twos, n)
    y = 2 * random.normal(size=ones)[one] + random.normal(size=twos)[two] + random.normal(size=n)
    return lambda: model().fit({"one": one, "two": two, "y": y}, probml.MAP(prior=False))


def counts(n: int, groups: int):
    """A number a group under counts, by quadrature of 25 nodes."""
    import jax.numpy as jnp
    import numpyro.distributions as dist
    from numpyro import plate, sample

    import probml

    @probml.model
    def model(group, x):
        beta = sample("beta", dist.Normal(0.0, 1e2).expand([2]).to_event(1))
        spread = sample("spread", dist.HalfNormal(1e1))
        with plate("groups", groups):
            shift = sample("shift", dist.Normal(0.0, spread))
        with probml.rows():
            sample("y", dist.Poisson(jnp.exp(beta[0] + beta[1] * x + shift[group])))

    random = np.random.default_rng(2)
    group, x = np.arange(n) % groups, random.normal(size=n)
    y = random.poisson(np.exp(0.5 + 0.3 * x + 0.7 * random.normal(size=groups)[group]))
    return lambda: model().fit({"group": group, "x": x, "y": y}, probml.MAP(prior=False))


def mixed(dtype, quick):
    """Wanted: ten times statsmodels."""
    n, groups = (2_000, 100) if quick else (100_000, 5_000)
    fit, other = lines(n, groups)
    cold, warm, theirs, ours, found = race(fit, other)
    yield row(f"mixed model, {n:,} rows × {groups:,} groups with slopes, peer MixedLM", cold, warm,
              theirs, ours.history[-1], None if found is None else found.llf, "processor seconds")
    n, ones, twos = (2_000, 40, 10) if quick else (50_000, 1_000, 200)
    cold, warm, _, ours, _ = race(crossed(n, ones, twos), None)
    yield row(f"crossed effects, {n:,} rows, {ones:,} + {twos:,} levels", cold, warm, None,
              ours.history[-1], None, "processor seconds")
    n, groups = (2_000, 100) if quick else (100_000, 5_000)
    cold, warm, _, ours, _ = race(counts(n, groups), None)
    yield row(f"counts with effects, {n:,} rows × {groups:,} groups, 25 nodes", cold, warm, None,
              ours.history[-1], None, "processor seconds")


CASES = {"mixed": mixed}


if __name__ == "__main__":
    tell(CASES)
