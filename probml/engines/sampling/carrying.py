"""Continuous latent variables of rows that are sampled with the parameters: which ones; and where
chains start: about a mode, at other modes with a share of the posterior mass, and at draws of the
prior if no mode was found. Chains that start at one place agree whatever other modes there are; so
some start elsewhere."""

from collections.abc import Callable, Mapping

import jax
import numpy as np

from probml.dataset.dataset import Data
from probml.device import layout, load
from probml.device.rows import Known, Rows
from probml.engines.engine import Engine, Problem
from probml.engines.start.begin import PRIOR_STARTS
from probml.engines.start.modes import Mode, distinct_optima
from probml.engines.start.prior import drawn_prior
from probml.errors import Refusal, counted, listed
from probml.evidence import density, row_coordinates
from probml.latents.grouping import advise_cumulative_sum
from probml.numerics.compiling import jit
from probml.numerics.curvature import Starts
from probml.numerics.transfer import placed
from probml.plan.plan import Plan
from probml.posteriors.posterior import unconstrained

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
        names, sites = problem.plan.carried, problem.plan.structure.sites
        if not names:
            return ""
        each = sum(int(np.prod(sites[name].cells, dtype=int)) for name in names)
        return (f"sampling {listed(names)}, {counted(each, 'number')} per row, together with the "
                "parameters")


def check(problem: Problem, engine: str, draws: int) -> None:
    """Raises Refusal if latent variables of weighted rows are sampled, or draws do not fit into
    memory."""
    plan, weights = problem.plan, problem.weights
    if not plan.carried:
        return
    if weights is not None and not np.isin(weights, (0, 1)).all():
        raise Refusal(f"{engine} cannot fit {problem} with weights: a latent value of "
                      f"'{plan.carried[0]}' is sampled for each row, and a row of weight 2 would "
                      "need two values. Repeat each row as often as its weight says, or "
                      f'integrate the variable out approximately, {engine}(integrate="all")')
    count = (problem.size or 0) * draws * sum(
        int(np.prod(plan.structure.sites[name].cells, dtype=int)) for name in plan.carried)
    if count > MAX_VALUES:
        raise Refusal(f"{engine} cannot fit {problem}: a latent value of '{plan.carried[0]}' is "
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


MAX_LOWER = 7.0  # log mass by which another mode may be lower: 0.1%

# coordinates (d,) → the density and its curvature about them
Measure = Callable[[np.ndarray], Mode]


def starts(problem: Problem, known: Known, begun: Mode, chains: int,
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
    if not seen or problem.plan.carried or not set(problem.plan.free) <= set(seen):
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
    drawn = drawn_prior(plan, known, PRIOR_STARTS, problem.seed)
    if drawn is None:
        return []
    rest = np.random.default_rng([problem.seed, 13]).standard_normal(
        (PRIOR_STARTS, size - drawn.shape[1]))
    return list(np.concatenate([drawn, rest], 1).astype(drawn.dtype))
