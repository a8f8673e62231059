"""What was seen + structure → who is summed out, pooled or evaluated by row, and which update each
parameter gets."""
