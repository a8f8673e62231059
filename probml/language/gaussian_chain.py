"""The distribution of a Gaussian chain's states: a linear dynamical system."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints
from numpyro.util import is_prng_key

from probml.errors import ModelError, counted, listed, shortly
from probml.language.chain import Chain
from probml.language.given import as_array, check_flag
from probml.numerics.lapack import log_det, rank, root, standardised

ROUNDING = 1e-5  # relative to the largest eigenvalue, by which one may be below 0
GROWTH = 1e30  # by how much states may grow over a sequence: more and float32 overflows
FLAT = 1e-4  # relative distance from where states without noise must be


class GaussianChain(Chain):
    """States of a linear Gaussian chain: z_1 ~ N(initial_mean, initial_covariance), z_t =
    transition z_{t−1} + offset + ε_t, ε_t ~ N(0, covariance); event shape (steps, d).

    Inside a model the states of a latent chain are integrated out along time by Kalman's filter,
    wherever they are not observed; normal sites may depend on the chain at their own step,
    affinely, with
    time as their first event axis: `dist.Normal(z[..., 0], noise).to_event(1)`, or
    `dist.Normal(z @ loading.T, noise).to_event(2)`.

    Covariances may be singular: a season or a lag is a coordinate that is copied without noise.
    transition, covariance and offset may vary along time, with one axis more, of the steps, or of
    size 1: (..., steps, d, d), (..., steps, d). Entry t leads into step t, and entry 0 is not used.
    So what differs from row to row has that axis as well: (n, 1, d, d).

    Args:
        initial_mean: (..., d), of the first state. initial_covariance: (..., d, d).
        transition: (d, d), or (..., steps, d, d).
        covariance: of the noise, (d, d), or (..., steps, d, d).
        steps: the number of steps; None takes it from the data, or from `simulate(rows,
            steps=...)`.
        offset: (d,), or (..., steps, d), what a step adds; None: nothing.

    Raises:
        ModelError: shapes that do not fit; a covariance that is known and not symmetric, or has a
            negative eigenvalue; steps unknown or below 1.

    Cost: a draw or a log density O(steps · d²) a chain.
    Source: Kalman 1960; Särkkä 2013, chapter 4; Durbin & Koopman 2012, chapter 4.
    """

    arg_constraints = {"initial_mean": constraints.real_vector}
    support = constraints.independent(constraints.real, 2)
    reparametrized_params = ["initial_mean"]
    pytree_data_fields = ("initial_mean", "initial_covariance", "transition", "covariance",
                          "offset")
    pytree_aux_fields = ("steps", "declared")

    def __init__(self, initial_mean: object, initial_covariance: object, transition: object,
                 covariance: object, steps: int | None = None, offset: object = None, *,
                 validate_args: bool | None = None):
        check_flag(validate_args, "GaussianChain(validate_args)", optional=True)
        self._set_length(steps)
        mean, *matrices = (as_array(value, f"GaussianChain({name})") for name, value in {
            "initial_mean": initial_mean, "initial_covariance": initial_covariance,
            "transition": transition, "covariance": covariance}.items())
        if mean.ndim < 1:
            raise ModelError(f"GaussianChain: initial_mean must be a vector of shape (..., d), got "
                             f"shape {mean.shape}. For a state with one element use jnp.zeros(1)")
        d, batch = mean.shape[-1], [mean.shape[:-1]]
        offset = jnp.zeros(d, mean.dtype) if offset is None else as_array(
            offset, "GaussianChain(offset)")
        for name, array, tail in zip(
            ("initial_covariance", "transition", "covariance", "offset"), (*matrices, offset),
            ((d, d), (d, d), (d, d), (d,)), strict=True
        ):
            if array.shape[array.ndim - len(tail) :] != tail:
                raise ModelError(f"GaussianChain: initial_mean has {counted(d, 'element')}, so the "
                                 f"shape of {name} must end in {tail}, but it is {array.shape}. "
                                 "Give both the same size")
            lead = array.shape[: array.ndim - len(tail)]
            if name != "initial_covariance" and lead:
                *lead, length = lead
                if length not in (1, self.steps):
                    raise ModelError(
                        f"GaussianChain: {name} has the shape {array.shape}. Expected one {name} "
                        f"for each step, shape (..., {self.steps}, {listed(tail)}), "
                        f"or one for all steps, shape (..., 1, {listed(tail)})")
            batch.append(tuple(lead))
        for name, matrix in zip(("initial_covariance", "covariance"), matrices[::2], strict=True):
            check_semidefinite(f"GaussianChain: {name}", matrix)
        self.initial_mean, self.offset = mean, offset
        self.initial_covariance, self.transition, self.covariance = matrices
        super().__init__(jax.lax.broadcast_shapes(*batch), (self.steps, d),
                         validate_args=validate_args)

    def moves(self, name: str) -> jax.Array:
        """transition, covariance or offset with an axis of steps, of size 1 where all are alike."""
        array, ndim = getattr(self, name), 1 if name == "offset" else 2
        return array[None] if array.ndim == ndim else array

    def _along(self, array: jax.Array, ndim: int) -> jax.Array:
        """(..., steps or 1, own axes) → (steps − 1, *batch, own axes): what leads into each step
        but the first."""
        lead, tail = array.shape[: array.ndim - ndim - 1], array.shape[array.ndim - ndim :]
        array = jnp.broadcast_to(array, (*lead, self.steps, *tail))
        array = jnp.broadcast_to(array, (*self.batch_shape, *array.shape[len(lead) :]))
        return jnp.moveaxis(array, len(self.batch_shape), 0)[1:]

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()):
        assert is_prng_key(key)
        shape = (*sample_shape, *self.batch_shape)
        noise = jax.random.normal(key, (self.steps, *shape, self.event_shape[1]))
        first = self.initial_mean + _times(root(self.initial_covariance), noise[0])
        first = jnp.broadcast_to(first, noise.shape[1:])
        scales = self._along(root(self.moves("covariance")), 2)

        def step(state: tuple, inputs: tuple):
            scale, transition, offset, noise = inputs
            state = _times(transition, state) + offset + _times(scale, noise)
            return state, state

        _, states = jax.lax.scan(step, first, (scales, self._along(self.moves("transition"), 2),
                                         self._along(self.moves("offset"), 1), noise[1:]))
        return jnp.moveaxis(jnp.concatenate([first[None], states]), 0, -2)

    def log_prob(self, value: jax.Array):
        if self._validate_args:
            self._validate_sample(value)
        value = jnp.asarray(value)
        if value.shape[-2:] != self.event_shape:
            raise ModelError(f"GaussianChain.log_prob: expected states (..., {self.steps}, "
                             f"{self.event_shape[1]}), got the shape {value.shape}")
        first = _log_normal(value[..., 0, :] - self.initial_mean, self.initial_covariance)
        if self.steps == 1:
            return first
        before, after = value[..., :-1, :], value[..., 1:, :]

        def later(name: str):
            array = self.moves(name)
            return array if array.shape[array.ndim - 2 - (name != "offset")] == 1 else (
                array[..., 1:, :] if name == "offset" else array[..., 1:, :, :])

        residual = after - _times(later("transition"), before) - later("offset")
        return first + _log_normal(residual, later("covariance")).sum(-1)

    @property
    def mean(self):
        """The mean of every step, (..., steps, d)."""
        return self._moments()[0]

    @property
    def variance(self):
        """The variance of every coordinate at every step, (..., steps, d)."""
        return jnp.diagonal(self._moments()[1], axis1=-2, axis2=-1)

    def _moments(self) -> tuple[jax.Array, jax.Array]:
        d = self.event_shape[1]

        def step(carry: tuple, inputs: tuple):
            mean, covariance = carry
            noise, transition, offset = inputs
            mean = _times(transition, mean) + offset
            covariance = transition @ covariance @ jnp.swapaxes(transition, -1, -2) + noise
            return (mean, covariance), (mean, covariance)

        first = (jnp.broadcast_to(self.initial_mean, (*self.batch_shape, d)),
                 jnp.broadcast_to(self.initial_covariance, (*self.batch_shape, d, d)))
        _, later = jax.lax.scan(step, first, (self._along(self.moves("covariance"), 2),
                                         self._along(self.moves("transition"), 2),
                                         self._along(self.moves("offset"), 1)))
        mean, covariance = (jnp.concatenate([head[None], tail])
                            for head, tail in zip(first, later, strict=True))
        return jnp.moveaxis(mean, 0, -2), jnp.moveaxis(covariance, 0, -3)


def _times(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    return (matrix @ vector[..., None])[..., 0]


def _log_normal(x: jax.Array, covariance: jax.Array) -> jax.Array:
    """log N(x; 0, covariance); of a singular one on its range, −∞ beside it."""
    lower = root(covariance)
    z = standardised(lower, x[..., None])[..., 0]
    off_range = jnp.abs(_times(lower, z) - x) > FLAT * (1 + jnp.abs(x))
    log = -0.5 * (z**2).sum(-1) - log_det(lower) - 0.5 * rank(lower) * np.log(2 * np.pi)
    return jnp.where(off_range.any(-1), -jnp.inf, log)


def check_semidefinite(what: str, matrix: object,
                       place: Callable[[tuple[int, ...]], str] | None = None) -> None:
    """Refuse a covariance of known numbers that is not symmetric, or has a negative eigenvalue.

    Args:
        place: index of one of several → where it stands, in words.
    """
    if isinstance(matrix, jax.core.Tracer):
        return
    try:
        matrix = np.asarray(matrix, float)
    except (TypeError, ValueError):  # a place holder in a pytree
        return
    size = np.abs(matrix).max(initial=0.0, axis=(-1, -2))
    asymmetry = np.abs(matrix - np.swapaxes(matrix, -1, -2)).max(initial=0.0, axis=(-1, -2))
    is_symmetric = np.isfinite(matrix).all((-1, -2)) & (asymmetry <= ROUNDING * size)
    min_eigval = np.full(size.shape, np.nan)
    min_eigval[is_symmetric] = np.linalg.eigvalsh(matrix[is_symmetric]).min(-1, initial=np.inf)
    invalid = ~(is_symmetric & (min_eigval >= -ROUNDING * size))
    if invalid.any():
        at = tuple(int(i) for i in np.argwhere(invalid)[0])
        where = place(at) if place is not None else f" at [{listed(at)}]" * bool(at)
        why = ("has entries that are not finite" if not np.isfinite(matrix[at]).all()
               else f"has the negative eigenvalue {min_eigval[at]:.4g}" if is_symmetric[at]
               else "is not symmetric")
        raise ModelError(f"{what}{where} is not a covariance matrix: "
                         f"{shortly(np.round(matrix[at], 6).tolist())} {why}. Expected a symmetric "
                         "matrix without negative eigenvalues, such as A @ A.T")


def check_stable(what: str, transition: object, steps: int) -> None:
    """Refuse a transition of known numbers that lets states grow without bounds within so many
    steps."""
    matrix = np.asarray(transition, float)
    if not np.isfinite(matrix).all():
        index = np.argwhere(~np.isfinite(matrix))[0].tolist()
        raise ModelError(f"{what} is {matrix[tuple(index)]} at index {index}. Give finite numbers")
    moduli = np.abs(np.linalg.eigvals(matrix)).max(-1, initial=0.0)
    largest = float(moduli.max(initial=0.0))
    if largest > 1 and steps * np.log(largest) > np.log(GROWTH):
        raise ModelError(
            f"{what} is unstable: its largest eigenvalue has modulus {largest:.4g}, so states grow "
            f"by a factor of 1e{steps * np.log10(largest):.0f} over {counted(steps, 'step')}. "
            f"Expected a "
            "modulus of at most about 1, which is a random walk. Divide the matrix by a number "
            f"above {largest:.4g}")
