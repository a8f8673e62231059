"""What lies inside rows at draws of what lies outside: unseen numbers, and what is computed."""

import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset import dataset
from probml.device import layout, load
from probml.errors import present
from probml.queries import asking, queries, row_draws
from probml.queries.fitted import Fitted


def at_draws(fit: Fitted, held: dataset.Data, draws: Mapping[str, np.ndarray]) -> tuple[
    dataset.Data, dict[str, jax.Array], tuple[int, int]
]:
    """The data with all discrete sites outside rows for given; the draws of what is unknown,
    (chains × draws, ...); chains and draws."""
    draws = {name: np.asarray(value) for name, value in draws.items()
             if name not in held.table.values}
    outside = {name: value[0, 0] for name, value in draws.items()
               if held.structure.sites[name].discrete}
    held = held._replace(table=replace(held.table,
                                       values={**fit.given, **held.table.values, **outside}))
    draws = draws or {"": np.zeros((1, 1))}
    flat = {name: jnp.asarray(value.reshape(-1, *value.shape[2:])) for name, value in draws.items()}
    return held, flat, next(iter(draws.values())).shape[:2]


def row_latents(fit: Fitted, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The unseen numbers of the rows that were fitted, and what is computed from them, at every
    draw: site → (chains, draws, n, *cells)."""
    lead = next(iter(draws.values())).shape[:2]

    def flat(values: Mapping[str, Any]):
        return {name: np.asarray(value).reshape(-1, *np.shape(value)[2:])
                for name, value in values.items()}

    inside = getattr(fit.belief, "inside", {})
    found = row_draws.within(fit, flat(draws), flat(inside), 0)
    return {name: value.reshape(*lead, *value.shape[1:]) for name, value in found.items()}


def row_values(fit: Fitted, held: dataset.Data, draws: dict[str, np.ndarray],
               known: Collection[str] = ()) -> dict[str, np.ndarray]:
    """What the model computes in rows, at every draw, (chains, draws, n, *cells), averaged over
    what is hidden and discrete in the row given what it shows; not what is `known`. Warns of what
    takes other unseen cells, which is left out."""
    names, lacking = [], []
    for site in held.structure.deterministics.values():
        if site.rows and site.name not in known:
            (names if all(fit._settled(held, parent) for parent in site.parents)
             else lacking).append(site.name)
    if lacking:
        warnings.warn(
            f"to_arviz(): {lacking} are left out: they are computed from cells that are missing in "
            f"these data and were not drawn; use fit.predict(data, '{lacking[0]}') for their means",
            RuntimeWarning,
            stacklevel=4,
        )
    if not names:
        return {}
    held, flat, lead = at_draws(fit, held, draws)
    plan = held.plan(tuple(names))
    order = layout.order(held, plan)
    rows, own = load.load(held, plan, keep=order, params=fit.point)
    made = queries.row_values(plan, tuple(names), flat, own, rows)
    out = {}
    for name in names:
        values, time = np.asarray(made[name]), plan.structure.named[name].time
        values = np.stack([asking.back(held, order, value, name) for value in values])
        # behind the last step that shows anything nothing was asked
        if time is not None and held.lengths is not None:
            dead = np.arange(present(held.steps)) >= held.lengths[:, None]
            np.moveaxis(values, 2 + time, 2)[:, dead] = np.nan
        out[name] = values.reshape(*lead, *values.shape[1:])
    return out
