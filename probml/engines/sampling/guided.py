"""SVI of a plain NumPyro function with a user's guide that takes its arguments, as by NumPyro's
SVI: guides may be amortised (Kingma & Welling 2014), plates with a subsample_size give unbiased
batches, and params and modules of both are trained.

    ELBO = E_q [log p(x, z) − log q(z | x)],   x observed, z latent
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.typing import ArrayLike
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.svi import SVIState

from probml.engines.engine import Outcome, Problem, Status
from probml.engines.progress import Loop, Progress, StepResult, iterate
from probml.engines.sampling.reliance import rising
from probml.engines.sampling.states import with_states
from probml.errors import ModelError, Refusal, listed
from probml.language.language import Bound
from probml.numerics.compiling import jit
from probml.numerics.process.libraries import optax
from probml.numerics.process.making import unchecked
from probml.numerics.process.threads import single_thread
from probml.numerics.transfer import Use, derive_key, placed_all, random_key
from probml.posteriors import posterior
from probml.posteriors.posterior import Draws
from probml.typing import PyTree, SiteValues

BLOCK = 500  # steps a device call
MAX_DRAWS, MIN_DRAWS, MAX_VALUES = 2000, 50, 2**24  # draws of the guide; numbers in them


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
                                or generative.whole and bool(generative.params))


def refuse(guide: Any, problem: Problem) -> None:
    """Raises Refusal if rows are evaluated one by one or a discrete site is summed out, ModelError
    if the guide takes an unknown argument."""
    structure, given = problem.plan.structure, arguments_of(guide)
    model, where = structure.model, f"SVI(guide=function) cannot fit {problem}"
    if not model.whole:
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


def run(static: Static, steps: int, progress: bool, problem: Problem) -> Outcome:
    """Optimises the guide, then draws from it with full plates."""
    plan = problem.plan
    inputs = placed_all({name: value[0] for name, value in problem.data.table.inputs.items()})
    wanted = [name for name in plan.free if name not in static.model.generative.params]
    check_sites(functools.partial(_guide, static), inputs, wanted, problem)
    state, history = optimize(
        _initial(static, inputs, derive_key(random_key(problem.seed), Use.GUIDE)),
        lambda state, done, count: _descend(static, state, inputs, count), steps, progress)
    sizes = sum(int(np.prod(plan.structure.sites[name].shape)) for name in plan.free)
    count = max(MIN_DRAWS, min(MAX_DRAWS, MAX_VALUES // max(sizes, 1)))
    key = derive_key(random_key(problem.seed), Use.GUIDED)
    values = jax.device_get(_guided(static, state, inputs, key, count))
    values = {name: values[name][None] for name in plan.free}
    found = with_states(plan, Draws(values, None, {}), problem.known, problem.rows, problem.seed)
    status = Status.APPROXIMATED if np.isfinite(history[-1]) else Status.COLLAPSED
    return Outcome(posterior.mean(values), history, status, steps, rising(history), found)


def optimize(state: PyTree, descend: Callable[[PyTree, int, int], tuple[PyTree, jax.Array]],
             steps: int, progress: bool) -> tuple[PyTree, np.ndarray]:
    """A guide's state after all steps, and the bound of each step.

    Args:
        descend: (state, steps made, further steps, at most BLOCK) → (state, losses).
    """
    loop = Loop(state, "losses")
    losses = loop.lists["losses"]

    def turn(done: int) -> StepResult:
        count = min(BLOCK, steps - done)
        loop.state, trail = descend(loop.state, done, count)
        losses.append(np.asarray(trail)[:count])
        return StepResult(count, -float(losses[-1].mean()))

    with Progress("SVI", steps, progress) as bar:
        iterate(bar, steps, turn, held=loop)
    return loop.state, -np.concatenate(losses)


def take_steps(svi: numpyro.infer.SVI, state: SVIState, count: jax.Array,
               arguments: Callable) -> tuple[SVIState, jax.Array]:
    """The state after `count` steps, at most BLOCK, and the loss of each. Pure JAX.

    Args:
        arguments: (state, number of the step) → those of model and guide.
    """
    def once(i: jax.Array, carry: tuple):
        state, losses = carry
        state, loss = svi.update(state, *arguments(state, i))
        return state, losses.at[i].set(loss)

    return jax.lax.fori_loop(0, count, once, (state, jnp.zeros(BLOCK)))


def _arguments(model: Bound, inputs: SiteValues) -> dict[str, ArrayLike]:
    """The values of the function's arguments, by name."""
    reading = model.generative
    return {**model.bound, **{own: inputs[name] for name, own in reading.own.items()}}


def _guide(static: Static, inputs: SiteValues) -> Callable:
    every = _arguments(static.model, inputs)
    return static.guide(**{name: every[name] for name in arguments_of(static.guide)})


def _vi(static: Static) -> numpyro.infer.SVI:
    def model(inputs: SiteValues):
        static.model.generative.forward(static.model.bound, inputs)

    optimizer = numpyro.optim.optax_to_numpyro(static.optimizer)
    return SVI(model, functools.partial(_guide, static), optimizer,
               Trace_ELBO(num_particles=static.particles))


def check_sites(guide: Callable[[SiteValues], Any], inputs: SiteValues, wanted: Iterable[str],
                problem: Problem) -> None:
    """Raises ModelError if a guide leaves a site out; nothing is compiled."""
    names: set[str] = set()

    def sites(inputs: SiteValues):
        with unchecked(), handlers.block(), handlers.seed(rng_seed=0):
            trace = handlers.trace(guide).get_trace(inputs)
        names.update(name for name, site in trace.items() if site["type"] == "sample")
        return 0

    with single_thread():
        jax.eval_shape(sites, inputs)
    missing = next((name for name in wanted if name not in names), None)
    if missing is not None:
        raise ModelError(f"SVI(guide=function) cannot fit {problem}: the guide (the function of "
                         f"the approximate posterior) does not sample '{missing}'. Expected the "
                         f"sites {listed(wanted)}, got {listed(sorted(names))}. Add a "
                         f"line such as sample(\"{missing}\", dist.Normal(0, 1)) to the guide")


@jit(static_argnums=0)
def _initial(static: Static, inputs: SiteValues, key: jax.Array):
    with unchecked():
        return _vi(static).init(key, inputs)


@jit(static_argnums=0)
def _descend(static: Static, state: SVIState, inputs: SiteValues, count: jax.Array):
    svi = _vi(static)
    with unchecked():
        svi.init(jax.random.fold_in(state.rng_key, 5), inputs)  # sets the constraints of params
        return take_steps(svi, state, count, lambda state, i: (inputs,))


class _FullPlates(numpyro.primitives.Messenger):
    """Runs every plate in full."""

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "plate":
            size = msg["args"][0]
            msg |= {"args": (size, None), "value": jnp.arange(size)}


@jit(static_argnums=(0, 4))
def _guided(static: Static, state: SVIState, inputs: SiteValues, key: jax.Array,
            count: int):
    """Draws of the guide, and the trained params of the function, as its sites."""
    svi = _vi(static)
    with unchecked():
        svi.init(jax.random.fold_in(state.rng_key, 6), inputs)
        params = svi.get_params(state)

        def run_guide(key: jax.Array):
            with handlers.block(), handlers.trace() as trace, _FullPlates(), handlers.seed(
                rng_seed=key), handlers.substitute(data=params):
                _guide(static, inputs)
            return {name: site["value"] for name, site in trace.items()
                    if site["type"] == "sample"}

        found = jax.vmap(run_guide)(jax.random.split(key, count))
    specs = {name: spec for name, spec in static.model.generative.params.items()
             if not all(spec.idle)}
    return found | {name: jnp.broadcast_to(flat := spec.flat(params[name]), (count, *flat.shape))
                    for name, spec in specs.items()}
