"""The location, scale and observed value of a linear Gaussian site, and whether its location is
affine in the steps of a loop or scan (jaxpr/levels.py proves it)."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml.errors import ModelError
from probml.interface.functions.states import logs_of
from probml.interface.functions.steps.programs import Owner
from probml.jaxpr import levels
from probml.jaxpr.program import ClosedJaxpr, Literal, bodies, equations
from probml.typing import Message

POWERS = frozenset({"sqrt", "rsqrt", "cbrt", "square", "pow", "integer_pow"})
INDEPENDENT_OF_STEPS = ("root", "scale", "value", "mask", "beside")  # what may not depend on steps


class NotLinearGaussian(ModelError):
    """Steps are not linear and Gaussian, whichever arguments are bound."""


class Uses(NamedTuple):
    """How the records of sites use some inputs of their program.

    Attributes:
        found: (site, kind) → input → use; curved: the records that are no affine function of them.
    """

    found: Mapping[Owner, Mapping[Any, levels.Use]]
    curved: frozenset[Owner]

    @classmethod
    def of(cls, closed: object, owners: Sequence[Owner], inputs: Mapping[int, Any]) -> "Uses":
        """
        Args:
            owners: of the results; inputs: place of an input → its name.
        """
        found = dict(zip(owners, levels.classify(closed, inputs), strict=True))
        powers = _results_with_powers(closed, list(inputs))
        return cls(found, frozenset(
            owner for i, owner in enumerate(owners)
            if found[owner] and (i in powers or not all(
                use.is_affine for use in found[owner].values()))))

    def computed(self) -> set[str]:
        """What is computed from the inputs."""
        return {name for (name, kind), own in self.found.items() if kind == "computed" and own}

    def is_linear(self, name: str) -> bool:
        """Whether a site is normal about a location that is affine in the inputs, with a standard
        deviation that does not depend on them."""
        return ((name, "loc") in self.found and (name, "loc") not in self.curved
                and not any(self.found.get((name, kind)) for kind in INDEPENDENT_OF_STEPS))


def _results_with_powers(closed: ClosedJaxpr, inputs: Collection[int]) -> set[int]:
    """The results that some inputs reach through a power, which levels.py judges on the positive
    half line alone."""
    near, raised = {closed.jaxpr.invars[i] for i in inputs}, set()
    for eqn in closed.jaxpr.eqns:
        own = [atom for atom in eqn.invars if not isinstance(atom, Literal) and atom in near]
        if own:
            near.update(eqn.outvars)
            inside = (each.primitive.name for body in bodies(eqn) for each in equations(body))
            if any(atom in raised for atom in own) or not POWERS.isdisjoint(
                (eqn.primitive.name, *inside)
            ):
                raised.update(eqn.outvars)
    return {i for i, atom in enumerate(closed.jaxpr.outvars)
            if not isinstance(atom, Literal) and atom in raised}


def gaussian_records(name: str, site: Message) -> list[tuple[str, jax.Array]]:
    """The records of a sample site as a linear Gaussian one: (kind, value)."""
    out = [("log", logs_of({name: site})[name].sum())]
    fn, mask = site["fn"], None
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution | dist.MaskedDistribution):
        if isinstance(fn, dist.MaskedDistribution):
            mask = jnp.reshape(fn._mask, (*jnp.shape(fn._mask), *(1,) * fn.event_dim))
        fn = fn.base_dist
    if type(fn) not in (dist.Normal, dist.MultivariateNormal) or site["scale"] is not None:
        return out
    shape = np.broadcast_shapes(site["fn"].shape(), jnp.shape(site["value"]))
    value = site["value"] if mask is None else jnp.where(mask, site["value"], 0.0)
    seen = {"value": value, "mask": True if mask is None else mask} if site["is_observed"] else {}
    found = {"loc": fn.loc, **seen}
    if type(fn) is dist.Normal:
        spread = jnp.broadcast_to(fn.scale, shape)
        found |= {"scale": spread} if seen else {"root": jnp.diag(spread.ravel())}
    elif seen:  # in coordinates of no covariance
        inverse = jnp.linalg.inv(fn.scale_tril)
        white = lambda vector: (inverse @ vector[..., None])[..., 0]  # noqa: E731
        size = jnp.log(jnp.abs(jnp.diagonal(fn.scale_tril, axis1=-2, axis2=-1))).sum(-1)
        lost = jnp.broadcast_to(size, shape[:-1])
        found |= {kind: white(jnp.broadcast_to(found[kind], shape)) for kind in ("loc", "value")}
        found |= {"scale": jnp.ones(()), "beside": -jnp.where(
            True if mask is None else mask[..., 0], lost, 0.0).sum()}
    else:
        roots = jnp.broadcast_to(fn.scale_tril, (*shape, shape[-1])).reshape(-1, *2 * shape[-1:])
        apart = jnp.eye(len(roots))[:, None, :, None] * roots[:, :, None]
        found["root"] = apart.reshape(2 * (math.prod(shape),))
    flat = lambda own: jnp.broadcast_to(own, shape).ravel()  # noqa: E731
    return out + [(kind, own if kind in ("root", "beside") else flat(own))
                  for kind, own in found.items()]
