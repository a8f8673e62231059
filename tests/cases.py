"""The models every engine test runs over, with data and starts; at the top level of a module, so
that they pickle."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers, plate, sample
from numpyro.distributions import constraints

import probml

nan = np.nan
ROWS = 110  # with one row more the padded size stays 112: seven chunks of sixteen


def fitted(model, data, engine=None, **more):
    """A fit whose warning that it stopped at the iteration limit is expected."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(EM|MAP) of model", UserWarning)
        return model.fit(data, engine, **more)


# The published examples of shared/design.md, section 3


@probml.model
def candy_bags():
    bag = sample("bag", dist.Categorical(jnp.array([0.1, 0.2, 0.4, 0.2, 0.1])))
    with probml.rows():
        sample("cherry", dist.Bernoulli(jnp.array([1.0, 0.75, 0.5, 0.25, 0.0])[bag]))


@probml.model
def lab_test():
    with probml.rows():
        ill = sample("ill", dist.Bernoulli(0.01))
        sample("positive", dist.Bernoulli(jnp.array([0.005, 0.99])[ill]))


@probml.model
def two_bags():
    theta = sample("theta", dist.Beta(1.0, 1.0))
    with plate("bags", 2):
        flavour = sample("p_flavour", dist.Beta(1.0, 1.0))
        wrapper = sample("p_wrapper", dist.Beta(1.0, 1.0))
        hole = sample("p_hole", dist.Beta(1.0, 1.0))
    with probml.rows():
        second = sample("second", dist.Bernoulli(1.0 - theta))
        sample("cherry", dist.Bernoulli(flavour[second]))
        sample("red", dist.Bernoulli(wrapper[second]))
        sample("hole", dist.Bernoulli(hole[second]))


@probml.model
def telephone_die():
    theta = sample("theta", dist.Dirichlet(jnp.ones(6)))
    with probml.rows():
        face = sample("face", dist.Categorical(theta))
        sample("heard", dist.Bernoulli(1.0 - jnp.array([1, 2, 2, 1, 1, 1])[face] / 8.0))


@probml.model
def coin(a: float = 1.0, b: float = 1.0):
    heads = sample("heads", dist.Beta(a, b))
    with probml.rows():
        sample("toss", dist.Bernoulli(heads))


@probml.model
def dice(a=(1.0, 1.0, 1.0)):
    theta = sample("theta", dist.Dirichlet(jnp.array(a)))
    with probml.rows():
        sample("face", dist.Categorical(theta))


@probml.model
def known_variance(m0: float = 1.0, s0: float = 2.0, s: float = 3.0):
    mean = sample("mean", dist.Normal(m0, s0))
    with probml.rows():
        sample("x", dist.Normal(mean, s))


# Discrete networks: the tables are a setting


@probml.model
def network(outer, inner):
    """Nodes are (name, kind, parents, table); `outer` lie outside rows, `inner` inside."""
    values = {}

    def draw(name, kind, parents, table):
        p = jnp.asarray(table)[tuple(values[parent] for parent in parents)]
        values[name] = sample(name, dist.Bernoulli(p[..., 1]) if kind == "bernoulli"
                              else dist.Categorical(p))

    for node in outer:
        draw(*node)
    with probml.rows():
        for node in inner:
            draw(*node)


def random_network(seed, globals_=0, zeros=0.0):
    """3–7 sites of 2–3 states in a random DAG; the first `globals_` lie outside rows."""
    rng = np.random.default_rng(seed)
    nodes, sizes = [], {}
    for i in range(int(rng.integers(max(3, globals_ + 2), 8))):
        kind = str(rng.choice(["bernoulli", "categorical"]))
        parents = (tuple(str(p) for p in rng.permutation(list(sizes))[: rng.integers(0, 4)])
                   if sizes else ())
        states = 2 if kind == "bernoulli" else int(rng.integers(2, 4))
        table = rng.dirichlet(np.full(states, 0.8), tuple(sizes[p] for p in parents))
        if zeros and kind == "categorical":
            table = np.where((rng.random(table.shape) < zeros)
                             & (table < table.max(-1, keepdims=True)), 0.0, table)
            table = table / table.sum(-1, keepdims=True)
        nodes.append((f"v{i}", kind, parents, table))
        sizes[f"v{i}"] = states
    return network(outer=tuple(nodes[:globals_]), inner=tuple(nodes[globals_:])), nodes, sizes


# Mixtures: for every scatter, the argument of the likelihood that is the parameter


@probml.model
def diagonal_mixture(k: int, d: int, scatter: str = "scale"):
    weights = sample("weights", dist.Dirichlet(jnp.full(k, 2.0)))
    with plate("component", k):
        match scatter:
            case "scale":  # no closed form: L-BFGS on pooled statistics
                scale = sample("scale", dist.LogNormal(0.0, 1.0).expand([d]).to_event(1))
            case "variance":
                scale = jnp.sqrt(sample("variance",
                                        dist.InverseGamma(2.0, 1.5).expand([d]).to_event(1)))
        # beside a variance, normal–inverse-gamma: the prior of the mean is in units of the scale
        mean = sample("mean", dist.Normal(jnp.zeros(d), scale / 0.3 if scatter == "variance"
                                          else jnp.full(d, 5.0)).to_event(1))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], scale[z]).to_event(1))


@probml.model
def full_mixture(k: int, d: int, scatter: str = "covariance"):
    weights = sample("weights", dist.Dirichlet(jnp.full(k, 2.0)))
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 5.0).expand([d]).to_event(1))
        match scatter:
            case "covariance":
                covariance = sample("covariance", dist.InverseWishart(concentration=d + 2.0,
                                                                      scale_matrix=jnp.eye(d)))
            case "precision":
                precision = sample("precision",
                                   dist.Wishart(concentration=d + 2.0, rate_matrix=jnp.eye(d)))
            case "tril":
                tril = sample("tril",
                              dist.ImproperUniform(constraints.lower_cholesky, (k,), (d, d)))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        match scatter:
            case "covariance":
                sample("x", dist.MultivariateNormal(mean[z], covariance_matrix=covariance[z]))
            case "precision":
                sample("x", dist.MultivariateNormal(mean[z], precision_matrix=precision[z]))
            case "tril":
                sample("x", dist.MultivariateNormal(mean[z], scale_tril=tril[z]))


@probml.model
def mixed_mixture():
    """A Bernoulli class with a Categorical, a Bernoulli vector and a Normal below it."""
    share = sample("share", dist.Beta(2.0, 2.0))
    with plate("class", 2):
        colours = sample("colours", dist.Dirichlet(jnp.full(3, 1.5)))
        rates = sample("rates", dist.Beta(2.0, 1.5).expand([2]).to_event(1))
        height = sample("height", dist.Normal(0.0, 5.0))
        scale = sample("scale", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Bernoulli(share))
        sample("colour", dist.Categorical(colours[z]))
        sample("flags", dist.Bernoulli(rates[z]).to_event(1))
        sample("h", dist.Normal(height[z], scale[z]))


@probml.model
def regression_mixture(k: int, d: int, x):
    weights = sample("weights", dist.Dirichlet(jnp.full(k, 2.0)))
    with plate("component", k):
        beta = sample("beta", dist.Normal(0.0, 5.0).expand([d]).to_event(1))
        shift = sample("shift", dist.Normal(0.0, 5.0))
        scale = sample("scale", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("y", dist.Normal((x * beta[z]).sum(-1) + shift[z], scale[z]))


@probml.model
def poisson_mixture(k: int):
    """A likelihood without a kernel of its own: NumPyro's log_prob, row by row."""
    weights = sample("weights", dist.Dirichlet(jnp.full(k, 2.0)))
    with plate("component", k):
        rate = sample("rate", dist.Gamma(2.0, 0.2))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Poisson(rate[z]))


@probml.model
def spherical_mixture(k: int, d: int, scale: float):
    """Equal weights and one known scale: its classification EM is k-means."""
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 10.0).expand([d]).to_event(1))
    with probml.rows():
        z = sample("z", dist.Categorical(jnp.full(k, 1.0 / k)))
        sample("x", dist.Normal(mean[z], scale).to_event(1))


def blobs(n=ROWS, d=2, seed=0):
    """Three overlapping groups: (x, group)."""
    rng = np.random.default_rng(seed)
    z = rng.integers(3, size=n)
    centre = np.array([[-3.0, 0.0], [0.0, 3.0], [3.0, -1.0]])
    return centre[z] + rng.normal(size=(n, d)) * np.array([1.0, 0.7]), z


@functools.lru_cache
def mixture(name):
    """A mixture of the table: (model, data, start, name and number of states of the hidden
    site)."""
    x, _ = blobs()
    rng = np.random.default_rng(1)
    k, d = 3, 2
    start = {"weights": np.array([0.3, 0.4, 0.3]),
             "mean": np.array([[-2.0, 0.5], [0.5, 2.0], [2.0, -0.5]])}
    eye = np.stack([np.eye(d)] * k)
    match name:
        case "scale" | "variance":
            return diagonal_mixture(k, d, name), {"x": x}, {**start, name: np.ones((k, d))}, ("z",
                                                                                              k)
        case "covariance" | "precision" | "tril":
            return full_mixture(k, d, name), {"x": x}, {**start, name: eye}, ("z", k)
        case "mixed":
            z = rng.integers(2, size=ROWS)
            data = {
                "colour": np.where(rng.random(ROWS) < 0.6, z, rng.integers(3, size=ROWS)),
                "flags": (rng.random((ROWS, 2)) < np.array([[0.2, 0.7], [0.6, 0.3]])[z]).astype(
                    int
                ),
                "h": 3.0 * z + rng.normal(size=ROWS),
            }
            start = {
                "share": 0.4,
                "colours": np.array([[0.4, 0.3, 0.3], [0.3, 0.4, 0.3]]),
                "rates": np.array([[0.3, 0.6], [0.5, 0.4]]),
                "height": np.array([0.5, 2.0]),
                "scale": np.ones(2),
            }
            return mixed_mixture(), data, start, ("z", 2)
        case "regression":
            slope = np.array([[2.0, -1.0], [-1.0, 1.0]])
            z, x = rng.integers(2, size=ROWS), rng.normal(size=(ROWS, d))
            data = {"x": x, "y": (x * slope[z]).sum(1) + np.array([1.0, -2.0])[z] + 0.5
                    * rng.normal(size=ROWS)}
            start = {
                "weights": np.array([0.5, 0.5]),
                "beta": np.array([[1.0, -0.5], [-0.5, 0.5]]),
                "shift": np.array([0.5, -1.0]),
                "scale": np.ones(2),
            }
            return regression_mixture(k=2, d=d), data, start, ("z", 2)
        case "poisson":
            data = {"x": rng.poisson(np.array([2.0, 9.0])[rng.integers(2, size=ROWS)])}
            return poisson_mixture(k=2), data, {"weights": np.array([0.5, 0.5]),
                                                "rate": np.array([3.0, 6.0])}, ("z", 2)
    raise KeyError(name)


MIXTURES = ("scale", "variance", "covariance", "precision", "tril", "mixed", "regression",
            "poisson")


# Densities by NumPyro's own handlers: nothing of probml but the function is used


def enumerated(model, data, params, hidden):
    """log p(data, params) with one site inside rows summed out by trying every state; data
    complete."""
    site, states = hidden
    inputs = {name: jnp.asarray(data[name]) for name in model.inputs}
    seen = {name: jnp.asarray(value) for name, value in data.items() if name not in model.inputs}
    n = len(next(iter(data.values())))
    rows, prior = [], 0.0
    for state in range(states):
        given = {**params, **seen, site: jnp.full(n, state)}
        with handlers.trace() as trace, handlers.seed(rng_seed=0), handlers.substitute(data=given):
            model(rows=n, **inputs)
        sites = [s for s in trace.values() if s["type"] == "sample"]
        logs = {s["name"]: s["fn"].log_prob(s["value"]) for s in sites}
        inside = [s["name"] for s in sites
                  if any(frame.name == "rows" for frame in s["cond_indep_stack"])]
        rows.append(sum(logs[name] for name in inside))
        prior = sum(logs[name].sum() for name in logs if name not in inside)
    return jax.scipy.special.logsumexp(jnp.stack(rows), 0).sum() + prior


@functools.lru_cache
def _oracle(name):
    model, data, start, hidden = mixture(name)

    def supports(params):
        with handlers.trace() as trace, handlers.seed(rng_seed=0), handlers.substitute(data=params):
            model(rows=1, **{name: jnp.asarray(data[name][:1]) for name in model.inputs})
        return {name: dist.biject_to(trace[name]["fn"].support) for name in params}

    @jax.jit
    def oracle(params):
        maps = supports(params)
        free = {name: maps[name].inv(value) for name, value in params.items()}
        return jax.value_and_grad(
            lambda u: enumerated(model, data, {name: maps[name](u[name]) for name in u}, hidden)
        )(free)

    return oracle


def log_posterior(name, params):
    """log p(data, params) of a mixture of the table, and its gradient along each parameter's
    constraint surface.

    The directions are unconstrained ones, without a Jacobian: the gradient vanishes where the
    density in each parameter's own coordinate is stationary.
    """
    value, gradient = _oracle(name)({name: jnp.asarray(value, float)
                                     for name, value in params.items()})
    return float(value), {name: np.asarray(slope) for name, slope in gradient.items()}
