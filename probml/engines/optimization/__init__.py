"""Optimisation of the log posterior or the log-likelihood, and diagnostics of an optimum.

In the order in which MAP.run uses them:

| what | file |
|---|---|
| the objective; Newton's method and L-BFGS, preconditioned where that pays | `maximization` |
| an optax optimiser, with batches and held-out rows | `training` |
| proposals of other starts, the rule for what is higher, other optima | `search` |
| scales of 0, correlations of ±1, equal entries: proposals and findings | `boundary` |
| flat directions, separation | `identifiability` |
| whether an optimum is one; convergence of EM | `convergence` |

The methods themselves, an optimum's value, gradient and Hessian, and its refinement: see
numerics/optimum.py and numerics/refinement.py.
"""
