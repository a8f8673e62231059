"""Regression: linear, generalized linear, robust, smooth."""
