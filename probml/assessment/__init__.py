"""Is it right, and what to do: calibration, decisions, reports, certificates."""
