"""The operands of a query: the posterior of the parameters, and the factor graph of a chunk of
rows."""

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

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
from probml.typing import PyTree


class Belief(NamedTuple):
    """Posterior of the parameters: a point or draws (leading axis), closed-form predictive
    distributions, and the posterior of discrete sites outside rows."""

    params: dict[str, jax.Array]
    # log posterior over the joint states of the discrete sites outside rows; may have a leading
    # axis of draws if params have
    table: jax.Array | None
    # pooled continuous site → arguments of its predictive distribution (Marginals of
    # posteriors/conjugate.py)
    predictive: dict[str, PyTree]

    @classmethod
    def at_draw(cls, plan: Plan, known: Known, draw: Mapping) -> tuple["Belief", Known]:
        """Belief and known values at one draw of the parameters, and of those sites outside rows
        that the plan conditions on."""
        given = {name: draw.get(name, value) for name, value in known.given.items()}
        return cls({name: draw[name] for name in plan.free}, None, {}), known._replace(given=given)

    def map_draws(self, plan: Plan, ask: Callable, *more: jax.Array) -> PyTree:
        """ask(belief at draw i, *(array[i] for array in more)) of every draw i, stacked."""
        several = self.table is not None and self.table.ndim > len(plan.globals)
        return jax.lax.map(lambda parts: ask(self._replace(
            params=parts[0], table=parts[1] if several else self.table), *parts[2:]),
            (self.params, self.table if several else None, *more))


class Parts:
    """The factor graph of a chunk of rows in three parts: factors of rows, factors of time steps,
    and initial and transition log probabilities of the chains (`moves`)."""

    def __init__(self, plan: Plan, rows: list[Factor], moves: list[Moves], given: Given,
                 chunk: Chunk):
        self.rows, self.moves = rows, moves
        self._plan, self._given, self._chunk = plan, given, chunk
        self._inside = inside_of(plan, chunk)

    @functools.cached_property
    def steps(self) -> list[Factor]:
        """The factors of all time steps, computed at first access."""
        plan, given = self._plan, self._given
        if plan.step_order:
            return self._inside(given, self._chunk.steps, None)
        if not plan.steps:
            return []

        # no variable to eliminate within a step: all its factors are multiplied into one
        def factor_within(rows: Chunk, _: None) -> Factor:
            return sequences.within(plan, self._inside(given, rows.steps, None))

        return [in_pieces(plan, factor_within, self._chunk)]

    def path(self) -> tuple[jax.Array, jax.Array] | None:
        """The most probable joint path of the chains, see factors.chains.best_path; None where
        steps have other factors than those of their observed cells."""
        return best_path(self._plan, self._inside, self._given, self.moves, self._chunk)

    def factor_graph(self, pairs: jax.Array | None = None, rows: list[Factor] | None = None,
                     more: Mapping[tuple[str, ...],
                                   jax.Array] = MappingProxyType({})) -> list[Factor]:
        """All factors as one list, with the latent states along time summed out.

        Args:
            rows: replacement of the factors of rows. more: as for steps_factor.
        """
        plan, chunk, rows = self._plan, self._chunk, self.rows if rows is None else rows
        if not (plan.steps or plan.step_order or self.moves or more):
            return rows
        if plan.steps and not plan.step_order and pairs is None and "steps" not in self.__dict__:
            return [*rows, steps_factor(plan, self._inside, self._given, self.moves, chunk,
                                        more=more)]
        beside = [Factor(sequences.by_step(log), scope) for scope, log in more.items()]
        return [*rows, sequences.factor(plan, [*self.steps, *beside], self.moves, chunk.along,
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
    """The rows in which a site has values, and their number: rows of the data or, of a site along
    time, their time steps."""
    if plan.structure.named[name].time is None:
        return rows, len(rows.weights)
    steps = rows.along
    return steps.rows, len(rows.weights) * steps.blocks * steps.length
