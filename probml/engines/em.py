"""EM: expected sufficient statistics and a block-wise M-step, many restarts in one program,
accelerated and safeguarded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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
    Status,
    check_settings,
)
from probml.engines.findings import Code, Finding
from probml.engines.optimization.boundary import find_boundaries
from probml.engines.optimization.convergence import (
    continue_by_lbfgs,
    diagnose_em_optimum,
    find_infinite,
    predict_remaining_gain,
)
from probml.engines.optimization.maximization import OptimizerSettings
from probml.engines.optimization.search import improve, propose_unequal_states
from probml.engines.restarting import batches, squarem, vectors
from probml.engines.restarting.restarts import (
    converge_parameters,
    find_spurious_maximum,
    first_states,
    index_of_best,
    outcome_of_best,
    relative_tolerance,
    run_restarts,
    stopped_is_highest,
)
from probml.engines.start.labelling import check_distinct, hidden_variables
from probml.engines.start.prior import compiled_prior_point, refuse_missing_prior
from probml.engines.start.race import (
    FIRST_STAGE_AFTER_PILOTS,
    FOLLOWED_STARTS,
    MAX_ENTRIES,
    MAX_PILOT_EVALUATIONS,
    MIN_STARTS,
    SAME_OPTIMUM,
    Effort,
    Race,
    is_alive,
    plan_effort,
    promising,
    restarts_finding,
    sample_rows,
)
from probml.engines.start.start import (
    Start,
    stack,
    starts,
    states_depend_on_start,
)
from probml.errors import Refusal
from probml.latents.linear_chain import noiseless_parameters
from probml.plan.blocks import all_blocks, climbed_on_rows, directions
from probml.plan.groupings import describe_integration
from probml.plan.plan import Plan
from probml.structure.structure import Structure
from probml.typing import SiteValues

# restarts, at least, with latent discrete sites outside rows: each begins with one value of theirs
MIN_GLOBAL_RESTARTS = 4
LBFGS_EVALUATIONS = 240  # cost of an M-step by L-BFGS on the rows: 20 steps, forward and backward
NEWTON_STEPS = 3  # of an M-step by Newton's method on the rows


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
        # approximate integrals over effects are refused below: the M-step would have no closed form
        return Capabilities("point", "possible", uses_prior=self.prior, integrates=True,
                            approximates=True, statistics=True, batch=self.batch_rows,
                            restarts=True,
                            incremental_update=batches.PointUpdate(self.prior, self.hard),
                            sizes=True)

    def copies(self, problem: Problem) -> int:
        return self.runs_per_program(problem, self.runs(problem))

    def runs_per_program(self, problem: Problem, runs: int) -> int:
        data = problem.data
        if data is None or data.survey is not None:
            return runs
        return squarem.runs_per_program(problem.plan, _steps(data), runs)

    def runs(self, problem: Problem) -> int:
        return self.starts(problem.data, problem.plan, problem.start)

    def refuse(self, problem: Problem) -> None:
        """Raises Refusal, with the site and the reason, if EM cannot fit the plan."""
        plan, where = problem.plan, f"EM cannot fit {problem}"
        if self.batch_rows is not None:
            batches.refuse(self, problem,
                           "MAP(optimizer=..., batch_rows=...) or SVI(batch_rows=...)")
        check_distinct(problem.data, plan)
        if self.hard and plan.globals:
            raise Refusal(f"{where} with hard=True, which assigns each row to its most probable "
                          f"state: the latent discrete site '{plan.globals[0]}' is outside rows(). "
                          "Use EM(hard=False)")
        refuse_missing_prior(plan, "EM", self.prior)
        if any(grouping.nodes for grouping in plan.groupings):
            raise Refusal(f"{where}: the group effects '{plan.effects[0]}' are integrated out "
                          f"({describe_integration(plan.groupings)}), and EM supports only effects "
                          "that are integrated out in closed form",
                          ("MAP",))
        _refuse_noiseless(plan)
        if problem.asked or not plan.free:
            return
        if plan.groupings and not plan.variables:
            raise Refusal(f"EM is not used for {problem}, because it converges slowly when group "
                          f"effects such as '{plan.effects[0]}' are integrated out", ("MAP",))
        inexact = next((group for group in plan.latents if not group.kind.exact), None)
        if inexact is not None and not plan.variables:
            raise Refusal(
                f"EM is not used for {problem}, because '{inexact.name}' is "
                f"{inexact.kind.description}, and each step of EM would compute the "
                "integral of every row many times",
                ("MAP",))
        for block in all_blocks(plan, self.prior) if plan.complete else ():
            if not (block.form and block.conjugate):
                raise Refusal(f"EM is not used for {problem}, because it is not faster than MAP "
                              f"here. No discrete variable is latent, and '{block.names[0]}' has "
                              f"no update in closed form: {block.why}", ("MAP",))
        if names := climbed_on_rows(plan, self.prior):
            raise Refusal(f"EM is not used for {problem}, because '{names[0]}' has no update in "
                          "closed form. A numerical update would read all rows many times in each "
                          "step", ("MAP",))

    def reason_to_skip(self, problem: Problem) -> str:
        return "the model has no latent variable, and other engines give a posterior" if (
            problem.plan.complete and problem.plan.free and not problem.point_wanted) else ""

    def defers(self, problem: Problem) -> bool:
        """To Laplace without a latent discrete variable: there Laplace's approximation finds the
        same optimum and a posterior in one program."""
        return not (problem.plan.variables or problem.point_wanted)

    def run(self, problem: Problem) -> Outcome:
        # sufficient statistics alone have no batches
        in_batches = self.batch_rows is not None and not isinstance(problem.rows, Summary)
        outcome = (batches.run_passes(self, problem, batches.first_point(problem, self), "stepwise")
                   if in_batches else self._run_restarts(problem))
        if outcome.status is not Status.COLLAPSED and (infinite := find_infinite(outcome.params)):
            outcome = outcome._replace(status=Status.DIVERGED).noting(*infinite)
        return outcome

    def _run_restarts(self, problem: Problem) -> Outcome:
        """The best optimum of all restarts, with diagnostics."""
        plan, rows, known = problem.plan, problem.rows, problem.known
        effort = self._effort(problem.data, plan, problem.start)
        tolerance = self._parameter_tolerance(problem)
        outcomes, init = self._run_from_sample(problem, effort), None
        if not outcomes:
            init = starts(problem.data, plan, known, problem.weights, effort.starts, problem.seed,
                          problem.start, self.prior)
            race = Race(np.zeros(effort.starts, int)) if self.restarts is None else None
            outcomes = self._maximize_groups(plan, init, rows, known, closed=True, race=race,
                                             parameter_tolerance=tolerance)
        outcome = outcomes[0]

        def maximize(params: Mapping) -> Outcome:
            point = {name: stack(value, effort.starts) for name, value in params.items()}
            return self._maximize_groups(plan, Start(point, None, {}), rows, known, closed=True,
                                         parameter_tolerance=tolerance)[0]

        outcome = improve(outcome, [propose_unequal_states(problem, maximize)],
                          self.tolerance * rows.weight + 1e-6)
        # a closed form lowered the objective: continue from the best point without any
        if outcome.status is Status.FELL:
            point = {name: np.asarray(value)[None] for name, value in outcome.params.items()}
            numerical = self._maximize_groups(plan, Start(point, None, {}), rows, known,
                                              closed=False)[0]
            outcome = numerical.after(outcome)._replace(findings=outcome.findings).noting(
                Finding.of(Code.WITHOUT_CLOSED_FORM))
        if not self.hard:
            settings = OptimizerSettings(self.prior, self.progress,
                                         max(self.max_iterations - outcome.iterations, 0))
            outcome = continue_by_lbfgs(problem, settings, outcome, self.tolerance,
                                        np.isfinite(tolerance))
        origin = init or Start({name: stack(value, effort.starts)
                                for name, value in outcome.params.items()}, None, {})
        return find_boundaries(problem, self.prior, diagnose_em_optimum(
            problem, outcome, origin, (self.prior, self.hard, self.accelerate, True)), probe=False)

    def starts(self, data: Data | None, plan: Plan, start: SiteValues,
               programs: int = 1) -> int:
        """The number of starts on all rows: as asked, or as many as take about a second."""
        return self._effort(data, plan, start, programs).starts

    def _effort(self, data: Data | None, plan: Plan, start: SiteValues,
                programs: int = 1) -> Effort:
        effort = Effort(self.restarts or 1)
        if self.restarts is None and data is not None and states_depend_on_start(plan, start):
            states = sum(plan.variables[name].states for name in hidden_variables(plan))
            rows, entries = _steps(data), max(plan.work, plan.width)
            effort = plan_effort(rows, entries, states, programs, sampling=not plan.globals)
            # fewer starts than MIN_STARTS are already as many as the effort allows
            affordable = int(MAX_ENTRIES / (rows * self._work(plan)))
            min_starts = FOLLOWED_STARTS if climbed_on_rows(plan, self.prior) else MIN_STARTS
            effort = effort._replace(starts=min(effort.starts, max(affordable, min_starts)))
        needs_many = (plan.globals or plan.cellwise) and plan.free
        return effort._replace(starts=max(effort.starts,
                                          MIN_GLOBAL_RESTARTS)) if needs_many else effort

    def _work(self, plan: Plan) -> int:
        """Entries of tables in an evaluation and its M-step, for one row."""
        evaluations = LBFGS_EVALUATIONS if climbed_on_rows(plan, self.prior) else 1
        return (max(plan.work, plan.width) * evaluations
                + NEWTON_STEPS * directions(plan, self.prior) ** 2)

    def _parameter_tolerance(self, problem: Problem) -> float:
        """How close to their limit parameters have to be, see restarts.converge_parameters;
        infinite if further evaluations would take too long."""
        data, plan = problem.data, problem.plan
        if data is None or self.hard or _steps(data) * self._work(plan) > MAX_ENTRIES:
            return np.inf
        return relative_tolerance(self.tolerance / max(data.steps or 1, 1))

    def _run_from_sample(self, problem: Problem, effort: Effort,
                         states: Mapping | None = None) -> list[Outcome]:
        """Short runs on a sample of the rows, whose promising optima are continued on all rows: the
        best of every group of runs. Empty if there are no such runs, or all of a group collapse.

        Args:
            states: variable → (groups, states) bool, those that each group uses; by default there
                is one group.
        """
        if not effort.pilots:
            return []
        data, plan, seed, start = problem.data, problem.plan, problem.seed, problem.start
        rows, known = problem.rows, problem.known
        part, weight = sample_rows(data, problem.weights, effort.size, seed)
        states = states or {}
        count = max(map(len, states.values()), default=1)
        groups = np.repeat(np.arange(count), effort.pilots)
        allowed = {name: table[groups] for name, table in states.items()}
        copies = squarem.runs_per_program(plan, _steps(part), len(groups))
        part_rows, part_known = load(part, plan, weight, choose_layout(part, plan, copies), copies,
                                     params=start)
        init = starts(part, plan, part_known, weight, len(groups), seed, start, self.prior,
                      allowed=allowed)
        pilot = replace(self, max_iterations=min(self.max_iterations, MAX_PILOT_EVALUATIONS))
        state, _ = run_restarts(pilot, plan, init, part_rows, part_known, True, Race(groups))
        status, value, total = (np.asarray(state.status), np.asarray(state.value),
                                part_rows.weight)
        noun, findings, chosen, failed = "rows" if data.steps is None else "steps", [], [], []
        sizes = [d.size * (d.steps or 1) for d in (part, data)]
        for members in (np.flatnonzero(groups == group) for group in range(count)):
            best = promising(status[members], value[members], total)
            if not len(best):
                return []
            alive = is_alive(status[members], value[members])
            where = f" on {sizes[0]} of {sizes[1]} {noun}"
            suffix = (f"; the best {'start was' if len(best) == 1 else f'{len(best)} starts were'} "
                      f"continued on all rows")
            findings.append(restarts_finding(
                status[members], value[members], best[0], SAME_OPTIMUM * total, where, suffix))
            chosen.append(members[best])
            failed.append(int((~alive).sum()) if 2 * alive.sum() < len(alive) else 0)
        # 1 or FOLLOWED_STARTS starts for each group, so that there are two programs at most
        n_each = FOLLOWED_STARTS if max(map(len, chosen)) > 1 else 1
        points = [vectors.unpack(plan, state.params[i])
                  for best in chosen for i in np.resize(best, n_each)]
        typical = jax.device_get(compiled_prior_point(plan, known))
        point = {name: np.stack([squarem.away_from_zero(plan, name, p[name], typical[name])
                                 for p in points]) for name in plan.free}
        groups = np.repeat(np.arange(count), n_each)
        init = Start(point, None, {}, {name: table[groups] for name, table in states.items()})
        outcomes = self._maximize_groups(plan, init, rows, known, closed=True,
                                         race=Race(groups, 1, FIRST_STAGE_AFTER_PILOTS))
        if any(outcome.status is Status.COLLAPSED for outcome in outcomes):
            return []
        return [outcome._replace(findings=(finding,)).with_state(collapsed_restarts=collapsed)
                for outcome, finding, collapsed in zip(outcomes, findings, failed, strict=True)]

    def _maximize_groups(self, plan: Plan, init: Start, rows: Rows, known: Known, closed: bool,
                         race: Race | None = None,
                         parameter_tolerance: float = np.inf) -> list[Outcome]:
        """The best optimum of every group of starts; without a race there is one group.

        Args:
            parameter_tolerance: if there is one group, how close to their limit parameters have to
                be.
        """
        slack = 1e-3 + 10 * self.tolerance * rows.weight
        state, history = run_restarts(self, plan, init, rows, known, closed, race)
        groups = np.zeros(len(state.value), int) if race is None else race.groups
        index_sets = [np.flatnonzero(groups == group) for group in np.unique(groups)]
        if any(stopped_is_highest(_take_runs(state, indices)) for indices in index_sets):
            state, history = run_restarts(self, plan, init, rows, known, closed)
        outcomes = []
        for indices in index_sets:
            runs, values, by_rounding = _take_runs(state, indices), history[indices], False
            best = index_of_best(runs, slack)
            if len(index_sets) == 1:
                runs, values, by_rounding = converge_parameters(
                    self, plan, runs, values, best, init, rows, known, closed,
                    parameter_tolerance)
            outcome = outcome_of_best(runs, values[best], slack, best).noting(
                *find_spurious_maximum(plan, runs, best, slack))
            is_moving = float(runs.distance[best]) > relative_tolerance(self.tolerance)
            params = vectors.unpack(plan, runs.params[best])
            outcomes.append(outcome._replace(params=params).with_state(
                stopped_by_rounding=by_rounding and runs.distance.dtype == np.float32,
                remaining_gain=(predict_remaining_gain(outcome, runs.steps_left[best]) if is_moving
                                else 0.0)))
        return outcomes

    def grid(self, problem: Problem, site: str, sizes: Sequence[int],
             structures: Sequence[Structure]) -> list[Outcome]:
        """For each size, the best of the restarts with that many states of `site`: in one program,
        that of the largest, in which states beyond a size are impossible. Each size has its own
        race."""
        plan, known = problem.plan, problem.known
        effort = self._effort(problem.data, plan, {}, len(sizes))
        states = {site: np.arange(plan.variables[site].states) < np.asarray(sizes)[:, None]}
        outcomes = self._run_from_sample(problem, effort, states)
        if outcomes:
            return outcomes
        groups = np.repeat(np.arange(len(sizes)), effort.starts)
        init = starts(problem.data, plan, known, problem.weights, len(groups), problem.seed, {},
                      self.prior, allowed={site: states[site][groups]})
        race = Race(groups) if self.restarts is None else Race(groups, keep=effort.starts)
        return self._maximize_groups(plan, init, problem.rows, known, closed=True, race=race)

    def narrowed(self, plan: Plan, structure: Structure, outcome: Outcome) -> Outcome:
        """An outcome of `grid` in the shapes of its own model, of `structure`."""
        return first_states(structure, outcome)


def _refuse_noiseless(plan: Plan) -> None:
    """
    Raises:
        Refusal: a free parameter enters a number of a chain that has no noise of its own.
    """
    for group in (group for group in plan.latents if plan.timed(group)):
        for name in (name for name in group.names if plan.structure.sites[name].chain):
            for parameter, argument, number in noiseless_parameters(plan.structure, name):
                if parameter in plan.free:
                    raise Refusal(
                        f"EM cannot estimate '{parameter}' of model '{plan.structure.model.name}': "
                        f"'{parameter}' determines element {number} of the {argument} of '{name}', "
                        "and this element has no noise. So each step of EM would leave "
                        f"'{parameter}' at its initial value. Add noise to element {number}, or "
                        f"give the value of '{parameter}' in the data. Only an element that copies "
                        "another one (a lag, whose row of the transition matrix is constant) needs "
                        "no noise",
                        ("MAP",))


def _steps(data: Data) -> int:
    """The number of rows, or of the steps of all chains."""
    return data.size * max(data.steps or 1, 1)


def _take_runs(state: squarem.State, index: np.ndarray) -> squarem.State:
    """Some of the restarts."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[index], state)
