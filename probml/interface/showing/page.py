"""A report: one file that a colleague opens, with the model, the data, what was done and why, what
was found, what is in doubt, and what all of it stands on."""

import inspect
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probml.assessment.dimensions import entry, named_entries
from probml.assessment.pages import charts
from probml.assessment.pages.citations import cite
from probml.assessment.pages.html import figure, page, records_of, section, table, tabs
from probml.assessment.pages.versions import show_versions
from probml.assessment.reports import posterior_draws
from probml.dataset import dataset
from probml.errors import DataError, ModelError, Refusal
from probml.interface.showing.checked import made_again, missed, shown
from probml.interface.showing.looks import graph_html, pictured_of
from probml.language.given import file_named
from probml.posteriors.units import in_units
from probml.queries.fitted import Fitted

if TYPE_CHECKING:
    import pandas as pd

PICTURES = 6  # parameters whose draws are shown
INTERVALS = 40  # entries in the picture of what was found


def write(fit: Fitted, path: str | os.PathLike, data: Any = None,
          what: str | None = None) -> Path:
    """See Fit.report; `what`: what was fitted, None: the name of its model."""
    path = file_named(path, "report(path)")
    if path.is_dir() or not path.parent.is_dir():
        raise ModelError(f"report(path='{path}'): expected a file in a folder that is there")
    held = _held(fit, data)
    why = _explained(fit, data)
    title = f"Report: {what or fit.model.name}"
    summary = fit.summary(None if fit.again is not None else data)
    again = made_again(fit, held)
    doubts = [*_doubts(fit, summary), *missed(again)]
    parts = [
        ("model", "The model", _model(fit, data, held)),
        ("data", "The data", _data(fit, held)),
        ("done", "Inference", _done(fit, why)),
        ("found", "Estimates", _found(summary)),
        ("made", "Posterior predictive checks", shown(again)),
        ("doubts", "Warnings, and what to do", _listed(doubts, fit)),
        ("pictures", "Pictures", _pictures(fit)),
        ("versions", "Versions and references", _versions(fit)),
    ]
    sections = [(name, text, section(name, text, body)) for name, text, body in parts]
    stamp = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    head = (f"<p><code>{escape(repr(fit.model))}</code> by <code>{escape(fit.engine)}</code>, "
            f"{stamp}.</p><p class=\"{'warn' if doubts else 'good'}\">"
            f"{escape(fit.status)}</p>")
    path.write_text(page(title, head, sections), encoding="utf-8")
    return path


def _held(fit: Fitted, data: Any) -> dataset.Data | None:
    return fit.data if data is None else fit._read(data)


def _explained(fit: Fitted, data: Any) -> Any:
    """The plan in words, where the data are there; a fit from a file has none."""
    if data is None:
        return None
    try:
        return fit.model.explain(data)
    except (ModelError, DataError, Refusal):
        return None


def _model(fit: Fitted, data: Any, held: dataset.Data | None) -> list[str]:
    settings = [{"setting": name, "value": _short(value)}
                for name, value in fit.model.bound.items()]
    scene = pictured_of(held) if data is None and held is not None else None
    out = [figure(graph_html(fit.model, data, scene),
                  f"The sites of {fit.model.name}: an arrow from each site to those that depend on "
                  f"it; a frame around what is repeated.")]
    try:
        source = inspect.getsource(fit.model.generative.function)
    except (OSError, TypeError):
        source = ""
    if source:
        out.append(f"<details><summary>The function</summary><pre><code>{escape(source)}"
                   f"</code></pre></details>")
    return [*out, table(settings, "settings")]


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) < 120 else f"{text[:117]} …"


def _data(fit: Fitted, held: dataset.Data | None) -> list[str]:
    if held is None:
        return ["<p>This fit holds no rows: give them, "
                "<code>fit.report(path, data)</code>, and they are described here.</p>",
                *_labels(fit, {})]
    rows = []
    shares = []
    for name, column in held.table.columns.items():
        seen = 1.0 if column.seen is None else float(np.mean(column.seen))
        likely = column.likelihood is not None
        rows.append({"name": name, "is": "site", "shape": _shape(column.values),
                     "observed": "as likelihoods" if likely else f"{seen:.1%}"})
        shares += [] if likely else [(name, seen)]
    rows += [{"name": name, "is": "input", "shape": _shape(value), "observed": "100.0%"}
             for name, value in held.table.inputs.items()]
    unseen = [site.name for site in held.structure.sites.values()
              if site.rows and site.name not in held.table.columns and not site.factor]
    rows += [{"name": name, "is": "site", "shape": "", "observed": "0.0%"} for name in unseen]
    picture = charts.bars(shares, "Share of cells that are observed", "share of cells observed")
    torn = any(share < 1 for _, share in shares)
    return [f"<p>{held.size:,} rows.</p>", table(rows, "columns"),
            figure(picture, "How much of each site is observed.") if torn and picture else "",
            *_labels(fit, {**fit.names, **held.labels})]


def _labels(fit: Fitted, labels: dict) -> list[str]:
    known = labels or fit.names
    return [table([{"name": name, "labels": ", ".join(map(str, own[:20]))
                    + (f", … ({len(own)})" if len(own) > 20 else "")}
                   for name, own in known.items()], "labels")]


def _shape(values: np.ndarray) -> str:
    return " × ".join(("rows", *map(str, values.shape[1:])))


def _done(fit: Fitted, why: Any) -> list[str]:
    seed = "not recorded" if fit.seed is None else str(fit.seed)
    said = [{"what": "engine", "value": fit.engine}, {"what": "ended", "value": fit.status},
            {"what": "iterations", "value": str(fit.iterations)}, {"what": "seed", "value": seed},
            {"what": "precision", "value": "double" if fit.double else "as JAX's precision"}]
    if fit.log_evidence is not None:
        said.append({"what": "log evidence", "value": f"{fit.log_evidence:.6g}"})
    if why is None:
        return [table(said, "the fit")]
    return [table(said, "the fit"), table(why.sites, "how each site is treated"),
            table(why.elimination, "summing out"), table(why.updates, "the update of parameters"),
            table(why.penalties, "priors as penalties"), table(why.engines, "engines, in turn")]


def _found(summary: "pd.DataFrame") -> list[str]:
    return [table(records_of(summary), "parameters", sortable=True), _intervals(summary)]


def _intervals(summary: "pd.DataFrame") -> str:
    """Entries with their 90% intervals, where their spread is known."""
    if "sd" not in summary or not len(summary):
        return ""
    some = summary.dropna(subset=["sd"]).iloc[:INTERVALS]
    middle = some["mean"] if "mean" in some else some["value"]
    low = some["5%"] if "5%" in some else middle - 1.645 * some["sd"]
    high = some["95%"] if "95%" in some else middle + 1.645 * some["sd"]
    picture = charts.intervals([(str(name), float(a), float(b), float(c)) for name, a, b, c
                                in zip(some.index, low, middle, high, strict=True)],
                               "Parameters with 90% intervals", "value, in the units of the table")
    more = f" The first {INTERVALS} of {len(summary)}." if len(summary) > INTERVALS else ""
    said = ("Means and central 90% intervals." if "mean" in some else
            "Values, and 1.645 standard deviations to either side.")
    about = f" Of sd: {summary.attrs['sd']}." if "sd" in summary.attrs else ""
    return figure(picture, f"{said}{about}{more}") if picture else ""


def _doubts(fit: Fitted, summary: "pd.DataFrame") -> list[str]:
    """What a reader should not overlook, a sentence each."""
    return list(summary.attrs.get("warnings", map(str, fit.warnings)))


def _listed(warned: list[str], fit: Fitted) -> list[str]:
    """Warnings, then what was found for information."""
    found = (f'<ul class="warn">{_items(warned)}</ul>' if warned else '<p class="good">None.</p>')
    notes = [str(finding) for finding in fit.findings if not finding.warns]
    return [found, f"<p>For information:</p><ul>{_items(notes)}</ul>" if notes else ""]


def _items(texts: Sequence[str]) -> str:
    return "".join(f"<li>{escape(text)}</li>" for text in texts)


def _pictures(fit: Fitted) -> list[str]:
    out = []
    history = np.asarray([] if fit.history is None else fit.history, float).ravel()
    if history.size > 1:
        picture = charts.lines([history], "The objective", "iteration", "objective, nats")
        out.append(("objective", picture, "The objective at each iteration."))
    if fit.belief.chains is not None:
        draws, named = posterior_draws(fit), named_entries(fit, fit.names)
        draws |= in_units(fit.units, draws)
        entries = ((name, at) for name, value in draws.items()
                   for at in np.ndindex(value.shape[2:]))
        for name, at in list(entries)[:PICTURES]:
            label = entry(name, at, named)
            picture = charts.lines(list(draws[name][:, :, *at]), f"Draws of {label}", "draw", label)
            out.append((label, picture, f"Draws of {label}, a line a chain."))
    drawn = [(title, figure(picture, words)) for title, picture, words in out if picture]
    return [tabs("picture", drawn, "pictures")]


def _versions(fit: Fitted) -> list[str]:
    known = [{"library": name, "version": text} for name, text in show_versions(show=False).items()]
    works = "".join(f"<li>{escape(line)}</li>" for line in cite(fit, show=False))
    return [table(known, "versions"), f"<h3>References</h3><ol>{works}</ol>"]
