"""Mixed models, meta-analysis, and formulas as R writes them."""
