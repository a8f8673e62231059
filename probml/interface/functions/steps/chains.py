"""Loops whose links are linear and Gaussian, integrated out.

With s_t all sites of step t,

    s_t = Σ_l A_tl s_{t−l} + b_t + ε_t,   y_t = Σ_l C_tl s_{t−l} + d_t + ν_t

where A, b, C, d and the standard deviations of ε and ν may depend on parameters (linear.py reads
them). What a step hands on are as many steps as others depend on, itself first (state_space.py).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

from probml.errors import present
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
    step, outside = _steps(_Loop(linear, steps, values)), linear.outside
    beside: Any = 0.0
    if outside is not None:
        rows = present(next(iter(outside.rows(values))))
        at = np.concatenate([list(_columns(linear).values())[i] for i in rows.looked])
        step = step._replace(said=jax.tree.map(lambda own: own[:, at], step.said))
        step = step.with_rows(rows, np.arange(len(step.root)))
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


Seats = Mapping[str, tuple[int, np.ndarray]]  # site → its step, and its numbers in this


class _Loop(NamedTuple):
    """A loop at values of the other sites."""

    linear: Linear
    steps: Joined
    values: Mapping[str, Any]

    @property
    def count(self) -> int:  # type: ignore[override] # not the tuple's method
        return len(next(iter(self.steps.groups.values())))

    def parts(self, seats: Seats, kind: str) -> Iterator[tuple]:
        """The records of a kind of some sites, in parts: of those of one part the names, their
        steps, and their numbers."""
        own = {self.linear.at(name, kind): name for name in seats}
        for part in affine(self.linear, self.steps, list(own), self.values):
            names = [own[i] for i in part.outputs]
            yield part, *(np.array([seats[name][side] for name in names]) for side in (0, 1))

    def filled(self, seats: Seats, kind: str, width: int, blank: float = 0.0) -> jax.Array:
        """The numbers of a kind of all steps, (steps, width)."""
        out = jnp.full((self.count, width), blank)
        for part, at, rows in self.parts(seats, kind):
            out = out.at[at[:, None], rows].set(part.offset)
        return out

    def located(self, seats: Seats, width: int, columns: Mapping[str, np.ndarray]) -> Affine:
        """The locations of some sites, in the steps before and in the step's own sites."""
        places, d = self.steps.places, sum(map(len, columns.values()))
        slope = jnp.zeros((self.count, width, self.linear.back + 1, d))
        for part, at, rows in self.parts(seats, "loc"):
            for looked, own in part.slopes:
                titles, when = map(np.array, zip(*(places[name] for name in looked), strict=True))
                for title in dict.fromkeys(titles.tolist()):
                    mine = titles == title
                    lag = (at - when)[mine]
                    slope = slope.at[at[mine][:, None, None], rows[mine][..., None],
                                     lag[:, None, None], columns[title]].add(own[mine])
        return (self.filled(seats, "loc", width),
                slope[:, :, 1:].reshape(self.count, width, self.linear.back * d), slope[:, :, 0])


def _steps(loop: _Loop) -> Step:
    """The numbers of all steps."""
    linear, count = loop.linear, loop.count
    columns = _columns(linear)
    d = sum(map(len, columns.values()))
    handed = d * linear.back
    sites = {name: (i, columns[title]) for name, (title, i) in loop.steps.places.items()}
    root = jnp.zeros((count, d, d))
    for part, at, rows in loop.parts(sites, "root"):
        root = root.at[at[:, None, None], rows[..., None], rows[:, None]].set(part.offset)
    used, seen = [0] * count, {}
    for name, i in linear.times.items():
        size = linear.closed.out_avals[linear.at(name, "loc")].size
        seen[name] = i, used[i] + np.arange(size)
        used[i] += size
    width = max(used)
    logs = [i for i, (_, kind) in enumerate(linear.owners) if kind in ("log", "beside")]
    rest = sum((part.offset.sum() for part in affine(linear, loop.steps, logs, loop.values)),
               jnp.zeros(()))
    shift = np.eye(handed, k=-d)  # what was a step before lies one further behind
    after = (jnp.zeros((count, handed)), jnp.broadcast_to(shift, (count, *shift.shape)),
             jnp.broadcast_to(jnp.eye(handed, d), (count, handed, d)))
    said = (jnp.zeros((count, d)), jnp.zeros((count, d, handed)),
            jnp.broadcast_to(jnp.eye(d), (count, d, d)))
    return Step(loop.located(sites, d, columns), after, loop.located(seen, width, columns), said,
                root, loop.filled(seen, "scale", width, 1.0), loop.filled(seen, "value", width),
                loop.filled(seen, "mask", width), rest)
