"""Model.explain: how each site is treated, what is summed out at what cost, the update of each
parameter, and the engines that can or cannot fit the model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import jax
import jax.numpy as jnp
import numpy as np

from probml.assessment.pages.html import noted, table
from probml.dataset import dataset, read
from probml.dataset.measures import with_measures
from probml.dataset.sources.parts import open_data, source_of
from probml.engines.engine import Engine, checked, problem_of, refusal
from probml.engines.ladder import ON_REQUEST, SELECTION_ORDER, advised, choose
from probml.errors import Refusal, counted
from probml.fits.fitting import planned
from probml.interface.functions.marginal_weights import describe_summed_sites
from probml.interface.functions.read_function import read_function
from probml.language.language import Bound
from probml.plan import hierarchy
from probml.plan.blocks import Block, blocks
from probml.plan.groupings import describe_integration
from probml.plan.plan import Plan
from probml.structure.recorder import DETERMINISTIC
from probml.structure.site import Site
from probml.typing import ArrayLike, DataLike


@dataclass(frozen=True)
class Explanation:
    """A few small tables and a line per engine; print it, or read the records."""

    model: str
    sites: tuple[dict[str, str], ...]
    elimination: tuple[dict[str, str], ...]
    updates: tuple[dict[str, str], ...]
    penalties: tuple[dict[str, str], ...]
    engines: tuple[dict[str, str], ...]
    indices: tuple[dict[str, str], ...] = ()
    reading: str | None = None  # of a function that names no rows: how it is read

    def __str__(self) -> str:
        parts = [f"model {self.model}"] + ([self.reading] if self.reading else [])
        for title, records in self._parts():
            parts += ["", _text(title, records)]
        return "\n".join(parts)

    def _parts(self) -> list[tuple[str, tuple[dict[str, str], ...]]]:
        named = (("sites (the variables of the model)", self.sites), ("indices", self.indices),
                 ("summing out (latent discrete sites, in this order)", self.elimination),
                 ("updates (how each parameter is estimated)", self.updates),
                 ("priors as penalties", self.penalties),
                 ("engines (inference algorithms)", self.engines))
        return [(title, records) for title, records in named if records]

    __repr__ = __str__

    def _repr_html_(self) -> str:
        tables = "".join(table(records, title) for title, records in self._parts())
        reading = f"<p>{escape(self.reading)}</p>" if self.reading else ""
        return noted(f"<p>model <code>{escape(self.model)}</code></p>{reading}{tables}")


def _text(title: str, records: Sequence[Mapping[str, str]]) -> str:
    columns = list(records[0])
    widths = {c: max(len(c), *(len(r[c]) for r in records)) for c in columns}
    widths[columns[-1]] = 0
    lines = ["  ".join(c.ljust(widths[c]) for c in columns).rstrip()]
    lines += ["  ".join(r[c].ljust(widths[c]) for c in columns).rstrip() for r in records]
    return f"{title}\n" + "\n".join("  " + line for line in lines)


def explain(model: Bound, data: DataLike = None, engines: Sequence[Engine] = ()) -> Explanation:
    """See Model.explain."""
    others = (*ON_REQUEST, *(checked(engine, "explain") for engine in engines or ()))
    sized = hasattr(data, "__len__") and getattr(data, "shape", None) != ()
    is_empty = data is None or sized and len(data) == 0
    title = repr(model)
    model, data, reading, _ = read_function(model, data)
    rows = open_data(model, data) if source_of(data) is not None else with_measures(
        read.refuse_some_labels(read.read(model, data, rows=1 if is_empty else None,
                                          steps=1 if is_empty else None)))
    if model.is_joint and model.generative.summed:
        reading = (reading or "") + describe_summed_sites(rows)
    try:
        plan = planned(rows, lenient=True)
    except Refusal as why:
        refusals = tuple({"engine": type(e).__name__,
                          "": f"refuses: {why}"} for e in SELECTION_ORDER)
        return Explanation(title, _sites(rows, None), (), (), (), refusals, _indices(rows), reading)
    penalties = _penalties(plan, rows.table.values)
    return Explanation(title, _sites(rows, plan), _elimination(plan), _updates(plan),
                       penalties, _engines(rows, plan, others), _indices(rows), reading)


def _engines(data: dataset.Data, plan: Plan,
             others: Sequence[Engine]) -> tuple[dict[str, str], ...]:
    """The engines of the selection order, of which one is chosen, and the others."""
    (chosen, *_), reasons = choose(data)
    records = []
    for engine in SELECTION_ORDER:
        availability = engine.capabilities.offered if plan.free else "possible"
        availability = "chosen" if engine == chosen else availability
        reason = reasons.get(engine)
        if isinstance(reason, Refusal):
            availability = f"refuses: {advised(reason, data)}"
        elif method := engine.describe_method(problem_of(engine, data, False)):
            availability += f", {method}"
        if reason and not isinstance(reason, Refusal):
            availability += f"; not by default: {reason}"
        records.append({"engine": type(engine).__name__, "": availability})
    for engine in others:
        reason = refusal(engine, data)
        availability = engine.capabilities.offered if plan.free else "no parameters to estimate"
        records.append({"engine": type(engine).__name__, "": availability if reason is None
                        else f"refuses: {advised(reason, data)}"})
    return tuple(records)


def _indices(data: dataset.Data) -> tuple[dict[str, str], ...]:
    """The inputs that index parameters, with the axes that they index and their labels."""
    out, sites = [], data.structure.sites
    for index in data.structure.indexed.values():
        axes = [f"{name} (axis {axis}, {counted(sites[name].shape[axis], 'entry', 'entries')})"
                for name, axis in index.parameters]
        bounds = ["…" if bound is None else str(bound) for bound in (index.low, index.high)]
        codes = "any" if index.low is None and index.high is None else " … ".join(bounds)
        labels = data.labels.get(index.input, ())
        listing = ", ".join(map(str, labels[:6])) + ", …" * (len(labels) > 6)
        out.append({"input": index.name, "index of": ", ".join(axes) or "a setting", "codes": codes,
                    "labels": listing})
    return tuple(out)


def _sites(data: dataset.Data, plan: Plan | None) -> tuple[dict[str, str], ...]:
    computed = data.structure.deterministics
    return tuple(
        {"site": site.name, "distribution": "" if site.name in computed else site.kind,
         "shape": _shape(site), "parents": ", ".join((*site.parents, *site.inputs)),
         "role": role_of(site, data, plan)[1],
         "evaluated": "when asked" if site.name in computed else _evaluated(plan, site.name)}
        for site in (*data.structure.sites.values(), *computed.values()))


def _shape(site: Site) -> str:
    return "×".join(map(str, (("rows",) if site.rows else ()) + site.along("steps"))) or "scalar"


def _evaluated(plan: Plan | None, name: str) -> str:
    """How the log density of a site is computed."""
    if plan is None:
        return ""
    if name in plan.pooled:
        return "sufficient statistics"
    return "row by row" if name in (*plan.rowwise, *plan.integrated) else ""


def role_of(site: Site, data: dataset.Data | None, plan: Plan | None) -> tuple[str, str]:
    """The role of a site in the inference: a key of pages.scene.ROLES, and in words.

    Args:
        data: None: there are no data. plan: None: it has none.
    """
    if site.kind == DETERMINISTIC:
        return "computed", "deterministic"
    if site.factor:
        return "factor", ("part of the log density" if data is not None and data.model.is_joint
                          else "loss (not a likelihood); it multiplies the density of a row by "
                          "exp(factor)" if site.rows else "penalty, added to the log prior")
    if data is not None and site.name in data.table.values:
        return "seen", "observed"
    if not site.rows:
        return _role_outside_rows(site, data, plan)
    state = None if data is None else data.pattern.get(site.name)
    if plan is not None and site.name in plan.variables:
        descriptions = {"part": "partially observed, summed out where missing",
                        "likelihood": "label probabilities (likelihood evidence), summed out"}
        return ("part" if state else "summed"), descriptions.get(state or "", "latent, summed out")
    if plan is not None and site.name in plan.hidden:
        descriptions, kind = plan.hidden[site.name].kind.description, ", "
        return ("integrated", f"latent, {descriptions}") if state is None else (
            "part", "partially observed, " + descriptions.replace(kind, f" where missing{kind}", 1))
    if state in ROLES_BY_PATTERN:
        return ROLES_BY_PATTERN[state]
    child = None if data is None else next((
        name for name in data.descendants(site.name) if name in data.pattern
        or data.structure.named[name].factor), None)
    return ("part" if state else "unseen"), (
        "latent, no observed site depends on it" if child is None else
        f"latent, to be summed out: '{child}' depends on it" if site.finite else
        f"latent, and '{child}' depends on it")


ROLES_BY_PATTERN = {
    "partially_observed": ("part", "partially observed, missing elements integrated out"),
    "part": ("part", "partially observed, missing values left out"), "seen": ("seen", "observed")}


def _role_outside_rows(site: Site, data: dataset.Data | None,
                       plan: Plan | None) -> tuple[str, str]:
    if plan is not None and site.name in plan.effects:
        return "integrated", ("random effects, integrated out, "
                              + describe_integration(plan.groupings))
    if not site.discrete:
        return "parameter", "parameter" + _describe_hierarchy(data, plan, site.name)
    return "summed", ("latent, no observed site depends on it" if plan is not None
                      and site.name not in plan.variables else "summed out, outside rows")


TIES = {"spread": "its scale is estimated", "product": "a factor that is multiplied by its scale",
        "incidental": "few rows per group"}


def _describe_hierarchy(data: dataset.Data | None, plan: Plan | None, name: str) -> str:
    """Why a parameter is one of a hierarchy, whose joint mode is a poor estimate."""
    if data is None or plan is None:
        return ""
    ties = hierarchy.degenerate_modes(plan, data.table.rows)
    effects = plan.effects if plan.groupings else ()
    for tie in hierarchy.degenerate_modes(data.plan()) if effects else ():
        if tie.name in effects and name in tie.tied_with:
            return f", the scale of {tie.name}"
    for tie in ties:
        if name == tie.name:
            return " of a hierarchy: " + TIES[tie.kind]
        if tie.kind in ("spread", "product") and name in tie.tied_with:
            return f" of a hierarchy: the scale of {tie.name}"
    return ""


def _elimination(plan: Plan) -> tuple[dict[str, str], ...]:
    if not plan.variables:
        return ()
    itemsize = jnp.dtype(jnp.result_type(float)).itemsize
    rows, along = (plan.chunk_rows(),
                   (f"{' and '.join(plan.chains)} along time",) if plan.chains else ())
    order = " → ".join((*plan.step_order, *along, *plan.order, *plan.global_order))
    unit = "step" if along else "row"
    table = (f"{' × '.join(plan.clique) or '-'}: {counted(plan.entries, 'entry', 'entries')}, "
             f"{plan.entries * itemsize} bytes per {unit}")
    # of sequences: by their length
    chunk = {} if along else {
        "rows per batch": f"{rows} ({rows * plan.entries * itemsize:,} bytes)"}
    return ({"order": order, "largest table": table, **chunk},)


def _updates(plan: Plan) -> tuple[dict[str, str], ...]:
    records = []
    for stage in blocks(plan, True) if plan.free else ():
        for block in stage:
            size = sum(math.prod(plan.structure.sites[n].shape) for n in block.names)
            note = block.describe(plan, True) + _describe_coordinate(plan, block)
            records.append({"parameter": ", ".join(block.names), "entries": str(size),
                            "update (EM, MAP-EM)": note})
    return tuple(records)


def _penalties(plan: Plan, given: Mapping) -> tuple[dict[str, str], ...]:
    """The penalties that the priors of coefficients, parameters in the argument of a site inside
    rows or of a loss, add to −log likelihood."""
    sites, records = plan.structure.sites, []
    users: dict[str, list[Site]] = {}
    for site in (sites[name] for name in plan.rowwise if sites[name].inputs):
        for name in {n for argument, uses in site.uses.items() if site.factor
                     or argument in COEFFICIENTS for n in uses}:
            users.setdefault(name, []).append(site)
    for name in (n for n in plan.free if n in users):
        site = sites[name]
        penalty = PENALTIES.get(site.kind)
        if penalty is None or not set(site.parents) <= set(given):
            continue
        prior = plan.structure.distribution(name, {parent: jnp.asarray(given[parent])
                                                   for parent in site.parents})
        scale, locs = (None if penalty[0] is None or argument is None else np.asarray(
            getattr(prior, argument)) for argument in (penalty[0], "loc"))
        centre = f"{name} - {_number(locs)}" if locs is not None and np.any(locs) else name
        s = None if scale is None else _number(scale)
        peers = "" if site.kind != "Normal" else _scikit_learn_parameter(plan, users[name], scale)
        records.append({"parameter": name, "prior": penalty[1].format(s=s),
                        "equals": penalty[2](centre, s) + peers})
    return tuple(records)


COEFFICIENTS = ("loc", "logits", "rate", "probs")


def _number(value: ArrayLike) -> str:
    """A number as text, to four digits; several, if they differ, as their range."""
    low, high = float(np.min(value)), float(np.max(value))
    return f"{low:.4g}" if low == high else f"{low:.4g}…{high:.4g}"


def _scikit_learn_parameter(plan: Plan, users: list[Site], scale: ArrayLike) -> str:
    """scikit-learn's parameter for a ridge: C with a sum of losses, alpha with a sum of squares."""
    if float(np.min(scale)) != float(np.max(scale)):
        return ""
    variance = float(np.max(scale)) ** 2
    if all(site.factor or site.discrete for site in users):
        return f"; C = {variance:.4g}"
    noise = [plan.structure.constant(site.name, "scale") for site in users]
    if (len(noise) == 1 and users[0].kind == "Normal" and noise[0] is not None
        and noise[0].size == 1):
        return f"; alpha = {float(noise[0].reshape(-1)[0]) ** 2 / variance:.4g}"
    return ""


PENALTIES = {  # kind → the argument of its scale, the prior, and what it adds
    "Normal": ("scale", "Normal, sd {s}", lambda name, s: (
        f"Σ {f'({name})' if ' ' in name else name}² / (2 · {s}²): ridge, L2")),
    "Laplace": ("scale", "Laplace, scale {s}", lambda name, s: f"Σ |{name}| / {s}: lasso, L1; not "
                                                               f"differentiable at 0, so use the "
                                                               f"lasso model instead"),
    "ImproperUniform": (None, "flat", lambda name, s: "no penalty"),
}


def _describe_coordinate(plan: Plan, block: Block) -> str:
    """A note where a prior whose concentration is a constant below 1 is maximised in another
    coordinate; "": it is not."""
    site = plan.structure.sites[block.names[0]]
    prior = site.entry.prior
    if prior is None or not prior.concentrations or plan.structure.programs[site.name][1]:
        return ""
    distribution = plan.structure.distribution(site.name, {})
    values = [getattr(distribution, name) for name in prior.concentrations]
    low = min(float(jnp.min(jnp.asarray(v))) for v in jax.device_get(values))
    return f"; concentration below 1: maximised in the {prior.coordinate}" if low < 1 else ""
