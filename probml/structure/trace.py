"""Traces models; a cache has one structure for each set of input shapes.

Arguments that are constants, or functions of inputs and known parameters, are checked: probability
tables must sum to one, covariance matrices must be positive semi-definite.
"""

import copyreg
import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.errors import ModelError, listed, shortly
from probml.families import finite
from probml.jaxpr import levels
from probml.jaxpr.memo import memo
from probml.jaxpr.program import ClosedJaxpr, evaluate, jaxpr_of
from probml.language.gaussian_chain import check_semidefinite
from probml.language.language import Bound
from probml.language.settings import freeze
from probml.numerics.compiling import ONCE, jit
from probml.numerics.process.inline_calls import evaluated
from probml.structure.checks import by_use, check_rows, check_steps
from probml.structure.recorder import UNCOUNTED, peel, run_of
from probml.structure.site import Site
from probml.structure.sites import (
    TRACED_STEPS,
    dtype_of,
    input_specs,
    labels_of,
    site_of,
    sites_of,
    timed,
)
from probml.structure.structure import Structure
from probml.typing import SiteValues

MOST_GUESSES = 80  # of the kinds of inputs, where a model is analysed without data
MAX_VALUE_SIZE = 2**40  # numbers in a value of one site: 4 or 8 terabytes


def trace(model: Bound,
          inputs: Mapping[str, tuple[tuple[int | None, ...], str]] | None = None) -> Structure:
    """Returns the structure of a model; cached.

    Args:
        inputs: name → (shape without the rows axis, NumPy dtype kind), where a size None is the
            number of steps of chains. By default common shapes are tried.

    Raises:
        ModelError: obs= inside the function, a duplicate name, a batch axis that is not a plate, a
            subsampled plate, or a site that depends on other rows or steps.
    """
    if inputs is None:
        for guess in _guesses(len(model.inputs)):
            try:
                return trace(model, dict(zip(model.inputs, guess, strict=True)))
            except (TypeError, IndexError, ValueError) as error:
                failure = error
        raise ModelError(f"model '{model.name}' cannot be analysed without the values of its "
                         f"inputs {listed(model.inputs)}: {failure}. Pass data that contain "
                         "them") from failure
    return _trace(model, tuple(sorted((name, *spec) for name, spec in inputs.items())),
                  bool(jax.config.jax_enable_x64))


def _guesses(inputs: int) -> Iterator[tuple[tuple[tuple[int | None, ...], str], ...]]:
    """Common shapes and kinds of inputs of which nothing is known: all alike, then mixed."""
    number, code, flag, series = ((), "f"), ((), "i"), ((), "b"), ((None,), "f")
    for guess in (number, code, flag, ((1,), "f"), series, ((None, 1), "f")):
        yield (guess,) * inputs
    mixed = itertools.product((code, flag, series), repeat=inputs)
    yield from itertools.islice((guess for guess in mixed if len({*guess}) > 1), MOST_GUESSES)


def structure_of(model: Bound, specs: Mapping[str, tuple]) -> Structure:
    """Returns the structure for given inputs. In a model with chains some inputs have a time axis;
    all combinations are tried.

    Args:
        specs: name → (shape without the rows axis, NumPy dtype kind).

    Raises:
        ModelError: the model cannot be traced with these inputs.
    """
    failures: list[ModelError] = []
    untimed = None
    try:
        untimed = trace(model, specs)
        if not untimed.chains:
            return untimed
    except ModelError as error:
        failures.append(error)
    candidates = [name for name, (shape, _) in specs.items() if shape and None not in shape]
    for size in range(len(candidates), 0, -1):
        for names in itertools.combinations(candidates, size):
            if len({specs[name][0][0] for name in names}) > 1:
                continue
            try:
                structure = trace(model, {n: ((None, *s[1:]) if n in names else tuple(s), kind)
                                          for n, (s, kind) in specs.items()})
            except ModelError as error:
                failures.append(error)
                continue
            if structure.chains:
                return structure
    if untimed is None:  # our own errors explain more than those of the user's function
        raise next((error for error in failures if error.__cause__ is None), failures[0])
    return untimed


@memo(256)
def _trace(model: Bound, specs: tuple, x64: bool) -> Structure:
    parsed, declared, computed = sites_of(model, specs, x64, 1)
    _check_sizes(model, parsed)
    inputs = input_specs(specs, 1)
    if any(site.chain for site in parsed.values()):
        several, _, longer = sites_of(model, specs, x64, TRACED_STEPS)
        parsed, computed = timed(model, parsed, several), timed(model, computed, longer)
    traced = _trace_arguments(model, parsed, inputs, {})
    parsed = _enumerate_supports(model, parsed, traced)
    lows = {name: site.low for name, site in parsed.items() if site.low}
    if lows:  # traced again, now with codes instead of values
        traced = _trace_arguments(model, parsed, inputs, lows)
    sites, programs = _connect_sites(traced, parsed, computed)
    computed = {name: sites.pop(name) for name in computed}
    _check_parents(model, sites)
    if not model.is_joint:
        check_rows(model, parsed, inputs, traced.closed)
    if declared:
        check_steps(model, sites, computed, specs, traced.closed)
    structure = Structure(model, sites, programs, specs, declared[0] if declared else None,
                          computed, _connect_totals(traced))
    check_chains(structure, {})
    check_covariances(structure, {})
    return structure


class _Traced(NamedTuple):
    """One program that computes all arguments of all sites.

    Attributes:
        closed: values of sites and inputs → arguments, then the total of each site in `counted`,
            then lower and upper bound of each site in `bounded`.
        names: of its inputs: sites, then inputs of the model, each sorted, as in a pytree of dicts.
        layout: (site, argument) of each result.
        counted: sites with an argument that is data of each row, such as the total of counts.
        bounded: discrete sites without states whose supports are bounded.
        depends: for each result, the inputs on which it depends.
    """

    closed: ClosedJaxpr
    names: list[str]
    layout: list[tuple[str, str]]
    counted: list[str]
    bounded: list[str]
    depends: list


def _trace_arguments(model: Bound, sites: Mapping[str, Site], inputs: SiteValues,
                     lows: Mapping[str, int]) -> _Traced:
    values = {name: jax.ShapeDtypeStruct(site.shape, dtype_of(site))
              for name, site in sites.items()}
    layout: list[tuple[str, str]] = []
    counted: list[str] = []
    bounded: list[str] = []

    def outputs(values: Mapping[str, jax.Array], inputs: Mapping[str, jax.Array]):
        layout.clear()
        counted.clear()
        bounded.clear()
        arguments, totals, bounds = [], [], []
        messages, computed = run_of(model, inputs, values, lows=lows)
        for name, msg in messages.items():
            for key, value in site_of(model, name, msg)[1].items():
                layout.append((name, key))
                arguments.append(jnp.asarray(value))
            ancillary = sites[name].traits.ancillary
            if ancillary is not None and not (msg.get("infer") or {}).get(UNCOUNTED):
                counted.append(name)
                totals.append(jnp.asarray(getattr(peel(msg["fn"])[0], ancillary)))
            limits = (finite.integer_range(peel(msg["fn"])[0]) if sites[name].discrete
                      and sites[name].states is None else None)
            if limits is not None:
                bounded.append(name)
                bounds += map(jnp.asarray, limits)
        for name, msg in computed.items():
            layout.append((name, "value"))
            arguments.append(jnp.asarray(msg["value"]))
        return arguments + totals + bounds

    closed = jaxpr_of(outputs)(values, inputs)
    return _Traced(closed, [*sorted(values), *sorted(inputs)], layout, counted, bounded,
                   levels.dependencies(closed))


def _connect_sites(traced: _Traced, parsed: Mapping[str, Site], computed: Mapping[str, Site]
            ) -> tuple[dict[str, Site], dict[str, tuple]]:
    """Returns the sites with their parents, inputs and uses of parameters, and the program of each
    site."""
    closed, names, layout, *_, depends = traced
    # statistics of the rows are known to every engine, like inputs
    tracked = {i: name for i, name in enumerate(names) if name in parsed and not parsed[name].rows
               and not parsed[name].discrete and parsed[name].measure is None}
    uses = levels.classify(closed, tracked)
    sites, programs = {}, {}
    for name, site in {**parsed, **computed}.items():
        positions = [i for i, (owner, _) in enumerate(layout) if owner == name]
        program, inputs = levels.restrict(closed, positions)
        needed = set().union(*(depends[i] for i in positions))
        needs = [i for i in by_use(program, inputs) if i in needed]
        programs[name] = (program, tuple(names[i] for i in inputs))
        sites[name] = dataclasses.replace(
            site,
            # a random walk, whose steps depend on the previous ones, is not its own parent
            parents=tuple(names[i] for i in needs if names[i] in parsed and names[i] != name),
            inputs=tuple(names[i] for i in needs if names[i] not in parsed),
            uses={layout[i][1]: uses[i] for i in positions},
        )
    return sites, programs


def _connect_totals(traced: _Traced) -> dict[str, tuple]:
    """Returns the program of the total of each site that has one."""
    totals = {}
    for i, name in enumerate(traced.counted, start=len(traced.layout)):
        program, inputs = levels.restrict(traced.closed, [i])
        totals[name] = (program, tuple(traced.names[k] for k in inputs))
    return totals


def _check_sizes(model: Bound, sites: Mapping[str, Site]) -> None:
    if not sites:
        raise ModelError(f"model '{model.name}' has no sample site, expected at least one, such as "
                         f'sample("mean", ...)')
    for name, site in sites.items():
        if site.states == 0:
            raise ModelError(f"model '{model.name}': site '{name}' ({site.kind}) has no states, "
                             "expected at least one. Use larger sizes in the settings of the model")
        if math.prod(site.shape) > MAX_VALUE_SIZE:
            raise ModelError(f"model '{model.name}': a value of '{name}' has the shape "
                             f"{site.shape}, more than the limit of {MAX_VALUE_SIZE:,} numbers. "
                             f"Use smaller sizes in the settings of the model")


def _check_parents(model: Bound, sites: Mapping[str, Site]) -> None:
    has_rows = not model.is_joint and any(site.rows for site in sites.values())
    for site in sites.values():
        by_row = [parent for parent in site.parents if sites[parent].rows]
        by_row += site.inputs if has_rows else ()
        if by_row and not site.rows:
            raise ModelError(
                f"model '{model.name}', site '{site.name}' is outside rows() but depends on "
                f"'{by_row[0]}', which has a value in each row. Move '{site.name}' inside rows()"
            )


# a structure is pickled as its model and specs, since its programs contain functions
copyreg.pickle(Structure, lambda found: (_retrace, (found.model, found.specs)))


def _retrace(model: Bound, specs: tuple) -> Structure:
    return _trace(model, specs, bool(jax.config.jax_enable_x64))


def _enumerate_supports(model: Bound, sites: Mapping[str, Site],
                        traced: _Traced) -> dict[str, Site]:
    """Returns the sites with labels, and with states where the bounds of a support are constants.
    """
    updated, start = dict(sites), len(traced.closed.out_avals) - 2 * len(traced.bounded)
    for i, name in enumerate(traced.bounded):
        positions = [start + 2 * i, start + 2 * i + 1]
        if any(traced.depends[k] for k in positions):
            continue
        with evaluated():  # concrete values, also within a trace
            low, high = evaluate(levels.restrict(traced.closed, positions)[0])
        values = finite.listed(np.asarray(low), np.asarray(high))
        if values is not None:
            states = None if sites[name].count else values[1]
            updated[name] = dataclasses.replace(sites[name], states=states, low=values[0],
                                                finite=values[1])
    return {name: dataclasses.replace(site, labels=labels_of(model, site))
            for name, site in updated.items()}


def intervened(model: Bound, values: SiteValues,
               specs: Mapping[str, tuple] | None = None) -> tuple:
    """Returns the interventions of a model with further values: (site, value in NumPyro's layout
    for a row, frozen), sorted.

    Args:
        values: site → value for every row.
        specs: of the inputs, as in `trace`.

    Raises:
        ModelError: a site is unknown, outside rows or has time steps, or a value is not in its
            support.
    """
    sites, frozen = trace(model.plain, specs or None).sites, dict(model.interventions)
    for name, value in values.items():
        where = f"do({{'{name}': ...}})"
        row_sites = [site.name for site in sites.values() if site.rows and not site.factor]
        if name not in row_sites:
            raise ModelError(f"{where}: model '{model.name}' has no such site inside rows(). Use "
                             f"one of its sites inside rows(), {listed(row_sites)}")
        try:
            site, array = sites[name], np.asarray(value)
        except ValueError:
            raise ModelError(f"{where}: expected a finite number, or an array of finite numbers, "
                             f"got {shortly(value)}") from None
        if site.time is not None:
            raise ModelError(f"{where}: '{name}' has time steps, but do() sets one value per row. "
                             f"To set it, make '{name}' an input (an argument of the model "
                             "function), with a value for each step. To condition on it, which is "
                             f"another question, give '{name}' in the data")
        if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
            raise ModelError(f"{where}: expected a finite number, got {shortly(value)}")
        if array.shape not in (site.cells, ()):
            raise ModelError(
                f"{where}: the value has the shape {array.shape}, but '{name}' has the shape "
                f"{site.cells} in each row. Give one value of this shape"
            )
        last = site.low + (site.states or 0) - 1
        if site.discrete and (array != np.floor(array)).any() or site.states and not (
            (array >= site.low) & (array <= last)
        ).all():
            raise ModelError(f"{where}: expected " + (
                f"the number of a state, an integer from {site.low} to {last}" if site.states
                else "an integer") + f", got {shortly(value)}")
        array = np.asarray(np.broadcast_to(array, site.cells), np.int32 if site.discrete else float)
        placed = np.asarray(site.place(array)) if array.ndim else array
        frozen[name] = freeze(placed, name)
    return tuple(sorted(frozen.items()))


COVARIANCES = ("covariance_matrix", "initial_covariance", "covariance")


def check(structure: Structure, inputs: Mapping[str, np.ndarray], steps: int = 1) -> None:
    """Check that covariance matrices are symmetric and positive semi-definite.

    Args:
        inputs: name → (rows, ...), or (rows, steps, ...) for inputs with a time axis.
        steps: number of steps of the chains.

    Raises:
        ModelError: a matrix is not; the message names the site, the row and the step.

    Cost: one pass over the inputs on which covariances depend.
    """
    for name, site in structure.sites.items():
        program, input_names = structure.programs[name]
        arguments = [a if a in COVARIANCES else None for a in site.arguments]
        for i, need in enumerate(levels.dependencies(program) if any(arguments) else ()):
            if arguments[i] is None or not need or not all(input_names[k] in inputs for k in need):
                continue
            part, positions = levels.restrict(program, [i])
            timed = [input_names[k] in structure.timed for k in positions]
            count = steps if any(timed) else 1
            numbers = [inputs[input_names[k]] for k in positions]
            numbers = [v.reshape(-1, *v.shape[2:]) if is_timed else np.repeat(v, count, 0)
                    for v, is_timed in zip(numbers, timed, strict=True)]

            def matrix(*values: jax.Array, part: ArrayLike = part) -> jax.Array:
                return evaluate(part, *(jnp.reshape(jnp.asarray(v, a.dtype), a.shape)
                                        for v, a in zip(values, part.in_avals, strict=True)))[0]

            with evaluated():
                matrices = jax.vmap(matrix)(*numbers)

            def place(item: tuple, count: int = count) -> str:
                return f" in row {item[0] // count}" + f", at step {item[0] % count}," * (count > 1)

            check_semidefinite(
                f"model '{structure.model.name}', site '{name}' ({site.kind}): {arguments[i]}",
                np.asarray(matrices), place)


def check_chains(structure: Structure, params: SiteValues, steps: int | None = None) -> None:
    """Check the arguments of chains that depend on these parameters alone.

    Args:
        params: name → array.
        steps: check only chains with continuous states, over this many steps; None: all chains.

    Raises:
        ModelError: an argument is invalid.
    """
    _check(structure, [name for name in structure.chains
                       if steps is None or name not in structure.markov], params, steps)


def check_covariances(structure: Structure, params: SiteValues) -> None:
    """Check the covariances of vectors that depend on these parameters alone, by their eigenvalues.

    Raises:
        ModelError: a covariance is invalid.
    """
    _check(structure, [name for name, site in structure.sites.items() if site.family is not None
                       and not site.chain and "covariance_matrix" in site.arguments], params, None)


def _check(structure: Structure, names: Sequence[str], params: Mapping[str, np.ndarray],
           steps: int | None) -> None:
    for name in names:
        site, (program, takes) = structure.sites[name], structure.programs[name]
        needs = levels.dependencies(program)
        indices = tuple(i for i, need in enumerate(needs) if all(takes[k] in params for k in need))
        if not indices:
            continue
        part, inputs = levels.restrict(program, indices)
        with evaluated():  # concrete values, also within a trace
            values = _arguments(structure, name, indices, tuple(
                np.reshape(np.asarray(params[takes[k]], aval.dtype), aval.shape)
                for k, aval in zip(inputs, part.in_avals, strict=True)))
        site.traits.check(f"model '{structure.model.name}', site '{name}' ({site.kind})",
                          {site.arguments[i]: np.asarray(value)
                           for i, value in zip(indices, values, strict=True)}, steps)


@jit(static_argnums=(0, 1, 2), seldom=ONCE)
def _arguments(structure: Structure, name: str, indices: tuple[int, ...],
               inputs: tuple[ArrayLike, ...]) -> list[jax.Array]:
    """Some arguments of a site, by their numbers, from the parameters on which these depend."""
    return evaluate(levels.restrict(structure.programs[name][0], indices)[0], *inputs)
