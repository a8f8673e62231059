"""SVI: an approximation of the posterior from a family of distributions (NumPyro's guides), by
stochastic gradients.

    ELBO = E_q [log p(x, z) − log q(z | x)],   x observed, z latent

A user's guide of a plain NumPyro function may take its arguments, as by NumPyro's SVI: guides may
be amortised (Kingma & Welling 2014), plates with a subsample_size give unbiased batches, and params
and modules of both are trained.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro import handlers, infer
from numpyro.infer import autoguide

from probml.device.rows import Known, Rows
from probml.engines.engine import (
    Capabilities,
    Outcome,
    Problem,
    Status,
    check_batch,
    check_settings,
)
from probml.engines.progress import Loop, Progress, StepResult, iterate
from probml.engines.sampling import latents
from probml.engines.sampling.latents import complete_normal, with_states
from probml.engines.sampling.reliance import (
    check_normal_approximation,
    improper,
    improper_refusal,
    rising_finding,
)
from probml.engines.start import begin
from probml.engines.start.labelling import check_distinct, use_representative_rows
from probml.engines.start.modes import Mode, several_modes_finding
from probml.errors import ModelError, Refusal, listed, present
from probml.evidence import density
from probml.language import given
from probml.language.language import Bound
from probml.numerics.compiling import jit
from probml.numerics.curvature import Frame
from probml.numerics.process.libraries import optax
from probml.numerics.process.making import unchecked
from probml.numerics.process.threads import single_thread
from probml.numerics.transfer import Use, derive_key, placed_all, random_key
from probml.plan.plan import Plan
from probml.posteriors import posterior
from probml.posteriors.posterior import OWN, Draws, Normal
from probml.typing import PyTree, SiteValues

BLOCK = 500  # steps a device call
DRAWS = 2000  # of the approximation
MIN_DRAWS, MAX_VALUES = 50, 2**24  # draws of a whole function at least; numbers in them
MAX_RANK = 10  # of a low-rank covariance
GUIDES = {"normal": autoguide.AutoDiagonalNormal,
          "multivariate_normal": autoguide.AutoMultivariateNormal,
          "lowrank": autoguide.AutoLowRankMultivariateNormal}
LEARNING_RATE = 1e-2  # of Adam, at the first step
# evidences for the comparison of the guide with the posterior, relative to the steps
COMPARISON_SHARE = 0.5


@dataclass(frozen=True)
class Static:
    """Static arguments of the compiled steps.

    Args:
        batch: rows of a batch, of `total`; 0: all. model: a Bound, whose function the guide is for;
            None: the guide is for our density.
    """

    guide: Any
    optimizer: "optax.GradientTransformation | None"
    particles: int
    batch: int = 0
    total: int = 0
    model: Any = None


@dataclass(frozen=True)
class SVI(latents.LatentSampler):
    """Stochastic variational inference (Hoffman et al. 2013; Kucukelbir et al. 2017): maximises the
    evidence lower bound over a guide.

    The named guides are NumPyro's normals in unbounded coordinates; they start at the mode, in
    units of its curvature there.

    Args:
        guide: "normal" (independent coordinates), "multivariate_normal", "lowrank" (independent
            plus a few directions), or a NumPyro guide: a function that samples every parameter by
            its name. Of one density of everything (a function without rows()) it may take the
            function's arguments, as amortised guides do: then both run as they are written,
            batches of plates with a subsample_size included.
        optimizer: an optax optimiser; None is Adam, 1e-2 decayed to 0 along a cosine.
        steps: gradient steps.
        batch_rows: rows of a random mini-batch a step; None: all, or the subsample_size of the
            plate that is the rows.
        particles: draws of the guide a step.
        integrate: as in NUTS; continuous latent variables of rows that are not integrated out are
            coordinates of the named guides.
        progress: show a progress bar at once; else it comes after five seconds, in a terminal or a
            notebook.

    `Fit.warnings` says where the posterior is far from a named guide (PSIS k-hat, Yao et al. 2018),
    and where it has another mode; with batches only where another pass over all rows is a small
    part of the cost. For a guide of your own it says whether the bound still rises.

    Raises:
        ModelError: no guide, no optimiser; batches larger than the data. Refusal: a posterior that
            is improper; batches of rows that share a discrete site, or have numbers of their own.

    Cost: `particles` evidences and gradients of the batch a step; 800 evidences of all rows at the
    most.

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
        >>> fit = lengths().fit(data, probml.SVI(steps=2000))
        >>> round(float(fit.params["mean"]), 1)
        1.4
    """

    guide: Any = "normal"
    optimizer: "optax.GradientTransformation | None" = None
    steps: int = 3000
    batch_rows: int | None = None
    particles: int = 1
    integrate: str = "exact"
    progress: bool = False

    def __post_init__(self):
        check_settings(self, positive=("steps", "batch_rows", "particles"))
        if not callable(self.guide):
            given.check_word(self.guide, tuple(GUIDES), "SVI(guide)", ", or a NumPyro guide")
        given.check_word(self.integrate, latents.INTEGRATE, "SVI(integrate)")

    @property
    def optimizer_or_adam(self) -> Any:
        """The optimiser, by default Adam with a cosine decay."""
        return self.optimizer or _adam(self.steps)

    @property
    def capabilities(self) -> Capabilities:
        # effects of groups, which batches share, are not integrated out
        all_rows = self.batch_rows is None
        return Capabilities(integrates=all_rows and self.integrate != "none",
                            approximates=self.integrate == "all", statistics=all_rows,
                            batch=self.batch_rows, batches=not self.batch_rows)

    def refuse(self, problem: Problem) -> None:
        """Raises Refusal for mini-batches of rows that share a latent discrete site."""
        plan = problem.plan
        if callable(self.guide) and is_for_whole_function(self.guide, problem):
            refuse_guide(self.guide, problem)
        check_batch(self, problem)
        check_distinct(problem.data, plan)
        if plan.sampled and (callable(self.guide) or self.batch_rows is not None):
            setting = "guide=function" if callable(self.guide) else "batch_rows=..."
            raise Refusal(f"SVI({setting}) cannot fit {problem}: every row has a latent variable, "
                          f"'{plan.sampled[0]}', which this setting does not support. Use "
                          "guide='normal' without batch_rows, or integrate the variable out "
                          'approximately, SVI(integrate="all")')
        if self.batch_rows is not None and plan.row_globals:
            raise Refusal(
                f"SVI(batch_rows=...) cannot fit {problem}: all rows depend on the latent discrete "
                f"site '{plan.row_globals[0]}', so the log-likelihood is not a sum over rows. Omit "
                f"batch_rows"
            )

    def run(self, problem: Problem) -> Outcome:
        plan, rows, known, seed = problem.plan, problem.rows, problem.known, problem.seed
        static = self._static(problem)
        arguments: tuple = (rows, known)
        if static.model is not None:
            arguments = (placed_all({name: value[0] for name, value
                                     in problem.data.table.inputs.items()}),)
        if callable(self.guide):
            check_sites(static, arguments, problem)
        latents.check(problem, "SVI", DRAWS)
        mode, frame = None, None
        if static.model is None:
            mode = self._start(problem)
            frame = mode.frame if self.guide == "multivariate_normal" else mode.frame.independent(
                mode.hessian)
        state, history = self._optimize(plan, static, frame, arguments, seed)
        status = Status.APPROXIMATED if np.isfinite(history[-1]) else Status.COLLAPSED
        findings = () if mode is None else several_modes_finding(plan, mode)
        if callable(self.guide):
            findings += rising_finding(history)
            values = jax.device_get(_draws(plan, static, frame, state, arguments,
                                           derive_key(random_key(seed), Use.GUIDED),
                                           _number_of_draws(plan, static)))
            post: Any = with_states(plan, Draws({n: values[n][None] for n in plan.free}, None, {}),
                                    known, rows, seed)
        else:
            normal = Normal(*jax.device_get(_normal(plan, static, frame, state, arguments)))
            if status is Status.APPROXIMATED:
                if why := improper(problem, known, normal):
                    raise improper_refusal("SVI", problem, why)
                # evidences of all rows: with batches of rows a share of the optimisation's time
                max_draws = (COMPARISON_SHARE * self.steps * self.particles * static.batch
                             / static.total if static.total else np.inf)
                findings += check_normal_approximation(problem, normal, max_draws)
            post = (_drawn(problem, normal) if plan.sampled
                    else complete_normal(plan, normal, known, rows, seed))
        point = posterior.mean({n: np.asarray(v)[None] for n, v in post.draw(
            plan, known, _number_of_draws(plan, static), OWN).items()
            if n in (*plan.free, *plan.effects)})
        return Outcome(point, history, status, self.steps, findings, posterior=post)

    def _static(self, problem: Problem) -> Static:
        """The static arguments of the compiled steps."""
        if is_for_whole_function(self.guide, problem):
            return Static(self.guide, self.optimizer_or_adam, self.particles,
                          model=problem.plan.structure.model)
        return Static(self.guide, self.optimizer_or_adam, self.particles, self.batch_rows or 0,
                      (problem.size or 0) if self.batch_rows else 0)

    def _optimize(self, plan: Plan, static: Static, frame: Frame | None, arguments: tuple,
                  seed: int) -> tuple[PyTree, np.ndarray]:
        """The guide's state after all steps, and the bound of each step."""
        loop = Loop(_initial(plan, static, frame, arguments,
                             derive_key(random_key(seed), Use.GUIDE)), "losses")
        losses = loop.lists["losses"]

        def turn(done: int) -> StepResult:
            count = min(BLOCK, self.steps - done)
            loop.state, trail = _descend(plan, static, frame, loop.state, arguments,
                                         np.int32(done), count)
            losses.append(np.asarray(trail)[:count])
            return StepResult(count, -float(losses[-1].mean()))

        with Progress("SVI", self.steps, self.progress) as bar:
            iterate(bar, self.steps, turn, held=loop)
        return loop.state, -np.concatenate(losses)

    def _start(self, problem: Problem) -> Mode:
        """The mode from which the guide starts, and the curvature there."""
        plan = problem.plan
        sampled = (use_representative_rows(problem) if problem.in_parts and self.batch_rows
                   and not plan.sampled else problem)
        fixed = () if plan.sampled else begin.hyperparameters(plan)
        return begin.find_start_mode(sampled, "SVI", np.zeros((1, begin.size(plan, sampled.rows))),
                                     centred=False, fixed=fixed)[1]


@functools.lru_cache(maxsize=64)
def _adam(steps: int):
    """Adam with a cosine decay; the same object for equal settings, so that compiled programs are
    found again."""
    return optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, steps))


def _number_of_draws(plan: Plan, static: Static) -> int:
    """How many draws of the approximation are made: fewer of a whole function with many numbers."""
    size = sum(int(np.prod(plan.structure.sites[name].shape)) for name in plan.free)
    fewer = max(MIN_DRAWS, min(DRAWS, MAX_VALUES // max(size, 1)))
    return DRAWS if static.model is None else fewer


def _vi(plan: Plan, static: Static, frame: Frame | None) -> tuple[infer.SVI, Any]:
    """NumPyro's SVI and its guide: of a whole function, given its inputs; or of a model with our
    density as its only factor, given rows and what they share, over the frame's coordinates or over
    the parameters by name."""
    def function(inputs: SiteValues):
        static.model.generative.forward(static.model.bound, inputs)

    def flat(rows: Rows, known: Known, scale: float = 1.0):
        z = numpyro.sample("z", dist.ImproperUniform(dist.constraints.real, (),
                                                     present(frame).centre.shape))
        evaluate = present(frame).transform(density.log_posterior(plan, known, rows, scale))
        numpyro.factor("density", density.differentiable(evaluate)(z))

    def named(rows: Rows, known: Known, scale: float = 1.0):
        env = dict(known.given)
        for name in plan.free:
            site = plan.structure.sites[name]
            env[name] = numpyro.sample(
                name, dist.ImproperUniform(density.domain(plan, name, env).support, (), site.shape)
            )

        def both(params: Mapping[str, jax.Array]):
            return density.value_and_gradient(plan, lambda p: (p, 0.0), params, known, rows,
                                              scale=scale)

        numpyro.factor("density",
                       density.differentiable(both)({name: env[name] for name in plan.free}))

    if callable(static.guide):
        model: Any = named if static.model is None else function
        guide: Any = guide_of(static)
    else:
        centre, rank = present(frame).centre, {}
        if static.guide == "lowrank":
            rank = {"rank": min(MAX_RANK, centre.size)}
        model, guide = flat, GUIDES[static.guide](flat, init_loc_fn=infer.init_to_value(
            values={"z": jnp.zeros_like(centre)}), init_scale=1.0, **rank)
    optimizer = numpyro.optim.optax_to_numpyro(static.optimizer)
    return infer.SVI(model, guide, optimizer,
                     infer.Trace_ELBO(num_particles=static.particles)), guide


@jit(static_argnums=(0, 1))
def _initial(plan: Plan, static: Static, frame: Frame | None, arguments: tuple, key: jax.Array):
    return _vi(plan, static, frame)[0].init(key, *arguments)


def _prepared(plan: Plan, static: Static, frame: Frame | None, state: PyTree,
              arguments: tuple) -> tuple[infer.SVI, Any]:
    """As `_vi`, where the guide knows its sites, and params have their constraints."""
    svi, guide = _vi(plan, static, frame)
    svi.init(jax.random.fold_in(state.rng_key, 5), *arguments)  # its draws are not used
    return svi, guide


@jit(static_argnums=(0, 1))
def _descend(plan: Plan, static: Static, frame: Frame | None, state: PyTree, arguments: tuple,
             done: jax.Array, count: jax.Array):
    """The state after `count` steps, at most BLOCK, and the loss of each."""
    svi, _ = _prepared(plan, static, frame, state, arguments)

    def once(i: jax.Array, carry: tuple):
        (state, losses), batch = carry, arguments
        if static.batch:
            rows, known = arguments
            batch = (rows.drawn(jax.random.fold_in(state.rng_key, 3), done + i, static.batch,
                                static.total), known, static.total / static.batch)
        state, loss = svi.update(state, *batch)
        return state, losses.at[i].set(loss)

    return jax.lax.fori_loop(0, count, once, (state, jnp.zeros(BLOCK)))


@jit(static_argnums=(0, 1))
def _normal(plan: Plan, static: Static, frame: Frame, state: PyTree, arguments: tuple):
    """The guide's normal distribution in unbounded coordinates: location, independent scales,
    factor."""
    svi, guide = _prepared(plan, static, frame, state, arguments)
    normal = guide.get_posterior(svi.get_params(state))
    zeros = jnp.zeros_like(frame.centre)
    if static.guide == "normal":
        return frame.point(normal.loc), frame.root * normal.scale, jnp.zeros((zeros.size, 0),
                                                                             zeros.dtype)
    if static.guide == "lowrank":
        return (frame.point(normal.loc), frame.root * jnp.sqrt(normal.cov_diag),
                frame.root[:, None] * normal.cov_factor)
    root = frame.root if frame.root.ndim == 2 else jnp.diag(frame.root)
    return frame.point(normal.loc), zeros, root @ normal.scale_tril


def _drawn(problem: Problem, normal: Normal) -> Draws:
    """Draws of a normal distribution over the coordinates of parameters and rows."""
    plan, known, rows = problem.plan, problem.known, problem.rows
    random = np.random.default_rng([problem.seed, 5])
    u = normal.loc + normal.scale * random.standard_normal((1, DRAWS, len(normal.loc)))
    u += random.standard_normal((1, DRAWS, normal.factor.shape[1])) @ normal.factor.T
    u = u.astype(normal.loc.dtype)
    row_values = latents.drawn(plan, known, rows, u)
    values = jax.device_get(posterior.constrained(plan, known,
                                                  u[..., : density.unbounded_size(plan)]))
    draws = with_states(plan, Draws(values, None, {}, row_values), known, rows, problem.seed)
    return draws._replace(inside=latents.unloaded(problem, row_values))


@jit(static_argnums=(0, 1, 6))
def _draws(plan: Plan, static: Static, frame: Frame | None, state: PyTree, arguments: tuple,
           key: jax.Array, count: int) -> dict[str, jax.Array]:
    """Draws of a user's own guide, and the trained params of a whole function, as its sites."""
    svi, guide = _prepared(plan, static, frame, state, arguments)
    params = svi.get_params(state)
    found = jax.vmap(lambda key: draw(guide, params, arguments, key))(
        jax.random.split(key, count))
    specs = {} if static.model is None else static.model.generative.params
    return found | {name: jnp.broadcast_to(flat := spec.flat(params[name]), (count, *flat.shape))
                    for name, spec in specs.items() if not all(spec.replaced)}


# A user's guide.


def arguments_of(guide: Any) -> tuple[str, ...]:
    """The names of a guide's arguments."""
    try:
        return tuple(inspect.signature(guide).parameters)
    except (TypeError, ValueError):
        return ()


def is_for_whole_function(guide: Any, problem: Problem) -> bool:
    """Whether a guide is for a whole function: it takes arguments, or the function has params."""
    generative = problem.plan.structure.model.generative
    return callable(guide) and (bool(arguments_of(guide))
                                or generative.is_joint and bool(generative.params))


def refuse_guide(guide: Any, problem: Problem) -> None:
    """Raises Refusal if rows are evaluated one by one or a discrete site is summed out, ModelError
    if the guide takes an unknown argument."""
    structure, given = problem.plan.structure, arguments_of(guide)
    model, where = structure.model, f"SVI(guide=function) cannot fit {problem}"
    if not model.is_joint:
        raise Refusal(f"{where}: the guide (the function of the approximate posterior) has the "
                      f"arguments {listed(given)}, but the guide of a model with rows() gets no "
                      "data. Use a guide without arguments. Or write the model with a "
                      "numpyro.plate of the rows instead of rows(), with obs= and the latent "
                      "variables inside the plate")
    if problem.plan.globals:
        raise Refusal(f"{where}: '{problem.plan.globals[0]}' is discrete and latent (not in the "
                      "data), which a guide (the function of the approximate posterior) with "
                      'arguments does not support. Use guide="normal", or a guide without '
                      "arguments")
    known = _arguments(model, dict.fromkeys(model.inputs))
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        raise ModelError(f"{where}: the guide has the argument '{unknown}', which the model "
                         f"function does not have. Use only arguments among {listed(known)}")


def _arguments(model: Bound, inputs: SiteValues) -> dict[str, ArrayLike]:
    """The values of the function's arguments, by name."""
    reading = model.generative
    return {**model.bound, **{own: inputs[name] for name, own in reading.arg_names.items()}}


def guide_of(static: Static) -> Callable:
    """A user's guide as a function of what the model is given."""
    if static.model is None:
        return lambda *_: static.guide()

    def guide(inputs: SiteValues):
        every = _arguments(static.model, inputs)
        return static.guide(**{name: every[name] for name in arguments_of(static.guide)})

    return guide


def check_sites(static: Static, arguments: tuple, problem: Problem) -> None:
    """Raises ModelError if a guide leaves a site out; nothing is compiled."""
    params = {} if static.model is None else static.model.generative.params
    wanted, names = [name for name in problem.plan.free if name not in params], set[str]()

    def sites(*arguments: Any):
        with unchecked(), handlers.block(), handlers.seed(rng_seed=0):
            trace = handlers.trace(guide_of(static)).get_trace(*arguments)
        names.update(name for name, site in trace.items() if site["type"] == "sample")
        return 0

    with single_thread():
        jax.eval_shape(sites, *arguments)
    missing = next((name for name in wanted if name not in names), None)
    if missing is not None:
        raise ModelError(f"SVI(guide=function) cannot fit {problem}: the guide (the function of "
                         f"the approximate posterior) does not sample '{missing}'. Expected the "
                         f"sites {listed(wanted)}, got {listed(sorted(names))}. Add a "
                         f"line such as sample(\"{missing}\", dist.Normal(0, 1)) to the guide")


class _FullPlates(numpyro.primitives.Messenger):
    """Runs every plate in full."""

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "plate":
            size = msg["args"][0]
            msg |= {"args": (size, None), "value": jnp.arange(size)}


def draw(guide: Callable, params: Mapping, arguments: tuple,
         key: jax.Array) -> dict[str, jax.Array]:
    """A draw of a guide with these params, all of its plates in full: site → value."""
    with handlers.block(), handlers.trace() as trace, _FullPlates(), handlers.seed(
            rng_seed=key), handlers.substitute(data=params):
        guide(*arguments)
    return {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}
