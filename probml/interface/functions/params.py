"""numpyro.param, and the weights of numpyro.module: numbers without a prior, each a site whose
density is 1 on its support, so that engines find them with the others.

A tree of arrays, as a network's weights are, is one site: its leaves one after the other in a
vector.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.primitives import Messenger

BUILT = "probml.param"  # the mark of a message that was a param


class Spec(NamedTuple):
    """What a param holds: its constraint, and the shapes of its arrays."""

    constraint: Any
    tree: Any
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, value: Any, constraint: Any) -> "Spec":
        leaves, tree = jax.tree.flatten(value)
        return cls(constraint, tree, tuple(jnp.shape(leaf) for leaf in leaves))

    def __hash__(self) -> int:  # constraints have none
        return hash((type(self.constraint), self.tree, self.shapes))

    @property
    def single(self) -> bool:
        return jax.tree_util.treedef_is_leaf(self.tree)

    @property
    def fn(self) -> dist.Distribution:
        shape = (self.shapes[0] if self.single
                 else (sum(math.prod(shape) for shape in self.shapes),))
        return dist.ImproperUniform(self.constraint, (), shape)

    def built(self, value: Any) -> Any:
        """The value of a site as the function knows it."""
        if self.single:
            return value
        ends, total = [], 0
        for shape in self.shapes:
            total += math.prod(shape)
            ends.append(total)
        leaves = [part.reshape(shape) for part, shape
                  in zip(jnp.split(value, ends[:-1]), self.shapes, strict=True)]
        return jax.tree.unflatten(self.tree, leaves)

    def flat(self, value: Any) -> jax.Array:
        """A value as the function knows it, as that of the site."""
        leaves = jax.tree.leaves(value)
        return jnp.asarray(leaves[0] if self.single
                           else jnp.concatenate([jnp.ravel(leaf) for leaf in leaves]), float)


class Params(Messenger):
    """Makes every param of `specs` a sample site of its name."""

    def __init__(self, specs: Mapping[str, Spec]):
        super().__init__()
        self.specs = specs

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "param" and msg["name"] in self.specs:
            spec = self.specs[msg["name"]]
            msg |= {"type": "sample", "fn": spec.fn, "args": (), "value": None, "infer": {},
                    "kwargs": {"rng_key": None, "sample_shape": ()}, "is_observed": False,
                    "intermediates": [], "cond_indep_stack": [], BUILT: spec}

    def postprocess_message(self, msg: dict) -> None:
        if BUILT in msg:
            msg["value"] = msg[BUILT].built(msg["value"])


class Found(Messenger):
    """Keeps the params that a run meets, at the values with which they begin."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, Any] = {}
        self.constraints: dict[str, Any] = {}

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "prng_key":
            msg["value"] = jax.random.key(0)  # what a network's first weights are drawn by

    def postprocess_message(self, msg: dict) -> None:
        if msg["type"] == "param" and msg["value"] is not None:
            self.values[msg["name"]] = msg["value"]
            self.constraints[msg["name"]] = msg["kwargs"].get("constraint", constraints.real)

    @property
    def specs(self) -> dict[str, Spec]:
        return {name: Spec.of(value, self.constraints[name])
                for name, value in self.values.items()}
