"""Tables of Bayesian networks: a conditional probability table, or the coefficients, of each
node."""

from functools import partial

import numpy as np
import pandas as pd

from probml.interface.showing.estimates import Estimates, Quantity
from probml.interface.showing.summary import Table


def network_tables(estimates: Estimates) -> list[Table]:
    """P(node | parents) of a discrete node; node ~ parents, intercept, slopes and standard
    deviation, of a Gaussian node, a row for each configuration of its discrete parents."""
    nodes = estimates.settings["nodes"]
    sizes = {name: states if isinstance(states, int) else len(states)
             for name, _, states, *_ in nodes if states is not None and states is not float}
    out = []
    for name, parents, states, *_ in nodes:
        if states is None:
            continue
        discrete = [parent for parent in parents if parent in sizes]
        rows = _configurations(estimates, discrete, sizes)
        if states is not float:
            out.append(estimates.across(
                f"P({name}{' | ' if parents else ''}{', '.join(parents)})", rows,
                estimates.labels(name, sizes[name], name),
                estimates.of(f"{name}.table").map(partial(_reshape_rows, sizes[name]))))
            continue
        numbers = [parent for parent in parents if parent not in sizes]
        found = [estimates.of(f"{name}.intercept").map(partial(_reshape_rows, 1))]
        if numbers:
            found.append(estimates.of(f"{name}.slope").map(
                partial(_reshape_rows, len(numbers))))
        found.append(estimates.function(lambda precision: precision**-0.5,
                                        f"{name}.precision").map(partial(_reshape_rows, 1)))
        joined = Quantity.concatenated(found, 1)
        heading = f"{name} ~ {' + '.join(parents)}" if parents else f"{name} ~ 1"
        out.append(estimates.across(heading, rows, ["Intercept", *numbers, "residual sd"], joined))
    return out


def _reshape_rows(width: int, each: np.ndarray) -> np.ndarray:
    return np.reshape(each, (-1, width))


def _configurations(estimates: Estimates, parents: list, sizes: dict) -> pd.Index:
    if not parents:
        return pd.Index([""])
    levels = [estimates.labels(parent, sizes[parent], parent) for parent in parents]
    return levels[0] if len(levels) == 1 else pd.MultiIndex.from_product(levels, names=parents)
