"""Of all rows: evidence, expected statistics, gradients, the posterior density."""
