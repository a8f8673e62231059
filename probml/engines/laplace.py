"""Laplace: a normal distribution at the posterior mode, with the curvature there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml import curvature, density
from probml.belief import Draws, Normal
from probml.chunks import Data
from probml.engines import begin
from probml.engines.nuts import with_states
from probml.engines.run import Outcome, Status
from probml.engines.start import check_distinct
from probml.factors import Known, Rows
from probml.language import Refusal
from probml.plan import Plan

KEPT = 1000  # draws, where discrete sites outside rows are drawn with each


@dataclass(frozen=True)
class Laplace:
    """Laplace's approximation: u ~ N(û, H⁻¹) in unbounded coordinates u, û the mode of the density of u and H = −∂² log p(u | data)
    (Tierney & Kadane 1986).

    `params` is the mode, in the parameters' own coordinates; it differs from MAP()'s, which maximises the density of these themselves,
    where a parameter is bounded. Everything asked is averaged over the normal.

    Cost: a climb, 6 d gradients for d parameters, d³.
    """

    def refuse(self, data: Data, plan: Plan, ladder: bool = False) -> None:
        """Laplace refuses more parameters than a matrix of second derivatives has room for."""
        check_distinct(data, plan)
        size = sum(int(np.prod(plan.structure.sites[name].shape)) for name in plan.free)
        if size > curvature.MOST:
            raise Refusal(
                f"Laplace cannot fit model '{plan.structure.model.name}': it has {size} parameters, more than the {curvature.MOST} whose "
                "second derivatives it takes. Try SVI(guide=\"normal\") or NUTS()"
            )

    def run(self, data: Data, plan: Plan, rows: Rows, known: Known, weights, seed: int, start: Mapping[str, Any]) -> Outcome:
        params = begin.rough(data, plan, rows, known, weights, seed, start)
        others = begin.elsewhere(plan, known, seed, start)
        begun = begin.measured(plan, (), params, known, rows, np.zeros((1, density.size(plan, known))), others)
        begin.check(plan, begun, params, known, "Laplace")
        normal = normal_at(begun)
        low = float(np.min(np.asarray(begun.frame.curvature)))
        if not bool(begun.climbed) or low <= 0 or not np.isfinite(low):
            worst = "its curvature is not positive in every direction" if bool(begun.climbed) else "the climb found no end"
            if not jax.config.jax_enable_x64:
                worst += ", in float32: jax.config.update('jax_enable_x64', True) tells small ones from none"
            raise Refusal(
                f"Laplace cannot fit model '{plan.structure.model.name}': its density of unbounded coordinates has no mode ({worst}): "
                "a scale that stands in another parameter's prior can shrink for ever. Try NUTS()"
            )
        normal = jax.device_get(normal)
        point = jax.device_get(normal._replace(factor=normal.factor * 0).draw(plan, known, 1, 0))
        history = np.asarray(begun.trail)
        history, params = history[np.isfinite(history)], {name: value[0] for name, value in point.items()}
        return Outcome(params, history, Status.APPROXIMATED, len(history) - 1, belief=settled(plan, normal, known, rows, seed))


def normal_at(begun: begin.Begin) -> Normal:
    """The normal distribution with the frame's centre and curvature."""
    centre = begun.frame.centre
    return Normal(centre, jnp.zeros_like(centre), begun.frame.root)


def settled(plan: Plan, normal: Normal, known: Known, rows: Rows, seed: int) -> Normal | Draws:
    """The normal itself, or draws of it with the discrete sites outside rows drawn with each."""
    if not plan.globals:
        return normal
    drawn = {name: np.asarray(value)[None] for name, value in normal.draw(plan, known, KEPT, seed).items()}
    return with_states(plan, Draws(drawn, None, {}), known, rows, seed)
