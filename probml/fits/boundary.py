"""Spreads of latents that an engine found at the edge of their support, 0: a fit that says so, as
one of a mixed model that is singular (Bates et al. 2015)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.engine import Outcome
from probml.engines.start.prior import compiled_prior_point
from probml.evidence.passes import log_evidence
from probml.numerics.compiling import jit
from probml.plan.plan import Plan

FALLEN = 3.0  # logarithms below the prior's point from which a spread is looked at
NEARER = 1e-3  # times itself: as good as 0
ALIKE = 0.01  # nats that tell a spread from 0 no better than rounding does


def spreads(plan: Plan) -> tuple[str, ...]:
    """The positive parameters that only say how wide latents lie."""
    sites, found = plan.structure.sites, []
    for name in (name for name in plan.hidden if name not in plan.pattern):
        for argument, uses in sites[name].uses.items():
            found += [p for p in uses if argument not in sites[name].locations and p in plan.free
                      and sites[p].domain.log_scale]
    return tuple(dict.fromkeys(found))


def noted(plan: Plan, outcome: Outcome, known: Known, rows: Rows) -> Outcome:
    """A point that was found, and which of its spreads the rows cannot tell from 0."""
    names = spreads(plan)
    if not names or outcome.posterior is not None or outcome.belief is not None:
        return outcome
    middle = jax.device_get(compiled_prior_point(plan, known))
    low = [name for name in names if np.any(np.asarray(outcome.params[name])
                                            < np.exp(-FALLEN) * middle[name])]
    if not low:
        return outcome
    params = {name: jnp.asarray(value) for name, value in outcome.params.items()}
    gone = [name for name, gain in zip(low, np.asarray(_gains(plan, tuple(low), params, known,
                                                              rows)), strict=True) if gain < ALIKE]
    notes = tuple(f"'{name}' is at its boundary: the rows tell no spread from 0" for name in gone)
    return outcome._replace(notes=(*outcome.notes, *notes))


@functools.partial(jit, static_argnums=(0, 1))
def _gains(plan: Plan, names: tuple[str, ...], params: dict, known: Known, rows: Rows) -> jax.Array:
    """For each spread, what the log evidence gains by it over one that is next to nothing."""
    factors = jnp.where(jnp.eye(len(names) + 1, len(names), dtype=bool), NEARER, 1.0)

    def at(factor):
        moved = {name: params[name] * f for name, f in zip(names, factor, strict=True)}
        return log_evidence(plan, {**params, **moved}, known, rows)

    values = jax.vmap(at)(factors)
    return values[-1] - values[:-1]
