"""Checks of data before anything is fitted."""
