"""Functions as they are written for NumPyro, with obs= and plates of their own → models of rows, or
of one density."""
