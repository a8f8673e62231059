"""Representative rows of a source, so that the first steps of a fit need not pass over all."""

from dataclasses import replace

import numpy as np

from probml.device.layout import order
from probml.device.load import load
from probml.engines.engine import Problem


def use_representative_rows(problem: Problem) -> Problem:
    """The problem on the representative rows of a source (dataset/sources/profile.py), weighted by
    the rows that each represents."""
    data = problem.data._replace(survey=None)
    own = np.ones(data.table.rows) if problem.weights is None else problem.weights
    weights = own * (problem.rows.weight / own.sum())
    rows, known = load(data, problem.plan, weights, order(data, problem.plan),
                       params=problem.start)
    return replace(problem, data=data, weights=weights, rows=rows, known=known)
