"""All restarts of EM to their ends: a device call serves those that still run; the best of them."""

import functools
import time
from typing import Any

import jax
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.engine import Outcome, Status
from probml.engines.findings import Code, Finding
from probml.engines.progress import Held, Progress, Turn, iterate
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


def runs(settings: Settings, plan: Plan, first: Start, rows: Rows, known: Known, closed: bool,
         race: Race | None = None) -> tuple[State, np.ndarray]:
    """Every restart at its end, and its trail of objectives.

    A device call serves all that still run; where it is long, those that ended or were left are
    taken out once they are half.
    """
    found = _Restarts(settings, plan, first, rows, known, closed, race)
    with Progress("EM", settings.max_iterations, settings.progress) as bar:
        iterate(bar, found.ceiling, functools.partial(found.turn, bar), held=Held(
            found.read, found.write, {"history": Grown((found.restarts, BLOCK))}))
    return found.whole, np.concatenate(found.history, 1)


class _Restarts:
    """All restarts between two device calls: `state` has those that still run, whose numbers are
    `where`; `whole` has every restart as it was when last stored."""

    def __init__(self, settings: Settings, plan: Plan, first: Start, rows: Rows, known: Known,
                 closed: bool, race: Race | None):
        self.plan, self.rows, self.known, self.race = plan, rows, known, race
        self.static = (settings.prior, settings.hard, settings.accelerate, closed)
        self.first = first._replace(drawn=None)
        self.whole = self.state = initial(plan, first.params, first.expected is not None,
                                          first.drawn)
        self.gain, self.ceiling = settings.tolerance * rows.weight, settings.max_iterations + 1
        self.restarts = len(self.state.value)
        self.history: list[np.ndarray] = []
        self.where, self.compiled, self.slow = np.arange(self.restarts), False, 0

    def turn(self, bar: Progress, done: int) -> Turn:
        """One call; `done` counts M-steps, of which there is one less than evaluations."""
        race = self.race if self.race is not None and self.race.on else None
        early = not self.history
        # of rows that are read in parts each evaluation is long
        block = race.first if race and early else BLOCK if race or self.rows.held else 1
        limit = min((0 if early else done + 1) + block, self.ceiling)
        began = time.perf_counter()
        self.state, trail, ended = advance(self.plan, self.static, self.state, self.first,
                                           self.known, self.rows, limit, self.gain)
        self.history.append(np.full((self.restarts, BLOCK), np.nan))
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
        self.state, self.first = jax.tree.map(lambda leaf: np.asarray(leaf)[keep],
                                              (self.state, self.first))
        self.where, self.compiled, self.slow = self.where[keep], False, 0

    def read(self) -> dict[str, Any]:
        return {"state": jax.tree.leaves(self.state), "whole": jax.tree.leaves(self.whole),
                "where": self.where, "history": list(self.history), "compiled": self.compiled}

    def write(self, held: dict[str, Any]) -> None:
        form, self.where = jax.tree.structure(self.state), held["where"]
        self.compiled = held["compiled"]
        if (any(len(leaf) != len(self.where) for leaf in held["state"])
                or any(len(leaf) != self.restarts for leaf in held["whole"])
                or not np.isin(self.where, np.arange(self.restarts)).all()):
            raise ValueError(f"the runs {self.where!r:.60} of {self.restarts}")
        self.state, self.whole = (jax.tree.unflatten(form, held[name])
                                  for name in ("state", "whole"))
        if len(self.where) < self.restarts:
            self.first = jax.tree.map(lambda leaf: np.asarray(leaf)[self.where], self.first)
        self.history.extend(held["history"])


def _put(where: np.ndarray, whole: np.ndarray, part: np.ndarray) -> np.ndarray:
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


def best_at(state: State, close: float) -> int:
    """Which restart is the best. close: nats within which two ends count as one."""
    value = np.asarray(state.value)
    ended = ~np.isin(state.status, (Status.LEFT, Status.COLLAPSED)) & np.isfinite(value)
    reached = np.where(ended, value, -np.inf)
    # rounding must not choose the order of the states
    alike = TIE * close + 64 * np.finfo(value.dtype).eps * np.abs(reached.max())
    return int(np.argmax(reached >= reached.max() - (alike if np.isfinite(alike) else 0.0)))


def best_of(plan: Plan, state: State, trail: np.ndarray, close: float, best: int) -> Outcome:
    """The restart `best`, and what became of the others. close: nats within which two ends count as
    one."""
    status, value = np.asarray(state.status), np.asarray(state.value)
    alive = (status != Status.COLLAPSED) & np.isfinite(value)
    ended = alive & (status != Status.LEFT)
    history = trail[best][np.isfinite(trail[best])]
    final = Status(int(status[best])) if ended[best] else Status.COLLAPSED
    found = ([of_restarts(value, ended, alive, best, close)]
             if ended.any() and len(value) > 1 else [])
    return Outcome(
        point_of(plan, state, best),
        history,
        Status.MAX_ITERATIONS if final == Status.RUNNING else final,
        max(int(np.asarray(state.count)[best]) - 1, 0),
        (*found, *_narrow(plan, state, value, ended, best, close)),
        # a few of many are no matter of digits
    ).with_state(lost=int((~alive).sum()) if alive.any() and 2 * alive.sum() < len(value) else 0)


def _narrow(plan: Plan, state: State, value: np.ndarray, ended: np.ndarray, best: int,
            close: float) -> tuple[Finding, ...]:
    """A finding where the best optimum is that of hardly a start, and has a scale far smaller than
    the optimum that most lead to: a few rows that agree by chance make a maximum so, which is high
    and has little mass (McLachlan & Peel 2000, "Finite Mixture Models", section 3.10)."""
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
