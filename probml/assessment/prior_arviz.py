"""What the prior says, as ArviZ's groups `prior` and `prior_predictive`: draws of what lies outside
rows, and rows made with each."""

import math
from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any

import numpy as np

from probml.assessment.dimensions import Dimensions
from probml.dataset import dataset
from probml.errors import ModelError, Refusal
from probml.numerics.transfer import random_key
from probml.queries.fitted import Fitted
from probml.queries.simulation import simulate_draws

SAID = "to_arviz(prior=...)"


def groups(fit: Fitted, held: dataset.Data, names: Dimensions, count: int, outside: Iterable[str],
           seen: Iterable[str], group: Callable, most: float) -> dict[str, Any]:
    """Both groups, of `count` draws in one chain, seed 0.

    Args:
        outside: sites outside rows of the posterior. seen: those of the rows that were observed.
        group: (name → array, dims of a name) → the group.
        most: numbers that may be held.

    Raises:
        ModelError: no whole number of at least 1.
        Refusal: a loss, a prior that weighs by a factor or is improper: none can be drawn from.
    """
    if not isinstance(count, Integral) or isinstance(count, bool) or count < 1:
        raise ModelError(f"to_arviz(prior={count!r}): expected the number of prior draws, an "
                         f"integer of at least 1, or None for none")
    structure, n, count = held.structure, held.table.rows, int(count)
    structure.need_likelihood(SAID)
    sites = structure.sites
    flat = next((name for name in outside if name in sites and sites[name].entry.improper), None)
    if structure.penalties or flat is not None:
        what = (f"the factor '{structure.penalties[0]}' modifies the prior" if structure.penalties
                else f"the prior of '{flat}' is improper")
        raise Refusal(f"{SAID}: {what} of model '{fit.model.name}', so it cannot be sampled: omit "
                      f"prior=, or use a proper prior")
    computed = [name for name, site in structure.deterministics.items() if not site.rows]
    seen = tuple(seen)
    size = count * n * sum(math.prod(sites[name].along(held.steps)) for name in seen)
    if size > most:
        raise Refusal(f"{SAID}: {count} draws of {n} rows are {size:.2g} numbers, more than the "
                      f"limit of {most:.2g}: pass fewer rows, or ask for fewer draws")
    outside = [name for name in outside if name in sites and not sites[name].rows]
    given = {name: value for name, value in {**fit.given, **held.table.values}.items()
             if name in sites}
    own = (*outside, *computed)
    drawn = simulate_draws(structure, (*own, *seen), {}, given, held.table.inputs, random_key(0),
                           n, count, held.steps)
    chain = {name: np.asarray(value)[None] for name, value in drawn.items()}
    return {"prior": group({name: chain[name] for name in own}, names.of_parameter),
            "prior_predictive": group({name: chain[name] for name in seen}, names.of_row_site)}
