"""Continuous sites of a Python loop, x_0, x_1, …, as one site of all steps, with one density of the
observations.

The function is run once by itself for its program: the arguments of every step's distribution and
the log density of all that is observed. Steps whose equations are the same, of other sites and
other numbers, are computed by one of them mapped over all (jaxpr/repeats), so what engines compile
does not grow with the steps. Then it is run as it stands, its steps left out, for the parameters
beside them; the steps are handed on as one site, as numpyro's scan hands on its own.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions.batch_util import promote_batch_shape

from probml.errors import ModelError, counted
from probml.interface.functions.messages import Record, run_in_part
from probml.interface.functions.steps.loop_sites import LoopSites
from probml.interface.functions.steps.programs import Program, program_of
from probml.typing import PyTree, SiteValues


def run_with_loop_sites(call: Callable[[], object], steps: LoopSites, given: SiteValues) -> PyTree:
    """Run a function, the steps of each loop as one site: those outside hear of the parameters
    beside them, of a site a loop, of what is computed, and of one factor, what is observed.

    Args:
        given: values of sites that are data, name → value.

    Raises:
        ModelError: the steps of a loop are of several kinds; the support of another site looks at
            them.
    """
    program = program_of(call, steps, given)
    result, others = run_in_part(call, program.blocked, program.program.other_values,
                                 program.program.step_values,
                                 given,
                                 program.mixed)
    record, drawn = Record(), dict[str, jax.Array]()  # one draw of all loops

    def at(title: str, step_values: SiteValues) -> dist.Distribution:
        known = {title: msg["value"] for title, msg in record.messages.items()}
        return _joint_distribution(program, title, {**others, **known, **step_values})

    def draw(title: str, key: jax.Array) -> jax.Array:
        if not drawn:
            observed = {title: msg["value"] for title, msg in record.messages.items()
                        if msg["value"] is not None}
            known = {**others, **steps.split_steps(observed)}
            with (handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=key),
                  handlers.condition(data=dict(given)), handlers.substitute(data=known)):
                call()
            drawn.update({title: jnp.stack([trace[name]["value"] for name in names])
                          for title, names in steps.groups.items()})
        return drawn[title]

    with record:
        values = {title: numpyro.sample(title, _JointSteps(
                      title, len(names), program.first_distributions[title], at, draw))
                  for title, names in steps.groups.items()}
    for title in steps.groups:  # what a step looks at is known now
        record.messages[title]["fn"] = at(title, values)
    values |= others
    for name, i in steps.places.items():
        numpyro.deterministic(name, values[i[0]][i[1]])
    for name, value in program.computed(values).items():
        numpyro.deterministic(name, value)
    logs = program.program.of_kind("log")
    if logs:
        first = next((name for name in (program.program.owners[i][0] for i in logs)
                      if name not in program.mixed), f"beside {next(iter(steps.groups), '')}")
        numpyro.factor(first, sum(part.sum() for _, part in program.program.parts(logs, values)))
    return result


class _JointSteps(dist.Distribution):
    """All steps of a loop, jointly: each given those before it.

    Args:
        like: the distribution of the first step.
        at: name, values of some loops → that of all steps at these values.
        draw: name, a key → a draw of all steps.
    """

    arg_constraints: dict = {}

    def __init__(self, title: str, count: int, like: dist.Distribution, at: Callable,
                 draw: Callable):
        self.title, self.like, self.at, self.draw = title, like, at, draw
        super().__init__((count, *like.batch_shape), tuple(like.event_shape))

    @property
    def support(self) -> dist.constraints.Constraint:
        return self.like.support

    def log_prob(self, value: jax.Array) -> jax.Array:
        return self.at(self.title, {self.title: value}).log_prob(value)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        if sample_shape:
            raise NotImplementedError
        return self.draw(self.title, key)


def _joint_distribution(program: Program, title: str,
                        values: SiteValues) -> dist.Distribution:
    """The distributions of all steps as one, steps first."""
    names = program.program.steps.groups[title]
    tree = program.trees[names[0]]
    other = next((name for name in names if program.trees[name] != tree), None)
    if other is not None:
        raise ModelError(f"sites '{names[0]}' and '{other}', which are steps of a loop, have "
                         "different distributions. Give all steps the same distribution")
    by_step = [[i for i, owner in enumerate(program.program.owners) if owner == (name, "argument")]
               for name in names]
    arrays = []
    for outputs in zip(*by_step, strict=True):
        parts = program.program.parts(outputs, values)
        order = np.argsort([outputs.index(i) for numbers, _ in parts for i in numbers])
        array = parts[0][1] if len(parts) == 1 else jnp.concatenate([part for _, part in parts])
        arrays.append(array if (np.diff(order) == 1).all() else array[order])
    joint = promote_batch_shape(jax.tree.unflatten(tree, arrays))
    shape = (len(names), *program.first_distributions[title].batch_shape)
    if tuple(joint.batch_shape) != shape:
        raise ModelError(f"the {counted(len(names), 'step')} of '{title}' have different shapes. "
                         f"{len(names)} "
                         f"copies of the first step have the shape {shape}, but the steps together "
                         f"have the shape {joint.batch_shape}. Give all steps the same shape")
    return joint
