"""One number a row, integrated by quadrature about its mode: any density, any sites below.

In a coordinate u without bounds, h(u) = log p(z(u)) + log |dz/du| + Σ log p(seen | z(u)) has a
mode μ, with curvature 1/s². The integral over u = μ + s sinh t is taken by the trapezoid rule in t,
which for smooth densities converges faster than any power of the step, also where tails are those
of a power (Takahasi & Mori 1974; about the mode as Liu & Pierce 1994 have it, whose Gauss–Hermite
nodes follow only tails of a normal). With 61 nodes over |t| ≤ 6 the error is below 1e-6 nats for a
normal or Student's t under counts or choices, and 2e-6 for a lognormal scale.

Where rows differ only in which of finitely many values are observed, and the prior is normal, all
rows may share their nodes (`shared_nodes`): even steps in units of the prior (Bock & Aitkin 1981).
The log densities of all rows at all nodes are then products of matrices (factors/shared_nodes.py),
with a test in every row that these nodes are dense enough.

Where h has two peaks, as under z² or a mixture, t = asinh((u − μ₁)/s₁) + asinh((u − μ₂)/s₂): nodes
are as dense about each as its own width asks, u(t) is smooth and rises, and one trapezoid rule in t
meets both. Over made-up densities of one or two peaks the median error is 1e-8 nats and nine in ten
are below 1e-5. A kink (a Laplace prior), a peak much narrower than the grid on which peaks are
searched, or a third peak cost up to a hundredth, which a fit reports (fits/latent_findings.py).
Gradients are taken at fixed nodes.

Cost: 122 log densities a row, and some steps to each of two modes; of shared nodes, two products
with as many columns as there are nodes.
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from probml.latents.coordinates import enter, has_fixed_support, log_joint, own_shape
from probml.latents.latent import Group, Latent, Seen
from probml.numerics.logs import weighted_log
from probml.numerics.newton import Newton
from probml.numerics.optimum import maximize
from probml.structure.structure import Structure

NODES, REACH = 61, 6.0
STEPS = 30  # of Newton's method, at the most
MIN_STEP = 1e-3  # widths of a peak: a Newton step shorter than this ends the search
FARTHEST = 3.0  # standard deviations of a Newton step, at the most
LOOKED = 5.0  # peaks are searched between ± sinh of it
GRID_STEP = LOOKED / (4 * NODES)  # an eighth of the distance of grid points, over max(1, |u|)
NEGLIGIBLE = 40.0  # nats below the highest peak from which another is ignored
SAME = 0.1  # widths: peaks that are nearer than this are one
BOTH = 5.0  # REACH about each of two peaks
STEEP = 2.0  # nats by which a density may fall within the width of a peak
ROUGH = 1e-4  # nats a row by which twice the nodes may change an evidence without a warning
NODES_NAME = "nodes of a quadrature"
MAX_PRIOR_SDS = 8.5  # standard deviations of a normal prior beyond which its mass is 2e-17
DENSER = 4  # times the nodes of an integral: the sd of draws is off by less than 0.1 %
CELLS = 5  # observed cells of a row up to which shared nodes are as many as a row's own


class Nodes(NamedTuple):
    """A number given a row as weighted values: `values` (m, 1), `weights` (m,), which sum to 1;
    `mean` (1,)."""

    mean: jax.Array
    values: jax.Array
    weights: jax.Array


def weighted_nodes(values: jax.Array, logs: jax.Array) -> Nodes:
    """Nodes at `values` (m, p) whose weights are proportional to exp(logs), (m,)."""
    weights = jax.nn.softmax(logs)
    return Nodes(weights @ values, values, weights)


def expected_log_joint(structure: Structure, group: Group, env: Mapping, seen: Seen,
                       nodes: Nodes) -> jax.Array:
    """E[log p(latents, what is seen | env)] over latents at nodes."""
    logs = jax.vmap(log_joint(structure, group, env, seen))(nodes.values)
    return weighted_log(nodes.weights, logs).sum()


@dataclass(frozen=True)
class Quadrature:
    """One continuous number in a row; see the top of this file."""

    nodes: int = NODES

    pools = exact = False

    @property
    def averages(self) -> bool:
        return type(self) is Quadrature  # a derived class has a value of its own

    @property
    def description(self) -> str:
        return f"integrated out, by quadrature with {self.nodes} nodes"

    @property
    def breadth(self) -> int:
        return self.nodes

    @property
    def tolerance(self) -> float:
        return ROUGH

    @property
    def finer(self) -> "Latent | None":
        return replace(self, nodes=2 * self.nodes)

    def shared_nodes(self, structure: Structure, group: Group, env: Mapping,
                     cells: int) -> tuple[jax.Array, jax.Array] | None:
        """Nodes for every row, (m,), m a multiple of 3, and their log weights, the latent's own
        density included; None: there are none. They suit rows of so many observed cells."""
        if self.exact or structure.sites[group.name].kind != "Normal":
            return None
        # the width of a row's likelihood is about one over the root of its cells
        count = 3 * math.ceil(self.nodes * max(1.0, math.sqrt(cells / CELLS)) / 3)
        u = jnp.asarray(np.linspace(-MAX_PRIOR_SDS, MAX_PRIOR_SDS, count))
        joint, _ = joint_density(structure, group, env, {})
        values, volumes = jax.vmap(lambda u: _transform_node(structure, group, env, u))(u)
        return values, jax.vmap(joint)(values, volumes) + jnp.log(u[1] - u[0])

    def why_not(self, structure: Structure, group: Group) -> str | None:
        site = structure.sites[group.name]
        if len(group.names) > 1 or math.prod(site.cells) != 1:
            return "other sites depend on several latent variables of a row jointly"
        if not has_fixed_support(site):
            return (f"the support of '{group.name}' ({site.kind}) depends on other random "
                    f"variables")
        timed = next((name for name in group.sites if structure.sites[name].time is not None), None)
        return None if timed is None else f"'{timed}' is part of a chain"

    def message(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> jax.Array:
        joint, own_data = joint_density(structure, group, env, seen)
        _, logs = _weighed(structure, group, env, seen, self.nodes)
        return where_seen(own_data, lambda x: joint(x, 0.0), jax.nn.logsumexp(logs))

    def conditional(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> Nodes:
        values, logs = _weighed(structure, group, env, seen, self.nodes)
        values = where_seen(seen.get(group.name, (None, None)),
                            lambda x: jnp.broadcast_to(x, values.shape), values)
        return weighted_nodes(values[:, None], logs)

    def row_posterior(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> Nodes:
        return self.conditional(structure, group, env, seen)

    def draw(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
             key: jax.Array) -> jax.Array:
        """Draws by inversion, the density linear between denser nodes."""
        nodes, log_w, logs = _nodes(structure, group, env, seen, DENSER * self.nodes)
        values, _ = jax.vmap(lambda u: _transform_node(structure, group, env, u))(nodes)
        drawn = _invert(values, jax.nn.softmax(logs + log_w),
                        jax.random.uniform(key, dtype=values.dtype))
        return where_seen(seen.get(group.name, (None, None)), lambda x: x, drawn)[None]

    def expected(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
                 moments: Nodes) -> jax.Array:
        return expected_log_joint(structure, group, env, seen, moments)


def _invert(values: jax.Array, mass: jax.Array, uniform: jax.Array) -> jax.Array:
    """The quantile of a density at nodes of even steps, linear between them: `mass`, (m,), is that
    density times the step."""
    total = jnp.cumsum(0.5 * (mass[1:] + mass[:-1]))
    target = uniform * total[-1]
    interval = jnp.minimum(jnp.searchsorted(total, target, side="right"), len(total) - 1)
    low, rise = mass[interval], mass[interval + 1] - mass[interval]
    remaining = target - jnp.where(interval > 0, total[interval - 1], 0.0)
    root = jnp.sqrt(jnp.maximum(low**2 + 2 * rise * remaining, 0.0))  # the density there
    fraction = 2 * remaining / jnp.maximum(low + root, jnp.finfo(mass.dtype).tiny)
    return values[interval] + jnp.clip(fraction, 0, 1) * (values[interval + 1] - values[interval])


def _weighed(structure: Structure, group: Group, env: Mapping, seen: Seen,
             count: int) -> tuple[jax.Array, jax.Array]:
    """The number at so many nodes, and the log of the integrand times the weight of each."""
    joint, _ = joint_density(structure, group, env, seen)
    nodes, log_w, _ = _nodes(structure, group, env, seen, count)
    values, volumes = jax.vmap(lambda u: _transform_node(structure, group, env, u))(nodes)
    return values, jax.vmap(joint)(values, volumes) + log_w


def joint_density(structure: Structure, group: Group, env: Mapping,
                  seen: Seen) -> tuple[Callable, tuple]:
    """(z, log volume) → log p(z, observed children) + volume; and the data of z itself."""
    log = log_joint(structure, group, env, seen)
    return (lambda value, volume: volume + log(jnp.reshape(value, -1)),
            seen.get(group.name, (None, None)))


def where_seen(own: tuple, function: Callable, otherwise: jax.Array) -> jax.Array:
    """function(x) in a row where the number itself is observed, x, or all of a vector; else
    `otherwise`."""
    x, mask = own
    if x is None:
        return otherwise
    is_seen = jnp.ones((), bool) if mask is None else mask.all()
    return jnp.where(is_seen, function(x.reshape(-1) if x.size > 1 else x.reshape(())), otherwise)


def _transform_node(structure: Structure, group: Group, env: Mapping,
                    u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The number at a coordinate (coordinates.py), and log |dz/du|."""
    cap = 0.5 * math.log(jnp.finfo(u.dtype).max)  # beyond, products of exponentials are no numbers
    clipped = jnp.clip(u, -cap, cap).reshape(own_shape(structure.sites[group.name]))
    value, volume = enter(structure, group.name, env, clipped, None, None)
    return value.reshape(()), volume


def _nodes(structure: Structure, group: Group, env: Mapping, seen: Seen,
           count: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Coordinates of the nodes, their log weights, and the log integrand at those of positive
    weight (else 0), without derivatives."""
    env, seen = jax.lax.stop_gradient((dict(env), dict(seen)))
    joint, _ = joint_density(structure, group, env, seen)

    def height(u: jax.Array) -> jax.Array:
        return joint(*_transform_node(structure, group, env, u))

    def at(u: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        (value, slope), (_, second) = jax.jvp(jax.value_and_grad(height), (u,), (jnp.ones_like(u),))
        return value, slope, second

    def step(u: jax.Array, slope: jax.Array, second: jax.Array, damping: jax.Array) -> tuple:
        bend = jnp.maximum(jnp.abs(second), 1e-6)
        # a peak may be a thousand times narrower than the grid on which its search begins
        max_move = jnp.maximum(jnp.where(second < 0, FARTHEST * bend**-0.5, 0.0),
                               GRID_STEP * jnp.maximum(jnp.abs(u), 1.0))
        move = jnp.clip(slope / bend, -max_move, max_move) / (1 + damping)
        return move, 0.5 * slope * move

    method = Newton(STEPS, 1e-16, gain_tolerance=0.5 * MIN_STEP**2, step=step,
                    skip_last_evaluation=False)

    def peak(start: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The mode that Newton's method reaches from a start, its width (the standard deviation of
        the normal with its curvature, or less where the density falls faster), its log height."""
        result = maximize(at, start, method)
        centre, top_value, bend = result.point, result.value, jnp.abs(result.hessian)

        def narrower(carry: tuple) -> tuple:
            width, _, turns = carry
            sides = jax.vmap(height)(centre + jnp.stack([width, -width]))
            fall = top_value - sides.mean()
            fall = jnp.where(jnp.isfinite(fall), fall, 1e30)
            shrink = jnp.maximum((0.5 / fall) ** (1 / 3), 1e-3)
            return jnp.where(fall > STEEP, width * shrink, width), fall, turns + 1

        # a top as flat as that of x⁴ is not as wide as its curvature says
        width = jnp.where(bend > 1e-6, bend, 1.0) ** -0.5
        width, *_ = jax.lax.while_loop(
            lambda carry: (carry[1] > STEEP) & (carry[2] <= STEPS), narrower,
            (width, jnp.full_like(width, jnp.inf), 0))
        return centre, width, top_value

    centre, width, top_value = jax.vmap(peak)(_two_highest(height))
    best = jnp.argmax(jnp.where(jnp.isfinite(top_value), top_value, -jnp.inf))
    coincide = jnp.abs(centre[0] - centre[1]) < SAME * width.max()
    one_peak = coincide | ~(top_value.min() > top_value[best] - NEGLIGIBLE)  # the other is no peak
    single, double = _about_one(centre[best], width[best], count), _about_two(centre, width, count)
    nodes, log_w = (jnp.where(one_peak, one, two) for one, two in zip(single, double, strict=True))
    # far out, a rate may be no number in float32 where its density is 0
    logs = jax.vmap(height)(nodes)
    is_finite = jnp.isfinite(logs)
    low, high = (bound(jnp.where(is_finite, nodes, centre[best])) for bound in (jnp.min, jnp.max))
    nodes, log_w = jnp.clip(nodes, low, high), jnp.where(is_finite, log_w, -jnp.inf)
    return (checkpointed(jax.lax.stop_gradient(nodes)), checkpointed(jax.lax.stop_gradient(log_w)),
            jnp.where(is_finite, logs, 0.0))


def _about_one(centre: jax.Array, width: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """The trapezoid rule in t, x = (u − μ)/s = sinh t: nodes u, ascending, and log du."""
    t = np.linspace(-REACH, REACH, count)
    return centre + width * np.sinh(t), jnp.log(width) + np.log(np.cosh(t) * (t[1] - t[0]))


def _about_two(centre: jax.Array, width: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """The trapezoid rule in t = asinh x₁ + asinh x₂, one about both peaks: sinh² t = x₁² + x₂² + 2
    x₁ x₂ cosh t, which is quadratic in u, and has one root on the side of t's sign."""
    t = np.linspace(-2 * BOTH, 2 * BOTH, count)
    narrow, gap = width[0] / width[1], (centre[0] - centre[1]) / width[0]  # in units of the first
    square = 1 + narrow**2 + 2 * narrow * np.cosh(t)
    x = np.sinh(t) * jnp.sqrt(square + (gap * narrow) ** 2)
    x = (x - gap * narrow * (narrow + np.cosh(t))) / square
    density = (1 + x**2) ** -0.5 + narrow * (1 + (narrow * (x + gap)) ** 2) ** -0.5
    return centre[0] + width[0] * x, jnp.log(width[0] * (t[1] - t[0])) - jnp.log(density)


def checkpointed(found: jax.Array) -> jax.Array:
    """A result that `again` does not recompute."""
    return checkpoint_name(found, NODES_NAME)


def recomputed(function: Callable) -> Callable:
    """A function that is recomputed for its derivative, with its nodes stored."""
    return jax.checkpoint(function, policy=jax.checkpoint_policies.save_only_these_names(
        NODES_NAME))


def _two_highest(log_p: Callable) -> jax.Array:
    """The grid points next to the two highest peaks of a function of one number; twice the one
    where there is no other."""
    grid = jnp.asarray(np.sinh(np.linspace(-LOOKED, LOOKED, NODES)))
    values = jax.vmap(log_p)(grid)
    values = jnp.where(jnp.isfinite(values), values, -jnp.inf)
    first = jnp.argmax(values)
    left, right = (jnp.roll(values, k).at[end].set(-jnp.inf) for k, end in ((1, 0), (-1, -1)))
    others = (values >= left) & (values >= right) & (jnp.arange(NODES) != first)
    others = jnp.where(others, values, -jnp.inf)
    second = jnp.where(jnp.isfinite(others.max()), jnp.argmax(others), first)
    return jnp.asarray(grid)[jnp.stack([first, second])]


@functools.lru_cache(maxsize=64)
def normal_points(count: int, size: int) -> np.ndarray:
    """Standard normal points that fill space evenly, and their mirror images: Sobol's sequence."""
    from scipy.stats import norm, qmc  # late: slow to import

    uniform = qmc.Sobol(size, seed=0).random(count // 2)
    half = norm.ppf(np.clip(uniform, 1e-9, 1 - 1e-9))
    return np.concatenate([half, -half])
