"""Relational data: the rows of a root table, with the rows of other tables as their cells."""
