"""The posterior predictive checks of a report: replicated data sets together with the observed
one."""

from probml.assessment.pages import charts
from probml.assessment.pages.html import figure, table, tabs
from probml.assessment.replicated import Bins, Replicated, replicated
from probml.errors import DataError, ModelError, Refusal
from probml.interface.showing.subject import Subject

MAX_HISTOGRAMS = 6  # columns whose values are drawn


def replicate(subject: Subject) -> Replicated | None:
    """Replicated data sets of a fit; None where its rows are not known or cannot be simulated."""
    fit, held = subject.fit, subject.data
    if held is None or fit.model.whole or fit.learnt is not None:
        return None
    try:
        return replicated(fit, held, subject.names, subject.categories)
    except (ModelError, DataError, Refusal):  # a loss, an improper prior
        return None


def render_checks(found: Replicated | None) -> list[str]:
    """The section as HTML: an explanation, a table of statistics, a histogram of each column."""
    if found is None:
        return []
    where = ("all at the point estimate: parameter uncertainty is ignored, so they vary too little"
             if found.point else "each at another posterior draw of the parameters")
    rows = [{"column": each.name, "statistic": each.of, "observed": each.seen,
             "replicated median": each.middle, "2.5%": each.low, "97.5%": each.high,
             "p-value": each.above, "misfit": "yes" if each.missed else ""}
            for each in found.statistics]
    pictures = [(each.name, _picture(each)) for each in found.bins[:MAX_HISTOGRAMS]]
    return [f"<p>{found.tables} replicated data sets, {where}. A statistic of the data outside "
            f"their central 95% suggests misfit. The posterior predictive p-value is the share of "
            f"replicated data sets with a larger statistic.</p>",
            tabs("column", pictures, "columns"),
            table(rows, "observed and replicated statistics", sortable=True)]


def _picture(each: Bins) -> str:
    chart = charts.counts(each.edges, each.seen, each.low, each.middle, each.high,
                          f"{each.name}, observed and replicated", each.name, "values")
    return figure(chart, f"{each.name}: observed values in each bin (dots), and the median and "
                         f"central 95% of the replicated data sets (lines, bands).")


def describe_misfits(found: Replicated | None) -> list[str]:
    """A sentence for each statistic that the model does not reproduce."""
    return [f"The {each.of} of {each.name} is {each.seen:.4g} in the data and {each.low:.4g} to "
            f"{each.high:.4g} in replicated data sets: the model does not reproduce it; check its "
            f"distribution and its predictors"
            for each in (found.statistics if found is not None else ()) if each.missed]
