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


def lost(problem: Problem, params: Mapping[str, Any]) -> list[str]:
    """Parameters that make a scale smaller than the arithmetic distinguishes from 0, as
    factors.digits says."""
    plan, known = problem.plan, problem.known
    spreads = [float(np.max(spread)) for spread in jax.device_get(known.spread).values()]
    wide = max([spread for spread in spreads if spread > 0], default=1.0)
    sites = plan.structure.sites
    small = [name for name in plan.free if sites[name].domain.log_scale
             and np.min(np.asarray(params[name]), initial=np.inf) < NARROW * wide]
    # one that is computed of others, which rows that are all alike, or no more than there are of
    # these, may carry to 0
    computed = [name for seen in known.spread for argument in sites[seen].family.scatter
                for name in sites[seen].uses.get(argument, {})
                if name in plan.free and not sites[name].domain.log_scale]
    count = problem.rows.weight if problem.size is None else problem.size  # of merged fits
    few = count <= sum(np.size(params[name]) for name in plan.free)
    if not spreads or not (small or computed and (few or not all(spreads))):
        return []
    point = placed_all({name: np.asarray(params[name]) for name in plan.free})
    return (small or computed) if bool(_collapsed(plan, point, known, problem.rows)) else []
