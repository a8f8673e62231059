"""Posterior predictive distributions of single sites, parameters integrated out in closed form.

They are exact for single rows that use every element of the parameters once.
"""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from probml.factors.naturals import argument_table
from probml.families.links import backward, forward
from probml.jaxpr.levels import Level
from probml.plan.blocks import Block, unpack
from probml.plan.plan import Plan
from probml.posteriors.conjugate import Marginals

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
        own = len(site.event) if block.closed_form.joint else block.event
        tail = shape[: len(shape) - own]
        if tail[len(tail) - len(site.lattice) :] != site.lattice:
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
    out = {"loc": loc}
    if scales:
        out["df"], widen = marginals.student(scales[0], spread)
        total = total * (widen[..., None, None] if vector else widen)
    out |= {"scale_tril": jnp.linalg.cholesky(total)} if vector else {"scale": jnp.sqrt(total)}
    shape = loc.shape[: loc.ndim - vector]
    return {
        a: jnp.broadcast_to(
            v, shape + v.shape[v.ndim - {"scale_tril": 2, "loc": int(vector)}.get(a, 0) :]
        ) if a != "loc" else v
        for a, v in out.items()
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
    plan, found = marginals.plan, {}
    site = plan.structure.sites[name]
    for argument, own in (("initial", 1), ("transition", 2)):
        unknown = [p for p in site.uses.get(argument, {}) if p in marginals.of]
        if not unknown:
            continue
        block, use = marginals.of[unknown[0]], site.uses[argument][unknown[0]]
        form, _ = site.traits.canonical[argument]
        copied = block.form == form and use.level == Level.MOVED and not use.coordinate
        if len(unknown) > 1 or not copied or plan.structure.sites[unknown[0]].shape[-own:] != (
            site.states,
        ) * own:
            return None

        def move(values: jax.Array, argument: str = argument, parameter: str = unknown[0]):
            return argument_table(plan, {**marginals.posterior.params, parameter: values},
                                  marginals.known, name)[argument]

        assert form.copied_posterior is not None  # of a Dirichlet
        (found[argument],) = form.copied_posterior(
            marginals.natural[block.names], marginals.prior(unknown[0]), move).values()
    return found


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
    found = form.copied_posterior(marginals.natural[block.names], prior, move)
    return {**{a: v for a, v in arguments.items() if a != argument}, **found}


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
    found, settings = columns(marginals, marginals.of[next(iter(centres))[0]]), {}
    if found is None or scales and not (_is_variance(marginals, scales[0], False)
                                        and marginals.of[scales[0]].closed_form.event == 0):
        return None
    for scale in scales:
        block, prior = marginals.of[scale], marginals.prior(scale)
        present = forward(marginals.posterior.params[scale], block.steps)
        df, widen = block.closed_form.student(marginals.natural[(scale,)], prior, present)
        points = jnp.stack([jnp.ones_like(df), df / 2, widen, present])
        settings = {scale: backward(points, block.steps)}
    return {"columns": found, "scales": settings}


def _location_variance(marginals: Marginals, name: str, locations: list[str]):
    """Var[loc] over the site's table, for locations that are copies of the elements of one
    parameter; else None."""
    uses = marginals.plan.structure.sites[name].uses["loc"]
    first = locations[0]
    if len(locations) > 1 or uses[first].level != Level.MOVED or uses[first].coordinate:
        return None
    vector = marginals.plan.structure.sites[name].traits.event == 1
    loc, variance = marginals.location(first)

    def location_at(value: jax.Array):
        params = {**marginals.posterior.params, first: value}
        return argument_table(marginals.plan, params, marginals.known, name)["loc"]

    if variance.ndim == loc.ndim:
        one = location_at(variance)
        return one[..., None] * jnp.eye(one.shape[-1]) if vector else one
    return jax.vmap(location_at, in_axes=-1, out_axes=-1)(variance) if vector else None


def linear(plan: Plan, fitted: Plan, name: str) -> bool:
    """Whether the mean of a site without states is linear in the parameters, so that it is the mean
    at their posterior means."""
    site = plan.structure.named[name]
    if site.states is not None or not any(p in fitted.free for uses in site.uses.values()
                                          for p in uses):
        return True
    of = site.arguments if name in plan.structure.deterministics else site.traits.mean_of
    uses = [use for argument in of or () for p, use in site.uses.get(argument, {}).items()
            if p in fitted.free]
    return of is not None and all(use.is_affine for use in uses)
