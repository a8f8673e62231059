"""What a traced program reads by index: gathers, slices and scatters, and the numbers of them."""
