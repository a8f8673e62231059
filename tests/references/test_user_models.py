"""Models that users bring: their density is NumPyro's (brute force over what is hidden), and a fit is
right, or says why not."""

import warnings

import jax
import numpy as np
import pandas as pd
import pytest

import probml
import user_truth
from monte_carlo import STANDARD_ERRORS
from user_models import CASES

STORED = user_truth.stored()
# nats by which a fit may be above the stored mode (which many starts found), or below it
HIGHER, LOWER = 1e-3, 1e-3
ROUNDED = 1e-3  # of a standard deviation: below that, a difference of means is of no account


def marks(case, wrong, *more):
    return pytest.param(case, id=repr(case), marks=[
        *more, *([pytest.mark.xfail(strict=True, reason=wrong)] if wrong else [])
    ])


def test_every_case_has_a_name_of_its_own_and_a_stored_truth():
    names = [repr(case) for case in CASES]
    assert len(set(names)) == len(names)
    for case in CASES:
        assert case.truth in ("mode", "posterior", "refused")
        assert case.truth == "refused" or "points" in STORED[repr(case)], case


EACH = 4  # of the densities, one in so many is asked in the short run: each is a program to compile


def unless(short, *more):
    return [*more, *([] if short else [pytest.mark.slow])]


DENSE = [case for case in CASES if case.truth != "refused"]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", [marks(c, c.wrong_density, *unless(c.quick or i % EACH == 0))
                                  for i, c in enumerate(DENSE)])
def test_the_log_density_is_numpyros_with_hidden_sites_summed_by_brute_force(case):
    stored = STORED[repr(case)]
    assert np.isfinite(stored["densities"]).all()
    points = [{name: np.asarray(value) for name, value in point.items()}
              for point in stored["points"]]
    # the labels of states in the order of their codes, as a fit takes them
    named = {name: tuple(sorted(column.dropna().unique())) for name, column in texts(case.data)}
    found = [float(case.model.log_density(case.data, point, named)) for point in points]
    np.testing.assert_allclose(found, stored["densities"], rtol=1e-9, atol=1e-9)


def texts(data):
    """The columns of a table that hold words, whose codes known parameters do not tell."""
    return [(name, data[name]) for name in data if isinstance(data[name], pd.Series)
            and isinstance(data[name].dropna().iloc[0], str)]


@pytest.mark.one_in(4)
@pytest.mark.slow
@pytest.mark.parametrize("case", DENSE, ids=repr)
def test_the_stored_densities_are_numpyros_of_today(case):
    np.testing.assert_allclose(user_truth.densities(case)["densities"],
                               STORED[repr(case)]["densities"], rtol=1e-9, atol=1e-9)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", [marks(case, case.wrong, *unless(case.quick)) for case in CASES])
def test_the_fit_is_the_truth_or_a_refusal_in_words(case):
    """The mode by MAP; posterior means by the engine of the case, or the default one: whether that of
    the others has posterior means, too, is asked in tests/default_posterior."""
    if case.truth == "refused":
        with pytest.raises((probml.ModelError, probml.DataError), match=case.says):
            case.model.fit(case.data, case.engine)
        return
    stored = STORED[repr(case)]
    if {"mode": "value", "posterior": "means"}[case.truth] not in stored:
        pytest.skip(f"no truth is stored: python tests/user_models.py {case!r}")
    with warnings.catch_warnings():
        # where the posterior is hard, it says so: the means must agree
        warnings.filterwarnings("ignore", "NUTS of model", UserWarning)
        mode = case.truth == "mode" and case.engine is None
        fit = case.model.fit(case.data, probml.MAP() if mode else case.engine)
    if case.truth == "mode":
        assert set(fit.params) >= set(case.free)
        reached = float(jax.jit(case.density())({name: fit.params[name] for name in case.free}))
        assert -LOWER < reached - stored["value"] < HIGHER, (
            f"{fit.engine}: {reached} where the mode is {stored}"
        )
        return
    apart = {name: standard_errors_apart(fit, name, stored) for name in stored["means"]}
    assert max(apart.values()) < STANDARD_ERRORS, (f"{fit.engine}: means apart, in standard "
                                                   f"errors: {apart}")


def standard_errors_apart(fit, name, stored):
    """The most by which means differ, in combined Monte Carlo standard errors."""
    mean, error, deviation = (np.asarray(stored[key][name])
                              for key in ("means", "errors", "deviations"))
    drawn = getattr(fit.drawn, "values", None)
    own = user_truth.moments(np.asarray(drawn[name], float))[1] if drawn is not None else 0.0
    allowed = np.hypot(np.hypot(error, own), ROUNDED * deviation)
    return float(np.max(np.abs(np.asarray(fit.params[name]) - mean) / np.maximum(allowed, 1e-9)))


HEAVY = 10_000.0  # rows that each row stands for
NEAR = 0.1  # posterior standard deviations


@pytest.mark.slow
@pytest.mark.one_in(20)
@pytest.mark.parametrize("engine", [None, probml.MAP()], ids=["default", "MAP"])
@pytest.mark.parametrize("case", DENSE, ids=repr)
def test_heavy_rows_have_in_float32_the_answers_of_double_or_a_warning(case, engine):
    """Log densities are so large that float32 rounds away by what optima are compared."""
    def fitted(double):
        with jax.enable_x64(double), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return case.model.fit(case.data, engine, weights=np.full(case.rows, HEAVY))

    try:
        fit = fitted(False)
    except (probml.ModelError, probml.DataError):
        with pytest.raises((probml.ModelError, probml.DataError)):
            fitted(True)
        return
    same = fitted(True)
    if fit.warnings or same.warnings or not (fit.converged and same.converged):
        return
    with jax.enable_x64(True):
        found, want = fit.summary(), same.summary()
    known = want["sd"].to_numpy() > 0
    for name in want.index[known]:  # of states the order is arbitrary
        own = [label for label in want.index[known] if label.split("[")[0] == name.split("[")[0]]
        values = [np.sort(table.loc[own].iloc[:, 0].to_numpy(float)) for table in (found, want)]
        np.testing.assert_allclose(*values, rtol=0, atol=NEAR * want.loc[own, "sd"].min(), err_msg=name)
