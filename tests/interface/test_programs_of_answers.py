"""All that a first answer compiles is kept for later processes: no operation of JAX is left outside
of `compiling.jit`, where each costs some 30 ms in every process (a summary of correlated effects
once compiled forty)."""

import warnings

import jax.numpy as jnp
import pytest

import probml
from compilations import unkept
from probml.numerics.curvature import units
from user_models import CASES

QUICK = ("varying_intercepts", "lkj_slopes", "rasch", "normal_inverse_gamma", "same_family")


@pytest.mark.parametrize("case", [
    pytest.param(case, id=repr(case), marks=() if repr(case) in QUICK else pytest.mark.slow)
    for case in CASES if case.truth != "refused" and case.wrong is None])
def test_a_fit_its_summary_and_draws_compile_nothing_outside_of_kept_programs(case):
    data = case.data
    with unkept() as found, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for engine in (None, probml.MAP()):
            fit = case.model.fit(data, engine)
            fit.summary()
        fit.log_prob(data)
    assert found == []


def test_an_operation_outside_of_programs_is_seen():
    with unkept() as found:
        units(jnp.full((17, 17), -2.5), jnp)
    assert found and "curvature.py" in found[0]
