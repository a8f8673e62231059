"""Simulation of rows: runs the model function with fixed parameters, sampled latent sites and
observed cells kept at their values.

Posterior draws of latent sites and missing cells (those that are integrated out or sampled by
MCMC) inside the rows of the fitted data, and of deterministics inside rows, one for each draw of
the sites outside rows.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro.primitives import Messenger

from probml.dataset import dataset, kinds, ragged
from probml.dataset.arrays import Raw, as_raw, deny
from probml.dataset.coding import indices as coding
from probml.dataset.tables import to_labels
from probml.device import layout, load
from probml.device.rows import Known, Rows
from probml.errors import ModelError, Refusal, counted, listed, present, shortly
from probml.evidence import row_coordinates
from probml.families import registry
from probml.language.language import LONGEST, Bound, chain_length_scope
from probml.language.measured import as_sites
from probml.numerics.compiling import ASKED, jit
from probml.numerics.process.making import unchecked
from probml.numerics.transfer import placed, random_key, split_key
from probml.plan.plan import Plan
from probml.queries import asking, joint_states
from probml.queries.fitted import Fitted
from probml.queries.queries import Belief
from probml.structure.recorder import DETERMINISTIC, log_weight_of, peel, rows_frame
from probml.structure.structure import Structure
from probml.typing import SiteValues

LOG_WEIGHT = ""  # key of the log factors of each row in the output of simulate_rows, if any


class _Fill(Messenger):
    """NumPyro handler: sets each site to its fixed value, or to a draw in which observed cells keep
    their values; records deterministics in `computed`."""

    def __init__(self, fixed: Mapping, seen: Mapping, key: jax.Array, sites: Mapping):
        super().__init__()
        self.fixed, self.observed, self.key = fixed, seen, key
        self.sites, self.values, self.computed = sites, {}, {}
        self.log: ArrayLike = 0.0  # sum of the log factors inside rows

    def process_message(self, msg: dict) -> None:
        name = msg.get("name")
        if msg["type"] == DETERMINISTIC:
            self.computed[name] = msg["value"]
        if msg["type"] != "sample":
            return
        if (weight := log_weight_of(msg["fn"])) is not None:
            if rows_frame(msg, msg["cond_indep_stack"]) is not None:
                self.log += weight.log_factor.sum()
            return
        if msg["is_observed"]:  # outside rows, in the function itself: part of the model
            msg["value"] = jnp.asarray(msg["value"])
            return
        if name in self.fixed:
            value = self.fixed[name]
        else:
            try:
                value = registry.sharp(msg["fn"]).sample(
                    jax.random.fold_in(self.key, len(self.values))) - self.sites[name].low
            except NotImplementedError as error:
                raise Refusal(
                    f"site '{name}' ({self.sites[name].kind}) cannot be simulated, because NumPyro "
                    f"has no sampler for its distribution. Give '{name}' in the data, or use "
                    f"another distribution"
                ) from error
            if name in self.observed:
                data, mask = self.observed[name]
                value = _completed(msg["fn"], value, data, mask)
        self.values[name] = value
        msg["value"] = self.sites[name].valued(value)


def _completed(distribution: dist.Distribution, value: jax.Array, data: jax.Array,
               mask: jax.Array | bool):
    """The data where observed (mask), elsewhere the draw `value`; in a partially observed vector
    the draw is transformed into one conditional on the observed coordinates."""
    base, _ = peel(distribution)
    family = registry.entry(base).likelihood
    if mask is not True and family is not None and family.fill is not None:
        return family.fill(base, value, data, mask)
    return jnp.where(mask, data, value)


@jit(static_argnums=(0, 7, 8), seldom=ASKED)
def simulate_rows(structure: Structure, params: Mapping[str, jax.Array],
                  given: Mapping[str, jax.Array], fixed: Mapping[str, jax.Array],
                  columns: Mapping[str, tuple[jax.Array, jax.Array | None]],
                  inputs: Mapping[str, jax.Array], key: jax.Array, n: int,
                  steps: int | None = None):
    sites = structure.unfolded(steps)

    def simulate_row(params: Mapping[str, jax.Array], fixed: Mapping[str, jax.Array],
                     columns: Mapping[str, tuple[jax.Array, jax.Array | None]],
                     inputs: Mapping[str, jax.Array], key: jax.Array):
        known = {**params, **given, **fixed}
        known = {k: sites[k].place(v) if k in sites else v for k, v in known.items()}
        cells = {k: (sites[k].place(v), True if m is None else sites[k].place(m))
                 for k, (v, m) in columns.items()}
        values, log = _run_function(structure, known, {k: v[None] for k, v in inputs.items()}, key,
                                    1, steps, cells)
        row_values = {k: sites[k].collect(v, 1)[0] for k, v in values.items() if sites[k].rows}
        return row_values | ({LOG_WEIGHT: log} if structure.losses else {})

    keys = jax.random.split(key, n)
    return jax.vmap(simulate_row, axis_size=n)(params, fixed, columns, inputs, keys)


def input_rows(model: Bound, inputs: SiteValues, rows: int | None) -> tuple[dict[str, Raw], int]:
    """The inputs as arrays, but for what all rows share, and the number of rows."""
    fixed = model.bound if model.generative.found else ()
    inputs = {name: value for name, value in inputs.items() if name not in fixed}
    model.check_inputs(inputs)
    raws = {name: as_raw(f"the input '{name}'", value, True) for name, value in inputs.items()}
    if rows is None and raws:
        rows = len(next(iter(raws.values())).values)
    if not isinstance(rows, Integral) or isinstance(rows, bool) or not 1 <= rows <= LONGEST:
        raise ModelError(f"simulate(rows={shortly(rows)}): expected the number of rows, an "
                         f"integer from 1 to {LONGEST:,}, such as simulate(rows=100)")
    return raws, int(rows)


def simulate_prior(model: Bound, rows: int | None, steps: int | None, seed: int,
                   inputs: SiteValues, parameters: bool = False) -> dict[str, np.ndarray]:
    """See Model.simulate."""
    raws, rows = input_rows(model, inputs, rows)
    for name, raw in raws.items():
        if len(raw.values) != rows:
            raise ModelError(f"simulate(rows={rows}): the input '{name}' has "
                             f"{counted(len(raw.values), 'row')}. Give the same number, or omit "
                             "rows=")
        if raw.values.dtype.kind == "f":
            deny(~np.isfinite(raw.values), f"the input '{name}'", raw.values, "finite",
                 hint="Missing values of inputs cannot be inferred. Fill in the value.")
    structure = kinds.structure_for_inputs(model, raws, {},
                                           {name: (raw.values.shape[1:], raw.values.dtype.kind)
                                                              for name, raw in raws.items()})
    arrays = {**{name: raw.values for name, raw in raws.items()},
              **coding.read(structure, raws, {}, {}, coding.REFUSE).values}
    structure.need_likelihood("simulate")
    if structure.prior_factors:
        raise Refusal(
            f"simulate: the factor '{structure.prior_factors[0]}' modifies the prior of model "
            f"'{model.name}', so the prior cannot be sampled. Simulate from a Fit, "
            f"fit.simulate(...), whose parameters are known"
        )
    if structure.chains:
        steps = ragged.along_time(structure, arrays, steps)[1]
    elif steps is not None:
        raise ModelError(f"simulate(steps={steps!r}): model '{model.name}' has no chain, so it has "
                         f"no time steps. Omit steps=")
    values = _simulate_whole(structure, arrays, random_key(seed), rows, steps, parameters)
    return {name: to_labels(np.asarray(values[name]), structure.labels.get(name))
            for name in structure.named if name in values}


@jit(static_argnums=(0, 3, 4, 5), seldom=ASKED)
def _simulate_whole(structure: Structure, inputs: Mapping[str, jax.Array], key: jax.Array, n: int,
                    steps: int | None, outside: bool):
    sites = structure.unfolded(steps)
    return {k: sites[k].collect(v, n) if sites[k].rows else v
            for k, v in _run_function(structure, {}, inputs, key, n, steps)[0].items()
            if sites[k].rows or outside}


def _run_function(structure: Structure, fixed: Mapping[str, jax.Array],
                  inputs: Mapping[str, jax.Array], key: jax.Array, n: int, steps: int | None,
                  cells: Mapping = MappingProxyType({})) -> tuple[dict[str, jax.Array], ArrayLike]:
    """Runs the model function once for n rows with the sites `fixed` fixed, and observed cells
    `cells` (see _Fill): the values of all sites in NumPyro's layout, and the log factors inside
    rows."""
    fill = _Fill(fixed, cells, key, structure.sites)
    with unchecked(), fill, chain_length_scope(steps), as_sites():
        structure.model(rows=n, **inputs)
    return fill.values | {name: value for name, value in fill.computed.items()
                          if name in structure.deterministics}, fill.log


class _Masks(Messenger):
    """NumPyro handler: records of each masked site which elements of its value count."""

    def __init__(self):
        super().__init__()
        self.counted: dict[str, jax.Array] = {}

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "sample" and type(peel(msg["fn"])[0]) is dist.MaskedDistribution:
            self.counted[msg["name"]] = _counted(msg["fn"])


def _counted(fn: dist.Distribution) -> jax.Array:
    """The elements (batch and event axes) of a masked distribution that are not masked."""
    if not isinstance(fn, dist.MaskedDistribution):
        return jnp.broadcast_to(_counted(fn.base_dist), fn.shape())
    mask = jnp.asarray(fn._mask)
    return jnp.broadcast_to(mask.reshape(mask.shape + (1,) * fn.event_dim), fn.shape())


@jit(static_argnums=(0, 4, 5), seldom=ASKED)
def _counted_cells(structure: Structure, values: Mapping[str, jax.Array],
                  inputs: Mapping[str, jax.Array], key: jax.Array, n: int, steps: int | None):
    """Whether each cell of a masked site in rows counts: site → bool (n, *cells).

    Args:
        values: site outside rows → its value; omitted sites are drawn from the prior.
    """
    sites, masks = structure.unfolded(steps), _Masks()
    fixed = {name: sites[name].place(jnp.asarray(value)) for name, value in values.items()}
    with masks:
        _run_function(structure, fixed, inputs, key, n, steps)
    return {name: sites[name].collect(mask, n) for name, mask in masks.counted.items()
            if sites[name].rows}


def without_masked(data: dataset.Data, values: SiteValues) -> dataset.Data:
    """The same data, of which cells that a mask leaves out of the likelihood count as missing.

    Args:
        values: site outside rows → its value, on which a mask may depend.
    """
    sites, kind = data.structure.sites, dist.MaskedDistribution.__name__
    names = [name for name in data.table.columns if sites[name].kind == kind]
    if not names:
        return data
    given = {name: value for name, value in {**values, **data.table.values}.items()
             if name in sites}
    is_counted = _counted_cells(data.structure, given, data.table.inputs, random_key(0),
                                data.table.rows, data.steps)
    columns = dict(data.table.columns)
    for name in names:
        seen, mask = columns[name].observed, np.asarray(is_counted[name])
        columns[name] = replace(columns[name], observed=mask if seen is None else seen & mask)
    return data._replace(table=replace(data.table, columns=columns))


@jit(static_argnums=(0, 1, 6, 7, 8), seldom=ASKED, draws=2)
def simulate_draws(structure: Structure, names: tuple[str, ...], draws: Mapping[str, jax.Array],
                   given: Mapping[str, jax.Array], inputs: Mapping[str, jax.Array], key: jax.Array,
                   n: int, count: int, steps: int | None = None):
    """Simulates n rows for each of `count` draws of the sites outside rows: site in `names` →
    (count, n, *cells), or (count, ...) outside rows.

    Args:
        draws: site outside rows → (count, ...); omitted sites are drawn from the prior.
        given: site outside rows → one value, used for all draws.
    """
    sites = structure.unfolded(steps)

    def simulate_at_draw(pair: tuple):
        draw, key = pair
        fixed = {name: sites[name].place(jnp.asarray(value))
                 for name, value in {**draw, **given}.items()}
        values, _ = _run_function(structure, fixed, inputs, key, n, steps)
        return {name: sites[name].collect(values[name], n) for name in names}

    return jax.lax.map(simulate_at_draw, (draws, jax.random.split(key, count)))


MAX_DRAWN_NUMBERS = 2**26  # numbers in the draws of all rows, at most


def names_of(fit: Fitted) -> tuple[str, ...]:
    """The sites inside rows that are integrated out or sampled by MCMC, and the deterministics
    inside rows; () where there are no such sites, or the fit has not retained its data."""
    if fit.data is None or fit.model.is_joint or fit.learnt is not None:
        return ()
    plan = fit.data.carrying(fit.belief.rows(1, 0)).plan()
    latents = [name for name in fit.structure.sites if name in (*plan.hidden, *plan.sampled)]
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
    data, count = present(fit.data), len(next(iter({**draws, **sampled}.values())))
    cells = sum(math.prod(sites[name].along(data.steps)) for name in names)
    if count * data.table.rows * cells > MAX_DRAWN_NUMBERS:
        warnings.warn(
            f"draws({count}): the draws do not contain {listed(names)}, because for "
            f"{counted(data.table.rows, 'row')} they would be "
            f"{count * data.table.rows * cells:,.0f} numbers, more than the limit of "
            f"{MAX_DRAWN_NUMBERS:,.0f}. Ask for fewer draws, or use simulate(given=data) for one "
            "draw per row", RuntimeWarning, stacklevel=4)
        return {}
    discrete = {name: np.asarray(value)[0] for name, value in draws.items()
                if fit.structure.sites[name].discrete}
    table = replace(data.table, values={**fit.given, **data.table.values, **discrete})
    data = data._replace(table=table).carrying(sampled)
    missing = np.arange(data.table.rows) if sampled else _rows_with_missing_cells(data, names)
    part = data.taken(missing)
    plan = part.plan()
    rows, known = load.load(part, plan, keep=(order := layout.order(part, plan)), params=fit.point)
    loaded = {name: _loaded(value, rows, order) for name, value in sampled.items()}
    keys = split_key(random_key(seed + 2), count)
    drawn: dict[str, ArrayLike] = {}
    if plan.variables or plan.latents:
        states = jax.device_get(_drawn(plan, {**draws, **loaded}, known, rows, keys))
        drawn = {name: np.stack([asking.in_user_order(part, order, draw, name) for draw in value])
                 for name, value in states.items()}
    values = {name: plan.cells(name, value.reshape(-1, *value.shape[2:])).reshape(
        *value.shape[:2], *sites[name].along(data.steps)) if name in plan.variables else value
        for name, value in drawn.items()}
    for name, value in values.items():
        whole = np.zeros((count, data.table.rows, *value.shape[2:]), value.dtype)
        whole[:, missing] = value
        values[name] = np.stack([present(fit.data).with_observed_codes(name, draw)
                                 for draw in whole])
    values |= sampled
    computed = tuple(name for name in names if name in fit.structure.deterministics)
    result = {name: values[name] for name in names if name in values}
    if computed:
        columns = {name: (c.values, c.observed) for name,
                   c in present(fit.data).table.columns.items()
                   if name not in values and c.likelihood is None}
        derived = _computed(data.structure, computed, dict(draws), known.given, values, columns,
                            data.table.inputs, keys, data.table.rows, data.steps)
        result |= {name: np.asarray(value) for name, value in derived.items()}
    return result


def _rows_with_missing_cells(data: dataset.Data, names: tuple[str, ...]) -> np.ndarray:
    """The rows in which some cell of these sites is not observed; the others need no draws."""
    is_missing = np.zeros(data.table.rows, bool)
    for name in names:
        column = data.table.columns.get(name)
        if column is not None and column.likelihood is None:
            is_missing |= False if column.observed is None else ~column.observed.reshape(
                data.table.rows, -1).all(1)
        elif name not in data.structure.deterministics:
            is_missing[:] = True
    return np.flatnonzero(is_missing)


def _loaded(value: np.ndarray, rows: Rows, order: np.ndarray | None) -> jax.Array:
    """(draws, n, *cells) → (draws, chunks, b, *cells), padded with copies of the first row."""
    chunks, size = rows.stacked.weights.shape
    value = value if order is None else value[:, order]
    pad = np.broadcast_to(value[:, :1], (len(value), chunks * size - value.shape[1],
                                         *value.shape[2:]))
    padded = np.concatenate([value, pad], 1)
    return placed(padded.reshape(len(value), chunks, size, *value.shape[2:]),
                  jnp.result_type(float))


@jit(static_argnums=0, seldom=ASKED, draws=1)
def _drawn(plan: Plan, draws: Mapping, known: Known, rows: Rows,
           keys: jax.Array) -> dict[str, jax.Array]:
    """Joint draws of the variables and latents of every row given each parameter draw: name →
    (draws, chunks, b, ...)."""

    def draw_rows(pair: tuple):
        draw, key = pair
        belief, known_at = Belief.at_draw(plan, known, draw)
        placed_rows = row_coordinates.with_values(plan, rows, draw)
        return joint_states.drawn_once(plan, belief, known_at, placed_rows, key)[1]

    return jax.lax.map(draw_rows, (draws, keys))


@jit(static_argnums=(0, 1, 8, 9), seldom=ASKED, draws=2)
def _computed(structure: Structure, names: tuple[str, ...], draws: Mapping, given: Mapping,
              fixed: Mapping, columns: Mapping, inputs: Mapping, keys: jax.Array, n: int,
              steps: int | None):
    """The deterministics `names` inside rows at every draw: name → (draws, n, *cells)."""

    def compute_at_draw(pair: tuple):
        draw, row_values, key = pair
        tiled = {name: jnp.broadcast_to(value, (n, *jnp.shape(value)))
                 for name, value in draw.items()}
        others = {name: value for name, value in given.items() if name not in draw}
        values = simulate_rows(structure, tiled, others, row_values, columns, inputs, key, n, steps)
        return {name: values[name] for name in names}

    return jax.lax.map(compute_at_draw, (draws, fixed, keys))
