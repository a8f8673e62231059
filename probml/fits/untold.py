"""What data do not tell of a model with effects of groups, in words: members of one row each, whose
spread and the rows' noise are told together alone."""

import numpy as np

from probml.dataset.dataset import Data
from probml.plan.plan import Plan
from probml.plan.spreads import spreads
from probml.posteriors.effects import Effects
from probml.posteriors.posterior import Posterior

ALIKE = 1e-6  # relative difference of factors that are one


def lone(plan: Plan, data: Data, found: Posterior, weighed: bool) -> tuple[str, ...]:
    """A note where no member of the one grouping of a number has more than one row, all of which
    say as much of it: then the likelihood knows spread² + noise² alone.

    Args:
        found: the effects given the rows. weighed: rows count otherwise than once.
    """
    if len(plan.groupings) != 1 or data.survey is not None or weighed:
        return ()
    (grouping,) = plan.groupings
    plain = grouping.cells == 1 and not grouping.nodes and not grouping.flat
    if grouping.index is None or not plain or not isinstance(found, Effects):
        return ()
    columns = [data.table.columns[name] for name in plan.grouped]
    shown = sum(np.ones(len(c.values), int) * np.prod(c.values.shape[1:], dtype=int)
                if c.seen is None else c.seen.reshape(len(c.seen), -1).sum(1) for c in columns)
    codes = np.asarray(data.table.inputs[grouping.index.input])
    codes = codes.reshape(len(codes), -1)[:, grouping.index.cells[0] if grouping.index.cells else 0]
    told = np.bincount(codes.astype(int), shown, minlength=1)
    if told.max(initial=0) > 1:
        return ()
    members = grouping.scale * np.flatnonzero(told) + grouping.offset
    lower = np.asarray(found.at.found.lower)[members, 0, 0]
    if not lower.size or np.ptp(lower) > ALIKE * np.abs(lower).max():
        return ()
    sites = plan.structure.sites
    wide = spreads(plan)
    noise = tuple(dict.fromkeys(
        p for name in plan.grouped for argument in sites[name].family.scatter
        for p in sites[name].uses.get(argument, ()) if p in plan.free and p not in wide))
    if not (wide and noise):
        return ()
    named, others = (", ".join(f"'{name}'" for name in names) for names in (wide, noise))
    return (f"no member of '{grouping.index.input}' has more than one row: these tell {named} and "
            f"{others} together and not apart, which the priors alone do. Give members several "
            f"rows, or leave '{grouping.names[0]}' out",)
