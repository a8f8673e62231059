"""The posterior of the steps of loops and scans that a joint density integrates out, at the point
or averaged over the posterior of all else."""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike

from probml.errors import present
from probml.language.language import Bound
from probml.numerics.compiling import jit
from probml.numerics.transfer import Use, derive_key, placed_all, random_key, split_key
from probml.queries.fitted import Fitted
from probml.queries.outside import by_chain
from probml.typing import PyTree, SiteValues

DRAWS = 256  # of the parameters, over which an answer is averaged
DRAW_PAIRS = 32  # draws of steps at one point, over which what is computed from them is averaged


def point_or_draws(fit: Fitted) -> dict[str, ArrayLike]:
    """Draws of the parameters, (draws, ...); the point alone, where nothing more is known."""
    if fit.belief.varies:
        draws = fit._draws(DRAWS, 0)
        return {name: draws[name] for name in fit.point}
    return {name: jnp.asarray(value)[None] for name, value in fit.point.items()}


def draw_steps(fit: Fitted, draws: SiteValues, n: int, seed: int) -> dict[str, np.ndarray]:
    """Steps of loops, and what the function computes from them, each drawn given one of the draws
    of the parameters: name of a step, and of all → (n, ...)."""
    if not _integrates_steps(fit):
        return {}
    keys = split_key(derive_key(random_key(seed), Use.STEPS), n)
    steps = _evaluate_at(fit, "path", draws, keys)
    return steps | _single(fit, steps, 1)


def draw_steps_by_chain(fit: Fitted, draws: SiteValues) -> dict[str, np.ndarray]:
    """As `draw_steps`, of single steps and draws chain by chain, (chains, draws, ...) each."""
    count, loops = math.prod(np.shape(next(iter(draws.values())))[:2]), names_of_loops(fit)
    return by_chain(lambda flat: {name: value for name, value
                                  in draw_steps(fit, flat, count, 0).items()
                                  if name not in loops}, draws)


def steps_at(fit: Fitted, values: SiteValues, seed: int,
             plug_in: bool) -> dict[str, np.ndarray]:
    """Single steps that are integrated out at one value of the parameters: a draw, or their
    means."""
    if not _integrates_steps(fit):
        return {}
    point = {name: np.asarray(values[name])[None] for name in fit.point}
    steps = {title: mean for title, (mean, _) in _evaluate_at(fit, "moments", point).items()
             } if plug_in else draw_steps(fit, point, 1, seed)
    own = _single(fit, steps, 1) | {name: steps[name] for name in fit.model.generative.steps.scans}
    return {name: value[0] for name, value in own.items()}


def names_of_loops(fit: Fitted) -> tuple[str, ...]:
    """The names of the joint sites of loops, whose steps tables show one by one."""
    groups = fit.model.generative.steps.groups if fit.model.is_joint else {}
    return tuple(title for title, names in groups.items() if names)


def compute_step_means(fit: Fitted) -> dict[str, np.ndarray]:
    """The mean of every step, and of what is computed from steps, of a posterior over its draws."""
    if not _integrates_steps(fit):
        return {}
    values, computed = point_or_draws(fit), {}
    moments = _evaluate_at(fit, "moments", values)
    means = {name: mean.mean(0) for name, (mean, _) in moments.items()}
    if not {*fit.model.generative.derived} <= {*fit.structure.derived}:
        n_draws = len(next(iter(moments.values()))[0])
        keys = split_key(random_key(0), (n_draws, DRAW_PAIRS if n_draws == 1 else 1))
        computed = {name: value.mean(0)
                    for name, value in _evaluate_at(fit, "means_computed", values, keys).items()}
    return computed | means | _single(fit, means, 0)


def posterior_of_step(fit: Fitted, name: str) -> dist.Distribution | None:
    """The distribution of a step, or of each of all; None where no such loop is integrated out."""
    if not _integrates_steps(fit):
        return None
    steps = fit.model.generative.steps
    title, position = steps.places.get(name, (name, None))
    if title not in steps.groups:
        return None
    mean, sd = (moment if position is None else moment[:, position]
                for moment in _evaluate_at(fit, "moments", point_or_draws(fit))[title])
    if len(mean) == 1:
        return dist.Normal(mean[0], sd[0])
    mixed = dist.Normal(jnp.moveaxis(mean, 0, -1), jnp.moveaxis(sd, 0, -1))
    return dist.MixtureSameFamily(dist.Categorical(jnp.full(len(mean), 1 / len(mean))), mixed)


def _integrates_steps(fit: Fitted) -> bool:
    """Whether the fit has its data, and its model integrates loops or scans out."""
    return fit.data is not None and fit.model.is_joint and fit.model.generative.integrated


def _single(fit: Fitted, steps: Mapping[str, np.ndarray], axis: int) -> dict[str, np.ndarray]:
    """Values of all steps, along an axis, as those of single ones."""
    return {name: np.asarray(steps[title]).take(i, axis)
            for name, (title, i) in fit.model.generative.steps.places.items()}


def _evaluate_at(fit: Fitted, method: str, values: SiteValues,
                 *keys: jax.Array) -> dict[str, PyTree]:
    """What a method of SmoothedSteps says of the fitted data at each of some values of the
    parameters, name → (values, ...)."""
    return jax.tree.map(np.asarray, _smoothed(
        fit.model, method, placed_all(present(fit.data).inputs_of_one_row),
        placed_all({name: values[name] for name in fit.point}), *keys))


@jit(static_argnums=(0, 1), draws=3)
def _smoothed(model: Bound, method: str, inputs: Mapping, values: Mapping, *keys: jax.Array):
    at = (values, *keys)
    length = None if jax.tree.leaves(at) else 1  # without any parameter
    return jax.lax.scan(lambda _, args: (None, getattr(model.generative.smoothed(
        model.bound, inputs, args[0]), method)(*args[1:])), None, at, length)[1]
