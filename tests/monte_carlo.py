"""What the moments of draws may be off by."""

import numpy as np
from numpyro.diagnostics import effective_sample_size

STANDARD_ERRORS = 4.0  # by which the moments of draws may be off


def standard_errors(draws):
    """Monte Carlo standard errors of the mean and of the standard deviation (delta method), draws
    (chains, n)."""
    mean, deviation = draws.mean(), draws.std()
    squares = (draws - mean) ** 2
    of_mean = deviation / np.sqrt(effective_sample_size(draws))
    return of_mean, squares.std() / np.sqrt(effective_sample_size(squares)) / (2 * deviation)
