"""Hierarchies: parameters whose joint mode with others is no answer, read from the structure before
anything is compiled.

Four kinds of tie make the joint mode of all parameters meaningless:
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
  - the same in one density of everything, whose plates nobody told: a vector that grows with what
    is seen (true values behind rounded ones, cells filled in, a process at the points where it is
    seen), of which the curvature of the density depends on what else is unseen. Along the profile
    over the vector the density lacks the width of the vector there, ½ log det of that curvature.
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
from probml.jaxpr.memo import memo
from probml.numerics.compiling import jit
from probml.numerics.tiers import ONCE
from probml.plan.blocks import blocks
from probml.plan.plan import Plan
from probml.plan.products import alike, filled, powers
from probml.structure.densities import log_weight

# rows for each member of a plate read by an index, on average, below which so many members are
# incidental
FEW, MANY = 30, 10
LEAST = 10  # and below which any number of them is
# logarithms of a spread that a climb may lose on its way to a mode: beyond, it is on its way to 0
FALLEN = 7.0
# numbers of a vector, below which it is none that grows; its share of what is seen from which one
# that is told as a whole does
SEVERAL, SHARE = 3, 2 / 3
AMORTISED = ("unseen numbers as many as what tells them are as if seen there, and what has no "
             "prior cannot be sampled. Integrate them out by SVI(guide=...), a function that "
             "samples them, or give the others a prior in the place of numpyro.param, for NUTS()")
SOME = 5  # of its numbers, of which it is asked which others they touch


class Tie(NamedTuple):
    """A parameter whose joint mode with `others` is no answer, and the reason in words."""

    name: str
    others: tuple[str, ...]
    why: str
    kind: str  # "spread", "product", "incidental" or "grown"


def ties(plan: Plan, rows: int | None = None) -> tuple[Tie, ...]:
    """The ties of a plan's free parameters; of incidental ones only where the number of rows is
    told (one row stands for none)."""
    found = _spreads(plan) + _products(plan)
    kinds = [_grown(plan)] if plan.structure.model.whole else []
    kinds += [_incidental(plan, rows)] if rows is not None and rows > 1 else []
    for more in kinds:
        told = {tie.name for tie in found}
        found += tuple(tie for tie in more if tie.name not in told)
    return found


@memo(512)
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


@memo(512)
def _grown(plan: Plan) -> tuple[Tie, ...]:
    """In one density of everything, vectors that are many beside the numbers by which they and
    others are told, and whose width depends on these others."""
    structure, sites, out = plan.structure, plan.structure.sites, []
    # programs that cannot be pushed forwards, as of differential equations, are long to look at
    groups = () if structure.one_way else (*((n,) for n in plan.free if sites[n].shape),
                                           *alike(plan))
    # of numbers that are alike those that a factor takes: others stand in priors alone
    factors = [user for user in plan.rowwise if sites[user].factor]
    looked = {take for user in factors for take in structure.programs[user][1]}
    for group in groups:
        names = tuple(name for name in group if name in looked)
        if not names:
            continue
        name = names[0]
        base, shape = sites[name].domain.base, sites[name].shape or (len(names),)
        shares = sites[name].domain.sums_to_one
        if base is None or base.event_dim and not shares:
            continue
        together = shape[-1] if shares else 1
        size = math.prod(shape) - shares * math.prod(shape[:-1])
        if size < SEVERAL:
            continue
        most = (FEW if size >= MANY else LEAST) * size
        above = {p for n in names for p in _widths_above(plan, n)}
        near = [user for user in factors
                if not set(structure.programs[user][1]).isdisjoint(names)]
        # whatever takes a width of its prior tells it; of others what looks at both
        beside = {p: [user for user in (plan.rowwise if p in above else near)
                      if p in structure.programs[user][1]] for p in plan.free if p not in names}
        others = {p: seen for p, both in beside.items() if near and both
                  and (seen := sum(_numbers(plan, user) for user in both)) < most}
        if not others:
            continue
        asked = tuple(p for p in others if any(p in structure.programs[u][1] for u in near))
        reach, moves, turns = map(np.asarray, _widened(plan, names, asked, tuple(near)))
        apart = 0 < reach <= max(together, size // 2)
        turning = {p for p, turn in zip(asked, turns, strict=True)
                   if turn or sites[p].domain.from_zero} | above
        moving = {p for p, move in zip(asked, moves, strict=True) if move} | above
        found = tuple(p for p, seen in others.items() if p in moving
                      and (apart or p in turning and size >= SHARE * seen
                           and not sites[name].entry.improper))
        # tables of chances beside such tables, as of hidden chains, grow with their states
        if any(not sites[p].domain.probabilities or not sites[p].shape for p in found):
            why = _crowd(plan, names, found, max(others[p] for p in found))
            out += [Tie(n, found, why, "grown") for n in names]
    return tuple(out)


def _crowd(plan: Plan, names: tuple[str, ...], others: tuple[str, ...], seen: int) -> str:
    size = sum(math.prod(plan.structure.sites[name].shape) for name in names)
    of = f"'{names[0]}'" + f" … '{names[-1]}'" * (len(names) > 1)
    return (f"the {size} numbers of {of} are many beside the {seen} that tell them and "
            f"{' and '.join(map(repr, others))}, on which their width depends")


def _widths_above(plan: Plan, name: str) -> set[str]:
    """The free parameters in the prior of one, but for its location."""
    site = plan.structure.sites[name]
    return {p for argument, uses in site.uses.items() if argument not in site.locations
            for p in uses if p in plan.free}


def _numbers(plan: Plan, name: str) -> int:
    """How many numbers a factor of one density of everything weighs: those it observes; of a
    user's own, as many as the longest array that it takes."""
    site, (program, takes) = plan.structure.sites[name], plan.structure.programs[name]
    if site.seen is not None or not _told(plan, name):
        return site.seen or 0
    rows = [aval.shape[1:] for take, aval in zip(takes, program.in_avals, strict=True)
            if take in site.inputs]
    return max((shape[0] for shape in (*rows, *map(np.shape, program.consts)) if shape), default=0)


@functools.partial(jit, static_argnums=(0, 1, 2, 3), seldom=ONCE)
def _widened(plan: Plan, names: tuple[str, ...], others: tuple[str, ...], near: tuple[str, ...]):
    """Of the curvature of some factors in a vector: in how many of its numbers the slope moves with
    one of them, the most; for each of others, whether it moves with that, (others,), and whether by
    the same ratio from step to step, as by the exponential of a number without bounds."""
    structure, sites = plan.structure, plan.structure.sites
    env = {}
    for i, key in enumerate(dict.fromkeys(t for user in near for t in structure.programs[user][1])):
        site, spec = sites.get(key), next(
            aval for user in near for t, aval in zip(*_taken(plan, user), strict=True) if t == key)
        env[key] = filled(i, spec, site is not None)
        if key in plan.free and site.domain.sums_to_one:
            env[key] /= env[key].sum(-1, keepdims=True)
        elif key in plan.free and site.domain.fixed and site.domain.rank == 0:
            env[key] = site.domain.bijection(env[key])

    z, count = jnp.concatenate([env[name].reshape(-1) for name in names]), len(others)
    ends = np.cumsum([env[name].size for name in names])[:-1]

    def slope(z, env):
        def total(z):
            parts = zip(names, jnp.split(z, ends), strict=True)
            at = {**env, **{name: part.reshape(env[name].shape) for name, part in parts}}
            return sum(log_weight(structure, user, at) for user in near)

        return jax.grad(total)(z)

    def curvature(moved, along):
        return jax.jvp(lambda z: slope(z, {**env, **moved}), (z,), (along,))[1]

    some = np.linspace(0, z.size - 1, SOME).astype(int)
    single = jnp.asarray(np.eye(z.size)[some], z.dtype)
    every = jnp.cos(jnp.arange(1.0, z.size + 1.0)).astype(z.dtype)
    # some numbers one by one, then all at three points for each of the others
    moved = {}
    for i, other in enumerate(others):
        domain, value = sites[other].domain, env[other]
        step = 0.2 * value if domain.from_zero else 0.05 if domain.bounds else 0.3
        times = np.zeros(SOME + 3 * count)
        times[SOME + 3 * i :][:3] = range(3)
        moved[other] = value + step * times.reshape(-1, *(1,) * value.ndim).astype(value.dtype)
    along = jnp.concatenate([single, jnp.broadcast_to(every, (3 * count, z.size))])
    bends = jax.vmap(curvature)(moved, along)
    beside = jnp.abs(bends[:SOME])
    reach = jnp.max(jnp.sum(beside > 1e-3 * jnp.max(beside), 1))
    found = (bends[SOME:] @ every).reshape(count, 3)
    moves = jnp.abs(found[:, 1] - found[:, 0]) > 1e-3 * jnp.abs(found[:, 0])
    turns = jnp.abs(found[:, 2] * found[:, 0] - found[:, 1] ** 2) < 1e-3 * found[:, 1] ** 2
    return reach, moves, turns


def _taken(plan: Plan, name: str) -> tuple[tuple[str, ...], list]:
    program, takes = plan.structure.programs[name]
    return takes, program.in_avals


@memo(512)
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
    if not found or ladder and pointwise(plan, rows):
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
                 f"{'shrink for ever' if only else 'run away'}")
    elif products:
        named = " and ".join(f"'{name}'" for name in products)
        text += (f"{named} runs as far as its prior lets it while what it multiplies shrinks")
    elif pointwise(plan, rows):
        text += AMORTISED
    elif any(tie.kind == "grown" for tie in found):
        text += ("unknown numbers as many as what tells them bias what they share, however much is "
                 "seen")
    elif spreads:
        text += "what stands in the prior of others and what they are cannot be told together"
    else:
        text += ("with few rows for each member, what all share is biased however many rows there "
                 "are")
    why = Refusal(text, () if pointwise(plan, rows) else ("NUTS",))
    if ladder:
        raise why
    warnings.warn(str(why), RuntimeWarning, stacklevel=5)


def pointwise(plan: Plan, rows: int | None) -> tuple[Tie, ...]:
    """The ties of a plan of which all are vectors that grow beside many numbers of numpyro.param,
    as the codes of an autoencoder beside its weights: these have no prior, by which they could be
    sampled, so that a joint mode that says of itself what it is is all that is left."""
    found, model = ties(plan, rows), plan.structure.model
    held = getattr(getattr(model, "generative", None), "params", {})
    weights = {name for name in held if name in plan.free
               and math.prod(plan.structure.sites[name].shape) > SEVERAL}
    return found if all(tie.kind == "grown" and weights.issuperset(tie.others)
                        for tie in found) else ()


def unheld(plan: Plan, rows: int | None, ladder: bool) -> tuple[str, ...]:
    """What is to be said of a joint mode with such ties; in the ladder it warns too: who asks for
    it by name has been warned."""
    found = pointwise(plan, rows)
    named = " and ".join(f"'{name}'" for name in dict.fromkeys(tie.name for tie in found))
    others = " and ".join(f"'{p}'" for p in dict.fromkeys(p for tie in found for p in tie.others))
    if not found:
        return ()
    text = f"the joint mode of {named} and {others} is no answer: {AMORTISED}"
    if ladder:
        warnings.warn(f"MAP of model '{plan.structure.model.name}': {text}", RuntimeWarning,
                      stacklevel=5)
    return (text,)


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


def paths(plan: Plan) -> bool:
    """Whether steps of loops are integrated out of one density of everything: the plan knows no
    spreads of theirs."""
    model = plan.structure.model
    return model.whole and model.generative.integrated


def next_to_zero(plan: Plan, begun: Mapping[str, Any],
                 ended: Mapping[str, Any]) -> tuple[str, ...]:
    """Positive numbers, ranges from 0 included, that a climb over what paths share carried next to
    0, in words; arguments as of `vanished`."""
    low = [name for name in plan.free if name in begun
           and plan.structure.sites[name].domain.bounds.get("lower_bound") is not None
           and np.all(np.asarray(plan.structure.sites[name].domain.bounds["lower_bound"]) == 0)
           and np.any(np.asarray(ended[name]) < math.exp(-FALLEN) * np.asarray(begun[name]))]
    return tuple(f"'{name}' is at its boundary: what is seen does not tell it from 0"
                 for name in low)
