"""Student's t of many cells, summed by a series, is that of each cell by itself."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from probml.families.likelihoods.lognormal import LogNormal
from probml.families.likelihoods.normal import MIN_CELLS_TIMES_STATES, Normal
from probml.numerics.logs import MAX_SERIES_ARGUMENT

RANDOM = np.random.default_rng(2)
P, C = 3, 7
N = MIN_CELLS_TIMES_STATES // (P * C) + 1
LOC, SCALE = RANDOM.normal(size=(P, C)), 1 + RANDOM.random((P, C))


def of(df, kind=jnp.float64):
    return {name: jnp.asarray(np.broadcast_to(value, (P, C)), kind)
            for name, value in (("loc", LOC), ("scale", SCALE), ("df", df))}


def each(family, arguments, x, seen):
    among = None if seen is None else seen[:, None]
    return family.predictive(arguments, x[:, None], among).sum(-1)


@pytest.mark.parametrize("family", (Normal(), LogNormal()), ids=("Normal", "LogNormal"))
@pytest.mark.parametrize("seen", (None, RANDOM.random((N, C)) < 0.7), ids=("complete", "in part"))
@pytest.mark.parametrize("df", (30.0, 5e3, 2e6), ids=("few", "many", "more"))
def test_sums_are_those_of_the_cells(family, seen, df):
    x = jnp.asarray(RANDOM.normal(size=(N, C)))
    x = jnp.exp(x) if isinstance(family, LogNormal) else x
    mask = None if seen is None else jnp.asarray(seen)
    found = family.predictive_sum(of(df), x, mask)
    assert found.shape == (N, P)
    np.testing.assert_allclose(found, each(family, of(df), x, mask), rtol=1e-10, atol=1e-10)


def test_they_are_scipys():
    x = RANDOM.normal(size=(N, C))
    log = stats.t(1e5, LOC, SCALE).logpdf(x[:, None]).sum(-1)
    np.testing.assert_allclose(Normal().predictive_sum(of(1e5), jnp.asarray(x), None), log,
                               rtol=1e-10)


@pytest.mark.parametrize("df", (30.0, 5e3, 2e6))
def test_they_keep_the_digits_of_single_precision(df):
    x = RANDOM.normal(size=(N, C))
    found = Normal().predictive_sum(of(df, jnp.float32), jnp.asarray(x, jnp.float32), None)
    np.testing.assert_allclose(found, each(Normal(), of(df), jnp.asarray(x), None), rtol=1e-4)


def test_one_row_far_out_takes_logarithms():
    x = jnp.asarray(RANDOM.normal(size=(N, C))).at[3, 2].set(1e4)
    near = (x[3, 2] - LOC[0, 2]) ** 2 / SCALE[0, 2] ** 2 / 5e3
    assert near > MAX_SERIES_ARGUMENT
    np.testing.assert_allclose(Normal().predictive_sum(of(5e3), x, None),
                               each(Normal(), of(5e3), x, None), rtol=1e-10)


def test_few_cells_and_no_degrees_of_freedom_are_left_to_the_cells():
    assert Normal().predictive_sum(of(5e3), jnp.ones((2, C)), None) is None
    assert Normal().predictive_sum({n: v for n, v in of(5e3).items() if n != "df"},
                                   jnp.ones((N, C)), None) is None
