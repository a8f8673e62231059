"""`gpu`: the same work on every device that JAX finds here, CPU and GPU, beside a step of the same
arithmetic written by hand in JAX: the E-step of a full mixture, an iteration of EM of a hidden
Markov model, NUTS of a logistic regression, and a first answer. At most six minutes with a GPU;
`--quick` is a dry run of small sizes, for any machine.

Each device has a process of its own. Seconds of an iteration are those of a long fit less those of
a short one, by how many more iterations it had.
"""

import json
import os
import subprocess
import sys

import numpy as np

from common_cases import clock, clusters, row, tell

PLATFORMS = ("cpu", "cuda")
# a small size, and one that fills a GPU: rows × columns, states; sequences × steps, states; rows ×
# columns; rows
SIZES = {"mixture": ((20_000, 8, 4), (10_000_000, 16, 16)), "chain": ((20, 100, 4), (1000, 1000, 16)),
         "logistic": ((2_000, 5, 0), (100_000, 50, 0)), "first": ((150, 4, 3), (150, 4, 3))}
SHORT, LONG = 2, 7  # iterations
DRAWS = (50, 200)  # NUTS, small and large


def mixture_job(n, d, k):
    """Seconds of an iteration of EM, and of the two products of an E-step by hand."""
    import jax
    import jax.numpy as jnp

    import probml
    from functions import gaussian_mixture

    dtype = jnp.zeros(()).dtype
    x = clusters(n, d, k, dtype)
    start = {"weights": np.full(k, 1 / k), "mean": x[:k].astype(float),
             "covariance": np.tile(np.eye(d), (k, 1, 1))}

    def fit(iterations):
        return gaussian_mixture(k=k, d=d).fit(
            {"x": x}, probml.EM(max_iterations=iterations, tolerance=0, accelerate=False,
                                prior=False), start=start)

    @jax.jit
    def by_hand(x, mean, precision):
        def log_density(mean, precision):
            return -0.5 * jnp.einsum("ni,ij,nj->n", x - mean, precision, x - mean)

        share = jax.nn.softmax(jax.vmap(log_density)(mean, precision), 0)
        return share.sum(1), share @ x, jnp.einsum("kn,ni,nj->kij", share, x, x)

    args = jnp.asarray(x), jnp.asarray(x[:k]), jnp.tile(jnp.eye(d, dtype=dtype), (k, 1, 1))
    return fit, lambda: jax.block_until_ready(by_hand(*args))


def chain_job(n, steps, k):
    """Seconds of an iteration of EM, and of a forward and backward pass by hand."""
    import jax
    import jax.numpy as jnp

    import probml
    from chain_cases import generate
    from probml.models import hidden_markov

    y, start = generate(n, steps, k, symbols=50)
    model = hidden_markov(k=k, emission="categorical", symbols=50)

    def fit(iterations):
        return model.fit({"y": y}, probml.EM(max_iterations=iterations, tolerance=0, accelerate=False,
                                             prior=False), start=start)

    @jax.jit
    def by_hand(y, initial, transition, probs):
        def log_likelihood(transition, probs):
            def step(state, symbols):
                joint = state @ transition * probs[:, symbols].T
                total = joint.sum(1, keepdims=True)
                return joint / total, jnp.log(total).sum()

            first = initial * probs[:, y[:, 0]].T
            return jax.lax.scan(step, first, y.T[1:])[1].sum()

        return jax.grad(log_likelihood, (0, 1))(transition, probs)

    args = (jnp.asarray(y), *(jnp.asarray(start[name], float)
                              for name in ("initial", "transition", "probs")))
    return fit, lambda: jax.block_until_ready(by_hand(*args))


def logistic_job(n, d, _):
    """Seconds of a draw of NUTS, warm-up included, and of a gradient by hand."""
    import jax
    import jax.numpy as jnp
    import numpyro.distributions as dist
    from numpyro import sample

    import probml

    @probml.model
    def logistic(x):
        b = sample("b", dist.Normal(0.0, 1.0).expand([d]).to_event(1))
        with probml.rows():
            sample("y", dist.Bernoulli(logits=x @ b))

    random = np.random.default_rng(0)
    x = random.normal(size=(n, d))
    y = (random.random(n) < 1 / (1 + np.exp(-x @ random.normal(size=d) / np.sqrt(d)))).astype(int)

    def fit(draws):
        return logistic().fit({"x": x, "y": y}, probml.NUTS(warmup=draws, draws=draws, chains=1))

    @jax.jit
    def by_hand(b, x, y):
        return jax.grad(lambda b: (y * (x @ b) - jax.nn.softplus(x @ b)).sum() - b @ b / 2)(b)

    args = jnp.zeros(d), jnp.asarray(x, float), jnp.asarray(y, float)
    return fit, lambda: jax.block_until_ready(by_hand(*args))


def first_job(n, d, k):
    from probml.models import GaussianMixture

    x = clusters(n, d, k)
    return lambda _: GaussianMixture(k).fit(x).predict(x), None


JOBS = {"mixture": mixture_job, "chain": chain_job, "logistic": logistic_job, "first": first_job}


def measured(job: str, quick: bool) -> list | None:
    """Of the device of this process: its kind, seconds of a first answer, of an iteration (of a
    second answer), and of the step by hand; None: there is no such device."""
    import jax

    try:
        jax.devices()
    except (AssertionError, RuntimeError):
        return None
    fit, by_hand = JOBS[job](*SIZES[job][0 if quick else 1])
    short, long = (DRAWS[:1] * 2 if quick else DRAWS) if job == "logistic" else (SHORT, LONG)
    cold, _ = clock(lambda: fit(short))
    if job == "first":
        return [jax.devices()[0].device_kind, cold, clock(lambda: fit(short))[0], None]
    fit(long)
    less, more = (clock(lambda count=count: fit(count))[0] for count in (short, long))
    each = more / (2 * long) if job == "logistic" else (more - less) / (long - short)
    by_hand()
    return [jax.devices()[0].device_kind, cold, each, min(clock(by_hand)[0] for _ in range(5))]


def gpu(dtype, quick):
    """A row a job and a device; the peer is the step by hand."""
    here = os.path.dirname(os.path.abspath(__file__))
    for job in JOBS:
        for platform in PLATFORMS:
            code = (f"import json, gpu_cases; "
                    f"print(json.dumps(gpu_cases.measured({job!r}, {bool(quick)})))")
            done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=here,
                                  env=os.environ | {"JAX_PLATFORMS": platform},
                                  capture_output=True, text=True)
            if done.returncode:
                last = done.stderr.strip().splitlines()[-1][:150]
                yield row(f"{job} on {platform}", note=f"FAILED: {last}")
                continue
            found = json.loads(done.stdout.strip().splitlines()[-1])
            if found is None:
                yield row(f"{job} on {platform}", note="no such device here")
                continue
            kind, cold, each, by_hand = found
            size = " × ".join(f"{n:,}" for n in SIZES[job][0 if quick else 1] if n)
            yield row(f"{job}, {size}, {np.dtype(dtype).name}, on {platform}", cold, each, by_hand,
                      note=kind)


CASES = {"gpu": gpu}

if __name__ == "__main__":
    tell(CASES)
