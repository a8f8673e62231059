"""One density of everything as ArviZ's groups: what was observed, and the log density of each of
its elements, dimensions named by the function's own plates."""

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from probml.assessment.dimensions import Dimensions
from probml.errors import Refusal
from probml.language.language import Bound
from probml.numerics.compiling import jit
from probml.numerics.transfer import placed_all
from probml.posteriors.units import density
from probml.queries.fitted import Fitted


class Observed(NamedTuple):
    """What a site of the function observes, and the names of its axes."""

    value: np.ndarray
    dims: tuple[str, ...]
    batch: int  # axes of elements; those behind belong to one element


def observed(fit: Fitted, names: Dimensions, inputs: Mapping[str, Any],
             point: Mapping[str, Any]) -> dict[str, Observed]:
    """Site → what it observes; computed at a point, of which it does not depend."""
    found, out = fit.model.generative.elements(fit.model.bound, inputs, point), {}
    for name, element in found.items():
        value = np.asarray(element.value)
        shape = np.broadcast_shapes(value.shape[: value.ndim - element.event], element.log.shape)
        value = np.broadcast_to(value, shape + value.shape[value.ndim - element.event :])
        out[name] = Observed(value,
                             names.of_plated_site(name, value.shape, len(shape), element.plates),
                             len(shape))
    return out


def log_likelihood(fit: Fitted, inputs: Mapping[str, Any],
                   draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Site → log density of its elements at every draw, (chains, draws, ...), unseen ones 0.

    Cost: a run of the function a draw.
    """
    lead = next(iter(draws.values())).shape[:2]
    flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}
    logs = _logs(fit.model, placed_all(dict(inputs)), placed_all(flat))
    return {name: np.asarray(log).reshape(*lead, *log.shape[1:]) for name, log in logs.items()}


@functools.partial(jit, static_argnums=0, draws=2)
def _logs(model: Bound, inputs: Mapping, draws: Mapping):
    def log_densities_at(values: Mapping[str, Any]):
        found = model.generative.elements(model.bound, inputs, values)
        return {name: element.log for name, element in found.items()}

    return jax.lax.map(log_densities_at, draws)


def _in_density(fit: Fitted, own: Observed, name: str) -> np.ndarray | float:
    """What the log densities of a site's elements lose in the user's units."""
    if name not in fit.units:
        return 0.0
    known = ~np.isnan(np.asarray(own.value, float))
    return density(fit.units[name], known.reshape(-1, *known.shape[own.batch:])).reshape(
        known.shape[: own.batch])


def groups(fit: Fitted, names: Dimensions, inputs: Mapping[str, Any],
           draws: Mapping[str, np.ndarray], group: Callable, most: float) -> dict[str, Any]:
    """The groups of what is observed: observed_data, log_likelihood; the latter is left out, with a
    warning, of sites that look at what is summed out.

    Args:
        group: (name → array, dims of a name, leading dims) → the group.
        most: numbers that may be held.
    """
    point = {name: value[0, 0] for name, value in draws.items()}
    seen = observed(fit, names, inputs, point)
    lead = next(iter(draws.values())).shape[:2]
    numbers = lead[0] * lead[1] * sum(each.value.size for each in seen.values())
    if numbers > most:
        raise Refusal(f"to_arviz(): {lead[0] * lead[1]} draws of the observed sites are "
                      f"{numbers:.2g} numbers, more than the limit of {most:.2g}: fit with fewer "
                      f"draws")
    out = {}
    if seen:
        out["observed_data"] = group({name: each.value for name, each in seen.items()},
                                     lambda name: seen[name].dims, ())
        logs = {name: log - _in_density(fit, seen[name], name)
                for name, log in log_likelihood(fit, inputs, draws).items()}
        out["log_likelihood"] = group(logs, lambda name: seen[name].dims[: seen[name].batch],
                                      units={})
    else:
        warnings.warn("to_arviz(): the observed sites depend on sites that are summed out, or on "
                      "steps that are integrated out, so their elements have no separate "
                      "log-likelihood: the group is left out",
                      RuntimeWarning, stacklevel=4)
    return out
