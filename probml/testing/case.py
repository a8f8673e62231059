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
from probml.testing.recipe import GROUPS, build, finite, inputs

ABSENT, PART, SEEN = "absent", "part", "seen"


@dataclass(frozen=True)
class Case:
    """A recipe and data drawn from it.

    Attributes:
        recipe: see recipe.py.
        rows: how many.
        seed: of the parameters, the values and which cells are unseen.
        hidden: site → "part" (every third cell, about) or "absent"; all others are seen.
    """

    recipe: dict[str, Any]
    rows: int = 6
    seed: int = 0
    hidden: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> "Case":
        """What `str` wrote."""
        return cls(**json.loads(text))

    def __str__(self) -> str:
        return json.dumps({"recipe": self.recipe, "rows": self.rows, "seed": self.seed,
                           "hidden": self.hidden}, indent=1)

    def __hash__(self):
        return hash(str(self))

    @property
    def model(self) -> Model:
        return build(self.recipe)

    @property
    def sites(self) -> dict[str, Mapping[str, Any]]:
        return {site["name"]: site for site in self.recipe["sites"]}

    def renamed(self) -> "Case":
        """The same with other names, whose order is the other way round."""
        to = {name: f"s{len(self.sites) - i}" for i, name in enumerate(self.sites)}
        sites = [{key: to[value] if key == "name" else [to.get(each, each) for each in value]
                  if key in ("parents", "adds") else value for key, value in site.items()}
                 for site in self.recipe["sites"]]
        return Case({**self.recipe, "sites": sites}, self.rows, self.seed,
                    {to[name]: word for name, word in self.hidden.items()})

    @property
    def learnt(self) -> bool:
        """Whether something is a parameter."""
        return any(site.get("learn") for site in self.recipe["sites"])

    @functools.cached_property
    def inputs(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng([self.seed, 1])
        own = {"x": rng.normal(size=self.rows), "group": rng.integers(0, GROUPS, self.rows)}
        return {name: own[name] for name in inputs(self.recipe)}

    @functools.cached_property
    def drawn(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """(parameters, rows): a draw of everything, rows first."""
        run = handlers.trace(handlers.seed(self.model, jax.random.key(self.seed)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = run.get_trace(rows=self.rows, **self.inputs)
        params, values = {}, {}
        for name, message in found.items():
            if message["type"] != "sample":
                continue
            value = np.asarray(message["value"])
            if name in self.sites:
                plates = self.sites[name].get("layout") == "plate"
                values[name] = np.moveaxis(value, 1, 0) if plates else value
            else:
                params[name] = value
        return params, values

    @functools.cached_property
    def data(self) -> dict[str, np.ndarray]:
        """What is shown, unseen cells NaN."""
        rng, out = np.random.default_rng([self.seed, 2]), dict(self.inputs)
        for name, value in self.drawn[1].items():
            hole = rng.random(value.shape) < 0.35
            if self.hidden.get(name) == ABSENT:
                continue
            out[name] = np.where(hole, np.nan, value) if self.hidden.get(name) == PART else value
        return out

    @property
    def unseen(self) -> list[str]:
        """The finite sites of which a cell may be unseen."""
        return [name for name, site in self.sites.items()
                if finite(site) and self.hidden.get(name, SEEN) != SEEN]
