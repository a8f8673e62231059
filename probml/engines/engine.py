"""What an engine is: frozen settings that say why they cannot treat a problem, or find its answer.

An engine is one file: a frozen dataclass derived from `Engine`, with `run(problem) -> Outcome` and,
where it cannot treat everything, `refuse(problem)`. All that the rest of the house asks of an
engine is in this file, with what holds by default; which engine it is, nobody asks.

    @dataclass(frozen=True)
    class Mine(Engine):
        steps: int = 100

        def refuse(self, problem: Problem) -> None:
            if problem.plan.globals:
                raise Refusal(f"Mine cannot fit {problem}: site '{problem.plan.globals[0]}' ...")

        def run(self, problem: Problem) -> Outcome:
            with Progress("Mine", self.steps, False) as bar:        # progress.py
                status = iterate(bar, self.steps, turn)
            return Outcome(params, history, status, len(history) - 1)
"""

import inspect
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from probml.dataset.dataset import Data
from probml.device.rows import Known, Rows, Summary
from probml.engines.findings import Finding
from probml.engines.status import Status
from probml.errors import ModelError, meant
from probml.language.language import Bound
from probml.numerics.optimum import Optimum
from probml.plan import effects
from probml.plan.plan import Plan
from probml.posteriors.posterior import Point, Posterior

MOST = 512  # parameters of which a posterior is made where nobody names an engine


class State(NamedTuple):
    """What the next step of a fit needs of an outcome.

    Args:
        lost: restarts that collapsed, beside the one that is kept.
        short, wide: of digits, see factors.digits.
        adrift: its parameters had a way to go yet when rounding hid what they gained.
        left: nats that further steps would gain, as the last foretell; 0: parameters stood still.
        model: that was fitted, where the engine chose settings of it.
        shown: what all rows were expected to show, statistics from which further ones go on.
        optimum: where a maximization ended, for those who examine it on the way.
        onward: why its answer is not to be relied on, so that the next engine is asked; None: it
            is the answer.
        seen: where it found the posterior, for that engine; see Problem.
    """

    lost: int = 0
    short: bool = False
    wide: bool = False
    adrift: bool = False
    left: float = 0.0
    model: Bound | None = None
    shown: Any = None
    optimum: Optimum | None = None
    onward: Finding | None = None
    seen: Mapping[str, np.ndarray] | None = None


class Outcome(NamedTuple):
    """What an engine found: what a user may want to know, and in `state` what the next step needs.

    Args:
        params: every free parameter at one point, in its own coordinate: a mode, or a mean.
        history: (iterations + 1,) the objective, its start included.
        status, iterations: how it ended, and after how many.
        findings: what it found out about its own answer.
        posterior: what is known beyond the point: a closed form, draws, a normal; else itself.
        log_evidence: log p(data), exact or estimated. evidence_error: the standard error of such an
            estimate; None: it is exact.
        bound: a lower bound of it, where that is what was maximised.
        held_out: mean log evidence of rows not learnt from, at every entry of history.
        state: for the next step of the fit.
    """

    params: dict[str, Any]
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
        """With further findings, where there are some."""
        return self._replace(findings=(*self.findings, *(f for f in findings if f is not None)))

    def with_state(self, **changes: Any) -> "Outcome":
        """With some of its state changed."""
        return self._replace(state=self.state._replace(**changes))

    def after(self, before: "Outcome") -> "Outcome":
        """The same, of a climb that went on from where another had ended: history and iterations
        are those of both."""
        return self._replace(history=np.concatenate([before.history, self.history[1:]]),
                             iterations=before.iterations + self.iterations)


@dataclass(frozen=True, eq=False)
class Problem:
    """Data under a plan, and what a user asked of the answer; the same for every engine.

    Args:
        data: on the host; None where only their statistics are left, as when fits are merged.
        plan: who is summed out, pooled, evaluated by row; its `free` parameters are to be found.
        rows: on the device, in chunks; or their statistics, where the engine takes these and they
            are enough. None while an engine is only asked whether it refuses.
        known: what all rows share: values given outside them, centres, spreads.
        weights: (n,) of the rows; None: 1 each.
        seed: of every random choice.
        start: parameter → where to begin, checked; some or none.
        asked: the engine was named; False: it is one of the ladder's.
        astray: the joint mode is no answer, as the ladder's engine before found: begin elsewhere.
        seen: parameter → (k, *shape), values at which that engine found the posterior.
    """

    data: Data | None
    plan: Plan
    rows: Rows | Summary | None = None
    known: Known | None = None
    weights: np.ndarray | None = None
    seed: int = 0
    start: Mapping[str, Any] = field(default_factory=dict)
    asked: bool = True
    astray: bool = False
    seen: Mapping[str, np.ndarray] | None = None

    @property
    def size(self) -> int | None:
        """Rows, where the data are there."""
        return None if self.data is None else self.data.size

    @property
    def in_parts(self) -> bool:
        """Whether rows are read in parts: each pass over them reads their source again."""
        survey = None if self.data is None else self.data.survey
        return survey is not None and not survey.held

    @property
    def point_wanted(self) -> str:
        """Why a point is the answer where nobody names an engine, and no posterior, in words; "":
        a posterior is."""
        plan, model = self.plan, self.plan.structure.model
        size = sum(int(np.prod(plan.structure.sites[name].shape)) for name in plan.free)
        held = getattr(getattr(model, "generative", None), "params", {})
        if size > MOST:
            return f"it has {size} parameters, more than {MOST}"
        if self.in_parts:
            return "its rows are read in partitions"
        if model.batch is not None:
            return "it takes its rows in batches"
        if not held.keys().isdisjoint(plan.free):
            return "it has parameters of numpyro.param, which are optimised"
        if plan.free and all(plan.structure.sites[name].entry.improper for name in plan.free):
            return "all priors are flat, so that the maximum of the likelihood is asked for"
        return ""

    def __str__(self) -> str:
        return f"model '{self.plan.structure.model.name}'"


# settings as other libraries call them
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
    """What an engine finds, which plans it takes, and what it needs of the rows, as data.

    Attributes:
        finds: a point, or a posterior that can be drawn from.
        rung: its place in the engine selection order where nobody names an engine; None: it runs
            on request only.
        offered: `explain`'s words where it could treat the model.
        uses_prior: whether the objective includes the log prior.
        integrates: it takes plans in which effects of groups are integrated out. approximates: also
            where the integral is only near. restricts: coefficients are integrated out too, their
            priors flat.
        quadrature: nodes of a quadrature over effects; None: as many as by default.
        statistics: sufficient statistics of the rows will do where the plan is additive: then
            `rows` is a Summary, and fits can be merged.
        squares: squares of the rows will do in the place of row-wise sites that are Normal about
            affine locations (plan/squares.py), in a Summary: it would pass over rows many times.
        batch: rows of the random batches in which it takes them; None: all at once.
        batches: its setting `batch_rows` is open, and random batches would do.
        restarts: it has a setting `restarts`, of which a complete start leaves one.
        held_out_fraction: the share of the rows that is held out for validation.
        way: how expected statistics of further rows may move the point, a restarting.batches.Way;
            None: they may not.
        sizes: it has `grid(problem, site, sizes, structures)`: several numbers of states of a
            hidden site in one program, see EM; `structures` are those of the models of each, to
            whose shapes `narrowed` brings what was found.
    """

    finds: Literal["point", "posterior"] = "posterior"
    rung: int | None = None
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
    way: Any = None
    sizes: bool = False

    @property
    def uses_all_rows(self) -> bool:
        """Whether the objective sums over all rows and never picks rows by number: rows may then be
        reordered, or repeated with weight 0 (device/layout.py)."""
        return self.batch is None and not self.held_out_fraction


class Engine(ABC):
    """A way to find what is to be found: a value, frozen and hashable, which knows no model.

    An engine has `run`; where it cannot treat everything, `refuse`; where it finds or needs
    something else than the default, `capabilities`.
    """

    def __new__(cls, *args: Any, **settings: Any) -> "Engine":
        own = inspect.signature(cls.__init__).parameters
        loose = any(each.kind is each.VAR_KEYWORD for each in own.values())
        unknown = next((name for name in settings if name not in own and not loose), None)
        if unknown is not None:
            known = [name for name in own if name != "self"]
            raise TypeError(f"{cls.__name__}({unknown}=...): there is no such setting, it has "
                            f"{known}{meant(unknown, known, ELSEWHERE)}")
        return super().__new__(cls)

    @property
    def capabilities(self) -> Capabilities:
        """What it finds, which plans it takes and what it needs of the rows."""
        settings = {each.name for each in fields(self)} if is_dataclass(self) else set()
        old = {each.name: getattr(self, each.name) for each in fields(Capabilities)
               if hasattr(type(self), each.name) and each.name not in settings}
        if old:
            warnings.warn(f"{type(self).__name__}: return {', '.join(old)} by `capabilities`, not "
                          f"as attributes of the class", DeprecationWarning, stacklevel=2)
        return Capabilities(**old)

    def refuse(self, problem: Problem) -> None:
        """Nothing, if the engine treats the problem; before anything is shipped or compiled.

        Raises:
            Refusal: naming the site, the reason, and what to type instead.
        """
        return None

    def passed_over(self, problem: Problem) -> str:
        """Why `fit` without an engine does not take it, though it could treat the problem; "": it
        does."""
        return ""

    def order(self, problem: Problem) -> float:
        """Its place among the engines that are tried for this problem, the lowest first."""
        return self.capabilities.rung or 0

    def taken(self, data: Data) -> Data:
        """The data as the engine takes them: with values of latent variables of rows that it
        samples itself (Data.carrying); the plan of a Problem is of these.

        Raises:
            Refusal: what it would have to move, and cannot.
        """
        return data

    @abstractmethod
    def run(self, problem: Problem) -> Outcome:
        """What is found, the rows on the device.

        Raises:
            Refusal: what only the data could tell.
        """

    def copies(self, problem: Problem) -> int:
        """How many parameter values the rows will be met with at once: chunks are made smaller."""
        return 1

    def together(self, problem: Problem, runs: int) -> int:
        """How many of so many runs side by side are one program's, and so are such copies."""
        return runs

    def runs(self, problem: Problem) -> int:
        """How many runs it makes in parallel (Rows); devices are divided over runs rather
        than over rows where these are few."""
        return 1

    def manner(self, problem: Problem) -> str:
        """How the problem would be gone about, for `explain`; "" if there is nothing to choose."""
        return ""

    def repeated(self) -> tuple["Engine", str]:
        """The same as it is run on hundreds of simulated data sets, and what is different then, in
        words."""
        return self, ""


def problem_of(engine: Engine, data: Data, asked: bool = True) -> Problem:
    """Data as an engine takes them, under their plan, for it to say whether it refuses.

    Raises:
        Refusal: what no plan of the kind can do.
    """
    data = engine.taken(data)
    return Problem(data, planned(data, engine if asked else None), asked=asked)


def planned(data: Data, engine: Engine | None = None, lenient: bool = False) -> Plan:
    """The plan of data for an engine, or for the ladder: effects of groups that have no joint mode
    with their spread are integrated out, where that is exact, or near enough for the engine; not
    beside numbers of rows that a sampler moves.

    Args:
        lenient: see Data.plan.
    """
    plan = data.plan(lenient=lenient)
    if plan.carried or engine is not None and not engine.capabilities.integrates:
        return plan
    takes = Capabilities(approximates=True) if engine is None else engine.capabilities
    # of a likelihood the effects' own prior is a part: without it their spread is told by nothing
    names = effects.effects(plan, data.table.rows, not takes.approximates,
                            takes.restricts or not takes.uses_prior)
    nodes = takes.quadrature
    if takes.restricts:
        flat = effects.coefficients(plan, names)
        return data.plan(effects=(*names, *flat), lenient=lenient, flat=flat, nodes=nodes)
    return data.plan(effects=names, lenient=lenient, nodes=nodes) if names else plan


def short_name(engine: str) -> str:
    """The name of an engine for messages, from its repr: MAP(), without its settings."""
    name, settings, _ = engine.partition("(")
    return name + "()" * bool(settings)


def checked(engine: Any, verb: str = "") -> Engine:
    """An engine's value, as a user gave it to `verb`.

    Raises:
        ModelError: it is no engine, but a class or something else, or it cannot be hashed.
    """
    shown = " ".join(f"{engine!r:.60}".split())
    said = f"{verb}(engine={shown})" if verb else f"engine={shown}"
    if not isinstance(engine, Engine):
        hint = (f": call it, {engine.__name__}()" if isinstance(engine, type)
                and issubclass(engine, Engine) else ": give all observations as one mapping, "
                "fit({'x': x, 'y': y})" if hasattr(engine, "shape") else "")
        raise ModelError(f"{said} is not an engine: expected an engine's value, such as "
                         f"probml.EM(), probml.Exact() or probml.NUTS(), or None{hint}")
    try:
        hash(engine)
    except TypeError as error:
        raise ModelError(f"{said}: engines are compared and hashed by their settings ({error}): "
                         f"make its class a @dataclass(frozen=True), with tuples for "
                         f"lists and arrays") from None
    return engine


def check_batch(engine: Engine, problem: Problem) -> None:
    """Refuse batches that are larger than the data, of which they are to be parts.

    Raises:
        ModelError: naming the engine, the rows of a batch and of the data.
    """
    rows, batch = problem.size, engine.capabilities.batch
    if batch is not None and rows is not None and batch > rows:
        raise ModelError(f"{type(engine).__name__}(batch_rows={batch}) cannot fit {problem}: the "
                         f"data have {rows} rows, and a batch is a part of them. Leave batch_rows "
                         f"out")


def check_settings(engine: Any, positive: Sequence[str] = (),
                   nonnegative: Sequence[str] = ()) -> None:
    """Refuse settings out of range, naming engine, setting, expected and got: of fields that are
    annotated as floats any finite numbers, of others integers."""
    floats = {each.name for each in fields(engine) if "float" in str(each.type)}
    for name in (*positive, *nonnegative):
        value, above = getattr(engine, name), name in positive
        if value is None:
            continue
        if (isinstance(value, bool) or not isinstance(value, int | float | np.number)
            or not 0 <= value < math.inf or value == 0 and above
            or name not in floats and value != int(value)):
            kind = ("an integer of at least 1" if above else "an integer of at least 0") if (
                name not in floats) else "a number above 0" if above else "a number of at least 0"
            raise ModelError(f"{type(engine).__name__}({name}={value!r}): expected {kind}")
