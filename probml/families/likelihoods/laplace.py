"""Laplace and its asymmetric kin: NumPyro's own densities, row by row, with a kink at the
location."""

import numpyro.distributions as dist

from probml.families.entry import Entry

ENTRIES = (Entry((dist.Laplace, dist.AsymmetricLaplace), kinked=True),)
