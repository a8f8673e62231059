"""What a fit with latents has to say of itself: spreads found at the edge of their support, 0, as a
mixed model that is singular (Bates et al. 2015), and integrals to which twice the nodes would add.
"""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.engine import Outcome, Status
from probml.engines.start.prior import compiled_prior_point
from probml.evidence.effect_modes import gap
from probml.evidence.passes import log_evidence
from probml.numerics.compiling import jit
from probml.numerics.tiers import ONCE
from probml.plan import integrals
from probml.plan.plan import Plan
from probml.plan.spreads import spreads

FALLEN = 3.0  # logarithms below the prior's point from which a spread is looked at
NEARER = 1e-3  # times itself: as good as 0
# nats a member by which a nearer integral over effects may move an evidence unsaid
LAPLACE, QUADRATURE = 0.01, 1e-4
ALIKE = 0.01  # nats that tell a spread from 0 no better than rounding does


def noted(plan: Plan, outcome: Outcome, known: Known, rows: Rows) -> Outcome:
    """An outcome of a plan with latents, and what is to be said of it."""
    params = {name: jnp.asarray(value) for name, value in outcome.params.items()}
    notes = list(outcome.notes)
    if not outcome.posterior.varies:
        notes += _boundaries(plan, params, known, rows)
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


@functools.lru_cache(maxsize=256)
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
    """The spreads that the rows cannot tell from 0, in words."""
    names = spreads(plan)
    if not names:
        return []
    middle = jax.device_get(compiled_prior_point(plan, known))
    low = {name: np.asarray(params[name]) < np.exp(-FALLEN) * middle[name] for name in names}
    places = tuple((name, index) for name in names for index in map(tuple, np.argwhere(low[name])))
    if not places:
        return []
    gains = np.asarray(_gains(plan, places, params, known, rows))
    shown = [name + (f"[{', '.join(map(str, index))}]" if index else "")
             for (name, index), gain in zip(places, gains, strict=True) if gain < ALIKE]
    return [f"'{name}' is at its boundary: the rows tell no spread from 0" for name in shown]


@functools.partial(jit, static_argnums=(0, 1), seldom=ONCE)
def _gains(plan: Plan, places: tuple, params: dict, known: Known, rows: Rows) -> jax.Array:
    """For each spread, what the log evidence gains by it over one that is next to nothing."""
    factors = jnp.where(jnp.eye(len(places) + 1, len(places), dtype=bool), NEARER, 1.0)

    def at(factor):
        moved = dict(params)
        for (name, index), f in zip(places, factor, strict=True):
            moved[name] = moved[name].at[index].multiply(f)
        return log_evidence(plan, moved, known, rows)

    values = jax.vmap(at)(factors)
    return values[-1] - values[:-1]
