"""Several fits and estimators side by side."""
