"""Rows at each of many draws of the parameters: their evidence, and what the model computes in
them."""

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from probml.device.rows import Known, Rows
from probml.evidence.passes import each
from probml.factors.factors import row_evidence
from probml.factors.naturals import naturals
from probml.numerics.compiling import jit
from probml.plan.plan import Plan
from probml.queries.queries import ALL, Belief, answer_rows


@functools.partial(jit, static_argnames=("plan",))
def row_logs(plan: Plan, draws: Mapping, known: Known, chunks: Rows) -> jax.Array:
    """log p(row | parameters), unseen discrete sites of the row summed out, for draws of the
    parameters, and of sites outside rows that the plan takes for given: (draws, chunks, b)."""

    def one(draw):
        at = known._replace(
            given={name: draw.get(name, value) for name, value in known.given.items()}
        )
        params = {name: draw[name] for name in plan.free}
        natural = naturals(plan, params, at)
        return each(lambda rows: jnp.broadcast_to(row_evidence(plan, params, at, natural, rows),
                                                  rows.weights.shape), chunks)

    return jax.lax.map(one, draws)


@functools.partial(jit, static_argnames=("plan", "names"))
def row_values(plan: Plan, names: tuple[str, ...], draws: Mapping, known: Known,
               chunks: Rows) -> dict[str, jax.Array]:
    """The deterministics `names` inside rows at draws, as row_logs takes them: name → (draws,
    chunks, b, *cells)."""
    ask = tuple(("mean", name) for name in names)

    def one(draw):
        at = known._replace(
            given={name: draw.get(name, value) for name, value in known.given.items()}
        )
        belief = Belief({name: draw[name] for name in plan.free}, None, {})
        return each(lambda rows: {
            name: value for (_, name), value
            in answer_rows(plan, ask, belief, at, rows, ALL)[1].items()
        }, chunks)

    return jax.lax.map(one, draws)
