"""What an engine (an inference method) is: frozen settings with a method that fits a model.

An engine is one file: a frozen dataclass derived from `Engine`, with `run(problem) -> Outcome` and,
if it cannot fit every model, `refuse(problem)`. This file has all that other code asks of an
engine, with defaults; no code asks which engine it is.

    @dataclass(frozen=True)
    class Mine(Engine):
        steps: int = 100

        def refuse(self, problem: Problem) -> None:
            if problem.plan.globals:
                raise Refusal(f"Mine cannot fit {problem}: site '{problem.plan.globals[0]}' ...")

        def run(self, problem: Problem) -> Outcome:
            with Progress("Mine", self.steps, False) as bar:        # progress.py
                status = iterate(bar, self.steps, step)
            return Outcome(params, history, status, len(history) - 1)

The status of a fit, as numbers that saved fits contain, and in words.
"""

import enum
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from probml.dataset.dataset import Data
from probml.device.rows import Known, Rows
from probml.engines.findings import Code, Finding
from probml.errors import ModelError, Refusal, counted, listed, meant, shortly
from probml.language.language import Bound
from probml.numerics.optimum import Optimum
from probml.plan import random_effects
from probml.plan.plan import Plan
from probml.posteriors.posterior import Point, Posterior
from probml.typing import PyTree, SiteValues


class Status(enum.IntEnum):
    """How a fit ended; where it did not converge, a finding says why."""

    RUNNING = 0
    CONVERGED = 1
    MAX_ITERATIONS = 2
    FELL = 3  # the objective decreased
    COLLAPSED = 4  # a scale went to 0, or the objective is not finite
    EXACT = 5  # the exact posterior
    KNOWN = 6  # parameters were given
    STALLED = 7  # no step increases the objective, but its gradient is not 0
    SAMPLED = 8
    DOUBTFUL = 9  # sampled, with a diagnostic that failed
    APPROXIMATED = 10  # an approximate posterior
    DIVERGED = 11  # there is no maximum: parameters diverge
    EARLY = 12  # early stopping by held-out rows
    # the objective of an optax optimiser no longer rises, but fluctuates
    FLUCTUATING = 13
    STOPPED = 14  # a restart that was stopped because others were far ahead
    UPDATED = 15  # updated with further rows
    SLOW = 16  # steps gain less than the tolerance far from the maximum
    LIMIT = 17  # there is no maximum: a positive number grows, to a limiting model
    WEIGHTED = 18  # Laplace's approximation with importance weights

    @property
    def headline(self) -> str:
        """The status in a few words."""
        return HEADLINES.get(self, "Not converged")

    @property
    def code(self) -> Code | None:
        """The code of the finding that this status is by itself; None: none, or findings of the fit
        say more."""
        return CODES.get(self)


HEADLINES = {
    Status.RUNNING: "Still running",
    Status.CONVERGED: "Converged",
    Status.COLLAPSED: "Collapsed: a standard deviation (scale) went to 0, or the objective was not "
                      "finite",
    Status.EXACT: "Exact posterior",
    Status.KNOWN: "Parameters were given by the user; nothing was fitted",
    Status.SAMPLED: "Sampled",
    Status.DOUBTFUL: "Sampled, but the draws are not yet reliable",
    Status.APPROXIMATED: "Approximate posterior",
    Status.EARLY: "Stopped early (held_out=): the log density of the held-out rows no longer "
                  "improved; the best estimates are returned",
    Status.STOPPED: "Stopped: other starts had a much higher objective",
    Status.UPDATED: "Updated with further rows, by one step of EM for each batch",
    Status.WEIGHTED: "Posterior by Laplace's approximation",
}
CODES = {
    Status.MAX_ITERATIONS: Code.MAX_ITERATIONS,
    Status.FELL: Code.OBJECTIVE_FELL,
    Status.STALLED: Code.NO_ASCENT,
    Status.FLUCTUATING: Code.STEPS_TOO_LARGE,
}

NOT_LOADED: Any = None  # a field of a problem that is not there yet, or has been released
MAX_DEFAULT_POSTERIOR = 512  # parameters; with more, a fit without an engine finds a point


class State(NamedTuple):
    """What further steps of a fit need of an outcome.

    Args:
        collapsed_restarts: number of restarts that collapsed, if most did.
        imprecise_squares, imprecise_smoothing: float32 has too few digits for squares of pooled
            columns, or for smoothed variances, see factors/digits.py.
        stopped_by_rounding: rounding hid further gains before the parameters converged.
        remaining_gain: log density that further steps would gain, as predicted from the last; 0:
            the parameters have converged.
        model: that was fitted, if the engine chose settings of it.
        statistics: expected sufficient statistics of all rows, to which further rows are added.
        optimum: the end of a maximisation, for diagnostics.
        rejection: why the answer is not reliable, so that the next engine is tried; None: it is the
            answer.
        posterior_points: for that engine, see `Problem.posterior_points`.
    """

    collapsed_restarts: int = 0
    imprecise_squares: bool = False
    imprecise_smoothing: bool = False
    stopped_by_rounding: bool = False
    remaining_gain: float = 0.0
    model: Bound | None = None
    statistics: PyTree = None
    optimum: Optimum | None = None
    rejection: Finding | None = None
    posterior_points: Mapping[str, np.ndarray] | None = None


class Outcome(NamedTuple):
    """The result of an engine: what a user may want to know and, in `state`, what further steps of
    the fit need.

    Args:
        params: every free parameter at one point, in its own coordinate: a mode, or a mean.
        history: (iterations + 1,) the objective, at the start and after each iteration.
        status, iterations: how it ended, and after how many iterations.
        findings: diagnostics of the result.
        posterior: a closed form, draws, a normal distribution; by default the point itself.
        log_evidence: log p(data), exact or estimated. evidence_error: the standard error of such an
            estimate; None: it is exact.
        bound: a lower bound on the log evidence, if that is what was maximised.
        held_out: mean log evidence of the held-out rows, at every entry of history.
        state: for further steps of the fit.
    """

    params: dict[str, ArrayLike]
    history: np.ndarray
    status: Status
    iterations: int
    findings: tuple[Finding, ...] = ()
    posterior: Posterior = Point()
    log_evidence: float | None = None
    held_out: np.ndarray | None = None
    bound: float | None = None
    evidence_error: float | None = None
    state: State = State()

    @property
    def warned(self) -> bool:
        """Whether some finding is a warning."""
        return any(finding.warns for finding in self.findings)

    def noting(self, *findings: Finding | None) -> "Outcome":
        """With further findings; None is skipped."""
        return self._replace(findings=(*self.findings, *(f for f in findings if f is not None)))

    def with_state(self, **changes: Any) -> "Outcome":
        """With some fields of its state replaced."""
        return self._replace(state=self.state._replace(**changes))

    def after(self, before: "Outcome") -> "Outcome":
        """With the history and iterations of an earlier outcome, from which this one continued."""
        return self._replace(history=np.concatenate([before.history, self.history[1:]]),
                             iterations=before.iterations + self.iterations)


@dataclass(frozen=True, eq=False)
class Problem:
    """Data, their plan, and the user's choices; the same for every engine.

    Args:
        data: on the host; None if only sufficient statistics are left, as when fits are merged.
        plan: what is summed out, pooled, evaluated by row; its `free` parameters are estimated.
        rows: on the device, in chunks; or their sufficient statistics, if these are enough for the
            plan and the engine. None while an engine is only asked whether it refuses.
        known: what all rows share: given values outside rows, means and standard deviations of
            columns.
        weights: (n,) of the rows; None: 1 each.
        seed: of every random choice.
        start: parameter → its initial value, checked; for some parameters or none.
        asked: the user named the engine; False: it is tried in the engine selection order.
        mode_is_atypical: the joint mode is not typical of the posterior, as the engine before
            found: begin elsewhere.
        posterior_points: parameter → (k, *shape), values that the engine before found in the
            posterior.
    """

    data: Data
    plan: Plan
    rows: Rows = NOT_LOADED
    known: Known = NOT_LOADED
    weights: np.ndarray | None = None
    seed: int = 0
    start: SiteValues = field(default_factory=dict)
    asked: bool = True
    mode_is_atypical: bool = False
    posterior_points: Mapping[str, np.ndarray] | None = None

    @property
    def size(self) -> int:
        """The number of rows; None if there are no data."""
        return None if self.data is None else self.data.size

    @property
    def in_parts(self) -> bool:
        """Whether rows are read in parts: each pass over them reads their source again."""
        survey = None if self.data is None else self.data.survey
        return survey is not None and not survey.in_memory

    @property
    def point_wanted(self) -> str:
        """Why a fit without a named engine finds a point and no posterior; "": it finds a
        posterior."""
        plan, model = self.plan, self.plan.structure.model
        size = sum(int(np.prod(plan.structure.sites[name].shape)) for name in plan.free)
        generative = getattr(model, "generative", None)
        param_sites = getattr(generative, "params", {})
        # missing values have no prior of their own, and no maximum is their answer
        flat = plan.free and not getattr(generative, "unknown", {}) and all(
            plan.structure.sites[name].entry.improper for name in plan.free)
        reasons = (
            (size > MAX_DEFAULT_POSTERIOR,
             f"the model has {size} parameters, more than the limit of {MAX_DEFAULT_POSTERIOR}"),
            (self.in_parts, "the data are read in batches"),
            (model.batch is not None,
             "the model reads its rows in batches (a plate with subsample_size)"),
            (not param_sites.keys().isdisjoint(plan.free),
             "the model has numpyro.param parameters, which are optimised"),
            (flat, "all priors are flat, as in maximum likelihood"),
        )
        return next((reason for applies, reason in reasons if applies), "")

    def __str__(self) -> str:
        return f"model '{self.plan.structure.model.name}'"


# settings of other libraries → the same setting here, for error messages
ELSEWHERE = {
    "tune": "warmup", "num_warmup": "warmup", "iter_warmup": "warmup", "samples": "draws",
    "num_samples": "draws", "iter_sampling": "draws", "num_chains": "chains",
    "cores": "chain_method, threads by default", "progress_bar": "progress",
    "progressbar": "progress", "n_init": "restarts", "max_iter": "max_iterations",
    "tol": "tolerance", "num_steps": "steps", "n_iter": "steps, or max_iterations",
    "learning_rate": "optimizer=optax.adam(rate)", "lr": "optimizer=optax.adam(rate)",
    "seed": "fit(data, engine, seed=)", "random_seed": "fit(data, engine, seed=)",
    "random_state": "fit(data, engine, seed=)", "rng_key": "fit(data, engine, seed=)",
    "init": "fit(data, engine, start=)", "initvals": "fit(data, engine, start=)",
}


@dataclass(frozen=True)
class Capabilities:
    """What an engine finds, which plans it can fit, and what it needs of the rows.

    Attributes:
        finds: a point, or a posterior that can be drawn from.
        offered: what `explain` says if it can fit the model.
        uses_prior: whether the objective includes the log prior.
        integrates: it fits plans in which effects of groups are integrated out. approximates: also
            if the integral is approximate. restricts: coefficients are integrated out too, under
            flat priors (REML).
        quadrature: nodes of a quadrature over effects; None: the default number.
        statistics: it needs only sufficient statistics of the rows if the plan is additive: then
            `rows` is a Summary, and fits can be merged.
        squares: it would pass over the rows many times and needs only sums of squares and products
            for row-wise sites that are Normal with affine means, in a Summary.
        batch: rows of the random batches that it uses; None: all rows at once.
        batches: its setting `batch_rows` is not set, and random batches would be possible.
        restarts: it has a setting `restarts`, of which one is enough with a complete start.
        held_out_fraction: the share of the rows that is held out for validation.
        incremental_update: how expected statistics of further rows update the fit, an
            IncrementalUpdate of restarting/batches.py; None: they do not.
        sizes: it has `grid(problem, site, sizes, structures)`, which fits several numbers of states
            of a hidden site in one program, see EM, and `narrowed`, which brings each result to the
            shapes of its own model; `structures` are those of these models.
    """

    finds: Literal["point", "posterior"] = "posterior"
    offered: str = "possible, on request"
    uses_prior: bool = True
    integrates: bool = False
    approximates: bool = False
    restricts: bool = False
    quadrature: int | None = None
    statistics: bool = False
    squares: bool = False
    batch: int | None = None
    batches: bool = False
    restarts: bool = False
    held_out_fraction: float = 0.0
    incremental_update: Any = None
    sizes: bool = False

    @property
    def uses_all_rows(self) -> bool:
        """Whether the objective sums over all rows and never picks rows by number: rows may then be
        reordered, or repeated with weight 0 (device/layout.py)."""
        return self.batch is None and not self.held_out_fraction


class Engine(ABC):
    """An inference method and its settings: a frozen, hashable value, independent of the model.

    An engine has `run`; if it cannot fit every model, `refuse`; if it finds or needs something else
    than the default, `capabilities`.
    """

    def __new__(cls, *args: Any, **settings: object) -> "Engine":
        params = inspect.signature(cls.__init__).parameters
        takes_any = any(param.kind is param.VAR_KEYWORD for param in params.values())
        unknown = next((name for name in settings if name not in params and not takes_any), None)
        if unknown is not None:
            known = [name for name in params if name != "self"]
            raise TypeError(f"{cls.__name__}({unknown}=...): {cls.__name__} has no such setting; "
                            f"its settings are {listed(known)}{meant(unknown, known, ELSEWHERE)}")
        return super().__new__(cls)

    @property
    def capabilities(self) -> Capabilities:
        """What it finds, which plans it can fit and what it needs of the rows."""
        return Capabilities()

    def refuse(self, problem: Problem) -> None:
        """Raises Refusal if the engine cannot fit the model, before data are moved or compiled.

        Raises:
            Refusal: with the site, the reason, and what to type instead.
        """
        return None

    def reason_to_skip(self, problem: Problem) -> str:
        """Why `fit` without a named engine does not try it, though it could fit the model; "": it
        does."""
        return ""

    def defers(self, problem: Problem) -> bool:
        """Whether the engine after it in the selection order is tried first."""
        return False

    def prepare_data(self, data: Data) -> Data:
        """The data as the engine uses them: with values for the latent variables of rows that it
        samples itself (Data.carrying). The plan of a Problem is made from these.

        Raises:
            Refusal: there is a latent variable that it would have to sample, and cannot.
        """
        return data

    @abstractmethod
    def run(self, problem: Problem) -> Outcome:
        """Fits the model; the rows are on the device.

        Raises:
            Refusal: for reasons that only the data show.
        """

    def copies(self, problem: Problem) -> int:
        """The number of parameter values at which rows are evaluated at once: chunks are smaller
        then."""
        return 1

    def runs_per_program(self, problem: Problem, runs: int) -> int:
        """How many of so many parallel runs one program evaluates at once."""
        return runs

    def runs(self, problem: Problem) -> int:
        """The number of parallel runs (restarts, chains); devices are divided over runs rather than
        over rows if there are few rows."""
        return 1

    def describe_method(self, problem: Problem) -> str:
        """The method that would be used, for `explain`; "" if there is nothing to choose."""
        return ""

    def for_simulations(self) -> tuple["Engine", str]:
        """The engine as it is run on hundreds of simulated data sets, and what is different then,
        in words."""
        return self, ""


def problem_of(engine: Engine, data: Data, asked: bool = True) -> Problem:
    """The problem of fitting data with an engine, without rows: enough for it to refuse.

    Raises:
        Refusal: there is no plan for the data.
    """
    data = engine.prepare_data(data)
    return Problem(data, planned(data, engine if asked else None), asked=asked)


def refusal(engine: Engine, data: Data, asked: bool = True) -> Refusal | None:
    """The refusal of data by an engine; None: it can fit them."""
    try:
        engine.refuse(problem_of(engine, data, asked))
    except Refusal as why:
        return why
    return None


def planned(data: Data, engine: Engine | None = None, lenient: bool = False) -> Plan:
    """The plan of data for an engine, or for the engine selection order: effects of groups, which
    have no joint mode with their standard deviation, are integrated out if the integral is exact,
    or accurate enough for the engine; not if a sampler moves latent variables of rows.

    Args:
        lenient: see Data.plan.
    """
    plan = data.plan(lenient=lenient)
    if plan.sampled or engine is not None and not engine.capabilities.integrates:
        return plan
    capabilities = Capabilities(approximates=True) if engine is None else engine.capabilities
    # without a prior that of effects is part of the likelihood: it alone determines their scale
    names = random_effects.effects(plan, data.table.rows, not capabilities.approximates,
                            capabilities.restricts or not capabilities.uses_prior)
    nodes = capabilities.quadrature
    if capabilities.restricts:
        flat = random_effects.coefficients(plan, names)
        return data.plan(effects=(*names, *flat), lenient=lenient, flat=flat, nodes=nodes)
    return data.plan(effects=names, lenient=lenient, nodes=nodes) if names else plan


def short_name(engine: str) -> str:
    """The name of an engine in messages, from its repr: MAP(), without its settings."""
    name, settings, _ = engine.partition("(")
    return "at()" if name == "known" else name + "()" * bool(settings)


def checked(engine: object, verb: str = "") -> Engine:
    """The engine that a user gave to the method `verb`.

    Raises:
        ModelError: it is no engine, but a class or something else, or it cannot be hashed.
    """
    argument = f"engine={shortly(engine)}"
    call = f"{verb}({argument})" if verb else argument
    if not isinstance(engine, Engine):
        remedy = ", without quotes" * isinstance(engine, str)
        if isinstance(engine, type) and issubclass(engine, Engine):
            remedy = f". Call the class, {engine.__name__}()"
        elif hasattr(engine, "shape"):
            remedy = ". Give all observations as one mapping, fit({'x': x, 'y': y})"
        raise ModelError(f"{call} is not an engine. Expected an engine, such as probml.EM(), "
                         f"probml.Exact() or probml.NUTS(), or None{remedy}")
    try:
        hash(engine)
    except TypeError as error:
        raise ModelError(f"{call}: the settings of an engine must be hashable, that is, "
                         f"unchangeable values ({error}). Make the class of the engine a "
                         "@dataclass(frozen=True), and use tuples instead of lists and "
                         "arrays") from None
    return engine


def check_batch(engine: Engine, problem: Problem) -> None:
    """Raises ModelError if batches are larger than the data."""
    rows, batch = problem.size, engine.capabilities.batch
    if batch is not None and rows is not None and batch > rows:
        raise ModelError(f"{type(engine).__name__}(batch_rows={batch}) cannot fit {problem}: the "
                         f"data have only {counted(rows, 'row')}. Give a smaller batch_rows, or "
                         "omit it")


def check_settings(engine: Any, positive: Sequence[str] = (),
                   nonnegative: Sequence[str] = ()) -> None:
    """Raises ModelError for settings out of range: fields that are annotated as floats may be any
    finite numbers, others are integers; an optimizer is one of optax."""
    floats = {spec.name for spec in fields(engine) if "float" in str(spec.type)}
    for name in (*positive, *nonnegative):
        value, strict = getattr(engine, name), name in positive
        if value is None:
            continue
        if (isinstance(value, bool) or not isinstance(value, int | float | np.number)
            or not 0 <= value < math.inf or value == 0 and strict
            or name not in floats and value != int(value)):
            kind = ("an integer of at least 1" if strict else "an integer of at least 0") if (
                name not in floats) else "a number above 0" if strict else "a number of at least 0"
            raise ModelError(f"{type(engine).__name__}({name}={shortly(value)}): expected {kind}")
    if (optim := getattr(engine, "optimizer", None)) is not None and not hasattr(optim, "update"):
        raise ModelError(f"{type(engine).__name__}(optimizer={shortly(optim)}): expected an optax "
                         f"optimiser such as optax.adam(1e-2), or None")
