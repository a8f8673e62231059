"""Small questions about states, answered on the host: the factors by one small program, which no
question changes; their sums by NumPy."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows
from probml.elimination import host
from probml.numerics.compile_effort import ASKED
from probml.numerics.compiling import jit
from probml.plan.plan import Plan
from probml.queries.parts import Belief, parts_of

Asked = Sequence[tuple[str, str | tuple[str, ...]]]
ENTRIES = 2**21  # of all tables, up to which the sums take less than a program takes to compile
QUESTIONS = 8  # each has its own sums; a program answers any number together


@functools.partial(jax.tree_util.register_dataclass, data_fields=["log"], meta_fields=["names"])
@dataclass(frozen=True)
class _Named:
    """A factor whose names are part of the program."""

    log: Any
    names: tuple[str, ...]


@functools.partial(jit, static_argnums=0, seldom=ASKED)
def _graph(plan: Plan, belief: Belief, known: Known, rows: Rows) -> list[_Named]:
    return [_Named(f.log, f.names) for f in parts_of(plan, belief, known, rows.first).rows]


def answer(plan: Plan, ask: Asked, belief: Belief, known: Known, rows: Rows,
           count: int) -> tuple[np.ndarray, dict] | None:
    """As queries.answer, of the `count` rows that are not padding; None where that would be
    longer.

    The tables hold log p(row, site) for each site that is asked for, all else summed out; where
    nothing is asked there is one of log p(row).
    """
    several = plan.chains or plan.steps or plan.latents or plan.groupings or rows.chunks > 1
    if several or len(ask) > QUESTIONS:
        return None
    scopes = []
    for question, site in ask:
        scope = site if isinstance(site, tuple) else (site,)
        plain = all(name in plan.variables
                    and math.prod(plan.structure.sites[name].cells) == 1 for name in scope)
        if question not in ("probability", "joint") or not plain:
            return None
        scopes.append(scope)
    states = {name: variable.states for name, variable in plan.variables.items()}
    if plan.work * count > ENTRIES:
        return None
    factors = [host.Table(np.asarray(f.log, float)[:count], f.names)
               for f in jax.device_get(_graph(plan, belief, known, rows))]
    names = [factor.names for factor in factors]
    if not set().union(*names) <= set(plan.order):
        return None
    if any(count * host.entries(names, plan.order, scope, states) > ENTRIES
           for scope in scopes or [()]):
        return None
    out, dtype = {}, jnp.result_type(float)
    log = None if ask else host.remainder(factors, plan.order, (), states)
    for asked, scope in zip(ask, scopes, strict=True):
        log, q = host.posterior(host.remainder(factors, plan.order, scope, states))
        shape = (plan.structure.sites[scope[0]].cells if asked[0] == "probability" else ())
        q = np.broadcast_to(q, (count, *q.shape[1:])).astype(dtype)
        out[asked] = q.reshape(count, *shape, *q.shape[1:])
    return np.broadcast_to(log, (count,)).astype(dtype), out
