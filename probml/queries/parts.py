"""What a question asks: a belief about the parameters, and the factor graph of a chunk of rows."""

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax

from probml.device.rows import Chunk, Known
from probml.elimination import elimination
from probml.elimination.factor import Factor
from probml.factors import sequences
from probml.factors.chains import Given, best_path, chain_moves, in_pieces, steps_factor
from probml.factors.factors import global_factors, inside_of, level_factors
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

    @classmethod
    def at_draw(cls, plan: Plan, known: Known, draw: Mapping) -> tuple["Belief", Known]:
        """One draw of the parameters, and of sites outside rows that the plan takes for given."""
        given = {name: draw.get(name, value) for name, value in known.given.items()}
        return cls({name: draw[name] for name in plan.free}, None, {}), known._replace(given=given)

    def map_draws(self, plan: Plan, ask: Callable, *more: jax.Array) -> Any:
        """ask(the belief at a draw, *that entry of `more`) for every draw, led by their axis."""
        several = self.table is not None and self.table.ndim > len(plan.globals)
        return jax.lax.map(lambda parts: ask(self._replace(
            params=parts[0], table=parts[1] if several else self.table), *parts[2:]),
            (self.params, self.table if several else None, *more))


class Parts:
    """The factor graph of a chunk of rows in its parts: of rows, of their steps, and the moves of
    the chains."""

    def __init__(self, plan: Plan, rows: list[Factor], moves: list[Moves], given: Given,
                 chunk: Chunk):
        self.rows, self.moves = rows, moves
        self._plan, self._given, self._chunk = plan, given, chunk
        self._inside = inside_of(plan, chunk)

    @functools.cached_property
    def steps(self) -> list[Factor]:
        """The factors of all steps, made at the first asking."""
        plan, given = self._plan, self._given
        if plan.step_order:
            return self._inside(given, self._chunk.steps, None)
        if not plan.steps:
            return []

        # nothing to eliminate: whatever else is asked of a step is added to its product
        def factor_within(rows: Chunk, _: None) -> Factor:
            return sequences.within(plan, self._inside(given, rows.steps, None))

        return [in_pieces(plan, factor_within, self._chunk)]

    def path(self) -> tuple[jax.Array, jax.Array] | None:
        """The most probable joint path of the chains, as factors.chains.best_path, where nothing
        but what is seen is said of their steps; None else."""
        return best_path(self._plan, self._inside, self._given, self.moves, self._chunk)

    def factor_graph(self, pairs: Any = None, rows: list[Factor] | None = None,
                     more: Mapping[tuple[str, ...],
                                   jax.Array] = MappingProxyType({})) -> list[Factor]:
        """All factors as one graph; the hidden states along time are summed out.

        Args:
            rows: in place of the factors of rows. more: as of steps_factor.
        """
        plan, chunk, rows = self._plan, self._chunk, self.rows if rows is None else rows
        if not (plan.steps or plan.step_order or self.moves or more):
            return rows
        if plan.steps and not plan.step_order and pairs is None and "steps" not in self.__dict__:
            return [*rows, steps_factor(plan, self._inside, self._given, self.moves, chunk,
                                        more=more)]
        beside = [Factor(sequences.by_step(log), scope) for scope, log in more.items()]
        return [*rows, sequences.factor(plan, [*self.steps, *beside], self.moves, chunk.steps,
                                        len(chunk.weights), pairs=pairs)]


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
    given = Given(belief.params, natural, belief.predictive, known)
    return Parts(plan, factors, chain_moves(*args), given, rows)


def rows_of_site(plan: Plan, rows: Chunk, name: str) -> tuple[Chunk, int]:
    """The rows for which a question about a site has answers, and their number: rows of the data,
    or their time steps."""
    if plan.structure.named[name].time is None:
        return rows, len(rows.weights)
    steps = rows.steps
    return steps.rows, len(rows.weights) * steps.blocks * steps.length
