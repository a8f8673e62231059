"""NUTS: NumPyro's sampler on the posterior density, discrete sites summed out, in coordinates
whitened by the curvature at the mode."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import jax
import numpy as np

from probml.device.rows import Known
from probml.engines.engine import (
    Capabilities,
    Outcome,
    Problem,
    Status,
    check_settings,
)
from probml.engines.findings import Code, Finding
from probml.engines.progress import Progress
from probml.engines.sampling import latents
from probml.engines.sampling.chains import Chains, Limit, Run, Settings, Verdict, diagnose_chains
from probml.engines.sampling.latents import with_states
from probml.engines.start import begin
from probml.engines.start.labelling import check_distinct
from probml.engines.start.modes import Mode, distinct_optima
from probml.engines.start.prior import drawn_prior
from probml.errors import ModelError, Refusal, listed
from probml.evidence import density, row_coordinates
from probml.language import given
from probml.numerics.curvature import MAX_DENSE_COORDINATES, Frame, Starts
from probml.numerics.transfer import placed
from probml.plan import hierarchy
from probml.plan.sufficient_statistics import squared
from probml.posteriors import diagnostics
from probml.posteriors import posterior as beliefs
from probml.posteriors.diagnostics import HIGH_R_HAT
from probml.posteriors.posterior import Draws, unconstrained
from probml.posteriors.relabelling import exchanges, relabelled

COMPARED = 32  # draws of the normal distribution at the mode, at which the density is compared
# Standard deviation of the differences of both log densities: above the first the coordinates are
# not whitened, below the second correlations are used everywhere.
MAX_DIFFERENCE, SMALL_DIFFERENCE = 10.0, 1.0
CAREFUL_TARGETS = (0.95, 0.99)  # acceptance probabilities of repeated runs
MAX_LOWER = 7.0  # log mass by which another mode may be lower: 0.1%
# standard deviations of all draws, beyond which the mean of a chain is elsewhere
MAX_CHAIN_MEAN_SDS = 4.0
MAX_GRADIENTS = 6  # of all runs together, relative to the first
BRIEF = 300  # iterations of warm-up, and draws, for each of many data sets, at most
METHODS = (None, "parallel", "vectorized", "sequential")

Measure = Callable[[np.ndarray], Mode]  # coordinates (d,) → the density and its curvature there


@dataclass(frozen=True)
class NUTS(latents.LatentSampler):
    """The no-U-turn sampler (Hoffman & Gelman 2014; NumPyro's, with its step-size and mass
    adaptation), of the parameters, and of continuous latent variables of rows that have no closed
    form.

    Discrete latent variables are summed out, continuous ones of rows integrated out where
    `integrate` says so, and all are drawn exactly given each draw when they are asked for. Chains
    start about the modes that were found (EM's where something is latent), in coordinates in which
    the curvature there is that of a standard normal.

    Args:
        draws: for each chain.
        warmup: iterations a chain before them, in which step size and masses are learnt; another
            number compiles anew.
        chains: independent runs; R-hat needs two.
        target_accept: the acceptance probability that the step size is tuned to; nearer to 1 is
            slower and more careful.
        max_tree_depth: at most 2^depth − 1 gradients an iteration.
        integrate: which continuous latent variables of rows are integrated out, and drawn given
            each draw of the rest: "exact", those in closed form; "all", also those by quadrature or
            Laplace's approximation; "none". The others are sampled, standardised by their prior
            where it is a location and a scale.
        relabel: give exchangeable hidden states the same numbers in all draws.
        chain_method: "parallel" (a thread a chain; the choice on a CPU), "vectorized" (one program;
            on a GPU, and over several devices that hold few rows each) or "sequential" (where
            devices share the rows).
        progress: show a progress bar at once; else it comes after five seconds, in a terminal or a
            notebook.
        retries: how often the chains are run again where draws diverge, chains do not agree,
            effective draws are few or E-BFMI is low: from where they are, with a new warm-up, with
            target_accept 0.95, then 0.99, or with more iterations, which are thinned evenly to
            `draws`. All runs together take at most six times the gradients of the first. `status`
            says what was done, and whether it helped. 0: never.
        seconds: no iteration begins so many seconds after the run began, compiling included;
            what was drawn by then is returned. None: no limit. With a limit that is reached, draws
            depend on the speed of the machine.

    Raises:
        ModelError: a setting out of range. Refusal: rows that are read in partitions, which
            each gradient would read again.

    Cost: 2^depth evidences and gradients an iteration; memory of the draws and of one gradient a
        chain. Where rows enter by statistics or squares alone, one or two passes over them in all.

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
        >>> fit = lengths().fit(data, probml.NUTS(draws=300, warmup=300, chains=2, progress=False))
        >>> round(float(fit.params["mean"]), 1)
        1.4
        >>> fit.draws(100)["sd"].shape
        (100,)
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
    retries: int = 2
    seconds: float | None = None

    def __post_init__(self):
        check_settings(self, positive=("draws", "chains", "max_tree_depth", "seconds"),
                       nonnegative=("warmup", "retries"))
        if not (isinstance(self.target_accept, int | float) and 0 < self.target_accept < 1):
            raise ModelError(f"NUTS(target_accept={self.target_accept!r}): expected a probability "
                             f"between 0 and 1, such as 0.9")
        given.check_word(self.chain_method, METHODS, "NUTS(chain_method)")
        given.check_word(self.integrate, latents.INTEGRATE, "NUTS(integrate)")

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(integrates=self.integrate != "none",
                            approximates=self.integrate == "all", statistics=True, squares=True)

    def runs(self, problem: Problem) -> int:
        return self.chains

    def refuse(self, problem: Problem) -> None:
        """Raises Refusal for rows in partitions without sufficient statistics."""
        if problem.in_parts and not (problem.plan.additive or squared(problem.plan)):
            raise Refusal(f"NUTS cannot fit {problem}: the data are read in batches, and each of "
                          f"thousands of gradient evaluations would read all rows again. Pass a "
                          f"sample of the rows in memory", ("EM", "MAP", "Laplace"))
        check_distinct(problem.data, problem.plan)

    def for_simulations(self) -> tuple["NUTS", str]:
        """One short chain for each data set, with all latent variables integrated out that can be.
        """
        short = replace(self, chains=1, warmup=min(self.warmup, BRIEF), integrate="all",
                        draws=min(self.draws, BRIEF), relabel=False, progress=False, retries=0)
        return short, f"one chain of {short.warmup} + {short.draws} iterations"

    def run(self, problem: Problem) -> Outcome:
        deadline = np.inf if self.seconds is None else time.monotonic() + self.seconds
        with Progress("NUTS", (self.warmup + self.draws) * self.chains, self.progress) as bar:
            return self._run(bar, problem, deadline)

    def _run(self, bar: Progress, problem: Problem, deadline: float) -> Outcome:
        plan, rows, seed = problem.plan, problem.rows, problem.seed
        latents.check(problem, "NUTS", self.draws * self.chains)
        known, mode, measure = self._start(problem)
        mode = jax.device_get(mode)
        starts = starts_of_chains(problem, known, mode, self.chains, measure)
        frame = choose_frame(mode)
        chains = Chains(plan, frame, known, rows, Settings(self.warmup, self.max_tree_depth),
                        self.chains, self.draws, self.chain_method)
        run = chains.run(bar, chains.begin(starts, seed), self.target_accept, self.draws,
                         Limit(deadline))
        run, drawn, verdict, notes = self._repeat_if_needed(bar, chains, run, Limit(deadline))
        findings = [*verdict.findings, *notes]
        if run.iterations < self.warmup + self.draws:
            past_warmup = run.iterations > self.warmup
            findings.append(Finding.of(
                Code.TIME_LIMIT if past_warmup else Code.TIME_LIMIT_WARMUP, seconds=self.seconds,
                draws=run.z.shape[1], asked=self.draws))
        draws = with_states(plan, drawn, known, rows, seed)
        if drawn.inside:
            draws = draws._replace(inside=latents.unloaded(problem, drawn.inside))
        history = np.concatenate([mode.history[np.isfinite(mode.history)],
                                  drawn.stats["log_density"].mean(0)])
        return Outcome(
            beliefs.mean({n: draws.values[n] for n in (*plan.free, *plan.effects)}), history,
            Status.DOUBTFUL if any(f.warns and f.code is not Code.DRAWS_TAIL for f in findings)
            else Status.SAMPLED, self.draws, tuple(findings), posterior=draws
        )

    def _repeat_if_needed(self, bar: Progress, chains: Chains, run: Run, limit: Limit) -> tuple[
            Run, Draws, Verdict, list[Finding]]:
        """The last complete run of the first and of those that its diagnostics call for, its draws,
        its diagnostics, and findings on what was done."""
        target, thin, last_r_hat, notes = self.target_accept, 1, np.inf, list[Finding]()
        budget = MAX_GRADIENTS * run.gradients
        drawn, verdict = self._read(chains, run, target)
        for _ in range(self.retries):
            budget -= run.gradients
            no_progress = verdict.r_hat > HIGH_R_HAT and verdict.r_hat - 1 > 0.5 * (last_r_hat - 1)
            if no_progress or not (verdict.needs_smaller_steps or verdict.needs_more_draws):
                break  # chains do not come nearer to one another: more draws do not help
            raised = min((at for at in CAREFUL_TARGETS if at > target
                          and verdict.needs_smaller_steps),
                         default=target)
            max_thin = min((budget * run.iterations / run.gradients - self.warmup) / self.draws,
                           latents.MAX_VALUES / run.z[:, : self.draws].size)
            new_thin = min(2 * thin if verdict.needs_more_draws or raised == target else thin,
                           int(max_thin))
            if new_thin < 1 or (raised, new_thin) <= (target, thin):
                break
            at, moves = self._continued_chains(run, verdict)
            total = (self.warmup + new_thin * self.draws) * self.chains
            with Progress(f"NUTS again, target_accept={raised:g}", total, self.progress) as inner:
                new_run = chains.run(inner, chains.restarted(run.states, at), raised,
                                     new_thin * self.draws, limit._replace(gradients=budget))
            why = ", ".join(finding.code.value for finding in verdict.findings if finding.warns)
            if new_run.iterations < self.warmup + self.draws:
                notes.append(Finding.of(Code.AGAIN_STOPPED, why=why))
                break
            if verdict.r_hat > HIGH_R_HAT and has_left_mode(run.z[np.unique(at)], new_run.z):
                notes.append(Finding.of(Code.AGAIN_LEFT, why=why))
                break
            changes = [f"target_accept={raised:g}"] * (raised > target) + (
                [f"{new_thin} times the iterations"] * (new_thin > thin))
            notes += [Finding.of(Code.SAMPLED_AGAIN, how=" and ".join(changes), why=why), *moves]
            last_r_hat, target, thin, run = verdict.r_hat, raised, new_thin, new_run
            drawn, verdict = self._read(chains, run, target)
        return run, drawn, verdict, notes

    def _continued_chains(self, run: Run, verdict: Verdict) -> tuple[np.ndarray, list[Finding]]:
        """The chain from whose end each chain continues: another one if it has stayed where there
        is hardly any posterior mass; and a finding on these."""
        indices = np.arange(self.chains)
        if not verdict.r_hat > HIGH_R_HAT:
            return indices, []
        mass = diagnostics.log_mass(run.z, run.stats["log_density"])
        is_stranded = mass < mass.max() - MAX_LOWER
        return np.where(is_stranded, np.argmax(mass), indices), [
            Finding.of(Code.CHAINS_MOVED, count=is_stranded.sum())] * bool(is_stranded.any())

    def _read(self, chains: Chains, run: Run, target: float) -> tuple[Draws, Verdict]:
        """The draws of a run that are kept, with exchangeable hidden states renumbered, and its
        diagnostics."""
        plan, known, rows = chains.plan, chains.known, chains.rows
        u = chains.frame.points(thinned({"z": run.z}, self.draws)["z"])
        values = jax.device_get(beliefs.constrained(plan, known,
                                                    u[..., : density.unbounded_size(plan)]))
        inside, final, renumbered = {}, rows, []
        if plan.sampled:
            inside = latents.drawn(plan, known, rows, u)
            final = row_coordinates.with_values(plan, rows,
                                                {n: placed(v[0, -1]) for n, v in inside.items()})
        if self.relabel:
            # exchangeability is tested by the density at any draw
            swaps = exchanges(plan, {name: value[0, -1] for name, value in values.items()}, known,
                              final)
            values, n_moved = relabelled(swaps, values)
            renumbered = [Finding.of(Code.RELABELLED, count=n_moved, names=listed(
                exchange.site for exchange in swaps))] * bool(n_moved)
        verdict = diagnose_chains(values, run.z, run.stats, target, self.max_tree_depth)
        return (Draws(values, None, thinned(run.stats, self.draws), inside),
                verdict._replace(findings=[*verdict.findings, *renumbered]))

    def _start(self, problem: Problem) -> tuple[Known, Mode, Measure]:
        """The mode where chains start, and a function that measures the curvature elsewhere; not at
        the end of an optimisation that found no mode, as at a scale of 0, which no chain would
        leave."""
        found = self._near_mode(problem)
        begun = found[1]
        if (problem.plan.sampled or problem.mode_is_atypical or bool(begun.converged)
            or np.isfinite(difference_from_normal(begun))):
            return found
        return self._near_mode(replace(problem, mode_is_atypical=True))

    def _near_mode(self, problem: Problem) -> tuple[Known, Mode, Measure]:
        plan, rows = problem.plan, problem.rows
        # standard normal numbers for the starts of chains
        normals = np.random.default_rng([problem.seed, 7]).standard_normal(
            (max(self.chains, COMPARED), begin.size(plan, rows)))
        incidental = problem.mode_is_atypical or any(
            tie.kind == "incidental" for tie in hierarchy.degenerate_modes(plan, problem.size))
        # an optimisation would end at the joint mode
        steps = 0 if incidental and not plan.sampled else begin.MAX_STEPS
        fixed = () if plan.sampled else begin.hyperparameters(plan)
        known, mode, others = begin.find_start_mode(problem, "NUTS", normals, fixed=fixed,
                                                    steps=steps)
        fixed = () if known.centring else fixed
        return known, mode, lambda u: begin.measure_mode(plan, fixed, placed(u), known, rows,
                                                         normals, others, 0)


def has_left_mode(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether draws (chains, iterations, d) are far from an earlier chain, as when a chain has left
    one of two modes during warm-up."""
    all_draws = after.reshape(-1, after.shape[-1])
    distance = np.abs(before.mean(1) - all_draws.mean(0)) / np.maximum(all_draws.std(0), 1e-30)
    return bool((distance > MAX_CHAIN_MEAN_SDS).any())


def thinned(drawn: Mapping[str, np.ndarray], draws: int) -> dict[str, np.ndarray]:
    """`draws` draws of each chain, evenly spaced; a draw counts as divergent if one of those that
    it replaces is."""
    stride = max(len(next(iter(drawn.values()))[0]) // draws, 1)
    if stride == 1:
        return {name: value[:, :draws] for name, value in drawn.items()}
    result = {name: value[:, stride - 1 : stride * draws : stride] for name, value in drawn.items()}
    if "diverging" in drawn:
        diverging = drawn["diverging"][:, : stride * draws]
        result["diverging"] = np.asarray(diverging.reshape(len(diverging), draws, stride).any(2))
    return result


def choose_frame(mode: Mode) -> Frame:
    """The coordinates of the sampler: whitened by the curvature at the mode if the density is about
    normal there; else one unit for each coordinate."""
    diff = difference_from_normal(mode)
    if not diff < MAX_DIFFERENCE:
        units = mode.frame.diagonal()
        is_valid = (units.root > 0) & np.isfinite(units.root)
        return units._replace(root=np.where(is_valid, units.root, 1.0)).square()
    small = len(mode.frame.centre) <= MAX_DENSE_COORDINATES  # for which a matrix costs nothing
    return (mode.frame if small and diff < SMALL_DIFFERENCE else mode.frame.uncoupled()).square()


def difference_from_normal(mode: Mode) -> float:
    """The standard deviation of the difference of the log density and that of the normal
    distribution at the mode, over draws of the latter; infinite if there is none."""
    frame, starts = jax.device_get((mode.frame, mode.starts))
    if frame.root.ndim == 1:
        return 0.0
    if not (np.all(frame.curvature > 0) and np.isfinite(frame.root).all()
            and np.isfinite(starts.value).all()):
        return np.inf
    z = np.linalg.solve(frame.root, (starts.u - frame.centre).T)
    return float(np.std(starts.value + 0.5 * (z**2).sum(0)))


# Where chains start: about a mode, at other modes with a share of the posterior mass, and at draws
# of the prior if no mode was found. Chains that start at one place agree whatever other modes there
# are; so some start elsewhere.


def starts_of_chains(problem: Problem, known: Known, begun: Mode, chains: int,
                     measure: Measure) -> Starts:
    """The starts of chains: at least half about the first point, the others about other modes and
    the points that the engine before found in the posterior, or about draws of the prior if the
    first point is no mode."""
    elsewhere = other_modes(begun, measure) + _given_points(problem, known, begun)
    if not (elsewhere or bool(begun.converged)):
        elsewhere = _prior_places(problem, known, begun.frame.centre.size)
    out = Starts(*(np.array(part[:chains]) for part in begun.starts))
    for chain, u in zip(range(chains - 1, 0, -1), elsewhere[: chains // 2], strict=False):
        there = jax.device_get(measure(u).starts)
        for part, found in zip(out, there, strict=True):
            part[chain] = found[chain]
    return out


def other_modes(begun: Mode, measure: Measure) -> list[np.ndarray]:
    """Other optima with a share of the posterior mass, (d,) each, the largest first."""
    if begun.optima is None or not bool(begun.converged):
        return []
    found = [(_log_mass(jax.device_get(measure(u))), u)
             for u in (np.asarray(begun.optima.u[i]) for i in distinct_optima(begun))]
    most = max([_log_mass(begun), *(mass for mass, _ in found)])
    return [u for mass, u in sorted(found, key=lambda each: -each[0]) if mass > most - MAX_LOWER]


def _given_points(problem: Problem, known: Known, begun: Mode) -> list[np.ndarray]:
    """Unbounded coordinates, (d,), of the points that the engine before found in the posterior."""
    seen = problem.posterior_points
    if not seen or problem.plan.sampled or not set(problem.plan.free) <= set(seen):
        return []
    plan = problem.plan
    points = [unconstrained(plan, {name: seen[name][i] for name in plan.free}, known)
              for i in range(len(next(iter(seen.values()))))]
    return [np.asarray(u) for u in points if u.size == begun.frame.centre.size
            and np.isfinite(u).all()]


def _log_mass(begun: Mode) -> float:
    """The log mass of the normal distribution at a mode: its log density and log volume."""
    root = np.asarray(begun.frame.root, float)
    volume = np.log(np.abs(root)).sum() if root.ndim == 1 else np.linalg.slogdet(root)[1]
    return float(begun.value) + float(volume)


def _prior_places(problem: Problem, known: Known, size: int) -> list[np.ndarray]:
    """Draws of the prior, (size,) in unbounded coordinates, with standard normal numbers for
    coordinates of rows; none if the user gave a start, or a prior cannot be drawn from."""
    plan = problem.plan
    if problem.start or any(plan.structure.sites[name].entry.improper for name in plan.free):
        return []
    drawn = drawn_prior(plan, known, begin.PRIOR_STARTS, problem.seed)
    if drawn is None:
        return []
    rest = np.random.default_rng([problem.seed, 13]).standard_normal(
        (begin.PRIOR_STARTS, size - drawn.shape[1]))
    return list(np.concatenate([drawn, rest], 1).astype(drawn.dtype))
