"""What an optimum is, once it is found: identified, one of many, or none; and the end of EM's
steps, examined as that of any other method: by what Newton's step would still gain.

Where EM's steps shrink so slowly that each gains less than the tolerance long before the maximum
(of effects about 0 beside a level far from 0 by 1 part in 10⁶), L-BFGS goes on from there.
"""


import numpy as np

from probml.engines.engine import Outcome, Problem, Status
from probml.engines.findings import Code, Finding
from probml.engines.optimization.identifiability import (
    along_coordinates,
    along_the_flattest,
    along_the_way,
    find_infinite,
)
from probml.engines.optimization.maximization import (
    BLOCK,
    OptimizerSettings,
    by_lbfgs,
    is_small,
    lacks_prior,
    optimum_of,
)
from probml.engines.optimization.objective import to_coordinates
from probml.engines.restarting.indifferent import indifferent
from probml.engines.start.start import Start
from probml.numerics.transfer import placed_all
from probml.plan.blocks import all_blocks

SHORT = 0.01  # nats that may be left at an end that is said to be the maximum
STEPS = 10  # of the tolerance, that may be left as well
LOOKED = 2**24  # rows times squared coordinates up to which it is examined where it lacks a prior


def check_identifiability(engine: OptimizerSettings, problem: Problem,
                          outcome: Outcome) -> Outcome:
    """The end of a climb, with a finding where it is one of many maxima, or there is none.

    Cost: four gradients a coordinate and some ten climbs of few steps, where no prior holds the
        parameters.
    """
    plan, known = problem.plan, problem.known
    if (outcome.status not in (Status.CONVERGED, Status.STALLED, Status.SLOW)
        or not np.isfinite(outcome.history[-1]) or not lacks_prior(plan, engine.prior)
        or outcome.state.optimum is None and not is_small(problem, LOOKED)):
        return outcome
    top = outcome.state.optimum or optimum_of(engine, problem, to_coordinates(
        plan, placed_all(dict(outcome.params)), known))
    found, gone = ((), None) if top.subsampled else along_the_way(plan, known, top, BLOCK)
    if gone is None:
        found, gone = along_the_flattest(plan, known, top, BLOCK)
    if gone is None and not top.subsampled:
        more, gone = along_coordinates(plan, known, top)
        found = (*found, *more)
    adrift = outcome.state.adrift or any(
        finding.warns for finding in found) and top.point.dtype == np.float32
    return outcome.noting(*found)._replace(status=gone or outcome.status).with_state(
        optimum=top, adrift=adrift)


def finish(problem: Problem, ascent: OptimizerSettings, outcome: Outcome, tolerance: float,
           small: bool) -> Outcome:
    """An outcome that converged, where further steps would gain nothing; else that of L-BFGS from
    there; of what that is not worth its time for, or has no slopes, one that says how much is left.

    Effects of groups are climbed on in any case: how slowly their steps shrink may be hidden by
    rounding.

    Args:
        ascent: with the iterations that are left. tolerance: of a step, per unit of weight.
        small: the rows are so few that a climb is worth its time.

    Cost: where parameters are not at rest, that of MAP from there.
    """
    plan = problem.plan
    enough = max(SHORT, STEPS * tolerance * problem.rows.weight)
    if (outcome.status is not Status.CONVERGED or plan.carried or not plan.free
        or not (outcome.state.left or plan.groupings)):
        return outcome
    short = outcome.state.left
    if small and ascent.steps and not problem.in_parts:
        found = by_lbfgs(ascent, problem, placed_all(dict(outcome.params)), judged=True)
        if found.history[-1] > outcome.history[-1]:
            outcome = found.after(outcome)._replace(findings=outcome.findings,
                                                    status=Status.CONVERGED)
        top = found.state.optimum
        short = short if top is None else top.predicted_gain
        if found.status is Status.CONVERGED or not np.isfinite(short):
            return outcome
    if not short > enough:
        return outcome
    return outcome._replace(status=Status.SLOW).noting(Finding.of(Code.SLOW, gain=short))


def gain_left(outcome: Outcome, steps: float) -> float:
    """Nats that further steps of EM would gain, as the largest gain of the last few foretells, and
    how many are left: those that shrink by ρ gain less by ρ² each."""
    gain = np.diff(outcome.history[-4:]).max(initial=0.0)
    return max(0.5 * float(steps * gain), float(np.finfo(float).tiny))


def diagnose(problem: Problem, outcome: Outcome, first: Start, static: tuple) -> Outcome:
    """An outcome of steps of EM, with a warning where there is no maximum, or one of many as high.

    Closed forms send what has no maximum to the ends of its support at one step: where all
    parameters have one, two more steps tell all.

    Args:
        first, static: as of `indifferent`.
    """
    plan, (prior, hard, *_) = problem.plan, static
    if (outcome.status not in (Status.CONVERGED, Status.SLOW)
        or not (plan.free and lacks_prior(plan, prior)) or find_infinite(outcome.params)):
        return outcome
    formed = all(block.form for block in all_blocks(plan, prior))
    if plan.carried or problem.in_parts or hard or formed and not plan.groupings:
        return outcome.noting(indifferent(plan, outcome.params, first, problem.known, problem.rows,
                                          static))
    return check_identifiability(OptimizerSettings(prior), problem, outcome)
