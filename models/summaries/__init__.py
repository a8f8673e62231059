"""The tables of summaries, by kind of model; each model names its function."""
