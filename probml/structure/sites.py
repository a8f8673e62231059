"""Sites from the messages of NumPyro's trace: shapes, plates, time axes and labels of all sample
statements.

Layout of deterministics: numpyro.deterministic, and sites that a reparametrisation has replaced.

A deterministic is a function of sites. It has no density and no data, and no engine needs it. The
structure contains the program of its value; its plate, row and event axes are found here. Its
values are computed in densities.py.
"""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.tree_util import PyTreeDef
from jax.typing import ArrayLike

from probml.errors import ModelError, counted, listed, present
from probml.families import domains, likelihood, registry
from probml.families.likelihood import Likelihood
from probml.jaxpr.memo import memo
from probml.language.chain import Chain, outside_rows
from probml.language.language import Bound
from probml.language.named_rows import OBSERVED
from probml.structure.leaves import leaves_of_distribution
from probml.structure.recorder import (
    DETERMINISTIC,
    arrays_of,
    as_input,
    failed,
    peel,
    rows_frame,
    run_of,
)
from probml.structure.site import Site
from probml.typing import Message

COUNTS = ("total_count",)  # arguments that stay integers


def _as_float(value: ArrayLike) -> ArrayLike:
    """Converts integer arguments, as in Gamma(3, 2), to floats: data are cast to the type of the
    arguments."""
    integer = jnp.issubdtype(jnp.result_type(value), jnp.integer)
    return jnp.asarray(value, jnp.result_type(float)) if integer else value


def _has_total(base: dist.Distribution) -> bool:
    """Whether a distribution counts among a total: its answer is then a number, and not a state."""
    components = (part for part in vars(base).values() if isinstance(part, dist.Distribution))
    return hasattr(base, "total_count") or any(map(_has_total, components))


def site_of(model: Bound, name: str, msg: dict,
            chains: bool = False) -> tuple[Site, dict[str, jax.Array]]:
    """Returns a site and the arguments of its base distribution, from its message.

    Args:
        chains: whether the model has chains, for the remedy in an error.

    Raises:
        ModelError: a batch axis is neither rows() nor a plate.
    """
    fn = msg["fn"]
    base, independent = peel(fn)
    batch = tuple(fn.batch_shape)
    factor = isinstance(base, dist.Unit)  # numpyro.factor has no value
    shape = () if factor else tuple(fn.event_shape)
    ndim = len(shape) - independent
    frames = list(reversed(msg["cond_indep_stack"]))
    rows_at = rows_frame(msg, frames)
    if rows_at is not None:
        frames[rows_at] = frames[rows_at]._replace(name="rows")  # a scope names plates too
    where = f"model '{model.name}', site '{name}'"
    row_axis, axes = None, ()
    if rows_at is not None:
        row_axis = len(batch) + frames[rows_at].dim
        axes = tuple(len(batch) + frame.dim for frame in frames if frame.name != "rows")
        wide = next((axis for axis in (row_axis, *range(len(batch))) if batch[axis] != 1
                     and axis not in axes), None)
        if wide is not None:
            raise ModelError(
                f"{where}: its {'value' if factor else 'distribution'} has batch shape {batch} for "
                f"a single row, and its axis of length {batch[wide]} belongs neither to rows() nor "
                f"to a plate. " + _fix_of_extra_axis(
                    model, name, batch[wide], wide == row_axis, frames, factor,
                    chains and len(batch) - 1 - len(axes) + independent)
            )
    if any(map(np.iscomplexobj, jax.tree.leaves(base))):  # whose imaginary part would be dropped
        raise ModelError(f"{where}: an argument of its distribution, {type(base).__name__}, is "
                         "complex, expected real numbers. Use the real part, z.real, or the "
                         "absolute value, jnp.abs(z), in the model function or in its settings")
    domain = domains.of(fn.support if factor else domains.of_values(fn))
    entry = registry.entry(base)
    arguments, treedef, locations = _arguments(base, entry.likelihood)
    states = entry.likelihood.states(arguments) if entry.likelihood is not None else None
    kind = "factor" if factor else type(base).__name__
    infer, plates = msg.get("infer") or {}, tuple((frame.name, frame.size) for frame in frames)
    site = Site(
        name, rows_at is not None, domain.discrete, entry, getattr(entry.likelihood, "name", kind),
        tuple(arguments), treedef, batch, shape[:independent], shape[independent:] if ndim else (),
        axes, row_axis, plates, states, domain,
        locations=locations,
        finite=states,
        count=domain.discrete and not factor and _has_total(base),
        labels=None if infer.get("labels") is None else tuple(infer["labels"]),
        measure=infer.get("measured"),
        chain=isinstance(base, Chain),
        n_observed=None if msg.get(OBSERVED) is None else np.size(msg[OBSERVED]) or None,
    )
    return site, arguments


def _arguments(
    base: dist.Distribution, family: Likelihood | None
) -> tuple[dict[str, jax.Array], PyTreeDef | None, tuple[str, ...]]:
    """Returns the arguments of a distribution by name, its treedef if it has no family, and the
    names of the location parameters."""
    if family is not None:
        arguments = {name: value if name in COUNTS else _as_float(value)
                     for name, value in family.arguments(base).items()}
        return arguments, None, ("loc",) if "loc" in arguments else ()
    leaves, treedef = leaves_of_distribution(base)
    loc = (getattr(base, "loc", None)
           if domains.of(base.support).unbounded and base.event_dim <= 1 else None)
    return ({f"argument{i}": jnp.asarray(leaf) for i, leaf in enumerate(leaves)}, treedef,
            tuple(f"argument{i}" for i, leaf in enumerate(leaves) if leaf is loc))


def _fix_of_extra_axis(model: Bound, name: str, size: int, in_rows: bool, frames: list,
                       factor: bool, event: int) -> str:
    """Returns the remedy for a batch axis of that size that is neither rows() nor a plate.

    Args:
        in_rows: the axis is the one of rows(). frames: of the plates, innermost first.
        event: in a model with chains, the number of event axes that the site needs, else 0.
    """
    if event and not factor:
        return (
            "In a model with a chain, time is an event axis, and so is every axis after it. Write "
            f".to_event({event}), as in dist.Normal(mean[z], scale[z]).to_event(1) for one value "
            "per step"
        )
    array = next((name for name, value in arrays_of(model).items() if len(value) == size), None)
    plate = next((frame for frame in frames if in_rows and frame.name != "rows"
                  and frame.size == size), None)
    if plate is not None:
        return (
            f"rows() has the batch axis −1, and the plate '{plate.name}' inside it has the batch "
            f"axis −{-plate.dim}. So an array with one value for each member of '{plate.name}' "
            f"needs shape ({size}, {', '.join(['1'] * (-plate.dim - 1))}), as v[:, None]"
        )
    if in_rows and array is not None:
        return f"{as_input(model, array)}. Else declare a vector with .to_event(1)"
    if factor:
        return (f"Sum the factor over its last axis, factor(\"{name}\", value.sum(-1)), or put "
                f"the factor in a numpyro.plate inside rows()")
    return (
        "For one entry of an array in each row, index it by an input, effect[group]. For a sum "
        "over columns, use x @ coefficients. For a vector in each row, write .to_event(1), and "
        "give an array with one value per row another axis first, x[:, None]. For independent "
        "values in each row, put the site in a numpyro.plate inside rows(). Pass an array with one "
        "value per row as an input (an argument without a default)")


def labels_of(model: Bound, site: Site) -> tuple | None:
    """Returns the labels of the states: those declared by infer={"labels": ...}, or the values if
    these do not start at 0; None otherwise.

    Raises:
        ModelError: the number of labels differs from that of the states.
    """
    if site.labels is not None and len(site.labels) != site.states:
        where = f"model '{model.name}', site '{site.name}'"
        raise ModelError(f"{where}: infer={{'labels': ...}} contains "
                         f"{counted(len(site.labels), 'label')}, but the site has "
                         f"{counted(site.states, 'state') if site.states else 'no states'}. Give "
                         f"one label for each state")
    shifted = site.low and site.labels is None
    return tuple(range(site.low, site.low + present(site.finite))) if shifted else site.labels


TRACED_ROWS = 2  # rows of the second trace; the axis of this size is the row axis
SAME_AT_ALL_STEPS = ("For a value s that is the same at all steps of a row, write s[..., None], "
                     "which has a time axis")
TRACED_STEPS = 3  # steps of the second trace; the axis of this size is the time axis
OTHER_STEPS = (f"The error occurs with {TRACED_STEPS} steps, with which a model of a chain is also "
               "analysed. Index an array along time by an input with a time axis, such as "
               "level[week].")


def input_specs(specs: tuple, steps: int, rows: int = 1) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns name → shape and type of each input, for so many rows and steps."""
    kinds = {"f": float, "b": bool}
    return {
        name: jax.ShapeDtypeStruct((rows, *(steps if s is None else s for s in shape)),
                                   jnp.result_type(kinds.get(kind, int)))
        for name, shape, kind in specs
    }


@memo(256)
def sites_of(model: Bound, specs: tuple, x64: bool,
             steps: int) -> tuple[dict[str, Site], list[int | None], dict[str, Site]]:
    """Returns the sites of one row with chains of so many steps, the lengths that the chains
    declare, and the deterministics.

    Args:
        x64: whether JAX computes in double precision; part of the cache key.

    Raises:
        ModelError: the function fails, or its chains declare different lengths.
    """
    sites, declared, inputs, derived = {}, [], input_specs(specs, steps), {}

    def shapes(inputs: Mapping[str, jax.Array]):
        messages, computed = run_of(model, inputs, {}, steps=steps)
        chains = any(isinstance(peel(msg["fn"])[0], Chain) for msg in messages.values())
        for name, msg in messages.items():
            sites[name] = site_of(model, name, msg, chains)[0]
            if sites[name].chain:
                declared.append(peel(msg["fn"])[0].declared)
        derived.update({name: (msg, np.shape(msg["value"])) for name, msg in computed.items()})
        return 0

    def many(inputs):
        computed = run_of(model, inputs, {}, None, TRACED_ROWS, steps)[1]
        sizes.update({name: np.shape(msg["value"]) for name, msg in computed.items()})
        return 0

    sizes: dict[str, tuple[int, ...]] = {}
    try:
        jax.eval_shape(shapes, inputs)
        if derived:  # a trace with several rows shows which axis is the row axis
            jax.eval_shape(many, input_specs(specs, steps, TRACED_ROWS))
    except ModelError:
        raise
    except Exception as error:
        raise failed(model, inputs, error, OTHER_STEPS * (steps == TRACED_STEPS)) from error
    if len(set(declared)) > 1:
        raise ModelError(f"model '{model.name}': its chains have the lengths {listed(declared)}, "
                         "but all chains of a model need the same length. Use the same number of "
                         "steps")
    return sites, declared, {n: placed(f"model '{model.name}', site '{n}'", msg, shape, sizes[n])
                             for n, (msg, shape) in derived.items()}


def timed(model: Bound, single: Mapping[str, Site], several: Mapping[str, Site]) -> dict[str, Site]:
    """Returns the sites of a single step with their time axis, the axis whose size depends on the
    number of steps.

    Args:
        single, several: the sites traced with one step and with TRACED_STEPS steps.

    Raises:
        ModelError: time is not the first event axis, or a chain is in a plate or outside rows.
    """
    timed_sites = {}
    for name, site in single.items():
        where, shape = f"model '{model.name}', site '{name}'", several[name].shape
        axes = [i for i, pair in enumerate(zip(site.shape, shape, strict=False))
                if pair[0] != pair[1]]
        if site.chain and (not site.rows or site.axes):
            raise outside_rows(where, site.kind)
        if len(site.shape) != len(shape) or len(axes) > 1 or (
            axes and (not site.rows or axes[0] != len(site.batch))
        ):
            raise ModelError(
                f"{where}: its shape is {site.shape} for chains of one step and {shape} for chains "
                f"of {TRACED_STEPS} steps. Time must be the first event axis, as in "
                f"dist.Normal(mean[z], scale[z]).to_event(1). {SAME_AT_ALL_STEPS}"
            )
        timed_sites[name] = dataclasses.replace(site, time=len(site.axes) if axes else None)
    return timed_sites


def dtype_of(site: Site) -> np.dtype:
    return jnp.result_type(int) if site.discrete else jnp.result_type(float)


def leaves_of(
    model: Bound, owners: list[str], values: Mapping, inputs: Mapping, index=None, rows: int = 1,
    steps: int = 1, events: dict[str, tuple[int, ...]] | None = None
) -> list[jax.Array]:
    """Returns the arrays of all distributions and the values of deterministics, in order.

    Args:
        owners: filled with the name of the site of each array.
        events: filled with the event axes of each site; of a factor its batch axes.
    """
    flat = []
    owners.clear()
    messages, computed = run_of(model, inputs, values, index, rows, steps)
    if events is not None:
        events.update({name: tuple(msg["fn"].batch_shape if isinstance(msg["fn"], dist.Unit)
                                   else msg["fn"].event_shape) for name, msg in messages.items()})
    for name, msg in (*messages.items(), *computed.items()):
        leaves = (leaves_of_distribution(peel(msg["fn"])[0])[0] if name in messages
                  else [msg["value"]])
        owners.extend([name] * len(leaves))
        flat += [jnp.asarray(leaf) for leaf in leaves]
    return flat


def placed(where: str, msg: Message, one: tuple[int, ...], many: tuple[int, ...]) -> Site:
    """Returns a deterministic as a `Site` with its plate, row and event axes.

    Args:
        where: prefix of error messages. msg: the message of NumPyro's trace.
        one, many: shape of the value for one row and for TRACED_ROWS rows.

    Raises:
        ModelError: several axes depend on the number of rows.
    """
    varying = [axis for axis, (a, b) in enumerate(zip(one, many, strict=False)) if a != b]
    if len(one) != len(many) or len(varying) > 1 or any((one[axis], many[axis]) != (1, TRACED_ROWS)
                                                        for axis in varying):
        raise ModelError(
            f"{where} (deterministic): its shape must not depend on the number of rows, or have "
            f"one axis whose length is the number of rows. For 1 row it is {one}, for "
            f"{TRACED_ROWS} rows {many}. Remove this numpyro.deterministic, and compute the value "
            f"from the results of the fit (fit.draws, fit.predict)"
        )
    stack = msg.get("cond_indep_stack") or ()
    frames = [frame for frame in reversed(stack) if frame.name != "rows"]
    dims = {frame.name: frame.dim for frame in stack}
    if not varying:
        rank = max((-frame.dim for frame in frames), default=0)
        if rank > len(one) or any(one[rank + frame.dim] != frame.size for frame in frames):
            rank, frames = len(one), []
        return _site(msg["name"], False, one[:rank], one[rank:], (), None,
                     tuple((frame.name, frame.size) for frame in frames))
    row_axis = varying[0]
    # axes of plates; the others belong to the value
    rank = min(row_axis - dims.get("rows", -1), len(one))
    named = {rank + frame.dim: frame for frame in frames if 0 <= rank + frame.dim
             and one[rank + frame.dim] == frame.size}
    named.pop(row_axis, None)
    unnamed = [axis for axis in range(rank) if axis != row_axis and axis not in named
               and one[axis] != 1]
    axes = (*sorted(named, key=lambda axis: frames.index(named[axis])), *unnamed)
    plates = tuple((frame.name, frame.size) for frame in frames if frame in named.values())
    return _site(msg["name"], True, one[:rank], one[rank:], axes, row_axis, (*plates, ("rows", 1)))


def _site(name: str, rows: bool, batch: tuple, event: tuple, axes: tuple, row_axis: int | None,
          plates: tuple) -> Site:
    return Site(name, rows, False, likelihood.NOTHING, DETERMINISTIC, ("value",), None, batch, (),
                event, axes, row_axis, plates, None, domains.NOTHING)
