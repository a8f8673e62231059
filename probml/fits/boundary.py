"""Findings of fits with latents: standard deviations at the edge of their support, 0, and
correlations at theirs, ±1, as in a singular mixed model (Bates et al. 2015); columns without
residual variance, as a Heywood case of factor analysis; and integrals that twice the nodes would
change."""

import functools
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
from probml.evidence.passes import log_evidence
from probml.evidence.random_effect_modes import quadrature_gain
from probml.jaxpr.memo import memo
from probml.latents.latent import Group
from probml.numerics.compile_effort import ONCE
from probml.numerics.compiling import jit
from probml.numerics.transfer import placed_all
from probml.plan import integrals
from probml.plan.plan import Plan

NEARER = 1e-3  # times itself: as good as 0
# nats a member by which a nearer integral over effects may move an evidence unsaid
LAPLACE, QUADRATURE = 0.01, 1e-4
ALIKE = 0.01  # nats that tell a spread from 0 no better than rounding does
STEEP = 0.1  # nats by which less of a width that is next to 0 is higher: there is no end to it
ONE = 0.998  # correlation that is next to 1


def noted(plan: Plan, outcome: Outcome, known: Known, rows: Rows | Summary) -> Outcome:
    """An outcome of a plan with latents, with what is found about these."""
    params = {name: jnp.asarray(value) for name, value in outcome.params.items()}
    if not outcome.posterior.varies:
        assert isinstance(rows, Rows)
        found = _boundaries(plan, params, known, rows)
        endless = any(finding.code is Code.SCALE_TO_ZERO for finding in found)
        if endless and outcome.status is Status.CONVERGED:
            outcome = outcome._replace(status=Status.RUNAWAY)
        outcome = outcome.noting(*found)
    rough = [group for group in plan.latents if group.kind.finer is not None]
    if rough and outcome.status is Status.FELL:
        # by what integrals that are near are off, an ascent may fall where nothing is left to climb
        outcome = outcome._replace(status=Status.STALLED)
    if rough:
        gap = float(_evidence(_finer(plan), params, known, rows)
                    - _evidence(plan, params, known, rows))
        outcome = outcome.noting(*(_integrated(group, gap, rows.weight) for group in rough))
    if plan.groupings and plan.groupings[0].nodes and isinstance(rows, Rows):
        outcome = outcome.noting(_integral_accuracy(plan, params, known, rows))
    return outcome


def _integrated(group: Group, gap: float, rows: float) -> Finding | None:
    """How a latent was integrated out, where that is not exact.

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
    """The plan with integrals that are nearer, where there are such."""
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
    if abs(gap) <= (LAPLACE if one else QUADRATURE) * sum(g.members for g in plan.groupings):
        return Finding.of(Code.INTEGRATED, names=names, method=method) if (
            one or nodes is None) else None
    finer = (f"an integral with {nodes} nodes" if plan.groupings[0].cells == 1
             else "a finer integral")
    return Finding.of(Code.ROUGH_INTEGRAL, names=names, method=method, finer=finer, gap=gap)


@functools.partial(jit, static_argnums=(0, 1), seldom=ONCE)
def _gap(plan: Plan, nodes: int, params: dict, known: Known, rows: Rows) -> jax.Array:
    return quadrature_gain(plan, params, known, rows.total, nodes)


def _boundaries(plan: Plan, params: dict, known: Known, rows: Rows) -> list[Finding]:
    """The scales that the rows do not distinguish from 0, and the correlations that they do not
    distinguish from ±1."""
    held = {name: np.asarray(value, float) if name in plan.free else np.asarray(value)
            for name, value in jax.device_get(params).items()}
    narrow, turned = narrow_scales(plan, known, held), singular_correlations(plan, held)
    if not (narrow or turned):
        return []
    points = [{edge.width.name: edge.parameter_at(
        held, edge.logarithm(held) + (SHRINK_LOG if edge.residual else np.log(NEARER)))}
        for edge in narrow]
    points += [{name: _summed(plan, name, held[name], index)} for name, index in turned]
    stacked = {name: np.stack([value, *({**held, **point}[name] for point in points)])
               for name, value in held.items()}
    values = np.asarray(_evidences(plan, placed_all(stacked), known, rows))
    idle = values[0] - values[1:] < ALIKE
    out = []
    for edge, alike, gain in zip(narrow, idle, values[1:] - values[0], strict=False):
        if not alike:
            continue
        scale = edge.width.plain and edge.width.power > 0
        code = (Code.SCALE_TO_ZERO if gain > STEEP else
                Code.HEYWOOD if edge.residual else Code.ZERO_VARIANCE)
        out.append(Finding.of(code, edge.width.name, edge.index,
                              how="" if scale else ", at which the parameter is unbounded"))
    out += [Finding.of(Code.SINGULAR_CORRELATION, name, index[:-1],
                       what=_correlated(plan, name, held[name], index))
            for (name, index), alike in zip(turned, idle[len(narrow):], strict=True) if alike]
    return out


def _summed(plan: Plan, name: str, value: np.ndarray, index: tuple[int, ...]) -> np.ndarray:
    """Correlations of which one number is next to a sum of those before."""
    domain = plan.structure.sites[name].domain
    factor = np.array(domain.factor(value))
    row = factor[index].copy()
    left = NEARER * row[index[-1]]
    row[: index[-1]] *= np.sqrt((1 - left**2) / (1 - row[index[-1]] ** 2))
    row[index[-1]] = left
    factor[index] = row
    return domain.of_factor(factor)


def _correlated(plan: Plan, name: str, value: np.ndarray, index: tuple[int, ...]) -> str:
    """From what the rows do not distinguish correlations at their edge, in words."""
    factor, last = plan.structure.sites[name].domain.factor(value)[index[:-1]], index[-1]
    one = int(np.argmax(np.abs(factor[last, :last] @ factor[:last, :last].T)))
    share = float(factor[last] @ factor[one])
    if abs(share) > ONE:
        return f"the correlation of effects {one} and {last} from {np.sign(share):.0f}"
    return f"effect {last} from a sum of those before it"


@functools.partial(jit, static_argnums=0, seldom=ONCE)
def _evidences(plan: Plan, points: Mapping, known: Known, rows: Rows) -> jax.Array:
    """The log evidence at several points."""
    return jax.lax.map(lambda at: log_evidence(plan, at, known, rows), dict(points))
