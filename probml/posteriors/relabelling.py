"""Label switching: exchangeable states of hidden sites, found by the density itself, and draws
renumbered so that they agree."""

import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
import numpy as np

from probml.device.rows import Known, Rows
from probml.evidence import density
from probml.numerics.compiling import ASKED, jit
from probml.numerics.transfer import placed
from probml.plan.plan import Plan
from probml.posteriors.posterior import constrained, unconstrained

MAX_ROUNDS = 3  # of assigning draws to the pivot and moving the pivot to their mean
MAX_CHOICES = 16  # of the axes of states that are tried for one hidden site


class Exchange(NamedTuple):
    """A hidden site whose states may be renumbered if the axes of parameters are permuted too."""

    site: str
    states: int
    axes: tuple[tuple[str, tuple[int, ...]], ...]  # parameter → its axes of states

    def permuted(self, values: Mapping, order: np.ndarray, lead: int = 0) -> dict:
        """The parameters with state order[i] in place i; `lead` axes come before theirs."""
        result = dict(values)
        for name, axes in self.axes:
            for axis in axes:
                result[name] = np.take(result[name], order, axis + lead)
        return result


@jit(static_argnums=0, seldom=ASKED)
def _density(plan: Plan, params: Mapping, known: Known, rows: Rows) -> jax.Array:
    u = density.to_unbounded(plan, params, known)
    point = functools.partial(density.from_unbounded, plan, known=known)
    return density.value_and_gradient(plan, lambda u: point(u=u), u, known, rows)[0]


def exchanges(plan: Plan, params: Mapping, known: Known, rows: Rows) -> list[Exchange]:
    """The hidden sites inside rows whose states are exchangeable: the posterior density is the same
    under permutations of them.

    It is evaluated with two permutations that generate all others, a swap and a rotation.

    Args:
        params: a point whose density is finite; another is made a step away from it.
    """
    sites = plan.structure.sites
    hidden = [v for v in (*plan.variables, *plan.cellwise)
              if sites[v].rows and v not in plan.pattern and (sites[v].states or 0) > 1
              and (v in plan.cellwise or sites[v].states == plan.variables[v].states)]
    if not hidden:
        return []
    params = {name: np.asarray(params[name]) for name in plan.free}
    random = np.random.default_rng(0)
    u = np.asarray(unconstrained(plan, params, known))
    base = jax.device_get(constrained(
        plan, known, placed(u + 0.1 * random.standard_normal(u.shape).astype(u.dtype))))
    value = float(_density(plan, base, known, rows))
    if not np.isfinite(value):
        return []
    tolerance = 1e-9 if u.dtype == np.float64 else 1e-4

    def is_symmetric(exchange: Exchange) -> bool:
        orders = np.r_[1, 0, 2:exchange.states], np.roll(np.arange(exchange.states), 1)
        return all(abs(float(_density(plan, exchange.permuted(base, order), known, rows)) - value)
                   <= tolerance * (1 + abs(value)) for order in orders)

    swaps = [next(filter(is_symmetric, _possible_exchanges(plan, name)), None) for name in hidden]
    return [exchange for exchange in swaps if exchange is not None]


def _possible_exchanges(plan: Plan, name: str) -> Iterator[Exchange]:
    """The possible axes of a hidden site's states in the parameters, those with most axes first."""
    sites, options = plan.structure.sites, []
    states = sites[name].states or 0
    dependents = (name, *plan.structure.children[name])
    for parameter in (p for p in plan.free
                      if any(p in uses for s in dependents for uses in sites[s].uses.values())):
        state_axes = [axis for axis, size in enumerate(sites[parameter].shape) if size == states]
        options.append([(parameter, axes) for r in range(len(state_axes), -1, -1)
                        for axes in itertools.combinations(state_axes, r)])
    for choice in itertools.islice(itertools.product(*options), MAX_CHOICES):
        axes = tuple((parameter, axes) for parameter, axes in choice if axes)
        if axes:
            yield Exchange(name, states, axes)


def relabelled(exchangeable: list[Exchange], values: Mapping[str, np.ndarray]) -> tuple[
    dict[str, np.ndarray], int
]:
    """Draws (chains, draws, ...) with the states of exchangeable sites numbered consistently, and
    how many were renumbered.

    Each draw is permuted so that its parameters are nearest to a pivot, in units of their standard
    deviations over draws; the pivot is the first draw, then the mean of the permuted draws
    (Stephens 2000 with a squared-error loss).

    Cost: an assignment problem of `states` a draw and round.
    """
    if not exchangeable:
        return dict(values), 0
    from scipy.optimize import linear_sum_assignment

    result, n_moved = {name: np.array(value) for name, value in values.items()}, 0
    for exchange in exchangeable:
        chains, draws = next(iter(result.values())).shape[:2]
        single = [(name, axes[0]) for name, axes in exchange.axes if len(axes) == 1]
        if not single:
            continue
        parts = [np.moveaxis(result[name], 2 + axis, 2).reshape(chains * draws, exchange.states, -1)
                 for name, axis in single]
        features = np.concatenate(parts, 2)
        sd_all = features.reshape(-1, features.shape[-1]).std(0)
        sd_in = features.std(0).mean(0)
        features = features / np.where(sd_in > 0, sd_in, np.where(sd_all > 0, sd_all, 1.0))
        pivot, orders = features[0], np.tile(np.arange(exchange.states), (len(features), 1))
        for _ in range(MAX_ROUNDS):
            # (draws, state of the pivot, state of the draw)
            costs = ((features[:, None] - pivot[None, :, None]) ** 2).sum(-1)
            new_orders = np.stack([linear_sum_assignment(cost)[1] for cost in costs])
            pivot = np.take_along_axis(features, new_orders[..., None], 1).mean(0)
            converged, orders = (new_orders == orders).all(), new_orders
            if converged:
                break
        n_moved += int((orders != np.arange(exchange.states)).any(1).sum())
        for name, axes in exchange.axes:
            for axis in axes:
                shape = [1] * (result[name].ndim - 1)
                shape[0], shape[1 + axis] = len(orders), exchange.states
                flat = result[name].reshape(len(orders), *result[name].shape[2:])
                result[name] = np.take_along_axis(flat, orders.reshape(shape),
                                                  1 + axis).reshape(result[name].shape)
    return result, n_moved
