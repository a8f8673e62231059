"""What a program says many times: results that are alike, steps of a recursion."""
