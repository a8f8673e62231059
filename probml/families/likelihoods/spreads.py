"""Distributions whose density is NumPyro's own, known as priors by a location and a scale."""

import numpyro.distributions as dist

from probml.families.entry import Entry
from probml.families.location_scale import log_scale, plain, walk

ENTRIES = (Entry((dist.Cauchy, dist.Logistic), location_scale=plain),
           Entry((dist.HalfNormal, dist.HalfCauchy), location_scale=log_scale),
           Entry((dist.GaussianRandomWalk,), location_scale=walk, coupled=True))
