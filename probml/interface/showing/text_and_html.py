"""Models and fits in a terminal and in a notebook: the graph with plates and roles, the
parameters."""

from html import escape

import jax
import numpy as np

from probml.assessment.pages.html import noted, records_of, table
from probml.assessment.pages.scene import Node, Scene, scene
from probml.assessment.pages.svg import svg
from probml.dataset import dataset, read
from probml.errors import DataError, ModelError, Refusal
from probml.fits.fitting import planned
from probml.interface.functions.read_function import read_function
from probml.interface.showing.summaries import summarize
from probml.language.language import Bound
from probml.plan.plan import Plan
from probml.posteriors.units import in_units
from probml.queries.fitted import Fitted
from probml.structure.site import Site
from probml.structure.structure import Structure
from probml.structure.trace import trace

MAX_DRAWN_SITES = 60  # in a graph that a notebook shows of itself
MAX_HTML_PARAMETERS = 40
MAX_TEXT_PARAMETERS = 12


def graph_scene(model: Bound, data: object = None) -> Scene:
    """The graph of a model, with the role of each site where data are given.

    Raises:
        DataError, ModelError: data that the model cannot take; a model that has no graph without
            data.
    """
    if data is None:
        return _scene(trace(model), None, None)
    met = read_function(model, data)
    return graph_scene_of(read.read(met.model, met.data))


def graph_scene_of(held: dataset.Data) -> Scene:
    """The graph of a model, with the role of each site given data that were read."""
    try:
        plan = planned(held, lenient=True)
    except Refusal:
        plan = None
    return _scene(held.structure, held, plan)


def _scene(structure: Structure, held: dataset.Data | None, plan: Plan | None) -> Scene:
    nodes, frames, edges = [], {}, []
    for site in structure.named.values():
        plates = [name for name, _ in site.plates if name != "rows"]
        frames |= {name: f"{name} ({size})" for name, size in site.plates}
        own = tuple(["rows"] * site.rows + plates)
        nodes.append(Node(site.name, _role(site, held, plan),
                          "" if site.name in structure.deterministics else site.kind, own))
        edges += [(parent, site.name) for parent in (*site.parents, *site.inputs)]
    used = {name for site in structure.named.values() for name in site.inputs}
    inside = any(site.rows for site in structure.sites.values())
    nodes += [Node(name, "input", "", ("rows",) * inside) for name in structure.model.inputs
              if name in used]
    frames["rows"] = "rows" if held is None else f"rows ({held.size:,})"
    return scene(nodes, edges, frames)


def _role(site: Site, held: dataset.Data | None, plan: Plan | None) -> str:
    """A key of pages.scene.ROLES."""
    if site.kind in ("factor", "deterministic"):
        return "factor" if site.factor else "computed"
    if held is not None and site.name in held.table.values:
        return "seen"
    if not site.rows:
        if plan is not None and site.name in plan.effects:
            return "integrated"
        return "summed" if site.discrete else "parameter"
    state = None if held is None else held.pattern.get(site.name)
    if state is not None:
        return "seen" if state == "seen" else "part"
    if plan is not None and site.name in plan.variables:
        return "summed"
    return "integrated" if plan is not None and site.name in plan.hidden else "unseen"


def graph_html(model: Bound, data: object = None, scene: Scene | None = None) -> str:
    """The graph as SVG; a sentence where it is too large, or not known without data."""
    try:
        found = graph_scene(model, data) if scene is None else scene
    except (ModelError, DataError, TypeError, ValueError) as error:
        return f"<p>{escape(str(error))}</p>"
    if len(found.boxes) > MAX_DRAWN_SITES:
        return (f"<p>{len(found.boxes)} sites, {len(found.arrows)} arrows: model.draw() shows "
                f"them</p>")
    return svg(found, f"graph of {model.name}")


def model_html(model: Bound) -> str:
    """A model in a notebook."""
    return noted(f"<p><code>{escape(repr(model))}</code></p>{graph_html(model)}")


def fit_html(fit: Fitted) -> str:
    """A fit in a notebook: model, engine, status, the first of its parameters."""
    if fit.model.generative.summary_tables and not _traced(fit):
        return summarize(fit, errors=False)._repr_html_()
    lines = records_of(fit._table(None))  # no standard errors: these cost
    hidden = len(lines) - MAX_HTML_PARAMETERS
    more = f"<p>{hidden} further entries: fit.summary()</p>" if hidden > 0 else ""
    said = "good" if fit.converged else "warn"
    warned = "".join(f"<li>{escape(str(found))}</li>" for found in fit.warnings)
    return noted(f"<p><code>{escape(repr(fit.model))}</code> by <code>{escape(fit.engine)}</code>"
                 f'</p><p class="{said}">{"✓" if fit.converged else "⚠"} {escape(fit.ending)}</p>'
                 f'{f"""<ul class="warn">{warned}</ul>""" if warned else ""}'
                 f"{table(lines[:MAX_HTML_PARAMETERS], 'parameters')}{more}")


def fit_text(fit: Fitted) -> str:
    """A fit in a terminal: model, engine, status, the first of its parameters. Not the table of
    fit.summary(): a representation must be cheap, and possible within a JAX transformation."""
    if fit.model.generative.summary_tables and not _traced(fit):
        return str(summarize(fit, errors=False))
    first = dict([*{**fit.point, **in_units(fit.units, fit.point)}.items()][:MAX_TEXT_PARAMETERS])
    width = max(map(len, first), default=0)
    lines = [f"{fit.model!r} fitted by {fit.engine.split('(')[0]}", fit.ending,
             *map(str, fit.warnings),
             *(f"  {name:<{width}}  {_numbers(value)}" for name, value in first.items())]
    if len(fit.point) > MAX_TEXT_PARAMETERS:
        lines.append(f"  {len(fit.point) - MAX_TEXT_PARAMETERS} further parameters: fit.summary()")
    return "\n".join(lines)


def _traced(fit: Fitted) -> bool:
    return any(isinstance(value, jax.core.Tracer) for value in fit.point.values())


def _numbers(value: object) -> str:
    """The first numbers of an array on one line, with its shape where there are more."""
    if isinstance(value, jax.core.Tracer):
        return f"{value.shape}"
    array = np.asarray(value)
    shown = " ".join(f"{number:.4g}" for number in array.ravel()[:6])
    return f"{shown} … {array.shape}" if array.size > 6 else shown
