"""EM: expected statistics and a block-wise M-step, many restarts in one program, accelerated and
safeguarded."""

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from probml.dataset.dataset import Data
from probml.device.load import load, order
from probml.device.rows import Known, Rows
from probml.engines.engine import Outcome, Progress, Status, check_settings
from probml.engines.squarem import BLOCK, State, advance, held_at, initial
from probml.engines.start.labelling import hidden
from probml.engines.start.prior import need_prior, prior_point
from probml.engines.start.race import (
    ALIKE,
    FINAL,
    SETTLE,
    SHORT,
    Effort,
    Race,
    effort,
    ends,
    promising,
    sample,
)
from probml.engines.start.start import Start, check_distinct, shaken, stack, starts, tells_apart
from probml.errors import Refusal
from probml.numerics.compiling import jit
from probml.plan import hierarchy
from probml.plan.blocks import blocks
from probml.plan.plan import Plan

# restarts at least where discrete sites outside rows are unseen: each begins with one value of
# theirs
APART = 4
LONG = 2.0  # seconds of each of two device calls in turn, from which another compilation pays
TIE = 0.01  # of the nats within which two ends count as one: the first of them is taken


@dataclass(frozen=True)
class EM:
    """Expectation–maximisation (Dempster, Laird & Rubin 1977) of the posterior mode, or of the
    likelihood.

    Args:
        max_iterations: M-steps at the most.
        tolerance: stop when an iteration gains less than this of the objective per unit of total
            weight, in nats.
        restarts: starts run as one vmapped program; the best is kept. None: where something is
            hidden as many as take about a second, at most 32; those that are far behind after some
            iterations are left. Where all rows allow fewer than ten, up to 16 short runs are made
            on a sample of them (of whole sequences, or stretches), and the promising ends are
            finished on all.
        prior: maximise log posterior (True) or log likelihood (False).
        hard: classification EM (Celeux & Govaert 1992): the hidden states at their joint maximum
            instead of averaged.
        accelerate: SQUAREM extrapolation (Varadhan & Roland 2008), accepted only where the
            objective does not fall.
        progress: show a progress bar at once; else it comes after ten seconds, in a terminal or a
            notebook.

    Cost: one pass over the rows an iteration: O(rows × evidence), memory of the data and one chunk.
    """

    max_iterations: int = 1000
    tolerance: float = 1e-7
    restarts: int | None = None
    prior: bool = True
    hard: bool = False
    accelerate: bool = True
    progress: bool = False

    def __post_init__(self):
        check_settings(self, positive=("max_iterations", "restarts"), nonnegative=("tolerance",))

    def refuse(self, data: Data, plan: Plan, ladder: bool = False) -> None:
        """Raise Refusal, naming the site and the reason, where EM cannot treat the plan."""
        where = f"EM cannot fit model '{plan.structure.model.name}'"
        check_distinct(data, plan)
        if self.hard and plan.globals:
            raise Refusal(f"{where} with hard=True: site '{plan.globals[0]}' lies outside rows(); "
                          f"use EM() or Exact()")
        need_prior(plan, "EM", self.prior)
        hierarchy.judge(plan, data.table.rows, "EM", ladder)
        if not ladder or not plan.free:
            return
        for stage in blocks(plan, self.prior):
            for block in stage:
                if plan.complete and not (block.form and block.conjugate):
                    raise Refusal(
                        f"{where} faster than MAP: nothing discrete is unseen and "
                        f"'{block.names[0]}' has no closed form "
                        f"({block.why}); use MAP()"
                    )

    def run(self, data: Data, plan: Plan, rows: Rows, known: Known, weights, seed: int,
            start: Mapping[str, Any]) -> Outcome:
        made = self._effort(data, plan, start)
        found, restarts = (self._finished(data, plan, rows, known, weights, seed, start, made),
                           made.starts)
        if not found:
            first = starts(data, plan, known, weights, restarts, seed, start, self.prior)
            race = Race(np.zeros(restarts, int),
                        compact=made.large) if self.restarts is None else None
            found = self._climb(plan, first, rows, known, closed=True, race=race)
        outcome = found[0]
        outcome = self._unstuck(plan, outcome, rows, known, restarts, seed)
        # a closed form misled: go on from the best point without any
        if outcome.status is Status.FELL:
            point = {name: np.asarray(value)[None] for name, value in outcome.params.items()}
            again = self._climb(plan, Start(point, None, {}), rows, known, closed=False)[0]
            note = "a closed form lowered the objective, so the M-step went on by L-BFGS"
            history = np.concatenate([outcome.history, again.history])
            outcome = again._replace(history=history, iterations=outcome.iterations
                                     + again.iterations, notes=(*outcome.notes, note))
        return outcome

    def _unstuck(self, plan: Plan, outcome: Outcome, rows: Rows, known: Known, restarts: int,
                 seed: int) -> Outcome:
        """Where states ended alike, once more from a little apart: if the objective rises from
        there, the end was a saddle."""
        apart = shaken(plan, outcome.params, seed) if outcome.status is Status.CONVERGED else None
        if apart is None:
            return outcome
        point = {name: stack(value, restarts) for name, value in apart.items()}
        again = self._climb(plan, Start(point, None, {}), rows, known, closed=True)[0]
        gain = again.history[-1] - outcome.history[-1] if len(again.history) else -np.inf
        if again.status is not Status.COLLAPSED and gain > self.tolerance * _weight(rows) + 1e-6:
            return again._replace(iterations=outcome.iterations + again.iterations)
        return outcome

    def starts(self, data: Data | None, plan: Plan, start: Mapping[str, Any],
               programs: int = 1) -> int:
        """How many starts are made on all rows: as asked, or as many as are worth their time."""
        return self._effort(data, plan, start, programs).starts

    def _effort(self, data: Data | None, plan: Plan, start: Mapping[str, Any],
                programs: int = 1) -> Effort:
        made = Effort(self.restarts or 1)
        if self.restarts is None and data is not None and tells_apart(plan, start):
            states = sum(plan.variables[name].states for name in hidden(plan))
            rows, entries = data.table.rows * max(data.steps or 1, 1), max(plan.work, plan.width)
            made = effort(rows, entries, states, programs, sampling=not plan.globals)
        return made._replace(starts=max(made.starts, APART)) if plan.globals and plan.free else made

    def _finished(
        self, data: Data, plan: Plan, rows: Rows, known: Known, weights, seed: int, start: Mapping,
        made: Effort, of: Mapping | None = None
    ) -> list[Outcome]:
        """Short runs on a sample of the rows, and their promising ends finished on all: of every
        group the best. Empty where no such runs are worth their time, or all of a group collapse.

        Args:
            of: variable → (groups, states) bool, what each group does without; one group by
                default.
        """
        if not made.scouts:
            return []
        part, weight = sample(data, weights, made.size, seed)
        count = 1 if of is None else len(next(iter(of.values())))
        groups = np.repeat(np.arange(count), made.scouts)
        allowed = {name: table[groups] for name, table in (of or {}).items()}
        some, shared = load(part, plan, weight, order(part, plan), len(groups), params=start)
        first = starts(part, plan, shared, weight, len(groups), seed, start, self.prior,
                       allowed=allowed)
        short = replace(self, max_iterations=min(self.max_iterations, SHORT))
        state, _ = short._runs(plan, first, some, shared, True, Race(groups))
        status, value, total = (np.asarray(state.status), np.asarray(state.value),
                                _weight(some))
        steps, words, chosen, lost = data.steps is not None, [], [], []
        shown = [d.table.rows * (d.steps or 1) for d in (part, data)]
        for members in (np.flatnonzero(groups == group) for group in range(count)):
            best = promising(status[members], value[members], total)
            if not len(best):
                return []
            alive = (status[members] != Status.COLLAPSED) & np.isfinite(value[members])
            where = f" on {shown[0]} of {shown[1]} {'steps' if steps else 'rows'}"
            said = ends(value[members], alive & (status[members] != Status.LEFT), alive, best[0],
                        ALIKE * total, where)
            words.append(f"{said}; the best "
                         f"{'end was' if len(best) == 1 else f'{len(best)} ends were'} finished "
                         f"on all")
            chosen.append(members[best])
            lost.append(int((~alive).sum()) if 2 * alive.sum() < len(alive) else 0)
        # two programs at the most, whatever the ends are
        each = FINAL if max(map(len, chosen)) > 1 else 1
        found = [_point(plan, state, i) for best in chosen for i in np.resize(best, each)]
        middle = jax.device_get(_middle(plan, known))
        point = {name: np.stack([held_at(plan, name, p[name], middle[name], np) for p in found])
                 for name in plan.free}
        groups = np.repeat(np.arange(count), each)
        first = Start(point, None, {}, {name: table[groups] for name, table in (of or {}).items()})
        outcomes = self._climb(plan, first, rows, known, closed=True,
                               race=Race(groups, 1, SETTLE, made.large))
        if any(outcome.status is Status.COLLAPSED for outcome in outcomes):
            return []
        return [outcome._replace(notes=(said,), lost=gone)
                for outcome, said, gone in zip(outcomes, words, lost, strict=True)]

    def _climb(self, plan: Plan, first: Start, rows: Rows, known: Known, closed: bool,
               race: Race | None = None) -> list[Outcome]:
        """Of every group of starts the best end; one group where there is no race."""
        close = 1e-3 + 10 * self.tolerance * _weight(rows)
        state, trail = self._runs(plan, first, rows, known, closed, race)
        groups = np.zeros(len(state.value), int) if race is None else race.groups
        members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
        if any(_ahead(np.asarray(state.status)[at], np.asarray(state.value)[at]) for at in members):
            state, trail = self._runs(plan, first, rows, known, closed)
        return [_outcome(plan, jax.tree.map(lambda leaf, at=at: np.asarray(leaf)[at], state),
                         trail[at], close) for at in members]

    def grid(self, data: Data, plan: Plan, rows: Rows, known: Known, weights, seed: int, site: str,
             sizes: Sequence[int]) -> list[Outcome]:
        """For each size, the best of the restarts that use that many states of `site`: one program
        for all, the largest's, in which the states beyond a size are impossible. Each size has its
        own race."""
        made = self._effort(data, plan, {}, len(sizes))
        of = {site: np.arange(plan.variables[site].states) < np.asarray(sizes)[:, None]}
        found = self._finished(data, plan, rows, known, weights, seed, {}, made, of)
        if found:
            return found
        groups = np.repeat(np.arange(len(sizes)), made.starts)
        first = starts(data, plan, known, weights, len(groups), seed, {}, self.prior,
                       allowed={site: of[site][groups]})
        race = Race(groups, compact=made.large) if self.restarts is None else Race(groups,
                                                                                   keep=made.starts)
        return self._climb(plan, first, rows, known, closed=True, race=race)

    def _runs(
        self, plan: Plan, first: Start, rows: Rows, known: Known, closed: bool,
        race: Race | None = None
    ) -> tuple["State", np.ndarray]:
        """Every restart at its end, and its trail of objectives.

        A device call serves all that still run; where it is long, those that ended or were left are
        taken out once they are half.
        """
        static = (self.prior, self.hard, self.accelerate, closed)
        drawn, first = first.drawn, first._replace(drawn=None)
        state = initial(plan, first.params, known, first.expected is not None, drawn)
        total = _weight(rows)
        history, done, limit, ceiling = [], False, 0, self.max_iterations + 1
        restarts = len(state.value)
        where, whole, compiled, slow = np.arange(restarts), state, False, 0
        with Progress("EM", self.max_iterations, self.progress) as bar:
            while not done:
                racing, early = race is not None and race.on, not history
                limit = min(limit + (race.first if racing and early else BLOCK), ceiling)
                began = time.perf_counter()
                state, trail, done = advance(plan, static, state, first, known, rows,
                                             np.int32(limit), np.asarray(self.tolerance * total))
                history.append(np.full((restarts, BLOCK), np.nan))
                history[-1][where] = np.asarray(trail)
                done = bool(done) or limit >= ceiling
                if racing and not done:
                    status = race.left(np.asarray(state.status), np.asarray(state.value),
                                       history[-1][where], where, early)
                    state = state._replace(status=status)
                if self.progress:
                    bar.update(int(np.asarray(state.count).max()) - 1,
                               float(np.asarray(state.value).max()))
                running = np.flatnonzero(np.asarray(state.status) == Status.RUNNING)
                done = done or not len(running)
                slow = slow + 1 if compiled and time.perf_counter() - began > LONG else 0
                # one may have waited for other work on the machine
                long = slow > 1 or (racing and race.compact)
                compiled = True
                if done or (long and 2 * len(running) <= len(where)):
                    whole = jax.tree.map(functools.partial(_put, where), whole, state)
                if not done and long and 2 * len(running) <= len(where):
                    # a power of two: few programs
                    keep = np.resize(running, 1 << (len(running) - 1).bit_length())
                    state, first = jax.tree.map(lambda leaf, k=keep: np.asarray(leaf)[k],
                                                (state, first))
                    where, compiled, slow = where[keep], False, 0
        return whole, np.concatenate(history, 1)


def _put(where: np.ndarray, whole: Any, part: Any) -> np.ndarray:
    """The leaves of some restarts in their place among all."""
    out = np.array(whole)
    out[where] = np.asarray(part)
    return out


def _weight(rows: Rows) -> float:
    """The total weight, added up on the host."""
    return float(np.asarray(rows.weights).sum())


def _cut(array: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    return np.split(array, np.cumsum(sizes)[:-1])


def _ahead(status: np.ndarray, value: np.ndarray) -> bool:
    """Whether a start that was left is higher than all that were followed: those that were ahead of
    it have collapsed."""
    left, ended = status == Status.LEFT, ~np.isin(status, (Status.LEFT, Status.COLLAPSED))
    return bool(left.any() and value[left].max() > value[ended].max(initial=-np.inf))


def _point(plan: Plan, state: State, i: int) -> dict[str, np.ndarray]:
    """The parameters of one start at its best."""
    parts = (bundle.part(np.asarray(state.params[bundle.names[0]])[i], _cut)
             for bundle in plan.bundles)
    return {name: value for part in parts for name, value in part.items()}


_middle = jit(prior_point, static_argnums=0)


def _outcome(plan: Plan, state: State, trail: np.ndarray, close: float) -> Outcome:
    """The best restart. close: nats within which two ends count as one."""
    status, value = np.asarray(state.status), np.asarray(state.value)
    alive = (status != Status.COLLAPSED) & np.isfinite(value)
    ended = alive & (status != Status.LEFT)
    reached = np.where(ended, value, -np.inf)
    # rounding must not choose the order of the states
    alike = TIE * close + 64 * np.finfo(value.dtype).eps * np.abs(reached.max())
    best = int(np.argmax(reached >= reached.max() - (alike if np.isfinite(alike) else 0.0)))
    history = trail[best][np.isfinite(trail[best])]
    final = Status(int(status[best])) if ended[best] else Status.COLLAPSED
    return Outcome(
        _point(plan, state, best),
        history,
        Status.MAX_ITERATIONS if final == Status.RUNNING else final,
        max(int(np.asarray(state.count)[best]) - 1, 0),
        (ends(value, ended, alive, best, close),) if ended.any() and len(value) > 1 else (),
        # a few of many are no matter of digits
        lost=int((~alive).sum()) if alive.any() and 2 * alive.sum() < len(value) else 0,
    )
