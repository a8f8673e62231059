"""What a question asks: a belief about the parameters, and the factor graph of a chunk of rows."""

from typing import Any, NamedTuple

import jax

from probml.device.rows import Chunk, Known
from probml.elimination import elimination
from probml.elimination.factor import Factor
from probml.factors import sequences
from probml.factors.chains import chain_moves, in_pieces
from probml.factors.factors import global_factors, level_factors
from probml.factors.naturals import naturals
from probml.factors.sequences import Moves
from probml.plan.plan import Plan


class Belief(NamedTuple):
    """What a fit knows of the parameters: a point or draws (leading axis), closed-form predictives,
    and global states."""

    params: dict[str, jax.Array]
    # log posterior over the global discrete sites; of draws, theirs too may lead with an axis of
    # draws
    table: jax.Array | None
    # pooled continuous site → arguments of its predictive (posterior.Marginals)
    predictive: dict[str, Any]


class Parts(NamedTuple):
    """The factor graph of a chunk of rows in its parts: of rows, of their steps, and the moves of
    the chains."""

    rows: list[Factor]
    steps: list[Factor]
    moves: list[Moves]

    def whole(self, plan: Plan, rows: Chunk, pairs: Any = None) -> list[Factor]:
        """One graph; what is hidden along time is summed out."""
        if not (self.steps or self.moves):
            return self.rows
        return [*self.rows, sequences.factor(plan, self.steps, self.moves, rows.steps,
                                             len(rows.weights), pairs=pairs)]


def parts_of(plan: Plan, belief: Belief, known: Known, rows: Chunk) -> Parts:
    """The factor graph of a chunk of rows."""
    natural = naturals(plan, belief.params, known)
    args = (plan, belief.params, known, natural, rows)
    factors = level_factors(*args, False, predictive=belief.predictive)
    if belief.table is not None:
        factors.append(Factor(belief.table[None], plan.globals))
    else:
        outer = global_factors(plan, belief.params, known)
        if plan.mixed:  # log p(states | params), not log p(states, params)
            outer.append(Factor(-elimination.evidence(outer, plan.globals), ()))
        factors += outer

    def inside(rows, taps=None):
        return level_factors(plan, belief.params, known, natural, rows, True,
                             predictive=belief.predictive)

    steps = inside(rows) if plan.step_order else []
    # nothing to eliminate: whatever else is asked of a step is added to its product
    if plan.steps and not plan.step_order:
        steps = [in_pieces(plan, lambda rows, _: sequences.within(plan, inside(rows)), rows)]
    return Parts(factors, steps, chain_moves(*args))


def level(plan: Plan, rows: Chunk, name: str) -> tuple[Chunk, int]:
    """The rows that answers about a site have, and their number: those of the data, or their
    steps."""
    if plan.structure.named[name].time is None:
        return rows, len(rows.weights)
    steps = rows.steps
    return steps.rows, len(rows.weights) * steps.blocks * steps.length
