"""Structures from tables with unseen cells."""
