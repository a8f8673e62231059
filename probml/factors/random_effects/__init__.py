"""Effects of groups, integrated out: what rows say of them, normal or not, and what is left."""
