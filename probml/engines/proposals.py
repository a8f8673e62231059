"""Proposals of importance sampling about modes of a posterior density."""

import math

import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known
from probml.engines import importance
from probml.engines.engine import Problem
from probml.engines.importance import Component, proposal
from probml.engines.start import begin
from probml.engines.start.modes import Mode
from probml.evidence import density
from probml.numerics.transfer import placed
from probml.plan import decide

MAX_DISTANCE = 0.1  # standard deviations from the mode, within which a proposal is made
# of the log probabilities of two states, and of the log variances of the coordinates given each, up
# to which one is the other with its states renumbered
MAX_DIFFERENCE = 5e-3
MAX_STATES = 64  # joint states of discrete sites, for each of which a mode is looked for
# standard deviations by which a proposal may be away from another, the factor by which it may be
# wider, and that by which its volume may be smaller, for draws of the other to do for both
MAX_MOVE, MAX_STRETCH, MAX_VOLUME = 2.0, 1.5, 3.0


def proposal_about(begun: Mode) -> tuple[Component, float]:
    """The proposal about the mode, a Newton step from where the optimisation ended, and the length
    of that step in standard deviations."""
    root, slope = np.asarray(begun.frame.root, float), np.asarray(begun.starts.gradient, float)[0]
    step = root.T @ slope
    away = float(np.sqrt(np.sum(step**2)))
    centre = np.asarray(begun.frame.centre, float)
    if not np.isfinite(away):
        return proposal(centre, root), np.inf
    return proposal(centre + root @ step * min(1.0, 1 / max(away, 1e-9)), root), away


def proposals_given_states(problem: Problem, known: Known, mode: Component,
                           draws: int) -> list[Component]:
    """Proposals about the modes given each joint state of the discrete sites outside rows, with the
    probabilities of the states by Laplace's approximation; one for states whose posteriors are
    about the same, none for those of the mixture's own mode.

    The posterior is the mixture of those given each state. Under a rare state a parameter may have
    its prior alone, of which no mode of the mixture tells. None: there are no such sites, too many
    states, or too many rows to draw from the mixture.

    Args:
        known: with the coordinates of the mode. mode: of the mixture, where searches begin.
        draws: of each round.
    """
    plan, rows = problem.plan, problem.rows
    sizes = [plan.variables[name].states for name in plan.globals]
    if (not plan.globals or math.prod(sizes) > MAX_STATES
            or draws * importance.work(plan, known, rows) > importance.MAX_WORK):
        return []
    some = decide.make(plan.structure, plan.pattern, (*plan.given, *plan.globals))
    if (some.free, some.effects) != (plan.free, plan.effects):
        return []
    start = placed(mode.centre.astype(jnp.result_type(float)))
    spread = np.zeros((1, density.unbounded_size(plan)))
    found, logs = [], []
    for codes in np.ndindex(*sizes):
        state = {name: jnp.reshape(jnp.asarray(plan.variables[name].values)[code],
                                   plan.structure.sites[name].shape)
                 for name, code in zip(plan.globals, codes, strict=True)}
        begun = begin.measure_mode(some, (), start, known._replace(given={**known.given, **state}),
                                   rows, spread)
        component, away = proposal_about(begun)
        if away <= MAX_DISTANCE and np.min(np.asarray(begun.frame.curvature)) > 0:
            found.append(component)
            logs.append(float(begun.value) + np.linalg.slogdet(component.root)[1])
    mass = np.exp(np.array(logs) - np.max(logs, initial=-np.inf))
    mass /= mass.sum()
    distinct = [mode]
    for i in sorted(_without_renumbered_states(mode, found, logs), key=lambda i: -mass[i]):
        over = next((at for at, old in enumerate(distinct) if _is_covered(found[i], old)), None)
        if over is None:
            distinct.append(found[i]._replace(mass=mass[i]))
        elif over:
            distinct[over] = distinct[over]._replace(mass=distinct[over].mass + mass[i])
    return distinct[1:]


def _without_renumbered_states(mode: Component, found: list[Component],
                               logs: list[float]) -> list[int]:
    """The indices of the states, without those that are another one renumbered: their posterior is
    the same, with the names of the states exchanged. The one nearest to the mode is kept."""
    away = [np.linalg.norm(np.linalg.solve(mode.root, each.centre - mode.centre)) for each in found]
    summaries = [np.append(log, np.sort(np.log((each.root**2).sum(1))))
                 for log, each in zip(logs, found, strict=True)]
    kept: list[int] = []
    for i in map(int, np.argsort(away)):
        if all(np.abs(summaries[i] - summaries[other]).max() > MAX_DIFFERENCE for other in kept):
            kept.append(i)
    return kept


def _is_covered(new: Component, old: Component) -> bool:
    """Whether draws of the old proposal reach wherever those of the new one do, and nearly as
    often."""
    moved, *axes = np.linalg.solve(old.root, np.column_stack([new.centre - old.centre, new.root])).T
    ratios = np.linalg.svd(axes, compute_uv=False)
    return bool(np.linalg.norm(moved) < MAX_MOVE and ratios.max() < MAX_STRETCH
                and np.log(ratios).sum() > -np.log(MAX_VOLUME))
