"""Compares the log density that an engine evaluates with NumPyro's of the
model, at random points, on a few rows, latent variables summed or integrated out by brute force.

Integrals of rows over their latent continuous sites: in closed form where normal, else over a
grid.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from enumeration.joint_states import Joint
from enumeration.separable_integral import SeparableIntegral, Unknown
from probml.dataset.dataset import Data
from probml.device import layout, load
from probml.device.rows import Known, Rows
from probml.engines.engine import Engine, Problem, planned
from probml.engines.start.prior import compiled_prior_point
from probml.errors import Refusal, listed
from probml.evidence import density, row_coordinates
from probml.evidence.e_step import log_evidence
from probml.factors.naturals import log_prior
from probml.fits.fitting import reduce_rows
from probml.language.language import chain_length_scope
from probml.numerics.compiling import ONCE, jit
from probml.plan.plan import Plan
from probml.structure.site import Site
from probml.typing import SiteValues

POINTS = 3
POINT_SD = 0.5  # of the random points, in unbounded coordinates
# nats per observed number from 0, beyond which coordinates are halved; their least scale
MAX_NATS, MIN_POINT_SCALE = 5.0, 1e-5
MAX_ROWS = 12  # of the data
STATES = 4096  # joint states of the latent sites of a row, at the most
MAX_WORK = 2**15  # rows × joint states
TOLERANCE = 1e-7  # between the two, relative to 1 + |log density|
APPROXIMATE_TOLERANCE = 2e-2  # where the engine's integral is an approximation by design


@dataclass(frozen=True)
class DensityCheck:
    """Two log densities of the same points, log p(parameters, rows).

    Attributes:
        model, engine: their names.
        rows: the number compared; steps: of each, where they are sequences; else None.
        summed, integrated, sampled: the latent sites that the engine sums out, integrates out, and
            samples with the parameters.
        points: name → value of the parameters and sampled sites, of each point.
        found: by the engine, (points,). expected: by NumPyro, (points,).
        tolerance: of their difference, nats.
    """

    model: str
    engine: str
    rows: int
    steps: int | None
    summed: tuple[str, ...]
    integrated: tuple[str, ...]
    sampled: tuple[str, ...]
    points: tuple[Mapping[str, np.ndarray], ...]
    found: np.ndarray
    expected: np.ndarray
    tolerance: float

    @property
    def difference(self) -> float:
        """The largest difference, nats."""
        with np.errstate(invalid="ignore"):
            return float(np.max(np.abs(self.found - self.expected)))

    @property
    def ok(self) -> bool:
        """Whether the difference is within the tolerance, and finite."""
        return bool(self.difference <= self.tolerance < np.inf)

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        steps = "" if self.steps is None else f" of {self.steps} steps"
        how = [f"{what} {listed(names)}" for what, names in (
            ("summed out:", self.summed), ("integrated out:", self.integrated),
            ("sampled with the parameters:", self.sampled)) if names]
        lines = [f"log density of model '{self.model}' in {self.engine}: "
                 f"{'equal to that of NumPyro' if self.ok else 'NOT equal to that of NumPyro'} "
                 f"(largest difference {self.difference:.2g}, tolerance {self.tolerance:.2g})",
                 "; ".join([f"{self.rows} rows{steps}", *how]),
                 f"{'point':>5} {'engine':>16} {'NumPyro':>16} {'difference':>11}"]
        lines += [f"{i:>5} {one:>16.6f} {other:>16.6f} {one - other:>11.2g}"
                  for i, (one, other) in enumerate(zip(self.found, self.expected, strict=True))]
        return "\n".join(lines)

    __repr__ = __str__


def check_density(held: Data, engine: Engine, asked: bool, seed: int,
                  plain: Callable | None) -> DensityCheck:
    """See checked_density; in double precision.

    Args:
        held: all rows. asked: the engine was named.
        plain: of a model without rows, sites → log density by NumPyro; None: it has rows.

    Raises:
        Refusal: there are too many joint states, or numbers, for brute force.
    """
    held = held if plain else _subsample(held, seed)
    data = engine.prepare_data(held)
    plan = planned(data, engine if asked else None)
    rows, known = load.load(data, plan)
    problem = reduce_rows(engine, Problem(data, plan, rows, known, asked=asked))
    random, found, expected, points = np.random.default_rng([seed, 5]), [], [], []
    try:
        own: Any = None if plain else _numpyro_log_density(held, plan)
        for _ in range(POINTS):
            params, inside, value = _evaluate_at_random_point(problem, rows, random)
            found.append(value)
            points.append({**params, **inside})
            if plain is not None:
                expected.append(plain(params))
            else:
                with chain_length_scope(held.steps, overrule=True):
                    expected.append(own(params, inside))
    except Unknown as why:
        raise incomparable(held.model.name, why) from None
    rough = any(not group.kind.exact for group in plan.latents) or any(
        part.nodes for part in plan.groupings)
    scale = 1 + float(np.max(np.abs(expected)))
    return DensityCheck(
        held.model.name, type(engine).__name__ + "()", held.table.rows, held.steps,
        tuple(plan.variables), (*plan.hidden, *plan.effects), plan.sampled, tuple(points),
        np.array(found), np.array(expected),
        scale * (APPROXIMATE_TOLERANCE if rough else TOLERANCE))


def incomparable(name: str, why: Unknown) -> Refusal:
    """The error where brute force is not possible."""
    return Refusal(f"check_density: the log density of model '{name}' cannot be checked, because "
                   f"brute-force summation and integration over its latent variables is not "
                   f"possible here: {why}. Give some of the latent sites in the data, or use fewer "
                   f"states, time steps or plate elements")


def _subsample(held: Data, seed: int) -> Data:
    """Some of the rows, and of sequences the first steps, so that there are few joint states."""
    plan, sites = held.plan(lenient=True), held.structure.sites
    states = math.prod(plan.variables[name].states for name in plan.chains)
    if held.steps is not None:
        most = held.steps if held.lengths is None else int(held.lengths.min())
        fitting = int(math.log(STATES) / math.log(states)) if states > 1 else 8
        steps = max(min(most, fitting, 8), 1)
        held = held.stretches(np.arange(held.table.rows), np.zeros(held.table.rows, int), steps)
        held = held._replace(lengths=None)
        states = states**steps
    states *= math.prod(plan.variables[name].states for name in plan.variables
                        if sites[name].rows and sites[name].time is None)
    count = min(held.table.rows, int(np.clip(MAX_WORK // states, 2, MAX_ROWS)))
    picked = np.random.default_rng([seed, 3]).permutation(held.table.rows)[:count]
    return held.taken(np.sort(picked))


def _evaluate_at_random_point(problem: Problem, rows: Rows, random: np.random.Generator
                              ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], float]:
    """A random point, its parameters and sampled variables of rows, and its log density as engines
    evaluate it: with gradients, and by the E-step; if these differ, the one farther off."""
    plan, known = problem.plan, problem.known
    start = compiled_prior_point(plan, known)
    noise = POINT_SD * random.standard_normal(density.unbounded_size(plan))
    own = (POINT_SD * random.standard_normal(row_coordinates.size(plan, rows)) if plan.sampled
           else None)
    # with large inputs, as in exp(2000 b), or a large point of the prior, densities lose precision
    found, near, gains = None, 1.0, True
    columns = problem.data.table.columns.values()
    far = MAX_NATS * (noise.size + sum(int(column.values.size) for column in columns))
    while found is None or gains and near > MIN_POINT_SCALE and not abs(found[2]) < far:
        last, found = found, jax.device_get(_at(plan, start, known, problem.rows, near * noise,
                                                own, near))
        gains = last is None or not abs(found[2]) > 0.9 * abs(last[2])
        found, near = (found, near / 2) if gains else (last, near)
    params, inside, one, other = found
    order = layout.order(problem.data, plan)
    inside = {name: load.unload(chunk, problem.size, order) for name, chunk in inside.items()}
    one, other = float(one), float(other)
    value = 2 * one - other if abs(one - other) > TOLERANCE * (1 + abs(one)) else one
    return params, inside, value


@jit(static_argnums=0, seldom=ONCE)
def _at(plan: Plan, start: Mapping, known: Known, rows: Rows, noise: jax.Array,
        own: jax.Array | None, near: float) -> tuple[Mapping, Mapping, jax.Array, jax.Array]:
    """The values at random coordinates of the parameters, and of latent variables of rows; and the
    log density there, twice: as samplers evaluate it, without the Jacobians of coordinates."""
    u = near * density.to_unbounded(plan, start, known) + noise
    params, volume = density.from_unbounded(plan, u, known)
    if own is None:
        def point(u: jax.Array):
            return density.from_unbounded(plan, u, known)[0], 0.0

        one = density.value_and_gradient(plan, point, u, known, rows)[0]
        other = log_evidence(plan, params, known, rows) + log_prior(plan, params, known)
        return params, {}, one, other
    value = density.log_posterior(plan, known, rows)(jnp.concatenate([u, own]))[0]
    volume += row_coordinates.with_coordinates(plan, rows, own).total(
        lambda chunk: row_coordinates.with_values_of_coordinates(
            plan, params, known, chunk, row_coordinates.coordinates_of(chunk))[1])
    inside = row_coordinates.values(plan, params, known, rows, own)
    return params, inside, value - volume, value - volume


def _numpyro_log_density(held: Data, plan: Plan) -> Callable[[Mapping, Mapping], float]:
    """(parameters, sampled variables of rows) → log p of these and the rows by NumPyro, other
    latent variables summed or integrated out."""
    structure, model, inputs = held.structure, held.structure.model, dict(held.table.inputs)
    sites, n = structure.sites, held.table.rows
    totals = [site.name for site in sites.values() if site.traits.ancillary is not None]
    if totals and model.generative.found:
        raise Unknown(f"the model function reads the total count of '{totals[0]}' from the data")
    given = {name: jnp.asarray(sites[name].valued(np.asarray(value)))
             for name, value in held.table.values.items()}
    data, soft = _observed(held)
    read = set().union(*(site.parents for site in sites.values()))
    fill = {site.name: _possible(site, n, held.steps) for site in sites.values()
            if site.rows and not site.factor}
    every, effects = list(plan.globals), {name: sites[name].shape for name in plan.effects}
    choices = [dict(zip(every, choice, strict=True)) for choice in itertools.product(
        *(_values(sites[name], plan.variables[name].values) for name in every))]
    made: list[tuple[Joint, Callable, SeparableIntegral]] = []

    def joint_at(point: SiteValues, inside: SiteValues) -> Joint:
        return Joint(model, point, {**data, **inside}, inputs, fill, read, soft, most=STATES)

    def at(params: SiteValues, inside: SiteValues) -> float:
        params = {**given, **jax.tree.map(jnp.asarray, {**params, **inside})}
        points = [{**params, **choice} for choice in choices]
        if not made:
            still = dict(zip(effects, map(jnp.zeros, effects.values()), strict=True))
            joint = joint_at({**points[0], **still}, inside)
            total = _integrand(joint, effects)
            made.append((joint, jax.jit(total), SeparableIntegral(total)))
        joint, summed, integral = made[0]
        numbers = sum(map(math.prod, effects.values())) + joint.n * joint.a * joint.size
        if joint.a > 1 and joint.size:
            if effects:
                raise Unknown("the rows have latent variables and the model has random effects, "
                              "and the check has no integral over both")
            logs = [_row_by_row(joint_at(point, inside), point) for point in points]
        else:
            logs = [integral.log(np.zeros(numbers), point) if numbers
                    else float(summed(jnp.zeros(0), point)) for point in points]
        return float(np.logaddexp.reduce(logs))

    return at


def _row_by_row(joint: Joint, params: SiteValues) -> float:
    """log p(all rows, parameters), the numbers of each row and joint state integrated out
    separately."""
    logs = integrate_rows(lambda numbers: joint.rows(params, numbers), joint.n * joint.a,
                          joint.size, joint.bent)[0] + joint.possible
    rows = np.logaddexp.reduce(logs.reshape(joint.n, joint.a), 1).sum()
    return float(rows + sum(jax.jit(joint.outside)(dict(params)).values()))


def _integrand(joint: Joint, effects: Mapping[str, tuple[int, ...]]) -> Callable:
    """(numbers, parameters) → their log density with the rows; the numbers are the effects, by
    their shapes, then the latent variables of the rows."""
    cuts = np.cumsum([math.prod(shape) for shape in effects.values()], dtype=int)

    def total(numbers: jax.Array, params: Mapping) -> jax.Array:
        *parts, rest = jnp.split(numbers, cuts)
        own = {name: part.reshape(shape)
               for (name, shape), part in zip(effects.items(), parts, strict=True)}
        return joint.total({**params, **own}, rest.reshape(joint.n * joint.a, joint.size))

    return total


def _observed(held: Data) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Site → its values in rows, NaN where missing; and site → the likelihoods of its states."""
    data, soft = {}, {}
    for name, column in held.table.columns.items():
        if column.likelihood is not None:
            soft[name] = column.likelihood
        else:
            value = held.structure.sites[name].valued(np.asarray(column.values, float))
            data[name] = value if column.observed is None else np.where(column.observed, value, np.nan)
    return data, soft


def _values(site: Site, states: Iterable) -> list[jax.Array]:
    """The values of a discrete site outside rows, in NumPyro's coding."""
    return [jnp.asarray(site.valued(np.asarray(site.place(state)))) for state in states]


def _possible(site: Site, n: int, steps: int | None) -> np.ndarray:
    """Values of the support of a site inside rows, (n, *cells)."""
    if site.discrete:
        return np.full((n, *site.along(steps)), site.low)
    middle = site.domain.middle(site.shape) if site.domain.fixed else np.full(site.shape, 0.5)
    one = np.asarray(site.collect(jnp.asarray(middle), 1))
    if site.time is not None:
        one = np.repeat(one, steps or 1, 1 + site.time)
    return np.broadcast_to(one, (n, *site.along(steps))).astype(float)


NODES = 3001
MAX_T, MAX_BOUNDED_T = 11.0, 5.0  # of the grid in t = asinh x, and for x a logarithm or a logit
QUADRATIC_TOLERANCE = 1e-7  # of a log density, for it to be that of a normal


def integrate_rows(log_density: Callable[[jax.Array], jax.Array], rows: int, size: int,
                   bent: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(log of the integral over `size` numbers, (rows,); its nodes, (nodes, rows, size), and their
    weights, (nodes, rows)); of a normal its mean is the only node.

    Args:
        log_density: numbers (rows, size) → (rows,).
        bent: whether some numbers have bounds.

    Raises:
        Unknown: several numbers whose density is not normal, or an infinite density.
    """
    log, nodes, weights = _integral(log_density, rows, size, bent)
    if np.isposinf(log).any():
        raise Unknown("NumPyro's log density is infinite, as it is for a normal distribution that "
                      "is truncated far from its mean")
    return log, nodes, weights


def _integral(log_density: Callable, rows: int, size: int,
              bent: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if not size:
        none = np.zeros((rows, 0))
        return np.asarray(jax.jit(log_density)(none)), none[None], np.ones((1, 1))
    if not bent:
        zero, density = np.zeros((rows, size)), jax.jit(log_density)
        along = np.broadcast_to(np.eye(size)[:, None], (size, rows, size))

        def bends(u: jax.Array):
            gradient = jax.grad(lambda u: log_density(u).sum())
            curved = jax.vmap(lambda v: jax.jvp(gradient, (u,), (v,))[1], out_axes=-1)(along)
            return gradient(u), curved

        slope, curved = jax.jit(bends)(zero)
        curved = -np.asarray(curved)
        with np.errstate(all="ignore"):
            at = np.linalg.solve(curved, np.asarray(slope)[..., None])[..., 0]
        found = np.asarray(density(at))
        probe = np.random.default_rng(0).normal(size=(rows, size))
        foretold = found - 0.5 * np.einsum("ri,rij,rj->r", probe, curved, probe)
        error = np.abs(np.asarray(density(at + probe)) - foretold)
        if np.all(error < QUADRATIC_TOLERANCE * (1 + np.abs(foretold))):
            log = found + 0.5 * size * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(curved)[1]
            return np.asarray(log), at[None], np.ones((1, rows))
    if size > 1:
        raise Unknown("rows have several latent continuous variables whose density is not normal")
    t = np.linspace(-1.0, 1.0, NODES) * (MAX_BOUNDED_T if bent else MAX_T)
    nodes = np.sinh(t)
    logs = np.asarray(jax.jit(jax.vmap(lambda u: log_density(jnp.full((rows, 1), u))))(nodes))
    if np.isposinf(logs).any():
        raise Unknown("a simulated value was rounded to the boundary of its support, where the "
                      "density is infinite")
    logs = np.nan_to_num(logs, nan=-np.inf) + np.log(np.cosh(t) * (t[1] - t[0]))[:, None]
    top = logs.max(0)
    share = np.exp(logs - top)
    whole = share.sum(0)
    return (np.log(whole) + top, np.broadcast_to(nodes[:, None, None], (NODES, rows, 1)),
            share / whole)
