"""Exact: the posterior in closed form, where every parameter block is conjugate; the evidence with
it."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset.dataset import Data
from probml.device.rows import Known, Rows
from probml.engines.engine import Outcome, Status
from probml.engines.start.prior import prior_point
from probml.errors import Refusal
from probml.evidence.passes import expect, log_evidence
from probml.factors.prior import log_prior
from probml.families.links import backward, forward
from probml.numerics.compiling import jit
from probml.plan.blocks import blocks, pack
from probml.plan.plan import Plan
from probml.posteriors.conjugate import Marginals
from probml.posteriors.coupling import Posterior, coupling
from probml.updates.least_squares import root, rooted
from probml.updates.updates import Objective, modes, read

# What must be left of a coefficient's precision beside all others, by whether JAX computes in
# doubles; less is rounding
LOOSE = {True: 1.5e-14, False: 1e-6}
# The same of its column, in roundings, where products of columns are not taken: six digits are
# left, or four
DIGITS = {True: 2.0**20, False: 2.0**13}


@dataclass(frozen=True)
class Exact:
    """The exact posterior and log evidence: conjugate updates, and enumeration of discrete sites
    outside rows.

    log p(data) = log p(data | θ) + log p(θ) − log p(θ | data) at any θ, so no family needs an
    evidence formula.

    Cost: one pass over the rows.
    """

    def refuse(self, data: Data, plan: Plan, ladder: bool = False) -> None:
        """Raise Refusal, naming the site and the reason, where there is no closed form."""
        where = f"Exact cannot fit model '{plan.structure.model.name}'"
        sites = plan.structure.sites
        if not plan.free:
            return
        torn = next((name for name in plan.observed if plan.pattern.get(name) == "torn"), None)
        if torn is not None:
            raise Refusal(
                f"{where}: site '{torn}' ({sites[torn].kind}) is a vector that is seen in part in "
                f"some rows, which has no closed "
                "form. Try EM()"
            )
        hidden = [v for v in plan.variables if sites[v].rows]
        if hidden:
            state = "unseen in some rows" if hidden[0] in plan.pattern else "unseen"
            raise Refusal(
                f"{where}: site '{hidden[0]}' ({sites[hidden[0]].kind}) is discrete, inside rows() "
                f"and {state}, beside "
                "unknown parameters. Try EM()"
            )
        if plan.globals:
            raise Refusal(
                f"{where}: site '{plan.globals[0]}' is discrete and unseen beside unknown "
                f"parameters ('{plan.free[0]}', ...). Try EM()"
            )
        heavy = next((name for name in plan.rowwise if sites[name].traits.minorant is not None),
                     None)
        if heavy is not None:
            raise Refusal(f"{where}: site '{heavy}' ({sites[heavy].kind}) has no conjugate prior. "
                          f"Try EM()")
        for stage in blocks(plan, True):
            for block in stage:
                if (not (block.form and block.conjugate)
                    or sites[block.names[0]].entry.improper):
                    why = block.why or "its prior is improper"
                    raise Refusal(
                        f"{where}: parameter '{block.names[0]}' ({sites[block.names[0]].kind}) has "
                        f"no conjugate update: "
                        f"{why}. Try EM() or MAP()"
                    )
        single = {b.names[0] for stage in blocks(plan, True) for b in stage if not b.form.joint}
        for name in plan.free:
            above = next((p for uses in sites[name].uses.values() for p in uses if p in single),
                         None)
            if name in single and above is not None:
                raise Refusal(
                    f"{where}: parameter '{above}' stands in the prior of '{name}': together their "
                    f"posterior has no closed form. "
                    f"Give '{above}' in the data, or try EM() or MAP()"
                )
        for block in (b for stage in blocks(plan, True) for b in stage if b.form.joint):
            scales = coupling(plan, block)
            if block.stacked and any(scales) and any(sites[name].family.event
                                                     for name in block.names):
                raise Refusal(
                    f"{where}: '{block.names[0]}' (MultivariateNormal, several vectors) and "
                    f"'{next(filter(None, scales))}', their "
                    "covariance, are both unknown: a matrix normal, for which there is no closed "
                    "form here. Give each output its own "
                    "variance, Normal(...).to_event(1), or try EM()"
                )
            if len(scales) > 1 or isinstance(scales[0], tuple):
                named = ", ".join(repr(s) for s in scales if s)
                raise Refusal(
                    f"{where}: parameter '{block.names[0]}' and the scale {named} of its data are "
                    f"both unknown, but the "
                    f"prior of '{block.names[0]}' does not "
                    f"scale with {named}: write its prior scale as sqrt({scales[0] or scales[-1]} "
                    f"/ kappa) "
                    "(normal–inverse-gamma), or try EM()"
                )

    def run(self, data: Data, plan: Plan, rows: Rows, known: Known, weights, seed: int,
            start: Mapping[str, Any]) -> Outcome:
        if not plan.free:
            return Outcome({}, np.array([evidence := float(_evidence(plan, known, rows))]),
                           Status.EXACT, 0, log_evidence=evidence)
        posterior, evidence, mismatch = solve(plan, known, rows)
        every = [block for stage in blocks(plan, True) for block in stage]
        if (_loose(every, posterior) or not sound(evidence, mismatch)) and any(rooted(plan, block)
                                                                               for block in every):
            posterior, evidence, mismatch = solve(plan, known, rows, True)
        _refuse_loose(plan, posterior)
        if not sound(evidence, mismatch):
            raise Refusal(
                f"Exact cannot fit model '{plan.structure.model.name}': its closed form was "
                f"checked at two points, "
                "where the log evidence differs by "
                f"{float(mismatch):.3g} nats. Try EM() or MAP()"
            )
        return Outcome(posterior.mean, np.array([float(evidence)]), Status.EXACT, 0, (), posterior,
                       float(evidence))


def sound(evidence, mismatch) -> bool:
    """Whether a closed form has the same log evidence at two points; wrong algebra is off by far
    more than rounding."""
    return float(mismatch) <= (1e-6 if jax.config.jax_enable_x64
                               else 1e-3 * (1 + abs(float(evidence))))


def _loose(every: list, posterior: Posterior) -> tuple[int, np.ndarray] | None:
    """A block of coefficients that can move together at no cost, as far as the arithmetic can tell,
    and how: (d,) of its places."""
    for number, (block, natural) in enumerate(zip(every, posterior.natural, strict=True)):
        if not block.form.joint or block.event == 0:
            continue
        if "root" in natural:
            root = np.asarray(natural["root"])
            unit = root / np.maximum(np.linalg.norm(root, axis=0), np.finfo(root.dtype).tiny)
            if not np.abs(np.diagonal(unit)).min() > DIGITS[root.dtype == np.float64] * np.finfo(
                root.dtype
            ).eps:
                return number, np.linalg.svd(np.nan_to_num(unit))[2][-1]
            continue
        precision = np.asarray(natural["precision"]).reshape(-1, *natural["precision"].shape[-2:])
        scale = np.sqrt(np.maximum(np.diagonal(precision, axis1=1, axis2=2),
                                   np.finfo(precision.dtype).tiny))
        for unit in np.nan_to_num(precision / (scale[:, :, None] * scale[:, None, :])):
            try:
                # of a coefficient's precision, what the others do not explain
                least = np.diagonal(np.linalg.cholesky(unit)).min() ** 2
            except np.linalg.LinAlgError:
                least = 0.0
            if not least > LOOSE[precision.dtype == np.float64]:
                return number, np.linalg.eigh(unit)[1][:, 0]
    return None


def _refuse_loose(plan: Plan, posterior: Posterior) -> None:
    """Refuse coefficients that can move together at no cost: nothing then holds the answer."""
    every = [block for stage in blocks(plan, True) for block in stage]
    found = _loose(every, posterior)
    if found is None:
        return
    block, way = every[found[0]], found[1]
    shapes = {name: plan.structure.sites[name].shape for name in block.names}
    places = [(n, j) for n, shape in shapes.items()
              for j in np.ndindex(shape if block.stacked else shape[-1:])]
    named = ", ".join(f"'{places[j][0]}'{list(places[j][1]) or ''}"
                      for j in np.flatnonzero(np.abs(way) > 0.1))
    raise Refusal(
        f"Exact cannot fit model '{plan.structure.model.name}': data and prior leave a direction "
        f"of {named} undetermined, to the "
        "digits of the arithmetic: columns are collinear, or constant beside an intercept, and the "
        "prior is too wide to tell "
        "them apart. Drop one of them, or give them a narrower prior"
    )


@functools.partial(jit, static_argnames=("plan",))
def _evidence(plan: Plan, known: Known, rows: Rows):
    return log_evidence(plan, {}, known, rows) + log_prior(plan, {}, known)


def closed_form(plan: Plan, known: Known, rows: Rows, roots: bool = False):
    """The posterior, its log evidence, and by how much this differs at another point. Pure JAX: to
    be jitted or vmapped.

    Args:
        roots: coefficients of row-wise Normals by the QR decomposition of their residuals.
    """
    start = params = prior_point(plan, known)
    expected = expect(plan, params, known, rows)
    stages = blocks(plan, True)

    def sweep(carry):
        """Read every block at the present parameters; a second sweep reads at the modes, free of
        cancellation."""
        params, natural = dict(carry[0]), []
        for stage in stages:
            objective = Objective(plan, expected, params, known, rows, True, mode=False)
            found = read(objective, stage, rounds=1)
            if roots:
                pairs = zip(stage, found, strict=True)
                found = [root(plan, block, params, known, rows) if rooted(plan, block) else one
                         for block, one in pairs]
            readable = {name: b.form.readable for b in stage for name in b.names}
            params.update({n: jnp.where(readable[n](v), v, params[n])
                           for n, v in modes(params, stage, found).items()})
            natural += [_integrate(plan, block, n, params, known)
                        for block, n in zip(stage, found, strict=True)]
        return params, natural

    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                         jax.eval_shape(sweep, (params, ()))[1])
    params, natural = jax.lax.fori_loop(0, 3, lambda _, carry: sweep(carry), (params, blank))
    posterior = Posterior(tuple(natural), params, params)
    posterior = posterior._replace(mean=_means(plan, Marginals(plan, known, stages, posterior),
                                               params))
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
        rounding += sum(_rounding(block, n, away) for block, n in zip(every, natural, strict=True)
                        if "root" in n)
    return posterior, values[0], jnp.abs(values[0] - values[1]) - rounding


def _rounding(block, natural: Mapping, at: Mapping) -> jax.Array:
    """What rounding can do to half the squared residuals r of a block at a point: |r| times that of
    columns × coefficients, which are large and cancel."""
    root, c = natural["root"], pack(at, block)
    terms = jnp.sum(jnp.linalg.norm(root, axis=0) * jnp.abs(c))
    return 4 * jnp.finfo(c.dtype).eps * terms * (
        jnp.sqrt(1.0 * len(c)) + jnp.linalg.norm(root @ (c - natural["loc"]))
    )


solve = functools.partial(jit, static_argnums=(0, 3))(closed_form)


def _integrate(plan: Plan, block, natural, params, known: Known):
    """A scale's natural parameters with the locations that it scales integrated out: each location
    removes half a count.

    The count is read off the normaliser of the locations' prior, −½ log|2π c κ| each.
    """
    if not block.form.scale:
        return natural
    name = block.names[0]
    scaled = [
        n for b in (b for stage in blocks(plan, True) for b in stage) if b.form.joint
        and name in coupling(plan, b) for n in b.names
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
