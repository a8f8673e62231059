"""Sampling: chains as compiled steps, latent variables in draws of the parameters, and whether an
approximation of the posterior is reliable."""
