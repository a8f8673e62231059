"""Second derivatives by differences of gradients."""

import numpy as np

from probml.numerics.curvature import differences


def test_differences_keep_the_first_step_along_a_direction_that_is_nearly_flat():
    """A curvature of 1e-14 asks for a step of 1e5, where a logit has no density left; of a hidden Markov model
    with missing cells all standard errors were NaN."""
    def gradient(u):
        return np.array([2 * u[0], 1e-14 * u[1] if abs(u[1]) < 100 else np.nan])

    hessian = differences(gradient, np.array([0.3, 15.0]))
    np.testing.assert_allclose(hessian, [[2, 0], [0, 1e-14]], atol=1e-9)
