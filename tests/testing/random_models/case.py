"""A model with data: what a test holds to its claims, as JSON says it."""

import functools
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from numpyro import handlers

from probml.interface.model import Model
from random_models.recipe import EFFECTS, INDEXES, STEPS, build, finite, inputs, states

ABSENT, PART, SEEN, SOFT = "absent", "part", "seen", "soft"


@dataclass(frozen=True)
class Case:
    """A recipe and data drawn from it.

    Attributes:
        recipe: see recipe.py.
        rows: how many.
        seed: of the parameters, the values and which cells are unseen.
        hidden: site → "part" (every third cell, about), "absent", or "soft" (a likelihood of each
            state is seen); all others are seen.
        blank: how many rows, the first ones, show nothing.
    """

    recipe: dict[str, Any]
    rows: int = 6
    seed: int = 0
    hidden: dict[str, str] = field(default_factory=dict)
    blank: int = 0

    @classmethod
    def of(cls, text: str) -> "Case":
        """What `str` wrote."""
        return cls(**json.loads(text))

    def __str__(self) -> str:
        return json.dumps({"recipe": self.recipe, "rows": self.rows, "seed": self.seed,
                           "hidden": self.hidden, "blank": self.blank}, indent=1)

    def __hash__(self):
        return hash(str(self))

    @property
    def model(self) -> Model:
        return build(self.recipe)

    @property
    def sites(self) -> dict[str, Mapping[str, Any]]:
        """Those inside the rows."""
        return {site["name"]: site for site in self.recipe["sites"] if not site.get("outside")}

    @property
    def outside(self) -> dict[str, Mapping[str, Any]]:
        """The finite sites outside the rows."""
        return {site["name"]: site for site in self.recipe["sites"] if site.get("outside")}

    def renamed(self) -> "Case":
        """The same with other names, whose order is the other way round."""
        own = [site["name"] for site in self.recipe["sites"]]
        to = {name: f"s{len(own) - i}" for i, name in enumerate(own)}
        named = {"name": to.get, "takes": to.get,
                 **dict.fromkeys(("parents", "adds"), lambda all: [to.get(n, n) for n in all])}
        sites = [{key: named[key](value) if key in named else value for key, value in site.items()}
                 for site in self.recipe["sites"]]
        return Case({**self.recipe, "sites": sites}, self.rows, self.seed,
                    {to[name]: word for name, word in self.hidden.items()}, self.blank)

    @property
    def learnt(self) -> bool:
        """Whether something is a parameter."""
        return any(site.get("learn") for site in self.recipe["sites"])

    @property
    def nested(self) -> bool:
        """Whether effects of groups are learnt, which engines may integrate out."""
        return any(name in site.get("learn", ()) for site in self.recipe["sites"]
                   for name in EFFECTS.values())

    @functools.cached_property
    def inputs(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng([self.seed, 1])
        own = {"x": rng.normal(size=self.rows),
               "group": rng.integers(0, INDEXES["group"], self.rows),
               "t": rng.normal(size=(self.rows, STEPS)),
               "unit": rng.integers(0, INDEXES["unit"], self.rows)}
        return {name: own[name] for name in inputs(self.recipe)}

    @functools.cached_property
    def drawn(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """(parameters, rows): a draw of everything, rows first."""
        def run(key):
            found = handlers.trace(handlers.seed(self.model, key)).get_trace(rows=self.rows,
                                                                             **self.inputs)
            return {name: message["value"] for name, message in found.items()
                    if message["type"] == "sample"}

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # one program, where each operation by itself would be one
            found = jax.jit(run)(jax.random.key(self.seed))
        params, values = {}, {}
        for name, value in found.items():
            value = np.asarray(value)
            if name in self.sites:
                plates = self.sites[name].get("layout") in ("plate", "grid")
                values[name] = value.T if plates else value
            else:
                params[name] = value
        return params, values

    @property
    def finite(self) -> bool:
        """Whether all that was drawn is: an exponential of a sum of squares may not be."""
        return all(np.isfinite(value).all() for part in self.drawn for value in part.values())

    @functools.cached_property
    def data(self) -> dict[str, np.ndarray]:
        """What is shown, unseen cells NaN."""
        rng, out = np.random.default_rng([self.seed, 2]), dict(self.inputs)
        for name, value in self.drawn[1].items():
            hole, word = rng.random(value.shape) < 0.35, self.hidden.get(name)
            if word == ABSENT:
                continue
            if word == SOFT:
                out[name] = rng.uniform(0.05, 1.0, (self.rows, states(self.sites[name])))
                continue
            out[name] = np.where(hole, np.nan, value) if word == PART else value
        for name in set(out) - set(self.inputs) if self.blank else ():
            nothing = 1.0 if self.hidden.get(name) == SOFT else np.nan
            out[name] = np.where((np.arange(self.rows) < self.blank).reshape(
                -1, *(1,) * (out[name].ndim - 1)), nothing, out[name])
        return out

    @property
    def hard(self) -> dict[str, np.ndarray]:
        """The data, without those that are likelihoods: what a table of one value a cell holds."""
        return {name: value for name, value in self.data.items()
                if self.hidden.get(name) != SOFT}

    @property
    def unseen(self) -> list[str]:
        """The finite sites of which a cell may be unseen."""
        return [name for name, site in self.sites.items()
                if finite(site) and self.hidden.get(name, SEEN) != SEEN]
