"""What claims stand on: fits of a case, what is true of it, and when two numbers are the same."""

import functools
import itertools
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from enumeration.separable_integral import Unknown

from probml.engines import EM
from probml.interface.fit import Fit
from random_models.brute_force import Truth, mixed, truth
from random_models.case import SEEN, SOFT, Case
from random_models.recipe import finite, states

CLOSE = 1e-8  # of float64, where nothing but the order of sums differs
GRIDS = 5e-6  # where ours or the oracle's integral is one over nodes
LOG_BETA = {"betabinomial", "negative", "zeros"}  # kinds; NumPyro's log of the beta function is rough
SINGLE = 1e-3  # of float32
FEW = EM(max_iterations=4, accelerate=False, tolerance=0.0, restarts=1)


@functools.lru_cache(maxsize=4)
def fit_at_truth(case: Case) -> tuple[Fit, dict[str, Any], Truth]:
    """(the fit at the drawn parameters, its data, what is true of them).

    Raises:
        Unknown: brute force has no answer.
    """
    found = true(case, case.drawn[0])
    return at(case), case.data, found


def at(case: Case, **labels: tuple) -> Fit:
    """The fit at the drawn parameters; those that are finite are unseen."""
    return case.model.at({name: value for name, value in case.drawn[0].items()
                          if name not in case.outside}, labels=labels or None)


def true(case: Case, params: Mapping[str, Any], data: Mapping[str, Any] | None = None,
         without: Collection[str] = ()) -> Truth:
    """What is true at parameters, finite ones summed out."""
    data = case.data if data is None else data
    soft = {name: data[name] for name, word in case.hidden.items()
            if word == SOFT and name in data}
    shown = {name: value for name, value in data.items()
             if name not in case.inputs and name not in soft}
    known = {name: value for name, value in params.items() if name not in case.outside}

    def of(values: Any):
        return truth(case.model, known | values, shown, case.inputs, case.drawn[1], read(case),
                     soft, without)

    if not case.outside:
        return of({})
    sizes = [range(states(site)) for site in case.outside.values()]
    return mixed({joint: of(dict(zip(case.outside, map(np.asarray, joint), strict=True)))
                  for joint in itertools.product(*sizes)})


def short_fit(case: Case, data: object = None, weights: object = None) -> Fit | None:
    """A fit by a few steps of EM from the drawn parameters; None where there is nothing to
    learn."""
    if not case.learnt or not case.data:
        return None
    return fitted(case, FEW, case.data if data is None else data, starting_point(case), weights)


def starting_point(case: Case) -> dict[str, Any]:
    """Where a fit starts: the drawn parameters."""
    return {name: value for name, value in case.drawn[0].items() if name not in case.outside}


def fitted(case: Case, engine: Any, data: Any, start: Any, weights: Any = None) -> Fit:
    """A fit without its warnings.

    Raises:
        Unknown: rows were left out, and of the others no cell of a site is seen, which is refused.
    """
    if isinstance(data, Mapping) and all(np.isnan(np.asarray(data[name], float)).all()
                                         for name in {*case.sites} & {*data}):
        raise Unknown("nothing is observed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return case.model.fit(data, engine, weights=weights, start=start)


def read(case: Case) -> set[str]:
    """The sites and inputs that sites look at."""
    return {p for site in case.recipe["sites"]
            for p in (*site.get("parents", ()), *site.get("adds", ()),
                      *filter(None, (site.get("takes"),)))}


def states_of(case: Case, name: str) -> int:
    return states(case.sites[name])


def digits(case: Case) -> float:
    """How near answers must be: integrals over nodes have fewer digits, and so have the kinds whose
    density NumPyro computes with its own log of the beta function, up to 1e-6 a cell from arguments
    of 8 on."""
    if any(site["kind"] in LOG_BETA for site in case.recipe["sites"]):
        return GRIDS
    hidden = {name for name in read(case) if case.hidden.get(name, SEEN) != SEEN
              and name in case.sites and not finite(case.sites[name])}
    kinds = {case.sites[name]["kind"] for name in hidden}
    rough = any(hidden & {*site.get("adds", ()), site.get("takes")} and (
        site["kind"] != "normal" or "takes" in site or site.get("bends"))
        for site in case.recipe["sites"])
    return GRIDS if rough or kinds - {"normal", "multivariate", "walk"} else CLOSE


def assert_same_fit(one: Fit, other: Fit | None, what: str) -> None:
    """Two fits agree."""
    assert other is not None
    if runs_away(one) and runs_away(other):
        return
    same(other.history[-1], one.history[-1], f"{what}: objective", 1e-7)
    for name, value in one.point.items():
        same(other.point[name], value, f"{what}: '{name}'", 1e-6)


def runs_away(fit: Fit) -> bool:
    """Whether an objective goes on gaining: of a density without a maximum, as where a spread falls
    to 0. How far so many steps come there is a matter of the last digit."""
    gains = np.diff(np.asarray(fit.history, float))
    return len(gains) > 1 and gains[-1] > max(1.0, 0.9 * gains[-2])


def rises(fit: Fit, what: str) -> None:
    """An objective that does not fall."""
    history = np.asarray(fit.history)
    assert (np.diff(history) > -1e-7 * (1 + np.abs(history[1:]))).all(), f"{what} falls: {history}"


def same(got: object, wanted: object, what: str, close: float) -> None:
    """Equal within `close`, relative to what is larger than 1."""
    got, wanted = np.asarray(got, float), np.asarray(wanted, float)
    assert got.shape == wanted.shape, f"{what}: shape {got.shape}, expected {wanted.shape}"
    with np.errstate(invalid="ignore"):
        off = np.abs(got - wanted) / np.maximum(1.0, np.abs(wanted))
    off = np.where((got == wanted) | np.isnan(got) & np.isnan(wanted), 0.0, off)
    assert (off <= close).all(), (
        f"{what}: off by {np.nanmax(off):.3g}: got {got.tolist()}, expected {wanted.tolist()}")
