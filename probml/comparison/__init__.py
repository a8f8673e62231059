"""Model comparison: information criteria, evidence, cross-validation."""
