"""Mean-field variational Bayes: sweeps over conjugate blocks, and their restarts."""
