"""What a model computes from its sites: numpyro.deterministic, and what a reparametrisation leaves
of a site.

A deterministic is no random variable: no density, no data, no engine knows of it. The structure
holds where its axes lie and the program of its value; here are its values: those outside rows at a
point, at draws, and their means. Values of rows are answers (queries.py), like the mean of a site.
"""

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.errors import ModelError
from probml.families import domains, entry
from probml.numerics.compiling import jit
from probml.structure.site import Site

if TYPE_CHECKING:
    from probml.interface.fit import Fit
    from probml.structure.structure import Structure


KIND = "deterministic"
KEPT = 1000  # draws behind the mean of a posterior that is no set of draws
MANY = 2  # rows of the trace that tells which axis is that of rows


def placed(where: str, msg: Mapping[str, Any], one: tuple[int, ...], many: tuple[int, ...]) -> Site:
    """Where the axes of a value lie, read off its shapes for one row and for MANY rows.

    Raises:
        ModelError: its rows are not one axis.
    """
    grown = [axis for axis, (a, b) in enumerate(zip(one, many, strict=False)) if a != b]
    if len(one) != len(many) or len(grown) > 1 or any((one[axis], many[axis]) != (1, MANY)
                                                      for axis in grown):
        raise ModelError(
            f"{where} ({KIND}): its shape is {one} for one row and {many} for {MANY}: expected one "
            f"axis of rows, or none. Compute it from "
            "what the fit answers instead (fit.draws, fit.predict) and leave the line out"
        )
    frames = [frame for frame in reversed(msg.get("cond_indep_stack") or ())
              if frame.name != "rows"]
    dims = {frame.name: frame.dim for frame in msg.get("cond_indep_stack") or ()}
    if not grown:
        rank = max((-frame.dim for frame in frames), default=0)
        fits = rank <= len(one) and all(one[rank + frame.dim] == frame.size for frame in frames)
        plates = tuple((frame.name, frame.size) for frame in frames) if fits else ()
        return _site(msg["name"], False, one[: rank if fits else len(one)],
                     one[rank:] if fits else (), (), None, plates)
    row_axis = grown[0]
    # axes of plates; the others belong to the value
    rank = min(row_axis - dims.get("rows", -1), len(one))
    named = {rank + frame.dim: frame for frame in frames if 0 <= rank + frame.dim
             and one[rank + frame.dim] == frame.size}
    named.pop(row_axis, None)
    loose = [axis for axis in range(rank) if axis != row_axis and axis not in named
             and one[axis] != 1]
    axes = (*sorted(named, key=lambda axis: frames.index(named[axis])), *loose)
    plates = tuple((frame.name, frame.size) for frame in frames if frame in named.values())
    return _site(msg["name"], True, one[:rank], one[rank:], axes, row_axis, (*plates, ("rows", 1)))


def _site(name: str, rows: bool, batch: tuple, event: tuple, axes: tuple, row_axis: int | None,
          plates: tuple) -> Site:
    return Site(name, rows, False, entry.NOTHING, KIND, ("value",), None, batch, (), event, axes,
                row_axis, plates, None, domains.NOTHING)


@functools.partial(jit, static_argnums=0)
def at(structure: "Structure", env: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """The deterministics outside rows at one value of the sites there."""
    return {name: structure.computed(name, env) for name in structure.derived}


@functools.partial(jit, static_argnums=0)
def at_each(structure: "Structure", draws: Mapping[str, jax.Array],
            fixed: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """The same at every draw, (draws, ...), with some sites at one value for all."""
    return jax.vmap(lambda draw: at(structure, {**fixed, **draw}))(draws)


@functools.partial(jit, static_argnums=0)
def _tilt(structure: "Structure", draws: Mapping, fixed: Mapping, mean: Mapping) -> dict[str,
                                                                                         jax.Array]:
    """By how much means over draws of the parameters miss, to first order, since the draws' own
    means miss those of the posterior."""
    middle = {name: value.mean(0) for name, value in draws.items()}

    def real(draw):
        return {name: value.astype(jnp.result_type(float))
                for name, value in at(structure, {**fixed, **draw}).items()}

    return jax.jvp(real, (middle,),
                   ({name: mean[name] - value for name, value in middle.items()},))[1]


def point(fit: "Fit") -> dict[str, Any]:
    """The deterministics outside rows as Fit.params has them: of a point their value there
    (averaged over what is discrete outside rows and unseen), of a posterior their mean over all
    draws, or over KEPT; of a closed form exact where they are linear."""
    structure = fit.structure
    if not structure.derived:
        return {}
    fixed = _arrays({**fit.point, **fit.given})
    if fit.certain:
        return _host(at(structure, fixed))
    if not fit.belief.varies:
        table, draws = fit.belief.table, {}
        weights = jax.nn.softmax(jnp.ravel(table))
        plan = fit._plan
        for name, code in zip(
            plan.globals, jnp.unravel_index(jnp.arange(weights.size), table.shape), strict=True
        ):
            draws[name] = jnp.asarray(plan.variables[name].values)[code].reshape(
                -1, *structure.sites[name].shape
            )
        return _host({name: jnp.tensordot(weights, value, 1)
                      for name, value in at_each(structure, draws, fixed).items()})
    values = fit.belief.chains
    draws = fit.belief.spread(fit._plan, fit._known(), KEPT)[0] if values is None else {
        n: jnp.asarray(v).reshape(-1, *np.shape(v)[2:]) for n, v in values.items()
    }
    out = {name: value.mean(0) for name, value in at_each(structure, draws, fixed).items()}
    if fit.belief.exact:
        tilt = _tilt(structure, draws, fixed, {name: fixed[name] for name in draws})
        out = {name: value + jnp.where(jnp.isfinite(tilt[name]), tilt[name], 0.0)
               for name, value in out.items()}
    return _host(out)


def drawn(fit: "Fit", draws: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The deterministics outside rows at draws of the sites there, (n, ...) each."""
    if not fit.structure.derived:
        return {}
    return _host(at_each(fit.structure, _arrays(draws), _arrays({**fit.point, **fit.given})))


def chains(fit: "Fit", draws: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The same at draws chain by chain, (chains, draws, ...)."""
    if not fit.structure.derived:
        return {}
    lead = np.shape(next(iter(draws.values())))[:2]
    flat = {name: np.asarray(value).reshape(-1, *np.shape(value)[2:])
            for name, value in draws.items()}
    return {name: value.reshape(*lead, *value.shape[1:])
            for name, value in drawn(fit, flat).items()}


def _arrays(values: Mapping[str, Any]) -> dict[str, jax.Array]:
    return {name: jnp.asarray(value) for name, value in values.items()}


def _host(values: Mapping[str, jax.Array]) -> dict[str, Any]:
    """On the host, and not to be written to; under a trace as they are."""
    out = {}
    for name, value in values.items():
        if not isinstance(value, jax.core.Tracer):
            value = np.array(value)
            value.flags.writeable = False
        out[name] = value
    return out
