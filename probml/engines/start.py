"""Where iterative engines start: prior means, and one M-step from a few labelled rows; knows no model."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to

from probml.blocks import blocks, users
from probml.chunks import Data, load
from probml.compiling import jit
from probml.density import to_free
from probml.factors import Known, Rows, log_prior
from probml.language import ModelError, Refusal
from probml.levels import Level
from probml.passes import Expected, expect
from probml.plan import Plan, bucket
from probml.sequences import merged, picked
from probml.structure import Site
from probml.tables import DataError
from probml.updates import maximise, transforms

OFF = 0.2  # share of a random table in the first tables of hidden chains
SAMPLE = 1024  # unlabelled rows that join the start
ALIKE, AWAY = 1e-3, 0.05  # relative differences of parameters that are taken for none, and those that part them
CANDIDATES = 10_000  # rows among which seeds are spread
UNDRAWABLE = (NotImplementedError, AttributeError, ImportError, KeyError, TypeError, ValueError)  # of a prior that only has a density


def given_start(plan: Plan, start: Mapping) -> dict[str, jax.Array]:
    """Check a user's partial start: names, shapes, finiteness, supports."""
    sites, out = plan.structure.sites, {}
    for name, value in start.items():
        if name not in plan.free:
            raise ModelError(f"start names '{name}', which is not a parameter; the parameters are {list(plan.free)}")
        value = np.asarray(value, float)
        if value.shape != sites[name].shape:
            raise ModelError(f"start of '{name}' has shape {value.shape}, expected {sites[name].shape}")
        if not np.isfinite(value).all():
            raise ModelError(f"start of '{name}' has a value that is not finite")
        if not inside(sites[name], value):
            raise ModelError(f"start of '{name}' lies outside its support ({sites[name].domain.replace('_', ' ')}): got {value.tolist()}")
        out[name] = value.astype(jnp.result_type(float))
    return out


def inside(site: Site, value: np.ndarray) -> bool:
    """Whether a value lies in the support of its site, as far as that does not depend on other sites."""
    if site.domain in ("positive", "unit_interval"):
        return bool((value >= 0).all() and (site.domain == "positive" or (value <= 1).all()))
    if site.domain == "simplex":
        return bool((value >= 0).all() and np.allclose(value.sum(-1), 1.0, atol=1e-4))
    if site.domain == "positive_definite":
        return bool(np.allclose(value, np.swapaxes(value, -1, -2), rtol=1e-4) and (np.linalg.eigvalsh(value) > 0).all())
    if site.domain == "lower_cholesky":
        return bool(np.array_equal(value, np.tril(value)) and (np.diagonal(value, axis1=-2, axis2=-1) > 0).all())
    return True


def need_prior(plan: Plan, engine: str, prior: bool) -> None:
    """Refuse to leave out a prior that unseen discrete sites look out of: without it nothing tells their states.

    Raises:
        Refusal: which parameter, and which site.
    """
    name = next((name for name in plan.mixed if name in plan.free), None)
    if name is not None and not prior:
        raise Refusal(
            f"{engine}(prior=False) cannot fit model '{plan.structure.model.name}': the prior of '{name}' depends on "
            f"'{plan.scope(name)[0]}', which is discrete and unseen, and without that prior is not part of the likelihood. Leave "
            "prior=False out"
        )


def prior_point(plan: Plan, known: Known) -> dict[str, jax.Array]:
    """Each parameter at its prior mean given its parents; where that is infinite or unknown, at the middle of its support."""
    env, out = dict(known.given), {}
    for variable in plan.globals:
        site = plan.structure.sites[variable]
        env[variable] = jnp.zeros(site.shape, jnp.result_type(int))
    for name in plan.structure.parameters:
        if name in env:
            continue
        site = plan.structure.sites[name]
        distribution = plan.structure.distribution(name, env)
        middle = jnp.broadcast_to(_middle(distribution, site), site.shape)
        try:
            mean = jnp.broadcast_to(distribution.mean, site.shape)
        except (NotImplementedError, AttributeError):
            mean = middle
        if site.domain == "positive":
            wild = jnp.broadcast_to(_wild(distribution), site.shape) | ~jnp.isfinite(mean)
            mean = jnp.where(wild, _median(distribution, middle, site), mean)
        out[name] = env[name] = jnp.where(jnp.isfinite(mean), mean, middle).astype(jnp.result_type(float))
    return out


def impossible(plan: Plan, params: Mapping, known: Known, engine: str, value: float) -> None:
    """Say that the density is not finite at the first point, and of whom.

    Raises:
        ModelError: which site's prior, or that the data, are impossible there.
    """
    logs = {site: float(_site_prior(plan, site, params, known)) for site in plan.free}
    bad = next((site for site, log in logs.items() if not np.isfinite(log)), None)
    where = (
        f"the prior of '{bad}' is {logs[bad]} at {np.asarray(params[bad]).tolist()}"
        if bad is not None
        else f"the priors are finite, so the likelihood of {', '.join(repr(s) for s in plan.observed)} is not"
    )
    raise ModelError(
        f"{engine} cannot start on model '{plan.structure.model.name}': the log density is {value} at the first point: {where}. "
        "Give a point of positive density, fit(..., start={...}), or check the data for values that the model cannot make"
    )


@functools.partial(jit, static_argnums=(0, 1))
def _site_prior(plan: Plan, site: str, params: Mapping, known: Known) -> jax.Array:
    return log_prior(plan, params, known, names=(site,))


@functools.partial(jit, static_argnums=0)
def prior_draws(plan: Plan, known: Known, keys) -> dict[str, jax.Array]:
    """Draws from the prior in unbounded coordinates, one a key."""

    def one(key):
        env, states = dict(known.given), [name for name in plan.globals if plan.mixed]  # the states on which parameters depend
        names = [name for name in plan.structure.sites if name in states or name in plan.free]  # in order: parents first
        for i, name in enumerate(names):
            site, prior = plan.structure.sites[name], plan.structure.distribution(name, env)
            count = site.shape[: len(site.shape) - len(prior.batch_shape) - len(prior.event_shape)]
            env[name] = jnp.broadcast_to(prior.sample(jax.random.fold_in(key, i), count), site.shape) - site.low
        return to_free(plan, {name: env[name] for name in plan.free}, known)

    return jax.vmap(one)(keys)


def _wild(distribution):
    """A mean that the tail carries away (LogNormal(0, 10)) says nothing of where the density lies."""
    try:
        return ~(distribution.variance <= 100 * distribution.mean**2)
    except (NotImplementedError, AttributeError):
        return False


def _median(distribution, middle, site):
    try:
        median = jnp.broadcast_to(distribution.icdf(jnp.full(distribution.batch_shape, 0.5)), site.shape)
    except (NotImplementedError, AttributeError, ImportError):  # NumPyro's Gamma.icdf wants another package
        return middle
    return jnp.where(jnp.isfinite(median) & (median > 0), median, middle)


def _middle(distribution, site):
    transform = biject_to(distribution.support)
    return transform(jnp.zeros(transform.inverse_shape(site.shape)))


def single_steps(data: Data, plan: Plan, weights: np.ndarray | None, seed: int) -> tuple[Data, np.ndarray | None]:
    """Where chains are hidden, steps in which something is seen, as rows of one step: states are told apart by what they emit."""
    if not plan.chains:
        return data, weights
    table, steps = data.table, data.steps
    usable = np.ones((table.rows, steps), bool) if data.lengths is None else np.arange(steps) < data.lengths[:, None]
    shown = data.shown()
    if shown is not None:
        usable &= shown
    if weights is not None:
        usable &= weights[:, None] > 0
    picks = np.flatnonzero(usable)
    if len(picks) > CANDIDATES:
        picks = np.sort(np.random.default_rng([seed, 2]).choice(picks, CANDIDATES, replace=False))
    return data.unrolled(picks), None if weights is None else weights[picks // steps]


def seeds(
    data: Data, plan: Plan, weights: np.ndarray | None, restarts: int, seed: int
) -> tuple[list[tuple[str, int]], np.ndarray, np.ndarray]:
    """Rows to label, spread as in k-means++ (Arthur & Vassilvitskii 2007) over standardised cells and one-hot categories.

    Returns:
        the labels (variable, state) in order, seed rows (restarts, labels), and unlabelled rows (restarts, m).
    """
    random = np.random.default_rng(seed)
    sites, table = plan.structure.sites, data.table
    hidden = [v for v in plan.variables if sites[v].rows and v not in plan.pattern]
    labels = [(v, s) for v in hidden for s in range(plan.variables[v].states)]
    usable = np.arange(table.rows) if weights is None else np.flatnonzero(weights)
    count = len(usable)
    size = min(SAMPLE, bucket(count))  # not the count itself: another n in the same bucket compiles nothing
    others = np.stack(
        [np.resize(random.permutation(usable), size) if size > count else random.choice(usable, size, False) for _ in range(restarts)]
    )
    if not labels:
        return [], np.zeros((restarts, 0), int), others
    candidates = usable if count <= CANDIDATES else random.choice(usable, CANDIDATES, replace=False)
    features = _features(data, plan, candidates)
    chosen = [np.concatenate([_spread(features, plan.variables[v].states, random) for v in hidden]) for _ in range(restarts)]
    return labels, candidates[np.stack(chosen)], others


def check_distinct(data: Data, plan: Plan) -> None:
    """Refuse a hidden site with more states than there are distinct rows of continuous data below it; on the host, before any compile.

    Raises:
        DataError: fewer distinct rows than components.
    """
    data, _ = single_steps(data, plan, None, 0)
    if data.table.rows > CANDIDATES:
        return
    hidden = [v for v in plan.variables if plan.structure.sites[v].rows and v not in plan.pattern]
    for variable in hidden:
        states = plan.variables[variable].states
        children = [c for c in plan.structure.children[variable] if c in plan.observed]
        numbers = plan.structure.sites[variable].family is None or plan.structure.sites[variable].states is None  # and no components
        if numbers or not children or any(plan.structure.sites[c].discrete for c in children):
            continue
        distinct = len(np.unique(_features(data, plan, np.arange(data.table.rows)), axis=0))
        if distinct < states:
            raise DataError(
                f"site '{variable}' has {states} states (components), but the data have only {distinct} distinct rows: "
                f"use at most {distinct} components"
            )


def _features(data: Data, plan: Plan, rows: np.ndarray) -> np.ndarray:
    blocks = [np.zeros((len(rows), 1))]
    for name in (n for n in plan.observed if n in data.table.columns):  # not factors
        column = data.table.columns[name]
        values = column.values[rows].reshape(len(rows), -1)
        states = plan.structure.sites[name].states
        if states:
            values = (values[..., None] == np.arange(states)).reshape(len(rows), -1) / np.sqrt(2)
        elif plan.structure.sites[name].discrete and plan.structure.sites[name].event:  # counts of a total: which shares, not how many
            counts = values.reshape(len(rows), -1, plan.structure.sites[name].event[-1])
            values = np.sqrt(counts / np.maximum(counts.sum(-1, keepdims=True), 1)).reshape(len(rows), -1)
            spread = np.sqrt(values.var(0).sum())
            values = (values - values.mean(0)) / (spread if spread > 0 else 1.0)
        else:
            values = values.astype(float) - values.mean(0, dtype=float)
            spread = values.std(0)
            values = values / np.where(spread > 0, spread, 1.0)
        blocks.append(values)
    for name in data.table.inputs:
        values = np.asarray(data.table.inputs[name][rows], float).reshape(len(rows), -1)
        spread = values.std(0)
        blocks.append((values - values.mean(0)) / np.where(spread > 0, spread, 1.0))
    return np.concatenate(blocks, 1)


def _spread(features: np.ndarray, k: int, random: np.random.Generator) -> np.ndarray:
    """k rows, each drawn in proportion to its squared distance from those before; the best of a few tries each time."""
    first = int(random.integers(len(features)))
    chosen, distance = [first], ((features - features[first]) ** 2).sum(1)
    tries = 2 + int(np.log(k))
    for _ in range(1, k):
        total = distance.sum()
        draws = random.choice(len(features), tries, p=distance / total) if total > 0 else random.integers(len(features), size=tries)
        reduced = [np.minimum(distance, ((features - features[row]) ** 2).sum(1)) for row in draws]
        best = int(np.argmin([r.sum() for r in reduced]))
        chosen.append(int(draws[best]))
        distance = reduced[best]
    return np.array(chosen)


class Start(NamedTuple):
    """Where restarts begin: at `params` (restarts, ...), or at the M-step of the labelled rows' `expected`, with `fixed` as given."""

    params: dict[str, jax.Array]
    expected: Expected | None
    fixed: dict[str, jax.Array]
    allowed: dict[str, jax.Array] = {}  # see factors.Known: (restarts, states)


@functools.partial(jit, static_argnames=("plan",))
def _labelled(plan: Plan, known: Known, rows: Rows, allowed: Mapping) -> tuple[dict[str, jax.Array], Expected]:
    """Prior means, and an E-step there on the labelled rows of every restart."""
    point = prior_point(plan, known)
    return point, jax.vmap(lambda rows, allowed: expect(plan, point, known._replace(allowed=allowed), rows))(rows, allowed)


@functools.partial(jit, static_argnames=("plan", "prior"))
def first_step(plan: Plan, prior: bool, known: Known, rows: Rows, allowed: Mapping) -> dict[str, jax.Array]:
    """The M-step from labelled rows by itself, for engines that make no other."""

    def one(rows, allowed):
        point = prior_point(plan, known)
        expected = expect(plan, point, known._replace(allowed=allowed), rows)
        return maximise(plan, expected, point, known, rows, prior, steps=40)

    return jax.vmap(one)(rows, allowed)


@functools.partial(jit, static_argnames=("plan", "prior", "restarts"))
def _near_prior(plan: Plan, prior: bool, restarts: int, known: Known, key):
    """The prior means; parameters without a closed form a small random step away, since a prior mean is the saddle point of
    every product of parameters. Those in which all is affine are in no product, and a step in some unit of a column may be far."""
    point, sites = prior_point(plan, known), plan.structure.sites
    formless = [name for stage in blocks(plan, prior) for block in stage if block.form is None for name in block.names]
    bent = {p for name in users(plan) for uses in sites[name].uses.values() for p, use in uses.items() if use.level > Level.AFFINE}
    climbing = [name for name in formless if name in bent]
    maps = transforms(plan, point, known, climbing)

    def one(key):
        moved = dict(point)
        for i, name in enumerate(climbing):
            u = maps[name].inv(point[name])
            moved[name] = maps[name](u + 0.1 * jax.random.normal(jax.random.fold_in(key, i), jnp.shape(u), u.dtype))
        return moved

    return jax.vmap(one)(jax.random.split(key, restarts))


def starts(
    data: Data,
    plan: Plan,
    known: Known,
    weights,
    restarts: int,
    seed: int,
    start: Mapping,
    prior: bool,
    whole: bool = False,
    allowed: Mapping | None = None,
) -> Start:
    """Starting points: where something is hidden, an M-step from k spread rows labelled 0 … k−1 at weight 1 and others
    unlabelled with total weight k; else the prior means. `start` overrides by name.

    Args:
        whole: make the M-step here, for engines that have none.
        allowed: variable → (restarts, states) bool: states that a restart does without.
    """
    allowed = dict(allowed or {})
    fixed = {name: stack(value, restarts) for name, value in given_start(plan, start).items()}
    if set(fixed) >= set(plan.free):
        return Start({name: fixed[name] for name in plan.free}, None, {})
    data, weights = single_steps(data, plan, weights, seed)
    if plan.complete and not (plan.globals and plan.free):
        point = _near_prior(plan, prior, restarts, known, jax.random.key(seed))
        return Start({name: fixed.get(name, point[name]) for name in plan.free}, None, {})
    labels, seeded, others = seeds(data, plan, weights, restarts, seed)
    outside = _one_each(plan, restarts, seed)
    if not (labels or allowed or outside) and restarts == 1:  # what is seen in part tells states apart: the first E-step needs no help
        point = _near_prior(plan, prior, 1, known, jax.random.key(seed))
        return Start({name: fixed.get(name, point[name]) for name in plan.free}, None, {})
    rows = _start_rows(data, plan, labels, seeded, others, seed, allowed)
    if (whole or plan.rowwise) and not allowed:  # the posterior of row-wise sites belongs to the rows it was made on
        point = first_step(plan, prior, known, rows, outside)
        return Start({name: fixed.get(name, point[name]) for name in plan.free}, None, {})
    point, expected = _labelled(plan, known, rows, allowed | outside)
    point = {name: stack(point[name], restarts) for name in plan.free}
    return Start({**point, **_moving(plan, point, seed)}, expected, fixed, allowed)


def _one_each(plan: Plan, restarts: int, seed: int) -> dict[str, np.ndarray]:
    """For the discrete sites outside rows that are unseen, the one joint state with which a restart begins: variable → (restarts,
    states) bool. Where all are possible, those that could stand for one another would do so for ever."""
    random, out = np.random.default_rng([seed, 4]), {}
    for name in plan.globals if plan.free else ():
        states = plan.variables[name].states
        out[name] = np.arange(states) == random.integers(states, size=(restarts, 1))
    return out


def shaken(plan: Plan, params: Mapping, seed: int) -> dict[str, np.ndarray] | None:
    """The parameters a little apart, where states of a hidden site have come to share their values: such a point may be a saddle, at
    which an ascent ends all the same. None where there are no such states."""
    sites, alike = plan.structure.sites, set()
    for variable in (v for v in plan.variables if v not in plan.pattern and sites[v].states):
        near = (variable, *plan.structure.children[variable])
        touched = {p for name in near for uses in sites[name].uses.values() for p in uses if p in plan.free}
        sized = [(p, axis) for p in touched for axis, size in enumerate(sites[p].shape) if size == sites[variable].states > 1]
        below = [p for p, _ in sized if any(p in uses for name in near[1:] for uses in sites[name].uses.values())]
        same = None
        for p, axis in ((p, axis) for p, axis in sized if p in below):
            values = np.moveaxis(np.asarray(params[p], float), axis, 0).reshape(sites[variable].states, -1)
            scale = np.maximum(np.abs(values).max(), 1e-30)
            close = (np.abs(values[:, None] - values[None]) <= ALIKE * scale).all(-1)
            same = close if same is None else same & close
        if same is not None and (same.sum() > len(same)):
            alike |= set(below)
    if not alike:
        return None
    random, out = np.random.default_rng([seed, 5]), {name: np.asarray(value) for name, value in params.items()}
    for name in sorted(alike):
        size = AWAY * (1 + random.standard_normal(out[name].shape))
        value = out[name] * (1 + size) if sites[name].domain != "real" else out[name] + size * np.maximum(np.abs(out[name]).max(), 1.0)
        value = value / value.sum(-1, keepdims=True) if sites[name].domain == "simplex" else value
        value = np.clip(value, 0, 1) if sites[name].domain == "unit_interval" else value
        out[name] = value.astype(out[name].dtype) if inside(sites[name], value) else out[name]
    return out


def _moving(plan: Plan, point: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Probability tables of hidden chains, of which single steps tell nothing, some way off their prior means: equal ones would
    stay equal."""
    random, out = np.random.default_rng([seed, 3]), {}
    used = {p for name in plan.chains for uses in plan.structure.sites[name].uses.values() for p in uses}
    for name in (name for name in plan.free if name in used and plan.structure.sites[name].domain == "simplex"):
        table = point[name]
        draw = random.gamma(1.0, size=table.shape)
        draw /= draw.sum(-1, keepdims=True)
        out[name] = ((1 - OFF) * table + OFF * draw).astype(table.dtype)
    return out


def stack(value, restarts: int) -> np.ndarray:
    """The same value for every restart."""
    return np.broadcast_to(np.asarray(value), (restarts, *np.shape(value)))


def _start_rows(data: Data, plan: Plan, labels, seeded: np.ndarray, others: np.ndarray, seed: int, allowed: Mapping) -> Rows:
    random = np.random.default_rng([seed, 1])
    keep = np.concatenate([seeded, others], 1)
    restarts, size = keep.shape
    rows, _ = load(data, plan, None, keep.reshape(-1))
    flat = merged(jax.tree.map(np.asarray, rows))
    each = [picked(flat, index) for index in np.arange(keep.size).reshape(restarts, size)]
    rows = jax.tree.map(lambda *leaves: np.stack(leaves)[:, None], *each)
    loose = random.exponential(size=others.shape) if restarts > 1 or not labels else np.ones(others.shape)
    sure = np.ones(seeded.shape)
    for i, (variable, state) in enumerate(labels):
        sure[:, i] = allowed[variable][:, state] if variable in allowed else 1.0
    loose *= (sure.sum(1, keepdims=True) if labels else others.shape[1]) / loose.sum(1, keepdims=True)
    weights = np.concatenate([sure, loose], 1)[:, None].astype(rows.weights.dtype)
    steps = rows.steps
    inner, likelihood = dict(steps.rows.likelihood) if steps else {}, dict(rows.likelihood)
    for variable in {v for v, _ in labels}:
        evidence = np.ones((restarts, 1, size, plan.variables[variable].states), weights.dtype)
        for i, (owner, state) in enumerate(labels):
            if owner == variable:
                evidence[:, 0, i] = np.arange(evidence.shape[-1]) == state
        (likelihood if plan.structure.sites[variable].time is None else inner)[variable] = evidence
    rows = _filled(rows)._replace(weights=weights, likelihood=likelihood)
    if steps:
        rows = rows._replace(steps=dataclasses.replace(steps, rows=_filled(steps.rows)._replace(likelihood=inner)))
    return jax.tree.map(jnp.asarray, rows)


def _filled(rows: Rows) -> Rows:
    """Rows whose torn vectors count as seen: they are filled by column means."""
    return rows._replace(seen={name: mask for name, mask in rows.seen.items() if name not in rows.unseen}, unseen={})
