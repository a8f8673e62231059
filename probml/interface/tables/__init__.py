"""Data of several tables: the rows of one, and those of others in places beside them."""
