"""The zoo: one file per family of models, written with the public names of probml only."""

from probml.models.gaussian_mixture import gaussian_mixture as gaussian_mixture
from probml.models.naive_bayes import naive_bayes as naive_bayes
