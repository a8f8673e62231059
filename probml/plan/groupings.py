"""Effects of groups: numbers outside rows that are integrated out, by the index through which rows
read them.

A grouping holds the effects that rows read by one input: a row touches the cells of one member
alone, so that what rows say of a member adds up over its rows, and members of one grouping are
independent given those of the others (Bates et al. 2015, "Fitting linear mixed-effects models using
lme4", of which a grouping is a grouping factor).

How effects of groups are integrated out: in closed form, by quadrature or by Laplace's
approximation.

Rows that are normal about locations affine in all effects together leave a normal integral. Rows of
another distribution, each of whose arguments is a link's inverse of something affine in the effects
(a rate exp(η), logits η, a probability Φ(η)), leave one that is smooth, has one peak as a rule, and
is near to normal where a member has many rows: Laplace's approximation about the joint mode of all
effects (Breslow & Clayton 1993; lme4's nAGQ = 1, glmmTMB), and where a row reads one number of one
grouping the integral of each member by adaptive Gauss–Hermite quadrature (Liu & Pierce 1994;
Pinheiro & Bates 1995).
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from probml.families import domains
from probml.jaxpr.levels import classify
from probml.jaxpr.memo import memo
from probml.latents.gaussian import KINDS, arguments_at_shifts, is_location_affine, lies_on_line
from probml.latents.laplace import WIDER
from probml.latents.quadrature import normal_points
from probml.numerics.compiling import ASKED, jit
from probml.numerics.process.inline_calls import evaluated
from probml.structure.densities import example, log_density
from probml.structure.indices import Axis, Index
from probml.structure.structure import Structure


@dataclass(frozen=True, eq=False)
class Grouping:
    """Effects that rows read by one index, or whole.

    Attributes:
        names: the effects.
        index: the input that says which member a row reads; None: one member, which all rows read.
        scale, offset: code c reads member scale · c + offset.
        axes: along which axis of each effect its members stand; None: it is the one member.
        shapes: of each effect.
        nodes: how its integral is taken: 0, in closed form; 1, by Laplace's approximation; more, by
            so many nodes about the mode of each member (plan/groupings.py).
        flat: its effects have a density of 1 everywhere in the place of their prior (restricted
            maximum likelihood).
        exponent: c, if log p(row) = a + b δ − k exp(c δ) at a shift δ of the one effect, so that
            Σ b and Σ k over the rows of a member are sufficient; None: it is not.
    """

    names: tuple[str, ...]
    index: Index | None
    scale: int
    offset: int
    axes: tuple[int | None, ...]
    shapes: tuple[tuple[int, ...], ...]
    nodes: int = 0
    flat: bool = False
    exponent: float | None = None

    @property
    def members(self) -> int:
        return 1 if self.axes[0] is None else self.shapes[0][self.axes[0]]

    @property
    def widths(self) -> tuple[int, ...]:
        """Numbers a member, of each effect."""
        return tuple(math.prod(shape) // self.members for shape in self.shapes)

    @property
    def cells(self) -> int:
        """Numbers a member."""
        return sum(self.widths)

    @property
    def size(self) -> int:
        return self.members * self.cells


def groupings(structure: Structure, names: Sequence[str],
              flat: Sequence[str] = ()) -> tuple[Grouping, ...]:
    """The groupings of the effects `names`, the one of most numbers first: it is eliminated member
    by member; those in `flat` have no prior."""
    parts: dict[tuple, list[str]] = {}
    for name in names:
        index, axis = reading(structure, name)
        key = (name,) if index is None or axis is None else (index.name, axis.scale, axis.offset,
                                             structure.sites[name].shape[axis.axis], name in flat)
        parts.setdefault(key, []).append(name)
    result = []
    for group in parts.values():
        index, first_axis = reading(structure, group[0])
        axes = tuple(None if axis is None else axis.axis
                     for _, axis in (reading(structure, name) for name in group))
        shift = (1, 0) if first_axis is None else (first_axis.scale, first_axis.offset)
        result.append(Grouping(tuple(group), index, *shift, axes,
                               tuple(structure.sites[name].shape for name in group),
                               flat=group[0] in flat))
    return tuple(sorted(result, key=lambda grouping: -grouping.size))


def reading(structure: Structure, name: str) -> tuple[Index, Axis] | tuple[None, None]:
    """The one index by which a row reads one member of an effect, of members that are independent,
    and along which axis they stand; (None, None): there is none such, and rows read it whole."""
    candidates = [(index, axis) for index in structure.indexed.values() for axis in index.axes
                  if axis.parameter == name]
    site = structure.sites[name]
    if len(candidates) != 1:
        return None, None
    index, axis = candidates[0]
    cells = math.prod(size or 1 for spec, shape, _ in structure.specs if spec == index.input
                      for size in shape)
    is_separate = axis.axis < len(site.batch) + len(site.independent)
    if (index.no_new_groups or index.input in structure.timed or not is_separate
        or not (len(index.cells) == 1 or not index.cells and cells == 1)):
        return None, None
    return index, axis


PRIORS = (*KINDS, "GaussianRandomWalk")  # of effects: a location and a root times standard normals
NODES = 25  # of a quadrature, by default
# of the finer rule that estimates the error of an integral: nodes in one dimension, in each of two,
# points in more
FINER = {1: 2 * NODES + 1, 2: 21}
POINTS = 1024
# At which second derivatives of a log density are compared: shifts of an effect; factors of the
# numbers of an example; values of a discrete site, or places in the support of a continuous one.
SHIFTS, SCALES, PLACES = (0.8, -2.3, 4.1, -5.7), (1.0, 0.8), (0.0, 1.0, 3.0)


def child_sites(structure: Structure, names: Sequence[str]) -> tuple[str, ...]:
    """The sites in rows that depend on some of the effects."""
    return tuple(dict.fromkeys(c for name in names for c in structure.children[name]))


def find_nonlinear_effects(structure: Structure, names: Sequence[str], site: str) -> set[str]:
    """The effects whose integral has no closed form because of a site: the site is not normal, or
    its mean is not affine in them, all effects taken together."""
    program, inputs = structure.programs[site]
    effects = {t for t in inputs if t in names}
    if structure.sites[site].kind not in KINDS:
        return effects
    uses = classify(program, {i: t for i, t in enumerate(inputs) if t in names})
    nonlinear: set[str] = set()
    for argument, use in zip(structure.sites[site].arguments, uses, strict=True):
        nonlinear |= {name for name, how in use.items() if argument != "loc" or not how.is_affine}
    return nonlinear or (set() if is_location_affine(structure, tuple(names), site) else effects)


def is_exact(structure: Structure, names: Sequence[str]) -> bool:
    """Whether the integral over all the effects is normal."""
    return not any(find_nonlinear_effects(structure, names, site)
                   for site in child_sites(structure, names))


@memo(512)
def has_linear_predictor(structure: Structure, names: tuple[str, ...], site: str) -> bool:
    """Whether every argument of a site is the inverse link of something affine in the effects:
    moved together to two points of both signs and half way, the linked values lie on a line."""
    arguments = arguments_at_shifts(structure, names, site)
    return all(_is_linked_line(np.asarray(value, float)) for value in arguments.values())


def _is_linked_line(value: np.ndarray) -> bool:
    """Whether three values of an argument, (3, ...), lie on a line under one of the links."""
    from scipy.special import ndtri  # late: slow to import

    links = [value]
    if np.all(value > 0):
        links.append(np.log(value))
    if np.all((value > 0) & (value < 1)):
        links += [np.log(value) - np.log1p(-value), ndtri(value), np.log(-np.log1p(-value)),
                  np.log(-np.log(value))]
    return any(map(lies_on_line, links))


def choose_quadrature(structure: Structure, parts: tuple[Grouping, ...],
                      nodes: int | None = None) -> tuple[Grouping, ...]:
    """Groupings with the number of quadrature nodes by which they are integrated out.

    Args:
        nodes: of the quadrature, where there is one: 1 is Laplace's approximation. None: NODES.
    """
    if is_exact(structure, [name for part in parts for name in part.names]):
        return parts
    single = len(parts) == 1 and parts[0].cells == 1 and not parts[0].flat
    count = (NODES if nodes is None else nodes) if single else 1
    exponent = common_exponent(structure, parts[0].names) if count > 1 else None
    return tuple(replace(part, nodes=count, exponent=exponent) for part in parts)


def common_exponent(structure: Structure, names: tuple[str, ...]) -> float | None:
    """`Grouping.exponent` of the sites that depend on an effect."""
    exponents = {find_exponent(structure, names, site) for site in child_sites(structure, names)}
    return exponents.pop() if len(exponents) == 1 else None


@memo(512)
def find_exponent(structure: Structure, names: tuple[str, ...], site: str) -> float | None:
    """The exponent c of a site, a multiple of ½: under a log link, 1 of counts of Poisson's
    distribution and of waiting times by their rate, −1 by their mean, −2 of a normal's standard
    deviation. Second derivatives at shifts δ have the ratios exp(c δ), whatever the site's value
    and the numbers of an example."""
    node = structure.sites[site]
    if node.factor or node.finite is not None or node.discrete and node.event:
        return None  # probabilities of finitely many values do not sum to 1 in this form
    env, shifts = example(structure, site), np.array([0.0, *SHIFTS], jnp.result_type(float))
    with evaluated():
        second = np.asarray([_bends_at_shifts(structure, names, site, {
            key: (scale * value).astype(value.dtype) for key, value in env.items()}, shifts)
            for scale in SCALES], float)
    base = second[..., 0]  # (examples, values)
    if not (np.isfinite(second).all() and base.any()):
        return None
    largest = np.unravel_index(np.abs(base).argmax(), base.shape)
    with np.errstate(all="ignore"):
        exponent = np.round(2 * np.log(second[largest][1] / second[largest][0]) / SHIFTS[0]) / 2
    expected = base[..., None] * np.exp(exponent * shifts)
    is_exp = exponent and np.allclose(second, expected, rtol=1e-3, atol=1e-5 * np.abs(base).max())
    return float(exponent) if is_exp else None


@jit(static_argnums=(0, 1, 2), seldom=ASKED)
def _bends_at_shifts(structure: Structure, names: tuple[str, ...], site: str, env: Mapping,
                     shifts: jax.Array) -> jax.Array:
    """Second derivatives of the log density of a site along a shift of the effects, at several
    values of the site, (values, shifts)."""
    node = structure.sites[site]

    def moved(shift: jax.Array) -> dict[str, jax.Array]:
        return {key: value + shift if key in names else value for key, value in env.items()}

    def bends(place: jax.Array) -> jax.Array:
        ramp = place * (1 + 0.1 * jnp.arange(math.prod(node.cells))).reshape(node.cells)
        support = structure.distribution(site, env).support
        x = jnp.floor(ramp) if node.discrete else domains.of(support).bijection(ramp - 1.2)
        return jax.vmap(jax.grad(jax.grad(lambda shift: log_density(
            structure, node, moved(shift), x, None))))(shifts)

    return jax.vmap(bends)(jnp.array(PLACES, shifts.dtype))


def finer_rule(parts: tuple[Grouping, ...]) -> int | None:
    """Nodes of the finer rule that estimates the error of the integral; None where it is in closed
    form, or members are not independent of one another."""
    if len(parts) != 1 or parts[0].nodes == 0 or parts[0].flat:
        return None
    size = parts[0].cells
    return FINER.get(size, POINTS) if parts[0].members > 1 or size <= 2 else None


def describe_integration(parts: tuple[Grouping, ...]) -> str:
    """How effects are integrated out, as text for explain."""
    nodes = parts[0].nodes
    if nodes == 0:
        return "in closed form (normal distributions)"
    if nodes == 1:
        return "by Laplace's approximation"
    return f"by adaptive quadrature with {nodes} nodes per group"


@functools.lru_cache(maxsize=64)
def quadrature_rule(nodes: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Points t (m, size) and logarithms of the weights of f(t) in (2π)^(−size/2) ∫ f(t) dt:
    Gauss–Hermite of one number; of two their products; of more, points that fill a normal evenly.
    """
    if size <= 2:
        x, weight = np.polynomial.hermite.hermgauss(nodes)
        t, log = np.sqrt(2) * x, np.log(weight) + x**2 - 0.5 * np.log(np.pi)
        if size == 1:
            return t[:, None], log
        grid = np.stack(np.meshgrid(t, t, indexing="ij"), -1).reshape(-1, 2)
        return grid, (log[:, None] + log).reshape(-1)
    t, scale = normal_points(2 ** round(np.log2(nodes)), size), 1 + WIDER / np.sqrt(size)
    return scale * t, 0.5 * (t**2).sum(1) + size * np.log(scale) - np.log(len(t))
