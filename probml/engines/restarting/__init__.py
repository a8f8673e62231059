"""EM from many starts at once: accelerated iterations, random restarts, batches of rows."""
