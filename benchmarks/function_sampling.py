"""NUTS on functions as they are pasted from NumPyro's examples, here and by NumPyro's own NUTS on the
same function: one chain, so many draws after as much warmup, each side of each model in a process
of its own, in processor seconds, so that a busy machine does not tell.

python benchmarks/function_sampling.py [word ...]: a row of the table in functions.md for each model
whose name holds one of the words. Cold: from the function and its data to the draws, imports left
out, no programs kept on disk. Warm: the median of two later runs of other seeds, here `model.fit`,
there `run` of the same MCMC object on the same arrays; in brackets how many programs were compiled
in one of them: NumPyro's `run` compiles its loop anew. Kept: one more such run where JAX keeps what
it has compiled in a folder (jax_compilation_cache_dir), filled by the run before it, so that the
sampler is told from the compiler; here nothing is compiled in any case.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpyro.distributions as dist  # noqa: E402
from jax.experimental.compilation_cache import compilation_cache  # noqa: E402
from numpyro import handlers, plate, sample  # noqa: E402
from numpyro.contrib.control_flow import scan  # noqa: E402
from numpyro.diagnostics import effective_sample_size  # noqa: E402
from numpyro.infer import MCMC, NUTS  # noqa: E402
from numpyro.infer.reparam import LocScaleReparam  # noqa: E402

import probml  # noqa: E402

DRAWS, WARM = 500, 2
RNG = np.random.default_rng(0)
HEAD = ("| function | NumPyro cold | warm (programs) | kept | least effective draws | ours cold "
        "| warm (programs) | least effective draws |\n|---|---|---|---|---|---|---|---|")
COMPILED = "/jax/core/compile/backend_compile_duration"


def schools(J, sigma, y=None):
    mu, tau = sample("mu", dist.Normal(0, 5)), sample("tau", dist.HalfCauchy(5))
    with plate("J", J):
        theta = sample("theta", dist.Normal(mu, tau))
        sample("obs", dist.Normal(theta, sigma), obs=y)


@handlers.reparam(config={"theta": LocScaleReparam(centered=0)})
def schools_reparametrised(J, sigma, y=None):
    schools(J, sigma, y)


def autoregression(y):
    a = sample("a", dist.Normal(0, 0.5).expand([2]).to_event(1))
    s = sample("s", dist.HalfNormal(1.0))

    def step(carry, now):
        one, two = carry
        now = sample("y", dist.Normal(a[0] * one + a[1] * two, s), obs=now)
        return (now, one), None

    scan(step, (y[1], y[0]), y[2:])


def line(marriage, age, divorce=None):
    a = sample("a", dist.Normal(0.0, 0.2))
    b, c = sample("bM", dist.Normal(0.0, 0.5)), sample("bA", dist.Normal(0.0, 0.5))
    sigma = sample("sigma", dist.Exponential(1.0))
    sample("obs", dist.Normal(a + b * marriage + c * age, sigma), obs=divorce)


def logistic(data, labels):
    dim = data.shape[1]
    coefs = sample("coefs", dist.Normal(jnp.zeros(dim), jnp.ones(dim)))
    intercept = sample("intercept", dist.Normal(0.0, 10.0))
    sample("y", dist.Bernoulli(logits=data @ coefs + intercept), obs=labels)


def mixture(y):
    weights = sample("weights", dist.Dirichlet(jnp.ones(3)))
    with plate("components", 3):
        loc, scale = sample("loc", dist.Normal(0, 10)), sample("scale", dist.LogNormal(0, 1))
    with plate("data", len(y)):
        sample("y", dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(loc, scale)),
               obs=y)


def volatility(returns):
    step, nu = sample("sigma", dist.Exponential(50.0)), sample("nu", dist.Exponential(0.1))
    s = sample("s", dist.GaussianRandomWalk(scale=step, num_steps=len(returns)))
    sample("r", dist.StudentT(df=nu, loc=0.0, scale=jnp.exp(s)), obs=returns)


def level_by_scan(y):
    q, r = sample("q", dist.LogNormal(-1.0, 1.0)), sample("r", dist.LogNormal(-1.0, 1.0))

    def step(level, now):
        level = sample("level", dist.Normal(level, q))
        sample("y", dist.Normal(level, r), obs=now)
        return level, None

    scan(step, 0.0, y)


def level_by_loop(y):
    q, r = sample("q", dist.LogNormal(-1.0, 1.0)), sample("r", dist.LogNormal(-1.0, 1.0))
    level = 0.0
    for t in range(len(y)):
        level = sample(f"level_{t}", dist.Normal(level, q))
        sample(f"y_{t}", dist.Normal(level, r), obs=y[t])


def _cases() -> dict[str, tuple[Callable, dict[str, Any], dict[str, Any]]]:
    """Name → (function, data, settings)."""
    effects = {"sigma": np.array([15.0, 10, 16, 11, 9, 11, 10, 18]),
               "y": np.array([28.0, 8, -3, 7, -1, 1, 18, 12])}
    x, y = RNG.normal(size=(500, 8)), np.zeros(202)
    for t in range(2, 202):
        y[t] = 0.5 * y[t - 1] - 0.3 * y[t - 2] + RNG.normal()
    marriage, age = RNG.normal(size=(2, 50))
    walk = 0.3 * RNG.normal(size=60).cumsum() + 0.3 * RNG.normal(size=60)
    humps = np.concatenate([RNG.normal(-3, 1, 100), RNG.normal(0, 0.5, 60), RNG.normal(4, 1, 40)])
    spread = np.exp(-4 + 0.05 * RNG.normal(size=200).cumsum())
    return {
        "eight schools": (schools, effects, {"J": 8}),
        "eight schools, reparametrised": (schools_reparametrised, effects, {"J": 8}),
        "autoregression of order two by scan": (autoregression, {"y": y}, {}),
        "linear regression": (line, {"marriage": marriage, "age": age, "divorce": 0.4 * marriage
                                     - 0.5 * age + 0.7 * RNG.normal(size=50)}, {}),
        "logistic regression": (logistic, {"data": x, "labels": RNG.binomial(
            1, 1 / (1 + np.exp(-x[:, 0] + x[:, 1])))}, {}),
        "mixture": (mixture, {"y": humps}, {}),
        "stochastic volatility": (volatility, {"returns": spread * RNG.normal(size=200)}, {}),
        "local level by scan": (level_by_scan, {"y": walk}, {}),
        "local level by a loop": (level_by_loop, {"y": walk}, {}),
    }


def least(draws: dict[str, np.ndarray]) -> float:
    """The least number of effective draws of any element."""
    return min(float(np.min(effective_sample_size(np.asarray(value)[None])))
               for value in draws.values())


def one(name: str, side: str) -> dict[str, float]:
    function, data, settings = _cases()[name]
    arrays = {name: jnp.asarray(value) for name, value in data.items()}

    def ours(seed: int) -> dict[str, np.ndarray]:
        fit = probml.model(function)(**settings).fit(
            data, probml.NUTS(draws=DRAWS, warmup=DRAWS, chains=1), seed=seed)
        return {name: value[0] for name, value in fit.belief.chains.items()}

    run = MCMC(NUTS(function), num_warmup=DRAWS, num_samples=DRAWS, progress_bar=False)

    def theirs(seed: int) -> dict[str, np.ndarray]:
        run.run(jax.random.key(seed), **settings, **arrays)
        return {name: np.asarray(value) for name, value in run.get_samples().items()
                if name in run.last_state.z}

    events: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: events.append(event))

    def timed(seed: int) -> tuple[float, int, dict[str, np.ndarray]]:
        events.clear()
        start = time.process_time()
        draws = (ours if side == "ours" else theirs)(seed)
        return time.process_time() - start, events.count(COMPILED), draws

    runs = [timed(seed) for seed in range(1 + WARM)]
    found = {"cold": runs[0][0], "warm": float(np.median([own[0] for own in runs[1:]])),
             "programs": runs[-1][1], "least": least(runs[-1][2])}
    if side == "theirs":
        with tempfile.TemporaryDirectory() as folder:
            jax.config.update("jax_compilation_cache_dir", folder)
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
            compilation_cache.reset_cache()
            timed(1 + WARM)
            found["kept"] = timed(2 + WARM)[0]
    return found


def asked(name: str, side: str) -> dict[str, float]:
    kept = ("JAX_COMPILATION_CACHE_DIR", "PROBML_CACHE")
    env = {key: value for key, value in os.environ.items() if key not in kept}
    found = subprocess.run([sys.executable, __file__, "--one", name, side], capture_output=True,
                           text=True, env={**env, "PROBML_CACHE": "0"}, timeout=600)
    if found.returncode:
        raise RuntimeError(found.stderr[-800:])
    return json.loads(found.stdout.splitlines()[-1])


def main(words: list[str]) -> None:
    if words[:1] == ["--one"]:
        print(json.dumps(one(*words[1:])))
        return
    print(HEAD, flush=True)
    for name in _cases():
        if not words or any(word in name for word in words):
            his, mine = asked(name, "theirs"), asked(name, "ours")
            shown = [f"{own['cold']:.2f} | {own['warm']:.2f} ({own['programs']}) | "
                     for own in (his, mine)]
            cells = (shown[0] + f"{his['kept']:.2f} | {his['least']:.0f}",
                     shown[1] + f"{mine['least']:.0f}")
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
