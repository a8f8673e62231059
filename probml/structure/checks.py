"""Checks that the rows of a model are exchangeable and that the steps of its chains are stationary.
"""

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from probml.errors import ModelError, counted
from probml.jaxpr import exchangeability
from probml.jaxpr.program import ClosedJaxpr, Literal, jaxpr_of
from probml.language.language import Bound
from probml.structure.recorder import SEVERAL, failed
from probml.structure.site import Site
from probml.structure.sites import (
    SAME_AT_ALL_STEPS,
    dtype_of,
    input_specs,
    leaves_of,
    sites_of,
)


def by_use(program, positions: tuple[int, ...]) -> list[int]:
    """Returns the inputs of a program, by number, in the order of their first use, so that parents
    have the order in which the user wrote them."""
    number = dict(zip(program.jaxpr.invars, positions, strict=True))
    atoms = [atom for eqn in program.jaxpr.eqns for atom in eqn.invars] + program.jaxpr.outvars
    return list(dict.fromkeys(number[atom] for atom in atoms if not isinstance(atom, Literal)
                              and atom in number))


def check_steps(
    model: Bound, sites: Mapping[str, Site], computed: Mapping[str, Site], specs: tuple,
    single: ClosedJaxpr
) -> None:
    """Check that the arguments of each step depend on no other step and not on the step's number.

    The model is traced again, with a number of steps that occurs nowhere in the program of a single
    step, and the time axis is followed through the jaxpr.

    Args:
        specs: of the inputs, as in `Structure`. single: the program of a single step.

    Raises:
        ModelError: a site depends on other steps, on the step's number or on the number of steps.
    """
    for site in (*sites.values(), *computed.values()):
        timed_parent = next((p for p in site.parents if sites[p].time is not None), None)
        if site.time is None and timed_parent:
            raise ModelError(
                f"model '{model.name}': site '{site.name}' has one value for all time steps, but "
                f"depends on '{timed_parent}', which has a value at every step. Give "
                f"'{site.name}' one value per step too, such as dist.Normal(mean[{timed_parent}], "
                f"1.0).to_event(1), whose last axis is time"
            )
    owners: list[str] = []

    def long(steps: int) -> ClosedJaxpr:
        unfolded = sites_of(model, specs, bool(jax.config.jax_enable_x64), steps)[0]
        values = {n: jax.ShapeDtypeStruct(s.shape, dtype_of(s)) for n, s in unfolded.items()}
        return jaxpr_of(functools.partial(leaves_of, model, owners, steps=steps))(
            values, input_specs(specs, steps)
        )

    timed = {name for name, shape, _ in specs if shape[:1] == (None,)}
    # time is the first event axis of a site, and comes after rows in an input
    axes = [len(sites[name].batch) if sites[name].time is not None else None
            for name in sorted(sites)]
    axes += [1 if name in timed else None for name in sorted(name for name, _, _ in specs)]
    for dependence, owner in zip(exchangeability.row_dependence(single, long, axes), owners,
                                 strict=True):
        if dependence:
            reasons = {exchangeability.NUMBER: "on the step number",
                       exchangeability.COUNT: "on the number of steps"}
            why = reasons.get(dependence, f"on other steps, by the JAX operation '{dependence}'")
            raise ModelError(
                f"model '{model.name}', site '{owner}': a step of '{owner}' depends {why}, but a "
                f"site may depend on chains and inputs only at the same step. Compute shifted "
                f"values or step numbers before the fit, and pass them as an input of shape (n, "
                f"steps, ...)"
            )


def check_rows(
    model: Bound, sites: Mapping[str, Site], inputs: Mapping[str, jax.ShapeDtypeStruct],
    single: ClosedJaxpr
) -> None:
    """Check that rows are exchangeable: the sites of a row depend on no other row, not on the row's
    number and not on the number of rows.

    The model is traced again (not compiled), with a number of rows that occurs nowhere in the
    program of a single row, and the row axis is followed through the jaxpr (exchangeability.py).

    Args:
        inputs: name → shape and type for one row. single: the program of a single row.

    Raises:
        ModelError: a site in rows is not exchangeable, or the function fails for several rows.
    """
    if not any(site.rows for site in sites.values()):
        return
    owners: list[str] = []
    events: dict[str, tuple[int, ...]] = {}

    def many(rows: int) -> ClosedJaxpr:
        shapes = {n: tuple(rows if axis == s.row_axis else size
                           for axis, size in enumerate(s.shape)) for n, s in sites.items()}
        values = {n: jax.ShapeDtypeStruct(shapes[n], dtype_of(s)) for n, s in sites.items()}
        specs = {name: jax.ShapeDtypeStruct((rows, *spec.shape[1:]), spec.dtype)
                 for name, spec in inputs.items()}
        index = jax.ShapeDtypeStruct((rows,), jnp.result_type(int))
        try:
            closed = jaxpr_of(functools.partial(leaves_of, model, owners, rows=rows,
                                                      events=events))(values, specs, index)
        except ModelError:
            raise
        except Exception as error:
            raise failed(model, specs, error, SEVERAL) from error
        _check_events(model, sites, events, rows)
        return closed

    axes = [*(sites[name].row_axis for name in sorted(sites)), *(0 for _ in inputs), 0]
    for dependence, owner in zip(exchangeability.row_dependence(single, many, axes,
                                                                numbers=[len(axes) - 1]),
                                 owners, strict=True):
        if dependence:
            reasons = {exchangeability.NUMBER: "on the row number",
                       exchangeability.COUNT: "on the number of rows"}
            why = reasons.get(dependence, f"on other rows, by the JAX operation '{dependence}'")
            advice = ("Standardise, lag or index the inputs before the fit, and pass the result as "
                      "an input")
            if "callback" in dependence:
                advice = ("Python functions called through JAX callbacks cannot be traced: write "
                          "them in JAX, or write the function with obs= and numpyro.plate, without "
                          "rows()")
            if owner not in sites:
                advice = (f"Remove the line, and compute '{owner}' from the results of the fit: "
                          f"fit.predict(data, ...), fit.draws(n)")
            raise ModelError(f"model '{model.name}', site '{owner}': the value of '{owner}' in a "
                             f"row depends {why}, but rows must be independent of one another and "
                             f"of their order. {advice}")


def _check_events(model: Bound, sites: Mapping[str, Site], events: Mapping[str, tuple[int, ...]],
                  rows: int) -> None:
    """Check that the event axes of a site do not depend on the number of rows, nor does the shape
    of a factor outside rows."""
    advice = SAME_AT_ALL_STEPS if any(site.chain for site in sites.values()) else (
        "If each row has one value, omit .to_event(1). If each row has a vector, give its "
        "parameters the shape (rows, length), as dist.Normal(mean[:, None] * weights, "
        "1).to_event(1) does")
    for name, event in events.items():
        site = sites[name]
        single = site.batch if site.factor else site.independent + site.event
        if event != single and site.factor and not site.rows:
            raise ModelError(f"model '{model.name}', site '{name}': the factor is outside rows(), "
                             f"but has the shape {single} for one row and {event} for "
                             f"{counted(rows, 'row')}. Move '{name}' inside rows()")
        if event != single and not site.factor:
            raise ModelError(
                f"model '{model.name}', site '{name}': its event shape is {single} for one row and "
                f"{event} for {counted(rows, 'row')}. So .to_event() has made the rows a part of "
                f"the event. {advice}"
            )
