"""Which loops are linear and Gaussian: every location affine in the sites of its own step and of
the one before (jaxpr/levels.py proves it), every spread without a look at steps; and their
locations' slopes. Alike steps are computed together (jaxpr/alike.py)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml.errors import ModelError
from probml.interface.functions.states import logs_of
from probml.interface.functions.steps.alone import alone
from probml.interface.functions.steps.names import Joined
from probml.jaxpr import levels
from probml.jaxpr.alike import Alike, alike
from probml.jaxpr.levels import Level
from probml.jaxpr.shortened import shortened
from probml.jaxpr.walk import Literal, bodies, equations
from probml.latents.gaussian import PLAIN

POWERS = frozenset({"sqrt", "rsqrt", "cbrt", "square", "pow", "integer_pow"})
WIDEST = 8  # numbers of a step: Kalman's filter costs their cube


class Linear(NamedTuple):
    """What a run by itself tells of a loop that is linear.

    Attributes:
        closed: values of `takes` → a result for each of `owners`.
        owners: (site, kind): "loc" and "scale", flat, of a step or of what looks at steps; "value"
            and "mask" of the latter; "log" of all else that is observed.
        times: what looks at a step → which.
        sizes: name of all steps → numbers of one, and its shape.
        others: the other continuous sites that are unseen.
        gone: what nobody outside hears of.
    """

    closed: Any
    takes: tuple[str, ...]
    owners: tuple[tuple[str, str], ...]
    times: Mapping[str, int]
    sizes: Mapping[str, tuple[int, tuple[int, ...]]]
    still: Mapping[str, jax.Array]
    others: tuple[str, ...]
    gone: frozenset[str]

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
            affine in steps with a spread of its own; a step looks further back than one.
    """
    places, groups = steps.places, steps.groups
    if len({len(names) for names in groups.values()}) != 1:
        raise ModelError("there are no loops, or loops of several lengths")
    trace = alone(call, given, {})
    free = {name: jnp.asarray(site["value"]) for name, site in trace.items()
            if site["type"] == "sample" and not site["is_observed"]
            and not isinstance(site["fn"], dist.Unit)}
    still = {name: value for name, value in free.items() if name in places}
    others = {name: value for name, value in free.items() if name not in places}
    sizes = {title: (still[names[0]].size, still[names[0]].shape)
             for title, names in groups.items()}
    if sum(size for size, _ in sizes.values()) > WIDEST:
        raise ModelError("a step has many numbers")
    owners: list[tuple[str, str]] = []

    def every(own: Mapping, others: Mapping) -> list[jax.Array]:
        owners.clear()
        out = []
        for name, site in alone(call, given, {**own, **others}).items():
            for kind, value in _told(name, site):
                owners.append((name, kind))
                out.append(value)
        return out

    closed = jax.make_jaxpr(shortened(every))(still, others)
    takes = (*sorted(still), *sorted(others))
    bent = _bent(closed, len(still))
    uses = levels.classify(closed, {i: name for i, name in enumerate(takes) if name in places})
    found = dict(zip(owners, uses, strict=True))
    computed = {name for name, kind in owners if kind == "computed" and found[name, kind]}
    near = {name for name, kind in owners if kind == "log" and (found[name, kind]
                                                                or name in places)}
    times = {}
    for name in near:
        loc = found.get((name, "loc"))
        looks = [found.get((name, kind)) for kind in ("scale", "mask", "value")]
        if loc is None or not all(map(_affine, loc.values())) or any(looks) or (
            owners.index((name, "loc")) in bent
        ):
            raise ModelError(f"site '{name}' is not linear and Gaussian in steps of a loop")
        seen = {places[step][1] for step in loc}
        if name in places:
            if not seen <= {places[name][1], places[name][1] - 1}:
                raise ModelError(f"site '{name}' looks further back than one step")
        elif name in others or len(seen) > 1:
            raise ModelError(f"site '{name}' looks at several steps")
        else:
            times[name] = seen.pop()
    if not times:
        raise ModelError("nothing that is observed looks at steps")
    wanted = [i for i, (name, kind) in enumerate(owners)
              if (kind in ("loc", "scale", "value", "mask") if name in near
                  else kind == "log" and name not in others)]
    part, needed = levels.restrict(closed, wanted)
    kept = tuple(owners[i] for i in wanted)
    return Linear(part, tuple(takes[i] for i in needed), kept, times, sizes, still,
                  tuple(sorted(others)), frozenset({name for name, _ in kept} | computed))


def _affine(use: levels.Use) -> bool:
    return use.level <= Level.AFFINE and all(step in PLAIN for step, _ in use.coordinate)


def _bent(closed: Any, count: int) -> set[int]:
    """The results on whose way from the first `count` inputs a power stands, which levels.py reads
    on the positive half line alone."""
    near, raised = set(closed.jaxpr.invars[:count]), set()
    for eqn in closed.jaxpr.eqns:
        own = [atom for atom in eqn.invars if not isinstance(atom, Literal) and atom in near]
        if own:
            near.update(eqn.outvars)
            inside = (each.primitive.name for body in bodies(eqn) for each in equations(body))
            if any(atom in raised for atom in own) or not POWERS.isdisjoint(
                (eqn.primitive.name, *inside)
            ):
                raised.update(eqn.outvars)
    return {i for i, atom in enumerate(closed.jaxpr.outvars)
            if not isinstance(atom, Literal) and atom in raised}


def _told(name: str, site: Mapping[str, Any]) -> list[tuple[str, jax.Array]]:
    """What a message of a run says of its site: (kind, value)."""
    if site["type"] == "deterministic":
        return [("computed", jnp.asarray(site["value"]))]
    if site["type"] != "sample":
        return []
    out = [("log", logs_of({name: site})[name].sum())]
    fn, mask = site["fn"], None
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution | dist.MaskedDistribution):
        if isinstance(fn, dist.MaskedDistribution):
            mask = jnp.reshape(fn._mask, (*jnp.shape(fn._mask), *(1,) * fn.event_dim))
        fn = fn.base_dist
    if type(fn) is not dist.Normal or site["scale"] is not None:
        return out
    shape = np.broadcast_shapes(site["fn"].shape(), jnp.shape(site["value"]))
    flat = {"loc": fn.loc, "scale": fn.scale}
    if site["is_observed"]:
        flat |= {"value": site["value"], "mask": True if mask is None else mask}
    return out + [(kind, jnp.broadcast_to(value, shape).ravel()) for kind, value in flat.items()]


def affine(linear: Linear, steps: Joined, outputs: Sequence[int],
            values: Mapping[str, Any]) -> list[Affine]:
    """Results that are affine in steps, in classes of those that are alike."""
    part, takes = levels.restrict(linear.closed, outputs)
    names, places = [linear.takes[i] for i in takes], steps.places
    inputs = [None if name in places else jnp.asarray(values[name], aval.dtype)
              for name, aval in zip(names, part.in_avals, strict=True)]
    return [_opened(linear, own, inputs, names, outputs)
            for own in alike(part, [i for i, value in enumerate(inputs) if value is None])]


def _opened(linear: Linear, own: Alike, inputs: Sequence[Any], names: Sequence[str],
            outputs: Sequence[int]) -> Affine:
    """One class: every place that looks at a step is pushed by a unit in all results at once."""
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
