"""Distributions without a kernel: their density is NumPyro's own, row by row; what is known of them
as priors."""

import numpyro.distributions as dist

from probml.families import truncated
from probml.families.entry import Entry
from probml.families.location_scale import log_scale, plain, walk

ENTRIES = (Entry((dist.ImproperUniform,), improper=True),
           Entry((dist.Laplace,), location_scale=plain, kinked=True),
           Entry((dist.AsymmetricLaplace,), kinked=True),
           Entry((dist.Cauchy, dist.Logistic), location_scale=plain),
           Entry((dist.HalfNormal, dist.HalfCauchy), location_scale=log_scale),
           Entry(truncated.KINDS, sharp=truncated.sharp),
           Entry((dist.GaussianRandomWalk,), location_scale=walk, coupled=True))
