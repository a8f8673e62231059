"""Sums over variables of many cells: cell by cell, and along rows of cells."""
