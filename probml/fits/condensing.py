"""The rows of a plan as their sufficient statistics."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from probml.dataset.dataset import Data
from probml.device import load
from probml.device.rows import Known, Rows, Summary
from probml.engines.start.prior import prior_point
from probml.evidence.passes import summarise
from probml.numerics.compile_effort import ONCE
from probml.numerics.compiling import jit
from probml.plan.plan import Plan


def condensed(data: Data, plan: Plan, weights: np.ndarray | None = None,
              start: Mapping[str, Any] | None = None) -> tuple[Summary, Known]:
    """The statistics of the rows of an additive plan, and what rows share.

    Args:
        start: see load.load.

    Cost: one pass.
    """
    rows, known = load.load(data, plan, weights, params=start)
    return summarised(plan, known, rows), known


@functools.partial(jit, static_argnums=0, seldom=ONCE)
def summarised(plan: Plan, known: Known, rows: Rows) -> Summary:
    """The rows on the device, or on their way there, as their statistics."""
    return summarise(plan, prior_point(plan, known), known, rows)
