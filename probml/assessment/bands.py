"""Bands about forecasts: the quantiles of each step of the sites along time, given the row."""

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpyro.distributions as dist

from probml.assessment.intervals import from_simulated
from probml.dataset import dataset
from probml.errors import ModelError, Refusal
from probml.queries.conditionals import conditional
from probml.queries.fitted import Fitted


def bands(fit: Fitted, held: dataset.Data, sites: Sequence[str], probability: float,
          plug_in: bool) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Lower and upper bounds of the unseen cells of sites, (n, *cells), which leave half of the
    rest on either side: by a normal where that is what a row leaves, else by quantiles of draws.

    Raises:
        ModelError: no probability.
    """
    if not (isinstance(probability, float) and 0 < probability < 1):
        raise ModelError(f"forecast(interval={probability!r}): expected a probability between 0 "
                         f"and 1, such as 0.9")
    out, rest = {}, []
    for name in sites:
        try:
            found = conditional(fit, held, name, plug_in)
        except Refusal:
            found = None
        if isinstance(found, dist.Normal | dist.MultivariateNormal):
            shape = (held.table.rows, *fit.structure.sites[name].along(held.steps))
            time = fit.structure.sites[name].time
            inner = (*shape[: 1 + time], *shape[2 + time :])
            mean, scale = (np.moveaxis(np.reshape(leaf, (inner[0], shape[1 + time], *inner[1:])),
                                       1, 1 + time)
                           for leaf in (found.mean, np.sqrt(found.variance)))
            reach = NormalDist().inv_cdf(0.5 + probability / 2) * scale
            out[name] = (mean - reach, mean + reach)
        else:
            rest.append(name)
    tails = (0.5 - probability / 2, 0.5 + probability / 2)
    drawn = from_simulated(fit, held, rest, plug_in,
                           lambda values: np.quantile(values, tails, 1)) if rest else {}
    return out | {name: tuple(found) for name, found in drawn.items()}
