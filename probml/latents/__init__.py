"""Numbers of a row that nobody saw, integrated out: a kind a file, chosen in the plan."""
