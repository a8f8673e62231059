"""What the prior says, as ArviZ's groups `prior` and `prior_predictive`: draws of what lies outside
rows, and rows made with each."""

from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any

from probml.assessment.dimensions import Dimensions
from probml.assessment.simulated import from_prior
from probml.dataset import dataset
from probml.errors import ModelError
from probml.queries.fitted import Fitted


def groups(fit: Fitted, held: dataset.Data, names: Dimensions, count: int, outside: Iterable[str],
           seen: Iterable[str], group: Callable) -> dict[str, Any]:
    """Both groups, of `count` draws in one chain, seed 0.

    Args:
        outside: sites outside rows of the posterior. seen: those of the rows that were observed.
        group: (name → array, dims of a name) → the group.

    Raises:
        ModelError: no whole number of at least 1.
        Refusal: a loss, a prior that weighs by a factor or is improper: none can be drawn from.
    """
    if not isinstance(count, Integral) or isinstance(count, bool) or count < 1:
        raise ModelError(f"to_arviz(prior={count!r}): expected the number of prior draws, an "
                         f"integer of at least 1, or None for none")
    structure, seen = held.structure, tuple(seen)
    sites = structure.sites
    own = (*(name for name in outside if name in sites and not sites[name].rows),
           *(name for name, site in structure.deterministics.items() if not site.rows))
    given = {name: value for name, value in {**fit.given, **held.table.values}.items()
             if name in sites}
    drawn = from_prior(structure, held, (*own, *seen), given, int(count), 0, "to_arviz(prior=...)")
    chain = {name: value[None] for name, value in drawn.items()}
    return {"prior": group({name: chain[name] for name in own}, names.of_parameter),
            "prior_predictive": group({name: chain[name] for name in seen}, names.of_row_site)}
