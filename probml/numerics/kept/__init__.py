"""Caches of compiled programs: on disk for other processes, in memory until it runs short."""
