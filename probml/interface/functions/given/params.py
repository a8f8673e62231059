"""numpyro.param, and the weights of numpyro.module: numbers without a prior, each a site whose
density is 1 on its support, so that engines find them with the others.

A tree of arrays, as a network's weights are, is one site: its leaves one after the other in a
vector. Leaves in whose place the function samples, as numpyro's random modules do, are none of it.

handlers.scale around what is unseen: a density to a power, as tempered priors have it.
"""

import itertools
import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.tree_util import PyTreeDef
from numpyro.primitives import Messenger


class Scaled(dist.Distribution):
    """A distribution whose log density is multiplied; its draws are those of the distribution."""

    arg_constraints: dict = {}
    pytree_data_fields = ("base_dist", "power")

    def __init__(self, base_dist: dist.Distribution, power: object):
        self.base_dist, self.power = base_dist, power
        super().__init__(base_dist.batch_shape, base_dist.event_shape)

    @property
    def support(self) -> dist.constraints.Constraint:
        return self.base_dist.support

    def log_prob(self, value: jax.Array) -> jax.Array:
        return self.power * self.base_dist.log_prob(value)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return self.base_dist.sample(key, sample_shape)


PARAM_SPEC = "probml.param"  # the mark of a message that was a param


class ParamSpec(NamedTuple):
    """What a param holds: its constraint, the shapes of its arrays, and of which nothing is to be
    found, since the function samples others in their place."""

    constraint: dist.constraints.Constraint
    tree: PyTreeDef
    shapes: tuple[tuple[int, ...], ...]
    replaced: tuple[bool, ...]

    @classmethod
    def of(cls, value: object, constraint: object, after: object) -> "ParamSpec":
        """
        Args:
            after: the value once the function has run, which may have taken leaves out.
        """
        leaves, tree = jax.tree.flatten(value)
        remaining = {jax.tree_util.keystr(path)
                     for path, _ in jax.tree_util.tree_flatten_with_path(after)[0]}
        paths = [jax.tree_util.keystr(path)
                 for path, _ in jax.tree_util.tree_flatten_with_path(value)[0]]
        return cls(constraint, tree, tuple(jnp.shape(leaf) for leaf in leaves),
                   tuple(path not in remaining for path in paths))

    def __hash__(self) -> int:  # constraints have none
        return hash((type(self.constraint), self.tree, self.shapes, self.replaced))

    @property
    def sizes(self) -> list[int]:
        """Numbers of each array that are to be found."""
        return [0 if idle else math.prod(shape)
                for shape, idle in zip(self.shapes, self.replaced, strict=True)]

    @property
    def single(self) -> bool:
        return jax.tree_util.treedef_is_leaf(self.tree)

    @property
    def fn(self) -> dist.Distribution:
        shape = self.shapes[0] if self.single else (sum(self.sizes),)
        return dist.ImproperUniform(self.constraint, (), shape)

    def built(self, value: object) -> jax.Array:
        """The value of a site as the function knows it."""
        if self.single:
            return value
        ends = list(itertools.accumulate(self.sizes))
        leaves = [jnp.zeros(shape) if idle else part.reshape(shape) for part, shape, idle
                  in zip(jnp.split(value, ends[:-1]), self.shapes, self.replaced, strict=True)]
        return jax.tree.unflatten(self.tree, leaves)

    def flat(self, value: object) -> jax.Array:
        """A value as the function knows it, as that of the site."""
        leaves = [leaf for leaf, idle in zip(jax.tree.leaves(value), self.replaced, strict=True)
                  if not idle]
        return jnp.asarray(leaves[0] if self.single
                           else jnp.concatenate([jnp.ravel(leaf) for leaf in leaves]), float)


class ParamsAsSites(Messenger):
    """Makes every param of `specs` a sample site of its name."""

    def __init__(self, specs: Mapping[str, ParamSpec]):
        super().__init__()
        self.specs = specs

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "param" and msg["name"] in self.specs:
            spec = self.specs[msg["name"]]
            if all(spec.replaced):  # nothing of it is left to be found
                msg |= {"type": "idle", "value": spec.built(jnp.zeros(0))}
                return
            msg |= {"type": "sample", "fn": spec.fn, "args": (), "value": None, "infer": {},
                    "kwargs": {"rng_key": None, "sample_shape": ()}, "is_observed": False,
                    "intermediates": [], "cond_indep_stack": [], PARAM_SPEC: spec}

    def postprocess_message(self, msg: dict) -> None:
        if PARAM_SPEC in msg:
            msg["value"] = msg[PARAM_SPEC].built(msg["value"])
