"""The part of a report that holds the data to the model: tables made by it beside the one that was
seen."""

from probml.assessment.pages import charts
from probml.assessment.pages.html import figure, table, tabs
from probml.assessment.replicated import Bins, Replicated, replicated
from probml.dataset import dataset
from probml.errors import DataError, ModelError, Refusal
from probml.queries.fitted import Fitted

PICTURES = 6


def made_again(fit: Fitted, held: dataset.Data | None) -> Replicated | None:
    """Tables made by a fit, where its rows are there and can be made."""
    if held is None or fit.model.whole or fit.learnt is not None:
        return None
    try:
        return replicated(fit, held)
    except (ModelError, DataError, Refusal):  # a loss, an improper prior
        return None


def shown(found: Replicated | None) -> list[str]:
    """The section: what it is, a table of statistics, a picture of each number."""
    if found is None:
        return []
    where = ("at the one value of the parameters that was found, so that they spread too little"
             if found.point else "each at another draw of the parameters")
    rows = [{"what": each.name, "statistic": each.of, "seen": each.seen, "made, 2.5%": each.low,
             "made, median": each.middle, "made, 97.5%": each.high,
             "share made above": each.above, "made": "hardly ever" if each.missed else "yes"}
            for each in found.statistics]
    pictures = [(each.name, _picture(each)) for each in found.bins[:PICTURES]]
    return [f"<p>{found.tables} tables of as many rows, with the inputs of the data, were made by "
            f"the model, {where}. Where hardly a table reaches a statistic of the data, the model "
            f"does not make such rows.</p>",
            table(rows, "the data beside tables made by the model", sortable=True),
            tabs("column", pictures, "columns")]


def _picture(each: Bins) -> str:
    chart = charts.counts(each.edges, each.seen, each.low, each.middle, each.high,
                          f"Cells of {each.name}, seen and made", each.name, "cells")
    return figure(chart, f"{each.name}: cells seen in each bin (dots), and the median and central "
                         f"95% of the tables made (lines, bands).")


def missed(found: Replicated | None) -> list[str]:
    """A sentence for each statistic that the model hardly makes."""
    return [f"The {each.of} of {each.name} is {each.seen:.4g}, and of tables made by the model "
            f"{each.low:.4g} to {each.high:.4g}: it does not make such rows; look at its "
            f"distribution, or at what it leaves out"
            for each in (found.statistics if found is not None else ()) if each.missed]
