"""What a model computes outside rows, of a fit: at its point, or over what it believes."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.numerics.compile_effort import ASKED
from probml.numerics.compiling import jit
from probml.queries.fitted import Fitted
from probml.structure.computed import at, at_each
from probml.structure.structure import Structure

KEPT = 1000  # draws behind the mean of a posterior that is no set of draws


@functools.partial(jit, static_argnums=0, seldom=ASKED)
def _tilt(structure: Structure, draws: Mapping, fixed: Mapping, mean: Mapping) -> dict[str,
                                                                                         jax.Array]:
    """By how much means over draws of the parameters miss, to first order, since the draws' own
    means miss those of the posterior."""
    middle = {name: value.mean(0) for name, value in draws.items()}

    def real(draw):
        return {name: value.astype(jnp.result_type(float))
                for name, value in at(structure, {**fixed, **draw}).items()}

    return jax.jvp(real, (middle,),
                   ({name: mean[name] - value for name, value in middle.items()},))[1]


def point(fit: Fitted) -> dict[str, Any]:
    """The deterministics outside rows as Fit.params has them: of a point their value there
    (averaged over what is discrete outside rows and unseen), of a posterior their mean over all
    draws, or over KEPT; of a closed form exact where they are linear."""
    structure = fit.structure
    if not structure.derived:
        return {}
    known = jax.tree.map(jnp.asarray, {**fit.point, **fit.given})
    if fit.certain:
        return _host(at(structure, known))
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
                      for name, value in at_each(structure, draws, known).items()})
    values = fit.belief.chains
    draws = fit.belief.spread(fit._plan, fit._known(), KEPT)[0] if values is None else {
        n: jnp.asarray(v).reshape(-1, *np.shape(v)[2:]) for n, v in values.items()
    }
    out = {name: value.mean(0) for name, value in at_each(structure, draws, known).items()}
    if fit.belief.exact:
        tilt = _tilt(structure, draws, known, {name: known[name] for name in draws})
        out = {name: value + jnp.where(jnp.isfinite(tilt[name]), tilt[name], 0.0)
               for name, value in out.items()}
    return _host(out)


def drawn(fit: Fitted, draws: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The deterministics outside rows at draws of the sites there, (n, ...) each."""
    if not fit.structure.derived:
        return {}
    return _host(at_each(fit.structure, *jax.tree.map(jnp.asarray, (dict(draws), {
        **fit.point, **fit.given}))))


def chains(fit: Fitted, draws: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The same at draws chain by chain, (chains, draws, ...)."""
    if not fit.structure.derived:
        return {}
    lead = np.shape(next(iter(draws.values())))[:2]
    flat = {name: np.asarray(value).reshape(-1, *np.shape(value)[2:])
            for name, value in draws.items()}
    return {name: value.reshape(*lead, *value.shape[1:])
            for name, value in drawn(fit, flat).items()}


def fixed(value: Any) -> np.ndarray:
    """A copy on the host that nobody can write to."""
    out = np.array(value)
    out.flags.writeable = False
    return out


def _host(values: Mapping[str, jax.Array]) -> dict[str, Any]:
    """On the host, and not to be written to; under a trace as they are."""
    return {name: value if isinstance(value, jax.core.Tracer) else fixed(value)
            for name, value in values.items()}
