"""SVI of a plain NumPyro function with a user's guide that takes its arguments, as by NumPyro's
SVI: guides may be amortised (Kingma & Welling 2014), plates with a subsample_size give unbiased
batches, and params and modules of both are trained.

    ELBO = E_q [log p(x, z) − log q(z | x)],   x observed, z latent
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from jax.typing import ArrayLike
from numpyro import handlers

from probml.engines.engine import Problem
from probml.errors import ModelError, Refusal, listed
from probml.language.language import Bound
from probml.numerics.process.libraries import optax
from probml.numerics.process.making import unchecked
from probml.numerics.process.threads import single_thread
from probml.typing import SiteValues


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


def _arguments(model: Bound, inputs: SiteValues) -> dict[str, ArrayLike]:
    """The values of the function's arguments, by name."""
    reading = model.generative
    return {**model.bound, **{own: inputs[name] for name, own in reading.own.items()}}


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
