"""Summaries by kind of model: titled tables with the names that a practitioner of that model
expects.

A model of the library has a function of `Estimates` that returns its tables (`model.summarized`);
the parameters that these leave out, and all those of any other model, are one table.
"""

from collections.abc import Callable, Mapping, Sequence

from probml.engines.engine import Status
from probml.errors import ModelError
from probml.interface.showing.estimates import Estimates, parameters
from probml.interface.showing.summary import Summary, Table
from probml.queries.fitted import Fitted


def _method(fit: Fitted) -> str:
    """The usual name of the estimation method, such as "maximum likelihood"."""
    engine, maker = fit.engine.split("(")[0], fit.made_by
    if fit.outcome is Status.KNOWN:
        return "no engine (the parameters were given)"
    if (maker is None or maker.capabilities.finds != "point"
        or fit.belief.varies and not fit.belief.partly):
        exact, normal = fit.belief.exact, engine in ("EM", "MAP", "Laplace")
        return ("the exact posterior" if exact else "Laplace's approximation of the posterior"
                if normal else engine)
    if maker.capabilities.restricts:
        return "restricted maximum likelihood (REML)"
    if getattr(maker, "prior", True) is False:
        return "maximum likelihood" + (" (EM)" if engine == "EM" else "")
    return f"posterior mode ({engine})"


def summarize(fit: Fitted, title: str = "", figures: Mapping[str, object] | None = None,
              errors: bool = True, categories: Mapping | None = None,
              tables: Callable[[Estimates], list[Table]] | None = None,
              notes: Sequence[str] = ()) -> Summary:
    """The summary of a fit.

    Args:
        title: by default the name of the model.
        figures: name → number about the fit as a whole, such as AIC.
        errors: compute standard errors; False costs nothing.
        categories: as of Estimates.
        tables: of an estimator with tables of its own; None: those of the model.
    """
    estimates = Estimates(fit, errors, categories)
    make, shown = tables or fit.model.generative.summary_tables, list[Table]()
    try:
        shown += () if make is None else [table for table in make(estimates) if table.values.size]
    except (LookupError, TypeError, ValueError) as error:
        if fit.outcome is not Status.KNOWN or isinstance(error, ModelError):
            raise
        # given values, which are held to the model with the data of a question
        estimates = Estimates(fit, errors, categories)
    shown += parameters(estimates, "Other parameters" if shown else "Parameters")
    return Summary(f"{title or repr(fit.model)}, fitted by {_method(fit)}", tuple(shown),
                   figures or {}, fit.ending, tuple(map(estimates.called, fit.warnings)),
                   (*notes, *_notes(estimates, shown)))


def _lacks_errors(table: Table) -> bool:
    """Whether an estimate of the table has no standard error."""
    columns = table.values.columns
    if table.errors is not None:
        return bool(table.errors.isna().to_numpy().any())
    if "Std. Error" in columns:
        return bool(table.values["Std. Error"].isna().any())
    return "Estimate" in columns


def _notes(estimates: Estimates, tables: Sequence[Table]) -> list[str]:
    """Sentences about the meaning of columns, and the reasons for missing standard errors."""
    if not estimates._with_errors:
        return []
    notes = []
    if any(table.errors is not None for table in tables):
        notes.append("In parentheses: " + ("posterior standard deviations."
                                           if estimates.posterior else "standard errors."))
    errors = estimates._standard_errors
    no_errors = any(_lacks_errors(table) for table in tables)
    if no_errors and errors is not None and errors.reasons and not estimates.posterior:
        reasons = dict.fromkeys(str(reason) for reason in errors.reasons.values() if reason)
        notes += [f"Standard errors are missing for some parameters, because "
                  f"{reason}." for reason in list(reasons)[:3]]
    return notes
