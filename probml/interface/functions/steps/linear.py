"""Which loops are linear and Gaussian: every location affine in the sites of its own step and of
some before (jaxpr/levels.py proves it), every spread without a look at steps; and their locations'
slopes. Alike steps are computed together (jaxpr/repeats/alike.py)."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
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
from probml.jaxpr.levels import Level
from probml.jaxpr.opened.shortened import shortened
from probml.jaxpr.repeats.alike import Alike, alike
from probml.jaxpr.walk import Literal, bodies, equations
from probml.latents.gaussian import PLAIN

POWERS = frozenset({"sqrt", "rsqrt", "cbrt", "square", "pow", "integer_pow"})
BESIDE = ("root", "scale", "value", "mask", "beside")  # what may not look at steps
WIDEST = 16  # numbers of the steps looked at: Kalman's filter costs their cube


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
        raise ModelError("there are no loops, or loops of several lengths")
    trace = alone(call, given, {})
    free = {name: jnp.asarray(site["value"]) for name, site in trace.items()
            if site["type"] == "sample" and not site["is_observed"]
            and not isinstance(site["fn"], dist.Unit)}
    still = {name: value for name, value in free.items() if name in places}
    others = {name: value for name, value in free.items() if name not in places}
    sizes = {title: (still[names[0]].size, still[names[0]].shape)
             for title, names in groups.items()}
    owners: list[tuple[str, str]] = []

    def every(own: Mapping, others: Mapping) -> list[jax.Array]:
        owners.clear()
        out = []
        for name, site in alone(call, given, {**own, **others}).items():
            for kind, value in told(name, site):
                owners.append((name, kind))
                out.append(value)
        return out

    closed = jax.make_jaxpr(shortened(every))(still, others)
    takes = (*sorted(still), *sorted(others))
    turned = bent(closed, range(len(still)))
    uses = levels.classify(closed, {i: name for i, name in enumerate(takes) if name in places})
    found = dict(zip(owners, uses, strict=True))
    computed = {name for name, kind in owners if kind == "computed" and found[name, kind]}
    near = {name for name, kind in owners if kind == "log" and (found[name, kind]
                                                                or name in places)}
    times, back = {}, 1
    for name in near:
        loc = found.get((name, "loc"))
        looks = [found.get((name, kind)) for kind in BESIDE]
        if loc is None or not all(map(straight, loc.values())) or any(looks) or (
            owners.index((name, "loc")) in turned
        ):
            raise ModelError(f"site '{name}' is not linear and Gaussian in steps of a loop")
        seen = {places[step][1] for step in loc}
        if name in places:
            own = places[name][1]
            if seen and max(seen) > own:
                raise ModelError(f"site '{name}' looks forward")
            back = max(back, *(own - step for step in seen)) if seen else back
        elif name in others:
            raise ModelError(f"site '{name}' is unseen, looks at steps and is none")
        else:
            times[name] = max(seen)
            back = max(back, max(seen) - min(seen) + 1)
    if not times:
        raise ModelError("nothing that is observed looks at steps")
    if sum(size for size, _ in sizes.values()) * back > WIDEST:
        raise ModelError("the steps that are looked at have many numbers")
    wanted = [i for i, (name, kind) in enumerate(owners)
              if (kind in ("loc", *BESIDE) if name in near
                  else kind == "log" and name not in others)]
    part, needed = levels.restrict(closed, wanted)
    kept = tuple(owners[i] for i in wanted)
    return Linear(part, tuple(takes[i] for i in needed), kept, times, back, sizes, still,
                  tuple(sorted(others)), frozenset({name for name, _ in kept} | computed))


def straight(use: levels.Use) -> bool:
    """Whether a result is affine in an input, as it is."""
    return use.level <= Level.AFFINE and all(step in PLAIN for step, _ in use.coordinate)


def bent(closed: Any, inputs: Collection[int]) -> set[int]:
    """The results on whose way from some inputs a power stands, which levels.py reads on the
    positive half line alone."""
    near, raised = {closed.jaxpr.invars[i] for i in inputs}, set()
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


def told(name: str, site: Mapping[str, Any]) -> list[tuple[str, jax.Array]]:
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
    if type(fn) not in (dist.Normal, dist.MultivariateNormal) or site["scale"] is not None:
        return out
    shape = np.broadcast_shapes(site["fn"].shape(), jnp.shape(site["value"]))
    value = site["value"] if mask is None else jnp.where(mask, site["value"], 0.0)
    seen = {"value": value, "mask": True if mask is None else mask} if site["is_observed"] else {}
    found = {"loc": fn.loc, **seen}
    if type(fn) is dist.Normal:
        spread = jnp.broadcast_to(fn.scale, shape)
        found |= {"scale": spread} if seen else {"root": jnp.diag(spread.ravel())}
    elif seen:  # in coordinates of no covariance
        inverse = jnp.linalg.inv(fn.scale_tril)
        white = lambda vector: (inverse @ vector[..., None])[..., 0]  # noqa: E731
        size = jnp.log(jnp.abs(jnp.diagonal(fn.scale_tril, axis1=-2, axis2=-1))).sum(-1)
        lost = jnp.broadcast_to(size, shape[:-1])
        found |= {kind: white(jnp.broadcast_to(found[kind], shape)) for kind in ("loc", "value")}
        found |= {"scale": jnp.ones(()), "beside": -jnp.where(
            True if mask is None else mask[..., 0], lost, 0.0).sum()}
    else:
        roots = jnp.broadcast_to(fn.scale_tril, (*shape, shape[-1])).reshape(-1, *2 * shape[-1:])
        apart = jnp.eye(len(roots))[:, None, :, None] * roots[:, :, None]
        found["root"] = apart.reshape(2 * (math.prod(shape),))
    flat = lambda own: jnp.broadcast_to(own, shape).ravel()  # noqa: E731
    return out + [(kind, own if kind in ("root", "beside") else flat(own))
                  for kind, own in found.items()]


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
