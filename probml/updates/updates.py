"""The M-step: every block of parameters is maximised, in closed form or by numerical optimisation.

The objective is expected log factors and log priors, as a function of some blocks. The natural
parameters of a closed form are computed from derivatives of the objective
⟨q, log factors⟩ + log prior, so that ties, shared parameters and several sites need no special
case.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from probml.device.rows import Chunk, Known, Rows, Summary
from probml.errors import present
from probml.evidence.density import bijection
from probml.evidence.e_step import (
    Expected,
    Settings,
    row_surrogate,
    surrogate,
    total_with_responsibilities,
)
from probml.factors.affine_predictors import weighted_hessian
from probml.factors.naturals import log_prior, naturals, outside
from probml.families.form import backward
from probml.jaxpr.backward import gradient, shortened, value_and_gradient
from probml.numerics.bundles import Bundle
from probml.numerics.newton import Newton, chords, clipped_step, separable
from probml.numerics.optimum import LBFGS, maximize, negligible
from probml.numerics.process.inline_calls import traced_once
from probml.plan.blocks import Block, blocks, pack, unpack
from probml.plan.plan import Plan
from probml.plan.sufficient_statistics import columns
from probml.typing import PyTree


class Objective:
    """Q(params) = ⟨q, log factors⟩ + log prior, as a function of some blocks' quantities c, with
    its derivatives.

    Pooled sites contribute functions of their sufficient statistics; row-wise sites a pass over the
    chunks, made only where such a site depends on a block.

    Args:
        mode: with prior densities in the coordinates of the maximisation; False: of the parameters.
        settings: draws of parameters, over which Q is averaged; None: Q is at `params`.
    """

    def __init__(self, plan: Plan, expected: Expected, params: Mapping, known: Known,
                 rows: Rows | Summary, prior: bool, mode: bool = True,
                 settings: Settings | None = None):
        self.mode, self.settings = mode, settings
        self.priors = outside(plan) if prior else ()
        self.plan, self.expected, self.params, self.known, self.rows, self.prior = (
            plan, expected, dict(params), known, rows, prior
        )

    def _with_rows(self, pooled: PyTree, of_chunk: Callable, rowwise: bool = True) -> PyTree:
        """What pooled statistics contribute, plus the sum over the chunks of rows, if there are
        sites that are evaluated row by row."""
        if not rowwise or isinstance(self.rows, Summary):  # all sites are in `expected`
            return pooled
        return jax.tree.map(jnp.add, pooled, total_with_responsibilities(
            self.plan, self.expected, self.rows, of_chunk))

    def _averaged(self, function: Callable, changed: Mapping) -> jax.Array:
        """function(parameters), with some of them changed; its mean over the settings, if any."""
        if self.settings is None:
            return function({**self.params, **changed})
        return self.settings.mean(lambda setting: function({**self.params, **setting, **changed}))

    def _pooled(self, unpack: Callable, c: object, priors: tuple[str, ...] | None = None,
                origin: Mapping[str, jax.Array] | None = None,
                moving: Collection[str] | None = None):
        priors = self.priors if priors is None else priors

        def at(params: Mapping[str, jax.Array]):
            value = surrogate(self.plan, self.expected, params, self.known, origin, moving)
            return value + log_prior(self.plan, params, self.known, self.mode,
                                     priors) if priors else value

        return self._averaged(at, unpack(c))

    def _moving(self, names: set[str]) -> tuple[str, ...]:
        """The priors that depend on the parameters `names`: the others have no gradient."""
        sites = self.plan.structure.sites
        return tuple(n for n in self.priors if n in names or names.intersection(sites[n].parents))

    def gradients(self, unpack: Callable, points: list[jax.Array], rowwise: bool, names: set[str]):
        """∇Q(unpack(c)) at several points c, stacked on a leading axis; of sites with a minorant,
        the gradient of the minorant, which has a closed-form maximum.

        Args:
            names: the parameters that `unpack` returns.
        """
        priors = self._moving(names)

        def chunk(rows: Chunk, responsibilities: Mapping[str, jax.Array]):
            part = gradient(lambda c: self._averaged(lambda params: row_surrogate(
                self.plan, responsibilities, params, self.known, rows, self.params, self.params
            ), unpack(c)))
            return jax.vmap(part)(points)

        return self._with_rows(jax.vmap(gradient(
            lambda c: self._pooled(unpack, c, priors, None, names)))(points), chunk, rowwise)

    def value_and_gradient(self, unpack: Callable, c: jax.Array, rowwise: bool, names: set[str],
                           origin: Mapping[str, jax.Array]):
        """The gain of Q(unpack(c)) over the point with natural parameters `origin`, up to a
        constant, and its gradient.

        An optimisation of Q itself would end, in float32, where a step gains less than its
        rounding.

        Args:
            names: the parameters that `unpack` returns.
        """
        priors = self._moving(names)

        def chunk(rows: Chunk, responsibilities: Mapping[str, jax.Array]):
            return value_and_gradient(lambda c: row_surrogate(
                self.plan, responsibilities, {**self.params, **unpack(c)}, self.known, rows,
                self.params
            ))(c)

        return self._with_rows(value_and_gradient(
            lambda c: self._pooled(unpack, c, priors, origin, names))(c), chunk, rowwise)

    def hessian(self, unpack: Callable, c: jax.Array, names: tuple[str, ...]):
        """The Hessian of Q(unpack(c)) at a vector c, of blocks on which rows depend.

        Args:
            names: the parameters that `unpack` returns, in their order in c.
        """
        plan, sites = self.plan, self.plan.structure.sites
        affected = [site for site in plan.rowwise
                    if any(name in uses for uses in sites[site].uses.values() for name in names)]
        by_site = {site: columns(plan, site, names) for site in affected}
        nonempty = {site: terms for site, terms in by_site.items() if terms}
        is_separable = len(nonempty) == len(by_site) and not (plan.latents or plan.groupings)

        def chunk(rows: Chunk, responsibilities: Mapping[str, jax.Array]):
            if is_separable:
                return sum(weighted_hessian(
                    plan, site, terms, lambda c: {**self.params, **unpack(c)}, c, self.known, rows,
                    responsibilities[site]) for site, terms in nonempty.items())
            return jax.hessian(lambda c: row_surrogate(
                self.plan, responsibilities, {**self.params, **unpack(c)}, self.known, rows,
                self.params
            ))(c)

        return self._with_rows(jax.hessian(lambda c: self._pooled(unpack, c))(c), chunk)


MAX_NEWTON_STEPS = 40
LBFGS_STEPS_PER_NEWTON_STEP = 10
ROUNDS = 2  # of reading a form: the second at the mode of the first, without cancellation


def maximise(
    plan: Plan,
    expected: Expected,
    params: Mapping,
    known: Known,
    rows: Rows | Summary,
    prior: bool,
    steps: int = 20,
    closed: bool = True,
    only_forms: bool = False,
) -> dict[str, jax.Array]:
    """The M-step: every block in turn (ECM, Meng & Rubin 1993), closed forms exactly, the rest by a
    few L-BFGS steps.

    Args:
        only_forms: update only the blocks with a closed form.
        closed: use closed forms; False: every block by L-BFGS, the fallback if a form is wrong.
    """
    params = dict(params)
    for stage in blocks(plan, prior):
        objective = Objective(plan, expected, params, known, rows, prior)
        if not closed:
            params.update(_ascend(objective, stage, steps))
        elif all(block.form and block.conjugate for block in stage):
            params.update(modes(params, stage, natural_parameters(objective, stage)))
        elif stage[0].form:
            params.update(_ascend_form(objective, stage[0], steps))
        elif not only_forms:
            params.update((_take_newton_steps if stage[0].newton else _ascend)(objective, stage,
                                                                               steps))
    return params


def _ascend_form(objective: Objective, block: Block, steps: int) -> dict[str, jax.Array]:
    """A block whose prior is not conjugate: the closed form of the likelihood is read, and its sum
    with the log prior is maximised numerically, without passes over rows.

    The search starts at the better of the present point and the maximum of the form.
    """
    plan, params, known = objective.plan, objective.params, objective.known
    objective.priors = tuple(name for name in objective.priors if name not in block.names)
    natural = natural_parameters(objective, [block])[0]
    form = block.closed_form

    def value(point: Mapping[str, jax.Array]):
        merged = {**params, **point}
        log = log_prior(plan, merged, known, objective.mode, block.names)
        if not objective.prior:  # the support still holds
            log = jnp.where(log > -jnp.inf, 0.0, -jnp.inf)  # of some families NaN outside it
        if block.stacked:
            return form.value(natural, pack(merged, block), block.event) + log
        return form.value_from(natural, merged[block.names[0]], block.steps, block.event) + log

    current = {name: params[name] for name in block.names}
    peak = modes(params, [block], [natural])
    is_better = jnp.isfinite(value(peak)) & (value(peak) > value(current))
    start = jax.tree.map(lambda a, b: jnp.where(is_better, a, b), peak, current)
    maps = transforms(plan, params, known, list(block.names))
    origin = {name: maps[name].inv(start[name]) for name in block.names}

    def height(u: dict[str, jax.Array]):
        return value({name: maps[name](u[name]) for name in block.names})

    site = plan.structure.sites[block.names[0]]
    if block.event == 0 and not site.event and not site.entry.kinked:
        result = maximize(separable(height), origin,
                          Newton(MAX_NEWTON_STEPS, 1e-16, step=clipped_step))
        # without a maximum, as of a scale that tends to 0, no coordinate becomes infinite
        remaining = clipped_step(result.point, result.gradient, result.hessian, 0.0)[1]
        converged = remaining <= negligible(result.value)
        best = jax.tree.map(lambda a, b: jnp.where(converged, a, b), result.point, origin)
    else:
        best = maximize(jax.value_and_grad(height), origin, LBFGS(steps, 1e-14)).point
    return {name: maps[name](best[name]) for name in block.names}


def natural_parameters(objective: Objective, stage: Sequence[Block],
                       rounds: int | None = None) -> list[dict[str, jax.Array]]:
    """Read the natural parameters of every block's form, all blocks of a stage with one
    differentiation."""
    params = objective.params
    rowwise = any(block.rowwise for block in stage)

    groups = _bundled_blocks(params, stage)
    names = {name for block in stage for name in block.names}

    def together(places: list[jax.Array]):
        return {name: value for group, place in zip(groups, places, strict=True)
                for name, value in _unpacked(params, group, place, _inverted(group[0][0])).items()}

    def once(at: list[jax.Array]):
        points = [_points(c, blocks[0]) for c, (blocks, _) in zip(at, groups, strict=True)]
        places = [backward(p, b[0].steps) if _inverted(b[0]) else p
                  for p, (b, _) in zip(points, groups, strict=True)]
        max_points = max(len(p) for p in points)
        padded = [jnp.concatenate([p, jnp.broadcast_to(p[:1], (max_points - len(p), *p.shape[1:]))])
                  for p in places]
        slopes = objective.gradients(together, padded, rowwise, names)
        natural = [_read(p, at, g[: len(p)], b[0])
                   for p, at, g, (b, _) in zip(points, places, slopes, groups, strict=True)]
        return [form.onward(n, c, b[0].event)
                for form, n, c, (b, _) in zip(forms, natural, at, groups, strict=True)], natural

    forms = [blocks[0].closed_form for blocks, _ in groups]
    at = [_packed(params, group) for group in groups]
    rounds = rounds or (1 if rowwise or all(form.steady for form in forms)
                        else ROUNDS)
    if rounds == 1:
        natural = once(at)[1]
    else:
        once = traced_once(shortened(once, last=True))  # for its shapes and for the loop
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                             jax.eval_shape(once, at)[1])
        natural = jax.lax.fori_loop(0, rounds, lambda _, carry: once(carry[0]), (at, zeros))[1]
    return _by_block(stage, groups, natural)


def _by_block(stage: Sequence[Block], groups: list[tuple[list[Block], Bundle]],
              natural: list[dict[str, jax.Array]]) -> list[dict[str, jax.Array]]:
    """The natural parameters of every block of a stage, from those of blocks alike as one array."""
    by_names: dict = {}
    for (group, bundle), leaves in zip(groups, natural, strict=True):
        parts = {key: bundle.part(leaf, jax.lax.split) for key, leaf in leaves.items()}
        by_names |= {block.names: {key: part[block.names[0]] for key, part in parts.items()}
                     for block in group}
    return [by_names[block.names] for block in stage]


def _points(c: jax.Array, block: Block) -> jax.Array:
    """The points at which gradients are computed; of uncoupled vectors, along one axis of all at
    once."""
    if not block.vectors:
        return block.closed_form.points(c, block.event)
    order = np.array(block.vectors)
    points = block.closed_form.points(c[order], block.event)
    return points.reshape(len(points), -1)[:, np.argsort(order.reshape(-1))]


def _inverted(block: Block) -> bool:
    """Whether gradients are taken in the parameter itself, the inverse of a matrix c."""
    return block.steps == (("inverse", 1.0),) and block.closed_form.read_inverse is not None


def _read(points: jax.Array, places: jax.Array, gradients: jax.Array,
          block: Block) -> dict[str, jax.Array]:
    """The natural parameters of a block's form from gradients at points; of uncoupled vectors, one
    set for each.

    Args:
        places: where gradients were taken: the points c, or their inverses (`_inverted`).
    """
    if _inverted(block):
        return present(block.closed_form.read_inverse)(points, places, gradients, block.event)
    if not block.vectors:
        return block.closed_form.read(points, gradients, block.event)
    order = np.array(block.vectors)
    found = block.closed_form.read(points[:, order], gradients[:, order], block.event)
    size = points.shape[-1]
    precision = jnp.zeros((size, size), points.dtype)
    return {"loc": found["loc"].reshape(size)[np.argsort(order.reshape(-1))],
            "precision": precision.at[order[:, :, None], order[:, None, :]].set(found["precision"])}


def modes(params: Mapping, stage: Sequence[Block],
          natural: Sequence[Mapping[str, jax.Array]]) -> dict[str, jax.Array]:
    """The parameters at the modes of the closed forms."""
    return _map_blocks(params, stage, natural, lambda form, *args: form.mode(*args))


def next_points(params: Mapping, stage: Sequence[Block],
                natural: Sequence[Mapping[str, jax.Array]]) -> dict[str, jax.Array]:
    """The parameters at which forms that were read at `params` are read next."""
    return _map_blocks(params, stage, natural, lambda form, *args: form.onward(*args))


def _map_blocks(params: Mapping, stage: Sequence[Block], natural: Sequence[Mapping[str, jax.Array]],
                where: Callable) -> dict[str, jax.Array]:
    """where(form, natural, c, event) of each block as parameters; blocks of one form together."""
    result, of = {}, {block.names: entry for block, entry in zip(stage, natural, strict=True)}
    for group in _bundled_blocks(params, stage):
        (first, *_), bundle = group
        leaves = {key: {b.names[0]: of[b.names][key] for b in group[0]} for key in of[first.names]}
        joined = {key: bundle.join(values) for key, values in leaves.items()}
        result.update(_unpacked(params, group, where(first.form, joined, _packed(params, group),
                                                     first.event)))
    return result


def _bundled_blocks(params: Mapping, stage: Sequence[Block]) -> list[tuple[list[Block], Bundle]]:
    """Blocks of one form and one kind of value, to be updated together."""
    groups: dict = {}
    for block in stage:
        shape = params[block.names[0]].shape
        key = block.names if block.closed_form.joint else (block.form, block.steps,
                                                            shape[len(shape) - block.event :])
        groups.setdefault(key, []).append(block)
    bundled = []
    for key, group in groups.items():
        names = tuple(block.names[0] for block in group)
        event = None if key == group[0].names else key[2]
        bundled.append((group, Bundle(names, tuple(params[name].shape for name in names), event)))
    return bundled


def _packed(params: Mapping, group: tuple[list[Block], Bundle]) -> jax.Array:
    """The quantities of blocks alike as one array."""
    blocks, bundle = group
    return bundle.join({block.names[0]: pack(params, block) for block in blocks})


def _unpacked(params: Mapping, group: tuple[list[Block], Bundle], c: jax.Array,
              direct: bool = False) -> dict[str, jax.Array]:
    """Parameters of blocks of one form from their quantities as one array; if `direct`, the array
    holds the parameters themselves."""
    blocks, bundle = group
    if bundle.event is None:
        return {blocks[0].names[0]: c} if direct else unpack(params, blocks[0], c)
    return bundle.part(c if direct else backward(c, blocks[0].steps), jax.lax.split)


def _ascend(objective: Objective, stage: Sequence[Block], steps: int) -> dict[str, jax.Array]:
    """L-BFGS on a block in its unconstrained coordinate; never lowers the objective."""
    plan, params = objective.plan, objective.params
    names = [name for block in stage for name in block.names]
    rowwise = any(block.rowwise for block in stage)
    maps = transforms(plan, params, objective.known, names)
    start = {name: maps[name].inv(params[name]) for name in names}
    origin = naturals(plan, params, objective.known)

    def both(u: dict[str, jax.Array]):
        return objective.value_and_gradient(lambda u: {n: maps[n](u[n]) for n in names}, u, rowwise,
                                            set(names), origin)

    best = maximize(both, start, LBFGS(steps, 1e-12)).point
    return {name: maps[name](best[name]) for name in names}


def _take_newton_steps(objective: Objective, stage: Sequence[Block],
                       steps: int) -> dict[str, jax.Array]:
    """Damped Newton steps, by the Hessian of the present point, on blocks that are affine in the
    rows' arguments, all together; never lowers the objective.

    Few steps: one per M-step has the local rate of EM (Lange 1995, "A gradient algorithm locally
    equivalent to the EM algorithm"), and the next E-step changes the optimum anyway.
    """
    plan, params = objective.plan, objective.params
    names = {name for block in stage for name in block.names}
    start, unpack = ravel_pytree({name: params[name] for name in names})
    origin = naturals(plan, params, objective.known)

    hessian = objective.hessian(unpack, start, tuple(sorted(names)))
    newton_steps = -(-steps // LBFGS_STEPS_PER_NEWTON_STEP)
    return unpack(maximize(
        lambda c: (*objective.value_and_gradient(unpack, c, True, names, origin), ()), start,
        chords(hessian, newton_steps)).point)


def transforms(plan: Plan, params: Mapping, known: Known, names: Iterable[str]) -> dict:
    """The one-to-one maps from unconstrained coordinates to the supports of the parameters."""
    env = {**params, **known.given}
    return {name: bijection(plan, name, env) for name in names}
