"""Bands about forecasts: the quantiles of each step of the sites along time, given the row."""

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpyro.distributions as dist

from probml.assessment.intervals import REPLICATES, TOGETHER
from probml.dataset import dataset
from probml.errors import ModelError, Refusal, present
from probml.numerics.transfer import random_key
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
            time = present(fit.structure.sites[name].time)
            inner = (*shape[: 1 + time], *shape[2 + time :])
            mean, scale = (np.moveaxis(np.reshape(leaf, (inner[0], shape[1 + time], *inner[1:])),
                                       1, 1 + time)
                           for leaf in (found.mean, np.sqrt(found.variance)))
            reach = NormalDist().inv_cdf(0.5 + probability / 2) * scale
            out[name] = (mean - reach, mean + reach)
        else:
            rest.append(name)
    return out | (_drawn(fit, held, rest, probability, plug_in) if rest else {})


def _drawn(fit: Fitted, held: dataset.Data, sites: Sequence[str], probability: float,
           plug_in: bool) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    tails, size = (0.5 - probability / 2, 0.5 + probability / 2), max(TOGETHER // REPLICATES, 1)
    parts: dict[str, list[np.ndarray]] = {name: [] for name in sites}
    for begin in range(0, held.table.rows, size):
        rows = np.arange(begin, min(begin + size, held.table.rows))
        drawn = fit._simulated(held.taken(np.repeat(rows, REPLICATES)), random_key(begin), begin,
                               plug_in)
        for name in sites:
            values = drawn[name].reshape(len(rows), REPLICATES, *drawn[name].shape[1:])
            parts[name].append(np.quantile(values.astype(float), tails, 1))
    return {name: tuple(np.concatenate(part, 1)) for name, part in parts.items()}
