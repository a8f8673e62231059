"""NumPyro's distributions along time, read as Gaussian chains: inside rows they mean the same."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from probml.language.gaussian_chain import GaussianChain


class GaussianWalk(GaussianChain):
    """A Gaussian chain of one number, whose states stand without an axis for it: event shape
    (steps,)."""

    support = dist.constraints.independent(dist.constraints.real, 1)

    def __init__(self, *args: Any, **settings: Any):
        super().__init__(*args, **settings)
        self._event_shape = (self.steps,)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()):
        return self._chain().sample(key, sample_shape)[..., 0]

    def log_prob(self, value: jax.Array):
        return self._chain().log_prob(jnp.asarray(value)[..., None])

    @property
    def mean(self):
        return self._chain().mean[..., 0]

    @property
    def variance(self):
        return self._chain().variance[..., 0]

    def _chain(self) -> GaussianChain:
        return GaussianChain(self.initial_mean, self.initial_covariance, self.transition,
                             self.covariance, self.steps, self.offset)


def as_chain(base: dist.Distribution) -> dist.Distribution | None:
    """What a distribution of NumPyro's is as a Gaussian chain; None: it is none.

    z_1 of a walk is N(0, scale²), of a state space N(A z_0, covariance).
    """
    if isinstance(base, dist.GaussianRandomWalk):
        variance = jnp.asarray(base.scale, jnp.result_type(float))[..., None, None] ** 2
        along = variance[..., None, :, :] if variance.ndim > 2 else variance
        one = jnp.eye(1)
        return GaussianWalk(jnp.zeros(1), variance, one, along, base.num_steps)
    if isinstance(base, dist.GaussianStateSpace):
        tril, transition = base.scale_tril, jnp.asarray(base.transition_matrix)
        covariance = tril @ jnp.swapaxes(tril, -1, -2)
        start = getattr(base, "_initial_value", None)
        mean = (jnp.zeros(transition.shape[-1]) if start is None
                else jnp.asarray(start) @ transition.T)
        along = covariance[..., None, :, :] if covariance.ndim > 2 else covariance
        return GaussianChain(mean, covariance, transition, along, base.num_steps)
    return None
