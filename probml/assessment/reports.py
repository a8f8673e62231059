"""Summary tables of a fit, and its export to ArviZ, with latent variables and deterministics inside
rows given draws of the sites outside."""

import math
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist

from probml.assessment import dimensions, either_arviz, whole_arviz
from probml.assessment.summary_tables import Estimates, rows_by_old_names
from probml.dataset import dataset
from probml.dataset.frames import shortest
from probml.device import layout, load
from probml.engines.engine import short_name
from probml.errors import ModelError, Refusal, ReliabilityWarning, counted, listed, present
from probml.fits.standard_errors import NOTE, StandardErrors
from probml.numerics.compiling import ASKED, jit
from probml.numerics.transfer import placed, placed_all, random_key
from probml.posteriors import diagnostics
from probml.posteriors.units import density, deviations, in_units, roots_in_units
from probml.queries import asking, outside, queries, simulation, step_posteriors
from probml.queries.fitted import Fitted
from probml.typing import ArrayLike, PyTree, SiteValues

EXPORTED_DRAWS = 1000  # of a posterior in closed form, where draws are needed
Z_90 = 1.6448536269514722  # half-width of a normal's central 90%, in standard deviations
MAX_ROW_NUMBERS = 2**28  # of rows in an InferenceData: 2 GiB


def summary(fit: Fitted, errors: StandardErrors | None = None):
    """See Fit.summary; `errors` of a point."""
    records, entries = [], dimensions.named_entries(fit, fit.names)
    values = {**fit.params, **in_units(fit.units, fit.params)}
    draws, deviation = draws_in_units(fit), posterior_deviations(fit)
    for name in (name for name in values if name not in step_posteriors.names_of_loops(fit)):
        value = np.asarray(values[name])
        columns = estimate_columns(fit, name, value, draws, deviation)
        if errors is not None and not fit.belief.exact:
            columns |= standard_error(fit, errors, name, columns.get("sd"))
        elif fit.belief.partly:  # a posterior of some parameters alone
            columns.pop("sd", None)
        columns = {c: np.broadcast_to(v if c == "note" else shortest(v), value.shape)
                   for c, v in columns.items()}
        for index in np.ndindex(value.shape):
            label = dimensions.entry(name, index, entries)
            records.append({"parameter": label} | {c: v[index] for c, v in columns.items()})
    order = sorted(dict.fromkeys(column for record in records for column in record),
                   key="note".__eq__)  # notes last
    table = Estimates(records, columns=order or ["parameter", "value"]).set_index("parameter")
    if "note" in table:
        table["note"] = table["note"].fillna("")
    if errors is not None and (errors.root or fit.errors):
        table.attrs["sd"] = NOTE
    findings = (*fit.warnings, *([errors.posterior] if errors and errors.posterior else []))
    if findings:
        table.attrs["warnings"] = tuple(map(str, findings))
    return rows_by_old_names(table, fit.model.renamed)


def covariance(fit: Fitted, names: Sequence[str],
               errors: Callable[[], StandardErrors | None]) -> np.ndarray:
    """See Fit._covariance; `errors` of a point."""
    roots = _covariance_roots(fit, names)
    if not roots.keys() >= set(names):
        result = errors()
        roots = {**roots, **({} if result is None else result.root)}
    sizes = [int(np.prod(np.shape(fit.params[name]), dtype=int)) for name in names]
    if not roots.keys() >= set(names):
        return np.full((sum(sizes), sum(sizes)), np.nan)
    root = np.concatenate([roots[name].reshape(-1, count) for name, count in zip(
        names, sizes, strict=True)], 1)
    return root.T @ root


def standard_errors(fit: Fitted, names: Sequence[str],
                    errors: Callable[[], StandardErrors | None]) -> dict[str, np.ndarray]:
    """See Fit._with_errors; `errors` of a point."""
    known = {**deviations(_covariance_roots(fit, names)), **posterior_deviations(fit)}
    restricted = fit.by is not None and fit.by.capabilities.restricts
    if known.keys() >= set(names) and (restricted or not fit.belief.partly):
        return {name: known[name] for name in names}
    result = errors()
    return {name: standard_error(fit, StandardErrors({}, {}) if result is None else result, name,
                        known.get(name))["sd"] for name in names}


def _covariance_roots(fit: Fitted, requested: Collection[str] = ()) -> dict[str, np.ndarray]:
    """Columns of a root of the joint covariance of a posterior in closed form, or of draws, in the
    units of the user's columns, name → (k, *shape); of a closed form only for parameters with
    joint units, and those asked for."""
    names = {*fit.point, *fit.belief.partly}
    if fit.belief.exact:
        mixed = {name: unit for name, unit in fit.units.items() if not unit.is_elementwise}
        others = {other for unit in mixed.values() for other in unit.others}
        names &= {*mixed, *others, *requested}
    if not (fit.belief.varies and names):
        return {}
    return roots_in_units(fit.units, fit.belief.root(fit._plan, fit._known(), names))


def posterior_deviations(fit: Fitted) -> dict[str, np.ndarray]:
    """Standard deviations of a posterior that need no draws, in the units of the user's columns."""
    if fit.belief.chains is not None:
        return {}
    roots = deviations(_covariance_roots(fit))
    closed_form = fit.point if fit.belief.exact else fit.belief.partly
    factors = {name: fit.units[name].factor if name in fit.units else 1.0 for name in closed_form
               if name not in roots and (name not in fit.units or fit.units[name].is_elementwise)}
    return roots | {name: np.sqrt(np.asarray(_variance(fit.posterior(name)), float)) * factor
                    for name, factor in factors.items()}


@jit(seldom=ASKED)
def _variance(distribution: dist.Distribution) -> jax.Array:
    return distribution.variance


def draws_in_units(fit: Fitted) -> dict[str, np.ndarray]:
    """Draws of a posterior, of deterministics and of steps that are integrated out, in the units of
    the user's columns."""
    if not fit.belief.varies:
        return {}
    draws = posterior_draws(fit)
    draws = {**draws, **outside.chains(fit, draws),
             **step_posteriors.draw_steps_by_chain(fit, draws)}
    return {**draws, **in_units(fit.units, draws)}


def standard_error(fit: Fitted, errors: StandardErrors, name: str,
                   given: Any) -> dict[str, ArrayLike]:
    """The column "sd" of a parameter of a point, and "note" where there is none.

    Args:
        given: of effects of groups, and deterministics of these, their standard deviation given
            all other parameters.
    """
    if name in fit.errors:
        return {"sd": fit.errors[name]}
    reason = errors.reasons.get(name, errors.reasons.get("", ""))
    sd = deviations({name: errors.root.get(name, np.full(1, np.nan))})[name]
    if given is not None and name not in errors.root:
        return {"sd": given, "note": f"the sd does not include the uncertainty of the other "
                                     f"parameters, because {reason}"}
    sd = sd if given is None else np.hypot(sd, given)
    return {"sd": sd} | ({"note": np.where(np.isnan(sd), reason, "")} if reason else {})


def estimate_columns(fit: Fitted, name: str, value: np.ndarray, draws: Mapping[str, np.ndarray],
                     deviation: Mapping[str, np.ndarray]) -> dict[str, ArrayLike]:
    """The columns of a parameter in a summary: value, or mean, sd, quantiles and diagnostics."""
    belief, sd = fit.belief, deviation.get(name)
    if not belief.varies:
        return {"value": value}
    if belief.partly:
        point = sd is None and (name in fit.point or name not in draws)
        return {"value": value} if point else {
            "value": value, "sd": draws[name].std((0, 1)) if sd is None else sd}
    if belief.exact:
        return {"mean": value, "sd": draws[name].std((0, 1)) if sd is None else sd}
    if sd is not None:  # normal
        return {"mean": value, "sd": sd, "5%": value - Z_90 * sd, "95%": value + Z_90 * sd}
    return summary_of_draws(fit, np.asarray(draws[name], float)) | {
        column: float(value) for column, value in belief.worth.items()}


def summary_of_draws(fit: Fitted, draws: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of a table for draws (chains, draws, ...); for those of chains with convergence
    diagnostics."""
    low, high = np.quantile(draws, (0.05, 0.95), (0, 1))
    columns = {"mean": draws.mean((0, 1)), "sd": draws.std((0, 1)), "5%": low, "95%": high}
    if fit.belief.stats:
        columns |= {"ess_bulk": diagnostics.effective(draws),
                    "ess_tail": diagnostics.effective(draws, tail=True),
                    "r_hat": diagnostics.r_hat(draws)}
    return columns


def posterior_draws(fit: Fitted) -> dict[str, np.ndarray]:
    """Draws of the sites outside rows, discrete ones as codes, (chains, draws, ...); of a closed
    form or a normal, one chain of EXPORTED_DRAWS.

    Raises:
        Refusal: the engine found a point.
    """
    if fit.certain:
        fit.draws(1)  # raises
    if fit.belief.chains is not None:
        return {name: np.asarray(value) for name, value in fit.belief.chains.items()}
    drawn = fit._draws(EXPORTED_DRAWS, 0)
    fixed = next((name for name in fit._plan.free if name not in drawn), None)
    if fixed is not None:  # beside discrete sites outside rows, which have a posterior
        raise Refusal(f"{short_name(fit.engine)} gives a point estimate of '{fixed}', which has no "
                      "draws. Use another engine, such as {engines}", ("NUTS", "Laplace"))
    return {name: np.asarray(value)[None] for name, value in drawn.items()}


def log_likelihood(fit: Fitted, data: dataset.Data, draws: Mapping[str, np.ndarray]) -> np.ndarray:
    """log p(row | θ) of every draw of θ and every row, the latent discrete sites of the row summed
    out: (chains, draws, n), nats.

    θ are the parameters and the discrete sites outside rows(), given which rows are independent.

    Args:
        draws: site outside rows → (chains, draws, ...), as `posterior_draws` gives them; sites of
            known value may be left out.

    Raises:
        Refusal: a missing continuous cell that others depend on.
    Cost: an evidence of all rows a draw, and memory of chains × draws × n numbers.
    """
    data.structure.need_rows("the likelihood of rows")
    data, flat, chain_shape = _at_draws(fit, data, draws)
    data = data.trimmed()
    plan, order = (plan := data.plan()), layout.order(data, plan)
    rows, known = load.load(data, plan, keep=order, params=fit.point)
    logs = np.asarray(queries.row_logs(plan, flat, known, rows))  # (draws, chunks, b)
    return np.stack([load.unload(log, data.table.rows, order) for log in logs]).reshape(
        *chain_shape, data.table.rows
    )


def own_data(fit: Fitted, data: object, verb: str) -> dataset.Data:
    """The data, read; by default those that were fitted.

    Raises:
        ModelError: the Fit has none, or others than these.
        DataError: data that the model cannot take.
    """
    if data is None and fit.data is None:
        raise ModelError(f"{verb}: a Fit by {short_name(fit.engine)} does not store the data to "
                         "which it was fitted. Pass these data, as a mapping or table")
    rows = present(fit.data) if data is None else fit._read(data)
    if not rows.table.columns and not (rows.structure.losses
                                       and (rows.table.inputs or fit.model.is_joint)):
        raise ModelError(f"{verb}: the data contain no observed value of a site of model "
                         f"'{fit.model.name}'. Pass the data to which the model was fitted")
    return rows


class _Groups(NamedTuple):
    """Makes groups of an InferenceData: values of sites → an xarray Dataset."""

    fit: Fitted
    names: dimensions.Dimensions

    def __call__(self, values: SiteValues, layout: Callable[[str], tuple[str, ...]],
                 front: tuple[str, ...] = ("chain", "draw"), units: Any = None) -> Any:
        """
        Args:
            layout: site → its dimensions after those of `front`.
            units: None: those of the Fit.
        """
        import xarray

        fit, names, sites = self.fit, self.names, self.fit.structure.sites
        values = {**values, **in_units(fit.units if units is None else units, values)}
        low = {name: sites[name].low for name in values if name in sites}
        values = {name: sites[name].valued(v) if low.get(name) else v for name, v in values.items()}
        attrs = {name: {} if low.get(name) else names.states(name) for name in values}
        # arviz.loo writes into the array that it is given
        arrays = {name: xarray.DataArray(np.require(v, requirements="W"), attrs=attrs[name],
                                         dims=(*front, *layout(name)))
                  for name, v in values.items()}
        used_dims = {dim for array in arrays.values() for dim in array.dims}
        coords = {dim: labels for dim, labels in names.coords.items() if dim in used_dims}
        sizes = {dim: size for array in arrays.values() for dim, size in array.sizes.items()}
        coords |= {dim: np.arange(sizes[dim]) for dim in ("chain", "draw") if dim in used_dims}
        return xarray.Dataset(arrays, coords, {"inference_library": "probml",
                                               "model": repr(fit.model), "engine": fit.engine,
                                               "status": fit.ending,
                                               "warnings": list(map(str, fit.warnings))})


def to_arviz(fit: Fitted, data: object = None, prior: int | None = None):
    """See Fit.to_arviz."""
    if fit.learnt is not None:
        raise ModelError("to_arviz(): this Fit was returned by do(). Call to_arviz() of the Fit on "
                         "which do() was called, whose posterior is the same")
    draws = posterior_draws(fit)
    rows = own_data(fit, data, "to_arviz()")
    either_arviz.require_arviz()
    obs = [name for name in rows.table.columns if rows.table.columns[name].likelihood is None]
    _check_entries(fit, rows, obs, draws)
    names = dimensions.Dimensions(fit, rows)
    group: Any = _Groups(fit, names)
    latents = _row_latents(fit, draws) if data is None else {}
    row_values = _row_values(fit, rows, draws, latents) | latents
    steps = step_posteriors.draw_steps_by_chain(fit, draws)
    posterior = {**draws, **outside.chains(fit, draws), **row_values, **steps}

    def layout(name: str) -> tuple[str, ...]:
        if name in steps:
            return tuple(f"{name}_dim_{i}" for i in range(steps[name].ndim - 2))
        return names.of_row_site(name) if name in row_values else names.of_parameter(name)

    groups = {"posterior": group(posterior, layout)}
    if prior is not None:
        groups |= either_arviz.groups(fit, rows, names, prior, draws, obs, group)
    if fit.belief.stats:
        groups["sample_stats"] = group(_sample_stats(fit.belief.stats), lambda name: (), units={})
    if fit.model.is_joint:
        groups |= whole_arviz.groups(fit, names, rows.inputs_of_one_row, {**draws, **steps}, group,
                                     MAX_ROW_NUMBERS)
    else:
        groups |= _row_groups(fit, rows, draws, obs, group)
    return either_arviz.container(groups)


def _check_entries(fit: Fitted, data: dataset.Data, obs: Sequence[str],
                   draws: Mapping[str, np.ndarray]) -> None:
    """Refuse groups of rows with more than MAX_ROW_NUMBERS numbers."""
    (chains, count), n = next(iter(draws.values())).shape[:2], data.table.rows
    sites = [*(fit.structure.sites[name] for name in obs),
             *(site for site in fit.structure.deterministics.values() if site.rows)]
    entries = chains * count * n * (1 + sum(math.prod(site.along(data.steps)) for site in sites))
    if entries > MAX_ROW_NUMBERS and not fit.model.is_joint:
        raise Refusal(
            f"to_arviz(): {counted(chains * count, 'draw')} for each of {counted(n, 'row')} need "
            f"arrays with {entries:,.0f} numbers, more than the limit of {MAX_ROW_NUMBERS:,.0f}. "
            "Pass fewer rows, to_arviz(data), or fit with fewer draws"
        )


def _sample_stats(stats: SiteValues) -> dict[str, np.ndarray]:
    """A sampler's statistics by ArviZ's names."""
    steps = np.asarray(stats["steps"])
    named = {"lp": stats["log_density"], "diverging": stats["diverging"], "n_steps": steps,
             "acceptance_rate": stats["accept"], "energy": stats["energy"],
             "tree_depth": np.ceil(np.log2(steps + 1)).astype(int)}
    return {name: np.asarray(value) for name, value in named.items()}


def _row_groups(fit: Fitted, data: dataset.Data, draws: dict, obs: list[str],
                group: _Groups) -> dict[str, PyTree]:
    """The groups of rows: log-likelihood, posterior predictive, observed and constant data."""
    groups, names = {}, group.names
    if fit.weighted:
        warnings.warn("to_arviz(): the fitted rows had weights, which ArviZ does not know: its "
                      "leave-one-out scores and predictive checks count every row once. Use "
                      "probml.compare(fits, weights=...), or repeat rows instead of weights",
                      ReliabilityWarning, stacklevel=4)
    try:
        logs = log_likelihood(fit, data, draws) - _log_unit_change(fit, data, obs)
        groups["log_likelihood"] = group({obs[0] if len(obs) == 1 else "row": logs},
                                         lambda name: (names.rows,), units={})
    except Refusal as why:
        if not fit.belief.rows(1, 0):
            raise
        warnings.warn("to_arviz(): the result does not contain the group log_likelihood, because "
                      f"log-likelihoods of rows cannot be computed ({why}). Functions such as "
                      "arviz.loo need this group; use probml.compare instead", RuntimeWarning,
                      stacklevel=4)
    count = math.prod(next(iter(draws.values())).shape[:2])
    try:
        replicated = outside.by_chain(lambda flat: replicate(fit, data, flat, obs, count), draws)
        groups["posterior_predictive"] = group(replicated, names.of_row_site)
    except Refusal as why:
        warnings.warn("to_arviz(): the result does not contain the group posterior_predictive, "
                      f"because rows cannot be simulated ({why}). Functions such as "
                      "arviz.plot_ppc need this group", RuntimeWarning, stacklevel=4)
    groups["observed_data"] = group({name: data.table.columns[name].values_or_nan for name in obs},
                                    names.of_row_site, ())
    if data.table.inputs:
        groups["constant_data"] = group(data.table.inputs, names.covariate, ())
    return groups


def _log_unit_change(fit: Fitted, data: dataset.Data, obs: Collection[str]) -> np.ndarray:
    """The log of the change of units of a row, (n,), which log p(row) in the user's units is lower
    by."""
    log_scale = np.zeros(data.table.rows)
    for name in (name for name in obs if name in fit.units):
        column = data.table.columns[name]
        mask = np.ones(column.values.shape, bool) if column.observed is None else column.observed
        log_scale = log_scale + density(fit.units[name], mask)
    return log_scale


def replicate(fit: Fitted, data: dataset.Data, draws: SiteValues, names: Sequence[str],
              count: int) -> dict[str, np.ndarray]:
    """Replicated rows, each table with its own draw of the parameters: site → (count, n, *cells).

    Args:
        draws: site outside rows → (count, ...); of a point none.
    """
    given = {**fit.given, **data.table.values, **(fit.point if fit.certain else {})}
    simulated = simulation.simulate_draws(
        data.structure, tuple(names),
        {name: placed(value) for name, value in draws.items() if name not in given},
        placed_all(given), data.table.inputs,
        random_key(0), data.table.rows, count, data.steps)
    return {name: np.asarray(value) for name, value in simulated.items()}


def _at_draws(fit: Fitted, data: dataset.Data, draws: Mapping[str, np.ndarray]) -> tuple[
    dataset.Data, dict[str, jax.Array], tuple[int, int]
]:
    """The data with all discrete sites outside rows as given; the draws of unknown sites,
    (chains × draws, ...); the numbers of chains and draws."""
    draws = {name: np.asarray(value) for name, value in draws.items()
             if name not in data.table.values}
    discrete = {name: value[0, 0] for name, value in draws.items()
                if data.structure.sites[name].discrete}
    data = data._replace(table=replace(data.table,
                                       values={**fit.given, **data.table.values, **discrete}))
    draws = draws or {"": np.zeros((1, 1))}
    flat = {name: placed(value.reshape(-1, *value.shape[2:])) for name, value in draws.items()}
    return data, flat, next(iter(draws.values())).shape[:2]


def _row_latents(fit: Fitted, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The continuous latent variables of the fitted rows, and deterministics of these, at every
    draw: site → (chains, draws, n, *cells)."""
    row_draws = getattr(fit.belief, "inside", {})
    return outside.by_chain(lambda flat: simulation.within(
        fit, {name: flat[name] for name in draws}, {name: flat[name] for name in row_draws}, 0),
        {**draws, **row_draws})


def _row_values(fit: Fitted, data: dataset.Data, draws: dict[str, np.ndarray],
               known: Collection[str] = ()) -> dict[str, np.ndarray]:
    """The deterministics in rows, at every draw, (chains, draws, n, *cells), averaged over the
    latent discrete sites given the observed cells of the row; without those in `known`. Those with
    other missing parents are left out, with a warning."""
    names, omitted = [], []
    for site in data.structure.deterministics.values():
        if site.rows and site.name not in known:
            (names if all(fit._is_observed_or_summed(data, parent) for parent in site.parents)
             else omitted).append(site.name)
    if omitted:
        warnings.warn(
            f"to_arviz(): the result does not contain {listed(omitted)}, because these values are "
            "computed from missing values of the data, which were not sampled. Use "
            f"fit.predict(data, '{omitted[0]}') for their means",
            RuntimeWarning,
            stacklevel=4,
        )
    if not names:
        return {}
    data, flat, chain_shape = _at_draws(fit, data, draws)
    plan = data.plan(tuple(names))
    order = layout.order(data, plan)
    rows, row_known = load.load(data, plan, keep=order, params=fit.point)
    means = queries.row_values(plan, tuple(names), flat, row_known, rows)
    results = {}
    for name in names:
        values, time = np.asarray(means[name]), plan.structure.named[name].time
        values = np.stack([asking.in_user_order(data, order, value, name) for value in values])
        # steps after the last observed one are not reported
        if time is not None and data.lengths is not None:
            is_padding = np.arange(present(data.steps)) >= data.lengths[:, None]
            np.moveaxis(values, 2 + time, 2)[:, is_padding] = np.nan
        results[name] = values.reshape(*chain_shape, *values.shape[1:])
    return results
