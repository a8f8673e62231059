"""Loops whose links are linear and Gaussian, integrated out.

With s_t all sites of step t,

    s_t = Σ_l A_tl s_{t−l} + b_t + ε_t,   y_t = Σ_l C_tl s_{t−l} + d_t + ν_t

where A, b, C, d and the standard deviations of ε and ν may depend on parameters.
The carry of a step is as many steps as others depend on, the newest first (state_space.py).

Which loops are linear and Gaussian: every location is affine in the sites of its own step and of
some earlier ones (jaxpr/levels.py proves it), every scale is independent of the steps.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

from probml.dataset.grid import places_in_groups
from probml.errors import ModelError, counted
from probml.interface.functions.messages import run_in_part
from probml.interface.functions.steps.loop_sites import LoopSites
from probml.interface.functions.steps.programs import (
    INDEPENDENT_OF_STEPS,
    NotLinearGaussian,
    StepProgram,
    Uses,
    gaussian_records,
)
from probml.interface.functions.steps.state_space import (
    MOST_STATE_ELEMENTS,
    Affine,
    Carried,
    Chain,
    Step,
    chain_of,
)
from probml.jaxpr import levels
from probml.jaxpr.cells import NONE, cells
from probml.typing import PyTree, SiteValues


class Linear(NamedTuple):
    """A linear Gaussian loop, as a run of the function shows it.

    Attributes:
        program: (site, kind): "loc", flat, of a step or of what looks at steps; "root" of the
            covariance of the former; "scale", "value" and "mask", flat, of the latter, and what
            stands "beside" its density; "log" of all else that is observed.
        times: what depends on steps → the last on which each of its numbers does.
        lags: how many steps are a state: no step depends on earlier ones.
        sizes: name of all steps → numbers of one, and its shape.
        blocked: the sites that are hidden from handlers outside.
    """

    program: StepProgram
    times: Mapping[str, np.ndarray]
    lags: int
    sizes: Mapping[str, tuple[int, tuple[int, ...]]]
    blocked: frozenset[str]

    def at(self, site: str, kind: str) -> int:
        return self.program.owners.index((site, kind))


def find_linear_loops(call: Callable[[], object], steps: LoopSites,
                      given: SiteValues) -> Linear:
    """A function's loops as one linear chain.

    Raises:
        ModelError: they are none: a step, or what looks at one, is not normal about a location
            affine in steps with a spread of its own; a step looks forward; a state has many
            numbers.
    """
    places, groups = steps.places, steps.groups
    if len({len(names) for names in groups.values()}) != 1:
        raise NotLinearGaussian("the function has no loop, or several loops of different lengths")
    program = StepProgram.of(call, steps, given, gaussian_records)
    owners, still, others = program.owners, program.step_values, program.other_values
    sizes = {title: (still[names[0]].size, still[names[0]].shape)
             for title, names in groups.items()}
    uses = Uses.of(program.closed, owners, {
        i: name for i, name in enumerate(program.input_names) if name in places})
    found, computed = uses.found, uses.computed()
    users = [name for name, kind in owners if kind == "log" and (found[name, kind]
                                                                 or name in places)]
    numbers, times, back = sum(size for size, _ in sizes.values()), dict[str, np.ndarray](), 1
    for name in users:
        if not uses.is_linear(name):
            raise NotLinearGaussian(f"site '{name}' is not linear and Gaussian in the sites of a "
                                    f"loop")
        if name in others:
            raise NotLinearGaussian(f"site '{name}' is latent and depends on the sites of a loop, "
                                    f"but is not sampled in each step of the loop")
        if name in places:
            lags = [places[name][1] - places[step][1] for step in found[name, "loc"]]
            if min(lags, default=0) < 0:
                raise ModelError(f"site '{name}' depends on a later step of the loop. Let "
                                 f"'{name}' depend on earlier steps only")
            back = max(back, *lags, 1)
    for name, first, last in _step_windows(program, [name for name in users if name not in places]):
        times[name], back = np.maximum(last, first.min()), max(back, int((last - first).max()) + 1)
    if not times:
        raise NotLinearGaussian("no observed site depends on the sites of the loop")
    if numbers * back > MOST_STATE_ELEMENTS:
        raise ModelError(f"the observed sites depend on {counted(back, 'step')} of the loop with "
                         f"{counted(numbers, 'element')} each, {numbers * back} in all, more "
                         f"than the limit of {MOST_STATE_ELEMENTS}. Let them depend on fewer "
                         f"earlier steps")
    linear = program.only([i for i, (name, kind) in enumerate(owners)
                           if (kind in ("loc", *INDEPENDENT_OF_STEPS) if name in users
                               else kind == "log" and name not in others)])
    return Linear(linear, times, back, sizes,
                  frozenset({name for name, _ in linear.owners} | computed))


def _step_windows(program: StepProgram, names: Sequence[str]
                  ) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """The first and the last step on which each number of the locations of some sites depends; of
    one that depends on none, the last is before the first."""
    places, count = program.steps.places, max(map(len, program.steps.groups.values()))
    part, inputs = levels.restrict(program.closed,
                                   [program.owners.index((name, "loc")) for name in names])
    tracked = {k: program.input_names[i] for k, i in enumerate(inputs)
               if program.input_names[i] in places}
    for name, var, cell_map in zip(names, part.out_avals, cells(part, tracked), strict=True):
        first, last = np.full(var.size, count - 1), np.zeros(var.size, int)
        for step, where in cell_map.items():
            t, depends = places[step][1], where != NONE
            first[depends] = np.minimum(first[depends], t)
            last[depends] = np.maximum(last[depends], t)
        yield name, first, last


def integrate_loops(call: Callable[[], object], steps: LoopSites,
                    given: SiteValues) -> tuple[PyTree, list[Chain]]:
    """Run a function, its loops integrated out: those outside hear of the parameters beside them
    and of one factor, what is observed. What the function returns, and the loops as one chain.

    Args:
        given: values of sites that are data, name → value.

    Raises:
        ModelError: they are not linear and Gaussian.
    """
    linear = find_linear_loops(call, steps, given)
    program, first = linear.program, next(iter(linear.times))
    result, values = run_in_part(call, linear.blocked, program.other_values, program.step_values,
                                 given)
    step = _steps(linear, values)
    chain = chain_of(step, _carry_of(step, linear.lags), len(steps.groups) > 1, linear.sizes, first)
    numpyro.factor(first, chain.evidence)
    return result, [chain]


def _columns(linear: Linear) -> dict[str, np.ndarray]:
    """Name of all steps → which of the numbers of a step are its own."""
    offsets = np.cumsum([0, *(size for size, _ in linear.sizes.values())])
    return {title: offsets[i] + np.arange(size)
            for i, (title, (size, _)) in enumerate(linear.sizes.items())}


def _carry_of(step: Step, back: int) -> Carried:
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
    values: SiteValues
    seats: Mapping[str, tuple[np.ndarray, np.ndarray]]
    width: int

    def parts(self, kind: str, paths: jax.Array) -> Iterator[tuple]:
        """The records of a kind, in parts: their numbers, steps, and places in these.

        Args:
            paths: the steps' values, (steps, numbers of one).
        """
        linear, sites = self.linear, {self.linear.at(name, kind): name for name in self.seats}
        steps = {title: paths[:, columns].reshape(len(paths), *linear.sizes[title][1])
                 for title, columns in _columns(linear).items()}
        for which, part in linear.program.parts(list(sites), {**self.values, **steps}):
            yield part, *(np.array([self.seats[sites[i]][side] for i in which]) for side in (0, 1))

    def filled(self, kind: str, paths: jax.Array, blank: float = 0.0) -> jax.Array:
        """The numbers of a kind of all steps, (steps, width)."""
        result = jnp.full((len(paths), self.width), blank)
        for part, steps, rows in self.parts(kind, paths):
            result = result.at[steps, rows].set(part)
        return result

    def located(self, paths: jax.Array) -> Affine:
        """The locations, in the steps before and in the step's own sites: every so many steps move
        at once that a location looks at one of them alone."""
        (count, d), n_groups = paths.shape, self.linear.lags + 1
        base, jvp = jax.linearize(lambda paths: self.filled("loc", paths), paths)
        t, lag = np.arange(count)[:, None], np.arange(n_groups)
        units = (t % n_groups == lag).T[:, None, :, None] * np.eye(d)[:, None]
        slopes = jax.vmap(jvp)(jnp.asarray(units.reshape(-1, count, d), paths.dtype))
        slope = slopes.reshape(n_groups, d, count, self.width)[(t - lag) % n_groups, :, t]
        slope = jnp.transpose(slope, (0, 3, 1, 2))
        return base, slope[:, :, 1:].reshape(count, self.width, (n_groups - 1) * d), slope[:, :, 0]


def _steps(linear: Linear, values: SiteValues) -> Step:
    """The numbers of all steps."""
    program, columns = linear.program, _columns(linear)
    count = len(next(iter(program.steps.groups.values())))
    d = sum(map(len, columns.values()))
    n_carried, zeros = d * linear.lags, jnp.zeros((count, d))
    sites = _Sites(linear, values, {
        name: (np.full(len(columns[title]), i), columns[title])
        for name, (title, i) in program.steps.places.items()}, d)
    root = jnp.zeros((count, d, d))
    for part, steps, rows in sites.parts("root", zeros):
        root = root.at[steps[..., None], rows[..., None], rows[:, None]].set(part)
    step_of = np.concatenate(list(linear.times.values()))
    slot = places_in_groups(step_of)
    splits = np.cumsum([len(numbers) for numbers in linear.times.values()])[:-1]
    observed = _Sites(linear, values, dict(zip(linear.times, zip(
        np.split(step_of, splits), np.split(slot, splits), strict=True), strict=True)),
        int(slot.max()) + 1)
    rest = sum((part.sum() for _, part in program.parts(program.of_kind("log", "beside"), values)),
               jnp.zeros(()))
    shift = np.eye(n_carried, k=-d)  # what was a step before lies one further behind
    transition = (jnp.zeros((count, n_carried)), jnp.broadcast_to(shift, (count, *shift.shape)),
                  jnp.broadcast_to(jnp.eye(n_carried, d), (count, n_carried, d)))
    output = (jnp.zeros((count, d)), jnp.zeros((count, d, n_carried)),
              jnp.broadcast_to(jnp.eye(d), (count, d, d)))
    return Step(sites.located(zeros), transition, observed.located(zeros), output, root,
                observed.filled("scale", zeros, 1.0), observed.filled("value", zeros),
                observed.filled("mask", zeros), rest)
