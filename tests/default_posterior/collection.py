"""A list of models with small data, and what is known of them."""

from collections.abc import Callable
from typing import Any

import numpy as np


class Collection:
    """Models by name.

    Attributes:
        models: name → (function, data).
        by_hand: name → the same function with what is latent and discrete, or what cells are missing,
            summed or integrated out by hand.
        labels: names whose labels are exchangeable, so that posterior means of single labels mean
            nothing.
        hopeless: name → why there is no posterior mean that an honest method could report.
    """

    def __init__(self):
        self.models: dict[str, tuple[Callable, dict[str, Any]]] = {}
        self.by_hand: dict[str, Callable] = {}
        self.labels: set[str] = set()
        self.hopeless: dict[str, str] = {}

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
