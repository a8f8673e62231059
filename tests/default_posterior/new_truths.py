"""References of the sixty new models: long runs of NumPyro's own NUTS on the plain functions.

    python tests/default_posterior/new_truths.py            # what is not stored yet
    python tests/default_posterior/new_truths.py NAME …     # these, again

Nothing here calls an engine of probml. Discrete latent sites are summed out by hand (SUMMED).
"""

import inspect
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from new_models import HOPELESS, LABELS, MODELS, SUMMED
from numpyro import handlers
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS, init_to_uniform

import probml

STORED = Path(__file__).with_name("new_truths.json")
CHAINS, WARMUP, DRAWS = 4, 1000, 2000
ACCEPT = (0.9, 0.99)  # the second where the first run diverges or its chains disagree
DENSE = 20  # numbers at most whose covariance is adapted as a whole
DISAGREE = 1.02  # R-hat of any number


def plain(name: str) -> Callable[[], Any]:
    """The model of that name as a function of nothing, its data observed, for any tool of NumPyro."""
    function = MODELS[name][0]
    data = {key: jnp.asarray(value) for key, value in MODELS[name][1].items()}
    if name in SUMMED:
        return lambda: SUMMED[name](**data)
    inputs = {key: data[key] for key in inspect.signature(function).parameters}
    outcomes = {key: data[key] for key in data if key not in inputs}
    if not outcomes:
        return lambda: function(**inputs)
    rows = len(next(iter(data.values())))
    model = handlers.condition(probml.model(function)(), data=outcomes)
    return lambda: model(rows=rows, **inputs)


def size(name: str) -> int:
    """How many latent numbers the model of that name has."""
    trace = jax.eval_shape(lambda: {
        site: entry["value"] for site, entry in
        handlers.trace(handlers.substitute(
            handlers.seed(plain(name), 0), substitute_fn=init_to_uniform)).get_trace().items()
        if entry["type"] == "sample" and not entry["is_observed"]})
    return sum(int(np.prod(value.shape)) for value in trace.values())


def sampled(name: str, accept: float) -> tuple[dict[str, np.ndarray], int]:
    """Draws of the latent sites (chains, draws, …), and how many transitions diverged."""
    kernel = NUTS(plain(name), target_accept_prob=accept, init_strategy=init_to_uniform,
                  dense_mass=size(name) <= DENSE)
    run = MCMC(kernel, num_warmup=WARMUP, num_samples=DRAWS, num_chains=CHAINS,
               chain_method="sequential", progress_bar=False)
    run.run(jax.random.PRNGKey(41))
    sites = run.get_samples(group_by_chain=True)
    return ({site: np.asarray(draws) for site, draws in sites.items()},
            int(run.get_extra_fields()["diverging"].sum()))


def truth(name: str) -> dict[str, Any]:
    """The entry of a model: means, standard deviations, Monte Carlo errors, and diagnostics."""
    for accept in ACCEPT[:1] if name in HOPELESS else ACCEPT:
        draws, divergences = sampled(name, accept)
        with np.errstate(all="ignore"):
            hats = {site: np.asarray(split_gelman_rubin(values)) for site, values in draws.items()}
        hat = max(float(np.nanmax(values)) for values in hats.values())
        if not divergences and hat <= DISAGREE:
            break
    found: dict[str, Any] = {"mean": {}, "sd": {}, "error": {}}
    for site, values in draws.items():
        flat = values.reshape(-1, *values.shape[2:])
        with np.errstate(all="ignore"):
            effective = np.asarray(effective_sample_size(values))
            error = np.where(flat.std(0) > 0, flat.std(0) / np.sqrt(effective), 0.0)
        for key, value in (("mean", flat.mean(0)), ("sd", flat.std(0)), ("error", error)):
            found[key][site] = rounded(value)
    found.update(r_hat=rounded(hat), divergences=divergences, target_accept=accept)
    if name in LABELS:
        found["labels"] = True
    if name in HOPELESS:
        found["hopeless"] = HOPELESS[name]
    return found


def rounded(value: Any) -> Any:
    """Nested lists with four significant digits."""
    return (float(f"{float(value):.4g}") if np.ndim(value) == 0
            else [rounded(each) for each in np.asarray(value)])


def stored() -> dict[str, Any]:
    return json.loads(STORED.read_text()) if STORED.exists() else {}


def store(name: str, found: dict[str, Any]) -> None:
    """The file is written anew, a line a case."""
    table = {**stored(), name: found}
    lines = [f"{json.dumps(key)}: {json.dumps(table[key])}" for key in MODELS if key in table]
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    numpyro.enable_x64()
    asked = sys.argv[1:]
    for name in asked or [name for name in MODELS if name not in stored()]:
        begin = time.time()
        try:
            found = truth(name)
        except Exception as error:  # the others go on, and this one stays missing
            print(name, "failed:", repr(error)[:300], flush=True)
            continue
        store(name, found)
        worst = max(float(np.nanmax(np.asarray(found["error"][site]) / np.maximum(np.asarray(found["sd"][site]), 1e-300)))
                    for site in found["mean"])
        print(name, f"{time.time() - begin:.0f} s", f"R-hat {found['r_hat']}",
              f"divergences {found['divergences']}", f"target_accept {found['target_accept']}",
              f"largest error {worst:.3f} sd", flush=True)
