"""Which loops are linear and Gaussian: every location affine in the sites of its own step and of
some before (jaxpr/levels.py proves it), every spread without a look at steps."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.errors import ModelError
from probml.interface.functions.messages import trace_isolated
from probml.interface.functions.steps.affine_sites import BESIDE, Bent, Uses, site_records
from probml.interface.functions.steps.names import Joined
from probml.interface.functions.steps.outside import Outside, Returned, outside_of
from probml.interface.functions.steps.programs import StepProgram
from probml.interface.functions.steps.state_space import WIDEST


class Linear(NamedTuple):
    """What a run by itself tells of a loop that is linear.

    Attributes:
        program: (site, kind): "loc", flat, of a step or of what looks at steps; "root" of the
            covariance of the former; "scale", "value" and "mask", flat, of the latter, and what
            stands "beside" its density; "log" of all else that is observed.
        times: what looks at steps → the last of them.
        back: how many steps are a state: so many that each looks at nothing before.
        sizes: name of all steps → numbers of one, and its shape.
        gone: what nobody outside hears of.
        outside: what looks at more steps than a state has, each of its numbers at one of them.
    """

    program: StepProgram
    times: Mapping[str, int]
    back: int
    sizes: Mapping[str, tuple[int, tuple[int, ...]]]
    gone: frozenset[str]
    outside: Outside | None = None

    def at(self, site: str, kind: str) -> int:
        return self.program.owners.index((site, kind))


def linear_of(call: Callable[[], Any], steps: Joined, given: Mapping[str, Any]) -> Linear:
    """A function's loops as one linear chain.

    Raises:
        ModelError: they are none: a step, or what looks at one, is not normal about a location
            affine in steps with a spread of its own; a step looks forward; a state has many
            numbers.
    """
    places, groups = steps.places, steps.groups
    if len({len(names) for names in groups.values()}) != 1:
        raise ModelError("it has no loop, or loops of different lengths")
    program = StepProgram.of(call, steps, given, site_records)
    owners, still, others = program.owners, program.still, program.others
    sizes = {title: (still[names[0]].size, still[names[0]].shape)
             for title, names in groups.items()}
    uses = Uses.of(program.closed, owners, {
        i: name for i, name in enumerate(program.takes) if name in places})
    found, computed = uses.found, uses.computed()
    near = [name for name, kind in owners if kind == "log" and (found[name, kind]
                                                                or name in places)]
    numbers = sum(size for size, _ in sizes.values())
    late = {name for name in near if name not in places and name not in others
            and _span(found, name, places) * numbers > WIDEST}
    times, back = {}, 1
    for name in near:
        if name in late:
            continue
        if not uses.is_linear(name):
            raise Bent(f"site '{name}' is not linear and Gaussian in steps of a loop")
        seen = {places[step][1] for step in found[name, "loc"]}
        if name in places:
            own = places[name][1]
            if seen and max(seen) > own:
                raise ModelError(f"site '{name}' depends on a later step")
            back = max(back, *(own - step for step in seen)) if seen else back
        elif name in others:
            raise ModelError(f"site '{name}' is latent and depends on steps, but is not a step "
                             f"itself")
        else:
            times[name] = max(seen)
            back = max(back, max(seen) - min(seen) + 1)
    if not times and not late:
        raise ModelError("no observed site depends on the steps")
    if numbers * back > WIDEST:
        raise ModelError("the observed sites depend on steps with many elements")
    outside = _outside(call, program, given, late) if late else None
    own = program.only([i for i, (name, kind) in enumerate(owners) if name not in late
                        and (kind in ("loc", *BESIDE) if name in near
                             else kind == "log" and name not in others)])
    return Linear(own, times, back, sizes,
                  frozenset({name for name, _ in own.owners} | computed | late), outside)


def _span(found: Mapping[tuple[str, str], Mapping], name: str, places: Mapping) -> int:
    """How many steps there are from the first to the last at which a location looks."""
    seen = [places[step][1] for step in found.get((name, "loc")) or ()]
    return max(seen) - min(seen) + 1 if seen else 0


def _outside(call: Callable[[], Any], program: StepProgram, given: Mapping[str, Any],
             late: Collection[str]) -> Outside:
    """What looks at all steps."""
    steps = program.steps
    paths = [jnp.zeros((len(names), *program.still[names[0]].shape))
             for names in steps.groups.values()]

    def run(paths: Sequence[jax.Array], values: Mapping[str, Any]) -> Mapping[str, Any]:
        single = steps.split_steps(dict(zip(steps.groups, paths, strict=True)))
        return trace_isolated(call, given, {**single, **values})

    count = len(paths[0])
    returned = Returned(tuple(range(len(paths))), (np.arange(count),) * len(paths), count)
    return outside_of(run, [returned], paths, program.others, late)
