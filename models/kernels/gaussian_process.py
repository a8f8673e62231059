"""Gaussian processes: functions of which any values are jointly normal, seen with noise.

    f ~ GP(mean, variance · k),   y_i = f(x_i) + ε_i,   ε_i ~ N(0, noise²)
    log p(y) = log N(y; mean, K + noise² I),   K_ij = variance · k(x_i, x_j)

Of r = |(x − z) / length|, a length a column or one for all, kernels k are

    rbf            exp(−r² / 2)
    exponential    exp(−r)                                   (Matérn ½; Ornstein & Uhlenbeck's)
    matern32       (1 + √3 r) exp(−√3 r)
    matern52       (1 + √5 r + 5 r² / 3) exp(−√5 r)
    rational       (1 + r² / (2 α))^−α
    periodic       exp(−2 Σ sin²(π (x − z) / period) / waviness²) · rbf

The process is integrated out exactly: its hyper-parameters are what is learnt. A kernel of your own
is a function of inputs: call these in a NumPyro function, and add or multiply what they give.

Cost: O(n³) a value and its gradient, O(n²) memory; with m inducing points O(n m²) and O(n m).
Sources: Rasmussen & Williams (2006), "Gaussian Processes for Machine Learning", chapters 2, 4, 5;
Titsias (2009), "Variational learning of inducing variables in sparse Gaussian processes".
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike
from numpyro import factor, sample

import probml
from probml.errors import listed
from probml.models.summaries.regressions import process_tables
from probml.typing import SiteValues

KERNELS = ("rbf", "exponential", "matern32", "matern52", "rational", "periodic")
WRITTEN_OUT = 16  # columns that one loop over pairs of rows adds
JITTER = 1e-10  # of the variance, as scikit-learn's alpha
POINTS_JITTER = 1e-8  # of the variance, of values at inducing points, by whose factor rows divide


def distances(x: jax.Array, z: jax.Array, length: ArrayLike) -> jax.Array:
    """Squared distances r² between rows, columns in units of `length`: (n, d), (m, d) → (n, m)."""
    return _squares(x / length, z / length)


@jax.custom_jvp
def _squares(x: jax.Array, z: jax.Array) -> jax.Array:
    """Σ (x_i − z_j)² over columns, which are added one by one: an array of all (n, m, d)
    differences takes memory and time. The slopes are products of matrices,

        d r²_ij = 2 (x_i · dx_i + z_j · dz_j − x_i · dz_j − dx_i · z_j).
    """
    def gap(column: int | jax.Array) -> jax.Array:
        return (x[..., :, None, column] - z[..., None, :, column])**2

    d = x.shape[-1]
    first = sum((gap(column) for column in range(1, min(d, WRITTEN_OUT))), gap(0))
    return jax.lax.fori_loop(WRITTEN_OUT, d, lambda i, total: total + gap(i), first)


@_squares.defjvp
def _squares_moved(primals: tuple, tangents: tuple):
    (x, z), (dx, dz) = primals, tangents
    z_t, dz_t = (jnp.swapaxes(leaf, -1, -2) for leaf in (z, dz))
    return _squares(x, z), 2 * ((x * dx).sum(-1)[..., :, None] + (z * dz).sum(-1)[..., None, :]
                                - x @ dz_t - dx @ z_t)


def rbf(x: jax.Array, z: jax.Array, length: ArrayLike) -> jax.Array:
    """exp(−r² / 2), (n, m)."""
    return jnp.exp(-0.5 * distances(x, z, length))


def exponential(x: jax.Array, z: jax.Array, length: ArrayLike) -> jax.Array:
    """exp(−r), (n, m)."""
    return jnp.exp(-_root(distances(x, z, length)))


def matern32(x: jax.Array, z: jax.Array, length: ArrayLike) -> jax.Array:
    """(1 + √3 r) exp(−√3 r), (n, m)."""
    r = _root(3 * distances(x, z, length))
    return (1 + r) * jnp.exp(-r)


def matern52(x: jax.Array, z: jax.Array, length: ArrayLike) -> jax.Array:
    """(1 + √5 r + 5 r² / 3) exp(−√5 r), (n, m)."""
    square = 5 * distances(x, z, length)
    r = _root(square)
    return (1 + r + square / 3) * jnp.exp(-r)


def rational(x: jax.Array, z: jax.Array, length: ArrayLike, alpha: ArrayLike) -> jax.Array:
    """(1 + r² / (2 α))^−α, (n, m)."""
    return jnp.exp(-alpha * jnp.log1p(distances(x, z, length) / (2 * alpha)))


def periodic(x: jax.Array, z: jax.Array, length: ArrayLike, period: ArrayLike,
             waviness: ArrayLike) -> jax.Array:
    """exp(−2 Σ sin²(π (x − z) / period) / waviness²) · rbf, (n, m)."""
    gap = x[..., :, None, :] - z[..., None, :, :]
    wave = (jnp.sin(jnp.pi * gap / period) ** 2).sum(-1)
    return jnp.exp(-2 * wave / waviness**2) * rbf(x, z, length)


def _root(square: jax.Array) -> jax.Array:
    """√, whose slope at 0 is 0: there a kernel's own is. In a compiled program the square of the
    distance of a row from itself may be above 0 by rounding: the rounding of its slope must not be
    divided by that."""
    is_zero = square <= jnp.finfo(square.dtype).eps
    constant = jnp.sqrt(jax.lax.stop_gradient(jnp.maximum(square, 0.0)))
    return jnp.where(is_zero, constant, jnp.sqrt(jnp.where(is_zero, 1.0, square)))


def kernel_of(kernel: str, params: SiteValues) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The covariance of the process as a function of inputs, (n, d), (m, d) → (n, m), at values of
    the sites of `gaussian_process`."""
    extra = {"rational": ("alpha",), "periodic": ("period", "waviness")}.get(kernel, ())
    function = globals()[kernel]
    return lambda x, z: params["variance"] * function(x, z, params["length"],
                                                      *(params[name] for name in extra))


def nugget(params: SiteValues) -> ArrayLike:
    """What each row adds to its own variance: the noise, and as much of the process as keeps the
    covariance of rows near one another, seen without noise, from being singular."""
    return params["noise"] ** 2 + JITTER * params["variance"]


def of_points(kernel: str, params: SiteValues, points: jax.Array) -> jax.Array:
    """The covariance of f at inducing points (m, d), (m, m), with a nugget that keeps it from being
    singular. Its diagonal is exact: over a tiny length rounding parts a point from itself, but not
    from the same row, of which it would then leave a negative variance."""
    rounding = len(points) * float(jnp.finfo(jnp.result_type(float)).eps)
    diagonal = (1 + max(POINTS_JITTER, rounding)) * params["variance"]
    return jnp.where(jnp.eye(len(points), dtype=bool), diagonal,
                     kernel_of(kernel, params)(points, points))


@probml.model
def gaussian_process(x, y=None, kernel: str = "rbf", separate: bool = True, scale: float = 1.0,
                     unit: float = 1.0, period: float = 1.0, mean: float = 0.0, points=None):
    """Sites `variance` (), `length` (d,), of separate=False (), `noise` (), and of some kernels
    `alpha`, or `period` and `waviness`; the data `y` (n,) at inputs `x` (n, d) are one density.

    Args:
        kernel: one of KERNELS.
        separate: a length for each column.
        scale, unit, period: prior medians of the standard deviation of y, of lengths and of the
            period, in units of y and x; their logarithms have standard deviations of 1, 1.5 and
            0.5.
        mean: of the process.
        points: inducing points (m, d), by which the density is approximated from below
            (Titsias's bound); None: it is exact.

    Raises:
        ModelError: another kernel.
    """
    if kernel not in KERNELS:
        raise probml.ModelError(f"gaussian_process(kernel={kernel!r}): expected one of "
                                f"{listed(KERNELS)}")
    params = {"variance": sample("variance", dist.LogNormal(2 * jnp.log(scale), 2.0))}
    lengths = dist.LogNormal(jnp.log(unit), 1.5)
    params["length"] = sample("length", lengths.expand([x.shape[-1]]).to_event(1)
                              if separate else lengths)
    if kernel == "rational":
        params["alpha"] = sample("alpha", dist.LogNormal(0.0, 1.5))
    if kernel == "periodic":
        params["period"] = sample("period", dist.LogNormal(jnp.log(period), 0.5))
        params["waviness"] = sample("waviness", dist.LogNormal(0.0, 1.0))
    params["noise"] = sample("noise", dist.LogNormal(jnp.log(0.3 * scale), 1.5))
    mean, kernel_fn = jnp.full(len(x), mean), kernel_of(kernel, params)
    if points is None:
        covariance = kernel_fn(x, x) + nugget(params) * jnp.eye(len(x))
        sample("y", dist.MultivariateNormal(mean, covariance), obs=y)
        return
    root = solve_triangular(jnp.linalg.cholesky(of_points(kernel, params, points)),
                            kernel_fn(points, x), lower=True)
    sample("y", dist.LowRankMultivariateNormal(mean, root.T, jnp.full(len(x), nugget(params))),
           obs=y)
    factor("left", -0.5 * (len(x) * params["variance"] - (root**2).sum()) / nugget(params))


gaussian_process.summarized(process_tables)
