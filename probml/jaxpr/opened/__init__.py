"""Functions as one short list of equations: replayed, or pulled back, under what is around."""
