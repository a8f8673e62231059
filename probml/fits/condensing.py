"""The sufficient statistics of the rows of a plan: of few rows on the device, of many block by
block from the host."""

from typing import Any

import jax
import numpy as np

from probml.dataset.dataset import Data
from probml.device import load
from probml.device.blocks import Blocks
from probml.device.rows import Known, Rows, Summary
from probml.engines.start.prior import prior_point
from probml.evidence.e_step import summarise
from probml.numerics.compiling import ONCE, jit
from probml.numerics.transfer import placed
from probml.plan.plan import Plan
from probml.typing import SiteValues


def condensed(data: Data, plan: Plan, weights: np.ndarray | None = None,
              start: SiteValues | None = None) -> tuple[Summary, Known]:
    """The sufficient statistics of the rows of an additive plan, and the values that rows share.

    Args:
        start: see load.load.

    Cost: one pass. Of many rows memory of a few blocks, and one program whatever their number;
        blocks are added in double.
    """
    blocks = None if data.steps else Blocks(data, plan, weights)
    if blocks is None or blocks.fits_few_blocks:
        rows, known = load.load(data, plan, weights, params=start)
        return summarised(plan, known, rows), known
    total: Any = None
    for part in blocks.results(lambda block: summarised(plan, blocks.known, block)):
        part = jax.tree.map(lambda leaf: np.asarray(leaf, float), part)
        total = part if total is None else jax.tree.map(np.add, total, part)
    return jax.tree.map(lambda leaf: placed(leaf, blocks.kinds.real), total), blocks.passed()


@jit(static_argnums=0, seldom=ONCE)
def summarised(plan: Plan, known: Known, rows: Rows) -> Summary:
    """The sufficient statistics of rows on the device, or that are being copied there."""
    return summarise(plan, prior_point(plan, known), known, rows)
