"""Hierarchies: parameters whose joint mode with others is no answer, read from the structure before
anything is compiled.

Three kinds of tie make the joint mode of all parameters meaningless:
  - a spread: the prior of `alpha` takes an unseen parameter as its scale, covariance, concentration
    or rate, and that parameter reaches the data through `alpha` alone. Where the effects are all
    alike and their spread is 0 the joint density has its peak, whatever the data say. (A dependence
    through a location alone makes none; a spread that the rows' own distribution takes too is held
    by the rows, but where nothing looks at `alpha`, as at missing values that are sites of their
    own: as many of them as there are rows, all at their mode, halve a variance.)
  - the same written as a product: `tau * z[group]` with z ~ Normal(0, 1), or `z[group] / sqrt(p)`.
    The density of what reaches the rows stays as it is when tau grows and z shrinks in proportion,
    which z's prior rewards: only tau's prior ends that.
  - incidental parameters (Neyman & Scott 1948): the members of a plate that rows read by an index
    have few rows each, beside parameters that all rows share: however many rows there are, the mode
    of what is shared is not where it should be.
"""

import functools
import math
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.errors import Refusal
from probml.jaxpr.levels import Level
from probml.numerics.compiling import jit
from probml.numerics.tiers import ONCE
from probml.plan.blocks import blocks, users
from probml.plan.plan import Plan

# rows for each member of a plate read by an index, on average, below which so many members are
# incidental
FEW, MANY = 30, 10
LEAST = 10  # and below which any number of them is
# logarithms of a spread that a climb may lose on its way to a mode: beyond, it is on its way to 0
FALLEN = 7.0
# to which a scale, a variance, a precision and an inverse scale multiply
POWERS = 1.0, 0.5, -0.5, -1.0


class Tie(NamedTuple):
    """A parameter whose joint mode with `others` is no answer, and the reason in words."""

    name: str
    others: tuple[str, ...]
    why: str
    kind: str  # "spread", "product" or "incidental"


def ties(plan: Plan, rows: int | None = None) -> tuple[Tie, ...]:
    """The ties of a plan's free parameters; of incidental ones only where the number of rows is
    told (one row stands for none)."""
    found = _spreads(plan) + _products(plan)
    told = {tie.name for tie in found}
    return found + tuple(tie for tie in (_incidental(plan, rows) if rows is not None
                                         and rows > 1 else ()) if tie.name not in told)


@functools.lru_cache(maxsize=512)
def _spreads(plan: Plan) -> tuple[Tie, ...]:
    sites, out = plan.structure.sites, []
    direct = {p for name in (*plan.pooled, *plan.rowwise, *plan.integrated, *plan.globals)
              if _told(plan, name) for uses in sites[name].uses.values() for p in uses}
    for name in plan.free:
        site, found = sites[name], {}
        alone = not plan.structure.children[name]
        for argument, uses in site.uses.items():
            if argument not in site.locations:
                found |= {p: argument for p in uses
                          if p in plan.free and (alone or p not in direct)}
        if found:
            unseen = " and ".join(f"'{parent}'" for parent in found)
            words = sorted({argument for argument in found.values()
                            if not argument.startswith("argument")})
            role = f"the {' and '.join(words)} of" if words else "more than the location of"
            out.append(Tie(name, tuple(found), f"the prior of '{name}' ({site.kind}) takes the "
                           f"unseen {unseen} as {role} it", "spread"))
    return tuple(out)


def _told(plan: Plan, name: str) -> bool:
    """Whether a site has to do with data: a factor of parameters alone is a prior."""
    structure = plan.structure
    site, (program, _) = structure.sites[name], structure.programs[name]
    return site.kind != "factor" or bool(site.inputs) or any(np.ndim(c) for c in program.consts)


@functools.lru_cache(maxsize=512)
def powers(plan: Plan) -> dict[tuple[str, str], float]:
    """Of which parameters only the product reaches the rows: (effects, scale) → to which power the
    scale, or the exponential of one without bounds, multiplies."""
    sites, near = plan.structure.sites, {}
    for user in users(plan):
        for uses in sites[user].uses.values():
            bent = [name for name, use in uses.items() if name in plan.free
                    and use.level is Level.GENERAL]
            for name in bent:
                near.setdefault(name, set()).update(bent)
    real = [n for n in near if sites[n].domain.unbounded and not sites[n].entry.improper
            and math.prod(sites[n].shape) > 1]
    pairs = tuple((n, other) for n in real for other in sorted(near[n]) if other != n
                  and (sites[other].domain.from_zero or sites[other].domain.unbounded))
    kept = np.asarray(_unmoved(plan, pairs)) if pairs else ()
    found = {pair: POWERS[int(np.argmax(same))] for pair, same in zip(pairs, kept, strict=True)
             if same.any()}
    rest = tuple(pair for pair in pairs if pair not in found
                 and math.prod(sites[pair[1]].shape) == 1 and not plan.structure.one_way)
    bends = np.asarray(_elastic(plan, rest)) if rest else ()
    return found | {pair: float(bend) for pair, bend in zip(rest, bends, strict=True)
                    if np.isfinite(bend)}


def _products(plan: Plan) -> tuple[Tie, ...]:
    sites, told = plan.structure.sites, powers(plan)
    found: dict[str, list[str]] = {}
    for name, other in told:
        found.setdefault(name, []).append(other)

    def words(name: str, other: str) -> str:
        if sites[other].domain.unbounded:
            return f"the exponential of '{other}'"
        return f"'{other}'" if told[name, other] == 1 else f"a power of '{other}'"

    return tuple(Tie(n, tuple(o), f"only the product of '{n}' and "
                     f"{' or '.join(words(n, other) for other in o)} reaches the rows", "product")
                 for n, o in found.items())


def _near(plan: Plan, pairs: tuple[tuple[str, str], ...]) -> tuple[list[str], dict]:
    """What takes some of these parameters, and a point without symmetries of all that it takes."""
    structure, every = plan.structure, {n for pair in pairs for n in pair}
    takers = [user for user in users(plan) if any(n in structure.programs[user][1] for n in every)
              and (user not in plan.free or any(user in structure.children[n] for n in every))]
    specs = {}
    for program, takes in (structure.programs[user] for user in takers):
        specs |= dict(zip(takes, program.in_avals, strict=True))
    fill = {}
    for i, (name, spec) in enumerate(sorted(specs.items())):
        real = jnp.issubdtype(spec.dtype, jnp.floating)
        spread = 0.31 + 0.07 * i + 0.4 * jnp.linspace(0, 1,
                                                      math.prod(spec.shape)).reshape(spec.shape)
        fill[name] = spread.astype(spec.dtype) if real else jnp.zeros(spec.shape, spec.dtype)
    return takers, fill


@functools.partial(jit, static_argnums=(0, 1), seldom=ONCE)
def _elastic(plan: Plan, pairs: tuple[tuple[str, str], ...]) -> jax.Array:
    """For each (effects z, scale t of one number), (pairs,): d log g / d log t, or of t without
    bounds d log g / dt, where all that depends on either takes g(t) · z alone; else no number.

    Then ∂/∂t = c · (∂/∂z) z of it all, with one c wherever z and the rest are.
    """
    structure, out = plan.structure, []
    for name, scale in pairs:
        near, fill = _near(plan, ((name, scale),))
        sides = []
        for i in range(3):

            def all_of(z, t, i=i, near=near, fill=fill, name=name, scale=scale):
                at = {key: (1 + 0.6 * i) * value if key not in structure.sites
                      and jnp.issubdtype(value.dtype, jnp.floating)
                      else value - 0.7 * i if key in plan.free
                      and structure.sites[key].domain.unbounded else value
                      for key, value in fill.items()}
                found = [structure.arguments(user, {**at, name: z, scale: t}) for user in near]
                return jnp.concatenate([jnp.reshape(leaf, -1).astype(fill[name].dtype)
                                        for each in found for leaf in each.values()])

            z, t = fill[name] * (1 + 0.7 * i) - 0.2 * i, fill[scale]
            one, none = jnp.ones_like(t), jnp.zeros_like(z)
            sides.append((jax.jvp(all_of, (z, t), (none, one))[1],
                          jax.jvp(all_of, (z, t), (z, jnp.zeros_like(t)))[1]))
        along, across = (jnp.concatenate(side) for side in zip(*sides, strict=True))
        share = jnp.vdot(along, across) / jnp.vdot(across, across)
        off = jnp.max(jnp.abs(along - share * across))
        same = (off <= 1e-3 * jnp.max(jnp.abs(along))) & (share != 0)
        unit = fill[scale].reshape(()) if structure.sites[scale].domain.from_zero else 1.0
        out.append(jnp.where(same, share * unit, jnp.nan))
    return jnp.stack(out)


@functools.partial(jit, static_argnums=(0, 1), seldom=ONCE)
def _unmoved(plan: Plan, pairs: tuple[tuple[str, str], ...]) -> jax.Array:
    """For each (effects, scale) and each of POWERS, (pairs, powers): whether all that depends on
    either is the same for twice the effects and half the scale to that power."""
    structure, sites = plan.structure, plan.structure.sites
    near, fill = _near(plan, pairs)
    moving = [name for name in dict.fromkeys(n for pair in pairs for n in pair) if name in fill]
    halved = -np.log(2.0) / np.array(POWERS)
    times = {n: np.ones((len(pairs), len(POWERS))) for n in moving}
    plus = {n: np.zeros((len(pairs), len(POWERS))) for n in moving}
    for i, (name, scale) in enumerate(pairs):
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

    return jax.vmap(jax.vmap(same))(times, plus)


@functools.lru_cache(maxsize=512)
def _incidental(plan: Plan, rows: int) -> tuple[Tie, ...]:
    sites, out = plan.structure.sites, []
    normal = [set(block.names) for stage in blocks(plan, True) for block in stage
              if block.form and block.form.joint and block.conjugate]
    for given, index in plan.structure.indexed.items():
        members = {name for name, _ in index.parameters if name in plan.free}
        proper = [name for name in plan.free if name in members
                  and not sites[name].entry.improper]
        # of jointly normal parameters the mode is the mean
        beside = {n for group in normal if group & members for n in group}
        shared = tuple(name for name in plan.free if name not in members | beside)
        each = rows / max(index.length, 1)
        if not proper or not shared or index.length < 2 or each >= (
            FEW if index.length >= MANY else LEAST
        ):
            continue
        for name in proper:
            why = (f"'{name}' has {index.length} members, read by '{given}', with {each:.3g} "
                   f"rows each")
            out.append(Tie(name, shared, why, "incidental"))
    return tuple(out)


def judge(plan: Plan, rows: int, engine: str, ladder: bool) -> None:
    """What an engine that ends at a joint mode has to say of a hierarchy: in the ladder it refuses,
    asked for by name it warns.

    Raises:
        Refusal: the plan has ties, and the engine was not asked for by name.
    """
    found = ties(plan, rows)
    if not found:
        return
    reasons = "; ".join(dict.fromkeys(tie.why for tie in found[:3])) + (
        f"; and {len(found) - 3} more" if len(found) > 3 else ""
    )
    text = (f"{engine} of model '{plan.structure.model.name}': its parameters make a hierarchy "
            f"({reasons}), whose joint mode is no answer: ")
    spreads = tuple(dict.fromkeys(name for tie in found if tie.kind == "spread"
                                  for name in tie.others))
    scales = [name for tie in found if tie.kind == "spread" for name in tie.others
              if plan.structure.sites[name].domain.log_scale]
    products = tuple(dict.fromkeys(name for tie in found if tie.kind == "product"
                                   for name in tie.others))
    if scales:
        named = " and ".join(f"'{name}'" for name in dict.fromkeys(scales))
        only = all(f"as the {word} of" not in reasons for word in ("rate", "concentration"))
        text += (f"a scale that stands in another parameter's prior, {named}, can "
                 f"{'shrink for ever' if only else 'run away'}. Use NUTS()")
    elif products:
        named = " and ".join(f"'{name}'" for name in products)
        text += (f"{named} runs as far as its prior lets it while what it multiplies shrinks. Use "
                 f"NUTS()")
    elif spreads:
        text += ("what stands in the prior of others and what they are cannot be told together. "
                 "Use NUTS()")
    else:
        text += ("with few rows for each member, what all share is biased however many rows there "
                 "are. Use NUTS()")
    if ladder:
        raise Refusal(text)
    warnings.warn(text, RuntimeWarning, stacklevel=5)


def vanished(plan: Plan, begun: Mapping[str, Any], ended: Mapping[str, Any]) -> tuple[str, ...]:
    """Spreads of a hierarchy that a climb carried towards 0, in words.

    Args:
        begun, ended: the parameters at the start and the end; nothing is said where there is no
            start.
    """
    spreads = dict.fromkeys(name for tie in _spreads(plan) for name in tie.others if name in begun)
    spreads = [name for name in spreads if plan.structure.sites[name].domain.log_scale]
    gone = [name for name in spreads
            if np.any(np.asarray(ended[name]) < math.exp(-FALLEN) * np.asarray(begun[name]))]
    if not gone:
        return ()
    named = ", ".join(f"'{name}'" for name in gone)
    return (f"{named} shrinks for ever: the density rises without bound as the effects become all "
            f"alike. Use NUTS()",)
