"""ArviZ's groups of a model without rows, one joint density: the observed sites, and the log
density of each of their elements, with dimensions named by the function's plates."""

import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np

from probml.assessment.dimensions import Dimensions
from probml.errors import Refusal
from probml.language.language import Bound
from probml.numerics.compiling import jit
from probml.numerics.transfer import placed_all
from probml.posteriors.units import density
from probml.queries.fitted import Fitted
from probml.typing import PyTree, SiteValues


class Observed(NamedTuple):
    """The observed value of a site of the function, and the names of its axes."""

    value: np.ndarray
    dims: tuple[str, ...]
    batch: int  # number of axes of elements; the others are within an element


def observed(fit: Fitted, names: Dimensions, inputs: SiteValues,
             point: SiteValues) -> dict[str, Observed]:
    """Site → its observed value; from a trace at a point, on which it does not depend."""
    found, out = fit.model.generative.elements(fit.model.bound, inputs, point), {}
    for name, element in found.items():
        value = np.asarray(element.value)
        shape = np.broadcast_shapes(value.shape[: value.ndim - element.event], element.log.shape)
        value = np.broadcast_to(value, shape + value.shape[value.ndim - element.event :])
        out[name] = Observed(value,
                             names.of_plated_site(name, value.shape, len(shape), element.plates),
                             len(shape))
    return out


def log_likelihood(fit: Fitted, inputs: SiteValues,
                   draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Site → log density of its elements at every draw, (chains, draws, ...), of missing ones 0.

    Cost: a run of the function a draw.
    """
    lead = next(iter(draws.values())).shape[:2]
    flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}
    logs = _logs(fit.model, placed_all(dict(inputs)), placed_all(flat))
    return {name: np.asarray(log).reshape(*lead, *log.shape[1:]) for name, log in logs.items()}


@jit(static_argnums=0, draws=2)
def _logs(model: Bound, inputs: Mapping, draws: Mapping):
    def log_densities_at(values: SiteValues):
        found = model.generative.elements(model.bound, inputs, values)
        return {name: element.log for name, element in found.items()}

    return jax.lax.map(log_densities_at, draws)


def _log_unit_change(fit: Fitted, own: Observed, name: str) -> np.ndarray | float:
    """The log of the change of units, which log densities in the user's units are lower by."""
    if name not in fit.units:
        return 0.0
    known = ~np.isnan(np.asarray(own.value, float))
    return density(fit.units[name], known.reshape(-1, *known.shape[own.batch:])).reshape(
        known.shape[: own.batch])


def groups(fit: Fitted, names: Dimensions, inputs: SiteValues,
           draws: Mapping[str, np.ndarray], group: Callable, most: float) -> dict[str, PyTree]:
    """The groups observed_data and log_likelihood; the latter without sites that depend on what is
    summed out, with a warning.

    Args:
        group: (name → array, dims of a name, leading dims) → the group.
        most: numbers that may be in memory.
    """
    point = {name: value[0, 0] for name, value in draws.items()}
    seen = observed(fit, names, inputs, point)
    lead = next(iter(draws.values())).shape[:2]
    numbers = lead[0] * lead[1] * sum(each.value.size for each in seen.values())
    if numbers > most:
        raise Refusal(f"to_arviz(): {lead[0] * lead[1]} draws of the observed sites need arrays "
                      f"with {numbers:.2g} numbers, more than the limit of {most:.2g}. Fit with "
                      f"fewer draws")
    out = {}
    if seen:
        out["observed_data"] = group({name: each.value for name, each in seen.items()},
                                     lambda name: seen[name].dims, ())
        logs = {name: log - _log_unit_change(fit, seen[name], name)
                for name, log in log_likelihood(fit, inputs, draws).items()}
        out["log_likelihood"] = group(logs, lambda name: seen[name].dims[: seen[name].batch],
                                      units={})
    else:
        warnings.warn("to_arviz(): the result has no group log_likelihood. The observed values "
                      "depend on the same latent variables, so a single value has no "
                      "log-likelihood of its own. Use probml.compare, which compares by the log "
                      "evidence",
                      RuntimeWarning, stacklevel=4)
    return out
