"""Findings of fits with latent variables: standard deviations at the boundary of their support, 0,
and correlations at theirs, ±1, as in a singular mixed model (Bates et al. 2015); columns without
residual variance, as a Heywood case of factor analysis; and integrals that change with more nodes.
"""

from collections.abc import Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows, Summary
from probml.engines.engine import Outcome, Status
from probml.engines.findings import Code, Finding
from probml.engines.optimization.boundary import SHRINK_LOG, narrow_scales, singular_correlations
from probml.errors import quoted
from probml.evidence.e_step import log_evidence
from probml.evidence.random_effects import quadrature_gain
from probml.factors.naturals import log_prior
from probml.jaxpr.memo import memo
from probml.latents.latent import Group
from probml.numerics.compiling import ONCE, jit
from probml.numerics.transfer import placed_all
from probml.plan import integrals
from probml.plan.plan import Plan

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
    params = {name: jnp.asarray(value) for name, value in outcome.params.items()}
    if not outcome.posterior.varies:
        assert isinstance(rows, Rows)
        found = _boundaries(plan, params, known, rows, prior)
        endless = any(finding.code is Code.SCALE_TO_ZERO for finding in found)
        if endless and outcome.status is Status.CONVERGED:
            outcome = outcome._replace(status=Status.DIVERGED)
        outcome = outcome.noting(*found)
    rough = [group for group in plan.latents if group.kind.finer is not None]
    if rough and outcome.status is Status.FELL:
        # near the optimum the error of the integrals can make the objective fall
        outcome = outcome._replace(status=Status.STALLED)
    if rough:
        gap = float(_evidence(_finer(plan), params, known, rows)
                    - _evidence(plan, params, known, rows))
        outcome = outcome.noting(*(_integral_finding(group, gap, rows.weight) for group in rough))
    if plan.groupings and plan.groupings[0].nodes and isinstance(rows, Rows):
        outcome = outcome.noting(_integral_accuracy(plan, params, known, rows))
    return outcome


def _integral_finding(group: Group, gap: float, rows: float) -> Finding | None:
    """A finding on how a latent variable was integrated out, where that is not exact.

    Args:
        gap: by which finer integrals of all latents change the log evidence. rows: their number.
    """
    kind, names, method = group.kind, quoted(group.names), group.kind.description.partition(", ")[2]
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
    names, one = quoted(plan.effects), plan.groupings[0].nodes == 1
    method = integrals.describe_integration(plan.groupings)
    nodes = integrals.finer(plan.groupings)
    gap = 0.0 if nodes is None else float(_gap(plan, nodes, params, known, rows))
    limit = MAX_LAPLACE_ERROR if one else MAX_QUADRATURE_ERROR
    if abs(gap) <= limit * sum(grouping.members for grouping in plan.groupings):
        return Finding.of(Code.INTEGRATED, names=names, method=method) if (
            one or nodes is None) else None
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
    held = {name: np.asarray(value, float) if name in plan.free else np.asarray(value)
            for name, value in jax.device_get(params).items()}
    scales, correlations = narrow_scales(plan, known, held), singular_correlations(plan, held)
    if not (scales or correlations):
        return []
    points = [{edge.width.name: edge.parameter_at(
        held, edge.logarithm(held) + (SHRINK_LOG if edge.residual else np.log(SHRINK_FACTOR)))}
        for edge in scales]
    points += [{name: _move_to_edge(plan, name, held[name], index)} for name, index in correlations]
    stacked = {name: np.stack([value, *({**held, **point}[name] for point in points)])
               for name, value in held.items()}
    values, objectives = map(np.asarray, _evidences(plan, prior, placed_all(stacked), known, rows))
    indistinguishable = values[0] - values[1:] < MAX_INDISTINGUISHABLE_GAIN
    out = []
    rises, endless = (each[1:] - each[0] > MIN_UNBOUNDED_GAIN for each in (values, objectives))
    for i, edge in enumerate(scales):
        if not indistinguishable[i] or rises[i] and not endless[i]:
            continue
        scale = edge.width.plain and edge.width.power > 0
        code = (Code.SCALE_TO_ZERO if rises[i] else
                Code.HEYWOOD if edge.residual else Code.ZERO_VARIANCE)
        out.append(Finding.of(code, edge.width.name, edge.index,
                              how="" if scale else ", at which the parameter is infinite"))
    out += [Finding.of(Code.SINGULAR_CORRELATION, name, index[:-1],
                       what=_describe_correlation(plan, name, held[name], index))
            for (name, index), is_at_boundary in zip(
                correlations, indistinguishable[len(scales):], strict=True) if is_at_boundary]
    return out


def _move_to_edge(plan: Plan, name: str, value: np.ndarray, index: tuple[int, ...]) -> np.ndarray:
    """Correlations with one effect moved to the boundary, at which it is a linear combination of
    those before it."""
    domain = plan.structure.sites[name].domain
    factor = np.array(domain.factor(value))
    row = factor[index].copy()
    left = SHRINK_FACTOR * row[index[-1]]
    row[: index[-1]] *= np.sqrt((1 - left**2) / (1 - row[index[-1]] ** 2))
    row[index[-1]] = left
    factor[index] = row
    return domain.of_factor(factor)


def _describe_correlation(plan: Plan, name: str, value: np.ndarray, index: tuple[int, ...]) -> str:
    """The degenerate case from which the rows do not distinguish these correlations, in words."""
    factor, last = plan.structure.sites[name].domain.factor(value)[index[:-1]], index[-1]
    one = int(np.argmax(np.abs(factor[last, :last] @ factor[:last, :last].T)))
    share = float(factor[last] @ factor[one])
    if abs(share) > MIN_PERFECT_CORRELATION:
        return (f"effects {one} and {last} (counted from 0) have the correlation "
                f"{np.sign(share):.0f}")
    return f"effect {last} (counted from 0) is a weighted sum of the effects before it"


@jit(static_argnums=(0, 1), seldom=ONCE)
def _evidences(plan: Plan, prior: bool, points: Mapping, known: Known,
               rows: Rows) -> tuple[jax.Array, jax.Array]:
    """The log evidence at several points, and the objective."""
    def values(at: Mapping) -> tuple[jax.Array, jax.Array]:
        found = log_evidence(plan, at, known, rows)
        return found, found + (log_prior(plan, at, known, True) if prior else 0.0)

    return jax.lax.map(values, dict(points))
