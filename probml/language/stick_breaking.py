"""Stick-breaking weights: a prior of probabilities that fall off, the Dirichlet process cut
short."""

from numbers import Integral, Real

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import xlog1py, xlogy
from numpyro.distributions.util import promote_shapes

from probml.errors import ModelError, counted
from probml.language.given import check_flag

MAX_STATES = 1_000_000  # states at which a process is cut


class StickBreaking(dist.Distribution):
    """Weights of k states, w_i = v_i Π_{j<i} (1 − v_j), i = 1 … k − 1, with independent
    v_i ~ Beta(concentration1_i, concentration0_i), and w_k the rest of the stick.

    The generalised Dirichlet distribution (Connor & Mosimann 1969); conjugate to Categorical. With
    v_i ~ Beta(1, α) it is the Dirichlet process of concentration α cut at k (Ishwaran & James
    2001), see `dirichlet_process`.

    Args:
        concentration1, concentration0: above 0, (..., k − 1) each, or numbers together with an
            array.

    Raises:
        ModelError: shapes that do not fit; known values that are not above 0, or not finite.

    Cost: O(k) a draw or a log density.
    """

    arg_constraints = {
        "concentration1": dist.constraints.independent(dist.constraints.positive, 1),
        "concentration0": dist.constraints.independent(dist.constraints.positive, 1),
    }
    support = dist.constraints.simplex
    reparametrized_params = ["concentration1", "concentration0"]

    def __init__(self, concentration1: object, concentration0: object, *,
                 validate_args: bool | None = None):
        check_flag(validate_args, "StickBreaking(validate_args)", optional=True)
        array1, array0 = (_numbers("concentration1", concentration1),
                          _numbers("concentration0", concentration0))
        try:
            promoted1, promoted0 = promote_shapes(array1, array0)
            shape = jnp.broadcast_shapes(promoted1.shape, promoted0.shape)
        except ValueError:
            raise ModelError(f"StickBreaking: concentration1 has the shape {array1.shape} and "
                             f"concentration0 has the shape {array0.shape}. Give both the same "
                             "shape, (..., k − 1) for k categories, or make one of them a "
                             "number") from None
        self.concentration1 = jnp.broadcast_to(promoted1, shape)
        self.concentration0 = jnp.broadcast_to(promoted0, shape)
        super().__init__(shape[:-1], (shape[-1] + 1,), validate_args=validate_args)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()):
        beta = dist.Beta(self.concentration1, self.concentration0)
        v = beta.sample(key, sample_shape)
        return weights(v, 1.0 - v)

    def log_prob(self, value: jax.Array):
        """Log density of the weights, computed from the fraction that each weight takes of the
        remaining stick."""
        remaining = remainders(value)
        before = jnp.concatenate([jnp.ones_like(remaining[..., :1]), remaining[..., :-1]], -1)
        v = value[..., :-1] / before
        a, b = self.concentration1, self.concentration0
        beta = jax.scipy.special.betaln(a, b)
        logs = xlogy(a - 1, v) + xlog1py(b - 1, -v) - beta - jnp.log(before)
        return logs.sum(-1)

    @property
    def mean(self):
        a, b = self.concentration1, self.concentration0
        return weights(a / (a + b), b / (a + b))

    @property
    def variance(self):
        a, b = self.concentration1, self.concentration0
        total = a + b
        square = weights(a * (a + 1) / (total * (total + 1)), b * (b + 1) / (total * (total + 1)))
        return square - self.mean**2


def weights(v: jax.Array, complement: jax.Array) -> jax.Array:
    """Fractions v of what is left, and 1 − v, (..., k − 1) → weights (..., k)."""
    one = jnp.ones_like(v[..., :1])
    return jnp.concatenate([v, one], -1) * jnp.concatenate([one, jnp.cumprod(complement, -1)], -1)


def remainders(w: jax.Array) -> jax.Array:
    """What is left of the stick behind each weight but the last, (..., k − 1)."""
    return jnp.flip(jnp.cumsum(jnp.flip(w[..., 1:], -1), -1), -1)


def _numbers(name: str, value: object, what: str = "StickBreaking") -> jax.Array:
    try:
        array = jnp.atleast_1d(jnp.asarray(value))
    except (TypeError, ValueError, OverflowError):
        array = None
    known = array is not None and not isinstance(array, jax.core.Tracer)
    if array is None or array.dtype.kind not in "biuf" or 0 in array.shape[:-1] or known and not (
            (array > 0) & jnp.isfinite(array)).all():
        raise ModelError(f"{what}({name}={value!r:.200}): expected an array of finite numbers "
                         f"above 0, of the shape (..., k − 1) for k categories")
    return array


def dirichlet_process(concentration: object, k: int) -> StickBreaking:
    """The weights of a Dirichlet process of concentration α, cut at k states: every
    v_i ~ Beta(1, α) (Sethuraman 1994).

    Of n rows about α log(1 + n/α) states are in use a priori; k should be well above that.

    Raises:
        ModelError: a k that is no whole number from 1 to a million; no number above 0.
    """
    if isinstance(k, bool) or not isinstance(k, Integral) or not 1 <= k <= MAX_STATES:
        raise ModelError(f"dirichlet_process(k={k!r:.200}): expected an integer from 1 to "
                         f"{MAX_STATES:,}, the number of components at which the process is "
                         f"truncated")
    if isinstance(concentration, Real):
        if isinstance(concentration, bool) or not 0 < concentration < float("inf"):
            raise ModelError(f"dirichlet_process(concentration={concentration!r}): expected a "
                             f"number above 0")
        concentration = float(concentration)
    alpha, ones = _numbers("concentration", concentration, "dirichlet_process"), jnp.ones(k - 1)
    if alpha.shape[-1] not in (1, k - 1):
        raise ModelError("dirichlet_process(concentration=...): concentration has the shape "
                         f"{alpha.shape}. Give a single number, or {counted(k - 1, 'number')}, "
                         f"one for each of the {counted(k, 'component')} but the last")
    return StickBreaking(ones, alpha * ones)
