"""Models and fits as text and HTML: the graph with plates and roles and the parameters, in a
terminal and in a notebook; and Fit.report, a page about a model and a table, with its columns,
estimates, pictures and warnings and, folded at the end, how it was computed.
"""

import inspect
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import jax
import numpy as np

from probml.assessment.dimensions import entry, named_entries
from probml.assessment.pages.citations import cite
from probml.assessment.pages.html import (
    figure,
    folded,
    noted,
    page,
    picture,
    records_of,
    section,
    table,
    tabs,
)
from probml.assessment.pages.html import format_cell as shown_as
from probml.assessment.pages.scene import Node, Scene, scene
from probml.assessment.pages.svg import svg
from probml.assessment.pages.versions import show_versions
from probml.assessment.replicated import Bins, Replicated, replicated
from probml.assessment.reports import posterior_draws
from probml.dataset import dataset, read
from probml.errors import DataError, ModelError, Refusal, counted
from probml.fits.fitting import planned
from probml.interface.explain import role_of
from probml.interface.functions.read_function import read_function
from probml.interface.showing.subject import LIBRARY_PREFIX, Subject, count_words
from probml.interface.showing.summaries import summarize
from probml.interface.showing.summary import Summary
from probml.language.given import as_new_file
from probml.language.language import Bound
from probml.numerics.process.libraries import pd
from probml.plan.plan import Plan
from probml.posteriors.units import in_units
from probml.queries.fitted import Fitted
from probml.structure.structure import Structure
from probml.structure.trace import trace

MAX_DRAW_PICTURES = 6  # parameters whose draws are shown
MAX_INTERVALS = 40  # entries in a picture of estimates


def write(subject: Subject, path: str | os.PathLike) -> Path:
    """See Fit.report."""
    path = as_new_file(path, "report(path)")
    if path.suffix.lower() not in (".html", ".htm"):
        raise ModelError(f"report(path): the page is HTML, but the file is '{path.name}'. Name it "
                         f"'{path.stem}.html'; a browser prints it as PDF")
    fit = subject.fit
    summary, full_table = subject.summary(), fit.summary()
    replicates = _replicate(subject)
    warnings = [*full_table.attrs.get("warnings", map(str, fit.warnings)), *_misfits(replicates)]
    pictures = [(title, figure(picture, caption)) for title, picture, caption in subject.pictures()]
    intervals = _intervals(full_table)
    no_tables = not pictures and fit.model.generative.summary_tables is None
    is_library = fit.model.generative.__module__.startswith(LIBRARY_PREFIX)
    details = [folded("The model and its graph", _model(subject), not is_library),
               folded("All parameters", [] if no_tables else [
                   table(records_of(full_table), "parameters", sortable=True), intervals]),
               folded("Inference", _computed(subject)),
               folded("Convergence", _convergence(fit)),
               folded("Software and references", _versions(fit))]
    parts = [
        ("doubts", "Warnings, and what to do",
         [f'<ul class="warn">{_items(warnings)}</ul>'] if warnings else []),
        ("data", "Data", _data(subject)),
        ("found", "Estimates", [tabs("picture", pictures, "pictures"), *_tables(summary),
                                intervals if no_tables else ""]),
        ("choice", "Comparison of models", _choice(subject)),
        ("checks", "Posterior predictive checks", _checks(replicates)),
        ("details", "Details", details),
    ]
    sections = [(name, text, section(name, text, body)) for name, text, body in parts]
    stamp = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    size = f"{subject.size}, " if subject.columns else ""
    head = (f"<p>{escape(size)}fitted by {escape(fit.engine.partition('(')[0])}, {stamp}.</p>"
            f"<p class=\"{'warn' if warnings else 'good'}\">{escape(fit.ending)}</p>")
    path.write_text(page(subject.headline, head, sections), encoding="utf-8")
    return path


def _data(subject: Subject) -> list[str]:
    labels = [{"name": name, "labels": ", ".join(map(str, values[:20]))
               + (f", … ({len(values)})" if len(values) > 20 else "")}
              for name, values in subject.fit.names.items()]
    if not subject.columns:
        return ["<p>This Fit does not store its data. With <code>report(path, data)</code> the "
                "data are described here.</p>", table(labels, "labels")]
    records = [column.record() for column in subject.columns]
    return [f"<p>{subject.size}, {count_words(len(records), 'column')}.</p>",
            table(records, "columns of the table")]


def _choice(subject: Subject) -> list[str]:
    """The criteria of a range of settings, such as the BIC of each number of components."""
    if getattr(subject.choice, "empty", True):
        return []
    frame = subject.choice.reset_index(drop=type(subject.choice.index).__name__ == "RangeIndex")
    chosen = [subject.summary().figures.get(word) for word in ("components", "states")]
    match = next((frame[name] == size for name, size in zip(("n_components", "n_states"), chosen,
               strict=True) if name in frame and size is not None), None)
    if match is not None:
        frame = frame.assign(used=["✓" if flag else "" for flag in match])
    return [table(records_of(frame), "criteria (lower AIC, BIC and ICL are better)",
                  sortable=True)]


def _model(subject: Subject) -> list[str]:
    fit = subject.fit
    settings = [{"setting": name, "value": _truncate(value)}
                for name, value in fit.model.bound.items()]
    scene = None if subject.data is None else graph_scene_of(subject.data)
    parts = [figure(graph_html(fit.model, None, scene),
                    f"The variables of {fit.model.name}: an arrow points from a variable to each "
                    f"that depends on it, and a frame is a plate.")]
    try:
        source = inspect.getsource(fit.model.generative.function)
    except (OSError, TypeError):
        source = ""
    code = f"<pre><code>{escape(source)}</code></pre>" if source else ""
    return [*parts, table(settings, "settings"), folded("The function", [code])]


def _truncate(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) < 120 else f"{text[:117]} …"


def _computed(subject: Subject) -> list[str]:
    fit = subject.fit
    facts = [("model", repr(fit.model)), ("engine", fit.engine), ("status", fit.status),
             ("iterations", str(fit.iterations)),
             *([] if fit.seed is None else [("seed", str(fit.seed))]),
             ("precision", "float64" if fit.double or show_versions(
                 show=False)["precision"] == "float64" else "float32")]
    if fit.log_evidence is not None:
        facts.append(("log marginal likelihood", f"{fit.log_evidence:.6g}"))
    notes = [str(finding) for finding in fit.findings if not finding.warns]
    out = [table([{"what": what, "value": _truncate(value)} for what, value in facts], "inference"),
           f"<p>For information:</p><ul>{_items(notes)}</ul>" if notes else ""]
    try:
        model: Any = fit.model
        info = None if subject.given is None else model.explain(subject.given)
    except (ModelError, DataError, Refusal):
        info = None
    if info is None:
        return out
    return [*out, table(info.sites, "role of each variable in the inference"),
            table(info.elimination, "elimination of latent variables"),
            table(info.updates, "updates of parameters"),
            table(info.penalties, "priors as penalties"), table(info.engines, "engines, in order")]


def _tables(summary: Summary) -> list[str]:
    """The tables of a summary, as HTML."""
    figures = " · ".join(f"{escape(name)} {shown_as(value)}"
                         for name, value in summary.figures.items())
    printed = [(part.heading, part.printed()) for part in summary.tables]
    return [*(table(records_of(frame), f"{heading}, by {frame.columns.name}"
                    if frame.columns.name else heading, sortable=True)
              for heading, frame in printed),
            f"<p>{figures}</p>" if figures else "",
            *(f"<p>{escape(note)}</p>" for note in summary.notes)]


def _intervals(estimates: "pd.DataFrame") -> str:
    """A picture of intervals for each parameter, on an axis of its own, in its own units."""
    if "sd" not in estimates or not len(estimates):
        return ""
    frame = estimates[np.isfinite(estimates["sd"])]
    names = np.array([str(name).partition("[")[0] for name in frame.index])
    pictures = [(name, _interval(name, group)) for name, group in frame.groupby(names, sort=False)]
    return tabs("interval", [pair for pair in pictures if pair[1]], "intervals of a parameter")


def _interval(name: str, entries: "pd.DataFrame") -> str:
    """Entries of a parameter with their 90% intervals."""
    count = len(entries)
    entries = entries.iloc[:MAX_INTERVALS]
    middle = entries["mean"] if "mean" in entries else entries["value"]
    low = entries["5%"] if "5%" in entries else middle - 1.645 * entries["sd"]
    high = entries["95%"] if "95%" in entries else middle + 1.645 * entries["sd"]
    note = f" The first {MAX_INTERVALS} of {count}." if count > MAX_INTERVALS else ""
    caption = ("Means and central 90% intervals." if "mean" in entries else
               "Estimates with 90% intervals (estimate ± 1.645 standard errors).")
    return picture("intervals", f"{name} with 90% intervals", f"{caption}{note}", entries.index,
                   low, middle, high, name)


def _items(texts: Sequence[str]) -> str:
    return "".join(f"<li>{escape(text)}</li>" for text in texts)


def _convergence(fit: Fitted) -> list[str]:
    pictures = []
    history = np.asarray([] if fit.history is None else fit.history, float).ravel()
    if history.size > 1:
        pictures.append(("objective", picture("learning", "The objective",
                                              "The objective at each iteration.", fit)))
    if fit.belief.chains is not None:
        draws, names = posterior_draws(fit), named_entries(fit, fit.names)
        draws |= in_units(fit.units, draws)
        entries = ((name, at) for name, value in draws.items()
                   for at in np.ndindex(value.shape[2:]))
        for name, at in list(entries)[:MAX_DRAW_PICTURES]:
            label = entry(name, at, names)
            pictures.append((label, picture("traces", f"Draws of {label}",
                                            f"Draws of {label}; each line is a chain.",
                                            draws[name][:, :, *at], label)))
    return [tabs("draws", [pair for pair in pictures if pair[1]], "convergence")]


def _versions(fit: Fitted) -> list[str]:
    known = [{"library": name, "version": text} for name, text in show_versions(show=False).items()]
    works = "".join(f"<li>{escape(line)}</li>" for line in cite(fit, show=False))
    return [table(known, "versions"), f"<h3>References</h3><ol>{works}</ol>"]


MAX_HISTOGRAMS = 6  # columns whose values are drawn


def _replicate(subject: Subject) -> Replicated | None:
    """Replicated data sets of a fit; None where its rows are not known or cannot be simulated."""
    fit, data = subject.fit, subject.data
    if data is None or fit.model.is_joint or fit.learnt is not None:
        return None
    try:
        return replicated(fit, data, subject.names, subject.categories)
    except (ModelError, DataError, Refusal):  # a loss, an improper prior
        return None


def _checks(checks: Replicated | None) -> list[str]:
    """The section as HTML: an explanation, a table of statistics, a histogram of each column."""
    if checks is None:
        return []
    how = ("all simulated from the point estimate, so they do not include parameter uncertainty "
           "and vary too little"
           if checks.point else "each simulated from another posterior draw of the parameters")
    rows = [{"column": item.name, "statistic": item.of, "observed": item.observed,
             "replicated median": item.median, "2.5%": item.low, "97.5%": item.high,
             "p-value": item.p_value, "misfit": "yes" if item.missed else ""}
            for item in checks.statistics]
    pictures = [(item.name, _check_picture(item)) for item in checks.bins[:MAX_HISTOGRAMS]]
    return [f"<p>{checks.tables} replicated data sets, {how}. A statistic of the data outside "
            f"their central 95% suggests misfit. The posterior predictive p-value is the share of "
            f"replicated data sets with a larger statistic.</p>",
            tabs("column", pictures, "columns"),
            table(rows, "observed and replicated statistics", sortable=True)]


def _check_picture(bins: Bins) -> str:
    return picture("counts", f"{bins.name}, observed and replicated",
                   f"{bins.name}: observed values in each bin (dots), and the median and "
                   "central 95% of the replicated data sets (lines, bands).", bins)


def _misfits(checks: Replicated | None) -> list[str]:
    """A sentence for each statistic that the model does not reproduce."""
    return [f"The {item.of} of {item.name} is {item.observed:.4g} in the data and "
            f"{item.low:.4g} to {item.high:.4g} in the replicated data sets. "
            f"The model does not reproduce this statistic; check the distribution and "
            f"the predictors of {item.name}"
            for item in (checks.statistics if checks is not None else ()) if item.missed]


MAX_DRAWN_SITES = 60  # in a graph that a notebook shows of itself
MAX_TEXT_PARAMETERS = 12


def graph_scene(model: Bound, data: object = None) -> Scene:
    """The graph of a model, with the role of each site where data are given.

    Raises:
        DataError, ModelError: data that the model cannot take; a model that has no graph without
            data.
    """
    if data is None:
        return _scene(trace(model), None, None)
    read_model = read_function(model, data)
    return graph_scene_of(read.read(read_model.model, read_model.data))


def graph_scene_of(data: dataset.Data) -> Scene:
    """The graph of a model, with the role of each site given data that were read."""
    try:
        plan = planned(data, lenient=True)
    except Refusal:
        plan = None
    return _scene(data.structure, data, plan)


def _scene(structure: Structure, data: dataset.Data | None, plan: Plan | None) -> Scene:
    nodes, frames, edges = [], {}, []
    for site in structure.named.values():
        plates = [name for name, _ in site.plates if name != "rows"]
        frames |= {name: f"{name} ({size})" for name, size in site.plates}
        plate_path = tuple(["rows"] * site.rows + plates)
        nodes.append(Node(site.name, role_of(site, data, plan)[0],
                          "" if site.name in structure.deterministics else site.kind, plate_path))
        edges += [(parent, site.name) for parent in (*site.parents, *site.inputs)]
    used_names = {name for site in structure.named.values() for name in site.inputs}
    has_rows = any(site.rows for site in structure.sites.values())
    nodes += [Node(name, "input", "", ("rows",) * has_rows) for name in structure.model.inputs
              if name in used_names]
    frames["rows"] = "rows" if data is None else f"rows ({data.size:,})"
    return scene(nodes, edges, frames)


def graph_html(model: Bound, data: object = None, scene: Scene | None = None) -> str:
    """The graph as SVG; a sentence where it is too large, or not known without data."""
    try:
        graph = graph_scene(model, data) if scene is None else scene
    except (ModelError, DataError, TypeError, ValueError) as error:
        return f"<p>{escape(str(error))}</p>"
    if len(graph.boxes) > MAX_DRAWN_SITES:
        return (f"<p>{counted(len(graph.boxes), 'site')}, {len(graph.arrows)} arrows: "
                f"model.draw() shows them</p>")
    return svg(graph, f"graph of {model.name}")


def model_html(model: Bound) -> str:
    """A model in a notebook."""
    return noted(f"<p><code>{escape(repr(model))}</code></p>{graph_html(model)}")


def fit_text(fit: Fitted) -> str:
    """A fit in a terminal: model, engine, status, the first of its parameters. Not the table of
    fit.summary(): a representation must be cheap, and possible within a JAX transformation."""
    if fit.model.generative.summary_tables and not _traced(fit):
        return str(summarize(fit, errors=False))
    first = dict([*{**fit.point, **in_units(fit.units, fit.point)}.items()][:MAX_TEXT_PARAMETERS])
    width = max(map(len, first), default=0)
    method = "with given parameters" if fit.engine == "known" else (
        f"fitted by {fit.engine.split('(')[0]}")
    lines = [f"{fit.model!r} {method}", fit.ending,
             *map(str, fit.warnings),
             *(f"  {name:<{width}}  {_numbers(value)}" for name, value in first.items())]
    if len(fit.point) > MAX_TEXT_PARAMETERS:
        further = counted(len(fit.point) - MAX_TEXT_PARAMETERS,
                          "further parameter is", "further parameters are")
        lines.append(f"  {further} in fit.summary()")
    return "\n".join(lines)


def _traced(fit: Fitted) -> bool:
    return any(isinstance(value, jax.core.Tracer) for value in fit.point.values())


def _numbers(value: object) -> str:
    """The first numbers of an array on one line, with its shape where there are more."""
    if isinstance(value, jax.core.Tracer):
        return f"{value.shape}"
    array = np.asarray(value)
    text = " ".join(f"{number:.4g}" for number in array.ravel()[:6])
    return f"{text} … {array.shape}" if array.size > 6 else text
