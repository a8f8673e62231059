"""Normal likelihood: independent cells, T(x) = (x, x²), evaluated by one matrix product a chunk."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax

from probml.families import log_linear
from probml.families.forms.gaussian import GAUSSIAN, GaussianPrior
from probml.families.forms.inverse_gamma import INVERSE_GAMMA
from probml.families.likelihood import Arguments, Entry, Likelihood
from probml.families.location_scale import univariate
from probml.numerics.logs import LOG_TWO_PI, MAX_SERIES_ARGUMENT, log1p_of_little

# cells × states from which the sum of a row's logs is worth a longer program
MIN_CELLS_TIMES_STATES = 2**14


def _log_densities_of_cell(eta: jax.Array, constant: jax.Array, x: jax.Array):
    """Log densities of one cell, (b, 1) → (b, p): a product of so few statistics is slower than
    what it multiplies, but not that of the gradient, whose sums over rows it takes at once."""
    return x * eta[:, 0] + (x**2) * eta[:, 1] + constant[:, 0]


_single = jax.custom_vjp(_log_densities_of_cell)


def _backward(saved: tuple, slope: jax.Array):
    eta, x = saved
    sums = jnp.stack([x[:, 0], x[:, 0] ** 2, jnp.ones_like(x[:, 0])]) @ slope
    return sums[:2].T, sums[2:].T, (slope * (eta[:, 0] + 2 * x * eta[:, 1])).sum(-1, keepdims=True)


# forward not `_single` itself: the gradient has derivatives, too
_single.defvjp(lambda eta, constant, x: (_log_densities_of_cell(eta, constant, x), (eta, x)),
               _backward)


class Normal(Likelihood):
    """log p(x) = −½((x − loc)/scale)² − log scale − ½ log 2π for each cell.

    Data and locations are centred on the column mean before they are squared (float32 at large
    offsets).
    """

    name = "Normal"
    argument_event = {"loc": 0, "scale": 0}
    canonical = {"loc": (GAUSSIAN, ()), "scale": (INVERSE_GAMMA, (("power", 2.0),))}

    normal = True
    scatter = ("scale",)
    mean_of: tuple[str, ...] | None = ("loc",)  # what the mean depends on, linearly

    def smallest(self, arguments: Arguments):
        """The scale of each cell."""
        return arguments["scale"]

    def natural(self, arguments: Arguments, centre: jax.Array | float):
        loc, scale = arguments["loc"] - centre, arguments["scale"]
        precision = 1.0 / scale**2
        eta = jnp.concatenate([loc * precision, -0.5 * precision], -1)
        return {"eta": eta,
                "constant": -0.5 * loc**2 * precision - jnp.log(scale) - 0.5 * LOG_TWO_PI}

    def log_density(self, natural: Arguments, x: jax.Array, seen: jax.Array | None):
        eta, constant = natural["eta"], natural["constant"]
        if seen is None and x.shape[-1] == 1:
            return _single(eta, constant, x)
        if seen is None:
            return jnp.concatenate([x, x**2], -1) @ eta.T + constant.sum(-1)
        seen = seen.astype(x.dtype)
        x = x * seen
        return jnp.concatenate([x, x**2, seen], -1) @ jnp.concatenate([eta, constant], -1).T

    def recentre(self, statistics: jax.Array, shift: jax.Array):
        """Statistics of x + shift from those of x: Σ(x + s) and Σ(x + s)²."""
        first, second = jnp.split(statistics["eta"], 2, -1)
        count, s = statistics["constant"], shift
        return {"eta": jnp.concatenate([first + count * s, second + 2 * s * first + count * s**2],
                                       -1), "constant": count}

    def predictive(self, arguments: Arguments, x: jax.Array, seen: jax.Array | None):
        """Location, and perhaps scale, integrated out: Normal, or Student's t where there are
        degrees of freedom."""
        loc, scale = arguments["loc"], arguments["scale"]
        if "df" not in arguments:
            return log_linear.masked(dist.Normal(loc, scale).log_prob(x), seen)
        # once a table entry, not once a row
        df, normaliser = arguments["df"], self._normaliser(arguments)
        return log_linear.masked(
            normaliser - 0.5 * (df + 1) * jnp.log1p(((x - loc) / scale) ** 2 / df), seen
        )

    def predictive_sum(self, arguments: Arguments, x: jax.Array, seen: jax.Array | None):
        """Σ of log densities of Student's t by the series of log(1 + u), u = ((x − loc)/scale)²/df,
        where all u of these rows are small, as they are from some thousand degrees of freedom on:
        no logarithm, and no division."""
        if "df" not in arguments or x.size * len(arguments["loc"]) < MIN_CELLS_TIMES_STATES:
            return None
        loc, df, cells = arguments["loc"], arguments["df"], x.shape[1]
        inv_sd = 1 / (arguments["scale"] * jnp.sqrt(df))
        normaliser = self._normaliser(arguments)
        cell_mask = None if seen is None else seen[:, None]

        def quick():
            logs = normaliser - 0.5 * (df + 1) * log1p_of_little(((x[:, None] - loc) * inv_sd) ** 2)
            # a product: XLA adds up along the last axis one by one, and makes the logs there too
            flat = log_linear.masked(logs, cell_mask).reshape(-1, cells)
            return (flat @ jnp.ones(cells, x.dtype)).reshape(len(x), -1)

        max_u = ((jnp.abs(x).max(0) + jnp.abs(loc)) * inv_sd) ** 2
        return lax.cond(jnp.max(max_u) <= MAX_SERIES_ARGUMENT, quick,
                        lambda: Normal.predictive(self, arguments, x[:, None], cell_mask).sum(-1))

    def _normaliser(self, arguments: Arguments):
        """The log normaliser of Student's t."""
        df, scale = arguments["df"], arguments["scale"]
        return log_linear.rising(df / 2, 0.5) - 0.5 * jnp.log(jnp.pi * df) - jnp.log(scale)


ENTRIES = (Entry((dist.Normal,), Normal(), GaussianPrior(0), location_scale=univariate),)
