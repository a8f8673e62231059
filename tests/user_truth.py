"""The truth about a model that a user brings: NumPyro's own density, brute force over what is
discrete and unseen, modes from many starts, and NumPyro's own sampler. Nothing here calls an engine
of probml.
"""

import itertools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.diagnostics import effective_sample_size
from numpyro.distributions import biject_to
from numpyro.infer import MCMC, NUTS
from scipy import optimize

import probml
from probml.language.language import chain_length_scope

# mode and posterior means, as `python tests/user_models.py NAME` computes them
STORED = Path(__file__).with_name("user_truths.json")
STARTS = 8  # of a search for the mode
CHAINS, DRAWS = 4, 1000  # of NumPyro's sampler


@dataclass(frozen=True, eq=False)
class Case:
    """A model as a user would paste it, small data, and what must come out.

    Attributes:
        model: the bound model.
        make: a generator of NumPy → the data of `fit`.
        hidden: discrete unseen sites → their states, or the number of states 0, 1, …; summed out by
            brute force.
        truth: what a fit is held against: "mode" (the highest value of NumPyro's density, from many
            starts; by MAP), "posterior" (the means of NumPyro's NUTS), or "refused" (a worded
            error).
        plain: data → the same as NumPyro takes them, where they are no mapping of arrays of
            numbers.
        engine: None is the default.
        says: of a refusal, a pattern of its words.
        wrong: why the fit fails today (the test expects so), or None.
        wrong_density: why the density fails today, or None.
        steps: of a MarkovChain.
        width: of the random points of the density check, where inputs are large.
        quick: whether the fit is part of the short test run.
    """

    model: probml.Model
    make: Callable[[np.random.Generator], Any]
    hidden: Mapping[str, int | range] = field(default_factory=dict)
    truth: str = "mode"
    plain: Callable[[Any], Mapping[str, Any]] = dict
    engine: Any = None
    says: str = ""
    wrong: str | None = None
    wrong_density: str | None = None
    steps: int | None = None
    width: float = 0.5
    quick: bool = False
    name: str = ""

    def __repr__(self) -> str:
        return self.name or self.model.name

    @cached_property
    def data(self) -> Any:
        return self.make(np.random.default_rng(14))

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """The data as NumPyro takes them."""
        return {name: np.asarray(value) for name, value in self.plain(self.data).items()}

    @cached_property
    def rows(self) -> int:
        return len(next(iter(self.arrays.values())))

    @cached_property
    def inputs(self) -> dict[str, jax.Array]:
        return {name: jnp.asarray(self.arrays[name]) for name in self.model.inputs}

    @cached_property
    def prior(self) -> dict[str, Any]:
        """A trace of the function with nothing seen."""
        with handlers.block(), chain_length_scope(self.steps):
            model = handlers.seed(handlers.substitute(self.model, substitute_fn=_undrawable), 0)
            trace = handlers.trace(model).get_trace(self.rows, **self.inputs)
        return {name: site for name, site in trace.items() if site["type"] == "sample"
                and not site["is_observed"]}

    @cached_property
    def seen(self) -> dict[str, np.ndarray]:
        """Seen sites in NumPyro's layout: plates inside rows stand before the axis of rows."""
        out = {}
        for name, value in self.arrays.items():
            if name not in self.model.inputs:
                batch = value.ndim - self.prior[name]["fn"].event_dim
                value = np.transpose(value, (*reversed(range(batch)), *range(batch, value.ndim)))
                real = np.issubdtype(value.dtype, np.floating)
                out[name] = value if real else value.astype(int)
        return out

    @cached_property
    def free(self) -> dict[str, Any]:
        """Sites that are parameters: neither seen nor summed out."""
        return {name: site for name, site in self.prior.items() if name not in self.seen
                and name not in self.hidden}

    def unconstrained(self) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        """From real numbers to parameters."""
        maps = {name: biject_to(site["fn"].support) for name, site in self.free.items()}
        return lambda u: {name: maps[name](u[name]) for name in maps}

    def points(self, count: int, seed: int) -> list[dict[str, np.ndarray]]:
        """Random parameters: normal in coordinates without bounds."""
        rng, to, out = np.random.default_rng(seed), self.unconstrained(), []
        for _ in range(count):
            out.append(
                {name: np.asarray(value) for name, value in to(self._real(rng, self.width)).items()}
            )
        return out

    def _real(self, rng: np.random.Generator, width: float) -> dict[str, np.ndarray]:
        shapes = {n: biject_to(site["fn"].support).inverse_shape(np.shape(site["value"]))
                  for n, site in self.free.items()}
        return {name: width * rng.standard_normal(shape) for name, shape in shapes.items()}

    def density(self) -> Callable[[Mapping[str, Any]], jax.Array]:
        """params → log p(data, params), by NumPyro's log densities and brute force: exponential and
        obvious."""
        local = {name: site for name, site in self.prior.items() if name in self.hidden
                 and _rows(site) is not None}
        outer = {name: site for name, site in self.prior.items() if name in self.hidden
                 and name not in local}
        inside, outside = self._states(local), self._states(outer)
        seen = self.seen

        def one(params, states_outside, states_inside):
            """(log density outside rows, log density of each row) at one joint state."""
            hidden = {**states_outside, **states_inside}
            values = {**params, **seen, **hidden}
            model = handlers.seed(handlers.substitute(self.model, data=values), 0)
            with handlers.block(), chain_length_scope(self.steps):
                trace = handlers.trace(model).get_trace(self.rows, **self.inputs)
            common, each = 0.0, jnp.zeros(self.rows)
            for name, site in trace.items():
                if site["type"] != "sample":
                    continue
                log, axis = _log(site), _rows(site)
                if name in hidden and name in seen:  # seen in part
                    known = jnp.isnan(seen[name]) | (seen[name] == hidden[name])
                    log = log + jnp.where(known.reshape(*log.shape, -1).all(-1), 0.0, -jnp.inf)
                if axis is None:
                    common += jnp.sum(log)
                else:
                    each += jnp.moveaxis(log, axis, 0).reshape(self.rows, -1).sum(1)
            return common, each

        def total(params):
            params = {name: jnp.asarray(value) for name, value in params.items()}

            def at(states_outside):
                common, each = jax.vmap(lambda states: one(params, states_outside, states))(inside)
                return common[0] + jax.nn.logsumexp(each, axis=0).sum()

            return jax.nn.logsumexp(jax.vmap(at)(outside))

        return total

    def _states(self, sites: Mapping[str, Any]) -> dict[str, jax.Array]:
        """All joint states of some sites, the same in every row: name → (joint states, *shape of
        the value)."""
        cells = {}
        for name, site in sites.items():
            shape, axis = list(np.shape(site["value"])), _rows(site)
            if axis is not None:
                shape[axis - site["fn"].event_dim] = 1
            cells[name] = shape
        sizes = {name: math.prod(shape) for name, shape in cells.items()}
        ranges = [_states(self.hidden[name]) for name in sites for _ in range(sizes[name])]
        # one joint state, of no sites, where there are none
        table = np.array(list(itertools.product(*ranges)), int)
        out, begin = {"": jnp.zeros(len(table))}, 0
        for name, site in sites.items():
            part = table[:, begin : begin + sizes[name]].reshape(-1, *cells[name])
            out[name] = jnp.asarray(np.broadcast_to(part, (len(table), *np.shape(site["value"]))))
            begin += sizes[name]
        return out

    # What the default fit is held against

    def mode(self) -> dict[str, Any]:
        """The highest density that many starts of L-BFGS find; parameters in their own coordinates,
        as MAP's."""
        to, flat = self.unconstrained(), jax.flatten_util.ravel_pytree
        _, back = flat(self._real(np.random.default_rng(0), 0.0))
        density = self.density()
        value = jax.jit(jax.value_and_grad(lambda u: -density(to(back(u)))))

        def objective(u):
            f, g = value(jnp.asarray(u))
            good = np.isfinite(f) and np.isfinite(g).all()
            return (float(f), np.asarray(g, float)) if good else (1e12, np.zeros(len(u)))

        best, ends = None, []
        for seed in range(STARTS):
            u = np.asarray(flat(self._real(np.random.default_rng(seed), 1.0 if seed else 0.0))[0],
                           float)
            for _ in range(2):  # a flat line search is begun again
                end = optimize.minimize(objective, u, jac=True, method="L-BFGS-B",
                                        options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9})
                u = end.x
            ends.append(-end.fun)
            best = end if best is None or end.fun < best.fun else best
        params = {name: np.asarray(v).round(6).tolist()
                  for name, v in to(back(jnp.asarray(best.x))).items()}
        return {"value": -float(best.fun), "params": params,
                "reached": int(np.sum(np.array(ends) > -best.fun - 1e-4))}

    def posterior(self) -> dict[str, Any]:
        """Means and their Monte Carlo standard errors, of NumPyro's NUTS on the plain function."""
        seen = {name: jnp.asarray(value) for name, value in self.seen.items()}
        kernel = NUTS(handlers.condition(self.model, seen), target_accept_prob=0.95)
        sampler = MCMC(kernel, num_warmup=DRAWS, num_samples=DRAWS, num_chains=CHAINS,
                       chain_method="vectorized", progress_bar=False)
        sampler.run(jax.random.key(14), self.rows, **self.inputs)
        draws = {name: np.asarray(
            value, float
        ) for name, value in sampler.get_samples(group_by_chain=True).items() if name in self.free}
        out = {"divergent": int(np.asarray(sampler.get_extra_fields(True)["diverging"]).sum()),
               "means": {}, "errors": {}, "deviations": {}}
        least = math.inf
        for name, value in draws.items():
            mean, error, deviation, effective = moments(value)
            least = min(least, effective)
            for key, moment in (("means", mean), ("errors", error), ("deviations", deviation)):
                out[key][name] = np.asarray(moment).round(7).tolist()
        return {**out, "effective": round(least)}


def moments(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Mean, its Monte Carlo standard error, and standard deviation of draws (chains, n, ...); the
    fewest effective draws."""
    mean, deviation = draws.mean((0, 1)), draws.std((0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        effective = np.asarray(effective_sample_size(draws))
    # entries that do not vary, as above the diagonal of a Cholesky factor
    effective = np.where(deviation > 1e-12, effective, 1.0)
    error = np.where(deviation > 1e-12, deviation / np.sqrt(np.maximum(effective, 1.0)), 0.0)
    moving = effective[deviation > 1e-12]
    return mean, error, deviation, float(np.min(moving)) if moving.size else math.inf


def _states(states: int | range) -> range:
    return range(states) if isinstance(states, int) else states


def _undrawable(site: Mapping[str, Any]) -> jax.Array | None:
    """A value of a site that NumPyro cannot draw: of an improper prior."""
    if site["type"] == "sample" and isinstance(site["fn"], dist.ImproperUniform):
        return biject_to(site["fn"].support)(jnp.zeros(site["fn"].shape()))
    return None


def _rows(site: Mapping[str, Any]) -> int | None:
    """The axis of rows in the batch of a site (negative), or None outside rows."""
    return next((frame.dim for frame in site["cond_indep_stack"] if frame.name == "rows"), None)


def _log(site: Mapping[str, Any]) -> jax.Array:
    """log p of every cell of a site; an unseen cell (NaN) of a seen site counts nothing: it is
    integrated out."""
    fn, value = site["fn"], site["value"]
    if not isinstance(value, np.ndarray) or not np.isnan(value).any():
        return fn.log_prob(jnp.asarray(value)) * (1.0 if site["scale"] is None else site["scale"])
    missing, dims = np.isnan(value), fn.event_dim
    if isinstance(fn, dist.MultivariateNormal):
        return _marginal(fn, value, missing)
    while isinstance(fn, dist.Independent):
        fn = fn.base_dist
    some = value[~missing].ravel()[0]  # within the support
    log = jnp.where(missing, 0.0, fn.log_prob(np.where(missing, some, value)))
    return log.sum(tuple(range(-dims, 0))) if dims else log


def _marginal(fn: Any, value: np.ndarray, missing: np.ndarray) -> jax.Array:
    """log p of the seen entries of normal vectors: of the unseen ones mean, row and column are
    those of a standard normal."""
    both = missing[..., :, None] | missing[..., None, :]
    cov = jnp.where(both, jnp.eye(missing.shape[-1]), fn.covariance_matrix)
    log = dist.MultivariateNormal(jnp.where(missing, 0.0, fn.loc),
                                  cov).log_prob(np.where(missing, 0.0, value))
    return log + 0.5 * math.log(2 * math.pi) * missing.sum(-1)


def stored() -> dict[str, Any]:
    return json.loads(STORED.read_text()) if STORED.exists() else {}


def store(name: str, found: Mapping[str, Any]) -> None:
    """Write what was computed of a case, one line a case."""
    every = {**stored(), name: found}
    lines = [f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(every[key])}"
             for key in sorted(every)]
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def densities(case: Case) -> dict[str, Any]:
    """Random points and NumPyro's density there."""
    own, points = jax.jit(case.density()), case.points(2, seed=1)
    return {"points": [{n: v.tolist() for n, v in point.items()} for point in points],
            "densities": [float(own(point)) for point in points]}


def compute(case: Case, known: Mapping[str, Any]) -> dict[str, Any]:
    """What is stored of a case beyond what is known; in float64."""
    out = dict(known) if "points" in known else {**known, **densities(case)}
    if {"mode": "value", "posterior": "means"}[case.truth] not in out:
        out |= case.mode() if case.truth == "mode" else case.posterior()
    return out
