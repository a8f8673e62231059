"""Posterior means and standard deviations of every case by long runs of NumPyro's NUTS, kept in
truths.json.

    python tests/default_posterior/truths.py                    # what is not stored yet
    python tests/default_posterior/truths.py NAME … --again     # these anew
    python tests/default_posterior/truths.py --source users --seconds 60

Four chains of 1000 + 2000 iterations in float64 at a target acceptance of 0.9, again at 0.98 where
R-hat is above 1.02 or steps diverged. The density is NumPyro's own of the plain function; where
something discrete is hidden, it is summed over all joint values by brute force. No engine of probml
is called. What user_truths.json and hierarchy_truths.json hold already is taken from there.

Stored of a case: "mean", "sd" and "error" (the Monte Carlo error of the mean) and "sd_error" (that of
the sd) of every continuous site, "r_hat" (the largest), "divergences", and "aligned": true where
chains disagree only about the numbers of exchangeable states: then all states bear the numbers of the
first chain, and judge.py compares a fit in whichever numbering is nearest. "skipped" is the reason why there are none.
"""

import argparse
import functools
import itertools
import json
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

# operations one by one are each a program to compile
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 "
                      "--xla_cpu_parallel_codegen_split_count=1")

import tabled_models  # makes the tables importable

# isort: split
import hierarchy_models
import jax
import jax.numpy as jnp
import judge
import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.distributions import biject_to
from numpyro.infer import util
from numpyro.infer.hmc import hmc

import user_truth
from plain_numpyro import met

STORED = Path(__file__).with_name("truths.json")
NEW = STORED.with_name("new_truths.json")
CHAINS, WARMUP, DRAWS = 4, 1000, 2000
TARGETS = (0.9, 0.98)
WELL, AGREE = 1.02, 1.05  # R-hat: no second run; not to be compared
TRIED = 10  # random places of which a chain begins at the best
MOST = 2**9  # joint values of discrete sites at the most
DIGITS = 8


class Skipped(Exception):
    """Why there is no truth of a case."""


def stored() -> dict[str, Any]:
    return json.loads(STORED.read_text()) if STORED.exists() else {}


def store(found: Mapping[str, Any]) -> None:
    """Adds to truths.json, one line a case."""
    every = {**stored(), **found}
    lines = [f"{json.dumps(key)}: {json.dumps(every[key])}" for key in sorted(every)]
    whole = STORED.with_suffix(".part")
    whole.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    whole.replace(STORED)  # at once: run.py may read it meanwhile


def known() -> dict[str, Any]:
    """What other tables hold of posteriors, in the form of truths.json."""
    out, models = {}, tabled_models.every()
    for name, own in user_truth.stored().items():
        if "means" in own:
            out[f"users/{name}"] = {"mean": own["means"], "sd": own["deviations"],
                                    "error": own["errors"], "divergences": own["divergent"]}
    for name, own in json.loads(hierarchy_models.TRUTHS.read_text()).items():
        free = sites(*models[f"hierarchies/{name}"].plain(), shapes=True)
        out[f"hierarchies/{name}"] = {
            "mean": {site: own["mean"][site] for site in own["mean"] if site in free},
            "sd": {site: own["sd"][site] for site in own["sd"] if site in free},
            "r_hat": own["r_hat"]}
    if NEW.exists():
        out |= {f"new/{name}": own for name, own in json.loads(NEW.read_text()).items()}
    return {name: rounded(own) for name, own in out.items()}


def rounded(value: Any) -> Any:
    """Numbers to a few significant digits."""
    if isinstance(value, dict):
        return {key: rounded(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(own) for own in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


# Densities


class Potential(NamedTuple):
    """A log density of parameters, and the maps from numbers without bounds to them.

    Attributes:
        log: parameters → log density.
        maps, shapes: site → the one-to-one map, the shape of a value.
    """

    log: Callable[[Mapping[str, jax.Array]], jax.Array]
    maps: Mapping[str, Any]
    shapes: Mapping[str, tuple]

    def value(self, u: Mapping[str, jax.Array]) -> jax.Array:
        """−log density of numbers without bounds."""
        params = self.params(u)
        volume = sum(jnp.sum(self.maps[name].log_abs_det_jacobian(u[name], params[name]))
                     for name in u)
        return -(self.log(params) + volume)

    def params(self, u: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        return {name: self.maps[name](u[name]) for name in u}

    def random(self, count: int) -> dict[str, np.ndarray]:
        """Numbers without bounds, (count, ...)."""
        rng = np.random.default_rng(3)
        return {name: rng.uniform(-2, 2, (count, *self.maps[name].inverse_shape(shape)))
                for name, shape in self.shapes.items()}


def density(case: tabled_models.Case) -> Potential:
    """What is sampled of a case: NumPyro's density, hidden discrete sites summed out."""
    if case.plain is None and case.user is None:
        raise Skipped("its truth is stored by new_truths.py")
    if case.user is not None:
        own = case.user
        own.inputs, own.arrays  # noqa: B018 (kept, as arrays)
        begun = dict(vars(own))
        jax.eval_shape(lambda: own.prior and None)  # shapes and supports, with nothing compiled
        supports = {name: site["fn"].support for name, site in own.free.items()}
        if any(map(_varies, supports.values())):
            vars(own).clear()  # what was traced is computed
            vars(own).update(begun)
            supports = {name: site["fn"].support for name, site in own.free.items()}
        if any(map(_varies, supports.values())):
            raise Skipped("the support of a site is computed")
        return Potential(own.density(), {name: biject_to(own) for name, own in supports.items()},
                         {name: np.shape(site["value"]) for name, site in own.free.items()})
    function, arguments = case.plain()
    try:
        found = sites(function, arguments, shapes=True)
    except NotImplementedError:  # an improper prior, of which NumPyro draws nothing
        found = None
    if found is None or any(site.support.is_discrete or _varies(site.support)
                            for site in found.values()):
        found = sites(function, arguments)
    states = {name: (site.shape, site.values) for name, site in found.items() if site.values}
    free = {name: site for name, site in found.items() if not site.values}
    moving = [name for name, site in free.items() if _varies(site.support)]
    if moving:
        again = sites(function, arguments, 2)
        for name in moving:
            if not _same(free[name].support, again[name].support):
                raise Skipped(f"the support of '{name}' depends on other sites")
    table = joint(states) if states else {}

    def log(params):
        if not states:
            return util.log_density(function, (), arguments, params)[0]
        return jax.nn.logsumexp(jax.vmap(lambda at: util.log_density(
            function, (), arguments, {**params, **at})[0])(table))

    return Potential(log, {name: biject_to(site.support) for name, site in free.items()},
                     {name: site.shape for name, site in free.items()})


class Unobserved(NamedTuple):
    """A sample site that is not observed; `values`: of a discrete one all, else None."""

    shape: tuple
    support: Any
    values: list | None


def sites(function: Callable, arguments: Mapping[str, Any], seed: int = 1,
          shapes: bool = False) -> dict[str, Unobserved]:
    """The unobserved sample sites of a plain function; `shapes`: nothing is computed, and values of
    discrete ones are not listed."""
    def ask(site):
        if site["type"] != "sample" or site["is_observed"]:
            return None
        if not site["fn"].support.is_discrete or shapes:
            return site["fn"].support, None
        if not site["fn"].has_enumerate_support:
            raise Skipped(f"'{site['name']}' is discrete without a finite list of values")
        return None, np.ravel(site["fn"].enumerate_support(expand=False)).tolist()

    found = met(function, (), arguments, seed, ask, draw=not shapes)
    if weights := [name for name, site in found.items() if site.kind == "param"]:
        raise Skipped(f"{weights} have no prior: there is no posterior")
    return {name: Unobserved(np.shape(site.value), *site.told) for name, site in found.items()
            if site.kind == "sample" and not site.seen}


def joint(states: Mapping[str, tuple]) -> dict[str, jax.Array]:
    """All joint values of discrete sites: name → (joint values, *shape)."""
    cells = [values for shape, values in states.values() for _ in range(math.prod(shape))]
    count = math.prod(map(len, cells))
    if count > MOST:
        raise Skipped(f"hidden sites have {count} joint values")
    every, begin, out = np.array(list(itertools.product(*cells))), 0, {}
    for name, (shape, _) in states.items():
        size = math.prod(shape)
        out[name] = jnp.asarray(every[:, begin : begin + size].reshape(-1, *shape))
        begin += size
    return out


def _varies(support: Any) -> bool:
    """Whether bounds are arrays, which may have been computed from other sites."""
    return any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(support))


def _same(one: Any, other: Any) -> bool:
    pairs = list(zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))
    return not any(isinstance(leaf, jax.core.Tracer) for pair in pairs for leaf in pair) and all(
        np.array_equal(*pair) for pair in pairs)


# Runs


def run(case: tabled_models.Case, seconds: float) -> dict[str, Any]:
    """The entry of a case in truths.json."""
    began = time.time()
    potential = density(case)
    sampler = compiled(potential)
    best = None
    for target in TARGETS:
        start = time.time()
        draws, diverged = sampler(target)
        found = summarised({name: np.asarray(value, float) for name, value in draws.items()},
                           diverged)
        if best is None or (found["r_hat"], found["divergences"]) < (best["r_hat"],
                                                                      best["divergences"]):
            best = found
        if found["r_hat"] <= WELL and not found["divergences"]:
            return found
        if time.time() - began + 2 * (time.time() - start) > seconds:
            break
    return best


def compiled(potential: Potential) -> Callable[[float], tuple[dict, int]]:
    """Target acceptance → draws (chains, draws, ...) of every site and how many steps diverged: a
    chain of NumPyro's NUTS in one program, of all chains one after another (all at once would wait
    for the longest path of each step, and take twice as long to compile)."""
    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 3})
    def chain(key, tried, target):
        init, step = hmc(potential.value, algo="NUTS")
        values = jax.lax.map(potential.value, tried)
        best = jnp.argmin(jnp.where(jnp.isfinite(values), values, jnp.inf))
        start = {name: u[best] for name, u in tried.items()}
        state = init(start, num_warmup=WARMUP, target_accept_prob=target, rng_key=key)

        def one(state, _):
            state = step(state)
            return state, (state.z, state.diverging)

        _, (u, diverging) = jax.lax.scan(one, state, None, WARMUP + DRAWS)
        late = {name: value[WARMUP:] for name, value in u.items()}
        return jax.lax.map(potential.params, late), diverging[WARMUP:].sum()

    keys, tried = jax.random.split(jax.random.key(14), CHAINS), potential.random(CHAINS * TRIED)

    def sampled(target: float) -> tuple[dict, int]:
        found = [jax.device_get(chain(keys[c], {name: u[c::CHAINS] for name, u in tried.items()},
                                      target)) for c in range(CHAINS)]
        draws = {name: np.stack([own[name] for own, _ in found]) for name in potential.shapes}
        return draws, sum(int(count) for _, count in found)

    return sampled


def summarised(draws: Mapping[str, np.ndarray], diverged: int) -> dict[str, Any]:
    """Means, standard deviations, their errors and R-hat; with one numbering of exchangeable states in
    all chains where that makes them agree."""
    out = {"divergences": diverged, **moments(draws)}
    if out["r_hat"] <= AGREE:
        return out
    one = {"divergences": diverged, "aligned": True, **moments(aligned(draws))}
    if one["r_hat"] <= AGREE:
        return one
    return out


def aligned(draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Draws of which every chain numbers exchangeable states as the first one does."""
    out = {}
    for name, value in draws.items():
        first = judge.Moments(value[0].mean(0).ravel(), value[0].std(0).ravel(), None, None)
        flat = value.reshape(*value.shape[:2], -1)
        out[name] = np.stack([
            own[:, judge.alignment(own.mean(0), first, value.shape[2:])] for own in flat
        ]).reshape(value.shape)
    return out


def moments(draws: Mapping[str, np.ndarray]) -> dict[str, Any]:
    mean, sd, error, sd_error, worst = {}, {}, {}, {}, 1.0
    for name, value in draws.items():
        mean[name], sd[name] = value.mean((0, 1)), value.std((0, 1))
        moving = sd[name] > 1e-9 * (1 + np.abs(mean[name]))
        with np.errstate(divide="ignore", invalid="ignore"):
            effective = np.where(moving, effective_sample_size(value), 1.0)
            r_hat = np.where(moving, split_gelman_rubin(value), 1.0)
        error[name] = np.where(moving, sd[name] / np.sqrt(np.maximum(effective, 1.0)), 0.0)
        sd_error[name] = error_of_sd(value)
        worst = max(worst, float(np.max(np.nan_to_num(r_hat, nan=np.inf), initial=1.0)))
    found = {"mean": mean, "sd": sd, "error": error, "sd_error": sd_error}
    return rounded({key: {name: value.tolist() for name, value in own.items()}
                    for key, own in found.items()} | {"r_hat": worst})


def error_of_sd(draws: np.ndarray) -> np.ndarray:
    """The Monte Carlo error of the standard deviation of draws (chains, n, ...), by that of
    batches."""
    half = draws.shape[1] // 2
    parts = np.concatenate([draws[:, :half], draws[:, half : 2 * half]])
    return parts.std(1).std(0, ddof=1) / math.sqrt(len(parts))


def work(asked, answered, seconds: float) -> None:
    """Of a worker: cases by name, until there are no more."""
    every = tabled_models.every()  # data as a fit in float32 sees them
    jax.config.update("jax_enable_x64", True)
    while (name := asked.get()) is not None:
        try:
            found = run(every[name], seconds)
        except Skipped as why:
            found = {"skipped": str(why)}
        except Exception as error:
            found = {"skipped": f"{type(error).__name__}: {error!s:.200}"}
        jax.clear_caches()
        answered.put(found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--source")
    parser.add_argument("--again", action="store_true", help="also what is stored")
    parser.add_argument("--seconds", type=float, default=60.0, help="at most, of a case")
    asked = parser.parse_args()
    have = stored()
    names = [case.name for case in tabled_models.chosen(asked.names, asked.source)
             if not case.hopeless and (asked.again or case.name not in have)]
    ready = {} if asked.again else {name: own for name, own in known().items() if name in names}
    store(ready)
    context = multiprocessing.get_context("spawn")
    worker = None
    for name in (name for name in names if name not in ready):
        if worker is None:
            questions, answers = context.Queue(), context.Queue()
            worker = context.Process(target=work, args=(questions, answers, asked.seconds),
                                     daemon=True)
            worker.start()
        began = time.time()
        questions.put(name)
        found = waited(worker, answers, 1.5 * asked.seconds + 10)
        if found is None:
            worker.kill()
            worker, found = None, {"skipped": f"not done in {asked.seconds:.0f} s"}
        store({name: found})
        said = {key: found[key] for key in ("r_hat", "divergences", "labels", "skipped")
                if key in found}
        print(f"{name} {time.time() - began:.0f} s {said}", flush=True)
    if worker is not None:
        questions.put(None)


def waited(worker, answers, seconds: float) -> dict | None:
    """What a worker answers; None where it takes too long or has died."""
    end = time.time() + seconds
    while time.time() < end and worker.is_alive():
        try:
            return answers.get(timeout=1.0)
        except Exception:  # queue.Empty
            continue
    return None


if __name__ == "__main__":
    main()
