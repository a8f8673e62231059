"""What updates of a mean field by hand have in common: the engine at its tightest, and divergences."""

import numpy as np
from scipy.special import digamma, gammaln

import probml

LOG_TWO_PI = np.log(2 * np.pi)


def vb(**changed):
    return probml.VB(**{"tolerance": 1e-12, "restarts": 1, "max_iterations": 3000} | changed)


def gamma_gap(a, b, prior_a, prior_b):
    """KL(Gamma(a, b) ‖ Gamma(prior_a, prior_b)), summed."""
    return np.sum((a - prior_a) * digamma(a) - gammaln(a) + gammaln(prior_a)
                  + prior_a * (np.log(b) - np.log(prior_b)) + a * (prior_b - b) / b)


def normal_gap(mean, precision, prior):
    """KL(N(mean, precision⁻¹) ‖ N(0, diag(1 / prior)))."""
    covariance = np.linalg.inv(precision)
    return 0.5 * (prior @ np.diagonal(covariance) + prior @ mean**2 - len(mean)
                  + np.linalg.slogdet(precision)[1] - np.log(prior).sum())
