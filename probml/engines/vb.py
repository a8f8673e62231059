"""VB: mean-field variational Bayes, a distribution for every conjugate block and the bound of the
evidence.

Several numbers of states are fitted at once as restarts of the largest model in which the states
beyond a size are impossible. An impossible state has no rows, and its parameters stay at their
prior, which changes the bound by nothing. The probabilities of states are those of a smaller table:
E log π of a Dirichlet is ψ(a_j) − ψ(Σ a) with a = 0 for impossible states, and the concentration is
that of the smaller model. So the bound and q(θ) are those of the smaller model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from probml.dataset.dataset import Data
from probml.device.rows import Known, Summary
from probml.engines.conjugate import sweep
from probml.engines.conjugate.sweep import Run, add_means, initial_posteriors, run_restarts
from probml.engines.em import EM
from probml.engines.engine import (
    Capabilities,
    Engine,
    Outcome,
    Problem,
    Status,
    check_settings,
)
from probml.engines.exact import refuse_without_conjugacy
from probml.engines.restarting import batches
from probml.engines.restarting.restarts import first_states, index_of_best, outcome_of_best
from probml.engines.sampling.reliance import check_block_approximation
from probml.engines.start.labelling import check_distinct, hidden_variables
from probml.engines.start.race import SAME_OPTIMUM, Race
from probml.engines.start.start import Start, starts, states_depend_on_start
from probml.errors import Refusal, present
from probml.numerics.compiling import jit
from probml.numerics.process.making import unchecked
from probml.plan.blocks import all_blocks
from probml.plan.plan import Plan
from probml.posteriors.closed import Closed
from probml.structure.structure import Structure

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
                            incremental_update=sweep.MeanField(), sizes=True)

    def copies(self, problem: Problem) -> int:
        return self.starts(problem.data, problem.plan, problem.start)

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
        cellwise = next((group for group in plan.latents if group.cellwise
                         or not group.kind.averages), None)
        if cellwise is not None:
            raise Refusal(f"{where}: site '{cellwise.name}' ({sites[cellwise.name].kind}) is "
                          f"latent inside rows() and {cellwise.kind.description}. VB does not "
                          "support such a site", ("EM", "NUTS"))
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

    def starts(self, data: Data | None, plan: Plan, start: Mapping, programs: int = 1) -> int:
        """The number of starts: as asked, or as many as EM would make."""
        return EM(restarts=self.restarts).starts(data, plan, start, programs)

    def grid(self, problem: Problem, site: str, sizes: Sequence[int],
             structures: Sequence[Structure]) -> list[Outcome]:
        """For each size the best of its restarts, in one program, see _concentrations."""
        plan, rows, known = problem.plan, problem.rows, problem.known
        by_size = _concentrations(problem, structures)
        count = self.starts(problem.data, plan, {}, len(sizes))
        groups = np.repeat(np.arange(len(sizes)), count)
        allowed = np.arange(plan.variables[site].states) < np.asarray(sizes)[groups][:, None]
        start = _starting_states(plan, count).get(site, np.ones((count, allowed.shape[1]), bool))
        # all states of a size that has no more
        start = np.tile(start, (len(sizes), 1)) & allowed
        fields = {"allowed": {site: allowed},
                  "concentration": {name: np.stack([priors[name] for priors in by_size])[groups]
                                    for name in by_size[0]}}
        init = starts(problem.data, plan, known, problem.weights, len(groups), problem.seed,
                      {}, True, whole=True, allowed={site: start})._replace(drawn=None)
        race = Race(groups) if self.restarts is None else Race(groups, keep=count)
        run, bounds = run_restarts(plan, initial_posteriors(plan, init, known, rows, fields), known,
                          rows, fields,
                          race, self.max_iterations, self.tolerance * rows.weight,
                          self.progress)
        run = jax.tree.map(np.asarray, run)
        return [_best(plan, jax.tree.map(lambda leaf, at=groups == i: leaf[at], run),
                      bounds[groups == i], known, SAME_OPTIMUM * rows.weight)
                for i in range(len(sizes))]

    def narrowed(self, plan: Plan, structure: Structure, outcome: Outcome) -> Outcome:
        """An outcome of `grid` in the shapes of its own model, of `structure`."""
        return first_states(structure, outcome)._replace(
            posterior=_of_size(plan, structure, _closed(outcome)))

    def _run_batches(self, problem: Problem) -> Outcome:
        """Passes over the rows in batches, starting from a few iterations on a sample."""
        params = batches.first_point(problem, self)
        init = Start({name: value[None] for name, value in params.items()}, None, {})
        start = initial_posteriors(problem.plan, init, problem.known, problem.rows, {})
        outcome = batches.run_passes(self, problem, jax.tree.map(lambda leaf: leaf[0],
                                                                 start.closed), "stochastic")
        return outcome._replace(bound=float(np.nanmax(outcome.history)))

    def _run_restarts(self, problem: Problem) -> Outcome:
        plan, rows, known = problem.plan, problem.rows, problem.known
        count = self.copies(problem)
        has_states = states_depend_on_start(plan, problem.start)
        states = _starting_states(plan, count) if has_states else {}
        init = starts(problem.data, plan, known, problem.weights, count, problem.seed,
                      problem.start, True, whole=True, allowed=states)._replace(drawn=None)
        race = Race(np.zeros(count, int)) if self.restarts is None else None
        run, bounds = run_restarts(plan, initial_posteriors(plan, init, known, rows, {}), known,
                                   rows, {}, race, self.max_iterations,
                                   self.tolerance * rows.weight, self.progress)
        outcome = _best(plan, run, bounds, known, SAME_OPTIMUM * rows.weight)
        if outcome.status is Status.COLLAPSED:
            return outcome
        few_rows = isinstance(rows, Summary) or (problem.size or 0) <= FEW_ROWS
        max_draws = np.inf if few_rows else COMPARISON_SHARE * float(np.asarray(run.count).sum())
        return outcome.noting(check_block_approximation(problem, _closed(outcome), max_draws))


def _starting_states(plan: Plan, restarts: int) -> dict[str, np.ndarray]:
    """Variable → (restarts, states) bool, the states with which a restart begins: every other
    restart with few of many. States become empty one by one, and slowly: if few are needed, a start
    with few is nearer to the optimum."""
    allowed = {}
    for name in hidden_variables(plan) if restarts > 1 and not plan.rowwise else ():
        states = plan.variables[name].states
        if states > 2:
            sizes = np.full(restarts, states)
            sizes[1::2] = np.resize(np.unique(np.geomspace(2, states, MAX_SIZES).astype(int))[:-1],
                                    restarts // 2)
            allowed[name] = np.arange(states) < sizes[:, None]
    return allowed


def _best(plan: Plan, run: Run, bounds: np.ndarray, known: Known, slack: float) -> Outcome:
    """The outcome of the restart with the highest bound, with a finding about the others."""
    best = index_of_best(run)
    closed = jax.tree.map(lambda leaf: leaf[best], run.closed)
    posterior = jax.device_get(add_means(plan, closed, known))
    return outcome_of_best(run, bounds[best], slack, best)._replace(
        params=posterior.mean, posterior=posterior, bound=float(run.value[best]))


def _closed(outcome: Outcome) -> Closed:
    assert isinstance(outcome.posterior, Closed)
    return outcome.posterior


def _concentrations(problem: Problem,
                    structures: Sequence[Structure]) -> list[dict[str, np.ndarray]]:
    """The concentrations of the tables that have fewer states in smaller models: for each size,
    parameter → concentration in the largest model's shape.

    Raises:
        Refusal: a parameter with other axes of states than those of plates and of Dirichlets.
    """
    plan = problem.plan
    sites, varying = plan.structure.sites, []
    independent = {name: not block.stacked for block in all_blocks(plan, True)
                   for name in block.names}
    for name in plan.free:
        site = sites[name]
        if all(structure.sites[name].shape == site.shape for structure in structures):
            continue
        same_event = all(structure.sites[name].event == site.event for structure in structures)
        if not same_event and site.entry.prior is not None and independent[name]:
            varying.append(name)
        elif not (same_event and independent[name]):
            raise _refusal(problem, name)
    padded = jax.device_get(_widened_priors(tuple(structures), tuple(varying),
                                            tuple(sites[name].shape for name in varying),
                                            problem.known.given))
    if missing := next((name for name in varying if padded[0][name] is None), None):
        raise _refusal(problem, missing)
    return padded


def _refusal(problem: Problem, name: str) -> Refusal:
    return Refusal(f"VB cannot fit {problem} for several numbers of states at once, because the "
                   f"entries of parameter '{name}' ({problem.plan.structure.sites[name].kind}) for "
                   f"different states are not independent. Fit each number of states separately")


@jit(static_argnums=(0, 1, 2))
def _widened_priors(structures: tuple[Structure, ...], names: tuple[str, ...],
                    shapes: tuple[tuple[int, ...], ...], given: Mapping) -> list[dict]:
    """The arguments of the named priors of each structure, padded to the shapes of the largest
    one."""
    with unchecked():
        return [{name: present(structure.sites[name].entry.prior).widened(
                     structure.distribution(name, given), structure.sites[name].shape, shape)
                 for name, shape in zip(names, shapes, strict=True)} for structure in structures]


def _of_size(plan: Plan, structure: Structure, closed: Closed) -> Closed:
    """q(θ) of a size, without the impossible states."""
    blockset = all_blocks(plan, True)

    def part(name: str, leaf: np.ndarray) -> np.ndarray:
        """Axes of a leaf are those of its parameter; a covariance has the last one twice."""
        shape, small_shape = plan.structure.sites[name].shape, structure.sites[name].shape
        if not shape:
            return leaf
        axes = [min(i, len(shape) - 1) for i in range(leaf.ndim)]
        return leaf[tuple(slice(small_shape[j] if n == shape[j] else n)
                          for j, n in zip(axes, leaf.shape, strict=True))]

    natural = tuple(values if block.stacked else {key: part(block.names[0], np.asarray(leaf))
                                                  for key, leaf in values.items()}
                    for block, values in zip(blockset, closed.natural, strict=True))
    params, mean = ({name: part(name, np.asarray(value)) for name, value in point.items()}
                    for point in (closed.params, closed.mean))
    return Closed(natural, params, mean)
