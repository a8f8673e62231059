"""The closed form of a posterior, block by block, with its log evidence, and a check of both."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from probml.device.rows import Known, Rows
from probml.engines.start.prior import prior_point
from probml.errors import Refusal
from probml.evidence.e_step import expect, log_evidence
from probml.factors.naturals import log_prior
from probml.families.form import Natural, backward, forward
from probml.numerics.compiling import ONCE, jit
from probml.plan.blocks import Block, all_blocks, blocks, pack
from probml.plan.plan import Plan
from probml.posteriors.closed import Closed
from probml.posteriors.conjugate import Marginals, coupled
from probml.updates.least_squares import root, rooted
from probml.updates.updates import Objective, ahead, modes, natural_parameters

# sweeps over all blocks: usually; those in which a block that rounding hides is evaluated at a
# further place; at most, the last of them at the first place if there is no better one
SWEEPS, FURTHER_SWEEPS, MAX_SWEEPS = 3, 3, 6


def closed_form(plan: Plan, known: Known, rows: Rows, roots: bool = False):
    """The posterior, its log evidence, and the difference of the latter at another point. Pure JAX:
    to be jitted or vmapped.

    Args:
        roots: compute coefficients of row-wise Normals by a QR decomposition of their residuals.
    """
    start = params = prior_point(plan, known)
    expected = expect(plan, params, known, rows)
    stages = blocks(plan, True)

    @jax.jit  # traced once, for its shapes and for the loop
    def sweep(carry: tuple):
        """Evaluates every block at the present place; a second sweep at the modes, free of
        cancellation; a block that rounding hides further on, and once more at the mode."""
        at, found_at, _, stable, turn = carry
        at, found_at, natural, settled = dict(at), dict(found_at), [], jnp.ones((), bool)
        for stage in stages:
            objective = Objective(plan, expected, at, known, rows, True, mode=False)
            found = natural_parameters(objective, stage, rounds=1)
            if roots:
                pairs = zip(stage, found, strict=True)
                found = [root(plan, block, at, known, rows) if rooted(plan, block) else one
                         for block, one in pairs]
            readable = {name: b.closed_form.readable for b in stage for name in b.names}
            further = ahead(at, stage, found)
            for name, value in modes(at, stage, found).items():
                good = jnp.asarray(readable[name](value))
                found_at[name] = jnp.where(good, value, found_at[name])
                able = readable[name](further[name]) & (turn < FURTHER_SWEEPS)
                at[name] = jnp.where(able & ~good, further[name], found_at[name])
                settled &= jnp.all(good)
            natural += [integrated(plan, block, n, at, known)
                        for block, n in zip(stage, found, strict=True)]
        return at, found_at, natural, jnp.where(settled, stable + 1, 0), turn + 1

    def more(carry: tuple):
        *_, stable, turn = carry
        return (turn < SWEEPS) | ((stable < 2) & (turn < MAX_SWEEPS))

    none = jnp.zeros((), int)
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                         jax.eval_shape(sweep, (params, params, (), none, none))[2])
    _, params, natural, *_ = jax.lax.while_loop(more, sweep, (params, params, blank, none, none))
    posterior = Closed(tuple(natural), params, params)
    posterior = posterior._replace(
        mean=Marginals(plan, known, posterior).finite_means(params))
    evidence, mismatch = _evidence(plan, known, rows, posterior, start, roots)
    return posterior, evidence, mismatch


def _evidence(plan: Plan, known: Known, rows: Rows, posterior: Closed, start: Mapping,
              roots: bool) -> tuple[jax.Array, jax.Array]:
    """The log evidence by the posterior at its mean, and the amount beyond rounding by which it
    differs some way towards `start`."""
    marginals = Marginals(plan, known, posterior)

    def evidence(at: Mapping[str, jax.Array]):
        """log p(data, θ) − log p(θ | data) at one point, and the size of its terms."""
        terms = jnp.stack([log_evidence(plan, at, known, rows), log_prior(plan, at, known),
                           -marginals.log_density(at)])
        return terms.sum(), jnp.abs(terms).sum()

    # supports are convex
    away = {name: 0.9 * value + 0.1 * start[name] for name, value in posterior.mean.items()}
    values, sizes = jax.vmap(evidence)(jax.tree.map(lambda a, b: jnp.stack([a, b]), posterior.mean,
                                                    away))
    size = sizes.sum()
    # groups thousands of their standard deviations apart lose digits in the statistics: 2e-10 of
    # the terms, measured
    rounding = 256 * jnp.finfo(values.dtype).eps * size + jnp.minimum(1e-9 * size, 1e-3)
    if roots:
        rounding += sum(_rounding(block, n, away) for block, n in
                        zip(marginals.blocks, posterior.natural, strict=True) if "root" in n)
    return values[0], jnp.abs(values[0] - values[1]) - rounding


def _rounding(block: Block, natural: Mapping, at: Mapping) -> jax.Array:
    """A bound on the rounding error of half the squared residuals r of a block at a point: |r|
    times that of columns × coefficients, which are large and cancel."""
    root, c = natural["root"], pack(at, block)
    terms = jnp.sum(jnp.linalg.norm(root, axis=0) * jnp.abs(c))
    return 4 * jnp.finfo(c.dtype).eps * terms * (
        jnp.sqrt(1.0 * len(c)) + jnp.linalg.norm(root @ (c - natural["loc"]))
    )


solve = jit(closed_form, static_argnums=(0, 3), seldom=ONCE)


def integrated(plan: Plan, block: Block, natural: Natural, params: Mapping[str, jax.Array],
               known: Known):
    """A scale's natural parameters with the locations that it scales integrated out: each location
    removes half a count, found from the normaliser of its prior, −½ log|2π c κ|.
    """
    if not block.closed_form.scale:
        return natural
    name = block.names[0]
    scaled = [
        n for b in all_blocks(plan, True) if b.closed_form.joint
        and coupled(plan, b) == name for n in b.names
    ]
    if not scaled:
        return natural
    steps = block.steps

    def normaliser(c: jax.Array):
        env, total = {**params, **known.given, name: backward(c, steps)}, 0.0
        for other in scaled:
            distribution = plan.structure.distribution(other, env)
            site = plan.structure.sites[other]
            total += jnp.broadcast_to(
                distribution.log_prob(jnp.broadcast_to(distribution.mean, site.shape)), site.lattice
            ).sum()
        return total

    c = forward(params[name], steps)  # anywhere: the slope of a logarithm in log c is the same
    return block.closed_form.integrated(natural, c * jax.grad(normaliser)(c))


def refuse_without_conjugacy(plan: Plan, where: str, instead: tuple[str, ...]) -> None:
    """Raises Refusal if some block has no conjugate update given all others.

    Args:
        instead: the names of other engines.
    """
    sites = plan.structure.sites
    heavy = next((name for name in plan.rowwise if sites[name].traits.minorant is not None), None)
    if heavy is not None:
        raise Refusal(f"{where}: site '{heavy}' ({sites[heavy].kind}) has no conjugate prior (for "
                      "which the posterior has a closed form)", instead)
    for block in all_blocks(plan, True):
        entry, name = sites[block.names[0]].entry, block.names[0]
        if not (block.form and block.conjugate) or entry.improper or entry.prior is None:
            raise Refusal(f"{where}: parameter '{name}' ({sites[name].kind}) has no posterior in "
                          "closed form: "
                          f"{block.why or 'the prior is improper (does not integrate to 1)'}",
                          instead)


def is_consistent(evidence: jax.Array, mismatch: jax.Array) -> bool:
    """Whether a closed form has the same log evidence at two points. Wrong algebra differs by far
    more than rounding."""
    return float(mismatch) <= (1e-6 if jax.config.jax_enable_x64
                               else 1e-3 * (1 + abs(float(evidence))))
