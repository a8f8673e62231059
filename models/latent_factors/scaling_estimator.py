"""The scikit-learn estimator of multidimensional scaling."""

from dataclasses import KW_ONLY, dataclass

import jax
import numpy as np

from probml import MAP, DataError, Fit
from probml.engines.engine import Engine
from probml.estimators.estimator import Estimator, absent
from probml.estimators.rules import (
    ENGINE,
    FLAG,
    PARTS,
    SEED,
    STARTS,
    Seed,
    check,
    one_of,
    parameter,
)
from probml.models.latent_factors.scaling import (
    GUESS,
    NOISES,
    classical_scaling,
    multidimensional_scaling,
    on_axes,
    square,
)

ROUNDS = 20  # of points and noise in turn, at the most
TINY = 1e-12  # of a distance that has a logarithm


@dataclass(eq=False, repr=False)
class MultidimensionalScaling(Estimator):
    """Points in few dimensions from distances, scikit-learn's MDS (metric) as a model; pairs may be
    missing (NaN).

    The function is probml.models.multidimensional_scaling, in units of the distances' root mean
    square; the optimisation starts at classical_scaling.

    Args:
        n_components: dimensions.
        noise: "normal": least Σ (d − δ)², the raw stress; "lognormal": of the logarithms.
        dissimilarity: "euclidean": X has rows, whose distances are measured (of rows with missing
            cells those of the cells that both have, scaled up); "precomputed": X has distances.
        n_init: starts, the first at classical scaling, others at random; the best is used.
        prior: the function's weak priors; False: maximum likelihood, scikit-learn's.
        random_state: seed of the starts; None is 0.
        engine: an engine's value; by default MAP(prior=prior).

    Attributes:
        embedding_ (n, n_components), centred, on its principal axes; classical_, the points of
        classical scaling; stress_, Σ over observed pairs of (d − δ)²; stress1_, √(stress_ / Σ d²),
        Kruskal's; noise_, σ; dissimilarity_matrix_; n_iter_, converged_, n_features_in_, fit_: the
        probml Fit of points at noise_, distances over their root mean square, `unit_`.

    Examples:
        >>> import numpy as np
        >>> from probml.models import MultidimensionalScaling
        >>> distances = np.array([[0.0, 3.0, 4.0], [3.0, 0.0, 5.0], [4.0, 5.0, 0.0]])
        >>> scaling = MultidimensionalScaling(2, dissimilarity="precomputed", prior=False)
        >>> points = scaling.fit_transform(distances)
        >>> print(np.linalg.norm(points[1] - points[2]).round(1))
        5.0
    """

    n_components: int = parameter(2, PARTS)
    _: KW_ONLY
    noise: str = parameter("normal", one_of(*NOISES))
    dissimilarity: str = parameter("euclidean", one_of("euclidean", "precomputed"))
    n_init: int = parameter(4, STARTS)
    prior: bool = parameter(True, FLAG)
    random_state: Seed = parameter(None, SEED)
    engine: Engine | None = parameter(None, ENGINE)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.dissimilarity == "precomputed"
        return tags

    def fit(self, X, y=None):
        """Learn from rows or distances X; y is ignored, present for scikit-learn's convention.

        Raises:
            ModelError, DataError, ValueError: a parameter or a cell that cannot be used, by name;
                points that no distances connect, or that are all at one place.
        """
        check(self)
        d = self._distances(X)
        first, second = np.triu_indices(len(d), 1)
        observed = ~np.isnan(d[first, second])
        first, second = first[observed], second[observed]
        measured = d[first, second]
        self.classical_ = classical_scaling(d, self.n_components)
        self.unit_ = float(np.sqrt((measured**2).mean())) if measured.size else 0.0
        if not self.unit_ > 0:
            raise DataError("MultidimensionalScaling: all distances are 0, so all points coincide. "
                            "Give at least one distance above 0")
        if self.noise == "lognormal" and (measured == 0).any():
            pair = int(np.argmax(measured == 0))
            raise DataError(f"MultidimensionalScaling(noise='lognormal'): the points {first[pair]} "
                            f"and {second[pair]} have the distance 0, which has no logarithm. Drop "
                            f"one of the two points, or use noise='normal'")
        pairs = {"first": first, "second": second, "distance": measured / self.unit_}
        random, initial = np.random.default_rng(self._seed()), self.classical_ / self.unit_
        # no two points at one place: there their distance has no direction
        starts = [initial + 1e-4 * random.standard_normal(initial.shape),
                  *(random.standard_normal(initial.shape) for _ in range(self.n_init - 1))]
        self.fit_, position, variance, self.n_iter_ = min(
            (self._modes(pairs, start) for start in starts), key=lambda fitted: fitted[2])
        self.converged_ = self.fit_.converged
        self.embedding_ = on_axes(position) * self.unit_
        self.dissimilarity_matrix_ = d
        fitted = np.linalg.norm(self.embedding_[first] - self.embedding_[second], axis=1)
        self.stress_ = float(((measured - fitted) ** 2).sum())
        self.stress1_ = float(np.sqrt(self.stress_ / (measured**2).sum()))
        self.noise_ = float(np.sqrt(variance)) * (self.unit_ if self.noise == "normal" else 1.0)
        return self

    def _modes(self, pairs: dict[str, np.ndarray],
               position: np.ndarray) -> tuple[Fit, np.ndarray, float, int]:
        """(fit, points, σ², iterations): points at their mode given σ², and σ² at its given them,
        in turn, since engines look for no joint mode of many members beside what they share."""
        model = multidimensional_scaling(points=len(position), k=self.n_components,
                                         noise=self.noise)
        engine, rows = self.engine or MAP(prior=bool(self.prior)), len(pairs["distance"])
        variance, steps = 0.01, 0
        for _ in range(ROUNDS if self.prior else 1):  # without a prior σ² moves no point
            # groups far apart, beside which distances within them have no digits in float32
            with jax.enable_x64(True):
                fit = model.fit({**pairs, "variance": variance}, engine, seed=self._seed(),
                                start={"position": position})
            position = np.asarray(fit.params["position"], float)
            steps += max(fit.iterations, 1)
            fitted = np.linalg.norm(position[pairs["first"]] - position[pairs["second"]], axis=1)
            resid = (pairs["distance"] - fitted if self.noise == "normal"
                     else np.log(pairs["distance"] / np.maximum(fitted, TINY)))
            previous, variance = variance, (float(resid @ resid) + GUESS**2 * bool(self.prior)) / (
                rows + 3.0 * bool(self.prior))
            if abs(variance - previous) <= 1e-4 * previous:
                break
        return fit, position, variance, steps

    def fit_transform(self, X, y=None):
        """The points of rows or distances X, (n, n_components). Others are placed by fitting them
        together with these."""
        return self.fit(X).embedding_

    predict_proba = absent("predict_proba", "use embedding_ for the coordinates of the points")

    def _distances(self, X) -> np.ndarray:
        X = self._numbers(X, reset=True).astype(float)
        if self.dissimilarity == "precomputed":
            return square(X, "MultidimensionalScaling")
        from sklearn.metrics.pairwise import nan_euclidean_distances

        if len(X) < 2:
            raise DataError("MultidimensionalScaling: expected at least 2 rows, got n_samples = "
                            f"{len(X)}. Give more rows")
        # far from 0 the distances would lose their digits
        return square(nan_euclidean_distances(X - np.nanmean(X, 0)), "MultidimensionalScaling")
