"""Parameters that multiply others: latents, as the loadings of factors do (at loadings of 0 all
derivatives vanish, so that an optimisation would stay there), and effects, of which only the
product with a scale may enter the likelihood."""

import functools
import math
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from probml.jaxpr.levels import Level, classify
from probml.jaxpr.memo import memo
from probml.numerics.compile_effort import ONCE
from probml.numerics.compiling import jit
from probml.plan.blocks import users
from probml.plan.plan import Plan

# to which a scale, a variance, a precision and an inverse scale multiply
POWERS = 1.0, 0.5, -0.5, -1.0


@memo(512)
def multiplied(plan: Plan) -> tuple[str, ...]:
    """The free parameters in which an argument of some site is affine at fixed latents, but not
    jointly with the latents."""
    sites, found = plan.structure.sites, set()
    for name in plan.integrated:
        program, takes = plan.structure.programs[name]
        together = classify(program, {i: t for i, t in enumerate(takes)
                                      if t in plan.free or t in plan.continuous_latents})
        for argument, uses in zip(sites[name].arguments, together, strict=True):
            alone = sites[name].uses.get(argument, {})
            found |= {p for p, use in uses.items() if p in alone and use.level is Level.GENERAL
                      and alone[p].level <= Level.AFFINE
                      and any(n in plan.continuous_latents for n in uses)}
    return tuple(name for name in plan.free if name in found)


@memo(512)
def powers(plan: Plan) -> dict[tuple[str, str], float]:
    """Parameters of which only the product enters the likelihood: (effects, scale) → the power of
    the scale, or of the exponential of an unbounded one, in the product."""
    sites, near = plan.structure.sites, {}
    for user in users(plan):
        for uses in sites[user].uses.values():
            bent = [name for name, use in uses.items() if name in plan.free
                    and use.level is Level.GENERAL]
            for name in bent:
                near.setdefault(name, set()).update(bent)
    wide = {n for n in plan.free if sites[n].domain.from_zero or sites[n].domain.unbounded}
    effects = [*((n,) for n in near if math.prod(sites[n].shape) > 1), *exchangeable_scalars(plan)]
    every = tuple(
        (group, other) for group in effects
        if sites[group[0]].domain.unbounded and not sites[group[0]].entry.improper
        for other in sorted(set.intersection(*(near.get(n, set()) for n in group)) & wide)
        if other not in group)
    kept = np.asarray(_unmoved(plan, every)) if every else ()
    return {(n, other): POWERS[int(np.argmax(same))]
            for (group, other), same in zip(every, kept, strict=True) if same.any()
            for n in group}


def exchangeable_scalars(plan: Plan) -> tuple[tuple[str, ...], ...]:
    """Groups of two scalars or more with the same kind of prior: a vector that was written number
    by number, as in a loop."""
    groups: dict = {}
    for name in plan.free:
        if not plan.structure.sites[name].shape:
            groups.setdefault(plan.structure.program_key(name) or name, []).append(name)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _users_and_point(plan: Plan, names: Sequence[str]) -> tuple[list[str], dict]:
    """The sites that take some of these parameters, and a point without symmetries for all that
    they take."""
    structure, every = plan.structure, set(names)
    takers = [user for user in users(plan) if any(n in structure.programs[user][1] for n in every)
              and (user not in plan.free or any(user in structure.children[n] for n in every))]
    specs = {}
    for program, takes in (structure.programs[user] for user in takers):
        specs |= dict(zip(takes, program.in_avals, strict=True))
    fill, codes = {}, 0
    for i, (name, spec) in enumerate(sorted(specs.items())):
        fill[name] = filled(i, spec, name in structure.sites)
        if jnp.issubdtype(spec.dtype, jnp.integer) and name not in structure.sites:
            # of two that index one axis, home and away, both entries matter
            fill[name], codes = (fill[name] + codes) % 2, codes + 1
    return takers, fill


def filled(i: int, spec: jax.ShapeDtypeStruct, site: bool) -> jax.Array:
    """Numbers without symmetries in the i-th place; zeros of discrete sites, and of what data tell
    by whole numbers some of either kind, such as what is under a mask."""
    count = jnp.arange(math.prod(spec.shape)).reshape(spec.shape)
    if jnp.issubdtype(spec.dtype, jnp.floating):
        return (0.31 + 0.07 * i + 0.4 * count / max(count.size - 1, 1)).astype(spec.dtype)
    return (0 * count if site else count % 2).astype(spec.dtype)


@functools.partial(jit, static_argnums=(0, 1), seldom=ONCE)
def _unmoved(plan: Plan, pairs: tuple[tuple[tuple[str, ...], str], ...]) -> jax.Array:
    """For each (effects, scale) and each of POWERS, (pairs, powers): whether all that depends on
    either is the same for twice the effects, all of them, and half the scale to that power."""
    structure, sites = plan.structure, plan.structure.sites
    moving = tuple(dict.fromkeys(n for group, other in pairs for n in (*group, other)))
    near, fill = _users_and_point(plan, moving)
    moving = tuple(name for name in moving if name in fill)
    halved = -np.log(2.0) / np.array(POWERS)
    times = {n: np.ones((len(pairs), len(POWERS))) for n in moving}
    plus = {n: np.zeros((len(pairs), len(POWERS))) for n in moving}
    for i, (group, scale) in enumerate(pairs):
        for name in group:
            times[name][i] = 2.0
        if sites[scale].domain.from_zero:
            times[scale][i] = np.exp(halved)
        else:
            plus[scale][i] = halved
    here = [structure.arguments(user, fill) for user in near]

    def same(times: Mapping, plus: Mapping) -> jax.Array:
        moved = {**fill, **{n: (fill[n] * times[n] + plus[n]).astype(fill[n].dtype)
                            for n in moving}}
        there = [structure.arguments(user, moved) for user in near]
        return jnp.all(jnp.stack([jnp.allclose(a[key], b[key], rtol=1e-4, atol=1e-6)
                                  for a, b in zip(here, there, strict=True) for key in a]))

    # where twice the effects alone make no difference, as under a mask, nothing is told
    told = ~jnp.stack([same({n: 2.0 if n in group else 1.0 for n in moving},
                            dict.fromkeys(moving, 0.0)) for group, _ in pairs])
    return jax.vmap(jax.vmap(same))(times, plus) & told[:, None]
