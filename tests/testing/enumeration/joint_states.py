"""The log densities of a model's rows at every joint state of their latent discrete sites, under
NumPyro's handlers; no plan, elimination or family is used."""

import itertools
import math
from collections.abc import Collection, Mapping
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro import handlers
from numpyro.distributions import biject_to, constraints

from enumeration.separable_integral import Unknown
from probml.language.language import Bound
from probml.language.markov_chain import MarkovChain
from probml.language.named_rows import ROWS
from probml.structure.recorder import log_weight_of, peel
from probml.typing import SiteValues

MAX_JOINT_STATES = 400  # joint states


class Joint:
    """Rows at every joint state of their latent discrete sites.

    Args:
        model: a bound model.
        params: every site outside rows → its value.
        data: site inside rows → (n, *cells), NaN where missing; sites may be absent.
        inputs: as the model takes them.
        fill: site inside rows → possible values, (n, *cells), as placeholders for missing cells.
        read: the sites on which others depend.
        soft: scalar discrete site → likelihoods of its states, (n, states).
        without: sites whose densities are left out, since they are set by an intervention.
        most: the greatest number of joint states.

    Attributes:
        n, a: rows, joint states. states: site → its cells in each, (a, *cells).
        size: latent numbers of a row, to be integrated over.
        possible: 0, or −∞ where a joint state contradicts an observed cell, (n · a,).
    """

    def __init__(self, model: Bound, params: SiteValues, data: SiteValues,
                 inputs: SiteValues, fill: Mapping[str, np.ndarray],
                 read: Collection[str], soft: Mapping[str, np.ndarray] = MappingProxyType({}),
                 without: Collection[str] = (), most: int = MAX_JOINT_STATES):
        n = len(next(iter(fill.values())))
        self.model, self.without = model, without
        first = _trace_abstractly(model, params, fill, inputs, n)
        self.inside = {name for name, message in first.items() if ROWS in message}
        self.finite = {name for name, message in first.items()
                       if name not in self.inside and states_of(message["fn"])}
        self.sites = sites = {name: first[name] for name in first if name in self.inside
                              and log_weight_of(first[name]["fn"]) is None}
        shown = {name: np.asarray(data.get(name, np.full(fill[name].shape, np.nan)), float)
                 for name in sites}
        holes = {name: np.isnan(value) for name, value in shown.items()}
        states = {name: states_of(sites[name]["fn"]) for name in sites if holes[name].any()}
        self.counted = [name for name, count in states.items() if count]
        self.moved = [name for name, count in states.items() if not count
                      and (name in read or peel(sites[name]["fn"])[0].event_shape)]
        self.states, a = joint_states({name: (states[name], *shown[name].shape[1:])
                                        for name in self.counted}, most)
        self.n, self.a = n, a

        def repeat_rows(array: np.ndarray):  # rows × joint states
            return np.repeat(np.asarray(array), a, 0)

        self.values = {name: np.where(repeat_rows(holes[name]), repeat_rows(fill[name]),
                                      repeat_rows(
            shown[name])).astype(fill[name].dtype) for name in sites}
        self.possible = np.zeros(n * a)
        for name in self.counted:
            self._set_states(name, repeat_rows(shown[name]), soft.get(name))
        self.given = {name: repeat_rows(value) for name, value in inputs.items()}
        self.masks = {name: repeat_rows(~holes[name]) for name in sites}
        # with values, so that bounds of supports are numbers
        met = _run(model, params, fill, inputs, n) if self.moved else first
        self.places = {name: _bijection(met[name]["fn"]) for name in self.moved}
        self.size = sum(int(np.prod(shown[name].shape[1:])) for name in self.moved)

    @property
    def bent(self) -> bool:
        """Whether some of the numbers that are integrated over have bounded support."""
        return any(place is not None for place in self.places.values())

    def _set_states(self, name: str, shown: np.ndarray, soft: np.ndarray | None) -> None:
        """Set the states of a site, and exclude joint states that contradict its observed cells.

        Args:
            shown: (n · a, *cells), NaN where missing. soft: (n, states) likelihoods.
        """
        codes = np.tile(self.states[name], (self.n,) + (1,) * (self.states[name].ndim - 1))
        self.values[name] = guess = values_of(self.sites[name]["fn"])[codes]
        wrong = ~np.isnan(shown) & (guess != shown)
        self.possible[wrong.reshape(len(wrong), -1).any(1)] = -np.inf
        if soft is not None:
            self.possible += np.log(np.repeat(soft, self.a, 0)[np.arange(len(codes)), codes])

    def at(self, params: SiteValues, numbers: ArrayLike) -> tuple[dict, dict]:
        """The values of all sites with the numbers inserted, and NumPyro's messages there; sites
        inside rows that are in `params`, (n, *cells), have these values."""
        full = _insert_numbers(self.values, self.masks, self.moved, self.places, numbers)[0]
        full |= {name: jnp.repeat(jnp.asarray(params[name]), self.a, 0) for name in self.sites
                 if name in params}
        return full, _run(self.model, params, full, self.given, self.n * self.a)

    def rows(self, params: SiteValues, numbers: ArrayLike) -> jax.Array:
        """log p(row, joint state, numbers), (n · a,)."""
        total = _insert_numbers(self.values, self.masks, self.moved, self.places, numbers)[1]
        full, found = self.at(params, numbers)
        total = jnp.zeros(self.n * self.a) + total
        for name in self.inside:
            if name not in self.sites:
                total += _log(found[name], np.zeros(self.n * self.a), None)
            elif name not in self.without:
                unseen_too = name in self.counted or name in self.moved
                total += _log(found[name], full[name], None if unseen_too else self.masks[name])
        # an observed or absent number has an independent standard normal, whose integral is 1
        return total + jnp.where(_seen(self.masks, self.moved, self.n * self.a),
                                 -0.5 * numbers**2 - 0.5 * np.log(2 * np.pi), 0.0).sum(-1)

    def outside(self, params: SiteValues) -> dict[str, jax.Array]:
        """log p of every site outside rows."""
        found = _run(self.model, params, self.values, self.given, self.n * self.a)
        return {name: jnp.sum(message["fn"].log_prob(message["value"]))
                for name, message in found.items() if ROWS not in message}

    def total(self, params: SiteValues, numbers: object) -> jax.Array:
        """log p(all rows, numbers, sites outside rows), joint states summed out."""
        logs = (self.rows(params, numbers) + self.possible).reshape(self.n, self.a)
        return jax.nn.logsumexp(logs, 1).sum() + sum(self.outside(params).values())


def joint_states(shapes: Mapping[str, tuple[int, ...]],
                  most: int) -> tuple[dict[str, np.ndarray], int]:
    """Site → its cells in every joint state, (a, *cells), and the number a of joint states.

    Args:
        shapes: site → (states of a cell, *cells).

    Raises:
        Unknown: there are more than `most`.
    """
    states = [shape[0] for shape in shapes.values()]
    sizes = [math.prod(shape[1:]) for shape in shapes.values()]
    if math.prod(map(pow, states, sizes)) > most:
        raise Unknown(f"the discrete latent variables have more than {most} joint states")
    joint = np.array(list(itertools.product(*map(range, np.repeat(states, sizes)))), int)
    columns = np.split(joint, np.cumsum(sizes)[:-1], 1)
    return {name: column.reshape(-1, *shape[1:])
            for (name, shape), column in zip(shapes.items(), columns, strict=False)}, len(joint)


def _trace_abstractly(model: Bound, params: Mapping[str, jax.Array], values: SiteValues,
                      inputs: Mapping[str, jax.Array], rows: int):
    """The sites of an abstract trace (jax.eval_shape)."""
    kept = {}

    def run(params: Mapping[str, jax.Array]):
        kept.update(_run(model, params, values, inputs, rows))
        return 0

    jax.eval_shape(run, dict(params))
    return kept


def _run(model: Bound, params: Mapping[str, jax.Array], values: SiteValues,
         inputs: Mapping[str, jax.Array], rows: int):
    """A trace at values, rows first, of parameters and sites inside rows."""
    first = handlers.seed(model, jax.random.key(0))
    at = {**params}
    for name, value in values.items():
        at[name] = value
    moved = handlers.substitute(first, substitute_fn=lambda m: _set_value(m, at))
    return {name: message for name, message in handlers.trace(moved).get_trace(
        rows=rows, **inputs).items() if message["type"] == "sample"}


def _set_value(message: dict, at: SiteValues):
    if message["type"] != "sample" or message["name"] not in at:
        return None
    value = jnp.asarray(at[message["name"]])
    return _in_numpyro_axes(message, value) if ROWS in message else value


def _axes(message: Mapping) -> tuple[list[int], list[int]]:
    """The batch axes of rows and of the plates inside them, the outermost first; and the other
    axes, of size 1."""
    rank = len(message["fn"].batch_shape)
    row = message[ROWS]
    plates = [frame.dim for frame in reversed(message["cond_indep_stack"]) if frame.dim != row]
    axes = [rank + dim for dim in (row, *plates)]
    return axes, [axis for axis in range(rank) if axis not in axes]


def _in_numpyro_axes(message: Mapping, value: jax.Array) -> jax.Array:
    """A value with the row axis first and then the plates from outermost to innermost, in NumPyro's
    order of axes."""
    axes, rest = _axes(message)
    value = value.reshape(*value.shape[: len(axes)], *(1,) * len(rest), *value.shape[len(axes) :])
    order = list(np.argsort([*axes, *rest]))
    return jnp.transpose(value, (*order, *range(len(order), value.ndim)))


def user_layout(message: Mapping, value: jax.Array) -> jax.Array:
    """A value in NumPyro's order of axes with the row axis first and then the plates."""
    axes, rest = _axes(message)
    value = jnp.transpose(value, (*axes, *rest, *range(len(axes) + len(rest), value.ndim)))
    return value.reshape(*value.shape[: len(axes)], *value.shape[len(axes) + len(rest) :])


def _support(fn: dist.Distribution) -> constraints.Constraint:
    """The values of a cell, traced or not; empty where they are infinitely many."""
    fn = peel(fn)[0]
    if isinstance(fn, MarkovChain):
        return np.arange(fn.states)
    return fn.enumerate_support(expand=False) if fn.has_enumerate_support else ()


def values_of(fn: dist.Distribution) -> np.ndarray:
    """The values of a cell; empty where they are infinitely many."""
    return np.ravel(np.asarray(_support(fn)))


def states_of(fn: dist.Distribution) -> int:
    """The number of values of a cell, 0 where they are infinitely many."""
    return len(_support(fn))


def _log(message: Mapping, value: ArrayLike, mask: np.ndarray | None) -> jax.Array:
    """log p of a site, (rows,), without masked cells; of a factor its value."""
    fn = message["fn"]
    if (weight := log_weight_of(fn)) is not None:
        return user_layout(message, weight.log_factor).reshape(len(value), -1).sum(-1)
    placed = _in_numpyro_axes(message, jnp.asarray(value))
    while isinstance(fn, dist.Independent):
        fn = fn.base_dist
    if isinstance(getattr(fn, "base_dist", fn), MarkovChain):
        log = _path(getattr(fn, "base_dist", fn), placed)
    else:
        log = fn.log_prob(placed)
    log = user_layout(message, jnp.broadcast_to(log, placed.shape[: log.ndim]))
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


def _bijection(fn: dist.Distribution) -> dist.Distribution:
    """The bijection from the real numbers to the support of a site; None: the support is real."""
    support = peel(fn)[0].support
    support = getattr(support, "base_constraint", support)
    return None if support is constraints.real else biject_to(support)


def _insert_numbers(values: SiteValues, masks: Mapping[str, np.ndarray], moved: ArrayLike,
                    places: ArrayLike, numbers: jax.Array):
    """(the values of all sites with the integrated numbers inserted, the log Jacobian)."""
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


def _seen(masks: Mapping[str, np.ndarray], moved: ArrayLike, rows: int):
    return np.concatenate([masks[name].reshape(rows, -1) for name in moved]
                          or [np.zeros((rows, 0), bool)], 1)
