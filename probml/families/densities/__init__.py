"""Log densities that keep their digits in float32, in the place of NumPyro's formulas."""
