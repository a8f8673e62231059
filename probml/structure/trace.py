"""A model traced: its structure, one entry a set of input shapes."""

import copyreg
import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.errors import ModelError
from probml.families import finite
from probml.jaxpr import levels
from probml.jaxpr.memo import memo
from probml.jaxpr.program import evaluate, jaxpr_of
from probml.language.language import Bound
from probml.language.settings import freeze
from probml.numerics.process.inline_calls import evaluated
from probml.structure.checks import by_use, check_rows, check_steps
from probml.structure.possible import check_chains, check_covariances
from probml.structure.recorder import peel, run_of
from probml.structure.site import Site
from probml.structure.sites import SOME, dtype_of, input_specs, labels_of, site_of, sites_of, timed
from probml.structure.structure import Structure

LARGEST = 2**40  # numbers of one value: a terabyte in bytes


def trace(model: Bound,
          inputs: Mapping[str, tuple[tuple[int | None, ...], str]] | None = None) -> Structure:
    """Trace a model once; cached.

    Args:
        inputs: name -> (trailing shape without the rows axis, NumPy dtype kind), None standing for
            the steps of chains; None guesses scalars.

    Raises:
        ModelError: obs= inside, a duplicate name, a batch axis that is no plate, a subsampled
            plate; a site that looks at other rows or steps.
    """
    if inputs is None:
        guesses: tuple[tuple[tuple, str], ...] = (
            ((), "f"), ((), "i"), ((1,), "f"), ((None,), "f"), ((None, 1), "f"))
        for guess in guesses:
            try:
                return trace(model, dict.fromkeys(model.inputs, guess))
            except (TypeError, IndexError, ValueError) as error:
                failure = error
        raise ModelError(f"model '{model.name}' cannot be traced without its inputs "
                         f"{list(model.inputs)}: {failure}") from failure
    return _trace(model, tuple(sorted((name, *spec) for name, spec in inputs.items())),
                  bool(jax.config.jax_enable_x64))


def structure_of(model: Bound, specs: Mapping[str, tuple]) -> Structure:
    """The model traced for its inputs: some of them, in a model with chains, have an axis of time,
    which is found by trying."""
    failures: list[ModelError] = []
    plain = None
    try:
        plain = trace(model, specs)
        if not plain.chains:
            return plain
    except ModelError as error:
        failures.append(error)
    long = [name for name, (shape, _) in specs.items() if shape and None not in shape]
    for size in range(len(long), 0, -1):
        for names in itertools.combinations(long, size):
            if len({specs[name][0][0] for name in names}) > 1:
                continue
            try:
                found = trace(model, {n: ((None, *s[1:]) if n in names else tuple(s), kind)
                                      for n, (s, kind) in specs.items()})
            except ModelError as error:
                failures.append(error)
                continue
            if found.chains:
                return found
    if plain is None:  # what is refused in words, before what the function said of other shapes
        raise next((error for error in failures if error.__cause__ is None), failures[0])
    return plain


@memo(256)
def _trace(model: Bound, specs: tuple, x64: bool) -> Structure:
    found, declared, computed = sites_of(model, specs, x64, 1)
    _check_sizes(model, found)
    inputs = input_specs(specs, 1)
    if any(site.chain for site in found.values()):
        some, _, longer = sites_of(model, specs, x64, SOME)
        found, computed = timed(model, found, some), timed(model, computed, longer)
    traced = _traced(model, found, inputs, {})
    found = _listed(model, found, traced)
    lows = {name: site.low for name, site in found.items() if site.low}
    if lows:  # once more: from here on the function is given codes
        traced = _traced(model, found, inputs, lows)
    sites, programs = _connect_sites(traced, found, computed)
    computed = {name: sites.pop(name) for name in computed}
    _check_parents(model, sites)
    if not model.whole:
        check_rows(model, found, inputs, traced.closed)
    if declared:
        check_steps(model, sites, computed, specs, traced.closed)
    structure = Structure(model, sites, programs, specs, declared[0] if declared else None,
                          computed)
    check_chains(structure, {})
    check_covariances(structure, {})
    return structure


class _Traced(NamedTuple):
    """One program of all arguments of all sites.

    Attributes:
        closed: values of the sites and inputs → the results, and behind them the bounds of `ended`.
        names: of its inputs: sites, then inputs, each sorted, as a pytree of dicts has them.
        layout: (site, argument) of each result.
        ended: the discrete sites without states whose supports have bounds.
        depends: of each result the inputs on which it depends.
    """

    closed: Any
    names: list[str]
    layout: list[tuple[str, str]]
    ended: list[str]
    depends: list


def _traced(model: Bound, found: Mapping[str, Site], inputs: Mapping[str, Any],
            lows: Mapping[str, int]) -> _Traced:
    values = {name: jax.ShapeDtypeStruct(site.shape, dtype_of(site))
              for name, site in found.items()}
    layout: list[tuple[str, str]] = []
    ended: list[str] = []

    def outputs(values: Mapping[str, jax.Array], inputs: Mapping[str, jax.Array]):
        layout.clear()
        ended.clear()
        flat, tail = [], []
        messages, made = run_of(model, inputs, values, lows=lows)
        for name, msg in messages.items():
            for key, value in site_of(model, name, msg)[1].items():
                layout.append((name, key))
                flat.append(jnp.asarray(value))
            ends = (finite.integer_range(peel(msg["fn"])[0]) if found[name].discrete
                    and found[name].states is None else None)
            if ends is not None:
                ended.append(name)
                tail += map(jnp.asarray, ends)
        for name, msg in made.items():
            layout.append((name, "value"))
            flat.append(jnp.asarray(msg["value"]))
        return flat + tail

    closed = jaxpr_of(outputs)(values, inputs)
    return _Traced(closed, [*sorted(values), *sorted(inputs)], layout, ended,
                   levels.dependencies(closed))


def _connect_sites(traced: _Traced, found: Mapping[str, Site], computed: Mapping[str, Site]
            ) -> tuple[dict[str, Site], dict[str, tuple]]:
    """The sites with their parents, inputs and the uses of parameters, and each site's program."""
    closed, names, layout, _, depends = traced
    # what is measured of the rows is known to every engine, as an input is
    tracked = {i: name for i, name in enumerate(names) if name in found and not found[name].rows
               and not found[name].discrete and found[name].measure is None}
    uses = levels.classify(closed, tracked)
    sites, programs = {}, {}
    for name, site in {**found, **computed}.items():
        positions = [i for i, (owner, _) in enumerate(layout) if owner == name]
        program, takes = levels.restrict(closed, positions)
        needed = set().union(*(depends[i] for i in positions))
        needs = [i for i in by_use(program, takes) if i in needed]
        programs[name] = (program, tuple(names[i] for i in takes))
        sites[name] = dataclasses.replace(
            site,
            # a walk's own steps, one looking at the one before, are no parents of it
            parents=tuple(names[i] for i in needs if names[i] in found and names[i] != name),
            inputs=tuple(names[i] for i in needs if names[i] not in found),
            uses={layout[i][1]: uses[i] for i in positions},
        )
    return sites, programs


def _check_sizes(model: Bound, found: Mapping[str, Site]) -> None:
    if not found:
        raise ModelError(f"model '{model.name}' has no sample sites")
    for name, site in found.items():
        if math.prod(site.shape) > LARGEST:
            raise ModelError(f"model '{model.name}': a value of '{name}' has shape {site.shape}, "
                             f"more than {LARGEST:,} numbers: bind smaller sizes")


def _check_parents(model: Bound, sites: Mapping[str, Site]) -> None:
    for site in sites.values():
        for parent in site.parents:
            if sites[parent].rows and not site.rows:
                raise ModelError(
                    f"model '{model.name}', site '{site.name}' is outside rows() but depends on "
                    f"'{parent}' inside it: move it inside rows()"
                )


# a structure travels as what it is traced from: its programs hold functions
copyreg.pickle(Structure, lambda found: (_again, (found.model, found.specs)))


def _again(model: Bound, specs: tuple) -> Structure:
    return _trace(model, specs, bool(jax.config.jax_enable_x64))


def _listed(model: Bound, found: Mapping[str, Site], traced: _Traced) -> dict[str, Site]:
    """The sites, with the finite lists of values of those whose bounds are constants."""
    out, first = dict(found), len(traced.closed.out_avals) - 2 * len(traced.ended)
    for i, name in enumerate(traced.ended):
        at = [first + 2 * i, first + 2 * i + 1]
        if any(traced.depends[k] for k in at):
            continue
        with evaluated():  # numbers, also within somebody's trace
            low, high = evaluate(levels.restrict(traced.closed, at)[0])
        values = finite.listed(np.asarray(low), np.asarray(high))
        if values is not None:
            states = None if found[name].count else values[1]
            out[name] = dataclasses.replace(found[name], states=states, low=values[0],
                                            finite=values[1])
    return {name: dataclasses.replace(site, labels=labels_of(model, site))
            for name, site in out.items()}


def intervened(model: Bound, values: Mapping[str, Any],
               specs: Mapping[str, tuple] | None = None) -> tuple:
    """What a model holds of an intervention: (site, frozen value in NumPyro's layout for a row),
    checked.

    Args:
        specs: of its inputs, as of `trace`.
    """
    sites, out = trace(model.plain, specs or None).sites, dict(model.interventions)
    for name, value in values.items():
        where = f"do({{'{name}': ...}})"
        if name not in sites or not sites[name].rows:
            inside = [site.name for site in sites.values() if site.rows]
            raise ModelError(f"{where}: model '{model.name}' has no such site inside rows(); it "
                             f"has {inside}")
        try:
            site, array = sites[name], np.asarray(value)
        except ValueError:
            raise ModelError(f"{where}: expected a finite number, or a full array of such, got "
                             f"{value!r:.60}") from None
        if site.time is not None:
            raise ModelError(f"{where}: '{name}' has time steps, and do() sets one value in every "
                             f"row; give it as data, or as an input")
        if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
            raise ModelError(f"{where}: expected a finite number, got {value!r}")
        if array.shape not in (site.cells, ()):
            raise ModelError(
                f"{where}: a row of '{name}' has shape {site.cells}, got {array.shape}"
            )
        last = site.low + (site.states or 0) - 1
        if site.discrete and (array != np.floor(array)).any() or site.states and not (
            (array >= site.low) & (array <= last)
        ).all():
            raise ModelError(f"{where}: expected a state, an integer in {site.low}..{last}, got "
                             f"{value!r}")
        array = np.asarray(np.broadcast_to(array, site.cells), np.int32 if site.discrete else float)
        placed = np.asarray(site.place(array)) if array.ndim else array
        out[name] = freeze(placed, name)
    return tuple(sorted(out.items()))
