"""Latent variables of a model in draws of its posterior: continuous ones of rows, sampled with the
parameters, which ones and their values; and exact draws of discrete sites outside rows and of
effects of groups, given each draw of the parameters."""

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.dataset.dataset import Data
from probml.device import layout, load
from probml.device.rows import Known, Rows
from probml.engines.engine import Engine, Problem
from probml.engines.importance import in_batches
from probml.errors import Refusal, counted, listed
from probml.evidence import density, row_coordinates
from probml.evidence.e_step import global_posterior
from probml.latents.grouping import advise_cumulative_sum
from probml.numerics.compiling import jit
from probml.numerics.transfer import Use, derive_key, placed, random_key
from probml.plan.plan import Plan
from probml.posteriors import random_effects
from probml.posteriors.posterior import Draws, Normal
from probml.typing import PyTree

INTEGRATE = ("exact", "all", "none")
MAX_VALUES = 2**28  # of latent variables in all draws


class LatentSampler(Engine):
    """An engine that samples continuous latent variables of rows with the parameters, except those
    that it integrates out.

    Attributes:
        integrate: which are integrated out: "exact", those in closed form; "all", those with any
            integral; "none".
    """

    integrate: str

    def prepare_data(self, data: Data) -> Data:
        """The data with values for those latent variables of rows that are sampled.

        Raises:
            Refusal: such a variable is a state of a chain.
        """
        plan = data.plan(lenient=True)
        names = [name for group in plan.latents for name in group.names
                 if self.integrate == "none" or not group.kind.exact and (
                     self.integrate == "exact" or group.kind.finer is None)]
        timed = next((name for name in names if data.structure.sites[name].time is not None), None)
        if timed is not None:
            raise Refusal(f"site '{timed}' is a continuous latent state of a chain, and NUTS and "
                          f"SVI cannot sample such states. {advise_cumulative_sum(timed)}")
        if names and data.survey is not None:
            raise Refusal(f"site '{names[0]}' is continuous and latent and cannot be integrated "
                          "out exactly, so its values must be sampled, which needs all rows in "
                          "memory. Integrate it out approximately, such as "
                          'NUTS(integrate="all"), or pass a table in memory', ("EM",))
        return data.carrying(names) if names else data

    def describe_method(self, problem: Problem) -> str:
        """The latent variables that are sampled with the parameters, in words."""
        names, sites = problem.plan.sampled, problem.plan.structure.sites
        if not names:
            return ""
        each = sum(int(np.prod(sites[name].cells, dtype=int)) for name in names)
        return (f"sampling {listed(names)}, {counted(each, 'number')} per row, together with the "
                "parameters")


def check(problem: Problem, engine: str, draws: int) -> None:
    """Raises Refusal if latent variables of weighted rows are sampled, or draws do not fit into
    memory."""
    plan, weights = problem.plan, problem.weights
    if not plan.sampled:
        return
    if weights is not None and not np.isin(weights, (0, 1)).all():
        raise Refusal(f"{engine} cannot fit {problem} with weights: a latent value of "
                      f"'{plan.sampled[0]}' is sampled for each row, and a row of weight 2 would "
                      "need two values. Repeat each row as often as its weight says, or "
                      f'integrate the variable out approximately, {engine}(integrate="all")')
    count = (problem.size or 0) * draws * sum(
        int(np.prod(plan.structure.sites[name].cells, dtype=int)) for name in plan.sampled)
    if count > MAX_VALUES:
        raise Refusal(f"{engine} cannot fit {problem}: a latent value of '{plan.sampled[0]}' is "
                      f"sampled for each row, and the draws would be {count:,.0f} numbers, more "
                      f"than the limit of {MAX_VALUES:,.0f}. Give fewer rows"
                      f"{' or a smaller draws=' * (engine == 'NUTS')}, or integrate the variable "
                      f'out approximately, {engine}(integrate="all")',
                      ("EM",))


def drawn(plan: Plan, known: Known, rows: Rows, u: np.ndarray) -> dict[str, np.ndarray]:
    """The values of the sampled latent variables at draws of all coordinates, (chains, draws, d):
    name → (chains, draws, chunks, b, *cells)."""
    lead = u.shape[:2]
    found = jax.device_get(_drawn(plan, known, rows, placed(u.reshape(-1, u.shape[-1]))))
    return {name: value.reshape(*lead, *value.shape[1:]) for name, value in found.items()}


@jit(static_argnums=0)
def _drawn(plan: Plan, known: Known, rows: Rows, u: jax.Array) -> dict[str, jax.Array]:
    first = density.unbounded_size(plan)

    def values_at(u: jax.Array):
        params, _ = density.from_unbounded(plan, u[:first], known)
        return row_coordinates.values(plan, params, known, rows, u[first:])

    return jax.lax.map(values_at, u)


def unloaded(problem: Problem, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same values in the order of the user's rows, (chains, draws, n, *cells)."""
    order, out = layout.order(problem.data, problem.plan), {}
    for name, value in values.items():
        flat = value.reshape(-1, *value.shape[2:])
        rows = np.stack([load.unload(one, problem.size, order) for one in flat])
        out[name] = rows.reshape(*value.shape[:2], *rows.shape[1:])
    return out


# Discrete sites outside rows and effects of groups.

MAX_BATCH = 2**12  # draws of the parameters for a device call
BATCH_NUMBERS = 2**20  # rows, times entries of a row, times draws that are evaluated at once
NORMAL_DRAWS = 1000  # of a normal distribution, where discrete sites are drawn with each
# rows times draws above which effects are drawn about conditional means that are linear in the
# parameters
MAX_EXACT_WORK = 2**24
# optimisations to which a program amounts that passes over the rows for each draw
DRAWING_LOOPS = 32


def with_states(plan: Plan, draws: Draws, known: Known, rows: Rows, seed: int) -> Draws:
    """Draws with the discrete sites outside rows and the effects of groups, drawn given the data
    and each draw of the parameters, and of latent variables of rows in the layout of `rows`."""
    if plan.groupings:
        drawn = _for_each_draw(_effects, plan, draws, known, rows,
                               derive_key(random_key(seed), Use.EFFECTS),
                               plan.table_entries + plan.width)
        draws = draws._replace(values={**draws.values, **drawn})
    if not plan.globals:
        return draws
    states = math.prod(plan.variables[name].states for name in plan.globals)
    tables, drawn = _for_each_draw(_states, plan, draws, known, rows,
                                   derive_key(random_key(seed), Use.STATES), states)
    return draws._replace(values={**draws.values, **drawn}, tables=tables)


def _for_each_draw(program: Callable, plan: Plan, draws: Draws, known: Known, rows: Rows,
                   key: jax.Array, entries: int) -> PyTree:
    """Results (chains, draws, ...) of `program` for each draw of the parameters.

    Args:
        entries: numbers that the program computes for each row.
    """
    lead = np.shape(draws.values[plan.free[0]])[:2]
    flat = {name: np.asarray(value).reshape(-1, *np.shape(value)[2:]) for name, value in (
        *((name, draws.values[name]) for name in plan.free), *draws.inside.items())}
    most = min(MAX_BATCH, max(BATCH_NUMBERS // max(rows.size * entries, 1), 1),
               2 * math.prod(lead) - 1)
    found = in_batches(lambda batch, keys: program(plan, batch, known, rows, key, keys), flat,
                       1 << most.bit_length() - 1)
    return jax.tree.map(lambda leaf: leaf.reshape(*lead, *leaf.shape[1:]), found)


@jit(static_argnums=0, loops=DRAWING_LOOPS)
def _effects(plan: Plan, values: Mapping, known: Known, rows: Rows, key: jax.Array,
             numbers: ArrayLike) -> dict:
    """A draw of the effects at each point.

    Args:
        values: of the parameters, (draws, ...). numbers: (draws,), of each draw's random key.
    """
    def draw_effects(params: Mapping, number: jax.Array):
        return random_effects.draw(random_effects.conditional(plan, params, known, rows), plan,
                                   jax.random.fold_in(key, number))

    return jax.vmap(draw_effects)(values, numbers)


@jit(static_argnums=0)
def _states(plan: Plan, values: Mapping, known: Known, rows: Rows, key: jax.Array,
            numbers: ArrayLike) -> tuple:
    """The posterior of the discrete sites outside rows at each point, and a draw of them; Args as
    of `_effects`."""

    def draw_states(params: Mapping, number: jax.Array):
        table = global_posterior(plan, params, known,
                                 row_coordinates.with_values(plan, rows, params))
        where = jnp.unravel_index(jax.random.categorical(
            jax.random.fold_in(key, number), table.reshape(-1)), table.shape)
        cells = {n: jnp.asarray(plan.variables[n].values)[at]
                 for n, at in zip(plan.globals, where, strict=True)}
        return table, {n: cell.reshape(plan.structure.sites[n].shape) for n, cell in cells.items()}

    return jax.vmap(draw_states)(values, numbers)


def complete_normal(plan: Plan, normal: Normal, known: Known, rows: Rows,
                    seed: int) -> Normal | Draws:
    """The normal distribution itself or, if the model has discrete sites outside rows or effects of
    groups, draws of it with these drawn given each; of so many rows that a pass for each is too
    much, effects to the first order about the centre."""
    if not (plan.globals or plan.groupings):
        return normal
    values = normal.draw(plan, known, NORMAL_DRAWS, seed)
    drawn = {name: np.asarray(value)[None] for name, value in values.items()}
    work = rows.chunks * rows.size * NORMAL_DRAWS
    if plan.groupings and not plan.globals and work > MAX_EXACT_WORK:
        effects = random_effects.draw_about_linear_means(
            plan, normal.loc, values, known, rows, derive_key(random_key(seed), Use.EFFECTS))
        return Draws(drawn | {name: np.asarray(value)[None] for name, value in effects.items()},
                     None, {})
    return with_states(plan, Draws(drawn, None, {}), known, rows, seed)
