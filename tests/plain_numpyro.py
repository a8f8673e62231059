"""What NumPyro alone says of a function: what it meets, and its log density.

Operation by operation each shape is a program to compile, some hundred for a function of a dozen
sites, and NumPyro's samplers are long ones. So a density is one program, and random values are
NumPy's.
"""

import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import biject_to, constraints
from numpyro.infer import util

WIDTH = 0.5  # of random numbers where there are no bounds


class Site(NamedTuple):
    """What was met of a site.

    Attributes:
        kind: "sample" or "param".
        seen: it is observed.
        told: what was asked of NumPyro's own record of it, while the function ran.
    """

    kind: str
    seen: bool
    value: Any
    told: Any


def met(function: Callable, args: tuple = (), more: Mapping[str, Any] = {}, seed: int = 1,
        ask: Callable[[Mapping[str, Any]], Any] = lambda site: None,
        draw: bool = True) -> dict[str, Site]:
    """The sites of a function that is run once, with random values for what is not seen; or where
    nothing is drawn, with shapes and types in their place."""
    sites: dict[str, Site] = {}

    def run() -> dict[str, Any]:
        filled = handlers.substitute(function, substitute_fn=lambda site: _given(site, seed))
        trace = handlers.trace(handlers.seed(filled, seed)).get_trace(*args, **more)
        for name, site in trace.items():
            if site["type"] in ("sample", "param"):
                sites[name] = Site(site["type"], site.get("is_observed", False), None, ask(site))
        return {name: trace[name]["value"] for name in sites}

    values = run() if draw else jax.eval_shape(run)
    return {name: site._replace(value=values[name]) for name, site in sites.items()}


def _given(site: Mapping[str, Any], seed: int) -> Any:
    """The same as JAX's, which may be indexed by what is traced."""
    value = _some(site, seed)
    return None if value is None else jnp.asarray(value)


def _some(site: Mapping[str, Any], seed: int) -> Any:
    """Random numbers within the support of a site; None where NumPyro is to draw: what is discrete,
    and the steps of a scan, of which each has its own."""
    if site["type"] != "sample" or site.get("is_observed"):
        return None
    if isinstance(jnp.zeros(()), jax.core.Tracer):
        return None
    support = site["fn"].support
    shape = (*site["kwargs"].get("sample_shape", ()), *site["fn"].shape())
    random = np.random.default_rng([seed, zlib.crc32(site["name"].encode())])
    within = support
    while isinstance(within, constraints.independent):
        within = within.base_constraint
    if within is constraints.simplex:
        return random.dirichlet(np.ones(shape[-1]), shape[:-1])
    if within.is_discrete:
        return None
    try:
        to = biject_to(support)
    except NotImplementedError:
        return None
    free = WIDTH * random.normal(size=to.inverse_shape(shape))
    if within is constraints.real:
        return free
    if within is constraints.positive:
        return np.exp(free)
    return 1 / (1 + np.exp(-free)) if within is constraints.unit_interval else np.asarray(to(free))


def unseen(sites: Mapping[str, Site]) -> dict[str, Any]:
    """The values of those that are not observed."""
    return {name: site.value for name, site in sites.items()
            if site.kind == "sample" and not site.seen}


def drawn(function: Callable, *args: Any, **more: Any) -> dict[str, Any]:
    """Random values of the sites that are not seen."""
    return unseen(met(function, args, more))


def log_density(function: Callable, args: tuple, more: Mapping[str, Any],
                params: Mapping[str, Any]) -> float:
    """log p(params, what is seen)."""
    return float(jax.jit(lambda at: util.log_density(function, args, more, at)[0])(dict(params)))
