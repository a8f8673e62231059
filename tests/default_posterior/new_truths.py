"""References of the models of new_models.py, more_models.py and fifth_ to eighth_models.py: long runs
of NumPyro's own NUTS on the plain functions.

    python tests/default_posterior/new_truths.py            # what is not stored yet
    python tests/default_posterior/new_truths.py NAME …     # these, again

Nothing here calls an engine of probml. Discrete latent sites are summed out by hand. Where "labels" is true, numbers are those of a site's entries in ascending order; sites of one number, which
change with the labels, are left out.
"""

import inspect
import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from collection import Collection
from eighth_models import EIGHTH
from fifth_models import FIFTH
from more_models import MORE
from new_models import NEW
from numpyro import handlers
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.distributions import biject_to
from numpyro.infer import init_to_uniform
from numpyro.infer.hmc import hmc
from numpyro.infer.util import constrain_fn, potential_energy
from seventh_models import SEVENTH
from sixth_models import SIXTH
from truths import waited

import probml

COLLECTIONS = {"new": NEW, "more": MORE, "fifth": FIFTH, "sixth": SIXTH,
               "seventh": SEVENTH, "eighth": EIGHTH}  # NAME_truths.json → its models
CHAINS, WARMUP, DRAWS = 4, 500, 1000
ACCEPT = (0.9, 0.99)  # the second where more of the first run diverges or its chains disagree
DENSE = 20  # numbers at most whose covariance is adapted as a whole
DISAGREE = 1.02  # R-hat of any number
DIVERGED = 20  # transitions of all chains, at most
STARTS = 10  # random places, of which a chain begins at the best
SECONDS = 300.0  # of a model at most


def collection(name: str) -> Collection:
    """The one that has the model of that name."""
    return next(own for own in COLLECTIONS.values() if name in own.models)


def plain(name: str) -> Callable[[], Any]:
    """The model of that name as a function of nothing, its data observed, for any tool of NumPyro."""
    own = collection(name)
    function, held = own.models[name]
    data = {key: jnp.asarray(value) for key, value in held.items()}
    if name in own.by_hand:
        return lambda: own.by_hand[name](**data)
    inputs = {key: data[key] for key in inspect.signature(function).parameters}
    outcomes = {key: data[key] for key in data if key not in inputs}
    if not outcomes:
        return lambda: function(**inputs)
    rows = len(next(iter(data.values())))
    model = handlers.condition(probml.model(function)(), data=outcomes)
    return lambda: model(rows=rows, **inputs)


def shapes(name: str) -> dict[str, tuple[int, ...]]:
    """Latent site → the shape of its numbers without bounds."""
    found: dict[str, tuple[int, ...]] = {}

    def look():
        model = handlers.substitute(handlers.seed(plain(name), 0), substitute_fn=init_to_uniform)
        for site, entry in handlers.trace(model).get_trace().items():
            if entry["type"] == "sample" and not entry["is_observed"]:
                found[site] = biject_to(entry["fn"].support).inverse_shape(entry["value"].shape)

    jax.eval_shape(look)
    return found


def sampler(name: str) -> Callable[[float], tuple[dict[str, np.ndarray], int]]:
    """Target acceptance → draws of the latent and of the deterministic sites (chains, draws, …),
    and how many transitions diverged. A chain is one program."""
    model, free = plain(name), shapes(name)
    numbers = sum(int(np.prod(shape)) for shape in free.values())

    def potential(u):
        return potential_energy(model, (), {}, u)

    @jax.jit
    def chain(key, tried, accept):
        init, step = hmc(potential, algo="NUTS")
        values = jax.lax.map(potential, tried)
        best = jnp.argmin(jnp.where(jnp.isfinite(values), values, jnp.inf))
        state = init({site: u[best] for site, u in tried.items()}, num_warmup=WARMUP, rng_key=key,
                     target_accept_prob=accept, dense_mass=numbers <= DENSE)

        def one(state, _):
            state = step(state)
            return state, (state.z, state.diverging)

        _, (u, diverging) = jax.lax.scan(one, state, None, WARMUP + DRAWS)
        late = {site: value[WARMUP:] for site, value in u.items()}
        return jax.lax.map(lambda u: constrain_fn(model, (), {}, u, True), late), diverging[WARMUP:].sum()

    def run(accept: float) -> tuple[dict[str, np.ndarray], int]:
        random, found = np.random.default_rng(41), []
        for key in jax.random.split(jax.random.key(41), CHAINS):
            tried = {site: random.uniform(-2, 2, (STARTS, *shape)) for site, shape in free.items()}
            found.append(jax.device_get(chain(key, tried, accept)))
        return ({site: np.stack([draws[site] for draws, _ in found]) for site in found[0][0]},
                sum(int(count) for _, count in found))

    return run


def truth(name: str) -> dict[str, Any]:
    """The entry of a model: means, standard deviations, Monte Carlo errors, and diagnostics."""
    run, own = sampler(name), collection(name)
    for accept in ACCEPT:
        draws, divergences = run(accept)
        if name in own.labels:  # as judge.py compares them
            draws = {site: np.sort(values.reshape(*values.shape[:2], -1), -1)
                     for site, values in draws.items() if values.ndim > 2}
        with np.errstate(all="ignore"):
            hats = {site: np.asarray(split_gelman_rubin(values)) for site, values in draws.items()}
        hat = max(float(np.nanmax(values)) for values in hats.values())
        if divergences <= DIVERGED and hat <= DISAGREE:
            break
    found: dict[str, Any] = {"mean": {}, "sd": {}, "error": {}, "sd_error": {}}
    for site, values in draws.items():
        flat = values.reshape(-1, *values.shape[2:])
        with np.errstate(all="ignore"):
            effective = np.asarray(effective_sample_size(values))
            error = np.where(flat.std(0) > 0, flat.std(0) / np.sqrt(effective), 0.0)
        for key, value in (("mean", flat.mean(0)), ("sd", flat.std(0)), ("error", error),
                           ("sd_error", error_of_sd(values))):
            # means as of 290 kelvin, of which the sd may be the fourth digit
            found[key][site] = rounded(value, 7 if key == "mean" else 4)
    found.update(r_hat=rounded(hat), divergences=divergences, target_accept=accept)
    if name in own.labels:
        found["labels"] = True
    return found


def error_of_sd(draws: np.ndarray) -> np.ndarray:
    """The Monte Carlo error of the standard deviation of draws (chains, n, …), by halves of chains."""
    halves = np.concatenate(np.split(draws, 2, axis=1))
    return halves.std(1).std(0, ddof=1) / np.sqrt(len(halves))


def rounded(value: Any, digits: int = 4) -> Any:
    """Nested lists with so many significant digits."""
    return (float(f"{float(value):.{digits}g}") if np.ndim(value) == 0
            else [rounded(each, digits) for each in np.asarray(value)])


def stored(source: str) -> dict[str, Any]:
    path = Path(__file__).with_name(f"{source}_truths.json")
    return json.loads(path.read_text()) if path.exists() else {}


def store(name: str, found: dict[str, Any]) -> None:
    """The file is written anew, a line a case."""
    source, own = next(pair for pair in COLLECTIONS.items() if name in pair[1].models)
    table = {**stored(source), name: found}
    lines = [f"{json.dumps(key)}: {json.dumps(table[key])}" for key in own.models if key in table]
    Path(__file__).with_name(f"{source}_truths.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def work(names: Any, answers: Any) -> None:
    """Of a process of its own: the entries of names, until there are no more."""
    jax.config.update("jax_enable_x64", True)
    while (name := names.get()) is not None:
        try:
            found = truth(name)
        except Exception as error:  # the others go on, and this one stays missing
            found = {"failed": f"{error!r:.300}"}
        jax.clear_caches()
        answers.put(found)


def main() -> None:
    context, worker = multiprocessing.get_context("spawn"), None
    missing = [name for source, own in COLLECTIONS.items() for name in own.models
               if name not in stored(source) and name not in own.hopeless]
    for name in sys.argv[1:] or missing:
        if worker is None:
            names, answers = context.Queue(), context.Queue()
            worker = context.Process(target=work, args=(names, answers), daemon=True)
            worker.start()
        begin = time.time()
        names.put(name)
        found = waited(worker, answers, SECONDS) or {"failed": f"not done in {SECONDS:.0f} s"}
        if "failed" in found:
            worker.kill()
            worker = None
        else:
            store(name, found)
        print(name, f"{time.time() - begin:.0f} s", {key: found[key] for key in found if key not in (
            "mean", "sd", "error", "sd_error")}, flush=True)
    if worker is not None:
        names.put(None)


if __name__ == "__main__":
    main()
