"""What rows tell nothing of, where no prior does: numbers that EM leaves wherever they are put."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.findings import Code, Finding
from probml.engines.restarting import vectors
from probml.engines.restarting.squarem import advance, initial
from probml.engines.start.prior import compiled_prior_point
from probml.engines.start.start import Start
from probml.plan.plan import Plan

AWAY = 0.1  # how far numbers are put from where EM ended: so much towards their middle, and a share
SAME = 64  # roundings that are no difference
SHOWN = 4  # cells that are named one by one


def indifferent(plan: Plan, params: Mapping[str, np.ndarray], first: Start, known: Known,
                rows: Rows, static: tuple) -> Finding | None:
    """Which entries of parameters the rows contain no information about, as the transitions of a
    chain of one step; None: there are none.

    All numbers are put a little away from the end, inside their supports. An M-step leaves those
    alone of which no row tells anything, and the evidence is the same with them back at the end.

    Args:
        params: where EM ended. first: as it began, of as many restarts as its program is for.
        static: settings of EM, see squarem.advance.

    Cost: two evaluations by the program of the ascent.
    """
    put = _away(plan, params, jax.device_get(compiled_prior_point(plan, known)))
    after, value = _m_step(plan, static, put, first, known, rows)
    left = {name: _left(plan, name, put[name], after[name], np.asarray(params[name]))
            for name in put}
    left = {name: cells for name, cells in left.items() if cells.any()}
    if not left or not np.isfinite(value):
        return None
    back = {name: np.where(_expand_to_rank(plan, name, left[name]), np.asarray(params[name]), there)
            if name in left else there for name, there in put.items()}
    _, other = _m_step(plan, static, back, first, known, rows)
    if not abs(other - value) <= SAME * np.finfo(value.dtype).eps * (1 + abs(value)):
        return None
    named = [text for name, cells in left.items() for text in _named(name, cells)]
    return Finding.of(Code.NO_INFORMATION, names=", ".join(named))


def _away(plan: Plan, params: Mapping[str, np.ndarray],
          middle: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    random, out = np.random.default_rng(7), {}
    for name in plan.free:
        domain, value = plan.structure.sites[name].domain, np.asarray(params[name])
        share = random.uniform(0.5, 1.5, value.shape)
        if _rank(plan, name) > 1:  # of a matrix one share, which leaves it what it is
            one: list[Any] = [slice(1)] * _rank(plan, name)
            share = share[(..., *one)]
        with np.errstate(all="ignore"):
            moved = domain.shaken((1 - AWAY) * value + AWAY * np.asarray(middle[name]),
                                  -AWAY * share)  # a probability stays below 1
            fine = np.isfinite(moved).all() and domain.holds(moved)
        out[name] = moved.astype(value.dtype) if fine else value
    return out


def _m_step(plan: Plan, static: tuple, params: Mapping, first: Start, known: Known,
            rows: Rows) -> tuple[dict[str, np.ndarray], Any]:
    """The M-step from a point, and the objective there."""
    count = len(next(iter(first.params.values())))
    many = {name: np.broadcast_to(value, (count, *value.shape)) for name, value in params.items()}
    state, *_ = advance(plan, static, initial(plan, many, False),
                        first._replace(drawn=None), known, rows, 1, 0.0)
    return vectors.loose(plan, state.pending[0], vectors.cut), state.value[0]


def _left(plan: Plan, name: str, put: np.ndarray, after: np.ndarray,
          end: np.ndarray) -> np.ndarray:
    """Which values, each as its support has it, were put elsewhere and stayed there."""
    same = np.abs(after - put) <= SAME * np.finfo(put.dtype).eps * np.abs(put)
    axes = tuple(range(same.ndim - _rank(plan, name), same.ndim))
    return same.all(axes) & (put != end).any(axes)


def _rank(plan: Plan, name: str) -> int:
    """Event axes of one value: of a support of its own kind, as of ordered numbers, those of the
    site."""
    site = plan.structure.sites[name]
    return len(site.event) if site.domain.rank is None else site.domain.rank


def _expand_to_rank(plan: Plan, name: str, cells: np.ndarray) -> np.ndarray:
    return cells[(..., *[None] * _rank(plan, name))]


def _named(name: str, cells: np.ndarray) -> list[str]:
    places = np.argwhere(cells)
    if cells.all() or len(places) > SHOWN:
        return [f"'{name}'" if cells.all() else f"{len(places)} of '{name}'"]
    return [f"'{name}[{', '.join(map(str, place))}]'" for place in places]
