"""The right answers by brute force: the model runs under NumPyro's handlers at every joint state of
what is finite and unseen; unseen numbers are integrated out as the normal that they are, or over a
grid.

Nothing of probml but the model is used, and of that only the generative function: no plan, no
elimination, no family. Exponential and obvious.
"""

import itertools
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import biject_to, constraints

from probml.language.markov_chain import MarkovChain
from probml.language.named_rows import ROWS

MOST = 400  # joint states
NODES = 3001
REACH, BOUNDED = 11.0, 5.0  # of t, sinh t being the number: of its own, of the logarithm of one
STRAIGHT = 1e-7  # by how much a log density may miss the parabola that it is


class Unknown(Exception):
    """There is no brute-force answer: too many joint states, or several numbers and no normal."""


class Truth(NamedTuple):
    """What is true of rows at known parameters.

    Attributes:
        log: log p(row's seen cells, joint state), (n, joint states), numbers integrated out.
        states: site → its cells in each joint state, (joint states, *cells).
        means: site of numbers → their means given the row and the joint state,
            (n, joint states, *cells); seen cells as they are.
        prior: log p(parameters), those that are finite left out.
        finite: log p(parameters that are finite).
        together: log p(all rows, parameters), if finite parameters have been summed out.
    """

    log: np.ndarray
    states: dict[str, np.ndarray]
    means: dict[str, np.ndarray]
    prior: float
    finite: float = 0.0
    together: float | None = None

    @property
    def evidence(self) -> np.ndarray:
        """log p(row), (n,)."""
        return log_sum(self.log)

    @property
    def total(self) -> float:
        """log p(all rows, parameters)."""
        if self.together is not None:
            return self.together
        return self.evidence.sum() + self.prior + self.finite

    @property
    def likelihood(self) -> float:
        """The total without the prior, also at a point where that is 0."""
        return (self.evidence.sum() + self.finite if self.together is None
                else self.together - self.prior)

    @property
    def weights(self) -> np.ndarray:
        """p(joint state | row)."""
        return np.exp(self.log - self.evidence[:, None])

    def marginal(self, name: str, states: int) -> np.ndarray:
        """p(site = state | row), (n, *cells, states)."""
        hot = self.states[name][..., None] == np.arange(states)
        return np.tensordot(self.weights, hot.astype(float), (1, 0))

    def pair(self, one: str, other: str, states: tuple[int, int]) -> np.ndarray:
        """p(two scalar sites = states | row), (n, *states)."""
        hots = [self.states[name][:, None] == np.arange(k)
                for name, k in zip((one, other), states, strict=True)]
        return np.einsum("na,ai,aj->nij", self.weights, *hots)

    def mean(self, name: str) -> np.ndarray:
        """The mean of a site of numbers given the row, (n, *cells)."""
        means = self.means[name]
        weights = self.weights.reshape(self.log.shape + (1,) * (means.ndim - 2))
        return (weights * means).sum(1)


def log_sum(log: np.ndarray) -> np.ndarray:
    """log Σ exp over the last axis."""
    top = log.max(-1)
    safe = np.where(np.isfinite(top), top, 0.0)[..., None]
    with np.errstate(divide="ignore"):
        return np.log(np.exp(log - safe).sum(-1)) + safe[..., 0]


def mixed(parts: Mapping[Any, Truth]) -> Truth:
    """What is true where finite parameters are unseen: of a row by itself it is a mixture of what
    is true at each of their values, of all rows together one value holds.

    Args:
        parts: what is true at each of their joint values.
    """
    some = list(parts.values())
    own = np.concatenate([np.full(part.log.shape[1], part.finite) for part in some])
    together = log_sum(np.array([part.total for part in some]))
    return Truth(np.concatenate([part.log for part in some], 1) + own,
                 {name: np.concatenate([part.states[name] for part in some])
                  for name in some[0].states},
                 {name: np.concatenate([part.means[name] for part in some], 1)
                  for name in some[0].means}, some[0].prior, 0.0, float(together))


def truth(model: Any, params: Mapping[str, Any], data: Mapping[str, Any],
          inputs: Mapping[str, Any], fill: Mapping[str, np.ndarray],
          read: Collection[str], soft: Mapping[str, np.ndarray] | None = None,
          without: Collection[str] = ()) -> Truth:
    """The right answers for rows.

    Args:
        model: a bound model, every row site of which has the axis of rows last among its batch
            axes.
        params: every site outside rows → its value.
        data: site inside rows → (n, *cells), NaN unseen; sites may be absent.
        inputs: as the model takes them.
        fill: site inside rows → possible values, (n, *cells), which stand in unseen cells while
            they do not matter.
        read: the sites that others look at.
        soft: scalar finite site → likelihoods of its states, (n, states).
        without: sites whose own densities do not count: they are set, not seen.

    Raises:
        Unknown: there is no brute-force answer.
    """
    n, soft = len(next(iter(fill.values()))), soft or {}
    first = _run(model, params, fill, inputs, n)
    sites = {name: message for name, message in first.items() if ROWS in message}
    parts = {name: float(log)
             for name, log in _of_parameters(model, params, fill, inputs, n).items()}
    of_states = sum(log for name, log in parts.items() if _states(first[name]["fn"]))
    shown = {name: np.asarray(data.get(name, np.full(fill[name].shape, np.nan)), float)
             for name in sites}
    holes = {name: np.isnan(value) for name, value in shown.items()}
    counted = [name for name in sites if holes[name].any() and _states(sites[name]["fn"])]
    moved = [name for name in sites if holes[name].any() and name not in counted
             and (name in read or _whole(sites[name]["fn"]))]
    cells = [(name, cell, _states(sites[name]["fn"])) for name in counted
             for cell in np.ndindex(shown[name].shape[1:])]
    if np.prod([k for *_, k in cells], initial=1) > MOST:
        raise Unknown(f"more than {MOST} joint states")
    joint = np.array(list(itertools.product(*(range(k) for *_, k in cells))), int)
    states = {name: np.zeros((len(joint), *shown[name].shape[1:]), int) for name in counted}
    for i, (name, cell, _) in enumerate(cells):
        states[name][(slice(None), *cell)] = joint[:, i]
    a = len(joint)

    def each(array):  # rows × joint states
        return np.repeat(np.asarray(array), a, 0)

    values = {name: np.where(each(holes[name]), each(fill[name]), each(shown[name])).astype(
        fill[name].dtype) for name in sites}
    possible = np.zeros(n * a)
    for name in counted:
        guess = np.tile(states[name], (n,) + (1,) * (states[name].ndim - 1))
        seen = ~each(holes[name])
        wrong = seen & (guess != each(np.nan_to_num(shown[name])))
        possible[wrong.reshape(n * a, -1).any(1)] = -np.inf
        values[name] = guess
        if name in soft:
            possible += np.log(each(soft[name])[np.arange(n * a), guess])
    given = {name: each(value) for name, value in inputs.items()}
    masks = {name: each(~holes[name]) for name in sites}
    places = {name: _place(sites[name]["fn"]) for name in moved}

    def log_density(numbers):
        full, volume = _numbers(values, masks, moved, places, numbers)
        found = _run(model, params, full, given, n * a)
        total = jnp.zeros(n * a) + volume
        for name, message in found.items():
            if name in sites and name not in without:
                unseen_too = name in counted or name in moved
                total += _log(message, full[name], None if unseen_too else masks[name])
        # a number that is seen, or does not exist, is a standard normal of its own
        return total + jnp.where(_seen(masks, moved, n * a),
                                 -0.5 * numbers**2 - 0.5 * np.log(2 * np.pi), 0.0).sum(-1)

    size = sum(int(np.prod(shown[name].shape[1:])) for name in moved)
    bent = [place for place in places.values() if place is not None]
    log, at, share = (_integral(log_density, n * a, size, bool(bent)) if size else (
        np.asarray(jax.jit(log_density)(np.zeros((n * a, 0)))), np.zeros((1, n * a, 0)),
        np.ones((1, 1))))

    def means_at(u):
        full = _numbers(values, masks, moved, places, u)[0]
        found = _run(model, params, full, given, n * a)
        return {name: full[name] if name in moved else values[name] if masks[name].all()
                else jnp.where(masks[name], values[name], _mean(found[name], masks[name].shape))
                for name in sites if not _states(sites[name]["fn"])}

    if np.isposinf(log).any():
        raise Unknown("NumPyro's density is infinite, as of a cut normal far from its middle")
    means = {}
    for name, own in jax.jit(jax.vmap(means_at))(at).items():
        weight = share.reshape(*share.shape, *(1,) * (own.ndim - 2))
        with np.errstate(invalid="ignore"):  # far nodes, of no weight
            mean = np.where(weight > 0, weight * np.asarray(own), 0.0).sum(0)
        means[name] = mean.reshape(n, a, *mean.shape[1:])
    return Truth((log + possible).reshape(n, a), states, means, sum(parts.values()) - of_states,
                 of_states)


def _run(model, params, values, inputs, rows):
    """A trace at values, rows first, of parameters and sites inside rows."""
    first = handlers.seed(model, jax.random.key(0))
    at = {**params}
    for name, value in values.items():
        at[name] = value
    moved = handlers.substitute(first, substitute_fn=lambda m: _placed(m, at))
    return {name: message for name, message in handlers.trace(moved).get_trace(
        rows=rows, **inputs).items() if message["type"] == "sample"}


def _of_parameters(model, params, values, inputs, rows):
    """log p of every site outside rows, of one program: each operation by itself would be one."""
    def logs(params):
        return {name: jnp.sum(message["fn"].log_prob(message["value"]))
                for name, message in _run(model, params, values, inputs, rows).items()
                if ROWS not in message}

    return jax.jit(logs)(dict(params))


def _placed(message, at):
    if message["type"] != "sample" or message["name"] not in at:
        return None
    value = jnp.asarray(at[message["name"]])
    plates = len(message["fn"].batch_shape)
    return _turned(value, plates) if ROWS in message else value


def _turned(value: jax.Array, plates: int) -> jax.Array:
    """A value rows first, then plates from without, as NumPyro has it: rows last, plates before
    them from within; or back."""
    return jnp.transpose(value, (*reversed(range(plates)), *range(plates, value.ndim)))


def _states(fn: Any) -> int:
    """The number of values of a cell, 0 where there is no end."""
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution):
        fn = fn.base_dist
    if isinstance(fn, MarkovChain):
        return fn.states
    return len(fn.enumerate_support(expand=False)) if fn.has_enumerate_support else 0


def _whole(fn: Any) -> bool:
    """Whether the cells of a value do not stand side by side."""
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution):
        fn = fn.base_dist
    return bool(fn.event_shape)


def _log(message: Mapping, value: Any, mask: np.ndarray | None) -> jax.Array:
    """log p of a site, (rows,), without the cells that are unseen and have no say."""
    fn = message["fn"]
    plates = len(fn.batch_shape)
    placed = _turned(jnp.asarray(value), plates)
    while isinstance(fn, dist.Independent):
        fn = fn.base_dist
    if isinstance(getattr(fn, "base_dist", fn), MarkovChain):
        log = _path(getattr(fn, "base_dist", fn), placed)
    else:
        log = fn.log_prob(placed)
    log = _turned(jnp.broadcast_to(log, placed.shape[: log.ndim]), plates)
    if mask is not None:
        log = jnp.where(mask.reshape(*log.shape, -1).all(-1), log, 0.0)
    return log.reshape(len(log), -1).sum(-1)


def _path(fn: MarkovChain, z: jax.Array) -> jax.Array:
    (n, steps), k, row = z.shape, fn.states, jnp.arange(len(z))
    log = jnp.log(jnp.broadcast_to(fn.initial, (n, k)))[row, z[:, 0]]
    table = fn.transition if fn.inhomogeneous else fn.transition[..., None, :, :]
    table = jnp.log(jnp.broadcast_to(table, (n, steps, k, k)))
    for t in range(1, steps):
        log = log + table[row, t, z[:, t - 1], z[:, t]]
    return log


def _mean(message: Mapping, shape: tuple[int, ...]) -> jax.Array:
    fn = message["fn"]
    mean = jnp.broadcast_to(fn.mean, fn.batch_shape + fn.event_shape)
    return jnp.broadcast_to(_turned(mean, len(fn.batch_shape)), shape)


def _place(fn: Any) -> Any:
    """The map from all numbers to where a site lies; None: everywhere."""
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution):
        fn = fn.base_dist
    support = getattr(fn.support, "base_constraint", fn.support)
    return None if support is constraints.real else biject_to(support)


def _numbers(values, masks, moved, places, numbers):
    """(the values of all sites with the numbers that are integrated in their places, log of the
    volume of these)."""
    out, start, volume = dict(values), 0, 0.0
    for name in moved:
        size = int(np.prod(masks[name].shape[1:]))
        own = numbers[:, start : start + size].reshape(masks[name].shape)
        if places[name] is not None:
            u, own = own, places[name](own)
            change = places[name].log_abs_det_jacobian(u, own)
            volume += jnp.where(masks[name], 0.0, change).reshape(len(own), -1).sum(-1)
        out[name] = jnp.where(masks[name], values[name], own)
        start += size
    return out, volume


def _seen(masks, moved, rows):
    return np.concatenate([masks[name].reshape(rows, -1) for name in moved]
                          or [np.zeros((rows, 0), bool)], 1)


def _integral(log_density, rows, size, bent):
    """(log of the integral over `size` numbers, (rows,); nodes of it, (nodes, rows, size), and
    their weights, (nodes, rows)): of a normal its mean alone."""
    if not bent:
        zero, density = np.zeros((rows, size)), jax.jit(log_density)
        along = np.broadcast_to(np.eye(size)[:, None], (size, rows, size))

        def bends(u):
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
        if np.all(error < STRAIGHT * (1 + np.abs(foretold))):
            log = found + 0.5 * size * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(curved)[1]
            return np.asarray(log), at[None], np.ones((1, rows))
    if size > 1:
        raise Unknown("several unseen numbers whose density is no normal")
    t = np.linspace(-1.0, 1.0, NODES) * (BOUNDED if bent else REACH)
    nodes = np.sinh(t)
    logs = np.asarray(jax.jit(jax.vmap(lambda u: log_density(jnp.full((rows, 1), u))))(nodes))
    if np.isposinf(logs).any():
        raise Unknown("what was drawn has rounded to an end at which a density is infinite")
    logs = np.nan_to_num(logs, nan=-np.inf) + np.log(np.cosh(t) * (t[1] - t[0]))[:, None]
    top = logs.max(0)
    share = np.exp(logs - top)
    whole = share.sum(0)
    return (np.log(whole) + top, np.broadcast_to(nodes[:, None, None], (NODES, rows, 1)),
            share / whole)
