"""numpyro's scan whose continuous sites are linear and Gaussian, integrated out by Kalman's filter.

Let m be the numbers that a step hands on and that look at its sites, and z its sites, flat:

    z_t = L m_{t−1} + Z z_t + l + S ε_t,   m_t = M m_{t−1} + K z_t + k,
    y_t = C m_{t−1} + D z_t + d + ν_t

where L, Z (strictly triangular), l, S, … may look at parameters, inputs, and what a step hands on
beside m. The state is z_t, what of m_t is no copy of it, and what of m_{t−1} y_t looks at. The body
is traced once, whatever the number of steps; levels.py proves that it is affine. What is observed
outside and looks at what the scan returns stands beside y_t (outside.py).
Cost: as elimination/kalman/filter.py has it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow.scan import PytreeTrace
from numpyro.primitives import Messenger

from probml.elimination.kalman import evidence as kalman_evidence
from probml.elimination.kalman import filter as kalman
from probml.elimination.kalman import paths as kalman_paths
from probml.errors import ModelError
from probml.interface.functions.loops import Loop, Summed, conditioned, loop_of, names_inside
from probml.interface.functions.messages import run_in_part, trace_isolated
from probml.interface.functions.steps.affine_sites import Bent
from probml.interface.functions.steps.bodies import Body, Step, body_of, steps_of_body
from probml.interface.functions.steps.linear import WIDEST
from probml.interface.functions.steps.outside import Outside, Returned, Rows, outside_of, slots


def scans_integrated(call: Callable[[], Any], names: Collection[str],
                     given: Mapping[str, Any]) -> tuple[Any, list["Scanned"]]:
    """Run a function, the sites of its scans integrated out: those outside hear of the other
    parameters, of what looks at no scan, and of one factor a scan. What the function returns, and
    the scans that were met.

    Args:
        names: the continuous sites of scans that are unseen; given: values of sites that are data.

    Raises:
        Bent: they are not linear and Gaussian, or what looks at them is not.
        ModelError: nothing that is observed looks at them; a number looks at several steps; a state
            has many numbers.
    """
    outside = _outside(call, names, given)
    scans = _Scans(names, given, outside.paths)
    out, values = run_in_part(_within(scans, call), outside.gone, outside.others, {}, given)
    rows, beside = outside.rows(values), outside.unaffected_log_density(values)
    found, taken = [], set[str]()
    for k, (met, own) in enumerate(zip(scans.met, rows, strict=True)):
        one = scanned(*met, own)
        name = one.seen or outside.near[0]  # where nothing is observed inside
        name = f"{name} by {next(iter(one.sizes))}" if name in taken else name
        taken.add(name)
        log = kalman_evidence.evidence(one.system)[0] + one.beside
        numpyro.factor(name, log if k else log + beside)
        found.append(one)
    return out, found


def _outside(call: Callable[[], Any], names: Collection[str],
             given: Mapping[str, Any]) -> Outside:
    """What looks at scans from outside."""
    first = _Scans(names, given)
    trace = trace_isolated(_within(first, call), given, {})
    others = {name: jnp.asarray(site["value"]) for name, site in trace.items()
              if site["type"] == "sample" and not site["is_observed"]
              and not isinstance(site["fn"], dist.Unit)}

    def run(paths: Sequence[jax.Array], values: Mapping[str, Any]) -> Mapping[str, Any]:
        return trace_isolated(_within(_Scans(names, given, paths), call), given, values)

    return outside_of(run, first.returned, first.paths, others)


def _within(scans: "_Scans", call: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        with scans:
            return call()

    return run


class _Scans(Messenger):
    """Keeps scans from being run, and what they are.

    Args:
        paths: what they return, leaf by leaf, one after the other; where these run out, zeros.
    """

    def __init__(self, names: Collection[str], given: Mapping[str, Any],
                 paths: Sequence[jax.Array] = ()):
        super().__init__()
        self.names, self.given = set(names), given
        self.paths = list(paths)
        self.met = list[tuple]()
        self.returned = list[Returned]()

    def process_message(self, msg: dict) -> None:
        if not self.names or msg["type"] != "control_flow" or len(msg["args"]) != 5:
            return
        if self.names.isdisjoint(names_inside(msg)):
            return
        body, init, xs, length, reverse = msg["args"]
        first = jax.tree.map(lambda leaf: leaf[0], xs)
        loop = loop_of(body, init, first, {**conditioned(msg), **self.given})
        length = len(jax.tree.leaves(xs)[0]) if length is None else length
        self.met.append((loop, init, xs, length, reverse))
        left = Summed(next(iter(loop.drawn), ""), "continuous, latent, in a scan, and integrated "
                                                  "out there")
        carry, said = self._scan_results(loop, init, first, length, reverse, left)
        msg["value"] = ((length, None, carry), (PytreeTrace({}), said))

    def _scan_results(self, loop: Loop, init: Any, first: Any, length: int, reverse: bool,
                      left: Summed) -> tuple[Any, Any]:
        """The last carry of a scan, and its stacked outputs."""
        blank = {name: jnp.zeros(shape) for name, shape in loop.shapes.items()}
        init = jax.tree.map(jnp.asarray, init)
        carry, said = jax.eval_shape(lambda: loop.trace(init, first, 0, blank)[1:])
        start = sum(len(returned.leaves) for returned in self.returned)
        every, tree = jax.tree.flatten((carry, said))
        last, steps = np.array([0 if reverse else length - 1]), np.arange(length)
        at = tuple(last if i < len(jax.tree.leaves(carry)) else steps for i in range(len(every)))
        self.returned.append(Returned(tuple(range(start, start + len(every))), at, length))
        out = []
        for i, (leaf, own) in enumerate(zip(every, at, strict=True), start):
            if i == len(self.paths):
                self.paths.append(jnp.zeros((len(own), *leaf.shape)))
            path = self.paths[i][0] if own is last else self.paths[i]
            out.append(path if jnp.issubdtype(leaf.dtype, jnp.floating) else left)
        return jax.tree.unflatten(tree, out)


class Scanned(NamedTuple):
    """A scan that is integrated out.

    Attributes:
        system: what Kalman's filter takes; centre: the state that is its 0.
        beside: log density of what is observed and looks at no site.
        sizes: site → numbers of a step, and its shape, in the order of a state.
        seen: a name of what is observed inside; None: nothing is.
        length: steps; reverse: the last is the first.
    """

    system: kalman.System
    centre: jax.Array
    beside: jax.Array
    sizes: Mapping[str, tuple[int, tuple[int, ...]]]
    seen: str | None
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


def scanned(loop: Loop, init: Any, xs: Any, length: int, reverse: bool,
            rows: Rows | None) -> Scanned:
    """A scan, its sites integrated out.

    Args:
        rows: what looks at it from outside.

    Raises:
        Bent: it is not linear and Gaussian in its sites.
        ModelError: nothing that is observed looks at it; a state has many numbers.
    """
    if loop.hidden:
        raise Bent(f"site '{loop.name}' in a scan is discrete")
    init, xs = jax.tree.map(jnp.asarray, (init, xs))
    xs = jax.tree.map(lambda leaf: leaf[::-1], xs) if reverse else xs
    at = np.arange(length)[::-1] if reverse else np.arange(length)
    flat, tree = jax.tree.flatten(init)
    first = jax.tree.map(lambda leaf: leaf[0], xs)
    shaped = jax.eval_shape(lambda: jax.tree.leaves(loop.trace(init, first, 0, {
        name: jnp.zeros(loop.shapes[name]) for name in loop.drawn})[1]))
    flat = [leaf.astype(own.dtype) for leaf, own in zip(flat, shaped, strict=True)]
    body = body_of(loop, flat, tree, first, () if rows is None else rows.looked)
    seen = [name for name, kind in body.owners if kind == "log" and name not in body.order]
    if not body.normal and rows is None:
        raise ModelError("no observed site depends on the sites of the scan")
    step = steps_of_body(body, flat, xs, at)
    if rows is not None:
        step = _with_rows(step, rows, at)
    system = _system(body, step, flat)
    return Scanned(kalman.about(system, system.mean), system.mean, step.rest.sum(),
                   {name: (int(np.prod(shape)), shape) for name, shape in body.shapes.items()},
                   seen[0] if seen else None, length, reverse)


def _with_rows(step: Step, rows: Rows, at: np.ndarray) -> Step:
    """What is observed outside beside what is observed inside, at the step at which it looks."""
    when = np.argsort(at)[rows.at]  # in the order in which steps are taken
    slot, width = slots(when, len(at))
    count = len(at)

    def placed(own: jax.Array, blank: float) -> jax.Array:
        return jnp.full((count, width, *own.shape[1:]), blank).at[when, slot].set(own)

    value, m, z = (own[when] for own in step.said)
    seen = (rows.loc + (rows.slopes * value).sum(-1), (rows.slopes[..., None] * m).sum(1),
            (rows.slopes[..., None] * z).sum(1))
    beside = lambda one, other: jnp.concatenate([one, other], 1)  # noqa: E731
    return step._replace(
        seen=tuple(beside(one, placed(own, 0.0))
                   for one, own in zip(step.seen, seen, strict=True)),
        noise=beside(step.noise, placed(rows.scale, 1.0)),
        value=beside(step.value, placed(rows.value, 0.0)),
        mask=beside(step.mask, placed(rows.mask, 0.0)))


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
        raise ModelError(f"a state of the scan has {width} elements")
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
