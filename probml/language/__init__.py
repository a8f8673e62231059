"""How a generative function is written and bound to its settings."""
