"""Kernel density: p(x) = Σ_i w_i Π_j N(x_j | c_ij, h_j²), a mixture with a component at every row
that was seen.

Nothing is fitted but the bandwidth: `model.at({...})` is the density, and unseen cells, draws and
fills are those of any mixture. With the class of every centre it is the Parzen-window classifier,
p(class | x) ∝ Σ_{i of class} w_i Π_j N(x_j | c_ij, h_ij²).

Rules for the bandwidth, n the total weight and σ_j the standard deviation of a column (with n − 1):

    h_j = n^(−1/(d + 4)) σ_j                Scott (1992), "Multivariate density estimation", 6.42
    h_j = (n (d + 2)/4)^(−1/(d + 4)) σ_j    Silverman (1986), "Density estimation", section 4.3.2
    h = argmax Σ_i w_i log p(x_i | all other rows)
        leave-one-out likelihood: Habbema, Hermans & van den Broek (1974); Duin (1976)

The last is what EM of the same function climbs to, prior=False, where each row's z is told that it
is not the row itself; one number is searched for directly, without a program to compile.

Source of the density: Rosenblatt (1956), Parzen (1962), "On estimation of a probability density
function and mode".
"""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import plate, sample

import probml

LEFT_OUT = 2000  # distinct rows up to which each is left out; of more, so many at random


@probml.model
def kernel_density(n: int, d: int, shared: bool = False):
    """n kernels in d dimensions. Sites: `weights` (n,), `centre` (n, d), `bandwidth` (d,), or ()
    for all columns if shared; in every row `z`, the kernel it comes from, and `x` (d,).

    The priors only give the sites their supports: the function is for `at`, or for data with
    `centre` and `weights`.

    Cost: of n queries one product (queries, 2 d) @ (2 d, kernels); centre the columns, since
        squares are taken.
    """
    weights, centre = _kernels(n, d)
    spread = dist.LogNormal(0.0, 1.0)
    bandwidth = sample("bandwidth", spread if shared else spread.expand([d]).to_event(1))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(centre[z], bandwidth).to_event(1))


@probml.model
def parzen_classifier(n: int, d: int, classes: int):
    """n kernels that each belong to a class. Sites: `weights` (n,), the classes' shares among them;
    `centre` (n, d); `bandwidth` (n, d); `membership` (n, classes), the class of each kernel as 0
    and 1; in every row `z`, `class` and `x` (d,)."""
    weights, centre = _kernels(n, d)
    with plate("member", n):
        bandwidth = sample("bandwidth", dist.LogNormal(0.0, 1.0).expand([d]).to_event(1))
        membership = sample("membership", dist.Dirichlet(jnp.ones(classes)))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("class", dist.Categorical(membership[z]))
        sample("x", dist.Normal(centre[z], bandwidth[z]).to_event(1))


def _kernels(n, d):
    weights = sample("weights", dist.Dirichlet(jnp.ones(n)))
    with plate("kernel", n):
        return weights, sample("centre", dist.Normal(0.0, 1.0).expand([d]).to_event(1))


def factor(rule: str, n: float, d: int) -> float:
    """What a rule multiplies standard deviations by."""
    return float((n if rule == "scott" else n * (d + 2) / 4) ** (-1 / (d + 4)))


def left_out(X: np.ndarray, weights: np.ndarray, seed: int) -> float:
    """The bandwidth h of complete rows X (n, d), one for all columns, at the maximum of the
    leave-one-out likelihood.

    A row that comes several times is left out as a whole, so that weights count as rows. Of more
    than LEFT_OUT distinct rows a random part is looked at, and its h times (part/all)^(1/(d + 4)),
    as the best bandwidth shrinks.

    Returns:
        h; NaN where there is only one distinct row.

    Cost: O(m² d) of m distinct rows and some twenty looks at their m² distances, which are kept.
    """
    rows, inverse = np.unique(X, axis=0, return_inverse=True)
    count, d = np.bincount(inverse.ravel(), weights, len(rows)), X.shape[1]
    n_distinct = len(rows)
    if n_distinct < 2:
        return np.nan
    if n_distinct > LEFT_OUT:
        part = np.random.default_rng(seed).choice(n_distinct, LEFT_OUT, replace=False)
        rows, count = rows[part], count[part]
    n = len(rows)
    with np.errstate(divide="ignore"):
        log_counts = np.log(count)  # of a row's weight as a kernel; −inf for none
    rows = rows - rows.mean(0)
    square = (rows**2).sum(1)
    half_sq = np.maximum(square[:, None] + square - 2 * rows @ rows.T, 0.0) / 2
    np.fill_diagonal(half_sq, np.inf)

    def minus(log_h: float) -> float:
        terms = log_counts - half_sq * np.exp(-2 * log_h)
        peak = terms.max(1, keepdims=True)
        np.exp(terms - peak, out=terms)
        return -float(count @ (np.log(terms.sum(1)) + peak[:, 0] - d * log_h)) / count.sum()

    from scipy.optimize import minimize_scalar  # late: 0.1 s that `probml.models` need not take

    start = np.log(factor("scott", n, d) * np.sqrt(rows.var(0).mean()))
    best = minimize_scalar(minus, bracket=(start - 0.5, start), options={"xtol": 1e-6}).x
    return float(np.exp(best)) * (n / n_distinct) ** (1 / (d + 4))
