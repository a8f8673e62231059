"""What the tables of models that were written for others are made of: a case, and the density of it
by NumPyro alone, whatever is discrete and unseen summed over all of its values by brute force."""

import inspect
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer import util
from scipy.special import logsumexp

from plain_numpyro import log_density, met

MOST = 2**16  # joint values that brute force goes through


class Case(NamedTuple):
    """One model of somebody else's.

    Attributes:
        data: what goes in by name, arguments or sites.
        settings: arguments that are bound.
        plain: arguments that are others where NumPyro alone is asked, such as the whole of a plate,
            or NumPy's arrays, of which a program may take sizes, in place of JAX's.
        refused: words of the refusal, of a model that does not run.
    """

    function: Callable
    data: Mapping[str, Any]
    settings: Mapping[str, Any]
    plain: Mapping[str, Any]
    refused: tuple[str, ...]

    @property
    def name(self) -> str:
        return inner(self.function).__name__


def inner(function: Callable) -> Callable:
    """The function under handlers."""
    while not hasattr(function, "__code__"):
        function = function.fn
    return function


def table() -> tuple[list[Case], Callable]:
    """A list of cases and the decorator that adds to it."""
    cases: list[Case] = []

    def case(settings: Mapping = {}, plain: Mapping = {}, refused: tuple = (),
             **data: Any) -> Callable:
        def keep(function: Callable) -> Callable:
            cases.append(Case(function, data, dict(settings), dict(plain), refused))
            return function

        return keep

    return cases, case


class Asked(NamedTuple):
    """A density of NumPyro's: where, and how much."""

    params: dict[str, np.ndarray]
    log: float
    joint: int  # values that were summed over


def asked_of_numpyro(case: Case, seed: int = 1) -> Asked:
    """log p(data, parameters) at a draw of the parameters, by NumPyro's log_density and a sum over
    all joint values of what is discrete and unseen."""
    names = inspect.signature(inner(case.function)).parameters
    sites = {name: value for name, value in case.data.items() if name not in names}
    # as NumPyro's users pass them
    arrays = {name: jnp.asarray(value) if np.ndim(value) else value
              for name, value in case.data.items() if name not in sites}
    arguments = {**case.settings, **arrays, **case.plain}
    function = handlers.condition(case.function, sites) if sites else case.function
    sites = met(function, (), arguments, seed, _values)
    unseen = {name: site for name, site in sites.items()
              if site.kind == "sample" and not site.seen}
    # a site under a scan is met there, with the axis of steps in front
    states = {name: site.told for name, site in unseen.items() if site.told is not None}
    params = {name: np.asarray(site.value) for name, site in unseen.items() if name not in states}
    weights = {name: site.value for name, site in sites.items() if site.kind == "param"}
    if not states:
        at = jax.tree.map(jnp.asarray, {**params, **weights})
        params |= {name: _flat(value) for name, value in weights.items()}
        return Asked(params, log_density(function, (), arguments, at), 1)
    shapes = {name: np.shape(unseen[name].value) for name in states}
    cells = [states[name] for name in states for _ in range(math.prod(shapes[name]))]
    assert math.prod(map(len, cells)) <= MOST, case.name
    joint = np.array(list(itertools.product(*cells)))
    ends = np.cumsum([math.prod(shapes[name]) for name in states])[:-1]
    parts = {name: part.reshape(-1, *shapes[name])
             for name, part in zip(states, np.split(joint, ends, 1), strict=True)}
    logs = jax.jit(jax.vmap(lambda part: util.log_density(
        function, (), arguments, {**jax.tree.map(jnp.asarray, params), **part})[0]))(parts)
    return Asked(params, float(logsumexp(np.asarray(logs))), len(joint))


def _flat(value: Any) -> np.ndarray:
    """Weights as one site holds them: an array as it is, a tree as one vector."""
    leaves = jax.tree.leaves(value)
    return np.asarray(value, float) if not isinstance(value, list | tuple | dict) else np.concatenate(
        [np.ravel(leaf) for leaf in leaves]).astype(float)


def _values(site: Mapping) -> list[int] | None:
    """Of a site that is discrete and unseen."""
    if site["type"] != "sample" or site["is_observed"] or not site["fn"].support.is_discrete:
        return None
    return np.ravel(site["fn"].enumerate_support(expand=False)).tolist()
