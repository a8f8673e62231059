"""EM: expected statistics and a block-wise M-step, many restarts in one program, accelerated and
safeguarded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from probml.dataset.dataset import Data
from probml.device.layout import choose_layout
from probml.device.load import load
from probml.device.rows import Known, Rows, Summary
from probml.engines.engine import (
    Capabilities,
    Engine,
    Outcome,
    Problem,
    State,
    Status,
    check_settings,
)
from probml.engines.findings import Code, Finding
from probml.engines.optimization.boundary import find_boundaries
from probml.engines.optimization.convergence import diagnose, finish, gain_left
from probml.engines.optimization.identifiability import find_infinite
from probml.engines.optimization.maximization import OptimizerSettings
from probml.engines.optimization.search import improve, unequal_states
from probml.engines.restarting import batches, slices, stepwise
from probml.engines.restarting.rest import converge_parameters, parameter_tolerance
from probml.engines.restarting.restarts import (
    ahead,
    best_at,
    best_of,
    point_of,
    runs,
    spurious,
)
from probml.engines.restarting.sizes import narrowed
from probml.engines.restarting.squarem import Settings, held_at
from probml.engines.start.labelling import hidden
from probml.engines.start.prior import need_prior, prior_point
from probml.engines.start.race import (
    ALIKE,
    EFFORT,
    FINAL,
    LEAST,
    SETTLE,
    SHORT,
    Effort,
    Race,
    effort,
    of_restarts,
    promising,
    sample,
)
from probml.engines.start.start import (
    Start,
    check_distinct,
    stack,
    starts,
    tells_apart,
)
from probml.errors import Refusal
from probml.numerics.compile_effort import ONCE
from probml.numerics.compiling import jit
from probml.plan import noiseless
from probml.plan.blocks import blocks, climbed_on_rows, directions
from probml.plan.integrals import describe_integration
from probml.plan.plan import Plan
from probml.structure.structure import Structure

# restarts at least where discrete sites outside rows are unseen: each begins with one value of
# theirs
APART = 4
LATER = 3.5  # its rung after that of Laplace
CLIMB = 240  # evaluations that an M-step's climb on the rows is worth: 20 steps, up and back
HESSIANS = 3  # of an M-step that takes Newton's steps on the rows


@dataclass(frozen=True)
class EM(Engine):
    """Expectation–maximisation (Dempster, Laird & Rubin 1977) of the posterior mode, or of the
    likelihood.

    Args:
        max_iterations: M-steps at the most.
        tolerance: stop when an iteration gains less than this of the objective (log posterior or
            log likelihood) per unit of total weight.
        restarts: random starts, run in one program; the best optimum is returned. None: where
            something is latent as many as take about a second, at most 32; those that are far
            behind after some iterations are stopped. Where all rows allow fewer than ten, up to 16
            short runs are made on a sample of the rows (whole sequences, or stretches), and the
            promising ones are continued on all rows.
        prior: maximise log posterior (True) or log likelihood (False).
        hard: classification EM (Celeux & Govaert 1992): the latent states at their joint maximum
            instead of averaged.
        accelerate: SQUAREM extrapolation (Varadhan & Roland 2008), accepted only where the
            objective does not fall.
        batch_rows: stepwise EM (Cappé & Moulines 2009): an M-step after every batch of so many
            rows, in another order each pass; an iteration is a pass. For data of which only a few
            passes are affordable.
        progress: show a progress bar at once; else it comes after five seconds, in a terminal or a
            notebook.

    Raises:
        Refusal: a hierarchy whose effects have no integral; effects under counts (see `MAP`);
            `hard` with discrete sites outside rows. As asked by `fit` without an engine also where
            no discrete variable is latent and a block of parameters has no closed form, or an
            integral is by quadrature or Laplace's approximation.

    Cost: one pass over the rows an iteration: O(rows × evidence), memory of the data and one chunk.

    Examples:
        >>> import jax.numpy as jnp
        >>> import numpyro.distributions as dist
        >>> from numpyro import plate, sample
        >>> import probml
        >>> @probml.model
        ... def mixture(k: int):
        ...     weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
        ...     with plate("component", k):
        ...         mean = sample("mean", dist.Normal(0.0, 10.0))
        ...     with probml.rows():
        ...         z = sample("z", dist.Categorical(weights))
        ...         sample("x", dist.Normal(mean[z], 1.0))
        >>> fit = mixture(k=2).fit({"x": [-4.1, -3.9, -4.0, 3.8, 4.2]}, probml.EM(restarts=4))
        >>> print(jnp.sort(fit.params["mean"]).round(1))
        [-4.  4.]
        >>> fit.decode({"x": [-3.0, 3.0]})["z"].shape
        (2,)
    """

    max_iterations: int = 1000
    tolerance: float = 1e-7
    restarts: int | None = None
    prior: bool = True
    hard: bool = False
    accelerate: bool = True
    batch_rows: int | None = None
    progress: bool = False

    def __post_init__(self):
        check_settings(self, positive=("max_iterations", "restarts", "batch_rows"),
                       nonnegative=("tolerance",))

    @property
    def capabilities(self) -> Capabilities:
        # effects whose integral is only near it refuses: what its M-step would maximise then has no
        # closed form, and MAP maximises it
        return Capabilities("point", 2, "possible", uses_prior=self.prior, integrates=True,
                            approximates=True, statistics=True, batch=self.batch_rows,
                            restarts=True, way=stepwise.Maximised(self.prior, self.hard),
                            sizes=True)

    def copies(self, problem: Problem) -> int:
        return self.together(problem, self.runs(problem))

    def together(self, problem: Problem, runs: int) -> int:
        data = problem.data
        if data is None or data.survey is not None:
            return runs
        return slices.together(problem.plan, _steps(data), runs)

    def runs(self, problem: Problem) -> int:
        return self.starts(problem.data, problem.plan, problem.start)

    def refuse(self, problem: Problem) -> None:
        """Raise Refusal, naming the site and the reason, where EM cannot treat the plan."""
        plan, where = problem.plan, f"EM cannot fit {problem}"
        if self.batch_rows is not None:
            batches.refuse(self, problem,
                           "MAP(optimizer=..., batch_rows=...) or SVI(batch_rows=...)")
        check_distinct(problem.data, plan)
        if self.hard and plan.globals:
            raise Refusal(f"{where} with hard=True: site '{plan.globals[0]}' lies outside rows(), "
                          f"and the rows' joint maximum is that of one of its states",
                          ("EM", "Exact"))
        need_prior(plan, "EM", self.prior)
        if any(grouping.nodes for grouping in plan.groupings):
            raise Refusal(f"{where}: '{plan.effects[0]}', effects of groups, are integrated out "
                          f"{describe_integration(plan.groupings)}, of which no M-step is known",
                          ("MAP",))
        noiseless.refuse_noiseless(plan, "EM")
        if problem.asked or not plan.free:
            return
        if plan.groupings and not plan.variables:
            raise Refusal(f"{where} faster than MAP: its steps shrink slowly for "
                          f"'{plan.effects[0]}', effects of groups", ("MAP",))
        near = next((group for group in plan.latents if not group.kind.exact), None)
        if near is not None and not plan.variables:
            raise Refusal(
                f"{where} faster than MAP: '{near.name}' is {near.kind.description}, and each "
                          f"step of an M-step would pass over all rows and what they are evaluated "
                          f"at", ("MAP",))
        for stage in blocks(plan, self.prior):
            for block in stage:
                if plan.complete and not (block.form and block.conjugate):
                    raise Refusal(
                        f"{where} faster than MAP: no discrete variable is latent, and "
                        f"'{block.names[0]}' has no closed form "
                        f"({block.why})", ("MAP",)
                    )
        if names := climbed_on_rows(plan, self.prior):
            raise Refusal(f"{where} faster than MAP: '{names[0]}' has no closed form, so that each "
                          f"step of an M-step would pass over all rows", ("MAP",))

    def passed_over(self, problem: Problem) -> str:
        return "nothing is hidden, and a posterior can be had" if (
            problem.plan.complete and problem.plan.free and not problem.point_wanted) else ""

    def order(self, problem: Problem) -> float:
        """Without a latent discrete variable it finds nothing that a posterior by Laplace's
        approximation does not find in one program: that is asked before."""
        return super().order(problem) if (
            problem.plan.variables or problem.point_wanted) else LATER

    def run(self, problem: Problem) -> Outcome:
        # statistics alone have no batches, and nothing in them is expected
        some = self.batch_rows is not None and not isinstance(problem.rows, Summary)
        outcome = self._in_batches(problem) if some else self._found(problem)
        if outcome.status is not Status.COLLAPSED and (gone := find_infinite(outcome.params)):
            outcome = outcome._replace(status=Status.RUNAWAY).noting(*gone)
        return outcome

    @property
    def _settings(self) -> Settings:
        return Settings(self.prior, self.hard, self.accelerate, self.tolerance,
                        self.max_iterations, self.progress)

    def _in_batches(self, problem: Problem) -> Outcome:
        """Passes over the rows in batches; `history` is the objective of all rows after each pass.
        The first point is that of EM on a sample."""
        brief = replace(self, batch_rows=None, max_iterations=SHORT, progress=False)
        point = batches.first(problem, brief, int(self.batch_rows or 0))
        found, history, status, statistics = batches.passes(
            "EM", self.capabilities.way, problem, point, self.batch_rows, self.max_iterations,
            self.tolerance, self.progress)
        return Outcome({name: np.asarray(value) for name, value in found.items()}, history, status,
                       len(history) - 1, (Finding.of(Code.BATCHES, kind="stepwise",
                                                     rows=self.batch_rows),),
                       state=State(shown=statistics))

    def _found(self, problem: Problem) -> Outcome:
        plan, rows, known = problem.plan, problem.rows, problem.known
        made = self._effort(problem.data, plan, problem.start)
        close = self._close(problem)
        found, first = self._finished(problem, made), None
        if not found:
            first = starts(problem.data, plan, known, problem.weights, made.starts, problem.seed,
                           problem.start, self.prior)
            race = Race(np.zeros(made.starts, int),
                        compact=made.large) if self.restarts is None else None
            found = self._maximize_groups(plan, first, rows, known, closed=True, race=race,
                                          close=close)
        outcome = found[0]

        def again(params: Mapping) -> Outcome:
            point = {name: stack(value, made.starts) for name, value in params.items()}
            return self._maximize_groups(plan, Start(point, None, {}), rows, known, closed=True,
                                         close=close)[0]

        outcome = improve(outcome, [unequal_states(problem, again)],
                          self.tolerance * rows.weight + 1e-6)
        # a closed form misled: go on from the best point without any
        if outcome.status is Status.FELL:
            point = {name: np.asarray(value)[None] for name, value in outcome.params.items()}
            again = self._maximize_groups(plan, Start(point, None, {}), rows, known,
                                          closed=False)[0]
            outcome = again.after(outcome)._replace(findings=outcome.findings).noting(
                Finding.of(Code.WITHOUT_CLOSED_FORM))
        if not self.hard:
            ascent = OptimizerSettings(self.prior, self.progress,
                            max(self.max_iterations - outcome.iterations, 0))
            outcome = finish(problem, ascent, outcome, self.tolerance, np.isfinite(close))
        begun = first or Start({name: stack(value, made.starts)
                                for name, value in outcome.params.items()}, None, {})
        return find_boundaries(problem, self.prior, diagnose(
            problem, outcome, begun, (self.prior, self.hard, self.accelerate, True)), tried=False)

    def starts(self, data: Data | None, plan: Plan, start: Mapping[str, Any],
               programs: int = 1) -> int:
        """How many starts are made on all rows: as asked, or as many as are worth their time."""
        return self._effort(data, plan, start, programs).starts

    def _effort(self, data: Data | None, plan: Plan, start: Mapping[str, Any],
                programs: int = 1) -> Effort:
        made = Effort(self.restarts or 1)
        if self.restarts is None and data is not None and tells_apart(plan, start):
            states = sum(plan.variables[name].states for name in hidden(plan))
            rows, entries = _steps(data), max(plan.work, plan.width)
            made = effort(rows, entries, states, programs, sampling=not plan.globals)
            # of fewer starts than LEAST the rule has made sure already that they are all it can buy
            bought = int(EFFORT / (rows * self._work(plan)))
            least = FINAL if climbed_on_rows(plan, self.prior) else LEAST
            made = made._replace(starts=min(made.starts, max(bought, least)))
        several = (plan.globals or plan.cellwise) and plan.free
        return made._replace(starts=max(made.starts, APART)) if several else made

    def _work(self, plan: Plan) -> int:
        """Entries of tables in an evaluation and its M-step, of one row."""
        entries = max(plan.work, plan.width) * (CLIMB if climbed_on_rows(plan, self.prior) else 1)
        return entries + HESSIANS * directions(plan, self.prior) ** 2

    def _close(self, problem: Problem) -> float:
        """How far from where they go the parameters may be at the end, see rest.near; anywhere,
        where more evaluations are not worth their time."""
        data, plan = problem.data, problem.plan
        if data is None or self.hard or _steps(data) * self._work(plan) > EFFORT:
            return np.inf
        return parameter_tolerance(self.tolerance / max(data.steps or 1, 1))

    def _finished(self, problem: Problem, made: Effort,
                  of: Mapping | None = None) -> list[Outcome]:
        """Short runs on a sample of the rows, and their promising ends finished on all: of every
        group the best. Empty where no such runs are worth their time, or all of a group collapse.

        Args:
            of: variable → (groups, states) bool, what each group does without; one group by
                default.
        """
        if not made.scouts:
            return []
        data, plan, seed, start = problem.data, problem.plan, problem.seed, problem.start
        rows, known = problem.rows, problem.known
        part, weight = sample(data, problem.weights, made.size, seed)
        of = of or {}
        count = max(map(len, of.values()), default=1)
        groups = np.repeat(np.arange(count), made.scouts)
        allowed = {name: table[groups] for name, table in of.items()}
        copies = slices.together(plan, _steps(part), len(groups))
        some, shared = load(part, plan, weight, choose_layout(part, plan, copies), copies,
                            params=start)
        first = starts(part, plan, shared, weight, len(groups), seed, start, self.prior,
                       allowed=allowed)
        short = replace(self, max_iterations=min(self.max_iterations, SHORT))
        state, _ = runs(short._settings, plan, first, some, shared, True, Race(groups))
        status, value, total = (np.asarray(state.status), np.asarray(state.value),
                                some.weight)
        steps, words, chosen, lost = data.steps is not None, [], [], []
        shown = [d.size * (d.steps or 1) for d in (part, data)]
        for members in (np.flatnonzero(groups == group) for group in range(count)):
            best = promising(status[members], value[members], total)
            if not len(best):
                return []
            alive = (status[members] != Status.COLLAPSED) & np.isfinite(value[members])
            where = f" on {shown[0]} of {shown[1]} {'steps' if steps else 'rows'}"
            then = (f"; the best {'one was' if len(best) == 1 else f'{len(best)} were'} continued "
                    f"on all rows")
            words.append(of_restarts(value[members], alive & (status[members] != Status.LEFT),
                                     alive, best[0], ALIKE * total, where, then))
            chosen.append(members[best])
            lost.append(int((~alive).sum()) if 2 * alive.sum() < len(alive) else 0)
        # two programs at the most, whatever the ends are
        each = FINAL if max(map(len, chosen)) > 1 else 1
        found = [point_of(plan, state, i) for best in chosen for i in np.resize(best, each)]
        middle = jax.device_get(_middle(plan, known))
        point = {name: np.stack([held_at(plan, name, p[name], middle[name]) for p in found])
                 for name in plan.free}
        groups = np.repeat(np.arange(count), each)
        first = Start(point, None, {}, {name: table[groups] for name, table in of.items()})
        outcomes = self._maximize_groups(plan, first, rows, known, closed=True,
                                         race=Race(groups, 1, SETTLE, made.large))
        if any(outcome.status is Status.COLLAPSED for outcome in outcomes):
            return []
        return [outcome._replace(findings=(said,)).with_state(lost=gone)
                for outcome, said, gone in zip(outcomes, words, lost, strict=True)]

    def _maximize_groups(self, plan: Plan, first: Start, rows: Rows, known: Known, closed: bool,
                         race: Race | None = None, close: float = np.inf) -> list[Outcome]:
        """The best optimum of every group of starts; there is one group where there is no race.

        Args:
            close: of one group, how far its parameters may be from where they go.
        """
        alike, far = 1e-3 + 10 * self.tolerance * rows.weight, parameter_tolerance(self.tolerance)
        state, trail = runs(self._settings, plan, first, rows, known, closed, race)
        groups = np.zeros(len(state.value), int) if race is None else race.groups
        members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
        if any(ahead(np.asarray(state.status)[at], np.asarray(state.value)[at]) for at in members):
            state, trail = runs(self._settings, plan, first, rows, known, closed)
        found = []
        for at in members:
            part = jax.tree.map(lambda leaf, at=at: np.asarray(leaf)[at], state)
            best, history, hidden = best_at(part, alike), trail[at], False
            if len(members) == 1:
                part, history, hidden = converge_parameters(
                    self._settings, plan, part, history, best, first, rows, known, closed, close)
            outcome = best_of(part, history[best], alike, best).noting(
                *spurious(plan, part, best, alike))._replace(params=point_of(plan, part, best))
            found.append(outcome.with_state(
                adrift=hidden and part.left.dtype == np.float32,
                left=gain_left(outcome, part.slow[best]) if float(part.left[best]) > far else 0.0))
        return found

    def grid(self, problem: Problem, site: str, sizes: Sequence[int],
             structures: Sequence[Structure]) -> list[Outcome]:
        """For each size, the best of the restarts that use that many states of `site`: one program
        for all, the largest's, in which the states beyond a size are impossible. Each size has its
        own race."""
        plan, known = problem.plan, problem.known
        made = self._effort(problem.data, plan, {}, len(sizes))
        of = {site: np.arange(plan.variables[site].states) < np.asarray(sizes)[:, None]}
        found = self._finished(problem, made, of)
        if found:
            return found
        groups = np.repeat(np.arange(len(sizes)), made.starts)
        first = starts(problem.data, plan, known, problem.weights, len(groups), problem.seed, {},
                       self.prior, allowed={site: of[site][groups]})
        race = Race(groups, compact=made.large) if self.restarts is None else Race(groups,
                                                                                   keep=made.starts)
        return self._maximize_groups(plan, first, problem.rows, known, closed=True, race=race)

    def narrowed(self, plan: Plan, structure: Structure, outcome: Outcome) -> Outcome:
        """An outcome of `grid` in the shapes of its own model, of `structure`."""
        return narrowed(structure, outcome)


def _steps(data: Data) -> int:
    """Rows, or the steps of chains."""
    return data.size * max(data.steps or 1, 1)


_middle = jit(prior_point, static_argnums=0, seldom=ONCE)
