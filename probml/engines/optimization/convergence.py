"""Whether an optimum is identified, one of many equal ones, or none; and whether EM has converged,
judged as for any other method: by what a Newton step would still gain.

Steps of EM may shrink by as little as 1 part in 10⁶ (effects about 0, with a level far from 0), so
that each gains less than the tolerance long before the maximum: then L-BFGS continues from there.
"""

import numpy as np

from probml.engines.engine import Outcome, Problem, Status
from probml.engines.findings import Code, Finding
from probml.engines.optimization.identifiability import (
    check_coordinates,
    check_direction_from_start,
    check_flattest_direction,
    find_infinite,
)
from probml.engines.optimization.maximization import (
    BLOCK,
    OptimizerSettings,
    is_small_problem,
    lacks_prior,
    lbfgs_optimum,
    maximize_by_lbfgs,
)
from probml.engines.optimization.objective import to_coordinates
from probml.engines.restarting.indifferent import find_uninformed_entries
from probml.engines.start.start import Start
from probml.numerics.transfer import placed_all
from probml.plan.blocks import all_blocks

# what may remain to be gained at a maximum: log density, or multiples of the tolerance
MAX_REMAINING_GAIN, MAX_REMAINING_TOLERANCES = 0.01, 10
MAX_WORK = 2**24  # rows times squared coordinates up to which an optimum without priors is examined


def check_identifiability(engine: OptimizerSettings, problem: Problem,
                          outcome: Outcome) -> Outcome:
    """An optimum, with a finding if it is one of many equal ones, or there is no maximum.

    Cost: four gradients a coordinate and some ten optimisations of few steps, where parameters have
        no proper prior.
    """
    plan, known = problem.plan, problem.known
    if (outcome.status not in (Status.CONVERGED, Status.STALLED, Status.SLOW)
        or not np.isfinite(outcome.history[-1]) or not lacks_prior(plan, engine.prior)
        or outcome.state.optimum is None and not is_small_problem(problem, MAX_WORK)):
        return outcome
    top = outcome.state.optimum or lbfgs_optimum(engine, problem, to_coordinates(
        plan, placed_all(dict(outcome.params)), known))
    found, status = ((), None) if top.subsampled else check_direction_from_start(plan, known, top,
                                                                                 BLOCK)
    if status is None:
        found, status = check_flattest_direction(plan, known, top, BLOCK)
    if status is None and not top.subsampled:
        more, status = check_coordinates(plan, known, top)
        found = (*found, *more)
    rounded = outcome.state.stopped_by_rounding or any(
        finding.warns for finding in found) and top.point.dtype == np.float32
    return outcome.noting(*found)._replace(status=status or outcome.status).with_state(
        optimum=top, stopped_by_rounding=rounded)


def continue_by_lbfgs(problem: Problem, settings: OptimizerSettings, outcome: Outcome,
                      tolerance: float, small: bool) -> Outcome:
    """An outcome of EM, if further steps would gain nothing; else that of L-BFGS from there; or,
    where that would take too long or there are no gradients, one with a finding that says how much
    remains to be gained.

    With effects of groups L-BFGS continues in any case: rounding may hide how slowly steps shrink.

    Args:
        settings: with the iterations that are left. tolerance: of a step, per unit of weight.
        small: the rows are few enough for L-BFGS.

    Cost: where parameters are still moving, that of MAP from there.
    """
    plan = problem.plan
    if (outcome.status is not Status.CONVERGED or plan.carried or not plan.free
        or not (outcome.state.remaining_gain or plan.groupings)):
        return outcome
    remaining = outcome.state.remaining_gain
    if small and settings.steps and not problem.in_parts:
        found = maximize_by_lbfgs(settings, problem, placed_all(dict(outcome.params)), refined=True)
        if found.history[-1] > outcome.history[-1]:
            outcome = found.after(outcome)._replace(findings=outcome.findings,
                                                    status=Status.CONVERGED)
        top = found.state.optimum
        remaining = remaining if top is None else top.predicted_gain
        if found.status is Status.CONVERGED or not np.isfinite(remaining):
            return outcome
    if not remaining > max(MAX_REMAINING_GAIN,
                           MAX_REMAINING_TOLERANCES * tolerance * problem.rows.weight):
        return outcome
    return outcome._replace(status=Status.SLOW).noting(Finding.of(Code.SLOW, gain=remaining))


def predict_remaining_gain(outcome: Outcome, steps: float) -> float:
    """The log density that further steps of EM would gain, by the largest of the last few gains and
    the predicted number of further steps: if steps shrink by ρ, gains shrink by ρ²."""
    gain = np.diff(outcome.history[-4:]).max(initial=0.0)
    return max(0.5 * float(steps * gain), float(np.finfo(float).tiny))


def diagnose_em_optimum(problem: Problem, outcome: Outcome, first: Start,
                        static: tuple) -> Outcome:
    """An outcome of EM, with a warning if there is no maximum, or it is one of many equal ones.

    A closed form sends a parameter that has no maximum to the bound of its support in one step:
    where all parameters have one, two more steps tell.

    Args:
        first, static: as of `find_uninformed_entries`.
    """
    plan, (prior, hard, *_) = problem.plan, static
    if (outcome.status not in (Status.CONVERGED, Status.SLOW)
        or not (plan.free and lacks_prior(plan, prior)) or find_infinite(outcome.params)):
        return outcome
    closed_forms = all(block.form for block in all_blocks(plan, prior))
    if plan.carried or problem.in_parts or hard or closed_forms and not plan.groupings:
        return outcome.noting(find_uninformed_entries(plan, outcome.params, first, problem.known,
                                                      problem.rows, static))
    return check_identifiability(OptimizerSettings(prior), problem, outcome)
