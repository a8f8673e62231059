"""The sides of the posterior cases: the same densities, each written as the package's user would
write them.

A side imports what it needs and returns run(seed) -> name: (chains, draws, ...); a sampler's with
"diverging" and "steps" (gradients), too. `size` is (draws, warmup) of samplers, a number of knots
of curves.
"""

import numpy as np

CHAINS = 4


def probml_side(case, variant, data, size):
    import jax.numpy as jnp
    import numpyro.distributions as dist
    import numpyro.infer  # noqa: F401  probml imports it at its first use, as the peers' users do in their first lines
    from numpyro import plate, sample

    import probml

    @probml.model
    def schools(count: int, school, sigma):
        mu = sample("mu", dist.Normal(0, 5))
        tau = sample("tau", dist.HalfCauchy(5))
        with plate("schools", count):
            theta = sample("theta", dist.Normal(0, 1))
        with probml.rows():
            sample("y", dist.Normal((mu + tau * theta)[school], sigma))

    @probml.model
    def linear(x):
        beta = sample("beta", dist.Normal(0, 10).expand([x.shape[-1]]).to_event(1))
        sigma = sample("sigma", dist.HalfNormal(10))
        with probml.rows():
            sample("y", dist.Normal(x @ beta, sigma))

    @probml.model
    def logistic(x):
        beta = sample("beta", dist.Normal(0, 2).expand([x.shape[-1]]).to_event(1))
        with probml.rows():
            sample("y", dist.Bernoulli(logits=x @ beta))

    def states(k):
        with plate("state", k):
            return sample("mean", dist.Normal(0, 5)), sample("scale", dist.LogNormal(0, 1))

    @probml.model
    def mixture(k: int):
        weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
        mean, scale = states(k)
        with probml.rows():
            z = sample("z", dist.Categorical(weights))
            sample("y", dist.Normal(mean[z], scale[z]))

    @probml.model
    def chain(k: int):
        with plate("from", k):
            transition = sample("transition", dist.Dirichlet(jnp.ones(k)))
        mean, scale = states(k)
        with probml.rows():
            z = sample("z", probml.MarkovChain(jnp.full(k, 1 / k), transition))
            sample("y", dist.Normal(mean[z], scale[z]).to_event(1))

    @probml.model
    def known():
        mean = sample("mean", dist.Normal(0, 10))
        with probml.rows():
            sample("y", dist.Normal(mean, 2.0))

    @probml.model
    def unknown():
        variance = sample("variance", dist.InverseGamma(1.0, 1.0))
        mean = sample("mean", dist.Normal(0, jnp.sqrt(variance / 0.01)))
        with probml.rows():
            sample("y", dist.Normal(mean, jnp.sqrt(variance)))

    if case in ("known", "unknown"):
        model = {"known": known, "unknown": unknown}[case]()

        def exact(seed):
            fit = model.fit({"y": data["y"]}, probml.Exact())
            return {name: np.asarray(value)[None] for name, value in fit.params.items()}

        return exact
    if case == "spline":
        from probml.models import SmoothingSpline

        return curves(lambda: SmoothingSpline(knots=size).fit(data["x"][:, None], data["y"]), data)
    draws, warmup = size
    model = {"schools": schools, "linear": linear, "logistic": logistic, "mixture": mixture,
             "chain": chain}[case]
    model = model(**{"schools": {"count": len(data["y"])}, "mixture": {"k": 3},
                     "chain": {"k": 3}}.get(case, {}))
    seen = {name: value for name, value in data.items() if name != "first"}
    seen |= {"schools": {"school": np.arange(len(data["y"]))},
             "chain": {"y": data["y"][None]}}.get(case, {})

    def nuts(seed):
        fit = model.fit(seen, probml.NUTS(draws=draws, warmup=warmup, chains=CHAINS), seed=seed)
        return fit.drawn.values | {name: fit.drawn.stats[name] for name in ("diverging", "steps")}

    return nuts


def summed(case):
    """log p(data | parameters) of mixture and chain by the user's own hand, in JAX."""
    import jax
    import jax.numpy as jnp
    from jax.scipy.special import logsumexp
    from jax.scipy.stats import norm

    def mixture(y, weights, mean, scale):
        return logsumexp(jnp.log(weights) + norm.logpdf(y[:, None], mean, scale), axis=1).sum()

    def chain(y, transition, mean, scale):
        emission, log = norm.logpdf(y[:, None], mean, scale), jnp.log(transition)

        def forward(alpha, now):
            return logsumexp(alpha[:, None] + log, axis=0) + now, None

        return logsumexp(jax.lax.scan(forward, emission[0] - jnp.log(len(mean)), emission[1:])[0])

    return {"mixture": mixture, "chain": chain}[case]


def numpyro_side(case, variant, data, size):
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS, init_to_uniform, init_to_value

    def schools(y, sigma):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("schools", len(y)):
            theta = numpyro.sample("theta", dist.Normal(0, 1))
            numpyro.sample("y", dist.Normal(mu + tau * theta, sigma), obs=y)

    def linear(x, y):
        beta = numpyro.sample("beta", dist.Normal(0, 10).expand([x.shape[1]]).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(10))
        numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)

    def logistic(x, y):
        beta = numpyro.sample("beta", dist.Normal(0, 2).expand([x.shape[1]]).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=y)

    def hidden(y, first):
        if case == "mixture":
            shares = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
        else:
            shares = numpyro.sample("transition",
                                    dist.Dirichlet(jnp.ones(3)).expand([3]).to_event(1))
        mean = numpyro.sample("mean",
                              dist.ImproperUniform(dist.constraints.ordered_vector, (), (3,)))
        numpyro.factor("prior of the mean", dist.Normal(0, 5).log_prob(mean).sum())
        scale = numpyro.sample("scale", dist.LogNormal(0, 1).expand([3]).to_event(1))
        numpyro.factor("y", likelihood(y, shares, mean, scale))

    model, start = ({"schools": schools, "linear": linear, "logistic": logistic}.get(case, hidden),
                    init_to_uniform)
    if model is hidden:
        likelihood, values = summed(case), {"mean": jnp.asarray(data["first"]),
                                            "scale": jnp.ones(3)}
        start = init_to_value(values=values | {"weights": jnp.ones(3) / 3,
                                               "transition": jnp.ones((3, 3)) / 3})
    given, (draws, warmup) = {name: jnp.asarray(value) for name, value in data.items()}, size
    sampler = MCMC(
        NUTS(model, init_strategy=start),
        num_warmup=warmup,
        num_samples=draws,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )

    def run(seed):
        sampler.run(jax.random.key(seed), **given, extra_fields=("diverging", "num_steps"))
        found, extra = jax.device_get((sampler.get_samples(True), sampler.get_extra_fields(True)))
        return found | {"diverging": extra["diverging"], "steps": extra["num_steps"]}

    return run


def blackjax_side(case, variant, data, size):
    import blackjax
    import jax
    import jax.numpy as jnp
    from jax.scipy.stats import cauchy, norm

    def simplex(logits):
        """Rows of probabilities, the last logit 0, and the log determinant."""
        log = jax.nn.log_softmax(jnp.concatenate([logits, jnp.zeros((*logits.shape[:-1], 1))], -1))
        return jnp.exp(log), log.sum()

    def parameters(u):
        """From unbounded numbers to parameters, with the log determinant."""
        out, volume = dict(u), 0.0
        for name in u.keys() & {"tau", "sigma", "scale"}:
            out[name], volume = jnp.exp(u[name]), volume + u[name].sum()
        for name in u.keys() & {"weights", "transition"}:
            out[name], more = simplex(u[name])
            volume += more
        if "mean" in u:
            out["mean"] = u["mean"][0] + jnp.concatenate(
                [jnp.zeros(1), jnp.cumsum(jnp.exp(u["mean"][1:]))]
            )
            volume += u["mean"][1:].sum()
        return out, volume

    def schools(p, y, sigma):
        prior = norm.logpdf(p["mu"], 0, 5) + cauchy.logpdf(p["tau"], 0, 5) + norm.logpdf(
            p["theta"]
        ).sum()
        return prior + norm.logpdf(y, p["mu"] + p["tau"] * p["theta"], sigma).sum()

    def linear(p, x, y):
        prior = norm.logpdf(p["beta"], 0, 10).sum() + norm.logpdf(p["sigma"], 0, 10)
        return prior + norm.logpdf(y, x @ p["beta"], p["sigma"]).sum()

    def logistic(p, x, y):
        logits = x @ p["beta"]
        return norm.logpdf(p["beta"], 0, 2).sum() + (y * logits - jnp.logaddexp(0, logits)).sum()

    def hidden(p, y, first):
        log = jnp.log(p["scale"])
        # the uniform prior of probabilities is constant
        prior = norm.logpdf(p["mean"], 0, 5).sum() + (norm.logpdf(log) - log).sum()
        return prior + likelihood(y, p["weights" if case == "mixture" else "transition"], p["mean"],
                                  p["scale"])

    given, (draws, warmup) = {name: jnp.asarray(value) for name, value in data.items()}, size
    zeros = {
        "schools": lambda: {"mu": 0.0, "tau": 0.0, "theta": np.zeros(len(data["y"]))},
        "linear": lambda: {"beta": np.zeros(10), "sigma": 0.0},
        "logistic": lambda: {"beta": np.zeros(10)},
        "mixture": lambda: {"weights": np.zeros(2), "mean": np.zeros(3), "scale": np.zeros(3)},
        "chain": lambda: {"transition": np.zeros((3, 2)), "mean": np.zeros(3),
                          "scale": np.zeros(3)},
    }[case]()
    joint, width = ({"schools": schools, "linear": linear, "logistic": logistic}.get(case, hidden),
                    2.0)
    if joint is hidden:
        likelihood, width = summed(case), 0.1
        zeros["mean"] = np.concatenate([data["first"][:1], np.log(np.diff(data["first"]))])

    @jax.jit
    def sample(key, starts, given):
        def density(u):
            p, volume = parameters(u)
            return joint(p, **given) + volume

        def chain(key, start):
            first, second = jax.random.split(key)
            adaptation = blackjax.window_adaptation(blackjax.nuts, density,
                                                    adaptation_info_fn=lambda *_: None)
            (state, settings), _ = adaptation.run(first, start, num_steps=warmup)
            kernel = blackjax.nuts(density, **settings)

            def step(state, key):
                state, info = kernel.step(key, state)
                found = parameters(state.position)[0] | {"diverging": info.is_divergent,
                                                         "steps": info.num_integration_steps}
                return state, found

            return jax.lax.scan(step, state, jax.random.split(second, draws))[1]

        return jax.vmap(chain)(jax.random.split(key, CHAINS), starts)

    def run(seed):
        random = np.random.default_rng(seed)
        starts = {name: value + random.uniform(-width, width, (CHAINS, *np.shape(value)))
                  for name, value in zeros.items()}
        return jax.device_get(sample(jax.random.key(seed), starts, given))

    return run


def pymc_side(case, variant, data, size):
    """`variant` is nutpie's backend, its program compiled once; without one pm.sample with nutpie,
    which compiles at every call."""
    import nutpie
    import pymc as pm
    import pytensor
    import pytensor.tensor as pt

    def states():
        # of which nutpie's JAX backend knows nothing
        start = {} if variant else {"initval": data["first"]}
        mean = pm.Normal("mean", 0, 5, shape=3, transform=pm.distributions.transforms.ordered,
                         **start)
        return mean, pm.LogNormal("scale", 0, 1, shape=3)

    def schools():
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        theta = pm.Normal("theta", 0, 1, shape=len(data["y"]))
        pm.Normal("y", mu + tau * theta, data["sigma"], observed=data["y"])

    def linear():
        beta, sigma = pm.Normal("beta", 0, 10, shape=10), pm.HalfNormal("sigma", 10)
        pm.Normal("y", data["x"] @ beta, sigma, observed=data["y"])

    def logistic():
        beta = pm.Normal("beta", 0, 2, shape=10)
        pm.Bernoulli("y", logit_p=data["x"] @ beta, observed=data["y"])

    def mixture():
        weights = pm.Dirichlet("weights", np.ones(3))
        mean, scale = states()
        pm.NormalMixture("y", weights, mean, scale, observed=data["y"])

    def chain():
        transition = pm.Dirichlet("transition", np.ones((3, 3)))
        mean, scale = states()
        emission, log = pm.logp(pm.Normal.dist(mean, scale), data["y"][:, None]), pt.log(transition)
        alpha = pytensor.scan(
            lambda now, alpha, log: pt.logsumexp(alpha[:, None] + log, axis=0) + now,
            sequences=[emission[1:]],
            outputs_info=[emission[0] - np.log(3)],
            non_sequences=[log],
            return_updates=False,
        )
        pm.Potential("evidence", pt.logsumexp(alpha[-1]))

    write, (draws, warmup), compiled = locals()[case], size, []

    def run(seed):
        settings = dict(draws=draws, tune=warmup, chains=CHAINS)
        if not variant or not compiled:
            with pm.Model() as model:
                write()
                if not variant:
                    quiet = dict(progressbar=False, compute_convergence_checks=False)
                    trace = pm.sample(**settings, **quiet, nuts_sampler="nutpie", random_seed=seed)
            if variant:
                more = dict(gradient_backend="jax") if variant == "jax" else {}
                if "first" in data:  # from jittered starts chains may end in other modes
                    more |= dict(initial_points={"mean": data["first"]}, jitter_rvs=set())
                compiled.append(nutpie.compile_pymc_model(model, backend=variant, **more))
        if variant:
            trace = nutpie.sample(compiled[0], **settings, seed=seed, progress_bar=False)
        stats = trace.sample_stats
        found = {name: value.values for name, value in trace.posterior.items()}
        return found | {"diverging": stats["diverging"].values, "steps": stats["n_steps"].values}

    return run


def numpy_side(case, variant, data, size):
    """The closed forms from NumPy's own mean and variance."""

    def known(seed):
        y = data["y"]
        precision = 1 / 100 + len(y) / 4
        return {"mean": np.array([len(y) * y.mean() / 4 / precision])}

    def unknown(seed):
        y = data["y"]
        n, mean, variance = len(y), y.mean(), y.var()
        rate = 1 + 0.5 * n * variance + 0.5 * 0.01 * n / (n + 0.01) * mean**2
        return {"mean": np.array([n * mean / (n + 0.01)]),
                "variance": np.array([rate / (1 + n / 2 - 1)])}

    return {"known": known, "unknown": unknown}[case]


def curves(learn, data):
    """A curve is judged by its values at all x."""
    return lambda seed: {"curve": learn().predict(data["x"][:, None])}


def scipy_side(case, variant, data, size):
    """A knot at every x, and by its generalised cross-validation; x in units of its mean spacing,
    else it finds the problem ill-posed."""
    from scipy.interpolate import make_smoothing_spline

    def run(seed):
        x = data["x"] * (len(data["x"]) / np.ptp(data["x"]))
        return {"curve": make_smoothing_spline(x, data["y"])(x)}

    return run


def sklearn_side(case, variant, data, size):
    from sklearn.linear_model import BayesianRidge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import SplineTransformer

    # the outermost knots count
    basis = SplineTransformer(size + 2, knots="quantile", include_bias=False)
    return curves(lambda: make_pipeline(basis, BayesianRidge()).fit(data["x"][:, None], data["y"]),
                  data)


SIDES = {
    "probml": probml_side,
    "nutpie": pymc_side,
    "pymc": pymc_side,
    "blackjax": blackjax_side,
    "numpyro": numpyro_side,
    "numpy": numpy_side,
    "scipy": scipy_side,
    "sklearn": sklearn_side,
}
