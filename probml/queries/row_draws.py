"""Posterior draws of latent sites and missing cells (those that are integrated out or sampled by
MCMC) inside the rows of the fitted data, and of deterministics inside rows, one for each draw of
the sites outside rows."""

import functools
import math
import warnings
from collections.abc import Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.device import layout, load
from probml.device.rows import Known, Rows
from probml.errors import present, quoted
from probml.evidence import row_coordinates
from probml.numerics.compile_effort import ASKED
from probml.numerics.compiling import jit
from probml.numerics.transfer import placed, random_key
from probml.plan.plan import Plan
from probml.queries import asking, drawing
from probml.queries.fitted import Fitted
from probml.queries.parts import Belief
from probml.queries.simulation import simulate_rows
from probml.structure.structure import Structure
from probml.typing import SiteValues

MAX_DRAWN_NUMBERS = 2**26  # numbers in the draws of all rows, at most


def names_of(fit: Fitted) -> tuple[str, ...]:
    """The sites inside rows that are integrated out or sampled by MCMC, and the deterministics
    inside rows; () where there are no such sites, or the fit has not retained its data."""
    if fit.data is None or fit.model.whole or fit.learnt is not None:
        return ()
    plan = fit.data.carrying(fit.belief.rows(1, 0)).plan()
    latents = [name for name in fit.structure.sites if name in (*plan.hidden, *plan.carried)]
    rows = [site.name for site in fit.structure.deterministics.values() if site.rows]
    return (*latents, *rows) if latents else ()


def within(fit: Fitted, draws: SiteValues, sampled: Mapping[str, np.ndarray],
           seed: int) -> dict[str, np.ndarray]:
    """Site → (draws, rows, *cells): `sampled` sites unchanged, the others drawn given each draw of
    the rest; observed cells have their observed values.

    Args:
        draws: site outside rows → (draws, ...), discrete ones as codes.
        sampled: site inside rows → (draws, rows, *cells).

    Returns {} with a warning where there would be more than MAX_DRAWN_NUMBERS numbers.
    Cost: one likelihood evaluation of all rows per draw.
    """
    names, sites = names_of(fit), fit.structure.named
    if not names:
        return {}
    held, count = present(fit.data), len(next(iter({**draws, **sampled}.values())))
    cells = sum(math.prod(sites[name].along(held.steps)) for name in names)
    if count * held.table.rows * cells > MAX_DRAWN_NUMBERS:
        warnings.warn(
            f"draws({count}): {quoted(names)} of {held.table.rows} rows are left out of the draws, "
            f"because they would be {count * held.table.rows * cells:.2g} numbers, more than the "
            f"limit of {MAX_DRAWN_NUMBERS:.2g}: ask for fewer draws, or use simulate(given=data) "
            f"for one draw per row", RuntimeWarning, stacklevel=4)
        return {}
    discrete = {name: np.asarray(value)[0] for name, value in draws.items()
                if fit.structure.sites[name].discrete}
    table = replace(held.table, values={**fit.given, **held.table.values, **discrete})
    held = held._replace(table=table).carrying(sampled)
    plan = held.plan()
    rows, known = load.load(held, plan, keep=(order := layout.order(held, plan)), params=fit.point)
    own = {name: _loaded(value, rows, order) for name, value in sampled.items()}
    keys = jax.random.split(random_key(seed + 2), count)
    found: dict[str, ArrayLike] = {}
    if plan.variables or plan.latents:
        states = _drawn(plan, {**draws, **own}, known, rows, keys)
        found = {name: np.stack([asking.back(held, order, one, name) for one in value])
                 for name, value in states.items()}
    fixed = {name: plan.cells(name, value.reshape(-1, *value.shape[2:])).reshape(
        *value.shape[:2], *sites[name].along(held.steps)) if name in plan.variables else value
        for name, value in found.items()}
    fixed = {name: np.stack([present(fit.data).with_observed_codes(name, one) for one in value])
             for name, value in fixed.items()} | dict(sampled)
    computed = tuple(name for name in names if name in fit.structure.deterministics)
    out = {name: fixed[name] for name in names if name in fixed}
    if computed:
        columns = {name: (c.values, c.seen) for name, c in present(fit.data).table.columns.items()
                   if name not in fixed and c.likelihood is None}
        made = _computed(held.structure, computed, dict(draws), known.given, fixed, columns,
                         held.table.inputs, keys, held.table.rows, held.steps)
        out |= {name: np.asarray(value) for name, value in made.items()}
    return out


def _loaded(value: np.ndarray, rows: Rows, order: np.ndarray | None) -> jax.Array:
    """(draws, n, *cells) → (draws, chunks, b, *cells), padded with copies of the first row."""
    chunks, size = rows.stacked.weights.shape
    value = value if order is None else value[:, order]
    pad = np.broadcast_to(value[:, :1], (len(value), chunks * size - value.shape[1],
                                         *value.shape[2:]))
    whole = np.concatenate([value, pad], 1)
    return placed(whole.reshape(len(value), chunks, size, *value.shape[2:]),
                  jnp.result_type(float))


@functools.partial(jit, static_argnums=0, seldom=ASKED, draws=1)
def _drawn(plan: Plan, draws: Mapping, known: Known, rows: Rows,
           keys: jax.Array) -> dict[str, jax.Array]:
    """Joint draws of the variables and latents of every row given each parameter draw: name →
    (draws, chunks, b, ...)."""

    def draw_rows(pair: tuple):
        draw, key = pair
        belief, at = Belief.at_draw(plan, known, draw)
        return drawing.drawn_once(plan, belief, at, row_coordinates.placed(plan, rows, draw),
                                  key)[1]

    return jax.lax.map(draw_rows, (draws, keys))


@functools.partial(jit, static_argnums=(0, 1, 8, 9), seldom=ASKED, draws=2)
def _computed(structure: Structure, names: tuple[str, ...], draws: Mapping, given: Mapping,
              fixed: Mapping, columns: Mapping, inputs: Mapping, keys: jax.Array, n: int,
              steps: int | None):
    """The deterministics `names` inside rows at every draw: name → (draws, n, *cells)."""

    def compute_at_draw(pair: tuple):
        draw, own, key = pair
        every = {name: jnp.broadcast_to(value, (n, *jnp.shape(value)))
                 for name, value in draw.items()}
        rest = {name: value for name, value in given.items() if name not in draw}
        made = simulate_rows(structure, every, rest, own, columns, inputs, key, n, steps)
        return {name: made[name] for name in names}

    return jax.lax.map(compute_at_draw, (draws, fixed, keys))
