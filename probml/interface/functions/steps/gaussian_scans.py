"""numpyro's scan whose continuous sites are linear and Gaussian, integrated out by Kalman's filter.

The body is traced once, whatever the number of steps; levels.py proves that it is affine. What is
observed outside and depends on what the scan returns stands together with what is observed inside
(scan_outputs.py, state_space.py).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.primitives import Messenger

from probml.errors import ModelError
from probml.interface.functions.discrete_scans import (
    Loop,
    SummedOut,
    conditioned_values,
    loop_of,
    sites_inside,
)
from probml.interface.functions.messages import run_in_part, trace_isolated
from probml.interface.functions.scan_starts import ScanCall
from probml.interface.functions.steps.affine_sites import NotLinearGaussian
from probml.interface.functions.steps.record import latent_values
from probml.interface.functions.steps.scan_bodies import body_of, compute_steps
from probml.interface.functions.steps.scan_outputs import Outside, Returned, Rows, trace_outside
from probml.interface.functions.steps.state_space import Chain, chain_of


def integrate_scans(call: Callable[[], Any], names: Collection[str],
                    given: Mapping[str, Any]) -> tuple[Any, list[Chain]]:
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
    outside = _trace_outside(call, names, given)
    scans = _KeepScans(names, given, outside.paths)
    out, values = run_in_part(_within(scans, call), outside.gone, outside.others, {}, given)
    rows, beside = outside.rows(values), outside.unaffected_log_density(values)
    found, taken = [], set[str]()
    for k, (met, own) in enumerate(zip(scans.met, rows, strict=True)):
        one = chain_of_scan(*met, own)
        name = one.seen or outside.near[0]  # where nothing is observed inside
        name = f"{name} by {next(iter(one.sizes))}" if name in taken else name
        taken.add(name)
        numpyro.factor(name, one.evidence if k else one.evidence + beside)
        found.append(one)
    return out, found


def _trace_outside(call: Callable[[], Any], names: Collection[str],
                   given: Mapping[str, Any]) -> Outside:
    """What looks at scans from outside."""
    first = _KeepScans(names, given)
    trace = trace_isolated(_within(first, call), given, {})
    others = latent_values(trace)

    def run(paths: Sequence[jax.Array], values: Mapping[str, Any]) -> Mapping[str, Any]:
        return trace_isolated(_within(_KeepScans(names, given, paths), call), given, values)

    return trace_outside(run, first.returned, first.paths, others)


def _within(scans: "_KeepScans", call: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        with scans:
            return call()

    return run


class _KeepScans(Messenger):
    """Keeps scans from being run, and what they are.

    Args:
        paths: what they return, leaf by leaf, one after the other; where these run out, zeros.
    """

    def __init__(self, names: Collection[str], given: Mapping[str, Any],
                 paths: Sequence[jax.Array] = ()):
        super().__init__()
        self.names, self.given = set(names), given
        self.paths = list(paths)
        self.met = list[tuple[Loop, ScanCall]]()
        self.returned = list[Returned]()

    def process_message(self, msg: dict) -> None:
        call = ScanCall.of(msg)
        if not self.names or call is None or self.names.isdisjoint(sites_inside(msg)):
            return
        loop = loop_of(call, {**conditioned_values(msg), **self.given})
        self.met.append((loop, call))
        msg["value"] = call.result(*self._scan_results(loop, call))

    def _scan_results(self, loop: Loop, call: ScanCall) -> tuple[Any, Any]:
        """The last carry of a scan, and its stacked outputs."""
        left = SummedOut(next(iter(loop.shapes), ""),
                         "continuous, latent, in a scan, and integrated out there")
        init, length = jax.tree.map(jnp.asarray, call.init), call.length
        carry, outputs = jax.eval_shape(
            lambda: loop.trace(init, call.first_x, 0, loop.blank())[1:])
        start = sum(len(returned.leaves) for returned in self.returned)
        every, tree = jax.tree.flatten((carry, outputs))
        last, steps = np.array([0 if call.reverse else length - 1]), np.arange(length)
        at = tuple(last if i < len(jax.tree.leaves(carry)) else steps for i in range(len(every)))
        self.returned.append(Returned(tuple(range(start, start + len(every))), at, length))
        out = []
        for i, (leaf, own) in enumerate(zip(every, at, strict=True), start):
            if i == len(self.paths):
                self.paths.append(jnp.zeros((len(own), *leaf.shape)))
            path = self.paths[i][0] if own is last else self.paths[i]
            out.append(path if jnp.issubdtype(leaf.dtype, jnp.floating) else left)
        return jax.tree.unflatten(tree, out)


def chain_of_scan(loop: Loop, call: ScanCall, rows: Rows | None) -> Chain:
    """A scan, its sites integrated out.

    Args:
        rows: the observations outside the scan that depend on what it returns.

    Raises:
        NotLinearGaussian: it is not linear and Gaussian in its sites.
        ModelError: no observation depends on it; a state has many elements.
    """
    if loop.hidden:
        raise NotLinearGaussian(f"site '{loop.name}' in a scan is discrete")
    init, xs = jax.tree.map(jnp.asarray, (call.init, call.xs))
    at = np.arange(call.length)
    if call.reverse:
        xs, at = jax.tree.map(lambda leaf: leaf[::-1], (xs, at))
    flat, tree = jax.tree.flatten(init)
    first = jax.tree.map(lambda leaf: leaf[0], xs)
    shaped = jax.eval_shape(lambda: jax.tree.leaves(loop.trace(init, first, 0, loop.blank())[1]))
    flat = [leaf.astype(own.dtype) for leaf, own in zip(flat, shaped, strict=True)]
    body = body_of(loop, flat, tree, first, () if rows is None else rows.looked)
    seen = [name for name, kind in body.owners if kind == "log" and name not in body.order]
    if not body.normal and rows is None:
        raise ModelError("no observed site depends on the sites of the scan")
    step = compute_steps(body, flat, xs, at)
    if rows is not None:
        step = step.with_rows(rows, at)
    return chain_of(step, body.carried(flat), body.mixing, body.sizes, seen[0] if seen else None,
                    call.reverse)
