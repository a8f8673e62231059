"""Optimisation of the log posterior or the log-likelihood, and what is said of an optimum.

The way of a fit, as MAP.run goes it:

| what | file |
|---|---|
| the objective in coordinates without bounds | `objective` |
| Newton's method and L-BFGS, preconditioned where that pays | `maximization` |
| an optax optimiser, with batches and held-out rows | `training` |
| proposals of other starts, the rule for what is higher, second looks | `search` |
| scales of 0, correlations of ±1, equal entries: proposals and findings | `boundary` |
| level directions, separation | `identifiability` |
| whether an optimum is one; the end of EM's steps | `convergence` |

The methods themselves, an optimum's value, gradient and Hessian, and its refinement whatever the
units: numerics/optimum.py and numerics/refinement.py.
"""
