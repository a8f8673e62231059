"""ArviZ's groups of a model without rows, one joint density: the observed sites, and the log
density of each of their elements, with dimensions named by the function's plates."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from probml.assessment.dimensions import Dimensions
from probml.errors import Refusal
from probml.language.language import Bound
from probml.numerics.compiling import jit
from probml.numerics.transfer import placed_all
from probml.posteriors.units import density
from probml.queries.fitted import Fitted
from probml.queries.outside import by_chain
from probml.typing import PyTree, SiteValues


def log_likelihood(fit: Fitted, inputs: SiteValues,
                   draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Site → log density of its elements at every draw, (chains, draws, ...), of missing ones 0.

    Cost: a run of the function a draw.
    """
    return by_chain(lambda flat: _logs(fit.model, placed_all(dict(inputs)), placed_all(flat)),
                    draws)


@jit(static_argnums=0, draws=2)
def _logs(model: Bound, inputs: Mapping, draws: Mapping):
    return jax.lax.map(lambda values: model.generative.element_logs(model.bound, inputs, values),
                       draws)


def _log_unit_change(fit: Fitted, observed: Any, name: str) -> np.ndarray | float:
    """The log of the change of units, which log densities in the user's units are lower by."""
    if name not in fit.units:
        return 0.0
    mask = ~np.isnan(np.asarray(observed.value, float))
    return density(fit.units[name], mask.reshape(-1, *mask.shape[observed.batch:])).reshape(
        mask.shape[: observed.batch])


def groups(fit: Fitted, names: Dimensions, inputs: SiteValues,
           draws: Mapping[str, np.ndarray], group: Callable, limit: float) -> dict[str, PyTree]:
    """The groups observed_data, without values computed from latent sites, and log_likelihood; the
    latter is left out, with a warning, where observed sites depend on what is summed or integrated
    out.

    Args:
        group: (name → array, dims of a name, leading dims) → the group.
        limit: numbers that may be in memory.
    """
    observed = fit.model.generative.observed(fit.model.bound, inputs)
    shape = next(iter(draws.values())).shape[:2]
    numbers = shape[0] * shape[1] * sum(site.value.size for site in observed.values())
    if numbers > limit:
        raise Refusal(f"to_arviz(): {shape[0] * shape[1]} draws of the observed sites need arrays "
                      f"with {numbers:,.0f} numbers, more than the limit of {limit:,.0f}. Fit with "
                      f"fewer draws")
    dims = {name: names.of_plated_site(name, site.value.shape, site.batch, site.plates)
            for name, site in observed.items()}
    known = {name: site.value for name, site in observed.items() if not site.computed}
    result = {"observed_data": group(known, dims.__getitem__, ())} if known else {}
    if logs := log_likelihood(fit, inputs, draws):
        # missing cells that are latent have a density, and are no data
        by_site = {name: np.where(observed[name].known.reshape(log.shape[2:]),
                                  log - _log_unit_change(fit, observed[name], name), 0.0)
                   for name, log in logs.items()}
        result["log_likelihood"] = group(
            by_site, lambda name: dims[name][: observed[name].batch], units={})
    else:
        warnings.warn("to_arviz(): the result has no group log_likelihood. The observed values "
                      "depend on the same latent variables, so a single value has no "
                      "log-likelihood of its own. Use probml.compare, which compares by the log "
                      "evidence",
                      RuntimeWarning, stacklevel=4)
    return result
