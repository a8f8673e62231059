"""Closed forms: the posterior and its evidence, of one data set, of many, of settings."""
