"""Parameters about which the rows contain no information, without a prior: EM leaves them wherever
they are."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.findings import Code, Finding
from probml.engines.restarting import vectors
from probml.engines.restarting.squarem import advance, initial_state
from probml.engines.start.prior import compiled_prior_point
from probml.engines.start.start import Start
from probml.plan.plan import Plan

DISTANCE = 0.1  # by which entries are moved: this share of the way to the prior's point, and of
# their own size
EQUAL_ROUNDINGS = 64  # units of rounding
MAX_NAMED = 4  # entries that are named one by one


def find_uninformed_entries(plan: Plan, params: Mapping[str, np.ndarray], first: Start,
                            known: Known, rows: Rows, static: tuple) -> Finding | None:
    """A finding on the entries of parameters about which the rows contain no information, as the
    transitions of a chain of one step; None: there are none.

    All entries are moved a little away from the optimum, inside their supports. An M-step leaves
    those unchanged that no row informs, and the evidence is the same when they are moved back.

    Args:
        params: the optimum of EM. first: its starts, as many as its program is for.
        static: settings of EM, see squarem.advance.

    Cost: two evaluations by the program of EM.
    """
    moved = _moved(plan, params, jax.device_get(compiled_prior_point(plan, known)))
    after, value = _m_step(plan, static, moved, first, known, rows)
    unchanged = {name: _unchanged(plan, name, moved[name], after[name], np.asarray(params[name]))
                 for name in moved}
    unchanged = {name: entries for name, entries in unchanged.items() if entries.any()}
    if not unchanged or not np.isfinite(value):
        return None
    back = {name: np.where(unchanged[name][(..., *[None] * _rank(plan, name))],
                           np.asarray(params[name]), there) if name in unchanged else there
            for name, there in moved.items()}
    _, other = _m_step(plan, static, back, first, known, rows)
    if not abs(other - value) <= EQUAL_ROUNDINGS * np.finfo(value.dtype).eps * (1 + abs(value)):
        return None
    names = [text for name, entries in unchanged.items() for text in _described(name, entries)]
    return Finding.of(Code.NO_INFORMATION, names=", ".join(names))


def _moved(plan: Plan, params: Mapping[str, np.ndarray],
           middle: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Parameters with each entry moved by its own random share of DISTANCE."""
    random, out = np.random.default_rng(7), {}
    for name in plan.free:
        domain, value = plan.structure.sites[name].domain, np.asarray(params[name])
        share = random.uniform(0.5, 1.5, value.shape)
        if _rank(plan, name) > 1:  # one share for a matrix, so that it stays in its support
            one: list[Any] = [slice(1)] * _rank(plan, name)
            share = share[(..., *one)]
        with np.errstate(all="ignore"):
            moved = domain.shaken((1 - DISTANCE) * value + DISTANCE * np.asarray(middle[name]),
                                  -DISTANCE * share)  # a probability stays below 1
            fine = np.isfinite(moved).all() and domain.holds(moved)
        out[name] = moved.astype(value.dtype) if fine else value
    return out


def _m_step(plan: Plan, static: tuple, params: Mapping, first: Start, known: Known,
            rows: Rows) -> tuple[dict[str, np.ndarray], Any]:
    """The parameters after an M-step from a point, and the objective at the point."""
    count = len(next(iter(first.params.values())))
    many = {name: np.broadcast_to(value, (count, *value.shape)) for name, value in params.items()}
    state, *_ = advance(plan, static, initial_state(plan, many, False),
                        first._replace(drawn=None), known, rows, 1, 0.0)
    return vectors.unpack(plan, state.pending[0]), state.value[0]


def _unchanged(plan: Plan, name: str, moved: np.ndarray, after: np.ndarray,
               optimum: np.ndarray) -> np.ndarray:
    """Which values, without event axes, were moved and then left unchanged."""
    same = np.abs(after - moved) <= EQUAL_ROUNDINGS * np.finfo(moved.dtype).eps * np.abs(moved)
    axes = tuple(range(same.ndim - _rank(plan, name), same.ndim))
    return same.all(axes) & (moved != optimum).any(axes)


def _rank(plan: Plan, name: str) -> int:
    """Event axes of a value; of a support without a rank of its own, as of ordered vectors, those
    of the site."""
    site = plan.structure.sites[name]
    return len(site.event) if site.domain.rank is None else site.domain.rank


def _described(name: str, entries: np.ndarray) -> list[str]:
    places = np.argwhere(entries)
    if entries.all() or len(places) > MAX_NAMED:
        return [f"'{name}'" if entries.all() else f"{len(places)} of '{name}'"]
    return [f"'{name}[{', '.join(map(str, place))}]'" for place in places]
