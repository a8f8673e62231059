"""Scales that a climb has carried to 0, where a density without a prior that holds them has no
maximum: a climb in logarithms may well end there, at the last digit."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from probml.engines.engine import Problem
from probml.factors.digits import collapsed
from probml.numerics.compiling import jit
from probml.numerics.tiers import ONCE
from probml.numerics.transfer import placed_all

NARROW = 1e-3  # of the spread of a column, or of 1: what is wider is not looked at
_collapsed = jit(collapsed, static_argnums=0, seldom=ONCE)


def lost(problem: Problem, params: Mapping[str, Any]) -> bool:
    """Whether a scale is below what the arithmetic can tell from 0, as factors.digits says."""
    plan, known = problem.plan, problem.known
    spreads = [float(np.max(spread)) for spread in jax.device_get(known.spread).values()]
    wide = max([spread for spread in spreads if spread > 0], default=1.0)
    scales = [np.asarray(params[name]) for name in plan.free
              if plan.structure.sites[name].domain.log_scale]
    if not spreads or not any(scale.size and scale.min() < NARROW * wide for scale in scales):
        return False
    point = placed_all({name: np.asarray(params[name]) for name in plan.free})
    return bool(_collapsed(plan, point, known, problem.rows))
