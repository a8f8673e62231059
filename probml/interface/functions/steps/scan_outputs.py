"""Observations outside a scan that depend on what it returns, each element on one step.

The function is run once by itself, what scans return its inputs, for its program: jaxpr/levels.py
proves that a location is affine in these, jaxpr/cells.py at which step each of its numbers looks.
Then number e, seen at step t, is

    y_e = a_e + S_e r_t + ν,    r_t what the scan returns at step t

and one push of every number of a step, at all steps at once, gives all slopes S.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.errors import ModelError
from probml.interface.functions.steps.programs import (
    NotLinearGaussian,
    Owner,
    Uses,
    evaluate_results,
    gaussian_records,
    record_program,
)
from probml.jaxpr import levels
from probml.jaxpr.cells import NONE, cells, merge_cells
from probml.jaxpr.program import ClosedJaxpr
from probml.jaxpr.repeats.stored import by_elements
from probml.typing import SiteValues


class Returned(NamedTuple):
    """What one scan returns: the positions of its leaves among all paths, the steps along the first
    axis of each leaf, and the number of steps."""

    leaves: tuple[int, ...]
    at: tuple[np.ndarray, ...]
    steps: int


class Rows(NamedTuple):
    """The observed elements that depend on one scan.

    Attributes:
        at: the step, as the scan returns them; used: the leaves that they look at, by their
            place in the scan.
        loc: where what is returned is 0; slopes: in all numbers of `used` at that step.
        scale, value, mask: of each.
    """

    at: np.ndarray
    used: tuple[int, ...]
    loc: jax.Array
    slopes: jax.Array
    scale: jax.Array
    value: jax.Array
    mask: jax.Array


class Outside(NamedTuple):
    """The sites outside scans that depend on what these return.

    Attributes:
        closed: the paths, then `other_sites` by name → a result for each of `owners`.
        dependents: the sites that depend on paths; used_paths: the paths on which they depend;
            read_at: of each site, the scan and the step on which its numbers depend.
        blocked: what nobody outside hears of.
    """

    closed: ClosedJaxpr
    owners: tuple[tuple[str, str], ...]
    scans: tuple[Returned, ...]
    paths: tuple[jax.Array, ...]
    other_sites: tuple[str, ...]
    dependents: tuple[str, ...]
    used_paths: tuple[int, ...]
    read_at: tuple[tuple[np.ndarray, np.ndarray], ...]
    blocked: frozenset[str]

    def _program(self, kinds: Sequence[Owner], values: SiteValues) -> Callable:
        """The paths → results."""
        outputs, count = [self.owners.index(owner) for owner in kinds], len(self.paths)
        return lambda paths: evaluate_results(self.closed, outputs, lambda i: (
            paths[i] if i < count else values[self.other_sites[i - count]]))

    def unaffected_log_density(self, values: SiteValues) -> jax.Array:
        """The log density of what depends on paths but not on the steps."""
        kinds = [(name, "beside") for name in self.dependents if (name, "beside") in self.owners]
        return sum((part.sum() for part in self._program(kinds, values)(self.paths)),
                   jnp.zeros(())) if kinds else jnp.zeros(())

    def rows(self, values: SiteValues) -> list[Rows | None]:
        """For each scan the numbers that look at it.

        Args:
            values: of the unseen sites outside scans.
        """
        if not self.dependents:
            return [None] * len(self.scans)
        run = self._program([(name, "loc") for name in self.dependents], values)
        loc, jvp = jax.linearize(lambda *paths: jnp.concatenate(
            [own.ravel() for own in run(paths)]), *self.paths)
        noise = {kind: jnp.concatenate([jnp.ravel(own) for own in self._program(
            [(name, kind) for name in self.dependents], values)(self.paths)])
            for kind in ("scale", "value", "mask")}
        scan, step = (np.concatenate([own[side] for own in self.read_at]) for side in (0, 1))
        result: list[Rows | None] = []
        for k, returned in enumerate(self.scans):
            own = np.flatnonzero(scan == k)
            looked = tuple(i for i in returned.leaves if i in self.used_paths)
            if not len(own) or not looked:
                result.append(None)
                continue
            slopes = jnp.concatenate([self._slopes(i, jvp)[own] for i in looked], 1)
            result.append(Rows(step[own], tuple(returned.leaves.index(i) for i in looked), loc[own],
                               slopes, *(noise[kind][own] for kind in ("scale", "value", "mask"))))
        return result

    def _slopes(self, i: int, jvp: Callable) -> jax.Array:
        """The slopes of all numbers in the numbers of one step of a path, (numbers, numbers of a
        step)."""
        shape = self.paths[i].shape
        size = int(np.prod(shape[1:]))
        zeros = [jnp.zeros_like(path) for path in self.paths]

        units = jnp.eye(size).reshape(size, *shape[1:])
        return jax.vmap(lambda unit: jvp(*(
            jnp.broadcast_to(unit, shape) if j == i else zero for j, zero in enumerate(zeros))
        ))(units).T


def trace_outside(run: Callable[..., SiteValues],
                  scans: Sequence[Returned], paths: Sequence[jax.Array],
                  others: Mapping[str, jax.Array]) -> Outside:
    """The sites outside scans that depend on what these return.

    Args:
        run: (paths, values of other unseen sites) → the messages of the function.
        paths: of every leaf of every scan, some numbers of its shape.

    Raises:
        Bent: it is not normal about a location affine in what is returned.
        ModelError: one of its numbers looks at several steps.
    """
    program, owners = record_program(lambda *args: (run(*args), ()), gaussian_records, list(paths),
                                     dict(others))
    closed = by_elements(program)
    uses = Uses.of(closed, owners, {i: f"{i}" for i in range(len(paths))})
    found = uses.found
    dependents = tuple(name for name, kind in owners if kind == "log" and found[name, kind])
    for name in dependents:
        if name in others or not uses.is_linear(name):
            raise NotLinearGaussian(f"site '{name}' is not linear and Gaussian in the values that "
                                    f"a scan returns")
    looked = tuple(sorted({int(i) for name in dependents for i in found[name, "loc"]}))
    outside = Outside(closed, owners, tuple(scans), tuple(paths), tuple(sorted(others)),
                      dependents, looked, (), frozenset({*dependents, *uses.computed()}))
    return outside._replace(read_at=_steps_read(outside)) if dependents else outside


def _steps_read(outside: Outside) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """The scan and the step on which each element depends; some step where it depends on none."""
    paths, dependents = outside.paths, outside.dependents
    part, takes = levels.restrict(outside.closed,
                                  [outside.owners.index((name, "loc")) for name in dependents])
    first = np.cumsum([0, *(returned.steps for returned in outside.scans)])
    numbers, default_step = {}, 0
    for k, returned in enumerate(outside.scans):
        for i, at in zip(returned.leaves, returned.at, strict=True):
            own = (first[k] + at).reshape(-1, *(1,) * (paths[i].ndim - 1))
            numbers[f"{i}"] = np.broadcast_to(own, paths[i].shape)
            default_step = int(own.flat[0]) if i == outside.used_paths[0] else default_step
    tracked = {k: f"{i}" for k, i in enumerate(takes) if i < len(paths)}
    places = []
    for name, var, own in zip(dependents, part.out_avals, cells(part, tracked, numbers),
                              strict=True):
        where = np.full(var.shape, NONE)
        for marks in own.values():
            if not merge_cells(where, marks):
                raise ModelError(f"an element of '{name}' depends on several steps of a scan, so "
                                 "the latent values of the scan cannot be integrated out. Let each "
                                 "element depend on one step")
        where = np.where(where == NONE, default_step, where).ravel()
        scan = np.searchsorted(first, where, side="right") - 1
        places.append((scan, where - first[scan]))
    return tuple(places)
