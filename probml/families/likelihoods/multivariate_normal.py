"""MultivariateNormal likelihood: T(x) = (lower triangle of x xᵀ, x), so that E and M steps are two
matrix products a chunk."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax
from jax.scipy.linalg import cho_solve

from probml.families import definite
from probml.families import marginal_normal as integrals
from probml.families.forms.gaussian import GAUSSIAN, GaussianPrior
from probml.families.forms.inverse_wishart import INVERSE_WISHART
from probml.families.likelihood import Arguments, Entry, Likelihood
from probml.families.likelihoods.student_t import ManyDegreesOfVectors
from probml.families.location_scale import vector
from probml.families.marginal_normal import Unseen
from probml.language.gaussian_chain import check_semidefinite
from probml.numerics.lapack import diagonal
from probml.numerics.logs import LOG_TWO_PI


def statistics(x: jax.Array):
    """The statistics of rows, one a column: pairs x_i x_j, j ≤ i, in the order of tril_indices,
    then x; (b, d) → (d(d+1)/2 + d, b).

    Contiguous vector products: row block i writes x_i · (x_0 … x_{d−1}), of which block i+1
    overwrites the surplus. A gather of the pairs takes twice as long, and fused into the products
    it would be made again for every state.
    """
    b, d = x.shape
    x = lax.optimization_barrier(x.T)  # once, not again in every fusion
    out = jnp.zeros((d * (d + 1) // 2 + d, b), x.dtype)
    out = lax.fori_loop(
        0, d, lambda i, out: lax.dynamic_update_slice(out, x[i] * x, (i * (i + 1) // 2, 0)), out
    )
    return lax.optimization_barrier(lax.dynamic_update_slice(out, x, (out.shape[0] - d, 0)))


def _transposed_product(eta: jax.Array, statistics: jax.Array):
    """(p, q) @ (q, b) → (b, p), transposed apart from the product, here and in the gradient: folded
    into it, it is three times slower, and carried on through sums over p, 15 %."""
    return lax.optimization_barrier(lax.optimization_barrier(eta @ statistics).T)


product = jax.custom_vjp(_transposed_product)


def _backward(saved: tuple, slope: jax.Array):
    eta, statistics = saved
    slope = lax.optimization_barrier(slope.T)
    return (statistics @ slope.T).T, eta.T @ slope


# forward not `product` itself: the gradient has derivatives, too
product.defvjp(lambda *operands: (_transposed_product(*operands), operands), _backward)


class MultivariateNormal(Likelihood):
    """log p(x) = −½ (x − loc)ᵀ Σ⁻¹ (x − loc) − ½ log|2πΣ|, Σ given as covariance, precision or
    Cholesky factor."""

    name = "MultivariateNormal"
    event = 1
    argument_event = {"loc": 1, "covariance_matrix": 2, "precision_matrix": 2, "scale_tril": 2}
    canonical = {
        "loc": (GAUSSIAN, ()),
        "covariance_matrix": (INVERSE_WISHART, ()),
        "precision_matrix": (INVERSE_WISHART, (("inverse", 1.0),)),
        "scale_tril": (INVERSE_WISHART, (("gram", 1.0),)),
    }

    normal = True
    scatter = ("covariance_matrix", "precision_matrix", "scale_tril")
    mean_of = ("loc",)

    def smallest(self, arguments: Arguments):
        """The conditional scale of each coordinate given the ones before it, never below the
        smallest principal scale."""
        if "precision_matrix" in arguments:
            return diagonal(arguments["precision_matrix"]) ** -0.5
        lower = arguments["scale_tril"] if "scale_tril" in arguments else jnp.linalg.cholesky(
            arguments["covariance_matrix"]
        )
        return jnp.abs(diagonal(lower))

    def arguments(self, base: dist.Distribution):
        given = base.__dict__
        scatter = next(name for name in ("covariance_matrix", "precision_matrix", "scale_tril")
                       if name in given)
        return {"loc": base.loc, scatter: given[scatter]}

    def check(self, where: str, arguments: dict[str, jax.Array], steps: int | None) -> None:
        if "covariance_matrix" in arguments:
            check_semidefinite(f"{where}: covariance_matrix",
                               np.asarray(arguments["covariance_matrix"]))

    def density(self, arguments: Arguments, value: jax.Array):
        """The log density, from the precision itself where that is given: no covariance is made of
        it, nor solved for."""
        if "precision_matrix" not in arguments:
            return self.distribution(arguments).log_prob(value)
        diff, precision = value - arguments["loc"], arguments["precision_matrix"]
        square = jnp.sum(diff * (precision @ diff[..., None])[..., 0], -1)
        return (definite.half_log_det(precision) - 0.5 * square
                - 0.5 * diff.shape[-1] * LOG_TWO_PI)

    def natural(self, arguments: Arguments, centre: jax.Array | float):
        loc = arguments["loc"] - centre
        d = loc.shape[-1]
        if "precision_matrix" in arguments:
            precision = arguments["precision_matrix"]
            half_log_det = definite.half_log_det(precision)
        else:
            lower = arguments["scale_tril"] if "scale_tril" in arguments else jnp.linalg.cholesky(
                arguments["covariance_matrix"]
            )
            precision = cho_solve((lower, True),
                                  jnp.broadcast_to(jnp.eye(d, dtype=lower.dtype), lower.shape))
            half_log_det = -jnp.log(jnp.abs(diagonal(lower))).sum(-1)
        linear = (precision @ loc[..., None])[..., 0]
        rows, columns = np.tril_indices(d)
        factor = jnp.asarray(np.where(rows == columns, -0.5, -1.0), loc.dtype)
        constant = -0.5 * (linear * loc).sum(-1) + half_log_det - 0.5 * d * LOG_TWO_PI
        return {"eta": jnp.concatenate([precision[..., rows, columns] * factor, linear], -1),
                "constant": constant}

    def log_density(self, natural: Arguments, x: jax.Array, seen: jax.Array | None,
                    unseen: Unseen | None = None):
        """As every kernel; with `unseen` rows may be seen in part, else a row counts only where it
        is seen whole."""
        eta, constant = natural["eta"], natural["constant"]
        if unseen is not None:
            x = x * seen
            return self.log_density(natural, x, None) + self._integrated(eta, x, unseen)
        if seen is not None:
            is_whole = seen.all(-1)[..., None].astype(x.dtype)
            x = x * is_whole
        columns = statistics(x[:, 0]) if x.shape[1] == 1 else jax.vmap(statistics, 1)(x).reshape(
            -1, len(x)
        )
        value = product(eta.reshape(len(eta), -1), columns)
        return value + (constant.sum(-1) if seen is None else is_whole[..., 0] @ constant.T)

    def recentre(self, statistics: jax.Array, shift: jax.Array):
        """Statistics of x + shift from those of x: Σ(x + s)(x + s)ᵀ by pairs and Σ(x + s)."""
        d = shift.shape[-1]
        rows, columns = np.tril_indices(d)
        pairs, first, count = (statistics["eta"][..., :-d], statistics["eta"][..., -d:],
                               statistics["constant"][..., None])
        cross = first[..., rows] * shift[..., columns] + first[..., columns] * shift[..., rows]
        pairs = pairs + cross + count * shift[..., rows] * shift[..., columns]
        return {"eta": jnp.concatenate([pairs, first + count * shift], -1),
                "constant": statistics["constant"]}

    def predictive(self, arguments: Arguments, x: jax.Array, seen: jax.Array | None):
        """Location, and perhaps scatter, integrated out: MultivariateNormal, or Student's t where
        there are degrees of freedom."""
        if seen is not None:
            lower = arguments["scale_tril"]
            covariance = lower @ jnp.swapaxes(lower, -1, -2)
            return integrals.log_density(arguments["loc"], covariance, x, seen, arguments.get("df"))
        return (ManyDegreesOfVectors if "df" in arguments
                else dist.MultivariateNormal)(**arguments).log_prob(x)

    def fill(self, distribution: dist.Distribution, value: jax.Array, x: jax.Array,
             seen: jax.Array | None):
        """x, its unseen coordinates given the seen ones: their conditional mean, or moved from a
        draw `value` of the whole vector."""
        return integrals.fill(value, distribution.covariance_matrix, x, seen)

    def _integrated(self, eta: jax.Array, x: jax.Array, unseen: Unseen):
        """What integrating unseen coordinates out adds: (b, p)."""
        d = x.shape[-1]
        rows, columns = np.tril_indices(d)
        pair_index = np.zeros((d, d), int)
        pair_index[rows, columns] = pair_index[columns, rows] = np.arange(len(rows))
        precision, linear = -(1 + jnp.eye(d, dtype=x.dtype)) * eta[..., pair_index], eta[..., -d:]
        cells = range(x.shape[1])
        return sum(
            integrals.evidence(precision[:, c], linear[:, c], x[:, c],
                               unseen._replace(order=unseen.order[:, c], count=unseen.count[:, c]))
            for c in cells
        )


class LowRank(Likelihood):
    """MultivariateNormal of covariance W Wᵀ + diag(cov_diag), W = cov_factor: row by row, as its
    statistics would have d² numbers."""

    name = "LowRankMultivariateNormal"
    event = 1
    argument_event = {"loc": 1, "cov_factor": 2, "cov_diag": 1}
    rowwise = True

    fill = MultivariateNormal.fill


MANY = 64  # coordinates from which arithmetic costs more than calls
_PLAIN = dist.MultivariateNormal.log_prob


def of_vectors(law: dist.Distribution, value: jax.Array):
    """log p; of one vector of many coordinates by a density whose derivatives are products of
    matrices, in place of derivatives through Cholesky's factor."""
    covariance, diff = vars(law).get("covariance_matrix"), value - law.loc
    d = diff.size
    if covariance is None or d < MANY or law.event_shape != (d,):
        return _PLAIN(law, value)
    covariance = jnp.reshape(covariance, (d, d))
    log = -(definite.half_square(covariance, diff.reshape(d)) + definite.half_log_det(covariance)
            + 0.5 * d * LOG_TWO_PI)
    return log.reshape(diff.shape[:-1])


ENTRIES = (Entry((dist.MultivariateNormal,), MultivariateNormal(), GaussianPrior(1),
                 location_scale=vector, coupled=True, log_prob=of_vectors),
           Entry((dist.LowRankMultivariateNormal,), LowRank()))
