"""Hierarchies: parameters whose joint mode with others is no estimate, found in the structure
before anything is compiled.

Three kinds of tie between parameters make the joint mode of all of them degenerate:

  - a spread: the prior of `alpha` takes a free parameter as its scale, covariance, concentration
    or rate, and that parameter enters the likelihood through `alpha` alone. The joint density has
    its peak where the effects are equal and their scale is 0, whatever the data. (A dependence
    through a location alone makes no tie; nor does a scale that the distribution of the rows takes
    too, unless nothing depends on `alpha`, as on missing values that are sites of their own: as
    many of them as there are rows, all at their mode, halve a variance.)
  - the same written as a product: `tau * z[group]` with z ~ Normal(0, 1), or `z[group] / sqrt(p)`.
    The likelihood does not change when tau grows and z shrinks in proportion, which z's prior
    rewards: only tau's prior bounds tau.
  - incidental parameters (Neyman & Scott 1948): the members of a plate that rows read by an index
    have few rows each, and other parameters are shared by all rows: the joint mode of the shared
    ones is biased, however many rows there are.

Parameters that multiply others: latents, as the loadings of factors do (at loadings of 0 all
derivatives vanish, so that an optimisation would stay there), and effects, of which only the
product with a scale may enter the likelihood.

Scale parameters of latents and effects, and of data about latents: at a scale of 0 the density
stays finite, so that an optimisation may end there.

A parameter need not be a standard deviation: of a variance, a precision, a concentration the power
of it to which standard deviations are proportional is found by doubling it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.errors import ModelError
from probml.families.domains import Correlations
from probml.jaxpr.levels import Level, classify
from probml.jaxpr.memo import memo
from probml.numerics.compiling import ONCE, jit
from probml.plan import decide
from probml.plan.blocks import all_blocks, users
from probml.plan.plan import Plan
from probml.structure.densities import example
from probml.typing import SiteValues

# Members of a plate read by an index are incidental below so many rows a member on average: below
# MIN_ROWS_PER_MEMBER where there are MIN_MANY_MEMBERS members, below MIN_ROWS_OF_FEW_MEMBERS
# however few.
MIN_ROWS_PER_MEMBER, MIN_MANY_MEMBERS = 30, 10
MIN_ROWS_OF_FEW_MEMBERS = 10
# by how much the logarithm of a scale may fall in an optimisation: beyond, it is on its way to 0
MAX_LOG_SCALE_FALL = 7.0


class DegenerateMode(NamedTuple):
    """A tie between parameters: the joint mode of one with `tied_with` is no estimate."""

    name: str
    tied_with: tuple[str, ...]
    kind: str  # "spread", "product" or "incidental"


def degenerate_modes(plan: Plan, rows: int | None = None) -> tuple[DegenerateMode, ...]:
    """The ties between a plan's free parameters; incidental ones only where the number of rows is
    given (one row stands for none)."""
    ties = _spreads(plan) + _products(plan)
    if rows is None or rows <= 1:
        return ties
    tied_names = {tie.name for tie in ties}
    return ties + tuple(tie for tie in _incidental(plan, rows) if tie.name not in tied_names)


@memo(512)
def _spreads(plan: Plan) -> tuple[DegenerateMode, ...]:
    sites, ties = plan.structure.sites, []
    direct = {p for name in (*plan.pooled, *plan.rowwise, *plan.integrated, *plan.globals)
              if _depends_on_data(plan, name) for uses in sites[name].uses.values() for p in uses}
    for name in plan.free:
        site, is_leaf = sites[name], not plan.structure.children[name]
        parents = dict.fromkeys(p for argument, uses in site.uses.items()
                                if argument not in site.locations
                                for p in uses if p in plan.free and (is_leaf or p not in direct))
        if parents:
            ties.append(DegenerateMode(name, tuple(parents), "spread"))
    return tuple(ties)


def _depends_on_data(plan: Plan, name: str) -> bool:
    """Whether a site is a likelihood: a factor of parameters alone is part of the prior."""
    structure = plan.structure
    site, (program, _) = structure.sites[name], structure.programs[name]
    return site.kind != "factor" or bool(site.inputs) or any(np.ndim(c) for c in program.consts)


def _products(plan: Plan) -> tuple[DegenerateMode, ...]:
    by_name: dict[str, list[str]] = {}
    for name, other in powers(plan):
        by_name.setdefault(name, []).append(other)
    return tuple(DegenerateMode(name, tuple(others), "product") for name, others in by_name.items())


@memo(512)
def _incidental(plan: Plan, rows: int) -> tuple[DegenerateMode, ...]:
    sites, ties = plan.structure.sites, []
    normal = [set(block.names) for block in all_blocks(plan, True)
              if block.form and block.form.joint and block.conjugate]
    for index in plan.structure.indexed.values():
        members = {name for name, _ in index.parameters if name in plan.free}
        proper = [name for name in plan.free if name in members
                  and not sites[name].entry.improper]
        # of jointly normal parameters the mode is the mean
        joint_names = {n for group in normal if group & members for n in group}
        shared = tuple(name for name in plan.free if name not in members | joint_names)
        mean_rows = rows / max(index.length, 1)
        if not proper or not shared or index.length < 2 or mean_rows >= (
            MIN_ROWS_PER_MEMBER if index.length >= MIN_MANY_MEMBERS else MIN_ROWS_OF_FEW_MEMBERS
        ):
            continue
        ties += [DegenerateMode(name, shared, "incidental") for name in proper]
    return tuple(ties)


def find_collapsed_scales(plan: Plan, start: SiteValues,
                          end: Mapping[str, jax.Array]) -> list[str]:
    """Scales of a hierarchy that an optimisation carried towards 0, where the density rises without
    bound as the effects become equal.

    Args:
        start, end: the parameters at the start and the end; none is found where there is no
            start.
    """
    spreads = dict.fromkeys(name for tie in _spreads(plan) for name in tie.tied_with
                            if name in start)
    return [name for name in spreads if plan.structure.sites[name].domain.log_scale
            and has_fallen(start[name], end[name])]


def has_fallen(start: ArrayLike, end: ArrayLike) -> bool:
    """Whether an entry of a scale is on its way to 0."""
    return bool(np.any(np.asarray(end) < math.exp(-MAX_LOG_SCALE_FALL) * np.asarray(start)))


def integrates_loops(plan: Plan) -> bool:
    """Whether steps of loops are integrated out of one joint density: the plan has no scales of
    theirs."""
    model = plan.structure.model
    return model.is_joint and model.generative.integrated


# to which a scale, a variance, a precision and an inverse scale multiply
POWERS = 1.0, 0.5, -0.5, -1.0


@memo(512)
def multiplied(plan: Plan) -> tuple[str, ...]:
    """The free parameters in which an argument of some site is affine at fixed latents, but not
    jointly with the latents."""
    sites, names = plan.structure.sites, set()
    for name in plan.integrated:
        program, inputs = plan.structure.programs[name]
        joint_uses = classify(program, {i: t for i, t in enumerate(inputs)
                                        if t in plan.free or t in plan.continuous_latents})
        for argument, uses in zip(sites[name].arguments, joint_uses, strict=True):
            single = sites[name].uses.get(argument, {})
            names |= {p for p, use in uses.items() if p in single and use.level is Level.GENERAL
                      and single[p].level <= Level.AFFINE
                      and any(n in plan.continuous_latents for n in uses)}
    return tuple(name for name in plan.free if name in names)


@memo(512)
def powers(plan: Plan) -> dict[tuple[str, str], float]:
    """Parameters of which only the product enters the likelihood: (effects, scale) → the power of
    the scale, or of the exponential of an unbounded one, in the product."""
    sites, tied = plan.structure.sites, {}
    for user in users(plan):
        for uses in sites[user].uses.values():
            nonlinear = [name for name, use in uses.items() if name in plan.free
                         and use.level is Level.GENERAL]
            for name in nonlinear:
                tied.setdefault(name, set()).update(nonlinear)
    eligible = {n for n in plan.free if sites[n].domain.from_zero or sites[n].domain.unbounded}
    effects = [*((n,) for n in tied if math.prod(sites[n].shape) > 1), *exchangeable_scalars(plan)]
    pairs = tuple(
        (group, other) for group in effects
        if sites[group[0]].domain.unbounded and not sites[group[0]].entry.improper
        for other in sorted(set.intersection(*(tied.get(n, set()) for n in group)) & eligible)
        if other not in group)
    invariant = np.asarray(_unmoved(plan, pairs)) if pairs else ()
    return {(n, other): POWERS[int(np.argmax(flags))]
            for (group, other), flags in zip(pairs, invariant, strict=True) if flags.any()
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
    structure, group = plan.structure, set(names)
    takers = [user for user in users(plan) if any(n in structure.programs[user][1] for n in group)
              and (user not in plan.free or any(user in structure.children[n] for n in group))]
    specs = {}
    for program, inputs in (structure.programs[user] for user in takers):
        specs |= dict(zip(inputs, program.in_avals, strict=True))
    point, codes = {}, 0
    for i, (name, spec) in enumerate(sorted(specs.items())):
        point[name] = filled(i, spec, name in structure.sites)
        if jnp.issubdtype(spec.dtype, jnp.integer) and name not in structure.sites:
            # of two that index one axis, home and away, both entries matter
            point[name], codes = (point[name] + codes) % 2, codes + 1
    return takers, point


def filled(i: int, spec: jax.ShapeDtypeStruct, site: bool) -> jax.Array:
    """Numbers without symmetries in the i-th place; zeros of discrete sites, and of what data tell
    by whole numbers some of either kind, such as what is under a mask."""
    count = jnp.arange(math.prod(spec.shape)).reshape(spec.shape)
    if jnp.issubdtype(spec.dtype, jnp.floating):
        return (0.31 + 0.07 * i + 0.4 * count / max(count.size - 1, 1)).astype(spec.dtype)
    return (0 * count if site else count % 2).astype(spec.dtype)


@jit(static_argnums=(0, 1), seldom=ONCE)
def _unmoved(plan: Plan, pairs: tuple[tuple[tuple[str, ...], str], ...]) -> jax.Array:
    """For each (effects, scale) and each of POWERS, (pairs, powers): whether all that depends on
    either is the same for twice the effects, all of them, and half the scale to that power."""
    structure, sites = plan.structure, plan.structure.sites
    moving = tuple(dict.fromkeys(n for group, other in pairs for n in (*group, other)))
    takers, point = _users_and_point(plan, moving)
    moving = tuple(name for name in moving if name in point)
    halved = -np.log(2.0) / np.array(POWERS)
    factors = {n: np.ones((len(pairs), len(POWERS))) for n in moving}
    shifts = {n: np.zeros((len(pairs), len(POWERS))) for n in moving}
    for i, (group, scale) in enumerate(pairs):
        for name in group:
            factors[name][i] = 2.0
        if sites[scale].domain.from_zero:
            factors[scale][i] = np.exp(halved)
        else:
            shifts[scale][i] = halved
    base_args = [structure.arguments(user, point) for user in takers]

    def same(factors: Mapping, shifts: Mapping) -> jax.Array:
        changed = {**point, **{n: (point[n] * factors[n] + shifts[n]).astype(point[n].dtype)
                               for n in moving}}
        new_args = [structure.arguments(user, changed) for user in takers]
        return jnp.all(jnp.stack([jnp.allclose(a[key], b[key], rtol=1e-4, atol=1e-6)
                                  for a, b in zip(base_args, new_args, strict=True) for key in a]))

    # where twice the effects alone make no difference, as under a mask, nothing is told
    informative = ~jnp.stack([same({n: 2.0 if n in group else 1.0 for n in moving},
                                   dict.fromkeys(moving, 0.0)) for group, _ in pairs])
    return jax.vmap(jax.vmap(same))(factors, shifts) & informative[:, None]


UNKNOWN = (NotImplementedError, AttributeError, ModelError)  # of distributions without a variance
MIN_SCALE_POWER = 0.25  # power below which a parameter is no scale


class ScaleParameter(NamedTuple):
    """A scale parameter, or a power of one.

    Attributes:
        power: to which a standard deviation goes with it: 1, of a precision −½.
        is_positive: it is positive; False: it has no bounds, and its exponential is meant.
    """

    name: str
    power: float
    is_positive: bool

    def logarithm(self, value: np.ndarray) -> np.ndarray:
        """The logarithm of the scale at values of the parameter, up to a constant."""
        with np.errstate(divide="ignore"):
            return self.power * (np.log(value) if self.is_positive else np.asarray(value))

    def value(self, logarithm: np.ndarray) -> np.ndarray:
        """The inverse of `logarithm`."""
        log_value = np.asarray(logarithm) / self.power
        return np.exp(log_value) if self.is_positive else log_value


@memo(512)
def scale_parameters(plan: Plan) -> tuple[ScaleParameter, ...]:
    """The scale parameters of latents and of effects of groups."""
    sites, site_of = plan.structure.sites, {}
    for name in (name for name in plan.continuous_latents if name not in plan.pattern):
        for argument, uses in sites[name].uses.items():
            site_of |= {p: name for p in uses if argument not in sites[name].locations}
    products: dict[str, float] = {}
    if plan.groupings:
        full_plan = decide.make(plan.structure, plan.pattern, plan.given)
        for tie in (tie for tie in degenerate_modes(full_plan) if tie.name in plan.effects):
            if tie.kind == "product":
                products |= {p: powers(full_plan)[tie.name, p] for p in tie.tied_with}
            else:
                site_of |= dict.fromkeys(tie.tied_with, tie.name)
    return _scale_parameters(plan, site_of, products)


@memo(512)
def noise_scales(plan: Plan) -> tuple[ScaleParameter, ...]:
    """The scale parameters of data about latents."""
    sites, site_of = plan.structure.sites, {}
    observed = [name for group in plan.latents for name in group.sites if name not in group.names]
    for name in (name for name in observed if sites[name].family is not None):
        for argument in sites[name].traits.scatter:
            site_of |= dict.fromkeys(sites[name].uses.get(argument, ()), name)
    skip = {width.name for width in scale_parameters(plan)}
    return _scale_parameters(plan, {p: name for p, name in site_of.items() if p not in skip}, {})


def correlations(plan: Plan) -> tuple[str, ...]:
    """The free correlation matrices, or their Cholesky factors."""
    return tuple(name for name in plan.free
                 if isinstance(plan.structure.sites[name].domain, Correlations))


def _scale_parameters(plan: Plan, site_of: dict[str, str],
                      products: dict[str, float]) -> tuple[ScaleParameter, ...]:
    """The free parameters among these that are positive, or unbounded and logarithms of scales.

    Args:
        site_of: parameter → the site whose scale it enters. products: parameter → power, of
            parameters that multiply effects.
    """
    sites = plan.structure.sites
    free = [p for p in {**site_of, **products} if p in plan.free
            and (sites[p].domain.from_zero or sites[p].domain.unbounded)]
    pairs = tuple((site_of[p], p) for p in free if p not in products)
    doublings = dict(zip(pairs, np.asarray(_doubled(plan, pairs)) if pairs else (), strict=True))
    scales = []
    for p in free:
        power, positive = float(products[p] if p in products else doublings[site_of[p], p]), bool(
            sites[p].domain.from_zero)
        if np.isfinite(power) and abs(power) >= MIN_SCALE_POWER:
            scales.append(ScaleParameter(p, power, positive))
        elif positive:
            scales.append(ScaleParameter(p, 1.0, positive))
    return tuple(scales)


@jit(static_argnums=(0, 1), seldom=ONCE)
def _doubled(plan: Plan, pairs: tuple[tuple[str, str], ...]) -> jax.Array:
    """For each (site, parameter): by how many doublings the site's standard deviations grow where
    the parameter, or its exponential, is doubled; no number where that is not known."""
    structure, gains = plan.structure, []

    def log(name: str, env: Mapping[str, jax.Array]):
        return 0.5 * jnp.log2(structure.distribution(name, env).variance)

    for name, parameter in pairs:
        env = {key: jnp.asarray(value) for key, value in example(structure, name).items()}
        is_positive = structure.sites[parameter].domain.from_zero
        try:
            doubled = 2 * env[parameter] if is_positive else env[parameter] + jnp.log(2.0)
            gain = jnp.mean(log(name, {**env, parameter: doubled}) - log(name, env))
        except (KeyError, *UNKNOWN):
            gain = jnp.full((), jnp.nan)
        gains.append(gain.astype(jnp.result_type(float)))
    return jnp.stack(gains)
