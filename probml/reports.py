"""What a posterior looks like from outside: summary tables, intervals of predictions, arviz."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from probml import asking, chunks, diagnostics, queries
from probml.belief import Draws
from probml.language import ModelError, Refusal

if TYPE_CHECKING:
    from probml.fit import Fit

REPLICATES = 2000  # simulated values a row behind an interval
TOGETHER = 200_000  # rows simulated in one call
KEPT = 1000  # draws of a posterior that is no set of draws, where a set is wanted


class Interval(NamedTuple):
    """A prediction with bounds, each (n, *cells)."""

    value: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def summary(fit: "Fit"):
    """See Fit.summary."""
    import pandas as pd

    records = []
    for name, value in fit.params.items():
        value = np.asarray(value)
        columns = _columns(fit, name, value)
        for index in np.ndindex(value.shape):
            label = f"{name}[{', '.join(map(str, index))}]" if index else name
            records.append({"parameter": label} | {c: np.broadcast_to(v, value.shape)[index] for c, v in columns.items()})
    return pd.DataFrame(records, columns=list(records[0]) if records else ["parameter", "value"]).set_index("parameter")


def _columns(fit: "Fit", name: str, value: np.ndarray) -> dict[str, Any]:
    if fit.closed is not None:
        return {"mean": value, "sd": np.sqrt(np.asarray(fit.posterior(name).variance))}
    if fit.drawn is None:
        return {"value": value}
    if isinstance(fit.drawn, Draws):
        draws = np.asarray(fit.drawn.values[name], float)
    else:
        draws = np.asarray(fit.draws(KEPT)[name], float)[None]
    low, high = np.quantile(draws, (0.05, 0.95), (0, 1))
    out = {"mean": draws.mean((0, 1)), "sd": draws.std((0, 1)), "5%": low, "95%": high}
    if fit.drawn.__class__ is Draws and fit.drawn.stats:
        bulk, tail = diagnostics.effective(draws), diagnostics.effective(draws, tail=True)
        out |= {"ess_bulk": bulk, "ess_tail": tail, "r_hat": diagnostics.r_hat(draws)}
    return out


def interval(fit: "Fit", held: chunks.Data, site: str, probability: float, plug_in: bool, given: str) -> Interval:
    """See Fit.predict(interval=): simulated values of the unseen cells of a site, each with its own draw of the parameters."""
    if not (isinstance(probability, float) and 0 < probability < 1):
        raise ModelError(f"predict(interval={probability!r}): expected a probability between 0 and 1, such as 0.9")
    found = fit._site(site)
    if not found.rows:
        raise ModelError(f"predict(interval=...): site '{site}' lies outside rows(): take quantiles of fit.draws(n)['{site}']")
    if found.states is not None:
        raise ModelError(f"predict(interval=...): site '{site}' has states, not an order: ask predict_proba(data, '{site}')")
    if given != queries.ALL:
        raise ModelError(f"predict(interval=..., given={given!r}): an interval is given all that is seen of the row, given='all'")
    value = asking.answer(fit, held, [("mean", site)], plug_in)[1]["mean", site]
    new = {name: column for name, column in held.table.columns.items() if name != site}  # a new value of it, also where one was seen
    held = held._replace(table=replace(held.table, columns=new))
    n, tails = held.table.rows, (0.5 - probability / 2, 0.5 + probability / 2)
    lower, upper = np.empty(value.shape), np.empty(value.shape)
    size = max(TOGETHER // REPLICATES, 1)
    for begin in range(0, n, size):
        rows = np.arange(begin, min(begin + size, n))
        many = held.taken(np.repeat(rows, REPLICATES))
        drawn = fit._simulated(many, jax.random.key(begin), begin, plug_in)[site]
        lower[rows], upper[rows] = np.quantile(drawn.reshape(len(rows), REPLICATES, *value.shape[1:]).astype(float), tails, 1)
    return Interval(value, lower, upper)


def posterior_draws(fit: "Fit") -> dict[str, np.ndarray]:
    """Draws of the parameters, (chains, draws, ...); of a closed form or a normal, one chain of KEPT.

    Raises:
        Refusal: the engine found a point.
    """
    if isinstance(fit.drawn, Draws):
        return {name: np.asarray(value) for name, value in fit.drawn.values.items()}
    return {name: value[None] for name, value in fit.draws(KEPT).items()}


def log_likelihood(fit: "Fit", held: chunks.Data, draws: dict[str, np.ndarray]) -> np.ndarray:
    """log p(row | parameters) of every draw and row, hidden discrete sites summed out: (chains, draws, n).

    Raises:
        Refusal: rows share a discrete site outside them, so that a row has no likelihood of its own given the parameters.
    """
    held = held.trimmed()
    plan = held.plan()
    if plan.globals:
        raise Refusal(f"the rows share the discrete site '{plan.globals[0]}', so that they have no log-likelihoods of their own")
    rows, known = chunks.load(held, plan, keep=(order := chunks.order(held, plan)), params=fit.params)
    values = {name: np.asarray(draws[name]) for name in plan.free}
    flat = {name: jax.numpy.asarray(v.reshape(-1, *v.shape[2:])) for name, v in values.items()}
    logs = np.asarray(queries.row_logs(plan, flat, known, rows))  # (draws, chunks, b)
    lead = next(iter(values.values())).shape[:2] if values else (1, 1)
    out = np.stack([chunks.unload(log, held.table.rows, order) for log in logs])
    return out.reshape(*lead, held.table.rows)


def to_arviz(fit: "Fit", data: Any = None):
    """See Fit.to_arviz."""
    raise NotImplementedError
