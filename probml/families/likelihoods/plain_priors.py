"""Distributions without a kernel, evaluated row by row: what is known of them as priors, and their
densities where NumPyro's lose their digits."""

import numpyro.distributions as dist

from probml.families.densities import censored
from probml.families.likelihood import Entry
from probml.families.location_scale import log_scale, univariate, walk
from probml.language.measured import Measured

ENTRIES = (Entry((dist.ImproperUniform, Measured), improper=True),
           Entry((dist.Laplace,), location_scale=univariate, kinked=True),
           Entry((dist.AsymmetricLaplace,), kinked=True),
           Entry((dist.Cauchy, dist.Logistic), location_scale=univariate),
           Entry((dist.HalfNormal, dist.HalfCauchy), location_scale=log_scale),
           Entry(censored.KINDS, sharp=censored.sharp, log_prob=censored.of_cut),
           Entry((dist.GaussianRandomWalk,), location_scale=walk, coupled=True),
           Entry((dist.Pareto,), log_prob=censored.pareto),
           Entry((dist.VonMises,), log_prob=censored.von_mises),
           Entry((dist.Weibull,), log_prob=censored.weibull),
           Entry((dist.LeftCensoredDistribution, dist.RightCensoredDistribution),
                 log_prob=censored.one_sided),
           Entry((dist.IntervalCensoredDistribution,), log_prob=censored.censored_log_prob))
