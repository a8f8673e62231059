"""The closed form of a posterior, read off block by block, with its evidence, and a check of it."""

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from probml.device.rows import Known, Rows
from probml.engines.start.prior import prior_point
from probml.evidence.passes import expect, log_evidence
from probml.factors.prior import log_prior
from probml.families.links import backward, forward
from probml.numerics.compile_effort import ONCE
from probml.numerics.compiling import jit
from probml.plan.blocks import all_blocks, blocks, pack
from probml.plan.plan import Plan
from probml.posteriors.closed import Closed
from probml.posteriors.conjugate import Marginals
from probml.posteriors.coupling import coupled
from probml.updates.least_squares import root, rooted
from probml.updates.objective import Objective
from probml.updates.updates import ahead, modes, read

# readings of all blocks: where each is told; where rounding hides one, that look for a place
# further on; at the most, the last of them where the first was if there is none
SWEEPS, FURTHER, MOST = 3, 3, 6


def closed_form(plan: Plan, known: Known, rows: Rows, roots: bool = False):
    """The posterior, its log evidence, and by how much this differs at another point. Pure JAX: to
    be jitted or vmapped.

    Args:
        roots: coefficients of row-wise Normals by the QR decomposition of their residuals.
    """
    start = params = prior_point(plan, known)
    expected = expect(plan, params, known, rows)
    stages = blocks(plan, True)

    @jax.jit  # traced once, for its shapes and for the loop
    def sweep(carry):
        """Read every block at the present place; a second sweep reads at the modes, free of
        cancellation. What rounding hid is read further on, and once more at the mode."""
        at, found_at, _, calm, turn = carry
        at, found_at, natural, settled = dict(at), dict(found_at), [], jnp.ones((), bool)
        for stage in stages:
            objective = Objective(plan, expected, at, known, rows, True, mode=False)
            found = read(objective, stage, rounds=1)
            if roots:
                pairs = zip(stage, found, strict=True)
                found = [root(plan, block, at, known, rows) if rooted(plan, block) else one
                         for block, one in pairs]
            readable = {name: b.form.readable for b in stage for name in b.names}
            further = ahead(at, stage, found)
            for name, value in modes(at, stage, found).items():
                good = jnp.asarray(readable[name](value))
                found_at[name] = jnp.where(good, value, found_at[name])
                able = readable[name](further[name]) & (turn < FURTHER)
                at[name] = jnp.where(able & ~good, further[name], found_at[name])
                settled &= jnp.all(good)
            natural += [integrated(plan, block, n, at, known)
                        for block, n in zip(stage, found, strict=True)]
        return at, found_at, natural, jnp.where(settled, calm + 1, 0), turn + 1

    def more(carry):
        *_, calm, turn = carry
        return (turn < SWEEPS) | ((calm < 2) & (turn < MOST))

    none = jnp.zeros((), int)
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                         jax.eval_shape(sweep, (params, params, (), none, none))[2])
    _, params, natural, *_ = jax.lax.while_loop(more, sweep, (params, params, blank, none, none))
    posterior = Closed(tuple(natural), params, params)
    posterior = posterior._replace(mean=_means(plan, Marginals(plan, known, stages, posterior),
                                               params))
    evidence, mismatch = _evidence(plan, known, rows, stages, posterior, start, roots)
    return posterior, evidence, mismatch


def _evidence(plan: Plan, known: Known, rows: Rows, stages: tuple, posterior: Closed,
              start: Mapping, roots: bool) -> tuple[jax.Array, jax.Array]:
    """The log evidence by a posterior at its mean, and by how much more than rounding it differs
    some way towards `start`."""
    marginals = Marginals(plan, known, stages, posterior)

    def evidence(at):
        """The identity at one point, and the size of its terms: their rounding is no mismatch."""
        terms = jnp.stack([log_evidence(plan, at, known, rows), log_prior(plan, at, known),
                           -marginals.log_density(at)])
        return terms.sum(), jnp.abs(terms).sum()

    # supports are convex
    away = {name: 0.9 * value + 0.1 * start[name] for name, value in posterior.mean.items()}
    values, sizes = jax.vmap(evidence)(jax.tree.map(lambda a, b: jnp.stack([a, b]), posterior.mean,
                                                    away))
    size = sizes.sum()
    # groups thousands of their own spreads apart lose digits in the statistics: 2e-10 of the terms,
    # measured
    rounding = 256 * jnp.finfo(values.dtype).eps * size + jnp.minimum(1e-9 * size, 1e-3)
    if roots:
        every = [block for stage in stages for block in stage]
        rounding += sum(_rounding(block, n, away)
                        for block, n in zip(every, posterior.natural, strict=True) if "root" in n)
    return values[0], jnp.abs(values[0] - values[1]) - rounding


def _rounding(block, natural: Mapping, at: Mapping) -> jax.Array:
    """What rounding can do to half the squared residuals r of a block at a point: |r| times that of
    columns × coefficients, which are large and cancel."""
    root, c = natural["root"], pack(at, block)
    terms = jnp.sum(jnp.linalg.norm(root, axis=0) * jnp.abs(c))
    return 4 * jnp.finfo(c.dtype).eps * terms * (
        jnp.sqrt(1.0 * len(c)) + jnp.linalg.norm(root @ (c - natural["loc"]))
    )


solve = functools.partial(jit, static_argnums=(0, 3), seldom=ONCE)(closed_form)


def integrated(plan: Plan, block, natural, params, known: Known):
    """A scale's natural parameters with the locations that it scales integrated out: each location
    removes half a count.

    The count is read off the normaliser of the locations' prior, −½ log|2π c κ| each.
    """
    if not block.form.scale:
        return natural
    name = block.names[0]
    scaled = [
        n for b in all_blocks(plan, True) if b.form.joint
        and coupled(plan, b) == name for n in b.names
    ]
    if not scaled:
        return natural
    steps = block.steps

    def normaliser(c):
        env, total = {**params, **known.given, name: backward(c, steps)}, 0.0
        for other in scaled:
            distribution = plan.structure.distribution(other, env)
            site = plan.structure.sites[other]
            total += jnp.broadcast_to(
                distribution.log_prob(jnp.broadcast_to(distribution.mean, site.shape)), site.lattice
            ).sum()
        return total

    c = forward(params[name], steps)  # anywhere: the slope of a logarithm in log c is the same
    return block.form.integrated(natural, c * jax.grad(normaliser)(c))


def _means(plan: Plan, marginals: Marginals, params):
    means = marginals.means()
    return {name: jnp.where(jnp.isfinite(means[name]), means[name], params[name])
            for name in plan.free}


def is_consistent(evidence, mismatch) -> bool:
    """Whether a closed form has the same log evidence at two points. Wrong algebra differs by far
    more than rounding."""
    return float(mismatch) <= (1e-6 if jax.config.jax_enable_x64
                               else 1e-3 * (1 + abs(float(evidence))))
