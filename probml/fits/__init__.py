"""The result of a fit as data: what it keeps, how parts merge, how it is stored."""
