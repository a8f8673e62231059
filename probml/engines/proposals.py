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


def proposal_about(mode: Mode) -> tuple[Component, float]:
    """The proposal about the mode, a Newton step from where the optimisation ended, and the length
    of that step in standard deviations."""
    root, gradient = np.asarray(mode.frame.root, float), np.asarray(mode.starts.gradient, float)[0]
    step = root.T @ gradient
    distance = float(np.sqrt(np.sum(step**2)))
    centre = np.asarray(mode.frame.centre, float)
    if not np.isfinite(distance):
        return proposal(centre, root), np.inf
    return proposal(centre + root @ step * min(1.0, 1 / max(distance, 1e-9)), root), distance


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
    sub = decide.make(plan.structure, plan.pattern, (*plan.given, *plan.globals))
    if (sub.free, sub.effects) != (plan.free, plan.effects):
        return []
    start = placed(mode.centre.astype(jnp.result_type(float)))
    normals = np.zeros((1, density.unbounded_size(plan)))
    parts, log_masses = [], []
    for codes in np.ndindex(*sizes):
        state = {name: placed(np.reshape(np.asarray(plan.variables[name].values)[code],
                                         plan.structure.sites[name].shape))
                 for name, code in zip(plan.globals, codes, strict=True)}
        peak = begin.measure_mode(sub, (), start, known._replace(given={**known.given, **state}),
                                  rows, normals)
        component, distance = proposal_about(peak)
        if distance <= MAX_DISTANCE and np.min(np.asarray(peak.frame.curvature)) > 0:
            parts.append(component)
            log_masses.append(float(peak.value) + np.linalg.slogdet(component.root)[1])
    mass = np.exp(np.array(log_masses) - np.max(log_masses, initial=-np.inf))
    mass /= mass.sum()
    distinct = [mode]
    for i in sorted(_without_renumbered_states(mode, parts, log_masses), key=lambda i: -mass[i]):
        cover = next((j for j, old in enumerate(distinct) if _is_covered(parts[i], old)), None)
        if cover is None:
            distinct.append(parts[i]._replace(mass=mass[i]))
        elif cover:
            distinct[cover] = distinct[cover]._replace(mass=distinct[cover].mass + mass[i])
    return distinct[1:]


def _without_renumbered_states(mode: Component, parts: list[Component],
                               log_masses: list[float]) -> list[int]:
    """The indices of the states, without those that are another one renumbered: their posterior is
    the same, with the names of the states exchanged. The one nearest to the mode is kept."""
    dist = [np.linalg.norm(np.linalg.solve(mode.root, part.centre - mode.centre)) for part in parts]
    summaries = [np.append(log, np.sort(np.log((part.root**2).sum(1))))
                 for log, part in zip(log_masses, parts, strict=True)]
    kept: list[int] = []
    for i in map(int, np.argsort(dist)):
        if all(np.abs(summaries[i] - summaries[other]).max() > MAX_DIFFERENCE for other in kept):
            kept.append(i)
    return kept


def _is_covered(new: Component, old: Component) -> bool:
    """Whether draws of the old proposal reach wherever those of the new one do, and nearly as
    often."""
    shift, *axes = np.linalg.solve(old.root, np.column_stack([new.centre - old.centre, new.root])).T
    ratios = np.linalg.svd(axes, compute_uv=False)
    return bool(np.linalg.norm(shift) < MAX_MOVE and ratios.max() < MAX_STRETCH
                and np.log(ratios).sum() > -np.log(MAX_VOLUME))
