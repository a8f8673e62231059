"""What a function is given: arrays, columns of which it asks numbers, params."""
