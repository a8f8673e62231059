"""Trees: pruned by evidence, averaged over prunings, and boosted."""
