"""Mean-field variational Bayes: sweeps over conjugate blocks, their restarts, and batches of rows."""
