"""One iteration of variational Bayes: an E-step at expected log densities, the bound there, and
every conjugate block at its optimum given the others. Pure JAX: to be jitted or vmapped.

    q(z) ∝ exp E[log p(x, z | θ)]                    an E-step at averaged natural parameters
    q(θ_b) ∝ exp E[log p(x, z, θ)]                   over z and all other blocks
    bound = E[log p(x, z, θ)] − E[log q(z)] − E[log q(θ)] = Σ log Σ_z exp E[log p(x, z | θ)]
            + E[log p(θ) − log q(θ)]

A location whose prior scales with the deviation of its data is normal given that scale, and both
are one factor of q (normal–inverse-gamma, normal–inverse-Wishart); all others are independent.

Sources: Attias (1999), "Inferring parameters and structure of latent variable models by variational
Bayes"; Winn & Bishop (2005), "Variational message passing"; Beal (2003), "Variational algorithms
for approximate Bayesian inference".
"""

import math
from collections.abc import Iterable, Mapping

import jax
import jax.numpy as jnp

from probml.device.rows import Known, Rows, Summary
from probml.engines.conjugate.closed_form import integrated
from probml.errors import present
from probml.evidence.expected import Expected
from probml.evidence.passes import expect
from probml.evidence.surrogates import Settings
from probml.factors.prior import log_prior
from probml.families.links import backward
from probml.jaxpr.memo import memo
from probml.plan.blocks import Block, all_blocks, blocks
from probml.plan.plan import Plan
from probml.posteriors.closed import Closed
from probml.posteriors.conjugate import Marginals
from probml.posteriors.coupling import coupled
from probml.posteriors.mean_field import settings
from probml.updates.objective import Objective
from probml.updates.updates import read


@memo(256)
def schedule(plan: Plan) -> tuple[tuple[tuple[Block, ...], frozenset[str]], ...]:
    """The blocks that are updated together, in order, and the first names of those that are not
    averaged over meanwhile: a location that is normal given a scale is updated at the scale's
    reference, and right after it the scale, with the location integrated out."""
    stages = blocks(plan, True)
    scales = {block.names[0]: coupled(plan, block) for stage in stages for block in stage}
    scales = {name: scale for name, scale in scales.items() if scale is not None}

    def kind(block: Block) -> int:
        name = block.names[0]
        return 0 if name in scales else 1 if name in scales.values() else 2

    out = []
    for wanted in range(3):
        for stage in stages:
            group = tuple(block for block in stage if kind(block) == wanted)
            names = {block.names[0] for block in group}
            near = {scales[name] for name in names if name in scales}
            near |= {name for name, scale in scales.items() if scale in names}
            if group:
                out.append((group, frozenset(name for name in names | near if name)))
    return tuple(out)


def updated(plan: Plan, expected: Expected, params: Mapping, known: Known, rows: Rows | Summary,
            closed: Closed | None) -> Closed:
    """q(θ), every block in turn at its optimum given the others and the expected statistics.

    Args:
        closed: q(θ) so far; None: there is only a point, `params`, at which the others are fixed.
    """
    every = all_blocks(plan, True)
    references = {coupled(plan, block) for block in every}
    found: dict[tuple[str, ...], dict] = {}
    if closed is not None:
        found = {block.names: natural for block, natural in zip(every, closed.natural, strict=True)}
        params = {**closed.params, **_typical_values(plan, every, found)}
    params = dict(params)
    for group, without in schedule(plan):
        others = None
        if closed is not None:
            natural = tuple(found[block.names] for block in every)
            others = settings(_marginals(plan, known, Closed(natural, params, params)), without)
        objective = Objective(plan, expected, params, known, rows, True, mode=False,
                              settings=others)
        new = {block.names: _without_impossible_states(
                   block, integrated(plan, block, natural, params, known), known)
               for block, natural in zip(group, read(objective, group), strict=True)}
        found |= new
        # a scale stays at the reference of the locations that it scales
        moved = [block for block in group if block.names[0] not in references]
        params |= _typical_values(plan, moved, new)
    return Closed(tuple(found[block.names] for block in every), params, params)


def _without_impossible_states(block: Block, natural: dict, known: Known) -> dict:
    """A block's natural parameters, without the states of its table that are impossible."""
    concentration = known.concentration.get(block.names[0])
    return natural if concentration is None else dict(
        block.closed_form.confined(natural, concentration))


def _typical_values(plan: Plan, some: Iterable[Block], natural: Mapping) -> dict[str, jax.Array]:
    """The parameters of some blocks at typical values of their distributions."""
    out: dict[str, jax.Array] = {}
    for block in some:
        first = plan.structure.sites[block.names[0]]
        middle = block.closed_form.middle(natural[block.names], present(first.entry.prior))
        if not block.stacked:
            out[block.names[0]] = backward(middle, block.steps)
            continue
        start = 0
        for name in block.names:
            shape = plan.structure.sites[name].shape
            size = math.prod(shape)
            out[name] = middle[start : start + size].reshape(shape)
            start += size
    return out


def _marginals(plan: Plan, known: Known, closed: Closed) -> Marginals:
    return Marginals(plan, known, blocks(plan, True), closed)


def averaged_e_step(plan: Plan, closed: Closed, known: Known,
             rows: Rows) -> tuple[Expected, Marginals, Settings | None]:
    """The E-step at q(θ), q(θ), and the settings over which it averages."""
    marginals = _marginals(plan, known, closed)
    every = settings(marginals) if plan.free else None
    return expect(plan, closed.params, known, rows, settings=every), marginals, every


def bound(plan: Plan, closed: Closed, known: Known, rows: Rows) -> tuple[Expected, jax.Array]:
    """The E-step at q(θ), and the bound there."""
    expected, marginals, every = averaged_e_step(plan, closed, known, rows)
    return expected, expected.log_evidence + expected_log_ratio(plan, marginals, present(every),
                                                                known)


def expected_log_ratio(plan: Plan, marginals: Marginals, every: Settings,
                       known: Known) -> jax.Array:
    """E[log p(θ) − log q(θ)], −KL(q ‖ p)."""
    return every.mean(lambda params: log_prior(plan, params, known)
                      - marginals.log_density(params))


def negative_divergence(plan: Plan, closed: Closed, known: Known) -> jax.Array:
    """E[log p(θ) − log q(θ)] of q(θ), without rows."""
    if not plan.free:
        return jnp.zeros(())
    marginals = _marginals(plan, known, closed)
    return expected_log_ratio(plan, marginals, settings(marginals), known)


def with_means(plan: Plan, closed: Closed, known: Known) -> Closed:
    """q(θ) with its means, or typical values where these are not finite."""
    return closed._replace(mean=_marginals(plan, known, closed).finite_means(closed.params))
