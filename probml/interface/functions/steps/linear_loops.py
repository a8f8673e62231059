"""Which loops are linear and Gaussian: every location is affine in the sites of its own step and of
some earlier ones (jaxpr/levels.py proves it), every scale is independent of the steps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from probml.errors import ModelError
from probml.interface.functions.steps.affine_sites import (
    INDEPENDENT_OF_STEPS,
    NotLinearGaussian,
    Uses,
    gaussian_records,
)
from probml.interface.functions.steps.loop_sites import LoopSites
from probml.interface.functions.steps.programs import StepProgram
from probml.interface.functions.steps.state_space import MOST_STATE_ELEMENTS
from probml.jaxpr import levels
from probml.jaxpr.cells import NONE, cells


class Linear(NamedTuple):
    """A linear Gaussian loop, as a run of the function shows it.

    Attributes:
        program: (site, kind): "loc", flat, of a step or of what looks at steps; "root" of the
            covariance of the former; "scale", "value" and "mask", flat, of the latter, and what
            stands "beside" its density; "log" of all else that is observed.
        times: what depends on steps → the last on which each of its numbers does.
        back: how many steps are a state: no step depends on earlier ones.
        sizes: name of all steps → numbers of one, and its shape.
        gone: the sites that are hidden from handlers outside.
    """

    program: StepProgram
    times: Mapping[str, np.ndarray]
    back: int
    sizes: Mapping[str, tuple[int, tuple[int, ...]]]
    gone: frozenset[str]

    def at(self, site: str, kind: str) -> int:
        return self.program.owners.index((site, kind))


def find_linear_loops(call: Callable[[], Any], steps: LoopSites,
                      given: Mapping[str, Any]) -> Linear:
    """A function's loops as one linear chain.

    Raises:
        ModelError: they are none: a step, or what looks at one, is not normal about a location
            affine in steps with a spread of its own; a step looks forward; a state has many
            numbers.
    """
    places, groups = steps.places, steps.groups
    if len({len(names) for names in groups.values()}) != 1:
        raise NotLinearGaussian("it has no loop, or loops of different lengths")
    program = StepProgram.of(call, steps, given, gaussian_records)
    owners, still, others = program.owners, program.still, program.others
    sizes = {title: (still[names[0]].size, still[names[0]].shape)
             for title, names in groups.items()}
    uses = Uses.of(program.closed, owners, {
        i: name for i, name in enumerate(program.takes) if name in places})
    found, computed = uses.found, uses.computed()
    near = [name for name, kind in owners if kind == "log" and (found[name, kind]
                                                                or name in places)]
    numbers, times, back = sum(size for size, _ in sizes.values()), dict[str, np.ndarray](), 1
    for name in near:
        if not uses.is_linear(name):
            raise NotLinearGaussian(f"site '{name}' is not linear and Gaussian in steps of a loop")
        if name in others:
            raise NotLinearGaussian(f"site '{name}' is latent and depends on steps, but is not a "
                                    f"step itself")
        if name in places:
            lags = [places[name][1] - places[step][1] for step in found[name, "loc"]]
            if min(lags, default=0) < 0:
                raise ModelError(f"site '{name}' depends on a later step")
            back = max(back, *lags, 1)
    for name, first, last in _step_windows(program, [name for name in near if name not in places]):
        times[name], back = np.maximum(last, first.min()), max(back, int((last - first).max()) + 1)
    if not times:
        raise NotLinearGaussian("no observed site depends on the steps")
    if numbers * back > MOST_STATE_ELEMENTS:
        raise ModelError("the observed sites depend on steps with many elements")
    own = program.only([i for i, (name, kind) in enumerate(owners)
                        if (kind in ("loc", *INDEPENDENT_OF_STEPS) if name in near
                            else kind == "log" and name not in others)])
    return Linear(own, times, back, sizes, frozenset({name for name, _ in own.owners} | computed))


def _step_windows(program: StepProgram, names: Sequence[str]
                  ) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Of each number of the locations of some sites the first and the last step on which it
    depends; of one that depends on none, the last is before the first."""
    places, count = program.steps.places, max(map(len, program.steps.groups.values()))
    part, takes = levels.restrict(program.closed,
                                  [program.owners.index((name, "loc")) for name in names])
    tracked = {k: program.takes[i] for k, i in enumerate(takes) if program.takes[i] in places}
    for name, var, found in zip(names, part.out_avals, cells(part, tracked), strict=True):
        first, last = np.full(var.size, count - 1), np.zeros(var.size, int)
        for step, where in found.items():
            t, depends = places[step][1], where != NONE
            first[depends] = np.minimum(first[depends], t)
            last[depends] = np.maximum(last[depends], t)
        yield name, first, last
