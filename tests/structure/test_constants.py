"""Arrays of NumPy that a function holds, in either precision of one process."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml

CUTS, MEANS = np.array([-1.0, 0.7]), np.array([1.0, 1.0 / 3.0])


@probml.model
def choices():
    with probml.rows():
        sample("y", dist.OrderedLogistic(0.18, CUTS))


@probml.model
def vectors():
    shift = sample("shift", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal(jnp.exp(MEANS) + shift, 1.0).to_event(1))


CASES = {
    "a program without inputs": (choices, lambda model: model.at({}).log_prob({"y": np.arange(3)})),
    "a fit": (vectors, lambda model: model.fit({"y": np.ones((4, 2))}, probml.MAP())
              .log_prob({"y": np.ones((1, 2))})),
    "rows that are drawn": (vectors, lambda model: model.simulate(3)["y"]),
}


@pytest.mark.parametrize("first", (True, False))
@pytest.mark.parametrize("case", CASES)
def test_constants_have_the_digits_of_the_precision_that_is_asked(case, first):
    made, ask = CASES[case]
    found = {}
    for double in (first, not first, first):
        with jax.enable_x64(double):
            found.setdefault(double, []).append(np.asarray(ask(made()), float))
    np.testing.assert_array_equal(*found[first])
    if case.startswith("rows"):  # drawn from other bits
        np.testing.assert_allclose(found[True][0].shape, found[False][0].shape)
    else:
        np.testing.assert_allclose(found[True][0], found[False][0], rtol=1e-5)


def test_double_has_all_digits_of_a_constant_that_single_met_first():
    with jax.enable_x64(False):
        vectors().at({"shift": 0.0}).log_prob({"y": np.ones((1, 2))})
        vectors().simulate(3)
    found = vectors().at({"shift": 0.0}).log_prob({"y": np.ones((1, 2))})
    right = -0.5 * ((1.0 - np.exp(MEANS)) ** 2).sum() - np.log(2 * np.pi)
    np.testing.assert_allclose(found, [right], rtol=1e-14)
