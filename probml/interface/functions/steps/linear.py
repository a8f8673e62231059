"""Which loops are linear and Gaussian: every location affine in the sites of its own step and of
some before (jaxpr/levels.py proves it), every spread without a look at steps; and their locations'
slopes. Alike steps are computed together (jaxpr/repeats/equivalent_results.py)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.errors import ModelError
from probml.interface.functions.messages import trace_isolated
from probml.interface.functions.steps.affine_sites import (
    BESIDE,
    Bent,
    Uses,
    site_records,
)
from probml.interface.functions.steps.names import Joined
from probml.interface.functions.steps.outside import Outside, Returned, outside_of
from probml.interface.functions.steps.recorded import latent_of, recorded
from probml.interface.functions.steps.state_space import WIDEST
from probml.jaxpr import levels
from probml.jaxpr.repeats.equivalent_results import EquivalentResults, equivalent_results
from probml.jaxpr.repeats.stored import by_elements


class Linear(NamedTuple):
    """What a run by itself tells of a loop that is linear.

    Attributes:
        closed: values of `takes` → a result for each of `owners`.
        owners: (site, kind): "loc", flat, of a step or of what looks at steps; "root" of the
            covariance of the former; "scale", "value" and "mask", flat, of the latter, and what
            stands "beside" its density; "log" of all else that is observed.
        times: what looks at steps → the last of them.
        back: how many steps are a state: so many that each looks at nothing before.
        sizes: name of all steps → numbers of one, and its shape.
        others: the other continuous sites that are unseen.
        gone: what nobody outside hears of.
        outside: what looks at more steps than a state has, each of its numbers at one of them.
    """

    closed: Any
    takes: tuple[str, ...]
    owners: tuple[tuple[str, str], ...]
    times: Mapping[str, int]
    back: int
    sizes: Mapping[str, tuple[int, tuple[int, ...]]]
    still: Mapping[str, jax.Array]
    others: tuple[str, ...]
    gone: frozenset[str]
    outside: Outside | None = None

    def at(self, site: str, kind: str) -> int:
        return self.owners.index((site, kind))


class Affine(NamedTuple):
    """Alike results: which, their values where all steps are 0, and for each place that looks at a
    step the sites there and the slopes, (results, numbers, numbers of the step)."""

    outputs: tuple[int, ...]
    offset: jax.Array
    slopes: tuple[tuple[tuple[str, ...], jax.Array], ...]


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
    free = latent_of(trace_isolated(call, given))
    still = {name: value for name, value in free.items() if name in places}
    others = {name: value for name, value in free.items() if name not in places}
    sizes = {title: (still[names[0]].size, still[names[0]].shape)
             for title, names in groups.items()}
    program, owners = recorded(
        lambda own, others: (trace_isolated(call, given, {**own, **others}), ()), site_records,
        still, others)
    closed = by_elements(program)
    takes = (*sorted(still), *sorted(others))
    uses = Uses.of(closed, owners, {i: name for i, name in enumerate(takes) if name in places})
    found, computed = uses.found, uses.computed()
    near = [name for name, kind in owners if kind == "log" and (found[name, kind]
                                                                or name in places)]
    numbers = sum(size for size, _ in sizes.values())
    late = {name for name in near if name not in free and _span(found, name, places) * numbers
            > WIDEST}
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
    outside = _outside(call, steps, given, still, others, late) if late else None
    wanted = [i for i, (name, kind) in enumerate(owners) if name not in late
              and (kind in ("loc", *BESIDE) if name in near
                   else kind == "log" and name not in others)]
    part, needed = levels.restrict(closed, wanted)
    kept = tuple(owners[i] for i in wanted)
    return Linear(part, tuple(takes[i] for i in needed), kept, times, back, sizes, still,
                  tuple(sorted(others)), frozenset({name for name, _ in kept} | computed | late),
                  outside)


def _span(found: Mapping[tuple[str, str], Mapping], name: str, places: Mapping) -> int:
    """How many steps there are from the first to the last at which a location looks."""
    seen = [places[step][1] for step in found.get((name, "loc")) or ()]
    return max(seen) - min(seen) + 1 if seen else 0


def _outside(call: Callable[[], Any], steps: Joined, given: Mapping[str, Any], still: Mapping,
             others: Mapping, late: Collection[str]) -> Outside:
    """What looks at all steps."""
    paths = [jnp.zeros((len(names), *still[names[0]].shape)) for names in steps.groups.values()]

    def run(paths: Sequence[jax.Array], values: Mapping[str, Any]) -> Mapping[str, Any]:
        single = steps.split_steps(dict(zip(steps.groups, paths, strict=True)))
        return trace_isolated(call, given, {**single, **values})

    count = len(paths[0])
    returned = Returned(tuple(range(len(paths))), (np.arange(count),) * len(paths), count)
    return outside_of(run, [returned], paths, others, late)


def affine(linear: Linear, steps: Joined, outputs: Sequence[int],
            values: Mapping[str, Any]) -> list[Affine]:
    """Results that are affine in steps, in classes of those that are alike."""
    part, takes = levels.restrict(linear.closed, outputs)
    names, places = [linear.takes[i] for i in takes], steps.places
    inputs = [None if name in places else jnp.asarray(values[name], aval.dtype)
              for name, aval in zip(names, part.in_avals, strict=True)]
    return [_linearize_class(linear, own, inputs, names, outputs)
            for own in equivalent_results(part,
                                          [i for i, value in enumerate(inputs) if value is None])]


def _linearize_class(linear: Linear, own: EquivalentResults, inputs: Sequence[Any],
                     names: Sequence[str],
                     outputs: Sequence[int]) -> Affine:
    """One class of results, linearised: each step that they depend on is moved by a unit, in all
    results at once."""
    sites = [tuple(names[i] for i in place) for place in zip(*own.tracked, strict=True)]
    zeros = [jnp.zeros((len(own.outputs), *linear.still[place[0]].shape)) for place in sites]
    which = tuple(outputs[i] for i in own.outputs)
    if not sites:
        return Affine(which, own.at_each(inputs, ()), ())
    offset, push = jax.linearize(lambda *columns: own.at_each(inputs, columns), *zeros)

    def pushed(p: int) -> jax.Array:
        size, shape = linear.still[sites[p][0]].size, zeros[p].shape
        each = jnp.eye(size).reshape(size, 1, *shape[1:])
        found = jax.vmap(lambda unit: push(*(jnp.broadcast_to(unit, shape) if q == p else zero
                                             for q, zero in enumerate(zeros))))(each)
        return jnp.moveaxis(found, 0, -1)

    return Affine(which, offset, tuple((place, pushed(p)) for p, place in enumerate(sites)))
