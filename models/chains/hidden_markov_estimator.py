"""The scikit-learn estimator of hidden Markov models, with the names and manners that users of
hmmlearn know."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from probml import EM, VB, DataError, Fit, ModelError, Refusal
from probml.engines.engine import Engine
from probml.estimators.estimator import keep_few_rows, make_updatable, n_parameters
from probml.estimators.information_criteria import choose_lowest, criteria
from probml.estimators.rules import (
    ENGINE,
    FLAG,
    SEED,
    STARTS,
    Rule,
    Seed,
    check,
    check_count,
    hold,
    integer,
    number,
    numbers,
    one_of,
    optional,
    parameter,
    sizes,
)
from probml.estimators.validation import check_is_fitted
from probml.models.chains.hidden_markov import EMISSIONS, canonical_emission, hidden_markov
from probml.models.chains.hidden_markov_names import ByName
from probml.models.chains.sequences import OfEmissions
from probml.models.frames.clusters import clusters
from probml.models.frames.ties import warn_of_ties_in_array
from probml.models.frames.units import moments, rates
from probml.models.mixtures.weights import WEIGHTS
from probml.posteriors.units import Unit
from probml.typing import SiteValues

EMISSION: Rule = (one_of(*EMISSIONS)[0],
                  lambda value: isinstance(value, str) and canonical_emission(value) in EMISSIONS)
ALGORITHM: Rule = one_of("viterbi", "map")
START: Rule = ("None or a mapping of names to values",
               lambda value: value is None or isinstance(value, Mapping))


@dataclass(eq=False, repr=False)
class HiddenMarkov(ByName, OfEmissions):
    """A hidden Markov model of one or many sequences of any lengths; missing cells are NaN. The
    model is probml.models.hidden_markov.

    X is one array of all steps, (n_steps, d), with the `lengths` of the sequences in it, or a list
    of arrays (steps_i, d), for which answers are lists too. An array of one axis has one column.
    Answers about a Series or a DataFrame have its index, or its column of dates.

    What differs from hmmlearn: one class for all emissions; the default is the mode under a weak,
    proper prior (prior=False is the likelihood); `tol` is the gain of an iteration per step; lists
    of sequences, missing cells and states known in part are taken as they are.

    Args:
        n_states: states, k; of several, such as range(2, 5), the best by `criterion` is used.
        emission: "normal" (a standard deviation a column), "full", "tied", "spherical", "tied
            diagonal" or "tied spherical" (other covariances; hmmlearn's "diag" is "normal"),
            "categorical" (symbols 0, 1, …), "bernoulli" (0 or 1) or "poisson" (counts).
        initial: "free", or "stationary": the chain has run for long when a sequence begins.
        n_symbols: size of the alphabet of a categorical emission; None: the largest symbol plus 1,
            or, of codes far larger than the sequences are long, as many as occur.
        n_init: starts, run as one program; the best is used. None: as many as about a second buys,
            see EM.
        tol: stop when an iteration gains less than this a step.
        max_iter: EM iterations at the most; one that stops there warns and leaves converged_ False.
        algorithm: of predict: "viterbi", the most probable path, or "map", the most probable state
            of each step.
        start: values to begin from, some of the model's: {"transition": (k, k), "mean": (k, d),
            ...}.
        random_state: seed of the starts and of sample(); None is 0, a fit repeats.
        prior: posterior mode (True) or maximum likelihood (False).
        accelerate: extrapolate EM (SQUAREM), fewer passes to the same point.
        centre: prior centre of the means, in the data's units; None is the mean of each column.
        scale: prior standard deviation of a state's, in the data's units; None is each column's
            within k-means clusters of the steps, as many as states.
        rate: pseudo-steps of the Gamma prior of Poisson rates; None puts its mode at the mean count
            of each column.
        concentration, sticky, alpha, mean_scale, shape, first: the prior, see hidden_markov.
        transitions: "even"; "sparse" or "sticks", priors under which states that the sequences do
            not ask for empty themselves (see hidden_markov): n_states is then the most there can
            be, and the engine is VB. For emissions other than "normal".
        engine: an engine's value instead of the EM, or VB, that these arguments describe.
        criterion: of several n_states the lowest "bic" (Schwarz 1978, of the steps) or "aic"
            (Akaike 1974) is used.

    Attributes, of which those with a name of hmmlearn's may be set, as starting values of the next
    fit, or all of them in its place:
        n_components, n_features, monitor_: as hmmlearn's;
        startprob_ (k,), transmat_ (k, k), row i is p(next | now = i); means_ (k, d) and covars_:
        variances (k, d) for "normal", (k, d, d) full, (d, d) tied, (k,) spherical, (d,) tied
        diagonal, () tied spherical; emissionprob_ (k, n_symbols) or, for "bernoulli", (k, d);
        lambdas_ (k, d), Poisson rates; n_symbols_, symbols_ (of the columns of emissionprob_),
        converged_, n_iter_, history_ (the objective of every iteration), n_parameters_
        (k − 1 first, k(k − 1) transition probabilities, and those of the emission),
        n_observations_, the steps that were fitted, by weight; fit_: the
        probml Fit; of several n_states: n_states_, the chosen one, fits_ (states → Fit) and table_,
        a DataFrame with n_states, loglik, parameters, aic, bic, converged.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> quakes = pd.read_csv(files("probml.data") / "earthquakes.csv")
        >>> from probml.models import HiddenMarkov
        >>> chain = HiddenMarkov(n_states=2, emission="poisson", n_init=5).fit(quakes["count"])
        >>> print(chain.transmat_.round(1))
        [[0.9 0.1]
         [0.1 0.9]]
        >>> print(*chain.predict(quakes["count"])[:10])
        0 0 0 0 0 1 1 1 1 1
    """

    _title: ClassVar[str] = "Hidden Markov model"

    n_states: int | Sequence[int] = parameter(2, sizes(1))
    _: KW_ONLY
    emission: str = parameter("normal", EMISSION)
    initial: str = parameter("free", one_of("free", "stationary"))
    n_symbols: int | None = parameter(None, optional(integer(1)))
    n_init: int | None = parameter(None, optional(STARTS))
    max_iter: int = parameter(1000, integer(1))
    tol: float = parameter(1e-7, number(0.0))
    algorithm: str = parameter("viterbi", ALGORITHM)
    start: SiteValues | None = parameter(None, START)
    random_state: Seed = parameter(None, SEED)
    prior: bool = parameter(True, FLAG)
    accelerate: bool = parameter(True, FLAG)
    concentration: ArrayLike = parameter(1.0, numbers(0.0))
    sticky: float = parameter(0.0, number(0.0))
    alpha: float = parameter(1.0, number(0.0, above=True))
    centre: ArrayLike | None = parameter(None, optional(numbers(-np.inf)))
    mean_scale: float = parameter(1000.0, number(0.0, above=True))
    scale: ArrayLike | None = parameter(None, optional(numbers(0.0)))
    shape: float = parameter(2.0, number(0.0, above=True))
    rate: float | None = parameter(None, optional(number(0.0, above=True)))
    first: ArrayLike | None = parameter(None, optional(numbers(0.0)))
    transitions: str = parameter("even", one_of(*WEIGHTS))
    engine: Engine | None = parameter(None, ENGINE)
    criterion: str = parameter("bic", one_of("bic", "aic"))

    # Fitting

    def fit(self, X, y=None, lengths=None, sample_weight=None):
        """Learn from sequences.

        Args:
            X: all steps, (n_steps, d) or (n_steps,), or a list of such arrays, one a sequence; NaN
                is missing.
            y: states where they are known, NaN elsewhere, as long as X; a list where X is one.
                None: no state is known.
            lengths: steps of each sequence in X; None is one sequence. hmmlearn's fit(X, lengths)
                is understood, too.
            sample_weight: one number a sequence; weight 2 equals the sequence twice.

        Raises:
            ModelError: a parameter, by name. DataError: lengths, sequences, cells or states that
                cannot be used, by name.
        """
        check(self)
        y, lengths = self._second(X, y, lengths)
        steps = self._steps(X, lengths, reset=True)
        numbers = self._numbers_of_states()
        if numbers[-1] > len(steps.values):
            raise DataError(
                f"HiddenMarkov(n_states={self.n_states}): the number of states must not be more "
                f"than the number of time steps of X, {len(steps.values)}. Use fewer states"
            )
        if sample_weight is not None and np.shape(sample_weight) != (len(steps.lengths),):
            raise DataError(f"sample_weight has the shape {np.shape(sample_weight)}, expected "
                            f"({len(steps.lengths)},), one number for each sequence. Give each "
                            "sequence one weight")
        self._refuse_unconjugate()
        padded = self._padded(steps)
        if y is None and numbers[-1] > 1 and self.emission not in ("categorical", "bernoulli",
                                                                     "poisson"):
            warn_of_ties_in_array(steps.values, self._column,
                                  "Drop such a column, or use emission='categorical', 'bernoulli' "
                                  "or 'poisson' if the column is categorical, 0/1 or a count")
        if y is not None:
            padded["z"] = self._states(y, steps)
        scale = len(steps.values) / len(steps.lengths)  # EM's tolerance is a sequence's
        options: dict[str, Any] = {"max_iterations": self.max_iter, "tolerance": self.tol * scale,
                                   "restarts": self.n_init}
        default = (EM(prior=bool(self.prior), accelerate=self.accelerate, **options)
                   if self.transitions == "even" else VB(**options))
        engine, start, seed = self.engine or default, self._start_values(), self._seed()
        if start and len(numbers) > 1:
            raise ModelError("start= needs one number of states, but "
                             f"n_states={self.n_states!r} gives several. Give one number, such as "
                             "n_states=3, or omit start=")
        fits = {k: self._model(k).fit(padded | self._measured_priors(steps, sample_weight, k),
                                      engine, weights=sample_weight, seed=seed, start=start)
                for k in numbers}
        self.fit_ = fits[numbers[0]]
        total = float(np.sum(steps.lengths if sample_weight is None
                             else steps.lengths * np.asarray(sample_weight, float)))
        if not isinstance(self.n_states, Integral):
            self._choose(fits, padded, sample_weight, total)
        else:
            keep_few_rows(self, self.fit_, padded, sample_weight)
        name = getattr(X, "name", None)  # of a Series
        self._name_of_series = () if name is None else (str(name),)
        self.fit_ = replace(self.fit_, units=self._parameter_units(self.fit_))
        self.n_observations_ = int(total) if total == int(total) else total
        self.n_iter_, self.converged_, self.history_ = (
            max(self.fit_.iterations, 1), self.fit_.converged, np.asarray(self.fit_.history)
        )
        return self

    def _refuse_unconjugate(self) -> None:
        if (self.engine is None and self.transitions != "even"
            and canonical_emission(self.emission) == "normal"):
            raise Refusal(
                f"HiddenMarkov(transitions={self.transitions!r}, emission={self.emission!r}): "
                "these arguments cannot be combined. Such transitions are fitted by variational "
                "Bayes (VB), which needs closed-form updates, and this emission has none. Use "
                "emission='full', 'categorical', 'bernoulli' or 'poisson', or use "
                "transitions='even'")

    def _parameter_units(self, fit: Fit) -> dict[str, Unit]:
        """Entries of what states emit by the columns they are of, behind the states."""
        names, units = self._column_names or self._name_of_series, {}
        for site, value in fit.point.items():
            axes = [axis for axis, size in enumerate(np.shape(value)) if size == len(names)]
            if names and site not in ("initial", "transition") and set(axes) - {0}:
                units[site] = Unit(names={axis: names for axis in axes if axis > 0})
        return units

    def partial_fit(self, X, y=None, lengths=None, sample_weight=None):
        """Learn from further sequences. The first ones are fitted by `fit`, here or before; each
        later call is a step of stepwise EM, or of stochastic variational Bayes, see Fit.update:
        what these sequences show counts (their share of all so far)^0.6. The prior stays as the
        first ones set it, and so does the alphabet: n_symbols= makes it larger.

        Args: those of fit.

        Raises:
            ModelError: several n_states. Refusal: an engine that takes no steps.
            DataError: after fit to more than a million numbers, or from a file.
        """
        check(self)
        y, lengths = self._second(X, y, lengths)
        if not isinstance(self.n_states, Integral):
            raise ModelError("partial_fit needs one number of states, but "
                             f"n_states={self.n_states!r} gives several. Give one number, such as "
                             "n_states=3")
        if not hasattr(self, "fit_"):
            self.fit_ = make_updatable(self.fit(X, y, lengths=lengths, sample_weight=sample_weight),
                                       lambda: (self.fit_, self._further(X, y, lengths),
                                                 sample_weight))
            return self
        fit = make_updatable(self).update(self._further(X, y, lengths), weights=sample_weight)
        self.fit_, self.n_iter_, self.converged_ = fit, fit.iterations, fit.converged
        self.history_ = np.asarray(fit.history)
        return self

    def _further(self, X, y, lengths) -> dict[str, ArrayLike]:
        """Sequences like those that were fitted, as data."""
        steps = self._steps(X, lengths, reset=False)
        return self._padded(steps) | ({} if y is None else {"z": self._states(y, steps)})

    def _model(self, k, **prior):
        is_symbols, priors = self.emission == "categorical", {
            name: "each" if getattr(self, name) is None else getattr(self, name)
            for name in ("centre", "scale", "rate")}
        return hidden_markov(
            k=k,
            d=1 if is_symbols else self.n_features_in_,
            emission=canonical_emission(self.emission),
            initial=self.initial,
            symbols=self.n_symbols_ if is_symbols else 2,
            concentration=self.concentration,
            sticky=self.sticky,
            alpha=self.alpha,
            mean_scale=self.mean_scale,
            shape=self.shape,
            first=self.first,
            transitions=self.transitions,
            **{**priors, **prior},
        )

    def _numbers_of_states(self) -> list[int]:
        return sorted({int(k) for k in np.atleast_1d(self.n_states)})

    def _figures(self) -> dict[str, object]:
        size = getattr(self, "n_states_", 0)
        return super()._figures() | {"parameters": self.n_parameters_,
                                     **self._criteria_of_fit(size, self.n_observations_)}

    def _choose(self, fits: Mapping[int, Fit], data: Mapping, weights, steps: float) -> None:
        """Keep the best number of states by `criterion`; `steps`: of all sequences, each as often
        as its weight says."""
        w = 1.0 if weights is None else np.asarray(weights, float)
        self.table_, self.n_states_ = choose_lowest([
            {"n_states": k, **criteria(float((w * fit.log_prob(data)).sum()), n_parameters(fit),
                                       steps), "converged": fit.converged}
            for k, fit in fits.items()], self.criterion)
        self.fits_, self.fit_ = dict(fits), fits[self.n_states_]

    def _measured_priors(self, steps, weights, k):
        """The prior's centre and scale in units of the columns, as data."""
        if self.emission in ("categorical", "bernoulli"):
            return {}
        weights = (None if weights is None
                   else np.repeat(np.asarray(weights, float), steps.lengths))
        if self.emission == "poisson":
            counts = moments(steps.values, weights).centre
            return {} if self.rate is not None else {"prior_rate": rates(counts, self.shape)}
        # of states of which most are to be empty no clusters are known
        n_groups = k if self.transitions == "even" else 1
        stats = moments(steps.values, weights, clusters(steps.values, n_groups, weights), n_groups)
        measured = {"prior_centre": (self.centre, stats.centre),
                    "prior_scale": (self.scale, stats.within)}
        return {site: value for site, (setting, value) in measured.items() if setting is None}

    # Questions

    def score(self, X, lengths=None):
        """log p(X), summed over all sequences; missing cells are summed out."""
        return float(self.log_prob(X, lengths).sum())

    def log_prob(self, X, lengths=None):
        """log p of each sequence, shape (n,)."""
        _, data = self._asked(X, lengths)
        return np.asarray(self.fit_.log_prob(data))

    def score_samples(self, X, lengths=None):
        """(log p(X), the posteriors of the states), as score and predict_proba give them."""
        steps, data = self._asked(X, lengths)
        return (float(np.sum(self.fit_.log_prob(data))),
                self._by_state(steps, self.fit_.predict_proba(data, "z")))

    def predict_proba(self, X, lengths=None):
        """p(state at t | the whole sequence), shape (n_steps, k), or a list of such."""
        steps, data = self._asked(X, lengths)
        return self._by_state(steps, self.fit_.predict_proba(data, "z"))

    def filter(self, X, lengths=None):
        """p(state at t | the sequence up to t), shape (n_steps, k), or a list of such."""
        steps, data = self._asked(X, lengths)
        return self._by_state(steps, self.fit_.predict_proba(data, "z", given="filtered"))

    @staticmethod
    def _by_state(steps, probabilities):
        return steps.labelled(probabilities, range(np.shape(probabilities)[-1]))

    def predict(self, X, lengths=None):
        """The states 0 … k−1, shape (n_steps,), or a list of such: the most probable path, or with
        algorithm="map" step by step."""
        steps, _, _, states = self._found(X, lengths, self.algorithm)
        return steps.labelled(states, ["state"])

    def decode(self, X, lengths=None, algorithm=None):
        """(How good they are, the states as predict gives them) by `algorithm`, None that of the
        class: of "viterbi", log p(X, paths) summed over the sequences; of "map", the sum over
        steps of the probability of each one's state.

        Raises:
            ModelError: another algorithm.
        """
        algorithm = self.algorithm if algorithm is None else algorithm
        steps, data, padded, states = self._found(X, lengths, algorithm)
        if padded is not None:
            probs = steps.back(padded)
            goodness = sum(part.max(1).sum() for part in (probs if steps.listed else [probs]))
        else:
            goodness = np.sum(self.fit_.log_prob({**data, "z": self._hidden(states, steps)}))
        return float(goodness), steps.labelled(states, ["state"])

    def _found(self, X, lengths, algorithm):
        """The sequences; their data; of "map" each step's probabilities, else None; the states."""
        hold("decode", algorithm=(algorithm, ALGORITHM))
        steps, data = self._asked(X, lengths)
        if algorithm == "map":
            padded = np.asarray(self.fit_.predict_proba(data, "z"))
            return steps, data, padded, padded.argmax(-1)
        return steps, data, None, self.fit_.decode(data, sites=["z"])["z"]

    def forecast(self, X, steps=1, lengths=None):
        """Means, or most probable symbols, of what comes next: (steps, d); of a Series or a
        DataFrame the same, whose dates or numbers of rows go on; of a list a list."""
        check_count("forecast", "steps", steps)
        sequences, data = self._asked(X, lengths)
        values = self._symbols_of(np.asarray(self.fit_.forecast(data, steps=int(steps))["y"]))
        return sequences.ahead(values)

    def sample(self, n_steps=1, random_state=None):
        """A new sequence and its states: (X (n_steps, d), Z (n_steps,)); a categorical X is
        (n_steps, 1)."""
        check_is_fitted(self, "fit_")
        check_count("sample", "n_steps", n_steps)
        simulated = self.fit_.simulate(rows=1, steps=int(n_steps),
                                       seed=self._seed(random_state, "sample"))
        steps = self._symbols_of(np.asarray(simulated["y"][0])).reshape(int(n_steps), -1)
        return steps, np.asarray(simulated["z"][0])

    def aic(self, X, lengths=None):
        """−2 log p(X) + 2 · parameters (Akaike 1974); the lower the better."""
        return criteria(self.score(X, lengths), self.n_parameters_)["aic"]

    def bic(self, X, lengths=None):
        """−2 log p(X) + parameters · log n, n the number of steps (Schwarz 1978); the lower the
        better."""
        n = len(self._asked(X, lengths)[0].values)
        return criteria(self.score(X, lengths), self.n_parameters_, n)["bic"]
