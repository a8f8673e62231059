"""Linear Gaussian steps, of a Python loop or of numpyro's scan, as the state space that Kalman's
filter takes.

Let m be the numbers that a step hands on and that depend on its sites, and z its sites, flat:

    z_t = L m_{t−1} + Z z_t + l + S ε_t,   m_t = M m_{t−1} + K z_t + k,
    y_t = C m_{t−1} + D z_t + d + ν_t

where L, Z (strictly triangular), l, S, … may depend on parameters and inputs. The state is z_t,
what of m_t is no copy of it, and what of m_{t−1} y_t depends on and m_t does not have.
Cost: as elimination/kalman/filter.py has it.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset.grid import places_in_groups
from probml.elimination.kalman import evidence as kalman_evidence
from probml.elimination.kalman import filter as kalman
from probml.errors import ModelError
from probml.interface.functions.steps.scan_outputs import Rows

MOST_STATE_ELEMENTS = 16  # numbers of a state: Kalman's filter costs their cube
Affine = tuple[jax.Array, jax.Array, jax.Array]  # values at 0, slopes in m, slopes in z


class Step(NamedTuple):
    """Every step's numbers, time first.

    Attributes:
        loc, carry, observed, output: of sites, of what is handed on, of what is observed and
            normal, of what observations outside depend on.
        root: of the covariance of sites; noise, value, mask: of what is observed.
        log_rest: log density of all else.
    """

    loc: Affine
    carry: Affine
    observed: Affine
    output: Affine
    root: jax.Array
    noise: jax.Array
    value: jax.Array
    mask: jax.Array
    log_rest: jax.Array

    def with_rows(self, rows: Rows, at: np.ndarray) -> "Step":
        """What is observed outside together with what is observed inside, at the step on which it
        depends.

        Args:
            at: the steps' numbers, as `rows` has them, in the order in which they are taken.
        """
        count, step_of = len(at), np.argsort(at)[rows.at]
        slot = places_in_groups(step_of)
        width = int(slot.max()) + 1

        def with_placed(base: jax.Array, leaf: jax.Array, blank: float) -> jax.Array:
            placed = jnp.full((count, width, *leaf.shape[1:]), blank).at[step_of, slot].set(leaf)
            return jnp.concatenate([base, placed], 1)

        value, m, z = (leaf[step_of] for leaf in self.output)
        seen = (rows.loc + (rows.slopes * value).sum(-1), (rows.slopes[..., None] * m).sum(1),
                (rows.slopes[..., None] * z).sum(1))
        loc, slope, site_slope = (with_placed(base, leaf, 0.0)
                                  for base, leaf in zip(self.observed, seen, strict=True))
        return self._replace(observed=(loc, slope, site_slope),
                             noise=with_placed(self.noise, rows.scale, 1.0),
                             value=with_placed(self.value, rows.value, 0.0),
                             mask=with_placed(self.mask, rows.mask, 0.0))


class Carried(NamedTuple):
    """The numbers that a step hands on.

    Attributes:
        start: before the first step.
        copies: which number of the step's sites each is; previous: which number that the step
            before has handed on; −1: none.
        is_used: whether something observed depends on it a step later.
    """

    start: jax.Array
    copies: np.ndarray
    previous: np.ndarray
    is_used: np.ndarray


class Chain(NamedTuple):
    """Steps that are integrated out.

    Attributes:
        system: what Kalman's filter takes; centre: the state that is its 0.
        log_rest: log density of what is observed and depends on no site.
        sizes: site → numbers of a step, and its shape, in the order of a state.
        observed_site: a name of what is observed inside; None: nothing is.
        reverse: the last step is the first.
    """

    system: kalman.System
    centre: jax.Array
    log_rest: jax.Array
    sizes: Mapping[str, tuple[int, tuple[int, ...]]]
    observed_site: str | None
    reverse: bool

    @property
    def evidence(self) -> jax.Array:
        """log p of what is observed, steps integrated out."""
        return kalman_evidence.evidence(self.system)[0] + self.log_rest

    def moments(self) -> dict[str, tuple[jax.Array, jax.Array]]:
        """Means and standard deviations of all steps given what is observed, (steps, *shape)."""
        smoothed = kalman_evidence.smoothed(self.system)
        variance = jnp.diagonal(smoothed.covariance[..., 0], axis1=1, axis2=2)
        deviation = self._split(jnp.sqrt(jnp.maximum(variance, 0.0)))
        mean = self._split((smoothed.mean + self.centre)[..., 0])
        return {name: (mean[name], deviation[name]) for name in self.sizes}

    def path(self, key: jax.Array) -> dict[str, jax.Array]:
        """A draw of all steps given what is observed, (steps, *shape)."""
        return self._split((kalman_evidence.draw(self.system, key) + self.centre)[..., 0])

    def _split(self, flat: jax.Array) -> dict[str, jax.Array]:
        flat, values, start = (flat[::-1] if self.reverse else flat), {}, 0
        for name, (size, shape) in self.sizes.items():
            values[name] = flat[:, start : start + size].reshape(len(flat), *shape)
            start += size
        return values


def chain_of(step: Step, carried: Carried, mixing: bool,
             sizes: Mapping[str, tuple[int, tuple[int, ...]]], seen: str | None,
             reverse: bool = False) -> Chain:
    """Steps as a chain about the state in which it is expected to begin, so that a level far from 0
    keeps its digits.

    Args:
        mixing: whether sites of a step depend on each other.

    Raises:
        ModelError: a state has many numbers.
    """
    system = _system(step, carried, mixing)
    return Chain(kalman.centred(system, system.mean), system.mean, step.log_rest.sum(), sizes, seen,
                 reverse)


def _system(step: Step, carried: Carried, mixing: bool) -> kalman.System:
    (base, low, mix), (k0, m, kz), root = step.loc, step.carry, step.root
    (count, sites), handed = base.shape, len(carried.copies)
    kept = np.flatnonzero(carried.copies < 0)
    column = carried.copies.copy()
    column[kept] = sites + np.arange(len(kept))
    column_of = {carried.previous[q]: column[q] for q in kept if carried.previous[q] >= 0}
    lagged = [p for p in np.flatnonzero(carried.is_used) if p not in column_of]
    column_of |= {p: sites + len(kept) + i for i, p in enumerate(lagged)}
    width = sites + len(kept) + len(lagged)
    if width > MOST_STATE_ELEMENTS:
        raise ModelError(f"the scan passes {width} numbers from step to step, more than the limit "
                         f"of {MOST_STATE_ELEMENTS}. Pass fewer numbers")
    pick, observe = np.zeros((handed, width)), np.zeros((handed, width))
    pick[np.arange(handed), column] = 1.0
    for p in np.flatnonzero(carried.is_used):
        observe[p, column_of[p]] = 1.0
    if mixing:
        inverse = jnp.linalg.inv(jnp.eye(sites) - mix)
        base, low = (inverse @ base[..., None])[..., 0], inverse @ low
        root = inverse @ root
    shift = jnp.broadcast_to(jnp.eye(handed)[np.array(lagged, int)], (count, len(lagged), handed))
    carry_map, carry_offset = m + kz @ low, k0 + (kz @ base[..., None])[..., 0]
    lead = jnp.concatenate([low, carry_map[:, kept], shift], 1)
    offset = jnp.concatenate([base, carry_offset[:, kept], jnp.zeros((count, len(lagged)))], 1)
    root = jnp.concatenate([root, (kz @ root)[:, kept], jnp.zeros((count, len(lagged), sites))], 1)
    noise = root @ jnp.swapaxes(root, 1, 2)
    d, c, slope = step.observed
    slope = jnp.pad(slope, ((0, 0), (0, 0), (0, width - sites))) + c @ observe
    mask = step.mask.astype(bool)
    lane = lambda leaf: leaf[..., None]  # noqa: E731
    return kalman.System(
        lane(lead[0] @ carried.start + offset[0]), lane(noise[0]), lane(lead @ pick), lane(offset),
        lane(noise), lane(jnp.where(mask, step.value - d, 0.0)), lane(slope),
        lane(step.noise**2), lane(mask), None)
