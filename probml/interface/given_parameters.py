"""Fits at given parameters: nothing is fitted, the parameters are checked against the structure of
the model; of a model with inputs, whose shapes come with data, at each query."""

import functools
import inspect
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from probml.dataset import dataset, read
from probml.dataset.coding.indices import REFUSE, bounds
from probml.errors import ModelError, counted, listed, shortly
from probml.fits import saving
from probml.interface.fit import Fit, as_pytree
from probml.interface.functions.read_function import read_function
from probml.interface.functions.readings import site_values
from probml.interface.functions.replay import lacks_rows
from probml.interface.record import refuse_precision_loss
from probml.language.given import as_mapping, as_numbers
from probml.language.language import Bound
from probml.language.markov_chain import check_distributions
from probml.language.renamed import by_old_names
from probml.numerics.precision import in_its_own
from probml.queries.simulation import input_rows
from probml.structure.structure import Structure
from probml.structure.trace import check_chains, check_covariances, trace
from probml.typing import ArrayLike, SiteValues


def fit_at(model: Bound, params: SiteValues, labels: Mapping[str, tuple]) -> Fit:
    """See Model.at."""
    names = {}
    for name, given in labels.items():
        if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
            raise ModelError(f"at(labels=...): the labels of '{name}' are {given!r:.60}, expected "
                             "a tuple with one label for each state, such as ('no', 'yes')")
        names[name] = given = tuple(given)
        if twice := [label for i, label in enumerate(given) if label in given[:i]]:
            raise ModelError(f"at(labels=...): '{name}' has the label {twice[0]!r} twice, "
                             f"{listed(given)}. Make all its labels different")
    point = {name: as_numbers(value, f"at(params): '{name}'") for name, value in params.items()}
    if model.inputs or lacks_rows(model):
        return _Deferred(model, point, {}, names=names)
    return _checked_fit(trace(model, {}), Fit(model, point, {}, names=names))


def _checked_fit(structure: Structure, fit: Fit) -> Fit:
    """A Fit at given parameters, checked against the structure."""
    # computed anew: see Fit.params
    model = structure.model
    values = site_values(model.generative, fit.point) if model.is_joint else fit.point
    point = {name: value for name, value in values.items() if name not in structure.derived}
    names = {**structure.labels, **fit.names}
    _check_params(structure, point)
    _check_labels(structure, names)
    check_chains(structure, point)
    check_covariances(structure, point)
    return Fit(fit.model, point, fit.shapes, names=names, learnt=fit.learnt)


@dataclass(frozen=True, eq=False, repr=False)
class _Deferred(Fit):
    """A Fit at known parameters of a model with inputs: shapes are known with the data of each
    query.

    Attributes:
        acted: site → its value by an intervention, checked when shapes are known.
    """

    acted: SiteValues = field(default_factory=dict)

    @property
    def params(self) -> dict[str, ArrayLike]:
        return by_old_names(self.point, self.model.renamed)

    @property
    def structure(self) -> Structure:
        """The structure as far as it is known without data."""
        return trace(self.model)

    def _read(self, data: object, rows: int | None = None, steps: int | None = None,
              unknown: str = REFUSE, simulated: bool = False) -> dataset.Data:
        model, values, *_ = read_function(self.model, data, self.point, simulated)
        if simulated and isinstance(data, Mapping):  # of inputs, with a value a row if it has rows
            inputs = {name: values[name] for name in model.inputs if name in values}
            rows = None if model.is_joint else input_rows(model, inputs, rows)[1]
        parsed = read.read(model, values, self.names, rows, None, steps, unknown)
        return refuse_precision_loss(parsed, self.point)

    def _of(self, data: dataset.Data) -> Fit:
        fit = _checked_fit(data.structure, replace(self, model=data.model, shapes=data.shapes))
        return fit.do(self.acted) if self.acted else fit

    def do(self, values: SiteValues) -> Fit:
        """See Fit.do."""
        try:
            known = not lacks_rows(self.model) and bool(trace(self.model).sites)
        except ModelError:
            known = False
        if known:
            return super().do(values)
        # checked with the data of each query
        values = as_mapping(values, "do(values)", "{'smoke': 1}")
        return replace(self, acted={**self.acted, **values})

    def table(self, site: str, data: object = None):
        """See Fit.table.

        Args:
            data: any rows, of which only the shapes and types of inputs are used: needed where the
                model cannot be read without them.
        """
        return super().table(site) if data is None else self._of(self._read(data)).table(site)

    def save(self, path: str | os.PathLike) -> None:
        """See Fit.save."""
        if self.acted:
            raise ModelError(saving.AFTER_INTERVENTION)
        super().save(path)


def _answer_with_data(verb: str):
    """A method of Fit for a _Deferred fit, called on the fit that the data complete."""
    method = getattr(Fit, verb)
    signature = inspect.signature(method)

    @functools.wraps(method)
    def ask(self, *args: object, **kwargs: object):
        bound = signature.bind(self, *args, **kwargs).arguments
        data, unknown = bound.get("data", bound.get("given")), bound.get("unknown", REFUSE)
        if verb == "simulate" and data is None:
            parsed = self._read(bound.get("inputs", {}), bound.get("rows"), bound.get("steps"),
                                unknown, simulated=True)
        else:
            parsed = self._read(data, unknown=unknown)
        return getattr(self._of(parsed), verb)(*args, **kwargs)

    return ask


OF_ROWS = ("log_prob", "predict_proba", "pairs", "forecast", "joint", "predict", "decide",
           "calibration", "decode", "impute", "conditional")
for _verb in (*OF_ROWS, "log_joint", "simulate"):
    setattr(_Deferred, _verb, _answer_with_data(_verb))
in_its_own(_Deferred)
as_pytree(_Deferred)


def _check_params(structure: Structure, params: Mapping[str, np.ndarray]) -> None:
    if missing := [name for name in structure.reaching if name not in params]:
        raise ModelError(f"at(params): the parameter '{missing[0]}' has no value. Give a value of "
                         f"each of the parameters {listed(structure.parameters)}")
    for name, value in params.items():
        if name not in structure.parameters:
            node = structure.sites.get(name)
            raise ModelError(f"at(params): '{name}' is not a parameter of the model. Use the "
                             f"parameters {listed(structure.parameters)}" + (
                                 f". '{name}' is discrete and summed out; fix it by "
                                 f"numpyro.handlers.condition(function, data={{'{name}': 1}})"
                                 if node is not None and node.discrete and not node.rows else ""))
        site = structure.sites[name]
        if value.shape != site.shape:
            raise ModelError(f"at(params): '{name}' has shape {value.shape}, expected "
                             f"{site.shape}. Give a value of this shape")
        if site.domain.sums_to_one:
            check_distributions(f"at(params): '{name}'", value)
        if not np.isfinite(value).all() or not site.domain.holds(value):
            raise ModelError(f"at(params): the value of '{name}' is {shortly(value.tolist())}, "
                             "which is not finite or outside the support (the set of possible "
                             f"values) of '{name}'. Give a value in this set: "
                             f"{site.domain.description}")


def _check_labels(structure: Structure, labels: Mapping[str, tuple]) -> None:
    for name, given in labels.items():
        if name in structure.indexed:
            index = structure.indexed[name]
            low, high = bounds([index])
            if high is not None and len(given) > high - low + 1:
                raise ModelError(
                    f"at(labels=...): '{name}' indexes {index.description}, which has "
                    f"{counted(index.length, 'entry', 'entries')}; expected at most "
                    f"{counted(index.length, 'different label')}, got {listed(given)}"
                )
            continue
        site = structure.sites.get(name)
        if site is None or not site.states:
            known = [s.name for s in structure.sites.values() if s.states] + [*structure.indexed]
            raise ModelError(f"at(labels=...): '{name}' is neither a site with a finite list of "
                             f"states nor an index. Expected one of {listed(known)}")
        if len(given) != site.states:
            raise ModelError(f"at(labels=...): '{name}' has {counted(site.states, 'state')}; "
                             f"expected {site.states} different labels, got {listed(given)}")
