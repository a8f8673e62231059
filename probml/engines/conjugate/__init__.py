"""Closed forms: the posterior and its evidence, of one data set, of many, of settings; and block by
block in turn, of variational Bayes."""
