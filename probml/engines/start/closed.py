"""A start by closed forms, which does not depend on the units of the data."""

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from probml.device.rows import Known, Rows
from probml.evidence.passes import expect
from probml.numerics.compile_effort import ONCE
from probml.numerics.compiling import jit
from probml.plan.plan import Plan
from probml.updates.updates import maximise


@functools.partial(jit, static_argnames=("plan", "prior"), seldom=ONCE)
def closed_start(plan: Plan, prior: bool, params: Mapping[str, jax.Array], known: Known,
                 rows: Rows):
    """Parameters, those with a closed form replaced by their maximum given the others."""
    better = maximise(plan, expect(plan, params, known, rows), params, known, rows, prior,
                      only_forms=True)
    sound = jnp.all(jnp.stack([jnp.all(jnp.isfinite(v)) for v in better.values()]))
    return {name: jnp.where(sound, better[name], params[name]) for name in params}
