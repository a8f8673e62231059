"""numpyro's scan whose continuous sites are linear and Gaussian, integrated out by Kalman's filter.

The body is traced once, whatever the number of steps; levels.py proves that it is affine. What is
observed outside and depends on what the scan returns stands together with what is observed inside
(scan_outputs.py, state_space.py).

The body of numpyro's scan as a linear Gaussian step: its program, proven affine in its sites and
in what is handed on and looks at them, and every step's numbers (formulas: state_space.py).
"""

import itertools
import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.primitives import Messenger

from probml.errors import ModelError, listed
from probml.interface.functions.discrete_scans import (
    Loop,
    SummedOut,
    conditioned_values,
    loop_of,
    sites_inside,
)
from probml.interface.functions.messages import run_in_part, trace_isolated
from probml.interface.functions.scan_starts import ScanCall
from probml.interface.functions.steps.programs import (
    NotLinearGaussian,
    Uses,
    evaluate_results,
    gaussian_records,
    latent_values,
    record_program,
)
from probml.interface.functions.steps.scan_outputs import Outside, Returned, Rows, trace_outside
from probml.interface.functions.steps.state_space import Affine, Carried, Chain, Step, chain_of
from probml.jaxpr import levels
from probml.jaxpr.program import ClosedJaxpr
from probml.typing import PyTree, SiteValues


class Body(NamedTuple):
    """The program of one step: leaves of what is handed on, the sites in `order`, inputs →
    `owners`, then what it hands on, and what it returns.

    Attributes:
        site_leaves: the leaves that look at sites; copies: of these, leaf → site that it is.
        previous: leaf → leaf of the step before that it is.
        used: the leaves at which what is observed looks, or what it returns and is `told`.
        normal: what is observed and looks at them or at sites.
        mixing: whether sites of a step look at each other.
    """

    closed: ClosedJaxpr
    owners: tuple[tuple[str, str], ...]
    order: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]
    leaves: int
    site_leaves: tuple[int, ...]
    copies: Mapping[int, str]
    previous: Mapping[int, int]
    used: tuple[int, ...]
    normal: tuple[str, ...]
    mixing: bool
    told: tuple[int, ...]

    @property
    def sizes(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """Site → numbers of a step, and its shape."""
        return {name: (math.prod(shape), shape) for name, shape in self.shapes.items()}

    def carried(self, init: Sequence[jax.Array]) -> Carried:
        """The numbers that a step hands on and that depend on sites.

        Args:
            init: leaves of what the first step takes.
        """
        def firsts(names: Sequence[Hashable], sizes: Sequence[int]) -> dict[Hashable, int]:
            return dict(zip(names, itertools.accumulate((0, *sizes)), strict=False))

        sites = firsts(self.order, [self.sizes[name][0] for name in self.order])
        leaves = firsts(self.site_leaves, [init[i].size for i in self.site_leaves])

        def numbers(mapping: Mapping[int, object], offsets: Mapping[Hashable, int]) -> np.ndarray:
            return np.concatenate([np.zeros(0, int), *(
                offsets[mapping[i]] + np.arange(init[i].size) if i in mapping
                else np.full(init[i].size, -1) for i in self.site_leaves)])

        return Carried(
            jnp.concatenate([jnp.zeros(0), *(init[i].ravel() for i in self.site_leaves)]),
            numbers(self.copies, sites), numbers(self.previous, leaves),
            numbers({i: i for i in self.used}, leaves) >= 0)


def body_of(loop: Loop, init: Sequence[jax.Array], tree: object, first: object,
            told_of: Sequence[int] = ()) -> Body:
    """The program of a step.

    Args:
        told_of: the leaves of what it hands on and returns, one after the other, at which something
            outside looks.

    Raises:
        Bent: it is not linear and Gaussian in its sites.
    """
    def run(carry: list, sites: Mapping, x: object, t: object) -> tuple[dict, list]:
        trace, *handed = loop.trace(jax.tree.unflatten(tree, carry), x, t, sites)
        return trace, jax.tree.leaves(handed)

    order = tuple(sorted(loop.shapes))
    shapes = {name: loop.shapes[name] for name in order}
    zeros = {name: jnp.zeros(shapes[name]) for name in order}
    closed, owners = record_program(run, gaussian_records, list(init), zeros, first, 0)
    count, n = len(init), len(owners)
    depends = levels.dependencies(closed)
    sites, site_leaves = set(range(count, count + len(order))), set[int]()
    while True:
        reached = {i for i in range(count) if not depends[n + i].isdisjoint(sites | site_leaves)}
        if reached == site_leaves:
            break
        site_leaves = reached
    names = {i: ("handed", i) if i < count else ("site", order[i - count])
             for i in (*site_leaves, *sites)}
    handed = [("handed", i) for i in range(len(closed.jaxpr.outvars) - n)]
    uses = Uses.of(closed, [*owners, *handed], names)
    found = uses.found
    for i in (*range(count), *told_of):
        if handed[i] in uses.curved:
            raise NotLinearGaussian("the carry of the scan (what is passed from step to step) is "
                                    "not a linear function of its sites")
    for name, kind in owners:
        if kind == "log" and (found[name, kind] or name in order) and not uses.is_linear(name):
            raise NotLinearGaussian(f"site '{name}' is not linear and Gaussian in the sites of the "
                                    f"scan")
    loc_uses = {name: found[name, kind] for name, kind in owners if kind == "loc"}
    outs, ins = closed.jaxpr.outvars, closed.jaxpr.invars
    return Body(
        closed, owners, order, shapes, count, tuple(sorted(site_leaves)),
        {i: order[j - count] for i in site_leaves for j in sites if outs[n + i] is ins[j]},
        {i: j for i in site_leaves for j in site_leaves if outs[n + i] is ins[j]},
        tuple(i for i in sorted(site_leaves) if any(("handed", i) in use for use in (
            *(use for name, use in loc_uses.items() if name not in order),
            *(found[handed[i]] for i in told_of)))),
        tuple(name for name, use in loc_uses.items() if use and name not in order),
        any(kind == "site" for name in order for kind, _ in loc_uses[name]),
        tuple(n + i for i in told_of))


def compute_steps(body: Body, init: Sequence[jax.Array], xs: object, ts: np.ndarray) -> Step:
    """Every step of a scan.

    Args:
        init: leaves of what the first step takes; xs: inputs, time first; ts: the steps' numbers.
    """
    n = len(body.owners)
    constant = [i for i in range(body.leaves) if i not in body.site_leaves]
    sizes = [init[i].size for i in body.site_leaves]
    widths = [int(np.prod(body.shapes[name])) for name in body.order]

    def parts(flat: jax.Array, counts: Sequence[int]) -> list[jax.Array]:
        return jnp.split(flat, np.cumsum(counts)[:-1]) if counts else []

    def run(outputs: Sequence[int], m: jax.Array, z: jax.Array, constants: Sequence, x: object,
            t: object) -> list[jax.Array]:
        carry = dict(zip(constant, constants, strict=True))
        carry |= {i: part.reshape(init[i].shape)
                  for i, part in zip(body.site_leaves, parts(m, sizes), strict=True)}
        sites = [part.reshape(body.shapes[name])
                 for name, part in zip(body.order, parts(z, widths), strict=True)]
        inputs = [*(carry[i] for i in range(body.leaves)), *sites, *jax.tree.leaves(x), t]
        return evaluate_results(body.closed, outputs, inputs.__getitem__)

    m, z = jnp.zeros(sum(sizes)), jnp.zeros(sum(widths))
    _, constants = jax.lax.scan(
        lambda constants, x_t: (run([n + i for i in constant], m, z, constants, *x_t), constants),
        [init[i] for i in constant], (xs, jnp.asarray(ts)), length=len(ts))

    def of(names: Sequence[str], kind: str) -> list[int]:
        return [body.owners.index((name, kind)) for name in names]

    groups = [of(body.order, "loc"), [n + i for i in body.site_leaves], of(body.normal, "loc"),
              list(body.told)]
    roots = of(body.order, "root")
    others = [of(body.normal, kind) for kind in ("scale", "value", "mask")]
    log_terms = [i for i, (name, kind) in enumerate(body.owners) if name not in body.order
                 and kind == ("beside" if name in body.normal else "log")]

    def joined(values: Sequence[jax.Array]) -> jax.Array:
        return jnp.concatenate([value.ravel() for value in values]) if values else jnp.zeros(0)

    def step_at(constants: list, x: object, t: object) -> Step:
        def affine(outputs: Sequence[int]) -> Affine:
            if not outputs:
                return jnp.zeros(0), jnp.zeros((0, m.size)), jnp.zeros((0, z.size))
            function = lambda m, z: joined(run(outputs, m, z, constants, x, t))  # noqa: E731
            return function(m, z), *jax.jacfwd(function, (0, 1))(m, z)

        stacked = [joined(run(outputs, m, z, constants, x, t)) for outputs in others]
        logs = joined(run(log_terms, m, z, constants, x, t)).sum() if log_terms else jnp.zeros(())
        root = jax.scipy.linalg.block_diag(*run(roots, m, z, constants, x, t))
        return Step._make((*map(affine, groups), root, *stacked, logs))

    return jax.vmap(step_at)(constants, xs, jnp.asarray(ts))


def integrate_scans(call: Callable[[], object], names: Collection[str],
                    given: SiteValues) -> tuple[PyTree, list[Chain]]:
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
    result, values = run_in_part(_within(scans, call), outside.blocked, outside.other_sites, {},
                                 given)
    rows, log_rest = outside.rows(values), outside.unaffected_log_density(values)
    chains, used_names = [], set[str]()
    for k, (scan_call, scan_rows) in enumerate(zip(scans.scans, rows, strict=True)):
        chain = chain_of_scan(*scan_call, scan_rows)
        name = chain.observed_site or outside.dependents[0]  # where nothing is observed inside
        name = f"{name} by {next(iter(chain.sizes))}" if name in used_names else name
        used_names.add(name)
        numpyro.factor(name, chain.evidence if k else chain.evidence + log_rest)
        chains.append(chain)
    return result, chains


def _trace_outside(call: Callable[[], object], names: Collection[str],
                   given: SiteValues) -> Outside:
    """What looks at scans from outside."""
    first = _KeepScans(names, given)
    trace = trace_isolated(_within(first, call), given, {})
    others = latent_values(trace)

    def run(paths: Sequence[jax.Array], values: SiteValues) -> SiteValues:
        return trace_isolated(_within(_KeepScans(names, given, paths), call), given, values)

    return trace_outside(run, first.returned, first.paths, others)


def _within(scans: "_KeepScans", call: Callable[[], object]) -> Callable[[], object]:
    def run() -> object:
        with scans:
            return call()

    return run


class _KeepScans(Messenger):
    """Keeps scans from being run, and what they are.

    Args:
        paths: what they return, leaf by leaf, one after the other; where these run out, zeros.
    """

    def __init__(self, names: Collection[str], given: SiteValues,
                 paths: Sequence[jax.Array] = ()):
        super().__init__()
        self.names, self.given = set(names), given
        self.paths = list(paths)
        self.scans = list[tuple[Loop, ScanCall]]()
        self.returned = list[Returned]()

    def process_message(self, msg: dict) -> None:
        call = ScanCall.of(msg)
        if not self.names or call is None or self.names.isdisjoint(sites_inside(msg)):
            return
        loop = loop_of(call, {**conditioned_values(msg), **self.given})
        self.scans.append((loop, call))
        msg["value"] = call.result(*self._scan_results(loop, call))

    def _scan_results(self, loop: Loop, call: ScanCall) -> tuple[PyTree, PyTree]:
        """The last carry of a scan, and its stacked outputs."""
        stand_in = SummedOut(next(iter(loop.shapes), ""),
                             "continuous and latent in a scan, where it is integrated out")
        init, length = jax.tree.map(jnp.asarray, call.init), call.length
        carry, outputs = jax.eval_shape(
            lambda: loop.trace(init, call.first_x, 0, loop.blank())[1:])
        start = sum(len(returned.leaves) for returned in self.returned)
        leaves, tree = jax.tree.flatten((carry, outputs))
        last, steps = np.array([0 if call.reverse else length - 1]), np.arange(length)
        when = tuple(last if i < len(jax.tree.leaves(carry)) else steps for i in range(len(leaves)))
        self.returned.append(Returned(tuple(range(start, start + len(leaves))), when, length))
        values = []
        for i, (leaf, times) in enumerate(zip(leaves, when, strict=True), start):
            if i == len(self.paths):
                self.paths.append(jnp.zeros((len(times), *leaf.shape)))
            path = self.paths[i][0] if times is last else self.paths[i]
            values.append(path if jnp.issubdtype(leaf.dtype, jnp.floating) else stand_in)
        return jax.tree.unflatten(tree, values)


def chain_of_scan(loop: Loop, call: ScanCall, rows: Rows | None) -> Chain:
    """A scan, its sites integrated out.

    Args:
        rows: the observations outside the scan that depend on what it returns.

    Raises:
        NotLinearGaussian: it is not linear and Gaussian in its sites.
        ModelError: no observation depends on it; a state has many elements.
    """
    if loop.discrete:
        raise NotLinearGaussian(f"site '{loop.name}' in a scan is discrete")
    init, xs = jax.tree.map(jnp.asarray, (call.init, call.xs))
    ts = np.arange(call.length)
    if call.reverse:
        xs, ts = jax.tree.map(lambda leaf: leaf[::-1], (xs, ts))
    flat, tree = jax.tree.flatten(init)
    first = jax.tree.map(lambda leaf: leaf[0], xs)
    specs = jax.eval_shape(lambda: jax.tree.leaves(loop.trace(init, first, 0, loop.blank())[1]))
    flat = [leaf.astype(spec.dtype) for leaf, spec in zip(flat, specs, strict=True)]
    body = body_of(loop, flat, tree, first, () if rows is None else rows.used)
    names = [name for name, kind in body.owners if kind == "log" and name not in body.order]
    if not body.normal and rows is None:
        raise ModelError(f"no observed site depends on {listed(body.order)} in a scan, so the data "
                         f"contain no information about them. Give observed values (obs=) to a "
                         f"site that depends on them, or remove them from the scan")
    step = compute_steps(body, flat, xs, ts)
    if rows is not None:
        step = step.with_rows(rows, ts)
    return chain_of(step, body.carried(flat), body.mixing, body.sizes, names[0] if names else None,
                    call.reverse)
