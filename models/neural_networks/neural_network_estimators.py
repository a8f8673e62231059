"""scikit-learn estimators of multi-layer networks, for classes and for numbers."""

import dataclasses
import warnings
from dataclasses import KW_ONLY, dataclass

import numpy as np

from probml import MAP, DataError, Fit
from probml.engines.engine import Engine
from probml.estimators.estimator import Estimator
from probml.estimators.rules import (
    CLASS_WEIGHT,
    ENGINE,
    SEED,
    SHARE,
    ClassWeight,
    Rule,
    Seed,
    integer,
    number,
    one_of,
    optional,
    parameter,
)
from probml.estimators.validation import check_is_fitted
from probml.models.frames.margins import Margin
from probml.models.frames.standardized import Numeric, Standardized, row_weights
from probml.models.neural_networks.neural_network import ACTIVATIONS, neural_network
from probml.numerics.process.libraries import optax
from probml.posteriors.units import Unit, of_rows, plane

SCALES = (1.0, 1.7, 3.0)  # weight scales among which rows that are held out choose
ROUGH = 3.0  # that of training by an optimiser, which is stopped early instead
# a third of the rows is held out, each once where they are few
FOLDS, MIN_ROWS_FOR_ONE_FOLD = 3, 1000


def _layers(value) -> bool:
    valid = integer(1)[1]
    return valid(value) or isinstance(value, tuple | list) and all(map(valid, value))


LAYERS: Rule = ("an integer of at least 1, or a tuple of several", _layers)
OPTIMIZER: Rule = ("None or an optax optimiser", lambda v: v is None or hasattr(v, "update"))


class _Network(Standardized, Estimator):
    """What both estimators share: layers, training, columns that are always standardised."""

    fit_intercept = True

    def _engine(self):
        if self.engine is not None:
            return self.engine
        training = {name: getattr(self, name) for name in ("batch_rows", "held_out", "patience")
                    if getattr(self, name)}
        return MAP(optimizer=self.optimizer, steps=self.steps, **training)

    def _layers(self) -> tuple[int, ...]:
        return tuple(map(int, self.hidden)) if isinstance(self.hidden, tuple | list) else (
            int(self.hidden),
        )

    def _scale(self) -> float | str:
        return "each" if self.weight_scale is None else float(self.weight_scale)

    def _draw(self, d: int, width: int) -> dict[str, np.ndarray]:
        """A start: weights from their prior, so that no two hidden units are alike."""
        random, start = np.random.default_rng(self._seed()), {}
        for i, units in enumerate((*self._layers(), width)):
            start[f"weights{i}"] = random.normal(size=(d, units)) * self.weight_scale_ / np.sqrt(d)
            start[f"bias{i}"] = np.zeros(units)
            d = units
        return start

    def _train(self, model, data, weights, width: int) -> None:
        counts = row_weights(weights)
        if self.weight_scale is None:
            counts = np.asarray(weights, float)  # as for the folds, so that there is one program
        self.weight_scale_ = float(self.weight_scale or ROUGH)
        if self.weight_scale is None and self.optimizer is None:
            self.weight_scale_ = self._choose(model, data, counts, width)
        start = self._draw(data["x"].shape[1], width)
        fit = model.fit({**data, **self._prior()}, self._engine(), weights=counts,
                        seed=self._seed(), start=start)
        self._found(fit)
        self.held_out_ = fit.held_out

    def _parameter_units(self, fit: Fit) -> dict[str, Unit]:
        """Units of the parameters: those of the columns in the first layer, those of y in the
        last."""
        last = len(self._layers())
        if not last:
            units = plane("weights0", "bias0", self._centre, self._unit, 2, self._level,
                          self._spread, self._column_names)
        else:
            units = plane("weights0", "bias0", self._centre, self._unit, 2,
                          names=self._column_names)
            units |= {f"weights{last}": Unit(self._spread),
                      f"bias{last}": Unit(self._spread, self._level)}
        units |= {"variance": Unit(self._spread**2)} if "variance" in fit.point else {}
        return units | of_rows(x=(self._centre, self._unit), y=(self._level, self._spread))

    def _prior(self) -> dict[str, np.ndarray]:
        return {"prior_scale": np.array([self.weight_scale_])} if self.weight_scale is None else {}

    def _choose(self, model, data, weights, width: int) -> float:
        """The weight scale under which rows that are held out are most probable; those that are
        held out count 0, in one program."""
        n = len(weights)
        if n < 2 * FOLDS:
            return SCALES[0]
        random, codes = np.random.default_rng(self._seed()), data["y"] if width > 1 else np.zeros(n)
        fold = np.empty(n, int)
        fold[np.lexsort((random.random(n), codes))] = np.arange(n) % FOLDS  # classes in proportion
        scores = np.zeros(len(SCALES))
        for i, self.weight_scale_ in enumerate(SCALES):
            start = self._draw(data["x"].shape[1], width)
            for held_fold in range(FOLDS if n < MIN_ROWS_FOR_ONE_FOLD else 1):
                with warnings.catch_warnings():
                    # a climb that has not ended is judged as the others
                    warnings.simplefilter("ignore")
                    fit = model.fit({**data, **self._prior()}, MAP(), weights=weights
                                    * (fold != held_fold), seed=self._seed(), start=start)
                log_probs = np.asarray(fit.log_prob(data))
                scores[i] += weights[fold == held_fold] @ log_probs[fold == held_fold]
        return SCALES[int(np.argmax(scores))]

    @property
    def coefs_(self) -> list[np.ndarray]:
        """The weights of each layer, of standardised columns."""
        return [np.asarray(self.fit_.params[f"weights{i}"]) for i in range(len(self._layers()) + 1)]

    @property
    def intercepts_(self) -> list[np.ndarray]:
        """The biases of each layer."""
        return [np.asarray(self.fit_.params[f"bias{i}"]) for i in range(len(self._layers()) + 1)]


@dataclass(eq=False, repr=False)
class NeuralNetworkClassifier(_Network, Margin):
    """A multi-layer network that predicts classes: p(class | x) is the softmax of its last layer.

    The function is probml.models.neural_network; columns are standardised. By default the log
    posterior is optimised by L-BFGS on all rows; optimizer=optax.adam(1e-3), batch_rows=128,
    held_out=0.1, patience=10 trains on mini-batches with early stopping. With
    engine=probml.Laplace() or NUTS() the weights have a posterior, over which probabilities are
    averaged.

    Args:
        hidden: units of each hidden layer.
        activation: "tanh", "relu", "logistic", "gelu" or "silu".
        weight_scale: prior standard deviation of the sum that enters a unit, for standardised
            inputs; smaller is smoother. None: of 1, 1.7 and 3 the one under which held-out rows are
            most probable (in three folds; of 1000 rows or more, one); 3 with an optimizer.
        optimizer, steps, batch_rows, held_out, patience: of probml.MAP.
        class_weight: None, "balanced" or class → weight.
        random_state: seed of the start and of mini-batches; None is 0.
        engine: an engine's value in the place of MAP.

    Attributes:
        classes_, weight_scale_, coefs_, intercepts_ (a list, one for each layer), history_,
        held_out_ (the learning curve of the rows held out, or None), n_iter_, converged_,
        fit_: the probml Fit, whose data are those of `as_data`.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> iris = pd.read_csv(files("probml.data") / "iris.csv")
        >>> X, y = iris[["Petal.Length", "Petal.Width"]], iris["Species"]
        >>> from probml.models import NeuralNetworkClassifier
        >>> network = NeuralNetworkClassifier(hidden=4, random_state=0).fit(X, y)
        >>> round(network.score(X, y), 1)
        1.0
    """

    hidden: int | tuple[int, ...] = parameter((32,), LAYERS)
    _: KW_ONLY
    activation: str = parameter("tanh", one_of(*ACTIVATIONS))
    weight_scale: float | None = parameter(None, optional(number(0.0, above=True)))
    optimizer: "optax.GradientTransformation | None" = parameter(None, OPTIMIZER)
    steps: int | None = parameter(None, optional(integer(1)))
    batch_rows: int | None = parameter(None, optional(integer(1)))
    held_out: float = parameter(0.0, SHARE)
    patience: int | None = parameter(None, optional(integer(1)))
    class_weight: ClassWeight = parameter(None, CLASS_WEIGHT)
    random_state: Seed = parameter(None, SEED)
    engine: Engine | None = parameter(None, ENGINE)

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and labels y (n,).

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell, a label or a weight that cannot
                be used, by name; one class only.
        """
        X, codes, weights = self._balanced(X, y, sample_weight)
        k, x = len(self.classes_), self._frame(X, weights, force=True)
        model = neural_network(states=k, hidden=self._layers(), activation=self.activation,
                               weight_scale=self._scale())
        self._train(model, {"x": x, "y": codes}, weights, k)
        self.fit_ = dataclasses.replace(
            self.fit_, names={**self.fit_.names, "y": tuple(self.classes_.tolist())}
        )
        return self

    def predict_proba(self, X):
        """p(class | row), (n, k); averaged over a posterior, where there is one."""
        check_is_fitted(self, "fit_")
        return self.fit_.predict_proba(self.as_data(X), "y")

    def predict(self, X):
        """The most probable class of every row, as a label."""
        return self.classes_[self.predict_proba(X).argmax(1)]


@dataclass(eq=False, repr=False)
class NeuralNetworkRegressor(_Network, Numeric):
    """A multi-layer network that predicts a number: y ~ N(network(x), σ²); columns and y are
    standardised.

    The function is probml.models.neural_network; training and engines as in
    NeuralNetworkClassifier.

    Args:
        noise: σ in units of y; None: learnt.
        hidden, activation, weight_scale, optimizer, steps, batch_rows, held_out, patience,
            random_state, engine: as there.

    Attributes:
        weight_scale_, coefs_, intercepts_, noise_: σ in units of y, history_, held_out_, n_iter_,
        converged_, fit_, whose data are those of as_data.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> mcycle = pd.read_csv(files("probml.data") / "mcycle.csv")
        >>> from probml.models import NeuralNetworkRegressor
        >>> network = NeuralNetworkRegressor(hidden=8, random_state=0)
        >>> network = network.fit(mcycle[["times"]], mcycle["accel"])
        >>> round(network.score(mcycle[["times"]], mcycle["accel"]), 1)
        0.8
    """

    hidden: int | tuple[int, ...] = parameter((32,), LAYERS)
    _: KW_ONLY
    noise: float | None = parameter(None, optional(number(0.0, above=True)))
    activation: str = parameter("tanh", one_of(*ACTIVATIONS))
    weight_scale: float | None = parameter(None, optional(number(0.0, above=True)))
    optimizer: "optax.GradientTransformation | None" = parameter(None, OPTIMIZER)
    steps: int | None = parameter(None, optional(integer(1)))
    batch_rows: int | None = parameter(None, optional(integer(1)))
    held_out: float = parameter(0.0, SHARE)
    patience: int | None = parameter(None, optional(integer(1)))
    random_state: Seed = parameter(None, SEED)
    engine: Engine | None = parameter(None, ENGINE)

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and y (n,).

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell or a weight that cannot be used,
                by name.
        """
        X, y, weights, _ = self._read(X, y, sample_weight)
        if len(y) < 2 and self.noise is None:
            raise DataError("n_samples=1: the standard deviation of the noise cannot be estimated "
                            "from one row. Give more rows, or give this standard deviation, such "
                            "as noise=1.0")
        x = self._frame(X, weights, force=True)
        self._level = float(np.average(y, weights=weights))
        self._spread = float(np.sqrt(np.average((y - self._level) ** 2, weights=weights))) or 1.0
        noise = None if self.noise is None else float(self.noise) / self._spread
        settings = {"hidden": self._layers(), "activation": self.activation,
                    "weight_scale": self._scale(), "noise": noise}
        self._train(neural_network(**settings), {"x": x, "y": (y - self._level) / self._spread},
                    weights, 1)
        self.noise_ = float(self.noise) if self.noise is not None else self._spread * float(
            np.sqrt(self.fit_.params["variance"])
        )
        return self

    def predict(self, X):
        """The mean of y, (n,); averaged over a posterior, where there is one."""
        check_is_fitted(self, "fit_")
        return self._level + self._spread * np.asarray(self.fit_.predict(self.as_data(X), "y"),
                                                       float)
