"""Whether an optimum is identified, one of many equal ones, or none; and whether EM has converged,
judged as for any other method: by what a Newton step would still gain.

Steps of EM may shrink by as little as 1 part in 10⁶ (effects about 0, with a level far from 0), so
that each gains less than the tolerance long before the maximum: then L-BFGS continues from there.

Parameters about which the rows contain no information, without a prior: EM leaves them wherever
they are.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.engine import Outcome, Problem, Status
from probml.engines.findings import Code, Finding
from probml.engines.optimization.identifiability import (
    check_coordinates,
    check_direction_from_start,
    check_flattest_direction,
    separation_finding,
)
from probml.engines.optimization.maximization import (
    BLOCK,
    OptimizerSettings,
    is_small_problem,
    lbfgs_optimum,
    maximize_by_lbfgs,
)
from probml.engines.restarting import vectors
from probml.engines.restarting.squarem import initial_state, run_em_block
from probml.engines.start.prior import compiled_prior_point
from probml.engines.start.start import Start
from probml.numerics.transfer import placed_all
from probml.plan.blocks import all_blocks
from probml.plan.plan import Plan, lacks_prior
from probml.posteriors.posterior import unconstrained

DISTANCE = 0.1  # by which entries are moved: this share of the way to the prior's point, and of
# their own size
EQUAL_ROUNDINGS = 64  # units of rounding
MAX_NAMED = 4  # entries that are named one by one


def find_uninformed_entries(plan: Plan, params: Mapping[str, np.ndarray], init: Start,
                            known: Known, rows: Rows, static: tuple) -> Finding | None:
    """A finding on the entries of parameters about which the rows contain no information, as the
    transitions of a chain of one step; None: there are none.

    All entries are moved a little away from the optimum, inside their supports. An M-step leaves
    those unchanged that no row informs, and the evidence is that of the optimum when they alone are
    moved.

    Args:
        params: the optimum of EM. init: its starts, as many as its program is for.
        static: settings of EM, see squarem.run_em_block.

    Cost: an evaluation by the program of EM, three where an M-step leaves entries unchanged.
    """
    nudged = _perturb(plan, params, jax.device_get(compiled_prior_point(plan, known)))
    updated, value = _m_step(plan, static, nudged, init, known, rows)
    unchanged = {name: _unchanged(plan, name, nudged[name], updated[name], np.asarray(params[name]))
                 for name in nudged}
    unchanged = {name: entries for name, entries in unchanged.items() if entries.any()}
    if not unchanged or not np.isfinite(value):
        return None
    # where all are moved, a component may be too far from every row to be informed by one
    partial = {name: np.where(unchanged[name][(..., *[None] * _rank(plan, name))], entry,
                              np.asarray(params[name])) if name in unchanged
               else np.asarray(params[name]) for name, entry in nudged.items()}
    value, altered = (_m_step(plan, static, point, init, known, rows)[1]
                      for point in ({name: np.asarray(params[name]) for name in nudged}, partial))
    if not abs(altered - value) <= EQUAL_ROUNDINGS * np.finfo(value.dtype).eps * (1 + abs(value)):
        return None
    names = [text for name, entries in unchanged.items() for text in _described(name, entries)]
    return Finding.of(Code.NO_INFORMATION, names=", ".join(names))


def _perturb(plan: Plan, params: Mapping[str, np.ndarray],
             typical: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Parameters with each entry moved by its own random share of DISTANCE."""
    random, result = np.random.default_rng(7), {}
    for name in plan.free:
        domain, value = plan.structure.sites[name].domain, np.asarray(params[name])
        share = random.uniform(0.5, 1.5, value.shape)
        if _rank(plan, name) > 1:  # one share for a matrix, so that it stays in its support
            first_only: list[Any] = [slice(1)] * _rank(plan, name)
            share = share[(..., *first_only)]
        with np.errstate(all="ignore"):
            perturbed = domain.shaken((1 - DISTANCE) * value + DISTANCE * np.asarray(typical[name]),
                                      -DISTANCE * share)  # a probability stays below 1
            is_valid = np.isfinite(perturbed).all() and domain.holds(perturbed)
        result[name] = perturbed.astype(value.dtype) if is_valid else value
    return result


def _m_step(plan: Plan, static: tuple, params: Mapping, init: Start, known: Known,
            rows: Rows) -> tuple[dict[str, np.ndarray], np.floating]:
    """The parameters after an M-step from a point, and the objective at the point."""
    count = len(next(iter(init.params.values())))
    tiled = {name: np.broadcast_to(value, (count, *value.shape)) for name, value in params.items()}
    state, *_ = run_em_block(plan, static, initial_state(plan, tiled, False),
                             init._replace(drawn=None), known, rows, 1, 0.0)
    return vectors.unpack(plan, state.pending[0]), state.value[0]


def _unchanged(plan: Plan, name: str, before: np.ndarray, after: np.ndarray,
               optimum: np.ndarray) -> np.ndarray:
    """Which values, without event axes, were moved and then left unchanged."""
    same = np.abs(after - before) <= EQUAL_ROUNDINGS * np.finfo(before.dtype).eps * np.abs(before)
    axes = tuple(range(same.ndim - _rank(plan, name), same.ndim))
    return same.all(axes) & (before != optimum).any(axes)


def _rank(plan: Plan, name: str) -> int:
    """Event axes of a value; of a support without a rank of its own, as of ordered vectors, those
    of the site."""
    site = plan.structure.sites[name]
    return len(site.event) if site.domain.rank is None else site.domain.rank


def _described(name: str, entries: np.ndarray) -> list[str]:
    indices = np.argwhere(entries)
    if entries.all() or len(indices) > MAX_NAMED:
        return [f"'{name}'" if entries.all() else f"{len(indices)} of '{name}'"]
    return [f"'{name}[{', '.join(map(str, index))}]'" for index in indices]


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
    optimum = outcome.state.optimum or lbfgs_optimum(engine, problem, np.asarray(unconstrained(
        plan, placed_all(dict(outcome.params)), known)))
    findings, status = ((), None) if optimum.subsampled else check_direction_from_start(plan, known,
                                                                                        optimum,
                                                                                        BLOCK)
    if status is None:
        findings, status = check_flattest_direction(plan, known, optimum, BLOCK)
    if status is None and not optimum.subsampled:
        further, status = check_coordinates(plan, optimum)
        findings = (*findings, *further)
    rounded = outcome.state.stopped_by_rounding or any(
        finding.warns for finding in findings) and optimum.point.dtype == np.float32
    return outcome.noting(*findings)._replace(status=status or outcome.status).with_state(
        optimum=optimum, stopped_by_rounding=rounded)


def continue_by_lbfgs(problem: Problem, settings: OptimizerSettings, outcome: Outcome,
                      tolerance: float, is_small: bool) -> Outcome:
    """An outcome of EM, if further steps would gain nothing; else that of L-BFGS from there; or,
    where that would take too long or there are no gradients, one with a finding that says how much
    remains to be gained.

    With effects of groups L-BFGS continues in any case: rounding may hide how slowly steps shrink.

    Args:
        settings: with the iterations that are left. tolerance: of a step, per unit of weight.
        is_small: the rows are few enough for L-BFGS.

    Cost: where parameters are still moving, that of MAP from there.
    """
    plan = problem.plan
    if (outcome.status is not Status.CONVERGED or plan.sampled or not plan.free
        or not (outcome.state.remaining_gain or plan.groupings)):
        return outcome
    remaining = outcome.state.remaining_gain
    if is_small and settings.steps and not problem.in_parts:
        later = maximize_by_lbfgs(settings, problem, placed_all(dict(outcome.params)), refined=True)
        if later.history[-1] > outcome.history[-1]:
            outcome = later.after(outcome)._replace(findings=outcome.findings,
                                                    status=Status.CONVERGED)
        optimum = later.state.optimum
        remaining = remaining if optimum is None else optimum.predicted_gain
        if later.status is Status.CONVERGED or not np.isfinite(remaining):
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


def find_infinite(params: Mapping[str, jax.Array]) -> tuple[Finding, ...]:
    """A finding on parameters that a closed form has sent to infinity in one step, as the logit of
    a share that is 1."""
    names = [name for name, value in params.items() if np.isinf(np.asarray(value, float)).any()]
    return (separation_finding(names),) if names else ()


def diagnose_em_optimum(problem: Problem, outcome: Outcome, init: Start,
                        static: tuple) -> Outcome:
    """An outcome of EM, with a warning if there is no maximum, or it is one of many equal ones.

    A closed form sends a parameter that has no maximum to the bound of its support in one step:
    where all parameters have one, two more steps tell.

    Args:
        init, static: as of `find_uninformed_entries`.
    """
    plan, (prior, hard, *_) = problem.plan, static
    if (outcome.status not in (Status.CONVERGED, Status.SLOW)
        or not (plan.free and lacks_prior(plan, prior)) or find_infinite(outcome.params)):
        return outcome
    # coefficients of rows, which an M-step determines whether or not columns are collinear
    closed_forms = all(block.form and not (block.form.joint and block.rowwise)
                       for block in all_blocks(plan, prior))
    if plan.sampled or problem.in_parts or hard or closed_forms and not plan.groupings:
        return outcome.noting(find_uninformed_entries(plan, outcome.params, init, problem.known,
                                                      problem.rows, static))
    return check_identifiability(OptimizerSettings(prior), problem, outcome)
