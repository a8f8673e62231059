"""The log density of a model by enumeration of joint states, and the check of an engine's density
against it."""
