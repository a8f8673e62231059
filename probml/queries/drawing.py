"""Joint posterior draws of all latent and missing values of each row (forward filtering, backward
sampling)."""


import jax
import jax.numpy as jnp

from probml.device.rows import Chunk, Known, Rows
from probml.elimination import elimination
from probml.elimination.chains import paths as chain_paths
from probml.elimination.factor import Factor
from probml.factors import integrated, sequences
from probml.numerics.compiling import ASKED, jit
from probml.plan.plan import Plan
from probml.queries.queries import Belief, parts_of


@jit(static_argnames=("plan",), seldom=ASKED)
def draw_each(plan: Plan, belief: Belief, known: Known, rows: Rows, index: jax.Array,
              key: jax.Array):
    """As `draw`, with different parameters for each group of rows.

    Args:
        belief: its parameters have a leading axis of groups.
        index: (groups, rows per group) row numbers, counted through all chunks.

    Returns:
        log p(row), (groups, rows per group), and name → joint states of the same shape.
    """

    def group(own, index, key):
        return jax.tree.map(lambda leaf: leaf[0],
                            drawn_once(plan, own, known, rows.taken(index), key))

    return belief.map_draws(plan, group, index, jax.random.split(key, len(index)))


def drawn_once(plan: Plan, belief: Belief, known: Known, every: Rows, key: jax.Array):
    """Joint draws of all variables given the observed cells of each row: log p(row), (chunks, b),
    and name → (chunks, b) joint states."""

    def chunk(rows: Chunk, key: jax.Array):
        parts, size = parts_of(plan, belief, known, rows), len(rows.weights)
        if plan.chains:
            steps = rows.along
            chain = sequences.chain_of(plan, parts.steps, parts.moves, steps, size)
            key, other, last = jax.random.split(key, 3)
            value, paths = chain_paths.draw(chain, other, sequences.layout_of(steps))
            factors = [*parts.rows, sequences.of_rows(plan, value)]
        else:
            factors = parts.factor_graph()
        own = ()
        if plan.latents:  # split before use: a PRNG key must not be both used and split
            key, *own = jax.random.split(key, 1 + len(plan.latents))
        whole = [Factor(jnp.broadcast_to(f.log, (size, *f.log.shape[1:])), f.names)
                 for f in factors[:1]] + factors[1:]
        log, states = elimination.draw(whole, plan.order, key)
        for group, mine in zip(plan.latents, own, strict=True):
            states |= integrated.draw(plan, belief.params, known, rows, group, states, mine)
        if plan.chains:
            every, hot = sequences.clamps(plan, sequences.lane_states(plan, paths, states, steps),
                                          states, steps)
            if plan.step_order:
                every |= elimination.draw([*hot, *parts.steps],
                                          (*plan.step_order, *plan.along, *plan.chains), last)[1]
            states |= {name: steps.folded(state) for name, state in every.items()
                       if name not in states}
        return jnp.broadcast_to(log, (size,)), states

    return every.map(chunk, jax.random.split(key, every.chunks))


draw = jit(drawn_once, static_argnums=0, seldom=ASKED)
