"""Loops whose links are linear and Gaussian, integrated out.

With s_t all sites of step t,

    s_t = Σ_l A_tl s_{t−l} + b_t + ε_t,   y_t = Σ_l C_tl s_{t−l} + d_t + ν_t

where A, b, C, d and the standard deviations of ε and ν may depend on parameters (linear.py reads
them). What a step hands on are as many steps as others depend on, itself first (state_space.py).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro

from probml.interface.functions.messages import run_in_part
from probml.interface.functions.steps.linear import Linear, affine, linear_of
from probml.interface.functions.steps.names import Joined
from probml.interface.functions.steps.state_space import Affine, Carried, Chain, Step, chain_of


def loops_integrated(call: Callable[[], Any], steps: Joined,
                     given: Mapping[str, Any]) -> tuple[Any, list[Chain]]:
    """Run a function, its loops integrated out: those outside hear of the parameters beside them
    and of one factor, what is observed. What the function returns, and the loops as one chain.

    Args:
        given: values of sites that are data, name → value.

    Raises:
        ModelError: they are not linear and Gaussian.
    """
    linear = linear_of(call, steps, given)
    out, values = run_in_part(call, linear.gone, linear.others, linear.still, given)
    step, outside = _steps(linear, steps, values), linear.outside
    beside: Any = 0.0
    if outside is not None:
        rows, = outside.rows(values)
        columns = np.concatenate([_columns(linear)[list(linear.sizes)[i]] for i in rows.looked])
        count, d = step.loc[0].shape
        blank = jnp.zeros((count, len(columns)))
        said = (blank, jnp.zeros((*blank.shape, d * linear.back)),
                jnp.broadcast_to(jnp.eye(d)[columns], (*blank.shape, d)))
        step = step._replace(said=said).with_rows(rows, np.arange(count))
        beside = outside.unaffected_log_density(values)
    first = next(iter((*linear.times, *(outside.near if outside else ()))))
    chain = chain_of(step, _carried(step, linear.back), len(steps.groups) > 1, linear.sizes, first)
    numpyro.factor(first, chain.evidence + beside)
    return out, [chain]


def _columns(linear: Linear) -> dict[str, np.ndarray]:
    """Name of all steps → which of the numbers of a step are its own."""
    ends = np.cumsum([0, *(size for size, _ in linear.sizes.values())])
    return {title: ends[i] + np.arange(size)
            for i, (title, (size, _)) in enumerate(linear.sizes.items())}


def _carried(step: Step, back: int) -> Carried:
    """As many steps as are handed on, the newest first; before the first one, where nothing depends
    on them, at its location."""
    d, (base, _, mix) = step.loc[0].shape[1], step.loc
    numbers, first = np.arange(d * back), np.arange(d * back) < d
    start = jnp.linalg.solve(jnp.eye(d) - mix[0], base[0])
    return Carried(jnp.tile(start, back), np.where(first, numbers, -1),
                   np.where(first, -1, numbers - d), numbers < d * (back - 1))


def _steps(linear: Linear, steps: Joined, values: Mapping[str, Any]) -> Step:
    """The numbers of all steps."""
    places, columns, back = steps.places, _columns(linear), linear.back
    count, d = len(next(iter(steps.groups.values()))), sum(size for size, _ in
                                                           linear.sizes.values())
    root = jnp.zeros((count, d, d))

    def flat(names: Sequence[str], kind: str) -> list[tuple[list[str], Any]]:
        outputs = [linear.at(name, kind) for name in names]
        own = dict(zip(outputs, names, strict=True))
        return [([own[i] for i in part.outputs], part)
                for part in affine(linear, steps, outputs, values)]

    def located(width: int, seats: Mapping[str, tuple[int, np.ndarray]]) -> Affine:
        """The locations of sites in all steps: at 0, and slopes in the steps before and in the
        step's own sites.

        Args:
            seats: site → its step, and its numbers among `width`.
        """
        offset, slope = jnp.zeros((count, width)), jnp.zeros((count, width, back + 1, d))
        for size in dict.fromkeys(len(rows) for _, rows in seats.values()):
            for members, part in flat([n for n, (_, rows) in seats.items() if len(rows) == size],
                                      "loc"):
                at = np.array([seats[name][0] for name in members])
                rows = np.array([seats[name][1] for name in members])
                offset = offset.at[at[:, None], rows].set(part.offset)
                for looked, own in part.slopes:
                    for other in dict.fromkeys(places[name][0] for name in looked):
                        mine = np.array([places[name][0] == other for name in looked])
                        lag = at[mine] - np.array([places[name][1] for name in looked])[mine]
                        slope = slope.at[
                            at[mine][:, None, None], rows[mine][..., None], lag[:, None, None],
                            columns[other]].add(own[mine])
        return offset, slope[:, :, 1:].reshape(count, width, back * d), slope[:, :, 0]

    for title, names in steps.groups.items():
        for members, part in flat(names, "root"):
            at = np.array([places[name][1] for name in members])
            rows = columns[title]
            root = root.at[at[:, None, None], rows[:, None], rows].set(part.offset)
    used, seen = [0] * count, {}
    for name, at in linear.times.items():
        size = linear.closed.out_avals[linear.at(name, "loc")].size
        seen[name] = at, used[at] + np.arange(size)
        used[at] += size
    width = max(used)
    about = dict.fromkeys(("value", "mask"), jnp.zeros((count, width)))
    about["scale"] = jnp.ones((count, width))
    for kind in about:
        for size in dict.fromkeys(len(rows) for _, rows in seen.values()):
            for members, part in flat([n for n, (_, rows) in seen.items() if len(rows) == size],
                                      kind):
                at, rows = (np.array([seen[name][side] for name in members]) for side in (0, 1))
                about[kind] = about[kind].at[at[:, None], rows].set(part.offset)
    logs = [i for i, (_, kind) in enumerate(linear.owners) if kind in ("log", "beside")]
    rest = sum((part.offset.sum() for part in affine(linear, steps, logs, values)), jnp.zeros(()))
    shift = np.eye(d * back, k=-d)  # what was a step before lies one further behind
    after = (jnp.zeros((count, d * back)), jnp.broadcast_to(shift, (count, *shift.shape)),
             jnp.broadcast_to(jnp.eye(d * back, d), (count, d * back, d)))
    loc = located(d, {name: (i, columns[title]) for name, (title, i) in places.items()})
    none = (jnp.zeros((count, 0)), jnp.zeros((count, 0, d * back)), jnp.zeros((count, 0, d)))
    return Step(loc, after, located(width, seen), none, root, about["scale"], about["value"],
                about["mask"], rest)
