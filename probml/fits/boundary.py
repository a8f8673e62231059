"""What a fit with latents has to say of itself: spreads found at the edge of their support, 0, and
correlations at theirs, ±1, as a mixed model that is singular (Bates et al. 2015); columns without
noise, as a Heywood case of factor analysis; and integrals to which twice the nodes would add."""

import functools
from collections.abc import Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.climbing.edges import LESS, edges, singular
from probml.engines.engine import Outcome, Status
from probml.evidence.effect_modes import gap
from probml.evidence.passes import log_evidence
from probml.jaxpr.memo import memo
from probml.numerics.compiling import jit
from probml.numerics.tiers import ONCE
from probml.numerics.transfer import placed_all
from probml.plan import integrals
from probml.plan.plan import Plan

NEARER = 1e-3  # times itself: as good as 0
# nats a member by which a nearer integral over effects may move an evidence unsaid
LAPLACE, QUADRATURE = 0.01, 1e-4
ALIKE = 0.01  # nats that tell a spread from 0 no better than rounding does
STEEP = 0.1  # nats by which less of a width that is next to 0 is higher: there is no end to it
ENDLESS = "there is no maximum"
ONE = 0.998  # correlation that is next to 1


def noted(plan: Plan, outcome: Outcome, known: Known, rows: Rows) -> Outcome:
    """An outcome of a plan with latents, and what is to be said of it."""
    params = {name: jnp.asarray(value) for name, value in outcome.params.items()}
    notes = list(outcome.notes)
    if not outcome.posterior.varies:
        said = _boundaries(plan, params, known, rows)
        if any(ENDLESS in text for text in said) and outcome.status is Status.CONVERGED:
            outcome = outcome._replace(status=Status.RUNAWAY)
        notes += said
    rough = [group for group in plan.latents if group.kind.finer is not None]
    if rough and outcome.status is Status.FELL:
        # by what integrals that are near are off, an ascent may fall where nothing is left to climb
        outcome = outcome._replace(status=Status.STALLED)
    if rough:
        gap = float(_evidence(_finer(plan), params, known, rows)
                    - _evidence(plan, params, known, rows))
        said = (group.kind.doubt(group.names, gap, rows.weight) for group in rough)
        notes += [text for text in dict.fromkeys(said) if text is not None]
    if plan.groupings and plan.groupings[0].nodes:
        notes += _near(plan, params, known, rows)
    return outcome if len(notes) == len(outcome.notes) else outcome._replace(notes=tuple(notes))


@memo(256)
def _finer(plan: Plan) -> Plan:
    """The plan with integrals that are nearer, where there are such."""
    return replace(plan, latents=tuple(
        group if group.kind.finer is None else replace(group, kind=group.kind.finer)
        for group in plan.latents
    ))


_evidence = jit(log_evidence, static_argnums=0, seldom=ONCE)


def _near(plan: Plan, params: dict, known: Known, rows: Rows) -> list[str]:
    """What is to be said of an integral over effects that is not in closed form."""
    named, one = ", ".join(f"'{name}'" for name in plan.effects), plan.groupings[0].nodes == 1
    text = f"{named}: integrated out {integrals.words(plan.groupings)}"
    nodes = integrals.finer(plan.groupings)
    if nodes is None:
        return [text]
    gap = float(_gap(plan, nodes, params, known, rows))
    if abs(gap) <= (LAPLACE if one else QUADRATURE) * sum(g.members for g in plan.groupings):
        return [text] if one else []
    count = f"{nodes} nodes" if plan.groupings[0].cells == 1 else "a nearer integral"
    return [f"{text}, which {count} move by {gap:.2g} nats: compare with NUTS()"]


@functools.partial(jit, static_argnums=(0, 1), seldom=ONCE)
def _gap(plan: Plan, nodes: int, params: dict, known: Known, rows: Rows) -> jax.Array:
    return gap(plan, params, known, rows.total, nodes)


def _boundaries(plan: Plan, params: dict, known: Known, rows: Rows) -> list[str]:
    """The widths that the rows cannot tell from 0, and the correlations that they cannot tell from
    ±1, in words."""
    held = {name: np.asarray(value, float) if name in plan.free else np.asarray(value)
            for name, value in jax.device_get(params).items()}
    narrow, turned = edges(plan, known, held), singular(plan, held)
    if not (narrow or turned):
        return []
    points = [{edge.width.name: edge.moved(held, edge.logarithm(held) + (LESS if edge.seen
                                                                         else np.log(NEARER)))}
              for edge in narrow]
    points += [{name: _summed(plan, name, held[name], index)} for name, index in turned]
    stacked = {name: np.stack([value, *({**held, **point}[name] for point in points)])
               for name, value in held.items()}
    values = np.asarray(_evidences(plan, placed_all(stacked), known, rows))
    idle = values[0] - values[1:] < ALIKE
    notes = []
    for edge, alike, gain in zip(narrow, idle, values[1:] - values[0], strict=False):
        if not alike:
            continue
        at = _cell(edge.width.name, edge.index)
        if gain > STEEP:
            notes.append(f"{ENDLESS}: the nearer '{at}' is to its boundary the higher the "
                         f"likelihood, so that where the climb ended is no answer")
            continue
        way = "" if edge.width.plain and edge.width.power > 0 else f", where '{at}' has no bound"
        notes.append(f"'{at}' is at its boundary: the rows tell no "
                     f"{'noise' if edge.seen else 'spread'} from 0{way}"
                     + (" (a Heywood case)" if edge.seen else ""))
    for (name, index), alike in zip(turned, idle[len(narrow):], strict=True):
        if alike:
            notes.append(f"'{_cell(name, index[:-1])}' is at its boundary: the rows do not tell "
                         + _correlated(plan, name, held[name], index))
    return notes


def _cell(name: str, index: tuple[int, ...]) -> str:
    return name + (f"[{', '.join(map(str, index))}]" if index else "")


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
    """What correlations at their edge say, in words."""
    factor, last = plan.structure.sites[name].domain.factor(value)[index[:-1]], index[-1]
    one = int(np.argmax(np.abs(factor[last, :last] @ factor[:last, :last].T)))
    share = float(factor[last] @ factor[one])
    if abs(share) > ONE:
        return (f"the correlation of numbers {one} and {last} from {np.sign(share):.0f} (a "
                f"singular fit)")
    return f"number {last} from a sum of those before it (a singular fit)"


@functools.partial(jit, static_argnums=0, seldom=ONCE)
def _evidences(plan: Plan, points: Mapping, known: Known, rows: Rows) -> jax.Array:
    """The log evidence at several points."""
    return jax.lax.map(lambda at: log_evidence(plan, at, known, rows), dict(points))
