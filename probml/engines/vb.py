"""VB: mean-field variational Bayes, a distribution for every conjugate block and the bound of the
evidence."""

from dataclasses import dataclass, replace

import jax
import numpy as np

from probml.device.rows import Known, Summary
from probml.engines.conjugate import sweep
from probml.engines.conjugate.sweep import Run, add_means, initial_posteriors, run_restarts
from probml.engines.em import EM
from probml.engines.engine import (
    Capabilities,
    Engine,
    Outcome,
    Problem,
    State,
    Status,
    check_settings,
)
from probml.engines.exact import refuse_without_conjugacy
from probml.engines.findings import Code, Finding
from probml.engines.restarting import batches
from probml.engines.restarting.restarts import index_of_best, outcome_of_best
from probml.engines.sampling.reliance import check_block_approximation
from probml.engines.start.labelling import hidden_variables
from probml.engines.start.race import MAX_PILOT_EVALUATIONS, SAME_OPTIMUM, Race
from probml.engines.start.start import Start, check_distinct, starts, states_depend_on_start
from probml.errors import Refusal
from probml.plan.plan import Plan
from probml.posteriors.closed import Closed

FEW_ROWS = 2000  # up to which the approximation is always compared with the posterior
# evidences of more rows for that comparison, relative to the iterations of all starts
COMPARISON_SHARE = 0.5
MAX_SIZES = 8  # numbers of states with which restarts begin


@dataclass(frozen=True)
class VB(Engine):
    """Variational Bayes by message passing (Attias 1999; Winn & Bishop 2005): q(z) Π_b q(θ_b)
    nearest to the posterior of latent variables and parameters, each q(θ_b) the conjugate
    distribution of a block of parameters, as in the closed M-steps of EM. Discrete latent variables
    of a row are summed out and continuous ones integrated out (factors, effects, rates), at log
    densities averaged over q(θ).

    The bound E[log p(x, z, θ)] − E[log q] never falls; `Fit.bound` has it, below log p(x) by the
    divergence of q from the posterior. Only one labelling of k exchangeable states is found, to
    which log k! of the divergence is due.

    A sparse prior of weights (a Dirichlet of concentration 1/k or below, StickBreaking) empties the
    states that the data do not ask for.

    Args:
        max_iterations: of E- and M-steps, at the most.
        tolerance: stop when an iteration gains less than this of the bound per unit of total
            weight.
        restarts: random starts in one program; the best is returned. None: as EM chooses; those
            that are far behind after some iterations are stopped.
        batch_rows: stochastic variational inference (Hoffman et al. 2013): q(θ) moves after every
            batch of so many rows, in another order each pass; an iteration is a pass, after which
            the bound of all rows is in `history`, and may fall a little. For data of which only
            a few passes are affordable.
        progress: show a progress bar at once; else it comes after five seconds, in a terminal or a
            notebook.

    `Fit.warnings` says where the posterior has heavier tails than q(θ) (PSIS k-hat and reweighted
    standard deviations, Yao et al. 2018), as with correlated parameters; for more than 2,000 rows
    where 200 evidences cost at most half of the iterations, and not with batches.

    Raises:
        Refusal: a block without a conjugate update; continuous latent variables along time, or
            that only Laplace's approximation integrates; discrete latent variables outside rows.

    Cost: an iteration is one of EM; small tables, and rows with continuous latent variables, are
        evaluated at two more values for each block, with d joint coefficients at d + 1; for
        `warnings` 200 to 400 evidences.

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
        >>> fit = mixture(k=2).fit({"x": [-4.1, -3.9, -4.0, 3.8, 4.2]}, probml.VB())
        >>> print(jnp.sort(fit.params["mean"]).round(0))
        [-4.  4.]
    """

    max_iterations: int = 1000
    tolerance: float = 1e-8
    restarts: int | None = None
    batch_rows: int | None = None
    progress: bool = False

    def __post_init__(self):
        check_settings(self, positive=("max_iterations", "restarts", "batch_rows"),
                       nonnegative=("tolerance",))

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(statistics=True, batch=self.batch_rows, restarts=True,
                            incremental_update=sweep.MeanField())

    def copies(self, problem: Problem) -> int:
        """As many as asked, or as EM would make."""
        return EM(restarts=self.restarts).starts(problem.data, problem.plan, problem.start)

    def refuse(self, problem: Problem) -> None:
        """Raises Refusal, with the site and the reason, if some block is not conjugate or a latent
        variable has no finite number of states."""
        plan, where = problem.plan, f"VB cannot fit {problem}"
        sites = plan.structure.sites
        if self.batch_rows is not None:
            batches.refuse(self, problem, "SVI(batch_rows=...)")
        check_distinct(problem.data, plan)
        if plan.globals:
            raise Refusal(f"{where}: site '{plan.globals[0]}' is discrete, latent (not in the "
                          "data) and outside rows(), which VB does not support", ("EM", "NUTS"))
        near = next((group for group in plan.latents if group.cellwise
                     or not group.kind.averages), None)
        if near is not None:
            raise Refusal(f"{where}: site '{near.name}' ({sites[near.name].kind}) is latent inside "
                          f"rows() and {near.kind.description}. VB does not support such a site",
                          ("EM", "NUTS"))
        moving = next((name for name in plan.chains if name in plan.rowwise), None)
        if moving is not None:
            raise Refusal(f"{where}: the transition probabilities of '{moving}' "
                          f"({sites[moving].kind}) differ between rows or steps, which VB does not "
                          "support", ("SVI", "EM"))
        refuse_without_conjugacy(plan, where, ("SVI", "EM"))

    def run(self, problem: Problem) -> Outcome:
        # sufficient statistics alone have no batches
        if self.batch_rows is not None and not isinstance(problem.rows, Summary):
            return self._run_batches(problem)
        return self._run_restarts(problem)

    def _run_batches(self, problem: Problem) -> Outcome:
        """Passes over the rows in batches, starting from a few iterations on a sample."""
        brief = replace(self, batch_rows=None, max_iterations=MAX_PILOT_EVALUATIONS, progress=False)
        params = batches.first_point(problem, brief, int(self.batch_rows or 0))
        first = Start({name: value[None] for name, value in params.items()}, None, {})
        start = initial_posteriors(problem.plan, first, problem.known, problem.rows)
        closed, history, status, statistics = batches.run_passes(
            self, problem, jax.tree.map(lambda leaf: leaf[0], start.closed))
        found = jax.device_get(add_means(problem.plan, closed, problem.known))
        kind = Finding.of(Code.BATCHES, kind="stochastic", rows=self.batch_rows)
        return Outcome(found.mean, history, status, len(history) - 1, (kind,), found,
                       bound=float(np.nanmax(history)), state=State(statistics=statistics))

    def _run_restarts(self, problem: Problem) -> Outcome:
        plan, rows, known = problem.plan, problem.rows, problem.known
        count = self.copies(problem)
        several = states_depend_on_start(plan, problem.start)
        states = _starting_states(plan, count) if several else {}
        first = starts(problem.data, plan, known, problem.weights, count, problem.seed,
                       problem.start, True, whole=True, allowed=states)._replace(drawn=None)
        race = Race(np.zeros(count, int)) if self.restarts is None else None
        run, trail = run_restarts(plan, initial_posteriors(plan, first, known, rows), known, rows,
                                  race, self.max_iterations, self.tolerance * rows.weight,
                                  self.progress)
        found = _best(plan, run, trail, known, SAME_OPTIMUM * rows.weight)
        if found.status is Status.COLLAPSED:
            return found
        few = isinstance(rows, Summary) or (problem.size or 0) <= FEW_ROWS
        worth = np.inf if few else COMPARISON_SHARE * float(np.asarray(run.count).sum())
        return found.noting(check_block_approximation(problem, _closed(found), worth))


def _starting_states(plan: Plan, restarts: int) -> dict[str, np.ndarray]:
    """Variable → (restarts, states) bool, the states with which a restart begins: every other
    restart with few of many. States become empty one by one, and slowly: if few are needed, a start
    with few is nearer to the optimum."""
    out = {}
    for name in hidden_variables(plan) if restarts > 1 and not plan.rowwise else ():
        states = plan.variables[name].states
        if states > 2:
            sizes = np.full(restarts, states)
            sizes[1::2] = np.resize(np.unique(np.geomspace(2, states, MAX_SIZES).astype(int))[:-1],
                                    restarts // 2)
            out[name] = np.arange(states) < sizes[:, None]
    return out


def _best(plan: Plan, run: Run, trail: np.ndarray, known: Known, close: float) -> Outcome:
    """The outcome of the restart with the highest bound, with a finding about the others."""
    best = index_of_best(run)
    closed = jax.tree.map(lambda leaf: leaf[best], run.closed)
    found = jax.device_get(add_means(plan, closed, known))
    return outcome_of_best(run, trail[best], close, best)._replace(
        params=found.mean, posterior=found, bound=float(run.value[best]))


def _closed(outcome: Outcome) -> Closed:
    assert isinstance(outcome.posterior, Closed)
    return outcome.posterior
