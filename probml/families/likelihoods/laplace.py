"""Laplace and its asymmetric kin: NumPyro's own densities, row by row, with a kink at the
location."""

import numpyro.distributions as dist

from probml.families.entry import Entry
from probml.families.location_scale import plain

ENTRIES = (Entry((dist.Laplace,), location_scale=plain, kinked=True),
           Entry((dist.AsymmetricLaplace,), kinked=True))
