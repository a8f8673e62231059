"""Draws of latent variables and deterministics inside rows, given draws of the sites outside."""

import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset import dataset
from probml.device import layout, load
from probml.errors import present
from probml.queries import asking, queries, row_draws
from probml.queries.fitted import Fitted
from probml.typing import SiteValues


def at_draws(fit: Fitted, held: dataset.Data, draws: Mapping[str, np.ndarray]) -> tuple[
    dataset.Data, dict[str, jax.Array], tuple[int, int]
]:
    """The data with all discrete sites outside rows as given; the draws of unknown sites,
    (chains × draws, ...); the numbers of chains and draws."""
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
    """The continuous latent variables of the fitted rows, and deterministics of these, at every
    draw: site → (chains, draws, n, *cells)."""
    lead = next(iter(draws.values())).shape[:2]

    def flat(values: SiteValues):
        return {name: np.asarray(value).reshape(-1, *np.shape(value)[2:])
                for name, value in values.items()}

    inside = getattr(fit.belief, "inside", {})
    found = row_draws.within(fit, flat(draws), flat(inside), 0)
    return {name: value.reshape(*lead, *value.shape[1:]) for name, value in found.items()}


def row_values(fit: Fitted, held: dataset.Data, draws: dict[str, np.ndarray],
               known: Collection[str] = ()) -> dict[str, np.ndarray]:
    """The deterministics in rows, at every draw, (chains, draws, n, *cells), averaged over the
    latent discrete sites given the observed cells of the row; without those in `known`. Those with
    other missing parents are left out, with a warning."""
    names, lacking = [], []
    for site in held.structure.deterministics.values():
        if site.rows and site.name not in known:
            (names if all(fit._is_observed_or_summed(held, parent) for parent in site.parents)
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
        # steps after the last observed one are not reported
        if time is not None and held.lengths is not None:
            dead = np.arange(present(held.steps)) >= held.lengths[:, None]
            np.moveaxis(values, 2 + time, 2)[:, dead] = np.nan
        out[name] = values.reshape(*lead, *values.shape[1:])
    return out
