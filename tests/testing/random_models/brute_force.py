"""Exact answers by brute force: the model runs under NumPyro's handlers at every joint state of the
latent discrete sites; latent continuous ones are integrated out, in closed form where normal, else
over a grid.

Of probml only the generative function of the model is used: no plan, no elimination, no family.
The cost is exponential in the number of latent sites.
"""

from collections.abc import Collection, Hashable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from enumeration.density_check import integrate_rows
from enumeration.joint_states import (
    MAX_JOINT_STATES,
    Joint,
    states_of,
    user_layout,
)

from probml.language.language import Bound
from probml.typing import SiteValues


class Truth(NamedTuple):
    """Exact quantities of rows at known parameters.

    Attributes:
        log: log p(row's observed cells, joint state), (n, joint states), continuous sites
            integrated out.
        states: site → its cells in each joint state, (joint states, *cells).
        means: continuous site → means given the row and the joint state,
            (n, joint states, *cells); observed cells as they are.
        prior: log p(parameters), without discrete ones.
        finite: log p(discrete parameters).
        together: log p(all rows, parameters), if discrete parameters have been summed out.
    """

    log: np.ndarray
    states: dict[str, np.ndarray]
    means: dict[str, np.ndarray]
    prior: float
    finite: float = 0.0
    together: float | None = None

    @property
    def evidence(self) -> np.ndarray:
        """log p(row), (n,)."""
        return log_sum(self.log)

    @property
    def total(self) -> float:
        """log p(all rows, parameters)."""
        if self.together is not None:
            return self.together
        return self.evidence.sum() + self.prior + self.finite

    @property
    def likelihood(self) -> float:
        """The total without the prior, also at a point where that is 0."""
        return (self.evidence.sum() + self.finite if self.together is None
                else self.together - self.prior)

    @property
    def weights(self) -> np.ndarray:
        """p(joint state | row)."""
        return np.exp(self.log - self.evidence[:, None])

    def marginal(self, name: str, states: int) -> np.ndarray:
        """p(site = state | row), (n, *cells, states)."""
        hot = self.states[name][..., None] == np.arange(states)
        return np.tensordot(self.weights, hot.astype(float), (1, 0))

    def pair(self, one: str, other: str, states: tuple[int, int]) -> np.ndarray:
        """p(two scalar sites = states | row), (n, *states)."""
        hots = [self.states[name][:, None] == np.arange(k)
                for name, k in zip((one, other), states, strict=True)]
        return np.einsum("na,ai,aj->nij", self.weights, *hots)

    def mean(self, name: str) -> np.ndarray:
        """The mean of a continuous site given the row, (n, *cells)."""
        means = self.means[name]
        weights = self.weights.reshape(self.log.shape + (1,) * (means.ndim - 2))
        return (weights * means).sum(1)


def log_sum(log: np.ndarray) -> np.ndarray:
    """log Σ exp over the last axis."""
    top = log.max(-1)
    safe = np.where(np.isfinite(top), top, 0.0)[..., None]
    with np.errstate(divide="ignore"):
        return np.log(np.exp(log - safe).sum(-1)) + safe[..., 0]


def mixed(parts: Mapping[Hashable, Truth]) -> Truth:
    """Exact quantities with discrete parameters summed out: for a row by itself a mixture over
    their values; for all rows together a sum over values that all rows share.

    Args:
        parts: joint value of the discrete parameters → the quantities given it.
    """
    some = list(parts.values())
    own = np.concatenate([np.full(part.log.shape[1], part.finite) for part in some])
    together = log_sum(np.array([part.total for part in some]))
    return Truth(np.concatenate([part.log for part in some], 1) + own,
                 {name: np.concatenate([part.states[name] for part in some])
                  for name in some[0].states},
                 {name: np.concatenate([part.means[name] for part in some], 1)
                  for name in some[0].means}, some[0].prior, 0.0, float(together))


def truth(model: Bound, params: SiteValues, data: SiteValues,
          inputs: SiteValues, fill: Mapping[str, np.ndarray],
          read: Collection[str], soft: Mapping[str, np.ndarray] = MappingProxyType({}),
          without: Collection[str] = (), most: int = MAX_JOINT_STATES) -> Truth:
    """Exact quantities of rows at known parameters; arguments as of Joint.

    Raises:
        Unknown: there is no brute-force answer.
    """
    joint = Joint(model, params, data, inputs, fill, read, soft, without, most)
    n, a, sites, moved, masks = joint.n, joint.a, joint.sites, joint.moved, joint.masks
    parts = {name: float(log) for name, log in jax.jit(joint.outside)(dict(params)).items()}
    of_states = sum(log for name, log in parts.items() if name in joint.finite)

    def log_density(numbers: jax.Array):
        return joint.rows(params, numbers)

    log, at, share = integrate_rows(log_density, n * a, joint.size, joint.bent)

    def means_at(u: jax.Array):
        full, found = joint.at(params, u)
        return {name: full[name] if name in moved
                else joint.values[name] if masks[name].all()
                else jnp.where(masks[name], joint.values[name], _mean(found[name],
                                                                      masks[name].shape))
                for name in sites if not states_of(sites[name]["fn"])}

    means = {}
    for name, own in jax.jit(jax.vmap(means_at))(at).items():
        weight = share.reshape(*share.shape, *(1,) * (own.ndim - 2))
        with np.errstate(invalid="ignore"):  # distant nodes of weight 0
            mean = np.where(weight > 0, weight * np.asarray(own), 0.0).sum(0)
        means[name] = mean.reshape(n, a, *mean.shape[1:])
    return Truth((log + joint.possible).reshape(n, a), joint.states, means,
                 sum(parts.values()) - of_states, of_states)


def _mean(message: Mapping, shape: tuple[int, ...]) -> jax.Array:
    fn = message["fn"]
    mean = jnp.broadcast_to(fn.mean, fn.batch_shape + fn.event_shape)
    return jnp.broadcast_to(user_layout(message, mean), shape)
