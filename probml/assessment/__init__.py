"""Assessment of fits: calibration, decisions, posterior predictive checks, simulation-based
calibration, exports to ArviZ."""
