"""Laplace: a normal distribution at the posterior mode, with the curvature there, and the posterior
itself by importance sampling about it."""

import functools
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known
from probml.engines import importance
from probml.engines.engine import (
    MAX_DEFAULT_POSTERIOR,
    Capabilities,
    Engine,
    Outcome,
    Problem,
    State,
    Status,
    check_settings,
)
from probml.engines.findings import Code, Finding
from probml.engines.importance import Component, Weighted, proposal
from probml.engines.map import MAP
from probml.engines.optimization.identifiability import repeat_per_coordinate
from probml.engines.optimization.maximization import newton_pays
from probml.engines.proposals import MAX_DISTANCE, proposal_about, proposals_given_states
from probml.engines.sampling.latents import complete_normal, with_states
from probml.engines.sampling.reliance import (
    check_normal_approximation,
    improper,
    improper_refusal,
)
from probml.engines.start import begin
from probml.engines.start.labelling import check_distinct, hidden_variables
from probml.engines.start.modes import Mode, other_high_modes
from probml.errors import ModelError, Refusal, listed, present
from probml.evidence import density
from probml.evidence.cost import evaluation_cost
from probml.factors.naturals import log_prior
from probml.language import given
from probml.numerics import curvature
from probml.numerics.compiling import ONCE, jit
from probml.numerics.curvature import whitened
from probml.numerics.optimum import hides_differences
from probml.numerics.transfer import placed
from probml.plan import decide
from probml.plan.plan import Plan
from probml.plan.sufficient_statistics import is_affine_in_rows
from probml.posteriors.pareto import k_limit
from probml.posteriors.posterior import Draws, Normal, constrained, mean, unconstrained
from probml.posteriors.relabelling import exchanges

# With fewer affordable draws than FEW_DRAWS the density is compared with the normal distribution;
# if it is not normal, draws may take FACTOR times as long; at least MIN_DRAWS are made.
FACTOR, FEW_DRAWS, MIN_DRAWS = 16, 400, 16
ROWS_FOR_MAP = 16  # for each parameter, beyond which MAP's mode and Hessian are near the density's
ROWS_FOR_MODE = 100  # for each parameter, beyond which an optimum of EM is near the posterior mean
SAMPLING_EVALUATIONS = 2**21  # densities by which NUTS samples: 8,000 draws of some 2⁶ gradients
MAX_SAMPLED = 2**16  # numbers of the data for which thousands of gradients of NUTS are affordable


@dataclass(frozen=True)
class Laplace(Engine):
    """Laplace's approximation with importance weights: a normal distribution at the mode of the
    density of unbounded coordinates, with the curvature there (Tierney & Kadane 1986); draws of a
    Student t distribution about it are weighted by the posterior density, and Pareto's k of the
    weights shows whether they represent the posterior (Vehtari et al. 2024).

    Where they do (k at most 0.7), `params` is the posterior mean and everything asked is averaged
    over the weighted draws; `log_evidence` is estimated from the same weights. Where they do not,
    `params` is the mode, everything asked is averaged over the normal distribution, and
    `Fit.warnings` says that it is not to be relied on. If optimisations from several starts find
    several modes, draws are made about each. For very many rows a few densities are compared with
    those of the normal distribution, which is then the answer.

    Args:
        over: names of the parameters that vary, such as those of a network's last layer; the others
            stay at MAP()'s mode, and the normal distribution is the answer. None: all.
        draws: how many are made and returned.

    Raises:
        ModelError: `over` names no parameter. Refusal: more than 1,024 parameters that vary; a
            density without a mode, or whose curvature there is not its width.

    Cost: an optimisation from each of four starts, 6 d gradients for d parameters that vary,
        `draws` densities in batches, at most eight times where their weights do not pass at once.

    Examples:
        >>> import numpyro.distributions as dist
        >>> from numpyro import sample
        >>> import probml
        >>> @probml.model
        ... def lengths():
        ...     mean = sample("mean", dist.Normal(0.0, 10.0))
        ...     sd = sample("sd", dist.HalfNormal(5.0))
        ...     with probml.rows():
        ...         sample("x", dist.Normal(mean, sd))
        >>> data = {"x": [1.2, 0.7, 2.1, 1.6, 0.9, 1.4, 1.1, 1.9]}
        >>> fit = lengths().fit(data, probml.Laplace())
        >>> round(float(fit.params["mean"]), 1)
        1.4
        >>> print(fit.summary()[["mean", "sd"]].loc["mean"].round(1))
        mean    1.4
        sd      0.2
        Name: mean, dtype: float64
    """

    over: tuple[str, ...] | None = None
    draws: int = 1000

    def __post_init__(self):
        check_settings(self, positive=("draws",))
        if self.over is not None:
            names = given.as_names(self.over, "Laplace(over)", "parameters",
                                   "('weights1', 'bias1')")
            object.__setattr__(self, "over", names)

    def refuse(self, problem: Problem) -> None:
        """Raises Refusal for too many parameters for a Hessian, ModelError for unknown names."""
        plan = problem.plan
        check_distinct(problem.data, plan)
        unknown = next((name for name in self.over or () if name not in plan.free), None)
        if unknown is not None:
            raise ModelError(f"Laplace(over=...): '{unknown}' is not an estimated parameter of "
                             f"model '{plan.structure.model.name}'. Use some of "
                             f"{listed(plan.free)}")
        names = self.over or plan.free
        sizes = {name: int(np.prod(plan.structure.sites[name].shape)) for name in names}
        size, smallest = sum(sizes.values()), min(names, key=sizes.__getitem__, default="")
        if size > curvature.MAX_HESSIAN_COORDINATES:
            raise Refusal(
                f"Laplace cannot fit {problem}: it needs the second derivatives for all pairs of "
                f"{size:,} parameters, more than the limit of "
                f"{curvature.MAX_HESSIAN_COORDINATES:,} parameters" + (
                    f". Name fewer parameters, such as Laplace(over=['{smallest}'])"
                    * (sizes[smallest] <= curvature.MAX_HESSIAN_COORDINATES)), ("SVI", "NUTS"))

    def reason_to_skip(self, problem: Problem) -> str:
        if problem.point_wanted:
            return problem.point_wanted
        plan, data = problem.plan, problem.data
        # by nodes the passes over the rows for each density do not depend on the effects' number
        most = 2 * (1 + importance.MAX_ROUNDS) * self.draws
        if not plan.groupings or plan.groupings[0].nodes != 1 or (
                most * evaluation_cost(plan, data)
                <= SAMPLING_EVALUATIONS * evaluation_cost(data.plan(), data)):
            return ""
        return (f"its test integrates {listed(plan.effects)} out up to {most:,} times, which costs "
                "more than sampling them")

    def describe_method(self, problem: Problem) -> str:
        """The test of the result in a fit without a named engine."""
        return "" if problem.asked or problem.in_parts else (
            "tested: NUTS is used instead if the approximation is poor, that is, if Pareto k-hat "
            f"is above {k_limit(self.draws):.2f}")

    @property
    def capabilities(self) -> Capabilities:
        all_vary = self.over is None
        return Capabilities(offered="possible", integrates=all_vary, approximates=all_vary,
                            statistics=True, squares=all_vary)

    def run(self, problem: Problem) -> Outcome:
        if self.over is not None and set(self.over) != set(problem.plan.free):
            return self._fit_some(problem)
        modes = _find_modes(problem)
        if isinstance(modes, Finding) and not problem.asked:
            return Outcome({}, np.zeros(0), Status.COLLAPSED, 0, state=State(rejection=modes))
        return self._fit_about(problem, *_or_refuse(problem, modes))

    def _fit_about(self, problem: Problem, known: Known, modes: list[Component], log_density: float,
                   outcome: Outcome) -> Outcome:
        """The posterior by weighted draws about its `Modes`, or the normal distribution at one."""
        if problem.in_parts:
            return _normal_outcome(problem, known, modes[0], None, None, outcome)
        if why := improper(problem, known, _normal(modes[0])):
            if problem.asked:
                raise improper_refusal("Laplace", problem, why)
            return _normal_outcome(problem, known, modes[0], None, why, outcome).with_state(
                rejection=None)
        rounded = hides_differences(log_density)
        ref_known, level = (importance.with_member_levels(
            problem.plan, known, problem.rows, modes[0].centre) if rounded else (known, 0.0))
        rounded = hides_differences(log_density - level)
        sample, why, mode = self._weighted(problem, ref_known, modes, rounded)
        sample = sample._replace(log_evidence=sample.log_evidence + level)
        if why and rounded:
            _refuse_in_float32(problem, why)
        if why or sample.normal:
            return _normal_outcome(problem, known, mode, sample, why, outcome)
        if len(modes) > 1:
            outcome = outcome.noting(Finding.of(Code.MODES_COMBINED, count=len(modes)))
        return _posterior_outcome(problem, known, sample, self.draws, outcome)

    def _weighted(self, problem: Problem, known: Known, modes: list[Component],
                  rounded: bool) -> tuple[Weighted, Finding | None, Component]:
        """Weighted draws, why they do not represent the posterior, or None, and the first of their
        proposals; a few draws of the normal distribution for many rows, or where rounding of log
        densities may hide their differences."""
        plan, rows, mode = problem.plan, problem.rows, modes[0]
        densities = importance.densities_of(plan, known, rows)
        affordable = importance.MAX_WORK // (importance.work(plan, known, rows) + 1)
        count = int(np.clip(affordable, MIN_DRAWS, self.draws))
        if count < min(FEW_DRAWS, self.draws) or rounded:
            sample = importance.nearly_normal(densities, mode, count, problem.seed)
            if importance.max_mean_error(sample.weights) <= importance.MAX_MEAN_ERROR:
                return sample, None, mode
            if rounded or count * FACTOR < FEW_DRAWS:
                return sample, _weights_finding(sample, []), mode
        given_states = proposals_given_states(problem, known, mode, self.draws)
        sample, heavy_index, power_law, mode = importance.sample_with_tail_check(
            densities, [*modes, *given_states], self.draws, problem.seed,
            functools.partial(_parameter_values, plan, known))
        if heavy_index >= 0 and (power_law or sample.reliable):
            code = Code.HEAVY_TAIL if power_law else Code.WIDER
            return sample, Finding.of(code, density.coordinate_names(plan)[heavy_index]), mode
        return sample, None if sample.reliable else _weights_finding(sample, _entries(plan)), mode

    def _fit_some(self, problem: Problem) -> Outcome:
        """The normal distribution of some parameters, given the others at the mode of all."""
        plan, known = problem.plan, problem.known
        optimum = MAP().run(problem)
        mode = {name: jnp.asarray(value) for name, value in optimum.params.items()}
        over = present(self.over)
        others = {name: value for name, value in mode.items() if name not in over}
        sub = decide.make(plan.structure, plan.pattern, (*plan.given, *others))
        if sub.globals:
            raise Refusal(f"Laplace(over=...) cannot fit {problem}: over= does not support latent "
                          f"discrete sites outside rows(), such as '{sub.globals[0]}'. Omit over=")
        part_known = known._replace(given={**known.given, **others})
        start = {name: np.asarray(mode[name]) for name in over}
        part = replace(problem, plan=sub, known=part_known, start=start)
        result = _or_refuse(part, _find_modes(part, centred=False))
        normal = _normal(result.modes[0])
        if why := improper(part, part_known, normal):
            raise improper_refusal("Laplace", problem, why)
        findings = check_normal_approximation(part, normal)
        if len(result.modes) > 1:
            findings += (Finding.of(Code.ONE_MODE, count=len(result.modes)),)
        is_over = repeat_per_coordinate(plan, over.__contains__)
        loc = np.array(unconstrained(plan, mode, known))
        loc[is_over] = normal.loc
        factor = np.zeros((len(loc), len(normal.loc)), loc.dtype)
        factor[is_over] = normal.factor
        params = {**{name: np.asarray(value) for name, value in mode.items()},
                  **jax.device_get(constrained(sub, part_known, normal.loc))}
        return result.outcome._replace(params=params, findings=findings,
                                       posterior=Normal(loc, np.zeros_like(loc), factor))


def about_optimum(problem: Problem, outcome: Outcome) -> Outcome:
    """The posterior about an optimum of EM, with its numbering of hidden states; the optimum itself
    if that would take longer than the fit, or if there are so many rows that its standard errors
    are as good. If weighted draws about it do not represent the posterior: the optimum with a
    warning, where states are exchangeable, or a rejection: for a hierarchical model, whose joint
    mode is no answer, and where the states have one numbering."""
    plan, known, rows = problem.plan, problem.known, problem.rows
    size = density.unbounded_size(plan)
    work = importance.work(plan, known, rows)
    if (outcome.status is not Status.CONVERGED or plan.sampled
        or not 0 < size <= MAX_DEFAULT_POSTERIOR or problem.point_wanted
        or FEW_DRAWS * work > importance.MAX_WORK
        or problem.size > ROWS_FOR_MODE * size and not begin.hyperparameters(plan)):
        return outcome
    engine, normals = Laplace(), np.zeros((1, size))
    start = begin.coordinates(plan, outcome.params, known, rows)
    mode = begin.measure_mode(plan, (), start, known, rows, normals)
    if proposal_about(mode)[1] > MAX_DISTANCE:  # as in units of 10⁻⁶: L-BFGS does not move
        mode, _ = begin.refine_mode(plan, mode, known, rows, normals, None)
    why = _no_mode(mode)
    if why is None:
        rounded = hides_differences(float(mode.value))
        sample, why, _ = engine._weighted(problem, known, [proposal_about(mode)[0]], rounded)
        if why and rounded:
            _refuse_in_float32(problem, why)
    if why is None:
        # a posterior that passes its test is not at the boundary where its mode is
        findings = tuple(note for note in outcome.findings if note.code is not Code.BOUNDARY)
        return _posterior_outcome(problem, known, sample, engine.draws,
                                  outcome._replace(findings=findings))
    rejected = work <= MAX_SAMPLED and (begin.hyperparameters(plan) or not exchanges(
        plan, outcome.params, known, rows))
    return outcome.noting(why).with_state(rejection=why if rejected else None)


class Modes(NamedTuple):
    """The modes of a posterior.

    Args:
        known: what rows share, with the coordinates of the modes. modes: a proposal about each, the
            highest first. log_density: the log density there. outcome: history and status so far.
    """

    known: Known
    modes: list[Component]
    log_density: float
    outcome: Outcome


def _or_refuse(problem: Problem, modes: Modes | Finding) -> Modes:
    """
    Raises:
        Refusal: there is no mode.
    """
    if isinstance(modes, Finding):
        raise Refusal(f"Laplace cannot fit {problem}: {modes.problem}", ("NUTS",))
    return modes


def _refuse_in_float32(problem: Problem, why: Finding) -> None:
    """
    Raises:
        Refusal: in single precision; the fit is then repeated in double precision (fits/double).
    """
    if not jax.config.jax_enable_x64:
        raise Refusal(f"{problem} cannot be fitted: {why.problem}, in single precision "
                      "(float32). Use double precision, jax.config.update('jax_enable_x64', True)")


def _find_modes(problem: Problem, centred: bool = True) -> Modes | Finding:
    """The modes of the density of unbounded coordinates, or why there is none.

    Args:
        centred: effects of hierarchies may have coordinates that are nearly independent of their
            standard deviation.
    """
    if (regression := _modes_of_regression(problem)) is not None:
        return regression
    plan, rows = problem.plan, problem.rows
    normals = np.zeros((1, density.unbounded_size(plan)))  # the mode itself
    known, peak, others = begin.find_start_mode(problem, "Laplace", normals, centred)
    distance = proposal_about(peak)[1]
    if distance > MAX_DISTANCE:
        peak, distance = begin.refine_mode(plan, peak, known, rows, normals, others)
    unrefined, peak = peak, begin.refine_flat_directions(problem, peak, distance, normals)
    # a ridge takes more digits than float32 has
    rounded = peak is not unrefined and peak.frame.centre.dtype == np.float32
    if why := _no_mode(peak):
        lowest = np.asarray(peak.frame.curvature).min()
        if hides_differences(float(peak.value)) or (
                peak.converged and abs(lowest) < curvature.MIN_CURVATURE[lowest.dtype]):
            _refuse_in_float32(problem, why)
        return why
    history = np.asarray(peak.history)
    history = history[np.isfinite(history)]
    outcome = Outcome({}, history, Status.APPROXIMATED, len(history) - 1,
                      state=State(stopped_by_rounding=rounded))
    modes = [peak]
    if not hidden_variables(plan):  # renumbered states would be the same mode again
        measured = (begin.measure_mode(plan, (), placed(u), known, rows, normals, others, 0)
                    for u in other_high_modes(peak))
        modes += [mode for mode in measured
                  if bool(np.min(np.asarray(mode.frame.curvature)) > curvature.FLAT_CURVATURE)]
    return Modes(known, [proposal_about(m)[0] for m in modes], float(peak.value), outcome)


def _modes_of_regression(problem: Problem) -> Modes | None:
    """The mode where MAP uses Newton's method, whose Hessian is known: for very many rows that of a
    sample of them. None: it does not, or finds no mode, or there may be several and so few rows
    that all are searched at once."""
    plan, known = problem.plan, problem.known
    multimodal = not is_affine_in_rows(plan) and begin.evaluated_at_once(plan, problem.rows)
    if (not newton_pays(plan) or begin.hyperparameters(plan) or multimodal
            or problem.size <= ROWS_FOR_MAP * density.unbounded_size(plan)):
        return None
    fitted = MAP().maximize_posterior(problem)
    optimum = fitted.state.optimum
    if fitted.status is not Status.CONVERGED or optimum is None or fitted.warned:
        return None
    log_density, gradient, extra = _volume_terms(plan, known, optimum.point)
    root = whitened(optimum.hessian + extra, curvature.MIN_CURVATURE[np.dtype(optimum.point.dtype)])
    if root is None:
        return None
    step = root.T @ (root @ -gradient)  # from the mode of the parameters' own density
    outcome = Outcome({}, fitted.history, Status.APPROXIMATED, fitted.iterations,
                      state=State(stopped_by_rounding=fitted.state.stopped_by_rounding))
    return Modes(known, [proposal(np.asarray(optimum.point, float) + step, root.T)],
                   float(fitted.history[-1]) + log_density, outcome)


def _no_mode(mode: Mode) -> Finding | None:
    """Why the end of the optimisation is no mode with a curvature; None: it is one."""
    lowest = float(np.min(np.asarray(mode.frame.curvature), initial=np.inf))
    if bool(mode.converged) and lowest > 0 and np.isfinite(lowest):
        return None
    reason = ("at the end of the optimisation the matrix of second derivatives is not positive "
              "definite" if bool(mode.converged)
              else "the optimisation did not converge")
    return Finding.of(Code.NO_MODE, problem=reason)


def _posterior_outcome(problem: Problem, known: Known, sample: Weighted, draws: int,
               outcome: Outcome) -> Outcome:
    """The outcome of weighted draws that represent the posterior."""
    plan = problem.plan
    u = sample.resampled(max(draws, len(sample.weights)), problem.seed)[None]
    values = jax.device_get(constrained(plan, known, u.astype(jnp.result_type(float))))
    quality = {"ess": round(sample.effective, 1), "k_hat": sample.k}
    post = with_states(plan, Draws(values, None, {}, worth=quality), known, problem.rows,
                       problem.seed)
    params = mean({name: post.values[name] for name in (*plan.free, *plan.effects)})
    passed = Finding.of(Code.WEIGHTS_PASS, k=max(sample.k, 0.0), draws=len(sample.weights),
                        effective=sample.effective)
    return _with_evidence(outcome, plan, sample)._replace(
        params=params, status=Status.WEIGHTED, findings=(passed, *outcome.findings), posterior=post)


def _with_evidence(outcome: Outcome, plan: Plan, sample: Weighted) -> Outcome:
    """With the log evidence, estimated from the weights, if all priors are proper and no hidden
    states are exchangeable."""
    flat = any(plan.structure.sites[name].entry.improper for name in plan.free)
    return outcome if flat or hidden_variables(plan) else outcome._replace(
        log_evidence=sample.log_evidence, evidence_error=sample.error)


def _posterior_points(plan: Plan, known: Known, sample: Weighted,
                      mode: Component) -> dict[str, np.ndarray]:
    """Points in the posterior: the mode, and the draw with the largest weight."""
    points = np.stack([mode.centre, sample.points[np.argmax(sample.weights)]])
    values = constrained(plan, known, points[None].astype(jnp.result_type(float)))
    return {name: np.asarray(value)[0] for name, value in values.items()}


def _normal(mode: Component) -> Normal:
    dtype = jnp.result_type(float)
    return Normal(mode.centre.astype(dtype), np.zeros(len(mode.centre), dtype),
                  mode.root.astype(dtype))


def _normal_outcome(problem: Problem, known: Known, mode: Component, sample: Weighted | None,
                  why: Finding | None, outcome: Outcome) -> Outcome:
    """The outcome of the normal distribution at the mode; `why` it does not represent the
    posterior, or None."""
    plan, seed, normal = problem.plan, problem.seed, _normal(mode)
    params = jax.device_get(constrained(plan, known, normal.loc))
    post = complete_normal(plan, normal, known, problem.rows, seed)
    if known.centring and post is normal:
        drawn = normal.draw(plan, known, 1000, seed)
        post = Draws({name: np.asarray(value)[None] for name, value in drawn.items()}, None, {})
    if why is not None:
        is_final = problem.asked or importance.numbers(known, problem.rows) > MAX_SAMPLED
        return outcome.noting(why)._replace(params=params, posterior=post).with_state(
            rejection=None if is_final else why,
            posterior_points=None if is_final or sample is None else _posterior_points(
                plan, known, sample, mode))
    note = Finding.of(Code.NORMAL_UNTESTED)
    if sample is not None:
        outcome = _with_evidence(outcome._replace(status=Status.WEIGHTED), plan, sample)
        note = Finding.of(Code.NORMAL_COMPARED, count=len(sample.weights))
    return outcome._replace(params=params, posterior=post, findings=(note, *outcome.findings))


def _volume_terms(plan: Plan, known: Known, u: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The difference of the log density of unbounded coordinates and MAP's objective at u, the
    gradient of its negative, and its Hessian by differences. It passes over no rows."""
    steps = np.finfo(u.dtype).eps ** (1 / 3) * (1 + np.abs(u))
    points = np.concatenate([u[None], u + np.diag(steps)]).astype(steps.dtype)
    values, gradients = map(np.asarray, _log_volumes(plan, points, known))
    gradient, *shifted = -gradients.astype(float)
    hessian = (np.array(shifted) - gradient) / steps[:, None]
    return float(values[0]), gradient, 0.5 * (hessian + hessian.T)


@jit(static_argnums=0, seldom=ONCE, on_host=True)
def _log_volumes(plan: Plan, points: jax.Array, known: Known):
    """log |∂ parameters / ∂ u| and, for priors that are maximised in other coordinates (a Gamma of
    shape below 1), the difference of both, at each u; and its gradient."""
    def total(u: jax.Array):
        params, volume = density.from_unbounded(plan, u, known)
        prior_change = log_prior(plan, params, known) - log_prior(plan, params, known, mode=True)
        return jnp.asarray(volume + prior_change, u.dtype)

    return jax.vmap(jax.value_and_grad(total))(points)


def _parameter_values(plan: Plan, known: Known, points: np.ndarray) -> np.ndarray:
    """Parameters in their own coordinates, (n, p), at points (n, d)."""
    values = jax.device_get(constrained(plan, known, points.astype(jnp.result_type(float))))
    return np.concatenate([np.asarray(values[name], float).reshape(len(points), -1)
                           for name in plan.free], 1)


def _entries(plan: Plan) -> list[str]:
    """The names of the columns of `_parameter_values`."""
    return [f"{name}[{', '.join(map(str, index))}]" if index else name for name in plan.free
            for index in np.ndindex(plan.structure.sites[name].shape)]


def _weights_finding(sample: Weighted, entries: list[str]) -> Finding:
    """Why weighted draws do not represent the posterior."""
    limit = k_limit(len(sample.weights))
    if sample.k <= limit and sample.unreliable_entry >= 0:
        return Finding.of(Code.LONG_TAIL, entries[sample.unreliable_entry], k=sample.variance_k)
    if sample.k > limit:
        return Finding.of(Code.K_HAT, k=sample.k, limit=limit)
    return Finding.of(Code.FEW_EFFECTIVE, draws=len(sample.weights),
                      effective=sample.effective_by_k)
