"""Deterministics outside rows: at the point estimate, or averaged over the posterior."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.errors import present
from probml.numerics.compiling import ASKED, jit
from probml.numerics.transfer import placed, placed_all, read_only
from probml.queries.fitted import Fitted
from probml.structure.densities import deterministics_at, deterministics_at_each
from probml.structure.structure import Structure
from probml.typing import SiteValues

KEPT = 1000  # draws that means are computed from, of a posterior that is not a set of draws


@jit(static_argnums=0, seldom=ASKED)
def _mean_correction(structure: Structure, draws: Mapping, fixed: Mapping,
                     mean: Mapping) -> dict[str, jax.Array]:
    """First-order correction of the means over parameter draws for the Monte Carlo error of the
    draws: Jacobian × (posterior mean − mean of the draws)."""
    mean_draw = {name: value.mean(0) for name, value in draws.items()}

    def real(draw: Mapping[str, jax.Array]):
        return {name: value.astype(jnp.result_type(float))
                for name, value in deterministics_at(structure, {**fixed, **draw}).items()}

    return jax.jvp(real, (mean_draw,),
                   ({name: mean[name] - value for name, value in mean_draw.items()},))[1]


def point(fit: Fitted) -> dict[str, ArrayLike]:
    """The deterministics outside rows, as in Fit.params: at a point estimate their value (averaged
    over latent discrete sites outside rows), of a posterior their mean over all its draws, or over
    KEPT draws; with a closed-form posterior exact where they are linear in the parameters."""
    structure = fit.structure
    if not structure.derived:
        return {}
    known = placed_all({**fit.point, **fit.given})
    if fit.certain:
        return _host(deterministics_at(structure, known))
    if not fit.belief.varies:
        table, plan = np.asarray(present(fit.belief.table)), fit._plan
        weights = np.exp(table - table.max()).ravel()
        weights /= weights.sum()
        codes = np.unravel_index(np.arange(weights.size), table.shape)
        draws = {name: placed(np.asarray(plan.variables[name].values)[code].reshape(
                     -1, *structure.sites[name].shape))
                 for name, code in zip(plan.globals, codes, strict=True)}
        at_draws = jax.device_get(deterministics_at_each(structure, draws, known))
        return _host({name: np.tensordot(weights, value, 1) for name, value in at_draws.items()})
    values = fit.belief.chains
    draws = fit.belief.averaging_draws(fit._plan, fit._known(), KEPT)[0] if values is None else {
        n: placed(np.reshape(v, (-1, *np.shape(v)[2:]))) for n, v in values.items()
    }
    at_draws = jax.device_get(deterministics_at_each(structure, draws, known))
    means = {name: value.mean(0) for name, value in at_draws.items()}
    if fit.belief.exact:
        tilt = jax.device_get(_mean_correction(structure, draws, known,
                                               {name: known[name] for name in draws}))
        means = {name: value + np.where(np.isfinite(tilt[name]), tilt[name], 0.0)
                 for name, value in means.items()}
    return _host(means)


def drawn(fit: Fitted, draws: SiteValues) -> dict[str, np.ndarray]:
    """The deterministics outside rows at each draw of the sites outside rows, (n, ...) each."""
    if not fit.structure.derived:
        return {}
    return _host(deterministics_at_each(fit.structure, *placed_all((dict(draws), {
        **fit.point, **fit.given}))))


def by_chain(function: Callable[[dict[str, np.ndarray]], SiteValues],
             draws: SiteValues) -> dict[str, np.ndarray]:
    """A function of draws, name → (n, ...), asked for draws with axes (chains, draws, ...)."""
    chain_shape = np.shape(next(iter(draws.values())))[:2]
    results = function({name: np.reshape(value, (-1, *np.shape(value)[2:]))
                        for name, value in draws.items()})
    return {name: np.reshape(value, (*chain_shape, *np.shape(value)[1:]))
            for name, value in results.items()}


def chains(fit: Fitted, draws: SiteValues) -> dict[str, np.ndarray]:
    """As `drawn`, of draws with axes (chains, draws, ...)."""
    return by_chain(lambda flat: drawn(fit, flat), draws)


def _host(values: Mapping[str, jax.Array]) -> dict[str, ArrayLike]:
    """Read-only NumPy copies; traced arrays unchanged."""
    return {name: value if isinstance(value, jax.core.Tracer) else read_only(value)
            for name, value in values.items()}
