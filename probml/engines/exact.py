"""Exact: the posterior and the log evidence in closed form, if every parameter block is
conjugate."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from probml.dataset.dataset import Data
from probml.device.rows import Known, Rows
from probml.engines.conjugate.closed_form import is_consistent, refuse_without_conjugacy, solve
from probml.engines.engine import Capabilities, Engine, Outcome, Problem, Status
from probml.errors import Refusal, quoted
from probml.evidence.e_step import log_evidence
from probml.factors.naturals import log_prior
from probml.jaxpr.levels import Level
from probml.numerics.compiling import ONCE, jit
from probml.plan.blocks import Block, all_blocks
from probml.plan.plan import Plan
from probml.posteriors.closed import Closed
from probml.posteriors.conjugate import coupling
from probml.updates.least_squares import rooted

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
        some = not coefficients.isdisjoint(problem.plan.free)
        return "unless columns are collinear; then the next possible engine is used" * some

    def run(self, problem: Problem) -> Outcome:
        plan, rows, known = problem.plan, problem.rows, problem.known
        if not plan.free:
            return Outcome({}, np.array([evidence := float(_evidence(plan, known, rows))]),
                           Status.EXACT, 0, log_evidence=evidence)
        posterior, evidence, mismatch = solve(plan, known, rows)
        every = all_blocks(plan, True)
        if (_collinear_block(every, posterior)
            or not is_consistent(evidence, mismatch)) and any(rooted(plan, block)
                                                              for block in every):
            posterior, evidence, mismatch = solve(plan, known, rows, True)
        _refuse_collinear(plan, posterior)
        if not is_consistent(evidence, mismatch):
            large = _names_of_overflow(problem.data)
            raise Refusal(
                f"Exact cannot fit model '{plan.structure.model.name}': the closed-form posterior "
                "failed a check. The log evidence (log probability of the data) was computed at "
                f"two values of the parameters, and the results, which should be equal, differ by "
                f"{float(mismatch):.3g}" + (
                    f". Sums of squares of {quoted(large)} are too large for a floating-point "
                    f"number. Check the data for values that are too large" if large else ""),
                ("EM", "Laplace"))
        return Outcome(posterior.mean, np.array([float(evidence)]), Status.EXACT, 0, (), posterior,
                       float(evidence))


def _names_of_overflow(data: Data) -> list[str]:
    """The sites and inputs whose sums of squares are not finite in the precision of the fit."""
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
    hidden = [sites[v] for v in (*plan.continuous_latents, *plan.variables, *plan.hidden)
              if sites[v].rows]
    if hidden:
        state = "missing in some rows" if hidden[0].name in plan.pattern else "latent"
        kind, others = (("discrete", ()) if hidden[0].discrete else
                        ("continuous", ("Laplace", "NUTS")))
        raise Refusal(
            f"{where}: site '{hidden[0].name}' ({hidden[0].kind}) is inside rows(), {kind} and "
            f"{state}, so the posterior of the parameters has no closed form. Give its values in "
            "the data, or use another engine, such as {engines}", ("EM", *others))
    if plan.globals:
        raise Refusal(
            f"{where}: site '{plan.globals[0]}' is discrete and not in the data (latent), so the "
            f"posterior of the parameters ('{plan.free[0]}', ...) has no closed form. Give its "
            "value in the data, or use another engine, such as {engines}", ("EM",))


def _refuse_without_closed_form(plan: Plan, where: str) -> None:
    """Raises Refusal for parameters without a conjugate update, also of several jointly."""
    refuse_without_conjugacy(plan, where, ("EM", "Laplace"))
    sites = plan.structure.sites
    single = {b.names[0] for b in all_blocks(plan, True) if not b.closed_form.joint}
    for name in plan.free:
        above = next((p for uses in sites[name].uses.values() for p in uses if p in single),
                     None)
        if name in single and above is not None:
            raise Refusal(
                f"{where}: the prior of '{name}' depends on parameter '{above}', and the joint "
                f"posterior of the two has no closed form. Give '{above}' in the data",
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
                f"{where}: '{block.names[0]}' (MultivariateNormal, several vectors) and "
                f"'{next(filter(None, scales))}', their covariance, are both unknown; Exact does "
                f"not compute this posterior (matrix normal). Give each output its own variance, "
                f"Normal(...).to_event(1)",
                ("EM",))
        if len(scales) > 1 or isinstance(scales[0], tuple):
            named = quoted(filter(None, scales))
            raise Refusal(
                f"{where}: parameter '{block.names[0]}' and the scale of its data ({named}) are "
                f"both unknown. The prior of '{block.names[0]}' is then conjugate only if its "
                f"scale is that of the data times a number. Write its scale so, for example as 10 "
                f"times the scale of the data (a normal–inverse-gamma prior)", ("EM",))


def _collinear_block(every: Sequence[Block], posterior: Closed) -> tuple[int, np.ndarray] | None:
    """Index of a block with collinear coefficients, up to rounding, and their direction, (d,); None
    if there is none."""
    for number, (block, natural) in enumerate(zip(every, posterior.natural, strict=True)):
        if not block.closed_form.joint or block.event == 0:
            continue
        if "root" in natural:
            root = np.asarray(natural["root"])
            unit = root / np.maximum(np.linalg.norm(root, axis=0), np.finfo(root.dtype).tiny)
            least = MIN_COLUMN_ROUNDINGS[root.dtype == np.float64] * np.finfo(root.dtype).eps
            if not np.abs(np.diagonal(unit)).min() > least:
                return number, np.linalg.svd(np.nan_to_num(unit))[2][-1]
            continue
        precision = np.asarray(natural["precision"]).reshape(-1, *natural["precision"].shape[-2:])
        scale = np.sqrt(np.maximum(np.diagonal(precision, axis1=1, axis2=2),
                                   np.finfo(precision.dtype).tiny))
        for unit in np.nan_to_num(precision / (scale[:, :, None] * scale[:, None, :])):
            try:
                # conditional precisions, relative to marginal ones
                least = np.diagonal(np.linalg.cholesky(unit)).min() ** 2
            except np.linalg.LinAlgError:
                least = 0.0
            if not least > MIN_PRECISION_SHARE[precision.dtype == np.float64]:
                return number, np.linalg.eigh(unit)[1][:, 0]
    return None


def _refuse_collinear(plan: Plan, posterior: Closed) -> None:
    """Raises Refusal for collinear coefficients, which data and prior do not identify."""
    every = all_blocks(plan, True)
    found = _collinear_block(every, posterior)
    if found is None:
        return
    block, way = every[found[0]], found[1]
    shapes = {name: plan.structure.sites[name].shape for name in block.names}
    places = [(n, j) for n, shape in shapes.items()
              for j in np.ndindex(shape if block.stacked else shape[-1:])]
    named = ", ".join(f"'{places[j][0]}'{list(places[j][1]) or ''}"
                      for j in np.flatnonzero(np.abs(way) > 0.1))
    raise Refusal(
        f"Exact cannot fit model '{plan.structure.model.name}': the data and the prior do not "
        f"determine {named} separately within the floating-point precision. Possible causes are "
        f"collinear columns, or a constant column together with an intercept, under a wide prior. "
        f"Drop one of these columns, or give the coefficients a narrower prior"
    )


@jit(static_argnames=("plan",), seldom=ONCE)
def _evidence(plan: Plan, known: Known, rows: Rows):
    return log_evidence(plan, {}, known, rows) + log_prior(plan, {}, known)
