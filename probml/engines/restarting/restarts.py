"""All restarts to their ends: a device call serves those that still run; the best of them."""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.engine import Outcome, Status
from probml.engines.findings import Code, Finding
from probml.engines.progress import Loop, Progress, Turn, iterate
from probml.engines.restarting import slices
from probml.engines.restarting.squarem import BLOCK, Settings, State, advance, initial
from probml.engines.restarting.vectors import cut, loose
from probml.engines.start.race import Race, of_restarts
from probml.engines.start.start import Start
from probml.numerics.outside.checkpoint import Grown
from probml.plan.plan import Plan

LONG = 2.0  # seconds of each of two device calls in turn, from which another compilation pays
TIE = 0.01  # of the nats within which two ends count as one: the first of them is taken
# starts that a maximum on a few rows is reached by at the most, those that a real one is reached by
# at the least, and how much narrower the first is; nats within which two ends are one
SELDOM, OFTEN, NARROWER, ALIKE = 2, 6, 0.2, 0.01


Advance = Callable[[Any, Any, int], tuple[Any, Any, bool]]


def runs(settings: Settings, plan: Plan, first: Start, rows: Rows, known: Known, closed: bool,
         race: Race | None = None) -> tuple[State, np.ndarray]:
    """Every restart of EM at its end, and its trail of objectives."""
    static = (settings.prior, settings.hard, settings.accelerate, closed)
    gain = settings.tolerance * rows.weight

    def steps(state: State, own: Start, limit: int) -> tuple[State, np.ndarray, bool]:
        return advance(plan, static, state, own, known, rows, limit, gain)

    start = initial(plan, first.params, first.expected is not None, first.drawn)
    return to_ends("EM", plan, rows, start, first._replace(drawn=None), steps, BLOCK,
                   settings.max_iterations, race, settings.progress)


def to_ends(title: str, plan: Plan, rows: Rows, state: Any, own: Any, advance: Advance, block: int,
            limit: int, race: Race | None, progress: bool) -> tuple[Any, np.ndarray]:
    """Every restart at its end, and its trail of objectives, (restarts, evaluations).

    A device call serves all that still run; where it is long, those that ended or were left are
    taken out once they are half.

    Args:
        state: restarts, a named tuple with `value`, `count` and `status`, whose leaves lead with
            them. own: what restarts have of their own, of such leaves.
        advance: (state, own, evaluations in all) → the state, the trail (restarts, block), and
            whether all have ended. limit: iterations at the most, of which there is one less than
            evaluations.
    """
    found = _Restarts(plan, rows, state, own, advance, block, limit + 1, race)
    with Progress(title, limit, progress) as bar:
        iterate(bar, found.ceiling, functools.partial(found.turn, bar), held=found)
    return found.whole, np.concatenate(found.history, 1)


class _Restarts(Loop):
    """All restarts between two device calls: `state` has those that still run, whose numbers are
    `where`; `whole` has every restart as it was when last stored. Arguments as of `to_ends`."""

    kept = ("state", "whole", "where", "compiled")

    def __init__(self, plan: Plan, rows: Rows, state: Any, own: Any, advance: Advance, block: int,
                 ceiling: int, race: Race | None):
        self.restarts = len(state.value)
        super().__init__(state, history=Grown((self.restarts, block)))
        self.whole, self.history = state, self.lists["history"]
        self.plan, self.rows, self.own, self.advance = plan, rows, own, advance
        self.block, self.ceiling, self.race = block, ceiling, race
        self.where, self.compiled, self.slow = np.arange(self.restarts), False, 0

    def turn(self, bar: Progress, done: int) -> Turn:
        """One call; `done` counts M-steps, of which there is one less than evaluations."""
        race = self.race if self.race is not None and self.race.on else None
        early = not self.history
        # of rows that are read in parts each evaluation is long
        block = race.first if race and early else self.block if race or self.rows.held else 1
        limit = min((0 if early else done + 1) + block, self.ceiling)
        began = time.perf_counter()
        self.state, trail, ended = self.advance(self.state, self.own, limit)
        self.history.append(np.full((self.restarts, self.block), np.nan))
        self.history[-1][self.where] = np.asarray(trail)
        ended = bool(ended) or limit >= self.ceiling
        if race and not ended:
            status = race.left(np.asarray(self.state.status), np.asarray(self.state.value),
                               self.history[-1][self.where], self.where, early)
            self.state = self.state._replace(status=status)
        best = float(np.asarray(self.state.value).max())
        running = np.flatnonzero(np.asarray(self.state.status) == Status.RUNNING)
        ended = ended or not len(running)
        long = self._is_long(bar, time.perf_counter() - began)
        half = long and 2 * len(running) <= len(self.where)
        if ended or half:
            self.whole = jax.tree.map(functools.partial(_put, self.where), self.whole, self.state)
        if half and not ended:
            self._keep(running)
        return Turn(limit - 1 - done, best, Status.CONVERGED if ended else Status.RUNNING)

    def _is_long(self, bar: Progress, seconds: float) -> bool:
        """Whether calls take so long that another compilation pays, for those that still run."""
        # a fit that may be resumed has no clock: its answer must not depend on one
        clocked = self.compiled and bar.journal is None and not self.rows.joint
        self.slow = self.slow + 1 if clocked and seconds > LONG else 0
        self.compiled = True
        # one may have waited for other work on the machine; in slices those that ended cost nothing
        sliced = slices.size(self.plan, self.rows, len(self.where)) < len(self.where)
        compact = self.race is not None and self.race.on and self.race.compact
        return not sliced and (self.slow > 1 or compact)

    def _keep(self, running: np.ndarray) -> None:
        """Go on with some of the restarts alone, by a power of two: few programs."""
        keep = np.resize(running, 1 << (len(running) - 1).bit_length())
        self.state, self.own = jax.tree.map(lambda leaf: np.asarray(leaf)[keep],
                                            (self.state, self.own))
        self.where, self.compiled, self.slow = self.where[keep], False, 0

    def write(self, held: dict[str, Any]) -> None:
        super().write(held)
        if (any(len(leaf) != len(self.where) for leaf in jax.tree.leaves(self.state))
                or any(len(leaf) != self.restarts for leaf in jax.tree.leaves(self.whole))
                or not np.isin(self.where, np.arange(self.restarts)).all()):
            raise ValueError(f"the runs {self.where!r:.60} of {self.restarts}")
        if len(self.where) < self.restarts:
            self.own = jax.tree.map(lambda leaf: np.asarray(leaf)[self.where], self.own)


def _put(where: np.ndarray, whole: Any, part: Any) -> np.ndarray:
    """The leaves of some restarts in their place among all."""
    out = np.array(whole)
    out[where] = np.asarray(part)
    return out


def ahead(status: np.ndarray, value: np.ndarray) -> bool:
    """Whether a start that was left is higher than all that were followed: those that were ahead of
    it have collapsed."""
    left, ended = status == Status.LEFT, ~np.isin(status, (Status.LEFT, Status.COLLAPSED))
    return bool(left.any() and value[left].max() > value[ended].max(initial=-np.inf))


def point_of(plan: Plan, state: State, i: int) -> dict[str, np.ndarray]:
    """The parameters of one start at its best."""
    return loose(plan, state.params[i], cut)


def best_at(runs: Any, close: float = 0.0) -> int:
    """Which restart is the best. close: nats within which two ends count as one."""
    value = np.asarray(runs.value)
    ended = ~np.isin(runs.status, (Status.LEFT, Status.COLLAPSED)) & np.isfinite(value)
    reached = np.where(ended, value, -np.inf)
    # rounding must not choose the order of the states
    alike = TIE * close + 64 * np.finfo(value.dtype).eps * np.abs(reached.max())
    return int(np.argmax(reached >= reached.max() - (alike if np.isfinite(alike) else 0.0)))


def best_of(runs: Any, trail: np.ndarray, close: float, best: int) -> Outcome:
    """How the restart `best` ended, without its parameters, and what became of the others.

    Args:
        trail: of `best`. close: nats within which two ends count as one.
    """
    status, value = np.asarray(runs.status), np.asarray(runs.value)
    alive = (status != Status.COLLAPSED) & np.isfinite(value)
    ended = alive & (status != Status.LEFT)
    final = Status(int(status[best])) if ended[best] else Status.COLLAPSED
    told = ended.any() and len(value) > 1
    return Outcome(
        {}, trail[np.isfinite(trail)],
        Status.MAX_ITERATIONS if final is Status.RUNNING else final,
        max(int(np.asarray(runs.count)[best]) - 1, 0),
        (of_restarts(value, ended, alive, best, close),) if told else (),
        # a few of many are no matter of digits
    ).with_state(lost=int((~alive).sum()) if alive.any() and 2 * alive.sum() < len(value) else 0)


def spurious(plan: Plan, state: State, best: int, close: float) -> tuple[Finding, ...]:
    """A finding where the best optimum is that of hardly a start, and has a scale far smaller than
    the optimum that most lead to: a few rows that agree by chance make a maximum so, which is high
    and has little mass (McLachlan & Peel 2000, "Finite Mixture Models", section 3.10)."""
    value, left = np.asarray(state.value), (Status.LEFT, Status.COLLAPSED)
    ended = ~np.isin(state.status, left) & np.isfinite(value)
    at = np.flatnonzero(ended)
    reached = np.abs(value[at][:, None] - value[at]) <= max(close, ALIKE)
    count = reached.sum(1)
    scales = [name for name in plan.free if plan.structure.sites[name].domain.log_scale]
    if not (ended[best] and scales and len(at) and count.max() >= OFTEN):
        return ()
    if count[np.flatnonzero(at == best)[0]] > SELDOM:
        return ()
    usual = int(at[np.argmax(count)])
    point, other = (point_of(plan, state, i) for i in (best, usual))
    shares = {name: np.sort(np.ravel(point[name]))[0] / max(np.sort(np.ravel(other[name]))[0],
                                                           np.finfo(float).tiny)
              for name in scales}
    name = min(shares, key=lambda name: shares[name])
    if not shares[name] < NARROWER:
        return ()
    return (Finding.of(Code.SPURIOUS_MAXIMUM, name, factor=1 / shares[name], starts=count.max(),
                       lower=value[best] - value[usual]),)
