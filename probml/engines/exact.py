"""Exact: the posterior and the log evidence in closed form, if every parameter block is
conjugate.

The closed form of a posterior, block by block, with its log evidence, and a check of both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset.dataset import Data
from probml.device.rows import Known, Rows
from probml.engines.engine import Capabilities, Engine, Outcome, Problem, Status
from probml.engines.start.prior import prior_point
from probml.errors import Refusal, listed
from probml.evidence.e_step import expect, log_evidence
from probml.factors.naturals import log_prior
from probml.families.form import Natural, backward, forward
from probml.jaxpr.levels import Level
from probml.numerics.compiling import ONCE, jit
from probml.numerics.process.inline_calls import traced_once
from probml.plan.blocks import Block, all_blocks, blocks, pack
from probml.plan.plan import Plan
from probml.posteriors.closed import Closed
from probml.posteriors.conjugate import Marginals, coupled, coupling
from probml.updates.least_squares import root, rooted
from probml.updates.updates import Objective, modes, natural_parameters, next_points

# The least conditional precision of a coefficient given all others, relative to its marginal
# precision, by whether JAX computes in double; less is rounding.
MIN_PRECISION_SHARE = {True: 1.5e-14, False: 1e-6}
# The same for a column of a QR decomposition, in units of rounding: six digits are left, or four.
MIN_COLUMN_ROUNDINGS = {True: 2.0**20, False: 2.0**13}


@dataclass(frozen=True)
class Exact(Engine):
    """The exact posterior and log evidence: conjugate updates, and enumeration of discrete sites
    outside rows.

    log p(data) = log p(data | θ) + log p(θ) − log p(θ | data) at any θ, so no family needs an
    evidence formula.

    Raises:
        Refusal: a parameter without a conjugate update, or a latent variable of rows together with
            unknown parameters; it names them and says what to try.

    Cost: one pass over the rows.

    Examples:
        >>> import numpyro.distributions as dist
        >>> from numpyro import sample
        >>> import probml
        >>> @probml.model
        ... def weights():
        ...     mean = sample("mean", dist.Normal(0.0, 10.0))
        ...     with probml.rows():
        ...         sample("x", dist.Normal(mean, 1.0))
        >>> fit = weights().fit({"x": [1.0, 2.0, 3.0]}, probml.Exact())
        >>> round(float(fit.params["mean"]), 2), round(float(fit.log_evidence), 2)
        (1.99, -6.63)
    """

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(offered="possible", statistics=True)

    def refuse(self, problem: Problem) -> None:
        """Raises Refusal, with the site and the reason, if there is no closed form."""
        plan, where = problem.plan, f"Exact cannot fit {problem}"
        if plan.free:
            _refuse_latent(plan, where)
            _refuse_without_closed_form(plan, where)
            _refuse_unknown_scales(plan, where)

    def describe_method(self, problem: Problem) -> str:
        """A note that only the data show whether columns are collinear."""
        coefficients = {name for site in problem.plan.structure.sites.values()
                        for uses in site.uses.values() for name, use in uses.items()
                        if use.level is Level.AFFINE}
        estimated = not coefficients.isdisjoint(problem.plan.free)
        return "unless columns are collinear; then the next possible engine is used" * estimated

    def run(self, problem: Problem) -> Outcome:
        plan, rows, known = problem.plan, problem.rows, problem.known
        if not plan.free:
            return Outcome({}, np.array([evidence := float(_known_evidence(plan, known, rows))]),
                           Status.EXACT, 0, log_evidence=evidence)
        posterior, evidence, mismatch = solve(plan, known, rows)
        blockset = all_blocks(plan, True)
        if (_collinear_block(blockset, posterior)
            or not is_consistent(evidence, mismatch)) and any(rooted(plan, block)
                                                              for block in blockset):
            posterior, evidence, mismatch = solve(plan, known, rows, True)
        _refuse_collinear(plan, posterior)
        if not is_consistent(evidence, mismatch):
            overflowed = _names_of_overflow(problem.data)
            raise Refusal(
                f"Exact cannot fit model '{plan.structure.model.name}': the closed-form posterior "
                "is numerically inaccurate. The log evidence (log probability of the data), "
                f"computed at two values of the parameters, differs by {float(mismatch):.3g}, "
                f"expected 0" + (
                    f". Sums of squares of {listed(overflowed)} are too large for a floating-point "
                    f"number. Check the data for values that are too large" if overflowed else ""),
                ("EM", "Laplace"))
        return Outcome(posterior.mean, np.array([float(evidence)]), Status.EXACT, 0, (), posterior,
                       float(evidence))


def _names_of_overflow(data: Data | None) -> list[str]:
    """The sites and inputs whose sums of squares are not finite in the precision of the fit; of
    rows of which only sufficient statistics are left it is not known."""
    if data is None:
        return []
    table, kind = data.table, jnp.result_type(float)
    numbers = {name: column.values for name, column in table.columns.items()} | dict(table.inputs)
    with np.errstate(over="ignore"):
        return [name for name, values in numbers.items() if values.dtype.kind == "f"
                and np.isinf(np.nansum(np.square(values, dtype=kind)))]


def _refuse_latent(plan: Plan, where: str) -> None:
    """Raises Refusal for latent or partially observed variables with unknown parameters."""
    sites = plan.structure.sites
    if plan.groupings:
        raise Refusal(f"{where}: the group effects '{plan.effects[0]}' are integrated out, and "
                      f"then the posterior of '{plan.free[0]}' has no closed form",
                      ("EM", "Laplace", "NUTS"))
    partial = next((name for name in plan.observed
                    if plan.pattern.get(name) == "partially_observed"), None)
    if partial is not None:
        raise Refusal(
            f"{where}: site '{partial}' ({sites[partial].kind}) is a vector that is partially "
            "observed in some rows, so the posterior has no closed form. Give such vectors "
            "completely or not at all, or use another engine, such as {engines}", ("EM",))
    hidden = [sites[v] for v in (*plan.continuous_latents, *plan.variables, *plan.hidden)]
    if hidden:
        place = "inside" if hidden[0].rows else "outside"
        state = "missing in some rows" if hidden[0].name in plan.pattern else "latent"
        kind, others = (("discrete", ()) if hidden[0].discrete else
                        ("continuous", ("Laplace", "NUTS")))
        raise Refusal(
            f"{where}: site '{hidden[0].name}' ({hidden[0].kind}) is {place} rows(), {kind} and "
            f"{state}, so the posterior of the parameters has no closed form. Give its values in "
            "the data, or use another engine, such as {engines}", ("EM", *others))


def _refuse_without_closed_form(plan: Plan, where: str) -> None:
    """Raises Refusal for parameters without a conjugate update, also of several jointly."""
    refuse_without_conjugacy(plan, where, ("EM", "Laplace"))
    sites = plan.structure.sites
    single = {b.names[0] for b in all_blocks(plan, True) if not b.closed_form.joint}
    for name in plan.free:
        parent = next((p for uses in sites[name].uses.values() for p in uses if p in single),
                      None)
        if name in single and parent is not None:
            raise Refusal(
                f"{where}: the prior of '{name}' depends on parameter '{parent}', and the joint "
                f"posterior of the two has no closed form. Give '{parent}' in the data",
                ("EM", "Laplace"))


def _refuse_unknown_scales(plan: Plan, where: str) -> None:
    """Raises Refusal for coefficients whose prior does not scale with the unknown scale of their
    data."""
    sites = plan.structure.sites
    for block in (b for b in all_blocks(plan, True) if b.closed_form.joint):
        scales = coupling(plan, block)
        if block.stacked and any(scales) and any(sites[name].traits.event
                                                 for name in block.names):
            raise Refusal(
                f"{where}: '{next(filter(None, scales))}', the covariance of the data, is unknown, "
                f"and their mean is a sum of several unknown vectors, such as '{block.names[0]}'. "
                f"Exact does not support the posterior of these vectors (matrix normal). Model the "
                f"elements of the data as independent, with Normal(mean, scale).to_event(1) "
                f"instead of MultivariateNormal",
                ("EM",))
        if len(scales) > 1 or isinstance(scales[0], tuple):
            named = listed(filter(None, scales))
            raise Refusal(
                f"{where}: parameter '{block.names[0]}' and the scale of its data ({named}) are "
                f"both unknown. The prior of '{block.names[0]}' is then conjugate only if its "
                f"scale is a multiple of the scale of the data. Use such a prior: Normal(0, 10 * "
                f"scale) for data with this scale, or MultivariateNormal(mean, 10 * covariance) "
                f"for data with this covariance matrix", ("EM",))


def _collinear_block(blockset: Sequence[Block], posterior: Closed) -> tuple[int, np.ndarray] | None:
    """Index of a block with collinear coefficients, up to rounding, and their direction, (d,); None
    if there is none."""
    for number, (block, natural) in enumerate(zip(blockset, posterior.natural, strict=True)):
        if not block.closed_form.joint or block.event == 0:
            continue
        if "root" in natural:
            root = np.asarray(natural["root"])
            normalised = root / np.maximum(np.linalg.norm(root, axis=0), np.finfo(root.dtype).tiny)
            minimum = MIN_COLUMN_ROUNDINGS[root.dtype == np.float64] * np.finfo(root.dtype).eps
            if not np.abs(np.diagonal(normalised)).min() > minimum:
                return number, np.linalg.svd(np.nan_to_num(normalised))[2][-1]
            continue
        precision = np.asarray(natural["precision"]).reshape(-1, *natural["precision"].shape[-2:])
        scale = np.sqrt(np.maximum(np.diagonal(precision, axis1=1, axis2=2),
                                   np.finfo(precision.dtype).tiny))
        for normalised in np.nan_to_num(precision / (scale[:, :, None] * scale[:, None, :])):
            try:
                # conditional precisions, relative to marginal ones
                minimum = np.diagonal(np.linalg.cholesky(normalised)).min() ** 2
            except np.linalg.LinAlgError:
                minimum = 0.0
            if not minimum > MIN_PRECISION_SHARE[precision.dtype == np.float64]:
                return number, np.linalg.eigh(normalised)[1][:, 0]
    return None


def _refuse_collinear(plan: Plan, posterior: Closed) -> None:
    """Raises Refusal for collinear coefficients, which data and prior do not identify."""
    blockset = all_blocks(plan, True)
    collinear = _collinear_block(blockset, posterior)
    if collinear is None:
        return
    block, direction = blockset[collinear[0]], collinear[1]
    shapes = {name: plan.structure.sites[name].shape for name in block.names}
    entries = [(n, j) for n, shape in shapes.items()
               for j in np.ndindex(shape if block.stacked else shape[-1:])]
    names = listed(name + f"[{listed(index)}]" * bool(index)
                   for name, index in (entries[j] for j in np.flatnonzero(np.abs(direction) > 0.1)))
    raise Refusal(
        f"Exact cannot fit model '{plan.structure.model.name}': the data and the prior do not "
        f"determine {names} separately within the floating-point precision. Possible causes are "
        f"collinear columns, or a constant column together with an intercept, under a wide prior. "
        f"Drop one of these columns, or give the coefficients a narrower prior"
    )


@jit(static_argnames=("plan",), seldom=ONCE)
def _known_evidence(plan: Plan, known: Known, rows: Rows):
    return log_evidence(plan, {}, known, rows) + log_prior(plan, {}, known)


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

    @traced_once  # for its shapes and for the loop
    def sweep(carry: tuple):
        """Evaluates every block at the present place; a second sweep at the modes, free of
        cancellation; a block that rounding hides further on, and once more at the mode."""
        point, modes_at, stable, n_sweeps = carry
        point, modes_at, natural, all_readable = dict(point), dict(modes_at), [], jnp.ones((), bool)
        for stage in stages:
            objective = Objective(plan, expected, point, known, rows, True, mode=False)
            latest = natural_parameters(objective, stage, rounds=1)
            if roots:
                pairs = zip(stage, latest, strict=True)
                latest = [root(plan, block, point, known, rows) if rooted(plan, block) else default
                          for block, default in pairs]
            readable = {name: b.closed_form.readable for b in stage for name in b.names}
            advanced = next_points(point, stage, latest)
            for name, value in modes(point, stage, latest).items():
                is_readable = jnp.asarray(readable[name](value))
                modes_at[name] = jnp.where(is_readable, value, modes_at[name])
                can_advance = readable[name](advanced[name]) & (n_sweeps < FURTHER_SWEEPS)
                point[name] = jnp.where(can_advance & ~is_readable, advanced[name], modes_at[name])
                all_readable &= jnp.all(is_readable)
            natural += [integrated(plan, block, n, point, known)
                        for block, n in zip(stage, latest, strict=True)]
        return (point, modes_at, jnp.where(all_readable, stable + 1, 0), n_sweeps + 1), natural

    def more(state: tuple):
        (*_, stable, n_sweeps), _ = state
        return (n_sweeps < SWEEPS) | ((stable < 2) & (n_sweeps < MAX_SWEEPS))

    zero = jnp.zeros((), int)
    carry = (params, params, zero, zero)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                         jax.eval_shape(sweep, carry)[1])
    (_, params, *_), natural = jax.lax.while_loop(more, lambda state: sweep(state[0]),
                                                  (carry, zeros))
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

    def evidence(point: Mapping[str, jax.Array]):
        """log p(data, θ) − log p(θ | data) at one point, and the size of its terms."""
        terms = jnp.stack([log_evidence(plan, point, known, rows), log_prior(plan, point, known),
                           -marginals.log_density(point)])
        return terms.sum(), jnp.abs(terms).sum()

    # supports are convex
    other_point = {name: 0.9 * value + 0.1 * start[name] for name, value in posterior.mean.items()}
    values, sizes = jax.vmap(evidence)(jax.tree.map(lambda a, b: jnp.stack([a, b]), posterior.mean,
                                                    other_point))
    size = sizes.sum()
    # groups thousands of their standard deviations apart lose digits in the statistics: 2e-10 of
    # the terms, measured
    rounding = 256 * jnp.finfo(values.dtype).eps * size + jnp.minimum(1e-9 * size, 1e-3)
    if roots:
        rounding += sum(_rounding(block, n, other_point) for block, n in
                        zip(marginals.blocks, posterior.natural, strict=True) if "root" in n)
    return values[0], jnp.abs(values[0] - values[1]) - rounding


def _rounding(block: Block, natural: Mapping, point: Mapping) -> jax.Array:
    """A bound on the rounding error of half the squared residuals r of a block at a point: |r|
    times that of columns × coefficients, which are large and cancel."""
    root, c = natural["root"], pack(point, block)
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
    locations = [
        n for b in all_blocks(plan, True) if b.closed_form.joint
        and coupled(plan, b) == name for n in b.names
    ]
    if not locations:
        return natural
    steps = block.steps

    def normaliser(c: jax.Array):
        env, total = {**params, **known.given, name: backward(c, steps)}, 0.0
        for location in locations:
            distribution = plan.structure.distribution(location, env)
            site = plan.structure.sites[location]
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
        raise Refusal(f"{where}: for parameters of site '{heavy}' ({sites[heavy].kind}) no prior "
                      "has a posterior in closed form (is conjugate)", instead)
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
