"""Loops whose links are linear and Gaussian, integrated out.

With s_t all sites of step t,

    s_t = Σ_l A_tl s_{t−l} + b_t + ε_t,   y_t = Σ_l C_tl s_{t−l} + d_t + ν_t

where A, b, C, d and the standard deviations of ε and ν may depend on parameters (linear_loops.py).
The carry of a step is as many steps as others depend on, the newest first (state_space.py).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

from probml.interface.functions.messages import run_in_part
from probml.interface.functions.steps.linear_loops import Linear, find_linear_loops
from probml.interface.functions.steps.loop_sites import LoopSites
from probml.interface.functions.steps.scan_outputs import slots_in_steps
from probml.interface.functions.steps.state_space import Affine, Carried, Chain, Step, chain_of


def integrate_loops(call: Callable[[], Any], steps: LoopSites,
                    given: Mapping[str, Any]) -> tuple[Any, list[Chain]]:
    """Run a function, its loops integrated out: those outside hear of the parameters beside them
    and of one factor, what is observed. What the function returns, and the loops as one chain.

    Args:
        given: values of sites that are data, name → value.

    Raises:
        ModelError: they are not linear and Gaussian.
    """
    linear = find_linear_loops(call, steps, given)
    program, first = linear.program, next(iter(linear.times))
    out, values = run_in_part(call, linear.gone, program.others, program.still, given)
    step = _steps(linear, values)
    chain = chain_of(step, _carried(step, linear.back), len(steps.groups) > 1, linear.sizes, first)
    numpyro.factor(first, chain.evidence)
    return out, [chain]


def _columns(linear: Linear) -> dict[str, np.ndarray]:
    """Name of all steps → which of the numbers of a step are its own."""
    ends = np.cumsum([0, *(size for size, _ in linear.sizes.values())])
    return {title: ends[i] + np.arange(size)
            for i, (title, (size, _)) in enumerate(linear.sizes.items())}


def _carried(step: Step, back: int) -> Carried:
    """As many steps as are handed on, the newest first; before the first one, where nothing depends
    on them, at its location."""
    d, (base, _, mix) = step.loc[0].shape[1], step.loc
    numbers, first = np.arange(d * back), np.arange(d * back) < d
    start = jnp.linalg.solve(jnp.eye(d) - mix[0], base[0])
    return Carried(jnp.tile(start, back), np.where(first, numbers, -1),
                   np.where(first, -1, numbers - d), numbers < d * (back - 1))


class _Sites(NamedTuple):
    """Some sites of a linear loop: site → the step of each of its numbers, and the place among
    `width` numbers of this.

    Attributes:
        values: of the other latent sites.
    """

    linear: Linear
    values: Mapping[str, Any]
    seats: Mapping[str, tuple[np.ndarray, np.ndarray]]
    width: int

    def parts(self, kind: str, paths: jax.Array) -> Iterator[tuple]:
        """The records of a kind, in parts: their numbers, steps, and places in these.

        Args:
            paths: the steps' values, (steps, numbers of one).
        """
        linear, own = self.linear, {self.linear.at(name, kind): name for name in self.seats}
        steps = {title: paths[:, at].reshape(len(paths), *linear.sizes[title][1])
                 for title, at in _columns(linear).items()}
        for which, part in linear.program.parts(list(own), {**self.values, **steps}):
            yield part, *(np.array([self.seats[own[i]][side] for i in which]) for side in (0, 1))

    def filled(self, kind: str, paths: jax.Array, blank: float = 0.0) -> jax.Array:
        """The numbers of a kind of all steps, (steps, width)."""
        out = jnp.full((len(paths), self.width), blank)
        for part, at, rows in self.parts(kind, paths):
            out = out.at[at, rows].set(part)
        return out

    def located(self, paths: jax.Array) -> Affine:
        """The locations, in the steps before and in the step's own sites: every so many steps move
        at once that a location looks at one of them alone."""
        (count, d), every = paths.shape, self.linear.back + 1
        base, push = jax.linearize(lambda paths: self.filled("loc", paths), paths)
        t, lag = np.arange(count)[:, None], np.arange(every)
        units = (t % every == lag).T[:, None, :, None] * np.eye(d)[:, None]
        pushed = jax.vmap(push)(jnp.asarray(units.reshape(-1, count, d), paths.dtype))
        slope = pushed.reshape(every, d, count, self.width)[(t - lag) % every, :, t]
        slope = jnp.transpose(slope, (0, 3, 1, 2))
        return base, slope[:, :, 1:].reshape(count, self.width, (every - 1) * d), slope[:, :, 0]


def _steps(linear: Linear, values: Mapping[str, Any]) -> Step:
    """The numbers of all steps."""
    program, columns = linear.program, _columns(linear)
    count = len(next(iter(program.steps.groups.values())))
    d = sum(map(len, columns.values()))
    handed, zeros = d * linear.back, jnp.zeros((count, d))
    sites = _Sites(linear, values, {
        name: (np.full(len(columns[title]), i), columns[title])
        for name, (title, i) in program.steps.places.items()}, d)
    root = jnp.zeros((count, d, d))
    for part, at, rows in sites.parts("root", zeros):
        root = root.at[at[..., None], rows[..., None], rows[:, None]].set(part)
    when = np.concatenate(list(linear.times.values()))
    place, width = slots_in_steps(when, count)
    ends = np.cumsum([len(own) for own in linear.times.values()])[:-1]
    seen = _Sites(linear, values, dict(zip(linear.times, zip(
        np.split(when, ends), np.split(place, ends), strict=True), strict=True)), width)
    rest = sum((part.sum() for _, part in program.parts(program.of_kind("log", "beside"), values)),
               jnp.zeros(()))
    shift = np.eye(handed, k=-d)  # what was a step before lies one further behind
    after = (jnp.zeros((count, handed)), jnp.broadcast_to(shift, (count, *shift.shape)),
             jnp.broadcast_to(jnp.eye(handed, d), (count, handed, d)))
    said = (jnp.zeros((count, d)), jnp.zeros((count, d, handed)),
            jnp.broadcast_to(jnp.eye(d), (count, d, d)))
    return Step(sites.located(zeros), after, seen.located(zeros), said, root,
                seen.filled("scale", zeros, 1.0), seen.filled("value", zeros),
                seen.filled("mask", zeros), rest)
