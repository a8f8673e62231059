"""Distributions without a kernel, evaluated row by row: what is known of them as priors, and their
densities where NumPyro's lose their digits."""

import numpyro.distributions as dist

from probml.families import truncated
from probml.families.densities import accurate, censored
from probml.families.entry import Entry
from probml.families.location_scale import log_scale, univariate, walk
from probml.language.measured import Measured

ENTRIES = (Entry((dist.ImproperUniform, Measured), improper=True),
           Entry((dist.Laplace,), location_scale=univariate, kinked=True),
           Entry((dist.AsymmetricLaplace,), kinked=True),
           Entry((dist.Cauchy, dist.Logistic), location_scale=univariate),
           Entry((dist.HalfNormal, dist.HalfCauchy), location_scale=log_scale),
           Entry(truncated.KINDS, sharp=truncated.sharp, log_prob=truncated.of_cut),
           Entry((dist.GaussianRandomWalk,), location_scale=walk, coupled=True),
           Entry((dist.Pareto,), log_prob=accurate.pareto),
           Entry((dist.VonMises,), log_prob=accurate.von_mises),
           Entry((dist.Weibull,), log_prob=accurate.weibull),
           Entry((dist.LeftCensoredDistribution, dist.RightCensoredDistribution),
                 log_prob=censored.one_sided),
           Entry((dist.IntervalCensoredDistribution,), log_prob=censored.censored_log_prob))
