"""Questions about rows, answered in one compiled call."""
