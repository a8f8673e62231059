"""Findings of fits with latent variables: standard deviations at the boundary of their support, 0,
and correlations at theirs, ±1, as in a singular mixed model (Bates et al. 2015); columns without
residual variance, as a Heywood case of factor analysis; and integrals that change with more nodes.

Findings on identifiability in models with effects of groups: groups of one row each, whose
standard deviation and the residual one are not identified separately; singular designs, in which
rows depend on sums of effects alone; and standard deviations estimated from few effects.

Findings on the data and the function: columns without values, and priors beyond a support.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml.dataset.dataset import Data
from probml.device.rows import Known, Rows, Summary
from probml.engines.engine import Outcome, Problem, Status
from probml.engines.findings import Code, Finding
from probml.engines.importance import numbers
from probml.engines.laplace import MAX_SAMPLED
from probml.engines.optimization.boundary import SHRINK_LOG, narrow_scales, singular_correlations
from probml.errors import Refusal, listed
from probml.evidence.e_step import log_evidence
from probml.evidence.random_effects import quadrature_gain
from probml.factors.naturals import log_prior
from probml.factors.random_effects import information
from probml.factors.random_effects.information import Information, Paired
from probml.families import domains
from probml.jaxpr.levels import Level
from probml.jaxpr.memo import memo
from probml.latents.latent import Group
from probml.numerics.compiling import ONCE, jit
from probml.numerics.transfer import placed_all
from probml.plan import decide, hierarchy
from probml.plan.groupings import Grouping, describe_integration, finer_rule
from probml.plan.hierarchy import scale_parameters
from probml.plan.plan import Plan
from probml.posteriors.posterior import Posterior
from probml.posteriors.random_effects import Effects
from probml.structure.indices import Index
from probml.structure.site import Site

SHRINK_FACTOR = 1e-3  # of a standard deviation, at which it is in effect 0
# nats per group between the log evidence and that with more nodes that need no warning
MAX_LAPLACE_ERROR, MAX_QUADRATURE_ERROR = 0.01, 1e-4
MAX_INDISTINGUISHABLE_GAIN = 0.01  # nats between an estimate and the boundary: rounding alone
# nats gained at the boundary: the objective rises without bound, by 1.2 a row fitted exactly
MIN_UNBOUNDED_GAIN = 1.0
MIN_PERFECT_CORRELATION = 0.998  # that is reported as ±1


def with_boundary_findings(plan: Plan, outcome: Outcome, known: Known,
                           rows: Rows | Summary, prior: bool) -> Outcome:
    """An outcome of a plan with latent variables, with the findings about these.

    Args:
        prior: the objective has the prior.
    """
    params = placed_all(dict(outcome.params))
    if not outcome.posterior.varies:
        assert isinstance(rows, Rows)
        findings = _boundaries(plan, params, known, rows, prior)
        unbounded = any(finding.code is Code.SCALE_TO_ZERO for finding in findings)
        if unbounded and outcome.status is Status.CONVERGED:
            outcome = outcome._replace(status=Status.DIVERGED)
        outcome = outcome.noting(*findings)
    inexact = [group for group in plan.latents if group.kind.finer is not None]
    if inexact and outcome.status is Status.FELL:
        # near the optimum the error of the integrals can make the objective fall
        outcome = outcome._replace(status=Status.STALLED)
    if inexact:
        gap = float(_evidence(_finer(plan), params, known, rows)
                    - _evidence(plan, params, known, rows))
        outcome = outcome.noting(*(_integral_finding(group, gap, rows.weight) for group in inexact))
    if plan.groupings and plan.groupings[0].nodes and isinstance(rows, Rows):
        outcome = outcome.noting(_integral_accuracy(plan, params, known, rows))
    return outcome


def find_doubtful_statements(plan: Plan, data: Data, in_parts: bool) -> list[Finding]:
    """Findings on what was given and written: columns without values, unless the rows are read in
    parts, and priors of values that a parameter cannot have."""
    columns = [] if in_parts else data.without_values()
    return [*(Finding.of(Code.NO_VALUES, name) for name in columns),
            *(Finding.of(Code.PRIOR_BEYOND, name, site=site, argument=argument, bounds=bounds)
              for name, site, argument, bounds in _find_priors_beyond(plan.structure.sites))]


def _find_priors_beyond(sites: Mapping[str, Site]) -> list[tuple[str, str, str, str]]:
    """The unbounded parameters that are themselves an argument with bounds, such as a standard
    deviation: (parameter, site, argument, what it must be)."""
    found = []
    for site in sites.values():
        constraints = getattr(getattr(dist, site.kind, None), "arg_constraints", {})
        for argument, uses in site.uses.items():
            domain = domains.of(constraints[argument]) if argument in constraints else None
            found += [(name, site.name, argument, domain.description) for name, use in uses.items()
                      if domain is not None and domain.bounds and not use.coordinate
                      and use.level <= Level.MOVED and sites[name].domain.unbounded]
    return found


def reject_rough_integral(problem: Problem, outcome: Outcome) -> Outcome:
    """A posterior is rejected if latent variables were integrated out inaccurately and the data are
    so few that a sampler can draw them."""
    rough = next((f for f in outcome.findings if f.code is Code.ROUGH_INTEGRAL), None)
    affordable = numbers(problem.known, problem.rows) <= MAX_SAMPLED
    return (outcome.with_state(rejection=rough) if outcome.posterior.varies and affordable
            else outcome)


def _integral_finding(group: Group, gap: float, rows: float) -> Finding | None:
    """A finding on how a latent variable was integrated out, where that is not exact.

    Args:
        gap: by which finer integrals of all latents change the log evidence. rows: their number.
    """
    kind, names, method = group.kind, listed(group.names), group.kind.description.partition(", ")[2]
    if not abs(gap) <= kind.tolerance * rows:
        return Finding.of(Code.ROUGH_INTEGRAL, names=names, method=method,
                          finer="a finer integral", gap=gap)
    return Finding.of(Code.INTEGRATED, names=names, method=method) if kind.breadth == 1 else None


@memo(256)
def _finer(plan: Plan) -> Plan:
    """The plan with finer integrals, where there are any."""
    return replace(plan, latents=tuple(
        group if group.kind.finer is None else replace(group, kind=group.kind.finer)
        for group in plan.latents
    ))


_evidence = jit(log_evidence, static_argnums=0, seldom=ONCE)


def _integral_accuracy(plan: Plan, params: dict, known: Known, rows: Rows) -> Finding | None:
    """A finding on the error of an integral over effects that is not in closed form."""
    names, is_laplace = listed(plan.effects), plan.groupings[0].nodes == 1
    method = describe_integration(plan.groupings)
    nodes = finer_rule(plan.groupings)
    gap = 0.0 if nodes is None else float(_gap(plan, nodes, params, known, rows))
    limit = MAX_LAPLACE_ERROR if is_laplace else MAX_QUADRATURE_ERROR
    if abs(gap) <= limit * sum(grouping.members for grouping in plan.groupings):
        return Finding.of(Code.INTEGRATED, names=names, method=method) if (
            is_laplace or nodes is None) else None
    finer = (f"an integral with {nodes} nodes" if plan.groupings[0].cells == 1
             else "a finer integral")
    return Finding.of(Code.ROUGH_INTEGRAL, names=names, method=method, finer=finer, gap=gap)


@jit(static_argnums=(0, 1), seldom=ONCE)
def _gap(plan: Plan, nodes: int, params: dict, known: Known, rows: Rows) -> jax.Array:
    return quadrature_gain(plan, params, known, rows.total, nodes)


def _boundaries(plan: Plan, params: dict, known: Known, rows: Rows, prior: bool) -> list[Finding]:
    """The scales that the rows do not distinguish from 0, and the correlations that they do not
    distinguish from ±1. A likelihood that rises without bound has no finding where the prior has
    the maximum."""
    host = {name: np.asarray(value, float) if name in plan.free else np.asarray(value)
            for name, value in jax.device_get(params).items()}
    scales, correlations = narrow_scales(plan, known, host), singular_correlations(plan, host)
    if not (scales or correlations):
        return []
    points = [{edge.width.name: edge.parameter_at(
        host, edge.logarithm(host) + (SHRINK_LOG if edge.residual else np.log(SHRINK_FACTOR)))}
        for edge in scales]
    points += [{name: _move_to_edge(plan, name, host[name], index)} for name, index in correlations]
    stacked = {name: np.stack([value, *({**host, **point}[name] for point in points)])
               for name, value in host.items()}
    values, objectives = map(np.asarray, _evidences(plan, prior, placed_all(stacked), known, rows))
    indistinguishable = values[0] - values[1:] < MAX_INDISTINGUISHABLE_GAIN
    findings = []
    rises, unbounded = (array[1:] - array[0] > MIN_UNBOUNDED_GAIN for array in (values, objectives))
    for i, edge in enumerate(scales):
        if not indistinguishable[i] or rises[i] and not unbounded[i]:
            continue
        is_scale = edge.width.is_positive and edge.width.power > 0
        code = (Code.SCALE_TO_ZERO if rises[i] else
                Code.HEYWOOD if edge.residual else Code.ZERO_VARIANCE)
        findings.append(Finding.of(code, edge.width.name, edge.index,
                                   how="" if is_scale else ", at which the parameter is infinite"))
    findings += [Finding.of(Code.SINGULAR_CORRELATION, name, index[:-1],
                            what=_describe_correlation(plan, name, host[name], index))
                 for (name, index), is_at_boundary in zip(
                     correlations, indistinguishable[len(scales):], strict=True) if is_at_boundary]
    return findings


def _move_to_edge(plan: Plan, name: str, value: np.ndarray, index: tuple[int, ...]) -> np.ndarray:
    """Correlations with one effect moved to the boundary, at which it is a linear combination of
    those before it."""
    domain = plan.structure.sites[name].domain
    factor = np.array(domain.factor(value))
    row = factor[index].copy()
    residual = SHRINK_FACTOR * row[index[-1]]
    row[: index[-1]] *= np.sqrt((1 - residual**2) / (1 - row[index[-1]] ** 2))
    row[index[-1]] = residual
    factor[index] = row
    return domain.of_factor(factor)


def _describe_correlation(plan: Plan, name: str, value: np.ndarray, index: tuple[int, ...]) -> str:
    """The degenerate case from which the rows do not distinguish these correlations, in words."""
    factor, last = plan.structure.sites[name].domain.factor(value)[index[:-1]], index[-1]
    closest = int(np.argmax(np.abs(factor[last, :last] @ factor[:last, :last].T)))
    share = float(factor[last] @ factor[closest])
    if abs(share) > MIN_PERFECT_CORRELATION:
        return (f"effects {closest} and {last} (counted from 0) have the correlation "
                f"{np.sign(share):.0f}")
    return f"effect {last} (counted from 0) is a weighted sum of the effects before it"


@jit(static_argnums=(0, 1), seldom=ONCE)
def _evidences(plan: Plan, prior: bool, points: Mapping, known: Known,
               rows: Rows) -> tuple[jax.Array, jax.Array]:
    """The log evidence at several points, and the objective."""
    def values(point: Mapping) -> tuple[jax.Array, jax.Array]:
        evidence = log_evidence(plan, point, known, rows)
        return evidence, evidence + (log_prior(plan, point, known, True) if prior else 0.0)

    return jax.lax.map(values, dict(points))


MAX_FACTOR_DIFFERENCE = 1e-6  # relative difference of factors that are one
MIN_NAMED_SHARE = 0.05  # share of a direction from which a number is named
MIN_EFFECTS = 10  # for a relative error of a standard deviation below 1/4: 1 / √(2 (n − 1))


def find_single_row_groups(plan: Plan, data: Data, effects: Posterior,
                           is_weighted: bool) -> Finding | None:
    """A finding where no group has more than one row and all rows are equally informative: the
    likelihood then depends on the sum of both variances alone.

    Args:
        effects: the effects given the rows. is_weighted: rows count otherwise than once.
    """
    if len(plan.groupings) != 1 or data.survey is not None or is_weighted:
        return None
    (grouping,) = plan.groupings
    is_simple = grouping.cells == 1 and not grouping.nodes and not grouping.flat
    if grouping.index is None or not is_simple or not isinstance(effects, Effects):
        return None
    counts = _count_observations(plan, data, grouping.index)
    if counts.max(initial=0) > 1:
        return None
    members = grouping.scale * np.flatnonzero(counts) + grouping.offset
    lower = np.asarray(effects.at.moments.lower)[members, 0, 0]
    if not lower.size or np.ptp(lower) > MAX_FACTOR_DIFFERENCE * np.abs(lower).max():
        return None
    sites = plan.structure.sites
    scales = tuple(width.name for width in scale_parameters(plan) if width.is_positive)
    noise = tuple(dict.fromkeys(
        p for name in plan.grouped for argument in sites[name].traits.scatter
        for p in sites[name].uses.get(argument, ()) if p in plan.free and p not in scales))
    if not (scales and noise):
        return None
    return Finding.of(Code.ONE_ROW_PER_GROUP, grouping.index.input, names=listed(scales),
                      others=listed(noise), effects=listed(grouping.names[:1]))


def _count_observations(plan: Plan, data: Data, index: Index) -> np.ndarray:
    """How many cells are observed of every member of a grouping, (codes,)."""
    columns = [data.table.columns[name] for name in plan.grouped]
    n_observed = sum(np.full(len(c.values), math.prod(c.values.shape[1:]))
                     if c.observed is None else c.observed.reshape(len(c.observed), -1).sum(1)
                     for c in columns)
    codes = np.asarray(data.table.inputs[index.input])
    codes = codes.reshape(len(codes), -1)[:, index.cells[0] if index.cells else 0]
    return np.bincount(codes.astype(int), n_observed, minlength=1)


def find_few_groups(plan: Plan) -> tuple[Finding, ...]:
    """A finding for each standard deviation that is estimated from few effects: standard errors of
    the effects given its estimate leave out its uncertainty."""
    sites, scales = plan.structure.sites, {width.name for width in scale_parameters(plan)}
    full_plan, few = decide.make(plan.structure, plan.pattern, plan.given), {}
    for tie in hierarchy.degenerate_modes(full_plan):
        for other in tie.tied_with if tie.name in plan.effects else ():
            n_levels = np.prod(sites[tie.name].shape) / np.prod(sites[other].shape)
            if other in scales and tie.kind in ("spread", "product") and n_levels < MIN_EFFECTS:
                few[other] = (tie.name, n_levels)
    return tuple(Finding.of(Code.FEW_GROUPS, name, count=n_levels, scale=listed([other]),
                            factor=np.exp(1 / np.sqrt(2 * max(n_levels - 1, 0.5))))
                 for other, (name, n_levels) in few.items())


def find_singular_designs(plan: Plan, effects: Posterior, params: Mapping, known: Known,
                          rows: Rows) -> tuple[Finding, ...]:
    """A finding where all rows depend on sums of some effects of a member alone, so that the priors
    determine their standard deviations.

    Args:
        effects: the effects given the rows. params: at the end of a fit.

    Raises:
        Refusal: of effects without a prior (restricted maximum likelihood), which then have no
            integral.

    Cost: a pass over rows, where a member has several effects.
    """
    first, *others = plan.groupings
    has_several = any(grouping.cells > 1 or grouping.flat for grouping in plan.groupings)
    if first.nodes or not isinstance(effects, Effects) or not has_several:
        return ()
    point = {name: effects.moments.mean[name] for name in plan.effects}
    point = {name: np.nan_to_num(np.asarray(value)) for name, value in point.items()}
    info = jax.device_get(_effect_information(
        plan, placed_all({n: params[n] for n in plan.free}), known, rows, placed_all(point)))
    parts, findings, begin = [(first, np.asarray(info.block, float).sum(0))], [], 0
    for grouping in others:
        joint = np.asarray(info.rest, float)[begin : begin + grouping.size,
                                             begin : begin + grouping.size]
        blocks = joint.reshape(grouping.members, grouping.cells, grouping.members, grouping.cells)
        parts.append((grouping, np.einsum("iaib->ab", blocks)))
        begin += grouping.size
    flat = [(grouping, block) for grouping, block in parts if grouping.flat]
    if flat and all(grouping.index is None for grouping, _ in flat):
        names = [name for grouping, _ in flat for name in _coordinate_names(grouping)]
        flat_info = _flat_block(plan, info)
        text = _describe_undetermined(flat_info, names, _rounding(info))
        if text is not None:
            raise Refusal(f"model '{plan.structure.model.name}': restricted=True integrates over "
                          f"coefficients with flat priors, and this integral is infinite, because "
                          f"the data {text}. Drop a column, or omit restricted=True")
    for grouping, block in parts:
        text = None if grouping.flat or grouping.cells < 2 else _describe_undetermined(
            block, _coordinate_names(grouping), _rounding(info))
        if text is not None:
            findings.append(Finding.of(Code.COLLINEAR_EFFECTS, problem=text))
    return tuple(findings)


def _flat_block(plan: Plan, info: Information) -> np.ndarray:
    """The information of rows about the effects without a prior, of one member each."""
    first, *others = plan.groupings
    keep = np.concatenate([np.full(grouping.size, grouping.flat) for grouping in others]
                          or [np.zeros(0, bool)])
    rest = np.asarray(info.rest, float)[np.ix_(keep, keep)]
    if not first.flat:
        return rest
    cross = info.cross
    if isinstance(cross, Paired):
        sums = np.zeros((first.cells, len(keep)))
        np.add.at(sums.T, np.asarray(cross.at), np.moveaxis(np.asarray(cross.values, float), 1, 2))
    else:
        sums = np.asarray(cross, float).sum(0)
    sums = sums[:, keep]
    return np.block([[np.asarray(info.block, float).sum(0), sums], [sums.T, rest]])


def _rounding(info: Information) -> float:
    return float(np.sqrt(np.finfo(np.asarray(info.block).dtype).eps))


def _coordinate_names(grouping: Grouping) -> list[str]:
    """The names of the effects of one group, an entry each: a, b[0], b[1], …"""
    return [name if width == 1 else f"{name}[{i}]"
            for name, width in zip(grouping.names, grouping.widths, strict=True)
            for i in range(width)]


def _describe_undetermined(matrix: np.ndarray, names: list[str], tolerance: float) -> str | None:
    """The effects that rows do not determine, in words, from Σ BᵀB of their slopes B; None: they
    determine all.

    Args:
        tolerance: eigenvalue of the matrix scaled to a unit diagonal that counts as 0.
    """
    diagonal = np.diagonal(matrix)
    uninformed = [name for name, value in zip(names, diagonal, strict=True) if not value > 0]
    if uninformed:
        return f"contain no information about {listed(uninformed)}"
    unit = diagonal**-0.5
    values, vectors = np.linalg.eigh(matrix * unit[:, None] * unit)
    if values[0] > tolerance:
        return None
    share = np.abs(vectors[:, 0])
    involved = [name for name, value in zip(names, share, strict=True)
                if value > MIN_NAMED_SHARE * share.max()]
    return (f"determine {listed(involved)} only jointly (a possible cause is a column that is "
            f"constant or the sum of other columns)")


@jit(static_argnums=0)
def _effect_information(plan: Plan, params: Mapping, known: Known, rows: Rows,
                        point: Mapping[str, jax.Array]) -> Information:
    total = rows.total(lambda chunk: information.compute_information(plan, params, known, chunk,
                                                                     point))
    return jax.tree.map(jnp.nan_to_num, total)
