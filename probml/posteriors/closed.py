"""A posterior in closed form, and what queries average over: predictive distributions with the
parameters integrated out, or draws."""

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml.device.rows import Known
from probml.errors import ModelError
from probml.language.renamed import unflattened
from probml.numerics.compile_effort import ASKED
from probml.numerics.compiling import jit
from probml.numerics.transfer import random_key
from probml.plan.blocks import all_blocks, blocks
from probml.plan.plan import Plan
from probml.posteriors import predictive
from probml.posteriors.conjugate import Marginals
from probml.posteriors.coupling import Conjugate
from probml.posteriors.posterior import Averaged, Posterior, register

MAX_COVARIANCE = 2**11  # coefficients of a block whose covariance is computed


@register
class Closed(Conjugate, Posterior):
    """A posterior in closed form: independent blocks, the Gaussian ones conditional on the scales
    they share."""

    varies = exact = True

    def draw(self, plan: Plan, known: Known, n: int, seed: int):
        return draw_params(plan, n, self, known, random_key(seed))

    def marginal(self, plan: Plan, known: Known, name: str):
        found = _marginal(plan, name, self, known)
        vars(found).pop("_validate_args", None)  # set while tracing, where nothing is validated
        return found

    def root(self, plan: Plan, known: Known, names: Collection[str]):
        """Only of locations, in blocks of at most MAX_COVARIANCE coefficients."""
        found = _roots(plan, tuple(sorted(names)), self, known)
        return {name: np.asarray(way, float) for name, way in found.items()}

    def averaged(self, params: Mapping[str, jax.Array], fitted: Plan, plan: Plan, known: Known,
                 n: int):
        found = predictives(fitted, plan, self, known)
        if found is not None:
            return Averaged(params, None, found, False)
        return Averaged(self.draw(fitted, known, n, 0), None, {}, True)

    def saved(self):
        leaves = jax.tree.leaves(self)
        meta = {"closed": len(leaves), "roots": ["root" in natural for natural in self.natural]}
        return {"posterior": "Closed"} | meta, {f"closed/{i}": leaf
                                                for i, leaf in enumerate(leaves)}

    @classmethod
    def restored(cls, meta: Mapping[str, Any], arrays: Mapping[str, Any], plan: Plan):
        template = cls.template(plan, meta.get("roots") or ())
        count = len(jax.tree.leaves(template))
        missing = [i for i in range(count) if f"closed/{i}" not in arrays]
        if missing or meta["closed"] != count:
            raise ModelError(f"its posterior has {meta['closed']} arrays, expected {count}, of "
                             f"which {len(missing)} are missing")
        leaves = [arrays[f"closed/{i}"] for i in range(count)]
        leaves = leaves if meta.get("double") else [jnp.asarray(leaf) for leaf in leaves]
        return unflattened(template, leaves, meta.get("former", {}))

    @classmethod
    def template(cls, plan: Plan, roots: Sequence[bool]) -> "Closed":
        """A posterior with the keys of a saved one, whose leaves it takes; `roots`: which blocks
        have a root of their precision."""
        every = all_blocks(plan, True)
        named = [("loc", "root") if i < len(roots) and roots[i] else block.closed_form.keys
                 for i, block in enumerate(every)]
        zeros = dict.fromkeys(plan.free, 0.0)
        return cls(tuple(dict.fromkeys(names, 0.0) for names in named), zeros, zeros)


@functools.partial(jit, static_argnums=(0, 1), seldom=ASKED)
def _marginal(plan: Plan, name: str, closed: Closed, known: Known) -> dist.Distribution:
    """The marginal posterior of a parameter; uncompiled it would be some forty programs."""
    return Marginals(plan, known, blocks(plan, True), closed).distribution(name)


@functools.partial(jit, static_argnums=(0, 1), seldom=ASKED)
def _roots(plan: Plan, names: tuple[str, ...], closed: Closed,
           known: Known) -> dict[str, jax.Array]:
    marginals, out = Marginals(plan, known, blocks(plan, True), closed), {}
    for block in marginals.blocks:
        if (block.closed_form.joint and not set(names).isdisjoint(block.names)
                and marginals.natural[block.names]["loc"].size <= MAX_COVARIANCE):
            out |= marginals.ways(block)
    return {name: way for name, way in out.items() if name in names}


@functools.partial(jit, static_argnums=(0, 1), seldom=ASKED)
def draw_params(plan: Plan, n: int, closed: Closed, known: Known,
                key: jax.Array) -> dict[str, jax.Array]:
    """n joint draws of the parameters, site → (n, ...)."""
    marginals = Marginals(plan, known, blocks(plan, True), closed)
    return jax.vmap(marginals.draw)(jax.random.split(key, n))


def predictives(fitted: Plan, plan: Plan, closed: Closed, known: Known):
    """The posterior predictive of every site that a query's plan needs, site → arguments; None if
    one has no closed form.

    They are exact for single rows if each element of the parameters enters a row once: then the
    predictives of the sites multiply.
    """
    touched = {}
    for name in (*plan.pooled, *plan.rowwise):
        uses = plan.structure.sites[name].uses.values()
        touched[name] = tuple(dict.fromkeys(p for u in uses for p in u if p in fitted.free))
    if not _predictives_multiply(fitted, plan, touched):
        return None
    marginals = Marginals(plan, known, blocks(fitted, True), closed)
    wanted = [name for name in plan.pooled if touched[name]]
    tables = [name for name in wanted if plan.structure.sites[name].states is not None
              and name not in plan.counted]
    if any(predictive.shares(marginals, name) for name in wanted) or not all(
            predictive.integrable(marginals, name) for name in tables):
        return None
    continuous = tuple(name for name in (*wanted, *plan.rowwise)
                       if touched[name] and name not in tables)
    return _predictive_arguments(fitted, plan, continuous, closed, known) if continuous else {}


def _predictives_multiply(fitted: Plan, plan: Plan, touched: Mapping[str, Sequence[str]]) -> bool:
    """Whether each element of the parameters enters a row once and what is asked depends on them
    linearly.

    Args:
        touched: site → the free parameters it depends on.
    """
    used = [p for names in touched.values() for p in names]
    # these must not depend on parameters: latent variables that are integrated out, steps of
    # chains, which use a parameter many times, and deterministic sites
    structure = plan.structure
    others = {p for name in plan.integrated for uses in structure.sites[name].uses.values()
              for p in uses if p in fitted.free}
    repeated = {p for name in plan.steps for p in touched.get(name, ())}
    derived = {p for name in plan.targets if name in structure.deterministics
               for p in structure.named[name].uses["value"] if p in used}
    return len(used) == len(set(used)) and not (others or repeated or derived) and all(
        predictive.linear(plan, fitted, name) for name in plan.targets)


@functools.partial(jit, static_argnums=(0, 1, 2), seldom=ASKED)
def _predictive_arguments(fitted: Plan, plan: Plan, names: tuple[str, ...], closed: Closed,
                          known: Known):
    marginals = Marginals(plan, known, blocks(fitted, True), closed)
    out = {name: predictive.affine(marginals, name) if name in plan.rowwise
           else predictive.predictive(marginals, name) for name in names}
    return None if any(value is None for value in out.values()) else out
