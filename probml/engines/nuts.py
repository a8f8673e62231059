"""NUTS: NumPyro's sampler on the posterior density, discrete sites summed out, in coordinates that
the mode's curvature made round."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import numpy as np

from probml.dataset.dataset import Data
from probml.device.rows import Known, Rows
from probml.engines.engine import Engine, Many, Outcome, Problem, Status, check_settings
from probml.engines.progress import Held, Progress, Turn, in_threads, iterate
from probml.engines.sampling import carrying
from probml.engines.sampling.nuts_kernel import (
    HELD,
    LASTING,
    LASTS,
    MANY,
    OFTEN,
    QUICK,
    SAID,
    Settings,
    first,
    rows_work,
)
from probml.engines.sampling.nuts_many import chain_each
from probml.engines.sampling.states import with_states
from probml.engines.start import begin
from probml.engines.start.start import check_distinct
from probml.errors import ModelError, Refusal
from probml.evidence import carried, centring, density
from probml.language import given
from probml.numerics.curvature import SQUARE, Frame, Starts
from probml.numerics.outside.checkpoint import Grown
from probml.numerics.transfer import placed, random_key, rows_of
from probml.plan import hierarchy
from probml.plan.plan import Plan
from probml.plan.squares import squared
from probml.posteriors import diagnostics
from probml.posteriors import drawn as beliefs
from probml.posteriors.drawn import Draws
from probml.posteriors.relabelling import exchanges, relabelled

TRIED = 32  # draws of the normal at the mode, by which it is judged
# nats by which its density and the posterior's differ, from draw to draw: so many that its
# coordinates are left, so few that it serves everywhere
UNLIKE, ALIKE = 10.0, 1.0
PAUSE = 0.5  # seconds a device call should take: progress shows and Ctrl-C works in between
BRIEF = 300  # iterations of warm-up, and draws, of one of many data sets, at the most
METHODS = (None, "parallel", "vectorized", "sequential")


@dataclass(frozen=True)
class NUTS(Engine):
    """The no-U-turn sampler (Hoffman & Gelman 2014; NumPyro's, with its step-size and mass
    adaptation), over the parameters, and over the unseen numbers of rows that have no closed form.

    The density is the evidence: hidden discrete sites are summed out, unseen numbers of rows
    integrated out where `integrate` says so, and all are drawn exactly given each
    draw when they are asked for. Chains start about one mode (EM's where something is hidden), in
    coordinates in which its curvature is that of a standard normal.

    Args:
        draws: kept a chain.
        warmup: iterations a chain before them, in which step size and masses are learnt; another
            number compiles anew.
        chains: independent runs; R-hat needs two.
        target_accept: the acceptance probability that the step size is tuned to; nearer to 1 is
            slower and more careful.
        max_tree_depth: at most 2^depth − 1 gradients an iteration.
        integrate: which unseen numbers of rows are integrated out, and drawn given each draw of the
            rest: "exact", those in closed form; "all", also those by quadrature or Laplace's
            approximation; "none". The others have a coordinate each, in units of their own prior
            where it is a location and a scale.
        relabel: give exchangeable hidden states the same numbers in all draws.
        chain_method: "parallel" (a thread a chain; the choice on a CPU), "vectorized" (one program;
            on a GPU, and over several devices that hold few rows each) or "sequential" (where
            devices share the rows).
        progress: show a progress bar at once; else it comes after five seconds, in a terminal or a
            notebook.

    Raises:
        ModelError: a setting out of range. Refusal: rows that are read in parts, of which each
            gradient would be a pass.

    Cost: 2^depth evidences and gradients an iteration; memory of the draws and of one gradient a
        chain. Where rows enter by statistics or squares alone, one or two passes over them in all.
    """

    draws: int = 1000
    warmup: int = 1000
    chains: int = 4
    target_accept: float = 0.8
    max_tree_depth: int = 10
    integrate: str = "exact"
    relabel: bool = True
    chain_method: str | None = None
    progress: bool = False

    rung: ClassVar = 5
    statistics: ClassVar = True
    squares: ClassVar = True

    def __post_init__(self):
        check_settings(self, positive=("draws", "chains", "max_tree_depth"),
                       nonnegative=("warmup",))
        if not (isinstance(self.target_accept, int | float) and 0 < self.target_accept < 1):
            raise ModelError(f"NUTS(target_accept={self.target_accept!r}): expected a probability "
                             f"between 0 and 1, such as 0.9")
        given.word(self.chain_method, METHODS, "NUTS(chain_method)")
        carrying.check_integrate("NUTS", self.integrate)

    @property
    def integrates(self) -> bool:
        return self.integrate != "none"

    @property
    def approximates(self) -> bool:
        return self.integrate == "all"

    def runs(self, problem: Problem) -> int:
        return self.chains

    @classmethod
    def unasked(cls) -> "NUTS":
        """Nobody asked for it by name: it takes the more careful steps."""
        return cls(target_accept=0.9)

    def refuse(self, problem: Problem) -> None:
        """NUTS treats every plan; rows that are read in parts only where statistics suffice."""
        if problem.in_parts and not (problem.plan.additive or squared(problem.plan)):
            raise Refusal(f"NUTS cannot fit {problem}: its rows are read in parts, each of the "
                          f"thousands of gradients would be a pass. Give some of the rows in "
                          f"memory", ("EM", "MAP", "Laplace"))
        check_distinct(problem.data, problem.plan)

    def taken(self, data: Data) -> Data:
        return carrying.taken(data, self.integrate)

    def manner(self, problem: Problem) -> str:
        return carrying.manner(problem)

    def repeated(self) -> tuple["NUTS", str]:
        """One short chain a data set, all integrated out that can be."""
        brief = replace(self, chains=1, warmup=min(self.warmup, BRIEF), integrate="all",
                        draws=min(self.draws, BRIEF), relabel=False, progress=False)
        return brief, f"one chain of {brief.warmup} + {brief.draws} iterations"

    def many(self, problems: Sequence[Problem], draws: int) -> Many | None:
        """One chain each, all advanced together, where lanes are cheap: on a CPU all chains would
        wait for the longest path of each iteration (on a mixture: 30 times the gradients, each no
        cheaper)."""
        if jax.default_backend() == "cpu":
            return None
        return Many(chain_each(self, problems), True, "")

    def run(self, problem: Problem) -> Outcome:
        with Progress("NUTS", (self.warmup + self.draws) * self.chains, self.progress) as bar:
            return self._run(bar, problem)

    def _run(self, bar: Progress, problem: Problem) -> Outcome:
        plan, rows, seed = problem.plan, problem.rows, problem.seed
        carrying.check(problem, "NUTS", self.draws * self.chains)
        known, begun = (self._begun_with_rows if plan.carried else self._begun)(problem)
        begun = jax.device_get(begun)
        frame = rounded(begun)
        begun = begun._replace(starts=jax.tree.map(lambda leaf: leaf[: self.chains], begun.starts))
        z, stats = self._sampled(bar, plan, frame, begun.starts, known, rows, seed)
        u = frame.points(z)
        first = density.size(plan, known)
        values = jax.device_get(beliefs.constrained(plan, known, u[..., :first]))
        inside, last = {}, rows
        if plan.carried:
            inside = carrying.drawn(plan, known, rows, u)
            last = carried.placed(plan, rows, {n: placed(v[0, -1]) for n, v in inside.items()})
        found = []
        if self.relabel:
            # any draw will do to find what is exchangeable: the density is asked there
            found = exchanges(plan, {name: value[0, -1] for name, value in values.items()}, known,
                              last)
            values, moved = relabelled(found, values)
        wrong, notes = diagnostics.complaints(values, stats, vars(self))
        if found and moved:
            named = ", ".join(repr(exchange.site) for exchange in found)
            notes.append(f"the states of {named} are exchangeable: {moved} draws were renumbered "
                         f"(relabel=False leaves them)")
        draws = with_states(plan, Draws(values, None, stats, inside), known, rows, seed)
        if inside:
            draws = draws._replace(inside=carrying.unloaded(problem, inside))
        status = Status.DOUBTFUL if wrong else Status.SAMPLED
        history = np.concatenate([_finite(begun.trail), stats["log_density"].mean(0)])
        return Outcome(
            beliefs.mean({n: draws.values[n] for n in (*plan.free, *plan.effects)}), history,
            status, self.draws, (*wrong, *notes), posterior=draws
        )

    def _begun_with_rows(self, problem: Problem) -> tuple[Known, begin.Begin]:
        """Where chains begin over parameters and rows' own numbers, and the curvature there."""
        plan, known = problem.plan, problem.known
        size = density.size(plan, known) + carried.size(plan, problem.rows)
        spread = np.random.default_rng([problem.seed, 7]).standard_normal(
            (max(self.chains, TRIED), size))
        begun = carrying.begun(problem, spread)
        begin.check(plan, begun, begin.compiled_prior_point(plan, known), known, "NUTS")
        return known, begun

    def _begun(self, problem: Problem) -> tuple[Known, begin.Begin]:
        """The same over the parameters alone; away from where a climb ended that found no mode, as
        on a spike over a scale of 0, which no chain would leave."""
        known, begun = self._near_mode(problem)
        if problem.astray or bool(begun.climbed) or np.isfinite(unlikeness(begun)):
            return known, begun
        return self._near_mode(replace(problem, astray=True))

    def _near_mode(self, problem: Problem) -> tuple[Known, begin.Begin]:
        plan, rows, known, seed = problem.plan, problem.rows, problem.known, problem.seed
        params = begin.rough(problem)
        spread = np.random.default_rng([seed, 7]).standard_normal(
            (max(self.chains, TRIED), density.size(plan, known))
        )
        incidental = problem.astray or any(tie.kind in ("incidental", "grown")
                                           for tie in hierarchy.ties(plan, problem.size))
        steps = 0 if incidental else begin.STEPS  # a climb would end at the joint mode
        coordinates = known._replace(centring=centring.none(plan))
        others = None if incidental else begin.elsewhere(plan, coordinates, seed, problem.start)
        if coordinates.centring:
            known, begun = begin.balanced(plan, params, coordinates, rows, spread, others, steps)
        else:
            begun = begin.measured(plan, begin.hyper(plan), params, known, rows, spread, others,
                                   steps)
        begin.check(plan, begun, params, known, "NUTS")
        return known, begun

    def _sampled(
        self, bar: Progress, plan: Plan, frame: Frame, starts: Starts, known: Known, rows: Rows,
        seed: int
    ) -> tuple[np.ndarray, dict]:
        """Draws z (chains, draws, d) after the warm-up, and what the sampler says of each."""
        settings = Settings(self.warmup, self.target_accept, self.max_tree_depth)
        method = self.chain_method or ("parallel" if rows.lanes == 1
                                       and jax.default_backend() == "cpu" else "vectorized")
        if rows.joint and method == "parallel":
            method = "sequential"  # devices would meet in the passes of different chains
        # on the host: no program of theirs has to know how systems are solved
        moved = Starts(frame.inverse(starts.u), starts.value, frame.pull(starts.gradient))
        states = first(plan, settings, frame, moved, random_key(seed), known, rows)
        total, together = self.warmup + self.draws, method == "vectorized"
        programs = (LASTING if rows_work(plan, rows) >= LASTS
                    else OFTEN if total * self.chains >= MANY else QUICK)
        advance, axis = programs[together], 1 if together else 0

        def walk(chain):
            number, state = chain
            # a first iteration may take 2^depth gradients: who knows how long they are?
            out, size = [], 1

            def turn(done: int) -> Turn:
                nonlocal state, size
                count = min(size, HELD, total - done)
                began = time.perf_counter()
                state, trail = advance(plan, settings, frame, state, known, rows, count)
                keep = (slice(None),) * axis + (slice(count),)
                out.append(jax.tree.map(lambda leaf: np.asarray(leaf)[keep], trail))
                took = max(time.perf_counter() - began, 1e-6)
                most = HELD if rows.joint else count * PAUSE / took
                size = int(np.clip(most, 1, 8 * count))
                return Turn(count, float(np.mean(out[-1]["log_density"])))

            def write(held: dict[str, Any]) -> None:
                nonlocal state
                state = jax.tree.unflatten(jax.tree.structure(state), held["state"])
                out.extend(held["out"])

            lead = np.shape(state.num_steps)  # chains, where they go together
            drawn = dict.fromkeys(SAID, (*lead, None)) | {
                "z": (*lead, None, np.shape(state.z)[-1])}
            held = Held(lambda: {"state": jax.tree.leaves(state), "out": list(out)}, write,
                        {"out": Grown(drawn, 0)})
            iterate(bar, total, turn, self.chains if together else 1, held, str(number))
            return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis), *out)

        if together:
            found = walk((0, states))
        else:
            leaves, treedef = jax.tree.flatten(states)
            held = [rows_of(leaf) for leaf in leaves]
            apart = [jax.tree.unflatten(treedef, [leaf[c] for leaf in held])
                     for c in range(self.chains)]
            workers = min(self.chains, os.cpu_count() or 1) if method == "parallel" else 1
            found = jax.tree.map(lambda *leaves: np.stack(leaves),
                                 *in_threads(bar, walk, list(enumerate(apart)), workers))
        kept = {name: value[:, self.warmup :] for name, value in found.items()}
        return kept.pop("z"), kept


def rounded(begun: begin.Begin) -> Frame:
    """The coordinates of the sampler: those of the curvature at the mode where the density is about
    that of the normal there, since they serve it elsewhere too; else a unit a coordinate."""
    away = unlikeness(begun)
    if not away < UNLIKE:
        return begun.frame.diagonal().square()
    few = len(begun.frame.centre) <= SQUARE  # for which a matrix costs nothing
    return (begun.frame if few and away < ALIKE else begun.frame.plain()).square()


def unlikeness(begun: begin.Begin) -> float:
    """The standard deviation, over draws of the normal at the mode, of the nats by which the
    density and the normal's differ; infinite where there is no such normal."""
    frame, starts = jax.device_get((begun.frame, begun.starts))
    if frame.root.ndim == 1:
        return 0.0
    if not (np.all(frame.curvature > 0) and np.isfinite(frame.root).all()
            and np.isfinite(starts.value).all()):
        return np.inf
    z = np.linalg.solve(frame.root, (starts.u - frame.centre).T)
    return float(np.std(starts.value + 0.5 * (z**2).sum(0)))


def _finite(trail) -> np.ndarray:
    trail = np.asarray(trail)
    return trail[np.isfinite(trail)]
