"""Allocation of random restarts: their number, early stopping of those far behind, and pilot runs
on a subsample. Independent of the model.
"""

from typing import NamedTuple

import numpy as np

from probml.dataset.dataset import Data
from probml.dataset.sources.profile import representative_sample
from probml.engines.engine import Status
from probml.engines.findings import Code, Finding
from probml.errors import present

# entries of tables in an evaluation of all starts, if the engine chooses their number
MAX_ENTRIES = 2e6
MAX_STARTS = 32  # starts at most, if the engine chooses their number
MIN_STARTS = 10  # starts; if fewer are possible on all rows, a sample of them is searched first
MAX_PILOT_RUNS = 16  # short runs on a sample, at most
# share of all rows that the pilot runs together use in an evaluation, if MAX_ENTRIES allows fewer
PILOT_SHARE = 0.25
MIN_PILOT_ROWS, PILOT_ROWS_PER_STATE = 1024, 32  # rows of a sample, at least, and for each state
MAX_PILOT_EVALUATIONS = 80  # evaluations on a sample, at most
FIRST_STAGE = 16  # evaluations of all starts, after which those far behind are stopped
FIRST_STAGE_AFTER_PILOTS = 6  # the same for optima that were found on a sample
# a start may still gain this multiple of what it gained in the second half of these
GAIN_MULTIPLE = 4
FOLLOWED_STARTS = 3  # starts that are followed until they converge, at least
SAME_OPTIMUM = 1e-4  # log density per row within which two optima of short runs count as one
# An optimum of a short run that is lower by this multiple of √rows is lower on all rows: the
# standard error of a difference is √rows times the standard deviation of differences of rows,
# usually below 0.5.
MAX_DEFICIT = 2.0
MIN_PILOT_SEQUENCES = 16  # of a sample, at least, whole or in part
MIN_PILOT_STEPS = 64  # steps of such a part, at least


class Effort(NamedTuple):
    """How many starts are made.

    Attributes:
        starts: on all rows.
        pilots: short runs before them, each on `size` rows (of chains: steps); 0: none.
    """

    starts: int
    pilots: int = 0
    size: int = 0


def plan_effort(rows: int, entries: int, states: int, programs: int = 1,
           sampling: bool = True) -> Effort:
    """How many starts are worth their time.

    Args:
        rows: of data, or their steps. entries: of the tables of a row. states: of all latent
            variables together.
        programs: how many fits are made together; each is worth MIN_STARTS starts, if that holds
            for a fit by itself.
        sampling: pilot runs on a sample are possible.
    """
    work = max(rows * entries, 1)
    n_single = MAX_ENTRIES / work
    count = int(np.clip(MAX_ENTRIES // (work * programs), np.clip(n_single, 1, MIN_STARTS),
                        MAX_STARTS))
    budget = max(MAX_ENTRIES / entries, PILOT_SHARE * rows)
    size = int(max(budget // MAX_PILOT_RUNS, 1,
                   min(max(MIN_PILOT_ROWS, PILOT_ROWS_PER_STATE * states), rows / 2)))
    pilots = int(min(budget // size, MAX_PILOT_RUNS))
    if n_single >= MIN_STARTS or not sampling or pilots <= max(n_single, 2):
        return Effort(count)
    return Effort(FOLLOWED_STARTS, pilots, size)


def sample_rows(data: Data, weights: np.ndarray | None, size: int,
           seed: int) -> tuple[Data, np.ndarray | None]:
    """About `size` rows, drawn in proportion to their weights, and their new weights.

    For chains `size` counts steps: of whole sequences if they are short, else of parts of them.
    """
    data, weights = representative_sample(data, weights)
    random, rows = np.random.default_rng([seed, 6]), data.table.rows
    mass = np.ones(rows) if weights is None else np.asarray(weights, float)
    lengths = np.full(rows, max(data.steps or 1, 1)) if data.lengths is None else data.lengths
    total = float(mass @ lengths)
    mean = total / mass.sum()
    if size >= MIN_PILOT_SEQUENCES * mean:  # whole rows
        shuffled = random.permutation(rows)
        picks, counts = np.unique(shuffled[systematic_sample(mass[shuffled], int(size / mean),
                                                          random)[0]],
                                  return_counts=True)
        return data.taken(picks), None if weights is None else counts * min(total / size, 1.0)
    steps = int(min(max(size // MIN_PILOT_SEQUENCES, MIN_PILOT_STEPS), present(data.steps)))
    picks, offsets = systematic_sample(mass * lengths, max(size // steps, 1), random)
    begins = np.minimum((offsets / mass[picks]).astype(int), np.maximum(lengths[picks] - steps, 0))
    return (data.stretches(picks, begins, steps),
            None if weights is None else np.full(len(picks), min(total / size, 1.0)))


def systematic_sample(mass: np.ndarray, count: int,
                       random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Systematic sampling: indices at equal distances along the cumulative mass from a random
    place, and how far beyond the beginning of each index they are."""
    cumulative = np.cumsum(mass)
    positions = (np.arange(count) + random.random()) * (cumulative[-1] / count)
    index = np.minimum(np.searchsorted(cumulative, positions, "right"), np.flatnonzero(mass)[-1])
    return index, positions - (cumulative - mass)[index]


def is_alive(status: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Which starts have not collapsed."""
    return (status != Status.COLLAPSED) & np.isfinite(value)


def has_ended(status: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Which starts neither collapsed nor were stopped early."""
    return is_alive(status, value) & (status != Status.STOPPED)


class Race(NamedTuple):
    """Starts that compete within their group: at least `keep` of each are followed."""

    groups: np.ndarray
    keep: int = FOLLOWED_STARTS
    first: int = FIRST_STAGE  # evaluations of the first stage

    @property
    def on(self) -> bool:
        """Whether some group has more starts than are followed anyway."""
        return bool(np.bincount(self.groups).max() > self.keep)

    def stop_hopeless(self, status: np.ndarray, value: np.ndarray, history: np.ndarray,
                      is_first: bool) -> np.ndarray:
        """The status of the starts after a stage: those far behind in their group, given what they
        gained in the last half of it, are stopped.

        Args:
            history: (starts, evaluations) the objective. is_first: this is the first stage, after
                which the best are followed whatever they gained.
        """
        alive = is_alive(status, value)
        reached = np.where(alive, value, -np.inf)
        half = history[:, : self.first // 2]
        half = np.where(np.isfinite(half), half, -np.inf).max(1)
        known = alive & np.isfinite(half)
        gain = np.maximum(np.where(known, reached, 0.0) - np.where(known, half, 0.0), 0.0)
        hopeful = np.zeros(len(value), bool)
        for idx in (np.flatnonzero(self.groups == group) for group in np.unique(self.groups)):
            hopeful[idx] = reached[idx] + GAIN_MULTIPLE * gain[idx] >= reached[idx].max()
            if is_first:
                followed = max(self.keep, -(-len(idx) // 3))
                hopeful[idx[np.argsort(-reached[idx], kind="stable")[:followed]]] = True
        return np.where((status == Status.RUNNING) & ~hopeful, Status.STOPPED,
                        status).astype(status.dtype)


def promising(status: np.ndarray, value: np.ndarray, total: float) -> np.ndarray:
    """Indices of the optima of short runs that are worth continuing, the best first: one of each
    height, at most FOLLOWED_STARTS.

    Args:
        total: the weight of the rows of those runs.
    """
    ended = has_ended(status, value)
    chosen: list[int] = []
    for i in (i for i in np.argsort(-np.where(ended, value, -np.inf), kind="stable") if ended[i]):
        if not chosen or (value[chosen[-1]] - value[i] > SAME_OPTIMUM * total
                          and value[chosen[0]] - value[i] <= MAX_DEFICIT * total**0.5):
            chosen.append(int(i))
    return np.array(chosen[:FOLLOWED_STARTS], int)


def restarts_finding(status: np.ndarray, value: np.ndarray, best: int, slack: float,
                     where: str = "", suffix: str = "") -> Finding:
    """The number of starts, how many reached the best optimum, how much lower the next one is."""
    alive, ended = is_alive(status, value), has_ended(status, value)
    deficit = value[ended].max() - value[ended]
    same = deficit <= slack + 64 * np.finfo(value.dtype).eps * (1 + abs(value[best]))
    lower = None if same.all() else deficit[~same].min()
    stopped, collapsed = int((alive & ~ended).sum()), int((~alive).sum())
    others = (f"; the log density of the next best is lower by {lower:.2g}"
              if lower is not None else "")
    others += f"; {stopped} {'was' if stopped == 1 else 'were'} stopped early" * bool(stopped)
    others += f"; {collapsed} collapsed and were discarded" * bool(collapsed)
    return Finding.of(Code.RESTARTS, starts=len(value), reached=int(same.sum()), lower=lower,
                      stopped=stopped, collapsed=collapsed, where=where, others=others, then=suffix)
