"""SVI: an approximation of the posterior from a family of distributions (NumPyro's guides), by
stochastic gradients."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from probml.device.rows import Known, Rows
from probml.engines.engine import (
    Capabilities,
    Outcome,
    Problem,
    Status,
    check_batch,
    check_settings,
)
from probml.engines.sampling import carrying, guided
from probml.engines.sampling.guided import Static
from probml.engines.sampling.reliance import (
    check_normal_approximation,
    improper,
    improper_refusal,
    rising,
)
from probml.engines.sampling.states import complete_normal, with_states
from probml.engines.start import begin
from probml.engines.start.labelling import use_representative_rows
from probml.engines.start.modes import Mode, several_modes_finding
from probml.engines.start.start import check_distinct
from probml.errors import Refusal
from probml.evidence import density, row_coordinates
from probml.language import given
from probml.numerics.compiling import jit
from probml.numerics.curvature import Frame
from probml.numerics.process.libraries import optax
from probml.numerics.transfer import Use, derive_key, random_key
from probml.plan.plan import Plan
from probml.posteriors import posterior
from probml.posteriors.posterior import OWN, Draws, Normal
from probml.typing import PyTree

DRAWS = 2000  # of a user's guide
MAX_RANK = 10  # of a low-rank covariance
GUIDES = ("normal", "multivariate_normal", "lowrank")
LEARNING_RATE = 1e-2  # of Adam, at the first step
# evidences for the comparison of the guide with the posterior, relative to the steps
COMPARISON_SHARE = 0.5


@dataclass(frozen=True)
class SVI(carrying.LatentSampler):
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
            given.check_word(self.guide, GUIDES, "SVI(guide)", ", or a NumPyro guide")
        given.check_word(self.integrate, carrying.INTEGRATE, "SVI(integrate)")

    @property
    def optimizer_or_adam(self) -> Any:
        """The optimiser, by default Adam with a cosine decay."""
        return self.optimizer or _adam(self.steps)

    @property
    def capabilities(self) -> Capabilities:
        # effects of groups, which batches share, are not integrated out
        whole = self.batch_rows is None
        return Capabilities(integrates=whole and self.integrate != "none",
                            approximates=self.integrate == "all", statistics=whole,
                            batch=self.batch_rows, batches=not self.batch_rows)

    def refuse(self, problem: Problem) -> None:
        """Raises Refusal for mini-batches of rows that share a latent discrete site."""
        plan = problem.plan
        if callable(self.guide) and guided.is_for_whole_function(self.guide, problem):
            guided.refuse(self.guide, problem)
        check_batch(self, problem)
        check_distinct(problem.data, plan)
        if plan.carried and (callable(self.guide) or self.batch_rows is not None):
            setting = "guide=function" if callable(self.guide) else "batch_rows=..."
            raise Refusal(f"SVI({setting}) cannot fit {problem}: every row has a latent variable, "
                          f"'{plan.carried[0]}', which this setting does not support. Use "
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
        if guided.is_for_whole_function(self.guide, problem):
            whole = Static(self.guide, self.optimizer_or_adam, self.particles,
                           model=problem.plan.structure.model)
            return guided.run(whole, self.steps, self.progress, problem)
        if callable(self.guide):
            guided.check_sites(lambda _: self.guide(), {}, plan.free, problem)
        carrying.check(problem, "SVI", DRAWS)
        begun = self._start(problem)
        frame = begun.frame if self.guide == "multivariate_normal" else begun.frame.independent(
            begun.hessian
        )
        total = (problem.size or 0) if self.batch_rows else 0
        static = Static(self.guide, self.optimizer_or_adam, self.particles, self.batch_rows or 0,
                        total)
        state = _initial(plan, static, frame, known, rows,
                         derive_key(random_key(seed), Use.GUIDE))
        state, history = guided.optimize(state, lambda state, done, count: _descend(
            plan, static, frame, state, known, rows, np.int32(done), count), self.steps,
            self.progress)
        status = Status.APPROXIMATED if np.isfinite(history[-1]) else Status.COLLAPSED
        findings = several_modes_finding(plan, begun)
        if callable(self.guide):
            findings += rising(history)
            values = jax.device_get(_guided(plan, static, frame, state, known, rows,
                                            derive_key(random_key(seed), Use.GUIDED)))
            found: Any = with_states(plan, Draws({n: v[None] for n, v in values.items()}, None, {}),
                                     known, rows, seed)
        else:
            normal = Normal(*jax.device_get(_normal(plan, static, frame, state, known, rows)))
            if status is Status.APPROXIMATED:
                if why := improper(problem, known, normal):
                    raise improper_refusal("SVI", problem, why)
                # evidences of all rows: with batches of rows a share of the optimisation's time
                most = (COMPARISON_SHARE * self.steps * self.particles * (self.batch_rows or 0)
                        / total if total else np.inf)
                findings += check_normal_approximation(problem, normal, most)
            found = (_drawn(problem, normal) if plan.carried
                     else complete_normal(plan, normal, known, rows, seed))
        point = posterior.mean({n: np.asarray(v)[None]
                            for n, v in found.draw(plan, known, DRAWS, OWN).items()
                            if n in (*plan.free, *plan.effects)})
        return Outcome(point, history, status, self.steps, findings, posterior=found)

    def _start(self, problem: Problem) -> Mode:
        """The mode from which the guide starts, and the curvature there."""
        plan, known = problem.plan, problem.known
        size = density.unbounded_size(plan)
        if not plan.carried:
            near = (use_representative_rows(problem) if problem.in_parts and self.batch_rows
                    else problem)
            return begin.find_start_mode(near, "SVI", np.zeros((1, size)), centred=False,
                                         held=begin.hyperparameters(plan))[1]
        begun = carrying.find_joint_mode(
            problem, known, np.zeros((1, size + row_coordinates.size(plan, problem.rows))))
        begin.check_density(plan, begun, begin.compiled_prior_point(plan, known), known, "SVI")
        return begun


@functools.lru_cache(maxsize=64)
def _adam(steps: int):
    """Adam with a cosine decay; the same object for equal settings, so that compiled programs are
    found again."""
    return optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, steps))


def _vi(plan: Plan, static: Static, frame: Frame):
    """NumPyro's SVI of a model with our density as its only factor: over the frame's coordinates,
    or over the parameters by name."""
    from numpyro.infer import SVI, Trace_ELBO, autoguide
    from numpyro.infer.initialization import init_to_value

    def flat(rows: Rows, scale: float, known: Known):
        z = numpyro.sample("z", dist.ImproperUniform(dist.constraints.real, (), frame.centre.shape))
        both = frame.transform(density.log_posterior(plan, known, rows, scale))
        numpyro.factor("density", density.differentiable(both)(z))

    def named(rows: Rows, scale: float, known: Known):
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

    model = flat
    at = init_to_value(values={"z": jnp.zeros_like(frame.centre)})
    if static.guide == "normal":
        guide = autoguide.AutoDiagonalNormal(flat, init_loc_fn=at, init_scale=1.0)
    elif static.guide == "multivariate_normal":
        guide = autoguide.AutoMultivariateNormal(flat, init_loc_fn=at, init_scale=1.0)
    elif static.guide == "lowrank":
        guide = autoguide.AutoLowRankMultivariateNormal(flat, init_loc_fn=at, init_scale=1.0,
                                                        rank=min(MAX_RANK, frame.centre.size))
    else:
        model, own = named, static.guide

        def guide(rows: Rows, scale: float, known: Known):
            return own()

    optimizer = numpyro.optim.optax_to_numpyro(static.optimizer)
    return SVI(model, guide, optimizer, Trace_ELBO(num_particles=static.particles)), guide


@jit(static_argnums=(0, 1))
def _initial(plan: Plan, static: Static, frame: Frame, known: Known, rows: Rows, key: jax.Array):
    return _vi(plan, static, frame)[0].init(key, rows, 1.0, known)


def _prototype(svi: numpyro.infer.SVI, state: PyTree, rows: Rows, known: Known) -> None:
    """Sets the guide up with its sites; its draws are not used."""
    svi.init(jax.random.fold_in(state.rng_key, 5), rows, 1.0, known)


@jit(static_argnums=(0, 1))
def _descend(plan: Plan, static: Static, frame: Frame, state: PyTree, known: Known,
             rows: Rows, done: jax.Array, count: jax.Array):
    svi, _ = _vi(plan, static, frame)
    _prototype(svi, state, rows, known)

    def arguments(state: PyTree, i: jax.Array) -> tuple:
        if not static.batch:
            return rows, 1.0, known
        batch = rows.drawn(jax.random.fold_in(state.rng_key, 3), done + i, static.batch,
                           static.total)
        return batch, static.total / static.batch, known

    return guided.take_steps(svi, state, count, arguments)


@jit(static_argnums=(0, 1))
def _normal(plan: Plan, static: Static, frame: Frame, state: PyTree, known: Known, rows: Rows):
    """The guide's normal distribution in unbounded coordinates: location, independent scales,
    factor."""
    svi, guide = _vi(plan, static, frame)
    _prototype(svi, state, rows, known)
    found = guide.get_posterior(svi.get_params(state))
    none = jnp.zeros_like(frame.centre)
    if static.guide == "normal":
        return frame.point(found.loc), frame.root * found.scale, jnp.zeros((none.size, 0),
                                                                           none.dtype)
    if static.guide == "lowrank":
        return (frame.point(found.loc), frame.root * jnp.sqrt(found.cov_diag),
                frame.root[:, None] * found.cov_factor)
    root = frame.root if frame.root.ndim == 2 else jnp.diag(frame.root)
    return frame.point(found.loc), none, root @ found.scale_tril


def _drawn(problem: Problem, normal: Normal) -> Draws:
    """Draws of a normal distribution over the coordinates of parameters and rows."""
    plan, known, rows = problem.plan, problem.known, problem.rows
    random = np.random.default_rng([problem.seed, 5])
    u = normal.loc + normal.scale * random.standard_normal((1, DRAWS, len(normal.loc)))
    u += random.standard_normal((1, DRAWS, normal.factor.shape[1])) @ normal.factor.T
    u = u.astype(normal.loc.dtype)
    inside = carrying.drawn(plan, known, rows, u)
    values = jax.device_get(posterior.constrained(plan, known,
                                                  u[..., : density.unbounded_size(plan)]))
    draws = with_states(plan, Draws(values, None, {}, inside), known, rows, problem.seed)
    return draws._replace(inside=carrying.unloaded(problem, inside))


@jit(static_argnums=(0, 1))
def _guided(plan: Plan, static: Static, frame: Frame, state: PyTree, known: Known, rows: Rows,
            key: jax.Array):
    """Draws of the user's own guide."""
    svi, guide = _vi(plan, static, frame)
    _prototype(svi, state, rows, known)
    params = svi.get_params(state)

    def draw_from_guide(key: jax.Array):
        handler = numpyro.handlers.trace(
            numpyro.handlers.substitute(numpyro.handlers.seed(guide, key), params)
        )
        trace = handler.get_trace(rows, 1.0, known)
        return {name: trace[name]["value"] for name in plan.free}

    return jax.vmap(draw_from_guide)(jax.random.split(key, DRAWS))
