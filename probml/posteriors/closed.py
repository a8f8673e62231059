"""A posterior in closed form, and what queries average over: predictive distributions with the
parameters integrated out, or draws.

Posterior predictive distributions of single sites, parameters integrated out in closed form.

They are exact for single rows that use every element of the parameters once.
"""

import math
from collections.abc import Collection, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml.device.rows import Known
from probml.errors import ModelError, present
from probml.factors.naturals import argument_table
from probml.families.form import backward, forward
from probml.jaxpr.levels import Level
from probml.numerics.compiling import ASKED, jit
from probml.numerics.transfer import random_key
from probml.plan.blocks import Block, all_blocks, unpack
from probml.plan.plan import Plan
from probml.posteriors.conjugate import Conjugate, Marginals
from probml.posteriors.posterior import Belief, Posterior, register
from probml.typing import Json, SiteValues

MAX_COEFFICIENTS = 1024  # of a regression whose predictive variance is computed exactly


def shares(marginals: Marginals, name: str) -> bool:
    """Whether cells of one row may use the same parameter element: their predictives would not
    multiply."""
    site = marginals.plan.structure.sites[name]
    if math.prod(site.lattice) == 1:
        return False
    for parameter in dict.fromkeys(p for uses in site.uses.values() for p in uses
                                   if p in marginals.of):
        shape = marginals.plan.structure.sites[parameter].shape
        block = marginals.of[parameter]
        n_event = len(site.event) if block.closed_form.joint else block.event
        batch_shape = shape[: len(shape) - n_event]
        if batch_shape[len(batch_shape) - len(site.lattice) :] != site.lattice:
            return True
    return False


def integrable(marginals: Marginals, name: str) -> bool:
    """Whether a table of state probabilities is linear in the parameters, so that its posterior
    mean is its predictive."""
    site = marginals.plan.structure.sites[name]
    argument = site.arguments[0]
    uses = [use for p, use in site.uses.get(argument, {}).items() if p in marginals.plan.free]
    return not uses or argument == "probs" and all(use.is_affine for use in uses)


def predictive(marginals: Marginals, name: str) -> dict[str, jax.Array] | None:
    """The posterior predictive of a pooled site, for single rows: arguments of its family's
    `predictive` over its table, (*parent states, lattice cells, ...), or None without a closed
    form."""
    plan, reference = marginals.plan, marginals.posterior.params
    site = plan.structure.sites[name]
    if site.chain:
        return _chain_concentrations(marginals, name)
    if site.traits.predictive is None:
        return None
    if not site.traits.scatter:
        return _copied_arguments(marginals, name)
    locations = [p for p in site.uses.get("loc", {}) if p in plan.free]
    scales = [p for a in site.traits.scatter for p in site.uses.get(a, {}) if p in plan.free]
    vector = site.traits.event == 1
    variance = _location_variance(marginals, name, locations) if locations else 0.0
    if (len(scales) > 1 or variance is None or not _are_coupled(marginals, locations, scales)
        or (scales and not _is_variance(marginals, scales[0], vector))):
        return None

    def spread(params: Mapping[str, jax.Array]):
        arguments = argument_table(plan, params, marginals.known, name)
        return site.traits.distribution(arguments).covariance_matrix if vector else arguments[
            "scale"
        ] ** 2

    loc = argument_table(plan, reference, marginals.known, name)["loc"]
    total = spread(reference) + variance
    result = {"loc": loc}
    if scales:
        result["df"], t_factor = marginals.student(scales[0], spread)
        total = total * (t_factor[..., None, None] if vector else t_factor)
    result |= {"scale_tril": jnp.linalg.cholesky(total)} if vector else {"scale": jnp.sqrt(total)}
    shape = loc.shape[: loc.ndim - vector]
    return {
        a: jnp.broadcast_to(
            v, shape + v.shape[v.ndim - {"scale_tril": 2, "loc": int(vector)}.get(a, 0) :]
        ) if a != "loc" else v
        for a, v in result.items()
    }


def _are_coupled(marginals: Marginals, locations: list[str], scales: list[str]) -> bool:
    """Whether locations are normal conditional on the scale, so that both can be integrated out; if
    they are independent of it there is no closed form."""
    return not (locations and scales) or all(marginals.scale_of(name) == scales[0]
                                             for name in locations)


def _is_variance(marginals: Marginals, name: str, vector: bool) -> bool:
    """Whether the posterior of a scale is that of a variance, or of a covariance of vectors."""
    form = marginals.of[name].closed_form
    return form.scale and (not vector or form.event == 2)


def _chain_concentrations(marginals: Marginals, name: str) -> dict[str, jax.Array] | None:
    """Dirichlet concentrations of the tables of an observed chain, if every entry of a table is
    that of a parameter; else None."""
    plan, result = marginals.plan, {}
    site = plan.structure.sites[name]
    for argument, rank in (("initial", 1), ("transition", 2)):
        unknown = [p for p in site.uses.get(argument, {}) if p in marginals.of]
        if not unknown:
            continue
        block, use = marginals.of[unknown[0]], site.uses[argument][unknown[0]]
        form, _ = site.traits.canonical[argument]
        is_copied = block.form == form and use.level == Level.MOVED and not use.coordinate
        if len(unknown) > 1 or not is_copied or plan.structure.sites[unknown[0]].shape[-rank:] != (
            site.states,
        ) * rank:
            return None

        def move(values: jax.Array, argument: str = argument, parameter: str = unknown[0]):
            return argument_table(plan, {**marginals.posterior.params, parameter: values},
                                  marginals.known, name)[argument]

        (result[argument],) = present(form.copied_posterior)(  # of a Dirichlet
            marginals.natural[block.names], marginals.prior(unknown[0]), move).values()
    return result


def _copied_arguments(marginals: Marginals, name: str) -> dict[str, jax.Array] | None:
    """A site's arguments over its table, where one is a copy of a parameter, whose posterior
    replaces it; else None."""
    plan, reference = marginals.plan, marginals.posterior.params
    site = plan.structure.sites[name]
    unknown = [(argument, p) for argument, uses in site.uses.items() for p in uses
               if p in marginals.of]
    if len(unknown) != 1 or unknown[0][0] not in site.traits.canonical:
        return None
    (argument, parameter), *_ = unknown
    (form, steps), block, use = (site.traits.canonical[argument], marginals.of[parameter],
                                 site.uses[argument][parameter])
    if (form.copied_posterior is None or block.form != form or use.level != Level.MOVED
        or (use.coordinate and not form.scaled)):
        return None

    def move(values: jax.Array):
        return forward(argument_table(plan, {**reference, parameter: backward(values, block.steps)},
                                      marginals.known, name)[argument], steps)

    arguments = argument_table(plan, reference, marginals.known, name)
    prior = plan.structure.sites[parameter].entry.prior
    replaced = form.copied_posterior(marginals.natural[block.names], prior, move)
    return {**{a: v for a, v in arguments.items() if a != argument}, **replaced}


def columns(marginals: Marginals, block: Block) -> dict[str, jax.Array] | None:
    """The parameters of a Gaussian block for each column of a root of its covariance, (columns,
    ...), at reference scales: added to a large mean such a step would lose its digits."""
    loc = marginals.natural[block.names]["loc"]
    if loc.size > MAX_COEFFICIENTS:
        return None
    return jax.vmap(lambda step: jax.jvp(lambda c: unpack(marginals.posterior.params, block, c),
                                         (loc,), (step,))[1])(marginals.root_columns(block))


def affine(marginals: Marginals, name: str) -> dict[str, dict[str, jax.Array]] | None:
    """What factors need for the predictive of a row-wise Normal whose location is affine in one
    Gaussian block: `columns`, and values of the scale with its c at 1, at half the degrees of
    freedom, at the Student t factor and at its reference; None without a closed form.

    A site of several cells has one scale parameter for all (their predictive is that of a vector),
    or one for each: then no two cells share a coefficient, whose prior would have to scale with
    both, and their predictives multiply.
    """
    site = marginals.plan.structure.sites[name]
    if not site.traits.normal or site.traits.event:
        return None
    centres = {marginals.of[p].names for p in site.uses.get("loc", {}) if p in marginals.of}
    scales = [p for p in site.uses.get("scale", {}) if p in marginals.of]
    cells = math.prod(site.lattice)
    if cells > 1 and any(math.prod(marginals.plan.structure.sites[p].shape) not in (1, cells)
                         for p in scales):
        return None
    if (len(centres) != 1 or len(scales) > 1
        or not _are_coupled(marginals, [next(iter(centres))[0]], scales)
        or marginals.natural[next(iter(centres))].keys() & {"precision", "root"} == set()):
        return None
    steps, scale_points = columns(marginals, marginals.of[next(iter(centres))[0]]), {}
    if steps is None or scales and not (_is_variance(marginals, scales[0], False)
                                        and marginals.of[scales[0]].closed_form.event == 0):
        return None
    for scale in scales:
        block, prior = marginals.of[scale], marginals.prior(scale)
        reference = forward(marginals.posterior.params[scale], block.steps)
        df, t_factor = block.closed_form.student(marginals.natural[(scale,)], prior, reference)
        points = jnp.stack([jnp.ones_like(df), df / 2, t_factor, reference])
        scale_points = {scale: backward(points, block.steps)}
    return {"columns": steps, "scales": scale_points}


def _location_variance(marginals: Marginals, name: str, locations: list[str]):
    """Var[loc] over the site's table, for locations that are copies of the elements of one
    parameter; else None."""
    uses = marginals.plan.structure.sites[name].uses["loc"]
    location = locations[0]
    if len(locations) > 1 or uses[location].level != Level.MOVED or uses[location].coordinate:
        return None
    vector = marginals.plan.structure.sites[name].traits.event == 1
    loc, variance = marginals.location(location)

    def location_at(value: jax.Array):
        params = {**marginals.posterior.params, location: value}
        return argument_table(marginals.plan, params, marginals.known, name)["loc"]

    if variance.ndim == loc.ndim:
        variances = location_at(variance)
        return variances[..., None] * jnp.eye(variances.shape[-1]) if vector else variances
    return jax.vmap(location_at, in_axes=-1, out_axes=-1)(variance) if vector else None


def linear(plan: Plan, fitted: Plan, name: str) -> bool:
    """Whether the mean of a site without states is linear in the parameters, so that it is the mean
    at their posterior means."""
    site = plan.structure.named[name]
    if site.states is not None or not any(p in fitted.free for uses in site.uses.values()
                                          for p in uses):
        return True
    arguments = site.arguments if name in plan.structure.deterministics else site.traits.mean_of
    uses = [use for argument in arguments or () for p, use in site.uses.get(argument, {}).items()
            if p in fitted.free]
    return arguments is not None and all(use.is_affine for use in uses)


MAX_COVARIANCE = 2**11  # coefficients of a block whose covariance is computed


@register
class Closed(Conjugate, Posterior):
    """A posterior in closed form: independent blocks, the Gaussian ones conditional on the scales
    they share."""

    varies = exact = True

    def draw(self, plan: Plan, known: Known, n: int, seed: int):
        return draw_params(plan, n, self, known, random_key(seed))

    def marginal(self, plan: Plan, known: Known, name: str):
        result = _marginal(plan, name, self, known)
        vars(result).pop("_validate_args", None)  # set while tracing, where nothing is validated
        return result

    def root(self, plan: Plan, known: Known, names: Collection[str]):
        """Only of locations, in blocks of at most MAX_COVARIANCE coefficients."""
        roots = _roots(plan, tuple(sorted(names)), self, known)
        return {name: np.asarray(column, float) for name, column in roots.items()}

    def averaged(self, params: Mapping[str, jax.Array], fitted: Plan, plan: Plan, known: Known,
                 n: int):
        arguments = predictives(fitted, plan, self, known)
        if arguments is not None:
            return Belief(dict(params), None, arguments), False
        return Belief(self.draw(fitted, known, n, 0), None, {}), True

    def saved(self):
        leaves = jax.tree.leaves(self)
        meta = {"closed": len(leaves), "roots": ["root" in natural for natural in self.natural]}
        return {"posterior": "Closed"} | meta, {f"closed/{i}": leaf
                                                for i, leaf in enumerate(leaves)}

    @classmethod
    def restored(cls, meta: Json, arrays: SiteValues, plan: Plan):
        template = cls.template(plan, meta.get("roots") or ())
        count = len(jax.tree.leaves(template))
        missing = [i for i in range(count) if f"closed/{i}" not in arrays]
        if missing or meta["closed"] != count:
            raise ModelError(f"the saved fit is damaged: the file has {count - len(missing)} of "
                             f"the {count} arrays of its posterior. Fit the model and save the fit "
                             f"again")
        leaves = [arrays[f"closed/{i}"] for i in range(count)]
        leaves = leaves if meta.get("double") else [jnp.asarray(leaf) for leaf in leaves]
        return jax.tree.unflatten(jax.tree.structure(template), leaves)

    @classmethod
    def template(cls, plan: Plan, roots: Sequence[bool]) -> "Closed":
        """A posterior with the keys of a saved one, whose leaves it takes; `roots`: which blocks
        have a root of their precision."""
        blockset = all_blocks(plan, True)
        keys = [("loc", "root") if i < len(roots) and roots[i] else block.closed_form.keys
                for i, block in enumerate(blockset)]
        zeros = dict.fromkeys(plan.free, 0.0)
        return cls(tuple(dict.fromkeys(names, 0.0) for names in keys), zeros, zeros)


@jit(static_argnums=(0, 1), seldom=ASKED)
def _marginal(plan: Plan, name: str, closed: Closed, known: Known) -> dist.Distribution:
    """The marginal posterior of a parameter; uncompiled it would be some forty programs."""
    return Marginals(plan, known, closed).distribution(name)


@jit(static_argnums=(0, 1), seldom=ASKED)
def _roots(plan: Plan, names: tuple[str, ...], closed: Closed,
           known: Known) -> dict[str, jax.Array]:
    marginals, roots = Marginals(plan, known, closed), {}
    for block in marginals.blocks:
        if (block.closed_form.joint and not set(names).isdisjoint(block.names)
                and marginals.natural[block.names]["loc"].size <= MAX_COVARIANCE):
            roots |= marginals.ways(block)
    return {name: column for name, column in roots.items() if name in names}


@jit(static_argnums=(0, 1), seldom=ASKED)
def draw_params(plan: Plan, n: int, closed: Closed, known: Known,
                key: jax.Array) -> dict[str, jax.Array]:
    """n joint draws of the parameters, site → (n, ...)."""
    marginals = Marginals(plan, known, closed)
    return jax.vmap(marginals.draw)(jax.random.split(key, n))


def predictives(fitted: Plan, plan: Plan, closed: Closed, known: Known):
    """The posterior predictive of every site that a query's plan needs, site → arguments; None if
    one has no closed form.

    They are exact for single rows if each element of the parameters enters a row once: then the
    predictives of the sites multiply.
    """
    parents = {}
    for name in (*plan.pooled, *plan.rowwise):
        uses = plan.structure.sites[name].uses.values()
        parents[name] = tuple(dict.fromkeys(p for u in uses for p in u if p in fitted.free))
    if not _predictives_multiply(fitted, plan, parents):
        return None
    marginals = Marginals(plan, known, closed, fitted)
    dependent = [name for name in plan.pooled if parents[name]]
    tables = [name for name in dependent if plan.structure.sites[name].states is not None
              and name not in plan.counted]
    if any(shares(marginals, name) for name in dependent) or not all(
            integrable(marginals, name) for name in tables):
        return None
    continuous = tuple(name for name in (*dependent, *plan.rowwise)
                       if parents[name] and name not in tables)
    return _predictive_arguments(fitted, plan, continuous, closed, known) if continuous else {}


def _predictives_multiply(fitted: Plan, plan: Plan, parents: Mapping[str, Sequence[str]]) -> bool:
    """Whether each element of the parameters enters a row once and what is asked depends on them
    linearly.

    Args:
        parents: site → the free parameters it depends on.
    """
    used = [p for names in parents.values() for p in names]
    # these must not depend on parameters: latent variables that are integrated out, steps of
    # chains, which use a parameter many times, and deterministic sites
    structure = plan.structure
    others = {p for name in plan.integrated for uses in structure.sites[name].uses.values()
              for p in uses if p in fitted.free}
    repeated = {p for name in plan.steps for p in parents.get(name, ())}
    derived = {p for name in plan.targets if name in structure.deterministics
               for p in structure.named[name].uses["value"] if p in used}
    return len(used) == len(set(used)) and not (others or repeated or derived) and all(
        linear(plan, fitted, name) for name in plan.targets)


@jit(static_argnums=(0, 1, 2), seldom=ASKED)
def _predictive_arguments(fitted: Plan, plan: Plan, names: tuple[str, ...], closed: Closed,
                          known: Known):
    marginals = Marginals(plan, known, closed, fitted)
    arguments = {name: affine(marginals, name) if name in plan.rowwise
                 else predictive(marginals, name) for name in names}
    return None if any(value is None for value in arguments.values()) else arguments
