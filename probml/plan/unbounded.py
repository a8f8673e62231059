"""Correlations of what is seen, of fewer rows than tell them: where a matrix is singular and all
rows lie in what is left, less what locations take of them, the density rises without bound. There
is no mode then, though a mean, which the volume of such matrices, 0, makes finite."""

import functools
import math

import jax.numpy as jnp
import numpy as np

from probml.errors import Refusal
from probml.families.domains import Correlations
from probml.jaxpr.memo import memo
from probml.numerics.compiling import jit
from probml.numerics.tiers import ONCE
from probml.plan.plan import Plan
from probml.plan.products import filled
from probml.structure.densities import log_weight

# smallest numbers on a factor's diagonal at which densities are looked at; and how much more they
# fall to the last than to the one before, where it is a square that falls: a logarithm falls alike
NARROW, FASTER = (0.1, 0.01, 0.001), 10.0


def judge(plan: Plan, rows: int, engine: str, ladder: bool) -> None:
    """What an engine that ends at a mode has to say of correlations that have none; asked for by
    name, it says so at its end.

    Raises:
        Refusal: a matrix of correlations has no mode, and the engine was not asked for by name.
    """
    for name in _matrices(plan) if ladder else ():
        seen = singular(plan, name, rows)
        if seen:
            wide = plan.structure.sites[name].shape[-1]
            raise Refusal(
                f"{engine} of model '{plan.structure.model.name}': '{name}', correlations of "
                f"{wide} numbers each, is told by {seen} numbers in all: where it is singular "
                f"their density rises without bound, so that there is no mode", ("NUTS",))


def _matrices(plan: Plan) -> list[str]:
    sites = plan.structure.sites
    return [name for name in plan.free if isinstance(sites[name].domain, Correlations)]


@memo(512)
def singular(plan: Plan, name: str, rows: int) -> int:
    """How many numbers tell a matrix of correlations that has no mode; 0, where it has one, as far
    as counts tell: n rows of d numbers, of which locations take p, leave n − p < d."""
    structure, sites = plan.structure, plan.structure.sites
    near = tuple(user for user in (*plan.rowwise, *plan.pooled, *plan.globals)
                 if name in structure.programs[user][1])
    if not near or structure.one_way:
        return 0
    seen = sum(sites[user].seen or 0 if sites[user].factor else
               math.prod(sites[user].shape) * (rows if sites[user].rows else 1) for user in near)
    beside = {p for user in near for p in structure.programs[user][1] if p in plan.free}
    places = sum(math.prod(sites[p].shape) for p in beside
                 if sites[p].domain.unbounded or sites[p].domain.ordered)
    wide = sites[name].shape[-1]
    if not seen or (seen - places) / wide >= wide or math.prod(sites[name].shape[:-2]) > 1:
        return 0
    found, prior = np.asarray(_narrowed(plan, name, near), float)
    falls, held = -np.diff(found), -np.diff(prior)[-1] / np.log(NARROW[1] / NARROW[2])
    # of what is seen itself, whose densities have it inverted; and the prior holds it less
    own = np.isfinite(falls).all() and falls[1] > FASTER * max(falls[0], 0.0) and falls[1] > 1.0
    return seen if own and seen / wide > held else 0


@functools.partial(jit, static_argnums=(0, 1, 2), seldom=ONCE)
def _narrowed(plan: Plan, name: str, near: tuple[str, ...]):
    """The log densities of what takes a matrix of correlations, and of itself, at matrices that are
    nearer and nearer to singular ones: (2, 3)."""
    structure, sites = plan.structure, plan.structure.sites
    env = {}
    specs = {take: spec for user in (*near, name) for take, spec in zip(
        structure.programs[user][1], structure.programs[user][0].in_avals, strict=True)}
    for i, (key, spec) in enumerate(specs.items()):
        env[key] = filled(i, spec, key in sites)
        if key in plan.free and isinstance(sites[key].domain, Correlations):
            env[key] = jnp.broadcast_to(jnp.eye(spec.shape[-1], dtype=spec.dtype), spec.shape)
        elif key in plan.free and sites[key].domain.sums_to_one:
            env[key] /= env[key].sum(-1, keepdims=True)
    domain, wide = sites[name].domain, sites[name].shape[-1]

    def at(least: float):
        factor = jnp.eye(wide).at[-1, 0].set((1 - least**2) ** 0.5).at[-1, -1].set(least)
        value = domain.of_factor(factor).reshape(sites[name].shape)
        here = {**env, name: value}

        def log(user):
            if sites[user].factor:
                return log_weight(structure, user, here)
            own = structure.distribution(user, here)
            shape = own.batch_shape + own.event_shape
            return own.log_prob(0.3 + 0.1 * jnp.arange(math.prod(shape)).reshape(shape)).sum()

        return sum(log(user) for user in near), structure.distribution(name, here).log_prob(
            value).sum()

    found = [at(least) for least in NARROW]
    return jnp.stack([jnp.stack(part) for part in zip(*found, strict=True)])
