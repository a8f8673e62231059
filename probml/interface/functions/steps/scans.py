"""numpyro's scan whose continuous sites are linear and Gaussian, integrated out by Kalman's filter.

Let m be the numbers that a step hands on and that look at its sites, and z its sites, flat:

    z_t = L m_{t−1} + Z z_t + l + S ε_t,   m_t = M m_{t−1} + K z_t + k,
    y_t = C m_{t−1} + D z_t + d + ν_t

where L, Z (strictly triangular), l, S, … may look at parameters, inputs, and what a step hands on
beside m. The state is z_t, what of m_t is no copy of it, and what of m_{t−1} y_t looks at. The body
is traced once, whatever the number of steps; levels.py proves that it is affine.
Cost: as elimination/kalman.py has it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.contrib.control_flow.scan import PytreeTrace
from numpyro.primitives import Messenger

from probml.elimination.kalman import evidence as kalman_evidence
from probml.elimination.kalman import filter as kalman
from probml.elimination.kalman import paths as kalman_paths
from probml.errors import ModelError
from probml.interface.functions.loops import Loop, Summed, conditioned, loop_of, names_inside
from probml.interface.functions.steps.bodies import Body, Step, body_of, steps_of_body
from probml.interface.functions.steps.linear import WIDEST


class Scans(Messenger):
    """Integrates sites of scans out; keeps what it has met of them.

    Args:
        names: the continuous sites of scans that are unseen.
    """

    def __init__(self, names: Collection[str]):
        super().__init__()
        self.names, self.met = set(names), list[Scanned]()

    def process_message(self, msg: dict) -> None:
        if not self.names or msg["type"] != "control_flow" or len(msg["args"]) != 5:
            return
        if self.names.isdisjoint(names_inside(msg)):
            return
        body, init, xs, length, reverse = msg["args"]
        found = scanned(loop_of(body, init, jax.tree.map(lambda leaf: leaf[0], xs),
                                conditioned(msg)), init, xs, length, reverse)
        self.met.append(found)
        numpyro.factor(found.seen, kalman_evidence.evidence(found.system)[0] + found.beside)
        left = Summed(next(iter(found.sizes)), "continuous and unseen, stands in a scan and is "
                                               "integrated out there")
        carry = jax.tree.map(lambda _: left, init)
        msg["value"] = ((found.length, None, carry), (PytreeTrace({}), left))


class Scanned(NamedTuple):
    """A scan that is integrated out.

    Attributes:
        system: what Kalman's filter takes; centre: the state that is its 0.
        beside: log density of what is observed and looks at no site.
        sizes: site → numbers of a step, and its shape, in the order of a state.
        seen: a name of what is observed.
        length: steps; reverse: the last is the first.
    """

    system: kalman.System
    centre: jax.Array
    beside: jax.Array
    sizes: Mapping[str, tuple[int, tuple[int, ...]]]
    seen: str
    length: int
    reverse: bool

    def moments(self) -> dict[str, tuple[jax.Array, jax.Array]]:
        """Means and standard deviations of all steps given what is observed, (steps, *shape)."""
        found = kalman_evidence.smoothed(self.system)
        variance = jnp.diagonal(found.covariance[..., 0], axis1=1, axis2=2)
        spread = self._split(jnp.sqrt(jnp.maximum(variance, 0.0)))
        mean = self._split((found.mean + self.centre)[..., 0])
        return {name: (mean[name], spread[name]) for name in self.sizes}

    def path(self, key: jax.Array) -> dict[str, jax.Array]:
        """A draw of all steps given what is observed, (steps, *shape)."""
        return self._split((kalman_paths.draw(self.system, key) + self.centre)[..., 0])

    def _split(self, flat: jax.Array) -> dict[str, jax.Array]:
        flat, out, start = (flat[::-1] if self.reverse else flat), {}, 0
        for name, (size, shape) in self.sizes.items():
            out[name] = flat[:, start : start + size].reshape(len(flat), *shape)
            start += size
        return out


def scanned(loop: Loop, init: Any, xs: Any, length: int | None, reverse: bool) -> Scanned:
    """A scan, its sites integrated out.

    Raises:
        ModelError: it is not linear and Gaussian in its sites; nothing in it is observed; a state
            has many numbers.
    """
    if loop.hidden:
        raise ModelError(f"site '{loop.name}' in a scan is discrete")
    length = len(jax.tree.leaves(xs)[0]) if length is None else length
    init, xs = jax.tree.map(jnp.asarray, (init, xs))
    xs = jax.tree.map(lambda leaf: leaf[::-1], xs) if reverse else xs
    at = np.arange(length)[::-1] if reverse else np.arange(length)
    flat, tree = jax.tree.flatten(init)
    first = jax.tree.map(lambda leaf: leaf[0], xs)
    shaped = jax.eval_shape(lambda: jax.tree.leaves(loop.trace(init, first, 0, {
        name: jnp.zeros(loop.shapes[name]) for name in loop.drawn})[1]))
    flat = [leaf.astype(own.dtype) for leaf, own in zip(flat, shaped, strict=True)]
    body = body_of(loop, flat, tree, first)
    seen = [name for name, kind in body.owners if kind == "log" and name not in body.order]
    if not body.normal:
        raise ModelError("nothing that is observed in the scan looks at its sites")
    step = steps_of_body(body, flat, xs, at)
    system = _system(body, step, flat)
    return Scanned(kalman.about(system, system.mean), system.mean, step.rest.sum(),
                   {name: (int(np.prod(shape)), shape) for name, shape in body.shapes.items()},
                   seen[0], length, reverse)


def _system(body: Body, step: Step, init: Sequence[jax.Array]) -> kalman.System:
    """What Kalman's filter takes."""
    widths = {name: int(np.prod(shape)) for name, shape in body.shapes.items()}
    begins = dict(zip(body.order, np.cumsum([0, *widths.values()]).tolist(), strict=False))
    sites, own, held, where = sum(widths.values()), list[int](), list[int](), dict[int, int]()
    k = 0
    for i in body.moved:
        for j in range(init[i].size):
            if i in body.copies:
                where[k] = begins[body.copies[i]] + j
            else:
                where[k] = sites + len(own)
                own.append(k)
            held += [k] * (i in body.looked)
            k += 1
    width = sites + len(own) + len(held)
    if width > WIDEST:
        raise ModelError(f"a state of the scan has {width} numbers")
    (base, low, mix), (k0, m, kz) = step.loc, step.after
    if body.mixing:
        inverse = jnp.linalg.inv(jnp.eye(sites) - mix)
        base, low = (inverse @ base[..., None])[..., 0], inverse @ low
        push = inverse @ step.root
    else:
        push = step.root
    rows, count = np.array(own, int), len(base)
    take = jnp.broadcast_to(jnp.eye(k)[np.array(held, int)], (count, len(held), k))
    after, led = m + kz @ low, k0 + (kz @ base[..., None])[..., 0]
    lead = jnp.concatenate([low, after[:, rows], take], 1)
    offset = jnp.concatenate([base, led[:, rows], jnp.zeros((count, len(held)))], 1)
    push = jnp.concatenate([push, (kz @ push)[:, rows],
                            jnp.zeros((count, len(held), sites))], 1)
    noise = push @ jnp.swapaxes(push, 1, 2)
    pick = np.zeros((k, width))
    pick[list(where), list(where.values())] = 1.0
    start = jnp.concatenate([init[i].ravel() for i in body.moved]) if k else jnp.zeros(0)
    d, c, slope = step.seen
    slope = jnp.concatenate([slope, jnp.zeros((count, slope.shape[1], len(own))),
                             c[:, :, np.array(held, int)]], 2)
    mask = step.mask.astype(bool)
    lane = lambda leaf: leaf[..., None]  # noqa: E731
    return kalman.System(
        lane(lead[0] @ start + offset[0]), lane(noise[0]), lane(lead @ pick), lane(offset),
        lane(noise), lane(jnp.where(mask, step.value - d, 0.0)), lane(slope),
        lane(step.noise**2), lane(mask), None)
