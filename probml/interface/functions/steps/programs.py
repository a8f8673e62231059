"""The program of a function whose loops are joined: the arguments of every step's distribution, and
the log density of what is observed; results of alike steps are computed by one of them mapped over
all (jaxpr/repeats/patterns.py), those of a recursion by one of them under a scan
(jaxpr/repeats).

The program of a run of a function: records of its sites (log densities, arguments, computed
values) as results, the values of its latent sites as inputs.

The location, scale and observed value of a linear Gaussian site, and whether its location is
affine in the steps of a loop or scan (jaxpr/levels.py proves it).
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.tree_util import PyTreeDef

from probml.errors import ModelError
from probml.families import domains
from probml.interface.functions.messages import trace_isolated
from probml.interface.functions.states import logs_of
from probml.interface.functions.steps.loop_sites import SHORTEST_LOOP, LoopSites, remove_numbers
from probml.jaxpr import levels
from probml.jaxpr.backward import shortened
from probml.jaxpr.program import ClosedJaxpr, Literal, bodies, equations, evaluate, jaxpr_of
from probml.jaxpr.repeats.patterns import equivalent_results
from probml.jaxpr.repeats.rolled import evaluated, recursion
from probml.jaxpr.repeats.stored import by_elements
from probml.structure.leaves import leaves_of_distribution
from probml.typing import Message, PyTree, SiteValues

Owner = tuple[str, Any]  # a site, and the kind of a record of it
Records = Callable[[str, Message], Sequence[tuple[str, PyTree]]]


def record_program(run: Callable[..., tuple[Mapping[str, Message], Sequence[PyTree]]],
                   records: Records, *inputs: object) -> tuple[ClosedJaxpr, tuple[Owner, ...]]:
    """The program of a run, inputs → one result for each record, then further results; and the
    owner of each record. What the function computes (numpyro.deterministic) is a record "computed".

    Args:
        run: inputs → the messages by name, and the further results.
        records: the name and the message of a sample site → (kind, value) of each of its records.
    """
    owners: list[Owner] = []

    def records_of(name: str, site: Message) -> Sequence[tuple[str, PyTree]]:
        if site["type"] == "deterministic":
            return [("computed", jnp.asarray(site["value"]))]
        return records(name, site) if site["type"] == "sample" else ()

    def every(*own: object) -> list[jax.Array]:
        trace, more = run(*own)
        found = [(name, *record) for name, site in trace.items()
                 for record in records_of(name, site)]
        owners[:] = [(name, kind) for name, kind, _ in found]
        return [*(value for *_, value in found), *more]

    return jaxpr_of(shortened(every))(*inputs), tuple(owners)


def evaluate_results(closed: object, outputs: Sequence[int],
                     give: Callable[[int], jax.Array]) -> list[jax.Array]:
    """Some results of a program, where `give` has the value of an input by its place."""
    part, takes = levels.restrict(closed, outputs)
    return evaluate(part, *(jnp.asarray(give(i), aval.dtype)
                            for i, aval in zip(takes, part.in_avals, strict=True)))


def latent_values(trace: Mapping[str, Message]) -> dict[str, jax.Array]:
    """The latent sites of a trace, and their values."""
    return {name: jnp.asarray(site["value"]) for name, site in trace.items()
            if site["type"] == "sample" and not site["is_observed"]
            and not isinstance(site["fn"], dist.Unit)}


SMALLEST_GROUP = 4  # results that must be alike to be computed together


class StepProgram(NamedTuple):
    """The program of a run by itself, of which some sites are the steps of loops.

    Attributes:
        closed: values of `takes` → a result for each of `owners`.
        owners: (site, kind) of each result.
        still: some value of each step; others: of the other continuous sites that are latent.
        trace: the messages of the run.
    """

    closed: ClosedJaxpr
    takes: tuple[str, ...]
    owners: tuple[Owner, ...]
    steps: LoopSites
    still: Mapping[str, jax.Array]
    others: Mapping[str, jax.Array]
    trace: Mapping[str, Message]

    @classmethod
    def of(cls, call: Callable[[], object], steps: LoopSites, given: SiteValues,
           records: Records) -> "StepProgram":
        """
        Args:
            given: values of sites that are data; records: of its sites.
        """
        trace, places = trace_isolated(call, given, {}), steps.places
        free = latent_values(trace)
        still = {name: value for name, value in free.items() if name in places}
        others = {name: value for name, value in free.items() if name not in places}
        program, owners = record_program(
            lambda own, others: (trace_isolated(call, given, {**own, **others}), ()), records,
            still, others)
        return cls(by_elements(program), (*sorted(still), *sorted(others)), owners, steps, still,
                   others, trace)

    def only(self, outputs: Sequence[int]) -> "StepProgram":
        """The program of some results."""
        part, needed = levels.restrict(self.closed, outputs)
        return self._replace(closed=part, takes=tuple(self.takes[i] for i in needed),
                             owners=tuple(self.owners[i] for i in outputs))

    def of_kind(self, *kinds: str) -> list[int]:
        """The results of some kinds."""
        return [i for i, (_, own) in enumerate(self.owners) if own in kinds]

    def parts(self, outputs: Sequence[int],
              values: SiteValues) -> list[tuple[tuple[int, ...], jax.Array]]:
        """The values of results, in parts of one shape: (which, (results, *shape)).

        Args:
            values: by the names of all steps, and of the other sites.
        """
        if not outputs:
            return []
        found, rest = self._recursions(outputs, values)
        part, takes = levels.restrict(self.closed, rest)
        names, places = [self.takes[i] for i in takes], self.steps.places
        inputs = [None if name in places else jnp.asarray(values[name], aval.dtype)
                  for name, aval in zip(names, part.in_avals, strict=True)]
        left = []
        for own in equivalent_results(part, [i for i, value in enumerate(inputs) if value is None]):
            if len(own.outputs) < SMALLEST_GROUP:
                left += own.outputs
                continue
            looked = [[names[i] for i in place] for place in zip(*own.tracked, strict=True)]
            steps = [_values_along_steps(at, places, values) for at in looked]
            found.append((tuple(rest[i] for i in own.outputs), own.at_each(inputs, steps)))
        if left:
            lone, need = levels.restrict(part, left)
            results = evaluated(lone, [
                jnp.asarray(_value_of(names[i], places, values), aval.dtype)
                for i, aval in zip(need, lone.in_avals, strict=True)])
            found += [((rest[i],), jnp.asarray(one)[None])
                      for i, one in zip(left, results, strict=True)]
        return found

    def _recursions(self, outputs: Sequence[int], values: SiteValues
                    ) -> tuple[list[tuple[tuple[int, ...], jax.Array]], list[int]]:
        """The results that are the steps of a recursion, as `parts` has them; and the others."""
        part, takes = levels.restrict(self.closed, outputs)
        names, places, avals = [self.takes[i] for i in takes], self.steps.places, part.in_avals
        tracked = [i for i, name in enumerate(names) if name in places]

        def give(i: int) -> jax.Array:
            return jnp.asarray(_value_of(names[i], places, values), avals[i].dtype)

        def column(many: Sequence[int]) -> jax.Array:
            if any(names[i] not in places for i in many):
                return jnp.stack(list(map(give, many)))
            whole = _values_along_steps([names[i] for i in many], places, values)
            return whole.astype(avals[many[0]].dtype)

        kinds: dict[tuple, list[int]] = {}
        for i, (output, aval) in enumerate(zip(outputs, part.out_avals, strict=True)):
            kinds.setdefault((remove_numbers(self.owners[output][0]), aval.shape), []).append(i)
        lengths: dict[int, list[list[int]]] = {}
        for alike in kinds.values():
            if len(alike) >= SHORTEST_LOOP:
                lengths.setdefault(len(alike), []).append(alike)
        found, gone = [], set[int]()
        ways = [way for many in lengths.values() for way in ([many], [[alike] for alike in many])]
        for together in (each for way in ways for each in way):
            if not gone.isdisjoint(i for alike in together for i in alike):
                continue
            own = recursion(part, list(zip(*together, strict=True)), tracked)
            if own is not None:
                for which, array in zip(together, own.values(give, column), strict=True):
                    found.append((tuple(outputs[i] for i in which), array))
                    gone |= set(which)
        return found, [output for i, output in enumerate(outputs) if i not in gone]


def _value_of(name: str, places: Mapping[str, tuple[str, int]], values: SiteValues) -> PyTree:
    """The value of a site, or of a single step."""
    title, i = places.get(name, (name, None))
    return values[title] if i is None else values[title][i]


def _values_along_steps(looked: Sequence[str], places: Mapping[str, tuple[str, int]],
                        values: SiteValues) -> jax.Array:
    """The steps at which alike results look, along a first axis."""
    found = [places[name] for name in looked]
    if len({title for title, _ in found}) > 1:
        return jnp.stack([values[title][i] for title, i in found])
    whole, at = jnp.asarray(values[found[0][0]]), np.array([i for _, i in found])
    return (whole[at[0] : at[-1] + 1] if (np.diff(at) == 1).all()
            else jnp.take(whole, at, axis=0))


class Program(NamedTuple):
    """What a run by itself tells.

    Attributes:
        own: (site, kind): "argument", an array of the distribution of a step; "log", the log
            density of what is observed, or looks at steps; "computed", what is computed from steps.
        trees: of the steps' distributions, site → how their arrays make them.
        likes: name of all steps → the distribution of the first.
        mixed: the other latent sites that look at steps.
        gone: what nobody outside hears of, since it is told otherwise.
    """

    own: StepProgram
    trees: Mapping[str, PyTreeDef]
    likes: Mapping[str, dist.Distribution]
    mixed: tuple[str, ...]
    gone: frozenset[str]

    def computed(self, values: SiteValues) -> dict[str, jax.Array]:
        """What the function computes from steps, by name."""
        return {self.own.owners[i][0]: one
                for which, part in self.own.parts(self.own.of_kind("computed"), values)
                for i, one in zip(which, part, strict=True)}


def program_of(call: Callable[[], object], steps: LoopSites, given: SiteValues) -> Program:
    """The program of a function.

    Args:
        given: values of sites that are data, name → value.

    Raises:
        ModelError: a step stands under handlers.scale; the support of another site looks at steps.
    """
    places, trees = (steps.places, dict[str, PyTreeDef]())
    own = StepProgram.of(call, steps, given,
                         lambda name, site: _site_records(name, site, places, trees))
    owners, others = own.owners, own.others
    near = [any(own.takes[i] in places for i in used)
            for used in levels.dependencies(own.closed)]
    bent = next((name for (name, kind), looks in zip(owners, near, strict=True)
                 if looks and kind == "end"), None)
    if bent is not None:
        raise ModelError(f"the support (the possible values) of site '{bent}' depends on the sites "
                         f"of a loop. Give '{bent}' a support that does not depend on them")
    mixed = {name for (name, kind), looks in zip(owners, near, strict=True)
             if looks and kind == "log" and name in others}
    kept = [i for i, ((name, kind), looks) in enumerate(zip(owners, near, strict=True))
            if kind == "argument" or kind == "computed" and looks
            or kind == "log" and (name not in others or name in mixed)]
    return Program(own.only(kept), trees,
                   {title: own.trace[names[0]]["fn"] for title, names in steps.groups.items()},
                   tuple(sorted(mixed)), frozenset(owners[i][0] for i in kept) - mixed)


def _site_records(name: str, site: Message, places: Mapping,
                  trees: dict[str, PyTreeDef]) -> list[tuple[str, jax.Array]]:
    """The records of a sample site: (kind, value)."""
    if name not in places:
        log = logs_of({name: site})[name].sum()
        bounds = domains.of(site["fn"].support).bounds if latent_values({name: site}) else {}
        return [("log", log), *(("end", jnp.asarray(bound)) for bound in bounds.values())]
    if site["scale"] is not None:
        raise ModelError(f"site '{name}' is inside handlers.scale, which is not supported inside "
                         f"scan. Move '{name}' out of handlers.scale")
    leaves, trees[name] = leaves_of_distribution(site["fn"])
    return [("argument", jnp.asarray(leaf)) for leaf in leaves]


POWERS = frozenset({"sqrt", "rsqrt", "cbrt", "square", "pow", "integer_pow"})
INDEPENDENT_OF_STEPS = ("root", "scale", "value", "mask", "beside")  # what may not depend on steps


class NotLinearGaussian(ModelError):
    """Steps are not linear and Gaussian, whichever arguments are bound."""


class Uses(NamedTuple):
    """How the records of sites use some inputs of their program.

    Attributes:
        found: (site, kind) → input → use; curved: the records that are no affine function of them.
    """

    found: Mapping[Owner, Mapping[Any, levels.Use]]
    curved: frozenset[Owner]

    @classmethod
    def of(cls, closed: object, owners: Sequence[Owner], inputs: Mapping[int, Any]) -> "Uses":
        """
        Args:
            owners: of the results; inputs: place of an input → its name.
        """
        found = dict(zip(owners, levels.classify(closed, inputs), strict=True))
        powers = _results_with_powers(closed, list(inputs))
        return cls(found, frozenset(
            owner for i, owner in enumerate(owners)
            if found[owner] and (i in powers or not all(
                use.is_affine for use in found[owner].values()))))

    def computed(self) -> set[str]:
        """What is computed from the inputs."""
        return {name for (name, kind), own in self.found.items() if kind == "computed" and own}

    def is_linear(self, name: str) -> bool:
        """Whether a site is normal about a location that is affine in the inputs, with a standard
        deviation that does not depend on them."""
        return ((name, "loc") in self.found and (name, "loc") not in self.curved
                and not any(self.found.get((name, kind)) for kind in INDEPENDENT_OF_STEPS))


def _results_with_powers(closed: ClosedJaxpr, inputs: Collection[int]) -> set[int]:
    """The results that some inputs reach through a power, which levels.py judges on the positive
    half line alone."""
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


def gaussian_records(name: str, site: Message) -> list[tuple[str, jax.Array]]:
    """The records of a sample site as a linear Gaussian one: (kind, value)."""
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
