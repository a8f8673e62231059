"""Chains: the sampler as compiled steps, many at once, discrete sites beside their draws."""
