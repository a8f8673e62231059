"""The generator and its oracle: random cases hold, and a claim that is false is found."""
