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

    def every(*args: object) -> list[jax.Array]:
        trace, others = run(*args)
        entries = [(name, *record) for name, site in trace.items()
                   for record in records_of(name, site)]
        owners[:] = [(name, kind) for name, kind, _ in entries]
        return [*(value for *_, value in entries), *others]

    return jaxpr_of(shortened(every))(*inputs), tuple(owners)


def evaluate_results(closed: object, outputs: Sequence[int],
                     give: Callable[[int], jax.Array]) -> list[jax.Array]:
    """Some results of a program, where `give` has the value of an input by its place."""
    part, numbers = levels.restrict(closed, outputs)
    return evaluate(part, *(jnp.asarray(give(i), aval.dtype)
                            for i, aval in zip(numbers, part.in_avals, strict=True)))


def latent_values(trace: Mapping[str, Message]) -> dict[str, jax.Array]:
    """The latent sites of a trace, and their values."""
    return {name: jnp.asarray(site["value"]) for name, site in trace.items()
            if site["type"] == "sample" and not site["is_observed"]
            and not isinstance(site["fn"], dist.Unit)}


SMALLEST_GROUP = 4  # results that must be alike to be computed together


class StepProgram(NamedTuple):
    """The program of a run by itself, of which some sites are the steps of loops.

    Attributes:
        closed: values of `input_names` → a result for each of `owners`.
        owners: (site, kind) of each result.
        step_values: some value of each step; other_values: of the other continuous sites that are
            latent.
        trace: the messages of the run.
    """

    closed: ClosedJaxpr
    input_names: tuple[str, ...]
    owners: tuple[Owner, ...]
    steps: LoopSites
    step_values: Mapping[str, jax.Array]
    other_values: Mapping[str, jax.Array]
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
        return self._replace(closed=part, input_names=tuple(self.input_names[i] for i in needed),
                             owners=tuple(self.owners[i] for i in outputs))

    def of_kind(self, *kinds: str) -> list[int]:
        """The results of some kinds."""
        return [i for i, (_, owner_kind) in enumerate(self.owners) if owner_kind in kinds]

    def parts(self, outputs: Sequence[int],
              values: SiteValues) -> list[tuple[tuple[int, ...], jax.Array]]:
        """The values of results, in parts of one shape: (which, (results, *shape)).

        Args:
            values: by the names of all steps, and of the other sites.
        """
        if not outputs:
            return []
        computed, remaining = self._recursions(outputs, values)
        part, numbers = levels.restrict(self.closed, remaining)
        names, places = [self.input_names[i] for i in numbers], self.steps.places
        inputs = [None if name in places else jnp.asarray(values[name], aval.dtype)
                  for name, aval in zip(names, part.in_avals, strict=True)]
        ungrouped = []
        for own in equivalent_results(part, [i for i, value in enumerate(inputs) if value is None]):
            if len(own.outputs) < SMALLEST_GROUP:
                ungrouped += own.outputs
                continue
            step_names = [[names[i] for i in place] for place in zip(*own.tracked, strict=True)]
            steps = [_values_along_steps(row, places, values) for row in step_names]
            computed.append((tuple(remaining[i] for i in own.outputs), own.at_each(inputs, steps)))
        if ungrouped:
            single, needed = levels.restrict(part, ungrouped)
            results = evaluated(single, [
                jnp.asarray(_value_of(names[i], places, values), aval.dtype)
                for i, aval in zip(needed, single.in_avals, strict=True)])
            computed += [((remaining[i],), jnp.asarray(result)[None])
                         for i, result in zip(ungrouped, results, strict=True)]
        return computed

    def _recursions(self, outputs: Sequence[int], values: SiteValues
                    ) -> tuple[list[tuple[tuple[int, ...], jax.Array]], list[int]]:
        """The results that are the steps of a recursion, as `parts` has them; and the others."""
        part, numbers = levels.restrict(self.closed, outputs)
        names, places, avals = [self.input_names[i]
                                for i in numbers], self.steps.places, part.in_avals
        tracked = [i for i, name in enumerate(names) if name in places]

        def give(i: int) -> jax.Array:
            return jnp.asarray(_value_of(names[i], places, values), avals[i].dtype)

        def column(many: Sequence[int]) -> jax.Array:
            if any(names[i] not in places for i in many):
                return jnp.stack(list(map(give, many)))
            steps = _values_along_steps([names[i] for i in many], places, values)
            return steps.astype(avals[many[0]].dtype)

        kinds: dict[tuple, list[int]] = {}
        for i, (output, aval) in enumerate(zip(outputs, part.out_avals, strict=True)):
            kinds.setdefault((remove_numbers(self.owners[output][0]), aval.shape), []).append(i)
        lengths: dict[int, list[list[int]]] = {}
        for pattern in kinds.values():
            if len(pattern) >= SHORTEST_LOOP:
                lengths.setdefault(len(pattern), []).append(pattern)
        computed, done = [], set[int]()
        splits = [split for many in lengths.values()
                  for split in ([many], [[pattern] for pattern in many])]
        for group in (each for split in splits for each in split):
            if not done.isdisjoint(i for pattern in group for i in pattern):
                continue
            loop = recursion(part, list(zip(*group, strict=True)), tracked)
            if loop is not None:
                for members, array in zip(group, loop.values(give, column), strict=True):
                    computed.append((tuple(outputs[i] for i in members), array))
                    done |= set(members)
        return computed, [output for i, output in enumerate(outputs) if i not in done]


def _value_of(name: str, places: Mapping[str, tuple[str, int]], values: SiteValues) -> PyTree:
    """The value of a site, or of a single step."""
    title, i = places.get(name, (name, None))
    return values[title] if i is None else values[title][i]


def _values_along_steps(names: Sequence[str], places: Mapping[str, tuple[str, int]],
                        values: SiteValues) -> jax.Array:
    """The steps at which alike results look, along a first axis."""
    step_places = [places[name] for name in names]
    if len({title for title, _ in step_places}) > 1:
        return jnp.stack([values[title][i] for title, i in step_places])
    path, steps = jnp.asarray(values[step_places[0][0]]), np.array([i for _, i in step_places])
    return (path[steps[0] : steps[-1] + 1] if (np.diff(steps) == 1).all()
            else jnp.take(path, steps, axis=0))


class Program(NamedTuple):
    """What a run by itself tells.

    Attributes:
        program: (site, kind): "argument", an array of the distribution of a step; "log", the log
            density of what is observed, or looks at steps; "computed", what is computed from steps.
        trees: of the steps' distributions, site → how their arrays make them.
        first_distributions: name of all steps → the distribution of the first.
        mixed: the other latent sites that look at steps.
        blocked: what nobody outside hears of, since it is told otherwise.
    """

    program: StepProgram
    trees: Mapping[str, PyTreeDef]
    first_distributions: Mapping[str, dist.Distribution]
    mixed: tuple[str, ...]
    blocked: frozenset[str]

    def computed(self, values: SiteValues) -> dict[str, jax.Array]:
        """What the function computes from steps, by name."""
        return {self.program.owners[i][0]: value
                for which, part in self.program.parts(self.program.of_kind("computed"), values)
                for i, value in zip(which, part, strict=True)}


def program_of(call: Callable[[], object], steps: LoopSites, given: SiteValues) -> Program:
    """The program of a function.

    Args:
        given: values of sites that are data, name → value.

    Raises:
        ModelError: a step stands under handlers.scale; the support of another site looks at steps.
    """
    places, trees = (steps.places, dict[str, PyTreeDef]())
    program = StepProgram.of(call, steps, given,
                             lambda name, site: _site_records(name, site, places, trees))
    owners, others = program.owners, program.other_values
    uses_steps = [any(program.input_names[i] in places for i in used)
                  for used in levels.dependencies(program.closed)]
    bent = next((name for (name, kind), looks in zip(owners, uses_steps, strict=True)
                 if looks and kind == "end"), None)
    if bent is not None:
        raise ModelError(f"the support (the possible values) of site '{bent}' depends on the sites "
                         f"of a loop. Give '{bent}' a support that does not depend on them")
    mixed = {name for (name, kind), looks in zip(owners, uses_steps, strict=True)
             if looks and kind == "log" and name in others}
    results = [i for i, ((name, kind), looks) in enumerate(zip(owners, uses_steps, strict=True))
               if kind == "argument" or kind == "computed" and looks
               or kind == "log" and (name not in others or name in mixed)]
    return Program(program.only(results), trees,
                   {title: program.trace[names[0]]["fn"] for title, names in steps.groups.items()},
                   tuple(sorted(mixed)), frozenset(owners[i][0] for i in results) - mixed)


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
        by_owner = dict(zip(owners, levels.classify(closed, inputs), strict=True))
        powers = _results_with_powers(closed, list(inputs))
        return cls(by_owner, frozenset(
            owner for i, owner in enumerate(owners)
            if by_owner[owner] and (i in powers or not all(
                use.is_affine for use in by_owner[owner].values()))))

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
    reached, raised = {closed.jaxpr.invars[i] for i in inputs}, set()
    for eqn in closed.jaxpr.eqns:
        atoms = [atom for atom in eqn.invars if not isinstance(atom, Literal) and atom in reached]
        if atoms:
            reached.update(eqn.outvars)
            names = (inner.primitive.name for body in bodies(eqn) for inner in equations(body))
            if any(atom in raised for atom in atoms) or not POWERS.isdisjoint(
                (eqn.primitive.name, *names)
            ):
                raised.update(eqn.outvars)
    return {i for i, atom in enumerate(closed.jaxpr.outvars)
            if not isinstance(atom, Literal) and atom in raised}


def gaussian_records(name: str, site: Message) -> list[tuple[str, jax.Array]]:
    """The records of a sample site as a linear Gaussian one: (kind, value)."""
    records = [("log", logs_of({name: site})[name].sum())]
    fn, mask = site["fn"], None
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution | dist.MaskedDistribution):
        if isinstance(fn, dist.MaskedDistribution):
            mask = jnp.reshape(fn._mask, (*jnp.shape(fn._mask), *(1,) * fn.event_dim))
        fn = fn.base_dist
    if type(fn) not in (dist.Normal, dist.MultivariateNormal) or site["scale"] is not None:
        return records
    shape = np.broadcast_shapes(site["fn"].shape(), jnp.shape(site["value"]))
    value = site["value"] if mask is None else jnp.where(mask, site["value"], 0.0)
    data = {"value": value, "mask": True if mask is None else mask} if site["is_observed"] else {}
    parts = {"loc": fn.loc, **data}
    if type(fn) is dist.Normal:
        scale = jnp.broadcast_to(fn.scale, shape)
        parts |= {"scale": scale} if data else {"root": jnp.diag(scale.ravel())}
    elif data:  # in coordinates of no covariance
        inverse = jnp.linalg.inv(fn.scale_tril)
        white = lambda vector: (inverse @ vector[..., None])[..., 0]  # noqa: E731
        log_det = jnp.log(jnp.abs(jnp.diagonal(fn.scale_tril, axis1=-2, axis2=-1))).sum(-1)
        log_dets = jnp.broadcast_to(log_det, shape[:-1])
        parts |= {kind: white(jnp.broadcast_to(parts[kind], shape)) for kind in ("loc", "value")}
        parts |= {"scale": jnp.ones(()), "beside": -jnp.where(
            True if mask is None else mask[..., 0], log_dets, 0.0).sum()}
    else:
        roots = jnp.broadcast_to(fn.scale_tril, (*shape, shape[-1])).reshape(-1, *2 * shape[-1:])
        block_diag = jnp.eye(len(roots))[:, None, :, None] * roots[:, :, None]
        parts["root"] = block_diag.reshape(2 * (math.prod(shape),))
    flat = lambda array: jnp.broadcast_to(array, shape).ravel()  # noqa: E731
    return records + [(kind, array if kind in ("root", "beside") else flat(array))
                      for kind, array in parts.items()]
