"""Smooth curves: y ~ N(b + Σ_j f_j(x_j), σ²), f_j = h_jᵀβ_j in a basis of cubic B-splines with a
prior against curvature.

    β_j ~ N(0, τ_j² S_j⁻),    S_j = ∫ h'' h''ᵀ dx  (a smoothing spline with few knots),
    or D₂ᵀD₂, D₂ second differences (a P-spline)

The prior is improper along the null space of S_j, the straight lines. In coordinates in which S_j
is 1 or 0,

    f_j(x) = a_j x + Σ_i w_ji(x) u_ji,    u_ji ~ N(0, τ_j²),

it is a linear regression with a scale for each curve. Lines and b are flat where scales are chosen,
as in restricted maximum likelihood (REML: the evidence with a flat prior on the lines), and have a
wide proper prior in the fitted function.

With a prior β ~ N(0, τΣ) of full rank, E[f(x) | y] = h(x)ᵀ(HᵀH + (σ²/τ) Σ⁻¹)⁻¹Hᵀy is
linear_regression on the basis. Beyond the outermost knots a curve goes on as the straight line that
touches it there.

Sources: Wahba (1978) for the prior; O'Sullivan (1986) and Wand & Ormerod (2008), "On semiparametric
regression with O'Sullivan penalized splines", for curves with few knots; Eilers & Marx (1996) for
P-splines; Wood (2011) for REML; Hastie, Tibshirani & Friedman, "The Elements of Statistical
Learning", section 8.3, for the formula.
"""

from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import sample

import probml
from probml.errors import counted, described, listed
from probml.estimators.rules import hold, integer
from probml.language.given import floats
from probml.models.regression.moments import Moments, moments
from probml.models.summaries.former_names import INTERCEPT
from probml.models.summaries.regressions import spline_tables

if TYPE_CHECKING:
    from scipy.sparse import csr_array

DEGREE = 3
# numbers of a design up to which its root is found by QR; beyond, by the banded scatter of its
# B-splines
DENSE = 2**22
# least share of the residual in the scatter of y that the scatter's own digits can tell; below, by
# QR again
DIGITS = 1e-9


@probml.model
def smoothing(h, lines: int = 1, curves: tuple = (), wide: float = 1e6, shape=0.5, rate=0.005):
    """Additive curves as a regression: y ~ N(b + hβ, σ²). Input `h` (n, d), site `y` in every row.

    Sites: `variance` (), σ²; `smoothness` (curves,), τ_j in units of σ, ~ HalfCauchy(1); `beta`
    (d,); `intercept` (). With `variance` and `smoothness` given in the data, as by evidence, the
    rest is exact; without, samplers and MAP find them too.

    Args:
        lines: how many of the first columns of h are straight lines: β ~ N(0, wide² σ²), as is the
            bias.
        curves: of every curve, how many columns it has behind them: β ~ N(0, τ_j² σ²). See
            `Curve.columns`.
        wide: prior standard deviation of lines and bias in units of the noise; centre and scale the
            columns.
        shape, rate: InverseGamma prior of σ².

    Raises:
        ModelError: lines and curves do not add up to the columns of h.
    """
    if lines + sum(curves) != h.shape[-1]:
        total = lines + sum(curves)
        raise probml.ModelError(f"smoothing(lines={lines}, curves={curves}): the numbers add up to "
                                f"{total}, but h has {counted(h.shape[-1], 'column')}. Give "
                                "numbers that add up to the columns of h")
    variance = sample("variance", dist.InverseGamma(shape, rate))
    sds = jnp.full(lines, wide)
    if curves:
        smoothness = sample("smoothness", dist.HalfCauchy(1.0).expand([len(curves)]).to_event(1))
        sds = jnp.concatenate([sds, jnp.concatenate(
            [jnp.broadcast_to(smoothness[j], (size,)) for j, size in enumerate(curves)]
        )])
    beta = sample("beta", dist.Normal(0.0, sds * jnp.sqrt(variance)).to_event(1))
    bias = sample("intercept", dist.Normal(0.0, wide * jnp.sqrt(variance)))
    with probml.rows():
        sample("y", dist.Normal(h @ beta + bias, jnp.sqrt(variance)))


smoothing.summarized(spline_tables)
smoothing.renames(INTERCEPT)


def bspline_basis(z, knots=3, boundary=None) -> np.ndarray:
    """Cubic B-splines at z (n,): (n, knots + 4), columns that are ≥ 0 between the boundary and sum
    to 1 everywhere.

    Args:
        knots: how many interior knots, at the quantiles of z; or their places.
        boundary: (lowest, highest); by default those of z. Beyond it every column goes on as a
            straight line.

    Raises:
        DataError: z is not a vector of finite numbers with two distinct values; knots out of order
            or beyond the boundary.
    """
    z = _vector(z)
    edges = (z.min(), z.max()) if boundary is None else _floats(boundary)
    if edges is None or np.shape(edges) != (2,) or boundary is not None and not edges[0] < edges[1]:
        raise probml.ModelError(f"bspline_basis(boundary={boundary!r:.200}): expected two numbers, "
                                f"the lower first, or None")
    low, high = edges
    hold("bspline_basis", knots=(knots, ("an integer from 0 to 100,000, or increasing numbers",
                                         _knots)))
    inner = np.asarray(knots, float) if np.ndim(knots) else np.quantile(
        z, np.linspace(0, 1, int(knots) + 2)[1:-1])
    if not low < high or (inner.size and not (low < inner.min() and inner.max() < high
                                              and (np.diff(inner) > 0).all())):
        raise probml.DataError(f"bspline_basis: knots must be increasing and between {low:g} and "
                               f"{high:g}, got {listed(inner.tolist())}. "
                               + ("Sort them, and drop repeated ones and those at or outside these "
                                  "bounds" if np.ndim(knots) else "The knots are quantiles of z. "
                                  "Use fewer, or give their positions, such as knots=[1.0, 2.0]"))
    return _splines(np.concatenate([[low] * 4, inner, [high] * 4]), z).sparse().toarray()


def _floats(values) -> np.ndarray | None:
    """Finite numbers; None: they are none."""
    try:
        array = floats(values)
    except (TypeError, ValueError):
        return None
    return array if np.isfinite(array).all() else None


def _knots(knots) -> bool:
    array = _floats(knots)
    if array is None or array.ndim > 1:
        return False
    return array.ndim == 1 or integer(0, 100_000)[1](knots)


def _vector(z) -> np.ndarray:
    array = _floats(z)
    if array is None or array.ndim != 1 or not array.size or not np.isfinite(array).all():
        raise probml.DataError("the column of a spline must be a vector of finite numbers, got "
                               f"{described(z)}. Drop missing values, and pass one column at "
                               "a time")
    return array


class Local(NamedTuple):
    """Columns of which a row has few that are not 0, side by side: B-splines, or one column."""

    first: np.ndarray  # (n,) the first of them
    values: np.ndarray  # (few, n)
    width: int  # how many columns there are

    def sparse(self) -> "csr_array":
        """(n, width)."""
        from scipy.sparse import csr_array  # late, here and below: few models smooth

        n_local, n = self.values.shape
        index = (self.first[:, None] + np.arange(n_local)).ravel()
        return csr_array((self.values.T.ravel(), index, np.arange(0, n_local * n + 1, n_local)),
                         shape=(n, self.width))


def _splines(knots: np.ndarray, x: np.ndarray) -> Local:
    """All cubic B-splines of a knot vector at x, four numbers a row; beyond [t_3, t_-4], the lines
    that touch them there."""
    from scipy.interpolate import BSpline

    low, high = knots[DEGREE], knots[-DEGREE - 1]
    clipped = np.clip(x, low, high)
    matrix = BSpline.design_matrix(clipped, knots, DEGREE)  # a row's four stand side by side
    first, values = matrix.indices[:: DEGREE + 1].astype(int), matrix.data.reshape(-1, DEGREE + 1).T
    excess = x - clipped
    if excess.any():
        k = len(knots) - DEGREE - 1
        for edge, start, outside in ((low, 0, np.minimum(excess, 0)),
                                     (high, k - DEGREE - 1, np.maximum(excess, 0))):
            slope = BSpline(knots, np.eye(k), DEGREE).derivative()(edge)[start : start + DEGREE + 1]
            values = values + slope[:, None] * outside
    return Local(first, values, len(knots) - DEGREE - 1)


def _weighted_products(a: Local, b: Local, weights) -> np.ndarray:
    """Σ over rows of weight × a's columns × b's columns, (a.width, b.width)."""
    acc = np.zeros(a.width * b.width)
    for i, left in enumerate(a.values if weights is None else a.values * weights):
        for j, right in enumerate(b.values):
            if a is b and j < i:
                continue
            part = np.bincount((a.first + i) * b.width + b.first + j, left * right, len(acc))
            acc += part if a is not b or i == j else part + part.reshape(a.width, b.width).T.ravel()
    return acc.reshape(a.width, b.width)


class Curve(NamedTuple):
    """A column's basis: B-splines on a knot vector, and the coordinates in which the prior is 1 or
    0."""

    knots: np.ndarray  # (k + 4,)
    turn: np.ndarray  # (k, k − 2) B-spline coefficients of w_1 … w_{k−2}
    line: np.ndarray  # (k,) of the straight line, 0 in the middle and of spread 1 or so

    def columns(self, x) -> np.ndarray:
        """(n, k − 1): the line, then the columns w with a prior of one scale; with the constant
        they span the B-splines."""
        splines = _splines(self.knots, _vector(x)).sparse()
        return np.column_stack([splines @ self.line, splines @ self.turn])


def curve(x, knots: int = 20, penalty: str = "curvature") -> Curve:
    """The basis of a curve through x (n,).

    Args:
        knots: how many interior knots, fewer where x has fewer distinct values: at quantiles of the
            distinct values (curvature), or at equal distances (differences), where they part the
            range into knots + 1 pieces.
        penalty: "curvature", ∫ f''², or "differences", the second differences of neighbouring
            coefficients.

    Raises:
        DataError: x has fewer than 4 distinct values.
    """
    distinct = np.unique(_vector(x))
    if len(distinct) < 4:
        raise probml.DataError("a curve needs at least 4 distinct values, but the column has only "
                               f"{listed(distinct)}. Fit a straight line to this column instead")
    n_inner = min(int(knots), len(distinct) - 3)
    low, high = distinct[0], distinct[-1]
    if penalty == "differences":
        step = (high - low) / (n_inner + 1)
        grid = low + step * np.arange(-DEGREE, n_inner + 2 + DEGREE)
        grid[DEGREE], grid[-DEGREE - 1] = low, high
    else:
        quantiles = np.quantile(distinct, np.linspace(0, 1, n_inner + 2)[1:-1])
        grid = np.concatenate([[low] * 4, quantiles, [high] * 4])
    k = len(grid) - DEGREE - 1
    # the coefficients of the line x
    greville = np.array([grid[i + 1 : i + 1 + DEGREE].mean() for i in range(k)])
    line = (greville - greville.mean()) / greville.std()
    matrix = (np.diff(np.eye(k), 2, axis=0).T @ np.diff(np.eye(k), 2, axis=0)
              if penalty == "differences" else _bending(grid, high - low))
    values, vectors = np.linalg.eigh(matrix)
    return Curve(grid, vectors[:, 2:] / np.sqrt(values[2:]), line)


def _bending(knots: np.ndarray, width: float) -> np.ndarray:
    """∫ h'' h''ᵀ dx with x in units of its range: two points a piece, exact for squares of lines
    (Gauss & Legendre)."""
    from scipy.interpolate import BSpline

    edges = np.unique(knots)
    centres, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    points = (centres[:, None] + half[:, None] * np.array([-1, 1]) / np.sqrt(3)).ravel()
    eye = np.eye(len(knots) - DEGREE - 1)
    curvature = BSpline(knots, eye, DEGREE).derivative(2)(points) * width**2
    return curvature.T @ (curvature * np.repeat(half / width, 2)[:, None])


class Design(NamedTuple):
    """The columns of an additive model: lines of all, then every curve's own."""

    curves: dict[int, Curve]  # column of X → its basis; the other columns are linear
    centre: np.ndarray  # (columns of X,), for the linear ones
    scale: np.ndarray

    @property
    def groups(self) -> list[np.ndarray]:
        """The columns of each curve, counted behind the lines."""
        sizes = np.cumsum([0, *(basis.turn.shape[1] for basis in self.curves.values())])
        return [np.arange(a, b) for a, b in zip(sizes, sizes[1:], strict=False)]

    def columns(self, X: np.ndarray) -> np.ndarray:
        """(n, lines + Σ curves), dense."""
        return self.sparse(X) @ self.mixing()

    def slopes(self) -> np.ndarray:
        """How much a unit of each column raises its line, (d,)."""
        slopes = 1 / np.asarray(self.scale, float)
        for j, basis in self.curves.items():
            bounds = basis.knots[DEGREE], basis.knots[-DEGREE - 1]
            slopes[j] = np.diff(basis.columns(np.array(bounds))[:, 0])[0] / (bounds[1] - bounds[0])
        return slopes

    def parts(self, X: np.ndarray) -> list[Local]:
        """The columns before they are mixed: of a curve its B-splines, of a linear column
        itself."""
        parts, zero = [], np.zeros(len(X), int)
        for j in range(X.shape[1]):
            line = ((X[:, j] - self.centre[j]) / self.scale[j])[None]
            parts.append(_splines(self.curves[j].knots, X[:, j]) if j in self.curves
                         else Local(zero, line, 1))
        return parts

    def sparse(self, X: np.ndarray) -> "csr_array":
        """`parts` side by side."""
        from scipy.sparse import csr_array, hstack

        return csr_array(hstack([part.sparse() for part in self.parts(X)], format="csr"))

    def mixing(self) -> np.ndarray:
        """What makes `columns` of the parts: (columns of `sparse`, lines + Σ curves)."""
        width, starts = 0, []
        for j in range(len(self.centre)):
            starts.append(width)
            width += len(self.curves[j].line) if j in self.curves else 1
        matrix, column = np.zeros(
            (width, len(self.centre) + sum(c.turn.shape[1] for c in self.curves.values()))
        ), len(self.centre)
        for j, start in enumerate(starts):
            if j not in self.curves:
                matrix[start, j] = 1.0
                continue
            basis = self.curves[j]
            end, size = start + len(basis.line), basis.turn.shape[1]
            matrix[start:end, j], matrix[start:end, column : column + size] = basis.line, basis.turn
            column += size
        return matrix


def design(X: np.ndarray, knots, penalty: str, linear=(), weights=None) -> Design:
    """The basis of an additive model of the columns of X (n, d).

    Args:
        knots: of every curve, one number or one for each column.
        linear: the columns that enter as straight lines, beside those with fewer than 4 distinct
            values.
        weights: (n,) or None; knots do not depend on them.
    """
    knots, curves = np.broadcast_to(knots, X.shape[1]), {}
    for j in (j for j in range(X.shape[1]) if j not in linear):
        if len(np.unique(X[:16, j])) >= 4 or len(np.unique(X[:, j])) >= 4:
            curves[j] = curve(X[:, j], knots[j], penalty)
    centre = np.average(X, axis=0, weights=weights)
    scale = np.sqrt(np.average((X - centre) ** 2, axis=0, weights=weights))
    return Design(curves, centre, np.where(scale > 0, scale, 1.0))


def smooth_moments(basis: Design, X: np.ndarray, y: np.ndarray, weights=None) -> Moments:
    """The moments of [columns, y] about their mean.

    Many rows are added up as the scatter of B-splines, four numbers a row; they are well
    conditioned, and y is centred first. Where the residual is so small that the scatter of y has
    not its digits, by QR.

    Cost: O(16 n) for each pair of curves, or 2 n p² by QR.
    """
    mix, p = basis.mixing(), basis.mixing().shape[1] + 1
    if len(y) * p <= DENSE:
        return moments(basis.columns(X), y, weights)
    total = float(len(y)) if weights is None else float(weights.sum())
    level, zero = np.average(y, weights=weights), np.zeros(len(y), int)
    parts = [*basis.parts(X), Local(zero, (y - level)[None], 1)]
    blocks = {(i, j): _weighted_products(a, b, weights) for i, a in enumerate(parts)
              for j, b in enumerate(parts) if i <= j}
    scatter = np.block([[blocks[i, j] if i <= j else blocks[j, i].T for j in range(len(parts))]
                        for i in range(len(parts))])
    ones = Local(zero, np.ones((1, len(y))), 1)
    mean = np.concatenate([_weighted_products(part, ones, weights)[:, 0] for part in parts]) / total
    scatter -= total * np.outer(mean, mean)
    mix_all = np.block([[mix, np.zeros((len(mix), 1))], [np.zeros((1, p - 1)), np.ones((1, 1))]])
    values, vectors = np.linalg.eigh(scatter)
    factor = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T @ mix_all
    root = np.triu(np.linalg.qr(factor, mode="r"))
    root = np.concatenate([root, np.zeros((p - len(root), p))])
    if root[-1, -1] ** 2 <= DIGITS * (root[:, -1] ** 2).sum():
        return moments(basis.columns(X), y, weights)
    return Moments(total, np.append(mean[:-1] @ mix, level + mean[-1]), root)
