"""Loops whose links are linear and Gaussian, integrated out: the Python loop as the chain that
Kalman's filter takes.

With s_t all sites of step t,

    s_t = Σ_l A_tl s_{t−l} + b_t + ε_t,   y_t = Σ_l C_tl s_{t−l} + d_t + ν_t

where A, b, C, d and the spreads of ε and ν may look at parameters (linear.py reads them). A state
is as many steps as are looked at, (s_t, s_{t−1}, …), of which those behind the first move along
without noise.
Cost: as elimination/kalman/filter.py has it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

from probml.elimination.kalman import evidence as kalman_evidence
from probml.elimination.kalman import filter as kalman
from probml.elimination.kalman import paths as kalman_paths
from probml.interface.functions.messages import run_in_part
from probml.interface.functions.steps.linear import Affine, Linear, affine, linear_of
from probml.interface.functions.steps.names import Joined
from probml.interface.functions.steps.outside import slots


def integrated(call: Callable[[], Any], steps: Joined, given: Mapping[str, Any]) -> Any:
    """Run a function, its loops integrated out: those outside hear of the parameters beside them
    and of one factor, what is observed.

    Args:
        given: values of sites that are data, name → value.

    Raises:
        ModelError: they are not linear and Gaussian.
    """
    linear = linear_of(call, steps, given)
    out, values = run_in_part(call, linear.gone, linear.others, linear.still, given)
    first = next(iter((*linear.times, *(linear.outside.near if linear.outside else ()))))
    numpyro.factor(first, evidence(linear, steps, values))
    return out


def evidence(linear: Linear, steps: Joined, values: Mapping[str, Any]) -> jax.Array:
    """log p of what is observed, steps integrated out.

    Args:
        values: of the sites beside the steps.
    """
    system, _ = _system(linear, steps, values)
    logs = [i for i, (_, kind) in enumerate(linear.owners) if kind in ("log", "beside")]
    beside = sum((part.offset.sum() for part in affine(linear, steps, logs, values)),
                 jnp.zeros(()))
    if linear.outside is not None:
        beside = beside + linear.outside.unaffected_log_density(values)
    return kalman_evidence.evidence(system)[0] + beside


def moments(linear: Linear, steps: Joined,
            values: Mapping[str, Any]) -> dict[str, tuple[jax.Array, jax.Array]]:
    """Means and standard deviations of all steps given what is observed, (steps, *shape) each."""
    system, centre = _system(linear, steps, values)
    found = kalman_evidence.smoothed(system)
    spread = jnp.sqrt(jnp.maximum(jnp.diagonal(found.covariance[..., 0], axis1=1, axis2=2), 0.0))
    return {title: (mean, _split(linear, spread)[title])
            for title, mean in _split(linear, (found.mean + centre)[..., 0]).items()}


def path(linear: Linear, steps: Joined, values: Mapping[str, Any],
         key: jax.Array) -> dict[str, jax.Array]:
    """A draw of all steps given what is observed, (steps, *shape)."""
    system, centre = _system(linear, steps, values)
    return _split(linear, (kalman_paths.draw(system, key) + centre)[..., 0])


def _split(linear: Linear, flat: jax.Array) -> dict[str, jax.Array]:
    """States (T, D) → name of all steps → (T, *shape)."""
    out, start = {}, 0
    for title, (size, shape) in linear.sizes.items():
        out[title] = flat[:, start : start + size].reshape(len(flat), *shape)
        start += size
    return out


def _system(linear: Linear, steps: Joined,
            values: Mapping[str, Any]) -> tuple[kalman.System, jax.Array]:
    """What Kalman's filter takes, and the state that is its 0: where the chain is expected to
    begin, so that a level far from 0 keeps its digits."""
    places, first, d = steps.places, {}, 0
    for title, (size, _) in linear.sizes.items():
        first[title], d = d, d + size
    count, back = len(next(iter(steps.groups.values()))), linear.back
    moves = jnp.zeros((count, back + 1, d, d))  # by how many steps they look back
    offset, root = jnp.zeros((count, d)), jnp.zeros((count, d, d))

    def flat(names: Sequence[str], kind: str) -> list[tuple[list[str], Affine]]:
        outputs = [linear.at(name, kind) for name in names]
        own = dict(zip(outputs, names, strict=True))
        return [([own[i] for i in part.outputs], part)
                for part in affine(linear, steps, outputs, values)]

    for title, names in steps.groups.items():
        rows = first[title] + np.arange(linear.sizes[title][0])
        for members, part in flat(names, "loc"):
            at = np.array([places[name][1] for name in members])
            offset = offset.at[at[:, None], rows].set(part.offset)
            for looked, slope in part.slopes:
                for other in dict.fromkeys(places[name][0] for name in looked):
                    columns = first[other] + np.arange(linear.sizes[other][0])
                    mine = np.array([places[name][0] == other for name in looked])
                    lag = at - np.array([places[name][1] for name in looked])
                    moves = moves.at[at[mine][:, None, None], lag[mine][:, None, None],
                                     rows[:, None], columns].add(slope[mine])
        for members, part in flat(names, "root"):
            at = np.array([places[name][1] for name in members])
            root = root.at[at[:, None, None], rows[:, None], rows].set(part.offset)
    noise = root @ jnp.swapaxes(root, -1, -2)
    if len(steps.groups) > 1:  # sites of a step that look at each other
        mix = jnp.linalg.inv(jnp.eye(d) - moves[:, 0])
        moves, offset = mix[:, None] @ moves, (mix @ offset[..., None])[..., 0]
        noise = mix @ noise @ jnp.swapaxes(mix, -1, -2)
    whole, rest = d * back, d * (back - 1)
    along = jnp.eye(rest, whole)  # what was a step before lies one further behind
    transition = jnp.concatenate(
        [jnp.moveaxis(moves[:, 1:], 1, 2).reshape(count, d, whole),
         jnp.broadcast_to(along, (count, rest, whole))], 1)
    offset = jnp.pad(offset, ((0, 0), (0, rest)))
    noise = jnp.pad(noise, ((0, 0), (0, rest), (0, rest)))
    sight = _sight(linear, steps, first, (count, d), flat)
    if linear.outside is not None:
        sight = _with_outside_rows(sight, linear, first, values)
    value, slope, variance, seen = sight
    lane = lambda leaf: leaf[..., None]  # noqa: E731
    system = kalman.System(lane(offset[0]), lane(noise[0]), lane(transition), lane(offset),
                           lane(noise), lane(value), lane(slope), lane(variance), lane(seen), None)
    centre = lane(jnp.tile(offset[0, :d], back))
    return kalman.about(system, centre), centre


def _sight(linear: Linear, steps: Joined, first: Mapping[str, int], shape: tuple[int, int],
           flat: Callable) -> tuple[jax.Array, ...]:
    """What is seen of each step: value less its location at s = 0, slope, variance, whether it is
    seen; (T, m, ...)."""
    places, (count, d) = steps.places, shape
    sizes = {name: linear.closed.out_avals[linear.at(name, "loc")].size for name in linear.times}
    used, begins = [0] * count, {}
    for name, at in linear.times.items():
        begins[name] = used[at]
        used[at] += sizes[name]
    width = max(used)
    value, slope = jnp.zeros((count, width)), jnp.zeros((count, width, d * linear.back))
    variance, seen = jnp.ones((count, width)), jnp.zeros((count, width), bool)
    for size in dict.fromkeys(sizes.values()):
        names = [name for name in linear.times if sizes[name] == size]

        def index(members: Sequence[str], size: int = size) -> tuple[np.ndarray, np.ndarray]:
            at = np.array([linear.times[name] for name in members])
            return at[:, None], np.array([begins[name] for name in members])[:, None] + np.arange(
                size)

        for members, part in flat(names, "value"):
            value = value.at[index(members)].add(part.offset)
        for members, part in flat(names, "scale"):
            variance = variance.at[index(members)].set(part.offset**2)
        for members, part in flat(names, "mask"):
            seen = seen.at[index(members)].set(part.offset)
        for members, part in flat(names, "loc"):
            at, rows = index(members)
            value = value.at[at, rows].add(-part.offset)
            for looked, own in part.slopes:
                for other in dict.fromkeys(places[name][0] for name in looked):
                    columns = first[other] + np.arange(linear.sizes[other][0])
                    mine = np.array([places[name][0] == other for name in looked])
                    lag = at[mine, 0] - np.array([places[name][1] for name in looked])[mine]
                    slope = slope.at[at[mine][..., None], rows[mine][..., None],
                                     columns + d * lag[:, None, None]].add(own[mine])
    return jnp.where(seen, value, 0.0), slope, variance, seen


def _with_outside_rows(sight: tuple[jax.Array, ...], linear: Linear, first: Mapping[str, int],
                       values: Mapping[str, Any]) -> tuple[jax.Array, ...]:
    """The observations of each step, and with them those that depend on all steps and are outside
    the loop."""
    rows, = linear.outside.rows(values)
    count, titles = len(sight[0]), list(linear.sizes)
    slot, width = slots(rows.at, count)
    columns = np.concatenate([first[titles[i]] + np.arange(linear.sizes[titles[i]][0])
                              for i in rows.looked])
    value, slope, variance, seen = (
        jnp.pad(own, ((0, 0), (0, width), *((0, 0),) * (own.ndim - 2)), constant_values=blank)
        for own, blank in zip(sight, (0.0, 0.0, 1.0, False), strict=True))
    where, mask = (rows.at, sight[0].shape[1] + slot), rows.mask.astype(bool)
    return (value.at[where].set(jnp.where(mask, rows.value - rows.loc, 0.0)),
            slope.at[where[0][:, None], where[1][:, None], columns].set(rows.slopes),
            variance.at[where].set(rows.scale**2), seen.at[where].set(mask))
