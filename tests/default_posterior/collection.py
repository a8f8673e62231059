"""A list of models with small data, and what is known of them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

PARALLEL = {"enumerate": "parallel"}


def logistic(x):
    """1 / (1 + exp(−x)), of data."""
    return 1 / (1 + np.exp(-np.asarray(x)))


def chain_log(log: jax.Array, initial: jax.Array, transition: jax.Array) -> jax.Array:
    """Log density of sequences of a hidden Markov chain, by the forward algorithm.

    Args:
        log: (..., steps, states), of what is observed of a step given its state.
    """
    def step(alpha, now):
        return logsumexp(alpha[..., :, None] + jnp.log(transition), -2) + now, None

    log = jnp.moveaxis(log, -2, 0)
    return logsumexp(jax.lax.scan(step, jnp.log(initial) + log[0], log[1:])[0], -1)


class Collection:
    """Models by name; `Collection(1, 2).rng(3)` is NumPy's generator of the seed (1, 2, 3).

    Attributes:
        models: name → (function, data).
        by_hand: name → the same function with what is latent and discrete, or what cells are missing,
            summed or integrated out by hand.
        labels: names whose labels are exchangeable, so that posterior means of single labels mean
            nothing.
        hopeless: name → why there is no posterior mean that an honest method could report.
    """

    def __init__(self, *seed: int):
        self.seed = seed
        self.models: dict[str, tuple[Callable, dict[str, Any]]] = {}
        self.by_hand: dict[str, Callable] = {}
        self.labels: set[str] = set()
        self.hopeless: dict[str, str] = {}

    def rng(self, seed: int) -> np.random.Generator:
        return np.random.default_rng([*self.seed, seed])

    def new(self, labels: bool = False, hopeless: str = "", **data: Any) -> Callable:
        """A decorator that adds a function and its data."""
        def add(function: Callable) -> Callable:
            name = function.__name__
            self.models[name] = (function, {key: np.asarray(value) for key, value in data.items()})
            if labels:
                self.labels.add(name)
            if hopeless:
                self.hopeless[name] = hopeless
            return function
        return add

    def summed(self, name: str) -> Callable:
        """A decorator: the function has the density of the model of that name without what is
        discrete or missing."""
        def add(function: Callable) -> Callable:
            self.by_hand[name] = function
            return function
        return add
