"""MAP: the mode of the posterior, latent discrete sites summed out, by Newton's method, L-BFGS or
any optax optimiser."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import numpy as np

from probml.engines.em import EM
from probml.engines.engine import (
    Capabilities,
    Engine,
    Outcome,
    Problem,
    Status,
    check_batch,
    check_settings,
)
from probml.engines.findings import Code, Finding
from probml.engines.optimization import training
from probml.engines.optimization.boundary import (
    boundary_finding,
    collapsed_scales,
    equal_entries,
    find_boundaries,
    narrow_scales,
    next_to_zero,
    propose_larger_gaps,
    propose_larger_scale,
)
from probml.engines.optimization.convergence import check_identifiability
from probml.engines.optimization.maximization import (
    OptimizerSettings,
    has_coefficient_blocks,
    maximize_by_block_lbfgs,
    maximize_by_lbfgs,
    maximize_by_newton,
    newton_pays,
)
from probml.engines.optimization.search import (
    Maximize,
    Proposal,
    at_prior_draw,
    find_first_optimum,
    improve,
    is_higher,
    is_work_small,
    propose_other_optima,
)
from probml.engines.start.labelling import check_distinct
from probml.engines.start.prior import compiled_prior_point, given_start, refuse_missing_prior
from probml.engines.start.start import first_points, states_depend_on_start
from probml.errors import ModelError, Refusal
from probml.numerics.optimum import hides_differences
from probml.numerics.process.libraries import optax
from probml.numerics.transfer import placed_all
from probml.plan import hierarchy, random_effects

# optimisations from the start on, if a start decides which hidden state is which; of a named MAP()
# only for a small problem
STARTS = 4
MIN_FURTHER_STEPS = 50  # iterations of an optimisation from another start, at least
MAX_HIDDEN_GAIN = 0.005  # of log density: a tenth of a standard deviation from the maximum
EM_STEPS = 50  # of EM, from which an optimisation that ended at no residual variance is repeated


@dataclass(frozen=True)
class MAP(Engine):
    """The mode of the posterior (MAP), each parameter in its own coordinate (no Jacobian of a
    transform). Normal random effects are integrated out, and have a normal posterior given the
    mode.

    Without an optimizer the model decides: a smooth regression of few coefficients without latent
    variables takes damped Newton steps (for very many rows, BFGS preconditioned by the curvature of
    a sample of them); one with a set of coefficients for each class, as softmax regression,
    preconditioned L-BFGS; everything else L-BFGS.

    `Fit.warnings` says where parameters are not identified, and, for few parameters and rows, where
    an optimisation from another start ended at another maximum; the higher one is returned.

    Args:
        optimizer: any optax GradientTransformation; None = Newton or L-BFGS.
        steps: iterations at the most; by default 1000, of an optax optimiser 2000.
        batch_rows: rows of a mini-batch a step (optax only), drawn without replacement, every epoch
            in a new order; None = all rows, or the subsample_size of the plate that is the rows.
        prior: maximise log posterior (True) or log likelihood (False).
        tolerance: Newton and L-BFGS stop when an iteration gains less than this of the objective,
            relative to its size.
        held_out: the share of the rows that is held out for validation (optax only):
            `Fit.held_out` has their mean log evidence at every entry of `history`, and the
            parameters with the highest are returned. For rows that are read in partitions it is
            approximate, and validation is one more pass.
        patience: stop after so many entries without a better one; None = never.
        progress: show a progress bar at once; else it comes after five seconds, in a terminal or a
            notebook.
        nodes: of the adaptive quadrature that integrates random effects of counts or binary
            outcomes out, where there is one scalar effect for each group; 1 is Laplace's
            approximation (lme4's nAGQ=1), which is used in any case for several effects or
            groupings. None: 25.
        restricted: integrate the fixed effects out too, under flat priors, so that standard
            deviations are those of restricted maximum likelihood (REML, with prior=False); fixed
            effects are what enters means of normal rows linearly, such as intercepts and slopes.

    Raises:
        ModelError: no optax optimiser; batch_rows, held_out without one; batches larger than the
            data. Refusal: `restricted` of what is not affine and normal.

    Cost: one value and gradient of the evidence of all rows (or of a batch) a step; a Hessian of d
        coefficients costs about d / 10. Where rows enter by statistics or squares alone, one or
        two passes over them in all.

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
        >>> fit = lengths().fit(data, probml.MAP())
        >>> round(float(fit.params["mean"]), 2), fit.converged
        (1.36, True)
    """

    optimizer: "optax.GradientTransformation | None" = None
    steps: int | None = None
    batch_rows: int | None = None
    prior: bool = True
    tolerance: float = 1e-14
    held_out: float = 0.0
    patience: int | None = None
    progress: bool = False
    nodes: int | None = None
    restricted: bool = False

    def __post_init__(self):
        check_settings(self, positive=("steps", "batch_rows", "patience", "nodes"),
                       nonnegative=("tolerance",))
        if (isinstance(self.held_out, bool) or not isinstance(self.held_out, int | float)
            or not 0 <= self.held_out < 1):
            raise ModelError(f"MAP(held_out={self.held_out!r}): expected a fraction of the rows, "
                             f"at least 0 and below 1, such as 0.1")
        for name in ("batch_rows", "held_out"):
            if getattr(self, name) and self.optimizer is None:
                raise ModelError(f"MAP({name}=...) needs an optimiser that reads batches of rows, "
                                 "because the default one (L-BFGS) uses all rows in every step. "
                                 "Give one, such as optimizer=optax.adam(1e-2)")
        if self.patience is not None and not self.held_out:
            raise ModelError(f"MAP(patience={self.patience!r}) stops when the score of held-out "
                             f"rows no longer improves, but no rows are held out. Give their "
                             f"fraction, such as MAP(patience={self.patience!r}, held_out=0.1, "
                             f"optimizer=optax.adam(1e-2))")

    @property
    def capabilities(self) -> Capabilities:
        # batches and held-out rows are not all rows: sufficient statistics of all rows do not
        # serve, and effects of groups, which batches share, are not integrated out
        all_rows = not (self.batch_rows or self.held_out)
        return Capabilities(
            "point", "possible", uses_prior=self.prior, integrates=all_rows, approximates=True,
            restricts=self.restricted and all_rows, quadrature=self.nodes, statistics=all_rows,
            squares=all_rows, batch=self.batch_rows, held_out_fraction=self.held_out,
            batches=self.optimizer is not None and not self.batch_rows)

    def refuse(self, problem: Problem) -> None:
        if self.restricted:
            self._refuse_restricted(problem)
        check_batch(self, problem)
        check_distinct(problem.data, problem.plan)
        refuse_missing_prior(problem.plan, "MAP", self.prior)

    def reason_to_skip(self, problem: Problem) -> str:
        return "" if problem.point_wanted else ("MAP gives only a point estimate, and other "
                                                "engines give a posterior")

    def _refuse_restricted(self, problem: Problem) -> None:
        plan = problem.plan
        centres = random_effects.centres(plan)
        if centres or not any(grouping.flat for grouping in plan.groupings):
            why = (f"the prior of the effects depends on '{centres[0]}', a coefficient that cannot "
                   f"be integrated out with the others. Give the effects the mean 0 and add the "
                   f"mean inside rows(), `mean + effect[group]`, or omit restricted=True"
                   if centres else
                   "the model has no coefficient, over which restricted=True (REML) integrates "
                   "together with the random effects. A coefficient is an unbounded parameter that "
                   "enters the mean of a normal distribution linearly. Omit restricted=True")
            raise Refusal(f"MAP(restricted=True) cannot fit {problem}: {why}")

    def describe_method(self, problem: Problem) -> str:
        """The method by which the objective would be maximised, where there is a choice."""
        if not (problem.plan.rowwise and problem.plan.free):
            return ""
        if self.optimizer is not None:
            return "by the optimiser"
        return "by Newton's steps" if newton_pays(problem.plan) else "by L-BFGS"

    def run(self, problem: Problem) -> Outcome:
        outcome = self._maximize_and_diagnose(problem)
        optimum = outcome.state.optimum
        hidden = optimum is not None and hides_differences(outcome.history[-1]) and not (
            optimum.subsampled or optimum.predicted_gain <= MAX_HIDDEN_GAIN)
        return outcome.with_state(optimum=None,
                                  stopped_by_rounding=outcome.state.stopped_by_rounding or hidden)

    def _maximize_and_diagnose(self, problem: Problem) -> Outcome:
        plan, outcome = problem.plan, self.maximize_posterior(problem)
        has_loops = hierarchy.integrates_loops(plan)
        start_params = {**jax.device_get(compiled_prior_point(plan, problem.known)),
                        **problem.start} if has_loops or hierarchy.degenerate_modes(plan) else {}
        collapsed = hierarchy.find_collapsed_scales(plan, start_params, outcome.params)
        if has_loops and not collapsed:
            outcome = outcome.noting(*(
                boundary_finding(name, "0")
                for name in next_to_zero(problem, start_params, outcome.params)))
        collapsed = collapsed or collapsed_scales(problem, outcome.params)[:1]
        outcome = outcome.noting(*equal_entries(problem, outcome.params))
        if collapsed:
            return outcome._replace(status=Status.DIVERGED).noting(
                *(Finding.of(Code.SCALE_TO_ZERO, name) for name in collapsed))
        if self.optimizer:
            return outcome
        outcome = find_boundaries(problem, self.prior, outcome)
        if problem.asked or not problem.point_wanted:
            return outcome
        return outcome.noting(Finding.of(Code.POINT, reason=problem.point_wanted))

    def maximize_posterior(self, problem: Problem) -> Outcome:
        """The optimum, before diagnostics."""
        plan, rows, known, start = problem.plan, problem.rows, problem.known, problem.start

        lbfgs = functools.partial(maximize_by_lbfgs, self._settings, problem)
        if self.optimizer is None and newton_pays(plan):
            origin = compiled_prior_point(plan, known) | given_start(plan, start)

            def newton(params: Mapping[str, jax.Array]):
                best = maximize_by_newton(self._settings, problem, params)
                if best.status is not Status.MAX_ITERATIONS or self.steps is not None:
                    return best
                return lbfgs(placed_all(dict(best.params)))

            best = improve(find_first_optimum(problem, self.prior, newton, lbfgs, origin),
                           [propose_larger_gaps(problem, self.prior, newton)])
            return improve(check_identifiability(self._settings, problem, best),
                           propose_other_optima(problem, self.prior, origin, newton))
        multistart = self.optimizer is None and states_depend_on_start(plan, start) and (
            not problem.asked or is_work_small(problem))
        params, *other_starts = first_points(problem, self.prior, STARTS if multistart else 1)
        if self.optimizer is not None:
            _, gradient = training.objective(
                plan, self.prior, training.to_coordinates(plan, params, known), known, rows)
            flat = [name for name in plan.free if name not in start and not np.any(gradient[name])]
            return training.run(self, problem, at_prior_draw(problem, params, flat))

        method = (functools.partial(maximize_by_block_lbfgs, self._settings, problem)
                  if has_coefficient_blocks(problem) else lbfgs)
        best = find_first_optimum(problem, self.prior, method, lbfgs, params)
        best = improve(best, [propose_larger_scale(problem, self.prior, lbfgs),
                              self._propose_em(problem, lbfgs),
                              propose_larger_gaps(problem, self.prior, lbfgs)])
        best = improve(best, [self._propose_other_labels(problem, best, other_starts)])
        limited = self._limited(best)
        return improve(check_identifiability(self._settings, problem, best), propose_other_optima(
            problem, self.prior, params,
            lambda params: maximize_by_lbfgs(limited, problem, params, False)))

    def _propose_other_labels(self, problem: Problem, best: Outcome, starts: list) -> Proposal:
        """Other labellings of hidden states; an optimisation that is lower after as many steps as
        the first took is stopped."""
        limited = self._limited(best)

        def maximize_briefly(params: Mapping) -> Outcome:
            other = maximize_by_lbfgs(limited, problem, params, False)
            if other.status is Status.MAX_ITERATIONS and is_higher(other, best):
                other = maximize_by_lbfgs(self._settings, problem,
                                          placed_all(dict(other.params))).after(other)
            return other

        return Proposal("other hidden states of the rows", lambda _: starts, maximize_briefly)

    @property
    def _settings(self) -> OptimizerSettings:
        return OptimizerSettings(self.prior, self.progress, self.steps, self.tolerance)

    def _limited(self, best: Outcome) -> OptimizerSettings:
        """Settings for an optimisation from another start: about as many steps as the first, unless
        the user set a limit."""
        return self._settings._replace(
            steps=self.steps or max(MIN_FURTHER_STEPS, best.iterations))

    def _propose_em(self, problem: Problem, lbfgs: Maximize) -> Proposal:
        """The result of some steps of EM, if a column has no residual variance given its latent
        variables: L-BFGS may go there from far away, past other maxima."""
        plan = problem.plan

        def points(outcome: Outcome) -> list[Mapping]:
            point = {name: np.asarray(outcome.params[name]) for name in plan.free}
            if not any(scale.residual for scale in narrow_scales(plan, problem.known, point)):
                return []
            engine = EM(prior=self.prior, restarts=1, max_iterations=EM_STEPS)
            try:
                engine.refuse(replace(problem, asked=False))
            except Refusal:
                return []
            em_outcome = engine.run(problem)
            return [] if em_outcome.status is Status.COLLAPSED else [placed_all({
                name: np.asarray(em_outcome.params[name]) for name in plan.free})]

        applies = plan.latents and not plan.groupings and not problem.start and all(
            group.kind.exact for group in plan.latents)
        return Proposal("the result of some iterations of EM", points, lambda params: improve(
            lbfgs(params), [propose_larger_scale(problem, self.prior, lbfgs)]), int(bool(applies)))
